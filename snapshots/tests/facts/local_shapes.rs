//! What one device holds of a tensor.

use serde_json::Value;
use shard_ir::InstrId;
use shard_snapshots::lower_all;

use crate::facts::program::{error_codes, number, one_parameter, same};

/// The dtype whose size is the fact's bytes for each element; the shape does not depend on it.
fn dtype(fact: &Value) -> &'static str {
    if fact["question"].as_str().is_some_and(|q| q.starts_with("int8")) { "int8" } else { "bf16" }
}

pub(crate) fn check(fact: &Value) -> Result<(), String> {
    let (inputs, expected) = (&fact["inputs"], &fact["expected"]);
    let layout = inputs["layout"].as_str().unwrap_or_default();
    let source = one_parameter(layout, &inputs["dims"], &inputs["mesh"], dtype(fact));
    let errors = error_codes(&source);
    if !errors.is_empty() {
        return Err(format!("refused with {errors:?}\n{source}"));
    }
    let plans = lower_all(&source);
    let (plan, t) = (&plans[0], InstrId(0));
    same("the text of the layout", plan.layout_text(t), layout.to_string())?;
    let local = plan.local_sizes(t);
    let stated: Vec<u64> = expected["local_shape"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    same("the local shape", &local, &stated)?;
    let shards = plan.mesh.group_size(plan.instruction(t).layout.split_axes().iter());
    let devices = plan.mesh.devices();
    let figures = [
        ("elements", plan.local_elements(t)),
        ("shards", shards),
        ("replicas", devices / shards),
        ("bytes_per_device", plan.local_bytes(t)),
        ("total_bytes", plan.local_bytes(t) * devices),
    ];
    for (name, found) in figures {
        if let Some(stated) = number(&expected[name]) {
            same(name, found, stated)?;
        }
    }
    Ok(())
}
