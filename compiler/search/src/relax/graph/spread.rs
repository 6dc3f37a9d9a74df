//! Spreading costs over the arcs of a graph: from some nodes that have a cost to all others.

use std::collections::VecDeque;

use super::{ArcRows, FAR, NodeId};

/// Memory that [`spread`] works in, kept between calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The nodes to start from with their costs: first in order of number, then nearly in order of
    /// cost.
    given: Vec<(i64, NodeId)>,
    ordered: Vec<(i64, NodeId)>,
    next: VecDeque<NodeId>,
    /// Whether a node is in `next`.
    waits: Vec<bool>,
}

/// Lowers the cost of each node to the least of reaching the node from one that has a cost. Costs
/// may be negative to start with; arcs are not.
///
/// The nodes to start from are taken nearly in order of cost. After them come the nodes whose cost
/// fell: the first to fall comes first, and a node reached at no cost comes at once. This looks at
/// about a fifth more arcs than Dijkstra's order does, since most costs fall several times, but
/// keeping the nearest node at hand would take longer than that.
pub(super) fn spread(
    rows: &ArcRows,
    cost: &mut [i64],
    queue: &mut Queue,
    share: impl Fn(i64) -> i64,
) {
    let Queue { given, ordered, next, waits } = queue;
    given.clear();
    given.extend(cost.iter().copied().zip(0..).filter(|(cost, _)| *cost < FAR));
    order_nearly(given, ordered);
    next.clear();
    next.extend(ordered.iter().map(|(_, node)| *node));
    waits.clear();
    waits.extend(cost.iter().map(|cost| *cost < FAR));
    while let Some(node) = next.pop_front() {
        waits[node as usize] = false;
        let near = cost[node as usize];
        for (to, arc) in rows.row(node) {
            let (through, known) = (near + share(*arc), &mut cost[*to as usize]);
            if through < *known {
                *known = through;
                let waits = &mut waits[*to as usize];
                match (*waits, through == near) {
                    (true, _) => continue,
                    (false, true) => next.push_front(*to),
                    (false, false) => next.push_back(*to),
                }
                *waits = true;
            }
        }
    }
}

/// Up to this many nodes are sorted, and more are put in order by steps of cost.
const FEW_TO_SORT: usize = 64;

/// The number of steps between the least cost and the greatest.
const STEPS: usize = 256;

/// Puts nodes in order of cost, and leaves nodes of the same step of cost in the order that they
/// have: [`spread`] gives the same costs from any order, and full sorting takes longer than it
/// saves.
fn order_nearly(given: &mut Vec<(i64, NodeId)>, ordered: &mut Vec<(i64, NodeId)>) {
    if given.len() < FEW_TO_SORT {
        given.sort_unstable();
        std::mem::swap(given, ordered);
        return;
    }
    let (least, most) =
        given.iter().fold((FAR, -FAR), |(low, high), (cost, _)| (low.min(*cost), high.max(*cost)));
    // The width of a step is a power of two, so that a shift stands for a division.
    let shift = (64 - ((most - least) as u64).leading_zeros()).saturating_sub(STEPS.ilog2());
    let step = |cost: i64| ((cost - least) >> shift) as usize;
    let mut begin = [0u32; STEPS + 1];
    for (cost, _) in given.iter() {
        begin[step(*cost) + 1] += 1;
    }
    for at in 0..STEPS {
        begin[at + 1] += begin[at];
    }
    ordered.clear();
    ordered.resize(given.len(), (0, 0));
    for node in given.iter() {
        let at = &mut begin[step(node.0)];
        ordered[*at as usize] = *node;
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_ordered_to_a_step_and_none_is_lost() {
        for count in [1, FEW_TO_SORT - 1, FEW_TO_SORT, 1000] {
            for most in [0, 1, 300, 1 << 40, FAR - 1] {
                // Costs of both signs, in no order.
                let cost = |node: NodeId| (i64::from(node) * 7919 % 1009 - 504) * (most / 504);
                let mut given: Vec<(i64, NodeId)> =
                    (0..count as NodeId).map(|node| (cost(node), node)).collect();
                let (all, mut ordered) = (given.clone(), Vec::new());
                order_nearly(&mut given, &mut ordered);
                let range = |(low, high): (i64, i64), (cost, _): &(i64, NodeId)| {
                    (low.min(*cost), high.max(*cost))
                };
                let (low, high) = all.iter().fold((FAR, -FAR), range);
                let step = (high - low) / (STEPS as i64 / 2) + 1;
                assert!(ordered.iter().is_sorted_by(|a, b| a.0 < b.0 + step), "{count} {most}");
                ordered.sort_unstable_by_key(|(_, node)| *node);
                assert_eq!(ordered, all);
            }
        }
    }
}
