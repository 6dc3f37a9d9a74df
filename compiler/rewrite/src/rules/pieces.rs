//! Composites in pieces: a softmax or a norm over a dim that is split, from what each device can say of its part.
//!
//! A strategy of the composite: it reads its operand and makes its result in one layout, which splits the dim. What stands
//! in the plan is a fixed sequence of ops that the plan could hold anyway, with an all-reduce of each small statistic.

use shard_ir::op::NORM_EPSILON;
use shard_ir::{
    Binary, Collective, DimId, Dtype, Layout, Map, Norm, Number, Op, Operand, Reduce, Reduction, result_layout,
};

use super::Rule;
use super::strategies::OpSite;

/// The rules by which composites fall in pieces.
pub const IN_PIECES: [Rule; 3] = [super::SOFTMAX_IN_PIECES, super::RMSNORM_IN_PIECES, super::LAYERNORM_IN_PIECES];

/// One op of a composite in pieces.
#[derive(Clone, PartialEq, Debug)]
pub struct Piece {
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub reads: Vec<Read>,
    /// The dims of its result: those of the operand, or of the composite's result for the last, or without the composite's
    /// dim for a statistic.
    pub dims: Vec<DimId>,
}

/// What a piece reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Read {
    /// The operand of the composite.
    Operand,
    /// What an earlier piece makes, by number; where that is partial, completed.
    Piece(usize),
    /// A number.
    Number(Number),
}

impl Read {
    /// The number that is read, if one is.
    pub fn number(&self) -> Option<Number> {
        match self {
            Read::Number(number) => Some(*number),
            Read::Operand | Read::Piece(_) => None,
        }
    }
}

/// The layouts of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Laid {
    /// In which it is made.
    pub made: Layout,
    /// How it is completed, where it is partial, and the layout after.
    pub completed: Option<(Collective, Layout)>,
}

impl Laid {
    /// The layout in which later pieces read it.
    pub fn read(&self) -> Layout {
        self.completed.map_or(self.made, |(_, whole)| whole)
    }
}

/// The dim of a composite; none for other ops.
pub fn composite_dim(op: &Op) -> Option<DimId> {
    match op {
        Op::Softmax { over } | Op::Norm { over, .. } => Some(*over),
        _ => None,
    }
}

/// The rule by which a composite falls in pieces.
pub fn rule_of_pieces(op: &Op) -> Option<Rule> {
    match op {
        Op::Softmax { .. } => Some(super::SOFTMAX_IN_PIECES),
        Op::Norm { kind: Norm::Rms, .. } => Some(super::RMSNORM_IN_PIECES),
        Op::Norm { kind: Norm::Layer, .. } => Some(super::LAYERNORM_IN_PIECES),
        _ => None,
    }
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
    match op {
        Op::Softmax { .. } => {
            let largest = push(reduce(Reduce::Max), &[Read::Operand], &small);
            let below = push(Op::Binary(Binary::Sub), &[Read::Operand, largest], operand);
            let weights = push(Op::Map(Map::Exp), &[below], operand);
            let sum = push(reduce(Reduce::Sum), &[weights], &small);
            push(Op::Binary(Binary::Div), &[weights, sum], result);
        }
        Op::Norm { kind, .. } => {
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
        }
        _ => return None,
    }
    Some(all)
}

impl<'a> OpSite<'a> {
    /// The dim of a composite that may be computed in pieces. In dtypes whose range the statistics cannot leave where the
    /// operand does not come near its end.
    pub fn dim_in_pieces(&self) -> Option<DimId> {
        let (_, dtype) = self.operands.first()?;
        composite_dim(self.op).filter(|_| self.in_pieces && matches!(dtype, Dtype::F32 | Dtype::Bf16))
    }

    /// Whether the op, on operands in these layouts, is computed in pieces.
    pub fn is_in_pieces(&self, operands: &[Layout]) -> bool {
        let Some(over) = self.dim_in_pieces() else { return false };
        let at = self.operands[0].0.iter().position(|d| *d == over);
        at.zip(operands.first()).is_some_and(|(at, layout)| !layout.axes_of(at).is_empty())
    }

    /// The pieces of the op, laid out, where it is computed in pieces on an operand in this layout.
    pub fn pieces_on(&self, operand: Layout) -> Option<Vec<(Piece, Laid)>> {
        if !self.is_in_pieces(&[operand]) {
            return None;
        }
        let (dims, dtype) = self.operands[0];
        let mut laid: Vec<(Piece, Laid)> = Vec::new();
        for piece in pieces(self.op, dims, self.result)? {
            let seen: Vec<Operand<'_>> = piece
                .reads
                .iter()
                .map(|read| match read {
                    Read::Operand => Operand { dims, dtype, layout: operand },
                    Read::Piece(at) => Operand { dims: &laid[*at].0.dims, dtype, layout: laid[*at].1.read() },
                    Read::Number(_) => Operand { dims: &[], dtype, layout: Layout::REPLICATED },
                })
                .collect();
            let made = result_layout(&piece.op, &seen, &piece.dims, self.mesh, self.dims).ok()?;
            let partial = |kind| Some((kind, made.partial(kind))).filter(|(_, axes)| !axes.is_empty());
            let completed = partial(Reduction::Sum).or(partial(Reduction::Max)).map(|(kind, axes)| {
                let whole = axes.iter().fold(made, Layout::with_replicated);
                (Collective::AllReduce { kind, axes }, whole)
            });
            laid.push((piece, Laid { made, completed }));
        }
        Some(laid)
    }
}
