//! Program in, plan out: every order of multiplication and every layout of the labels bounded, the promising ones searched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use shard_cost::{Hardware, collective_cost};
use shard_ir::{InstrId, InstrKind, Layout, Liveness, MeshShape, Picoseconds, Plan, Program, ValueId};

use crate::emit::{Emitted, MoveSite, emit};
use crate::kernel::Kernels;
use crate::labels::assignments;
use crate::logical::orders;
use crate::relax::{Priced, Region, Relaxation};
use crate::search::{Found, Search, Solution};
use crate::space::{Space, maxima};
use crate::table::Tables;
use crate::{Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, Stats, Status};

/// What a lowered program remembers, for questions about it: the program whose plan it is (one order of multiplication),
/// the layouts of its labels, and what its moves are moves of.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) kernels: Arc<Kernels>,
    pub(crate) labels: Vec<Layout>,
    pub(crate) moves: Vec<MoveSite>,
}

pub(crate) fn lower(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let strict = options.strict || program.strict;
    let lowering = |strict| Lowering {
        hardware,
        limits: &options.limits,
        strict,
        whole_space: options.whole_space,
        best: Best::default(),
    };
    match lowering(strict).run(program) {
        Err(LowerError::Unreachable { .. }) if strict => {
            let plan = lowering(false).run(program)?.plan;
            Err(LowerError::Strict { inserted: inserted_moves(&plan), plan: Box::new(plan) })
        }
        other => other,
    }
}

/// Whether the values of a program have few enough layouts for a search.
pub(crate) fn within_limits(program: &Program, limits: &Limits) -> Result<(), LowerError> {
    let (sums, maxima) = (program.mesh.all_axes(), maxima(program));
    let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    let mut all = 0usize;
    for value in &program.values {
        let sizes = program.sizes(&value.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let count = match known.get(&sizes) {
            Some(count) => *count,
            None => shape.layouts_within(sums, maxima, limits.layouts).map_or(usize::MAX, |l| l.len()),
        };
        known.insert(sizes, count);
        all = all.saturating_add(count);
        if all > limits.layouts {
            return Err(LowerError::Limit { limit: "layouts", count: limits.layouts });
        }
    }
    Ok(())
}

/// The moves of a plan that no `reshard` asks for.
fn inserted_moves(plan: &Plan) -> Vec<InstrId> {
    let inserted = |id: &InstrId| {
        let instr = plan.instruction(*id);
        matches!(instr.kind, InstrKind::Move(_)) && !instr.origin.written
    };
    plan.ids().filter(inserted).collect()
}

/// What plans are compared by: time, elements touched, bytes live at the peak, steps, the bytes of each move from the
/// largest down, and the order in the text.
type Rank = (u64, u64, u64, u64, Vec<u64>, u64);

pub(crate) struct Lowering<'a> {
    hardware: &'a Hardware,
    limits: &'a Limits,
    strict: bool,
    whole_space: bool,
    best: Best,
}

/// The best plan so far, and what is known of it.
#[derive(Default)]
struct Best {
    plan: Option<(Rank, Emitted)>,
    /// The program and the labels of that plan.
    of: Option<(Arc<Kernels>, Vec<Layout>)>,
    /// Why a case had no plan.
    failure: Option<LowerError>,
    /// What the prices alone say that any plan takes.
    root_bound: Option<u64>,
    /// What an unfinished search says that any plan takes.
    open_bound: Option<u64>,
    stopped_by: Option<&'static str>,
    ties_cut: bool,
    stats: Stats,
}

impl Lowering<'_> {
    /// The best plan of one case that prices have been put on; `None` where it has none.
    pub(crate) fn of_priced(
        hardware: &Hardware,
        limits: &Limits,
        kernels: &Arc<Kernels>,
        labels: &[Layout],
        priced: &Priced,
    ) -> Result<Option<Lowered>, LowerError> {
        let Some(bound) = priced.bound else { return Ok(None) };
        let best = Best { root_bound: Some(bound), ..Best::default() };
        let mut lowering = Lowering { hardware, limits, strict: false, whole_space: false, best };
        lowering.widen(kernels, labels, priced, bound)?;
        match lowering.lowered() {
            Err(LowerError::Unreachable { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    fn run(mut self, program: &Program) -> Result<Lowered, LowerError> {
        let orders = orders(program, self.limits);
        self.best.stopped_by = orders.cut.then_some("orders of multiplication");
        let mut kernels = Vec::new();
        for variant in orders.programs {
            within_limits(&variant, self.limits)?;
            let labels = assignments(&variant, self.limits.label_layouts)?;
            kernels.push((Arc::new(Kernels::new(Arc::new(variant))), labels));
        }
        if self.whole_space {
            for (kernels, _) in &kernels {
                self.search(kernels, None, None)?;
            }
            return self.lowered();
        }
        let mut relaxed = Vec::new();
        let mut cases = Vec::new();
        for (order, (kernels, labels)) in kernels.iter().enumerate() {
            let maxima = maxima(&kernels.program);
            let relaxation = Relaxation::new(kernels, self.hardware, maxima, labels, self.strict, self.limits)?;
            cases.extend((0..labels.len()).filter_map(|i| Some((relaxation.first_bound(i)?, order, i))));
            relaxed.push(relaxation);
        }
        // The most promising first, each with a bound of its own once its turn has come.
        let mut open: BinaryHeap<Reverse<(u64, bool, usize, usize)>> =
            cases.into_iter().map(|(bound, order, i)| Reverse((bound, true, order, i))).collect();
        let mut priced: BTreeMap<(usize, usize), Priced> = BTreeMap::new();
        while let Some(Reverse((bound, first, order, i))) = open.pop() {
            if self.best.plan.as_ref().is_some_and(|(rank, _)| rank.0 < bound) {
                break;
            }
            let ((kernels, labels), relaxation) = (&kernels[order], &relaxed[order]);
            if first {
                let case = relaxation.under(&labels[i]);
                if let Some(own) = case.bound {
                    open.push(Reverse((own.max(bound), false, order, i)));
                    priced.insert((order, i), case);
                }
            } else if let Some(case) = priced.remove(&(order, i)) {
                self.best.root_bound.get_or_insert(bound);
                self.widen(kernels, &labels[i], &case, bound)?;
            }
        }
        self.lowered()
    }

    /// Searches the region that can hold a plan as cheap as the bound, and wider ones until the best plan is surely inside.
    fn widen(
        &mut self,
        kernels: &Arc<Kernels>,
        labels: &[Layout],
        relaxed: &Priced,
        bound: u64,
    ) -> Result<(), LowerError> {
        let mut most = bound;
        let mut slack = (bound >> 12).max(1);
        loop {
            match self.search(kernels, Some(relaxed.region(most)), Some(labels))? {
                // Every plan that takes no longer was in the region: this one is the best.
                Some(time) if time <= most => return Ok(()),
                Some(time) => most = time,
                None if most == u64::MAX => return Ok(()),
                None => {
                    most = most.saturating_add(slack);
                    slack = slack.saturating_mul(8);
                }
            }
        }
    }

    /// Searches a region, or the whole space. Returns the time of the best plan in it.
    fn search(
        &mut self,
        kernels: &Arc<Kernels>,
        region: Option<Region>,
        labels: Option<&[Layout]>,
    ) -> Result<Option<u64>, LowerError> {
        let space = Space::saturate(Arc::clone(kernels), region, self.limits)?;
        let tables = Tables::new(&space, self.hardware)?;
        let best = &mut self.best;
        best.stats.classes += space.graph.number_of_classes();
        best.stats.nodes += space.graph.total_number_of_nodes();
        let found = match Search::new(&space, &tables, &kernels.program, labels, self.strict).run(self.limits) {
            Ok(found) => found,
            Err(unreachable @ LowerError::Unreachable { .. }) => {
                best.failure = Some(unreachable);
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        best.stats.expansions += found.stats.expansions;
        if labels.is_none() {
            best.root_bound = Some(best.root_bound.map_or(found.root_bound.0, |b| b.min(found.root_bound.0)));
        }
        if found.stopped_by.is_some() {
            best.stopped_by = best.stopped_by.or(found.stopped_by);
            best.open_bound = Some(best.open_bound.map_or(found.lower_bound.0, |b| b.min(found.lower_bound.0)));
        }
        best.ties_cut |= found.ties_cut;
        let (rank, plan) = best_tie(kernels, &tables, &found, self.hardware)?;
        let time = rank.0;
        if best.plan.as_ref().is_none_or(|(known, _)| rank < *known) {
            best.plan = Some((rank, plan));
            best.of = Some((Arc::clone(kernels), labels.map(<[Layout]>::to_vec).unwrap_or_default()));
        }
        Ok(Some(time))
    }

    fn lowered(self) -> Result<Lowered, LowerError> {
        let best = self.best;
        let (Some((rank, emitted)), Some((kernels, labels))) = (best.plan, best.of) else {
            return Err(best.failure.unwrap_or(LowerError::Unreachable { value: ValueId(0), output: None }));
        };
        let cost = rank.0;
        let root = best.root_bound.unwrap_or(0);
        if root > cost {
            return Err(LowerError::Internal(format!("a plan of {cost} ps is below the bound of {root} ps")));
        }
        let proof = match best.stopped_by {
            _ if root == cost && best.stopped_by != Some("orders of multiplication") => Some(Proof::Certificate),
            Some(_) => None,
            None => Some(Proof::Search),
        };
        let lower_bound = best.open_bound.map_or(root, |open| open.min(cost).max(root));
        let optimality = Optimality {
            status: if proof.is_some() { Status::Proven } else { Status::Bounded },
            lower_bound: Picoseconds(if proof == Some(Proof::Search) { root } else { lower_bound }),
            stopped_by: best.stopped_by.filter(|_| proof.is_none()).map(str::to_owned),
            proof,
            cost: Picoseconds(cost),
            ties_cut: best.ties_cut,
        };
        let memory = Memory { kernels, labels, moves: emitted.moves };
        Ok(Lowered { plan: emitted.plan, optimality, stats: best.stats, memory })
    }
}

/// Of the plans that tie in time and elements touched, the one that the tie rule prefers.
fn best_tie(
    kernels: &Kernels,
    tables: &Tables,
    found: &Found,
    hardware: &Hardware,
) -> Result<(Rank, Emitted), LowerError> {
    let mut best: Option<(Rank, Emitted)> = None;
    for solution in &found.solutions {
        let plan = emit(kernels, tables, solution)?;
        let rank = rank(solution, &plan.plan, hardware);
        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, plan));
        }
    }
    best.ok_or_else(|| LowerError::Internal("the search found nothing and said nothing".into()))
}

fn rank(solution: &Solution, plan: &Plan, hardware: &Hardware) -> Rank {
    let cost = solution.cost;
    let mut moves: Vec<u64> = plan
        .instructions
        .iter()
        .filter_map(|instr| {
            let InstrKind::Move(collective) = &instr.kind else { return None };
            let from = plan.instruction(*instr.operands.first()?).layout;
            let sizes = plan.sizes(&instr.dims);
            Some(collective_cost(hardware, &plan.mesh, collective, from, &sizes, instr.dtype).wire_bytes.0)
        })
        .collect();
    moves.sort_unstable_by(|a, b| b.cmp(a));
    (cost.time, cost.elements, Liveness::of(plan).peak_bytes(), cost.steps, moves, cost.order)
}
