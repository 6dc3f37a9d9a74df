//! The bound that prices give (`spec/certificate.md`): the least of every part of the program,
//! summed. No choice in one part depends on that in another, so that nothing is searched.

use rustc_hash::FxHashMap;
use shard_ir::{Def, Layout, LayoutPattern, ValueId};

use crate::attention::{Attention, Way};
use crate::carried::bytes;
use crate::format::{CertificateError, PriceSet};
use crate::kernel::{Kernel, Key};
use crate::labels::label_layout;
use crate::moves::Node;
use crate::prices::{self, Paid};
use crate::sides::Sides;
use crate::space::{Reader, Space, place_of};
use crate::steiner::served;
use crate::sums::{NEVER, Sum, in_all, least, plus};

/// Prices are in no smaller part of a picosecond than this.
const MOST_SCALE: i64 = 1_000_000;

/// What is known of one value, given prices.
#[derive(Clone, Debug, Default)]
struct Part {
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
    parts: Vec<Part>,
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
    changed: Vec<Option<Part>>,
    labels: &'v [Layout],
}

impl View<'_> {
    fn part(&self, value: usize) -> &Part {
        self.changed.get(value).and_then(Option::as_ref).unwrap_or(&self.bound.parts[value])
    }

    /// What a reader of a value pays in each layout.
    fn paid(&self, value: usize, reader: usize) -> &[Sum] {
        match (&self.bound.paid[value][reader], &self.part(value).follows) {
            (Some(paid), _) => paid,
            (None, Some(follows)) => follows,
            (None, None) => &[],
        }
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
            parts: vec![Part::default(); count],
            served,
            alternatives: 0,
        };
        for id in &self.live {
            let view = View { bound: &bound, changed: Vec::new(), labels: &[] };
            let part = self.part(*id, &view);
            bound.alternatives += self.ways[id.index()].len() as u64;
            bound.parts[id.index()] = part;
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
                    view.changed[id.index()] = Some(self.part(*id, &view));
                }
            }
        }
        let mut sum = bound.sides.least(labels);
        let joined = self.joined();
        for id in self.live.iter().filter(|id| !joined[id.index()]) {
            sum = plus(sum, view.part(id.index()).term);
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
            let (_, within) = found.members.split_last().unwrap_or((&ValueId(0), &[]));
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
        let is_labelled =
            |id: ValueId| pattern_of(self, id).is_some_and(|pattern| pattern.label.is_some());
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
    fn part(&self, id: ValueId, view: &View<'_>) -> Part {
        let v = id.index();
        let (mut made, led) = self.made(id, view);
        if view.bound.paid[v].iter().any(Option::is_none) {
            self.moves[v].spread(&mut made, view.bound.scale);
            return Part { follows: Some(made), term: 0, led };
        }
        let served = &view.bound.served[v];
        Part {
            follows: None,
            term: least(made.iter().zip(served).map(|(made, served)| plus(*made, *served))),
            led,
        }
    }

    /// What it costs at least to make a value in each layout: its time, and what is paid for what
    /// it is made from; and the kernels that others may join.
    fn made(&self, id: ValueId, view: &View<'_>) -> (Vec<Sum>, Vec<Vec<(Kernel, Sum)>>) {
        let (v, ways) = (id.index(), &self.ways[id.index()]);
        let in_all = |time: u64| in_all(time, self.program.value(id).times, view.bound.scale);
        let mut made = vec![NEVER; self.moves[v].nodes()];
        let is_joined = self.joined_by[v].is_some();
        let mut led: FxHashMap<(Node, Key), (Kernel, Sum)> = FxHashMap::default();
        let mut lead = |out: Node, kernel: Kernel, cost: Sum| {
            let known = led.entry((out, kernel.key())).or_insert((kernel, cost));
            known.1 = known.1.min(cost);
        };
        let paid: Vec<&[Sum]> =
            self.reads[v].iter().map(|(operand, reader)| view.paid(*operand, *reader)).collect();
        let joins = self.joins[v].as_ref();
        // Where it joins no kernel, what it reads is a value of its own, with all that its readers
        // do not pay.
        let terms = |values: &mut dyn Iterator<Item = &ValueId>| {
            values.fold(0, |sum, value| plus(sum, view.part(value.index()).term))
        };
        let attention = self.attentions[v].as_ref();
        let apart = match (joins, attention) {
            (Some(joins), _) => terms(&mut joins.pins.iter().chain([&joins.maker])),
            (None, Some(found)) => terms(&mut self.apart_in(found.widest()).iter()),
            (None, None) => 0,
        };
        for way in 0..ways.len() {
            let (out, reads) = (ways.out[way], ways.reads_of(way));
            if let Some(pattern) = pattern_of(self, id)
                && !(self.allows(view.labels, pattern, id, out) && self.may_be_stored(id, out))
            {
                continue;
            }
            let due = |i: usize| paid[i][reads[i] as usize];
            let least_made = &mut made[out as usize];
            if ways.begins[way] {
                let side = view.bound.sides.of_value(id, out);
                let cost = (0..reads.len()).fold(plus(apart, side), |sum, i| plus(sum, due(i)));
                let number = ways.kernel.get(way).map(|number| *number as usize);
                let time = number.map_or(0, |number| in_all(self.times[number]));
                *least_made = (*least_made).min(plus(cost, time));
                if let Some(number) = number.filter(|_| is_joined && ways.leads[way]) {
                    lead(out, self.kernels[number], cost);
                }
            }
            let (true, Some(joins), Some(adds)) =
                (ways.goes_on[way], joins, ways.adds.get(way).copied().flatten())
            else {
                continue;
            };
            let between = reads[joins.fed[0]];
            if !self.all_pass(&joins.pins, between, view.labels) {
                continue;
            }
            let pins = joins
                .pins
                .iter()
                .fold(0, |sum, pin| plus(sum, view.bound.sides.of_value(*pin, between)));
            let others = (0..reads.len())
                .filter(|i| !joins.fed.contains(i))
                .fold(pins, |sum, i| plus(sum, due(i)));
            let layout = self.moves[v].layouts[out as usize];
            let makes = bytes(self.program, id, layout, self.parts[v]);
            for (kernel, cost) in &view.part(joins.maker.index()).led[between as usize] {
                let (kernel, cost) = (kernel.joined(adds, makes), plus(*cost, others));
                if cost >= NEVER {
                    continue;
                }
                *least_made = (*least_made).min(plus(cost, in_all(kernel.time(self.hardware))));
                if is_joined {
                    lead(out, kernel, cost);
                }
            }
        }
        for (way, cost) in
            attention.into_iter().flat_map(|whole| self.as_one_kernel(id, whole, view))
        {
            let kernel = way.kernel as usize;
            let least_made = &mut made[way.out as usize];
            *least_made = (*least_made).min(plus(cost, in_all(self.times[kernel])));
            if is_joined {
                lead(way.out, self.kernels[kernel], cost);
            }
        }
        let mut by_layout =
            vec![Vec::new(); if is_joined { self.moves[v].layouts.len() } else { 0 }];
        for ((node, _), kernel) in led.into_iter().filter(|(_, (_, cost))| *cost < NEVER) {
            by_layout[node as usize].push(kernel);
        }
        (made, by_layout)
    }

    /// The ways of having an attention as one kernel, with what is paid for each but its own time.
    fn as_one_kernel<'w>(
        &self,
        id: ValueId,
        whole: &'w Attention,
        view: &View<'_>,
    ) -> Vec<(&'w Way, Sum)> {
        let within = self.apart_in(whole.widest());
        let of_variant = |found: &'w Attention| {
            // What it might have in it and has not is a value of its own.
            let others = within.iter().filter(|value| !found.has(**value));
            let apart = others.fold(0, |sum, value| plus(sum, view.part(value.index()).term));
            let passes = |way: &Way| {
                let mut pinned = found.pins.iter().zip(&way.pinned);
                pinned.all(|(pin, at)| self.all_pass(std::slice::from_ref(pin), *at, view.labels))
            };
            let ways = found.ways.iter().filter(move |way| passes(way));
            ways.map(move |way| (way, plus(apart, self.paid_for_attention(id, (found, way), view))))
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
        (found, way): (&Attention, &Way),
        view: &View<'_>,
    ) -> Sum {
        let side = |sum: Sum, (pin, node): (&ValueId, &Node)| {
            plus(sum, view.bound.sides.of_value(*pin, *node))
        };
        let start = view.bound.sides.of_value(id, way.out);
        let sides = found.pins.iter().zip(&way.pinned).fold(start, side);
        found.reads.iter().zip(&way.reads).fold(sides, |sum, ((reader, place), node)| {
            let paid = self.reads[reader.index()]
                .get(*place)
                .and_then(|(operand, number)| view.paid(*operand, *number).get(*node as usize));
            plus(sum, paid.copied().unwrap_or(NEVER))
        })
    }

    /// Whether pins let a layout through.
    fn all_pass(&self, pins: &[ValueId], node: Node, labels: &[Layout]) -> bool {
        pins.iter().all(|pin| {
            let layout = self.moves[pin.index()].layouts[node as usize];
            pattern_of(self, *pin).is_some_and(|pattern| {
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

/// The pattern of a parameter or a pin.
fn pattern_of<'p>(space: &Space<'p>, id: ValueId) -> Option<&'p LayoutPattern> {
    match &space.program.value(id).def {
        Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => Some(pattern),
        Def::Constant(_) | Def::Op { .. } => None,
    }
}
