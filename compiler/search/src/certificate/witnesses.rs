//! Sets of prices that together bound every assignment of layouts to the labels of a form.

use shard_certificate::{Bound, CertificateError, PriceSet, Space};
use shard_ir::Layout;

use super::certify::PATIENCE;
use super::prices::price_set;
use crate::Limits;
use crate::relax::factors::Factors;
use crate::relax::kept::KeptCosts;
use crate::relax::prices::Prices;

/// The search for sets of prices that together bound every assignment of layouts to labels.
pub(super) struct Witnesses<'a> {
    pub(super) space: &'a Space<'a>,
    pub(super) factors: &'a Factors,
    pub(super) labels: &'a [Vec<Layout>],
    pub(super) limits: &'a Limits,
    pub(super) sets: Vec<Witness>,
}

/// A set of prices, and the bound that it shows for each assignment.
pub(super) struct Witness {
    pub(super) prices: PriceSet,
    bounds: Vec<u64>,
}

impl Witnesses<'_> {
    /// Bounds all assignments by `target`, as far as that is possible. Returns the bound reached,
    /// which is at most `target`.
    pub(super) fn run(&mut self, mut target: u64) -> Result<u64, CertificateError> {
        let mut prices = Prices::new(self.factors);
        self.sweep(self.factors, &mut prices, target, true);
        // With several assignments, the labels are narrowed one by one, and the prices of all
        // readers are written, so that the rest of the bound stands.
        let labelled = self.labels.len() > 1;
        self.add(&prices, labelled)?;
        let mut tried = vec![false; self.labels.len()];
        if labelled {
            // Prices after a sweep up tell results apart, and prices after a sweep down tell
            // parameters apart.
            let mut upward = prices.clone();
            upward.up(self.factors, false, &mut KeptCosts::default());
            self.add(&upward, true)?;
            self.add(&prices, false)?;
        } else {
            tried.fill(self.labels.iter().all(|l| l.is_empty()));
        }
        loop {
            let open = (0..self.labels.len())
                .map(|i| (self.bound(i), i))
                .filter(|(b, _)| *b < target)
                .min();
            let Some((bound, i)) = open else { break };
            if std::mem::replace(&mut tried[i], true) {
                // More cannot be shown for this assignment, so no more is asked of the others.
                target = bound;
                continue;
            }
            let narrowed = self.factors.with_labels(self.space.program(), &self.labels[i]);
            let mut own = prices.narrowed(&narrowed);
            self.sweep(&narrowed, &mut own, target, false);
            self.add(&own, false)?;
        }
        self.drop_needless(target);
        Ok(target)
    }

    /// The best bound that is shown for an assignment.
    fn bound(&self, assignment: usize) -> u64 {
        self.sets.iter().map(|set| set.bounds[assignment]).max().unwrap_or(0)
    }

    /// Sweeps until the bound is `target`, or gains nothing more.
    fn sweep(&self, factors: &Factors, prices: &mut Prices, target: u64, fresh: bool) {
        let (mut best, mut still, mut kept) = (i64::MIN, 0, KeptCosts::default());
        for sweep in 0..self.limits.sweeps.max(1) {
            prices.up(factors, fresh && sweep == 0, &mut kept);
            prices.down(factors, &mut kept);
            let bound = prices.bound();
            still = if bound > best { 0 } else { still + 1 };
            best = best.max(bound);
            if still >= PATIENCE || u64::try_from(bound).is_ok_and(|b| b >= target) {
                return;
            }
        }
    }

    /// Adds a set of prices as the file will have it.
    fn add(&mut self, prices: &Prices, keep_all: bool) -> Result<(), CertificateError> {
        self.keep(price_set(self.space, self.factors, prices, keep_all))
    }

    pub(super) fn keep(&mut self, prices: PriceSet) -> Result<(), CertificateError> {
        let bound: Bound = self.space.bound(&prices)?;
        let under =
            |labels: &Vec<Layout>| self.space.bound_under(&bound, labels).unwrap_or(u64::MAX);
        let bounds = self.labels.iter().map(under).collect();
        self.sets.push(Witness { prices, bounds });
        Ok(())
    }

    /// Drops sets that no assignment needs to reach `target`; the sets found last are dropped
    /// first.
    fn drop_needless(&mut self, target: u64) {
        for i in (0..self.sets.len()).rev() {
            let needed = |a: usize| {
                let others = self.sets.iter().enumerate().filter(|(other, _)| *other != i);
                !others.map(|(_, set)| set.bounds[a]).any(|bound| bound >= target)
            };
            if self.sets.len() > 1 && !(0..self.labels.len()).any(needed) {
                self.sets.remove(i);
            }
        }
    }
}
