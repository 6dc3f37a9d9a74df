//! Random attentions, each lowered for a chip with or without attention kernels. The plan is
//! verified, printed and read back, and executed on simulated devices. Its results equal a softmax
//! of written-out scores, and its bytes are those of the cost model.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::attentions::attention;
use shard_cost::price;
use shard_ir::attention::{attentions, carried_operand, rings};
use shard_ir::{Def, InstrKind, Op, Plan};
use shard_runtime::{Random, RunOptions, Tensor, in_program_order, run};
use shard_search::{LowerOptions, lower};

/// How many plans have a kernel, one over split keys, with joined keys, with parts of them split,
/// an op on a part, and a ring.
#[derive(Default, Debug)]
struct Seen {
    kernels: usize,
    split: usize,
    joined: usize,
    in_parts: usize,
    carried: usize,
    rings: usize,
}

impl Seen {
    fn add(&mut self, plan: &Plan) {
        let is_joined = |of: &dyn Fn(bool) -> bool| {
            plan.instructions.iter().any(|instr| match &instr.kind {
                InstrKind::Op(Op::Concat { to, .. }) => {
                    let at = instr.dims.iter().position(|dim| dim == to);
                    let split = at.is_some_and(|at| !instr.layout.axes_of(at).is_empty());
                    instr.origin.attention && of(split)
                }
                _ => false,
            })
        };
        let is_split = |instr: &shard_ir::Instruction| !instr.layout.softmax_axes().is_empty();
        let is_op = |id: &shard_ir::InstrId| matches!(plan.instruction(*id).kind, InstrKind::Op(_));
        self.kernels += usize::from(attentions(plan).is_ok_and(|found| !found.is_empty()));
        self.split += usize::from(plan.instructions.iter().any(is_split));
        self.joined += usize::from(is_joined(&|_| true));
        self.in_parts += usize::from(is_joined(&|split| split));
        let acts = plan.ids().filter(is_op).any(|id| carried_operand(plan, id).is_some());
        self.carried += usize::from(acts);
        self.rings += usize::from(!rings(plan).is_empty());
    }
}

fn hold(seeds: u64) -> Seen {
    let hardware = crate::common::kernels::chip("1e10", "2e7");
    let mut seen = Seen::default();
    for seed in 0..seeds {
        let text = attention(seed);
        let options = LowerOptions { fuse: seed % 3 == 0, ..LowerOptions::default() };
        let lowered = lower(&crate::common::kernels::program(&text), &hardware, &options)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        let plan = lowered.plan;
        let printed = shard_ir::text::print(&plan);
        assert_eq!(shard_ir::verify::verify(&plan), Ok(()), "seed {seed}\n{text}{printed}");
        let read = shard_ir::text::parse(&printed).expect("a plan");
        assert_eq!(shard_ir::text::print(&read[0]), printed, "seed {seed}");
        let report = run(&in_program_order(&plan), &RunOptions { seed, ..RunOptions::default() })
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}{printed}"));
        assert!(report.equal, "seed {seed}: off by {}\n{text}{printed}", report.max_abs_err);
        let price = price(&plan, &hardware);
        assert_eq!(price.totals.serial_time, lowered.optimality.cost, "seed {seed}\n{text}");
        for sent in &report.collectives {
            let predicted = price.of(sent.id).collective().map_or(0, |cost| cost.wire_bytes.0);
            assert_eq!(sent.wire_bytes, predicted, "seed {seed}: {}\n{text}{printed}", sent.name);
        }
        seen.add(&plan);
    }
    seen
}

/// Both evaluators of the runtime, that of devices and that of whole tensors, held to a third.
#[test]
fn some_random_attentions_compute_what_a_plain_softmax_does() {
    let hardware = crate::common::kernels::chip("1e10", "2e7");
    for seed in 0..40 {
        let text = attention(seed);
        let program = crate::common::kernels::program(&text);
        let mut random = Random::new(seed);
        let mut given = BTreeMap::new();
        for value in &program.values {
            if let (Def::Parameter { .. }, Some(name)) = (&value.def, &value.name) {
                let sizes: Vec<usize> =
                    value.dims.iter().map(|dim| program.dims[dim.index()].size as usize).collect();
                let data =
                    (0..sizes.iter().product()).map(|_| random.below(2001) as f64 / 1e3 - 1.0);
                given.insert(name.clone(), Arc::new(Tensor { sizes, data: data.collect() }));
            }
        }
        let options = LowerOptions { fuse: seed % 3 == 0, ..LowerOptions::default() };
        let plan = lower(&program, &hardware, &options).expect("a plan").plan;
        let options = RunOptions { inputs: given.clone(), ..RunOptions::default() };
        let report = run(&in_program_order(&plan), &options).expect("a run");
        let given = given.into_iter().map(|(name, tensor)| (name, tensor.data.clone())).collect();
        let wanted = crate::common::plain::results(&program, &given);
        for (at, wanted) in wanted.iter().enumerate() {
            for found in [&report.outputs[at], &report.expected[at]] {
                assert_eq!(found.tensor.data.len(), wanted.len(), "seed {seed}\n{text}");
                let off = found.tensor.data.iter().zip(wanted).map(|(a, b)| (a - b).abs());
                let off = off.fold(0.0, f64::max);
                assert!(off < 1e-4, "seed {seed}: {} is off by {off}\n{text}", found.name);
            }
        }
    }
}

#[test]
fn some_random_attentions_compute_what_they_say() {
    let Seen { kernels, split, joined, in_parts, carried, rings } = hold(300);
    let all = [kernels, split, joined, in_parts, carried, rings];
    eprintln!("kernels, split, joined, in parts, carried, rings: {all:?}");
    assert!(kernels >= 200 && split >= 30 && joined >= 80, "{all:?}");
    assert!(in_parts >= 10 && carried >= 10 && rings >= 1, "{all:?}");
}

#[test]
#[ignore = "slow: two thousand programs"]
fn random_attentions_compute_what_they_say() {
    hold(2_000);
}
