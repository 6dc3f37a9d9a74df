//! What the search minimises: time, and then the tie rule of the cost model.

/// A cost, compared field by field: time first, then the additive parts of the tie rule. The tie
/// rule asks for live bytes at the peak, which are not additive; what parameters occupy is the part
/// of them that is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cost {
    /// Picoseconds.
    pub time: u64,
    /// Flops where communication alone counts; else elements that local ops touch: operands and
    /// results of ops, results of slices and to-partials.
    pub elements: u64,
    /// Bytes of parameters on one device.
    pub resident: u64,
    /// Moves, an all-reduce counting as two.
    pub steps: u64,
    /// Bytes that the busiest device sends.
    pub moved: u64,
    /// The order in the text: the sum, over all layouts used, of the place of the layout among
    /// those of its value when they are sorted as text.
    pub order: u64,
}

impl Cost {
    /// No cost.
    pub const ZERO: Cost = Cost { time: 0, elements: 0, resident: 0, steps: 0, moved: 0, order: 0 };

    /// More than any plan costs.
    pub const MAX: Cost = Cost {
        time: u64::MAX,
        elements: u64::MAX,
        resident: u64::MAX,
        steps: u64::MAX,
        moved: u64::MAX,
        order: u64::MAX,
    };

    /// The cost of so many steps. What is resident and the order in the text count once for all.
    #[must_use]
    pub fn times(self, steps: u64) -> Cost {
        Cost {
            time: self.time.saturating_mul(steps),
            elements: self.elements.saturating_mul(steps),
            steps: self.steps.saturating_mul(steps),
            moved: self.moved.saturating_mul(steps),
            ..self
        }
    }

    /// Each part divided by `k` and rounded down, so that `k` shares never exceed the whole.
    #[must_use]
    pub fn share(self, k: u64) -> Cost {
        let k = k.max(1);
        Cost {
            time: self.time / k,
            elements: self.elements / k,
            resident: self.resident / k,
            steps: self.steps / k,
            moved: self.moved / k,
            order: self.order / k,
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            time: self.time.saturating_add(other.time),
            elements: self.elements.saturating_add(other.elements),
            resident: self.resident.saturating_add(other.resident),
            steps: self.steps.saturating_add(other.steps),
            moved: self.moved.saturating_add(other.moved),
            order: self.order.saturating_add(other.order),
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::ZERO, |a, b| a + b)
    }
}
