//! Models of experts whose attention is Llama's.

use serde_json::Value;
use shard_check::diagnostics::ConfigProblem;

use shard_ir::{Dtype, never};

use super::super::model::{
    Biases, Block, Dense, Experts, Feed, GateMap, Gates, Groups, HeadNorms, Model, PLACES, Rotary,
    Sees, Shared, Tuned,
};
use super::layers_of_kinds;
use super::llama::{
    CONTEXT, attention, block, everywhere, local_and_global, qwen_attention, usual, usual_biases,
};
use super::reader::Config;

/// The feed-forward layer that a model has so far.
fn dense(model: &mut Model) -> Dense {
    match &block(model).feed {
        Feed::Dense(dense) => dense.clone(),
        Feed::Experts(experts) => experts.each.clone(),
        Feed::StateSpace(_) => never!(
            "a configuration of experts whose layers are a recurrence",
            Dense { inner: 1, gated: false, map: "relu", bias: false }
        ),
    }
}

/// Plain experts; `counts` are the keys that may tell how many there are.
pub(super) fn experts(
    config: &Config<'_>,
    model: &mut Model,
    counts: &[&str],
    inner: u64,
    gates: Gates,
) -> Result<Experts, ConfigProblem> {
    let count = config.number(counts)?;
    let chosen = config.number(&["num_experts_per_tok"])?;
    if chosen > count {
        return Err(ConfigProblem::Value {
            key: "num_experts_per_tok".to_string(),
            wanted: format!("a number up to {count}, the number of experts"),
            span: config.span("num_experts_per_tok"),
        });
    }
    model.left_out.push(PLACES.to_string());
    let each = Dense { inner, ..dense(model) };
    Ok(Experts { count, chosen, each, clamped: None, gates, shared: None })
}

pub(super) fn mixtral(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    let inner = dense(&mut model).inner;
    let gates = Gates::softmax(true);
    let found = experts(config, &mut model, &["num_local_experts"], inner, gates)?;
    block(&mut model).feed = Feed::Experts(found);
    if let Some(size) = config.optional("sliding_window")? {
        everywhere(config, &mut model, size)?;
    }
    Ok(model)
}

pub(super) fn olmoe(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    let inner = dense(&mut model).inner;
    let gates = Gates::softmax(config.is_true("norm_topk_prob"));
    let found = experts(config, &mut model, &["num_experts"], inner, gates)?;
    block(&mut model).feed = Feed::Experts(found);
    let attention = attention(&mut model);
    attention.norms = HeadNorms::All;
    attention.bias = usual_biases(config);
    Ok(model)
}

/// Qwen2-MoE and Qwen3-MoE. Layers that the configuration lists have no experts; of the others each
/// `decoder_sparse_step`-th has.
pub(super) fn qwen(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    qwen_attention(config, kind, &mut model);
    let inner = config.number(&["moe_intermediate_size"])?;
    let gates = Gates::softmax(config.is_true("norm_topk_prob"));
    let mut found = experts(config, &mut model, &["num_experts"], inner, gates)?;
    let shared = config.count("shared_expert_intermediate_size")?;
    found.shared = (shared > 0).then_some(Shared { inner: shared, gate: true });
    let step = config.optional("decoder_sparse_step")?.unwrap_or(1);
    let without: Vec<u64> = config
        .at("mlp_only_layers")
        .and_then(Value::as_array)
        .map(|layers| layers.iter().filter_map(Value::as_u64).collect())
        .unwrap_or_default();
    if !config.is_true("use_sliding_window") {
        for key in ["sliding_window", "max_window_layers", "layer_types"] {
            config.at(key);
        }
    }
    let sparse = Block { feed: Feed::Experts(found), ..block(&mut model).clone() };
    let plain = Block { name: "dense", ..block(&mut model).clone() };
    layers_of_kinds(config, &mut model, vec![sparse, plain], |layer| {
        usize::from(without.contains(&layer) || !(layer + 1).is_multiple_of(step))
    })?;
    Ok(model)
}

/// GLM-4.5: the first layers are dense, and gates are sigmoids, chosen with a bias.
pub(super) fn glm4(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    let bias = config.is_true("attention_bias");
    let norms = config.is_true("use_qk_norm");
    let head = attention(&mut model);
    head.bias = Biases { inputs: bias, output: false };
    head.norms = if norms { HeadNorms::Each } else { HeadNorms::No };
    let gates = selected(config)?;
    dense_then_experts(config, &mut model, gates)?;
    Ok(model)
}

/// Sigmoid gates, chosen with a bias among the best groups.
pub(super) fn selected(config: &Config<'_>) -> Result<Gates, ConfigProblem> {
    Ok(Gates {
        map: GateMap::Sigmoid,
        selection_bias: true,
        groups: groups(config, 2)?,
        renormalised: config.is_not_false("norm_topk_prob"),
        factor: factor(config)?,
        ..Gates::softmax(true)
    })
}

/// The factor of the gates; `None` where it is 1.
pub(super) fn factor(config: &Config<'_>) -> Result<Option<f64>, ConfigProblem> {
    Ok(config.float("routed_scaling_factor")?.filter(|factor| *factor != 1.0))
}

/// Groups of experts, where there are several and some are chosen; a group is judged by so many of
/// its best experts.
pub(super) fn groups(config: &Config<'_>, judged_by: u64) -> Result<Option<Groups>, ConfigProblem> {
    let (count, chosen) = (config.count("n_group")?, config.count("topk_group")?);
    let some = count > 1 && chosen > 0 && chosen < count;
    Ok(some.then_some(Groups { count, chosen, judged_by }))
}

/// Makes the first layers dense, as many as the configuration says. The others have experts, and
/// one expert for all tokens where it says so.
pub(super) fn dense_then_experts(
    config: &Config<'_>,
    model: &mut Model,
    gates: Gates,
) -> Result<(), ConfigProblem> {
    let inner = config.number(&["moe_intermediate_size"])?;
    let mut found = experts(config, model, &["n_routed_experts"], inner, gates)?;
    let shared = config.count("n_shared_experts")?;
    found.shared =
        (shared > 0).then_some(Shared { inner: inner.saturating_mul(shared), gate: false });
    let first = config.count("first_k_dense_replace")?;
    config.at("moe_layer_freq");
    let sparse = Block { feed: Feed::Experts(found), ..block(model).clone() };
    let plain = Block { name: "dense", ..block(model).clone() };
    layers_of_kinds(config, model, vec![plain, sparse], |layer| usize::from(layer >= first))
}

/// gpt-oss: windows in every second layer, sinks, biases everywhere, clamped gates.
pub(super) fn gpt_oss(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    let inner = dense(&mut model).inner;
    let gates = Gates { bias: true, ..Gates::softmax(true) };
    let counts = &["num_local_experts", "num_experts"];
    let mut found = experts(config, &mut model, counts, inner, gates)?;
    config.at("experts_per_token");
    found.each.bias = true;
    found.clamped = Some(config.float("swiglu_limit")?.unwrap_or(7.0));
    block(&mut model).feed = Feed::Experts(found);
    let head = attention(&mut model);
    head.sinks = true;
    head.bias = usual_biases(config);
    let size = config.optional("sliding_window")?;
    local_and_global(config, &mut model, size, |layer| layer.is_multiple_of(2), |_| ())?;
    Ok(model)
}

/// How many numbers of mxfp4 share a scale.
const BLOCK: u64 = 32;

/// How many numbers of an expert's matrices share a scale; `None` where the matrices are not mxfp4,
/// or a row is no whole number of blocks.
pub(super) fn scaled_by(model: &Model) -> Option<u64> {
    let inner = model.experts()?.each.inner;
    let whole = model.width.is_multiple_of(BLOCK) && inner.is_multiple_of(BLOCK);
    (model.stored == Dtype::F4 && whole).then_some(BLOCK)
}

/// How Llama 4 scales the queries of layers without rotary embedding by their position; `None`
/// where the configuration turns this off, by `false` or, in older files, by 0.
fn tuned(config: &Config<'_>) -> Result<Option<Tuned>, ConfigProblem> {
    let step = config.optional("floor_scale")?.unwrap_or(8192);
    let factor = config.float("attn_scale")?.unwrap_or(0.1);
    let off = [Value::Bool(false), Value::from(0)];
    let says = config.at("attn_temperature_tuning");
    Ok((!says.is_some_and(|says| off.contains(says))).then_some(Tuned { step, factor }))
}

/// Llama 4: attention to chunks in three layers of four, no rotary embedding in the fourth; experts
/// in all layers or in every second.
pub(super) fn llama4(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let mut model = usual(config, kind)?;
    let wide = config.number(&["intermediate_size_mlp"])?;
    let inner = dense(&mut model).inner;
    let gates = Gates { map: GateMap::Sigmoid, on_inputs: true, ..Gates::softmax(false) };
    let mut found = experts(config, &mut model, &["num_local_experts"], inner, gates)?;
    found.shared = Some(Shared { inner, gate: false });
    let tuned = tuned(config)?;
    let chunk = config.optional("attention_chunk_size")?;
    let most = config.optional("max_position_embeddings")?.unwrap_or(CONTEXT);
    let context = chunk.map_or(CONTEXT, |chunk| chunk.saturating_mul(2).min(4 * CONTEXT)).min(most);
    let norms = config.is_true("use_qk_norm");
    let bias = usual_biases(config);
    let head = attention(&mut model);
    (head.context, head.bias) = (context, bias);
    let mut kinds = Vec::new();
    for (name, local, sparse) in [
        ("local", true, true),
        ("global", false, true),
        ("local_dense", true, false),
        ("global_dense", false, false),
    ] {
        let mut kind = Block { name, ..block(&mut model).clone() };
        kind.feed = if sparse {
            Feed::Experts(found.clone())
        } else {
            Feed::Dense(Dense { inner: wide, ..found.each.clone() })
        };
        if let Some(attention) = &mut kind.attention {
            attention.norms = if norms && local { HeadNorms::Turned } else { HeadNorms::No };
            attention.rotary = if local { Rotary::Whole } else { Rotary::No };
            attention.tuned = if local { None } else { tuned };
            attention.sees = match chunk.filter(|chunk| local && *chunk < context) {
                Some(chunk) => Sees::Chunk(chunk),
                None => Sees::All,
            };
        }
        kinds.push(kind);
    }
    let pattern = config.optional("no_rope_layer_interval")?.unwrap_or(4);
    let step = config.optional("interleave_moe_layer_step")?.unwrap_or(1);
    config.at("layer_types");
    let local = |layer: u64| match config.of_layer("no_rope_layers", layer).and_then(Value::as_u64)
    {
        Some(turned) => turned == 1,
        None => !(layer + 1).is_multiple_of(pattern),
    };
    let listed = config.at("moe_layers").and_then(Value::as_array).cloned();
    let sparse = |layer: u64| match &listed {
        Some(layers) => layers.iter().any(|one| one.as_u64() == Some(layer)),
        None => (layer + 1).is_multiple_of(step),
    };
    layers_of_kinds(config, &mut model, kinds, |layer| {
        usize::from(!local(layer)) + 2 * usize::from(!sparse(layer))
    })?;
    Ok(model)
}
