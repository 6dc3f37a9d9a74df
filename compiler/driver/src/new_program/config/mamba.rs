//! Mamba-2: layers of a recurrence and nothing else.

use shard_check::diagnostics::ConfigProblem;

use super::super::model::{Block, Feed, Flow, Model, SCALES, StateSpace};
use super::reader::Config;

pub(super) fn mamba2(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let width = config.number(&["hidden_size"])?;
    let inner = match config.optional("intermediate_size")? {
        Some(inner) => inner,
        None => width.saturating_mul(config.optional("expand")?.unwrap_or(2)),
    };
    config.at("expand");
    // Keys about training and about how a library runs the model: they state no sizes and no other
    // ops.
    let keys = "norm_before_gate rms_norm residual_in_fp32 rescale_prenorm_residual time_step_rank \
                time_step_floor time_step_init_scheme time_step_max time_step_min";
    for key in keys.split(' ') {
        config.at(key);
    }
    let head = config.number(&["head_dim"])?;
    let heads = match config.optional("num_heads")? {
        Some(heads) => heads,
        None => config.part(inner, head, "head_dim")?,
    };
    let groups = config.number(&["n_groups"])?;
    let space = StateSpace {
        groups,
        heads: config.part(heads, groups, "n_groups")?,
        head,
        state: config.number(&["state_size"])?,
        taps: config.number(&["conv_kernel"])?,
        chunk: config.number(&["chunk_size"])?,
        bias: config.is_not_false("use_conv_bias"),
        map: config.map(&["hidden_act"])?,
    };
    let dtype = config.dtype()?;
    let mut left_out = vec![SCALES.to_string()];
    if config.is_true("use_bias") {
        left_out.push("biases of the projections".to_string());
    }
    let block = Block {
        name: "block",
        flow: Flow::Before,
        residual: None,
        attention: None,
        feed: Feed::StateSpace(space),
    };
    let layers = config.number(&["num_hidden_layers"])?;
    Ok(Model { left_out, ..config.model(kind, dtype, width, "rmsnorm", layers, block)? })
}
