//! The stored layouts that phases share are the best of all, tried one by one.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{Def, Layout, LayoutPattern, MeshShape, Program, ValueId};
use shard_search::{LowerError, LowerOptions, SharedWeights, Status, lower, share_weights};

fn programs(text: &str) -> Vec<Program> {
    let checked = check_source(&SourceFile::new("test.shard", text), &CheckOptions::default());
    assert!(!checked.has_errors(), "{:?}", checked.diagnostics);
    checked.programs
}

fn hardware() -> Hardware {
    Hardware::built_in("tpu-v4-flat").unwrap()
}

fn shared(programs: &[Program]) -> Option<SharedWeights> {
    let phases: Vec<&Program> = programs.iter().collect();
    share_weights(&phases, &hardware(), &LowerOptions::default()).unwrap()
}

fn steps(program: &Program) -> u64 {
    program.phase.as_ref().map_or(1, |phase| phase.repeat)
}

/// What a request takes with a weight pinned to a layout, and the rest of the free weights
/// likewise.
fn least(programs: &[Program], free: &[ValueId]) -> u64 {
    let Some((id, rest)) = free.split_first() else {
        let time = |p: &Program| match lower(p, &hardware(), &LowerOptions::default()) {
            Ok(lowered) => lowered.optimality.cost.0 * steps(p),
            Err(LowerError::Unreachable { .. }) => u64::MAX / 8,
            Err(other) => panic!("{other}"),
        };
        return programs.iter().map(time).sum();
    };
    let first = &programs[0];
    let value = first.value(*id);
    let Def::Parameter { pattern, .. } = &value.def else { panic!("a weight is a parameter") };
    let sizes = first.sizes(&value.dims);
    let shape = MeshShape { mesh: &first.mesh, sizes: &sizes };
    let none = shard_ir::AxisSet::EMPTY;
    let pinned = |layout: Layout| -> Vec<Program> {
        let pin = |program: &Program| {
            let mut program = program.clone();
            let rank = program.value(*id).dims.len();
            if let Def::Parameter { pattern, .. } = &mut program.values[id.index()].def {
                *pattern = LayoutPattern::exactly(layout, rank);
            }
            program
        };
        programs.iter().map(pin).collect()
    };
    pattern
        .candidates(shape, none, none)
        .into_iter()
        .map(|l| least(&pinned(l), rest))
        .min()
        .unwrap()
}

/// Weights that must be split somewhere, so that a choice is one: what is whole can be cut anywhere
/// for nothing.
const ORDERS: &str = "
mesh x=2, y=4
dim B = 16
dim E = 512
dim F = 1024
phase prefill { B = 4096 }
phase decode repeat 50 { B = 16 }
layer mlp(x: bf16 B_xE_y, w: weight bf16 E_(xy)F, v: weight bf16 F_xE?) -> bf16 B_yE_x {
  return einsum(relu(einsum(x, w -> BF)), v -> BE)
}";

#[test]
fn the_stored_layouts_are_the_best_of_all() {
    for steps in ["repeat 50", "", "repeat 4000"] {
        let programs = programs(&ORDERS.replace("repeat 50", steps));
        let found = shared(&programs).unwrap();
        let free: Vec<ValueId> = found.weights.iter().map(|w| w.value).collect();
        assert_eq!(free, [ValueId(1), ValueId(2)]);
        assert_eq!(found.request.status, Status::Proven);
        assert_eq!(found.request.cost.0, least(&programs, &free), "decode {steps}");
    }
}

#[test]
fn the_phases_with_stored_weights_take_what_the_request_takes() {
    let programs = programs(ORDERS);
    let found = shared(&programs).unwrap();
    let time = |p: &Program| {
        lower(p, &hardware(), &LowerOptions::default()).unwrap().optimality.cost.0 * steps(p)
    };
    assert_eq!(found.request.cost.0, found.programs.iter().map(time).sum::<u64>());
    assert!(found.request_alone() <= found.request.cost);
}

#[test]
fn weights_with_stated_layouts_leave_nothing_to_share() {
    let text = ORDERS.replace("E_(xy)F", "E_xyF").replace("F_xE?", "F_xE");
    assert!(shared(&programs(&text)).is_none());
    let text = ORDERS.replace("phase decode repeat 50 { B = 16 }", "");
    assert!(shared(&programs(&text)).is_none());
}
