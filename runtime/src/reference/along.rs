//! The definitions of ops that look along a dim of the whole tensor: choices of the largest, sums
//! up to a position, sums by ids, recurrences, routes.

use shard_ir::DimId;

use super::ops::{Evaluator, Sum};
use super::{Named, Positions, each, with};
use crate::scalar;

impl Evaluator<'_> {
    /// The first position along a dim at which `a` has a value, if it has it.
    pub(super) fn first_of(
        &self,
        a: &Named,
        over: DimId,
        value: f64,
        p: &mut Positions,
    ) -> Option<usize> {
        (0..self.size(over)).find(|at| {
            let own = with(p, over, *at, |p| a.at(p));
            own == value || (own.is_nan() && value.is_nan())
        })
    }

    /// The sums up to each position along a dim, and their largest [`Sum::magnitude`].
    pub(super) fn cumsum(&self, a: &Named, over: DimId, dims: &[DimId]) -> (Vec<f64>, f64) {
        let mut largest: f64 = 0.0;
        let rest: Vec<DimId> = dims.iter().copied().filter(|d| *d != over).collect();
        // The lines along the dim, one behind the other.
        let mut order = rest.clone();
        order.push(over);
        let mut sum = Sum::default();
        let lines = self.build(&order, |p| {
            if p[over.index()] == 0 {
                sum = Sum::default();
            }
            sum.add(a.at(p));
            largest = largest.max(sum.magnitude);
            sum.value
        });
        let lines = Named::new(self.plan, &order, lines);
        (self.build(dims, |p| lines.at(p)), largest)
    }

    /// For each of `parts` equal parts of the dim `over`, the positions of its largest elements in
    /// falling order, those of equal elements in rising order: as many in all as `to` is large.
    pub(super) fn largest(&self, a: &Named, [over, to]: [DimId; 2], parts: usize) -> Named {
        let (length, chosen) = (self.size(over) / parts, self.size(to) / parts);
        let mut dims: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        let mut data = Vec::new();
        each(self.plan, &dims, &mut vec![0; self.plan.dims.len()], &mut |p| {
            for part in 0..parts {
                let line: Vec<(usize, f64)> = (part * length..(part + 1) * length)
                    .map(|at| (at, with(p, over, at, |p| a.at(p))))
                    .collect();
                let goes_before = |(at, one): &(usize, f64), (than, other): &(usize, f64)| match (
                    one.is_nan(),
                    other.is_nan(),
                ) {
                    (true, true) => at < than,
                    (true, false) => true,
                    (false, true) => false,
                    (false, false) => one > other || (one == other && at < than),
                };
                let mut found: Vec<(usize, f64)> = Vec::with_capacity(chosen + 1);
                for own in line {
                    let place = found.iter().take_while(|seen| goes_before(seen, &own)).count();
                    found.insert(place, own);
                    found.truncate(chosen);
                }
                data.extend(found.iter().map(|(at, _)| *at as f64));
            }
        });
        dims.push(to);
        Named::new(self.plan, &dims, data)
    }

    /// For each position along `to` the sum of the elements whose id it is, and the largest
    /// [`Sum::magnitude`].
    pub(super) fn scatter_add(
        &self,
        [a, ids]: [&Named; 2],
        over: &[DimId],
        to: DimId,
        dims: &[DimId],
    ) -> (Vec<f64>, f64) {
        let places = self.size(to);
        let rest: Vec<DimId> = a.dims.iter().copied().filter(|d| !over.contains(d)).collect();
        let mut order = rest.clone();
        order.push(to);
        let (mut data, mut largest) = (Vec::new(), 0.0f64);
        each(self.plan, &rest, &mut vec![0; self.plan.dims.len()], &mut |p| {
            let mut sums = vec![Sum::default(); places];
            each(self.plan, over, p, &mut |p| {
                let id = ids.at(p);
                if (0.0..places as f64).contains(&id) && id.fract() == 0.0 {
                    sums[id as usize].add(a.at(p));
                }
            });
            data.extend(sums.iter().map(|sum| sum.value));
            largest = sums.iter().map(|sum| sum.magnitude).fold(largest, f64::max);
        });
        let found = Named::new(self.plan, &order, data);
        (self.build(dims, |p| found.at(p)), largest)
    }

    /// The recurrence along a dim, and the largest value of the same recurrence over absolute
    /// terms.
    pub(super) fn scan(
        &self,
        [a, factor]: [&Named; 2],
        over: DimId,
        dims: &[DimId],
    ) -> (Vec<f64>, f64) {
        let mut order: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        order.push(over);
        let (mut last, mut magnitude, mut largest) = (0.0, 0.0f64, 0.0f64);
        // The lines along the dim, one behind the other.
        let lines = self.build(&order, |p| {
            if p[over.index()] == 0 {
                (last, magnitude) = (0.0, 0.0);
            }
            let (own, by) = (a.at(p), factor.at(p));
            last = own + by * last;
            magnitude = own.abs() + by.abs() * magnitude;
            largest = largest.max(magnitude);
            last
        });
        let lines = Named::new(self.plan, &order, lines);
        (self.build(dims, |p| lines.at(p)), largest)
    }

    /// The largest element over some dims; NaN if one is NaN.
    pub(super) fn maximum(&self, a: &Named, over: &[DimId], at: &mut Positions) -> f64 {
        let mut largest = f64::NEG_INFINITY;
        each(self.plan, over, at, &mut |p| largest = scalar::maximum(largest, a.at(p)));
        largest
    }

    /// For each token and expert the place that the token is given at the expert, or -1 for none.
    /// Each expert has as many places as `place` is large. They go to the tokens that have it among
    /// their first `choices`: by choice, then by token.
    pub(super) fn places(
        &self,
        a: &Named,
        [expert, token, place]: [DimId; 3],
        choices: usize,
    ) -> Named {
        let groups: Vec<DimId> =
            a.dims.iter().copied().filter(|d| *d != expert && *d != token).collect();
        let mut dims = groups.clone();
        dims.extend([token, expert]);
        let (tokens, experts) = (self.size(token), self.size(expert));
        let mut data = Vec::new();
        each(self.plan, &groups, &mut vec![0; self.plan.dims.len()], &mut |p| {
            let gate = |p: &mut Positions, t: usize, x: usize| {
                (p[token.index()], p[expert.index()]) = (t, x);
                let gate = a.at(p);
                if gate.is_nan() { f64::NEG_INFINITY } else { gate }
            };
            // Which choice of a token an expert is: how many experts have a larger gate.
            let rank = |p: &mut Positions, t: usize, x: usize| {
                let own = gate(p, t, x);
                (0..experts)
                    .filter(|other| {
                        let theirs = gate(p, t, *other);
                        theirs > own || (theirs == own && *other < x)
                    })
                    .count()
            };
            let mut given = vec![-1.0; tokens * experts];
            for x in 0..experts {
                let mut asking: Vec<(usize, usize)> =
                    (0..tokens).map(|t| (rank(p, t, x), t)).collect();
                asking.retain(|(rank, _)| *rank < choices);
                asking.sort_unstable();
                for (at, (_, t)) in asking.into_iter().take(self.size(place)).enumerate() {
                    given[t * experts + x] = at as f64;
                }
            }
            data.extend(given);
        });
        Named::new(self.plan, &dims, data)
    }
}
