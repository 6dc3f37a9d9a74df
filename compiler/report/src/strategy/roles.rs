//! What the dims of a plan stand for, as far as the plan's own structure tells.

use std::collections::BTreeSet;

use shard_ir::attention::softmax_over;
use shard_ir::op::Flag;
use shard_ir::{DimId, InstrId, InstrKind, Op, Plan, Reduce};

/// The einsums of a plan that read weights, its attentions, and the dims that weights have.
#[derive(Debug)]
pub(super) struct Roles {
    /// Each reading of a weight of two dims or more by an einsum.
    pub(super) weight_uses: Vec<WeightUse>,
    /// Each attention.
    pub(super) attentions: Vec<Attention>,
    /// For each dim, whether a weight has it, or a dim that it is renamed, split or merged from or
    /// into.
    of_weights: Vec<bool>,
}

/// A weight as one operand of an einsum.
#[derive(Debug)]
pub(super) struct WeightUse {
    /// The einsum.
    pub(super) einsum: InstrId,
    /// Which of its operands.
    pub(super) operand: usize,
    /// The parameter.
    pub(super) weight: InstrId,
}

/// `softmax(q k) v`: an einsum of two activations whose product, elementwise changed, goes through
/// a softmax and is contracted with a third over the dim of the softmax.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The einsum that gives the scores.
    pub scores: InstrId,
    /// The dim of the softmax: key positions.
    pub keys: DimId,
    /// Query positions: dims of the scores that `q` alone has, and no weight.
    pub queries: Vec<DimId>,
    /// Dims of the scores that weights have too.
    pub heads: Vec<DimId>,
    /// Dims of the scores that `q` and `k` share, and no weight has.
    pub batch: Vec<DimId>,
}

impl Roles {
    pub(super) fn of(plan: &Plan) -> Roles {
        let mut weight_uses = Vec::new();
        for einsum in
            plan.ids().filter(|id| matches!(plan.instruction(*id).kind, InstrKind::Op(Op::Einsum)))
        {
            for (operand, read) in plan.instruction(einsum).operands.iter().enumerate() {
                if let Some(weight) =
                    stored_weight(plan, *read).filter(|_| plan.instruction(*read).dims.len() >= 2)
                {
                    weight_uses.push(WeightUse { einsum, operand, weight });
                }
            }
        }
        let mut roles = Roles {
            of_weights: dims_of_weights(plan, &weight_uses),
            weight_uses,
            attentions: Vec::new(),
        };
        let uses = plan.uses();
        roles.attentions = plan.ids().filter_map(|id| roles.attention(plan, &uses, id)).collect();
        roles
    }

    /// Whether a dim is one of heads in some attention.
    pub(super) fn is_heads(&self, dim: DimId) -> bool {
        self.attentions.iter().any(|a| a.heads.contains(&dim))
    }

    /// The attention around a softmax, if there is one.
    fn attention(&self, plan: &Plan, uses: &[Vec<InstrId>], softmax: InstrId) -> Option<Attention> {
        let InstrKind::Op(op) = &plan.instruction(softmax).kind else { return None };
        // A softmax in pieces begins with the maximum.
        let in_pieces = || {
            let Op::Reduce { kind: Reduce::Max, over } = op else { return None };
            if let [only] = over.as_slice() { Some(*only) } else { None }
        };
        let keys = softmax_over(op).or_else(in_pieces)?;
        let scores = einsum_behind(plan, *plan.instruction(softmax).operands.first()?)?;
        let [a, b] = plan.instruction(scores).operands.as_slice() else { return None };
        let is_activation = |id: &InstrId| stored_weight(plan, *id).is_none();
        if !is_activation(a) || !is_activation(b) || !meets_values(plan, uses, softmax, keys) {
            return None;
        }
        let has = |id: InstrId, dim: &DimId| plan.instruction(id).dims.contains(dim);
        let (q, k) = if has(*b, &keys) { (*a, *b) } else { (*b, *a) };
        let shared: Vec<DimId> =
            plan.instruction(scores).dims.iter().copied().filter(|d| *d != keys).collect();
        let (heads, others): (Vec<DimId>, Vec<DimId>) =
            shared.into_iter().partition(|d| self.of_weights[d.index()]);
        let (batch, queries): (Vec<DimId>, Vec<DimId>) =
            others.into_iter().filter(|d| has(q, d)).partition(|d| has(k, d));
        let mut found = Attention { scores, keys, queries, heads, batch };
        if self.weight_uses.is_empty() {
            // Without weights heads cannot be told from sequences: the major-most dim is taken for
            // the batch, as is usual in the field.
            let later = found.batch.len().min(1);
            found.heads = found.batch.split_off(later);
        }
        Some(found)
    }
}

/// The weight behind moves, casts and new names.
pub(super) fn stored_weight(plan: &Plan, mut id: InstrId) -> Option<InstrId> {
    loop {
        let instr = plan.instruction(id);
        match &instr.kind {
            InstrKind::Parameter(kind) if kind.is_weight() => return Some(id),
            InstrKind::Op(op) if !is_same_weight(op) => return None,
            InstrKind::Move(_) | InstrKind::Op(_) => id = *instr.operands.first()?,
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::CollectiveEinsum(_) => {
                return None;
            }
        }
    }
}

/// Whether the result of an op is the weight that it reads, in another place, dtype or shape.
fn is_same_weight(op: &Op) -> bool {
    matches!(op, Op::Fetch | Op::Cast(_)) || op.row().is(Flag::View)
}

/// The einsum whose product a value is, scaled, masked, capped or moved on the way.
fn einsum_behind(plan: &Plan, mut id: InstrId) -> Option<InstrId> {
    loop {
        let instr = plan.instruction(id);
        let rank =
            |at: usize| instr.operands.get(at).map_or(0, |o| plan.instruction(*o).dims.len());
        let at = match &instr.kind {
            InstrKind::Op(Op::Einsum) => return Some(id),
            InstrKind::Move(_) | InstrKind::Op(Op::Map(_) | Op::Mask { .. } | Op::Cast(_)) => 0,
            // A bias, a scale or a mask is the operand of fewer dims.
            InstrKind::Op(Op::Binary(_)) => usize::from(rank(1) > rank(0)),
            InstrKind::Op(Op::Where) => {
                if rank(2) > rank(1) {
                    2
                } else {
                    1
                }
            }
            InstrKind::Op(_)
            | InstrKind::CollectiveEinsum(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_) => {
                return None;
            }
        };
        id = *instr.operands.get(at)?;
    }
}

/// Whether the result of a softmax is contracted over the softmax's dim.
fn meets_values(plan: &Plan, uses: &[Vec<InstrId>], softmax: InstrId, keys: DimId) -> bool {
    let mut open = vec![softmax];
    while let Some(id) = open.pop() {
        for user in &uses[id.index()] {
            let instr = plan.instruction(*user);
            match &instr.kind {
                InstrKind::Op(Op::Einsum) if !instr.dims.contains(&keys) => return true,
                InstrKind::Move(_)
                | InstrKind::Op(Op::Map(_) | Op::Binary(_) | Op::Where | Op::Cast(_)) => {
                    open.push(*user)
                }
                InstrKind::Op(_)
                | InstrKind::CollectiveEinsum(_)
                | InstrKind::Parameter(_)
                | InstrKind::Constant(_) => {}
            }
        }
    }
    false
}

/// Marks the dims of weights, and what they are renamed, split or merged from or into.
fn dims_of_weights(plan: &Plan, uses: &[WeightUse]) -> Vec<bool> {
    let mut marked = vec![false; plan.dims.len()];
    for weight in uses.iter().map(|u| u.weight).collect::<BTreeSet<_>>() {
        for dim in &plan.instruction(weight).dims {
            marked[dim.index()] = true;
        }
    }
    let links: Vec<Vec<DimId>> = plan
        .instructions
        .iter()
        .filter_map(|instr| match &instr.kind {
            InstrKind::Op(op) => op.renames().map(|dims| dims.concat()),
            InstrKind::CollectiveEinsum(_)
            | InstrKind::Move(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_) => None,
        })
        .collect();
    loop {
        let mut grown = false;
        for link in &links {
            if link.iter().any(|d| marked[d.index()]) {
                for dim in link {
                    grown |= !std::mem::replace(&mut marked[dim.index()], true);
                }
            }
        }
        if !grown {
            return marked;
        }
    }
}
