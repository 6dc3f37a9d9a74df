//! The stored layouts that phases share are the best of all layouts, which are tried one by one.

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
    shared_on(programs, &hardware()).unwrap()
}

fn shared_on(
    programs: &[Program],
    hardware: &Hardware,
) -> Result<Option<SharedWeights>, LowerError> {
    let phases: Vec<&Program> = programs.iter().collect();
    share_weights(&phases, hardware, &LowerOptions::default())
}

fn steps(program: &Program) -> u64 {
    program.phase.as_ref().map_or(1, |phase| phase.repeat)
}

/// The time where there is no plan, which is more than any request takes.
const NONE: u64 = u64::MAX / 8;

/// The least time of a request over all layouts of the free weights.
fn least(programs: &[Program], free: &[ValueId], hardware: &Hardware) -> u64 {
    let Some((id, rest)) = free.split_first() else {
        let time = |p: &Program| match lower(p, hardware, &LowerOptions::default()) {
            Ok(lowered) => lowered.optimality.cost.0 * steps(p),
            Err(LowerError::Unreachable { .. } | LowerError::NoPlanFits { .. }) => NONE,
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
        .map(|l| least(&pinned(l), rest, hardware))
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

/// Weights that take most of the memory, in a step that gathers them and one that does not.
const DOWN: &str = "
mesh x=2, y=2
dim B = 16
dim E = 512
dim F = 1024
phase prefill { B = 1024 }
phase decode repeat 20 { B = 4 }
layer mlp(x: bf16 B_xyE, w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 B_xyE {
  return einsum(relu(einsum(x, w -> BF)), v -> BE) + x
}";

/// Three weights that do not all fit unsplit.
const CHAIN: &str = "
mesh x=2, y=2
dim B = 16
dim E = 512
dim F = 512
phase prefill { B = 1024 }
phase decode repeat 20 { B = 16 }
layer mlp(
  x: bf16 B_xE,
  w: weight bf16 EF?,
  v: weight bf16 FE?,
  u: weight bf16 EF?,
) -> bf16 B_xF {
  return relu(einsum(relu(einsum(relu(einsum(x, w -> BF)), v -> BE)), u -> BF))
}";

/// A folded block with a weight that nothing reads, and two whose layouts phases share.
const TOWER: &str = "
mesh x=2, y=2
dim B = 256
dim E = 512
dim K = 3
phase prefill { B = 1024 }
phase decode { B = 256 }
layer block(x: bf16 BE?l, unread: weight host bf16 EK?, up: weight bf16 EK?, down: weight bf16 KE?)
  -> bf16 BE?l repeat 4 {
  let _ = einsum(x, unread -> BK)
  return x + einsum(einsum(x * x, up -> BK), down -> BE)
}
model tower(x: bf16 BE?) -> bf16 BE? {
  return block(block(x))
}";

#[test]
fn the_stored_layouts_are_the_best_of_all() {
    for steps in ["repeat 50", "", "repeat 4000"] {
        let programs = programs(&ORDERS.replace("repeat 50", steps));
        let found = shared(&programs).unwrap();
        let free: Vec<ValueId> = found.weights.iter().map(|w| w.value).collect();
        assert_eq!(free, [ValueId(1), ValueId(2)]);
        assert_eq!(found.request.status, Status::Proven);
        assert_eq!(found.request.cost.0, least(&programs, &free, &hardware()), "decode {steps}");
    }
}

#[test]
fn weights_that_do_not_fit_together_are_in_no_plan_of_all_phases() {
    let programs = programs(CHAIN);
    let free = [ValueId(1), ValueId(2), ValueId(3)];
    let hardware = hardware().with_memory_limit(1_635_000);
    let best = least(&programs, &free, &hardware);
    let found = shared_on(&programs, &hardware).unwrap().expect("weights are free").request;
    assert!((found.lower_bound.0..=found.cost.0).contains(&best), "{best} ps, {found:?}");
}

#[test]
fn within_memory_no_request_takes_less_than_is_said_and_what_is_proven_is_the_best() {
    let (mut proven, mut slower, mut none) = (0, 0, 0);
    for text in [ORDERS, DOWN] {
        let programs = programs(text);
        let fastest = shared(&programs).expect("weights are free").request.cost;
        let free = [ValueId(1), ValueId(2)];
        for kilobytes in (900..4500).step_by(200) {
            let hardware = hardware().with_memory_limit(kilobytes * 1000);
            let best = least(&programs, &free, &hardware);
            let found = match shared_on(&programs, &hardware) {
                Ok(found) => found.expect("weights are free").request,
                Err(LowerError::NoPlanFits { proven, .. }) => {
                    assert!(best >= NONE || !proven, "{kilobytes} kB: one takes {best} ps");
                    none += 1;
                    continue;
                }
                Err(other) => panic!("{kilobytes} kB: {other}"),
            };
            assert!(found.lower_bound.0 <= best, "{kilobytes} kB: {best} ps, {found:?}");
            assert!(best <= found.cost.0, "{kilobytes} kB: {best} ps, {found:?}");
            proven += usize::from(found.status == Status::Proven);
            slower += usize::from(found.cost > fastest);
        }
    }
    let counts = format!("{proven} proven, {slower} slower for memory, {none} without a plan");
    assert!(proven > 10 && slower > 2 && none > 2, "{counts}");
}

#[test]
fn phases_of_folded_blocks_are_lowered_within_memory() {
    let mut programs = programs(TOWER);
    programs.retain(|program| program.name == "tower");
    let fastest = shared(&programs).expect("weights are free").request.cost;
    let mut slower = 0;
    for kilobytes in (100..2000).step_by(100) {
        let hardware = hardware().with_memory_limit(kilobytes * 1000);
        match shared_on(&programs, &hardware) {
            Ok(found) => {
                let request = found.expect("weights are free").request;
                assert!(request.cost >= fastest, "{kilobytes} kB: {request:?}");
                slower += usize::from(request.cost > fastest);
            }
            Err(LowerError::NoPlanFits { .. }) => {}
            Err(other) => panic!("{kilobytes} kB: {other}"),
        }
    }
    assert!(slower > 0);
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
