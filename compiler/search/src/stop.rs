//! Ending a search before its end, and watching how far it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use shard_ir::Picoseconds;

use crate::LowerError;

/// A flag by which another thread asks a search to end: an editor whose user has typed on, or a
/// clock.
///
/// A search that is asked to stop fails with [`LowerError::Stopped`]. A search whose time is up
/// ends with the best plan that it has, bounded by [`SearchLimit::Time`](crate::SearchLimit::Time),
/// or fails with [`LowerError::OutOfTime`] where it has none. Without either, what a search finds
/// is the same as without the flag, whenever it looks at it.
#[derive(Clone, Default)]
pub struct Stop(Arc<StopState>);

#[derive(Default)]
struct StopState {
    /// What was asked for so far: 0, [`TIME_IS_UP`] or [`ASKED`].
    wish: AtomicU8,
    /// The bound on all plans in picoseconds; 0 where nothing is known.
    bound: AtomicU64,
    /// The time of the best plan in picoseconds; 0 where no plan is known.
    best: AtomicU64,
}

const TIME_IS_UP: u8 = 1;
const ASKED: u8 = 2;

impl Stop {
    /// Ends every search that has a clone of this.
    pub fn ask(&self) {
        self.0.wish.fetch_max(ASKED, Ordering::Relaxed);
    }

    /// Whether [`Stop::ask`] was called.
    pub fn is_asked(&self) -> bool {
        self.0.wish.load(Ordering::Relaxed) == ASKED
    }

    /// Lets every search that has a clone of this end with the best plan that it has.
    pub fn time_is_up(&self) {
        self.0.wish.fetch_max(TIME_IS_UP, Ordering::Relaxed);
    }

    /// Whether [`Stop::time_is_up`] or [`Stop::ask`] was called.
    pub fn is_time_up(&self) -> bool {
        self.0.wish.load(Ordering::Relaxed) >= TIME_IS_UP
    }

    /// What is known so far of the search that has a clone of this: a bound on all its plans, and
    /// the time of the best of them.
    pub fn so_far(&self) -> (Option<Picoseconds>, Option<Picoseconds>) {
        let known = |figure: &AtomicU64| {
            Some(figure.load(Ordering::Relaxed)).filter(|f| *f > 0).map(Picoseconds)
        };
        (known(&self.0.bound), known(&self.0.best))
    }

    /// Tells those who watch how far a search is.
    pub(crate) fn saw(&self, bound: u64, best: Option<u64>) {
        self.0.bound.store(bound, Ordering::Relaxed);
        self.0.best.store(best.unwrap_or(0), Ordering::Relaxed);
    }

    /// Fails where the search is to end, for either reason.
    pub(crate) fn check(&self) -> Result<(), LowerError> {
        match self.0.wish.load(Ordering::Relaxed) {
            0 => Ok(()),
            TIME_IS_UP => Err(LowerError::OutOfTime),
            _ => Err(LowerError::Stopped),
        }
    }

    /// Fails where the search was asked to stop, so that not even its best plan is wanted.
    pub(crate) fn check_asked(&self) -> Result<(), LowerError> {
        if self.is_asked() { Err(LowerError::Stopped) } else { Ok(()) }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}
