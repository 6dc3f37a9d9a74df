//! The blocks that devices hold, as sets of indices: an interval for each dim.

use shard_ir::{AxisId, Layout, Mesh, Reduction};

/// The place of a device along each mesh axis.
type Places = Vec<u64>;

fn devices(mesh: &Mesh) -> Vec<Places> {
    mesh.axis_ids().fold(vec![Vec::new()], |devices, axis| {
        let along = |device: &Places| {
            (0..mesh.size(axis)).map(|at| [device.as_slice(), &[at]].concat()).collect::<Vec<_>>()
        };
        devices.iter().flat_map(along).collect()
    })
}

/// The indices of each dim that a device holds.
fn block(mesh: &Mesh, sizes: &[u64], layout: Layout, device: &Places) -> Vec<std::ops::Range<u64>> {
    let of_dim = |(dim, size): (usize, &u64)| {
        layout.axes_of(dim).iter().fold(0..*size, |held, axis| {
            let length = (held.end - held.start) / mesh.size(axis);
            let start = held.start + length * device[axis.index()];
            start..start + length
        })
    };
    sizes.iter().enumerate().map(of_dim).collect()
}

fn elements(block: &[std::ops::Range<u64>]) -> u64 {
    block.iter().map(|held| held.end.saturating_sub(held.start)).product()
}

fn common(one: &[std::ops::Range<u64>], other: &[std::ops::Range<u64>]) -> u64 {
    let both = |(a, b): (&std::ops::Range<u64>, &std::ops::Range<u64>)| {
        a.start.max(b.start)..a.end.min(b.end)
    };
    elements(&one.iter().zip(other).map(both).collect::<Vec<_>>())
}

/// The least bytes that some device has to send to move a value from one layout to another.
///
/// Where no sum or maximum is completed, the device that lacks most must receive the bytes that it
/// lacks, and all devices send the same. Where one is completed over K devices, a device has to
/// send its terms for elements that it will not have, to be added elsewhere. Of the elements that
/// several of the K devices will have, each device adds up one part in K and sends it to the
/// others.
pub(crate) fn least_sent(mesh: &Mesh, sizes: &[u64], bits: u64, from: Layout, to: Layout) -> u64 {
    let completed: Vec<AxisId> = [Reduction::Sum, Reduction::Max]
        .into_iter()
        .flat_map(|kind| {
            from.partial(kind).iter().filter(move |axis| !to.partial(kind).contains(*axis))
        })
        .collect();
    let split = |axis: &AxisId| to.split_axes().contains(*axis);
    let again: u64 =
        completed.iter().filter(|axis| !split(axis)).map(|axis| mesh.size(*axis)).product();
    let of_device = |device: Places| {
        let (before, after) = (block(mesh, sizes, from, &device), block(mesh, sizes, to, &device));
        let kept = common(&before, &after);
        if completed.is_empty() {
            elements(&after) - kept
        } else {
            elements(&before) - kept + 2 * (kept - kept / again)
        }
    };
    let most = devices(mesh).into_iter().map(of_device).max().unwrap_or(0);
    (most * bits).div_ceil(8)
}
