//! Sums of times and prices, in picoseconds. They are of 128 bits, so that none overflows: times
//! and prices are of 64, and no program has 2^20 of them in one sum.

/// A sum.
pub(crate) type Sum = i128;

/// Infinity: the sum of what cannot be done. It is so large that no prices bring a sum that has it
/// as a term below half of it.
pub(crate) const NEVER: Sum = 1 << 100;

/// A time, of so many times, in so small parts of a picosecond; one beyond all that is bounded is
/// as long as can be told.
pub(crate) fn in_all(time: u64, times: u64, scale: i64) -> Sum {
    const LONGEST: Sum = 1 << 90;
    let all = Sum::from(time).saturating_mul(Sum::from(times)).saturating_mul(Sum::from(scale));
    all.min(LONGEST)
}

/// The sum of two, one of which there may be no way to do.
pub(crate) fn plus(a: Sum, b: Sum) -> Sum {
    if a >= NEVER || b >= NEVER { NEVER } else { a + b }
}

/// The least of some.
pub(crate) fn least(sums: impl IntoIterator<Item = Sum>) -> Sum {
    sums.into_iter().min().unwrap_or(NEVER)
}
