//! [`Utilisation`]: which part of the arithmetic that the chips could do is done, and which part
//! the model asks for.

use std::collections::HashMap;

use shard_ir::{DimId, Dtype, InstrId, InstrKind, Op, Picoseconds, Plan};

use crate::hardware::Hardware;
use crate::plan::{InstrPrice, PlanPrice};
use crate::units::Flops;

/// Flops as fractions of those that the chips could do at peak in the time of a step, from 0 to 1.
/// Flops count against the peak rate of the arithmetic that they are done in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Utilisation {
    /// Model-flops utilisation: that of the [`model_flops`]. `None` if no einsum reads a weight.
    pub model: Option<f64>,
    /// Hardware utilisation: that of all flops that are done, including those of padding and
    /// copies.
    pub hardware: f64,
    /// The arithmetic that most of the flops are done in.
    pub arithmetic: Dtype,
}

impl Utilisation {
    /// The utilisation of a stack of `plan.repeat` layers that takes `time`; `None` if it takes
    /// none.
    pub fn of(
        plan: &Plan,
        price: &PlanPrice,
        hardware: &Hardware,
        time: Picoseconds,
    ) -> Option<Utilisation> {
        if time == Picoseconds(0) {
            return None;
        }
        let done = done_flops(plan, price);
        let wanted = model_flops(plan, price);
        let chips = plan.mesh.devices() as f64;
        let of_peak = |flops: &[(Dtype, Flops)], chips: f64| {
            // A fold, since the `sum` of no floats is -0.
            let at_peak = flops.iter().fold(0.0, |sum, (dtype, n)| {
                sum + n.0 as f64 / hardware.peak_flops_rate(*dtype) as f64
            });
            // No kernel is faster than its flops at peak, so that only the rounding of floats can
            // make this more than 1.
            (at_peak * plan.repeat as f64 / (chips * time.seconds())).min(1.0)
        };
        Some(Utilisation {
            model: wanted.as_deref().map(|flops| of_peak(flops, chips)),
            hardware: of_peak(&done, 1.0),
            arithmetic: main_arithmetic(&done),
        })
    }
}

/// The flops of one layer that its model asks for, on all devices together, by the arithmetic that
/// they are done in: those of the einsums of two or more operands that read a weight. `None` if
/// there is no such einsum.
///
/// * Sizes are useful ones, without what `pad` adds. Of the places of experts those count that
///   tokens can take: `choices` for each token.
/// * An einsum in a folded block counts for each application.
/// * An einsum counts once, whether or not several devices do it or the plan makes its value in
///   several layouts.
/// * An operand that is made of weights and numbers alone (cast, split, scaled) counts as a weight.
pub fn model_flops(plan: &Plan, price: &PlanPrice) -> Option<Vec<(Dtype, Flops)>> {
    let weights = made_of_weights(plan);
    let first = first_makers(plan);
    let mut sums = None;
    for id in plan.ids().filter(|id| first[id.index()] == *id) {
        let instr = plan.instruction(id);
        let is_einsum = instr.kind.op() == Some(&Op::Einsum) && instr.operands.len() > 1;
        if is_einsum && instr.operands.iter().any(|o| weights[o.index()]) {
            let InstrPrice::Kernel { arithmetic, .. } = price.of(id) else { continue };
            add(
                sums.get_or_insert_with(Vec::new),
                *arithmetic,
                useful_flops(plan, id).times(plan.repeat_of(id)),
            );
        }
    }
    sums
}

/// The flops of one layer on one device, by the arithmetic that they are done in.
fn done_flops(plan: &Plan, price: &PlanPrice) -> Vec<(Dtype, Flops)> {
    let mut sums = Vec::new();
    for (id, instr) in plan.ids().zip(&price.instructions) {
        if let InstrPrice::Kernel { flops, arithmetic, .. } = instr {
            add(&mut sums, *arithmetic, flops.times(plan.repeat_of(id)));
        }
    }
    sums
}

fn add(sums: &mut Vec<(Dtype, Flops)>, arithmetic: Dtype, flops: Flops) {
    match sums.iter_mut().find(|(dtype, _)| *dtype == arithmetic) {
        Some((_, sum)) => *sum = *sum + flops,
        None => sums.push((arithmetic, flops)),
    }
}

/// The arithmetic that most flops are done in; bf16 where there are none.
fn main_arithmetic(done: &[(Dtype, Flops)]) -> Dtype {
    let most = done.iter().map(|(_, sum)| *sum).max().unwrap_or_default();
    done.iter()
        .find(|(_, sum)| *sum == most && most > Flops(0))
        .map_or(Dtype::Bf16, |(dtype, _)| *dtype)
}

/// For each instruction whether its value is made of weights and numbers alone, at least one weight
/// among them.
fn made_of_weights(plan: &Plan) -> Vec<bool> {
    let mut weights: Vec<bool> = Vec::with_capacity(plan.instructions.len());
    for id in plan.ids() {
        let instr = plan.instruction(id);
        weights.push(match &instr.kind {
            InstrKind::Parameter(kind) => kind.is_weight(),
            InstrKind::Constant(_) => false,
            InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => {
                let is_number =
                    |o: InstrId| matches!(plan.instruction(o).kind, InstrKind::Constant(_));
                let of_both = |o: &InstrId| weights[o.index()] || is_number(*o);
                instr.operands.iter().all(of_both)
                    && instr.operands.iter().any(|o| weights[o.index()])
            }
        });
    }
    weights
}

/// For each instruction the first one that makes the same value, in any layout.
fn first_makers(plan: &Plan) -> Vec<InstrId> {
    let mut made: HashMap<(&Op, Vec<InstrId>, Vec<DimId>), InstrId> = HashMap::new();
    let mut first: Vec<InstrId> = Vec::with_capacity(plan.instructions.len());
    for id in plan.ids() {
        let instr = plan.instruction(id);
        let operands = || instr.operands.iter().map(|o| first[o.index()]).collect::<Vec<_>>();
        let op = match &instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => None,
            InstrKind::Move(_) => {
                first.push(first[plan.moved(id).index()]);
                continue;
            }
            InstrKind::CollectiveEinsum(_) => Some(&Op::Einsum),
            InstrKind::Op(op) => Some(op),
        };
        let maker = op.map_or(id, |op| {
            let mut dims = instr.dims.clone();
            dims.sort_unstable();
            *made.entry((op, operands(), dims)).or_insert(id)
        });
        first.push(maker);
    }
    first
}

/// The flops of an einsum with useful sizes, on all devices together.
fn useful_flops(plan: &Plan, id: InstrId) -> Flops {
    let instr = plan.instruction(id);
    let mut dims: Vec<DimId> = instr
        .operands
        .iter()
        .flat_map(|o| plan.instruction(*o).dims.iter().copied())
        .chain(instr.dims.clone())
        .collect();
    dims.sort_unstable();
    dims.dedup();
    let useful = |dim: DimId| u128::from(plan.dims[dim.index()].useful);
    let times = if dims.iter().all(|d| instr.dims.contains(d)) { 1 } else { 2 };
    let all = dims.iter().fold(times, |n: u128, d| n.saturating_mul(useful(*d)));
    // No more places of experts are taken than all tokens have choices.
    let taken = plan.instructions.iter().find_map(|instr| {
        let Op::Route { over, at, to, choices } = instr.kind.op()? else { return None };
        let is_of_it = dims.contains(over) && dims.contains(to);
        let places = useful(*over).saturating_mul(useful(*to));
        let chosen = useful(*at).saturating_mul(u128::from(*choices)).min(places);
        is_of_it.then_some((chosen, places))
    });
    Flops(taken.map_or(all, |(taken, places)| (all / places.max(1)).saturating_mul(taken)))
}
