//! A part of the plans of a program with prices on it, and how it falls in parts of its own where
//! labels or memory leave something to agree upon.

use std::collections::BTreeSet;
use std::sync::Arc;

use shard_ir::{Def, Layout, Program, ValueId};

use super::graph::FAR;
use super::guide::Guide;
use super::parts::{NO_CLASS, Part, PartKind, Seat};
use super::priced::Priced;
use super::settle::{Sweeps, drop_dearer, settle};
use super::whole::Whole;
use crate::Limits;
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;

/// The plans of a program, as far as they are looked at together, with prices on what they are made
/// of.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(super) whole: Arc<Whole>,
    /// What the prices say that any of them takes, in ticks; `FAR` where there is none.
    pub(super) bound: i64,
}

/// What is to be done with a branch.
pub(crate) enum BranchAction {
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

    /// What they are made of.
    pub(crate) fn whole(&self) -> Arc<Whole> {
        Arc::clone(&self.whole)
    }

    /// The same in ticks.
    pub(crate) fn bound_in_ticks(&self) -> Option<i64> {
        (self.bound < FAR).then_some(self.bound)
    }

    /// How many layouts its values may have, hubs and states of kernels counted.
    pub(crate) fn nodes(&self) -> usize {
        let problem = &self.whole.problem;
        problem.live.iter().map(|id| problem.nodes(*id)).sum()
    }

    /// How many strategies there are in it.
    pub(crate) fn strategies(&self) -> usize {
        self.whole.strategies()
    }

    /// For each parameter the layouts in which its plans may store it.
    pub(crate) fn stored(&self, program: &Program) -> Vec<Vec<Layout>> {
        let is_given = |id: &ValueId| matches!(program.value(*id).def, Def::Parameter { .. });
        let given = |id| self.whole.problem.given(program, id);
        program.value_ids().filter(is_given).map(given).collect()
    }

    /// What each alternative costs at least.
    pub(crate) fn priced(&self) -> Priced {
        Priced::read(Arc::clone(&self.whole), self.bound)
    }

    /// What the prices say of plans that are decided in part.
    pub(crate) fn guide(&self) -> Guide {
        Guide::read(&self.whole.problem, &self.whole.prices)
    }

    /// The plans of it that take no longer than `most`, in picoseconds; its prices stay as they
    /// are.
    pub(crate) fn taking_at_most(&self, most: u64) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let (mut problem, mut prices) = (problem.clone(), prices.clone());
        let most = problem.in_time(most);
        drop_dearer(&mut problem, &mut prices, most);
        Branch { whole: Arc::new(Whole { problem, prices }), ..self.clone() }
    }

    /// Prices it again: `known` is what a plan takes, beyond which nothing is wanted.
    pub(crate) fn settle(&mut self, limits: &Limits, known: Option<u64>) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (mut problem, mut prices) = (problem.clone(), prices.clone());
        let mut plan = known.map_or(FAR, |known| problem.in_time(known));
        if plan < FAR {
            drop_dearer(&mut problem, &mut prices, plan);
        }
        let near = prices.sides.is_empty();
        // What seems the best plan is one of those wanted where nothing is left to agree upon.
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

    /// What comes next, given what a plan is known to take; `dived` are the ways of filling the
    /// memory that were tried, of `most_dives` that may be.
    pub(crate) fn fork(
        &self,
        known: Option<u64>,
        dived: &mut BTreeSet<Vec<u32>>,
        most_dives: usize,
    ) -> BranchAction {
        let most = known.map_or(FAR - 1, |known| self.whole.problem.in_time(known));
        let sides = &self.whole.prices.sides;
        if let Some((part, live)) = self.open_memory(most) {
            let Some(place) = self.widest(part, &live) else {
                return BranchAction::Branches(Vec::new());
            };
            let all = (0..sides.parts.len()).flat_map(|part| sides.best(part)).collect();
            if dived.len() < most_dives && dived.insert(all) {
                return BranchAction::Dive;
            }
            return BranchAction::Branches(self.by_memory(part, place, &live[place]));
        }
        match self.open_label(most) {
            Some((part, live)) => BranchAction::Branches(self.by_label(part, &live)),
            None => BranchAction::Search(self.labels()),
        }
    }

    /// A part of it that has what seems best at so many of the places that are still open, at most,
    /// and how many it are; `None` where none is open. Of labels all are decided at once.
    pub(crate) fn toward_the_best(&self, most: usize) -> Option<(Branch, usize)> {
        let sides = &self.whole.prices.sides;
        if self.open_label(FAR - 1).is_some() {
            // All labels at once: each by itself would have the whole program priced again.
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

    /// The label of fewest live layouts among those that have several.
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

    /// A memory in which not everything that is live fits together, and what is live at each place.
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

    /// The layouts of the labels that seem best.
    pub(crate) fn labels(&self) -> Vec<Layout> {
        let sides = &self.whole.prices.sides;
        let layout = |(part, p): (usize, &Part)| match &p.kind {
            // One that no place of the plan bears has any layout.
            PartKind::Label { layouts } => {
                layouts.get(sides.best(part).first().copied().unwrap_or(0) as usize).copied()
            }
            PartKind::Memory { .. } => None,
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
        let whole = Arc::new(Whole { problem, prices });
        Branch { whole, bound }
    }

    /// Those of its plans that store nothing that plans within `known` have no room for. Where no
    /// memory is open whatever they store fits together; what does not would be taken for a plan
    /// by a search that looks at no memory.
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

    /// Those of its plans whose weights and caches take no more bytes than these.
    pub(crate) fn keeping_at_most(&self, bytes: u64) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let (problem, mut prices) = (problem.clone(), prices.clone());
        prices.sides = prices.sides.keeping_at_most(bytes);
        let bound = self.bound.max(prices.bound());
        let whole = Arc::new(Whole { problem, prices });
        Branch { whole, bound }
    }

    /// What the weights and caches of its plans take at most, in bytes.
    pub(crate) fn keeps_at_most(&self, program: &Program, memory: &DeviceMemory<'_>) -> u64 {
        let most = |id: ValueId| {
            let given = self.whole.problem.given(program, id).into_iter();
            given.map(|layout| memory.kept(id, layout)).max().unwrap_or(0)
        };
        let kept = program.value_ids().filter(|id| memory.is_kept(*id));
        kept.map(most).fold(0, u64::saturating_add)
    }

    /// Leaves out what has no room beside the weights and caches that all its plans store.
    pub(crate) fn fit(&mut self, kernels: &Kernels, memory: &DeviceMemory<'_>) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (memory, fits) = self.memory(&kernels.program, memory).fitting(kernels, problem);
        let mut prices = prices.narrowed(&fits);
        prices.sides = prices.sides.keeping_at_most(memory.most_kept());
        self.whole = Arc::new(Whole { problem: fits, prices });
    }

    /// The memory beside the weights and caches that all its plans store.
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

/// So many steps lead at least to the plans that store everything as seems best, where there are as
/// many places.
const STEPS_AT_LEAST: usize = 8;

/// So many layouts of a label are branches of their own; of more, the best is one and the others
/// are another.
const MAX_LABEL_BRANCHES: usize = 8;
