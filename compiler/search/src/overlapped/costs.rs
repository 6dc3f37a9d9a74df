//! The time of each strategy, told apart by what it keeps busy.

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

/// For each value and strategy, times in picoseconds, all executions of the value's step counted.
#[derive(Clone)]
pub(super) struct Costs {
    /// At least the time from its start until it is done.
    pub(super) whole: Vec<Vec<i64>>,
    /// The time for which it keeps the cores busy, or the link to the host if it is a fetch.
    pub(super) computing: Vec<Vec<i64>>,
    /// The time for which it keeps links busy: that of the collectives in its loop or its pieces.
    pub(super) sending: Vec<Vec<i64>>,
    /// For each value, how often its step is executed.
    times: Vec<i64>,
}

/// Some of the plans of a form: the strategies that they are made of, and the times of these.
#[derive(Clone)]
pub(super) struct TimedProblem {
    pub(super) problem: Factors,
    pub(super) costs: Costs,
}

impl TimedProblem {
    /// The plans with only those strategies for which `keep` says yes, given the value and the
    /// strategy.
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
    /// The times of a problem; `known` has the graphs of its values, which need not be made again.
    ///
    /// # Errors
    ///
    /// When time is up, or the limit of strategies is reached.
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
                let extent = Extent { has_factor: kernels.live.clone(), shared: &mut shared };
                let weighted = Setting { hardware: &chip, strict: false, ..setting };
                Factors::of_part(kernels, weighted, extent)
            };
            // Where moves or ops take no time, strategies that tie may be left out. The strategies
            // then do not match those of the problem, and 0 is taken, which is a lower bound.
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

    /// The times of only those strategies for which `keep` says yes, given the value and the
    /// strategy.
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

    /// The time of a strategy in one execution of its step.
    pub(super) fn once(&self, id: ValueId, strategy: usize) -> i64 {
        match self.whole[id.index()][strategy] {
            cost if cost >= FAR => FAR,
            cost => cost / self.times[id.index()],
        }
    }

    /// Corrects the times of a composite in pieces, whose pieces are kernels and collectives that
    /// may be done beside each other.
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
