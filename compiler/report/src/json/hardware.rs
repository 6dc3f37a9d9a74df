//! `hardware --format json`: `shardc.hardware/1`.

use serde::Serialize;
use shard_cost::hardware::{AxisNetwork, Fabric, Figure};
use shard_cost::{Hardware, Network};

use super::{Ordered, text};
use crate::object;

/// The document for some chips, each with its file: rates with the file's efficiency in them.
pub fn hardware<'a>(chips: impl IntoIterator<Item = (&'a Hardware, &'a str)>) -> String {
    let chips = chips.into_iter().map(|(hardware, file)| chip(hardware, file));
    text(&object!(HardwareJson { schema: "shardc.hardware/1", chips: chips.collect::<Vec<_>>() }))
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AxisNetworkJson {
    Torus { torus: Vec<u64> },
    Own(FabricJson),
}

/// `kind` with its word, then the figures of the kind: bandwidths in bytes per second, one way;
/// latencies in seconds.
type FabricJson = Ordered<FigureJson>;

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum FigureJson {
    Count(u64),
    Seconds(f64),
    Word(String),
    Sizes(Vec<u64>),
    Flag(bool),
}

fn chip<'a>(hardware: &'a Hardware, file: &'a str) -> impl Serialize {
    let Network { fabric: own, axes } = &hardware.network;
    let axes = axes.iter().map(|(name, network)| {
        let network = match network {
            AxisNetwork::TorusAxes(torus) => AxisNetworkJson::Torus { torus: torus.clone() },
            AxisNetwork::Own(other) => AxisNetworkJson::Own(fabric(other)),
        };
        (name.clone(), network)
    });
    object!(ChipJson {
        name: &hardware.name,
        source: &hardware.source,
        // Operations per second by arithmetic type.
        flops: Ordered(
            hardware
                .arithmetic_types()
                .map(|(dtype, rate)| (dtype.name().to_string(), rate))
                .collect(),
        ),
        hbm_bytes: hardware.chip_hbm_bytes,
        hbm_reserved_bytes: hardware.chip_hbm_bytes.saturating_sub(hardware.hbm_bytes),
        hbm_bandwidth: hardware.hbm_rate,
        network: fabric(own),
        // Mesh axes with a network of their own, or several torus axes, by name.
        network_axes: Ordered(axes.collect()),
        pcie_bandwidth: hardware.host_rate,
        // The hardware file.
        file,
    })
}

fn fabric(fabric: &Fabric) -> FabricJson {
    let figure = |figure: Figure| match figure {
        Figure::Count(count) => FigureJson::Count(count),
        Figure::Seconds(seconds) => FigureJson::Seconds(seconds),
        Figure::Word(word) => FigureJson::Word(word),
        Figure::Sizes(sizes) => FigureJson::Sizes(sizes),
        Figure::Flag(flag) => FigureJson::Flag(flag),
    };
    let kind = ("kind".to_string(), FigureJson::Word(fabric.word().to_string()));
    let figures = fabric.figures().into_iter().map(|(key, value)| (key.to_string(), figure(value)));
    Ordered([kind].into_iter().chain(figures).collect())
}
