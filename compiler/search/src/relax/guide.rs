//! The least that a plan has still to pay when a part of it is decided.
//!
//! For any prices, a plan costs at least what its decided ops and moves cost, what these pay for
//! the values that they read, and the least of each op and value that is not decided. What decided
//! readers pay to undecided ops is counted in the least of those. When nothing is decided, this is
//! the bound of the branch. Shares of shared values ([`LeastCosts`](crate::bound::LeastCosts)) may
//! say far less.

use rustc_hash::FxHashMap;
use shard_ir::{Layout, ValueId};

use super::factors::{Factors, ValueUse};
use super::graph::FAR;
use super::parts::Seat;
use super::prices::Prices;

/// The prices of a branch by layout, and the least cost of each op and value at these prices, in
/// ticks.
#[derive(Debug)]
pub(crate) struct Guide {
    /// The number of ticks in a picosecond.
    pub(crate) ticks: i64,
    /// For each value and use, the price that the reader pays in each layout; a layout in which no
    /// plan of the branch reads the value has none.
    paid: Vec<Vec<FxHashMap<Layout, i64>>>,
    uses: Vec<Vec<ValueUse>>,
    /// For each value, the least cost of the value and its op.
    pub(crate) terms: Vec<i64>,
    /// For each result, its least cost.
    pub(crate) outputs: Vec<i64>,
    /// The least cost of all labels and memories.
    pub(crate) parts: i64,
    /// For each value and each result, its side price in each layout; empty for a value without
    /// places.
    of_values: Vec<FxHashMap<Layout, i64>>,
    of_outputs: Vec<FxHashMap<Layout, i64>>,
}

impl Guide {
    pub(super) fn read(problem: &Factors, prices: &Prices) -> Guide {
        let (terms, outputs) = prices.least_of_all(problem);
        let paid = |v: usize| {
            let by_layout = |prices: &Vec<i64>| {
                let layouts = problem.graphs[v].layouts.iter().copied();
                layouts.zip(prices.iter().copied()).filter(|(_, p)| p.abs() < FAR).collect()
            };
            prices.paid[v].iter().map(by_layout).collect()
        };
        let layouts = |value: ValueId| problem.graphs[value.index()].layouts.iter().copied();
        let at_seat = |seat: Seat, value: ValueId| {
            let price = |layout| (layout, prices.sides.price_at(seat, layout));
            layouts(value).map(price).filter(|(_, price)| *price < FAR).collect()
        };
        let of_value = |v: usize| {
            let value = ValueId(v as u32);
            if prices.sides.of_value(v).is_empty() {
                FxHashMap::default()
            } else {
                at_seat(Seat::Value(value), value)
            }
        };
        let of_output =
            |(output, (value, _)): (usize, &(ValueId, _))| at_seat(Seat::Output(output), *value);
        let all = 0..problem.factors.len();
        Guide {
            ticks: problem.ticks,
            paid: all.clone().map(paid).collect(),
            uses: problem.uses.to_vec(),
            terms,
            outputs,
            parts: prices.sides.sum(),
            of_values: all.map(of_value).collect(),
            of_outputs: problem.outputs.iter().enumerate().map(of_output).collect(),
        }
    }

    /// The index of a use among the uses of its value.
    pub(crate) fn use_of(&self, value: ValueId, by: ValueUse) -> Option<usize> {
        self.uses[value.index()].iter().position(|known| *known == by)
    }

    /// The price of a value in a layout for the use of index `by`; `None` where no plan of the
    /// branch reads it so.
    pub(crate) fn paid(&self, value: ValueId, by: usize, layout: Layout) -> Option<i64> {
        self.paid[value.index()].get(by)?.get(&layout).copied()
    }

    /// Whether a value has a place in a label or a memory.
    pub(crate) fn has_places(&self, value: ValueId) -> bool {
        !self.of_values[value.index()].is_empty()
    }

    /// The side price of a value in a layout, 0 for a value without places; `None` where no plan of
    /// the branch has it so.
    pub(crate) fn of_value(&self, value: ValueId, layout: Layout) -> Option<i64> {
        let places = &self.of_values[value.index()];
        if places.is_empty() { Some(0) } else { places.get(&layout).copied() }
    }

    /// The side price of a result in a layout; `None` where no plan of the branch has it so.
    pub(crate) fn of_output(&self, output: usize, layout: Layout) -> Option<i64> {
        self.of_outputs[output].get(&layout).copied()
    }
}
