//! Composites in pieces: a softmax or a norm over a dim that is split, where each device works on
//! its part of the dim.
//!
//! In the search this is a strategy of the composite, which reads its operand and makes its result
//! in one layout that splits the dim. In the plan it is a fixed sequence of ops, with an all-reduce
//! of each statistic.

use shard_ir::composite::{Piece, Read, composite_dim, pieces};
use shard_ir::{Collective, DimId, Dtype, Layout, Norm, Op, Operand, Reduction, result_layout};

use super::Rule;
use super::strategies::OpSite;

/// The rules by which composites are computed in pieces.
pub const IN_PIECES: [Rule; 3] =
    [super::SOFTMAX_IN_PIECES, super::RMSNORM_IN_PIECES, super::LAYERNORM_IN_PIECES];

/// The layouts of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Laid {
    /// The layout in which it is made.
    pub made: Layout,
    /// Where it is partial, the all-reduce that completes it, and the layout after that.
    pub completed: Option<(Collective, Layout)>,
}

impl Laid {
    /// The layout in which later pieces read it.
    pub fn read(&self) -> Layout {
        self.completed.map_or(self.made, |(_, whole)| whole)
    }
}

/// The rule by which a composite is computed in pieces; `None` for an op that never is.
pub fn rule_of_pieces(op: &Op) -> Option<Rule> {
    if let Op::Softmax { .. } = op {
        return Some(super::SOFTMAX_IN_PIECES);
    }
    let Op::Norm { kind, .. } = op else { return None };
    Some(match kind {
        Norm::Rms => super::RMSNORM_IN_PIECES,
        Norm::Layer => super::LAYERNORM_IN_PIECES,
    })
}

impl<'a> OpSite<'a> {
    /// The dim of a composite that may be computed in pieces. It may in dtypes of so wide a range
    /// that the statistics stay within it, unless the operand is near its end.
    pub fn dim_in_pieces(&self) -> Option<DimId> {
        let (_, dtype) = self.operands.first()?;
        composite_dim(self.op)
            .filter(|_| self.in_pieces && matches!(dtype, Dtype::F32 | Dtype::Bf16))
    }

    /// Whether the op is computed in pieces on operands in these layouts.
    pub fn is_in_pieces(&self, operands: &[Layout]) -> bool {
        let Some(over) = self.dim_in_pieces() else { return false };
        let at = self.operands[0].0.iter().position(|d| *d == over);
        at.zip(operands.first()).is_some_and(|(at, layout)| !layout.axes_of(at).is_empty())
    }

    /// The pieces of the op with their layouts, if it is computed in pieces on an operand in this
    /// layout.
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
                    Read::Piece(at) => {
                        Operand { dims: &laid[*at].0.dims, dtype, layout: laid[*at].1.read() }
                    }
                    Read::Number(_) => Operand { dims: &[], dtype, layout: Layout::REPLICATED },
                })
                .collect();
            let made = result_layout(&piece.op, &seen, &piece.dims, self.mesh, self.dims).ok()?;
            let partial =
                |kind| Some((kind, made.partial(kind))).filter(|(_, axes)| !axes.is_empty());
            let completed =
                partial(Reduction::Sum).or(partial(Reduction::Max)).map(|(kind, axes)| {
                    let whole = axes.iter().fold(made, Layout::with_replicated);
                    (Collective::AllReduce { kind, axes }, whole)
                });
            laid.push((piece, Laid { made, completed }));
        }
        Some(laid)
    }
}
