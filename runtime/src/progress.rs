//! [`Progress`]: how far an execution is, for a thread that waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The part of an execution that is done, to be read from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// Starts an execution of so much work.
    pub(crate) fn begin(&self, all: u128) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all.min(u64::MAX as u128) as u64, Ordering::Relaxed);
    }

    /// Records that so much more work is done.
    pub(crate) fn add(&self, work: u128) {
        self.done.fetch_add(work.min(u64::MAX as u128) as u64, Ordering::Relaxed);
    }

    /// The part that is done, in percent; less than 100 until the end.
    pub fn percent(&self) -> u64 {
        let all = u128::from(self.all.load(Ordering::Relaxed)).max(1);
        let done = u128::from(self.done.load(Ordering::Relaxed));
        (100 * done / all).min(99) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_goes_from_nothing_to_almost_all() {
        let progress = Progress::default();
        assert_eq!(progress.percent(), 0);
        progress.begin(8);
        progress.add(2);
        assert_eq!(progress.percent(), 25);
        progress.add(u128::MAX >> 70);
        assert_eq!(progress.percent(), 99);
    }
}
