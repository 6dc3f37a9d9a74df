//! The report on a program: its collectives by the lines that they come from.

use std::collections::BTreeMap;

use shard_cost::{Bytes, Hardware};
use shard_ir::{Mesh, Picoseconds};
use shard_report::scale;

use crate::axes::NamedMesh;
use crate::collectives::{Collective, Kind, Program};
use crate::compare::Comparison;
use crate::hlo::tables::Place;
use crate::price;

/// What the busiest device sends in one run of the program, and the time of all collectives one
/// after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Bytes.
    pub wire_bytes: u64,
    /// The time on the chip; `None` if no chip is named, or some collective has no time.
    pub time: Option<Picoseconds>,
}

impl Totals {
    fn none(priced: bool) -> Totals {
        Totals { wire_bytes: 0, time: priced.then_some(Picoseconds(0)) }
    }

    /// Adds the bytes and the time of something else.
    pub fn add(&mut self, other: Totals) {
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
        self.time = self.time.zip(other.time).map(|(a, b)| a + b);
    }
}

/// A line of the program's source, and what it sends.
#[derive(Clone, Debug)]
pub struct Line {
    /// The line; `None` for collectives of which XLA has no line.
    pub place: Option<Place>,
    /// The text of the line, if its file can be read.
    pub text: Option<String>,
    /// What it sends.
    pub totals: Totals,
    /// Its collectives as indices of the program, the dearest first.
    pub collectives: Vec<usize>,
}

/// Everything that an audit finds.
#[derive(Clone, Debug)]
pub struct Report {
    /// The dump, as the user named it.
    pub file: String,
    /// What it sends.
    pub program: Program,
    /// The mesh, where it is known.
    pub mesh: Option<Vec<(String, u64)>>,
    /// The chip, where one is named.
    pub chip: Option<String>,
    /// For each collective its bytes and time in one run.
    pub costs: Vec<Totals>,
    /// The sum.
    pub totals: Totals,
    /// The source lines, the dearest first.
    pub lines: Vec<Line>,
    /// The comparison with the program before partitioning, if that is given.
    pub comparison: Option<Comparison>,
}

/// Gives the text of a line of the program's source, if it can be read.
pub type Lines<'a> = &'a mut dyn FnMut(&Place) -> Option<String>;

impl Report {
    /// Puts a report together. `lines` reads lines of the program's source.
    pub fn new(
        file: &str,
        program: Program,
        mesh: Option<&NamedMesh>,
        hardware: Option<&Hardware>,
        lines: Lines<'_>,
    ) -> Report {
        let named = mesh.unwrap_or_default();
        let known = Mesh::new(named.iter().cloned()).ok();
        let costs: Vec<Totals> = program
            .collectives
            .iter()
            .map(|one| {
                let once = hardware
                    .zip(known.as_ref())
                    .and_then(|(hardware, mesh)| price::time(hardware, named, mesh, one));
                let executions = u64::try_from(one.executions).unwrap_or(u64::MAX);
                Totals { wire_bytes: one.wire_bytes(), time: once.map(|t| t.times(executions)) }
            })
            .collect();
        let mut totals = Totals::none(hardware.is_some());
        costs.iter().for_each(|cost| totals.add(*cost));
        let by_line = by_line(&program, &costs, lines, hardware.is_some());
        Report {
            file: file.to_string(),
            program,
            mesh: mesh.map(<[(String, u64)]>::to_vec),
            chip: hardware.map(|hardware| hardware.name.clone()),
            costs,
            totals,
            lines: by_line,
            comparison: None,
        }
    }

    /// The totals of all collectives by a property of theirs, in the order of the property.
    pub fn sums<K: Ord>(&self, by: impl Fn(&Collective) -> K) -> BTreeMap<K, Totals> {
        let mut sums = BTreeMap::new();
        for (one, cost) in self.program.collectives.iter().zip(&self.costs) {
            sums.entry(by(one)).or_insert(Totals::none(self.chip.is_some())).add(*cost);
        }
        sums
    }

    /// The totals of the collectives that the program has written by hand.
    pub fn by_hand(&self) -> Totals {
        let mut found = Totals::none(self.chip.is_some());
        let all = self.program.collectives.iter().zip(&self.costs);
        all.filter(|(one, _)| one.is_by_hand()).for_each(|(_, cost)| found.add(*cost));
        found
    }

    /// The names of the axes of a collective, or its groups if it runs along no known axes.
    pub fn over(&self, one: &Collective) -> String {
        match (&one.axes, &self.mesh) {
            (Some(axes), Some(mesh)) if !axes.is_empty() => {
                axes.iter().map(|axis| mesh[*axis].0.as_str()).collect::<Vec<_>>().join(", ")
            }
            _ => one.groups_text(),
        }
    }

    /// The share of all collectives, from 0 to 1: of the time if it is known, else of the bytes.
    pub fn share(&self, of: Totals) -> f64 {
        let ratio = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        match (of.time, self.totals.time) {
            (Some(part), Some(all)) => ratio(part.0, all.0),
            _ => ratio(of.wire_bytes, self.totals.wire_bytes),
        }
    }
}

impl Collective {
    /// `groups of 4: 0 1 2 3, ...`.
    pub fn groups_text(&self) -> String {
        use crate::collectives::Members;
        let some = |devices: &[u64]| {
            let text: Vec<String> = devices.iter().take(8).map(u64::to_string).collect();
            format!("{}{}", text.join(" "), if devices.len() > 8 { " .." } else { "" })
        };
        match &self.members {
            Members::Groups(groups) => match &groups.groups[..] {
                [only] => format!("devices {}", some(only)),
                [first, ..] => format!("groups of {}: {}, ..", first.len(), some(first)),
                [] => "no device".to_string(),
            },
            Members::Pairs(pairs) => match &pairs[..] {
                [(from, to), ..] => format!("{} pairs: {from} to {to}, ..", pairs.len()),
                [] => "no pair".to_string(),
            },
        }
    }

    /// Sentences on why the collective is there, as far as the dump shows, the most important
    /// first.
    pub fn causes(&self) -> Vec<String> {
        let flow = &self.flow;
        let mut found = Vec::new();
        let in_loop = !self.loops.is_empty();
        if let Some(parameter) = &flow.parameter {
            let done = match self.kind {
                Kind::AllGather => "gathered",
                Kind::AllToAll | Kind::Permute | Kind::Broadcast => "laid out anew",
                Kind::AllReduce | Kind::ReduceScatter => "added up",
            };
            found.push(match (flow.is_a_slice, in_loop) {
                (true, _) => {
                    format!("each turn, the slice of parameter `{parameter}` is {done}")
                }
                (false, true) => format!(
                    "parameter `{parameter}` is {done} in every turn, though it stays the same"
                ),
                (false, false) => format!("parameter `{parameter}` is {done}"),
            });
        }
        if flow.is_only_sliced && self.kind == Kind::AllReduce {
            let half = scale::bytes(Bytes(self.wire_bytes() / 2));
            found.push(format!(
                "each device uses its own part of the sum alone: a reduce-scatter sends {half}"
            ));
        }
        if flow.is_a_gather_of_parts {
            let half = scale::bytes(Bytes(self.wire_bytes() / 2));
            found.push(format!(
                "an all-gather, written as a sum of zeros and parts: as one it sends {half}"
            ));
        }
        if flow.is_a_result && !self.flow.is_only_sliced {
            found.push(match self.kind {
                Kind::AllGather | Kind::AllToAll | Kind::Permute | Kind::Broadcast => {
                    "a result of the program is laid out as `out_shardings` (or what follows) \
                        asks for it"
                        .to_string()
                }
                Kind::AllReduce | Kind::ReduceScatter => {
                    "what it gives is a result of the program".to_string()
                }
            });
        }
        if self.in_branch {
            found.push("in a branch of a conditional: it runs at most so often".to_string());
        }
        found
    }
}

fn by_line(program: &Program, costs: &[Totals], lines: Lines<'_>, priced: bool) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let mut at: BTreeMap<Option<&Place>, usize> = BTreeMap::new();
    for (index, one) in program.collectives.iter().enumerate() {
        let line = *at.entry(one.source()).or_insert_with(|| {
            let place = one.source().cloned();
            let text = place.as_ref().and_then(&mut *lines);
            let totals = Totals::none(priced);
            found.push(Line { place, text, totals, collectives: Vec::new() });
            found.len() - 1
        });
        found[line].totals.add(costs[index]);
        found[line].collectives.push(index);
    }
    let most = |of: &Totals| (of.time.map_or(0, |time| time.0), of.wire_bytes);
    for line in &mut found {
        line.collectives.sort_by_key(|index| std::cmp::Reverse(most(&costs[*index])));
    }
    // If some line has no time, lines are sorted by bytes.
    let all_priced = found.iter().all(|line| line.totals.time.is_some());
    found.sort_by(|a, b| {
        let key = |line: &Line| {
            if all_priced { most(&line.totals) } else { (0, line.totals.wire_bytes) }
        };
        key(b).cmp(&key(a)).then_with(|| a.place.cmp(&b.place))
    });
    found
}
