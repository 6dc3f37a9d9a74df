//! No clock runs in the e-graph library.
//!
//! `egg` times its own phases for reports that nobody here reads. The clock that it uses calibrates
//! itself when it is first asked, which takes from half a millisecond to a fifth of a second, and
//! more the busier the machine: as long as a search, once in every process.

/// Runs something on a clock that stands still.
pub(crate) fn timeless<T>(run: impl FnOnce() -> T) -> T {
    let (clock, _) = quanta::Clock::mock();
    quanta::with_clock(&clock, run)
}
