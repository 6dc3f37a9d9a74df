//! DeepSeek's models: latent attention, dense layers first, then experts in groups.

use serde_json::Value;
use shard_check::diagnostics::ConfigProblem;

use super::super::model::{Gates, Latent, Model};
use super::experts::{dense_then_experts, factor, groups, selected};
use super::llama::{attention, usual};
use super::reader::Config;

pub(super) fn deepseek(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let heads = config.number(&["num_attention_heads"])?;
    let head = config.number(&["qk_nope_head_dim"])?;
    let latent = Latent {
        queries: config.optional("q_lora_rank")?,
        keys: config.number(&["kv_lora_rank"])?,
        turned: config.number(&["qk_rope_head_dim"])?,
        values: config.number(&["v_head_dim"])?,
    };
    let mut model = usual(config, kind)?;
    let own = attention(&mut model);
    (own.heads, own.kv_heads, own.head) = (heads, heads, head);
    own.latent = Some(latent);
    own.divisor = (head.saturating_add(latent.turned) as f64).sqrt();
    let limited = config.at("topk_method").and_then(Value::as_str) == Some("group_limited_greedy");
    config.at("scoring_func");
    let gates = match kind {
        "deepseek_v3" | "kimi_k2" => selected(config)?,
        _ => Gates {
            groups: groups(config, 1)?.filter(|_| limited),
            factor: factor(config)?,
            ..Gates::softmax(config.is_true("norm_topk_prob"))
        },
    };
    dense_then_experts(config, &mut model, gates)?;
    Ok(model)
}
