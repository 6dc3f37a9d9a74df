//! The layout rule of each op: the layout of its result when every device applies the op to the
//! blocks that it holds, or why it must not. The verifier, the checker and the e-graph all use it.

use std::collections::BTreeMap;

use crate::attention::is_linear;
use crate::layout::{Layout, LayoutError, MeshShape, Place, Reduction};
use crate::mesh::{AxisId, AxisList, AxisSet, Mesh};
use crate::never;
use crate::op::{Binary, Combined, Op, Partial};
use crate::tensor::{Dim, DimId, Dtype};

/// An operand as the layout rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Its dims in memory order.
    pub dims: &'a [DimId],
    /// Its dtype.
    pub dtype: Dtype,
    /// Its layout.
    pub layout: Layout,
}

/// Why an op must not act on operands in these layouts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// Two operands split a dim that both have in different ways.
    #[error("operands {left} and {right} split a shared dim differently")]
    OperandsDisagree {
        /// The dim (of the result, or contracted).
        dim: DimId,
        /// The first operand.
        left: usize,
        /// The other.
        right: usize,
    },
    /// One axis splits two different dims of the operands: only the diagonal blocks would be
    /// computed.
    #[error("mesh axis {axis:?} splits two dims of the operands")]
    AxisSplitsTwoDims {
        /// The axis.
        axis: AxisId,
        /// The first operand and its dim.
        first: (usize, DimId),
        /// The other operand and its dim.
        second: (usize, DimId),
    },
    /// A partial sum under an op that is not linear in it.
    #[error("the op is not linear in operand {operand}, a partial sum")]
    NotLinear {
        /// The operand.
        operand: usize,
        /// The axis over which it is partial.
        axis: AxisId,
    },
    /// A partial maximum under an op that does not keep order.
    #[error("the op does not commute with a maximum in operand {operand}")]
    NotIncreasing {
        /// The operand.
        operand: usize,
        /// The axis over which it is partial.
        axis: AxisId,
    },
    /// A `partialsoftmax` operand on which the op must not act.
    #[error("operand {operand} is the attention over a part of the keys")]
    NotMerged {
        /// The operand.
        operand: usize,
        /// The axis over which it is partial.
        axis: AxisId,
    },
    /// Two operands partial over one axis under a product: `(sum a)(sum b)` is not `sum ab`.
    #[error("both operands are partial over mesh axis {axis:?}")]
    PartialTimesPartial {
        /// The axis.
        axis: AxisId,
    },
    /// One operand is partial over an axis that splits the other.
    #[error("operand {partial} is partial over mesh axis {axis:?}, which splits operand {split}")]
    PartialMeetsSplit {
        /// The axis.
        axis: AxisId,
        /// The partial operand.
        partial: usize,
        /// The split operand.
        split: usize,
    },
    /// A value that is not partial is added to a partial sum, or joined to a partial value.
    #[error(
        "operand {operand} is not partial over mesh axis {axis:?}: it would be added once for \
            each device"
    )]
    AddedOncePerDevice {
        /// The operand that is not partial.
        operand: usize,
        /// The axis.
        axis: AxisId,
    },
    /// The op needs a dim whole.
    #[error("the op needs a dim of operand {operand} whole")]
    NeedsWholeDim {
        /// The operand.
        operand: usize,
        /// The dim.
        dim: DimId,
    },
    /// A split or a merge of dims would have blocks that lie on several devices; or a device would
    /// have only a fraction of a part whose largest entries are chosen.
    #[error("the blocks of a split dim do not fall on whole parts")]
    BlocksStraddle {
        /// The dim (the whole one) whose axes do not fit.
        dim: DimId,
    },
    /// An axis splits a dim that the result alone has, and an operand is not replicated over the
    /// axis: what each device holds of the operand would reach only its own part of the result.
    #[error(
        "mesh axis {axis:?} splits a dim of the result alone, and operand {operand} is not whole \
            over it"
    )]
    OwnDimOfParts {
        /// The axis.
        axis: AxisId,
        /// The dim.
        dim: DimId,
        /// The operand that is split or partial over it.
        operand: usize,
    },
    /// The result would be an illegal layout.
    #[error("the result's layout is not legal: {0}")]
    Result(#[from] LayoutError),
}

/// The layout of the result of an op, dims in the order of `result`.
///
/// | op | operands | result |
/// |---|---|---|
/// | einsum `BE,EF->BF` | `BE_x`, `E_xF_y` | `BF_y(partialsum-x)` |
/// | einsum `BE,EF->BF` | `BE(partialsum-x)`, `EF_y` | `BF_y(partialsum-x)` |
/// | einsum `BE,EF->BF` | `B_xE`, `EF_x` | error: x splits B and F |
/// | gelu | `BF(partialsum-x)` | error: not linear |
/// | relu | `BF(partialmax-x)` | `BF(partialmax-x)` |
/// | add | `BE(partialsum-x)`, `BE(partialsum-x)` | `BE(partialsum-x)` |
/// | add | `BE(partialsum-x)`, `BE` | error: added once per device |
/// | max over E | `BE_x` | `B(partialmax-x)` |
/// | einsum `HLD,HDE->HLE` | `HLD(partialsoftmax-x)`, `HDE` | `HLE(partialsoftmax-x)` |
pub fn result_layout(
    op: &Op,
    operands: &[Operand<'_>],
    result: &[DimId],
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Layout, RuleError> {
    let partial = |of: &Operand<'_>| of.layout.softmax_axes().iter().next();
    let mut in_part = operands.iter().enumerate().filter_map(|(i, of)| Some((i, partial(of)?)));
    match (in_part.next(), in_part.next()) {
        (None, _) => of_complete(op, operands, result, mesh, dims),
        (Some((operand, axis)), None) => of_part(op, operands, result, mesh, dims, operand, axis),
        (_, Some((operand, axis))) => Err(RuleError::NotMerged { operand, axis }),
    }
}

/// The layout of the result of an op, where the parts of a [dim that the result alone
/// has](Op::own_dim) are split as in `wanted`. The operands do not decide how that dim is split:
/// over the axes that split it every operand is replicated, and each device makes its own part. For
/// an op without such a dim this is [`result_layout`], and `wanted` is ignored.
///
/// | op | operands | wanted | result |
/// |---|---|---|---|
/// | scatter-add over B `-> V` | `BE_y`, `B` | `V_xE_y` | `V_xE_y` |
/// | scatter-add over B `-> V` | `B_yE`, `B_y` | `V_xE(partialsum-y)` | `V_xE(partialsum-y)` |
/// | scatter-add over B `-> V` | `B_xE`, `B_x` | `V_xE` | error: x does two things |
pub fn result_layout_as(
    op: &Op,
    operands: &[Operand<'_>],
    result: &[DimId],
    wanted: Layout,
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Layout, RuleError> {
    let made = result_layout(op, operands, result, mesh, dims)?;
    let Some(own) = op.own_dim() else { return Ok(made) };
    let Some(at) = result.iter().position(|dim| *dim == own) else { return Ok(made) };
    let axes = wanted.axes_of(at);
    for axis in axes.iter() {
        let has_part = |of: &Operand<'_>| of.layout.place(axis) != Place::Replicated;
        if let Some(operand) = operands.iter().position(has_part) {
            return Err(RuleError::OwnDimOfParts { axis, dim: own, operand });
        }
    }
    let (size, devices) = (dims[own.index()].size, mesh.group_size(axes.iter()));
    if !size.is_multiple_of(devices) {
        return Err(LayoutError::NotDivisible { dim: at, size, devices }.into());
    }
    Ok(made.with_dim(at, axes))
}

/// The layout of the result where one operand, and no other, is `partialsoftmax`. An op that may
/// [act on it](crate::attention::carried) treats it like a partial sum, and the result is
/// `partialsoftmax` in place of the sum. Whether the op keeps the statistics apart is not checked
/// here, but by the verifier, for all ops in a row.
fn of_part(
    op: &Op,
    operands: &[Operand<'_>],
    result: &[DimId],
    mesh: &Mesh,
    dims: &[Dim],
    operand: usize,
    axis: AxisId,
) -> Result<Layout, RuleError> {
    let refused = Err(RuleError::NotMerged { operand, axis });
    if !is_linear(op, operand) {
        return refused;
    }
    let part = operands[operand].layout;
    let mut as_sums = operands.to_vec();
    as_sums[operand].layout =
        part.softmax_axes().iter().fold(part, |l, axis| l.with_partial(axis, Reduction::Sum));
    let made = of_complete(op, &as_sums, result, mesh, dims)?;
    // The result may be partial in no other way.
    if made.partial(Reduction::Sum) != part.softmax_axes()
        || made.partial_axes() != part.softmax_axes()
    {
        return refused;
    }
    Ok(made.sums_as_softmax())
}

/// The layout of the result where no operand is `partialsoftmax`.
fn of_complete(
    op: &Op,
    operands: &[Operand<'_>],
    result: &[DimId],
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Layout, RuleError> {
    let splits = match op {
        Op::Split { from, to } => split_dims(*from, to, operands[0], mesh, dims)?,
        Op::Merge { from, to } => merge_dims(from, *to, operands[0], mesh, dims)?,
        op if !op.regroups() => shared_dims(op, operands, mesh)?,
        _ => never!("an op that regroups dims, of which no rule says how", Splits::new()),
    };
    one_dim_per_axis(&splits)?;

    let (mut sums, mut maxima) = (AxisSet::EMPTY, AxisSet::EMPTY);
    for axis in mesh.axis_ids() {
        match partial_over(op, operands, axis)? {
            None => {}
            Some(Reduction::Sum) => sums = sums.with(axis),
            Some(Reduction::Max) => maxima = maxima.with(axis),
        }
    }
    for (_, split) in splits.iter().filter(|(dim, _)| !result.contains(dim)) {
        match op.row().combines {
            Combined::Sum => sums = sums.union(split.axes.set()),
            Combined::Max => maxima = maxima.union(split.axes.set()),
            Combined::No => never!("a split dim that an op drops and nothing combines", ()),
        }
    }
    let lists: Vec<AxisList> =
        result.iter().map(|d| splits.get(d).map_or(AxisList::EMPTY, |s| s.axes)).collect();
    let sizes: Vec<u64> = result.iter().map(|d| dims[d.index()].size).collect();
    Ok(Layout::new(MeshShape { mesh, sizes: &sizes }, &lists, sums, maxima)?)
}

/// How a dim of the op's iteration space is split, and the first operand that splits it so.
#[derive(Clone, Copy)]
struct DimSplit {
    axes: AxisList,
    operand: usize,
}

type Splits = BTreeMap<DimId, DimSplit>;

/// The dim of the op's iteration space that a dim of an operand becomes; `None` where the op needs
/// the dim whole.
pub fn iteration_dim(op: &Op, operand: usize, dim: DimId) -> Option<DimId> {
    match op {
        Op::Rename { from, to } if dim == *from => Some(*to),
        Op::TopK { over, to, .. } | Op::ArgTopK { over, to, .. } if dim == *over => Some(*to),
        op => (!op.needs_whole(operand, dim)).then_some(dim),
    }
}

/// How each dim of the iteration space is split, for an op that regroups no dims; all operands that
/// have a dim must split it alike.
fn shared_dims(op: &Op, operands: &[Operand<'_>], mesh: &Mesh) -> Result<Splits, RuleError> {
    let mut splits = Splits::new();
    for (i, operand) in operands.iter().enumerate() {
        for (at, dim) in operand.dims.iter().enumerate() {
            let axes = operand.layout.axes_of(at);
            let own = *dim;
            let Some(dim) = iteration_dim(op, i, own) else {
                if axes.is_empty() {
                    continue;
                }
                return Err(RuleError::NeedsWholeDim { operand: i, dim: own });
            };
            let devices = mesh.group_size(axes.iter());
            if op.blocks_of(dim).is_some_and(|blocks| !blocks.is_multiple_of(devices)) {
                return Err(RuleError::BlocksStraddle { dim: own });
            }
            match splits.get(&dim) {
                Some(seen) if seen.axes != axes => {
                    return Err(RuleError::OperandsDisagree { dim, left: seen.operand, right: i });
                }
                Some(_) => {}
                None => {
                    splits.insert(dim, DimSplit { axes, operand: i });
                }
            }
        }
    }
    Ok(splits)
}

fn one_dim_per_axis(splits: &Splits) -> Result<(), RuleError> {
    let mut seen: BTreeMap<AxisId, (usize, DimId)> = BTreeMap::new();
    for (dim, split) in splits {
        for axis in split.axes.iter() {
            if let Some(first) = seen.insert(axis, (split.operand, *dim)) {
                return Err(RuleError::AxisSplitsTwoDims {
                    axis,
                    first,
                    second: (split.operand, *dim),
                });
            }
        }
    }
    Ok(())
}

/// How dims are split after a split of a dim: the axes of the dim are dealt out to its parts
/// ([`deal`]).
fn split_dims(
    from: DimId,
    to: &[DimId],
    operand: Operand<'_>,
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Splits, RuleError> {
    let mut splits = Splits::new();
    for (at, dim) in operand.dims.iter().enumerate() {
        let axes = operand.layout.axes_of(at);
        if *dim != from {
            splits.insert(*dim, DimSplit { axes, operand: 0 });
            continue;
        }
        let parts = deal(axes, &to.iter().map(|d| dims[d.index()].size).collect::<Vec<_>>(), mesh)
            .ok_or(RuleError::BlocksStraddle { dim: from })?;
        splits.extend(to.iter().zip(parts).map(|(d, axes)| (*d, DimSplit { axes, operand: 0 })));
    }
    Ok(splits)
}

/// The axes of a whole dim as axes of its parts, major to minor: a part takes axes until it has a
/// device for each element. `None` where an axis would fall on two parts, so that blocks are no
/// whole parts.
///
/// With parts K = 4 and G = 8, `H_xy` on x=4, y=2 is `K_xG_y`; on x=2, y=2 it is `K_xyG`; on x=2,
/// y=4 it straddles.
pub fn deal(axes: AxisList, parts: &[u64], mesh: &Mesh) -> Option<Vec<AxisList>> {
    let mut rest = axes.iter().peekable();
    let mut out = Vec::new();
    for part in parts {
        let (mut list, mut left) = (AxisList::EMPTY, *part);
        while let Some(axis) = rest.peek().copied().filter(|_| left > 1) {
            if !left.is_multiple_of(mesh.size(axis)) {
                return None;
            }
            left /= mesh.size(axis);
            list = list.then(axis);
            rest.next();
        }
        out.push(list);
    }
    rest.peek().is_none().then_some(out)
}

/// How dims are split after a merge: the merged dim has the axes of its parts, major to minor.
fn merge_dims(
    from: &[DimId],
    to: DimId,
    operand: Operand<'_>,
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Splits, RuleError> {
    let mut splits = Splits::new();
    let axes_of = |d: &DimId| {
        operand
            .dims
            .iter()
            .position(|o| o == d)
            .map_or(AxisList::EMPTY, |at| operand.layout.axes_of(at))
    };
    for dim in operand.dims.iter().filter(|d| !from.contains(d)) {
        splits.insert(*dim, DimSplit { axes: axes_of(dim), operand: 0 });
    }
    let parts: Vec<AxisList> = from.iter().map(axes_of).collect();
    let whole = parts.iter().fold(AxisList::EMPTY, |all, p| all.concat(*p));
    let sizes: Vec<u64> = from.iter().map(|d| dims[d.index()].size).collect();
    if deal(whole, &sizes, mesh).as_ref() != Some(&parts) {
        return Err(RuleError::BlocksStraddle { dim: to });
    }
    splits.insert(to, DimSplit { axes: whole, operand: 0 });
    Ok(splits)
}

/// How the result is partial over an axis because operands are partial over it; `None` where none
/// is.
fn partial_over(
    op: &Op,
    operands: &[Operand<'_>],
    axis: AxisId,
) -> Result<Option<Reduction>, RuleError> {
    let place = |i: usize| operands[i].layout.place(axis);
    let with = |kind: Reduction| -> Vec<usize> {
        (0..operands.len()).filter(|i| place(*i) == Place::Partial(kind)).collect()
    };
    let (sums, maxima) = (with(Reduction::Sum), with(Reduction::Max));
    let Some(partial) = sums.iter().chain(&maxima).min().copied() else { return Ok(None) };
    if let Some(split) = (0..operands.len()).find(|i| matches!(place(*i), Place::Split { .. })) {
        return Err(RuleError::PartialMeetsSplit { axis, partial, split });
    }
    let not_linear = |operand| Err(RuleError::NotLinear { operand, axis });
    let not_increasing = |operand| Err(RuleError::NotIncreasing { operand, axis });
    let added = |operand| Err(RuleError::AddedOncePerDevice { operand, axis });
    let other = |i: usize| 1 - i;
    if !sums.is_empty() && !maxima.is_empty() {
        return not_linear(sums[0]);
    }
    let row = op.row();
    if sums.is_empty() {
        let may = row.maxima.allows(&maxima, operands.len()) && *op != Op::Cast(Dtype::Bool);
        return if may {
            Ok(Some(Reduction::Max))
        } else if row.maxima == Partial::Together {
            added(other(maxima[0]))
        } else {
            not_increasing(maxima[0])
        };
    }
    // Terms of a sum must not be rounded each on its own: a division of integers drops a remainder
    // of each term, and a cast to integers a fraction.
    let of_floats = operands[0].dtype.is_float();
    let keeps_all = match op {
        // Terms in four bits would be rounded by more than their sum is.
        Op::Cast(Dtype::F4) => false,
        Op::Cast(to) => to.is_float() && of_floats,
        op => of_floats || *op != Op::Binary(Binary::Div),
    };
    match row.sums {
        Partial::One if sums.len() > 1 => Err(RuleError::PartialTimesPartial { axis }),
        sums_of if sums_of.allows(&sums, operands.len()) && keeps_all => Ok(Some(Reduction::Sum)),
        Partial::Together => added(other(sums[0])),
        Partial::First if sums.len() > 1 => not_linear(1),
        Partial::No | Partial::First | Partial::One | Partial::Any => not_linear(sums[0]),
    }
}
