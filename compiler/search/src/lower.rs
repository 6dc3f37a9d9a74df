//! Lowering: from a program to its best plan. Every form of the program is bounded under every
//! layout of its labels, and the promising ones are searched.

mod branches;
mod by_prices;
mod dives;
mod divided;
mod fitting;
mod forms;
mod known;
mod progress;
mod region;
mod smaller;
mod steered;

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_cost::Hardware;
use shard_ir::{InstrId, InstrKind, Layout, MeshShape, Picoseconds, Plan, Program};

use crate::emit::{Emitted, MoveSite};
use crate::forced::Forced;
use crate::kernel::Kernels;
use crate::logical::Form;
use crate::memory::{Scopes, needed};
use crate::relax::{Question, Whole};
use crate::space::maxima;
use crate::{
    Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, SearchLimit, Stats, Status,
};
pub(crate) use fitting::Fitting;
pub(crate) use known::{KnownForms, better_than};
pub(crate) use region::LabelledForm;
use region::Rank;

/// What a lowered program remembers, for questions about its plan.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    /// The form of the program that the plan is of.
    pub(crate) kernels: Arc<Kernels>,
    /// The layout of each label.
    pub(crate) labels: Vec<Layout>,
    /// The moves of the plan.
    pub(crate) moves: Vec<MoveSite>,
    /// The relaxation of the form with all its plans, where the search priced them.
    pub(crate) whole: Option<Arc<Whole>>,
    /// What was left of `whole` when its prices settled, with these prices.
    settled: Option<Arc<Whole>>,
    /// `whole` has all plans of the form: also those that do not fit or were forbidden.
    complete: bool,
}

impl Remembered {
    /// The same without the relaxation, for questions about other times than those of its prices.
    pub(crate) fn unpriced(self) -> Remembered {
        Remembered { whole: None, settled: None, complete: false, ..self }
    }
}

pub(crate) fn lower(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Lowered, LowerError> {
    let strict = options.strict || program.strict;
    let lowering = Lowering::asked(program, hardware, options);
    if options.forced.is_some() {
        return lowering.run(program, true);
    }
    // The moves that a strict layer lacks are those of the best plan of the program as it is
    // written, whose moves need not be written.
    let fastest = match lowering.run(program, strict) {
        Err(LowerError::Unreachable { .. }) if strict => {
            let free = Lowering::asked(program, hardware, options);
            let plan = Lowering { strict: false, ..free }.run(program, true)?.plan;
            return Err(LowerError::Strict {
                inserted: inserted_moves(&plan),
                plan: Box::new(plan),
            });
        }
        other => other?,
    };
    fitting(program, hardware, options, fastest)
}

/// The best plan of a program, given its fastest plan of any size.
pub(crate) fn fitting(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    fastest: Lowered,
) -> Result<Lowered, LowerError> {
    let is_enough = options.any_size || options.forced.is_some();
    if is_enough || needed(&fastest.plan) <= hardware.hbm_bytes {
        // The fastest of all plans is the fastest of those that fit, if it does.
        return Ok(fastest);
    }
    Fitting { program, hardware, options, fastest: &fastest }.best()
}

/// The best plan of phases side by side among those whose weights and caches fit in the memory of
/// each phase; room for activations is not asked for. Only plans are wanted that take less than
/// `below` picoseconds.
pub(crate) fn lower_phases(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    scopes: &Scopes,
    below: Option<u64>,
) -> Result<Lowered, LowerError> {
    let capacity = Some(hardware.hbm_bytes);
    let lowering = Lowering {
        loops: options.fuse,
        capacity,
        scopes: Some(scopes),
        below,
        ..Lowering::new(hardware, &options.limits)
    };
    lowering.run(program, false)
}

/// The best plan of a program if it takes less than `below` picoseconds. `like` is what is known of
/// a program that differs from this one in layout patterns alone.
pub(crate) fn lower_below(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    below: u64,
    like: &KnownForms,
) -> Result<Option<Lowered>, LowerError> {
    let found = if is_plain(program, options) {
        match Lowering::of_less_than(below, hardware, options, like).run(program, false) {
            Err(LowerError::Unreachable { .. }) => return Ok(None),
            Err(other) => return Err(other),
            Ok(found) if options.any_size || needed(&found.plan) <= hardware.hbm_bytes => found,
            Ok(fastest) if options.limits.time_alone => {
                let fitting = Fitting { program, hardware, options, fastest: &fastest };
                match fitting.less_than(below) {
                    Err(LowerError::Unreachable { .. }) => return Ok(None),
                    Err(LowerError::Limit { .. }) => lower(program, hardware, options)?,
                    found => found?,
                }
            }
            Ok(_) => lower(program, hardware, options)?,
        }
    } else {
        lower(program, hardware, options)?
    };
    Ok((found.optimality.cost.0 < below).then_some(found))
}

/// Whether all plans of a program are wanted, and are searched where prices promise something.
fn is_plain(program: &Program, options: &LowerOptions) -> bool {
    !(options.strict || program.strict || options.forced.is_some() || options.whole_space)
}

/// The best plan of one form that makes values in the allowed ways and, unless plans of any size
/// are wanted, fits in the memory of a device.
pub(crate) fn lower_form(
    form: &Form,
    hardware: &Hardware,
    options: &LowerOptions,
    forced: &Forced,
) -> Result<Lowered, LowerError> {
    let strict = options.strict || form.program.strict;
    let within = |capacity| {
        let mut lowering = Lowering {
            strict,
            all_written: strict,
            forced: Some(forced),
            loops: options.fuse && !strict,
            capacity,
            ..Lowering::new(hardware, &options.limits)
        };
        lowering.explore_forms(&form.program, vec![(0, form.clone())])?;
        lowering.lowered(None)
    };
    match within(None) {
        Ok(found) if !options.any_size && needed(&found.plan) > hardware.hbm_bytes => {
            within(Some(hardware.hbm_bytes))
        }
        found => found,
    }
}

/// Fails where the values of a program have more layouts than a search may look at.
pub(crate) fn within_limits(program: &Program, limits: &Limits) -> Result<(), LowerError> {
    let (sums, maxima) = (program.mesh.all_axes(), maxima(program));
    let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    let mut all = 0usize;
    for value in &program.values {
        let sizes = program.sizes(&value.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let count = match known.get(&sizes) {
            Some(count) => *count,
            None => {
                shape.layouts_within(sums, maxima, limits.layouts).map_or(usize::MAX, |l| l.len())
            }
        };
        known.insert(sizes, count);
        all = all.saturating_add(count);
        if all > limits.layouts {
            return Err(limits.reached(SearchLimit::Layouts));
        }
    }
    Ok(())
}

/// The moves of a plan that no `reshard` asks for.
fn inserted_moves(plan: &Plan) -> Vec<InstrId> {
    let inserted = |id: &InstrId| {
        let instr = plan.instruction(*id);
        matches!(instr.kind, InstrKind::Move(_)) && !instr.origin.written
    };
    plan.ids().filter(inserted).collect()
}

/// A search for the best plan of a program, with what it has found so far.
pub(crate) struct Lowering<'a> {
    hardware: &'a Hardware,
    limits: &'a Limits,
    /// Whether no move may stand where none is written.
    strict: bool,
    /// Whether each collective has to be written in the end, even if this search may insert moves.
    all_written: bool,
    whole_space: bool,
    forced: Option<&'a Forced>,
    /// Whether einsums may do a collective in their loops.
    loops: bool,
    /// The bytes of a device, in which every plan must fit; `None` where plans may have any size.
    capacity: Option<u64>,
    /// The bytes of the activations of the fastest plan; 0 where they are not known. Plans that
    /// leave so much free are likely to fit.
    activations: u64,
    /// The phases that stand side by side in the program, where it is several, and their memory.
    scopes: Option<&'a Scopes>,
    /// Only plans that take less time than this are wanted, in picoseconds.
    below: Option<u64>,
    /// Whether a search may be steered towards plans that leave room for their activations.
    may_steer: bool,
    /// Whether the search is being steered now. Its dives are many, and each is short.
    steers: bool,
    /// What is known of a program that differs from this one in layout patterns alone.
    like: &'a KnownForms,
    best: Best,
}

/// The best plan so far, and what is known of it.
#[derive(Default)]
struct Best {
    plan: Option<(Rank, Emitted)>,
    /// The form and the labels of that plan.
    of: Option<(Arc<Kernels>, Vec<Layout>)>,
    /// The relaxation of that form, for questions about the plan.
    whole: Option<Arc<Whole>>,
    /// What was left of `whole` in the branch that has the plan.
    settled: Option<Arc<Whole>>,
    /// Why the last form without a plan has none, and the form.
    failure: Option<(LowerError, Arc<Kernels>)>,
    /// The last search passed over plans that do not fit, and may have missed plans that fit and
    /// take this time or more.
    passed_over: Option<u64>,
    /// The last search ended at a limit, after it had passed over plans that do not fit.
    gave_up: bool,
    /// The last search ended since its region has more e-nodes than it may have; with less memory
    /// it would have as many.
    is_too_large: bool,
    /// All plans that any search may have missed among those that fit take this time or more.
    missed: Option<u64>,
    /// No plan takes less than this, as prices alone show.
    root_bound: Option<u64>,
    /// No plan that is still to be looked at takes less than this.
    frontier: Option<u64>,
    /// No plan takes less than this that was left out where a limit ended a search.
    open_bound: Option<u64>,
    stopped_by: Option<SearchLimit>,
    /// The limit that left forms out, and a bound on their plans.
    cut: Option<(SearchLimit, u64)>,
    /// Whether prices ruled out forms that were not looked at one by one.
    apart: bool,
    /// Whether the form that is searched now is another than the one written.
    rewritten: bool,
    ties_cut: bool,
    /// How many branches got prices of their own.
    branches: usize,
    /// How many strategies these branches had in all.
    priced: usize,
    /// How many strategies were priced in dives.
    priced_in_dives: usize,
    stats: Stats,
}

impl Best {
    /// Notes that plans are left out which take `bound` or more, since a limit ended the search.
    fn leave(&mut self, bound: u64, limit: SearchLimit) {
        self.stopped_by = self.stopped_by.or(Some(limit));
        self.open_bound = lower_of(self.open_bound, bound);
    }
}

/// The lower of a bound, where one is known, and another.
fn lower_of(known: Option<u64>, bound: u64) -> Option<u64> {
    Some(known.map_or(bound, |known| known.min(bound)))
}

impl<'a> Lowering<'a> {
    /// A search without any constraint.
    fn new(hardware: &'a Hardware, limits: &'a Limits) -> Lowering<'a> {
        Lowering {
            hardware,
            limits,
            strict: false,
            all_written: false,
            whole_space: false,
            forced: None,
            loops: false,
            capacity: None,
            activations: 0,
            scopes: None,
            below: None,
            may_steer: false,
            steers: false,
            like: KnownForms::NONE,
            best: Best::default(),
        }
    }

    /// The best of the plans in question; `None` where there is none. `cost` is what the best plan
    /// of all takes, in picoseconds.
    pub(crate) fn of_question(
        hardware: &'a Hardware,
        limits: &'a Limits,
        form: LabelledForm<'_>,
        question: &Question<'_>,
        cost: u64,
    ) -> Result<Option<Lowered>, LowerError> {
        let Some(least) = question.least() else { return Ok(None) };
        let mut slack = (cost >> 6).max(1);
        let mut most = least.saturating_add(slack);
        loop {
            let priced = question.within(most, limits);
            limits.stop.check()?;
            // A bound above `most` says only that no plan takes `most` or less.
            if let Some(bound) = priced.bound.filter(|bound| *bound <= most) {
                let best = Best { root_bound: Some(bound), ..Best::default() };
                // The question has loops if the form has them.
                let mut lowering =
                    Lowering { loops: form.kernels.loops, best, ..Lowering::new(hardware, limits) };
                lowering.widen(form, &priced, bound, u64::MAX, None, None)?;
                match lowering.lowered(None) {
                    Err(LowerError::Unreachable { .. }) => {}
                    Err(other) => return Err(other),
                    // Every plan that takes no longer was priced, so this one is the best.
                    Ok(found) if found.optimality.cost.0 <= most => return Ok(Some(found)),
                    Ok(found) => {
                        most = found.optimality.cost.0;
                        continue;
                    }
                }
            }
            if most == u64::MAX {
                return Ok(None);
            }
            // Far above the best plan nearly all plans are priced, so all may as well be.
            slack = slack.saturating_mul(8);
            most = if slack > cost { u64::MAX } else { most.saturating_add(slack) };
        }
    }

    /// A search for the plans of any size that options ask for.
    fn asked(program: &Program, hardware: &'a Hardware, options: &'a LowerOptions) -> Lowering<'a> {
        let strict = options.strict || program.strict;
        Lowering {
            strict,
            all_written: strict,
            whole_space: options.whole_space,
            forced: options.forced.as_ref(),
            below: options.forced.as_ref().and_then(|forced| forced.below),
            loops: options.fuse && !strict,
            ..Lowering::new(hardware, &options.limits)
        }
    }

    fn run(mut self, program: &Program, as_written: bool) -> Result<Lowered, LowerError> {
        match (self.explore(program, as_written), self.best.frontier) {
            (Ok(()), _) => {}
            // The plans that are left take no less than those that came next.
            (Err(LowerError::OutOfTime), Some(next)) if self.best.plan.is_some() => {
                self.best.stopped_by = Some(SearchLimit::Time);
                self.best.open_bound = lower_of(self.best.open_bound, next);
            }
            (Err(other), _) => return Err(other),
        }
        self.lowered(Some(program))
    }

    /// A lower bound on the plans that were left out; `None` where none was left out.
    fn least_left(&self) -> Option<u64> {
        let best = &self.best;
        [best.missed, best.open_bound, best.cut.map(|(_, bound)| bound)].into_iter().flatten().min()
    }

    /// The result of the search. `written` is the program that was asked about, which errors are
    /// about.
    fn lowered(self, written: Option<&Program>) -> Result<Lowered, LowerError> {
        let mut best = self.best;
        if let Some(missed) = best.missed {
            best.leave(missed, SearchLimit::Memory);
        }
        let (Some((rank, emitted)), Some((kernels, labels))) = (best.plan, best.of) else {
            // That no plan fits is known only where no form was left out.
            let of_memory = best.cut.map(|(limit, _)| limit).filter(|_| self.capacity.is_some());
            let left_out = best.stopped_by.or(of_memory);
            return Err(match left_out {
                Some(limit) => self.limits.reached(limit),
                None => unreachable_in(written, best.failure),
            });
        };
        let cost = rank.time;
        let price_bound = best.root_bound;
        let root = price_bound.unwrap_or(0);
        if root > cost {
            return Err(LowerError::Internal(format!(
                "a plan of {cost} ps is below the bound of {root} ps"
            )));
        }
        // Forms that were left out do not matter where none of their plans can be better.
        let (left_out, floor) = match best.cut.filter(|(_, bound)| *bound < cost) {
            Some((limit, bound)) => (Some(limit), bound.min(root)),
            None => (None, root),
        };
        // Nor do plans that were left out, where none of them can take less.
        let open_bound = best.open_bound.map_or(root, |open| open.min(cost).max(root));
        let stopped_by = best.stopped_by.filter(|_| open_bound < cost).or(left_out);
        let proof = match stopped_by {
            Some(_) => None,
            None if root == cost && !best.apart => Some(Proof::Certificate),
            None => Some(Proof::Search),
        };
        let optimality = Optimality {
            status: if proof.is_some() { Status::Proven } else { Status::Bounded },
            lower_bound: Picoseconds(match left_out {
                Some(_) => floor,
                None if proof.is_some() => cost,
                None => open_bound,
            }),
            price_bound: price_bound.map(|root| Picoseconds(root.min(floor))),
            stopped_by,
            proof,
            cost: Picoseconds(cost),
            ties_cut: best.ties_cut,
        };
        let complete = !self.strict && self.forced.is_none() && self.capacity.is_none();
        let (moves, whole, settled) = (emitted.moves, best.whole, best.settled);
        let remembered = Remembered { kernels, labels, moves, whole, settled, complete };
        Ok(Lowered {
            plan: emitted.plan,
            optimality,
            stats: best.stats,
            proven_with: None,
            remembered,
        })
    }
}

/// Why a program, as it is written, has no plan. A search names a value of the form that it
/// searched, which may have other values; the error then names none.
fn unreachable_in(
    written: Option<&Program>,
    failure: Option<(LowerError, Arc<Kernels>)>,
) -> LowerError {
    let Some((LowerError::Unreachable { value, output }, kernels)) = failure else {
        return LowerError::Unreachable { value: None, output: None };
    };
    let form = kernels.program.as_ref();
    let same = |program: &&Program| program.values == form.values;
    LowerError::Unreachable { value: value.filter(|_| written.as_ref().is_some_and(same)), output }
}

#[cfg(test)]
mod tests {
    use shard_check::{CheckOptions, check_source};
    use shard_grammar::SourceFile;

    use super::*;

    /// A long einsum is written as a chain, which has more values than the source.
    const LONG: &str = "mesh x=2
dim A = 4
layer f(a: bf16 AB, b: bf16 BC, c: bf16 CD, d: bf16 DE) -> bf16 AE {
  return gelu(einsum(a, b, c, d -> AE))
}
dim B = 4
dim C = 4
dim D = 4
dim E = 4
";

    #[test]
    fn what_cannot_be_reached_in_some_form_is_told_of_the_program_as_it_is_written() {
        let checked = check_source(&SourceFile::new("test.shard", LONG), &CheckOptions::default());
        let program = &checked.programs[0];
        let hardware = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
        let limits = Limits::default();
        // Nothing fits, so that every form has something that cannot be made.
        let lowering =
            Lowering { capacity: Some(0), whole_space: true, ..Lowering::new(&hardware, &limits) };
        match lowering.run(program, false) {
            Err(LowerError::Unreachable { value, .. }) => {
                assert!(value.is_none_or(|v| v.index() < program.values.len()), "{value:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Two results of `a`, as they are declared, of a strict layer that is given `a` as declared.
    fn cannot_be_had(a: &str, results: [&str; 2]) -> LowerError {
        let [c, d] = results;
        let text = format!(
            "mesh x=2\ndim B = 4\n\
             layer f(a: bf16 {a}) -> (c: bf16 {c}, d: bf16 {d}) {{\n  return (a, a)\n}}\n"
        );
        let checked = check_source(&SourceFile::new("test.shard", text), &CheckOptions::default());
        let hardware = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
        let limits = Limits::default();
        let asked = Lowering::new(&hardware, &limits);
        let strict = Lowering { strict: true, whole_space: true, ..asked };
        strict.run(&checked.programs[0], true).expect_err("no plan without a move")
    }

    #[test]
    fn the_result_that_cannot_be_had_is_named_whichever_it_is() {
        for (results, output) in [(["B", "B_x"], 0), (["B_x", "B"], 1)] {
            match cannot_be_had("B_x", results) {
                LowerError::Unreachable { output: named, .. } => assert_eq!(named, Some(output)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn no_result_is_named_where_each_can_be_had_and_not_all_together() {
        let error = cannot_be_had("B?", ["B", "B_x"]);
        assert_eq!(error, LowerError::Unreachable { value: None, output: None });
    }

    #[test]
    fn the_count_of_a_limit_is_that_of_the_limit_that_was_reached() {
        let checked = check_source(&SourceFile::new("test.shard", LONG), &CheckOptions::default());
        let hardware = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
        // The forms are cut to one, and no plan of it fits.
        let limits = Limits { forms: 1, ..Limits::default() };
        let lowering =
            Lowering { capacity: Some(0), whole_space: true, ..Lowering::new(&hardware, &limits) };
        let error = lowering.run(&checked.programs[0], false).expect_err("no plan fits");
        assert_eq!(error, LowerError::Limit { limit: SearchLimit::Forms, count: 1 });
    }
}
