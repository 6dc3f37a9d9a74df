//! The bound that prices give (`spec/certificate.md`): the least of every part of the program,
//! summed. No choice in one part depends on that in another, so that nothing is searched.

use rustc_hash::FxHashMap;
use shard_ir::{Layout, LayoutPattern, ValueId, never};

use crate::attention::{Attention, AttentionWay};
use crate::carried::bytes;
use crate::format::{CertificateError, PriceSet};
use crate::kernel::{Joins, Kernel, Key};
use crate::labels::label_layout;
use crate::moves::Node;
use crate::prices::{self, Paid};
use crate::sides::Sides;
use crate::space::{Reader, Space, place_of};
use crate::steiner::served;
use crate::sums::{NEVER, Sum, in_all, least, plus};
use crate::ways::Ways;

/// Prices are in no smaller part of a picosecond than this.
const MOST_SCALE: i64 = 1_000_000;

/// What is known of one value, given prices.
#[derive(Clone, Debug, Default)]
struct ValueBound {
    /// What its only reader pays, where that follows: what it costs at least to have it in each
    /// layout.
    follows: Option<Vec<Sum>>,
    /// Else its term of the bound: what it costs at least to make it and to serve its readers, less
    /// what they pay.
    term: Sum,
    /// For each layout the kernels that make it and that an op may join, each with what its ops pay
    /// for what they read.
    led: Vec<Vec<(Kernel, Sum)>>,
}

/// The bound that some prices give, with the layouts of labels left open.
#[derive(Clone, Debug)]
pub struct Bound {
    scale: i64,
    paid: Paid,
    sides: Sides,
    values: Vec<ValueBound>,
    /// For each value with prices, what it costs at least to serve its readers from each layout,
    /// less what they pay.
    served: Vec<Vec<Sum>>,
    /// Ways of having values, and layouts of results, that were held against the least of their
    /// kind.
    pub alternatives: u64,
}

/// Parts under an assignment of layouts to labels: those that it changes, before those that it does
/// not.
struct View<'v> {
    bound: &'v Bound,
    changed: Vec<Option<ValueBound>>,
    labels: &'v [Layout],
}

impl View<'_> {
    fn value(&self, value: usize) -> &ValueBound {
        self.changed.get(value).and_then(Option::as_ref).unwrap_or(&self.bound.values[value])
    }

    /// What a reader of a value pays in each layout.
    fn paid(&self, value: usize, reader: usize) -> &[Sum] {
        match (&self.bound.paid[value][reader], &self.value(value).follows) {
            (Some(paid), _) => paid,
            (None, Some(follows)) => follows,
            (None, None) => &[],
        }
    }

    /// The terms of some values, summed.
    fn terms<'i>(&self, values: impl Iterator<Item = &'i ValueId>) -> Sum {
        values.fold(0, |sum, value| plus(sum, self.value(value.index()).term))
    }
}

/// What it costs at least to have a value in each layout, as its ways are gone through: its time,
/// and what is paid for what it is made from.
struct Making<'s> {
    space: &'s Space<'s>,
    view: &'s View<'s>,
    id: ValueId,
    ways: &'s Ways,
    /// What is paid for each operand, in each of its layouts.
    paid: Vec<&'s [Sum]>,
    made: Vec<Sum>,
    /// The kernels that make it, for the op that may join them, if there is one.
    led: Option<FxHashMap<(Node, Key), (Kernel, Sum)>>,
}

impl<'s> Making<'s> {
    /// A way of having it costs so much, and the time of its kernel.
    fn offer(&mut self, out: Node, cost: Sum, time: u64) {
        let times = self.space.program.value(self.id).times;
        let least = &mut self.made[out as usize];
        *least = (*least).min(plus(cost, in_all(time, times, self.view.bound.scale)));
    }

    /// An op may join this kernel, whose ops pay so much for what they read.
    fn lead(&mut self, out: Node, kernel: Kernel, cost: Sum) {
        if let Some(led) = &mut self.led {
            let known = led.entry((out, kernel.key())).or_insert((kernel, cost));
            known.1 = known.1.min(cost);
        }
    }

    /// The sum and what is paid for some operands, as a way reads them.
    fn plus_paid(&self, sum: Sum, way: usize, operands: impl Iterator<Item = usize>) -> Sum {
        let reads = self.ways.reads_of(way);
        operands.fold(sum, |sum, i| plus(sum, self.paid[i][reads[i] as usize]))
    }

    /// A way in a kernel that it begins. What it reads is then a value of its own, with all that
    /// its readers do not pay: `apart`.
    fn begin(&mut self, way: usize, apart: Sum) {
        let out = self.ways.out[way];
        let side = self.view.bound.sides.of_value(self.id, out);
        let cost = self.plus_paid(plus(apart, side), way, 0..self.ways.arity);
        let Some(number) = self.ways.kernel.get(way) else { return self.offer(out, cost, 0) };
        self.offer(out, cost, self.space.times[*number as usize]);
        if self.ways.leads[way] {
            self.lead(out, self.space.kernels[*number as usize], cost);
        }
    }

    /// A way joined to each kernel that makes the operand.
    fn go_on(&mut self, way: usize, joins: &Joins) {
        let Some(adds) = self.ways.adds[way] else { return };
        let (v, out) = (self.id.index(), self.ways.out[way]);
        let between = self.ways.reads_of(way)[joins.fed[0]];
        if !self.space.all_pass(&joins.pins, between, self.view.labels) {
            return;
        }
        let side = |sum, pin: &ValueId| plus(sum, self.view.bound.sides.of_value(*pin, between));
        let others = (0..self.ways.arity).filter(|i| !joins.fed.contains(i));
        let others = self.plus_paid(joins.pins.iter().fold(0, side), way, others);
        let layout = self.space.moves[v].layouts[out as usize];
        let makes = bytes(self.space.program, self.id, layout, self.space.partial_softmaxes[v]);
        for (kernel, cost) in &self.view.value(joins.maker.index()).led[between as usize] {
            let (kernel, cost) = (kernel.joined(adds.to(kernel), makes), plus(*cost, others));
            if cost < NEVER {
                self.offer(out, cost, kernel.time(self.space.hardware));
                self.lead(out, kernel, cost);
            }
        }
    }

    /// The ways of having the attention that ends with it as one kernel.
    fn be_one_kernel(&mut self, whole: &Attention) {
        for (way, cost) in self.space.as_one_kernel(self.id, whole, self.view) {
            let kernel = way.kernel as usize;
            self.offer(way.out, cost, self.space.times[kernel]);
            self.lead(way.out, self.space.kernels[kernel], cost);
        }
    }

    /// What it costs, and for each layout the kernels that an op may join.
    fn done(self) -> (Vec<Sum>, Vec<Vec<(Kernel, Sum)>>) {
        let Some(led) = self.led else { return (self.made, Vec::new()) };
        let mut by_layout = vec![Vec::new(); self.space.moves[self.id.index()].layouts.len()];
        for ((node, _), kernel) in led.into_iter().filter(|(_, (_, cost))| *cost < NEVER) {
            by_layout[node as usize].push(kernel);
        }
        (self.made, by_layout)
    }
}

impl Space<'_> {
    /// What a set of prices shows. Prices that do not fit the program are refused.
    pub fn bound(&self, set: &PriceSet) -> Result<Bound, CertificateError> {
        self.bound_with(set, self.sides(set)?)
    }

    /// The same with these side prices.
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

    /// The bound under an assignment of layouts to labels, in picoseconds; all layouts for `&[]`.
    /// `None` where there is no plan.
    pub fn bound_under(&self, bound: &Bound, labels: &[Layout]) -> Option<u64> {
        in_picoseconds(self.sum_under(bound, labels), bound.scale)
    }

    /// The same as a sum.
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
            let reader = place_of(&self.readers[v], Reader::Result(i));
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

    /// Of each value whether it may pass within a kernel: its term is that of the op that joins the
    /// kernel, where it does not.
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

    /// Whether a value's part is another under an assignment of layouts to labels.
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

    /// Works out the part of a value, given those of what it reads.
    fn value_bound(&self, id: ValueId, view: &View<'_>) -> ValueBound {
        let v = id.index();
        let (mut made, led) = self.made(id, view);
        if view.bound.paid[v].iter().any(Option::is_none) {
            self.moves[v].spread(&mut made, view.bound.scale);
            return ValueBound { follows: Some(made), term: 0, led };
        }
        let served = &view.bound.served[v];
        ValueBound {
            follows: None,
            term: least(made.iter().zip(served).map(|(made, served)| plus(*made, *served))),
            led,
        }
    }

    /// What it costs at least to make a value in each layout: its time, and what is paid for what
    /// it is made from; and the kernels that others may join.
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
            led: self.joined_by[v].map(|_| FxHashMap::default()),
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
            if making.ways.begins[way] {
                making.begin(way, apart);
            }
            if let Some(joins) = joins.filter(|_| making.ways.goes_on[way]) {
                making.go_on(way, joins);
            }
        }
        if let Some(whole) = attention {
            making.be_one_kernel(whole);
        }
        making.done()
    }

    /// The ways of having an attention as one kernel, with what is paid for each but its own time.
    fn as_one_kernel<'w>(
        &self,
        id: ValueId,
        whole: &'w Attention,
        view: &View<'_>,
    ) -> Vec<(&'w AttentionWay, Sum)> {
        let within = self.apart_in(whole.widest());
        let of_variant = |found: &'w Attention| {
            // What it might have in it and has not is a value of its own.
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

    /// What passes within an attention and is in no kernel within it: its terms count where it is
    /// not one kernel.
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

    /// What is paid for what an attention reads as one kernel, and for the layouts of pins in it.
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

    /// Whether pins let a layout through.
    fn all_pass(&self, pins: &[ValueId], node: Node, labels: &[Layout]) -> bool {
        pins.iter().all(|pin| {
            let layout = self.moves[pin.index()].layouts[node as usize];
            self.program.value(*pin).def.pattern().is_some_and(|pattern| {
                pattern.admits(layout) && self.allows(labels, pattern, *pin, node)
            })
        })
    }

    /// Whether the branch that is looked at stores a weight or a cache in a layout.
    pub(crate) fn may_be_stored(&self, value: ValueId, node: Node) -> bool {
        let bytes = || {
            let layout = self.moves[value.index()].layouts.get(node as usize);
            layout.map_or(u64::MAX, |layout| self.stored_bytes(value, *layout))
        };
        self.within.may_store(value, bytes)
    }

    /// Whether an assignment of layouts to labels, and the branch that is looked at, allow a value
    /// a layout where this pattern stands.
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

/// A sum in picoseconds; `None` where there is no plan. A plan takes whole ones: what is beyond
/// some is one more.
pub(crate) fn in_picoseconds(sum: Sum, scale: i64) -> Option<u64> {
    let whole = (sum.max(0) + Sum::from(scale) - 1) / Sum::from(scale);
    (sum < NEVER).then(|| u64::try_from(whole).unwrap_or(u64::MAX))
}
