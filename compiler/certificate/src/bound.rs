//! The bound that prices give (`spec/certificate.md`): the sum of the least cost of every value and
//! every result. No choice for one value depends on the choice for another, so that nothing is
//! searched.

use rustc_hash::FxHashMap;
use shard_ir::{Layout, LayoutPattern, ValueId, never};

use crate::attention::{Attention, AttentionWay};
use crate::carried::bytes;
use crate::format::{CertificateError, PriceSet};
use crate::kernel::{Joins, Kernel};
use crate::labels::label_layout;
use crate::moves::Node;
use crate::prices::{self, Paid};
use crate::sides::Sides;
use crate::space::{Reader, Space, reader_number};
use crate::steiner::served;
use crate::sums::{NEVER, Sum, least, plus, total_time};
use crate::ways::Ways;

/// Prices count at most this many fractions of a picosecond.
const MOST_SCALE: i64 = 1_000_000;

/// The bound of one value, given prices.
#[derive(Clone, Debug, Default)]
struct ValueBound {
    /// Where the price of its only reader follows: the least cost of having the value in each node,
    /// which the reader pays.
    follows: Option<Vec<Sum>>,
    /// Else its term of the bound: the least cost of making it and serving its readers, less what
    /// the readers pay.
    term: Sum,
    /// For each layout the kernels that make the value and that an op may join, each with what its
    /// ops pay for what they read.
    joinable: Vec<Vec<(Kernel, Sum)>>,
}

/// The bound that some prices give, over all layouts of labels.
#[derive(Clone, Debug)]
pub struct Bound {
    scale: i64,
    paid: Paid,
    sides: Sides,
    values: Vec<ValueBound>,
    /// For each value with prices the least cost of serving its readers from each node, less what
    /// they pay.
    served: Vec<Vec<Sum>>,
    /// How many ways of having values, and layouts of results, were compared with the least of
    /// their kind.
    pub alternatives: u64,
}

/// The bounds of values under an assignment of layouts to labels. Those that the assignment changes
/// take the place of those in the bound over all layouts.
struct View<'v> {
    bound: &'v Bound,
    changed: Vec<Option<ValueBound>>,
    labels: &'v [Layout],
}

impl View<'_> {
    fn value(&self, value: usize) -> &ValueBound {
        self.changed.get(value).and_then(Option::as_ref).unwrap_or(&self.bound.values[value])
    }

    /// What a reader of a value pays in each node; empty where that is not known.
    fn paid(&self, value: usize, reader: usize) -> &[Sum] {
        match (&self.bound.paid[value][reader], &self.value(value).follows) {
            (Some(paid), _) => paid,
            (None, Some(follows)) => follows,
            (None, None) => &[],
        }
    }

    /// The sum of the terms of some values.
    fn terms<'i>(&self, values: impl Iterator<Item = &'i ValueId>) -> Sum {
        values.fold(0, |sum, value| plus(sum, self.value(value.index()).term))
    }
}

/// The least cost of having a value in each layout, collected way by way: the time of its op, and
/// what is paid for what it is made from.
struct Making<'s> {
    space: &'s Space<'s>,
    view: &'s View<'s>,
    id: ValueId,
    ways: &'s Ways,
    /// What is paid for each operand, in each of its nodes.
    paid: Vec<&'s [Sum]>,
    made: Vec<Sum>,
    /// By layout the kernels that make the value, each with the least that its ops pay;
    /// `None` where no op may join them.
    joinable: Option<FxHashMap<(Node, Kernel), Sum>>,
}

impl<'s> Making<'s> {
    /// Offers a way of having the value in the layout `out`, at `cost` and the time of its kernel.
    fn offer(&mut self, out: Node, cost: Sum, time: u64) {
        let times = self.space.program.value(self.id).times;
        let least = &mut self.made[out as usize];
        *least = (*least).min(plus(cost, total_time(time, times, self.view.bound.scale)));
    }

    /// Offers a kernel that makes the value in the layout `out` and that an op may join; its ops
    /// pay `cost` for what they read.
    fn offer_kernel(&mut self, out: Node, kernel: Kernel, cost: Sum) {
        if let Some(joinable) = &mut self.joinable {
            let known = joinable.entry((out, kernel)).or_insert(cost);
            *known = (*known).min(cost);
        }
    }

    /// A sum, plus what is paid for some operands in the layouts in which a way reads them.
    fn plus_paid(&self, sum: Sum, way: usize, operands: impl Iterator<Item = usize>) -> Sum {
        let reads = self.ways.reads_of(way);
        operands.fold(sum, |sum, i| plus(sum, self.paid[i][reads[i] as usize]))
    }

    /// Offers a way in a kernel of its own. What the op might otherwise have joined is then a value
    /// of its own, whose term `apart` counts.
    fn offer_own_kernel(&mut self, way: usize, apart: Sum) {
        let out = self.ways.out[way];
        let side = self.view.bound.sides.of_value(self.id, out);
        let cost = self.plus_paid(plus(apart, side), way, 0..self.ways.arity);
        let Some(number) = self.ways.kernel.get(way) else { return self.offer(out, cost, 0) };
        self.offer(out, cost, self.space.times[*number as usize]);
        if self.ways.joinable[way] {
            self.offer_kernel(out, self.space.kernels.get(*number), cost);
        }
    }

    /// Offers a way joined to each kernel that makes the operand.
    fn offer_joined(&mut self, way: usize, joins: &Joins) {
        let Some(adds) = self.ways.adds[way] else { return };
        let (v, out) = (self.id.index(), self.ways.out[way]);
        let between = self.ways.reads_of(way)[joins.from_maker[0]];
        if !self.space.all_pass(&joins.pins, between, self.view.labels) {
            return;
        }
        let side = |sum, pin: &ValueId| plus(sum, self.view.bound.sides.of_value(*pin, between));
        let others = (0..self.ways.arity).filter(|i| !joins.from_maker.contains(i));
        let others = self.plus_paid(joins.pins.iter().fold(0, side), way, others);
        let layout = self.space.moves[v].layouts[out as usize];
        let makes = bytes(self.space.program, self.id, layout, self.space.partial_softmaxes[v]);
        for (kernel, cost) in &self.view.value(joins.maker.index()).joinable[between as usize] {
            let (kernel, cost) = (kernel.joined(adds.bytes_in(kernel), makes), plus(*cost, others));
            if cost < NEVER {
                self.offer(out, cost, kernel.time(self.space.hardware));
                self.offer_kernel(out, kernel, cost);
            }
        }
    }

    /// Offers the ways of having the attention that ends with the value as one kernel.
    fn offer_attention(&mut self, whole: &Attention) {
        for (way, cost) in self.space.costs_as_one_kernel(self.id, whole, self.view) {
            self.offer(way.out, cost, self.space.times[way.kernel as usize]);
            self.offer_kernel(way.out, self.space.kernels.get(way.kernel), cost);
        }
    }

    /// The least cost in each layout, and for each layout the kernels that an op may join, with
    /// their costs.
    fn done(self) -> (Vec<Sum>, Vec<Vec<(Kernel, Sum)>>) {
        let Some(joinable) = self.joinable else { return (self.made, Vec::new()) };
        let mut by_layout = vec![Vec::new(); self.space.moves[self.id.index()].layouts.len()];
        for ((node, kernel), cost) in joinable.into_iter().filter(|(_, cost)| *cost < NEVER) {
            by_layout[node as usize].push((kernel, cost));
        }
        (self.made, by_layout)
    }
}

impl Space<'_> {
    /// The bound that a set of prices gives. Prices that do not fit the program are refused.
    pub fn bound(&self, set: &PriceSet) -> Result<Bound, CertificateError> {
        self.bound_with(set, self.sides(set)?)
    }

    /// The same with side prices that are already read.
    pub(crate) fn bound_with(
        &self,
        set: &PriceSet,
        sides: Sides,
    ) -> Result<Bound, CertificateError> {
        let count = self.program.values.len();
        let paid = prices::read(self, set)?;
        let scale = i64::from(set.scale);
        if !(1..=MOST_SCALE).contains(&scale) {
            return Err(CertificateError::new(format!(
                "prices are in {scale}-th parts of a picosecond"
            )));
        }
        let mut served = vec![Vec::new(); count];
        self.live.iter().for_each(|id| served[id.index()] = self.served(id.index(), &paid, scale));
        let mut bound = Bound {
            scale,
            paid,
            sides,
            values: vec![ValueBound::default(); count],
            served,
            alternatives: 0,
        };
        for id in &self.live {
            let view = View { bound: &bound, changed: Vec::new(), labels: &[] };
            let value = self.value_bound(*id, &view);
            bound.alternatives += self.ways[id.index()].len() as u64;
            bound.values[id.index()] = value;
        }
        bound.alternatives += self.results.iter().map(|nodes| nodes.len() as u64).sum::<u64>();
        Ok(bound)
    }

    /// The bound under an assignment of layouts to labels, in picoseconds; over all layouts for
    /// `&[]`. `None` where there is no plan.
    pub fn bound_under(&self, bound: &Bound, labels: &[Layout]) -> Option<u64> {
        in_picoseconds(self.sum_under(bound, labels), bound.scale)
    }

    /// The same in the fractions of a picosecond that the prices count; [`NEVER`] where there is no
    /// plan.
    pub(crate) fn sum_under(&self, bound: &Bound, labels: &[Layout]) -> Sum {
        let mut view = View { bound, changed: Vec::new(), labels };
        if !labels.is_empty() {
            view.changed = vec![None; self.program.values.len()];
            for id in &self.live {
                if self.is_changed(*id, &view) {
                    view.changed[id.index()] = Some(self.value_bound(*id, &view));
                }
            }
        }
        let mut sum = bound.sides.least(labels);
        let joined = self.joined();
        for id in self.live.iter().filter(|id| !joined[id.index()]) {
            sum = plus(sum, view.value(id.index()).term);
        }
        for (i, output) in
            self.program.outputs.iter().enumerate().filter(|(_, o)| self.is_within[o.value.index()])
        {
            let v = output.value.index();
            let reader = reader_number(&self.readers[v], Reader::Result(i));
            let paid = view.paid(v, reader);
            let nodes = self.wanted[v][reader]
                .iter()
                .filter(|n| self.allows(labels, &output.pattern, output.value, **n));
            let cost = |node: &Node| plus(paid[*node as usize], bound.sides.of_result(i, *node));
            sum = plus(sum, least(nodes.map(cost)));
        }
        sum
    }

    fn served(&self, v: usize, paid: &Paid, scale: i64) -> Vec<Sum> {
        let given: Vec<Vec<Sum>> = paid[v].iter().flatten().cloned().collect();
        if given.len() == paid[v].len() {
            served(&self.moves[v], &given, scale)
        } else {
            Vec::new()
        }
    }

    /// For each value whether it may pass within a kernel. The op that joins the kernel then counts
    /// the value's term, in the ways in which it does not join.
    fn joined(&self) -> Vec<bool> {
        let mut joined = vec![false; self.program.values.len()];
        for joins in self.joins.iter().flatten() {
            joins.pins.iter().chain([&joins.maker]).for_each(|id| joined[id.index()] = true);
        }
        for found in self.attentions.iter().flatten().map(Attention::widest) {
            let Some((_, within)) = found.members.split_last() else {
                never!("an attention without members", continue)
            };
            within.iter().chain(&found.pins).for_each(|id| joined[id.index()] = true);
        }
        joined
    }

    /// Whether an assignment of layouts to labels changes the bound of a value.
    fn is_changed(&self, id: ValueId, view: &View<'_>) -> bool {
        let v = id.index();
        let follows = |(operand, reader): &(usize, usize)| {
            view.bound.paid[*operand][*reader].is_none() && view.changed[*operand].is_some()
        };
        let pattern = |id: ValueId| self.program.value(id).def.pattern();
        let is_labelled = |id: ValueId| pattern(id).is_some_and(|p| p.label.is_some());
        let within = |id: ValueId| is_labelled(id) || view.changed[id.index()].is_some();
        let in_attention = |found: &Attention| {
            let pays = |(reader, place): &(ValueId, usize)| {
                self.reads[reader.index()].get(*place).is_some_and(follows)
            };
            found.reads.iter().any(pays)
                || found
                    .members
                    .iter()
                    .chain(&found.pins)
                    .any(|id| *id != found.members[found.members.len() - 1] && within(*id))
        };
        is_labelled(id)
            || self.reads[v].iter().any(follows)
            || self.attentions[v].iter().flat_map(Attention::variants).any(in_attention)
            || self.joins[v]
                .as_ref()
                .is_some_and(|j| within(j.maker) || j.pins.iter().any(|pin| within(*pin)))
    }

    /// Computes the bound of a value, given the bounds of what it reads.
    fn value_bound(&self, id: ValueId, view: &View<'_>) -> ValueBound {
        let v = id.index();
        let (mut made, joinable) = self.made(id, view);
        if view.bound.paid[v].iter().any(Option::is_none) {
            self.moves[v].spread(&mut made, view.bound.scale);
            return ValueBound { follows: Some(made), term: 0, joinable };
        }
        let served = &view.bound.served[v];
        ValueBound {
            follows: None,
            term: least(made.iter().zip(served).map(|(made, served)| plus(*made, *served))),
            joinable,
        }
    }

    /// The least cost of making a value in each layout, its time and what is paid for what it is
    /// made from; and for each layout the kernels that others may join.
    fn made(&self, id: ValueId, view: &View<'_>) -> (Vec<Sum>, Vec<Vec<(Kernel, Sum)>>) {
        let v = id.index();
        let paid = |(operand, reader): &(usize, usize)| view.paid(*operand, *reader);
        let mut making = Making {
            space: self,
            view,
            id,
            ways: &self.ways[v],
            paid: self.reads[v].iter().map(paid).collect(),
            made: vec![NEVER; self.moves[v].nodes()],
            joinable: self.joined_by[v].map(|_| FxHashMap::default()),
        };
        let (joins, attention) = (self.joins[v].as_ref(), self.attentions[v].as_ref());
        let apart = match (joins, attention) {
            (Some(joins), _) => view.terms(joins.pins.iter().chain([&joins.maker])),
            (None, Some(found)) => view.terms(self.apart_in(found.widest()).iter()),
            (None, None) => 0,
        };
        for way in 0..making.ways.len() {
            let out = making.ways.out[way];
            if let Some(pattern) = self.program.value(id).def.pattern()
                && !(self.allows(view.labels, pattern, id, out) && self.may_be_stored(id, out))
            {
                continue;
            }
            if making.ways.in_own_kernel[way] {
                making.offer_own_kernel(way, apart);
            }
            if let Some(joins) = joins.filter(|_| making.ways.joins_kernel[way]) {
                making.offer_joined(way, joins);
            }
        }
        if let Some(whole) = attention {
            making.offer_attention(whole);
        }
        making.done()
    }

    /// The ways of having an attention as one kernel, each with its cost apart from the time of the
    /// kernel.
    fn costs_as_one_kernel<'w>(
        &self,
        id: ValueId,
        whole: &'w Attention,
        view: &View<'_>,
    ) -> Vec<(&'w AttentionWay, Sum)> {
        let within = self.apart_in(whole.widest());
        let of_variant = |found: &'w Attention| {
            // A value that the widest variant has as a member, and this one has not, counts as a
            // value of its own.
            let apart = view.terms(within.iter().filter(|value| !found.has(**value)));
            let passes = |way: &AttentionWay| {
                let mut pinned = found.pins.iter().zip(&way.pinned);
                pinned.all(|(pin, at)| self.all_pass(std::slice::from_ref(pin), *at, view.labels))
            };
            let ways = found.ways.iter().filter(move |way| passes(way));
            ways.map(move |way| (way, plus(apart, self.paid_for_attention(id, found, way, view))))
        };
        whole.variants().flat_map(of_variant).filter(|(_, cost)| *cost < NEVER).collect()
    }

    /// The values that pass within an attention and join no smaller kernel in it. Their terms count
    /// where the attention is not one kernel.
    fn apart_in(&self, found: &Attention) -> Vec<ValueId> {
        let inner = |id: &ValueId| {
            found
                .members
                .iter()
                .filter_map(|by| self.joins[by.index()].as_ref())
                .any(|joins| joins.maker == *id || joins.pins.contains(id))
        };
        let within = found.members.iter().take(found.members.len().saturating_sub(1));
        within.chain(&found.pins).copied().filter(|id| !inner(id)).collect()
    }

    /// What is paid for what an attention reads as one kernel, with the side prices of its pins and
    /// of its last value.
    fn paid_for_attention(
        &self,
        id: ValueId,
        found: &Attention,
        way: &AttentionWay,
        view: &View<'_>,
    ) -> Sum {
        let side = |sum: Sum, (pin, node): (&ValueId, &Node)| {
            plus(sum, view.bound.sides.of_value(*pin, *node))
        };
        let start = view.bound.sides.of_value(id, way.out);
        let sides = found.pins.iter().zip(&way.pinned).fold(start, side);
        found.reads.iter().zip(&way.reads).fold(sides, |sum, ((reader, place), node)| {
            let (operand, number) = self.reads[reader.index()][*place];
            plus(sum, view.paid(operand, number)[*node as usize])
        })
    }

    /// Whether all of some pins allow a layout.
    fn all_pass(&self, pins: &[ValueId], node: Node, labels: &[Layout]) -> bool {
        pins.iter().all(|pin| {
            let layout = self.moves[pin.index()].layouts[node as usize];
            self.program.value(*pin).def.pattern().is_some_and(|pattern| {
                pattern.admits(layout) && self.allows(labels, pattern, *pin, node)
            })
        })
    }

    /// Whether plans of the current branch may store a weight or a cache in a layout.
    pub(crate) fn may_be_stored(&self, value: ValueId, node: Node) -> bool {
        let bytes = || {
            let layout = self.moves[value.index()].layouts.get(node as usize);
            layout.map_or(u64::MAX, |layout| self.stored_bytes(value, *layout))
        };
        self.within.may_store(value, bytes)
    }

    /// Whether an assignment of layouts to labels, and the current branch, allow a value this
    /// layout where this pattern stands.
    pub(crate) fn allows(
        &self,
        labels: &[Layout],
        pattern: &LayoutPattern,
        value: ValueId,
        node: Node,
    ) -> bool {
        let Some(label) = pattern.label else { return true };
        let (wanted, left) = (labels.get(usize::from(label.0)), self.within.layouts(label));
        if wanted.is_none() && left.is_none() {
            return true;
        }
        let layout = self.moves[value.index()].layouts.get(node as usize);
        let layout = layout.map(|layout| label_layout(&self.program.value(value).dims, *layout));
        layout.is_some_and(|l| {
            wanted.is_none_or(|wanted| *wanted == l) && left.is_none_or(|left| left.contains(&l))
        })
    }
}

/// A sum in picoseconds, rounded up, since plans take whole picoseconds; `None` where there is no
/// plan.
pub(crate) fn in_picoseconds(sum: Sum, scale: i64) -> Option<u64> {
    let whole = (sum.max(0) + Sum::from(scale) - 1) / Sum::from(scale);
    (sum < NEVER).then(|| u64::try_from(whole).unwrap_or(u64::MAX))
}
