//! [`Guard`]: finds tasks that touch the same bytes and are not ordered.

use std::collections::BTreeMap;

use shard_ir::{Execution, HappensBefore, InstrId};

use crate::error::RunError;
use crate::limits::MAX_BYTES;

/// A range of bytes, the same on every device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bytes {
    /// The weight, cache or number whose memory it is; `None` for the arena.
    pub(super) of: Option<InstrId>,
    pub(super) from: u64,
    pub(super) until: u64,
}

/// Bytes that a task reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    pub(super) bytes: Bytes,
    pub(super) writes: bool,
}

impl Bytes {
    pub(super) fn read(self) -> Access {
        Access { bytes: self, writes: false }
    }

    pub(super) fn written(self) -> Access {
        Access { bytes: self, writes: true }
    }
}

/// A task has read or written bytes.
#[derive(Clone, Copy)]
struct Touch {
    task: usize,
    access: Access,
}

/// Which task happens before which, and which task has touched which bytes. Of two tasks that touch
/// the same bytes, at least one of them to write, one has to happen before the other: because they
/// are on one stream or one waits for the other, whatever their times are.
pub(super) struct Guard<'a> {
    execution: &'a Execution,
    order: HappensBefore,
    touches: BTreeMap<Option<InstrId>, Vec<Touch>>,
}

impl<'a> Guard<'a> {
    /// The guard of an execution, before any of its tasks has touched anything. An error where a
    /// task waits for one that does not come before it, or is on a stream that does not exist.
    pub(super) fn of(execution: &'a Execution) -> Result<Guard<'a>, RunError> {
        // Clocks have a number for each stream, and at most one for each task that takes none.
        let free = execution.tasks.iter().filter(|task| task.streams.is_empty()).count();
        let needed = 4 * execution.tasks.len() as u128 * (free + execution.streams.len()) as u128;
        if needed > MAX_BYTES {
            return Err(RunError::TooLarge { needed, cap: MAX_BYTES });
        }
        let mut order = HappensBefore::of(execution.streams.len());
        for (at, task) in execution.tasks.iter().enumerate() {
            let id = task.first();
            let problem = |problem| Err(RunError::Schedule { id, problem });
            if task.waits.iter().any(|by| *by >= at) {
                return problem("it waits for a task that does not come before it");
            }
            if task.streams.iter().any(|stream| *stream >= execution.streams.len()) {
                return problem("it is on a stream that there is not");
            }
            let mut clock = order.on_streams(&task.streams);
            task.waits.iter().for_each(|by| order.join(&mut clock, *by));
            order.push(&task.streams, clock);
        }
        Ok(Guard { execution, order, touches: BTreeMap::new() })
    }

    /// Records that a task reads what `maker` makes. `maker` has to happen before the task even if
    /// it makes a view, and so writes nothing.
    pub(super) fn reads_from(&self, maker: usize, task: usize) -> Result<(), RunError> {
        if self.order.is_before(maker, task) {
            return Ok(());
        }
        Err(RunError::Race { first: self.first_of(maker), second: self.first_of(task) })
    }

    fn first_of(&self, task: usize) -> InstrId {
        self.execution.tasks[task].first()
    }

    /// Records that a task touches bytes. Every task that has touched them has to happen before it,
    /// unless both read.
    pub(super) fn touch(&mut self, task: usize, access: Access) -> Result<(), RunError> {
        let Access { bytes, writes } = access;
        let shared = |touch: &&Touch| {
            let other = touch.access.bytes;
            other.from < bytes.until && bytes.from < other.until
        };
        for touch in self.touches.get(&bytes.of).into_iter().flatten().filter(shared) {
            let conflict = touch.task != task && (writes || touch.access.writes);
            if conflict && !self.order.is_before(touch.task, task) {
                let (first, second) = (self.first_of(touch.task), self.first_of(task));
                return Err(RunError::Race { first, second });
            }
        }
        let touches = self.touches.entry(bytes.of).or_default();
        if writes {
            // A task that comes behind this write comes behind the touches before it too.
            touches.retain(|touch| {
                let other = touch.access.bytes;
                other.from < bytes.from || bytes.until < other.until
            });
        }
        touches.push(Touch { task, access });
        Ok(())
    }
}
