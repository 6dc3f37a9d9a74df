//! Arithmetic that more than one crate needs.

use std::ops::Rem;

/// The greatest common divisor of two whole numbers; of a number and 0, the number.
///
/// ```
/// assert_eq!(shard_ir::gcd(12_u64, 18), 6);
/// assert_eq!(shard_ir::gcd(7_u128, 0), 7);
/// ```
pub fn gcd<N: Copy + Default + PartialEq + Rem<Output = N>>(mut a: N, mut b: N) -> N {
    while b != N::default() {
        (a, b) = (b, a % b);
    }
    a
}
