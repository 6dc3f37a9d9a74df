//! The hardware file: what its keys are and which values they take.

use shard_ir::{Dtype, Picoseconds};
use toml::de::DeTable;

use super::toml_reader::{Numbers, Table};
use super::{Hardware, HardwareError, Network};

/// Largest rate (per second) and largest memory (bytes) of a hardware file: far beyond any chip, well inside `u64`.
const MAX_AMOUNT: f64 = 1e18;

/// Largest latency, in seconds.
const MAX_LATENCY: f64 = 1e3;

/// Largest hardware file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

const AMOUNT: Numbers = Numbers::Positive { max: MAX_AMOUNT };

pub(super) fn read(text: &str) -> Result<Hardware, HardwareError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(HardwareError {
            message: format!("the hardware file is larger than {MAX_FILE_BYTES} bytes"),
            key: String::new(),
            span: 0..0,
            help: None,
        });
    }
    let parsed = DeTable::parse(text).map_err(|error| HardwareError {
        message: format!("not a TOML file: {}", error.message()),
        key: String::new(),
        span: error.span().unwrap_or(0..0),
        help: None,
    })?;
    let mut top = Table::top(&parsed);
    let (name, _) = top.need_string("name", "add `name = \"my-chip\"`")?;
    let source = top.string("source")?.map(|(source, _)| source);
    let efficiency = match top.table("efficiency")? {
        Some(table) => read_efficiency(table)?,
        None => Efficiency { matmul: 1.0, hbm: 1.0, network: 1.0 },
    };
    let mut chip = top.need_table("chip", "add a table `[chip]` with flops, hbm_bytes, hbm_bandwidth")?;
    let peaks = read_flops(chip.need_table("flops", "add `flops = { bf16 = 275e12 }`")?)?;
    let rates = |efficiency| peaks.iter().map(move |(dtype, peak)| (*dtype, whole_rate(*peak, efficiency))).collect();
    let hbm_bytes = chip.need_number("hbm_bytes", AMOUNT, "add `hbm_bytes = 34359738368`")? as u64;
    let hbm_bandwidth = chip.need_number("hbm_bandwidth", AMOUNT, "add `hbm_bandwidth = 1.2e12`")?;
    chip.finish()?;
    let network = read_network(
        top.need_table("network", "add a table `[network]` with kind, bandwidth, latency")?,
        efficiency.network,
    )?;
    let host_rate = match top.table("host")? {
        None => None,
        Some(mut host) => {
            let rate = host.need_number("pcie_bandwidth", AMOUNT, "add `pcie_bandwidth = 1.5e10`")?;
            host.finish()?;
            Some(whole_rate(rate, 1.0))
        }
    };
    top.finish()?;
    Ok(Hardware {
        name,
        source,
        flops: rates(efficiency.matmul),
        peaks: rates(1.0),
        hbm_bytes: hbm_bytes.max(1),
        hbm_rate: whole_rate(hbm_bandwidth, efficiency.hbm),
        network,
        host_rate,
    })
}

/// Fractions of peak that are really reached.
struct Efficiency {
    matmul: f64,
    hbm: f64,
    network: f64,
}

fn read_efficiency(mut table: Table<'_, '_>) -> Result<Efficiency, HardwareError> {
    let fraction = Numbers::Positive { max: 1.0 };
    let efficiency = Efficiency {
        matmul: table.number("matmul", fraction)?.unwrap_or(1.0),
        hbm: table.number("hbm", fraction)?.unwrap_or(1.0),
        network: table.number("network", fraction)?.unwrap_or(1.0),
    };
    table.finish()?;
    Ok(efficiency)
}

fn read_flops(mut table: Table<'_, '_>) -> Result<Vec<(Dtype, f64)>, HardwareError> {
    let mut flops = Vec::new();
    for dtype in Dtype::ALL.into_iter().filter(|d| *d != Dtype::Bool) {
        if let Some(peak) = table.number(dtype.name(), AMOUNT)? {
            flops.push((dtype, peak));
        }
    }
    if !flops.iter().any(|(d, _)| *d == Dtype::Bf16) {
        table.need_number("bf16", AMOUNT, "add bf16's peak: other types take it where theirs is missing")?;
    }
    table.finish()?;
    Ok(flops)
}

fn read_network(mut table: Table<'_, '_>, efficiency: f64) -> Result<Network, HardwareError> {
    let (kind, span) = table.need_string("kind", "add `kind = \"flat\"`")?;
    if kind != "flat" {
        let message = match kind.as_str() {
            "torus" | "switched" => format!("network kind `{kind}` is not supported yet"),
            _ => format!("unknown network kind `{kind}`"),
        };
        let help = "kind = \"flat\", with the keys bandwidth and latency".to_string();
        return Err(table.error_at("kind", span, message, Some(help)));
    }
    if let Some((_, span)) = table.keys().into_iter().find(|(key, _)| key == "axes") {
        let message = "networks for single mesh axes (`network.axes`) are not supported yet".to_string();
        return Err(table.error_at("axes", span, message, None));
    }
    let bandwidth = table.need_number("bandwidth", AMOUNT, "add `bandwidth = 270e9`")?;
    let latency = table.number("latency", Numbers::NotNegative { max: MAX_LATENCY })?.unwrap_or(0.0);
    table.finish()?;
    Ok(Network::Flat {
        bandwidth: whole_rate(bandwidth, efficiency),
        latency: Picoseconds((latency * 1e12).round() as u64),
    })
}

/// The rate that is really reached, as a whole number per second, at least 1.
fn whole_rate(peak: f64, efficiency: f64) -> u64 {
    ((peak * efficiency).round() as u64).max(1)
}
