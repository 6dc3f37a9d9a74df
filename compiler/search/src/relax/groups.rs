//! Groups of readers of a value that are alike, and so pay the same price. Where many read a value,
//! they are priced in groups: the way that serves one member of a group best serves all members
//! best, so the best tree of moves for the groups is the best one for all readers.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use super::factors::{Factor, ValueUse};
use super::graph::{FAR, Graph, NodeId};
use super::serving::are_together;

/// The readers of a value in groups, each reader as its place among the uses of the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Groups(Vec<Vec<usize>>);

/// How a value is made, as far as groups tell values apart: given, in layouts of a graph, or made
/// by a factor from operands of some kinds.
#[derive(PartialEq, Eq, Hash)]
enum MadeBy {
    Given(*const Graph, Vec<NodeId>),
    From(*const Factor, Vec<usize>),
}

impl Groups {
    /// For each value, the groups of its readers; `None` where the readers are priced together or
    /// one by one without groups. Readers are alike if the same factor makes them from operands
    /// that are alike.
    pub(super) fn of_all(
        live: &[ValueId],
        graphs: &[Arc<Graph>],
        factors: &[Arc<Factor>],
        operands: &[Vec<ValueId>],
        uses: &[Vec<ValueUse>],
    ) -> Vec<Option<Groups>> {
        let mut all = vec![None; factors.len()];
        let nodes = |id: &ValueId| graphs[id.index()].nodes();
        let many: Vec<&ValueId> =
            live.iter().filter(|id| !are_together(uses[id.index()].len(), nodes(id))).collect();
        if many.is_empty() {
            return all;
        }
        let mut known: FxHashMap<MadeBy, usize> = FxHashMap::default();
        let mut kinds = vec![usize::MAX; factors.len()];
        for id in live {
            let (v, factor) = (id.index(), &factors[id.index()]);
            let made = match operands[v].as_slice() {
                [] => MadeBy::Given(Arc::as_ptr(&graphs[v]), factor.out.clone()),
                read => MadeBy::From(
                    Arc::as_ptr(factor),
                    read.iter().map(|operand| kinds[operand.index()]).collect(),
                ),
            };
            let next = known.len();
            kinds[v] = *known.entry(made).or_insert(next);
        }
        for id in many {
            let mut places: FxHashMap<(usize, usize), usize> = FxHashMap::default();
            let mut groups: Vec<Vec<usize>> = Vec::new();
            for (place, by) in uses[id.index()].iter().enumerate() {
                let kind = match by {
                    ValueUse::Operand(op, at) => (kinds[op.index()], *at),
                    ValueUse::Output(i) => (usize::MAX, *i),
                };
                let group = *places.entry(kind).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[group].push(place);
            }
            let together = are_together(groups.len(), nodes(id));
            all[id.index()] = together.then_some(Groups(groups));
        }
        all
    }

    /// The members of each group.
    pub(super) fn members(&self) -> impl Iterator<Item = &[usize]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Makes the members of each group pay the same at each node: their average price, or that of
    /// those who have a use for the node. Returns whether a price changed. No price is more than a
    /// share of the largest, so that sums over a group stay in range.
    pub(super) fn share(&self, paid: &mut [Vec<i64>]) -> bool {
        let mut changed = false;
        for group in self.members().filter(|group| group.len() > 1) {
            let most = FAR / 2 / group.len() as i64;
            for node in 0..paid[group[0]].len() {
                let prices = group.iter().map(|member| paid[*member][node]);
                let first = paid[group[0]][node];
                if prices.clone().all(|price| price == first) {
                    continue;
                }
                changed = true;
                let (sum, count) = prices
                    .clone()
                    .filter(|price| price.abs() < FAR)
                    .fold((0i128, 0), |(sum, count), price| (sum + i128::from(price), count + 1));
                let same = match count {
                    _ if prices.clone().any(|price| price >= FAR) => FAR,
                    0 => -FAR,
                    _ => sum.div_euclid(count).clamp(-i128::from(most), i128::from(most)) as i64,
                };
                group.iter().for_each(|member| paid[*member][node] = same);
            }
        }
        changed
    }

    /// The price that each group pays, all members together. Where the prices of members differ,
    /// each counts with the highest, so that no member pays more than it is counted with.
    pub(super) fn paid<'p>(&self, paid: &'p [Vec<i64>]) -> Vec<Cow<'p, [i64]>> {
        let of_group = |group: &[usize]| match group {
            [] => Cow::Borrowed(&[][..]),
            [one] => Cow::Borrowed(paid[*one].as_slice()),
            [first, others @ ..] => {
                let mut most = paid[*first].clone();
                for other in others {
                    most.iter_mut().zip(&paid[*other]).for_each(|(m, price)| *m = (*m).max(*price));
                }
                let count = group.len() as i64;
                let all = |price: i64| {
                    if price.abs() < FAR {
                        price.saturating_mul(count).clamp(1 - FAR, FAR - 1)
                    } else {
                        price
                    }
                };
                Cow::Owned(most.into_iter().map(all).collect())
            }
        };
        self.members().map(of_group).collect()
    }
}
