//! The programs of the grid: for each model, a stack of one of its blocks as `shardc new` writes
//! it, on each chip and number of chips, for each use.

use std::process::Command;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::least_kept;

/// The models, each with the source that `shardc new` reads it from.
const MODELS: [(&str, From); 7] = [
    ("llama-3-8b", From::Config("llama-3-8b.json")),
    ("llama-3-70b", From::Config("llama-3-70b.json")),
    ("llama-3-405b", From::Config("llama-3-405b.json")),
    ("qwen-2.5-72b", From::Config("qwen-2.5-72b.json")),
    ("mixtral-8x7b", From::Config("mixtral-8x7b.json")),
    ("palm-540b", From::Template("palm-block")),
    ("gpt-3", From::Config("gpt-3.json")),
];

/// The source that `shardc new` reads a model from.
#[derive(Clone, Copy)]
enum From {
    /// The name of a file in `configs/`.
    Config(&'static str),
    Template(&'static str),
}

const CHIPS: [&str; 4] = ["tpu-v5e", "tpu-v5p", "tpu-v6e", "h100"];

/// The uses of a block, by name.
const USES: [(&str, Use); 3] = [
    ("decode", Use::Decode { cached: 8192 }),
    ("prompt-1024", Use::Prompt { tokens: 1024 }),
    ("prompt-4096", Use::Prompt { tokens: 4096 }),
];

#[derive(Clone, Copy)]
enum Use {
    /// One token for each sequence, with `cached` positions in the caches.
    Decode { cached: u64 },
    /// `tokens` new tokens for each sequence, and none in the caches.
    Prompt { tokens: u64 },
}

/// Weights and caches may take at most this part of the memory of a chip, as numerator and
/// denominator. The rest is for activations and for copies that a plan makes.
const FULL: (u64, u64) = (3, 4);
/// The first number of chips is the smallest of these powers of two, given by their exponents, that
/// holds every use.
const FIRST: std::ops::RangeInclusive<u32> = 3..=10;
/// The second number of chips is the first times one of these factors; the first factor that gives
/// a mesh is taken.
const SECOND: [u64; 2] = [4, 2];

/// A program of the grid.
pub(crate) struct GridProgram {
    /// Model, chip, number of chips and use, such as `llama-3-70b/tpu-v5e/64/decode`.
    pub(crate) name: String,
    /// The source, which `shardc explain -` reads.
    pub(crate) text: String,
    pub(crate) program: Program,
    pub(crate) hardware: Hardware,
}

/// All programs, in the order of the tables above. An error says which model fits on no number of
/// chips.
pub(crate) fn programs() -> Result<Vec<GridProgram>, String> {
    let mut out = Vec::new();
    for (model, from) in MODELS {
        for chip in CHIPS {
            let of = |count: u64| {
                USES.iter()
                    .map(|(name, of)| of_use(model, from, chip, count, name, *of))
                    .collect::<Option<Vec<_>>>()
            };
            let first = FIRST.map(|log| 1u64 << log).find_map(|count| Some((count, of(count)?)));
            let (count, programs) =
                first.ok_or_else(|| format!("no number of {chip} holds {model}"))?;
            let second = SECOND.iter().find_map(|times| of(count * times));
            out.extend(programs);
            out.extend(second.ok_or_else(|| format!("no second number of {chip} holds {model}"))?);
        }
    }
    Ok(out)
}

/// The program of a block in one use. It has as many sequences as `new` writes, or a half, a
/// quarter and so on, until the chips hold weights and caches. `None` where the chips do not hold
/// the fewest sequences, or where so many chips make no mesh.
fn of_use(
    model: &str,
    from: From,
    chip: &str,
    count: u64,
    name: &str,
    of: Use,
) -> Option<GridProgram> {
    let written = Written::by_new(from, chip, count)?;
    let most = match of {
        Use::Decode { .. } => written.sequences,
        Use::Prompt { .. } => written.fewest,
    };
    let halves =
        std::iter::successors(Some(most), |n| Some(n / 2)).take_while(|n| *n >= written.fewest);
    let divisible = halves.filter(|n| n.is_multiple_of(written.fewest));
    divisible.map(|sequences| written.used(sequences, of)).find_map(|text| {
        let file = SourceFile::new("grid.shard", text);
        let checked = check_source(&file, &CheckOptions::default());
        let [program] = checked.programs.as_slice() else { return None };
        let hardware = Hardware::built_in(program.hardware.as_deref()?)?;
        let holds =
            least_kept(program).saturating_mul(FULL.1) <= hardware.hbm_bytes.saturating_mul(FULL.0);
        holds.then(|| GridProgram {
            name: format!("{model}/{chip}/{count}/{name}"),
            text: file.text,
            program: program.clone(),
            hardware,
        })
    })
}

/// The parts of a file written by `new` that the grid needs.
struct Written {
    /// The text up to the end of the block, without phases and without the model around the block.
    block: String,
    /// The name of the dim that counts sequences, or groups of sequences.
    dim: String,
    /// The number of sequences in the phase `decode`.
    sequences: u64,
    /// The number of sequences in the phase `prefill`: the fewest that the layouts can split.
    fewest: u64,
}

impl Written {
    /// Runs `shardc new`; `None` where so many chips make no mesh.
    fn by_new(from: From, chip: &str, count: u64) -> Option<Written> {
        let mut new = Command::new(env!("CARGO_BIN_EXE_shardc"));
        new.args(["new", "--hardware", chip, "--chips", &count.to_string()]);
        match from {
            From::Config(file) => new.args([
                "--from-config",
                &format!("{}/benches/grid/configs/{file}", env!("CARGO_MANIFEST_DIR")),
            ]),
            From::Template(name) => new.args(["--template", name]),
        };
        let output = new.output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        let (block, _) = text.split_once("\n}\n")?;
        let phases: Vec<&str> = block.lines().filter(|line| line.starts_with("phase ")).collect();
        // `phase prefill { B = 4, L = 512 }`: the first dim is that of the sequences.
        let first = |phase: &str| {
            let line = phases.iter().find(|line| line.split_whitespace().nth(1) == Some(phase))?;
            let (dim, size) = line.split_once('{')?.1.split_once(',')?.0.split_once('=')?;
            Some((dim.trim().to_string(), size.trim().parse::<u64>().ok()?))
        };
        let ((dim, sequences), (_, fewest)) = (first("decode")?, first("prefill")?);
        let kept =
            block.lines().filter(|line| !line.starts_with("phase ") && !line.starts_with("//!"));
        let block = kept.collect::<Vec<_>>().join("\n") + "\n}\n";
        Some(Written { block, dim, sequences, fewest })
    }

    /// The source of the program for one use, with this number of sequences.
    fn used(&self, sequences: u64, of: Use) -> String {
        let (tokens, positions) = match of {
            Use::Decode { cached } => (1, cached),
            Use::Prompt { tokens } => (tokens, tokens),
        };
        let sized = |line: &str| {
            let name = line.strip_prefix("dim ").and_then(|rest| rest.split_whitespace().next())?;
            let size = match name {
                _ if name == self.dim => sequences,
                "L" => tokens,
                "S" => positions,
                _ => return None,
            };
            Some(format!("dim {name} = {size}"))
        };
        self.block
            .lines()
            .map(|line| sized(line).unwrap_or_else(|| line.to_string()) + "\n")
            .collect()
    }
}
