//! The orders in which units are placed.

use std::cmp::Reverse;
use std::ops::Range;

use shard_ir::Picoseconds;

use super::place::{Asked, earliest_free, makers, occupy};
use super::stages::UnitCopy;
use super::units::{Busy, Unit};

/// Which unit of a copy is placed next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Order {
    /// The next unit of the program.
    Program,
    /// The unit whose chain of units that wait for it takes longest ([`longest_first`]).
    Longest,
    /// The unit that can start first.
    Soonest,
    /// The unit that starts first if all units are run as late as they can be ([`from_the_end`]).
    Backward,
    /// The unit that can start first; of several the one that [`Order::Backward`] takes.
    SoonestBackward,
}

/// Units by the time of the longest chain of units that begins with them, each of which waits for
/// the one before it; the longest first. A unit comes after those that it waits for.
pub(super) fn longest_first(asked: Asked<'_>, units: Range<usize>) -> impl Iterator<Item = usize> {
    let mut left: Vec<Picoseconds> =
        units.clone().map(|unit| asked.stages.units[unit].time).collect();
    for unit in units.clone().rev() {
        for UnitCopy { unit: by, copy } in makers(asked, UnitCopy { unit, copy: 0 }) {
            if units.contains(&by) && copy == 0 {
                let behind = left[unit - units.start] + asked.stages.units[by].time;
                left[by - units.start] = left[by - units.start].max(behind);
            }
        }
    }
    let mut order: Vec<usize> = units.clone().collect();
    order.sort_by_key(|unit| (Reverse(left[unit - units.start]), *unit));
    order.into_iter()
}

/// For each unit how long before the end it starts, if the units of one copy of each stage are
/// placed from the end backwards: each time the unit that can finish last, of several the last of
/// the program.
pub(super) fn from_the_end(asked: Asked<'_>) -> Vec<Picoseconds> {
    let mut left = vec![Picoseconds(0); asked.stages.units.len()];
    for stage in &asked.stages.stages {
        stage_from_the_end(asked, stage.units.clone(), &mut left);
    }
    left
}

fn stage_from_the_end(asked: Asked<'_>, stage: Range<usize>, left: &mut [Picoseconds]) {
    let inside = |unit: usize| {
        let by = makers(asked, UnitCopy { unit, copy: 0 }).into_iter();
        by.filter(|by| stage.contains(&by.unit) && by.copy == 0).map(|by| by.unit)
    };
    let number = |unit: usize| unit - stage.start;
    let mut waited_for = vec![0usize; stage.len()];
    stage.clone().flat_map(inside).for_each(|by| waited_for[number(by)] += 1);
    let busy: Vec<Vec<Busy>> =
        stage.clone().map(|unit| turned(&asked.stages.units[unit])).collect();
    let mut taken = vec![Vec::new(); asked.streams.names().len()];
    let mut ready = vec![Picoseconds(0); stage.len()];
    let mut waiting: Vec<usize> =
        stage.clone().filter(|unit| waited_for[number(*unit)] == 0).collect();
    loop {
        let start = |unit: usize| earliest_free(&taken, &busy[number(unit)], ready[number(unit)]);
        let next = waiting.iter().map(|unit| (start(*unit), Reverse(*unit))).min();
        let Some((start, Reverse(unit))) = next else { break };
        occupy(&mut taken, &busy[number(unit)], start);
        left[unit] = start + asked.stages.units[unit].time;
        waiting.retain(|other| *other != unit);
        for by in inside(unit) {
            ready[number(by)] = ready[number(by)].max(left[unit]);
            waited_for[number(by)] -= 1;
            if waited_for[number(by)] == 0 {
                waiting.push(by);
            }
        }
    }
}

/// When a unit keeps its streams busy, counted from its end backwards.
fn turned(unit: &Unit) -> Vec<Busy> {
    let from_end = |time: Picoseconds| Picoseconds(unit.time.0.saturating_sub(time.0));
    let of = |busy: &Busy| Busy { from: from_end(busy.until), until: from_end(busy.from), ..*busy };
    unit.busy.iter().map(of).collect()
}
