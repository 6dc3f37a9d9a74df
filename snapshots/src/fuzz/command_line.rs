//! Command lines, with files that are correct or spoiled. A case has one argument on each line, a
//! line `---`, and the file, which is at `case.shard` and is also standard input.

use shard_runtime::Random;

use super::{Depth, Mutator, Shardc, Surface, Verdict, text_of, words};
use crate::files::examples;

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "arguments", extension: "txt", corpus, make, judge };

/// Between the arguments and the file.
const BORDER: &str = "\n---\n";

/// The largest example.
const MAX_EXAMPLE: usize = 1800;

/// Commands with the arguments that they always have.
const COMMANDS: &[&[&str]] = &[
    &["check", "case.shard"],
    &["check", "--expect", "case.shard"],
    &["fmt", "--check", "case.shard"],
    &["fmt", "-"],
    &["fmt", "--explicit", "case.shard"],
    &["explain", "case.shard"],
    &["explain", "-", "--alternatives", "bounds"],
    &["explain", "case.shard", "--emit", "html", "--no-alternatives"],
    &["cost", "case.shard"],
    &["lower", "case.shard"],
    &["lower", "case.shard", "--emit", "json"],
    &["run", "case.shard"],
    &["diff", "case.shard", "--mesh-b", "x=2,y=2,z=2"],
    &["diff", "case.shard", "--dim-b", "B=64"],
    &["sweep", "case.shard", "--jobs", "1", "-D", "B=1..64:x4"],
    &["snapshot", "case.shard"],
    &["snapshot", "--update", "case.shard"],
    &["new", "--template", "mlp"],
    &["new", "--template", "moe-block"],
    &["new"],
    &["hardware"],
    &["verify-certificate", "case.shard"],
    &["explain", "case.shard", "--certificate", "out.json"],
    &["man"],
    &["completions", "bash"],
];

/// Arguments that may follow any of them.
const OPTIONS: &[&[&str]] = &[
    &["--format", "json"],
    &["--format", "text"],
    &["--error-format", "json"],
    &["--error-format", "sarif"],
    &["--error-format", "github"],
    &["--color", "always"],
    &["-D", "B=8"],
    &["-D", "B=1,L=2"],
    &["-D", "E=7"],
    &["-D", "H=48 pad 64"],
    &["-D", "B=0"],
    &["-D", "B=999999999999999999"],
    &["-D", "B"],
    &["-D", "Ä=1"],
    &["-D", "B=1..1024:x2"],
    &["-D", "B=1..99999999999999999:+1"],
    &["-D", "B=5..1:x0"],
    &["--mesh", "x=1"],
    &["--mesh", "x=2,y=2,z=2"],
    &["--mesh", "x=3,y=5,z=7"],
    &["--mesh", "x=0"],
    &["--mesh", "x=65536,y=65536"],
    &["--mesh", "x=2,x=2"],
    &["--mesh", "data=4,model=8"],
    &["--mesh", ""],
    &["--hardware", "h100"],
    &["--hardware", "tpu-v5p"],
    &["--hardware", "nosuch"],
    &["--hardware", "case.shard"],
    &["--hardware", "."],
    &["--hardware", "./nosuch.toml"],
    &["--layer", "f"],
    &["--layer", "mlp"],
    &["--layer", ""],
    &["--phase", "decode"],
    &["--objective", "overlap"],
    &["--objective", "comm"],
    &["--objective", "memory"],
    &["--strict"],
    &["--fuse"],
    &["--full"],
    &["--emulate-dtypes"],
    &["--seed", "18446744073709551615"],
    &["--tolerance", "0"],
    &["--tolerance", "1e400"],
    &["--input", "x=case.shard"],
    &["--input", "=,"],
    &["--output", "out"],
    &["--why", "h"],
    &["--why", "3"],
    &["--why", "4294967296"],
    &["--why-not", "all-gather:x"],
    &["--why-not", "h: BLF_x"],
    &["--why-not", "x-weight-gathered"],
    &["--why-not", ":"],
    &["--vary", "B"],
    &["--notation", "jax"],
    &["--notation", "shardy"],
    &["--width", "1"],
    &["--width", "18446744073709551615"],
    &["--batch", "B"],
    &["--context", "S"],
    &["--cache-share", "0"],
    &["--cache-share", "nan"],
    &["--plot"],
    &["--max-points", "0"],
    &["--chips", "65536"],
    &["--chips", "13"],
    &["--name", "weight"],
    &["--name", "a\u{202e}b"],
    &["--from-config", "case.shard"],
];

fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    examples()
        .into_iter()
        .map(|e| e.text.into_bytes())
        .filter(|text| text.len() < MAX_EXAMPLE)
        .collect()
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut words: Vec<&str> = COMMANDS[random.below(COMMANDS.len() as u64) as usize].to_vec();
    for _ in 0..random.below(3) {
        words.extend(OPTIONS[random.below(OPTIONS.len() as u64) as usize]);
    }
    let mut arguments = words.join("\n");
    if random.below(5) == 0 {
        let spoiled = [arguments.clone().into_bytes()];
        arguments = Mutator::new(random, &spoiled, words::ARGUMENTS).text();
    }
    let mut mutator = Mutator::new(random, corpus, words::SHARD);
    let text = mutator.text_or_spoiled();
    format!("{arguments}{BORDER}{text}").into_bytes()
}

fn judge(shardc: &Shardc, case: &[u8]) -> Verdict {
    let text = text_of(case);
    let (arguments, file) = text.split_once(BORDER).unwrap_or((&text, ""));
    // No argument of any process has a NUL in it.
    let arguments = arguments.replace('\0', "\u{fffd}");
    let arguments: Vec<&str> = arguments.lines().collect();
    let outside = |argument: &&str| {
        argument.contains("..") && argument.contains('/') || argument.contains("=/")
    };
    if arguments.iter().any(|argument| outside(argument) || argument.starts_with('/')) {
        // Nothing is written outside of the folder of the case.
        return Ok(Depth::Refused);
    }
    shardc.put("case.shard", file.as_bytes())?;
    let ended = shardc.run(&arguments, file.as_bytes())?;
    if arguments.windows(2).any(|pair| pair == ["--format", "json"])
        && ended.status == 0
        && !ended.out.is_empty()
    {
        let is_json = serde_json::from_slice::<serde_json::Value>(&ended.out).is_ok();
        let has_json = !matches!(
            arguments.first(),
            Some(&("fmt" | "new" | "man" | "completions" | "snapshot"))
        );
        if has_json
            && !is_json
            && !arguments.iter().any(|a| ["--emit", "--help", "-h", "--version"].contains(a))
        {
            return Err(format!(
                "{arguments:?}: no JSON:\n{}",
                text_of(&ended.out[..ended.out.len().min(500)])
            ));
        }
    }
    if std::str::from_utf8(&ended.out).is_err() {
        return Err(format!("{arguments:?}: standard output is no UTF-8"));
    }
    match ended.status {
        0 => Ok(Depth::Executed),
        _ if ended.err.is_empty() && ended.out.is_empty() => {
            Err(format!("{arguments:?} fails without a word"))
        }
        _ => Ok(Depth::Refused),
    }
}
