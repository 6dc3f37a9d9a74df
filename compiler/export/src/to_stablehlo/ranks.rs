//! The rank of a device in a group, the position at which its block begins, and tables of devices.

use shard_ir::{AxisList, Mesh};

use super::builder::{Builder, Value, list};
use super::element::Element;

/// Rows of numbers: `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`.
pub(crate) fn table<R: AsRef<[u64]>>(rows: &[R]) -> String {
    let width = rows.first().map_or(0, |row| row.as_ref().len());
    let text = rows.iter().map(|row| format!("[{}]", list(row.as_ref())));
    format!("dense<[{}]> : tensor<{}x{width}xi64>", list(text), rows.len())
}

/// The rank of a device in its group over some axes; the first axis is the major digit.
pub(crate) fn rank(b: &mut Builder, mesh: &Mesh, axes: &AxisList) -> Value {
    let device = b.op(Vec::new(), Element::Unsigned, "stablehlo.partition_id : tensor<ui32>");
    let device = b.convert(&device, Element::I32);
    let mut place: Option<Value> = None;
    for axis in axes.iter() {
        let minor: u64 =
            mesh.axis_ids().filter(|a| a.index() > axis.index()).map(|a| mesh.size(a)).product();
        let mut at = device.clone();
        if minor > 1 {
            at = b.with_number("divide", &at, minor as f64);
        }
        if axis.index() > 0 {
            at = b.with_number("remainder", &at, mesh.size(axis) as f64);
        }
        place = Some(match place {
            None => at,
            Some(major) => {
                let major = b.with_number("multiply", &major, mesh.size(axis) as f64);
                b.binary("add", &major, &at)
            }
        });
    }
    place.unwrap_or_else(|| b.count(0))
}

/// The position at which the block of a device begins along a dim that these axes cut into blocks
/// of `size`; `None` where the dim is whole.
pub(crate) fn origin(b: &mut Builder, mesh: &Mesh, axes: &AxisList, size: u64) -> Option<Value> {
    if axes.is_empty() {
        return None;
    }
    let rank = rank(b, mesh, axes);
    Some(b.with_number("multiply", &rank, size as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_rows() {
        assert_eq!(table(&[[0, 4], [1, 5]]), "dense<[[0, 4], [1, 5]]> : tensor<2x2xi64>");
    }
}
