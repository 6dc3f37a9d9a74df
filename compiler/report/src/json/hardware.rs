//! `hardware --format json`: `shardc.hardware/1`.

use serde::Serialize;
use shard_cost::hardware::{AxisNetwork, Fabric, Wraparound};
use shard_cost::{Hardware, Network};

use super::Ordered;

/// Chips, as their hardware files give them: rates with the file's efficiency in them.
#[derive(Debug, Serialize)]
pub struct HardwareJson {
    schema: &'static str,
    chips: Vec<ChipJson>,
}

#[derive(Debug, Serialize)]
struct ChipJson {
    name: String,
    source: Option<String>,
    /// Operations per second by arithmetic type.
    flops: Ordered<u64>,
    hbm_bytes: u64,
    hbm_reserved_bytes: u64,
    hbm_bandwidth: u64,
    network: FabricJson,
    /// Mesh axes with a network of their own, or several torus axes, by name.
    network_axes: Ordered<AxisJson>,
    pcie_bandwidth: Option<u64>,
    /// The hardware file.
    file: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AxisJson {
    Torus { torus: Vec<u64> },
    Own(FabricJson),
}

/// Bandwidths in bytes per second, one way; latencies in seconds.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum FabricJson {
    Flat { bandwidth: u64, latency_s: f64 },
    Torus { link_bandwidth: u64, hop_latency_s: f64, wraparound: String, pod: Vec<u64>, face: bool },
    Switched { node: u64, node_bandwidth: u64, nic_bandwidth: u64, alpha_s: f64 },
}

impl HardwareJson {
    /// The document for some chips, each with its file.
    pub fn new<'a>(chips: impl IntoIterator<Item = (&'a Hardware, &'a str)>) -> HardwareJson {
        let chips = chips.into_iter().map(|(hardware, file)| chip(hardware, file)).collect();
        HardwareJson { schema: "shardc.hardware/1", chips }
    }
}

fn chip(hardware: &Hardware, file: &str) -> ChipJson {
    let Network { fabric: own, axes } = &hardware.network;
    let axes = axes.iter().map(|(name, network)| {
        let network = match network {
            AxisNetwork::TorusAxes(torus) => AxisJson::Torus { torus: torus.clone() },
            AxisNetwork::Own(other) => AxisJson::Own(fabric(other)),
        };
        (name.clone(), network)
    });
    ChipJson {
        name: hardware.name.clone(),
        source: hardware.source.clone(),
        flops: Ordered(hardware.arithmetic_types().map(|(dtype, rate)| (dtype.name().to_string(), rate)).collect()),
        hbm_bytes: hardware.chip_hbm_bytes,
        hbm_reserved_bytes: hardware.chip_hbm_bytes.saturating_sub(hardware.hbm_bytes),
        hbm_bandwidth: hardware.hbm_rate,
        network: fabric(own),
        network_axes: Ordered(axes.collect()),
        pcie_bandwidth: hardware.host_rate,
        file: file.to_string(),
    }
}

fn fabric(fabric: &Fabric) -> FabricJson {
    match fabric {
        Fabric::Flat { bandwidth, latency } => FabricJson::Flat { bandwidth: *bandwidth, latency_s: latency.seconds() },
        Fabric::Torus { link_bandwidth, hop_latency, wraparound, pod, face } => FabricJson::Torus {
            link_bandwidth: *link_bandwidth,
            hop_latency_s: hop_latency.seconds(),
            wraparound: match wraparound {
                Wraparound::Always => "always".to_string(),
                Wraparound::Never => "never".to_string(),
                Wraparound::WholeCubes => "multiple-of-4".to_string(),
                Wraparound::FullAxis(chips) => format!("full-axis-{chips}"),
            },
            pod: pod.clone(),
            face: *face,
        },
        Fabric::Switched { node, node_bandwidth, nic_bandwidth, alpha } => FabricJson::Switched {
            node: *node,
            node_bandwidth: *node_bandwidth,
            nic_bandwidth: *nic_bandwidth,
            alpha_s: alpha.seconds(),
        },
    }
}
