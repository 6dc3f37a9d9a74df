//! The time of a collective on a chip, by the cost model of plans.

use shard_cost::{Hardware, collective_cost, least_permute_time};
use shard_ir::mesh::AxisId;
use shard_ir::{AxisList, AxisSet, Dtype, Layout, Mesh, Picoseconds, Reduction};

use crate::axes::NamedMesh;
use crate::collectives::{Collective, Kind};

/// The time of a collective each time that it runs. `None` if its groups run along no axes of the
/// mesh, since the cost model only knows the wires of axes.
///
/// A permute is priced as one block over the fastest link, the least that any permute takes: XLA's
/// pairs need not be a change of layout, which is what the model prices.
pub fn time(
    hardware: &Hardware,
    named: &NamedMesh,
    mesh: &Mesh,
    collective: &Collective,
) -> Option<Picoseconds> {
    if collective.wire_bytes_once == 0 {
        return Some(Picoseconds(0));
    }
    let axes: Vec<AxisId> = collective
        .axes
        .as_ref()?
        .iter()
        .map(|axis| mesh.axis(&named.get(*axis)?.0))
        .collect::<Option<_>>()?;
    let list = axes.iter().fold(AxisList::EMPTY, |list, axis| list.then(*axis));
    let set: AxisSet = axes.iter().copied().collect();
    // The cost model gets the buffer as a list of bytes, as many for each device of a group.
    let group = collective.group_size.max(1);
    let bytes = collective.buffer_bytes.div_ceil(group).checked_mul(group)?;
    let partial = set.iter().fold(Layout::REPLICATED, |l, a| l.with_partial(a, Reduction::Sum));
    let split = Layout::REPLICATED.with_dim(0, list);
    let sum = Reduction::Sum;
    let (op, from, sizes) = match collective.kind {
        Kind::AllGather => {
            (shard_ir::Collective::AllGather { dim: 0, axes: list }, split, vec![bytes])
        }
        Kind::AllReduce => {
            (shard_ir::Collective::AllReduce { kind: sum, axes: set }, partial, vec![bytes])
        }
        Kind::ReduceScatter => {
            let op = shard_ir::Collective::ReduceScatter { kind: sum, dim: 0, axes: list };
            (op, partial, vec![bytes])
        }
        Kind::AllToAll => {
            let op = shard_ir::Collective::AllToAll { from_dim: 0, to_dim: 1, axes: list };
            (op, split, vec![group, bytes])
        }
        Kind::Permute | Kind::Broadcast => {
            return Some(least_permute_time(
                hardware,
                mesh,
                collective.wire_bytes_once,
                Dtype::Int8,
            ));
        }
    };
    Some(collective_cost(hardware, mesh, &op, from, &sizes, Dtype::Int8).time)
}
