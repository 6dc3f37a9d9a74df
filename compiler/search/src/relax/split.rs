//! Branches that are divided without dropping any alternative, so that the prices of each can be
//! shown to a checker.

use std::sync::Arc;

use shard_ir::{Layout, ValueId, never};

use super::factors::Factors;
use super::graph::FAR;
use super::kept::KeptCosts;
use super::leap::Leaps;
use super::parts::{Part, PartKind, Seat};
use super::prices::Prices;
use super::{Branch, Whole};
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;

/// A question that divides the plans of a branch in two.
pub(crate) enum Split {
    /// Whether at most this many bytes of a weight or cache are stored.
    Stored(ValueId, u64),
    /// Whether a label, by its number, has this layout.
    Label(usize, Layout),
}

/// How far the prices of a branch are swept.
#[derive(Clone, Copy)]
pub(crate) struct Goal {
    /// The bound that the prices are to show, in picoseconds.
    pub(crate) target: u64,
    /// The most sweeps.
    pub(crate) sweeps: usize,
}

/// Sweeps end when more than this many like the last one would be needed to reach the goal.
const WORTH_SWEEPING: i64 = 24;

/// At least this many sweeps are made, as long as each raises the bound.
const FEWEST: usize = 6;

impl Branch {
    /// All plans of a problem, with prices that are still to be swept; `target` is the bound that
    /// the prices are to show, in picoseconds.
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

    /// The problem and its prices.
    pub(crate) fn problem_and_prices(&self) -> (&Factors, &Prices) {
        (&self.whole.problem, &self.whole.prices)
    }

    /// Sweeps prices until they show the goal or gain too little. Nothing is dropped.
    pub(crate) fn sweep(&mut self, Goal { target, sweeps }: Goal, fresh: bool) {
        let Whole { problem, prices } = self.whole.as_ref();
        let (problem, mut prices) = (problem.clone(), prices.clone());
        let goal = i64::try_from(target).unwrap_or(FAR).saturating_mul(problem.ticks).min(FAR - 1);
        let (mut best, mut leaps, mut kept) = (i64::MIN, Leaps::default(), KeptCosts::default());
        for sweep in 0..sweeps.max(1) {
            prices.up(&problem, fresh && sweep == 0, &mut kept);
            if prices.bound() >= FAR {
                best = FAR;
                break;
            }
            prices.down(&problem, &mut kept);
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

    /// Divides the branch by the most open question among plans of less than `target` picoseconds:
    /// returns the question, the plans for which the answer is yes, and the other plans. Memories
    /// in which not everything fits come first, then labels, then the other memories, since prices
    /// may be short of a plan there, too. `None` where all of these plans store each weight and
    /// cache in the same number of bytes and give each label the same layout.
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

    /// Divides by what is stored at the place of a memory that leaves the widest range of bytes
    /// open.
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
            never!("a memory that stores a result", return None)
        };
        let (up_to, low, high) = self.halved(part, place, &live[place]);
        Some((Split::Stored(value, bytes[place][up_to]), low, high))
    }

    /// Divides by whether a label has the layout that seems best.
    fn divided_by_label(&self, part: usize) -> Option<(Split, Branch, Branch)> {
        let sides = &self.whole.prices.sides;
        let best = sides.best(part).first().copied()?;
        let PartKind::Label { layouts } = &sides.parts[part].kind else { return None };
        let layout = *layouts.get(best as usize)?;
        let (one, others) = (
            self.having(part, &|_, class| class == best),
            self.having(part, &|_, class| class != best),
        );
        // The labels are the first parts, in their order, so that the number of the part is that of
        // the label.
        Some((Split::Label(part, layout), one, others))
    }
}
