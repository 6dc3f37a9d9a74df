//! One bound for all forms of a program whose choices are made apart from each other.
//!
//! A form is solved, and its prices are kept. What a cluster of it costs at those prices is a part
//! of the bound; a cluster of another form, put in its place, costs what a relaxation of the
//! cluster alone says, where what it reads and what is read of it is paid for at the same prices.
//! The least over the alternatives of each cluster, added to all the rest, bounds every form there
//! is: a form is the rest and one alternative of each cluster, and the prices between cancel.
//!
//! Numbers (`Def::Constant`) are in no cluster, though any may read them: they lie on every device,
//! so that each reader has them for nothing, and is told apart from the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use egg::Id;
use rustc_hash::FxHashMap;
use shard_cost::RegroupTimes;
use shard_ir::{AxisSet, Def, Dtype, Layout, Program, ValueId};

use super::factors::{Extent, Factor, Factors, SharedFactors, ValueUse};
use super::graph::{Alike, FAR, Graph, NodeId, Queue};
use super::parts::Seat;
use super::prices::{Prices, use_index};
use super::serving::{add, at};
use super::{Branch, Setting, Sweeps, Whole, settle};
use crate::LowerError;
use crate::kernel::Kernels;

/// A form with the class of each of its values.
pub(crate) struct Classed<'k> {
    kernels: &'k Kernels,
    classes: &'k [Id],
    /// The value of a class.
    value: FxHashMap<Id, ValueId>,
    /// Of a part of a form, which of its results those of the part are; the others are none.
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

    /// The same for a part of a form, given which of the form's results its own are.
    pub(crate) fn with_outputs(self, outputs: &'k [usize]) -> Classed<'k> {
        Classed { outputs: Some(outputs), ..self }
    }

    /// Which result of the form it is.
    fn output(&self, i: usize) -> Option<usize> {
        self.outputs.map_or(Some(i), |outputs| outputs.get(i).copied())
    }

    fn class(&self, id: ValueId) -> Id {
        self.classes[id.index()]
    }

    fn is_number(&self, id: ValueId) -> bool {
        matches!(self.kernels.program.value(id).def, Def::Constant(_))
    }
}

/// A solved form, in which clusters may be replaced.
pub(crate) struct Apart<'k, 'h> {
    form: Classed<'k>,
    whole: Arc<Whole>,
    setting: Setting<'h>,
    shared: SharedFactors,
    /// What the bound is less than that of the form, since numbers are told apart by their readers.
    loss: i64,
    /// What each reader of a number adds to the bound.
    of_numbers: FxHashMap<(ValueId, ValueId), i64>,
}

impl<'k, 'h> Apart<'k, 'h> {
    /// Of a form with all its plans: nothing may have been dropped. `None` where a number costs
    /// something.
    pub(crate) fn new(
        form: Classed<'k>,
        branch: &Branch,
        setting: Setting<'h>,
    ) -> Option<Apart<'k, 'h>> {
        let whole = Arc::clone(&branch.whole);
        let shared = SharedFactors::new(whole.problem.ticks);
        let mut apart =
            Apart { form, whole, setting, shared, loss: 0, of_numbers: FxHashMap::default() };
        apart.tell_numbers_apart().then_some(apart)
    }

    /// Of a form at some prices, whatever these say of numbers.
    pub(crate) fn at_prices(
        form: Classed<'k>,
        problem: Factors,
        prices: Prices,
        setting: Setting<'h>,
    ) -> Apart<'k, 'h> {
        let shared = SharedFactors::new(problem.ticks);
        let whole = Arc::new(Whole { problem, prices });
        Apart { form, whole, setting, shared, loss: 0, of_numbers: FxHashMap::default() }
    }

    /// No plan of the form takes less, in ticks, at the prices that there are.
    pub(crate) fn bound(&self) -> i64 {
        add(self.whole.prices.bound(), -self.loss)
    }

    /// Ticks as picoseconds, rounded up: a bound on times that are whole picoseconds.
    pub(crate) fn picoseconds(&self, ticks: i64) -> Option<u64> {
        self.whole.problem.picoseconds(ticks)
    }

    /// A difference of bounds in picoseconds, rounded down.
    pub(crate) fn whole_picoseconds(&self, ticks: i64) -> u64 {
        u64::try_from(ticks / self.whole.problem.ticks).unwrap_or(0)
    }

    /// What a cluster of the form itself adds to [`Apart::bound`].
    pub(crate) fn own(&self, cluster: &BTreeSet<Id>) -> i64 {
        let problem = &self.whole.problem;
        let inside = |id: &&ValueId| cluster.contains(&self.form.class(**id));
        let values = problem
            .live
            .iter()
            .filter(inside)
            .fold(0, |sum, id| add(sum, self.whole.prices.terms_of(*id)));
        let numbers = self
            .of_numbers
            .iter()
            .filter(|((_, reader), _)| cluster.contains(&self.form.class(*reader)));
        numbers.fold(values, |sum, (_, term)| add(sum, *term))
    }

    /// What a cluster of another form, which is the same outside of it, adds at least; [`FAR`]
    /// where it has no plan, `None` where it reads what has no price.
    pub(crate) fn least(
        &mut self,
        cluster: &BTreeSet<Id>,
        other: &Classed<'_>,
    ) -> Result<Option<i64>, LowerError> {
        let kernels = other.kernels;
        let inside = |id: ValueId| cluster.contains(&other.class(id)) && kernels.live[id.index()];
        let of: Vec<bool> = kernels.program.value_ids().map(inside).collect();
        let Some(PricedPart { problem, prices, bound, given, not_had }) =
            self.settled(&of, other)?
        else {
            return Ok(None);
        };
        // What the form cannot have in some layout its readers outside do not count on: no other
        // form may have it there.
        let had = |(value, taker, node): &(ValueId, ValueId, NodeId)| {
            prices.paid[value.index()][use_index(&problem, *value, ValueUse::Operand(*taker, 0))]
                [at(*node)]
                < FAR
        };
        Ok((!not_had.iter().any(had)).then(|| add(bound, -given)))
    }

    /// Prices within a part of another form, which is the same outside of it; `None` where it reads
    /// what has no price.
    pub(crate) fn prices_within(
        &mut self,
        of: &[bool],
        other: &Classed<'_>,
    ) -> Result<Option<PartPrices>, LowerError> {
        let settled = self.settled(of, other)?;
        Ok(settled.map(|PricedPart { problem, prices, .. }| PartPrices {
            problem,
            prices,
            of: of.to_vec(),
        }))
    }

    /// What a result pays in the solved form for the value of another form that it is, at a layout.
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

    /// Prices the values of a part of another form.
    fn settled(
        &mut self,
        of: &[bool],
        other: &Classed<'_>,
    ) -> Result<Option<PricedPart>, LowerError> {
        let kernels = other.kernels;
        let part = Extent { of: of.to_vec(), shared: &mut self.shared };
        let part = Factors::of_part(kernels, self.setting, part)?;
        let Some(PartProblem { mut problem, given, not_had }) = self.priced_around(part, of, other)
        else {
            return Ok(None);
        };
        let mut prices = Prices::new(&problem);
        let (sweeps, mut no_plan) =
            (Sweeps { fresh: true, shrink: false, near: false, rough: None }, FAR);
        let (bound, _) =
            settle(&mut problem, &mut prices, self.setting.limits, sweeps, &mut no_plan);
        Ok(Some(PricedPart { problem, prices, bound, given, not_had }))
    }

    /// The factors of a part, with prices for what it reads and for what is read of it from
    /// outside; `None` where it reads something that has no price there.
    fn priced_around(
        &self,
        mut part: Factors,
        of: &[bool],
        other: &Classed<'_>,
    ) -> Option<PartProblem> {
        let ticks = self.whole.problem.ticks;
        let operands = part.operands.as_ref().clone();
        let mut kept_operands = operands.clone();
        let mut uses: Vec<Vec<ValueUse>> = vec![Vec::new(); operands.len()];
        for id in part.live.clone() {
            let v = id.index();
            let places: Vec<usize> =
                (0..operands[v].len()).filter(|i| of[operands[v][*i].index()]).collect();
            let outside: Vec<(usize, Vec<i64>)> = (0..operands[v].len())
                .filter(|i| !of[operands[v][*i].index()])
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
                // The form has no use for the value there: its maker does not count on being asked
                // for it.
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
        // Each reader outside is a value of its own that a result wants: it takes the value as its
        // price says.
        part.outputs.clear();
        let (mut given, mut not_had) = (0, Vec::new());
        let scalar = self.scalar();
        for (id, reader) in readers_outside(other, of) {
            let paid = self.paid(other, id, reader, &part)?;
            let useful = |price: &i64| price.abs() < FAR;
            let most = paid.iter().copied().filter(useful).max().unwrap_or(0);
            given = add(given, most);
            let mut takes = Factor { arity: 1, ..Factor::default() };
            for (node, price) in paid.iter().enumerate().filter(|(_, price)| useful(price)) {
                takes.push(0, [node as NodeId], most - price);
            }
            let taker = ValueId(part.factors.len() as u32);
            let is_far = |(_, price): &(usize, &i64)| **price >= FAR;
            not_had.extend(
                paid.iter().enumerate().filter(is_far).map(|(node, _)| (id, taker, node as NodeId)),
            );
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
        // Readers here are others than those of the whole form.
        part.alike = Arc::new(vec![None; part.factors.len()]);
        Some(PartProblem { problem: part, given, not_had })
    }

    /// What is paid for a value of another form by a reader, at each layout of its graph there.
    /// Either is outside of the cluster, so that the form itself has both.
    fn paid(
        &self,
        other: &Classed<'_>,
        value: ValueId,
        reader: OutsideReader,
        part: &Factors,
    ) -> Option<Vec<i64>> {
        let graph = &part.graphs[value.index()];
        if other.is_number(value) {
            return cost_of_number(graph);
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
        // An attention over a part of the keys is merged before what reads it here, if that is no
        // pin: what may act on it unmerged is in its cluster. A form where it is no such thing
        // misses nothing.
        let unknown = |layout: &Layout| {
            if layout.softmax_axes().is_empty() || is_pin { FAR } else { -FAR }
        };
        let price = |layout: &Layout| {
            let node = problem.graphs[here.index()].node(*layout);
            node.map_or(unknown(layout), |node| paid[at(node)])
        };
        Some(graph.layouts.iter().map(price).collect())
    }

    /// What each strategy of a value pays to what reaches across the program; `None` where nothing
    /// does.
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

    /// The graph of a number.
    fn scalar(&self) -> Arc<Graph> {
        let alike = Alike { dtype: Dtype::F32, ..Alike::nothing() };
        let mut times = RegroupTimes::new(self.setting.hardware, &self.form.kernels.program.mesh);
        Arc::new(Graph::new(&mut times, &alike, AxisSet::EMPTY))
    }

    /// Divides what the bound has of each number among its readers; `false` where a number is not
    /// to be had for nothing.
    fn tell_numbers_apart(&mut self) -> bool {
        let Whole { problem, prices } = self.whole.as_ref();
        for id in problem.live.iter().copied().filter(|id| self.form.is_number(*id)) {
            let v = id.index();
            let Some(cost) = cost_of_number(&problem.graphs[v]) else { return false };
            let mut sum = 0;
            for (reader, paid) in problem.uses[v].iter().zip(&prices.paid[v]) {
                let earned = |(cost, paid): (&i64, &i64)| {
                    if paid.abs() >= FAR || *cost >= FAR { FAR } else { cost - paid }
                };
                let least = cost.iter().zip(paid).map(earned).min().unwrap_or(FAR);
                sum = add(sum, least);
                if let ValueUse::Operand(reader, _) = reader {
                    let known = self.of_numbers.entry((id, *reader)).or_default();
                    *known = add(*known, least);
                }
            }
            self.loss = add(self.loss, add(prices.terms_of(id), -sum));
        }
        true
    }
}

/// A part of a form, priced.
struct PricedPart {
    problem: Factors,
    prices: Prices,
    bound: i64,
    given: i64,
    not_had: Vec<(ValueId, ValueId, NodeId)>,
}

/// Prices within a part of a form.
pub(crate) struct PartPrices {
    problem: Factors,
    prices: Prices,
    of: Vec<bool>,
}

impl PartPrices {
    /// What a reader in the part pays for a value in it, at a layout; [`FAR`] where it cannot be
    /// had so.
    pub(crate) fn paid(
        &self,
        program: &Program,
        value: ValueId,
        by: ValueId,
        place: usize,
        layout: Layout,
    ) -> i64 {
        // Operands from outside are none of the part's.
        let operands = program.value(by).def.operands();
        let place = operands[..place].iter().filter(|operand| self.of[operand.index()]).count();
        let paid = &self.prices.paid[value.index()]
            [use_index(&self.problem, value, ValueUse::Operand(by, place))];
        self.problem.graphs[value.index()].node(layout).map_or(FAR, |node| paid[at(node)])
    }
}

/// A part of a form as a problem of its own.
struct PartProblem {
    problem: Factors,
    /// By how much the prices of those who read it from outside are too high all together, so that
    /// no time is negative.
    given: i64,
    /// What is not counted on: a value, one who takes it, and a layout in which the solved form
    /// does not have it.
    not_had: Vec<(ValueId, ValueId, NodeId)>,
}

/// Who reads a value of a part from outside.
#[derive(Clone, Copy)]
enum OutsideReader {
    Op(ValueId, usize),
    Output(usize),
}

/// The readers outside of a part, with what they read of it.
fn readers_outside(other: &Classed<'_>, of: &[bool]) -> Vec<(ValueId, OutsideReader)> {
    let program = other.kernels.program.as_ref();
    let mut readers = Vec::new();
    for id in program.value_ids().filter(|id| !of[id.index()] && other.kernels.live[id.index()]) {
        let operands = program.value(id).def.operands().iter().enumerate();
        let read = operands.filter(|(_, operand)| of[operand.index()]);
        readers.extend(read.map(|(place, operand)| (*operand, OutsideReader::Op(id, place))));
    }
    let outputs = program.outputs.iter().enumerate().filter(|(_, output)| of[output.value.index()]);
    readers.extend(
        outputs.filter_map(|(i, output)| {
            Some((output.value, OutsideReader::Output(other.output(i)?)))
        }),
    );
    readers
}

/// What a number costs at each of its layouts; `None` where that is something.
fn cost_of_number(graph: &Graph) -> Option<Vec<i64>> {
    let mut cost = vec![FAR; graph.nodes()];
    cost[at(graph.node(Layout::REPLICATED)?)] = 0;
    graph.spread_forward(&mut cost, &mut Queue::default());
    cost.truncate(graph.layouts.len());
    cost.iter().all(|cost| *cost == 0 || *cost >= FAR).then_some(cost)
}
