//! Other executors than the simulated devices: their results are judged like those of the devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::{InstrId, InstrKind, Plan};

use crate::arithmetic::Arithmetic;
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::inputs;
use crate::spare::Spare;
use crate::tensor::Tensor;

/// What executes a plan in place of the simulated devices: another system, on devices of its own.
pub trait Engine: std::fmt::Debug + Send + Sync {
    /// The blocks of each result, in the order of the results, by device; dims as the instruction
    /// of the result has them. `parameters` are in the order of the plan, the blocks of each by
    /// device.
    ///
    /// # Errors
    ///
    /// A sentence that says why there are no results.
    fn execute(
        &self,
        plan: &Plan,
        parameters: &[(InstrId, Vec<Tensor>)],
    ) -> Result<Vec<Vec<Tensor>>, String>;
}

/// The blocks of each instruction that is a result, as an engine gives them. `parameters` are
/// whole; `seed` is that of the random terms of partial ones.
pub(crate) fn execute(
    engine: &dyn Engine,
    plan: &Plan,
    parameters: &BTreeMap<InstrId, Arc<Tensor>>,
    seed: u64,
    grid: &Grid<'_>,
    arithmetic: Arithmetic,
) -> Result<Vec<(InstrId, Vec<Tensor>)>, RunError> {
    let is_parameter = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    let dealt = plan.ids().filter(is_parameter).map(|id| {
        let whole = parameters.get(&id).ok_or(RunError::Internal("a parameter has no data"))?;
        let blocks = inputs::deal(plan, id, whole, grid, arithmetic, seed, &Spare::default())?;
        Ok((id, (0..grid.devices()).map(|device| blocks.on(device).into_owned()).collect()))
    });
    let dealt = dealt.collect::<Result<Vec<_>, RunError>>()?;
    let results = engine.execute(plan, &dealt).map_err(RunError::Engine)?;
    if results.len() != plan.outputs.len() {
        return Err(RunError::Engine("it gave another number of results".to_string()));
    }
    for (output, blocks) in plan.outputs.iter().zip(&results) {
        let local = usizes(&plan.local_sizes(output.id));
        if blocks.len() != grid.devices() || blocks.iter().any(|block| block.sizes != local) {
            let name = &output.name;
            return Err(RunError::Engine(format!("its blocks of `{name}` are of other shapes")));
        }
    }
    Ok(plan.outputs.iter().map(|output| output.id).zip(results).collect())
}
