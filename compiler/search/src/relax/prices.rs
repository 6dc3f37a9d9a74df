//! Prices on values: a Lagrangian dual of the search.
//!
//! Each reader of a value pays a price that depends on the layout in which it reads the value. The
//! op that makes the value is paid a price that depends on the layout in which it makes the value.
//! Whatever the prices are, they cancel over a plan; so the sum of the least that each op and each
//! value costs on its own, prices included, is a lower bound on every plan. Sweeps move prices so
//! that the bound rises: up from the costs of making values, and down from the costs of having them
//! where they are wanted.
//!
//! On the way down, the sweep learns of each alternative of a factor by how much it would raise the
//! bound. An alternative that would raise it above the time of a known plan is in no better plan
//! (reduced-cost fixing).

use std::borrow::Cow;
use std::sync::Arc;

use shard_ir::{ValueId, never};

use super::factors::{Factors, Renamed, ValueUse};
use super::graph::{FAR, NodeId};
use super::groups::Groups;
use super::kept::KeptCosts;
pub(crate) use super::parts::{Part, Seat};
use super::serving::{ServingCosts, add, are_together, at, least_of};
use super::sides::Sides;
use super::terms::Terms;

/// The prices on all values of a problem, and what they show. All are in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    /// For each value and use, the price that the reader pays at each node: [`FAR`] where the value
    /// cannot be had there, and `-FAR` where the reader has no use for it there.
    pub(crate) paid: Vec<Vec<Vec<i64>>>,
    /// For each value, what its maker is paid at each node.
    pub(super) made: Vec<Vec<i64>>,
    /// The least cost of each op, each value, and each result: the terms of the bound, to which
    /// `sides` adds those of labels and memories.
    pub(super) op_least: Terms,
    pub(super) value_least: Terms,
    pub(super) out_least: Terms,
    /// For each value, a lower bound on the plans with each strategy, and on those with each node.
    pub(crate) through_strategy: Vec<Vec<i64>>,
    pub(crate) through_node: Vec<Vec<i64>>,
    /// The side prices of labels and memories.
    pub(crate) sides: Sides,
    pub(super) serving: ServingCosts,
}

/// The costs of serving the readers of a value, as they are known on the way down.
pub(super) struct Serving<'t> {
    pub(super) costs: &'t ServingCosts,
    /// The number of readers, or of groups of readers.
    pub(super) readers: usize,
    /// The number of readers in each group, where readers are served in groups.
    pub(super) members: Option<&'t [i64]>,
    /// The least cost of serving all readers.
    pub(super) least: i64,
    /// The least cost of everything else in a plan.
    pub(super) rest: i64,
}

impl Prices {
    pub(crate) fn new(problem: &Factors) -> Prices {
        let count = problem.factors.len();
        let mut prices = Prices {
            paid: vec![Vec::new(); count],
            made: vec![Vec::new(); count],
            op_least: Terms::zero(count),
            value_least: Terms::zero(count),
            out_least: Terms::zero(problem.outputs.len()),
            through_strategy: vec![Vec::new(); count],
            through_node: vec![Vec::new(); count],
            sides: Sides::none(problem),
            serving: ServingCosts::default(),
        };
        for id in &problem.live {
            let nodes = problem.nodes(*id);
            prices.paid[id.index()] = vec![vec![0; nodes]; problem.uses[id.index()].len()];
            prices.made[id.index()] = vec![0; nodes];
            prices.through_strategy[id.index()] = vec![0; problem.factors[id.index()].out.len()];
            prices.through_node[id.index()] = vec![0; nodes];
        }
        prices
    }

    /// The bound, in ticks; at least [`FAR`] where there is no plan.
    pub(crate) fn bound(&self) -> i64 {
        add(
            add(self.op_least.sum(), self.value_least.sum()),
            add(self.out_least.sum(), self.sides.sum()),
        )
    }

    /// The terms of the bound for a value and its op, in ticks.
    pub(crate) fn terms_of(&self, id: ValueId) -> i64 {
        add(self.op_least.of(id.index()), self.value_least.of(id.index()))
    }

    /// The same prices with these parts, whose side prices are all 0.
    pub(crate) fn with_parts(mut self, problem: &Factors, parts: Arc<Vec<Part>>) -> Prices {
        self.sides = Sides::new(parts, problem);
        self
    }

    /// The same prices for a certificate, where every side price has to be a finite number: see
    /// [`Sides::in_numbers`]. `target` is the bound that they are to show, in ticks.
    pub(crate) fn in_numbers(mut self, problem: &Factors, target: i64) -> Prices {
        self.sides = self.sides.in_numbers(problem, target);
        self
    }

    /// The same prices for a problem that has some of the strategies of this one.
    pub(crate) fn narrowed(&self, problem: &Factors) -> Prices {
        let mut prices = self.clone();
        for id in &problem.live {
            prices.through_strategy[id.index()] = vec![0; problem.factors[id.index()].out.len()];
        }
        prices.sides.look_up_classes(problem);
        prices
    }

    /// Prices to begin with for a program that differs only in layout patterns. Which values can be
    /// had where, and which are of use, is forgotten.
    pub(crate) fn resumed(&self, problem: &Factors) -> Prices {
        let mut prices = Prices { paid: self.paid.clone(), ..Prices::new(problem) };
        for price in prices.paid.iter_mut().flatten().flatten().filter(|price| price.abs() >= FAR) {
            *price = 0;
        }
        prices
    }

    /// The prices of those nodes and strategies that are kept of a problem; see
    /// [`Factors::shrunk`].
    pub(crate) fn shrunk(
        &self,
        small: &Factors,
        renamed: &Renamed,
        keep_strategies: &[Vec<bool>],
    ) -> Prices {
        let mut prices = self.clone();
        for id in &small.live {
            let v = id.index();
            let pick = |all: &[i64]| -> Vec<i64> {
                all.iter()
                    .zip(&renamed[v])
                    .filter(|(_, new)| new.is_some())
                    .map(|(x, _)| *x)
                    .collect()
            };
            for paid in &mut prices.paid[v] {
                *paid = pick(paid);
            }
            prices.made[v] = pick(&prices.made[v]);
            prices.through_node[v] = pick(&prices.through_node[v]);
            let kept = prices.through_strategy[v]
                .iter()
                .zip(&keep_strategies[v])
                .filter(|(_, keep)| **keep);
            let kept: Vec<i64> = kept.map(|(t, _)| *t).collect();
            debug_assert_eq!(
                kept.len(),
                small.factors[v].out.len(),
                "a kept strategy has kept layouts"
            );
            prices.through_strategy[v] = kept;
        }
        prices.sides.look_up_classes(small);
        prices
    }

    /// For each operand of an op, the price that the op pays at each node.
    fn paid_by(&self, uses: &[(usize, usize)]) -> Vec<&[i64]> {
        uses.iter().map(|(operand, reader)| self.paid[*operand][*reader].as_slice()).collect()
    }

    /// The sweep up, from the parameters to the results. With `first`, prices begin anew. `kept` is
    /// what the sweep before kept, if there was one.
    pub(crate) fn up(&mut self, problem: &Factors, first: bool, kept: &mut KeptCosts) {
        for i in 0..problem.live.len() {
            let id = problem.live[i];
            let (v, factor) = (id.index(), &problem.factors[id.index()]);
            let mut made = std::mem::take(&mut self.made[v]);
            made.fill(FAR);
            let paid = self.paid_by(&uses_of(problem, id));
            let sides = self.sides.of_value(v);
            for (s, (out, cost)) in factor.out.iter().zip(&factor.cost).enumerate() {
                let own = sides.get(s).map_or(*cost, |side| add(*cost, *side));
                let cost = paid
                    .iter()
                    .zip(factor.reads_of(s))
                    .fold(own, |sum, (paid, node)| add(sum, due(paid[at(*node)])));
                let out = &mut made[at(*out)];
                *out = (*out).min(cost);
            }
            self.op_least.set(v, 0);
            self.charge_readers(problem, id, &made, first, kept);
            self.made[v] = made;
        }
        for (i, (value, allowed)) in problem.outputs.iter().enumerate() {
            let reader = use_index(problem, *value, ValueUse::Output(i));
            let mut cost = self.cost_of_output(i, &self.paid[value.index()][reader], allowed);
            self.out_least.set(i, least_of(cost.iter().copied()));
            self.sides.take(Seat::Output(i), &mut cost, false);
        }
        if !problem.outputs.is_empty() {
            self.sides.balance(None, |_, _| {});
        }
        for (i, (value, allowed)) in
            problem.outputs.iter().enumerate().filter(|(i, _)| !self.sides.of_output(*i).is_empty())
        {
            let reader = use_index(problem, *value, ValueUse::Output(i));
            let cost = self.cost_of_output(i, &self.paid[value.index()][reader], allowed);
            self.out_least.set(i, least_of(cost));
        }
    }

    /// The cost of each allowed layout of a result: the price of the value in that layout, and the
    /// side price.
    fn cost_of_output(&self, output: usize, paid: &[i64], allowed: &[NodeId]) -> Vec<i64> {
        let sides = self.sides.of_output(output);
        let with_side = |(i, n): (usize, &NodeId)| {
            sides.get(i).map_or(paid[at(*n)], |side| add(paid[at(*n)], *side))
        };
        allowed.iter().enumerate().map(with_side).collect()
    }

    /// Divides the cost of a value among its readers.
    fn charge_readers(
        &mut self,
        problem: &Factors,
        id: ValueId,
        made: &[i64],
        first: bool,
        kept: &mut KeptCosts,
    ) {
        let v = id.index();
        let graph = &problem.graphs[v];
        let readers = self.paid[v].len();
        self.value_least.set(v, 0);
        if readers == 0 {
            self.value_least.set(v, least_of(made.iter().copied()));
            return;
        }
        let groups = problem.groups[v].as_ref();
        let together = groups.is_some() || are_together(readers, made.len());
        if readers == 1 || first || !together {
            let reached = kept.reached(v, &mut self.serving, graph, made);
            for paid in &mut self.paid[v] {
                for (price, cost) in paid.iter_mut().zip(reached) {
                    *price = if *cost >= FAR { FAR } else { cost.div_euclid(readers as i64) };
                }
            }
            return;
        }
        let mut paid = std::mem::take(&mut self.paid[v]);
        if let Some(groups) = groups {
            groups.share(&mut paid);
        }
        let prices = served_together(groups, &paid);
        let count = prices.len();
        kept.insides(v, &mut self.serving, graph, made.len(), &prices);
        drop(prices);
        let reached = kept.reached(v, &mut self.serving, graph, made);
        self.serving.outsides(graph, count, reached);
        let raise = |paid: &mut [i64], group: usize, members: i64| {
            for (price, outside) in paid.iter_mut().zip(&self.serving.outside[1 << group]) {
                if *price <= -FAR {
                    continue;
                }
                *price = if *outside >= FAR || *price >= FAR {
                    FAR
                } else {
                    *price + (*outside - *price * members).div_euclid(count as i64 * members)
                };
            }
        };
        match groups {
            None => paid.iter_mut().enumerate().for_each(|(i, paid)| raise(paid, i, 1)),
            Some(groups) => {
                for (i, group) in groups.members().enumerate() {
                    let members = group.len() as i64;
                    group.iter().for_each(|member| raise(&mut paid[*member], i, members));
                }
            }
        }
        self.paid[v] = paid;
    }

    /// The sweep down, from the results to the parameters. It also raises the bounds on the plans
    /// with each strategy and each node.
    pub(crate) fn down(&mut self, problem: &Factors, kept: &mut KeptCosts) {
        self.down_past(problem, kept, &mut |_, _| {});
    }

    /// The sweep down; `look` is given, for each value whose readers are priced together, the costs
    /// of serving these.
    pub(super) fn down_past(
        &mut self,
        problem: &Factors,
        kept: &mut KeptCosts,
        look: &mut dyn FnMut(ValueId, &Serving<'_>),
    ) {
        for (i, (value, allowed)) in problem.outputs.iter().enumerate() {
            let reader = use_index(problem, *value, ValueUse::Output(i));
            let least = self.out_least.of(i);
            let sides = self.sides.of_output(i);
            let paid = &mut self.paid[value.index()][reader];
            let mut next = vec![-FAR; paid.len()];
            for (choice, node) in allowed.iter().enumerate() {
                let side = sides.get(choice).copied().unwrap_or(0);
                next[at(*node)] = if paid[at(*node)] >= FAR {
                    FAR
                } else if side >= FAR {
                    -FAR
                } else {
                    add(least, -side)
                };
            }
            *paid = next;
        }
        for i in (0..problem.live.len()).rev() {
            let id = problem.live[i];
            self.value_down(problem, id, kept, look);
            self.op_down(problem, id);
        }
        self.balance(problem);
    }

    /// Balances the side prices of all parts, and raises the bounds on the plans with each strategy
    /// of the values that have places.
    fn balance(&mut self, problem: &Factors) {
        if self.sides.is_empty() {
            return;
        }
        let mut sides = std::mem::replace(&mut self.sides, Sides::none(problem));
        let terms = add(add(self.op_least.sum(), self.value_least.sum()), self.out_least.sum());
        let through = &mut self.through_strategy;
        sides.balance(Some(terms), |sides, leasts| {
            let bound = add(terms, sides.sum());
            for id in &problem.live {
                let v = id.index();
                if sides.of_value(v).is_empty() {
                    continue;
                }
                for (known, pushed) in through[v].iter_mut().zip(sides.pushed(*id, leasts)) {
                    *known = (*known).max(add(bound, pushed));
                }
            }
        });
        self.sides = sides;
        // What the parts hand back raises the costs of their places.
        for id in problem.live.iter().filter(|id| !self.sides.of_value(id.index()).is_empty()) {
            let cost = self.cost_of_making(problem, *id);
            self.op_least.set(id.index(), least_of(cost));
        }
        for (i, (value, allowed)) in
            problem.outputs.iter().enumerate().filter(|(i, _)| !self.sides.of_output(*i).is_empty())
        {
            let reader = use_index(problem, *value, ValueUse::Output(i));
            let cost = self.cost_of_output(i, &self.paid[value.index()][reader], allowed);
            self.out_least.set(i, least_of(cost));
        }
    }

    /// The cost of each strategy of a value: its time, the prices of its operands and its side
    /// price, less what the op is paid. `made` has to be that of a sweep down.
    pub(super) fn cost_of_making(&self, problem: &Factors, id: ValueId) -> Vec<i64> {
        let v = id.index();
        let factor = &problem.factors[v];
        let made = &self.made[v];
        let sides = self.sides.of_value(v);
        let paid = self.paid_by(&uses_of(problem, id));
        let cost = |(s, (out, own)): (usize, (&NodeId, &i64))| {
            let gain = made[at(*out)];
            let own = if gain <= -FAR { FAR } else { own.saturating_sub(gain) };
            let own = sides.get(s).map_or(own, |side| add(own, *side));
            paid.iter()
                .zip(factor.reads_of(s))
                .fold(own, |sum, (paid, node)| add(sum, due(paid[at(*node)])))
        };
        factor.out.iter().zip(&factor.cost).enumerate().map(cost).collect()
    }

    /// At the prices as they are, the least cost of each value with its op, and the least cost of
    /// each result.
    pub(super) fn least_of_all(&self, problem: &Factors) -> (Vec<i64>, Vec<i64>) {
        let mut serving = ServingCosts::default();
        let mut terms = vec![0; problem.factors.len()];
        for id in &problem.live {
            let v = id.index();
            let op = least_of(self.cost_of_making(problem, *id));
            terms[v] = add(op, self.least_of_value(problem, *id, &mut serving));
        }
        let of_output = |(i, (value, allowed)): (usize, &(ValueId, Vec<NodeId>))| {
            let reader = use_index(problem, *value, ValueUse::Output(i));
            let cost = self.cost_of_output(i, &self.paid[value.index()][reader], allowed);
            least_of(cost)
        };
        (terms, problem.outputs.iter().enumerate().map(of_output).collect())
    }

    /// The least cost of bringing a value from where it is made to all of its readers: the moves,
    /// and what the op is paid, less what the readers pay.
    pub(super) fn least_of_value(
        &self,
        problem: &Factors,
        id: ValueId,
        serving: &mut ServingCosts,
    ) -> i64 {
        let v = id.index();
        let (graph, made, readers) = (&problem.graphs[v], &self.made[v], self.paid[v].len());
        if readers == 0 {
            return self.value_least.of(v);
        }
        let groups = problem.groups[v].as_ref();
        let shares;
        let served = if groups.is_some() || are_together(readers, made.len()) {
            let prices = served_together(groups, &self.paid[v]);
            serving.insides(graph, made.len(), &prices);
            &serving.inside[(1usize << prices.len()) - 1]
        } else {
            shares = serving.shares(graph, made.len(), &self.paid[v]);
            &shares
        };
        least_of(made.iter().zip(served).map(|(m, s)| add(*m, *s)))
    }

    fn value_down(
        &mut self,
        problem: &Factors,
        id: ValueId,
        kept: &mut KeptCosts,
        look: &mut dyn FnMut(ValueId, &Serving<'_>),
    ) {
        let v = id.index();
        let graph = &problem.graphs[v];
        let readers = self.paid[v].len();
        let mut made = std::mem::take(&mut self.made[v]);
        if readers == 0 {
            self.made[v] = made;
            return;
        }
        let groups = problem.groups[v].as_ref();
        if let Some(groups) = groups
            && groups.share(&mut self.paid[v])
        {
            self.made[v] = made;
            self.look_again_at_readers(problem, id);
            made = std::mem::take(&mut self.made[v]);
        }
        let of_all = |served: &[i64]| least_of(made.iter().zip(served).map(|(m, s)| add(*m, *s)));
        let least = if groups.is_some() || are_together(readers, made.len()) {
            let prices = served_together(groups, &self.paid[v]);
            let count = prices.len();
            self.serving.insides(graph, made.len(), &prices);
            let reached = kept.reached(v, &mut self.serving, graph, &made);
            self.serving.outsides(graph, count, reached);
            let all = (1usize << count) - 1;
            let least = of_all(&self.serving.inside[all]);
            let members: Option<Vec<i64>> =
                groups.map(|groups| groups.members().map(|group| group.len() as i64).collect());
            let rest = add(self.bound(), -self.value_least.of(v));
            let members = members.as_deref();
            let through = self.serving.through(count, made.len(), members, least);
            look(id, &Serving { costs: &self.serving, readers: count, members, least, rest });
            for (known, node) in self.through_node[v].iter_mut().zip(through) {
                *known = (*known).max(add(rest, node));
            }
            pay_maker(&mut made, &self.serving.inside[all], least);
            if readers > 1 {
                kept.keep_insides(v, &mut self.serving, graph, &prices);
            }
            least
        } else {
            let shares = self.serving.shares(graph, made.len(), &self.paid[v]);
            let least = of_all(&shares);
            pay_maker(&mut made, &shares, least);
            least
        };
        kept.forget_reached(v);
        self.value_least.set(v, least);
        self.made[v] = made;
    }

    /// Sets the least cost of the ops that read a value whose prices changed.
    fn look_again_at_readers(&mut self, problem: &Factors, id: ValueId) {
        for by in &problem.uses[id.index()] {
            let ValueUse::Operand(op, _) = by else { continue };
            let least = least_of(self.cost_of_making(problem, *op));
            self.op_least.set(op.index(), least);
        }
    }

    fn op_down(&mut self, problem: &Factors, id: ValueId) {
        let v = id.index();
        let factor = &problem.factors[v];
        let uses = uses_of(problem, id);
        let mut cost = self.cost_of_making(problem, id);
        let least = least_of(cost.iter().copied());
        let rest = add(self.bound(), -self.op_least.of(v));
        self.op_least.set(v, least);
        for (known, sum) in self.through_strategy[v].iter_mut().zip(&cost) {
            *known = (*known).max(add(rest, *sum));
        }
        if least >= FAR {
            return;
        }
        if !self.sides.of_value(v).is_empty() {
            self.sides.take(Seat::Value(id), &mut cost, !uses.is_empty());
        }
        // Each operand in turn takes an even share of what is left.
        for (place, (operand, reader)) in uses.iter().enumerate() {
            let mut marginal = vec![FAR; self.paid[*operand][*reader].len()];
            for (s, sum) in cost.iter().enumerate() {
                let m = &mut marginal[at(factor.reads_of(s)[place])];
                *m = (*m).min(*sum);
            }
            let share = (uses.len() - place) as i64;
            for m in marginal.iter_mut().filter(|m| **m < FAR) {
                *m = (*m - least).div_euclid(share);
            }
            for (s, sum) in cost.iter_mut().enumerate().filter(|(_, sum)| **sum < FAR) {
                *sum -= marginal[at(factor.reads_of(s)[place])];
            }
            for (paid, m) in self.paid[*operand][*reader].iter_mut().zip(marginal) {
                *paid = if *paid >= FAR {
                    FAR
                } else if m >= FAR {
                    -FAR
                } else {
                    *paid - m
                };
            }
        }
    }
}

/// Sets what the maker of a value is paid at each node: the least cost of the value, less that of
/// serving its readers from the node.
fn pay_maker(made: &mut [i64], served: &[i64], least: i64) {
    for (m, s) in made.iter_mut().zip(served) {
        *m = if *s >= FAR { -FAR } else { least.min(FAR) - s };
    }
}

/// The prices of those that are served together: of each reader, or of each group of readers.
fn served_together<'p>(groups: Option<&Groups>, paid: &'p [Vec<i64>]) -> Vec<Cow<'p, [i64]>> {
    match groups {
        None => paid.iter().map(|paid| Cow::Borrowed(paid.as_slice())).collect(),
        Some(groups) => groups.paid(paid),
    }
}

/// What a reader has to pay at a price. A price of `-FAR` means that no plan has the reader read at
/// that node, so the strategy costs [`FAR`].
pub(super) fn due(price: i64) -> i64 {
    if price <= -FAR { FAR } else { price }
}

/// The index of a use among the uses of its value.
pub(crate) fn use_index(problem: &Factors, operand: ValueId, reader: ValueUse) -> usize {
    let place = problem.uses[operand.index()].iter().position(|u| *u == reader);
    place.unwrap_or_else(|| never!("a use that is not among the uses of its value", 0))
}

/// For each operand of an op, the index of the operand's value, and that of the use among its uses.
pub(crate) fn uses_of(problem: &Factors, id: ValueId) -> Vec<(usize, usize)> {
    let operands = &problem.operands[id.index()];
    operands
        .iter()
        .enumerate()
        .map(|(i, o)| (o.index(), use_index(problem, *o, ValueUse::Operand(id, i))))
        .collect()
}
