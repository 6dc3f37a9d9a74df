//! A plan as other systems execute it for `shardc run`: a module of one layer, and the script that
//! feeds it.

use shard_ir::Plan;

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::layer::Exported;
use crate::to_jax::{JaxOptions, jax};
use crate::to_torch::torch;

/// A system that executes exported modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineSystem {
    /// JAX.
    Jax,
    /// PyTorch.
    Torch,
}

impl EngineSystem {
    /// What the command line and Python call it.
    pub fn name(self) -> &'static str {
        match self {
            EngineSystem::Jax => "jax",
            EngineSystem::Torch => "torch",
        }
    }

    /// The script that runs a module on data in a folder; it says of itself how.
    pub fn script(self) -> &'static str {
        match self {
            EngineSystem::Jax => include_str!("../python/engine_jax.py"),
            EngineSystem::Torch => include_str!("../python/engine_torch.py"),
        }
    }

    /// The module of a plan without folded blocks, whose results have the dims of their
    /// instructions, in order.
    ///
    /// # Errors
    ///
    /// What the system has no way to say ([`ExportError`]).
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
