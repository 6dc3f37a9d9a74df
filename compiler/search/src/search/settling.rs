//! Every way of settling what a state wants next, with a bound on the plans that take it.

use std::rc::Rc;

use shard_ir::ValueId;

use super::states::{Pick, State, Want, WayToSettle};
use super::ways::WaysToSettle;
use super::{Search, Slot};
use crate::bound::is_finite;
use crate::cost::Cost;
use crate::steiner::{MAX_WANTED, Steiner};
use crate::table::LayoutId;

impl Search<'_> {
    /// What any plan costs at least that takes this pick; `None` where there is no such tree.
    pub(super) fn bound(&self, state: &State, pick: Pick) -> Option<Cost> {
        let settled = match self.slots.get(state.slots) {
            Some(_) => None,
            None => state.next_value(),
        };
        let is_settled = |value: ValueId| Some(value) == settled;
        let others = state.to_come.iter().filter(|of| !is_settled(of.value));
        let rest: Cost = others.map(|of| of.least).sum();
        let way = &state.ways.all[pick.way as usize];
        // With tree 0 a pick stands for all ways behind it too; with another tree, for that alone.
        let (least, more) = match (settled, pick.tree) {
            (_, 0) => (way.bound, 0),
            (None, _) => return None,
            (Some(value), _) => {
                let moves = self.cost_of_moves(state, pick)?;
                let made = &self.tables.of(value).producers[way.made_in as usize];
                let least = self.least_costs.of_producer(&made[way.producer]);
                (least + moves, moves.time.saturating_sub(way.moves.time))
            }
        };
        let bound = state.cost + rest + least;
        Some(match &self.guided {
            None => bound,
            Some(guided) => {
                let known = state.to_come.iter().find(|of| is_settled(of.value));
                let priced = guided
                    .ticks(state.cost.time)
                    .saturating_add(state.rest)
                    .saturating_sub(known.map_or(0, |of| of.paid))
                    .saturating_add(way.priced)
                    .saturating_add(guided.ticks(more));
                // The sum of the least costs may be the greater bound where prices are far apart,
                // as with labels.
                Cost { time: bound.time.max(guided.picoseconds(priced)), ..bound }
            }
        })
    }

    /// The ways of settling what a state wants next, best bound first.
    pub(super) fn ways(&mut self, state: &State) -> Rc<WaysToSettle> {
        match self.slots.get(state.slots) {
            Some(Slot::Label(label)) => Rc::clone(&self.label_ways[label.0 as usize]),
            Some(Slot::Output(output)) => {
                let value = self.program.outputs[*output].value;
                let mut all: Vec<WayToSettle> = self.output_layouts[*output]
                    .iter()
                    .filter_map(|layout| {
                        let bound = self.least_costs.of(value, *layout);
                        let (cost, moves) = (Cost::ZERO, Cost::ZERO);
                        let priced = match &self.guided {
                            None => 0,
                            Some(guided) => guided.of_output(
                                *output,
                                value,
                                self.tables.of(value).layouts[*layout as usize],
                            )?,
                        };
                        Some(WayToSettle {
                            bound,
                            cost,
                            moves,
                            made_in: *layout,
                            producer: 0,
                            priced,
                        })
                    })
                    .filter(|way| is_finite(way.bound))
                    .collect();
                all.sort_by_key(|way| (way.priced, way.bound, way.made_in));
                self.bound_those_behind(&mut all);
                Rc::new(WaysToSettle::of_slot(all))
            }
            None => match state.next_value() {
                None => Rc::default(),
                Some(value) => {
                    let wants = state.wanted_next();
                    if let Some(known) = self.ways.get(wants) {
                        return Rc::clone(known);
                    }
                    let found = Rc::new(self.ways_of(value, wants));
                    self.ways.insert(wants.into(), Rc::clone(&found));
                    found
                }
            },
        }
    }

    /// Every way of making a value once and bringing it to all wanted layouts, best bound first.
    fn ways_of(&mut self, value: ValueId, wants: &[Want]) -> WaysToSettle {
        let mut wanted: Vec<LayoutId> = wants.iter().map(|w| w.layout).collect();
        wanted.dedup();
        let mut direct = wants.iter().filter(|w| w.direct).map(|w| w.layout);
        let only = direct.next();
        if direct.any(|layout| Some(layout) != only) {
            return WaysToSettle::default();
        }
        let trees: Vec<Rc<Steiner>> =
            wanted.chunks(MAX_WANTED).map(|part| self.steiner(value, part)).collect();
        self.approximate |= trees.len() > 1;
        let table = self.tables.of(value);
        let mut found = Vec::new();
        for made_in in 0..table.layouts.len() as LayoutId {
            if only.is_some_and(|layout| layout != made_in)
                || table.producers[made_in as usize].is_empty()
            {
                continue;
            }
            let Some(moves) =
                trees.iter().try_fold(Cost::ZERO, |sum, t| Some(sum + t.cost_from(made_in)?))
            else {
                continue;
            };
            for (producer, made) in table.producers[made_in as usize].iter().enumerate() {
                let least = self.least_costs.of_producer(made);
                if !is_finite(least) {
                    continue;
                }
                let (bound, cost) = (least + moves, made.cost);
                let priced = match &self.guided {
                    None => Some(0),
                    Some(guided) => {
                        let layout = table.layouts[made_in as usize];
                        let more = guided.of_producer(value, layout, made);
                        more.map(|more| more.saturating_add(guided.ticks((cost + moves).time)))
                    }
                };
                if let Some(priced) = priced {
                    found.push(WayToSettle { bound, cost, moves, made_in, producer, priced });
                }
            }
        }
        found.sort_by_key(|way| {
            (way.priced, way.bound, way.cost + way.moves, way.made_in, way.producer)
        });
        self.bound_those_behind(&mut found);
        WaysToSettle::of_value(found, trees)
    }

    /// Lowers the bound of each way to the least of its own and of those behind it. A way waits on
    /// the heap for all ways behind it. By prices these take as long or longer, but their least
    /// costs and what breaks ties may be less.
    fn bound_those_behind(&self, all: &mut [WayToSettle]) {
        if self.guided.is_none() {
            return;
        }
        let (mut time, mut least) = (u64::MAX, Cost::MAX);
        for way in all.iter_mut().rev() {
            time = time.min(way.bound.time);
            least = least.min(Cost { time: 0, ..way.bound });
            way.bound = Cost { time, ..least };
        }
    }

    fn steiner(&mut self, value: ValueId, wanted: &[LayoutId]) -> Rc<Steiner> {
        let table = self.tables.of(value);
        let rows = self.steiner_rows.entry(value).or_default();
        let entry = self.steiner.entry((value, wanted.to_vec()));
        Rc::clone(entry.or_insert_with(|| Rc::new(Steiner::new(table, wanted, rows))))
    }
}
