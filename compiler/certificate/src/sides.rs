//! Side prices (`spec/certificate.md`): what places pay for their layouts to a label, whose places
//! all have one layout, and to the memory of a device, in which weights and caches have to fit.

use std::collections::BTreeSet;

use shard_ir::{Def, LabelId, Layout, LayoutPattern, ParameterKind, Program, ValueId, never};

use crate::format::{CertificateError, Part, Place, PriceSet, SidePrices};
use crate::kernel::local_bytes;
use crate::labels::{label_layout, layouts_of};
use crate::moves::Node;
use crate::prices::one_by_one;
use crate::space::Space;
use crate::sums::{NEVER, Sum, least, plus};

/// The weights and caches that are in memory at once, and the most bytes that they may take.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) values: Vec<ValueId>,
    pub(crate) most: u64,
}

/// The weights and caches among some parameters of a program; `present` counts in program order.
pub(crate) fn kept(program: &Program, present: &[usize], most: u64) -> Kept {
    let parameters: Vec<ValueId> = program.parameters().collect();
    let is_kept =
        |id: &ValueId| program.value(*id).def.parameter().is_some_and(ParameterKind::is_kept);
    let values =
        present.iter().filter_map(|at| parameters.get(*at).copied()).filter(is_kept).collect();
    Kept { values, most }
}

/// The side prices of a set of prices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sides {
    /// For each parameter or pin that pays anything, what it pays in each layout, to all labels and
    /// memories together; [`NEVER`] where the type allows none.
    values: Vec<Option<Vec<Sum>>>,
    results: Vec<Option<Vec<Sum>>>,
    /// For each label its layouts, and for each of them the cost: minus what the label's places
    /// pay.
    labels: Vec<Vec<(Layout, Sum)>>,
    /// The cost of all memories: for each memory the least, over all layouts of its weights and
    /// caches that fit, of minus what these pay.
    memories: Sum,
}

impl Sides {
    /// What a parameter or pin pays in a layout.
    pub(crate) fn of_value(&self, value: ValueId, node: Node) -> Sum {
        self.values[value.index()].as_ref().map_or(0, |paid| paid[node as usize])
    }

    /// What a result pays in a layout.
    pub(crate) fn of_result(&self, result: usize, node: Node) -> Sum {
        self.results[result].as_ref().map_or(0, |paid| paid[node as usize])
    }

    /// The same for another form, of `count` values: `now` maps each value of this form to the
    /// value of the other form that is the same, if there is one. Labels and memories are counted
    /// elsewhere.
    pub(crate) fn in_another_form(&self, count: usize, now: &[Option<ValueId>]) -> Sides {
        let mut values = vec![None; count];
        for (paid, now) in self.values.iter().zip(now) {
            if let Some(now) = now {
                values[now.index()].clone_from(paid);
            }
        }
        Sides { values, results: self.results.clone(), ..Sides::default() }
    }

    /// What places pay, without the costs of labels and memories.
    pub(crate) fn of_places(&self) -> Sides {
        Sides { values: self.values.clone(), results: self.results.clone(), ..Sides::default() }
    }

    /// The least cost of all labels and memories together, for these layouts of labels; for `&[]`
    /// over all layouts.
    pub(crate) fn least(&self, labels: &[Layout]) -> Sum {
        let of_label = |(label, layouts): (usize, &Vec<(Layout, Sum)>)| {
            let wanted = labels.get(label);
            least(
                layouts
                    .iter()
                    .filter(|(layout, _)| wanted.is_none_or(|wanted| wanted == layout))
                    .map(|(_, sum)| *sum),
            )
        };
        self.labels.iter().enumerate().map(of_label).fold(self.memories, plus)
    }
}

impl Space<'_> {
    /// The layouts that the type of a place allows, in their order: those for which it has side
    /// prices. `None` of what is no place.
    pub fn allowed_at(&self, place: Place) -> Option<&[Node]> {
        match place {
            Place::Value(value) => {
                let def = &self.program.values.get(value as usize)?.def;
                let bears_one = matches!(def, Def::Parameter { .. } | Def::Pin { .. });
                bears_one.then(|| self.ways[value as usize].out.as_slice())
            }
            Place::Result(i) => self.results.get(i).map(Vec::as_slice),
        }
    }

    /// The layout with a number at a place; `None` of a hub or of what is no place.
    pub fn layout_at(&self, place: Place, node: Node) -> Option<Layout> {
        let value = match place {
            Place::Value(value) => value as usize,
            Place::Result(i) => self.program.outputs.get(i)?.value.index(),
        };
        self.moves[value].layouts.get(node as usize).copied()
    }

    /// All labels of the program, then all memories.
    pub fn parts(&self) -> Vec<Part> {
        let labels = (0..self.program.labels.len() as u16).map(Part::Label);
        labels.chain((0..self.memories.len()).map(Part::Memory)).collect()
    }

    /// The places whose layouts a label or a memory constrains.
    pub fn places_of(&self, part: Part) -> Vec<Place> {
        let label = match part {
            Part::Label(label) => label,
            Part::Memory(memory) => {
                let kept = self.memories.get(memory).map_or(&[][..], |kept| kept.values.as_slice());
                return kept.iter().map(|id| Place::Value(id.0)).collect();
            }
        };
        let bears = |pattern: &LayoutPattern| pattern.label == Some(LabelId(label));
        let pattern = |id: ValueId| self.program.value(id).def.pattern();
        let values = self.present.iter().filter(|id| pattern(**id).is_some_and(bears));
        let results =
            (0..self.program.outputs.len()).filter(|i| bears(&self.program.outputs[*i].pattern));
        values.map(|id| Place::Value(id.0)).chain(results.map(Place::Result)).collect()
    }

    /// The bytes that a weight or a cache takes on a device in a layout, over the whole stack.
    pub(crate) fn stored_bytes(&self, value: ValueId, layout: Layout) -> u64 {
        let bytes =
            local_bytes(self.program, value, layout).saturating_mul(self.program.copies(value));
        bytes.saturating_mul(self.program.repeat)
    }

    /// Reads the side prices of a set. Side prices that do not fit the program are refused.
    pub(crate) fn sides(&self, set: &PriceSet) -> Result<Sides, CertificateError> {
        let mut sides = Sides {
            values: vec![None; self.program.values.len()],
            results: vec![None; self.program.outputs.len()],
            ..Sides::default()
        };
        let mut seen = BTreeSet::new();
        let mut paid_to: Vec<(&SidePrices, Vec<Sum>)> = Vec::new();
        for side in &set.sides {
            let what = || format!("there are prices of {:?} for {:?}", side.place, side.to);
            let asked = self.places_of(side.to).contains(&side.place);
            let allowed = self.allowed_at(side.place).filter(|_| asked);
            let allowed = allowed.ok_or_else(|| {
                CertificateError::new(format!("{}, which asks nothing of it", what()))
            })?;
            if !seen.insert((side.to, side.place)) {
                return Err(CertificateError::new(format!("{} twice", what())));
            }
            let prices = one_by_one(&side.paid, allowed.len()).ok_or_else(|| {
                CertificateError::new(format!("{}, and not one for each layout", what()))
            })?;
            let (all, nodes) = match side.place {
                Place::Value(value) => {
                    (&mut sides.values[value as usize], self.moves[value as usize].nodes())
                }
                Place::Result(i) => (
                    &mut sides.results[i],
                    self.moves[self.program.outputs[i].value.index()].nodes(),
                ),
            };
            let all = all.get_or_insert_with(|| vec![0; nodes]);
            allowed
                .iter()
                .zip(&prices)
                .for_each(|(node, price)| all[*node as usize] += Sum::from(*price));
            paid_to.push((side, prices.into_iter().map(Sum::from).collect()));
        }
        let labels = (0..self.program.labels.len() as u16).map(|label| self.label(label, &paid_to));
        sides.labels = labels.collect();
        let memories = (0..self.memories.len()).map(|memory| self.memory(memory, &paid_to));
        sides.memories = memories.fold(0, plus);
        Ok(sides)
    }

    /// The cost of a label in each of its layouts: minus what its places pay for the layout.
    fn label(&self, label: u16, paid: &[(&SidePrices, Vec<Sum>)]) -> Vec<(Layout, Sum)> {
        let to_it: Vec<_> = paid.iter().filter(|(side, _)| side.to == Part::Label(label)).collect();
        let seen_by_label = |place: Place, node: Node| {
            let value = match place {
                Place::Value(value) => ValueId(value),
                Place::Result(i) => self.program.outputs[i].value,
            };
            self.layout_at(place, node)
                .map(|layout| label_layout(&self.program.value(value).dims, layout))
        };
        let cost = |layout: &Layout| {
            to_it.iter().fold(0, |sum, (side, prices)| {
                let nodes = self.allowed_at(side.place).unwrap_or_else(|| {
                    never!("a price at a place of which a label asks nothing", &[])
                });
                let here = nodes
                    .iter()
                    .zip(prices)
                    .filter(|(n, _)| seen_by_label(side.place, **n) == Some(*layout));
                plus(sum, least(here.map(|(_, price)| -price)))
            })
        };
        let mut layouts = layouts_of(self.program, LabelId(label));
        if let Some(left) = self.within.layouts(LabelId(label)) {
            layouts.retain(|layout| left.contains(layout));
        }
        layouts.into_iter().map(|layout| (layout, cost(&layout))).collect()
    }

    /// The cost of a memory: the least, over all choices of layouts for its weights and caches that
    /// fit together, of minus what these pay for their layouts.
    fn memory(&self, memory: usize, paid: &[(&SidePrices, Vec<Sum>)]) -> Sum {
        let Kept { values, most } = &self.memories[memory];
        // The choices for the values so far, as bytes and costs. They are sorted by bytes, and each
        // costs less than all before it.
        let mut chosen: Vec<(u64, Sum)> = vec![(0, 0)];
        for value in values {
            let place = Place::Value(value.0);
            let prices = paid
                .iter()
                .find(|(side, _)| side.to == Part::Memory(memory) && side.place == place);
            let nodes = self
                .allowed_at(place)
                .unwrap_or_else(|| never!("something kept that is no parameter", &[]));
            let pattern = self.program.value(*value).def.pattern();
            let is_left = |node: Node| {
                self.may_be_stored(*value, node)
                    && pattern.is_none_or(|p| self.allows(&[], p, *value, node))
            };
            let choices = nodes.iter().enumerate().filter(|(_, node)| is_left(**node)).filter_map(
                |(i, node)| {
                    let bytes = self.stored_bytes(*value, self.layout_at(place, *node)?);
                    Some((bytes, prices.map_or(0, |(_, prices)| -prices[i])))
                },
            );
            let choices = best_first(choices.collect());
            let both = chosen.iter().flat_map(|(bytes, cost)| {
                choices.iter().map(move |(more, other)| (bytes.saturating_add(*more), cost + other))
            });
            chosen = at_most(best_first(both.filter(|(bytes, _)| bytes <= most).collect()));
        }
        chosen.last().map_or(NEVER, |(_, cost)| *cost)
    }
}

/// The choices that no other choice beats in both bytes and cost, fewer bytes first.
fn best_first(mut choices: Vec<(u64, Sum)>) -> Vec<(u64, Sum)> {
    choices.sort_unstable();
    let mut best: Vec<(u64, Sum)> = Vec::new();
    for (bytes, cost) in choices {
        if best.last().is_none_or(|(_, known)| cost < *known) {
            best.push((bytes, cost));
        }
    }
    best
}

/// The most choices of layouts that are kept for a memory.
const MOST_CHOICES: usize = 4096;

/// At most [`MOST_CHOICES`] choices. Neighbours are merged into one with the bytes of the smaller
/// and the cost of the cheaper, so that the result is still a lower bound.
fn at_most(mut choices: Vec<(u64, Sum)>) -> Vec<(u64, Sum)> {
    while choices.len() > MOST_CHOICES {
        choices = choices.chunks(2).map(|two| (two[0].0, two[two.len() - 1].1)).collect();
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_that_another_beats_are_dropped_and_many_are_rounded_down() {
        assert_eq!(best_first(vec![(4, 1), (2, 7), (3, 8), (4, 0), (9, 0)]), [(2, 7), (4, 0)]);
        let many: Vec<(u64, Sum)> = (0..5000).map(|i| (i, -Sum::from(i))).collect();
        let fewer = at_most(many);
        assert_eq!((fewer.len(), fewer[0], fewer[2499]), (2500, (0, -1), (4998, -4999)));
    }
}
