//! Attention as one kernel: which ops of a program, or of a plan, can run as one kernel that never
//! has the scores in memory.
//!
//! The chain of ops is the one that users write: one product of queries and keys, or a sum of
//! several; then any maps, casts, masks and binaries of the same dims; a softmax over the keys;
//! casts; and the product with the values, which sums over the keys. No other op may read the
//! values between them.
//!
//! Keys and values may be a `concat` along the keys, such as of a prefix that all prompts share and
//! the positions of each prompt. The kernel can go over one part and then the other, so that the
//! joined keys need not be in memory. Then the concats are members of the attention, too
//! ([`with_joined`]), and a prefix that lacks the dim of the prompts is read once for all of them.
//!
//! Axes may split the keys. Each device then computes the attention over its own keys, and the
//! product is `partialsoftmax` over these axes. Beside it lie the statistics by which the parts are
//! merged: one for each element of the dims of the scores without the keys. Ops that are linear in
//! the product may act on it before it is merged ([`carried`]).
//!
//! In a plan the softmax of such a kernel is marked `as attention`, and so are the concats that are
//! members. Prices and memory depend on the mark, so it is not trusted:
//! [`verify`](crate::verify::verify) refuses a marked instruction that is in no such chain.
//!
//! Where the einsums of the kernel are collective einsums that gather the keys, the attention is a
//! [`Ring`]: blocks of keys and of values travel round the devices together, and the kernel runs
//! once for each block.

mod partial;
mod ring;

use std::collections::BTreeSet;

use crate::collective_einsum::Fused;
use crate::layout::Layout;
use crate::layout_rule::{Operand, RuleError, result_layout};
use crate::mesh::{AxisList, Mesh};
use crate::never;
use crate::op::Op;
use crate::plan::{InstrId, InstrKind, Plan};
use crate::tensor::{Dim, DimId};
use crate::typing::same_dims;

pub(crate) use partial::is_linear;
pub use partial::{
    carried, carried_operand, carried_statistics, local_statistics, may_split_keys,
    partial_softmax, statistics_of,
};
pub use ring::{Ring, rings};
use ring::{gather_of, ring_axes};

/// The most ops of an attention.
const MOST_MEMBERS: usize = 16;

/// A graph of ops. Pins between an op and its reader are skipped.
pub trait Ops<'a> {
    /// Names a value.
    type Id: Copy + Ord;
    /// The op that makes a value, if one does.
    fn op(&self, id: Self::Id) -> Option<&'a Op>;
    /// What the op reads.
    fn operands(&self, id: Self::Id) -> Vec<Self::Id>;
    /// The dims of the value.
    fn dims(&self, id: Self::Id) -> &'a [DimId];
    /// Whether the value may pass to these ops without being in memory: only they read it, no move
    /// is in between, it is no result, and all are in the same folded block or in none.
    fn passes_to_all(&self, from: Self::Id, to: &[Self::Id]) -> bool;
    /// The same for one reader.
    fn passes(&self, from: Self::Id, to: Self::Id) -> bool {
        self.passes_to_all(from, &[to])
    }
    /// Whether a concat of keys or values may be part of the attention that reads it.
    fn may_join(&self, concat: Self::Id) -> bool;
}

/// The ops of the attention that ends with `product`, first to last; `None` where it ends none.
pub fn attention_of<'a, G: Ops<'a>>(graph: &G, product: G::Id) -> Option<Vec<G::Id>> {
    let (Some(Op::Einsum), operands) = (graph.op(product), graph.operands(product)) else {
        return None;
    };
    let &[a, b] = operands.as_slice() else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(weights, values)| {
        let mut members = vec![product];
        let (mut at, mut reader) = (weights, product);
        while let Some(Op::Cast(_)) = graph.op(at).filter(|_| graph.passes(at, reader)) {
            members.push(at);
            (at, reader) = (*graph.operands(at).first()?, at);
        }
        let softmax = graph.op(at).filter(|_| graph.passes(at, reader));
        let over = &softmax.and_then(softmax_over)?;
        let (result, dims) = (graph.dims(product), graph.dims(at));
        let is_product = values != weights
            && graph.dims(values).contains(over)
            && !result.contains(over)
            && dims.iter().all(|dim| dim == over || result.contains(dim));
        if !is_product {
            return None;
        }
        members.push(at);
        let scores = *graph.operands(at).first()?;
        members.extend(made_of_scores(graph, scores, at, *over, dims)?);
        members.sort_unstable();
        (members.len() <= MOST_MEMBERS).then_some(members)
    })
}

/// The ops that make `id`, which is the scores or something computed from them elementwise. `None`
/// where `id` is not made of scores over `key`, or does not pass to `reader` alone.
fn made_of_scores<'a, G: Ops<'a>>(
    graph: &G,
    id: G::Id,
    reader: G::Id,
    key: DimId,
    dims: &[DimId],
) -> Option<Vec<G::Id>> {
    if !graph.passes(id, reader) || !same_dims(graph.dims(id), dims) {
        return None;
    }
    let operands: BTreeSet<G::Id> = graph.operands(id).into_iter().collect();
    let mut members = vec![id];
    let op = graph.op(id)?;
    if *op == Op::Einsum {
        let all = graph.operands(id);
        let has_keys = |operand: &&G::Id| graph.dims(**operand).contains(&key);
        let contracts =
            |operand: &G::Id| graph.dims(*operand).iter().any(|dim| !graph.dims(id).contains(dim));
        let is_score =
            all.len() == 2 && all.iter().filter(has_keys).count() == 1 && all.iter().all(contracts);
        return is_score.then_some(members);
    }
    if !matches!(op, Op::Map(_) | Op::Cast(_) | Op::Binary(_) | Op::Mask { .. } | Op::Where) {
        return None;
    }
    for operand in operands {
        members.extend(made_of_scores(graph, operand, id, key, dims).into_iter().flatten());
    }
    (members.len() > 1).then_some(members)
}

/// The ops of an attention together with the concats that join its keys and its values, first to
/// last; `None` where no concat joins them, or something else reads the joined value.
///
/// Such a kernel reads the joined parts where they lie. Axes that split its keys split each part,
/// so that the keys of a device are no contiguous block ([`keys_in_any_order`]).
pub fn with_joined<'a, G: Ops<'a>>(graph: &G, members: &[G::Id]) -> Option<Vec<G::Id>> {
    let key = members.iter().find_map(|id| graph.op(*id).and_then(softmax_over))?;
    let is_product = |id: &&G::Id| graph.op(**id) == Some(&Op::Einsum);
    let read = members.iter().filter(is_product).flat_map(|id| graph.operands(*id));
    let mut all = members.to_vec();
    let mut open: Vec<(G::Id, DimId)> = read.map(|operand| (operand, key)).collect();
    while let Some((id, along)) = open.pop() {
        let Some(Op::Concat { left, right, to }) = graph.op(id) else { continue };
        let reads = |by: &G::Id| graph.operands(*by).contains(&id);
        let readers: Vec<G::Id> = all.iter().copied().filter(reads).collect();
        let is_free = graph.may_join(id) && graph.passes_to_all(id, &readers);
        if *to == along && !all.contains(&id) && is_free {
            all.push(id);
            open.extend(graph.operands(id).into_iter().zip([*left, *right]));
        }
    }
    all.sort_unstable();
    (all.len() > members.len() && all.len() <= MOST_MEMBERS).then_some(all)
}

/// Whether no op of an attention with concats depends on the order of its keys: there is no mask,
/// and nothing that is read from outside has the keys as a dim. Then a device may have a block of
/// each joined part.
pub fn keys_in_any_order<'a, G: Ops<'a>>(graph: &G, members: &[G::Id]) -> bool {
    let key = members.iter().find_map(|id| graph.op(*id).and_then(softmax_over));
    members.iter().all(|id| {
        let comes_in = |operand: &G::Id| !members.contains(operand);
        let has_keys = |operand: G::Id| graph.dims(operand).iter().any(|dim| Some(*dim) == key);
        match graph.op(*id) {
            Some(Op::Mask { .. }) | None => false,
            Some(_) => !graph.operands(*id).into_iter().filter(comes_in).any(has_keys),
        }
    })
}

/// The layout of a concat of keys or values that is a member of an attention. Axes that split the
/// keys split both parts alike, and a device has its block of each. `left`, `right` and `to` are
/// the dims of the [`Op::Concat`].
pub fn joined_layout(
    left: DimId,
    right: DimId,
    to: DimId,
    operands: &[Operand<'_>],
    result: &[DimId],
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Layout, RuleError> {
    let mut whole = operands.to_vec();
    let mut keys: Option<AxisList> = None;
    for (at, (operand, dim)) in whole.iter_mut().zip([left, right]).enumerate() {
        let Some(place) = operand.dims.iter().position(|d| *d == dim) else { continue };
        let axes = operand.layout.axes_of(place);
        if *keys.get_or_insert(axes) != axes {
            return Err(RuleError::NeedsWholeDim { operand: at, dim });
        }
        operand.layout = operand.layout.with_dim(place, AxisList::EMPTY);
    }
    let op = Op::Concat { left, right, to };
    let made = result_layout(&op, &whole, result, mesh, dims)?;
    let keys = keys.unwrap_or(AxisList::EMPTY);
    // An axis may split one dim of the result only.
    if let Some(axis) = keys.iter().find(|axis| made.split_axes().contains(*axis)) {
        let split = |of: &Operand<'_>| of.layout.split_axes().contains(axis);
        let operand = whole.iter().position(split);
        let operand = operand.unwrap_or_else(|| never!("an axis that splits no part", 0));
        return Err(RuleError::NeedsWholeDim { operand, dim: [left, right][operand.min(1)] });
    }
    let at = result.iter().position(|dim| *dim == to);
    Ok(at.map_or(made, |at| made.with_dim(at, keys)))
}

/// The dim of a softmax, with sinks or without; `None` for any other op.
pub fn softmax_over(op: &Op) -> Option<DimId> {
    if let Op::Softmax { over } | Op::SinkSoftmax { over } = op { Some(*over) } else { None }
}

/// The layout of the softmax of an attention: that of its operand. Axes may split the keys, since
/// each device takes the softmax over its own.
pub fn softmax_layout(
    over: DimId,
    operand: Operand<'_>,
    result: &[DimId],
    mesh: &Mesh,
    dims: &[Dim],
) -> Result<Layout, RuleError> {
    let at = |dims: &[DimId]| dims.iter().position(|dim| *dim == over);
    let keys = at(operand.dims).map_or(AxisList::EMPTY, |at| operand.layout.axes_of(at));
    let layout =
        at(operand.dims).map_or(operand.layout, |at| operand.layout.with_dim(at, AxisList::EMPTY));
    let whole = Operand { layout, ..operand };
    let made = result_layout(&Op::Softmax { over }, &[whole], result, mesh, dims)?;
    Ok(at(result).map_or(made, |at| made.with_dim(at, keys)))
}

/// The layout in which a member of the kernel reads an operand: each axis splits the same dim in
/// the operand as in the result, and dims that the result lacks are whole.
pub fn read_for(made: Layout, made_dims: &[DimId], operand_dims: &[DimId]) -> Layout {
    let mut layout = Layout::REPLICATED;
    for (at, dim) in operand_dims.iter().enumerate() {
        if let Some(from) = made_dims.iter().position(|d| d == dim) {
            layout = layout.with_dim(at, made.axes_of(from));
        }
    }
    layout
}

/// The instructions of a plan as a graph.
struct Instructions<'p> {
    plan: &'p Plan,
    uses: Vec<Vec<InstrId>>,
}

impl<'p> Ops<'p> for Instructions<'p> {
    type Id = InstrId;

    fn op(&self, id: InstrId) -> Option<&'p Op> {
        match &self.plan.instruction(id).kind {
            InstrKind::Op(op) => Some(op),
            // It may be an einsum of a ring; `is_in_one_kernel` decides once the members are found.
            InstrKind::CollectiveEinsum(Fused::AllGather { .. }) => Some(&Op::Einsum),
            InstrKind::CollectiveEinsum(Fused::ReduceScatter { .. })
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Move(_) => None,
        }
    }

    fn operands(&self, id: InstrId) -> Vec<InstrId> {
        self.plan.instruction(id).operands.clone()
    }

    fn dims(&self, id: InstrId) -> &'p [DimId] {
        &self.plan.instruction(id).dims
    }

    fn passes_to_all(&self, from: InstrId, to: &[InstrId]) -> bool {
        let plan = self.plan;
        let fold = plan.instruction(from).fold;
        to.iter().all(|to| plan.instruction(*to).fold == fold)
            && self.uses[from.index()].iter().all(|user| to.contains(user))
            && plan.outputs.iter().all(|output| output.id != from)
            && plan.folds.iter().all(|fold| fold.from != from && fold.to != from)
    }

    fn may_join(&self, concat: InstrId) -> bool {
        self.plan.instruction(concat).origin.attention
    }
}

/// The attentions that run as one kernel in a plan, in program order, each with its instructions.
/// They are those whose softmax is marked `as attention`, with the concats that are marked.
///
/// # Errors
///
/// The first marked instruction that is part of no attention.
pub fn attentions(plan: &Plan) -> Result<Vec<Vec<InstrId>>, InstrId> {
    let says_so = |id: &InstrId| plan.instruction(*id).origin.attention;
    let mut open: BTreeSet<InstrId> = plan.ids().filter(says_so).collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let graph = Instructions { plan, uses: plan.uses() };
    let mut found = Vec::new();
    for product in plan.ids() {
        let Some(members) = attention_of(&graph, product) else { continue };
        let softmax = |id: &&InstrId| {
            plan.instruction(**id).kind.op().is_some_and(|op| softmax_over(op).is_some())
        };
        let Some(softmax) = members.iter().find(softmax).copied() else { continue };
        if !is_in_one_kernel(plan, &members, softmax) || !open.contains(&softmax) {
            continue;
        }
        let joined = with_joined(&graph, &members);
        let keys = plan.instruction(product).layout.softmax_axes();
        if joined.as_ref().is_some_and(|all| !keys.is_empty() && !keys_in_any_order(&graph, all)) {
            continue;
        }
        let members = joined.unwrap_or(members);
        open.retain(|id| !members.contains(id));
        found.push(members);
    }
    match open.first() {
        Some(id) => Err(*id),
        None => Ok(found),
    }
}

/// Whether the layouts of an attention are those of one kernel. Only the last value may be partial,
/// over the axes that split the keys. If an einsum gathers, all of them must make a ring.
fn is_in_one_kernel(plan: &Plan, members: &[InstrId], softmax: InstrId) -> bool {
    let instr = plan.instruction(softmax);
    let Some(over) = instr.kind.op().and_then(softmax_over) else { return false };
    let at = instr.dims.iter().position(|dim| *dim == over);
    let keys = at.map_or(AxisList::EMPTY, |at| instr.layout.axes_of(at));
    let Some((product, before)) = members.split_last() else { return false };
    let made = plan.instruction(*product).layout;
    before.iter().all(|id| plan.instruction(*id).layout.is_complete())
        && made.partial_axes() == made.softmax_axes()
        && made.softmax_axes() == keys.set()
        && (members.iter().all(|id| gather_of(plan, *id).is_none())
            || keys.is_empty()
                && instr.kind.op().is_some_and(|op| may_split_keys(op, instr.dtype))
                && ring_axes(plan, members, over).is_some())
}

/// The instruction that made a value, before all moves of it.
pub fn unmoved(plan: &Plan, mut id: InstrId) -> InstrId {
    while let (InstrKind::Move(_), [operand]) =
        (&plan.instruction(id).kind, plan.instruction(id).operands.as_slice())
    {
        id = *operand;
    }
    id
}
