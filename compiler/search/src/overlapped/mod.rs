//! A lower bound on the schedules of all plans, where computing and communicating overlap.
//!
//! The bound is the largest of three: the time for which every plan keeps one resource busy (the
//! cores, or the links); the critical path of all plans ([`path`]); and, from both, the sum of
//! steps of which no two can be done at the same time ([`exclusive`]).

mod branches;
mod climb;
mod costs;
mod exclusive;
mod near;
mod path;
mod weighed;

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, Streams};
use shard_ir::{Picoseconds, Plan, Program, ValueId};

use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::{Form, Saturated};
use crate::lower::within_limits;
use crate::memory::DeviceMemory;
use crate::relax::factors::{CacheKey, Extent, Factors};
use crate::relax::prices::Prices;
use crate::relax::{Part, Setting, Weighted, all_fits, least_weighted};
use crate::{Limits, LowerError, LowerOptions};
use branches::OverlapBranch;
use climb::SetBound;
use costs::{Costs, TimedProblem};
use exclusive::Steps;
use near::{Near, StrategyBounds};
use weighed::Weighed;

/// How soon the results can be there in any schedule of any plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OverlapBound {
    /// The results of one layer, or of a model.
    pub layer: Picoseconds,
    /// For a stack, the least time that each layer adds.
    pub period: Picoseconds,
}

/// A lower bound on the schedules of all plans of a program that fit in memory, and plans that may
/// come near it; `None` where the program has too many forms.
///
/// `known` is the time of some schedule: a bound that meets it is good enough. Where it is 0, only
/// the critical path is looked at.
///
/// # Errors
///
/// Those of lowering: a limit is reached, or time is up.
pub fn overlap_bound(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    known: OverlapBound,
) -> Result<Option<Overlapped>, LowerError> {
    let strict = options.strict || program.strict;
    let saturated = Saturated::new(program, strict, &options.limits);
    let forms = saturated.forms(&options.limits);
    if forms.cut.is_some() {
        return Ok(None);
    }
    let mut least: Option<OverlapBound> = None;
    let mut near: Option<Near> = None;
    for form in forms.all {
        options.limits.stop.check()?;
        // A form only has to be shown to be no better than those before.
        let known = least.map_or(known, |least: OverlapBound| OverlapBound {
            layer: known.layer.min(least.layer),
            period: known.period.min(least.period),
        });
        let Some(of_form) = of_form(&form, hardware, options, known)? else {
            continue;
        };
        let (of_form, bounds) = of_form;
        if let Some(bounds) = bounds
            && near.as_ref().is_none_or(|near| bounds.least() < near.bounds.least())
        {
            near = Some(Near { form, bounds });
        }
        least = Some(least.map_or(of_form, |least| OverlapBound {
            layer: least.layer.min(of_form.layer),
            period: least.period.min(of_form.period),
        }));
    }
    let Some(bound) = least else { return Ok(None) };
    let plans = near.map_or(Ok(Vec::new()), |near| near.plans(hardware, options))?;
    Ok(Some(Overlapped { bound, plans }))
}

/// What is known of the schedules of all plans of a program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Overlapped {
    /// The lower bound.
    pub bound: OverlapBound,
    /// Plans whose schedules may come near the bound, all of the form with the least bound.
    pub plans: Vec<Plan>,
}

/// The bound of one form, and the bounds of its strategies where sets were looked at; `None` where
/// it has no plan.
fn of_form(
    form: &Form,
    hardware: &Hardware,
    options: &LowerOptions,
    known: OverlapBound,
) -> Result<Option<(OverlapBound, Option<StrategyBounds>)>, LowerError> {
    let strict = options.strict || form.program.strict;
    let kernels = Kernels::of_form(form.clone(), strict, options.fuse && !strict, hardware);
    let (program, limits) = (kernels.program.as_ref(), &options.limits);
    within_limits(program, limits)?;
    check_labels(program)?;
    let setting = Setting::of(program, hardware, strict, limits);
    let timed = limits.cache.with(CacheKey::of(&kernels, setting), |shared| {
        let extent = Extent { has_factor: kernels.live.clone(), shared: &mut *shared };
        let problem = Factors::of_part(&kernels, setting, extent)?;
        let costs = Costs::of(&kernels, setting, &problem, shared)?;
        Ok::<_, LowerError>(TimedProblem { problem, costs })
    })?;
    let memory = DeviceMemory::new(program, hardware.hbm_bytes);
    let memory = (!options.any_size && !all_fits(&kernels, &memory)).then_some(memory);
    let (memory, timed) = match memory {
        Some(memory) => {
            let (memory, timed) = with_room(memory, &kernels, timed);
            (Some(memory), timed)
        }
        None => (None, timed),
    };
    let parts = Part::all(&kernels, memory.as_ref());
    let Some((mut bound, path)) = path::critical_path(&kernels, &timed) else {
        return Ok(None);
    };
    let streams = Streams::of(hardware, &program.mesh);
    let mut bounds = None;
    let of_layer = OverlapSearch {
        kernels: &kernels,
        streams: &streams,
        parts: &parts,
        limits,
        enough: known.layer,
        stack: None,
    };
    if bound.layer < known.layer {
        let Some((found, of)) = of_layer.least(timed.clone(), &path) else { return Ok(None) };
        (bound.layer, bounds) = (bound.layer.max(found), Some(of));
    }
    let taken = path::taken(program).filter(|_| bound.period < known.period);
    if taken.is_some() {
        let of_stack = OverlapSearch { enough: known.period, stack: taken, ..of_layer };
        let Some((found, of)) = of_stack.least(timed, &path) else { return Ok(None) };
        (bound.period, bounds) = (bound.period.max(found), Some(of));
    }
    limits.stop.check()?;
    Ok(Some((bound, bounds)))
}

/// The plans that leave room beside the smallest weights and caches, and the memory with what is
/// then known of activations.
fn with_room<'m>(
    memory: DeviceMemory<'m>,
    kernels: &Kernels,
    TimedProblem { problem, costs }: TimedProblem,
) -> (DeviceMemory<'m>, TimedProblem) {
    let (memory, fits) = memory.fitting(kernels, &problem);
    let kept = problem.factors.iter().zip(&fits.factors).map(|(all, left)| all.kept_in(left));
    let kept: Vec<Vec<bool>> = kept.collect();
    let costs = costs.keeping(&|v, s| kept[v][s]);
    (memory, TimedProblem { problem: fits, costs })
}

/// The most rounds of leaving out strategies that are too dear.
const ROUNDS: usize = 3;

/// The search for the largest bound that sets of steps give for one form.
#[derive(Clone, Copy)]
pub(super) struct OverlapSearch<'a> {
    kernels: &'a Kernels,
    streams: &'a Streams,
    /// The labels and memories of the program.
    parts: &'a [Part],
    limits: &'a Limits,
    /// A bound of this much ends the search.
    enough: Picoseconds,
    /// What a layer takes from the one before, where the bound of each layer of a stack is asked.
    stack: Option<ValueId>,
}

impl OverlapSearch<'_> {
    /// A lower bound on the plans by all sets, of a layer or of each layer in a stack, and the
    /// bounds of strategies; `None` where there is no plan.
    ///
    /// If a set shows that every plan with some strategy takes `enough`, only plans without this
    /// strategy are still to be bounded. So such strategies are left out, and sets and means are
    /// found anew.
    fn least(
        &self,
        timed: TimedProblem,
        path: &[ValueId],
    ) -> Option<(Picoseconds, StrategyBounds)> {
        let mut known_prices = KnownPrices::default();
        let root = self.looked_at(timed, &mut known_prices, path)?;
        let bounds = StrategyBounds::of(&root, self.enough);
        Some((self.divided(root, &mut known_prices), bounds))
    }

    /// The plans of a problem with all that sets and means show of them.
    fn looked_at(
        &self,
        mut timed: TimedProblem,
        known_prices: &mut KnownPrices,
        path: &[ValueId],
    ) -> Option<OverlapBranch> {
        let enough = self.enough;
        let mut best = Picoseconds(0);
        for round in 1.. {
            let steps = Steps::of(self.kernels, &timed, self.streams, self.stack);
            let mut none = false;
            let mut least = |weights: &Weighed, floor: Option<Picoseconds>| {
                self.of_set(weights, floor, &timed, known_prices, &mut none)
            };
            let (climbed, cases) = steps.largest(path, enough, &mut least);
            if none && round == 1 {
                return None;
            }
            // If there is no plan left, each plan uses a strategy that was left out, and takes
            // `enough`.
            let found = if none { enough } else { climbed.least };
            best = best.max(if round == 1 { found } else { found.min(enough) });
            let branch = OverlapBranch { timed, best, climbed, cases };
            if best >= enough || round == ROUNDS {
                return Some(branch);
            }
            match branch.without_dear_strategies(enough) {
                Some(left) => timed = left,
                None => return Some(branch),
            }
        }
        None
    }

    /// The bounds of a weighting. Where it has none, `none` is set if the problem has no plan at
    /// all.
    fn of_set(
        &self,
        weights: &Weighed,
        floor: Option<Picoseconds>,
        timed: &TimedProblem,
        known_prices: &mut KnownPrices,
        none: &mut bool,
    ) -> SetBound {
        let read_by_one = weights.read_by_one();
        let begin_at = known_prices.get(&read_by_one);
        let weighed = weights.applied(&self.kernels.program.mesh, self.streams, timed);
        let parts = self.parts;
        let floor = floor.map(|floor| floor.0.saturating_mul(weights.unit));
        let asked = read_by_one.clone();
        let of = Weighted { problem: weighed, read_by_one: asked, parts, begin_at, floor };
        match least_weighted(of, self.limits) {
            Some(found) => {
                let once = |time: u64| time.div_ceil(weights.unit);
                let through =
                    found.through.iter().map(|of| of.iter().map(|t| once(*t)).collect()).collect();
                known_prices.insert(read_by_one, found.prices);
                SetBound { all: Picoseconds(once(found.all)), through }
            }
            // There is no plan, or the weighted times are too long to be counted.
            None => {
                let (problem, read_by_one) = (timed.problem.clone(), Vec::new());
                let of = Weighted { problem, read_by_one, parts, begin_at: None, floor: Some(0) };
                *none |= least_weighted(of, self.limits).is_none();
                let nothing = |costs: &Vec<i64>| vec![0; costs.len()];
                let through = timed.costs.whole.iter().map(nothing).collect();
                SetBound { all: Picoseconds(0), through }
            }
        }
    }
}

/// The last prices found for each list of values whose moves count to one reader only. The next
/// weighting with the same list begins with them, since its prices are not far off.
pub(super) type KnownPrices = FxHashMap<Vec<(ValueId, ValueId)>, Prices>;
