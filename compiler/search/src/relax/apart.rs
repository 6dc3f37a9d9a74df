//! One bound for all forms of a program whose choices are made apart from each other.
//!
//! One form is solved, and its prices are kept. The bound of the form is a sum, and each cluster of
//! the form has a part of it. An alternative of a cluster, from another form, is bounded by a
//! relaxation of the cluster alone: what it reads, and what others read of it, is paid for at the
//! prices of the solved form. Every form is what lies outside of all clusters, and one alternative
//! of each cluster. The prices between these cancel, so the bound of what lies outside, and the
//! least over the alternatives of each cluster, add up to a bound on every form.
//!
//! Constants (`Def::Constant`) are in no cluster, though ops of any cluster may read them. They lie
//! on every device, so each reader has its constants at no cost, and what the bound has of a
//! constant is divided among its readers.

use std::collections::BTreeSet;
use std::sync::Arc;

use egg::Id;
use rustc_hash::FxHashMap;
use shard_cost::RegroupTimes;
use shard_ir::{AxisSet, Def, Dtype, Layout, Program, ValueId};

use super::factors::{Extent, Factor, Factors, SharedFactors, ValueUse};
use super::graph::{FAR, Graph, GraphKey, NodeId, Queue};
use super::parts::Seat;
use super::prices::{Prices, use_index};
use super::serving::{add, at, least_of};
use super::{Branch, Setting, Sweeps, Whole, settle};
use crate::LowerError;
use crate::kernel::Kernels;

/// A form with the e-class of each of its values.
pub(crate) struct Classed<'k> {
    kernels: &'k Kernels,
    classes: &'k [Id],
    /// The value of each class.
    value: FxHashMap<Id, ValueId>,
    /// For a form that is a part of another, the number of each of its results among those of the
    /// whole; `None` for a whole form.
    outputs: Option<&'k [usize]>,
}

impl<'k> Classed<'k> {
    pub(crate) fn new(kernels: &'k Kernels, classes: &'k [Id]) -> Classed<'k> {
        let value = classes
            .iter()
            .zip(kernels.program.value_ids())
            .map(|(class, id)| (*class, id))
            .collect();
        Classed { kernels, classes, value, outputs: None }
    }

    /// The same for a part of a form; `outputs` has the number of each of its results among those
    /// of the whole.
    pub(crate) fn with_outputs(self, outputs: &'k [usize]) -> Classed<'k> {
        Classed { outputs: Some(outputs), ..self }
    }

    /// The number of a result of this form among the results of the whole.
    fn output(&self, i: usize) -> Option<usize> {
        self.outputs.map_or(Some(i), |outputs| outputs.get(i).copied())
    }

    fn class(&self, id: ValueId) -> Id {
        self.classes[id.index()]
    }

    fn is_constant(&self, id: ValueId) -> bool {
        matches!(self.kernels.program.value(id).def, Def::Constant(_))
    }
}

/// A solved form whose clusters may be replaced by those of other forms.
pub(crate) struct Apart<'k, 'h> {
    form: Classed<'k>,
    whole: Arc<Whole>,
    setting: Setting<'h>,
    shared: SharedFactors,
    /// By how much [`Apart::bound`] is less than the bound of the form, since the constants are
    /// divided among their readers.
    loss: i64,
    /// For each constant and reader, what the reader's use of the constant adds to the bound.
    of_constants: FxHashMap<(ValueId, ValueId), i64>,
}

impl<'k, 'h> Apart<'k, 'h> {
    /// A solved form; `branch` has to be all of its plans, of which nothing was dropped. `None`
    /// where it takes time to have a constant in some layout.
    pub(crate) fn new(
        form: Classed<'k>,
        branch: &Branch,
        setting: Setting<'h>,
    ) -> Option<Apart<'k, 'h>> {
        let whole = Arc::clone(&branch.whole);
        let shared = SharedFactors::new(whole.problem.ticks);
        let mut apart =
            Apart { form, whole, setting, shared, loss: 0, of_constants: FxHashMap::default() };
        apart.divide_constants().then_some(apart)
    }

    /// A form at given prices, whatever these say of its constants.
    pub(crate) fn at_prices(
        form: Classed<'k>,
        problem: Factors,
        prices: Prices,
        setting: Setting<'h>,
    ) -> Apart<'k, 'h> {
        let shared = SharedFactors::new(problem.ticks);
        let whole = Arc::new(Whole { problem, prices });
        Apart { form, whole, setting, shared, loss: 0, of_constants: FxHashMap::default() }
    }

    /// A lower bound on the plans of the form, in ticks, at the prices of this form.
    pub(crate) fn bound(&self) -> i64 {
        add(self.whole.prices.bound(), -self.loss)
    }

    /// A bound in ticks as a bound in picoseconds, rounded up since plans take whole picoseconds.
    pub(crate) fn picoseconds(&self, ticks: i64) -> Option<u64> {
        self.whole.problem.picoseconds(ticks)
    }

    /// A difference of two bounds in picoseconds, rounded down.
    pub(crate) fn whole_picoseconds(&self, ticks: i64) -> u64 {
        u64::try_from(ticks / self.whole.problem.ticks).unwrap_or(0)
    }

    /// The part of [`Apart::bound`] that a cluster of this form has.
    pub(crate) fn own(&self, cluster: &BTreeSet<Id>) -> i64 {
        let problem = &self.whole.problem;
        let inside = |id: &&ValueId| cluster.contains(&self.form.class(**id));
        let values = problem
            .live
            .iter()
            .filter(inside)
            .fold(0, |sum, id| add(sum, self.whole.prices.terms_of(*id)));
        let constants = self
            .of_constants
            .iter()
            .filter(|((_, reader), _)| cluster.contains(&self.form.class(*reader)));
        constants.fold(values, |sum, (_, term)| add(sum, *term))
    }

    /// The least that a cluster of another form adds to the bound, where the other form is the same
    /// outside of the cluster: [`FAR`] where the cluster has no plan, `None` where it reads a value
    /// that has no price in this form.
    pub(crate) fn least(
        &mut self,
        cluster: &BTreeSet<Id>,
        other: &Classed<'_>,
    ) -> Result<Option<i64>, LowerError> {
        let kernels = other.kernels;
        let inside = |id: ValueId| cluster.contains(&other.class(id)) && kernels.live[id.index()];
        let is_in_part: Vec<bool> = kernels.program.value_ids().map(inside).collect();
        let Some(PricedPart { part, prices, bound }) = self.settled(&is_in_part, other)? else {
            return Ok(None);
        };
        // The readers outside do not count on layouts in which the solved form cannot have the
        // value. So no bound is known if the other form can have it in one of these.
        let had = |of: &NotHad| {
            let by = use_index(&part.problem, of.value, ValueUse::Operand(of.reader, 0));
            prices.paid[of.value.index()][by][at(of.node)] < FAR
        };
        Ok((!part.not_had.iter().any(had)).then(|| add(bound, -part.given)))
    }

    /// Prices within a part of another form that is the same outside of the part; `None` where the
    /// part reads a value that has no price in this form.
    pub(crate) fn prices_within(
        &mut self,
        is_in_part: &[bool],
        other: &Classed<'_>,
    ) -> Result<Option<PartPrices>, LowerError> {
        let settled = self.settled(is_in_part, other)?;
        Ok(settled.map(|PricedPart { part, prices, .. }| PartPrices {
            problem: part.problem,
            prices,
            is_in_part: is_in_part.to_vec(),
        }))
    }

    /// The price that a result pays in the solved form for a value of another form in a layout.
    pub(crate) fn paid_by_result(
        &self,
        other: &Classed<'_>,
        value: ValueId,
        result: usize,
        layout: Layout,
    ) -> i64 {
        let (problem, prices) = (&self.whole.problem, &self.whole.prices);
        let here = self.form.value.get(&other.class(value));
        let here =
            here.filter(|here| problem.uses[here.index()].contains(&ValueUse::Output(result)));
        let price = |here: &ValueId| {
            let paid =
                &prices.paid[here.index()][use_index(problem, *here, ValueUse::Output(result))];
            problem.graphs[here.index()].node(layout).map_or(FAR, |node| paid[at(node)])
        };
        here.map_or(FAR, price)
    }

    /// Sweeps prices on the values of a part of another form.
    fn settled(
        &mut self,
        is_in_part: &[bool],
        other: &Classed<'_>,
    ) -> Result<Option<PricedPart>, LowerError> {
        let kernels = other.kernels;
        let part = Extent { has_factor: is_in_part.to_vec(), shared: &mut self.shared };
        let part = Factors::of_part(kernels, self.setting, part)?;
        let Some(mut part) = self.priced_around(part, is_in_part, other) else {
            return Ok(None);
        };
        let mut prices = Prices::new(&part.problem);
        let (sweeps, mut no_plan) =
            (Sweeps { fresh: true, shrink: false, near: false, rough: None }, FAR);
        let (bound, _) =
            settle(&mut part.problem, &mut prices, self.setting.limits, sweeps, &mut no_plan);
        Ok(Some(PricedPart { part, prices, bound }))
    }

    /// The problem of a part alone, where what the part reads, and what is read of it from outside,
    /// is paid for at the prices of the solved form; `None` where it reads a value that has no
    /// price there.
    fn priced_around(
        &self,
        mut part: Factors,
        is_in_part: &[bool],
        other: &Classed<'_>,
    ) -> Option<PartProblem> {
        let ticks = self.whole.problem.ticks;
        let operands = part.operands.as_ref().clone();
        let mut kept_operands = operands.clone();
        let mut uses: Vec<Vec<ValueUse>> = vec![Vec::new(); operands.len()];
        for id in part.live.clone() {
            let v = id.index();
            let places: Vec<usize> =
                (0..operands[v].len()).filter(|i| is_in_part[operands[v][*i].index()]).collect();
            let outside: Vec<(usize, Vec<i64>)> = (0..operands[v].len())
                .filter(|i| !is_in_part[operands[v][*i].index()])
                .map(|i| {
                    Some((i, self.paid(other, operands[v][i], OutsideReader::Op(id, i), &part)?))
                })
                .collect::<Option<_>>()?;
            let sides = self.side_prices(other, id, &part);
            let factor = &part.factors[v];
            let mut kept = Factor { arity: places.len(), ..Factor::default() };
            for s in 0..factor.out.len() {
                let reads = factor.reads_of(s);
                let own = factor.cost[s].saturating_mul(ticks).min(FAR);
                let own = sides.as_ref().map_or(own, |sides| add(own, sides[s]));
                let cost = outside.iter().fold(own, |sum, (i, paid)| add(sum, paid[at(reads[*i])]));
                // The solved form does not read the value in this layout, so its maker is not paid
                // for it, and no bound is known.
                if own < FAR && outside.iter().any(|(i, paid)| paid[at(reads[*i])] <= -FAR) {
                    return None;
                }
                if cost < FAR {
                    kept.push(factor.out[s], places.iter().map(|i| reads[*i]), cost);
                }
            }
            kept_operands[v] = places.iter().map(|i| operands[v][*i]).collect();
            for (place, operand) in kept_operands[v].iter().enumerate() {
                uses[operand.index()].push(ValueUse::Operand(id, place));
            }
            part.factors[v] = Arc::new(kept);
        }
        // Each reader outside becomes a value that is a result of the part: it reads the value of
        // the part at the price that it pays.
        part.outputs.clear();
        let (mut given, mut not_had) = (0, Vec::new());
        let scalar = self.scalar();
        for (id, reader) in readers_outside(other, is_in_part) {
            let paid = self.paid(other, id, reader, &part)?;
            let useful = |price: &i64| price.abs() < FAR;
            let most = paid.iter().copied().filter(useful).max().unwrap_or(0);
            given = add(given, most);
            let mut takes = Factor { arity: 1, ..Factor::default() };
            for (node, price) in paid.iter().enumerate().filter(|(_, price)| useful(price)) {
                takes.push(0, [node as NodeId], most - price);
            }
            let taker = ValueId(part.factors.len() as u32);
            let nodes = (0..).zip(&paid).filter(|(_, price)| **price >= FAR);
            not_had.extend(nodes.map(|(node, _)| NotHad { value: id, reader: taker, node }));
            uses[id.index()].push(ValueUse::Operand(taker, 0));
            uses.push(vec![ValueUse::Output(part.outputs.len())]);
            part.outputs.push((taker, vec![0]));
            part.live.push(taker);
            part.graphs.push(Arc::clone(&scalar));
            part.factors.push(Arc::new(takes));
            kept_operands.push(vec![id]);
        }
        let mut states = part.states.as_ref().clone();
        states.resize_with(part.factors.len(), Default::default);
        part.states = Arc::new(states);
        part.operands = Arc::new(kept_operands);
        part.uses = Arc::new(uses);
        // The readers here are not those of the whole form, so that its groups do not apply.
        part.groups = Arc::new(vec![None; part.factors.len()]);
        Some(PartProblem { problem: part, given, not_had })
    }

    /// The price that a reader pays for a value of another form, at each layout of the graph of
    /// that form. The value or the reader is outside of the part. `None` where the solved form has
    /// no such reader of the value.
    fn paid(
        &self,
        other: &Classed<'_>,
        value: ValueId,
        reader: OutsideReader,
        part: &Factors,
    ) -> Option<Vec<i64>> {
        let graph = &part.graphs[value.index()];
        if other.is_constant(value) {
            return cost_of_constant(graph);
        }
        let here = *self.form.value.get(&other.class(value))?;
        let is_pin = match reader {
            OutsideReader::Op(id, _) => {
                matches!(other.kernels.program.value(id).def, Def::Pin { .. })
            }
            OutsideReader::Output(_) => false,
        };
        let reader = match reader {
            OutsideReader::Op(id, place) => {
                ValueUse::Operand(*self.form.value.get(&other.class(id))?, place)
            }
            OutsideReader::Output(i) => ValueUse::Output(i),
        };
        let problem = &self.whole.problem;
        if !problem.uses[here.index()].contains(&reader) {
            return None;
        }
        let paid = &self.whole.prices.paid[here.index()][use_index(problem, here, reader)];
        // Only ops of the same cluster, and pins, read an attention over a part of the keys before
        // it is merged. So an op that reads it here does not use it unmerged, even if the solved
        // form has no price for the unmerged layouts.
        let unknown = |layout: &Layout| {
            if layout.softmax_axes().is_empty() || is_pin { FAR } else { -FAR }
        };
        let price = |layout: &Layout| {
            let node = problem.graphs[here.index()].node(*layout);
            node.map_or(unknown(layout), |node| paid[at(node)])
        };
        Some(graph.layouts.iter().map(price).collect())
    }

    /// The side price of each strategy of a value; `None` where the value has no place in a part.
    fn side_prices(&self, other: &Classed<'_>, id: ValueId, part: &Factors) -> Option<Vec<i64>> {
        let here = *self.form.value.get(&other.class(id))?;
        let sides = &self.whole.prices.sides;
        if sides.of_value(here.index()).is_empty() {
            return None;
        }
        let price = |node: &NodeId| {
            part.layout(id, *node).map_or(FAR, |layout| sides.price_at(Seat::Value(here), layout))
        };
        Some(part.factors[id.index()].out.iter().map(price).collect())
    }

    /// The graph of a scalar.
    fn scalar(&self) -> Arc<Graph> {
        let key = GraphKey { dtype: Dtype::F32, ..GraphKey::nothing() };
        let mut times = RegroupTimes::new(self.setting.hardware, &self.form.kernels.program.mesh);
        Arc::new(Graph::new(&mut times, &key, AxisSet::EMPTY))
    }

    /// Divides the terms of each constant in the bound among its readers; returns `false` if a
    /// constant is not had at no cost.
    fn divide_constants(&mut self) -> bool {
        let Whole { problem, prices } = self.whole.as_ref();
        for id in problem.live.iter().copied().filter(|id| self.form.is_constant(*id)) {
            let v = id.index();
            let Some(cost) = cost_of_constant(&problem.graphs[v]) else { return false };
            let mut sum = 0;
            for (reader, paid) in problem.uses[v].iter().zip(&prices.paid[v]) {
                let earned = |(cost, paid): (&i64, &i64)| {
                    if paid.abs() >= FAR || *cost >= FAR { FAR } else { cost - paid }
                };
                let least = least_of(cost.iter().zip(paid).map(earned));
                sum = add(sum, least);
                if let ValueUse::Operand(reader, _) = reader {
                    let known = self.of_constants.entry((id, *reader)).or_default();
                    *known = add(*known, least);
                }
            }
            self.loss = add(self.loss, add(prices.terms_of(id), -sum));
        }
        true
    }
}

/// A part of a form, with prices and the bound that they show, in ticks.
struct PricedPart {
    part: PartProblem,
    prices: Prices,
    bound: i64,
}

/// The prices within a part of a form.
pub(crate) struct PartPrices {
    problem: Factors,
    prices: Prices,
    /// For each value of the form, whether it is in the part.
    is_in_part: Vec<bool>,
}

impl PartPrices {
    /// The price that a reader in the part, by its operand at `place`, pays for a value of the part
    /// in a layout; [`FAR`] where the value cannot be had so.
    pub(crate) fn paid(
        &self,
        program: &Program,
        value: ValueId,
        by: ValueId,
        place: usize,
        layout: Layout,
    ) -> i64 {
        // The problem of the part leaves out the operands from outside, so places count those
        // inside alone.
        let operands = program.value(by).def.operands();
        let place =
            operands[..place].iter().filter(|operand| self.is_in_part[operand.index()]).count();
        let paid = &self.prices.paid[value.index()]
            [use_index(&self.problem, value, ValueUse::Operand(by, place))];
        self.problem.graphs[value.index()].node(layout).map_or(FAR, |node| paid[at(node)])
    }
}

/// A part of a form as a problem of its own.
struct PartProblem {
    problem: Factors,
    /// What has to be taken off the bound of this problem: the most that each reader outside pays,
    /// summed. It is added to their costs so that no time is negative.
    given: i64,
    /// What the readers outside do not count on.
    not_had: Vec<NotHad>,
}

/// A value of a part, a reader of it outside, and a node at which the solved form cannot have the
/// value.
struct NotHad {
    value: ValueId,
    reader: ValueId,
    node: NodeId,
}

/// A reader outside of a part: an op, by the place of its operand, or a result.
#[derive(Clone, Copy)]
enum OutsideReader {
    Op(ValueId, usize),
    Output(usize),
}

/// The readers outside of a part, each with the value that it reads of the part.
fn readers_outside(other: &Classed<'_>, is_in_part: &[bool]) -> Vec<(ValueId, OutsideReader)> {
    let program = other.kernels.program.as_ref();
    let mut readers = Vec::new();
    for id in
        program.value_ids().filter(|id| !is_in_part[id.index()] && other.kernels.live[id.index()])
    {
        let operands = program.value(id).def.operands().iter().enumerate();
        let read = operands.filter(|(_, operand)| is_in_part[operand.index()]);
        readers.extend(read.map(|(place, operand)| (*operand, OutsideReader::Op(id, place))));
    }
    let outputs =
        program.outputs.iter().enumerate().filter(|(_, output)| is_in_part[output.value.index()]);
    readers.extend(
        outputs.filter_map(|(i, output)| {
            Some((output.value, OutsideReader::Output(other.output(i)?)))
        }),
    );
    readers
}

/// The cost of having a constant in each layout; `None` where one of the layouts takes time.
fn cost_of_constant(graph: &Graph) -> Option<Vec<i64>> {
    let mut cost = vec![FAR; graph.nodes()];
    cost[at(graph.node(Layout::REPLICATED)?)] = 0;
    graph.spread_forward(&mut cost, &mut Queue::default());
    cost.truncate(graph.layouts.len());
    cost.iter().all(|cost| *cost == 0 || *cost >= FAR).then_some(cost)
}
