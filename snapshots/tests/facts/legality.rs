//! Which layouts a tensor may have.

use serde_json::Value;
use shard_ir::InstrId;
use shard_snapshots::lower_all;

use crate::facts::program::{error_codes, number, one_parameter, same};

/// Whether the fact calls its layout legal.
pub(crate) fn verdict(expected: &Value) -> Option<bool> {
    expected["legal"].as_bool().or_else(|| expected["legal_without_replication"].as_bool())
}

pub(crate) fn check(fact: &Value) -> Result<(), String> {
    let (inputs, expected) = (&fact["inputs"], &fact["expected"]);
    let source = one_parameter(
        inputs["layout"].as_str().unwrap_or_default(),
        &inputs["dims"],
        &inputs["mesh"],
        "bf16",
    );
    let errors = error_codes(&source);
    same(
        &format!("legal, with {errors:?} for\n{source}"),
        Some(errors.is_empty()),
        verdict(expected),
    )?;
    if errors.iter().any(|code| !code.starts_with("E02")) {
        return Err(format!("refused for another reason than its layout: {errors:?}"));
    }
    if let Some(heads) = number(&expected["kv_heads_per_shard"]) {
        let plan = &lower_all(&source)[0];
        let dims = plan.dim_names(&plan.instruction(InstrId(0)).dims).join("");
        let at = dims.find('K').ok_or("no dim K")?;
        same("heads on a device", plan.local_sizes(InstrId(0))[at], heads)?;
    }
    Ok(())
}
