//! [`never!`](crate::never): invariants that are loud when they fail.
//!
//! An invariant that no type expresses is stated where it is used, with a value to go on with if it
//! fails, since a tool for people's programs should not crash. In debug builds and in tests a
//! failure is a panic all the same. In release builds the defect is noted, the program goes on with
//! the given value, and whoever shows results asks [`taken`] and reports an internal error beside
//! them.
//!
//! ```should_panic
//! let axes: [u8; 1] = [3];
//! let first = axes.get(1).copied().unwrap_or_else(|| shard_ops::never!("a group without an axis", 0));
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most defects that are noted: one fault may show at every value.
const MOST: usize = 16;

/// Whether a defect is only noted, although this is a debug build.
static AS_IN_RELEASE: AtomicBool = AtomicBool::new(false);

static NOTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// States what cannot happen, and the value to go on with in a release build.
#[macro_export]
macro_rules! never {
    ($what:literal, $instead:expr) => {{
        $crate::defects::note($what, file!(), line!());
        $instead
    }};
}

/// Notes a defect; a panic in debug builds.
#[cold]
pub fn note(what: &str, file: &str, line: u32) {
    let defect = format!("{what} ({file}:{line})");
    debug_assert!(AS_IN_RELEASE.load(Ordering::Relaxed), "internal error: {defect}");
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.len() < MOST && !noted.contains(&defect) {
        noted.push(defect);
    }
}

/// From here on a defect is only noted, as in a release build. For the test of what users are told
/// then.
pub fn as_in_release() {
    AS_IN_RELEASE.store(true, Ordering::Relaxed);
}

/// The defects since the last call.
pub fn taken() -> Vec<String> {
    std::mem::take(&mut *NOTED.lock().unwrap_or_else(PoisonError::into_inner))
}
