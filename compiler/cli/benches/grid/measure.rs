//! One search, measured.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use shard_cost::{Hardware, Memory};
use shard_ir::{Plan, Program};
use shard_search::{
    Limits, LowerError, LowerOptions, Lowered, Proof, SearchLimit, Stats, Status, Stop, lower,
};

/// Searches shorter than this are repeated, and the fastest counts: other work disturbed the slower
/// ones.
const SHORT: Duration = Duration::from_millis(100);
const AGAIN: usize = 2;

/// The result of a search, and the time that it took.
#[derive(Clone)]
pub(crate) struct Searched {
    pub(crate) found: Result<Found, NoPlan>,
    pub(crate) time: Duration,
}

/// A plan that was found.
#[derive(Clone)]
pub(crate) struct Found {
    /// The time of a layer, in picoseconds; `bound` is in picoseconds too.
    pub(crate) cost: u64,
    pub(crate) bound: u64,
    pub(crate) proof: Option<Proof>,
    pub(crate) stopped_by: Option<SearchLimit>,
    pub(crate) stats: Stats,
    pub(crate) plan: Plan,
}

/// The reason why there is no plan.
#[derive(Clone)]
pub(crate) enum NoPlan {
    /// No plan fits; `proven` if the search left no plan out.
    Fits { proven: bool },
    /// Any other error, as text.
    Other(String),
}

impl Found {
    /// The most by which the cost exceeds that of the best plan, as a fraction of the bound.
    pub(crate) fn gap(&self) -> f64 {
        (self.cost as f64 - self.bound as f64) / (self.bound.max(1) as f64)
    }

    /// The memory that the plan needs on each device, over the whole stack, in bytes.
    pub(crate) fn needed(&self) -> u64 {
        Memory::of(&self.plan).peak().0
    }
}

impl Searched {
    pub(crate) fn cost(&self) -> Option<u64> {
        self.found.as_ref().ok().map(|found| found.cost)
    }

    /// Whether the result is proven: a plan that is proven best, or a proof that no plan fits.
    pub(crate) fn is_proven(&self) -> bool {
        match &self.found {
            Ok(found) => found.proof.is_some(),
            Err(NoPlan::Fits { proven }) => *proven,
            Err(NoPlan::Other(_)) => false,
        }
    }
}

/// The most memory that a plan may need on a device.
#[derive(Clone, Copy)]
pub(crate) enum Most {
    Any,
    Bytes(u64),
}

/// Searches for the plan of a program on this thread. After `patience` the search is stopped and
/// gives what it has found.
pub(crate) fn search(
    program: &Program,
    hardware: &Hardware,
    most: Most,
    patience: Duration,
) -> Searched {
    let once = || {
        let (start, before) = (Instant::now(), on_processor());
        let lowered = search_once(program, hardware, most, patience);
        let (by_clock, after) = (start.elapsed(), on_processor());
        // Other work may have had the processor. The system updates the time of this thread only
        // every few milliseconds, so short searches are timed by the clock.
        let own = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        (own.filter(|_| by_clock > SHORT).map_or(by_clock, |own| own.min(by_clock)), lowered)
    };
    let (mut time, lowered) = once();
    if time < SHORT {
        time = (0..AGAIN).map(|_| once().0).min().unwrap_or(time).min(time);
    }
    Searched { found: found(lowered), time }
}

/// The time that this thread has spent on a processor; `None` where the system does not report it.
fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

fn search_once(
    program: &Program,
    hardware: &Hardware,
    most: Most,
    patience: Duration,
) -> Result<Lowered, LowerError> {
    let (hardware, any_size) = match most {
        Most::Any => (hardware.clone(), true),
        Most::Bytes(bytes) => (hardware.with_memory_limit(bytes), false),
    };
    with_patience(patience, |stop| {
        let limits = Limits { stop, ..Limits::default() };
        lower(program, &hardware, &LowerOptions { any_size, limits, ..LowerOptions::default() })
    })
}

/// Runs a search with a [`Stop`] that reports after `patience` that the time is up.
pub(crate) fn with_patience<T>(patience: Duration, run: impl FnOnce(Stop) -> T) -> T {
    let stop = Stop::default();
    let of_clock = stop.clone();
    let (done, is_done) = channel::<()>();
    let clock = std::thread::spawn(move || {
        if is_done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            of_clock.time_is_up();
        }
    });
    let result = run(stop);
    drop(done);
    // The clock thread waits only for `done`, which has been dropped.
    let _ = clock.join();
    result
}

fn found(lowered: Result<Lowered, LowerError>) -> Result<Found, NoPlan> {
    match lowered {
        Ok(Lowered { plan, optimality, stats, .. }) => Ok(Found {
            cost: optimality.cost.0,
            bound: optimality.lower_bound.0,
            proof: optimality.proof.filter(|_| optimality.status == Status::Proven),
            stopped_by: optimality.stopped_by,
            stats,
            plan,
        }),
        Err(LowerError::NoPlanFits { proven, .. }) => Err(NoPlan::Fits { proven }),
        Err(other) => Err(NoPlan::Other(other.to_string())),
    }
}
