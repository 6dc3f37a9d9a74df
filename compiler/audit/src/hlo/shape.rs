//! Shapes: `bf16[4,256]{1,0:T(8,128)}`, `(f32[2], /*index=1*/u32[])`.

use super::scan::parts;

/// One array of a shape. Its layout in memory changes nothing of what is sent, and is left out.
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
    /// How many elements it has; `None` where they are more than 2^64.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1_u64, |n, dim| n.checked_mul(*dim))
    }

    /// How many bytes it has, a part of a byte counted as one; `None` where they are more than
    /// 2^64.
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

/// The arrays of a shape, those of tuples in order; tokens have none. `None` for what is no shape.
///
/// ```
/// use shard_audit::hlo::shape::arrays;
///
/// let found = arrays("(bf16[4,256]{1,0:T(8,128)(2,1)S(1)}, /*index=1*/u32[], token[])").unwrap();
/// assert_eq!(found.iter().map(|a| a.bytes().unwrap()).collect::<Vec<_>>(), [2048, 4]);
/// ```
pub fn arrays(text: &str) -> Option<Vec<Array>> {
    let mut found = Vec::new();
    // What is still to be read, last first: so a shape of any depth takes no stack.
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

/// What stands behind a comment like `/*index=5*/`.
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

/// Bits of an element of a dtype: its digits, as in `bf16` and `s4`; of `f8e4m3fn` the first ones.
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
