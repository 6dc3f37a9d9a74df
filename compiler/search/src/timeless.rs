//! Runs the e-graph library without a clock.
//!
//! `egg` times its own phases for reports that nobody here reads. Its clock calibrates itself when
//! it is first read. That takes from half a millisecond to a fifth of a second, the longer the
//! busier the machine is: as long as a search, once in every process.

/// Runs something on a clock that stands still.
pub(crate) fn timeless<T>(run: impl FnOnce() -> T) -> T {
    let (clock, _) = quanta::Clock::mock();
    quanta::with_clock(&clock, run)
}
