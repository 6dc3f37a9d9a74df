//! A mesh that suits a model and a chip: its last axis splits heads and d_ff, the axes before it
//! split the batch.

use shard_cost::Hardware;
use shard_ir::Mesh;

use super::Model;

/// The least sequences of a step.
const SEQUENCES: u64 = 32;
/// The most devices that are taken without being asked for.
const MOST_CHIPS: u64 = 1024;

/// The axes of a mesh, and what each is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axes {
    /// Names and sizes, major to minor.
    pub all: Vec<(String, u64)>,
}

impl Axes {
    /// The axes that split the batch: all but the last.
    pub fn batch(&self) -> impl Iterator<Item = &(String, u64)> {
        self.all.iter().rev().skip(1).rev().filter(|(_, size)| *size > 1)
    }

    /// The number of devices over which the batch is split.
    pub fn batch_devices(&self) -> u64 {
        self.batch().fold(1, |n, (_, size)| n.saturating_mul(*size))
    }

    /// The axis that splits heads and d_ff: the last.
    pub fn model(&self) -> Option<&(String, u64)> {
        self.all.last().filter(|(_, size)| *size > 1)
    }

    /// The sequences of a step: no fewer than a step has at least, and as many for each device.
    pub fn sequences(&self) -> u64 {
        let devices =
            self.all.iter().fold(1u64, |n, (_, size)| n.saturating_mul(*size)).clamp(1, MOST_CHIPS);
        SEQUENCES.next_multiple_of(devices)
    }
}

/// The mesh for so many chips, or for the fewest chips whose memory is twice what weights and
/// caches take; `None` if there is none.
///
/// The size of the last axis divides d_ff and the heads (those of keys and values, unless there is
/// one for all), or d_ff alone where no mesh does both. Of the meshes that are left the network
/// chooses.
pub fn choose(model: &Model, hardware: &Hardware, chips: Option<u64>) -> Option<Axes> {
    let sizes: Vec<u64> = match chips {
        Some(chips) => vec![chips],
        None => (3..=MOST_CHIPS.ilog2())
            .map(|log| 1u64 << log)
            .filter(|chips| {
                chips.saturating_mul(hardware.hbm_bytes) >= 2 * needed(model).min(u64::MAX / 2)
            })
            .collect(),
    };
    let of_size = |chips: &u64| of_size(model, hardware, *chips);
    let by_inner = |chips: &u64| of_ways(&divisors(model, *chips).by_inner, hardware, *chips);
    sizes.iter().find_map(of_size).or_else(|| sizes.iter().find_map(by_inner))
}

/// Bytes of weights and caches.
fn needed(model: &Model) -> u64 {
    model.dtype.bytes(model.parameters().saturating_add(model.cached(SEQUENCES)))
}

/// The mesh of two axes for so many chips that is nearest to a square and whose last axis divides
/// heads and d_ff. It need not be a slice of a chip.
pub fn of_any_slice(model: &Model, chips: u64) -> Option<Axes> {
    let Divisors { by_all, by_queries, .. } = divisors(model, chips);
    let widest = |ways: &[u64]| {
        let mesh = |y: &u64| (chips / y).max(*y);
        ways.iter().copied().filter(|y| *y > 1).min_by_key(mesh)
    };
    let y = widest(&by_all).or_else(|| widest(&by_queries))?;
    Some(Axes::of(&[chips / y, y])).filter(|axes| Mesh::new(axes.all.clone()).is_ok())
}

fn of_size(model: &Model, hardware: &Hardware, chips: u64) -> Option<Axes> {
    let Divisors { by_all, by_queries, .. } = divisors(model, chips);
    of_ways(&by_all, hardware, chips).or_else(|| of_ways(&by_queries, hardware, chips))
}

/// The divisors of the number of chips, smallest first, by which the last axis of a mesh may split
/// a model.
struct Divisors {
    /// d_ff, the experts, and the heads of keys.
    by_all: Vec<u64>,
    /// d_ff and the heads of queries.
    by_queries: Vec<u64>,
    /// d_ff alone.
    by_inner: Vec<u64>,
}

fn divisors(model: &Model, chips: u64) -> Divisors {
    let ways = |fits: &dyn Fn(u64) -> bool| -> Vec<u64> {
        (1..=chips).filter(|y| chips.is_multiple_of(*y) && fits(*y)).collect()
    };
    let heads = model.attention();
    let inner: Vec<u64> = model.kinds.iter().map(|kind| kind.feed.inner()).collect();
    let divides = |sizes: &[u64], y: u64| sizes.iter().all(|size| size.is_multiple_of(y));
    let by_all = ways(&|y| {
        let heads = heads.map_or(y, |a| match a.cached_heads() {
            1 => a.heads,
            kv_heads => kv_heads,
        });
        let experts = model.experts().map_or(y, |experts| experts.count);
        divides(&inner, y) && divides(&[heads, experts], y)
    });
    // A slice may have more chips than there are heads of keys: the batch of the caches is then
    // split over all axes.
    let by_queries =
        ways(&|y| divides(&inner, y) && heads.is_none_or(|a| a.heads.is_multiple_of(y)));
    // The groups of a recurrence are its heads.
    let wide = model.kinds.iter().filter(|kind| kind.state_space().is_none());
    let wide: Vec<u64> = wide.map(|kind| kind.feed.inner()).collect();
    Divisors { by_all, by_queries, by_inner: ways(&|y| divides(&wide, y)) }
}

/// The mesh of a chip whose last axis has one of some sizes, which stand smallest first.
fn of_ways(ways: &[u64], hardware: &Hardware, chips: u64) -> Option<Axes> {
    let problem = |sizes: &[u64]| {
        Mesh::new(Axes::of(sizes).all).ok().map(|mesh| hardware.slice_problem(&mesh))
    };
    hardware.network.fabric.mesh(chips, ways, &problem).map(|sizes| Axes::of(&sizes))
}

impl Axes {
    /// As `--mesh` takes them.
    pub fn text(&self) -> String {
        let axes = self.all.iter().map(|(name, size)| format!("{name}={size}"));
        axes.collect::<Vec<_>>().join(",")
    }

    /// Axes of these sizes, named `x`, `y`, `z`.
    fn of(sizes: &[u64]) -> Axes {
        Axes {
            all: ["x", "y", "z"]
                .into_iter()
                .map(str::to_string)
                .zip(sizes.iter().copied())
                .collect(),
        }
    }
}
