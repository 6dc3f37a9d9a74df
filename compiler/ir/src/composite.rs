//! Composites in pieces: the ops by which a softmax or a norm over a split dim is computed, and
//! where they are in a plan.
//!
//! Such a piece is marked in a plan (`of h`). Prices depend on the mark, since a composite counts
//! as one op in a chain of ops, so the mark is not trusted: [`in_pieces`] derives from what the
//! instructions compute which of them are the pieces of a composite, and
//! [`verify`](crate::verify::verify) refuses a plan in which any other instruction is marked.

use crate::collective::Collective;
use crate::never;
use crate::op::{Binary, Map, NORM_EPSILON, Norm, Op, Reduce};
use crate::plan::{InstrId, InstrKind, Number, Plan};
use crate::tensor::DimId;
use crate::typing::same_dims;

/// One op of a composite in pieces.
#[derive(Clone, PartialEq, Debug)]
pub struct Piece {
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub reads: Vec<Read>,
    /// The dims of its result: those of the operand; for the last piece those of the composite's
    /// result; for a statistic those of the operand without the composite's dim.
    pub dims: Vec<DimId>,
}

/// What a piece reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Read {
    /// The operand of the composite.
    Operand,
    /// The result of an earlier piece, by number; where it is partial, after its all-reduce.
    Piece(usize),
    /// A number.
    Number(Number),
}

impl Read {
    /// The number, if a number is read.
    pub fn number(&self) -> Option<Number> {
        match self {
            Read::Number(number) => Some(*number),
            Read::Operand | Read::Piece(_) => None,
        }
    }
}

/// The dim of a composite; `None` for other ops.
pub fn composite_dim(op: &Op) -> Option<DimId> {
    if let Op::Softmax { over } | Op::Norm { over, .. } = op { Some(*over) } else { None }
}

/// The pieces of a composite on an operand of these dims, in order; the last makes its result.
///
/// | op | pieces |
/// |---|---|
/// | softmax of `a` | `m = max(a)`, `a - m`, `e = exp(..)`, `s = sum(e)`, `e / s` |
/// | rmsnorm of `a` over E | `q = einsum(a, a)`, `q / size of E`, `.. + epsilon`, `r = rsqrt(..)`, `a * r` |
/// | layernorm of `a` over E | `m = mean(a)`, `c = a - m`, and as rmsnorm on `c` |
pub fn pieces(op: &Op, operand: &[DimId], result: &[DimId]) -> Option<Vec<Piece>> {
    let over = composite_dim(op)?;
    let small: Vec<DimId> = operand.iter().copied().filter(|d| *d != over).collect();
    let mut all: Vec<Piece> = Vec::new();
    let mut push = |op: Op, reads: &[Read], dims: &[DimId]| {
        all.push(Piece { op, reads: reads.to_vec(), dims: dims.to_vec() });
        Read::Piece(all.len() - 1)
    };
    let reduce = |kind: Reduce| Op::Reduce { kind, over: vec![over] };
    if let Op::Softmax { .. } = op {
        let largest = push(reduce(Reduce::Max), &[Read::Operand], &small);
        let below = push(Op::Binary(Binary::Sub), &[Read::Operand, largest], operand);
        let weights = push(Op::Map(Map::Exp), &[below], operand);
        let sum = push(reduce(Reduce::Sum), &[weights], &small);
        push(Op::Binary(Binary::Div), &[weights, sum], result);
        return Some(all);
    }
    let Op::Norm { kind, .. } = op else { never!("a composite without pieces", return None) };
    let centred = match kind {
        Norm::Rms => Read::Operand,
        Norm::Layer => {
            let mean = push(reduce(Reduce::Mean), &[Read::Operand], &small);
            push(Op::Binary(Binary::Sub), &[Read::Operand, mean], operand)
        }
    };
    let squares = push(Op::Einsum, &[centred, centred], &small);
    let size = Read::Number(Number::SizeOf(over));
    let mean = push(Op::Binary(Binary::Div), &[squares, size], &small);
    let epsilon = Read::Number(Number::Given(NORM_EPSILON));
    let raised = push(Op::Binary(Binary::Add), &[mean, epsilon], &small);
    let scale = push(Op::Map(Map::Rsqrt), &[raised], &small);
    push(Op::Binary(Binary::Mul), &[centred, scale], result);
    Some(all)
}

/// A composite in pieces, as it stands in a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct InPieces {
    /// The composite.
    pub op: Op,
    /// The operand of the softmax or the norm.
    pub operand: InstrId,
    /// Its instructions, which stand together: numbers, pieces and the all-reduces of their
    /// statistics. The last makes the composite's value.
    pub instructions: std::ops::RangeInclusive<u32>,
}

impl InPieces {
    /// The instruction that makes the composite's value.
    pub fn last(&self) -> InstrId {
        InstrId(*self.instructions.end())
    }

    /// The mark of its instructions: the name of the composite's value, or its word where the value
    /// has no name.
    pub fn called<'p>(&'p self, plan: &'p Plan) -> &'p str {
        plan.instruction(self.last()).name.as_deref().unwrap_or(self.op.word())
    }
}

/// The composites in pieces of a plan, in program order: groups of instructions that are marked as
/// pieces and compute a composite.
///
/// # Errors
///
/// The first instruction that is marked and begins no composite, or that is within a composite and
/// has no mark or another one.
pub fn in_pieces(plan: &Plan) -> Result<Vec<InPieces>, InstrId> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < plan.instructions.len() {
        let start = InstrId(at as u32);
        if plan.instructions[at].origin.piece_of.is_none() {
            at += 1;
            continue;
        }
        let composite = composite_from(plan, start).ok_or(start)?;
        let called = composite.called(plan);
        let is_called_so =
            |id: &u32| plan.instruction(InstrId(*id)).origin.piece_of.as_deref() == Some(called);
        if let Some(other) = composite.instructions.clone().find(|id| !is_called_so(id)) {
            return Err(InstrId(other));
        }
        at = composite.last().index() + 1;
        found.push(composite);
    }
    Ok(found)
}

/// The composite in pieces that starts with this instruction.
fn composite_from(plan: &Plan, start: InstrId) -> Option<InPieces> {
    let following = || plan.ids().skip(start.index());
    let first =
        following().find(|id| !matches!(plan.instruction(*id).kind, InstrKind::Constant(_)))?;
    let operand = *plan.instruction(first).operands.first()?;
    let op = composite_that_starts_with(plan, first, operand)?;
    let (dims, dtype) = (&plan.instruction(operand).dims, plan.instruction(operand).dtype);
    let pieces = pieces(&op, dims, dims)?;
    // The instruction from which each piece so far is read, and the numbers that no piece has read
    // yet.
    let mut made: Vec<InstrId> = Vec::with_capacity(pieces.len());
    let mut numbers: Vec<InstrId> = Vec::new();
    for id in following() {
        let instr = plan.instruction(id);
        if instr.dtype != dtype {
            return None;
        }
        match &instr.kind {
            InstrKind::Constant(_) => numbers.push(id),
            InstrKind::Move(Collective::AllReduce { .. }) => {
                // An all-reduce completes the piece right before it.
                let last = made
                    .last_mut()
                    .filter(|last| instr.operands == [**last] && last.0 + 1 == id.0)?;
                *last = id;
            }
            InstrKind::Op(does) => {
                let piece = &pieces[made.len()];
                let is_piece = *does == piece.op
                    && same_dims(&instr.dims, &piece.dims)
                    && instr.operands.len() == piece.reads.len()
                    && instr.operands.iter().zip(&piece.reads).all(|(has, read)| match read {
                        Read::Operand => *has == operand,
                        Read::Piece(at) => made.get(*at) == Some(has),
                        Read::Number(number) => {
                            let place = numbers.iter().position(|n| {
                                n == has
                                    && plan.instruction(*n).kind == InstrKind::Constant(*number)
                            });
                            place.map(|place| numbers.remove(place)).is_some()
                        }
                    });
                if !is_piece {
                    return None;
                }
                made.push(id);
                if made.len() == pieces.len() {
                    let instructions = start.0..=id.0;
                    return numbers.is_empty().then_some(InPieces { op, operand, instructions });
                }
            }
            InstrKind::Parameter(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => {
                return None;
            }
        }
    }
    None
}

/// The composite whose first piece on an operand is this instruction.
fn composite_that_starts_with(plan: &Plan, first: InstrId, operand: InstrId) -> Option<Op> {
    let instr = plan.instruction(first);
    let InstrKind::Op(does) = &instr.kind else { return None };
    if let Op::Reduce { kind, over } = does {
        let over = *over.first()?;
        return match kind {
            Reduce::Max => Some(Op::Softmax { over }),
            Reduce::Mean => Some(Op::Norm { kind: Norm::Layer, over }),
            Reduce::Sum => None,
        };
    }
    if *does != Op::Einsum {
        return None;
    }
    let dims = &plan.instruction(operand).dims;
    let over = dims.iter().copied().find(|d| !instr.dims.contains(d))?;
    Some(Op::Norm { kind: Norm::Rms, over })
}
