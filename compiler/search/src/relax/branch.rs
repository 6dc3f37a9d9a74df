//! A branch: a part of the plans of a program, with prices. A branch is divided into smaller ones
//! where places of a label or a memory still have several classes.

use std::collections::BTreeSet;
use std::sync::Arc;

use shard_ir::{Def, Layout, Program, ValueId, never};

use super::graph::FAR;
use super::guide::Guide;
use super::parts::{NO_CLASS, Part, PartKind, Seat};
use super::priced::Priced;
use super::serving::least_of;
use super::settle::{Sweeps, drop_dearer, settle};
use super::whole::Whole;
use crate::Limits;
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;

/// Plans of a program that are looked at together, and prices on them.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(super) whole: Arc<Whole>,
    /// A lower bound on the plans, in ticks; [`FAR`] where there are none.
    pub(super) bound: i64,
}

/// What to do next with a branch.
pub(crate) enum Fork {
    /// Search the branch. Its labels have these layouts, and all weights and caches that its plans
    /// may store fit.
    Search(Vec<Layout>),
    /// Search the part of the branch that seems best first, and then look at the branch again.
    Dive,
    /// Divide the branch into these, which together have all of its plans.
    Branches(Vec<Branch>),
}

impl Branch {
    /// A lower bound on the plans, in picoseconds; `None` where there are none.
    pub(crate) fn bound(&self) -> Option<u64> {
        self.whole.problem.picoseconds(self.bound)
    }

    /// The problem of the plans, and its prices.
    pub(crate) fn whole(&self) -> Arc<Whole> {
        Arc::clone(&self.whole)
    }

    /// The lower bound in ticks; `None` where there are no plans.
    pub(crate) fn bound_in_ticks(&self) -> Option<i64> {
        (self.bound < FAR).then_some(self.bound)
    }

    /// The number of nodes of all values: layouts, hubs and kernel states.
    pub(crate) fn nodes(&self) -> usize {
        self.whole.problem.all_nodes()
    }

    /// The number of strategies of all values.
    pub(crate) fn strategies(&self) -> usize {
        self.whole.strategies()
    }

    /// For each parameter, the layouts in which the plans may store it.
    pub(crate) fn stored(&self, program: &Program) -> Vec<Vec<Layout>> {
        let is_given = |id: &ValueId| matches!(program.value(*id).def, Def::Parameter { .. });
        let given = |id| self.whole.problem.given(program, id);
        program.value_ids().filter(is_given).map(given).collect()
    }

    /// A lower bound on the plans with each alternative.
    pub(crate) fn priced(&self) -> Priced {
        Priced::read(Arc::clone(&self.whole), self.bound)
    }

    /// The prices as a guide for a search, in which some values are decided and others are not.
    pub(crate) fn guide(&self) -> Guide {
        Guide::read(&self.whole.problem, &self.whole.prices)
    }

    /// The branch without what no plan of at most `most` picoseconds uses. The prices are not swept
    /// again.
    pub(crate) fn taking_at_most(&self, most: u64) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let (mut problem, mut prices) = (problem.clone(), prices.clone());
        let most = problem.in_time(most);
        drop_dearer(&mut problem, &mut prices, most);
        Branch { whole: Arc::new(Whole { problem, prices }), ..self.clone() }
    }

    /// Sweeps the prices again; `known` is the time of a known plan, in picoseconds, and slower
    /// plans are of no interest.
    pub(crate) fn settle(&mut self, limits: &Limits, known: Option<u64>) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (mut problem, mut prices) = (problem.clone(), prices.clone());
        let mut plan = known.map_or(FAR, |known| problem.in_time(known));
        if plan < FAR {
            drop_dearer(&mut problem, &mut prices, plan);
        }
        let near = prices.sides.is_empty();
        // The plan that prices favour is a plan of the branch only if no label and no memory is
        // left to agree upon.
        let agreed = prices.sides.parts.iter().enumerate().all(|(part, p)| match p.kind {
            PartKind::Label { .. } => {
                prices.sides.live(part, FAR - 1).iter().all(|live| live.len() <= 1)
            }
            PartKind::Memory { .. } => false,
        });
        let (bound, _) = settle(
            &mut problem,
            &mut prices,
            limits,
            Sweeps { fresh: false, shrink: agreed, near, rough: None },
            &mut plan,
        );
        self.bound = self.bound.max(bound);
        self.whole = Arc::new(Whole { problem, prices });
    }

    /// What to do next with the branch, given the time of a known plan. `dived` holds the ways of
    /// filling the memory that were searched already, of which there may be `most_dives`.
    pub(crate) fn fork(
        &self,
        known: Option<u64>,
        dived: &mut BTreeSet<Vec<u32>>,
        most_dives: usize,
    ) -> Fork {
        let most = known.map_or(FAR - 1, |known| self.whole.problem.in_time(known));
        let sides = &self.whole.prices.sides;
        if let Some((part, live)) = self.open_memory(most) {
            let Some(place) = self.widest(part, &live) else {
                return Fork::Branches(Vec::new());
            };
            let all = (0..sides.parts.len()).flat_map(|part| sides.best(part)).collect();
            if dived.len() < most_dives && dived.insert(all) {
                return Fork::Dive;
            }
            let (_, low, high) = self.halved(part, place, &live[place]);
            return Fork::Branches(vec![low, high]);
        }
        match self.open_label(most) {
            Some((part, live)) => Fork::Branches(self.by_label(part, &live)),
            None => Fork::Search(self.labels()),
        }
    }

    /// The branch in which some of the open places have the class that seems best: at most `most`
    /// places of a memory, or all labels at once. Also returns how many places that are; `None`
    /// where no place is open.
    pub(crate) fn toward_the_best(&self, most: usize) -> Option<(Branch, usize)> {
        let sides = &self.whole.prices.sides;
        if self.open_label(FAR - 1).is_some() {
            // All labels are decided at once, since deciding one alone means that the whole program
            // is priced again.
            let labels = (0..sides.parts.len())
                .filter(|part| matches!(sides.parts[*part].kind, PartKind::Label { .. }));
            let best: Vec<(usize, u32)> = labels
                .filter_map(|part| Some((part, sides.best(part).first().copied()?)))
                .collect();
            let having = |branch: Branch, (part, best): (usize, u32)| {
                branch.having(part, &|_, class| class == best)
            };
            return Some((best.into_iter().fold(self.clone(), having), 1));
        }
        let (part, mut live) = self.open_memory(FAR - 1)?;
        let best = sides.best(part);
        let open = live.iter().filter(|live| live.len() > 1).count();
        let mut decided = vec![false; live.len()];
        let count = most.min(open / STEPS_AT_LEAST).max(1);
        for _ in 0..count {
            let place = self.widest(part, &live)?;
            decided[place] = true;
            live[place].truncate(1);
        }
        let is_so = |place: usize, class: u32| !decided[place] || class == best[place];
        Some((self.having(part, &is_so), count))
    }

    /// The open label with the fewest live layouts: a label is open if it has several live layouts.
    pub(super) fn open_label(&self, most: i64) -> Option<(usize, Vec<usize>)> {
        let sides = &self.whole.prices.sides;
        let labels = sides
            .parts
            .iter()
            .enumerate()
            .filter(|(_, p)| matches!(p.kind, PartKind::Label { .. }));
        let live = |(part, _)| {
            let live: Option<Vec<usize>> = sides.live(part, most).into_iter().min_by_key(Vec::len);
            live.filter(|live| live.len() > 1).map(|live| (part, live))
        };
        labels.filter_map(live).min_by_key(|(_, live)| live.len())
    }

    /// A memory in which the largest live classes do not fit together, with the live classes of
    /// each place.
    pub(super) fn open_memory(&self, most: i64) -> Option<(usize, Vec<Vec<usize>>)> {
        let sides = &self.whole.prices.sides;
        sides.parts.iter().enumerate().find_map(|(part, p)| {
            let PartKind::Memory { bytes, most: fits } = &p.kind else { return None };
            let live = sides.live(part, most);
            let most_of = |(live, bytes): (&Vec<usize>, &Vec<u64>)| {
                live.last().map_or(0, |class| bytes[*class])
            };
            let largest = live.iter().zip(bytes).map(most_of).fold(0, u64::saturating_add);
            (largest > *fits).then_some((part, live))
        })
    }

    /// The layout of each label that seems best.
    pub(crate) fn labels(&self) -> Vec<Layout> {
        let sides = &self.whole.prices.sides;
        let layout = |(part, p): (usize, &Part)| match &p.kind {
            // A label that no place of the plan bears may have any layout.
            PartKind::Label { layouts } => {
                layouts.get(sides.best(part).first().copied().unwrap_or(0) as usize).copied()
            }
            PartKind::Memory { .. } => None,
        };
        sides.parts.iter().enumerate().filter_map(layout).collect()
    }

    /// The branches of a label: one for each live layout, or, if these are many, one for the best
    /// layout and one for all others.
    fn by_label(&self, part: usize, live: &[usize]) -> Vec<Branch> {
        let best = self.whole.prices.sides.best(part);
        let best =
            best.first().copied().unwrap_or_else(|| never!("an open label without places", 0));
        let one = |layout: u32| self.having(part, &|_, class| class == layout);
        if live.len() <= MAX_LABEL_BRANCHES {
            // The best layout comes first.
            let mut live = live.to_vec();
            live.sort_by_key(|layout| (*layout as u32 != best, *layout));
            return live.into_iter().map(|layout| one(layout as u32)).collect();
        }
        vec![
            one(best),
            self.having(part, &|_, class| class != best && live.contains(&(class as usize))),
        ]
    }

    /// Divides by what a place of a memory stores, where two or more classes are live. Returns the
    /// largest class of the first branch, which is the one that seems best if the second branch
    /// still has a class then, and both branches.
    pub(super) fn halved(
        &self,
        part: usize,
        place: usize,
        live: &[usize],
    ) -> (usize, Branch, Branch) {
        let best = self.whole.prices.sides.best(part)[place] as usize;
        // The largest class is never the limit, so that the second branch has at least that class.
        let smaller = &live[..live.len() - 1];
        let up_to = smaller.iter().rfind(|class| **class <= best).or(smaller.first()).copied();
        let up_to = up_to.unwrap_or_else(|| never!("an open place of one class", 0));
        let low = self.having(part, &|p, class| p != place || class as usize <= up_to);
        let high = self.having(part, &|p, class| p != place || class as usize > up_to);
        (up_to, low, high)
    }

    /// The place of a memory with the widest range of bytes among its live classes; `None` where
    /// each place has a single live class, or some place has none.
    pub(super) fn widest(&self, part: usize, live: &[Vec<usize>]) -> Option<usize> {
        let PartKind::Memory { bytes, .. } = &self.whole.prices.sides.parts[part].kind else {
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
    pub(super) fn having(&self, part: usize, keep: &dyn Fn(usize, u32) -> bool) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let mut problem = problem.clone();
        let mut bound = self.bound;
        for (n, place) in prices.sides.parts[part].places.iter().enumerate() {
            let through = prices.sides.through[part][n].iter().enumerate();
            let kept =
                through.filter(|(class, _)| keep(n, *class as u32)).map(|(_, through)| *through);
            bound = bound.max(least_of(kept));
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
        let whole = Arc::new(Whole { problem, prices });
        Branch { whole, bound }
    }

    /// The plans without stored layouts that no plan within `known` has. A search without memory
    /// would otherwise take a plan whose stored layouts do not fit for a plan of the branch: that a
    /// memory is not open means that the live layouts fit together, and no others.
    pub(crate) fn within_memory(&self, known: Option<u64>) -> Branch {
        let most = known.map_or(FAR - 1, |known| self.whole.problem.in_time(known));
        let sides = &self.whole.prices.sides;
        let mut branch = self.clone();
        for (part, p) in sides.parts.iter().enumerate() {
            let (live, all) = (sides.live(part, most), sides.live(part, FAR - 1));
            if matches!(p.kind, PartKind::Memory { .. }) && live != all {
                branch = branch.having(part, &|p, class| live[p].contains(&(class as usize)));
            }
        }
        branch
    }

    /// The plans whose weights and caches take at most this many bytes.
    pub(crate) fn keeping_at_most(&self, bytes: u64) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let (problem, mut prices) = (problem.clone(), prices.clone());
        prices.sides = prices.sides.keeping_at_most(bytes);
        let bound = self.bound.max(prices.bound());
        let whole = Arc::new(Whole { problem, prices });
        Branch { whole, bound }
    }

    /// The most bytes that the weights and caches of the plans take.
    pub(crate) fn keeps_at_most(&self, program: &Program, memory: &DeviceMemory<'_>) -> u64 {
        let most = |id: ValueId| {
            let given = self.whole.problem.given(program, id).into_iter();
            given.map(|layout| memory.kept(id, layout)).max().unwrap_or(0)
        };
        let kept = program.value_ids().filter(|id| memory.is_kept(*id));
        kept.map(most).fold(0, u64::saturating_add)
    }

    /// Leaves out the strategies that have no room beside the smallest weights and caches of the
    /// plans.
    pub(crate) fn fit(&mut self, kernels: &Kernels, memory: &DeviceMemory<'_>) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (memory, fits) = self.memory(&kernels.program, memory).fitting(kernels, problem);
        let mut prices = prices.narrowed(&fits);
        prices.sides = prices.sides.keeping_at_most(memory.most_kept());
        self.whole = Arc::new(Whole { problem: fits, prices });
    }

    /// The memory beside the smallest weights and caches that the plans of the branch store.
    pub(crate) fn memory<'r>(
        &self,
        program: &'r Program,
        memory: &DeviceMemory<'r>,
    ) -> DeviceMemory<'r> {
        let least = |id: ValueId| {
            let kept =
                self.whole.problem.given(program, id).into_iter().map(|l| memory.kept(id, l)).min();
            kept.filter(|_| memory.is_kept(id)).unwrap_or(0)
        };
        memory.beside(program.value_ids().map(least).collect())
    }
}

/// The best of all places of a memory is reached in at least this many steps, if there are as many
/// places.
const STEPS_AT_LEAST: usize = 8;

/// Up to this many layouts of a label get a branch each; if there are more, one branch has the best
/// layout and another has all others.
const MAX_LABEL_BRANCHES: usize = 8;
