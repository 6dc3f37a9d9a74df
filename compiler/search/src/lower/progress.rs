//! Whether branch and bound makes progress.

/// A bound has made progress if it rose by more than this part of the gap between it and the best
/// plan known.
const PART_OF_WHAT_IS_OPEN: u64 = 64;

/// The state of a search when it last found a better plan or a better bound.
#[derive(Default)]
pub(super) struct Progress {
    bound: u64,
    /// What the best plan took then, in picoseconds.
    known: Option<u64>,
    branches: usize,
}

impl Progress {
    /// How many branches have got prices since the search last made progress. `branches` is how
    /// many have by now, `bound` a lower bound on what is still to be looked at, and `known` the
    /// time of the best plan, in picoseconds. 0 where no plan is known, since a first plan is worth
    /// any number of branches.
    pub(super) fn branches_since(
        &mut self,
        bound: u64,
        known: Option<u64>,
        branches: usize,
    ) -> usize {
        let is_better = known.is_none_or(|known| {
            let open = known.saturating_sub(self.bound);
            bound.saturating_sub(self.bound) > open / PART_OF_WHAT_IS_OPEN
        });
        if is_better || known != self.known {
            *self = Progress { bound, known, branches };
        }
        branches - self.branches
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn a_better_plan_or_bound_starts_the_count_anew() {
        let mut progress = Progress::default();
        assert_eq!(progress.branches_since(100, None, 7), 0, "no plan is known");
        assert_eq!(progress.branches_since(100, Some(164), 9), 0, "the first plan");
        assert_eq!(progress.branches_since(101, Some(164), 12), 3, "a 64th of what is open");
        assert_eq!(progress.branches_since(102, Some(164), 13), 0, "more than a 64th");
        assert_eq!(progress.branches_since(102, Some(164), 18), 5);
        assert_eq!(progress.branches_since(102, Some(150), 20), 0, "a better plan");
    }
}
