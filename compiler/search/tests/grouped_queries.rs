//! Attention with fewer key-value heads than devices: cost decides what the rest of the mesh is
//! used for.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{Plan, Program};
use shard_search::{LowerOptions, Status, lower};

/// A step of decoding: 4 key-value heads, each for 8 query heads, on 16 devices.
fn decode(batch: u64, heads: &str) -> Program {
    let text = format!(
        "mesh x=4, y=4
dim B = {batch}
dim {heads}
dim G = 8
dim H = K * G
dim Q = 128
dim S = 4096
dim E = 4096
layer attend(x: bf16 BE, wq: weight bf16 EHQ?, k: cache bf16 BSKQ?, v: cache bf16 BSKQ?, wo: weight bf16 HQE?) -> bf16 BE {{
  let q = split(einsum(x, wq -> BHQ), H -> KG)
  let p = softmax(einsum(q, k -> BKGS) over S)
  let o = merge(einsum(p, v -> BKGQ), KG -> H)
  return einsum(o, wo -> BE)
}}"
    );
    let checked = check_source(&SourceFile::new("test.shard", text), &CheckOptions::default());
    assert!(!checked.has_errors(), "{:?}", checked.diagnostics);
    checked.programs.into_iter().next().unwrap()
}

fn plan(program: &Program) -> Plan {
    let hardware = Hardware::built_in("tpu-v4-flat").unwrap();
    let lowered = lower(program, &hardware, &LowerOptions::default()).unwrap();
    assert_eq!(lowered.optimality.status, Status::Proven);
    lowered.plan
}

/// Whether an instruction makes the softmax: whole, or as the last of its pieces, the division.
fn is_softmax(plan: &Plan, id: shard_ir::InstrId) -> bool {
    let instr = plan.instruction(id);
    let rule = instr.origin.rules.names().next().unwrap_or_default();
    match &instr.kind {
        shard_ir::InstrKind::Op(shard_ir::Op::Softmax { .. }) => true,
        shard_ir::InstrKind::Op(shard_ir::Op::Binary(shard_ir::Binary::Div)) => {
            rule.starts_with("softmax")
        }
        _ => false,
    }
}

/// How many devices share the work on the cache: those whose blocks of the scores differ.
fn ways(plan: &Plan) -> u64 {
    let layout = plan.instruction(plan.ids().find(|id| is_softmax(plan, *id)).unwrap()).layout;
    plan.mesh.group_size(layout.split_axes().iter())
}

fn axes_of(plan: &Plan, dim: &str) -> u64 {
    let instr = plan.instruction(plan.ids().find(|id| is_softmax(plan, *id)).unwrap());
    let at = instr.dims.iter().position(|d| plan.dims[d.index()].name == dim).unwrap();
    plan.mesh.group_size(instr.layout.axes_of(at).iter())
}

#[test]
fn a_batch_is_split_where_there_are_too_few_key_value_heads() {
    let plan = plan(&decode(64, "K = 4"));
    assert_eq!(ways(&plan), 16);
    assert!(axes_of(&plan, "B") >= 4, "{}", shard_ir::text::print(&plan));
}

#[test]
fn one_sequence_is_split_over_its_heads_and_the_key_value_heads_are_replicated_over_the_rest() {
    let plan = plan(&decode(1, "K = 4"));
    assert_eq!(axes_of(&plan, "K"), 4);
    // The query heads of a group may be split over the rest, or all of them be computed everywhere.
    assert!([1, 4].contains(&axes_of(&plan, "G")));
}

#[test]
fn padded_key_value_heads_can_be_split_further() {
    let program = decode(1, "K = 12 pad 16");
    let plan = plan(&program);
    assert_eq!(axes_of(&plan, "K"), 16);
    let heads = program.dims.iter().find(|d| d.name == "H").unwrap();
    assert_eq!((heads.size, heads.useful), (128, 96));
}
