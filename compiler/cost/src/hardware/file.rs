//! Reads a hardware file: its keys, and which values they take.

use shard_ir::{Dtype, Picoseconds};
use toml::de::DeTable;

use super::network_file::read_network;
use super::toml_reader::{Errors, Numbers, Table};
use super::{Hardware, HardwareError, Weights};

/// Largest rate (per second) and largest memory (bytes) that a hardware file may have: far beyond
/// any chip, and well inside `u64`.
const MAX_AMOUNT: f64 = 1e18;

/// Largest side of the tiles in which matrices are multiplied.
const LARGEST_TILE: f64 = 65536.0;

/// Largest overhead of a layer, in seconds.
const MAX_LAYER_OVERHEAD: f64 = 1e3;

/// Largest hardware file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

pub(super) const AMOUNT: Numbers = Numbers::Positive { max: MAX_AMOUNT };

pub(super) fn read(text: &str) -> Result<Hardware, Vec<HardwareError>> {
    let of_file = |message: String, span| {
        vec![HardwareError { message, key: String::new(), span, help: None, known: Vec::new() }]
    };
    if text.len() > MAX_FILE_BYTES {
        return Err(of_file(
            format!("the hardware file is larger than {MAX_FILE_BYTES} bytes"),
            0..0,
        ));
    }
    let parsed = DeTable::parse(text).map_err(|error| {
        of_file(format!("not a TOML file: {}", error.message()), error.span().unwrap_or(0..0))
    })?;
    let errors = Errors::default();
    let hardware = read_top(Table::top(&parsed, &errors));
    match (hardware, errors.sorted()) {
        (Some(hardware), errors) if errors.is_empty() => Ok(hardware),
        (_, errors) => Err(errors),
    }
}

/// The hardware, if no key that it needs is missing or wrong. Everything that is wrong is in the
/// table's errors.
fn read_top(mut top: Table<'_, '_>) -> Option<Hardware> {
    let name = top.need_string("name", "add `name = \"my-chip\"`");
    let source = top.string("source").map(|(source, _)| source);
    let efficiency = top.table("efficiency").map(read_efficiency).unwrap_or_default();
    let chip = top.need_table("chip", "add a table `[chip]` with flops, hbm_bytes, hbm_bandwidth");
    let chip = chip.map(|table| read_chip(table, &efficiency));
    let attention = top.table("kernels").and_then(|mut table| {
        let fraction = table.number("attention", Numbers::Positive { max: 1.0 });
        table.finish();
        fraction
    });
    let network =
        top.need_table("network", "add a table `[network]` with kind, bandwidth, latency");
    let network = network.map(|table| read_network(table, efficiency.network));
    let host_rate = top.table("host").and_then(|mut host| {
        let rate = host.need_number("pcie_bandwidth", AMOUNT, "add `pcie_bandwidth = 1.5e10`");
        host.finish();
        rate.map(|rate| whole_rate(rate, 1.0))
    });
    let layer_overhead = top.table("overhead").map(read_layer_overhead).unwrap_or_default();
    top.finish();
    let chip = chip??;
    Some(Hardware {
        name: name?.0,
        source,
        flops: chip.flops,
        attention: attention.map(|fraction| {
            let reached =
                |(dtype, peak): &(Dtype, u64)| (*dtype, whole_rate(*peak as f64, fraction));
            chip.peaks.iter().map(reached).collect()
        }),
        peaks: chip.peaks,
        matmul_tile: chip.matmul_tile,
        hbm_bytes: chip.hbm_bytes.saturating_sub(chip.hbm_reserved_bytes),
        chip_hbm_bytes: chip.hbm_bytes,
        has_memory_limit: false,
        hbm_rate: chip.hbm_rate,
        network: network??,
        host_rate,
        weights: Weights::EVEN,
        layer_overhead,
    })
}

/// The fractions of peak rates that are reached: the table `[efficiency]`.
struct ReachedFractions {
    matmul: f64,
    hbm: f64,
    network: f64,
}

impl Default for ReachedFractions {
    fn default() -> ReachedFractions {
        ReachedFractions { matmul: 1.0, hbm: 1.0, network: 1.0 }
    }
}

fn read_efficiency(mut table: Table<'_, '_>) -> ReachedFractions {
    let fraction = Numbers::Positive { max: 1.0 };
    let efficiency = ReachedFractions {
        matmul: table.number("matmul", fraction).unwrap_or(1.0),
        hbm: table.number("hbm", fraction).unwrap_or(1.0),
        network: table.number("network", fraction).unwrap_or(1.0),
    };
    table.finish();
    efficiency
}

fn read_layer_overhead(mut table: Table<'_, '_>) -> Picoseconds {
    let seconds =
        table.number("layer", Numbers::NotNegative { max: MAX_LAYER_OVERHEAD }).unwrap_or(0.0);
    table.finish();
    Picoseconds((seconds * 1e12).round() as u64)
}

/// The table `[chip]`. Rates are per second; `flops` are those reached, `peaks` those at peak.
struct Chip {
    flops: Vec<(Dtype, u64)>,
    peaks: Vec<(Dtype, u64)>,
    matmul_tile: Option<u64>,
    hbm_bytes: u64,
    hbm_reserved_bytes: u64,
    hbm_rate: u64,
}

fn read_chip(mut chip: Table<'_, '_>, efficiency: &ReachedFractions) -> Option<Chip> {
    let flops = chip.need_table("flops", "add `flops = { bf16 = 275e12 }`");
    let peaks = flops.map(read_flops);
    let hbm_bytes = chip.need_number("hbm_bytes", AMOUNT, "add `hbm_bytes = 34359738368`");
    let hbm_bandwidth = chip.need_number("hbm_bandwidth", AMOUNT, "add `hbm_bandwidth = 1.2e12`");
    let reserved =
        chip.number("hbm_reserved_bytes", Numbers::NotNegative { max: MAX_AMOUNT }).unwrap_or(0.0);
    if hbm_bytes.is_some_and(|there| reserved >= there) {
        let place = chip
            .keys()
            .into_iter()
            .find(|(key, _)| key == "hbm_reserved_bytes")
            .map_or(0..0, |(_, span)| span);
        let message = "`chip.hbm_reserved_bytes` leaves nothing of `chip.hbm_bytes`".to_string();
        chip.error(
            "hbm_reserved_bytes",
            place,
            message,
            Some("hbm_reserved_bytes = 1e9".to_string()),
            Vec::new(),
        );
    }
    let matmul_tile = chip.number("matmul_tile", Numbers::Positive { max: LARGEST_TILE });
    chip.finish();
    let peaks = peaks?;
    let rates = |efficiency| {
        peaks.iter().map(move |(dtype, peak)| (*dtype, whole_rate(*peak, efficiency))).collect()
    };
    Some(Chip {
        flops: rates(efficiency.matmul),
        peaks: rates(1.0),
        matmul_tile: matmul_tile.map(|side| (side.round() as u64).max(1)),
        hbm_bytes: (hbm_bytes? as u64).max(1),
        hbm_reserved_bytes: reserved.ceil() as u64,
        hbm_rate: whole_rate(hbm_bandwidth?, efficiency.hbm),
    })
}

fn read_flops(mut table: Table<'_, '_>) -> Vec<(Dtype, f64)> {
    let mut flops = Vec::new();
    if !table.has(Dtype::Bf16.name()) {
        table.need_number(
            "bf16",
            AMOUNT,
            "add bf16's peak: other types take it where theirs is missing",
        );
    }
    for dtype in Dtype::ALL.into_iter().filter(|d| *d != Dtype::Bool) {
        if let Some(peak) = table.number(dtype.name(), AMOUNT) {
            flops.push((dtype, peak));
        }
    }
    table.finish();
    flops
}

/// The rate that is reached, as a whole number per second, at least 1.
pub(super) fn whole_rate(peak: f64, efficiency: f64) -> u64 {
    ((peak * efficiency).round() as u64).max(1)
}
