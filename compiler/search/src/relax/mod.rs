//! A relaxation of the search: a bound on all plans from prices on values, and from it the part of
//! the plan space that can hold a best plan. Time alone, no tie rule; built from the same rules as
//! the e-graph.

pub(crate) mod apart;
pub(crate) mod factors;
pub(crate) mod graph;
mod leap;
mod parts;
pub(crate) mod prices;
mod regroup;
mod sides;
pub(crate) mod split;
mod terms;
pub(crate) mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::Hardware;
use shard_ir::{AxisSet, Def, Layout, Program, ValueId};

use crate::forced::Forced;
use crate::kernel::Kernels;
use crate::memory::Room;
use crate::{Limits, LowerError};
use factors::Factors;
use graph::FAR;
use leap::Leaps;
use parts::{Kind, NO_CLASS, Part, Seat};
use prices::Prices;

/// Which plans a relaxation is to bound: all of them by default.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    /// Those alone that make values so.
    pub(crate) forced: Option<&'a Forced>,
    /// Those alone that have room.
    pub(crate) room: Option<Room<'a>>,
    /// Those alone that take less time, in picoseconds.
    pub(crate) below: Option<u64>,
    /// Those that are far from the best, too: nothing is dropped for what another plan takes.
    pub(crate) apart: bool,
    /// All that the plans of a program are made of that differs from this one in its layout
    /// patterns alone.
    pub(crate) like: Option<&'a Whole>,
}

/// The part of the plan space whose alternatives may all be in a plan that takes no more than some
/// time.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// For each value, the layouts that it may pass through.
    pub(crate) layouts: Vec<FxHashSet<Layout>>,
    /// For each op, by the layout of its result, the layouts of its operands.
    pub(crate) strategies: Vec<FxHashMap<Layout, Vec<Vec<Layout>>>>,
}

/// Sweeps that lift the bound by less than one part in this many end it, unless they are cheap.
const PATIENCE: i64 = 10_000_000;

/// The same where branching on what parts are to agree upon lifts it, too, and no plan is known.
/// Where one is, sweeps end that would take more than [`WORTH_SWEEPING`] of their kind to reach it.
const PATIENCE_OF_BRANCHES: i64 = 2_000;

/// See [`PATIENCE_OF_BRANCHES`].
const WORTH_SWEEPING: i64 = 16;

/// Sweeps in which prices of nearly the same program may show that it has no plan of interest.
const QUESTION_SWEEPS: usize = 6;

/// The plans of a program, as far as they are looked at together, with prices on what they are made
/// of.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    whole: Arc<Whole>,
    /// What the prices say that any of them takes, in ticks; `FAR` where there is none.
    bound: i64,
}

/// All plans of a program, and the same as it was before anything dear was dropped.
pub(crate) fn all_plans(
    kernels: &Kernels,
    hardware: &Hardware,
    maxima: AxisSet,
    (strict, limits): (bool, &Limits),
    Wanted { forced, room, below, apart, like }: Wanted<'_>,
) -> Result<(Branch, Arc<Whole>), LowerError> {
    let program = kernels.program.as_ref();
    let like = like.and_then(|whole| Some((whole, whole.problem.with_patterns(program, maxima)?)));
    let (like, mut problem) = match like {
        Some((whole, problem)) => (Some(whole), problem),
        None => (None, Factors::new(kernels, hardware, maxima, strict, limits)?.in_ticks()),
    };
    if let Some(Forced(keep)) = forced {
        for id in program.value_ids().filter(|id| matches!(program.value(*id).def, Def::Op { .. }))
        {
            problem = problem.allowing(id, &|out, read| keep(id, out, read));
        }
    }
    let room = room.map(|room| {
        // What ops of this form hold other forms may do without.
        if apart {
            return room;
        }
        let (room, fits) = room.fitting(kernels, &problem);
        problem = fits;
        room
    });
    let parts = Arc::new(Part::all(kernels, room.as_ref()));
    // What is dearer than a plan known is not to be dropped where that plan may not be one of those
    // wanted.
    let shrink = parts.is_empty() && !apart;
    let mut plan = below.map_or(FAR, |below| problem.in_time(below - 1));
    // Prices that are nearly right mostly show at once that there is nothing. Where there is
    // something they leave much that is dear looking cheap, so that prices begin anew, on what is
    // left.
    let mut settled = None;
    if let Some(whole) = like.filter(|_| parts.is_empty()) {
        settled = whole
            .bound_beside(&problem)
            .filter(|bound| *bound > plan)
            .map(|bound| (bound, Prices::new(&problem)));
        if settled.is_none() {
            let mut prices = whole.prices.resumed(&problem);
            let few = Limits { sweeps: QUESTION_SWEEPS, ..limits.clone() };
            let (bound, _) = settle(
                &mut problem,
                &mut prices,
                &few,
                Sweeps { fresh: false, shrink: false },
                &mut plan,
            );
            settled = (bound > plan).then_some((bound, prices));
        }
    }
    let (bound, prices, before) = match settled {
        Some((bound, prices)) => (bound, prices, None),
        None => {
            let mut prices = Prices::new(&problem).with_parts(&problem, parts);
            let (bound, before) = settle(
                &mut problem,
                &mut prices,
                limits,
                Sweeps { fresh: true, shrink },
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
pub(crate) fn all_fits(kernels: &Kernels, room: &Room<'_>) -> bool {
    Part::all_fits(kernels, room)
}

/// What prices say that any plan of a problem takes, whatever its times count, those that have room
/// where that is asked; `None` where there is none.
pub(crate) fn least_weighted(
    kernels: &Kernels,
    problem: Factors,
    room: Option<Room<'_>>,
    limits: &Limits,
) -> Option<u64> {
    let mut problem = problem.in_ticks();
    let room = room.map(|room| {
        let (room, fits) = room.fitting(kernels, &problem);
        problem = fits;
        room
    });
    let parts = Arc::new(Part::all(kernels, room.as_ref()));
    let shrink = parts.is_empty();
    let mut plan = FAR;
    let mut prices = Prices::new(&problem).with_parts(&problem, parts);
    let sweeps = Sweeps { fresh: true, shrink };
    let (bound, _) = settle(&mut problem, &mut prices, limits, sweeps, &mut plan);
    problem.picoseconds(bound)
}

/// What is to be done with a branch.
pub(crate) enum Fork {
    /// It is to be searched: labels have these layouts, and whatever weights and caches it stores
    /// there is room for.
    Search(Vec<Layout>),
    /// What seems best of it is to be searched first, and the branch looked at again.
    Dive,
    /// It falls in these, which cover it.
    Branches(Vec<Branch>),
}

impl Branch {
    /// No plan takes less, in picoseconds; `None` where there is none.
    pub(crate) fn bound(&self) -> Option<u64> {
        self.whole.problem.picoseconds(self.bound)
    }

    /// How many strategies there are in it.
    pub(crate) fn strategies(&self) -> usize {
        self.whole.strategies()
    }

    /// What each alternative costs at least.
    pub(crate) fn priced(&self) -> Priced {
        Priced::read(&self.whole.problem, &self.whole.prices, self.bound)
    }

    /// Prices it again: `known` is what a plan takes, beyond which nothing is wanted.
    pub(crate) fn settle(&mut self, limits: &Limits, known: Option<u64>) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (mut problem, mut prices) = (problem.clone(), prices.clone());
        let mut plan = known.map_or(FAR, |known| problem.in_time(known));
        if plan < FAR {
            drop_dearer(&mut problem, &mut prices, plan);
        }
        // What seems the best plan is one of those wanted where nothing is left to agree upon.
        let agreed = prices.sides.parts.iter().enumerate().all(|(part, p)| match p.kind {
            Kind::Label { .. } => {
                prices.sides.live(part, FAR - 1).iter().all(|live| live.len() <= 1)
            }
            Kind::Memory { .. } => false,
        });
        let (bound, _) = settle(
            &mut problem,
            &mut prices,
            limits,
            Sweeps { fresh: false, shrink: agreed },
            &mut plan,
        );
        self.bound = self.bound.max(bound);
        self.whole = Arc::new(Whole { problem, prices });
    }

    /// What comes next, given what a plan is known to take; `dived` are the ways of filling the
    /// memory that were tried, of `most_dives` that may be.
    pub(crate) fn fork(
        &self,
        known: Option<u64>,
        dived: &mut BTreeSet<Vec<u32>>,
        most_dives: usize,
    ) -> Fork {
        let most = known.map_or(FAR - 1, |known| self.whole.problem.in_time(known));
        let sides = &self.whole.prices.sides;
        if let Some((part, live)) = self.open_memory(most) {
            let Some(place) = self.widest(part, &live) else { return Fork::Branches(Vec::new()) };
            let all = (0..sides.parts.len()).flat_map(|part| sides.best(part)).collect();
            if dived.len() < most_dives && dived.insert(all) {
                return Fork::Dive;
            }
            return Fork::Branches(self.by_memory(part, place, &live[place]));
        }
        match self.open_label(most) {
            Some((part, live)) => Fork::Branches(self.by_label(part, &live)),
            None => Fork::Search(self.labels()),
        }
    }

    /// A part of it that has what seems best to one of the parts that are still open; itself where
    /// none is.
    pub(crate) fn toward_the_best(&self) -> Option<Branch> {
        let sides = &self.whole.prices.sides;
        if self.open_label(FAR - 1).is_some() {
            // All labels at once: each by itself would have the whole program priced again.
            let labels = (0..sides.parts.len())
                .filter(|part| matches!(sides.parts[*part].kind, Kind::Label { .. }));
            let best: Vec<(usize, u32)> = labels
                .filter_map(|part| Some((part, sides.best(part).first().copied()?)))
                .collect();
            let having = |branch: Branch, (part, best): (usize, u32)| {
                branch.having(part, &|_, class| class == best)
            };
            return Some(best.into_iter().fold(self.clone(), having));
        }
        let (part, live) = self.open_memory(FAR - 1)?;
        let best = sides.best(part);
        let place = self.widest(part, &live)?;
        Some(self.having(part, &|p, class| p != place || class == best[place]))
    }

    /// The label of fewest live layouts among those that have several.
    fn open_label(&self, most: i64) -> Option<(usize, Vec<usize>)> {
        let sides = &self.whole.prices.sides;
        let labels =
            sides.parts.iter().enumerate().filter(|(_, p)| matches!(p.kind, Kind::Label { .. }));
        let live = |(part, _)| {
            let live: Option<Vec<usize>> = sides.live(part, most).into_iter().min_by_key(Vec::len);
            live.filter(|live| live.len() > 1).map(|live| (part, live))
        };
        labels.filter_map(live).min_by_key(|(_, live)| live.len())
    }

    /// A memory in which not everything that is live fits together, and what is live at each place.
    fn open_memory(&self, most: i64) -> Option<(usize, Vec<Vec<usize>>)> {
        let sides = &self.whole.prices.sides;
        sides.parts.iter().enumerate().find_map(|(part, p)| {
            let Kind::Memory { bytes, most: fits } = &p.kind else { return None };
            let live = sides.live(part, most);
            let most_of = |(live, bytes): (&Vec<usize>, &Vec<u64>)| {
                live.last().map_or(0, |class| bytes[*class])
            };
            let largest = live.iter().zip(bytes).map(most_of).fold(0, u64::saturating_add);
            (largest > *fits).then_some((part, live))
        })
    }

    /// The layouts of the labels that seem best.
    pub(crate) fn labels(&self) -> Vec<Layout> {
        let sides = &self.whole.prices.sides;
        let layout = |(part, p): (usize, &Part)| match &p.kind {
            // One that no place of the plan bears has any layout.
            Kind::Label { layouts } => {
                layouts.get(sides.best(part).first().copied().unwrap_or(0) as usize).copied()
            }
            Kind::Memory { .. } => None,
        };
        sides.parts.iter().enumerate().filter_map(layout).collect()
    }

    /// The branches of each layout that a label may have; where there are many, that of the best
    /// and that of the others.
    fn by_label(&self, part: usize, live: &[usize]) -> Vec<Branch> {
        let best = self.whole.prices.sides.best(part).first().copied().unwrap_or(0);
        let one = |layout: u32| self.having(part, &|_, class| class == layout);
        if live.len() <= MAX_LABEL_BRANCHES {
            // The best first.
            let mut live = live.to_vec();
            live.sort_by_key(|layout| (*layout as u32 != best, *layout));
            return live.into_iter().map(|layout| one(layout as u32)).collect();
        }
        vec![
            one(best),
            self.having(part, &|_, class| class != best && live.contains(&(class as usize))),
        ]
    }

    /// Two branches: one stored layout, whose live classes are two or more, is as large as it seems
    /// best, or smaller; or it is larger.
    fn by_memory(&self, part: usize, place: usize, live: &[usize]) -> Vec<Branch> {
        let best = self.whole.prices.sides.best(part)[place] as usize;
        // The largest class is beyond: both branches hold less than this one.
        let smaller = &live[..live.len() - 1];
        let up_to = smaller
            .iter()
            .rfind(|class| **class <= best)
            .or(smaller.first())
            .map_or(0, |class| *class as u32);
        let (low, high) = (
            self.having(part, &|p, class| p != place || class <= up_to),
            self.having(part, &|p, class| p != place || class > up_to),
        );
        vec![low, high]
    }

    /// The place of a memory that leaves most bytes open; `None` where none leaves any: what is
    /// live does not fit, then, or some place has nothing that is live.
    fn widest(&self, part: usize, live: &[Vec<usize>]) -> Option<usize> {
        let Kind::Memory { bytes, .. } = &self.whole.prices.sides.parts[part].kind else {
            return None;
        };
        if live.iter().any(Vec::is_empty) {
            return None;
        }
        let range = |place: &usize| match live[*place].as_slice() {
            [first, .., last] => bytes[*place][*last] - bytes[*place][*first],
            _ => 0,
        };
        (0..live.len()).rev().max_by_key(range).filter(|place| live[*place].len() > 1)
    }

    /// The plans whose places of a part have classes for which `keep` says yes, given the place and
    /// the class.
    fn having(&self, part: usize, keep: &dyn Fn(usize, u32) -> bool) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let mut problem = problem.clone();
        let mut bound = self.bound;
        for (n, place) in prices.sides.parts[part].places.iter().enumerate() {
            let through = prices.sides.through[part][n].iter().enumerate();
            let kept =
                through.filter(|(class, _)| keep(n, *class as u32)).map(|(_, through)| *through);
            bound = bound.max(kept.min().unwrap_or(FAR));
            let may = |layout: Layout| match place.class(layout) {
                NO_CLASS => false,
                class => keep(n, class),
            };
            match place.seat {
                Seat::Value(value) => problem = problem.allowing(value, &|out, _| may(out)),
                Seat::Output(i) => {
                    let (value, nodes) = &problem.outputs[i];
                    let kept = nodes
                        .iter()
                        .copied()
                        .filter(|n| problem.layout(*value, *n).is_some_and(may));
                    problem.outputs[i].1 = kept.collect();
                }
            }
        }
        let prices = prices.narrowed(&problem);
        Branch { whole: Arc::new(Whole { problem, prices }), bound }
    }

    /// Leaves out what has no room beside the weights and caches that all its plans store.
    pub(crate) fn fit(&mut self, kernels: &Kernels, room: &Room<'_>) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (_, problem) = self.room(&kernels.program, room).fitting(kernels, problem);
        let prices = prices.narrowed(&problem);
        self.whole = Arc::new(Whole { problem, prices });
    }

    /// The room beside the weights and caches that all its plans store.
    pub(crate) fn room<'r>(&self, program: &'r Program, room: &Room<'r>) -> Room<'r> {
        let least = |id: ValueId| {
            let kept =
                self.whole.problem.given(program, id).into_iter().map(|l| room.kept(id, l)).min();
            kept.filter(|_| room.is_kept(id)).unwrap_or(0)
        };
        room.beside(program.value_ids().map(least).collect())
    }
}

/// So many layouts of a label are branches of their own; of more, the best is one and the others
/// are another.
const MAX_LABEL_BRANCHES: usize = 8;

/// How prices are swept.
#[derive(Clone, Copy)]
struct Sweeps {
    /// They begin with nothing known.
    fresh: bool,
    /// What is dearer than a plan that the prices favour is dropped.
    shrink: bool,
}

/// Sweeps until the bound stands still or a plan meets it.
///
/// With `shrink`, what is dearer than a plan known is dropped on the way; not where plans of other
/// labels are still wanted. `plan` is the time of a plan known, and of a better one once one is
/// met. Returns the bound and, where something was dropped, the problem as it was before.
fn settle(
    problem: &mut Factors,
    prices: &mut Prices,
    limits: &Limits,
    Sweeps { fresh, shrink }: Sweeps,
    plan: &mut i64,
) -> (i64, Option<Whole>) {
    let patience = if shrink || prices.sides.is_empty() { PATIENCE } else { PATIENCE_OF_BRANCHES };
    let mut bound = i64::MIN;
    let mut whole = None;
    let mut leaps = Leaps::default();
    let sweeps = limits.sweeps.max(1);
    for sweep in 0..sweeps {
        // Whoever called looks whether it was stopped, and takes no result then.
        if limits.stop.is_time_up() {
            break;
        }
        prices.up(problem, fresh && sweep == 0);
        if prices.bound() >= FAR {
            return (FAR, whole);
        }
        if shrink && problem.exact {
            *plan = (*plan).min(prices.favoured(problem));
        }
        prices.down(problem);
        if leaps.take_back(prices, bound) {
            continue;
        }
        let now = prices.bound();
        let gain = now.saturating_sub(bound);
        let slow = match *plan {
            plan if shrink || prices.sides.is_empty() || plan >= FAR => gain <= bound / patience,
            plan => gain <= plan.saturating_sub(now) / WORTH_SWEEPING,
        };
        let still = sweep > 0 && (gain <= problem.ticks / 16 || (slow && nodes(problem) > SMALL));
        bound = bound.max(now);
        let rates = prices.sides.at_a_rate
            && prices.sides.parts.iter().any(|p| matches!(p.kind, Kind::Memory { .. }));
        if still && rates {
            prices.sides.at_a_rate = false;
            continue;
        }
        // One sweep more than the bound needs, since the first leaves the dearer alternatives
        // looking cheap.
        if still || (bound > plan.saturating_sub(problem.ticks) && sweep > 0) {
            break;
        }
        if *plan < FAR
            && let Some(before) = drop_dearer(problem, prices, *plan)
        {
            whole.get_or_insert(before);
            leaps.start_anew();
        } else if sweep + 1 < sweeps {
            leaps.leap(prices, gain);
        }
    }
    (bound, whole)
}

/// Nodes below which a problem is not worth shrinking.
const WORTH_SHRINKING: usize = 100;

/// Nodes below which sweeps are cheap, so that even a small gain is taken.
const SMALL: usize = 1000;

fn nodes(problem: &Factors) -> usize {
    problem.live.iter().map(|id| problem.nodes(*id)).sum()
}

/// Drops what no plan that takes at most `plan` picoseconds can use, where that is a good part of
/// the whole; returns what was there before.
fn drop_dearer(problem: &mut Factors, prices: &mut Prices, plan: i64) -> Option<Whole> {
    let nodes = cheap_nodes(problem, prices, plan);
    let all: usize = nodes.iter().map(Vec::len).sum();
    let kept = nodes.iter().flatten().filter(|k| **k).count();
    if all < WORTH_SHRINKING || kept * 4 > all * 3 {
        return None;
    }
    let (small, fewer) = narrowed_to(problem, prices, &nodes, plan, &|_, _| true);
    Some(Whole {
        problem: std::mem::replace(problem, small),
        prices: std::mem::replace(prices, fewer),
    })
}

/// For each value, which nodes may be in a plan that takes at most `most` picoseconds.
fn cheap_nodes(problem: &Factors, prices: &Prices, most: i64) -> Vec<Vec<bool>> {
    let mut nodes = vec![Vec::new(); problem.factors.len()];
    for id in &problem.live {
        nodes[id.index()] = prices.through_node[id.index()].iter().map(|t| *t <= most).collect();
    }
    nodes
}

/// The problem with those nodes alone, and those strategies between them that may be in a plan that
/// takes at most `most` picoseconds and that `keep` keeps, given the value and the number of the
/// strategy.
fn narrowed_to(
    problem: &Factors,
    prices: &Prices,
    nodes: &[Vec<bool>],
    most: i64,
    keep: &dyn Fn(ValueId, usize) -> bool,
) -> (Factors, Prices) {
    let mut strategies = vec![Vec::new(); problem.factors.len()];
    for id in &problem.live {
        let v = id.index();
        let factor = &problem.factors[v];
        strategies[v] = (0..factor.out.len())
            .map(|s| {
                prices.through_strategy[v][s] <= most
                    && nodes[v][factor.out[s] as usize]
                    && factor
                        .reads_of(s)
                        .iter()
                        .zip(&problem.operands[v])
                        .all(|(n, o)| nodes[o.index()][*n as usize])
                    && keep(*id, s)
            })
            .collect::<Vec<bool>>();
    }
    let (small, renamed) = problem.shrunk(nodes, &strategies);
    let prices = prices.shrunk(&small, &renamed, &strategies);
    (small, prices)
}

/// A problem with prices on all of it, for questions about plans dearer than the best.
#[derive(Debug)]
pub(crate) struct Whole {
    problem: Factors,
    prices: Prices,
}

/// What is asked of a [`Whole`]: plans that make one value in some ways alone.
pub(crate) struct Question<'a> {
    whole: &'a Whole,
    value: ValueId,
    /// Of each strategy of the value, whether it is one of them.
    kept: Vec<bool>,
}

impl Whole {
    /// What the prices say, after a sweep down, of the plans of a program that allows other layouts
    /// of its parameters; `None` where more differs.
    fn bound_beside(&self, problem: &Factors) -> Option<i64> {
        let alone = self.problem.differs_in_parameters_alone(problem);
        alone.then(|| self.prices.bound_of_parameters(problem, &|_, _| true))
    }

    /// The same with labels fixed.
    pub(crate) fn under(&self, program: &Program, labels: &[Layout]) -> Whole {
        let problem = self.problem.with_labels(program, labels);
        let mut prices = self.prices.narrowed(&problem);
        prices.up(&problem, false);
        prices.down(&problem);
        Whole { problem, prices }
    }

    /// How many strategies there are.
    pub(crate) fn strategies(&self) -> usize {
        self.problem.factors.iter().map(|factor| factor.out.len()).sum()
    }

    /// A question about a value: it may be made by the strategies for which `keep` says yes, given
    /// the layouts of the result and of what is read.
    pub(crate) fn question(
        &self,
        value: ValueId,
        keep: &dyn Fn(Layout, &[Layout]) -> bool,
    ) -> Question<'_> {
        let factor = &self.problem.factors[value.index()];
        let kept = (0..factor.out.len())
            .map(|s| {
                let read = factor.reads_of(s).iter().zip(&self.problem.operands[value.index()]);
                let read: Option<Vec<Layout>> =
                    read.map(|(n, o)| self.problem.layout(*o, *n)).collect();
                let out = self.problem.layout(value, factor.out[s]);
                out.zip(read).is_some_and(|(out, read)| keep(out, &read))
            })
            .collect();
        Question { whole: self, value, kept }
    }

    /// The layouts of a value that it reaches from one without traffic, that one too.
    pub(crate) fn reached_free(&self, value: ValueId, from: Layout) -> Vec<Layout> {
        self.problem.reached_free(value, from)
    }
}

impl Question<'_> {
    /// No such plan takes less, in picoseconds; `None` where there is no such plan.
    pub(crate) fn least(&self) -> Option<u64> {
        let through = &self.whole.prices.through_strategy[self.value.index()];
        let least =
            through.iter().zip(&self.kept).filter(|(_, kept)| **kept).map(|(t, _)| *t).min()?;
        self.whole.problem.picoseconds(least)
    }

    /// The part of the problem that such plans of at most `most` picoseconds are made of, priced.
    pub(crate) fn within(&self, most: u64, limits: &Limits) -> Priced {
        let Whole { problem, prices } = self.whole;
        let most = problem.in_time(most);
        let keep = |v: ValueId, s: usize| v != self.value || self.kept[s];
        let nodes = cheap_nodes(problem, prices, most);
        let (mut problem, mut prices) = narrowed_to(problem, prices, &nodes, most, &keep);
        let mut plan = FAR;
        let (bound, _) = settle(
            &mut problem,
            &mut prices,
            limits,
            Sweeps { fresh: false, shrink: true },
            &mut plan,
        );
        Priced::read(&problem, &prices, bound)
    }
}

impl Factors {
    /// What plans take that take so many ticks or more, in picoseconds: plans take whole ones.
    /// `None` where there is none.
    fn picoseconds(&self, bound: i64) -> Option<u64> {
        picoseconds(bound, self.ticks)
    }

    /// A time in ticks, below [`FAR`].
    fn in_time(&self, time: u64) -> i64 {
        in_time(time, self.ticks)
    }
}

fn picoseconds(bound: i64, ticks: i64) -> Option<u64> {
    (bound < FAR).then(|| u64::try_from(bound).unwrap_or(0).div_ceil(ticks.unsigned_abs().max(1)))
}

fn in_time(time: u64, ticks: i64) -> i64 {
    i64::try_from(time).unwrap_or(FAR).saturating_mul(ticks).min(FAR - 1)
}

/// The bound, and what each alternative of the plan space costs at least.
pub(crate) struct Priced {
    /// No plan takes less, in picoseconds; `None` where there is no plan.
    pub(crate) bound: Option<u64>,
    /// In ticks.
    values: Vec<Vec<(Layout, i64)>>,
    strategies: Vec<Vec<(i64, Layout, Vec<Layout>)>>,
    ticks: i64,
}

impl Priced {
    fn read(problem: &Factors, prices: &Prices, bound: i64) -> Priced {
        let mut values = Vec::with_capacity(problem.factors.len());
        let mut strategies = Vec::with_capacity(problem.factors.len());
        for v in 0..problem.factors.len() {
            let id = ValueId(v as u32);
            let layouts = problem.graphs[v].layouts.iter().copied();
            values.push(layouts.zip(prices.through_node[v].iter().copied()).collect());
            let factor = &problem.factors[v];
            let mut all = Vec::new();
            for s in 0..factor.out.len() {
                let t = prices.through_strategy[v][s];
                if t >= FAR {
                    continue;
                }
                let read = factor.reads_of(s).iter().zip(&problem.operands[v]);
                let read: Option<Vec<Layout>> = read.map(|(n, o)| problem.layout(*o, *n)).collect();
                if let (Some(out), Some(read)) = (problem.layout(id, factor.out[s]), read) {
                    all.push((t, out, read));
                }
            }
            strategies.push(all);
        }
        Priced { bound: problem.picoseconds(bound), values, strategies, ticks: problem.ticks }
    }

    /// What the dearest alternative costs at least, in picoseconds: in a region this wide nothing
    /// is left out.
    pub(crate) fn dearest(&self) -> u64 {
        let values = self.values.iter().flatten().map(|(_, t)| *t);
        let dearest = values
            .chain(self.strategies.iter().flatten().map(|(t, _, _)| *t))
            .filter(|t| *t < FAR)
            .max();
        picoseconds(dearest.unwrap_or(0), self.ticks).unwrap_or(0)
    }

    /// What may be in a plan that takes no more than `most` picoseconds.
    pub(crate) fn region(&self, most: u64) -> Region {
        let most = in_time(most, self.ticks);
        let layouts = self
            .values
            .iter()
            .map(|all| all.iter().filter(|(_, t)| *t <= most).map(|(l, _)| *l).collect())
            .collect();
        let strategies = self
            .strategies
            .iter()
            .map(|all| {
                let mut kept: FxHashMap<Layout, Vec<Vec<Layout>>> = FxHashMap::default();
                for (t, out, read) in all {
                    if *t <= most {
                        let ways = kept.entry(*out).or_default();
                        if !ways.contains(read) {
                            ways.push(read.clone());
                        }
                    }
                }
                kept
            })
            .collect();
        Region { layouts, strategies }
    }
}
