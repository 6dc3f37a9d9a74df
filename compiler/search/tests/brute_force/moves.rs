//! The moves of a value: for each pair of layouts the collectives that lead from one to the other,
//! by their definitions (cost model, section "Collectives"), and the time of the fastest.

use shard_cost::{Hardware, collective_cost};
use shard_ir::{AxisId, Collective, DimSet, Dtype, Layout, Mesh, MeshShape, Reduction};

use super::layouts::{Written, all_layouts};

/// The time where there is no way.
pub(crate) const NEVER: u64 = u64::MAX;

/// Exchanges are in the plan space where no more layouts than this are split by the same axes.
const MOST_EXCHANGED: usize = 128;

/// Where a value lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lies {
    /// In the memory of the chip.
    Chip,
    /// In that of the host, where nothing can be sent.
    Host,
}

/// The layouts of a value of some sizes and dtype, with the time of every move between two of them.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) written: Vec<Written>,
    /// `one_move[from][to]`: the time of the cheapest single move.
    pub(crate) one_move: Vec<Vec<u64>>,
    /// `way[from][to]`: the time of the cheapest chain of moves; 0 from a layout to itself.
    pub(crate) way: Vec<Vec<u64>>,
}

impl Space {
    pub(crate) fn new(
        (mesh, sizes, dtype): (&Mesh, &[u64], Dtype),
        lies: Lies,
        hardware: &Hardware,
        (with_maxima, statistics): (bool, Option<DimSet>),
    ) -> Space {
        let shape = MeshShape { mesh, sizes };
        let (layouts, written): (Vec<Layout>, Vec<Written>) =
            all_layouts(shape, with_maxima, statistics.is_some()).into_iter().unzip();
        let split_as = |one: &Written, other: &Written| {
            same_set(&one.dims.concat(), &other.dims.concat())
                && one.sums == other.sums
                && one.maxima == other.maxima
                && one.softmax == other.softmax
        };
        let like = |one: &Written| written.iter().filter(|other| split_as(one, other)).count();
        let is_exchanged: Vec<bool> =
            written.iter().map(|one| like(one) <= MOST_EXCHANGED).collect();
        let price = |from: usize, to: usize| {
            let ends = [from, to].map(|end| (layouts[end], &written[end]));
            let merges = merges_between(ends[0].1, ends[1].1, statistics);
            collectives_between(shape, ends[0], ends[1])
                .iter()
                .chain(&merges)
                .filter(|collective| lies == Lies::Chip || is_local(collective))
                .filter(|collective| {
                    is_exchanged[from] || !matches!(collective, Collective::Exchange { .. })
                })
                .map(|collective| {
                    collective_cost(hardware, mesh, collective, layouts[from], sizes, dtype).time.0
                })
                .min()
                .unwrap_or(NEVER)
        };
        let count = layouts.len();
        let one_move: Vec<Vec<u64>> =
            (0..count).map(|from| (0..count).map(|to| price(from, to)).collect()).collect();
        let way = shortest_ways(&one_move);
        Space { layouts, written, one_move, way }
    }

    pub(crate) fn index_of(&self, layout: Layout) -> Option<usize> {
        self.layouts.iter().position(|l| *l == layout)
    }
}

/// Whether each device makes its block from what it has, without traffic.
fn is_local(collective: &Collective) -> bool {
    match collective {
        Collective::Slice { .. } | Collective::ToPartial { .. } => true,
        Collective::AllGather { .. }
        | Collective::ReduceScatter { .. }
        | Collective::AllReduce { .. }
        | Collective::AllToAll { .. }
        | Collective::Permute { .. }
        | Collective::Exchange { .. }
        | Collective::AllGatherDims { .. }
        | Collective::ReduceScatterDims { .. }
        | Collective::SoftmaxMerge { .. } => false,
    }
}

/// All-pairs shortest ways (Floyd and Warshall).
pub(crate) fn shortest_ways(one_move: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let mut way = one_move.to_vec();
    for (at, row) in way.iter_mut().enumerate() {
        row[at] = 0;
    }
    for middle in 0..way.len() {
        let onward = way[middle].clone();
        for row in &mut way {
            let there = row[middle];
            if there == NEVER {
                continue;
            }
            for (to, on) in onward.iter().enumerate().filter(|(_, on)| **on != NEVER) {
                row[to] = row[to].min(there + on);
            }
        }
    }
    way
}

/// Every collective that leads from one layout to another.
pub(crate) fn collectives_between(
    shape: MeshShape<'_>,
    (from_layout, from): (Layout, &Written),
    (to_layout, to): (Layout, &Written),
) -> Vec<Collective> {
    let mut found = Vec::new();
    if from == to || !from.softmax.is_empty() || !to.softmax.is_empty() {
        return found;
    }
    let changed: Vec<usize> =
        (0..from.dims.len()).filter(|d| from.dims[*d] != to.dims[*d]).collect();
    let same_sums = from.sums == to.sums;
    let same_maxima = from.maxima == to.maxima;
    let may_complete = |kind: Reduction| kind == Reduction::Sum || from.sums.is_empty();
    let kinds: [PartialChange<'_>; 2] = [
        (Reduction::Sum, &from.sums, &to.sums, same_maxima),
        (Reduction::Max, &from.maxima, &to.maxima, same_sums),
    ];
    match changed.as_slice() {
        [] => {
            for (kind, before, after, other_same) in kinds {
                if other_same && is_strict_part(after, before) && may_complete(kind) {
                    found.push(Collective::AllReduce {
                        kind,
                        axes: less(before, after).into_iter().collect(),
                    });
                }
                if other_same && is_strict_part(before, after) {
                    let axes = less(after, before).into_iter().collect();
                    found.push(Collective::ToPartial { kind, dim: None, axes });
                }
            }
        }
        [dim] => along_one_dim(*dim, from, to, kinds, &mut found),
        [one, other] if same_sums && same_maxima => {
            for (from_dim, to_dim) in [(*one, *other), (*other, *one)] {
                let gone = from.dims[from_dim].strip_prefix(to.dims[from_dim].as_slice());
                let come = to.dims[to_dim].strip_prefix(from.dims[to_dim].as_slice());
                if let (Some(gone), Some(come)) = (gone, come)
                    && gone == come
                {
                    found.push(Collective::AllToAll {
                        from_dim,
                        to_dim,
                        axes: gone.iter().copied().collect(),
                    });
                }
            }
        }
        _ => {}
    }
    if same_sums && same_maxima && shape.local_sizes(from_layout) == shape.local_sizes(to_layout) {
        found.push(Collective::Permute { to: to_layout });
    }
    let splits = |of: &Written| of.dims.concat();
    if same_sums && same_maxima && found.is_empty() && same_set(&splits(from), &splits(to)) {
        found.push(Collective::Exchange { to: to_layout });
    }
    if changed.len() > 1 {
        along_several_dims(from, (to_layout, to), &mut found);
    }
    found
}

/// A kind of partial, the axes of it before and after, and whether the axes of the other kind stay.
type PartialChange<'w> = (Reduction, &'w Vec<AxisId>, &'w Vec<AxisId>, bool);

/// The collectives between layouts that differ in the axes of one dim, and perhaps in partial axes.
fn along_one_dim(
    dim: usize,
    from: &Written,
    to: &Written,
    kinds: [PartialChange<'_>; 2],
    found: &mut Vec<Collective>,
) {
    let is_complete_alike = from.sums == to.sums && from.maxima == to.maxima;
    let may_complete = |kind: Reduction| kind == Reduction::Sum || from.sums.is_empty();
    if let Some(gone) = from.dims[dim].strip_prefix(to.dims[dim].as_slice()) {
        let axes = gone.iter().copied().collect();
        if is_complete_alike {
            found.push(Collective::AllGather { dim, axes });
        }
        for (kind, before, after, other_same) in kinds {
            if other_same && is_strict_part(before, after) && same_set(&less(after, before), gone) {
                found.push(Collective::ToPartial { kind, dim: Some(dim), axes });
            }
        }
    }
    if let Some(come) = to.dims[dim].strip_prefix(from.dims[dim].as_slice()) {
        let axes = come.iter().copied().collect();
        if is_complete_alike {
            found.push(Collective::Slice { dim, axes });
        }
        for (kind, before, after, other_same) in kinds {
            let completed = is_strict_part(after, before) && same_set(&less(before, after), come);
            if other_same && completed && may_complete(kind) {
                found.push(Collective::ReduceScatter { kind, dim, axes });
            }
        }
    }
}

/// The merges that lead from one layout to another: one at most.
fn merges_between(from: &Written, to: &Written, statistics: Option<DimSet>) -> Vec<Collective> {
    let Some(statistics) = statistics.filter(|_| is_strict_part(&to.softmax, &from.softmax)) else {
        return Vec::new();
    };
    if from.sums != to.sums || from.maxima != to.maxima {
        return Vec::new();
    }
    let gone = less(&from.softmax, &to.softmax);
    let changed: Vec<usize> =
        (0..from.dims.len()).filter(|d| from.dims[*d] != to.dims[*d]).collect();
    match changed.as_slice() {
        [] => {
            let axes = gone.into_iter().collect();
            vec![Collective::SoftmaxMerge { dim: None, axes, statistics }]
        }
        [dim] => match to.dims[*dim].strip_prefix(from.dims[*dim].as_slice()) {
            Some(come) if same_set(come, &gone) => {
                let axes = come.iter().copied().collect();
                vec![Collective::SoftmaxMerge { dim: Some(*dim), axes, statistics }]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// A gather or a scatter that changes several dims.
fn along_several_dims(
    from: &Written,
    (to_layout, to): (Layout, &Written),
    found: &mut Vec<Collective>,
) {
    let dims = || from.dims.iter().zip(&to.dims);
    let (same_sums, same_maxima) = (from.sums == to.sums, from.maxima == to.maxima);
    if same_sums && same_maxima && dims().all(|(before, after)| before.starts_with(after)) {
        found.push(Collective::AllGatherDims { to: to_layout });
    }
    if dims().all(|(before, after)| after.starts_with(before)) {
        let come: Vec<AxisId> =
            dims().flat_map(|(before, after)| after[before.len()..].to_vec()).collect();
        for (kind, before, after, other_same) in [
            (Reduction::Sum, &from.sums, &to.sums, same_maxima),
            (Reduction::Max, &from.maxima, &to.maxima, same_sums),
        ] {
            let completed = is_strict_part(after, before) && same_set(&less(before, after), &come);
            if other_same && completed && (kind == Reduction::Sum || from.sums.is_empty()) {
                found.push(Collective::ReduceScatterDims { kind, to: to_layout });
            }
        }
    }
}

fn is_strict_part(part: &[AxisId], whole: &[AxisId]) -> bool {
    part.len() < whole.len() && part.iter().all(|a| whole.contains(a))
}

fn less(all: &[AxisId], gone: &[AxisId]) -> Vec<AxisId> {
    all.iter().copied().filter(|a| !gone.contains(a)).collect()
}

fn same_set(a: &[AxisId], b: &[AxisId]) -> bool {
    a.len() == b.len() && a.iter().all(|x| b.contains(x))
}
