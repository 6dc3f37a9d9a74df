//! What one mesh axis may do in an op, by `spec/types.md`: the tables of *Splits* and of *Partial
//! operands*.
//!
//! The axes of a mesh act independently. Over one axis an op is done in one of three ways. The axis
//! splits a dim that the op works along; or some operands are partial over the axis, and the result
//! is partial in the same way; or nothing is split or partial over the axis, and all its devices do
//! the same.

use shard_ir::{Binary, Dim, DimId, Dtype, Map, Mesh, Op, Reduce, Reduction};

/// An op with the types of its operands and its result: everything that its strategies depend on.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// The op.
    pub op: &'a Op,
    /// Dims and dtype of each operand.
    pub operands: Vec<(&'a [DimId], Dtype)>,
    /// Dims of the result.
    pub result: &'a [DimId],
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The dims of the program.
    pub dims: &'a [Dim],
    /// Whether a composite over a split dim is computed in pieces; false in a strict layer.
    pub in_pieces: bool,
    /// The operand that may be `partialsoftmax`, in which case the result is too; `None` where the
    /// op may act on no such operand.
    pub carries: Option<usize>,
}

/// A dim that an op works along and that axes may split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Along {
    /// The number that the axes must divide: its size, or for a choice of the largest the number of
    /// parts.
    pub(crate) size: u64,
    /// Where operands have it: each operand with the place of the dim in it. Empty where the result
    /// alone has the dim.
    pub(crate) read: Vec<(usize, usize)>,
    /// What becomes of it.
    pub(crate) to: To,
}

/// What becomes of a dim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// It is this dim of the result.
    Dim(usize),
    /// Its entries are combined: an axis that splits it leaves the result partial.
    Combined(Reduction),
    /// It becomes several dims of the result (`split`), or it is made of several dims of the
    /// operand (`merge`; then `read` is empty).
    Regrouped,
}

/// What an op does with a dim of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Each device must have all of it.
    Whole,
    /// The op leaves it as it is: the result has it under the same name, or no tensor does.
    Kept,
    /// The result has it under this name.
    As(DimId),
    /// The result has, under this name, the largest entries of each of so many parts of it.
    LargestAs(DimId, u64),
    /// A composite runs over it: each device must have all of it, unless the composite is computed
    /// in pieces.
    InPieces,
    /// The result lacks it; its entries are combined.
    Combined(Reduction),
    /// It becomes several dims of the result.
    Regrouped,
}

/// How the result of a reduction over a split dim is partial.
fn combining(kind: Reduce) -> Reduction {
    match kind {
        Reduce::Sum | Reduce::Mean => Reduction::Sum,
        Reduce::Max => Reduction::Max,
    }
}

/// Whether the operands of an op may be swapped, if they have the same type.
pub(crate) fn commutes(op: &Op) -> bool {
    // For all other ops the answer is no, which is safe: values that are the same are then not
    // found to be the same.
    let Op::Binary(binary) = op else { return false };
    match binary {
        Binary::Add | Binary::Mul | Binary::Maximum | Binary::Minimum | Binary::Equal => true,
        Binary::Sub | Binary::Div | Binary::Less | Binary::LessEqual => false,
    }
}

/// How a result may be partial over an axis that splits nothing: the reduction, and the operands
/// that are then partial over the axis, all others being replicated.
pub(crate) type PartialOperands = (Reduction, Vec<usize>);

impl Site<'_> {
    pub(crate) fn size(&self, dim: DimId) -> u64 {
        self.dims[dim.index()].size
    }

    /// The dim of a composite that is computed in pieces where axes split the dim. Only `f32` and
    /// `bf16` allow this: in other dtypes a sum of squares could leave the range.
    pub(crate) fn pieces_over(&self) -> Option<DimId> {
        let (dims, dtype) = self.operands.first()?;
        let may_be = self.in_pieces && matches!(dtype, Dtype::F32 | Dtype::Bf16);
        dims.iter().copied().find(|dim| may_be && self.role(0, *dim) == Role::InPieces)
    }

    /// Whether every device must have an operand's dim whole.
    pub(crate) fn is_whole(&self, operand: usize, dim: DimId) -> bool {
        self.does(operand, dim) == Role::Whole
    }

    /// The reduction that combines the entries of a dim of the operands, if the op combines them.
    pub(crate) fn combines(&self, dim: DimId) -> Option<Reduction> {
        let has = |i: &usize| self.operands[*i].0.contains(&dim);
        (0..self.operands.len()).filter(has).find_map(|i| match self.does(i, dim) {
            Role::Combined(kind) => Some(kind),
            Role::Whole
            | Role::InPieces
            | Role::Kept
            | Role::As(_)
            | Role::LargestAs(..)
            | Role::Regrouped => None,
        })
    }

    /// The name under which the result has an operand's dim, if the result has the dim at all.
    pub(crate) fn renamed(&self, operand: usize, dim: DimId) -> DimId {
        match self.does(operand, dim) {
            Role::As(name) | Role::LargestAs(name, _) => name,
            Role::Whole | Role::InPieces | Role::Kept | Role::Combined(_) | Role::Regrouped => dim,
        }
    }

    /// What the op does with a dim of an operand, once it is settled whether a composite is
    /// computed in pieces.
    fn does(&self, operand: usize, dim: DimId) -> Role {
        match self.role(operand, dim) {
            Role::InPieces if self.pieces_over().is_some() => Role::Kept,
            Role::InPieces => Role::Whole,
            role => role,
        }
    }

    /// What the op does with a dim of an operand.
    fn role(&self, operand: usize, dim: DimId) -> Role {
        use Role::{As, Combined, InPieces, Kept, LargestAs, Regrouped, Whole};
        let whole = |is: bool| if is { Whole } else { Kept };
        let combined = |is: bool, kind: Reduction| if is { Combined(kind) } else { Kept };
        match self.op {
            Op::Softmax { over } | Op::Norm { over, .. } if dim == *over => InPieces,
            Op::Rope { over, .. }
            | Op::SinkSoftmax { over }
            | Op::Cumsum { over }
            | Op::Shift { over, .. }
            | Op::Scan { over }
            | Op::Argmax { over } => whole(dim == *over),
            Op::Route { over, at, .. } => whole(dim == *over || dim == *at),
            Op::Conv { over, taps } => whole(dim == if operand == 0 { *over } else { *taps }),
            Op::Concat { left, right, .. } => {
                whole(dim == if operand == 0 { *left } else { *right })
            }
            Op::SliceDim { from, .. } | Op::Pad { from, .. } => whole(dim == *from),
            Op::Append { from, .. } => whole(operand == 1 && dim == *from),
            Op::Rename { from, to } if dim == *from => As(*to),
            Op::TopK { over, to, parts } | Op::ArgTopK { over, to, parts } if dim == *over => {
                LargestAs(*to, parts.unwrap_or(1))
            }
            Op::Split { from, .. } if dim == *from => Regrouped,
            Op::Einsum => combined(!self.result.contains(&dim), Reduction::Sum),
            Op::Reduce { kind, over } => combined(over.contains(&dim), combining(*kind)),
            // A device that has some of the rows takes zeros for the others, and the sum over
            // devices is complete.
            Op::Take { over } => combined(dim == *over, Reduction::Sum),
            Op::ScatterAdd { over, .. } => combined(over.contains(&dim), Reduction::Sum),
            Op::Locate { over } => combined(dim == *over, Reduction::Max),
            Op::Softmax { .. }
            | Op::Norm { .. }
            | Op::Rename { .. }
            | Op::TopK { .. }
            | Op::ArgTopK { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::Map(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Iota { .. }
            | Op::Mask { .. }
            | Op::Fetch
            | Op::Cast(_) => Kept,
        }
    }

    /// The dims that axes may split, in the order of the operands. All operands that have a dim
    /// split it alike.
    pub(crate) fn alongs(&self) -> Vec<Along> {
        if let Op::Merge { from, to } = self.op {
            return self.alongs_of_merge(from, *to);
        }
        let mut names: Vec<DimId> = Vec::new();
        let mut all: Vec<Along> = Vec::new();
        for (i, (dims, _)) in self.operands.iter().enumerate() {
            for (at, dim) in dims.iter().enumerate().filter(|(_, dim)| !self.is_whole(i, **dim)) {
                let name = self.renamed(i, *dim);
                if let Some(known) = names.iter().position(|n| *n == name) {
                    all[known].read.push((i, at));
                    continue;
                }
                let place = self.result.iter().position(|d| *d == name);
                let role = self.does(i, *dim);
                let to = match (role, place) {
                    (Role::Regrouped, _) => To::Regrouped,
                    (_, Some(at)) => To::Dim(at),
                    (Role::Combined(kind), None) => To::Combined(kind),
                    (
                        Role::Whole
                        | Role::InPieces
                        | Role::Kept
                        | Role::As(_)
                        | Role::LargestAs(..),
                        None,
                    ) => continue,
                };
                // Axes may cut a dim between elements, and a choice of the largest between its
                // parts only.
                let size = match role {
                    Role::LargestAs(_, parts) => parts,
                    Role::Whole
                    | Role::InPieces
                    | Role::Kept
                    | Role::As(_)
                    | Role::Combined(_)
                    | Role::Regrouped => self.size(*dim),
                };
                names.push(name);
                all.push(Along { size, read: vec![(i, at)], to });
            }
        }
        all.extend(self.along_places());
        all
    }

    /// The dim of the places of a scatter-add, which the result alone has: each device adds up the
    /// rows of its own places.
    fn along_places(&self) -> Option<Along> {
        let Op::ScatterAdd { to, .. } = self.op else { return None };
        let at = self.result.iter().position(|dim| dim == to)?;
        Some(Along { size: self.size(*to), read: Vec::new(), to: To::Dim(at) })
    }

    /// The dims of a merge are those of the result: the axes of the merged dim decide how its parts
    /// are split.
    fn alongs_of_merge(&self, from: &[DimId], to: DimId) -> Vec<Along> {
        let place =
            |dim: &DimId| self.operands[0].0.iter().position(|d| d == dim).map(|at| (0, at));
        let of = |(at, dim): (usize, &DimId)| {
            if *dim == to && !from.contains(dim) {
                Along { size: self.size(*dim), read: Vec::new(), to: To::Regrouped }
            } else {
                Along {
                    size: self.size(*dim),
                    read: place(dim).into_iter().collect(),
                    to: To::Dim(at),
                }
            }
        };
        self.result.iter().enumerate().map(of).collect()
    }

    /// Which operands may be partial over one axis, so that the result is partial in the same way.
    pub(crate) fn partial_together(&self) -> Vec<PartialOperands> {
        let each = |kind| {
            (0..self.operands.len()).map(move |i| (kind, vec![i])).collect::<Vec<PartialOperands>>()
        };
        let (sum, max) = (Reduction::Sum, Reduction::Max);
        let first_is_float = self.operands.first().is_some_and(|(_, dtype)| dtype.is_float());
        match self.op {
            Op::Einsum | Op::Binary(Binary::Mul) | Op::Conv { .. } => each(sum),
            Op::Binary(Binary::Div) if first_is_float => vec![(sum, vec![0])],
            Op::Binary(Binary::Div) => Vec::new(),
            Op::Binary(Binary::Add) => [vec![(sum, vec![0, 1])], each(max)].concat(),
            Op::Binary(Binary::Sub) => vec![(sum, vec![0, 1]), (max, vec![0])],
            Op::Binary(Binary::Maximum) => [each(max), vec![(max, vec![0, 1])]].concat(),
            Op::Binary(Binary::Minimum) => each(max),
            Op::Binary(Binary::Less | Binary::LessEqual | Binary::Equal) => Vec::new(),
            Op::Map(Map::Neg) => vec![(sum, vec![0])],
            Op::Map(Map::Relu | Map::Sigmoid | Map::Tanh | Map::Exp | Map::Softplus) => {
                vec![(max, vec![0])]
            }
            Op::Map(
                Map::Gelu | Map::Silu | Map::Log | Map::Sqrt | Map::Rsqrt | Map::Square | Map::Abs,
            ) => Vec::new(),
            Op::Reduce { kind: Reduce::Sum | Reduce::Mean, .. }
            | Op::Rope { .. }
            | Op::Cumsum { .. }
            | Op::Shift { .. }
            | Op::Scan { .. }
            | Op::Pad { .. }
            | Op::ScatterAdd { .. }
            | Op::Take { .. } => {
                vec![(sum, vec![0])]
            }
            Op::Reduce { kind: Reduce::Max, .. } => vec![(max, vec![0])],
            Op::Rename { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::SliceDim { .. }
            | Op::Fetch => {
                vec![(sum, vec![0]), (max, vec![0])]
            }
            Op::Concat { .. } | Op::Append { .. } => vec![(sum, vec![0, 1]), (max, vec![0, 1])],
            Op::Cast(to) => {
                let keeps_terms = to.is_float() && *to != Dtype::F4 && first_is_float;
                let linear = keeps_terms.then(|| (sum, vec![0]));
                let keeps_order = (*to != Dtype::Bool).then(|| (max, vec![0]));
                linear.into_iter().chain(keeps_order).collect()
            }
            Op::Softmax { .. }
            | Op::SinkSoftmax { .. }
            | Op::Norm { .. }
            | Op::Mask { .. }
            | Op::Where
            | Op::Iota { .. }
            | Op::Argmax { .. }
            | Op::TopK { .. }
            | Op::ArgTopK { .. }
            | Op::Locate { .. }
            | Op::Route { .. } => Vec::new(),
        }
    }
}
