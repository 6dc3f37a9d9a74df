//! Badly annotated programs: the line that is to blame is named, with the edit that mends it.

use std::path::Path;

use crate::common::{counts, mesh, own};
use shard_audit::before::{advise, read, translate};
use shard_audit::compare::Comparison;
use shard_cost::Hardware;

/// Compares a program with what it could send, on the chip for which it was compiled.
fn compared(program: &str, after: &str) -> Comparison {
    let folder = own().join(program);
    let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
    let all = counts(&folder);
    let before = read::read(&text, None).expect("it is right");
    assert_eq!(before.mesh, Some(mesh(&all)));
    let layer = translate::translate(&before).expect("it is translated");
    let hardware = Hardware::built_in("tpu-v5e").expect("a built-in chip");
    let sent = all["builds"][after]["wire_bytes"].as_f64().expect("bytes") as u64;
    let mut files = |file: &str| std::fs::read_to_string(folder.join(Path::new(file))).ok();
    advise::compare(&layer, &mesh(&all), &hardware, sent, &mut files).0
}

/// The first advice as `line: value: from -> to, saved`.
fn first(program: &str, after: &str) -> String {
    let found = compared(program, after);
    for line in &found.advice {
        eprintln!("{program}: {line:?}");
    }
    eprintln!(
        "{program}: {:?} {:?} {:?} {:?}",
        found.same_specs, found.free, found.why_not, found.barriers
    );
    let Some(advice) = found.advice.first() else { return format!("{:?}", found.why_not) };
    format!(
        "{}: {}: {} -> {}",
        advice.source.as_ref().map_or("none".to_string(), ToString::to_string),
        advice.value,
        advice.from,
        advice.to
    )
}

#[test]
fn shardings_of_jax_before_shardy_are_read_on_the_mesh_that_is_given() {
    for program in ["bad_wout_columns", "bad_lost_batch_axis", "mlp_megatron"] {
        let folder = own().join(program);
        let read_as = |file: &str, mesh: Option<&[(String, u64)]>| {
            let text = std::fs::read_to_string(folder.join(file)).expect("StableHLO");
            let before = read::read(&text, mesh).expect("it is right");
            let layer = translate::translate(&before).expect("it is translated");
            let constraints: Vec<_> = layer.constraints.into_iter().map(|c| c.spec).collect();
            let parameters: Vec<_> = layer.parameters.into_iter().map(|p| p.spec).collect();
            (parameters, constraints)
        };
        let mesh = mesh(&counts(&folder));
        let old = read_as("stablehlo.jax0430.mlir", Some(&mesh));
        assert_eq!(old, read_as("stablehlo.loc.mlir", None), "{program}");
    }
}

#[test]
fn a_weight_split_over_the_wrong_dim() {
    assert_eq!(
        first("bad_wout_columns", "cpu"),
        "bad_wout_columns.py:22: w_out: P(None, \"model\") -> P(\"model\", None)"
    );
}

#[test]
fn an_embedding_table_that_is_gathered() {
    assert_eq!(
        first("bad_embed_rows", "cpu"),
        "bad_embed_rows.py:16: table: P(None, None) -> P(None, \"model\")"
    );
}

#[test]
fn a_constraint_without_the_batch_axis() {
    assert_eq!(
        first("bad_lost_batch_axis", "cpu"),
        "bad_lost_batch_axis.py:18: the value here: P(None, None, \"model\") -> P(\"data\", None, \
            \"model\")"
    );
}

#[test]
fn a_stack_that_is_split_along_its_layers() {
    assert_eq!(
        first("bad_stack_axis", "cpu"),
        "bad_stack_axis.py:26: ws[0]: P(\"model\", None, None) -> P(None, None, \"model\")"
    );
}

#[test]
fn new_parameters_that_come_out_whole() {
    let found = first("bad_params_out_whole", "cpu");
    assert!(
        found.starts_with(
            "bad_params_out_whole.py:29: out_shardings of result 0, 1, 2, 3, 4, 5: P() -> "
        ),
        "{found}"
    );
}

#[test]
fn a_fused_weight_whose_parts_the_mesh_cuts_across() {
    assert_eq!(
        first("bad_fused_qkv", "cpu"),
        "bad_fused_qkv.py:19: wqkv: P(None, \"model\") on [512, 1536] -> P(None, None, \"model\") \
            on [512, 3, 512]"
    );
}
