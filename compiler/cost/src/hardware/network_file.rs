//! The `[network]` table of a hardware file.

use shard_ir::Picoseconds;
use shard_ir::mesh::MAX_DEVICES;

use super::file::{AMOUNT, whole_rate};
use super::network::{AxisNetwork, Fabric, Network, Wraparound};
use super::toml_reader::{Numbers, Table};

/// Largest latency, in seconds.
const MAX_LATENCY: f64 = 1e3;

const LATENCY: Numbers = Numbers::NotNegative { max: MAX_LATENCY };

/// A number of chips along an axis.
const CHIPS: Numbers = Numbers::Whole { max: MAX_DEVICES as f64 };

/// How many torus axes a mesh axis may stand for, and a pod may have.
const MAX_TORUS_AXES: usize = 8;

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
            let message = match is_axis {
                false => format!("`{name}` is no name of a mesh axis"),
                true => format!("`network.axes` has more than {MAX_NAMED} axes"),
            };
            let help = "a mesh axis is a lower-case letter, then letters and digits: `dcn`".to_string();
            table.error(&name, span, message, Some(help), Vec::new());
        }
        let Some(mut axis) = table.table(&name) else { continue };
        let network = if axis.has("torus") {
            let sizes = axis.numbers("torus", CHIPS, MAX_TORUS_AXES).map(|sizes| whole(&sizes));
            axis.finish();
            // A fold into more devices than any mesh has fits none; it is kept small enough to multiply.
            let fits = |s: &Vec<u64>| s.iter().try_fold(1u64, |n, s| n.checked_mul(*s)).is_some();
            sizes.map(|sizes| AxisNetwork::TorusAxes(if fits(&sizes) { sizes } else { vec![u64::MAX] }))
        } else {
            read_fabric(axis, efficiency).map(AxisNetwork::Own)
        };
        axes.extend(network.map(|network| (name, network)));
    }
    table.finish();
    axes
}

const KINDS: [&str; 3] = ["flat", "torus", "switched"];

fn read_fabric(mut table: Table<'_, '_>, efficiency: f64) -> Option<Fabric> {
    let (kind, span) = table.need_string("kind", "add `kind = \"flat\"`")?;
    let fabric = match kind.as_str() {
        "flat" => {
            let bandwidth = table.need_number("bandwidth", AMOUNT, "add `bandwidth = 270e9`");
            let latency = latency(&mut table, "latency");
            bandwidth.map(|b| Fabric::Flat { bandwidth: whole_rate(b, efficiency), latency })
        }
        "torus" => {
            let link = table.need_number("link_bandwidth", AMOUNT, "add `link_bandwidth = 45e9`: one way, one link");
            let hop_latency = latency(&mut table, "hop_latency");
            let wraparound = read_wraparound(&mut table);
            let face = table.flag("face").unwrap_or(false);
            let pod = table.numbers("pod", CHIPS, MAX_TORUS_AXES).map(|pod| whole(&pod)).unwrap_or_default();
            link.zip(wraparound).map(|(link, wraparound)| Fabric::Torus {
                link_bandwidth: whole_rate(link, efficiency),
                hop_latency,
                wraparound,
                pod,
                face,
            })
        }
        "switched" => {
            let node = table.need_number("node", CHIPS, "add `node = 8`: devices in a node");
            let inside = table.need_number("node_bandwidth", AMOUNT, "add `node_bandwidth = 450e9`: one way, a device");
            let nic = table.need_number("nic_bandwidth", AMOUNT, "add `nic_bandwidth = 50e9`: one way, a device");
            let alpha = latency(&mut table, "alpha");
            node.zip(inside).zip(nic).map(|((node, inside), nic)| Fabric::Switched {
                node: node as u64,
                node_bandwidth: whole_rate(inside, efficiency),
                nic_bandwidth: whole_rate(nic, efficiency),
                alpha,
            })
        }
        _ => {
            let known = KINDS.map(|kind| format!("\"{kind}\"")).to_vec();
            let help = format!("the kinds are {}", known.join(", "));
            table.error("kind", span, format!("unknown network kind `{kind}`"), Some(help), known);
            // Which keys belong there depends on the kind.
            return None;
        }
    };
    table.finish();
    fabric
}

fn latency(table: &mut Table<'_, '_>, key: &str) -> Picoseconds {
    let seconds = table.number(key, LATENCY).unwrap_or(0.0);
    Picoseconds((seconds * 1e12).round() as u64)
}

const RULES: [&str; 4] = ["multiple-of-4", "always", "never", "full-axis-16"];

fn read_wraparound(table: &mut Table<'_, '_>) -> Option<Wraparound> {
    let (rule, span) = table.need_string("wraparound", "add `wraparound = \"always\"`")?;
    let full_axis = || rule.strip_prefix("full-axis-").and_then(|n| n.parse::<u64>().ok()).filter(|n| *n > 1);
    match rule.as_str() {
        "always" => Some(Wraparound::Always),
        "never" => Some(Wraparound::Never),
        "multiple-of-4" => Some(Wraparound::WholeCubes),
        _ => full_axis().map(Wraparound::FullAxis).or_else(|| {
            let known = RULES.map(|rule| format!("\"{rule}\"")).to_vec();
            let help = format!("the rules are {} (or another length)", known.join(", "));
            table.error("wraparound", span, format!("unknown wraparound rule `{rule}`"), Some(help), known);
            None
        }),
    }
}

fn whole(sizes: &[f64]) -> Vec<u64> {
    sizes.iter().map(|s| *s as u64).collect()
}
