//! Plans divided in branches that keep all their alternatives, so that the prices of each can be
//! shown to others.

use std::sync::Arc;

use shard_ir::{Layout, ValueId};

use super::factors::Factors;
use super::graph::FAR;
use super::leap::Leaps;
use super::parts::{Part, PartKind, Seat};
use super::prices::Prices;
use super::{Branch, Whole};
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;

/// A question that divides the plans of a branch.
pub(crate) enum Split {
    /// Whether at most so many bytes of a weight or cache are stored.
    Stored(ValueId, u64),
    /// Whether a label, by number, has this layout.
    Label(usize, Layout),
}

/// How prices are swept in branches.
#[derive(Clone, Copy)]
pub(crate) struct Goal {
    /// What they are to show, in picoseconds.
    pub(crate) target: u64,
    /// Sweeps at most.
    pub(crate) sweeps: usize,
}

/// Sweeps that would take more than so many of their kind to reach the goal end it.
const WORTH_SWEEPING: i64 = 24;

/// Sweeps that are made at least, where they gain anything.
const FEWEST: usize = 6;

impl Branch {
    /// All plans of a problem, without prices yet; these are to show `target`, in picoseconds.
    pub(crate) fn unpriced(
        kernels: &Kernels,
        problem: Factors,
        memory: Option<&DeviceMemory<'_>>,
        target: u64,
    ) -> Branch {
        let parts = Arc::new(Part::all(kernels, memory));
        let prices = Prices::new(&problem).with_parts(&problem, parts);
        let prices = prices.in_numbers(&problem, problem.in_time(target));
        let whole = Arc::new(Whole { problem, prices });
        Branch { whole, bound: 0 }
    }

    /// The prices, and what they are of.
    pub(crate) fn parts(&self) -> (&Factors, &Prices) {
        (&self.whole.problem, &self.whole.prices)
    }

    /// Sweeps prices until they show the goal, or will not soon. Nothing is dropped.
    pub(crate) fn sweep(&mut self, Goal { target, sweeps }: Goal, fresh: bool) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (problem, mut prices) = (problem.clone(), prices.clone());
        let goal = i64::try_from(target).unwrap_or(FAR).saturating_mul(problem.ticks).min(FAR - 1);
        let (mut best, mut leaps) = (i64::MIN, Leaps::default());
        for sweep in 0..sweeps.max(1) {
            prices.up(&problem, fresh && sweep == 0);
            if prices.bound() >= FAR {
                best = FAR;
                break;
            }
            prices.down(&problem);
            if leaps.take_back(&mut prices, best) {
                continue;
            }
            let now = prices.bound();
            let gain = now.saturating_sub(best);
            best = best.max(now);
            if now >= goal {
                break;
            }
            let slow =
                gain <= 0 || (sweep >= FEWEST && gain <= goal.saturating_sub(now) / WORTH_SWEEPING);
            if slow && !std::mem::replace(&mut prices.sides.at_a_rate, false) {
                break;
            }
            if sweep + 1 < sweeps {
                leaps.leap(&mut prices, gain);
            }
        }
        self.bound = self.bound.max(best);
        self.whole = Arc::new(Whole { problem, prices });
    }

    /// The question that is most open among plans of less than so many picoseconds; those for which
    /// it holds, and the others. Memories that not all fits in come first, then labels, then
    /// memories in which all fits: prices may be short of a plan there too. `None` where each
    /// weight and cache takes the same in all of these plans, and each label has one layout.
    pub(crate) fn divided(&self, target: u64) -> Option<(Split, Branch, Branch)> {
        let most = self.whole.problem.in_time(target.saturating_sub(1));
        if let Some((part, live)) = self.open_memory(most) {
            return self.divided_by_memory(part, &live);
        }
        if let Some((part, _)) = self.open_label(most) {
            return self.divided_by_label(part);
        }
        let sides = &self.whole.prices.sides;
        (0..sides.parts.len()).find_map(|part| match sides.parts[part].kind {
            PartKind::Memory { .. } => self.divided_by_memory(part, &sides.live(part, most)),
            PartKind::Label { .. } => None,
        })
    }

    /// Whether more is stored at the place of a memory that leaves most bytes open.
    fn divided_by_memory(
        &self,
        part: usize,
        live: &[Vec<usize>],
    ) -> Option<(Split, Branch, Branch)> {
        let sides = &self.whole.prices.sides;
        let place = self.widest(part, live)?;
        let (PartKind::Memory { bytes, .. }, Seat::Value(value)) =
            (&sides.parts[part].kind, sides.parts[part].places[place].seat)
        else {
            return None;
        };
        let smaller = &live[place][..live[place].len() - 1];
        let best = sides.best(part)[place] as usize;
        let up_to = smaller.iter().rfind(|class| **class <= best).or(smaller.first()).copied()?;
        let low = self.having(part, &|p, class| p != place || class as usize <= up_to);
        let high = self.having(part, &|p, class| p != place || class as usize > up_to);
        Some((Split::Stored(value, bytes[place][up_to]), low, high))
    }

    /// Whether a label has the layout that seems best.
    fn divided_by_label(&self, part: usize) -> Option<(Split, Branch, Branch)> {
        let sides = &self.whole.prices.sides;
        let best = sides.best(part).first().copied()?;
        let PartKind::Label { layouts } = &sides.parts[part].kind else { return None };
        let layout = *layouts.get(best as usize)?;
        let (one, others) = (
            self.having(part, &|_, class| class == best),
            self.having(part, &|_, class| class != best),
        );
        // Labels are the first parts, in their order.
        Some((Split::Label(part, layout), one, others))
    }
}
