//! What a program has of a chip's memory, in words.

use shard_cost::{Bytes, Hardware};

use crate::scale;

/// Why a program has less of a chip than there is, or more: `--memory-limit, of the chip's 16.0
/// GB`. None where it has all.
pub fn limit(hardware: &Hardware) -> Option<String> {
    let chip = scale::bytes(Bytes(hardware.chip_hbm_bytes));
    let reserved = hardware.chip_hbm_bytes.saturating_sub(hardware.hbm_bytes);
    match (hardware.has_memory_limit, reserved) {
        (true, _) => Some(format!("--memory-limit, of the chip's {chip}")),
        (false, 0) => None,
        (false, reserved) => {
            Some(format!("the chip's {chip} less {} reserved", scale::bytes(Bytes(reserved))))
        }
    }
}

/// The same as a line of a report; none where the program has all of the chip.
pub fn line(hardware: &Hardware) -> Option<String> {
    let why = limit(hardware)?;
    Some(format!("a program has {} of a chip: {why}", scale::bytes(Bytes(hardware.hbm_bytes))))
}
