//! The process groups of a module: a group for each tuple of axes over which something is sent, its
//! ranks in the order of the tuple.

use shard_ir::collective::Sends;
use shard_ir::{AxisId, Collective, InstrKind, MeshShape, Plan, Reduction};

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::exchange::steps_of;
use crate::moved::PythonMove;

/// The tuples of axes for which a plan needs groups, in program order; a tuple may come more than
/// once.
pub(crate) fn groups(plan: &Plan) -> Result<Vec<Vec<AxisId>>, ExportError> {
    let mut found = Vec::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        match &instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => {}
            InstrKind::CollectiveEinsum(fused) => found.push(fused.axes().iter().collect()),
            InstrKind::Move(collective) => {
                let sizes = plan.sizes(&instr.dims);
                let moved = PythonMove {
                    shape: MeshShape { mesh: &plan.mesh, sizes: &sizes },
                    from: plan.instruction(plan.moved(id)).layout,
                    to: instr.layout,
                    dtype: instr.dtype,
                    floats: Floats::Stated,
                };
                found.extend(of_move(&moved, collective)?);
            }
        }
    }
    // The check reduces partial results over these axes.
    for output in &plan.outputs {
        let layout = plan.output_layout(output);
        found.extend(
            [Reduction::Sum, Reduction::Max].map(|kind| layout.partial(kind).iter().collect()),
        );
    }
    found.retain(|axes: &Vec<AxisId>| !axes.is_empty());
    Ok(found)
}

fn of_move(
    moved: &PythonMove<'_>,
    collective: &Collective,
) -> Result<Vec<Vec<AxisId>>, ExportError> {
    let over = match collective.row().sends {
        Sends::Nothing => return Ok(Vec::new()),
        Sends::Around | Sends::AroundTwice | Sends::Across | Sends::Weighted => {
            collective.axes(moved.shape.mesh, moved.from)
        }
        Sends::Blocks => moved.permuted(moved.to)?,
        Sends::Lacking => {
            let mut found = Vec::new();
            let mut from = moved.from;
            for (step, after) in steps_of(moved.shape, moved.from, moved.to)? {
                found.extend(of_move(&PythonMove { from, to: after, ..*moved }, &step)?);
                from = after;
            }
            return Ok(found);
        }
    };
    Ok(vec![over.iter().collect()])
}
