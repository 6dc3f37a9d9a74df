//! The orders in which units are placed.

use std::cmp::Reverse;
use std::ops::Range;

use shard_ir::Picoseconds;

use super::place::{Asked, earliest_free, makers, occupy};
use super::units::{Busy, Unit};

/// Which unit of a copy is placed next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Order {
    /// The next of the program.
    Program,
    /// The one behind which most is left to do.
    Longest,
    /// The one that can start first.
    Soonest,
    /// The one that starts first where everything is run from the end backwards, each unit as late
    /// as what waits for it and its streams allow.
    Backward,
    /// The one that can start first; of these the one that starts first from the end backwards.
    SoonestBackward,
}

/// Units by how long everything takes that waits for them, they included, the longest first. What a
/// unit reads comes before it.
pub(super) fn longest_first(asked: Asked<'_>, units: Range<usize>) -> impl Iterator<Item = usize> {
    let mut left: Vec<Picoseconds> =
        units.clone().map(|unit| asked.stages.units[unit].time).collect();
    for unit in units.clone().rev() {
        for (by, of) in makers(asked, unit, 0) {
            if units.contains(&by) && of == 0 {
                let behind = left[unit - units.start] + asked.stages.units[by].time;
                left[by - units.start] = left[by - units.start].max(behind);
            }
        }
    }
    let mut order: Vec<usize> = units.clone().collect();
    order.sort_by_key(|unit| (Reverse(left[unit - units.start]), *unit));
    order.into_iter()
}

/// How long before the end each unit starts at the latest, where the units of one copy of each
/// stage are run from the end backwards: each time the one that can be done last, of equal ones the
/// last of the program.
pub(super) fn from_the_end(asked: Asked<'_>) -> Vec<Picoseconds> {
    let mut left = vec![Picoseconds(0); asked.stages.units.len()];
    for stage in &asked.stages.stages {
        stage_from_the_end(asked, stage.units.clone(), &mut left);
    }
    left
}

fn stage_from_the_end(asked: Asked<'_>, stage: Range<usize>, left: &mut [Picoseconds]) {
    let inside = |unit: usize| {
        let by = makers(asked, unit, 0).into_iter();
        by.filter(|(by, copy)| stage.contains(by) && *copy == 0).map(|(by, _)| by)
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

/// When a unit keeps its streams busy, from its end backwards.
fn turned(unit: &Unit) -> Vec<Busy> {
    let from_end = |time: Picoseconds| Picoseconds(unit.time.0.saturating_sub(time.0));
    let of = |busy: &Busy| Busy { from: from_end(busy.until), until: from_end(busy.from), ..*busy };
    unit.busy.iter().map(of).collect()
}
