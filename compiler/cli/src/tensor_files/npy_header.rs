//! Checks the header of a `.npy` file before its reader does: the reader trusts the stated length,
//! and its time doubles with each level of brackets.

use std::io::{Cursor, Read};

/// The longest header. NumPy's own reader takes 10,000 bytes.
const MAX_BYTES: u64 = 1 << 16;

/// The deepest nesting of brackets: a dict, in it a tuple, or a list of tuples.
const MAX_NESTING: usize = 4;

/// The same file with a header that is safe to read, or what is wrong with it.
pub(crate) fn checked(mut file: impl Read) -> Result<impl Read, String> {
    let mut start = Vec::new();
    let mut take = |bytes: u64, start: &mut Vec<u8>| {
        // A file that ends too early is left to its reader to report.
        (&mut file).take(bytes).read_to_end(start).map_err(|error| error.to_string())
    };
    take(8, &mut start)?;
    // The length has two bytes in version 1 of the format and four in those behind it.
    let width = if start.get(6) == Some(&1) { 2 } else { 4 };
    take(width, &mut start)?;
    let stated = start.iter().skip(8).rev().fold(0, |length, byte| length << 8 | u64::from(*byte));
    if stated > MAX_BYTES {
        return Err(format!("its header has {stated} bytes, and {MAX_BYTES} are the most"));
    }
    let fixed = start.len();
    take(stated, &mut start)?;
    let mut nested = 0usize;
    for byte in &start[fixed..] {
        match byte {
            b'(' | b'[' | b'{' => nested += 1,
            b')' | b']' | b'}' => nested = nested.saturating_sub(1),
            _ => {}
        }
        if nested > MAX_NESTING {
            return Err("its header has too many brackets inside each other".to_string());
        }
    }
    Ok(Cursor::new(start).chain(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        checked(bytes)?.read_to_end(&mut out).map_err(|error| error.to_string())?;
        Ok(out)
    }

    #[test]
    fn a_file_is_handed_on_as_it_is_also_where_it_is_cut_short() {
        let file = b"\x93NUMPY\x01\x00\x0e\x00{'shape': (2)}data";
        for end in 0..=file.len() {
            assert_eq!(read(&file[..end]).as_deref(), Ok(&file[..end]));
        }
    }

    #[test]
    fn a_header_that_would_take_for_ever_or_all_memory_is_refused() {
        let nested = [&b"\x93NUMPY\x01\x00\x28\x00"[..], &[b'{'; 40]].concat();
        assert!(read(&nested).is_err_and(|why| why.contains("brackets")));
        assert!(
            read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}")
                .is_err_and(|why| why.contains("4294967295 bytes"))
        );
    }
}
