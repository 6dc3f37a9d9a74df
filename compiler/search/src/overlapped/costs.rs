//! What each strategy of each value takes, told apart by what it keeps busy.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, Weights};
use shard_ir::composite::composite_dim;
use shard_ir::{Def, ValueId};

use crate::LowerError;
use crate::in_pieces::InPieces;
use crate::kernel::Kernels;
use crate::relax::Setting;
use crate::relax::factors::{Extent, Factor, Factors, SharedFactors};
use crate::relax::graph::{FAR, NodeId};

/// For each value and strategy, in picoseconds and as often as the value's step is taken.
#[derive(Clone)]
pub(super) struct Costs {
    /// From its start until it is done, at least.
    pub(super) whole: Vec<Vec<i64>>,
    /// How long it keeps the cores busy (or the link to the host, if it is a fetch).
    pub(super) computing: Vec<Vec<i64>>,
    /// How long it keeps links busy: the collectives of its loop or of its pieces.
    pub(super) sending: Vec<Vec<i64>>,
    /// How often the step of each value is taken.
    times: Vec<i64>,
}

/// Some of the plans of a form: the strategies that they are made of, and what these keep busy.
#[derive(Clone)]
pub(super) struct TimedProblem {
    pub(super) problem: Factors,
    pub(super) costs: Costs,
}

impl TimedProblem {
    /// The strategies for which `keep` says yes, given the value and the strategy.
    pub(super) fn keeping(&self, keep: &dyn Fn(usize, usize) -> bool) -> TimedProblem {
        let mut problem = self.problem.clone();
        for id in &self.problem.live {
            let v = id.index();
            let factor = &self.problem.factors[v];
            if !(0..factor.out.len()).all(|s| keep(v, s)) {
                problem.factors[v] = Arc::new(factor.keeping(&|s| keep(v, s)));
            }
        }
        TimedProblem { problem, costs: self.costs.keeping(keep) }
    }
}

impl Costs {
    /// Those of a problem, and what it has in common with other forms: moves are not looked at.
    pub(super) fn of(
        kernels: &Kernels,
        setting: Setting<'_>,
        problem: &Factors,
        known: &SharedFactors,
    ) -> Result<Costs, LowerError> {
        let program = kernels.program.as_ref();
        let times = |v: &shard_ir::Value| i64::try_from(v.times.max(1)).unwrap_or(i64::MAX);
        let whole: Vec<Vec<i64>> = problem.factors.iter().map(|f| f.cost.clone()).collect();
        let mut costs = Costs {
            computing: whole.clone(),
            sending: whole.iter().map(|costs| vec![0; costs.len()]).collect(),
            whole,
            times: program.values.iter().map(times).collect(),
        };
        if kernels.loops {
            let weighted = |ops: u32, moves: u32| {
                let chip = setting.hardware.weighted(Weights { ops, moves });
                let mut shared = known.graphs_alone();
                let extent = Extent { of: kernels.live.clone(), shared: &mut shared };
                let weighted = Setting { hardware: &chip, strict: false, ..setting };
                Factors::of_part(kernels, weighted, extent)
            };
            // Strategies that tie at other weights may be left out there: of such an op nothing is
            // counted, which is no more than what it takes.
            let of = |made: Factors| {
                let factors = problem.factors.iter().zip(&made.factors);
                let cost = |(asked, made): (&Arc<Factor>, &Arc<Factor>)| {
                    let alike = asked.out == made.out && asked.reads == made.reads;
                    if alike { made.cost.clone() } else { vec![0; asked.cost.len()] }
                };
                factors.map(cost).collect()
            };
            (costs.computing, costs.sending) = (of(weighted(1, 0)?), of(weighted(0, 1)?));
        }
        for id in &problem.live {
            costs.tell_pieces_apart(kernels, setting.hardware, problem, *id);
        }
        Ok(costs)
    }

    /// Those of the strategies for which `keep` says yes, given the value and the strategy.
    pub(super) fn keeping(&self, keep: &dyn Fn(usize, usize) -> bool) -> Costs {
        let kept = |all: &[Vec<i64>]| {
            let of = |(v, costs): (usize, &Vec<i64>)| {
                let costs = costs.iter().enumerate().filter(|(s, _)| keep(v, *s));
                costs.map(|(_, cost)| *cost).collect()
            };
            all.iter().enumerate().map(of).collect()
        };
        Costs {
            whole: kept(&self.whole),
            computing: kept(&self.computing),
            sending: kept(&self.sending),
            times: self.times.clone(),
        }
    }

    /// What a strategy takes where its step is taken once.
    pub(super) fn once(&self, id: ValueId, strategy: usize) -> i64 {
        match self.whole[id.index()][strategy] {
            cost if cost >= FAR => FAR,
            cost => cost / self.times[id.index()],
        }
    }

    /// The pieces of a composite that it takes over a split dim are kernels and collectives.
    fn tell_pieces_apart(
        &mut self,
        kernels: &Kernels,
        hardware: &Hardware,
        problem: &Factors,
        id: ValueId,
    ) {
        let Def::Op { op, operands } = &kernels.program.value(id).def else { return };
        let (Some(_), Some(read)) = (composite_dim(op), operands.first()) else { return };
        let pieces = |node: NodeId| {
            let layout = problem.layout(*read, node)?;
            let pieces = InPieces::new(kernels, hardware, id, layout)?;
            let beside = i64::try_from(pieces.beside_each_other(hardware)).ok()?;
            Some((beside, i64::try_from(pieces.sending()).ok()?))
        };
        let (factor, times) = (&problem.factors[id.index()], self.times[id.index()]);
        let mut known: FxHashMap<NodeId, (i64, i64)> = FxHashMap::default();
        for s in 0..factor.out.len() {
            let node = factor.reads_of(s)[0];
            let (beside, sent) =
                *known.entry(node).or_insert_with(|| pieces(node).unwrap_or((0, 0)));
            let less = |cost: &mut i64, by: i64| *cost = (*cost - by.saturating_mul(times)).max(0);
            less(&mut self.whole[id.index()][s], beside);
            if !kernels.loops {
                less(&mut self.computing[id.index()][s], sent);
                self.sending[id.index()][s] = sent.saturating_mul(times);
            }
        }
    }
}
