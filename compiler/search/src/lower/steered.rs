//! Steering towards a plan that leaves room for its own activations, by rates for what is held at
//! each step.
//!
//! Prices of weights and caches know nothing of activations. Where activations fill the memory, the
//! plan that prices favour does not fit, and neither do those that are nearly as good. Here each
//! step has a rate, which ways of making values pay for each byte that they hold at that step
//! ([`Occupancy`]). Under given rates prices lead to a plan. The rate of a step at which the plan
//! holds too much rises, and the rate of a step at which there is room falls.

use std::collections::BTreeSet;

use shard_ir::ValueId;

use super::Lowering;
use super::branches::Explored;
use crate::memory::DeviceMemory;
use crate::occupancy::{Occupancy, Rates};
use crate::relax::{Branch, StrategyLayouts};
use crate::{Limits, LowerError};

/// How many rounds change the rates at most. There are fewer where values may have many layouts.
const ROUNDS: usize = 96;

/// How many rounds there are at least.
const FEWEST_ROUNDS: usize = 2;

/// The rounds, times the square of the number of layouts of all values, come to this at most: a
/// round takes about as long as that square.
const SQUARES_OF_ALL_ROUNDS: usize = 1 << 23;

/// Once a plan is found, rates are changed until so many rounds have brought no better one.
const PATIENCE: usize = 24;

/// How many ways of making values are searched as long as no plan is found.
const TRIED_IN_VAIN: usize = 12;

/// How many sweeps let prices follow the rates.
const SWEEPS: usize = 12;

/// Prices mostly lead to a plan that exceeds their bound by at most this part of the bound, so that
/// only what such plans use is priced at first.
const A_PLAN_RISES_BY: u64 = 32;

/// The pace at which rates change. At a pace of 1 the rate of a step that holds twice as much as
/// there is room for rises so far that filling the room costs as much as the time of a plan.
const FIRST_PACE: f64 = 0.25;

/// The greatest pace.
const FASTEST: f64 = 2.0;

/// The pace is multiplied by this where a plan that is too large follows one that is not, or the
/// other way round: the rates went too far.
const SLOWER: f64 = 0.6;

/// The pace is multiplied by this where a plan that is too large follows another one.
const FASTER: f64 = 1.3;

/// A plan that is too large by at most this part of the room, by the estimate, may fit and is
/// searched.
const NEARLY: u64 = 4;

/// The room is made smaller by this part where a plan that is small enough, by the estimate, does
/// not fit.
const TOO_LITTLE: u64 = 16;

impl Lowering<'_> {
    /// Looks for a plan of a branch that fits in `capacity` bytes, if the search may be steered.
    pub(super) fn steer(
        &mut self,
        branch: &Branch,
        explored: &Explored,
        capacity: u64,
    ) -> Result<(), LowerError> {
        if !self.may_steer {
            return Ok(());
        }
        self.steers = true;
        let found = self.steered(branch, explored, capacity);
        self.steers = false;
        found
    }

    fn steered(
        &mut self,
        branch: &Branch,
        explored: &Explored,
        capacity: u64,
    ) -> Result<(), LowerError> {
        let Some(time) = branch.bound_in_ticks() else { return Ok(()) };
        let program = &explored.kernels.program;
        let memory = branch.memory(program, &DeviceMemory::new(program, capacity));
        let occupancy = Occupancy::new(&explored.kernels, memory);
        let mut room = occupancy.room();
        let (mut rates, mut pace) = (vec![0f64; program.values.len()], FIRST_PACE);
        let mut like = branch.clone();
        let mut tried: BTreeSet<Vec<(_, StrategyLayouts)>> = BTreeSet::new();
        let (mut had_room, mut since_better) = (None, None);
        let rounds = SQUARES_OF_ALL_ROUNDS / branch.nodes().max(1).pow(2);
        for _ in 0..rounds.clamp(FEWEST_ROUNDS, ROUNDS) {
            self.limits.stop.check()?;
            let in_vain = since_better.is_none() && tried.len() >= TRIED_IN_VAIN;
            if room == 0 || in_vain || since_better.is_some_and(|rounds| rounds > PATIENCE) {
                break;
            }
            let paid = Rates::new(&rates);
            let charge = |value, way: &StrategyLayouts| occupancy.charge(&paid, value, way);
            like = branch.dearer(&charge, &like, &self.few_sweeps());
            let Some(ways) = self.decided(&like) else { break };
            let used = occupancy.used(&ways);
            let peak = used.iter().copied().max().unwrap_or(0);
            let has_room = peak <= room;
            since_better = since_better.map(|rounds| rounds + 1);
            if peak <= room.saturating_add(room / NEARLY) && tried.insert(ways.clone()) {
                let so = branch.made_so(&ways, self.limits);
                if self.search_near(&so, explored)? {
                    since_better = Some(0);
                    (room, pace) = (occupancy.room(), FIRST_PACE);
                    rates.iter_mut().for_each(|rate| *rate /= 2.0);
                } else if has_room && since_better.is_none() {
                    room -= room / TOO_LITTLE;
                }
            }
            for (rate, used) in rates.iter_mut().zip(used).filter(|(_, used)| *used > 0) {
                let over = (used as f64 - room as f64) / room as f64;
                *rate = (*rate + pace * over * time as f64 / room as f64).max(0.0);
            }
            let faster = match (had_room.replace(has_room), has_room) {
                (Some(before), now) if before != now => SLOWER,
                (Some(_), false) => FASTER,
                (Some(_), true) | (None, _) => 1.0,
            };
            pace = (pace * faster).min(FASTEST);
        }
        Ok(())
    }

    /// The ways of making values in the plan that prices lead to; `None` where they lead to none.
    fn decided(&self, branch: &Branch) -> Option<Vec<(ValueId, StrategyLayouts)>> {
        let bound = branch.bound()?;
        let near = branch.taking_at_most(bound.saturating_add(bound / A_PLAN_RISES_BY));
        self.decided_in(near).or_else(|| self.decided_in(branch.clone()))
    }

    /// The same among all plans of a branch.
    fn decided_in(&self, mut branch: Branch) -> Option<Vec<(ValueId, StrategyLayouts)>> {
        while let Some((likely, _)) = branch.toward_the_best(1) {
            branch = likely;
            branch.settle(&self.few_sweeps(), None);
            branch.bound()?;
        }
        branch.rounded(self.limits).map(|branch| branch.ways())
    }

    fn few_sweeps(&self) -> Limits {
        Limits { sweeps: SWEEPS, ..self.limits.clone() }
    }
}
