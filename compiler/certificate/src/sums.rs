//! Sums of times and prices, in fractions of a picosecond. They have 128 bits and cannot overflow:
//! times and prices have 64 bits, and no program adds 2^20 of them.

/// A sum.
pub(crate) type Sum = i128;

/// Infinity: the cost of what cannot be done. It is so large that a sum with it as a term stays
/// above half of it, whatever the prices.
pub(crate) const NEVER: Sum = 1 << 100;

/// `times` times a time in picoseconds, in `scale`-ths of a picosecond. Longer times than 2^90 are
/// cut off there, beyond every cost that is bounded.
pub(crate) fn total_time(time: u64, times: u64, scale: i64) -> Sum {
    const LONGEST: Sum = 1 << 90;
    let all = Sum::from(time).saturating_mul(Sum::from(times)).saturating_mul(Sum::from(scale));
    all.min(LONGEST)
}

/// The sum of two costs; [`NEVER`] where one of them is.
pub(crate) fn plus(a: Sum, b: Sum) -> Sum {
    if a >= NEVER || b >= NEVER { NEVER } else { a + b }
}

/// The least of some costs; [`NEVER`] where there are none.
pub(crate) fn least(sums: impl IntoIterator<Item = Sum>) -> Sum {
    sums.into_iter().min().unwrap_or(NEVER)
}
