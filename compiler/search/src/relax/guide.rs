//! What prices say that any plan is still to pay that is decided in part.
//!
//! For any prices, a plan pays at least what its decided parts cost, what they pay for what they
//! read, and the least of each op and value that is not decided: what those are paid by the decided
//! ones is in their least. At the bound of a branch this says as much as the bound does, where even
//! shares of shared values ([`LeastCosts`](crate::bound::LeastCosts)) may say far less.

use rustc_hash::FxHashMap;
use shard_ir::{Layout, ValueId};

use super::factors::{Factors, ValueUse};
use super::graph::FAR;
use super::parts::Seat;
use super::prices::Prices;

/// Prices of one branch by layout, and the least of each op and value at these prices, in ticks.
#[derive(Debug)]
pub(crate) struct Guide {
    /// How many ticks a picosecond has.
    pub(crate) ticks: i64,
    /// For each value and use what the reader pays for it in each layout; a layout in which no plan
    /// of the branch reads it so has none.
    paid: Vec<Vec<FxHashMap<Layout, i64>>>,
    uses: Vec<Vec<ValueUse>>,
    /// What each value and its op come to at least.
    pub(crate) terms: Vec<i64>,
    /// What each result comes to at least.
    pub(crate) outputs: Vec<i64>,
    /// What the parts that reach across the program come to.
    pub(crate) parts: i64,
    /// For each value with places in such parts, and each result, what it pays them in each layout.
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

    /// Which use of a value this is.
    pub(crate) fn use_of(&self, value: ValueId, by: ValueUse) -> Option<usize> {
        self.uses[value.index()].iter().position(|known| *known == by)
    }

    /// What a use of a value pays for it in a layout; `None` where no plan of the branch has it so.
    pub(crate) fn paid(&self, value: ValueId, by: usize, layout: Layout) -> Option<i64> {
        self.paid[value.index()].get(by)?.get(&layout).copied()
    }

    /// Whether a value has a place in a part that reaches across the program.
    pub(crate) fn has_places(&self, value: ValueId) -> bool {
        !self.of_values[value.index()].is_empty()
    }

    /// What a value pays, in a layout, to the parts in which it has a place; `None` where no plan
    /// of the branch has it so.
    pub(crate) fn of_value(&self, value: ValueId, layout: Layout) -> Option<i64> {
        let places = &self.of_values[value.index()];
        if places.is_empty() { Some(0) } else { places.get(&layout).copied() }
    }

    /// The same of a result.
    pub(crate) fn of_output(&self, output: usize, layout: Layout) -> Option<i64> {
        self.of_outputs[output].get(&layout).copied()
    }
}
