//! Makes a failing input small: parts are left out as long as the same claim is broken.

use super::{Shardc, Surface, caught};

/// How many judgements making an input smaller may take.
const MAX_TRIES: usize = 2000;

/// The smallest input that was found to break the same claim.
pub fn smaller(surface: &Surface, shardc: &Shardc, case: &[u8]) -> Vec<u8> {
    let Some(wanted) = broken(surface, shardc, case) else { return case.to_vec() };
    let mut best = case.to_vec();
    let mut tries = 0;
    let mut size = best.len().div_ceil(2);
    while size > 0 && tries < MAX_TRIES {
        let (mut at, mut shrunk) = (0, false);
        while at < best.len() && tries < MAX_TRIES {
            tries += 1;
            let mut less = best.clone();
            less.drain(at..(at + size).min(best.len()));
            let whole = std::str::from_utf8(&best).is_err() || std::str::from_utf8(&less).is_ok();
            if whole && broken(surface, shardc, &less).as_ref() == Some(&wanted) {
                (best, shrunk) = (less, true)
            } else {
                at += size
            }
        }
        if !shrunk || size > best.len() {
            size /= 2;
        }
    }
    best
}

/// The kind of a broken claim: its first words, without the numbers and names of one case.
fn broken(surface: &Surface, shardc: &Shardc, case: &[u8]) -> Option<String> {
    let why = caught(surface, shardc, case).err()?;
    let place = why.split(" at ").nth(1).and_then(|at| at.split_whitespace().next());
    let words: Vec<&str> = why
        .split_whitespace()
        .take(4)
        .filter(|w| !w.contains(|c: char| c.is_ascii_digit()))
        .collect();
    Some(format!("{} {}", words.join(" "), place.unwrap_or_default()))
}
