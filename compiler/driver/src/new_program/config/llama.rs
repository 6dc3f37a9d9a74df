//! Llama, and what is built like it: attention and a gated feed-forward layer in turn.

use serde_json::Value;
use shard_check::diagnostics::ConfigProblem;

use super::super::model::{
    Attention, Biases, Block, Dense, Feed, Flow, HeadNorms, Model, Rotary, Sees,
};
use super::reader::Config;
use super::{layers_of_kinds, window};

/// The most positions of the cache that a file gets; `-D S=` gives others.
pub(super) const CONTEXT: u64 = 4096;
/// The largest window for which the cache gets twice as many positions as the window.
const LARGE_WINDOW: u64 = 8192;

/// A model whose keys have the usual names, of one kind of layer.
pub(super) fn usual(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let width = config.number(&["hidden_size"])?;
    let heads = config.number(&["num_attention_heads"])?;
    let head = match config.optional("head_dim")? {
        Some(head) => head,
        None => config.part(width, heads, "num_attention_heads")?,
    };
    let kv_heads = config.optional("num_key_value_heads")?.unwrap_or(heads);
    let dtype = config.dtype()?;
    let mut attention = Attention::plain(heads, kv_heads, head, context(config, None)?);
    attention.rotary = rotary(config, head)?;
    let feed = Dense {
        inner: config.number(&["intermediate_size"])?,
        gated: true,
        map: config.map(&["hidden_act", "hidden_activation"])?,
        bias: config.is_true("mlp_bias"),
    };
    let block = Block {
        name: "block",
        flow: Flow::Before,
        residual: None,
        attention: Some(attention),
        feed: Feed::Dense(feed),
    };
    let layers = config.number(&["num_hidden_layers"])?;
    config.model(kind, dtype, width, "rmsnorm", layers, block)
}

/// The positions of the cache: more than a window, where the model allows it.
fn context(config: &Config<'_>, window: Option<u64>) -> Result<u64, ConfigProblem> {
    let most = config.optional("max_position_embeddings")?;
    let wanted = match window.filter(|window| (CONTEXT..=LARGE_WINDOW).contains(window)) {
        Some(window) => 2 * window,
        None => CONTEXT,
    };
    Ok(most.unwrap_or(CONTEXT).min(wanted))
}

/// The part of a head that the rotary embedding turns; it is even.
pub(super) fn rotary(config: &Config<'_>, head: u64) -> Result<Rotary, ConfigProblem> {
    let given = match config.float("partial_rotary_factor")? {
        Some(factor) => Some(factor),
        None => config.float("rotary_pct")?,
    };
    let part = given.map_or(head, |factor| (head as f64 * factor.min(1.0)) as u64 / 2 * 2);
    Ok(match part {
        0 => Rotary::No,
        part if part == head => Rotary::Whole,
        part => Rotary::Part(part),
    })
}

/// The one kind of layer so far.
pub(super) fn block(model: &mut Model) -> &mut Block {
    &mut model.kinds[0]
}

/// Its attention, which every configuration here has.
pub(super) fn attention(model: &mut Model) -> &mut Attention {
    let none = || Attention::plain(1, 1, 1, 1);
    model.kinds[0].attention.get_or_insert_with(none)
}

/// The biases that Llama's keys name.
pub(super) fn usual_biases(config: &Config<'_>) -> Biases {
    let all = config.is_true("attention_bias");
    Biases { inputs: all, output: all }
}

/// Splits the layers into local ones, which see a window of `size`, and global ones, which see all.
/// The list of the configuration tells them apart, or else `is_local`; `global` changes the global
/// kind.
pub(super) fn local_and_global(
    config: &Config<'_>,
    model: &mut Model,
    size: Option<u64>,
    is_local: impl Fn(u64) -> bool,
    global: impl Fn(&mut Block),
) -> Result<(), ConfigProblem> {
    let wide = context(config, size)?;
    attention(model).context = wide;
    let whole = |block: &Block| Block { name: "global", ..block.clone() };
    let mut kinds = vec![block(model).clone(), whole(block(model))];
    kinds[0].name = "local";
    global(&mut kinds[1]);
    if let Some(attention) = &mut kinds[0].attention {
        attention.sees = window(size, wide);
    }
    // Where a window masks nothing, the two kinds may be equal.
    let same = Block { name: "global", ..kinds[0].clone() } == kinds[1];
    let local = |layer: u64| match config.of_layer("layer_types", layer).and_then(Value::as_str) {
        Some(word) => word != "full_attention",
        None => is_local(layer),
    };
    layers_of_kinds(config, model, kinds, |layer| usize::from(same || !local(layer)))
}

pub(super) fn llama(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    attention(&mut model).bias = usual_biases(config);
    if let Some(size) = config.optional("sliding_window")? {
        everywhere(config, &mut model, size)?;
    }
    Ok(model)
}

/// Gives every layer a window of this size.
pub(super) fn everywhere(
    config: &Config<'_>,
    model: &mut Model,
    size: u64,
) -> Result<(), ConfigProblem> {
    let wide = context(config, Some(size))?;
    let attention = attention(model);
    attention.context = wide;
    attention.sees = window(Some(size), wide);
    Ok(())
}

pub(super) fn qwen(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    qwen_attention(config, kind, &mut model);
    qwen_windows(config, &mut model)?;
    Ok(model)
}

/// Qwen2 has biases, Qwen3 norms of heads.
pub(super) fn qwen_attention(config: &Config<'_>, kind: &str, model: &mut Model) {
    let third = kind.starts_with("qwen3");
    let of_keys = usual_biases(config);
    let attention = attention(model);
    attention.bias = if third { of_keys } else { Biases { inputs: true, output: false } };
    attention.norms = if third { HeadNorms::Each } else { HeadNorms::No };
}

/// The layers from `max_window_layers` on have a window, where windows are used at all.
fn qwen_windows(config: &Config<'_>, model: &mut Model) -> Result<(), ConfigProblem> {
    let (size, first) = (config.optional("sliding_window")?, config.count("max_window_layers")?);
    // `layer_types` lists the same layers.
    config.at("layer_types");
    if config.is_true("use_sliding_window") && size.is_some() {
        local_and_global(config, model, size, |layer| layer >= first, |_| ())?;
    }
    Ok(())
}

pub(super) fn phi3(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    if let Some(size) = config.optional("sliding_window")? {
        everywhere(config, &mut model, size)?;
    }
    Ok(model)
}

/// OLMo 2: norms behind attention and feed-forward layer, and of all heads as one.
pub(super) fn olmo2(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    block(&mut model).flow = Flow::Behind;
    let attention = attention(&mut model);
    attention.norms = HeadNorms::All;
    attention.bias = usual_biases(config);
    Ok(model)
}

pub(super) fn granite(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    model.embedding.factor = config.float("embedding_multiplier")?;
    model.scores.factor = config.float("logits_scaling")?.map(|by| 1.0 / by);
    block(&mut model).residual = config.float("residual_multiplier")?;
    let attention = attention(&mut model);
    attention.bias = usual_biases(config);
    if let Some(factor) = config.float("attention_multiplier")? {
        attention.divisor = 1.0 / factor;
    }
    Ok(model)
}

pub(super) fn stablelm(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    model.norm = "layernorm";
    if config.is_true("use_parallel_residual") {
        block(&mut model).flow = Flow::Parallel;
    }
    let norms = config.is_true("qk_layernorm");
    let attention = attention(&mut model);
    attention.bias.inputs = config.is_true("use_qkv_bias");
    attention.norms = if norms { HeadNorms::Each } else { HeadNorms::No };
    Ok(model)
}

pub(super) fn starcoder2(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    let bias = config.is_not_false("use_bias");
    model.norm = "layernorm";
    model.tied = config.is_not_false("tie_word_embeddings");
    if let Feed::Dense(dense) = &mut block(&mut model).feed {
        (dense.gated, dense.bias) = (false, bias);
    }
    attention(&mut model).bias = Biases { inputs: bias, output: bias };
    if let Some(size) = config.optional("sliding_window")? {
        everywhere(config, &mut model, size)?;
    }
    config.at("mlp_type");
    config.at("norm_type");
    Ok(model)
}

/// Command R: attention and feed-forward layer side by side. Its second version has windows, and a
/// rotary embedding in layers with a window alone.
pub(super) fn cohere(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    model.norm = "layernorm";
    model.tied = config.is_not_false("tie_word_embeddings");
    model.scores.factor = config.float("logit_scale")?;
    block(&mut model).flow = Flow::Parallel;
    let norms = config.is_true("use_qk_norm");
    let attention = attention(&mut model);
    attention.bias = usual_biases(config);
    attention.norms = if norms { HeadNorms::Each } else { HeadNorms::No };
    if kind == "cohere2" {
        let size = config.optional("sliding_window")?;
        let pattern = config.optional("sliding_window_pattern")?.unwrap_or(4);
        let is_local = |layer: u64| !(layer + 1).is_multiple_of(pattern);
        let unturned = |block: &mut Block| {
            if let Some(attention) = &mut block.attention {
                attention.rotary = Rotary::No;
                attention.sees = Sees::All;
            }
        };
        for key in
            ["layer_switch", "order_of_interleaved_layers", "rotary_pct", "position_embedding_type"]
        {
            config.at(key);
        }
        local_and_global(config, &mut model, size, is_local, unturned)?;
    }
    Ok(model)
}
