//! The cheapest moves that bring a value from the one layout in which it is made to all the layouts
//! in which it is wanted, each move counted once: a Steiner arborescence in the value's graph of
//! layouts (Dreyfus and Wagner, 1971).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cost::Cost;
use crate::table::{LayoutId, ValueTable};

/// For one value and one set of wanted layouts: the least cost of reaching them all from each
/// layout.
#[derive(Debug)]
pub(crate) struct Steiner {
    wanted: Vec<LayoutId>,
    /// `cost[set][layout]`, sets of wanted layouts as bits; `cost[0]` is not used.
    cost: Vec<Vec<Cost>>,
    /// How the cost comes about.
    step: Vec<Vec<Step>>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// It does not.
    None,
    /// The layout is the one wanted.
    Here,
    /// A move to another layout, and on from there.
    Move(LayoutId),
    /// The set falls in two, both reached from here.
    Fork(usize),
}

/// More wanted layouts of one value than this are reached in groups, nearest first: the number of
/// sets doubles with each.
pub(crate) const MAX_WANTED: usize = 8;

impl Steiner {
    /// Solves for all layouts at once. `wanted` has at least one layout, each once, and at most
    /// [`MAX_WANTED`].
    pub(crate) fn new(table: &ValueTable, wanted: &[LayoutId]) -> Steiner {
        Steiner::within(table, wanted, &|_, _| true)
    }

    /// The same by some of the moves, told by where they lead from and to.
    pub(crate) fn within(
        table: &ValueTable,
        wanted: &[LayoutId],
        allowed: &dyn Fn(LayoutId, LayoutId) -> bool,
    ) -> Steiner {
        let layouts = table.layouts.len();
        let sets = 1usize << wanted.len();
        let mut cost = vec![vec![Cost::MAX; layouts]; sets];
        let mut step = vec![vec![Step::None; layouts]; sets];
        for set in 1..sets {
            if set.count_ones() == 1 {
                let at = wanted[set.trailing_zeros() as usize] as usize;
                cost[set][at] = Cost::ZERO;
                step[set][at] = Step::Here;
            } else {
                // Each way of splitting the set in two, once.
                let low = set & set.wrapping_neg();
                let mut part = (set - 1) & set;
                while part > 0 {
                    if part & low != 0 {
                        for layout in 0..layouts {
                            let (a, b) = (cost[part][layout], cost[set ^ part][layout]);
                            if a.time == u64::MAX || b.time == u64::MAX {
                                continue;
                            }
                            let both = a + b;
                            if both < cost[set][layout] {
                                cost[set][layout] = both;
                                step[set][layout] = Step::Fork(part);
                            }
                        }
                    }
                    part = (part - 1) & set;
                }
            }
            relax(table, (&mut cost[set], &mut step[set]), allowed);
        }
        Steiner { wanted: wanted.to_vec(), cost, step }
    }

    /// The least cost of reaching all wanted layouts from one, if that is possible.
    pub(crate) fn cost_from(&self, layout: LayoutId) -> Option<Cost> {
        let cost = self.cost.last()?.get(layout as usize).copied()?;
        (cost.time < u64::MAX).then_some(cost)
    }

    /// All wanted layouts as a set.
    pub(crate) fn all(&self) -> usize {
        (1 << self.wanted.len()) - 1
    }

    /// Whether a set is of one layout, and that is this one.
    pub(crate) fn is_here(&self, set: usize, layout: LayoutId) -> bool {
        set.is_power_of_two() && self.wanted[set.trailing_zeros() as usize] == layout
    }

    /// The least cost of reaching a set from a layout, if that is possible.
    pub(crate) fn cost_of(&self, set: usize, layout: LayoutId) -> Option<Cost> {
        let cost = self.cost.get(set)?.get(layout as usize).copied()?;
        (cost.time < u64::MAX).then_some(cost)
    }

    /// One of the wanted layouts as a set.
    pub(crate) fn set_of(&self, wanted: LayoutId) -> Option<usize> {
        Some(1 << self.wanted.iter().position(|layout| *layout == wanted)?)
    }

    /// The moves of the cheapest arborescence, `(from, to)`, each after those that it starts from.
    pub(crate) fn moves_from(&self, layout: LayoutId) -> Vec<(LayoutId, LayoutId)> {
        let mut moves = Vec::new();
        let mut open = vec![((1usize << self.wanted.len()) - 1, layout)];
        while let Some((set, at)) = open.pop() {
            match self.step[set][at as usize] {
                Step::None | Step::Here => {}
                Step::Move(to) => {
                    if !moves.contains(&(at, to)) {
                        moves.push((at, to));
                    }
                    open.push((set, to));
                }
                Step::Fork(part) => {
                    open.push((set ^ part, at));
                    open.push((part, at));
                }
            }
        }
        moves
    }
}

/// Dijkstra against the direction of the moves, from every layout that already has a cost.
fn relax(
    table: &ValueTable,
    (cost, step): (&mut [Cost], &mut [Step]),
    allowed: &dyn Fn(LayoutId, LayoutId) -> bool,
) {
    let mut queue: BinaryHeap<Reverse<(Cost, LayoutId)>> = cost
        .iter()
        .enumerate()
        .filter(|(_, c)| c.time < u64::MAX)
        .map(|(layout, c)| Reverse((*c, layout as LayoutId)))
        .collect();
    while let Some(Reverse((reached, at))) = queue.pop() {
        if reached > cost[at as usize] {
            continue;
        }
        for arc in table.arcs_into[at as usize].iter().filter(|arc| allowed(arc.from, at)) {
            let through = reached + arc.cost;
            if through < cost[arc.from as usize] {
                cost[arc.from as usize] = through;
                step[arc.from as usize] = Step::Move(at);
                queue.push(Reverse((through, arc.from)));
            }
        }
    }
}
