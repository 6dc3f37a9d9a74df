//! Models of layer norms and plain feed-forward layers, each with keys of its own.

use serde_json::Value;
use shard_check::diagnostics::ConfigProblem;

use super::super::model::{Attention, Biases, Block, Dense, Feed, Flow, Model, Rotary};
use super::llama::{CONTEXT, attention, rotary};
use super::reader::Config;

/// What is left out of the norms of these models.
const SCALES: &str = "the learned scales and biases of the norms";
const ALL: Biases = Biases { inputs: true, output: true };

/// The sizes of such a model.
struct Sizes {
    heads: u64,
    kv_heads: u64,
    inner: u64,
    context: u64,
    map: &'static str,
}

/// A model of layer norms and plain feed-forward layers, with biases.
fn plain(
    config: &Config<'_>,
    kind: &'static str,
    width: u64,
    sizes: Sizes,
) -> Result<Model, ConfigProblem> {
    let dtype = config.dtype()?;
    let head = match config.optional("head_dim")? {
        Some(head) => head,
        None => config.part(width, sizes.heads, "num_attention_heads")?,
    };
    let attention = Attention {
        rotary: Rotary::No,
        bias: ALL,
        ..Attention::plain(sizes.heads, sizes.kv_heads, head, sizes.context.min(CONTEXT))
    };
    let feed = Feed::Dense(Dense { inner: sizes.inner, gated: false, map: sizes.map, bias: true });
    let block = Block {
        name: "block",
        flow: Flow::Before,
        residual: None,
        attention: Some(attention),
        feed,
    };
    let layers = config.number(&["n_layer", "num_hidden_layers"])?;
    let model = config.model(kind, dtype, width, "layernorm", layers, block)?;
    Ok(Model { left_out: vec![SCALES.to_string()], ..model })
}

pub(super) fn gpt2(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let width = config.number(&["n_embd", "hidden_size"])?;
    let heads = config.number(&["n_head", "num_attention_heads"])?;
    config.part(width, heads, "n_head")?;
    let map = config.map(&["activation_function"]);
    let positions = config.number(&["n_positions", "max_position_embeddings"]);
    let inner = config.optional("n_inner")?.unwrap_or(4 * width);
    let layers = config.number(&["n_layer", "num_hidden_layers"]);
    let (map, _) = (map?, layers?);
    let positions = positions?;
    config.at("n_ctx");
    let sizes = Sizes { heads, kv_heads: heads, inner, context: positions, map };
    let mut model = plain(config, kind, width, sizes)?;
    // In GPT-2 the embedding and its inverse are one table, unless a configuration says otherwise.
    model.tied = config.is_not_false("tie_word_embeddings");
    model.embedding.positions = Some(positions);
    Ok(model)
}

/// The sizes of models whose keys have the usual names.
fn usual(config: &Config<'_>) -> Result<(u64, Sizes), ConfigProblem> {
    let width = config.number(&["hidden_size"])?;
    let heads = config.number(&["num_attention_heads"])?;
    let sizes = Sizes {
        heads,
        kv_heads: config.optional("num_key_value_heads")?.unwrap_or(heads),
        inner: config.number(&["intermediate_size"])?,
        context: config.number(&["max_position_embeddings"])?,
        map: config.map(&["hidden_act"])?,
    };
    Ok((width, sizes))
}

pub(super) fn gpt_neox(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let (width, sizes) = usual(config)?;
    let mut model = plain(config, kind, width, sizes)?;
    if config.is_not_false("use_parallel_residual") {
        model.kinds[0].flow = Flow::Parallel;
    }
    let biases = config.is_not_false("attention_bias");
    let head = attention(&mut model).head;
    let turned = rotary(config, head)?;
    let attention = attention(&mut model);
    attention.rotary = turned;
    attention.bias = Biases { inputs: biases, output: biases };
    Ok(model)
}

pub(super) fn phi(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let (width, sizes) = usual(config)?;
    let mut model = plain(config, kind, width, sizes)?;
    model.kinds[0].flow = Flow::Parallel;
    model.scores.bias = true;
    let head = attention(&mut model).head;
    attention(&mut model).rotary = rotary(config, head)?;
    Ok(model)
}

/// BLOOM: positions are a bias of the scores, which the model is given.
pub(super) fn bloom(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let width = config.number(&["hidden_size", "n_embed"])?;
    let heads = config.number(&["n_head", "num_attention_heads"])?;
    let sizes = Sizes { heads, kv_heads: heads, inner: 4 * width, context: CONTEXT, map: "gelu" };
    let mut model = plain(config, kind, width, sizes)?;
    model.tied = config.is_not_false("tie_word_embeddings");
    model.embedding.norm = true;
    attention(&mut model).alibi = true;
    Ok(model)
}

/// Falcon: attention beside the feed-forward layer, with one head of keys and values, or several.
pub(super) fn falcon(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let width = config.number(&["hidden_size", "n_embed"])?;
    let heads = config.number(&["num_attention_heads", "n_head"])?;
    let kv_heads =
        match (config.is_true("new_decoder_architecture"), config.is_not_false("multi_query")) {
            (true, _) => config.optional("num_kv_heads")?.unwrap_or(heads),
            (false, true) => 1,
            (false, false) => heads,
        };
    config.at("num_kv_heads");
    let context = config.optional("max_position_embeddings")?.unwrap_or(CONTEXT);
    let inner = config.optional("ffn_hidden_size")?.unwrap_or(4 * width);
    let map = match config.at("activation").and_then(Value::as_str) {
        Some(_) => config.map(&["activation"])?,
        None => "gelu",
    };
    let sizes = Sizes { heads, kv_heads, inner, context, map };
    let mut model = plain(config, kind, width, sizes)?;
    let biases = config.is_true("bias");
    model.tied = config.is_not_false("tie_word_embeddings");
    let parallel =
        config.is_not_false("parallel_attn") || config.is_true("new_decoder_architecture");
    model.kinds[0].flow = if parallel { Flow::Parallel } else { Flow::Before };
    config.at("num_ln_in_parallel_attn");
    if let Feed::Dense(dense) = &mut model.kinds[0].feed {
        dense.bias = biases;
    }
    let alibi = config.is_true("alibi");
    let attention = attention(&mut model);
    attention.bias = Biases { inputs: biases, output: biases };
    attention.alibi = alibi;
    attention.rotary = if alibi { Rotary::No } else { Rotary::Whole };
    Ok(model)
}
