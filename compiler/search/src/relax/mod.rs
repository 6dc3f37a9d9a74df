//! A relaxation of the search: a bound on all plans from prices on values, and from it the part of
//! the plan space that can hold a best plan. Time alone, no tie rule; built from the same rules as
//! the e-graph.

pub(crate) mod apart;
mod branch;
mod carried;
mod dearer;
pub(crate) mod factors;
mod favoured;
pub(crate) mod graph;
mod groups;
mod guide;
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

pub(crate) use branch::{Branch, BranchAction};
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

/// Which plans a relaxation is to bound: all of them by default.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    /// Those alone that make values so.
    pub(crate) forced: Option<&'a Forced>,
    /// Those alone that have room.
    pub(crate) memory: Option<DeviceMemory<'a>>,
    /// Those alone that take less time, in picoseconds.
    pub(crate) below: Option<u64>,
    /// Those that are far from the best, too: nothing is dropped for what another plan takes.
    pub(crate) apart: bool,
    /// What is known of a program that differs from this one in its layout patterns alone.
    pub(crate) like: Option<Like<'a>>,
}

/// All plans of a program, and the same as it was before anything dear was dropped.
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
        // What ops of this form hold other forms may do without.
        if apart {
            return memory;
        }
        let (memory, fits) = memory.fitting(kernels, &problem);
        problem = fits;
        memory
    });
    let parts = Arc::new(Part::all(kernels, memory.as_ref()));
    // What is dearer than a plan known is not to be dropped where that plan may not be one of those
    // wanted.
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

/// A problem whose times count whatever they are to count.
pub(crate) struct Weighted<'p> {
    pub(crate) problem: Factors,
    /// Values of which the moves to one reader alone count, each with that reader
    /// ([`Factors::read_by_one`]).
    pub(crate) read_by_one: Vec<(ValueId, ValueId)>,
    /// What reaches across the program.
    pub(crate) parts: &'p [Part],
    /// Prices of a problem that differs in its times alone.
    pub(crate) begin_at: Option<&'p Prices>,
    /// A bound that is good to about a thousandth is enough, and one of no more than this, in
    /// picoseconds, of no use. Else it is wanted to the last digit.
    pub(crate) floor: Option<u64>,
}

/// What a problem takes at least, in picoseconds.
pub(crate) struct WeightedBound {
    /// Any plan of it.
    pub(crate) all: u64,
    /// For each value and strategy, any plan that makes the value so.
    pub(crate) through: Vec<Vec<u64>>,
    /// The prices that say so.
    pub(crate) prices: Prices,
}

/// What prices say that any plan of a problem takes; `None` where there is none.
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
    // Strategies have their numbers as long as none is dropped.
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
