//! Reads shapes: `bf16[4,256]{1,0:T(8,128)}`, `(f32[2], /*index=1*/u32[])`.

use super::scan::parts;

/// One array of a shape, without its layout in memory, which does not change what is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// The dtype as HLO spells it: `bf16`, `s32`, `pred`.
    pub dtype: String,
    /// Bits of an element.
    pub bits: u64,
    /// The sizes of its dims on one device.
    pub dims: Vec<u64>,
}

impl Array {
    /// Its number of elements; `None` if they are more than 2^64.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1_u64, |n, dim| n.checked_mul(*dim))
    }

    /// Its number of bytes, rounded up; `None` if they are more than 2^64.
    pub fn bytes(&self) -> Option<u64> {
        let bits = u128::from(self.elements()?) * u128::from(self.bits);
        u64::try_from(bits.div_ceil(8)).ok()
    }
}

impl std::fmt::Display for Array {
    /// `bf16[4,256]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(u64::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(","))
    }
}

/// The arrays of a shape, those of tuples in order; a token has none. `None` for a text that is no
/// shape.
///
/// ```
/// use shard_audit::hlo::shape::arrays;
///
/// let found = arrays("(bf16[4,256]{1,0:T(8,128)(2,1)S(1)}, /*index=1*/u32[], token[])").unwrap();
/// assert_eq!(found.iter().map(|a| a.bytes().unwrap()).collect::<Vec<_>>(), [2048, 4]);
/// ```
pub fn arrays(text: &str) -> Option<Vec<Array>> {
    let mut found = Vec::new();
    // The parts that are still to be read, the next one last: a list in place of a recursion.
    let mut left = vec![text];
    while let Some(text) = left.pop() {
        let text = without_comment(text.trim());
        match text.strip_prefix('(') {
            Some(inner) => {
                let parts = parts(inner.strip_suffix(')')?).ok()?;
                left.extend(parts.into_iter().rev().map(|(_, part)| part));
            }
            None => found.extend(array(text)?),
        }
    }
    Some(found)
}

/// The only array of a shape that is no tuple.
pub fn single(text: &str) -> Option<Array> {
    let mut arrays = arrays(text)?;
    if arrays.len() == 1 { arrays.pop() } else { None }
}

/// The text behind a comment like `/*index=5*/`, if it begins with one.
pub(crate) fn without_comment(text: &str) -> &str {
    match text.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
        Some((_, rest)) => rest.trim_start(),
        None => text,
    }
}

/// One array; `Some(None)` for a token.
fn array(text: &str) -> Option<Option<Array>> {
    let (dtype, rest) = text.split_once('[')?;
    let (dims, _) = rest.split_once(']')?;
    if matches!(dtype, "token" | "opaque") {
        return Some(None);
    }
    let bits = bits(dtype)?;
    let dims = dims
        .split(',')
        .map(|dim| dim.trim().trim_start_matches("<=").trim())
        .filter(|dim| !dim.is_empty())
        .map(|dim| dim.parse().ok())
        .collect::<Option<Vec<u64>>>()?;
    Some(Some(Array { dtype: dtype.to_string(), bits, dims }))
}

/// The bits of an element of a dtype: the first digits of its name, as in `bf16`, `s4` and
/// `f8e4m3fn`.
fn bits(dtype: &str) -> Option<u64> {
    match dtype {
        "pred" => return Some(8),
        "c64" => return Some(64),
        "c128" => return Some(128),
        _ => {}
    }
    let digits = ["bf", "f", "s", "u"].iter().find_map(|kind| dtype.strip_prefix(kind))?;
    let long = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = digits.split_at(long);
    let known = rest.is_empty() || rest.starts_with('e');
    number.parse().ok().filter(|bits| known && matches!(bits, 1 | 2 | 4 | 6 | 8 | 16 | 32 | 64))
}
