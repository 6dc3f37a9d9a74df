//! A mesh that suits a model and a chip: `x` for the batch, `y` for heads and d_ff.

use shard_cost::Hardware;
use shard_cost::hardware::Fabric;
use shard_ir::Mesh;

use super::Model;

/// Sequences of a step, at least.
const SEQUENCES: u64 = 32;
/// The most devices that are taken without being asked for.
const MOST_CHIPS: u64 = 1024;

/// The axes of a mesh, and what each is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Axes {
    /// Names and sizes, major to minor.
    pub(crate) all: Vec<(String, u64)>,
}

impl Axes {
    /// The axis that splits the batch: the first of several.
    pub(crate) fn batch(&self) -> Option<&(String, u64)> {
        self.all.first().filter(|(_, size)| self.all.len() > 1 && *size > 1)
    }

    /// The axis that splits heads and d_ff: the last.
    pub(crate) fn model(&self) -> Option<&(String, u64)> {
        self.all.last().filter(|(_, size)| *size > 1)
    }

    /// The sequences of a step: some for every device that splits the batch.
    pub(crate) fn sequences(&self) -> u64 {
        let devices = self.all.iter().fold(1u64, |n, (_, size)| n.saturating_mul(*size)).clamp(1, MOST_CHIPS);
        SEQUENCES.next_multiple_of(devices)
    }
}

/// The mesh for so many chips, or for as few as hold weights and caches twice; `None` if there is none.
///
/// `y` divides d_ff and heads (keys' and values', unless there is one head for all). Behind switches it is as large as a
/// node lets it be, since that is where the bandwidth is; on a torus the axes are as near to equal as can be.
pub(crate) fn choose(model: &Model, hardware: &Hardware, chips: Option<u64>) -> Option<Axes> {
    match chips {
        Some(chips) => of_size(model, hardware, chips),
        None => (3..=MOST_CHIPS.ilog2())
            .map(|log| 1u64 << log)
            .filter(|chips| chips.saturating_mul(hardware.hbm_bytes) >= 2 * needed(model).min(u64::MAX / 2))
            .find_map(|chips| of_size(model, hardware, chips)),
    }
}

/// Bytes of weights and caches, in bf16.
fn needed(model: &Model) -> u64 {
    model.parameters().saturating_add(model.cached(SEQUENCES)).saturating_mul(2)
}

fn of_size(model: &Model, hardware: &Hardware, chips: u64) -> Option<Axes> {
    let fits = |y: u64| {
        let heads = model.attention.as_ref().map_or(y, |a| if a.kv_heads == 1 { a.heads } else { a.kv_heads });
        let experts = model.experts.as_ref().map_or(y, |experts| experts.count);
        chips.is_multiple_of(y) && [model.inner, heads, experts].iter().all(|size| size.is_multiple_of(y))
    };
    let axes = |y: u64| Axes { all: vec![("x".to_string(), chips / y), ("y".to_string(), y)] };
    let is_slice = |y: &u64| Mesh::new(axes(*y).all).is_ok_and(|mesh| hardware.slice_problem(&mesh).is_none());
    let candidates = (1..=chips).filter(|y| fits(*y)).filter(is_slice);
    let best = match &hardware.network.fabric {
        Fabric::Switched { node, .. } => candidates.filter(|y| y <= node).max(),
        Fabric::Flat { .. } | Fabric::Torus { .. } => candidates.min_by_key(|y| (y.abs_diff(chips / y), u64::MAX - y)),
    };
    best.map(axes)
}
