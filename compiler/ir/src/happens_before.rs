//! [`HappensBefore`]: which task of an execution is done before which.

use crate::never;

/// The order of the tasks of an execution: for each task, how many tasks of every lane are done
/// before it starts.
///
/// A lane is a stream, or a chain of tasks without a stream. The counts are vector clocks (Fidge;
/// Mattern).
#[derive(Clone, Debug, Default)]
pub struct HappensBefore {
    streams: usize,
    /// The last task of every lane.
    last: Vec<Option<usize>>,
    /// How many tasks every lane has.
    count: Vec<u32>,
    clocks: Vec<Vec<u32>>,
    /// For each task one of its lanes, and its number in this lane, from 1.
    at: Vec<(usize, u32)>,
}

impl HappensBefore {
    /// No tasks yet, on `streams` streams.
    pub fn of(streams: usize) -> HappensBefore {
        HappensBefore {
            streams,
            last: vec![None; streams],
            count: vec![0; streams],
            clocks: Vec::new(),
            at: Vec::new(),
        }
    }

    /// The clock of the tasks that are done before another task on these streams may start.
    pub fn on_streams(&self, streams: &[usize]) -> Vec<u32> {
        let mut clock = vec![0; self.last.len()];
        for by in streams.iter().filter_map(|stream| self.last[*stream]) {
            self.join(&mut clock, by);
        }
        clock
    }

    /// Whether a task is done at a clock.
    pub fn knows(&self, clock: &[u32], task: usize) -> bool {
        let (lane, number) = self.at[task];
        clock.get(lane).is_some_and(|known| *known >= number)
    }

    /// Whether one task is done before another one starts.
    pub fn is_before(&self, first: usize, second: usize) -> bool {
        first != second && self.knows(&self.clocks[second], first)
    }

    /// Adds a task, and everything that is done before it, to a clock.
    pub fn join(&self, clock: &mut Vec<u32>, task: usize) {
        let of = &self.clocks[task];
        clock.resize(clock.len().max(of.len()), 0);
        clock.iter_mut().zip(of).for_each(|(known, of)| *known = (*known).max(*of));
    }

    /// Adds the next task, which starts when everything in the clock is done.
    pub fn push(&mut self, streams: &[usize], mut clock: Vec<u32>) {
        let task = self.clocks.len();
        let lanes = match streams {
            [] => vec![self.lane_behind(&clock)],
            streams => streams.to_vec(),
        };
        clock.resize(self.last.len(), 0);
        for lane in &lanes {
            self.count[*lane] += 1;
            self.last[*lane] = Some(task);
            clock[*lane] = self.count[*lane];
        }
        let lane = lanes.first().copied();
        let lane = lane.unwrap_or_else(|| never!("a task in no lane", 0));
        self.at.push((lane, self.count[lane]));
        self.clocks.push(clock);
    }

    /// A lane for a task without a stream: one whose last task is done at the clock, or a new one.
    fn lane_behind(&mut self, clock: &[u32]) -> usize {
        let is_done = |lane: &usize| self.last[*lane].is_none_or(|task| self.knows(clock, task));
        let found = (self.streams..self.last.len()).find(is_done);
        found.unwrap_or_else(|| {
            self.last.push(None);
            self.count.push(0);
            self.last.len() - 1
        })
    }
}
