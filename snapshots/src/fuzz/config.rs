//! `config.json` of `shardc new --from-config`: the program made from an accepted file checks
//! without an error.

use shard_check::CheckOptions;
use shard_driver::pipeline;
use shard_grammar::SourceFile;
use shard_runtime::Random;

use super::{Depth, Mutator, Shardc, Surface, Verdict, hash, words};
use crate::files::{read, root};

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "config", extension: "json", corpus, make, judge };

/// Arguments behind `new --from-config case.json`, one list for each case in turn.
const OPTIONS: &[&[&str]] = &[
    &[],
    &["--chips", "1"],
    &["--chips", "48", "--hardware", "h100"],
    &["--chips", "65536"],
    &["--mesh", "data=4,model=8", "--hardware", "tpu-v5e"],
    &["--mesh", "a=1", "--name", "b2"],
    &["--mesh", "x=3,y=5,z=7", "--hardware", "tpu-v4"],
    &["--hardware", "a100-80g", "--chips", "7"],
];

/// The configurations of the command line's tests, and small ones.
fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    let named = [
        "gpt2_xl",
        "gpt_neox_20b",
        "llama3_70b",
        "mixtral_8x7b",
        "deepseek_v2_lite",
        "gemma3_27b",
        "gpt_oss_120b",
        "granite_8b",
    ];
    let path = |name: &str| root().join(format!("compiler/cli/tests/files/configs/{name}.json"));
    let mut texts: Vec<String> = named.iter().map(|name| read(&path(name))).collect();
    for (kind, more) in [
        ("llama", ""),
        (
            "qwen2",
            ", \"attention_bias\": true, \"num_key_value_heads\": 2, \"torch_dtype\": \"float8\"",
        ),
        ("mistral", ", \"sliding_window\": 4096, \"head_dim\": 48, \"num_key_value_heads\": 1"),
        (
            "mixtral",
            ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"_name_or_path\": \"a/b\"",
        ),
    ] {
        texts.push(format!(
            "{{\"model_type\": \"{kind}\", \"hidden_size\": 128, \"num_attention_heads\": \
                4, \"intermediate_size\": 384,\n\
             \"num_hidden_layers\": 3, \"hidden_act\": \"silu\", \"vocab_size\": 1000{more}}}\n"
        ));
    }
    texts.into_iter().map(String::into_bytes).collect()
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    Mutator::new(random, corpus, words::CONFIG).text().into_bytes()
}

fn judge(shardc: &Shardc, case: &[u8]) -> Verdict {
    shardc.put("case.json", case)?;
    let hash = hash(case);
    let options = OPTIONS[(hash % OPTIONS.len() as u64) as usize];
    let ended = shardc.run(&[&["new", "--from-config", "case.json"], options].concat(), b"")?;
    if ended.status != 0 {
        return if ended.err.is_empty() {
            Err("refused without a reason".to_string())
        } else {
            Ok(Depth::Refused)
        };
    }
    let text = String::from_utf8(ended.out).map_err(|_| "the program is no UTF-8")?;
    let file = SourceFile::new("new.shard", text);
    let checked = pipeline::check(&file, &CheckOptions::default());
    if let Some(error) = checked.diagnostics.iter().find(|d| d.is_error()) {
        return Err(format!(
            "the program that is written is wrong: {} {}\n{}",
            error.code, error.message, file.text
        ));
    }
    if shard_grammar::format(&file).as_deref() != Ok(file.text.as_str()) {
        return Err(format!("the program that is written is not formatted:\n{}", file.text));
    }
    if hash.is_multiple_of(16) {
        shardc.put("new.shard", file.text.as_bytes())?;
        shardc.run(&["lower", "new.shard"], b"")?;
        return Ok(Depth::Executed);
    }
    Ok(Depth::Accepted)
}
