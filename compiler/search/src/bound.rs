//! The least cost of a use of each value in each layout, which bounds the states of the search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shard_ir::ValueId;

use crate::cost::Cost;
use crate::kernel::Kernels;
use crate::table::{LayoutId, Producer, Tables, ValueTable};

/// For each value and layout, what one use of it costs at least.
///
/// A value is made once for the `k` operands and results that read it. A use that wants it in a
/// layout in which having it costs at least `t` is charged `t / k`, rounded down. All charges
/// together never exceed what is really paid: making the value and reaching the dearest of the
/// wanted layouts costs at least the mean of the `t`s.
#[derive(Debug)]
pub(crate) struct LeastCosts {
    of: Vec<Vec<Cost>>,
}

impl LeastCosts {
    pub(crate) fn new(kernels: &Kernels, tables: &Tables) -> LeastCosts {
        let mut costs = LeastCosts { of: Vec::with_capacity(tables.values.len()) };
        for (table, uses) in tables.values.iter().zip(&kernels.uses) {
            let made: Vec<Cost> = table
                .producers
                .iter()
                .map(|all| all.iter().map(|p| costs.of_producer(p)).min().unwrap_or(Cost::MAX))
                .collect();
            let reached = spread(table, made);
            let share =
                |cost: Cost| if is_finite(cost) { cost.share(*uses as u64) } else { Cost::MAX };
            costs.of.push(reached.into_iter().map(share).collect());
        }
        costs
    }

    /// What one use of a value in a layout costs at least; [`Cost::MAX`] where it cannot be had so.
    pub(crate) fn of(&self, value: ValueId, layout: LayoutId) -> Cost {
        self.of[value.index()][layout as usize]
    }

    /// What a producer costs at least, with its shares of what it reads.
    pub(crate) fn of_producer(&self, producer: &Producer) -> Cost {
        producer.reads.iter().fold(producer.cost, |sum, (value, layout)| {
            let cost = self.of(*value, *layout);
            if is_finite(sum) && is_finite(cost) { sum + cost } else { Cost::MAX }
        })
    }
}

/// Whether a cost is one of something possible, and not [`Cost::MAX`].
pub(crate) fn is_finite(cost: Cost) -> bool {
    cost.time < u64::MAX
}

/// The least cost of having a value in each layout, given the least cost of making it in each, by
/// Dijkstra along the moves.
fn spread(table: &ValueTable, mut cost: Vec<Cost>) -> Vec<Cost> {
    let mut queue: BinaryHeap<Reverse<(Cost, LayoutId)>> = cost
        .iter()
        .enumerate()
        .filter(|(_, c)| is_finite(**c))
        .map(|(layout, c)| Reverse((*c, layout as LayoutId)))
        .collect();
    while let Some(Reverse((reached, at))) = queue.pop() {
        if reached > cost[at as usize] {
            continue;
        }
        for (to, arc) in &table.arcs_from[at as usize] {
            let through = reached + *arc;
            if through < cost[*to as usize] {
                cost[*to as usize] = through;
                queue.push(Reverse((through, *to)));
            }
        }
    }
    cost
}
