//! The three Gemmas.

use shard_check::diagnostics::ConfigProblem;

use super::super::model::{Flow, HeadNorms, Model};
use super::llama::{attention, block, local_and_global, usual, usual_biases};
use super::reader::{Assumed, Config};

/// The defaults of `Gemma3TextConfig` in transformers: files of models with a vision tower leave
/// out much of their text model.
pub(super) const DEFAULTS: &[(&str, Assumed)] = &[
    ("vocab_size", Assumed::Number(262_208)),
    ("num_attention_heads", Assumed::Number(8)),
    ("num_key_value_heads", Assumed::Number(4)),
    ("head_dim", Assumed::Number(256)),
    ("query_pre_attn_scalar", Assumed::Number(256)),
    ("max_position_embeddings", Assumed::Number(131_072)),
    ("hidden_activation", Assumed::Word("gelu_pytorch_tanh")),
];

pub(super) fn gemma(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    model.tied = config.is_not_false("tie_word_embeddings");
    model.embedding.factor = Some((model.width as f64).sqrt());
    config.at("hidden_activation");
    attention(&mut model).bias = usual_biases(config);
    // All Gemmas use the tanh form of GELU, whatever `hidden_act` says.
    if kind == "gemma" {
        return Ok(model);
    }
    model.scores.softcap = config.float("final_logit_softcapping")?;
    block(&mut model).flow = Flow::Around;
    let (softcap, scale) =
        (config.float("attn_logit_softcapping")?, config.float("query_pre_attn_scalar")?);
    let head = attention(&mut model);
    head.softcap = softcap;
    if let Some(scale) = scale {
        head.divisor = scale.sqrt();
    }
    if kind == "gemma3_text" {
        head.norms = HeadNorms::Each;
    }
    let size = config.optional("sliding_window")?;
    let pattern = match config.optional("sliding_window_pattern")? {
        Some(pattern) => pattern,
        None if kind == "gemma2" => 2,
        None => 6,
    };
    let is_local = |layer: u64| !(layer + 1).is_multiple_of(pattern);
    local_and_global(config, &mut model, size, is_local, |_| ())?;
    Ok(model)
}
