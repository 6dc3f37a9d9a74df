//! `--memory-limit`: what a device has for the program.

/// The most bytes that can be asked for: as many as a hardware file can state.
const MOST: f64 = 1e18;

/// Units of bytes, longest name first.
const UNITS: [(&str, f64); 10] = [
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("B", 1.0),
];

/// Reads `16GB`, `15.5GiB`, `16e9` or `16000000000`; a part of a byte is left out.
pub(crate) fn read(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((text, 1.0));
    match number.trim_end().parse::<f64>().map(|number| number * bytes) {
        Ok(bytes) if (1.0..=MOST).contains(&bytes) => Ok(bytes as u64),
        Ok(_) | Err(_) => {
            Err("a memory limit is a number of bytes: 16000000000, 16GB or 16GiB".to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn bytes_are_read_with_decimal_and_binary_units() {
        for (text, bytes) in [
            ("16000000000", 16_000_000_000),
            ("16e9", 16_000_000_000),
            ("16GB", 16_000_000_000),
            ("16GiB", 17_179_869_184),
            ("15.5 GiB", 16_642_998_272),
            ("512MiB", 536_870_912),
            ("3kB", 3_000),
            ("7B", 7),
            ("1.5", 1),
        ] {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
        for bad in ["", "GB", "0", "-1GB", "nan", "infGB", "1e30", "16gb", "16 G", "many"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
