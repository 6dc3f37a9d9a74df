//! Stages that are run many times: of the copies in the middle, which are alike, one stands for the
//! others.

use shard_ir::Picoseconds;

use super::place::Run;
use super::{Stages, Timeline};

/// Copies of a stage that are not listed, since they repeat a listed copy. They follow that copy,
/// each a fixed time after the one before, and all runs behind them start later by the time that
/// they take together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steady {
    /// The stage.
    pub stage: usize,
    /// The listed copy that they repeat.
    pub like: u64,
    /// How many there are.
    pub copies: u64,
    /// How much later each starts than the one before.
    pub period: Picoseconds,
}

/// The copies that are not placed, for each stage of more than `listed` copies; `None` if the
/// placed copies of a stage never become alike.
///
/// Three copies in a row have to be alike: each is the one before it, later by the same period. A
/// copy starts when the copy two before it is done, so that it runs beside its two neighbours at
/// most. Behind a copy that is like both of its neighbours any number of such copies can be put:
/// every copy still has neighbours as before.
pub(super) fn steady(stages: &Stages, runs: &[Run], listed: u64) -> Option<Vec<Steady>> {
    let mut found = Vec::new();
    for (at, stage) in stages.stages.iter().enumerate().filter(|(_, stage)| stage.copies > listed) {
        let starts = |copy: u64| -> Vec<u64> {
            let of_copy =
                runs.iter().filter(|run| run.copy == copy && stage.units.contains(&run.unit));
            of_copy.map(|run| run.start.0).collect()
        };
        let all: Vec<Vec<u64>> = (0..listed).map(starts).collect();
        let shift = |copy: usize| {
            let first = all[copy].first()?.checked_sub(*all[copy - 1].first()?)?;
            let alike = all[copy]
                .iter()
                .zip(&all[copy - 1])
                .all(|(late, early)| late.checked_sub(*early) == Some(first));
            alike.then_some(first)
        };
        let middle = (1..listed as usize - 1).find_map(|copy| {
            let (before, after) = (shift(copy)?, shift(copy + 1)?);
            (before == after).then_some((copy as u64, before))
        });
        let (like, period) = middle?;
        found.push(Steady {
            stage: at,
            like,
            copies: stage.copies - listed,
            period: Picoseconds(period),
        });
    }
    Some(found)
}

impl Timeline {
    /// When everything is done, including the copies that are not listed.
    pub(super) fn makespan_of_all(&self) -> Picoseconds {
        let done = |run: &Run| self.moved(run, u64::MAX) + self.stages.units[run.unit].time;
        self.runs.iter().map(done).max().unwrap_or_default()
    }

    /// When a listed run starts if each stage runs no more than `most` of its copies that are not
    /// listed.
    fn moved(&self, run: &Run, most: u64) -> Picoseconds {
        let stage = self.stages.stage_of(run.unit);
        let before = self
            .steady
            .iter()
            .filter(|s| s.stage < stage || (s.stage == stage && run.copy > s.like));
        before.fold(run.start, |start, s| start + s.period.times(s.copies.min(most)))
    }

    /// The runs of all listed copies, and of no more than `most` of the others of each stage.
    /// Copies are numbered in their order.
    pub fn expanded(&self, most: u64) -> Vec<Run> {
        let mut all: Vec<Run> = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let start = self.moved(run, most);
            let Some(steady) =
                self.steady.iter().find(|s| s.stage == self.stages.stage_of(run.unit))
            else {
                all.push(Run { start, ..*run });
                continue;
            };
            let more = steady.copies.min(most);
            let copy = if run.copy > steady.like { run.copy + more } else { run.copy };
            all.push(Run { copy, start, ..*run });
            if run.copy == steady.like {
                let later = |n: u64| Run {
                    copy: run.copy + n,
                    start: start + steady.period.times(n),
                    ..*run
                };
                all.extend((1..=more).map(later));
            }
        }
        let stage = |run: &Run| self.stages.stage_of(run.unit);
        all.sort_by_key(|run| (stage(run), run.copy, run.unit));
        all
    }

    /// How many copies of a stage [`Timeline::expanded`] has.
    pub fn expanded_copies(&self, stage: usize, most: u64) -> u64 {
        let more = self
            .steady
            .iter()
            .filter(|s| s.stage == stage)
            .map(|s| s.copies - s.copies.min(most))
            .sum::<u64>();
        self.stages.stages[stage].copies - more
    }

    /// How many runs there are, including those of copies that are not listed.
    pub fn run_count(&self) -> u64 {
        let of = |stage: &super::Stage| (stage.units.len() as u64).saturating_mul(stage.copies);
        self.stages.stages.iter().map(of).fold(0, u64::saturating_add)
    }
}
