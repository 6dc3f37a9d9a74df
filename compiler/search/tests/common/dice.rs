//! Pseudo-random numbers, the same on every machine.

/// A source of pseudo-random numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// One of the first `n` numbers.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// One of these.
    pub(crate) fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}
