//! The size of a dim, and the bandwidth of the network, at which one way overtakes the best plan.
//! Each of the two is searched for at each figure: the figures are few, so that the answer comes in
//! seconds.

use shard_check::CheckOptions;
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::{ParameterKind, Picoseconds, Plan, Program};
use shard_report::why_not::{Crossing, NETWORK_UNIT, Turn, Varied};
use shard_search::LowerOptions;

use super::request::Request;
use super::{force, request};
use crate::noted::ok_or_noted;
use crate::pipeline;

/// How often a size is doubled, and halved.
const STEPS: u32 = 12;

/// How often the gap is halved between the last size that loses and the first that wins.
const REFINEMENTS: u32 = 4;

/// The power of two up to which the bandwidth of the chip is multiplied, and divided.
const NETWORK_POWERS: u32 = 6;

/// How often the gap between two bandwidths is halved.
const NETWORK_REFINEMENTS: u32 = 2;

/// The powers of two of a figure that are tried first. Those between two of them are tried where
/// the way loses at the one and not at the other.
const FIRST_POWERS: [usize; 5] = [1, 3, 6, 9, 12];

/// What is the same at all figures.
pub(crate) struct Question<'a> {
    pub(crate) source: &'a SourceFile,
    pub(crate) options: &'a CheckOptions,
    pub(crate) hardware: &'a Hardware,
    pub(crate) lower: &'a LowerOptions,
    /// The layer and its phase.
    pub(crate) layer: &'a str,
    pub(crate) phase: Option<&'a str>,
    /// What was asked for.
    pub(crate) asked: &'a str,
    /// The best ways of having it in the program as it is, the best first: these are tried at other
    /// figures.
    pub(crate) ways: &'a [NumberedWay],
    /// Whether a way that is not tried may be better at another figure.
    pub(crate) at_most: bool,
}

/// The number of a way of having it, and whether what was asked for is used as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedWay {
    pub(crate) number: usize,
    pub(crate) used: bool,
}

/// At most so many ways are tried at each figure.
pub(crate) const WAYS_AT_A_FIGURE: usize = 4;

/// The dim that is taken for the batch: the first dim of the activations that no weight has.
pub(crate) fn batch_dim(program: &Program) -> Option<String> {
    let of = |wanted: ParameterKind| {
        program.values.iter().filter(move |v| v.def.parameter() == Some(wanted))
    };
    let of_weights: Vec<_> = of(ParameterKind::Weight).flat_map(|v| &v.dims).collect();
    let mut dims = of(ParameterKind::Activation).flat_map(|v| &v.dims);
    dims.find(|d| !of_weights.contains(d)).map(|d| program.dims[d.index()].name.clone())
}

impl Question<'_> {
    /// What becomes of the answer as a dim grows and shrinks.
    pub(crate) fn crossing(&self, dim: &str, now: u64, behind: Picoseconds) -> Crossing {
        let at = |size: u64| self.behind_at_size(dim, size);
        let halved = |size: u64| size.is_multiple_of(2).then_some(size / 2).filter(|s| *s > 0);
        Crossing {
            varied: Varied::Dim(dim.to_string()),
            now,
            at_most: self.at_most,
            up: turn(now, behind, steps(now, |size| size.checked_mul(2)), &at, REFINEMENTS),
            down: turn(now, behind, steps(now, halved), &at, REFINEMENTS),
        }
    }

    /// What becomes of the answer as the network grows faster and slower.
    pub(crate) fn network_crossing(&self, behind: Picoseconds) -> Crossing {
        let at = |rate: u64| {
            let hardware = self.hardware.with_network_scaled(rate, NETWORK_UNIT);
            self.behind_at(self.options, &hardware)
        };
        let in_powers = |scaled: fn(u32) -> u64| -> Turn {
            let all = (1..=NETWORK_POWERS).map(scaled).collect();
            turn(NETWORK_UNIT, behind, all, &at, NETWORK_REFINEMENTS)
        };
        Crossing {
            varied: Varied::Network,
            now: NETWORK_UNIT,
            at_most: self.at_most,
            up: in_powers(|power| NETWORK_UNIT << power),
            down: in_powers(|power| NETWORK_UNIT >> power),
        }
    }

    fn behind_at_size(&self, dim: &str, size: u64) -> Option<Picoseconds> {
        let mut options = self.options.clone();
        options.dim_overrides.retain(|(name, _)| name != dim);
        options.dim_overrides.push((dim.to_string(), size.to_string()));
        self.behind_at(&options, self.hardware)
    }

    /// How much longer than the best plan the best way takes; `None` where one of the two is not
    /// found.
    fn behind_at(&self, options: &CheckOptions, hardware: &Hardware) -> Option<Picoseconds> {
        let checked = pipeline::check(self.source, options);
        let phase = |p: &Program| p.phase.as_ref().map(|phase| phase.name.clone());
        let asked = |p: &&Program| p.name == self.layer && phase(p).as_deref() == self.phase;
        let program = checked.programs.iter().find(asked).filter(|_| !checked.has_errors())?;
        let request = request::read(self.asked, program).ok()?;
        let fits =
            |plan: &Plan| self.lower.any_size || Memory::of(plan).peak().0 <= hardware.hbm_bytes;
        let any_size = LowerOptions { any_size: true, ..self.lower.clone() };
        let fastest = ok_or_noted(shard_search::lower(program, hardware, &any_size))?;
        let is_had = |plan: &Plan| force::has(&request, program, plan);
        // The fastest plan may have a layout for some of the readers alone.
        let is_layout = matches!(request, Request::Layout { .. });
        if !is_layout && fits(&fastest.plan) && is_had(&fastest.plan) {
            return Some(Picoseconds(0));
        }
        let all = [true, false].map(|used| force::ways(&request, program, &fastest.plan, used).0);
        let cost = |way: &NumberedWay, below: Option<u64>| {
            let way = all[usize::from(!way.used)].get(way.number)?;
            let options = match below {
                Some(below) => way.options_below(self.lower, Picoseconds(below)),
                None => way.options(self.lower),
            };
            let other = ok_or_noted(shard_search::lower(&way.program, hardware, &options))?;
            (is_had(&other.plan) && fits(&other.plan)).then_some(other.optimality.cost.0)
        };
        let less = |least: Option<u64>, way| match (cost(way, least), least) {
            (Some(cost), Some(least)) => Some(cost.min(least)),
            (cost, least) => cost.or(least),
        };
        // The best plan within memory takes long to find, and is searched for only where a way
        // fits.
        let least = self.ways.iter().fold(None, less)?;
        let best = if fits(&fastest.plan) {
            fastest
        } else {
            ok_or_noted(shard_search::lower(program, hardware, self.lower))?
        };
        let is_best = !is_layout && is_had(&best.plan);
        let behind = least.saturating_sub(best.optimality.cost.0);
        Some(Picoseconds(if is_best { 0 } else { behind }))
    }
}

/// The figures that are tried from one on.
fn steps(mut from: u64, next: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..STEPS {
        let Some(figure) = next(from) else { break };
        all.push(figure);
        from = figure;
    }
    all
}

/// Finds where the way wins. The [`FIRST_POWERS`] of the figures are tried until it wins or no time
/// is found; then the figures between that one and the one before, in order. Where it wins, the gap
/// to the last figure at which it loses is halved `refinements` times.
fn turn(
    now: u64,
    behind: Picoseconds,
    figures: Vec<u64>,
    behind_at: &dyn Fn(u64) -> Option<Picoseconds>,
    refinements: u32,
) -> Turn {
    let (mut loses_at, mut behind, mut searched) = (now, behind, false);
    let mut tried = 0;
    let first = FIRST_POWERS.iter().copied().filter(|power| *power < figures.len());
    for power in first.chain([figures.len()]).filter(|power| *power > 0) {
        let figure = figures[power - 1];
        let at_once = behind_at(figure);
        if let Some(more) = at_once.filter(|more| *more > Picoseconds(0)) {
            (loses_at, behind, searched, tried) = (figure, more, true, power);
            continue;
        }
        for between in figures[tried..power].iter().copied() {
            let found = if between == figure { at_once } else { behind_at(between) };
            match found {
                Some(Picoseconds(0)) => {
                    return refined(loses_at, between, behind, behind_at, refinements);
                }
                Some(more) => (loses_at, behind, searched) = (between, more, true),
                // Not a size of the program, or no plan has it there.
                None => break,
            }
        }
        break;
    }
    if searched { Turn::Never { to: loses_at, behind } } else { Turn::Unknown }
}

fn refined(
    mut loses_at: u64,
    mut at: u64,
    mut behind: Picoseconds,
    behind_at: &dyn Fn(u64) -> Option<Picoseconds>,
    refinements: u32,
) -> Turn {
    for _ in 0..refinements {
        let sum = loses_at + at;
        if !sum.is_multiple_of(2) || sum / 2 == loses_at || sum / 2 == at {
            break;
        }
        match behind_at(sum / 2) {
            Some(Picoseconds(0)) => at = sum / 2,
            Some(more) => (loses_at, behind) = (sum / 2, more),
            None => break,
        }
    }
    Turn::Wins { at, loses_at, behind }
}
