//! Ops that run along a dim that axes split: they are done part by part, with the same result.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{InstrKind, Op, Plan, Program};
use shard_runtime::{RunOptions, Tensor, in_program_order, run_against};
use shard_search::{LowerError, LowerOptions, lower};

/// A chip with a slow network, so that no dim is worth gathering.
fn slow_network(hbm_bytes: &str) -> Hardware {
    Hardware::parse(&format!(
        "name = \"slow\"\n[chip]\nflops = {{ bf16 = 1e15, f32 = 1e15 }}\nhbm_bytes = {hbm_bytes}\n\
         hbm_bandwidth = 1e15\n[network]\nkind = \"flat\"\nbandwidth = 1e3\n"
    ))
    .expect("the file is well formed")
}

fn program(mesh: &str, dims: &str, layer: &str) -> Program {
    let dims: String =
        dims.split(' ').map(|dim| format!("dim {}\n", dim.replace('=', " = "))).collect();
    let source = format!("mesh {mesh}\n{dims}{layer}\n");
    let mut checked =
        check_source(&SourceFile::new("test", source.as_str()), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    checked.programs.swap_remove(0)
}

/// The plan of a program, proven, priced as searched, found to compute it, and run.
fn plan_of(program: &Program) -> Plan {
    let lowered =
        lower(program, &slow_network("1e12"), &LowerOptions::default()).expect("it lowers");
    let cost = lowered.optimality.cost;
    assert_eq!(lowered.optimality.lower_bound, cost, "proven");
    let price = shard_cost::price(&lowered.plan, &slow_network("1e12")).totals.serial_time;
    assert_eq!(price, cost, "priced as searched");
    shard_ir::verify::verify(&lowered.plan).expect("a legal plan");
    shard_search::certificate::computes(&lowered.plan, program).expect("it computes the layer");
    let text = shard_ir::text::print(&lowered.plan);
    let read = shard_ir::text::parse(&text).expect("IR text");
    assert_eq!(shard_ir::text::print(&read[0]), text);
    let source = Plan::unsharded(program);
    let report = run_against(&source, &in_program_order(&lowered.plan), &RunOptions::default());
    assert!(report.expect("it runs").equal, "{text}");
    lowered.plan
}

/// The most elements of a block that a move with traffic gives to a device.
fn largest_moved(plan: &Plan) -> u64 {
    let moved = plan.ids().filter(|id| match &plan.instruction(*id).kind {
        InstrKind::Move(collective) => collective.has_traffic(),
        InstrKind::Op(_)
        | InstrKind::Parameter(_)
        | InstrKind::Constant(_)
        | InstrKind::CollectiveEinsum(_) => false,
    });
    moved.map(|id| plan.local_elements(id)).max().unwrap_or(0)
}

fn has(plan: &Plan, is: impl Fn(&Op) -> bool) -> bool {
    plan.instructions.iter().any(|i| i.kind.op().is_some_and(&is))
}

/// Meshes, and the axes that split a dim of 48 positions on them.
const SPLITS: &[(&str, &[&str])] = &[
    ("x=2", &["x"]),
    ("x=4", &["x"]),
    ("x=2, y=2", &["x", "y", "xy", "yx"]),
    ("x=2, y=3", &["x", "y", "xy", "yx"]),
    ("x=4, y=2", &["x", "y", "xy"]),
    ("x=2, y=2, z=2", &["z", "yx", "xyz", "zx"]),
];

#[test]
fn sums_up_to_a_position_send_one_number_of_each_part() {
    for (mesh, splits) in SPLITS {
        for axes in *splits {
            for (dims, dtype) in [("BL", "f32"), ("LB", "bf16"), ("L", "int32")] {
                let ty = format!("{dtype} {}", dims.replace('L', &format!("L_{axes}")));
                let layer = format!("layer f(a: {ty}) -> {ty} {{ return cumsum(a over L) }}");
                let plan = plan_of(&program(mesh, "B=5 L=48", &layer));
                // As many parts at most as there are devices, for each of five rows.
                let devices = plan.mesh.devices();
                assert!(largest_moved(&plan) <= 5 * devices, "{layer} on {mesh}");
            }
        }
    }
}

#[test]
fn recurrences_send_the_last_position_of_each_part() {
    for (mesh, splits) in SPLITS {
        for axes in *splits {
            for (dims, gates) in [("BL", "BL"), ("LB", "BL"), ("BL", "L"), ("L", "L")] {
                let split = |dims: &str| dims.replace('L', &format!("L_{axes}"));
                let (a, f) = (split(dims), split(gates));
                let layer = format!(
                    "layer f(a: f32 {a}, f: f32 {f}) -> f32 {a} {{ return scan(a, f over L) }}"
                );
                let plan = plan_of(&program(mesh, "B=5 L=48", &layer));
                assert!(largest_moved(&plan) <= 5 * plan.mesh.devices(), "{layer} on {mesh}");
                assert!(has(&plan, |op| matches!(op, Op::Pad { .. })), "{layer} on {mesh}");
            }
        }
    }
}

#[test]
fn the_largest_few_are_chosen_of_each_part_first() {
    for (mesh, splits) in SPLITS {
        for axes in *splits {
            for (op, dtype) in [("topk", "f32"), ("argtopk", "int32")] {
                let layer = format!(
                    "layer f(a: f32 BV_{axes}) -> {dtype} BK {{ return {op}(a over V -> K) }}"
                );
                let plan = plan_of(&program(mesh, "B=3 V=48 K=2", &layer));
                assert!(largest_moved(&plan) <= 3 * 2 * plan.mesh.devices(), "{layer} on {mesh}");
            }
        }
    }
}

#[test]
fn shifts_and_convolutions_send_the_end_of_each_part() {
    for (mesh, splits) in SPLITS {
        for axes in *splits {
            let a = format!("BL_{axes}");
            for layer in [
                format!("layer f(a: f16 {a}) -> f16 {a} {{ return shift(a over L, 2) }}"),
                format!(
                    "layer f(a: int32 L_{axes}B) -> int32 L_{axes}B {{ return shift(a over L, 2) }}"
                ),
                format!(
                    "layer f(a: f32 {a}, w: f32 TB) -> f32 {a} {{ return conv(a, w over L, T) }}"
                ),
                format!(
                    "layer f(a: bf16 L_{axes}, w: bf16 T) -> bf16 L_{axes} {{ return conv(a, w over L, T) }}"
                ),
            ] {
                let plan = plan_of(&program(mesh, "B=5 L=48 T=3", &layer));
                assert!(largest_moved(&plan) <= 2 * 5 * plan.mesh.devices(), "{layer} on {mesh}");
                assert!(has(&plan, |op| matches!(op, Op::SliceDim { .. })), "{layer} on {mesh}");
            }
        }
    }
}

/// A layer of a state space whose length is split: what is gathered of its convolution and of its
/// recurrence is the end of each part.
#[test]
fn a_layer_with_a_convolution_over_a_split_length_moves_the_halo_alone() {
    let layer = "layer block(x: f32 BL_xyE, w_in: weight f32 ED?, w_gate: weight f32 ED?, \
        taps: weight f32 TD?, w_out: weight f32 DE?) -> f32 BL_xyE {\n\
        let h = rmsnorm(x over E)\n\
        let u = silu(conv(einsum(h, w_in -> BLD), taps over L, T))\n\
        let f = sigmoid(einsum(h, w_gate -> BLD))\n\
        let mixed = u + shift(u over L, 2)\n\
        return x + einsum(scan(mixed, f over L), w_out -> BLE)\n}";
    let program = program("x=2, y=2", "B=2 L=64 E=6 D=8 T=4", layer);
    let plan = plan_of(&program);
    let parts = 4;
    // Three positions of each part, of every row and channel; a whole length would be 64.
    assert!(largest_moved(&plan) <= 2 * 8 * 3 * parts, "{}", shard_ir::text::print(&plan));
    assert!(has(&plan, |op| matches!(op, Op::Concat { .. })));
}

#[test]
fn of_equal_ones_the_first_of_all_parts_comes_first() {
    let program = program(
        "x=2, y=2",
        "V=16 K=3",
        "layer f(a: f32 V_xy) -> int32 K { return argtopk(a over V -> K) }",
    );
    let plan = plan_of(&program);
    assert!(has(&plan, |op| matches!(op, Op::Take { .. })));
    let all = |value: f64| vec![value; 16];
    let with = |places: &[usize]| {
        let mut data = all(0.0);
        places.iter().for_each(|place| data[*place] = 7.0);
        data
    };
    for (data, best) in [
        (all(1.0), [0.0, 1.0, 2.0]),
        (with(&[15, 4]), [4.0, 15.0, 0.0]),
        (with(&[3, 5, 12, 14]), [3.0, 5.0, 12.0]),
        (with(&[8]), [8.0, 0.0, 1.0]),
    ] {
        let given = Arc::new(Tensor { sizes: vec![16], data });
        let inputs = BTreeMap::from([("a".to_string(), given)]);
        let options = RunOptions { inputs, ..RunOptions::default() };
        let report = run_against(&Plan::unsharded(&program), &in_program_order(&plan), &options)
            .expect("it runs");
        assert!(report.equal);
        assert_eq!(report.outputs[0].tensor.data, best);
    }
}

/// Whether any dim is made for a layer.
fn is_cut(mesh: &str, dims: &str, layer: &str) -> bool {
    let program = program(mesh, dims, layer);
    assert_eq!(program.dims.len() > program.declared_dims(), program.cuts != Default::default());
    program.dims.len() > program.declared_dims()
}

#[test]
fn there_are_no_parts_where_they_say_no_less() {
    let cumsum = "layer f(a: f32 BL) -> f32 BL { return cumsum(a over L) }";
    assert!(is_cut("x=4", "B=3 L=8", cumsum));
    // One device; as many devices as positions; no common divisor.
    assert!(!is_cut("x=1", "B=3 L=8", cumsum));
    assert!(!is_cut("x=4", "B=3 L=4", cumsum));
    assert!(!is_cut("x=4", "B=3 L=15", cumsum));
    // Two of four devices can split six positions with another axis, or none.
    assert!(is_cut("x=4", "B=3 L=6", cumsum));
    // A part has to be longer than what the next one sees of it.
    let shift = "layer f(a: f32 BL) -> f32 BL { return shift(a over L, 3) }";
    assert!(is_cut("x=4", "B=3 L=16", shift));
    assert!(!is_cut("x=4", "B=3 L=12", shift));
    let conv = "layer f(a: f32 BL, w: f32 TB) -> f32 BL { return conv(a, w over L, T) }";
    assert!(is_cut("x=4", "B=3 L=16 T=4", conv));
    assert!(!is_cut("x=4", "B=3 L=16 T=5", conv));
    assert!(!is_cut("x=4", "B=3 L=16 T=1", conv));
    // Each that may be cut doubles the forms: of three none is.
    let many = |of: &str| format!("layer f(a: f32 BL) -> f32 BL {{ return {of} }}");
    assert!(is_cut("x=4", "B=3 L=16", &many("shift(a over L, 1) + shift(a over L, 2)")));
    let three = "shift(a over L, 1) + shift(a over L, 2) + shift(a over L, 3)";
    assert!(!is_cut("x=4", "B=3 L=16", &many(three)));
    // A part gives all that it has.
    let topk = "layer f(a: f32 BV) -> f32 BK { return topk(a over V -> K) }";
    assert!(is_cut("x=2, y=2", "B=3 V=8 K=3", topk));
    assert!(!is_cut("x=2, y=2", "B=3 V=8 K=4", topk));
    assert!(!is_cut("x=4", "B=3 V=8 K=2", topk));
}

#[test]
fn what_may_leave_its_range_within_a_part_is_whole() {
    for (layer, whole) in [
        ("layer f(a: f16 L_x) -> f16 L_x { return cumsum(a over L) }", true),
        ("layer f(a: bf16 L_x) -> bf16 L_x { return cumsum(a over L) }", false),
        ("layer f(a: f16 L_x, f: f16 L_x) -> f16 L_x { return scan(a, f over L) }", true),
        ("layer f(a: f32 L_x, f: bf16 L_x) -> f32 L_x { return scan(a, f over L) }", false),
        // The factor has no positions.
        ("layer f(a: f32 BL_x, f: f32 B) -> f32 BL_x { return scan(a, f over L) }", true),
    ] {
        let plan = plan_of(&program("x=4", "B=3 L=32", layer));
        assert_eq!(has(&plan, |op| matches!(op, Op::Split { .. })), !whole, "{layer}");
        // Dims that nothing uses are not the plan's.
        assert_eq!(plan.dims.len() == 2, whole, "{layer}: {:?}", plan.dims);
    }
}

#[test]
fn a_dim_of_a_part_is_called_as_no_other_is() {
    let program = program(
        "x=4",
        "L=32 L1=2 L3=3",
        "layer f(a: f32 L_x, b: f32 L1L3) -> (y: f32 L_x, z: f32 L1L3) { \
         return (cumsum(a over L), b) }",
    );
    let names: Vec<&str> = program.dims.iter().map(|dim| dim.name.as_str()).collect();
    assert_eq!(names, ["L", "L1", "L3", "L2", "L4"]);
    plan_of(&program);
}

#[test]
fn in_a_strict_layer_nothing_is_cut() {
    let program =
        program("x=4", "L=32", "strict layer f(a: f32 L_x) -> f32 L_x { return cumsum(a over L) }");
    let lowered = lower(&program, &slow_network("1e12"), &LowerOptions::default());
    assert!(matches!(lowered, Err(LowerError::Strict { .. })));
}

#[test]
fn where_the_whole_dim_does_not_fit_parts_do() {
    let program =
        program("x=4", "L=4096", "layer f(a: f32 L_x) -> f32 L_x { return cumsum(a over L) }");
    // A block is 4 kB, and the dim 16 kB.
    let plan =
        lower(&program, &slow_network("14e3"), &LowerOptions::default()).expect("it fits").plan;
    assert!(has(&plan, |op| matches!(op, Op::Split { .. })));
}

/// Two phases share a weight whose layout is left open; one cuts a dim that the other has once.
#[test]
fn phases_of_other_sizes_have_parts_of_their_own() {
    let source = "mesh x=4\ndim B = 4\ndim L = 1\ndim D = 8\n\
        phase prompt { L = 64 }\nphase step repeat 8 { L = 1 }\n\
        layer f(a: f32 BLD?, w: weight f32 D?) -> f32 BLD? {\n \
        return scan(a * w, sigmoid(a) over L)\n}";
    let checked = check_source(&SourceFile::new("test", source), &CheckOptions::default());
    assert!(!checked.has_errors(), "{:?}", checked.diagnostics);
    let made = |program: &Program| program.dims.len() - program.declared_dims();
    assert_eq!(checked.programs.iter().map(made).collect::<Vec<_>>(), [3, 0]);
    for program in &checked.programs {
        plan_of(program);
    }
}
