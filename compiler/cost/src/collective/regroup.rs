//! The times of all all-to-alls, permutes and exchanges between the layouts of a list.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::catalogue::Sends;
use shard_ir::{AxisSet, Collective, Dtype, Layout, Mesh, MeshShape, Picoseconds, never};

use super::exchange::{ExchangeLoad, ExchangeTimes};
use super::permute::{PermuteLoad, PermuteTimes, Relation, affected, relation};
use super::steps::Networks;
use super::terms::NetworkTime;
use super::{CollectiveCost, collective_cost, cost_in};
use crate::hardware::Hardware;

/// The times of all-to-alls, permutes and exchanges on one mesh. The load of networks is computed
/// once for all moves with the same one.
pub struct RegroupTimes<'h> {
    hw: &'h Hardware,
    mesh: &'h Mesh,
    permutes: PermuteTimes<'h>,
    exchanges: ExchangeTimes<'h>,
    /// For each kind, the load of its moves.
    kinds: Vec<Load<'h>>,
    /// The kind of each signature.
    known: FxHashMap<Signature, u32>,
    /// The kind of each relation: moves of one relation have one signature.
    related: FxHashMap<Relation, u32>,
    /// The moves between all layouts of so many dims that these axes split, whatever the sizes.
    whole: FxHashMap<(AxisSet, usize), Rc<Pairs>>,
}

/// The kind of the move from each layout of a list to each other one. Moves of one *kind* take the
/// same time for the same number of bits.
#[derive(Debug)]
struct Pairs {
    /// The place of each layout in the list.
    place: FxHashMap<Layout, u32>,
    /// The kind of the move from layout `i` to layout `j`, at `i * count + j`; 0 if `i` is `j`.
    of: Vec<u32>,
}

/// The kinds of the moves between the layouts of a list.
#[derive(Clone, Debug)]
pub struct Regroupings {
    /// The moves of a list that has all these layouts.
    of: Rc<Pairs>,
    /// The place of each layout in that list.
    places: Vec<u32>,
}

impl Regroupings {
    /// The kind of the move from one layout to another, by their places in the list.
    pub fn kind(&self, from: usize, to: usize) -> usize {
        self.of.of[self.places[from] as usize * self.of.place.len() + self.places[to] as usize]
            as usize
    }
}

/// What decides the time of a move for any number of bits: which move it is, and the axes of its
/// group or its load on each network.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Signature {
    AllToAll(AxisSet),
    Permute(Vec<PermuteLoad>),
    Exchange(Vec<ExchangeLoad>),
}

/// The load of a move, for any number of bits: the networks of an all-to-all with their shares of
/// the group, or the load on each network.
enum Load<'h> {
    AllToAll(Networks<'h>),
    Permute(Vec<PermuteLoad>),
    Exchange(Vec<ExchangeLoad>),
}

/// Up to how many layouts the moves between all of them are kept for later calls.
const MOST_KEPT: usize = 128;

impl<'h> RegroupTimes<'h> {
    /// No move is known yet.
    pub fn new(hw: &'h Hardware, mesh: &'h Mesh) -> RegroupTimes<'h> {
        let (permutes, exchanges) = (PermuteTimes::new(hw, mesh), ExchangeTimes::new(hw, mesh));
        RegroupTimes {
            hw,
            mesh,
            permutes,
            exchanges,
            kinds: Vec::new(),
            known: FxHashMap::default(),
            related: FxHashMap::default(),
            whole: FxHashMap::default(),
        }
    }

    /// The chip.
    pub fn hardware(&self) -> &'h Hardware {
        self.hw
    }

    /// The mesh.
    pub fn mesh(&self) -> &'h Mesh {
        self.mesh
    }

    /// What a move costs: the same as [`collective_cost`](super::collective_cost).
    pub fn cost(
        &mut self,
        collective: &Collective,
        from: Layout,
        sizes: &[u64],
        dtype: Dtype,
    ) -> CollectiveCost {
        let local = MeshShape { mesh: self.mesh, sizes }.local_elements(from);
        let time = match (collective.row().sends, collective.terms().to) {
            (Sends::Blocks, Some(to)) => self.permutes.time(from, to, local, dtype),
            (Sends::Lacking, Some(to)) => self.exchanges.time(from, to, local, dtype),
            (Sends::Blocks | Sends::Lacking, None)
            | (
                Sends::Nothing
                | Sends::Around
                | Sends::AroundTwice
                | Sends::Across
                | Sends::Weighted,
                _,
            ) => return collective_cost(self.hw, self.mesh, collective, from, sizes, dtype),
        };
        cost_in(time, self.mesh, collective, from, sizes, dtype)
    }

    /// The moves between layouts, which all have to be split by the same axes and partial over the
    /// same axes.
    pub fn between(&mut self, layouts: &[Layout]) -> Regroupings {
        // The kind of a move depends neither on partial axes nor on dims that no axis splits.
        let rank = layouts.iter().map(|layout| layout.split_rank()).max().unwrap_or(0);
        let split = |dim: &usize| layouts.iter().any(|layout| !layout.axes_of(*dim).is_empty());
        let dims: Vec<usize> = (0..rank).filter(split).collect();
        let bare = |layout: &Layout| {
            let complete = layout.partial_axes().iter().fold(*layout, Layout::with_replicated);
            if dims.len() == rank { complete } else { complete.permuted(&dims) }
        };
        let layouts: Vec<Layout> = layouts.iter().map(bare).collect();
        let axes = layouts.first().map_or(AxisSet::EMPTY, |layout| layout.split_axes());
        let of = match self.whole.get(&(axes, dims.len())) {
            Some(known) => Rc::clone(known),
            None => {
                let any = self.mesh.group_size(axes.iter());
                let shape = MeshShape { mesh: self.mesh, sizes: &vec![any; dims.len()] };
                let all =
                    layouts.first().map(|layout| shape.layouts_like(*layout)).unwrap_or_default();
                if all.len() > MOST_KEPT {
                    Rc::new(self.work_out(&layouts))
                } else {
                    let all = Rc::new(self.work_out(&all));
                    self.whole.insert((axes, dims.len()), Rc::clone(&all));
                    all
                }
            }
        };
        let places = layouts.iter().map(|layout| of.place[layout]).collect();
        Regroupings { of, places }
    }

    /// The kinds of the moves between all layouts of a list. The kind of a move stays the same if
    /// the dims of both layouts are put into another order. So the moves from a layout have the
    /// kinds of those from the first layout of the list that is the same but for the order of its
    /// dims.
    fn work_out(&mut self, layouts: &[Layout]) -> Pairs {
        let count = layouts.len();
        let place: FxHashMap<Layout, u32> = layouts.iter().copied().zip(0..).collect();
        let orders = reorderings(layouts, &place);
        let mut of = vec![0; count * count];
        for from in 0..count {
            let first = orders
                .iter()
                .min_by_key(|order| order[from])
                .filter(|order| (order[from] as usize) < from);
            for to in (0..count).filter(|to| *to != from) {
                of[from * count + to] = match first {
                    Some(order) => of[order[from] as usize * count + order[to] as usize],
                    None => self.kind(layouts[from], layouts[to]),
                };
            }
        }
        Pairs { place, of }
    }

    fn kind(&mut self, from: Layout, to: Layout) -> u32 {
        let axes = affected(self.mesh, from, to);
        let relation = relation(axes, from, to);
        if let Some(known) = self.related.get(&relation) {
            return *known;
        }
        let signature = self.signature(axes, relation, from, to);
        let kind = *self.known.entry(signature).or_insert_with_key(|signature| {
            self.kinds.push(match signature {
                Signature::AllToAll(_) => {
                    let axes = between(self.mesh, from, to).axes(self.mesh, from);
                    Load::AllToAll(Networks::of(self.hw, self.mesh, &axes))
                }
                Signature::Permute(loads) => Load::Permute(loads.clone()),
                Signature::Exchange(loads) => Load::Exchange(loads.clone()),
            });
            self.kinds.len() as u32 - 1
        });
        self.related.insert(relation, kind);
        kind
    }

    fn signature(
        &mut self,
        axes: AxisSet,
        relation: Relation,
        from: Layout,
        to: Layout,
    ) -> Signature {
        let collective = between(self.mesh, from, to);
        match collective.row().sends {
            Sends::Across => Signature::AllToAll(collective.axes(self.mesh, from).set()),
            Sends::Blocks => {
                Signature::Permute(self.permutes.loads_of(axes, relation, from, to).to_vec())
            }
            Sends::Lacking => {
                Signature::Exchange(self.exchanges.loads_of(axes, relation, from, to).to_vec())
            }
            Sends::Nothing | Sends::Around | Sends::AroundTwice | Sends::Weighted => {
                never!("a regrouping that is none", Signature::Exchange(Vec::new()))
            }
        }
    }

    /// The number of kinds that are known so far.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The time of a move of a kind, for a value with so many elements on a device.
    pub fn time_of_kind(&self, kind: usize, local_elements: u64, dtype: Dtype) -> Picoseconds {
        let bits = u128::from(local_elements) * u128::from(dtype.bits());
        let networks = match &self.kinds[kind] {
            Load::AllToAll(networks) => networks.exchange(bits),
            Load::Permute(loads) => self.permutes.under(loads, bits),
            Load::Exchange(loads) => self.exchanges.under(loads, bits),
        };
        let once: Picoseconds = networks.iter().map(NetworkTime::time).sum();
        Picoseconds(once.0.saturating_mul(self.hw.move_weight()))
    }
}

/// The move from one layout to another, which does not depend on sizes.
fn between(mesh: &Mesh, from: Layout, to: Layout) -> Collective {
    let found = Collective::regrouping(MeshShape { mesh, sizes: &[] }, from, to);
    found.unwrap_or_else(|| {
        never!("layouts of one list between which no move leads", Collective::Exchange { to })
    })
}

/// How many dims layouts may split for reorderings to be looked for.
const MOST_REORDERED: usize = 4;

/// The orders of dims with which each layout of a list becomes another one of the list: for each
/// order the place of the layout that each layout becomes.
fn reorderings(layouts: &[Layout], place: &FxHashMap<Layout, u32>) -> Vec<Vec<u32>> {
    let rank = layouts.iter().map(|layout| layout.split_rank()).max().unwrap_or(0);
    let dims: Vec<usize> =
        (0..rank).filter(|d| layouts.iter().any(|l| !l.axes_of(*d).is_empty())).collect();
    if dims.len() > MOST_REORDERED {
        return Vec::new();
    }
    let mut orders = vec![Vec::new()];
    for _ in &dims {
        let longer = |order: &Vec<usize>| {
            let with = |dim: &usize| order.iter().copied().chain([*dim]).collect::<Vec<usize>>();
            dims.iter().filter(|dim| !order.contains(dim)).map(with).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    let leads_to = |order: Vec<usize>| {
        let mut all: Vec<usize> = (0..rank).collect();
        dims.iter().zip(order).for_each(|(dim, from)| all[*dim] = from);
        layouts
            .iter()
            .map(|layout| place.get(&layout.permuted(&all)).copied())
            .collect::<Option<Vec<u32>>>()
    };
    orders.into_iter().filter_map(leads_to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective_cost;

    const NETWORKS: [&str; 5] = [
        "kind = \"flat\"\nbandwidth = 7e9",
        "kind = \"torus\"\nlink_bandwidth = 7e9\nhop_latency = 1e-6\nwraparound = \"always\"",
        "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"full-axis-4\"\n[network.axes]\nx \
            = { torus = [2, 2] }",
        "kind = \"switched\"\nnode = 4\nnode_bandwidth = 7e9\nnic_bandwidth = 1e9\nalpha = 2e-6",
        "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"never\"\n[network.axes]\ny = { \
            kind = \"flat\", bandwidth = 1e9 }",
    ];

    /// Also with sizes that few axes can split, so that dims cannot be put into any order.
    #[test]
    fn moves_of_a_list_take_what_each_takes_by_itself() {
        let chip = "name = \"c\"\n[chip]\nflops = { bf16 = 1e12 }\nhbm_bytes = 1e9\nhbm_bandwidth \
            = 1e12\n[network]\n";
        let mut compared = 0;
        for network in NETWORKS {
            let hw = Hardware::parse(&format!("{chip}{network}")).expect("well formed");
            for (mesh, sizes) in [
                (vec![4, 2, 2], vec![64, 64]),
                (vec![4, 4], vec![16, 2, 48, 4]),
                (vec![4, 3, 2], vec![96, 12]),
                (vec![4, 2, 4], vec![4, 64, 64]),
            ] {
                let mesh = Mesh::new(["x", "y", "z"].into_iter().zip(mesh)).expect("a mesh");
                let shape = MeshShape { mesh: &mesh, sizes: &sizes };
                let mut times = RegroupTimes::new(&hw, &mesh);
                let mut groups: FxHashMap<([AxisSet; 2], u64), Vec<Layout>> = FxHashMap::default();
                for layout in shape
                    .layouts(AxisSet::EMPTY.with(mesh.axis("y").expect("an axis")), AxisSet::EMPTY)
                {
                    let key = (
                        [layout.split_axes(), layout.partial_axes()],
                        shape.local_elements(layout),
                    );
                    groups.entry(key).or_default().push(layout);
                }
                for ((_, local), layouts) in groups {
                    let moves = times.between(&layouts);
                    for (i, from) in layouts.iter().enumerate() {
                        for (j, to) in layouts.iter().enumerate().filter(|(j, _)| *j != i) {
                            let by_itself =
                                Collective::regrouping(shape, *from, *to).expect("one move");
                            let cost =
                                collective_cost(&hw, &mesh, &by_itself, *from, &sizes, Dtype::Bf16);
                            let of_many = (
                                times.time_of_kind(moves.kind(i, j), local, Dtype::Bf16),
                                times.cost(&by_itself, *from, &sizes, Dtype::Bf16),
                            );
                            assert_eq!(
                                of_many,
                                (cost.time, cost),
                                "{network} {mesh}: {from:?} to {to:?}"
                            );
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert!(compared > 16_000, "{compared}");
    }
}
