//! A plan as other systems execute it for `shardc run`: a module of one layer, and the script that
//! feeds it.

use std::collections::BTreeMap;

use shard_ir::attention::local_statistics;
use shard_ir::{AxisList, Collective, DimSet, InstrId, Layout, MeshShape, Plan, Reduction};

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::exchange::{elements, steps_of};
use crate::layer::Exported;
use crate::to_jax::{JaxOptions, jax};
use crate::to_torch::torch;

/// Kinds of collectives, as HLO names them.
const PERMUTE: &str = "collective-permute";
const ALL_REDUCE: &str = "all-reduce";
const REDUCE_SCATTER: &str = "reduce-scatter";

/// The collective of a move or of a collective einsum, the value that it moves, and the layout of
/// that value before. `None` for other instructions.
fn moved(plan: &Plan, id: InstrId) -> Option<(Collective, InstrId, Layout)> {
    if let Some(looped) = plan.fused_collective(id) {
        return Some(looped);
    }
    let collective = plan.instruction(id).kind.collective()?;
    let moved = plan.moved(id);
    Some((collective, moved, plan.instruction(moved).layout))
}

/// The collectives that a softmax merge is written as, each with the elements that the busiest
/// device sends: a maximum of the statistics, a sum of the weighted results, and a sum of the
/// weights. With `dim` the sums are scattered along it.
fn merge(
    shape: MeshShape<'_>,
    from: Layout,
    dim: Option<usize>,
    axes: AxisList,
    statistics: DimSet,
) -> [(&'static str, u64); 3] {
    let k = shape.mesh.group_size(axes.iter()).max(1);
    let reduced = |elements: u64| (ALL_REDUCE, (2 * elements * (k - 1)).div_ceil(k));
    let summed = |elements: u64, scattered: bool| {
        if scattered {
            (REDUCE_SCATTER, (elements * (k - 1)).div_ceil(k))
        } else {
            reduced(elements)
        }
    };
    let of_each = local_statistics(shape, from, statistics);
    [
        reduced(of_each),
        summed(shape.local_elements(from), dim.is_some()),
        summed(of_each, dim.is_some_and(|dim| statistics.contains(dim))),
    ]
}

shard_ir::worded! {
    /// A system that executes exported modules.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum EngineSystem {
        /// JAX.
        Jax = "jax",
        /// PyTorch.
        Torch = "torch",
    }
    /// The name on the command line and in Python.
    fn name;
}

impl EngineSystem {
    /// The text of the script that runs a module on data in a folder. The head of the script says
    /// how.
    pub fn script(self) -> &'static str {
        match self {
            EngineSystem::Jax => include_str!("../python/engine_jax.py"),
            EngineSystem::Torch => include_str!("../python/engine_torch.py"),
        }
    }

    /// The text of a Python file beside the script: how the processes of several machines reach
    /// each other.
    pub fn hosts(self) -> &'static str {
        include_str!("../python/engine_hosts.py")
    }

    /// What the system sends for a plan without folded blocks: for each kind of collective of the
    /// system, the elements that the busiest device sends over the network, summed over the plan. A
    /// loop is one permute less than it has chunks; an exchange is the moves that it is written as.
    ///
    /// # Errors
    ///
    /// An exchange that no chain of moves can replace.
    pub fn sends(self, plan: &Plan) -> Result<BTreeMap<&'static str, u64>, ExportError> {
        let mut sent = BTreeMap::new();
        for id in plan.ids() {
            let Some((collective, moved, from)) = moved(plan, id) else { continue };
            let instr = plan.instruction(moved);
            let shape = MeshShape { mesh: &plan.mesh, sizes: &plan.sizes(&instr.dims) };
            if let Collective::SoftmaxMerge { dim, axes, statistics } = collective {
                for (kind, elements) in merge(shape, from, dim, axes, statistics) {
                    *sent.entry(kind).or_default() += elements;
                }
                continue;
            }
            let is_loop = plan.fused_collective(id).is_some();
            let steps = if let Collective::Exchange { to } = collective {
                steps_of(shape, from, to)?
            } else {
                let to = collective.apply(shape, from);
                let to = to.map_err(|_| ExportError::Internal("a move that cannot be made"))?;
                vec![(collective, to)]
            };
            let mut at = from;
            for (step, to) in steps {
                let kind = if is_loop { Some(PERMUTE) } else { self.kind(&step) };
                if let Some(kind) = kind {
                    *sent.entry(kind).or_default() += elements(shape, &step, at, to);
                }
                at = to;
            }
        }
        Ok(sent)
    }

    /// The kind of collective that the system runs for a move; `None` for a move that sends
    /// nothing.
    fn kind(self, collective: &Collective) -> Option<&'static str> {
        Some(match collective {
            Collective::AllGather { .. } | Collective::AllGatherDims { .. } => "all-gather",
            Collective::ReduceScatter { kind, .. } | Collective::ReduceScatterDims { kind, .. } => {
                match (self, kind) {
                    // JAX has no reduce-scatter of maxima: `max_scatter` is an all-to-all and a
                    // maximum.
                    (EngineSystem::Jax, Reduction::Max) => "all-to-all",
                    (EngineSystem::Jax, Reduction::Sum)
                    | (EngineSystem::Torch, Reduction::Sum | Reduction::Max) => REDUCE_SCATTER,
                }
            }
            Collective::AllReduce { .. } => ALL_REDUCE,
            Collective::AllToAll { .. } => "all-to-all",
            Collective::Permute { .. } => PERMUTE,
            // `sends` counts the moves that these are written as.
            Collective::Exchange { .. } | Collective::SoftmaxMerge { .. } => return None,
            Collective::Slice { .. } | Collective::ToPartial { .. } => return None,
        })
    }

    /// The text of a module for a plan without folded blocks. Each result keeps the dims of its
    /// instruction, in their order.
    ///
    /// # Errors
    ///
    /// A plan that the system cannot express ([`ExportError`]).
    pub fn module(self, plan: &Plan, floats: Floats) -> Result<String, ExportError> {
        let mut plan = plan.clone();
        plan.repeat = 1;
        for output in &mut plan.outputs {
            output.dims = plan.instructions[output.id.index()].dims.clone();
        }
        let layers = [Exported { plan: &plan, source: None }];
        let origin = "What `shardc run` executes.";
        match self {
            EngineSystem::Jax => {
                jax(&layers, origin, JaxOptions { floats, ..JaxOptions::default() })
            }
            EngineSystem::Torch => torch(&layers, origin, floats),
        }
    }
}
