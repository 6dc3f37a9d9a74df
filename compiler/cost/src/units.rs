//! Newtypes for bytes and flops, and [`time_at_rate`], the only place where a count and a rate
//! become a time.

use std::iter::Sum;
use std::ops::Add;

use shard_ir::Picoseconds;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

/// A number of floating-point (or integer) operations: one multiplication and one addition are two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Flops(pub u128);

/// Addition and multiplication of both units, which saturate.
macro_rules! counted {
    ($($unit:ident),+) => {$(
        impl $unit {
            /// The amount `n` times.
            #[must_use]
            pub fn times(self, n: u64) -> $unit {
                $unit(self.0.saturating_mul(n.into()))
            }
        }

        impl Add for $unit {
            type Output = $unit;
            fn add(self, other: $unit) -> $unit {
                $unit(self.0.saturating_add(other.0))
            }
        }

        impl Sum for $unit {
            fn sum<I: Iterator<Item = $unit>>(iter: I) -> $unit {
                iter.fold($unit(0), Add::add)
            }
        }
    )+};
}

counted!(Bytes, Flops);

/// Picoseconds in a second.
pub const PICOSECONDS_PER_SECOND: u128 = 1_000_000_000_000;

/// The time of `amount / parts` units at `rate` units per second, rounded **up** to a whole
/// picosecond, so that work of more than nothing takes time. It saturates.
///
/// ```
/// # use shard_cost::units::time_at_rate;
/// # use shard_ir::Picoseconds;
/// assert_eq!(time_at_rate(4_423_680, 1, 270_000_000_000), Picoseconds(16_384_000)); // 16.384 us
/// assert_eq!(time_at_rate(1, 3, 1_000_000_000_000), Picoseconds(1));
/// ```
pub fn time_at_rate(amount: u128, parts: u64, rate: u64) -> Picoseconds {
    let per_second = u128::from(rate) * u128::from(parts.max(1));
    let time = match amount.checked_mul(PICOSECONDS_PER_SECOND) {
        Some(scaled) => scaled.div_ceil(per_second.max(1)),
        // Too large to scale first. Rounding up to a second does not matter for a time of this
        // size.
        None => amount.div_ceil(per_second.max(1)).saturating_mul(PICOSECONDS_PER_SECOND),
    };
    Picoseconds(u64::try_from(time).unwrap_or(u64::MAX))
}
