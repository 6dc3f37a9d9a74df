//! The relaxation of the search. Prices on values bound every plan from below, and the bound tells
//! which part of the plan space can hold a best plan. The relaxation knows time and no tie rule; it
//! is built from the same rules as the e-graph.

pub(crate) mod apart;
mod branch;
mod carried;
mod dearer;
pub(crate) mod factors;
mod favoured;
pub(crate) mod graph;
mod groups;
mod guide;
pub(crate) mod kept;
mod leap;
mod like;
mod made;
mod moves_within;
mod parts;
mod priced;
pub(crate) mod prices;
mod regroup;
mod round;
pub(crate) mod serving;
mod settle;
mod sides;
pub(crate) mod split;
mod terms;
mod whole;

use std::sync::Arc;

use shard_cost::Hardware;
use shard_ir::{AxisSet, Def, Program, ValueId};

use crate::forced::Forced;
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;
use crate::space::maxima;
use crate::{Limits, LowerError};
use factors::Factors;
pub(crate) use factors::StrategyLayouts;
use graph::FAR;
pub(crate) use parts::Part;
use prices::Prices;
use settle::{Sweeps, settle};

pub(crate) use branch::{Branch, Fork};
pub(crate) use guide::Guide;
pub(crate) use like::{Better, Like};
pub(crate) use made::Undecided;
pub(crate) use priced::{Priced, Region};
pub(crate) use whole::{Question, Whole};

/// What the plans of a relaxation are made for, and where the search for them stops.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) hardware: &'a Hardware,
    /// The axes over which maxima may be partial.
    pub(crate) maxima: AxisSet,
    /// Whether every move has to be written in the source.
    pub(crate) strict: bool,
    pub(crate) limits: &'a Limits,
}

impl<'a> Setting<'a> {
    /// The setting of a program, whose own ops say over which axes maxima may be partial.
    pub(crate) fn of(
        program: &Program,
        hardware: &'a Hardware,
        strict: bool,
        limits: &'a Limits,
    ) -> Setting<'a> {
        Setting { hardware, maxima: maxima(program), strict, limits }
    }
}

/// Which plans a relaxation is to bound; by default all plans of the program.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    /// Only plans that make their values in these ways.
    pub(crate) forced: Option<&'a Forced>,
    /// Only plans that fit in this memory.
    pub(crate) memory: Option<DeviceMemory<'a>>,
    /// Only plans that take less time than this, in picoseconds.
    pub(crate) below: Option<u64>,
    /// Whether plans far from the best are asked about, too: then no alternative is dropped because
    /// another plan takes less.
    pub(crate) apart: bool,
    /// A solved relaxation of a program that differs only in layout patterns; its factors and
    /// prices are reused.
    pub(crate) like: Option<Like<'a>>,
}

/// All plans of a program with prices on them, and the problem with its prices as it was before any
/// dear alternative was dropped.
pub(crate) fn all_plans(
    kernels: &Kernels,
    setting: Setting<'_>,
    Wanted { forced, memory, below, apart, like }: Wanted<'_>,
) -> Result<(Branch, Arc<Whole>), LowerError> {
    let (program, limits) = (kernels.program.as_ref(), setting.limits);
    let like = like.and_then(|like| Some((like, like.problem_of(program, setting.maxima)?)));
    let (like, mut problem) = match like {
        Some((like, problem)) => (Some(like), problem),
        None => (None, Factors::new(kernels, setting)?.in_ticks()),
    };
    if let Some(Forced { ops, stored, below: _ }) = forced {
        for id in program.value_ids() {
            problem = match (&program.value(id).def, stored) {
                (Def::Op { .. }, _) => problem.allowing(id, &|out, read| ops(id, out, read)),
                (Def::Parameter { .. }, Some(stored)) => {
                    problem.allowing(id, &|out, _| stored(id, out))
                }
                (Def::Parameter { .. } | Def::Pin { .. } | Def::Constant(_), _) => problem,
            };
        }
    }
    let memory = memory.map(|memory| {
        // The relaxation of one form is a part of the bound of all forms here (`relax::apart`).
        // Another form may do without the ops that this one holds in memory, so nothing is dropped
        // for lack of room.
        if apart {
            return memory;
        }
        let (memory, fits) = memory.fitting(kernels, &problem);
        problem = fits;
        memory
    });
    let parts = Arc::new(Part::all(kernels, memory.as_ref()));
    // A known plan may itself break a label or the memory, or lie outside of what is asked for.
    // Where it may, alternatives that are dearer than that plan stay.
    let shrink = parts.is_empty() && !apart;
    let mut plan = below.map_or(FAR, |below| problem.in_time(below - 1));
    let like = like.filter(|_| parts.is_empty());
    let settled = like.and_then(|like| like.settled(&mut problem, limits, &mut plan));
    let (bound, prices, before) = match settled {
        Some(settled) => settled,
        None => {
            let mut prices = Prices::new(&problem).with_parts(&problem, parts);
            let (bound, before) = settle(
                &mut problem,
                &mut prices,
                limits,
                Sweeps { fresh: true, shrink, near: false, rough: None },
                &mut plan,
            );
            (bound, prices, before)
        }
    };
    limits.stop.check()?;
    let whole = Arc::new(Whole { problem, prices });
    let before = before.map_or_else(|| Arc::clone(&whole), Arc::new);
    Ok((Branch { whole, bound }, before))
}

/// Whether all weights and caches fit however they are stored.
pub(crate) fn all_fits(kernels: &Kernels, memory: &DeviceMemory<'_>) -> bool {
    Part::all_fits(kernels, memory)
}

/// A problem in which each step takes the time that a question lets it count for.
pub(crate) struct Weighted<'p> {
    pub(crate) problem: Factors,
    /// Values whose moves count only on the way to one reader, each with that reader
    /// ([`Factors::read_by_one`]).
    pub(crate) read_by_one: Vec<(ValueId, ValueId)>,
    /// The labels and memories of the program.
    pub(crate) parts: &'p [Part],
    /// Prices to begin with, of a problem that differs from this one in its times alone.
    pub(crate) begin_at: Option<&'p Prices>,
    /// With a floor, in picoseconds, the bound need only be right to about a thousandth, and a
    /// bound at or below the floor is of no use. Without one the bound is wanted to the last digit.
    pub(crate) floor: Option<u64>,
}

/// Lower bounds on the plans of a problem, in picoseconds.
pub(crate) struct WeightedBound {
    /// A bound on every plan.
    pub(crate) all: u64,
    /// For each value and strategy, a bound on the plans with that strategy.
    pub(crate) through: Vec<Vec<u64>>,
    /// The prices that give these bounds.
    pub(crate) prices: Prices,
}

/// Lower bounds on the plans of a problem, from prices; `None` where the problem has no plan.
pub(crate) fn least_weighted(of: Weighted<'_>, limits: &Limits) -> Option<WeightedBound> {
    let Weighted { mut problem, read_by_one, parts, begin_at, floor } = of;
    let counts: Vec<usize> = problem.factors.iter().map(|factor| factor.out.len()).collect();
    read_by_one.iter().for_each(|(value, reader)| problem.read_by_one(*value, *reader));
    let is_had_for_nothing = |output: usize| {
        let of = problem.outputs.get(output).map(|(value, _)| *value);
        read_by_one.iter().any(|(value, _)| Some(*value) == of)
    };
    let parts = parts.iter().map(|part| part.clone().without_results(&is_had_for_nothing));
    let parts: Arc<Vec<Part>> = Arc::new(parts.collect());
    let shrink = parts.is_empty();
    let mut plan = FAR;
    let rough = floor.map(|floor| problem.in_time(floor));
    let prices = begin_at.map_or_else(|| Prices::new(&problem), |known| known.resumed(&problem));
    let mut prices = prices.with_parts(&problem, parts);
    let sweeps = Sweeps { fresh: begin_at.is_none(), shrink, near: false, rough };
    let (bound, whole) = settle(&mut problem, &mut prices, limits, sweeps, &mut plan);
    let all = problem.picoseconds(bound)?;
    // The numbers of strategies are those of the problem before any were dropped.
    let prices = whole.map_or(prices, |before| before.prices);
    let in_picoseconds = |time: i64| problem.picoseconds(time.min(FAR - 1)).unwrap_or(all).max(all);
    let through = counts.iter().zip(&prices.through_strategy).map(|(count, through)| {
        if through.len() == *count {
            through.iter().map(|time| in_picoseconds(*time)).collect()
        } else {
            vec![all; *count]
        }
    });
    let through = through.collect();
    Some(WeightedBound { all, through, prices })
}
