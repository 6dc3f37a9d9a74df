//! Composites over a split dim: they are computed in pieces, with the same result.

use crate::common::Builder;
use shard_cost::Hardware;
use shard_ir::{Dtype, InstrKind, Layout, MeshShape, Norm, Op, ParameterKind, Plan, ValueId};
use shard_runtime::{RunOptions, in_program_order, run_against};
use shard_search::{LowerOptions, lower};

/// A chip with a slow network, so that no dim is worth gathering.
fn slow_network() -> Hardware {
    Hardware::parse(
        "name = \"slow\"\n[chip]\nflops = { bf16 = 1e15, f32 = 1e15 }\nhbm_bytes = \
            1e12\nhbm_bandwidth = 1e15\n\
         [network]\nkind = \"flat\"\nbandwidth = 1e3\n",
    )
    .expect("the file is well formed")
}

fn composites(b: &Builder) -> [Op; 3] {
    let over = b.pattern("S", false).0[0];
    [Op::Softmax { over }, Op::Norm { kind: Norm::Rms, over }, Op::Norm { kind: Norm::Layer, over }]
}

/// The plan of `f(g(a))`, `g` the composite, where argument and result have a layout.
fn plan_of(
    mesh: &[(&str, u64)],
    dims: &[(&str, u64)],
    composite: usize,
    layout: &str,
    dtype: Dtype,
) -> (Plan, Plan) {
    let mut b = Builder::new(mesh, dims);
    let names: String = layout.chars().filter(char::is_ascii_uppercase).collect();
    let a = b.parameter("a", ParameterKind::Activation, layout);
    let op = composites(&b)[composite].clone();
    let y = b.op("y", op, &[a], &names);
    b.output(y, layout);
    b.program.values.iter_mut().for_each(|v| v.dtype = dtype);
    let lowered = lower(&b.program, &slow_network(), &LowerOptions::default()).expect("it lowers");
    assert_eq!(lowered.optimality.price_bound, Some(lowered.optimality.cost), "proven by prices");
    let price = shard_cost::price(&lowered.plan, &slow_network()).totals.serial_time;
    assert_eq!(price, lowered.optimality.cost, "priced as searched");
    shard_search::certificate::computes(&lowered.plan, &b.program).expect("it computes the layer");
    (lowered.plan, Plan::unsharded(&b.program))
}

fn has_the_composite_whole(plan: &Plan) -> bool {
    plan.instructions
        .iter()
        .any(|i| matches!(i.kind, InstrKind::Op(Op::Softmax { .. } | Op::Norm { .. })))
}

/// Both sides of the three rules, in every layout of small tensors that splits the dim.
#[test]
fn composites_in_pieces_compute_what_they_compute_whole_in_every_layout_that_splits_the_dim() {
    let mut run = 0;
    for sizes in [&[2][..], &[4], &[2, 2], &[4, 2], &[2, 3], &[2, 2, 2]] {
        let mesh: Vec<(&str, u64)> =
            ["x", "y", "z"].into_iter().zip(sizes.iter().copied()).collect();
        for (dims, names) in [
            (&[("S", 48)][..], "S"),
            (&[("B", 12), ("S", 48)], "BS"),
            (&[("S", 96), ("B", 4)], "SB"),
        ] {
            let built = Builder::new(&mesh, dims).program;
            let lengths: Vec<u64> = dims.iter().map(|(_, size)| *size).collect();
            let shape = MeshShape { mesh: &built.mesh, sizes: &lengths };
            let at = names.find('S').expect("there is one");
            let none = shard_ir::AxisSet::EMPTY;
            let splits = |layout: &Layout| !layout.axes_of(at).is_empty();
            for layout in shape.layouts(none, none).into_iter().filter(splits) {
                let letters: Vec<String> = names.chars().map(String::from).collect();
                let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
                let text = layout.text(&built.mesh, &letters);
                for composite in 0..3 {
                    let (plan, source) = plan_of(&mesh, dims, composite, &text, Dtype::F32);
                    assert!(!has_the_composite_whole(&plan), "{text} on {}", built.mesh);
                    let traffic = |i: &&shard_ir::Instruction| matches!(&i.kind, InstrKind::Move(m) if m.has_traffic());
                    let moves: Vec<&str> =
                        plan.instructions.iter().filter(traffic).map(|i| i.kind.name()).collect();
                    assert!(moves.iter().all(|m| *m == "all-reduce"), "{text}: {moves:?}");
                    let report =
                        run_against(&source, &in_program_order(&plan), &RunOptions::default());
                    assert!(report.expect("it runs").equal, "{text} on {}", built.mesh);
                    run += 1;
                }
            }
        }
    }
    eprintln!("{run} plans run");
    assert!(run > 300);
}

#[test]
fn a_norm_over_a_dim_split_over_all_axes_gathers_nothing_large() {
    let (plan, _) = plan_of(
        &[("x", 4), ("y", 4), ("z", 4)],
        &[("B", 512), ("S", 18432)],
        1,
        "BS_xyz",
        Dtype::Bf16,
    );
    let bytes: Vec<u64> = plan
        .ids()
        .filter(|id| matches!(plan.instruction(*id).kind, InstrKind::Move(_)))
        .map(|id| plan.local_bytes(id))
        .collect();
    assert_eq!(bytes, [1024], "one all-reduce of a number for each of 512 rows");
}

/// The sum of squares may leave what these dtypes can hold.
#[test]
fn composites_of_narrow_dtypes_are_whole() {
    for dtype in [Dtype::F16, Dtype::F8] {
        for composite in 0..3 {
            let (plan, _) = plan_of(&[("x", 4)], &[("B", 8), ("S", 16)], composite, "BS_x", dtype);
            assert!(has_the_composite_whole(&plan));
        }
    }
}

#[test]
fn pieces_say_what_they_are_pieces_of_and_the_last_bears_the_name() {
    let (plan, _) = plan_of(&[("x", 4)], &[("B", 8), ("S", 16)], 0, "BS_x", Dtype::F32);
    let words: Vec<(&str, Option<&str>, Option<&str>)> = plan
        .instructions
        .iter()
        .map(|i| (i.kind.name(), i.name.as_deref(), i.origin.piece_of.as_deref()))
        .collect();
    let y = Some("y");
    assert_eq!(
        words,
        [
            ("parameter", Some("a"), None),
            ("reduce", None, y),
            ("all-reduce", None, y),
            ("binary", None, y),
            ("map", None, y),
            ("reduce", None, y),
            ("all-reduce", None, y),
            ("binary", y, y),
        ]
    );
}

/// Scores below a causal mask whose keys are split: whole blocks of a row are minus infinity.
#[test]
fn a_block_that_is_masked_whole_weighs_nothing() {
    let mut b = Builder::new(&[("x", 4)], &[("L", 64), ("S", 64)]);
    let [query, key] = ["L", "S"].map(|dim| b.pattern(dim, false).0[0]);
    let a = b.parameter("a", ParameterKind::Activation, "LS_x");
    let masked: ValueId = b.op("m", Op::Mask { query, key, window: None }, &[a], "LS");
    let y = b.op("y", Op::Softmax { over: key }, &[masked], "LS");
    b.output(y, "LS_x");
    b.program.values.iter_mut().for_each(|v| v.dtype = Dtype::F32);
    let plan =
        lower(&b.program, &slow_network(), &LowerOptions::default()).expect("it lowers").plan;
    assert!(!has_the_composite_whole(&plan));
    let report =
        run_against(&Plan::unsharded(&b.program), &in_program_order(&plan), &RunOptions::default());
    assert!(report.expect("it runs").equal);
}

#[test]
fn in_a_strict_layer_composites_are_whole() {
    let mut b = Builder::new(&[("x", 4)], &[("B", 8), ("S", 16)]);
    let a = b.parameter("a", ParameterKind::Activation, "BS_x");
    let op = composites(&b)[0].clone();
    let y = b.op("y", op, &[a], "BS");
    b.output(y, "BS_x");
    b.program.strict = true;
    let error = lower(&b.program, &slow_network(), &LowerOptions::default());
    let Err(shard_search::LowerError::Strict { plan, .. }) = error else {
        panic!("its collectives are not written")
    };
    assert!(has_the_composite_whole(&plan), "what it lacks is said of moves that can be written");
}
