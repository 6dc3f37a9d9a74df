//! A model from the `config.json` that lies beside the weights of a model on Hugging Face.

mod deepseek;
mod experts;
mod gemma;
mod gpt;
mod llama;
mod mamba;
mod reader;

use std::borrow::Cow;

use serde_json::Value;
use shard_check::diagnostics::ConfigProblem;
use shard_grammar::{SourceFile, Span};
use shard_ir::never;

use super::model::{Block, Model, Rotary, Sees};
use super::order::{Piece, pieces};
use reader::Config;

/// Reads a configuration of one `model_type`, which is also the name of the model.
type Reads = fn(&Config<'_>, &'static str) -> Result<Model, ConfigProblem>;

/// The `model_type`s that are understood.
const TYPES: &[(&str, Reads)] = &[
    ("llama", llama::llama),
    ("mistral", llama::llama),
    ("qwen2", llama::qwen),
    ("qwen3", llama::qwen),
    ("phi3", llama::phi3),
    ("olmo2", llama::olmo2),
    ("granite", llama::granite),
    ("stablelm", llama::stablelm),
    ("starcoder2", llama::starcoder2),
    ("cohere", llama::cohere),
    ("cohere2", llama::cohere),
    ("mixtral", experts::mixtral),
    ("olmoe", experts::olmoe),
    ("qwen2_moe", experts::qwen),
    ("qwen3_moe", experts::qwen),
    ("glm4_moe", experts::glm4),
    ("gpt_oss", experts::gpt_oss),
    ("llama4_text", experts::llama4),
    ("deepseek_v2", deepseek::deepseek),
    ("deepseek_v3", deepseek::deepseek),
    ("kimi_k2", deepseek::deepseek),
    ("gemma", gemma::gemma),
    ("gemma2", gemma::gemma),
    ("gemma3_text", gemma::gemma),
    ("gpt2", gpt::gpt2),
    ("gpt_neox", gpt::gpt_neox),
    ("phi", gpt::phi),
    ("bloom", gpt::bloom),
    ("falcon", gpt::falcon),
    ("mamba2", mamba::mamba2),
];

/// The words of the `model_type`s that are understood.
pub fn types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(word, _)| *word)
}

/// Types that are not supported, with what they need.
const LACKING: &[(&str, &str)] = &[
    ("mamba", "a scan over positions"),
    ("jamba", "a scan over positions"),
    ("t5", "an encoder beside the decoder, and positions by distance"),
];

/// The longest repeated pattern of layers with experts that is kept.
const PATTERN_OF_EXPERTS: usize = 2;

/// Reads a configuration, or says what is wrong with it.
pub fn read(file: &SourceFile) -> Result<Model, ConfigProblem> {
    // A byte order mark becomes three spaces: each key stays at its place.
    let text = match file.text.strip_prefix('\u{feff}') {
        Some(rest) => Cow::Owned(format!("   {rest}")),
        None => Cow::Borrowed(file.text.as_str()),
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| not_json(file, &error))?;
    let Value::Object(keys) = value else {
        return Err(ConfigProblem::NotJson {
            message: "it is an array or a plain value".to_string(),
            span: Span::new(0, 0),
        });
    };
    let config = Config::new(file, keys);
    let kind = config.text(&["model_type"])?;
    let Some((kind, reads)) = TYPES.iter().find(|(known, _)| *known == kind) else {
        return Err(unknown(&config, kind));
    };
    let config = match *kind {
        "gemma3_text" => config.with_defaults(gemma::DEFAULTS),
        _ => config,
    };
    let mut model = reads(&config, kind)?;
    if let Some((Some(stored), _)) = config.quantisation() {
        model.stored = stored;
        // In gpt-oss only the experts are quantised.
        if *kind == "gpt_oss" {
            model.stored_attention = model.dtype;
            model.block = experts::scaled_by(&model);
        } else {
            model.stored_attention = stored;
        }
    }
    let attentions = || model.kinds.iter().filter_map(|kind| kind.attention.as_ref());
    let rotary = attentions().any(|a| a.rotary != Rotary::No);
    let uneven = attentions().find(|a| !a.heads.is_multiple_of(a.kv_heads)).cloned();
    model.left_out.extend(config.left_out(rotary, model.block.is_some()));
    match uneven {
        Some(a) => Err(ConfigProblem::Indivisible {
            what: "num_attention_heads",
            size: a.heads,
            by: "num_key_value_heads",
            parts: a.kv_heads,
            span: config.span("num_key_value_heads"),
        }),
        None => Ok(model),
    }
}

fn unknown(config: &Config<'_>, model_type: String) -> ConfigProblem {
    ConfigProblem::Unknown {
        span: config.span("model_type"),
        needs: LACKING.iter().find(|(lacking, _)| *lacking == model_type).map(|(_, what)| *what),
        model_type,
        known: TYPES.iter().map(|(known, _)| known.to_string()).collect(),
    }
}

/// Gives each layer its kind, and drops kinds that no layer has.
fn layers_of_kinds(
    config: &Config<'_>,
    model: &mut Model,
    kinds: Vec<Block>,
    kind_of: impl Fn(u64) -> usize,
) -> Result<(), ConfigProblem> {
    let layers = model.pieces.iter().map(|piece| piece.times).sum();
    let order: Vec<usize> = (0..config.few_layers(layers)?).map(kind_of).collect();
    let used: Vec<usize> = (0..kinds.len()).filter(|kind| order.contains(kind)).collect();
    let place = |kind: usize| {
        let place = used.iter().position(|used| *used == kind);
        place.unwrap_or_else(|| never!("a block of a kind that no layer has", 0))
    };
    let order: Vec<usize> = order.into_iter().map(place).collect();
    // The search for a long pattern of layers with experts takes minutes.
    let is_long = |piece: &Piece| {
        let has_experts = |kind: &usize| kinds[used[*kind]].experts().is_some();
        piece.kinds.len() > PATTERN_OF_EXPERTS && piece.kinds.iter().any(has_experts)
    };
    let told = pieces(&order).filter(|told| !told.iter().any(is_long));
    model.pieces = told.unwrap_or_else(|| {
        model.left_out.push("the order of the layers (those of a kind stand together)".to_string());
        let times = |kind| order.iter().filter(|one| **one == kind).count() as u64;
        (0..used.len()).map(|kind| Piece { kinds: vec![kind], times: times(kind) }).collect()
    });
    model.kinds = used.into_iter().map(|kind| kinds[kind].clone()).collect();
    Ok(())
}

/// The positions that a layer with windows sees: all, where the caches hold no more than a window.
fn window(size: Option<u64>, context: u64) -> Sees {
    size.filter(|size| *size < context).map_or(Sees::All, Sees::Window)
}

/// The error of the JSON reader, at its place.
fn not_json(file: &SourceFile, error: &serde_json::Error) -> ConfigProblem {
    let before: usize =
        file.text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let mut at = (before + error.column().saturating_sub(1)).min(file.text.len());
    while !file.text.is_char_boundary(at) {
        at -= 1;
    }
    let message = error.to_string();
    let message =
        message.split_once(" at line ").map_or(message.as_str(), |(what, _)| what).to_string();
    ConfigProblem::NotJson { message, span: Span::new(at, at) }
}
