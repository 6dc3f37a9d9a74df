//! Reads the `[network]` table of a hardware file.

use shard_ir::Picoseconds;
use shard_ir::mesh::MAX_DEVICES;

use super::file::{AMOUNT, whole_rate};
use super::toml_reader::{Numbers, Table};
use crate::network::{AxisNetwork, Fabric, KINDS, Network};

/// Largest latency, in seconds.
const MAX_LATENCY: f64 = 1e3;

const LATENCY: Numbers = Numbers::NotNegative { max: MAX_LATENCY };

/// A number of chips along an axis.
pub(crate) const CHIPS: Numbers = Numbers::Whole { max: MAX_DEVICES as f64 };

/// How many torus axes a mesh axis may stand for, and a pod may have.
pub(crate) const MAX_TORUS_AXES: usize = 8;

/// How many mesh axes may have a network of their own.
const MAX_NAMED: usize = 64;

pub(super) fn read_network(mut table: Table<'_, '_>, efficiency: f64) -> Option<Network> {
    let axes = table.table("axes").map(|axes| read_axes(axes, efficiency));
    let fabric = read_fabric(table, efficiency);
    let axes = axes.unwrap_or_default();
    let network = Network { fabric: fabric?, axes };
    debug_assert!(network.axes.is_sorted_by(|a, b| a.0 < b.0), "a table's keys are sorted");
    Some(network)
}

/// The networks of single mesh axes: `dcn = { kind = "flat", ... }`, or `x = { torus = [4, 4] }`.
fn read_axes(mut table: Table<'_, '_>, efficiency: f64) -> Vec<(String, AxisNetwork)> {
    let mut axes = Vec::new();
    for (i, (name, span)) in table.keys().into_iter().enumerate() {
        let mut letters = name.chars();
        let is_axis = letters.next().is_some_and(|c| c.is_ascii_lowercase())
            && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !is_axis || i >= MAX_NAMED {
            let message = if is_axis {
                format!("`network.axes` has more than {MAX_NAMED} axes")
            } else {
                format!("`{name}` is no name of a mesh axis")
            };
            let help =
                "a mesh axis is a lower-case letter, then letters and digits: `dcn`".to_string();
            table.error(&name, span, message, Some(help), Vec::new());
        }
        let Some(mut axis) = table.table(&name) else { continue };
        let network = if axis.has("torus") {
            let sizes = axis.numbers("torus", CHIPS, MAX_TORUS_AXES).map(|sizes| whole(&sizes));
            axis.finish();
            // Torus axes of more devices than a `u64` can count fit no mesh axis, and neither does
            // one of the largest number. So the product of the sizes never overflows.
            let fits = |s: &Vec<u64>| s.iter().try_fold(1u64, |n, s| n.checked_mul(*s)).is_some();
            sizes.map(|sizes| {
                AxisNetwork::TorusAxes(if fits(&sizes) { sizes } else { vec![u64::MAX] })
            })
        } else {
            read_fabric(axis, efficiency).map(AxisNetwork::Own)
        };
        axes.extend(network.map(|network| (name, network)));
    }
    table.finish();
    axes
}

fn read_fabric(mut table: Table<'_, '_>, efficiency: f64) -> Option<Fabric> {
    let (kind, span) = table.need_string("kind", "add `kind = \"flat\"`")?;
    let Some(fabric) = Fabric::read(&kind, &mut table, efficiency) else {
        let known: Vec<String> = KINDS.iter().map(|kind| format!("\"{kind}\"")).collect();
        let help = format!("the kinds are {}", known.join(", "));
        table.error("kind", span, format!("unknown network kind `{kind}`"), Some(help), known);
        // Which other keys are right depends on the kind, so that none is refused.
        return None;
    };
    table.finish();
    fabric
}

/// The rate of a key that must be there, times the efficiency.
pub(crate) fn rate(
    table: &mut Table<'_, '_>,
    key: &str,
    efficiency: f64,
    example: &str,
) -> Option<u64> {
    table.need_number(key, AMOUNT, example).map(|peak| whole_rate(peak, efficiency))
}

/// The latency of a key, 0 if the key is not there.
pub(crate) fn latency(table: &mut Table<'_, '_>, key: &str) -> Picoseconds {
    let seconds = table.number(key, LATENCY).unwrap_or(0.0);
    Picoseconds((seconds * 1e12).round() as u64)
}

/// Numbers that were read as [`Numbers::Whole`].
pub(crate) fn whole(sizes: &[f64]) -> Vec<u64> {
    sizes.iter().map(|s| *s as u64).collect()
}
