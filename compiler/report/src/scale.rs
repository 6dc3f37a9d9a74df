//! Bytes, flops and times for people: three digits and a unit.

use shard_cost::{Bytes, Flops};
use shard_ir::Picoseconds;

/// `4.72 MB`: decimal units, as bandwidths are stated in.
pub fn bytes(bytes: Bytes) -> String {
    scaled(u128::from(bytes.0), &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// `21.7 Gflop`.
pub fn flops(flops: Flops) -> String {
    scaled(flops.0, &["flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop", "Eflop", "Zflop"])
}

/// `16.4 us`.
pub fn time(time: Picoseconds) -> String {
    match time.0 {
        0 => "0 s".to_string(),
        ps => scaled(u128::from(ps), &["ps", "ns", "us", "ms", "s", "ks", "Ms"]),
    }
}

/// `270 GB/s`.
pub fn rate(bytes_a_second: Bytes) -> String {
    format!("{}/s", bytes(bytes_a_second))
}

/// `540 G`: a number of things.
pub fn count(count: u128) -> String {
    scaled(count, &["", "k", "M", "G", "T", "P", "E"]).trim_end().to_string()
}

/// `7.5 %`: a part of a time; `None` of no time at all.
pub fn percent(part: Picoseconds, whole: Picoseconds) -> Option<String> {
    (whole.0 > 0).then(|| format!("{:.1} %", 100.0 * part.0 as f64 / whole.0 as f64))
}

/// `9.04 ms`: a time that need not be whole picoseconds.
pub fn seconds(seconds: f64) -> String {
    time(Picoseconds((seconds * 1e12).round() as u64))
}

/// A plain number to three digits, without a unit below a hundred thousand.
pub fn number(value: f64) -> String {
    match value {
        v if v >= 99_999.5 => count(v.round() as u128),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0995 => format!("{v:.2}"),
        0.0 => "0".to_string(),
        v => format!("{v:.2e}"),
    }
}

/// Three significant digits in the largest unit of which there is at least one; each unit is a
/// thousand of the one before.
fn scaled(value: u128, units: &[&str]) -> String {
    let (mut unit, mut size) = (0, 1u128);
    // 999.5 of a unit would round to 1000: that is 1.00 of the next.
    while unit + 1 < units.len() && value.saturating_mul(2) >= size.saturating_mul(1999) {
        unit += 1;
        size *= 1000;
    }
    if unit == 0 {
        return format!("{value} {}", units[0]);
    }
    let amount = value as f64 / size as f64;
    let decimals = if amount < 9.995 {
        2
    } else if amount < 99.95 {
        1
    } else {
        0
    };
    format!("{amount:.decimals$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (n, text) in [
            (0, "0 B"),
            (288, "288 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (4_718_592, "4.72 MB"),
            (51_904_512, "51.9 MB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (9_999_000, "10.0 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(Bytes(n)), text);
        }
        assert_eq!(time(Picoseconds(16_384_000)), "16.4 us");
        assert_eq!(time(Picoseconds(0)), "0 s");
        assert_eq!(time(Picoseconds(u64::MAX)), "18.4 Ms");
        assert_eq!(flops(Flops(21_743_271_936)), "21.7 Gflop");
    }
}
