//! What it would cost and save to pad a dim that does not divide over the mesh.

use serde::Serialize;
use shard_cost::Bytes;
use shard_ir::Picoseconds;

use crate::{object, scale};

/// A dim that some axes of the mesh do not divide, and what a plan takes where it is padded so that
/// they do. Times are those of one layer, by which plans are chosen; bytes are those of a device at
/// the peak, over the whole stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Padding {
    /// The dim's name.
    pub dim: String,
    /// Its size.
    pub size: u64,
    /// The size to which it is padded.
    pub padded: u64,
    /// The devices over which it then divides.
    pub devices: u64,
    /// What the plan of the report takes.
    pub own_time: Picoseconds,
    /// What the best plan takes where the dim is padded.
    pub time: Picoseconds,
    /// What the plan of the report holds.
    pub own_peak: Bytes,
    /// What the best plan holds where the dim is padded.
    pub peak: Bytes,
}

impl Padding {
    /// The option that pads it.
    pub fn option(&self) -> String {
        format!("-D '{}={} pad {}'", self.dim, self.size, self.padded)
    }

    /// What a report says of it.
    pub(crate) fn text(&self) -> String {
        let saves = self.own_time.0.saturating_sub(self.time.0);
        let part = 100.0 * saves as f64 / self.own_time.0.max(1) as f64;
        format!(
            "{} is {} and not divisible by {}: padded, with {} more of it, all steps take {} \
             and not {}, which saves {} ({part:.1} %), and {} at the peak and not {}: {}",
            self.dim,
            self.size,
            self.devices,
            more(self.size, self.padded),
            scale::time(self.time),
            scale::time(self.own_time),
            scale::time(Picoseconds(saves)),
            scale::bytes(self.peak),
            scale::bytes(self.own_peak),
            self.option(),
        )
    }

    /// The same, in JSON.
    pub(crate) fn json(&self) -> impl Serialize {
        object!(PaddingJson {
            dim: &self.dim,
            size: self.size,
            padded: self.padded,
            devices: self.devices,
            time_s: self.own_time.seconds(),
            padded_time_s: self.time.seconds(),
            peak_bytes: self.own_peak.0,
            padded_peak_bytes: self.peak.0,
        })
    }
}

/// By how much a size grows, as a share of it.
fn more(size: u64, padded: u64) -> String {
    match 100.0 * padded.saturating_sub(size) as f64 / size.max(1) as f64 {
        part if part < 0.01 => "less than 0.01 %".to_string(),
        part if part < 1.0 => format!("{part:.2} %"),
        part => format!("{part:.1} %"),
    }
}
