//! The cheapest moves that bring a value from the one layout in which it is made to all layouts in
//! which it is wanted, each move counted once: a Steiner arborescence in the value's graph of
//! layouts (Dreyfus and Wagner, 1971).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::cost::Cost;
use crate::table::{LayoutId, ValueTable};

/// The solution for one value and one list of wanted layouts: the least cost of reaching any set of
/// these from each layout.
#[derive(Debug)]
pub(crate) struct Steiner {
    wanted: Vec<LayoutId>,
    /// A row for each set of wanted layouts, indexed by its bits; the row of the empty set is not
    /// used.
    rows: Vec<Rc<Row>>,
}

/// The least cost of reaching all layouts of one list, from each layout.
#[derive(Debug, Default)]
pub(crate) struct Row {
    cost: Vec<Cost>,
    /// For each layout, the first step of the cheapest way from there.
    step: Vec<HowReached>,
}

/// The rows of one value for each list of wanted layouts that was solved. The row of a list does
/// not depend on what else is wanted.
pub(crate) type KnownRows = FxHashMap<Box<[LayoutId]>, Rc<Row>>;

#[derive(Clone, Copy, Debug)]
enum HowReached {
    /// The list cannot be reached.
    None,
    /// The layout is the only one of the list.
    Here,
    /// A move to this layout, and on from there.
    Move(LayoutId),
    /// The list is divided in two parts, both reached from here; the bits of the list are those of
    /// one part.
    Fork(usize),
}

/// More wanted layouts than this are reached in groups, nearest first: the number of sets doubles
/// with each layout.
pub(crate) const MAX_WANTED: usize = 8;

impl Steiner {
    /// Solves for all layouts at once. `wanted` has 1 to [`MAX_WANTED`] layouts, each once.
    pub(crate) fn new(table: &ValueTable, wanted: &[LayoutId], known: &mut KnownRows) -> Steiner {
        Steiner::by(table, wanted, &|_, _| true, known)
    }

    /// The same with only those moves for which `allowed` says yes, given their first and last
    /// layouts.
    pub(crate) fn within(
        table: &ValueTable,
        wanted: &[LayoutId],
        allowed: &dyn Fn(LayoutId, LayoutId) -> bool,
    ) -> Steiner {
        Steiner::by(table, wanted, allowed, &mut KnownRows::default())
    }

    fn by(
        table: &ValueTable,
        wanted: &[LayoutId],
        allowed: &dyn Fn(LayoutId, LayoutId) -> bool,
        known: &mut KnownRows,
    ) -> Steiner {
        let mut rows: Vec<Rc<Row>> = vec![Rc::default()];
        for set in 1..1usize << wanted.len() {
            let list: Box<[LayoutId]> =
                (0..wanted.len()).filter(|n| set & 1 << n != 0).map(|n| wanted[n]).collect();
            let row = match known.get(&list) {
                Some(row) => Rc::clone(row),
                None => {
                    let row =
                        Rc::new(Row::of(table, &list, &|part| &*rows[spread(part, set)], allowed));
                    known.insert(list, Rc::clone(&row));
                    row
                }
            };
            rows.push(row);
        }
        Steiner { wanted: wanted.to_vec(), rows }
    }

    /// The least cost of reaching all wanted layouts from a layout, if that is possible.
    pub(crate) fn cost_from(&self, layout: LayoutId) -> Option<Cost> {
        let cost = self.rows.last()?.cost.get(layout as usize).copied()?;
        (cost.time < u64::MAX).then_some(cost)
    }

    /// The set of all wanted layouts.
    pub(crate) fn all(&self) -> usize {
        (1 << self.wanted.len()) - 1
    }

    /// Whether a set has this layout alone.
    pub(crate) fn is_here(&self, set: usize, layout: LayoutId) -> bool {
        set.is_power_of_two() && self.wanted[set.trailing_zeros() as usize] == layout
    }

    /// The least cost of reaching a set from a layout, if that is possible.
    pub(crate) fn cost_of(&self, set: usize, layout: LayoutId) -> Option<Cost> {
        let cost = self.rows.get(set)?.cost.get(layout as usize).copied()?;
        (cost.time < u64::MAX).then_some(cost)
    }

    /// The set of one wanted layout; `None` if the layout is not wanted.
    pub(crate) fn set_of(&self, wanted: LayoutId) -> Option<usize> {
        Some(1 << self.wanted.iter().position(|layout| *layout == wanted)?)
    }

    /// The moves `(from, to)` of the cheapest arborescence from a layout, each after the moves that
    /// it starts from.
    pub(crate) fn moves_from(&self, layout: LayoutId) -> Vec<(LayoutId, LayoutId)> {
        let mut moves = Vec::new();
        let mut open = vec![((1usize << self.wanted.len()) - 1, layout)];
        while let Some((set, at)) = open.pop() {
            match self.rows[set].step[at as usize] {
                HowReached::None | HowReached::Here => {}
                HowReached::Move(to) => {
                    if !moves.contains(&(at, to)) {
                        moves.push((at, to));
                    }
                    open.push((set, to));
                }
                HowReached::Fork(part) => {
                    let part = spread(part, set);
                    open.push((set ^ part, at));
                    open.push((part, at));
                }
            }
        }
        moves
    }
}

impl Row {
    /// The row of a list; `row` gives the rows of its parts, by the bits of the list.
    fn of<'r>(
        table: &ValueTable,
        list: &[LayoutId],
        row: &dyn Fn(usize) -> &'r Row,
        allowed: &dyn Fn(LayoutId, LayoutId) -> bool,
    ) -> Row {
        let layouts = table.layouts.len();
        let mut made =
            Row { cost: vec![Cost::MAX; layouts], step: vec![HowReached::None; layouts] };
        if let [only] = list {
            made.cost[*only as usize] = Cost::ZERO;
            made.step[*only as usize] = HowReached::Here;
        } else {
            // Each division of the list in two, once.
            let all = (1usize << list.len()) - 1;
            for part in (1..all).rev().filter(|part| part & 1 != 0) {
                let (one, other) = (row(part), row(all ^ part));
                for layout in 0..layouts {
                    let (a, b) = (one.cost[layout], other.cost[layout]);
                    if a.time == u64::MAX || b.time == u64::MAX {
                        continue;
                    }
                    let both = a + b;
                    if both < made.cost[layout] {
                        made.cost[layout] = both;
                        made.step[layout] = HowReached::Fork(part);
                    }
                }
            }
        }
        relax(table, &mut made, allowed);
        made
    }
}

/// Bits of a list as bits of a longer list, of which the list has the entries in `set`.
fn spread(part: usize, set: usize) -> usize {
    let places = (0..usize::BITS as usize).filter(|n| set & 1 << n != 0);
    places.enumerate().filter(|(n, _)| part & 1 << n != 0).map(|(_, place)| 1 << place).sum()
}

/// Dijkstra against the direction of the moves, from every layout that has a cost.
fn relax(
    table: &ValueTable,
    Row { cost, step }: &mut Row,
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
                step[arc.from as usize] = HowReached::Move(at);
                queue.push(Reverse((through, arc.from)));
            }
        }
    }
}
