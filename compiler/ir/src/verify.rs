//! The verifier of plans. It derives the type and the layout of each instruction from its operands,
//! and trusts nothing that is written.

mod error;
pub(crate) mod words;

use crate::attention::{
    attentions, carried_operand, joined_layout, partial_softmax, softmax_layout,
};
use crate::collective::Collective;
use crate::collective_einsum::{Fused, LoopError};
use crate::fold::verify_folds;
use crate::layout::{DimSet, Layout, MeshShape, Reduction};
use crate::layout_rule::{Operand, result_layout_as};
use crate::op::Op;
use crate::plan::{InstrId, InstrKind, Instruction, Plan};
use crate::tensor::{DimId, MAX_DIM_SIZE, MAX_DIMS, MAX_ELEMENTS, MAX_RANK, TensorType};
use crate::typing::{einsum_type, result_type, same_dims};

pub use error::{VerifyError, VerifyErrorKind};

/// Checks a whole plan. The errors are in program order, at most one for each instruction.
///
/// Each instruction is checked against its operands *as written*, so that one wrong instruction
/// gives one error.
pub fn verify(plan: &Plan) -> Result<(), Vec<VerifyError>> {
    let mut errors: Vec<VerifyError> = verify_dims(plan)
        .into_iter()
        .map(|kind| VerifyError { id: None, what: "plan", kind })
        .collect();
    if plan.repeat == 0 {
        errors.push(VerifyError { id: None, what: "plan", kind: VerifyErrorKind::NoRepeat });
    }
    if !errors.is_empty() {
        // Sizes are multiplied below, which needs a sound table of dims.
        return Err(errors);
    }
    let mut broken = vec![false; plan.instructions.len()];
    for id in plan.ids() {
        let instr = plan.instruction(id);
        if let Err(kind) = verify_written(plan, id, instr) {
            // Instructions that read this one cannot be checked.
            broken[id.index()] = true;
            errors.push(VerifyError { id: Some(id), what: instr.kind.name(), kind });
        } else if instr.operands.iter().all(|o| !broken[o.index()]) {
            if let Err(kind) = verify_instruction(plan, instr) {
                errors.push(VerifyError { id: Some(id), what: instr.kind.name(), kind });
            }
        } else {
            broken[id.index()] = true;
        }
    }
    for output in &plan.outputs {
        let sound = plan.instructions.get(output.id.index()).is_some_and(|i| {
            same_dims(&i.dims, &output.dims)
                && output.dims.iter().enumerate().all(|(n, d)| !output.dims[..n].contains(d))
        });
        if !sound {
            let kind = VerifyErrorKind::BadOutput(output.name.clone());
            errors.push(VerifyError { id: None, what: "plan", kind });
        }
    }
    if let (true, Err(id)) = (errors.is_empty(), crate::composite::in_pieces(plan)) {
        let instr = plan.instruction(id);
        let kind = match &instr.origin.piece_of {
            Some(whole) => VerifyErrorKind::NoPiece(whole.clone()),
            None => VerifyErrorKind::UnmarkedPiece,
        };
        errors.push(VerifyError { id: Some(id), what: instr.kind.name(), kind });
    }
    if errors.is_empty() {
        let wrong = match attentions(plan) {
            Ok(all) => {
                unmade_partial_softmax(plan, &all).map(|id| (id, VerifyErrorKind::NoPartialSoftmax))
            }
            Err(id) => Some((id, VerifyErrorKind::NoAttention)),
        };
        errors.extend(wrong.map(|(id, kind)| VerifyError {
            id: Some(id),
            what: plan.instruction(id).kind.name(),
            kind,
        }));
    }
    if errors.is_empty()
        && let Err(error) = verify_folds(plan)
    {
        errors.push(VerifyError { id: None, what: "plan", kind: error.into() });
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn verify_dims(plan: &Plan) -> Vec<VerifyErrorKind> {
    let mut errors = Vec::new();
    if plan.dims.len() > MAX_DIMS {
        return vec![VerifyErrorKind::TooManyDims(plan.dims.len())];
    }
    for (i, dim) in plan.dims.iter().enumerate() {
        if dim.size == 0 || dim.size > MAX_DIM_SIZE || dim.useful == 0 || dim.useful > dim.size {
            errors.push(VerifyErrorKind::BadDim {
                name: dim.name.clone(),
                size: dim.size,
                useful: dim.useful,
            });
        }
        if plan.dims[..i].iter().any(|d| d.name == dim.name) {
            errors.push(VerifyErrorKind::DuplicateDim(dim.name.clone()));
        }
    }
    errors
}

/// Checks what is written at an instruction by itself: the operands, dims and axes exist, and the
/// layout is legal.
fn verify_written(plan: &Plan, id: InstrId, instr: &Instruction) -> Result<(), VerifyErrorKind> {
    use VerifyErrorKind as E;
    if let Some(operand) = instr.operands.iter().find(|o| **o >= id) {
        return Err(E::OperandNotEarlier(*operand));
    }
    known_dims(plan, &instr.dims)?;
    if let InstrKind::Op(op) = &instr.kind {
        known_dims(plan, &op.dims())?;
    }
    if let Some(i) = (1..instr.dims.len()).find(|i| instr.dims[..*i].contains(&instr.dims[*i])) {
        return Err(E::RepeatedDim(plan.dims[instr.dims[i].index()].name.clone()));
    }
    let sizes = plan.sizes(&instr.dims);
    let elements =
        sizes.iter().try_fold(1u64, |n, s| n.checked_mul(*s)).filter(|n| *n <= MAX_ELEMENTS);
    if elements.is_none() || sizes.len() > MAX_RANK {
        return Err(E::TooLarge);
    }
    legal(plan, instr, &sizes, instr.layout)?;
    if let InstrKind::Move(collective) = &instr.kind {
        let terms = collective.terms();
        if let Some(to) = terms.to {
            legal(plan, instr, &sizes, to)?;
        }
        let axes = terms.axes.map_or(crate::AxisSet::EMPTY, |axes| axes.set());
        if let Some(axis) = axes.difference(plan.mesh.all_axes()).iter().next() {
            return Err(E::UnknownAxis(axis.0));
        }
    }
    if let InstrKind::CollectiveEinsum(fused) = &instr.kind
        && let Some(axis) = fused.axes().set().difference(plan.mesh.all_axes()).iter().next()
    {
        return Err(E::UnknownAxis(axis.0));
    }
    Ok(())
}

fn known_dims(plan: &Plan, dims: &[DimId]) -> Result<(), VerifyErrorKind> {
    match dims.iter().find(|d| d.index() >= plan.dims.len()) {
        Some(dim) => Err(VerifyErrorKind::UnknownDim(*dim)),
        None => Ok(()),
    }
}

/// Checks that a layout is legal, by building it again with the constructor that checks it.
fn legal(
    plan: &Plan,
    instr: &Instruction,
    sizes: &[u64],
    layout: Layout,
) -> Result<(), VerifyErrorKind> {
    let named = layout.split_axes().union(layout.partial_axes());
    if let Some(axis) = named.difference(plan.mesh.all_axes()).iter().next() {
        return Err(VerifyErrorKind::UnknownAxis(axis.0));
    }
    let lists: Vec<_> = (0..MAX_RANK).map(|d| layout.axes_of(d)).collect();
    let shape = MeshShape { mesh: &plan.mesh, sizes };
    let rebuilt =
        Layout::new(shape, &lists, layout.partial(Reduction::Sum), layout.partial(Reduction::Max))
            .map_err(|error| {
                let text = words::of_layout(&plan.mesh, &plan.dim_names(&instr.dims), &error);
                VerifyErrorKind::IllegalLayout { error, text }
            })?;
    let rebuilt = layout.softmax_axes().iter().fold(rebuilt, Layout::with_softmax);
    same_layout(plan, rebuilt, layout, &instr.dims)
}

/// The first instruction that is `partialsoftmax` and is neither the last of an attention nor made
/// of one by an op that may act on it; or a result that is not merged.
fn unmade_partial_softmax(plan: &Plan, attentions: &[Vec<InstrId>]) -> Option<InstrId> {
    let is_partial = |id: &InstrId| !plan.instruction(*id).layout.softmax_axes().is_empty();
    let is_made = |id: &InstrId| match &plan.instruction(*id).kind {
        InstrKind::Op(_) if carried_operand(plan, *id).is_some() => {
            partial_softmax(plan, *id).is_some()
        }
        InstrKind::Op(_) => attentions.iter().any(|members| members.last() == Some(id)),
        InstrKind::Move(_) => true,
        InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::CollectiveEinsum(_) => false,
    };
    let result = plan.outputs.iter().map(|output| output.id).find(is_partial);
    plan.ids().filter(is_partial).find(|id| !is_made(id)).or(result)
}

fn same_layout(
    plan: &Plan,
    expected: Layout,
    written: Layout,
    dims: &[DimId],
) -> Result<(), VerifyErrorKind> {
    if expected == written {
        return Ok(());
    }
    let names = plan.dim_names(dims);
    let text = |l: Layout| l.text(&plan.mesh, &names);
    Err(VerifyErrorKind::Layout { expected: text(expected), written: text(written) })
}

fn verify_instruction(plan: &Plan, instr: &Instruction) -> Result<(), VerifyErrorKind> {
    let stays_with_host = match &instr.kind {
        InstrKind::Move(collective) => !collective.has_traffic(),
        InstrKind::Op(op) => *op == Op::Fetch,
        InstrKind::CollectiveEinsum(_) => false,
        InstrKind::Parameter(_) | InstrKind::Constant(_) => true,
    };
    if let Some(operand) =
        instr.operands.iter().find(|o| !stays_with_host && plan.in_host_memory(**o))
    {
        return Err(VerifyErrorKind::InHostMemory(*operand));
    }
    match &instr.kind {
        InstrKind::Parameter(_) => has_operands(instr, 0),
        InstrKind::Constant(number) => {
            has_operands(instr, 0)?;
            let is_finite = plan.number(*number).is_finite();
            if instr.dims.is_empty() && instr.layout == Layout::REPLICATED && is_finite {
                Ok(())
            } else {
                Err(VerifyErrorKind::BadConstant)
            }
        }
        InstrKind::Op(op) => verify_op(plan, instr, op),
        InstrKind::CollectiveEinsum(fused) => verify_collective_einsum(plan, instr, fused),
        InstrKind::Move(collective) => verify_move(plan, instr, collective),
    }
}

fn has_operands(instr: &Instruction, expected: usize) -> Result<(), VerifyErrorKind> {
    match instr.operands.len() {
        found if found == expected => Ok(()),
        found => Err(VerifyErrorKind::Arity { expected, found }),
    }
}

fn types_of_operands(plan: &Plan, instr: &Instruction) -> Vec<TensorType> {
    let operands = instr.operands.iter().map(|o| plan.instruction(*o));
    operands.map(|o| TensorType { dims: o.dims.clone(), dtype: o.dtype }).collect()
}

/// Checks that the written type is the expected one; with `any_order`, its dims may be in any
/// order.
fn has_type(
    plan: &Plan,
    instr: &Instruction,
    expected: &TensorType,
    any_order: bool,
) -> Result<(), VerifyErrorKind> {
    let same = if any_order {
        same_dims(&expected.dims, &instr.dims)
    } else {
        expected.dims == instr.dims
    };
    if !same {
        let text = |dims: &[DimId]| Layout::REPLICATED.text(&plan.mesh, &plan.dim_names(dims));
        return Err(VerifyErrorKind::Dims {
            expected: text(&expected.dims),
            written: text(&instr.dims),
        });
    }
    if expected.dtype == instr.dtype {
        Ok(())
    } else {
        Err(VerifyErrorKind::Dtype { expected: expected.dtype, written: instr.dtype })
    }
}

fn verify_op(plan: &Plan, instr: &Instruction, op: &Op) -> Result<(), VerifyErrorKind> {
    if *op == Op::Einsum && instr.operands.is_empty() {
        return has_operands(instr, 1);
    }
    let types = types_of_operands(plan, instr);
    let expected = if *op == Op::Einsum {
        einsum_type(&types, &instr.dims, instr.dtype, &plan.dims)?
    } else {
        result_type(op, &types, &instr.dims, &plan.dims)?
    };
    has_type(plan, instr, &expected, true)?;
    let operands: Vec<Operand<'_>> = instr.operands.iter().map(|o| plan.operand(*o)).collect();
    let of_rule = |error| {
        let text = words::of_rule(plan, instr, &error);
        VerifyErrorKind::Rule { error, text }
    };
    let layout = match op {
        Op::Softmax { over } if instr.origin.attention => {
            softmax_layout(*over, operands[0], &instr.dims, &plan.mesh, &plan.dims)
        }
        Op::Concat { left, right, to } if instr.origin.attention => {
            let (mesh, dims) = (&plan.mesh, &plan.dims);
            joined_layout(*left, *right, *to, &operands, &instr.dims, mesh, dims)
        }
        op => result_layout_as(op, &operands, &instr.dims, instr.layout, &plan.mesh, &plan.dims),
    }
    .map_err(of_rule)?;
    // The product that ends an attention is partial over the axes of its keys. Whether it does end
    // one is checked once all ops are typed.
    let is_part = |layout: Layout| !layout.softmax_axes().is_empty();
    let ends_attention = *op == Op::Einsum
        && is_part(instr.layout)
        && !operands.iter().any(|operand| is_part(operand.layout));
    let layout = if ends_attention { layout.sums_as_softmax() } else { layout };
    same_layout(plan, layout, instr.layout, &instr.dims)
}

fn verify_collective_einsum(
    plan: &Plan,
    instr: &Instruction,
    fused: &Fused,
) -> Result<(), VerifyErrorKind> {
    let types = types_of_operands(plan, instr);
    if types.is_empty() {
        return has_operands(instr, 1);
    }
    has_type(plan, instr, &einsum_type(&types, &instr.dims, instr.dtype, &plan.dims)?, true)?;
    let operands: Vec<Operand<'_>> = instr.operands.iter().map(|o| plan.operand(*o)).collect();
    let layouts = fused.layouts(&operands, &instr.dims, &plan.mesh, &plan.dims).map_err(
        |error| match error {
            LoopError::Rule(error) => {
                let text = words::of_rule(plan, instr, &error);
                VerifyErrorKind::Rule { error, text }
            }
            LoopError::Collective(error) => {
                let gathered = fused.gathered().and_then(|place| instr.operands.get(place));
                let moved = gathered.map_or(instr, |operand| plan.instruction(*operand));
                let text = words::of_collective(plan, moved, &error);
                VerifyErrorKind::Collective { error, text }
            }
            LoopError::NoSuchOperand(place) => VerifyErrorKind::NoSuchOperand(place),
        },
    )?;
    same_layout(plan, layouts.result, instr.layout, &instr.dims)
}

fn verify_move(
    plan: &Plan,
    instr: &Instruction,
    collective: &Collective,
) -> Result<(), VerifyErrorKind> {
    has_operands(instr, 1)?;
    let operand = plan.operand(instr.operands[0]);
    has_type(
        plan,
        instr,
        &TensorType { dims: operand.dims.to_vec(), dtype: operand.dtype },
        false,
    )?;
    let shape = MeshShape { mesh: &plan.mesh, sizes: &plan.sizes(&instr.dims) };
    let layout = collective.apply(shape, operand.layout).map_err(|error| {
        let text = words::of_collective(plan, instr, &error);
        VerifyErrorKind::Collective { error, text }
    })?;
    if let Collective::SoftmaxMerge { statistics: written, .. } = collective {
        let (_, expected) =
            partial_softmax(plan, instr.operands[0]).ok_or(VerifyErrorKind::NoPartialSoftmax)?;
        if *written != expected {
            let text = |set: DimSet| {
                plan.dims_text(&set.iter().map(|d| instr.dims[d]).collect::<Vec<_>>())
            };
            let (expected, written) = (text(expected), text(*written));
            return Err(VerifyErrorKind::Statistics { expected, written });
        }
    }
    same_layout(plan, layout, instr.layout, &instr.dims)
}
