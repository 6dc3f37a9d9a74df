//! The unsharded program, evaluated by the definition of each op (`ops`): element by element, by
//! dim names.
//!
//! It is written apart from the evaluator of the devices (`local`), since it is the judge of that
//! one: it knows no blocks and no collectives, and a move is the identity.
//!
//! A large einsum would take hours by its definition. It goes through the kernel that the devices
//! use, on all cores; some elements, spread over the result, are evaluated by the definition as
//! well, and have to be the same.

mod along;
mod ops;

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::op::Flag;
use shard_ir::{Binary, DimId, InstrId, InstrKind, Op, Plan};

use crate::arithmetic::Arithmetic;
use crate::error::RunError;
use crate::parallel;
use crate::tensor::Tensor;

use ops::Evaluator;

/// A position along every dim of the program, by dim.
type Positions = Vec<usize>;

/// A whole value, whose elements are found by dim names.
struct Named {
    dims: Vec<DimId>,
    /// For each dim how far apart neighbours along it are in `data`.
    steps: Vec<usize>,
    data: Vec<f64>,
}

impl Named {
    fn new(plan: &Plan, dims: &[DimId], data: Vec<f64>) -> Named {
        let mut steps = vec![0; dims.len()];
        let mut step = 1;
        for (i, dim) in dims.iter().enumerate().rev() {
            steps[i] = step;
            step *= plan.dims[dim.index()].size as usize;
        }
        Named { dims: dims.to_vec(), steps, data }
    }

    fn max_abs(&self) -> f64 {
        largest_finite(&self.data)
    }

    fn at(&self, positions: &Positions) -> f64 {
        // A plain loop: this is where the reference spends its time.
        let mut at = 0;
        let mut i = 0;
        while i < self.dims.len() {
            at += positions[self.dims[i].0 as usize] * self.steps[i];
            i += 1;
        }
        self.data[at]
    }
}

/// One result of the unsharded program.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected {
    /// The whole tensor, dims in the declared order.
    pub tensor: Tensor,
    /// What rounding errors are measured against: the largest of its absolute values, of the sums
    /// of absolute terms where the result is a sum, and of the scales that its op hands on from its
    /// operands. (The mean of a layernorm is about 0, and its error is not, nor is that of its
    /// relu.)
    pub scale: f64,
}

/// Evaluates the whole plan and gives every result of it, dims in the declared order.
pub fn reference(
    plan: &Plan,
    parameters: &BTreeMap<InstrId, Arc<Tensor>>,
    arithmetic: Arithmetic,
) -> Result<Vec<Expected>, RunError> {
    let frees = shard_ir::Liveness::of(plan).frees;
    let mut values: Vec<Option<Named>> = Vec::new();
    let mut scales: Vec<f64> = Vec::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        let mut operands = Vec::new();
        for operand in &instr.operands {
            let value = values.get(operand.index()).and_then(Option::as_ref);
            operands
                .push(value.ok_or(RunError::Internal("the reference reads a value that is gone"))?);
        }
        let inherited: Vec<f64> = instr.operands.iter().map(|o| scales[o.index()]).collect();
        let (mut data, mut scale) = match &instr.kind {
            InstrKind::Parameter(_) => (
                parameters
                    .get(&id)
                    .ok_or(RunError::Internal("a parameter has no data"))?
                    .data
                    .clone(),
                0.0,
            ),
            InstrKind::Constant(number) => (vec![plan.number(*number)], 0.0),
            InstrKind::Move(_) => (operands[0].data.clone(), largest_of(&inherited)),
            kind @ (InstrKind::Op(_) | InstrKind::CollectiveEinsum(_)) => {
                let op = kind.op().ok_or(RunError::Internal("an op does nothing"))?;
                let (data, magnitude) =
                    Evaluator { plan, id, arithmetic }.op(op, &operands, &instr.dims)?;
                (data, magnitude.max(handed_on(op, &inherited, &operands)))
            }
        };
        let scales_of_parts = parallel::in_parts(&mut data, |part| {
            let rounded = arithmetic.round_all(instr.dtype, false, part);
            rounded.map(|()| largest_finite(part)).ok_or(RunError::Overflow { id })
        })?;
        scale = scale.max(largest_of(&scales_of_parts));
        scales.push(scale);
        values.push(Some(Named::new(plan, &instr.dims, data)));
        for freed in &frees[id.index()] {
            values[freed.index()] = None;
        }
    }
    plan.outputs
        .iter()
        .map(|output| {
            let value = values.get(output.id.index()).and_then(Option::as_ref);
            let value = value.ok_or(RunError::Internal("a result of the reference is gone"))?;
            let mut data = Vec::with_capacity(value.data.len());
            let mut positions = vec![0; plan.dims.len()];
            each(plan, &output.dims, &mut positions, &mut |p| data.push(value.at(p)));
            let sizes = output.dims.iter().map(|d| plan.dims[d.index()].size as usize).collect();
            Ok(Expected { tensor: Tensor { sizes, data }, scale: scales[output.id.index()] })
        })
        .collect()
}

/// The largest absolute value among the finite numbers. Eight maxima are kept at once, since each
/// comparison waits for the one before it in its maximum.
fn largest_finite(numbers: &[f64]) -> f64 {
    let mut largest = [0.0f64; 8];
    for numbers in numbers.chunks(largest.len()) {
        for (largest, number) in largest.iter_mut().zip(numbers) {
            let size = number.abs();
            *largest = if size > *largest && size < f64::INFINITY { size } else { *largest };
        }
    }
    largest_of(&largest)
}

fn largest_of(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(0.0, f64::max)
}

/// The scale that an op hands on from its operands to its result. Where values are copied or
/// chosen, an error of an operand is an error of the result and no larger; in a product it is
/// multiplied by the other factor. For other ops it is 0: the scale is then the magnitude of the
/// result.
fn handed_on(op: &Op, scales: &[f64], operands: &[&Named]) -> f64 {
    match op {
        Op::Binary(Binary::Mul) => {
            let of = |at: usize, other: usize| scales[at] * operands[other].max_abs();
            f64::max(of(0, 1), of(1, 0))
        }
        op if op.row().is(Flag::KeepsValues) || op.row().is(Flag::KeepsErrors) => {
            largest_of(scales)
        }
        _ => 0.0,
    }
}

/// Visits every assignment of positions to some dims, the last fastest.
fn each(
    plan: &Plan,
    dims: &[DimId],
    positions: &mut Positions,
    visit: &mut dyn FnMut(&mut Positions),
) {
    let Some((first, rest)) = dims.split_first() else { return visit(positions) };
    let before = positions[first.index()];
    for position in 0..plan.dims[first.index()].size as usize {
        positions[first.index()] = position;
        each(plan, rest, positions, visit);
    }
    positions[first.index()] = before;
}

/// Calls `look` with these positions, but another one along a dim.
fn with(
    positions: &mut Positions,
    dim: DimId,
    position: usize,
    look: impl FnOnce(&Positions) -> f64,
) -> f64 {
    let before = std::mem::replace(&mut positions[dim.index()], position);
    let value = look(positions);
    positions[dim.index()] = before;
    value
}
