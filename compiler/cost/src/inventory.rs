//! [`Inventory`]: the weights and caches of a layer, the memory that they take on one chip and on
//! the mesh, and how much of it holds copies.

use shard_ir::{InstrId, InstrKind, ParameterKind, Plan};

use crate::memory::Memory;
use crate::roles::DimRoles;
use crate::units::Bytes;

/// The weights and caches of a layer. All figures but those of [`Inventory::memory`] are of one
/// layer of the stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// Its weights and caches, in the order of its parameters.
    pub kept: Vec<Kept>,
    /// How many numbers the weights have, without those that `pad` adds.
    pub parameters: u128,
    /// What one chip holds.
    pub memory: Memory,
    /// Bytes that the caches take for each token of each sequence, copies not counted; 0 if no
    /// cache has a dim of positions.
    pub cache_bytes_per_token: Bytes,
    /// The dims that count tokens, sequences and positions.
    pub roles: DimRoles,
}

/// A weight or a cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The parameter.
    pub id: InstrId,
    /// Whether it is a weight or a cache.
    pub kind: ParameterKind,
    /// Bytes of one copy of it; in a folded block, of all applications together.
    pub bytes: Bytes,
    /// Bytes on one chip.
    pub chip_bytes: Bytes,
    /// How many copies the mesh holds.
    pub copies: u64,
}

impl Kept {
    /// Bytes on one chip that would not be there if each number were on one chip only.
    pub fn replicated_chip_bytes(&self) -> Bytes {
        Bytes(self.chip_bytes.0 - self.chip_bytes.0 / self.copies.max(1))
    }
}

impl Inventory {
    /// The inventory of a plan.
    pub fn of(plan: &Plan, roles: DimRoles) -> Inventory {
        let kept: Vec<Kept> = plan.ids().filter_map(|id| kept(plan, id)).collect();
        let parameters = kept
            .iter()
            .filter(|k| k.kind.is_weight())
            .map(|k| useful_elements(plan, k.id))
            .fold(0u128, u128::saturating_add);
        let cache_bytes_per_token =
            kept.iter().filter_map(|k| bytes_per_token(plan, k, &roles)).sum();
        Inventory { kept, parameters, memory: Memory::of(plan), cache_bytes_per_token, roles }
    }

    /// Whether there are weights. Without them it is not known which dims of the first input count
    /// tokens: those are the dims that no weight has.
    pub fn has_weights(&self) -> bool {
        self.kept.iter().any(|kept| kept.kind.is_weight())
    }

    /// The sum of a figure over the weights, or over the caches.
    pub fn sum(&self, kind: ParameterKind, figure: impl Fn(&Kept) -> Bytes) -> Bytes {
        self.kept.iter().filter(|k| k.kind == kind).map(figure).sum()
    }
}

fn kept(plan: &Plan, id: InstrId) -> Option<Kept> {
    let instr = plan.instruction(id);
    let InstrKind::Parameter(kind) = instr.kind else { return None };
    if kind == ParameterKind::Activation {
        return None;
    }
    let shards = plan.mesh.group_size(instr.layout.split_axes().iter());
    Some(Kept {
        id,
        kind,
        bytes: Bytes(instr.dtype.bytes(elements(plan, id))).times(plan.copies_of(id)),
        chip_bytes: Bytes(plan.local_bytes(id)).times(plan.copies_of(id)),
        copies: plan.mesh.devices() / shards.max(1),
    })
}

fn elements(plan: &Plan, id: InstrId) -> u64 {
    plan.sizes(&plan.instruction(id).dims).iter().fold(1, |n, s| n.saturating_mul(*s))
}

fn useful_elements(plan: &Plan, id: InstrId) -> u128 {
    let dims = plan.instruction(id).dims.iter();
    let one = dims.fold(1u128, |n, d| n.saturating_mul(u128::from(plan.dims[d.index()].useful)));
    one.saturating_mul(u128::from(plan.copies_of(id)))
}

/// The bytes of a cache for one position of one sequence; `None` for a weight, or a cache without a
/// dim of positions.
fn bytes_per_token(plan: &Plan, cache: &Kept, roles: &DimRoles) -> Option<Bytes> {
    let dims = &plan.instruction(cache.id).dims;
    let is_cache = cache.kind == ParameterKind::Cache;
    if !is_cache || !dims.iter().any(|d| roles.context.contains(d)) {
        return None;
    }
    let counted = dims.iter().filter(|d| roles.context.contains(d) || roles.batch.contains(d));
    let tokens = counted.fold(1u64, |n, d| n.saturating_mul(plan.dims[d.index()].size));
    Some(Bytes(cache.bytes.0.div_ceil(tokens.max(1))))
}
