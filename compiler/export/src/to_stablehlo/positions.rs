//! Ops that depend on the position of an element in a dim: masks, rotary embeddings, caches, sums
//! and recurrences.

use super::builder::{Builder, Value};
use super::element::Element;
use shard_ir::Reduction;

/// Pair i of n/2 in a rotary embedding turns by the angle `position * BASE^(-2i/n)`.
const BASE: f64 = 10_000.0;

/// The position of every element of a block along a dim of the whole tensor, plus `later`; `begins`
/// is the first position of the block.
pub(crate) fn places(
    b: &mut Builder,
    shape: &[u64],
    dim: usize,
    begins: Option<&Value>,
    later: u64,
) -> Value {
    let mut at = b.iota(shape, dim, Element::I32);
    if let Some(begins) = begins {
        let begins = b.broadcast(begins, shape, &[]);
        at = b.binary("add", &at, &begins);
    }
    if later > 0 {
        at = b.with_number("add", &at, later as f64);
    }
    at
}

/// Scores with minus infinity where a query does not see a key: a key that is later than the query,
/// or one before the last `window` keys. Position i of the queries is position i + `later` of the
/// keys.
pub(crate) fn mask(
    b: &mut Builder,
    a: &Value,
    [query, key]: [usize; 2],
    [query_begins, key_begins]: [Option<Value>; 2],
    later: u64,
    window: Option<u64>,
) -> Value {
    let at_query = places(b, &a.shape, query, query_begins.as_ref(), later);
    let at_key = places(b, &a.shape, key, key_begins.as_ref(), 0);
    let hidden = b.compare("GT", &at_key, &at_query);
    let least = b.splat(f64::NEG_INFINITY, &a.shape, a.element);
    let masked = b.select(&hidden, &least, a);
    let Some(window) = window else { return masked };
    let shows_until = b.with_number("add", &at_key, window as f64);
    let past = b.compare("LE", &shows_until, &at_query);
    b.select(&past, &least, &masked)
}

/// A rotary embedding, computed in floats of at least 32 bits: element i of the first half of a dim
/// and element i of the second half are a pair, which is turned by its position along another dim,
/// plus `earlier`.
pub(crate) fn rope(
    b: &mut Builder,
    a: &Value,
    [dim, position]: [usize; 2],
    begins: Option<Value>,
    earlier: u64,
) -> Value {
    let wide = b.convert(a, a.element.wide());
    let n = a.shape[dim];
    let mut half = a.shape.clone();
    half[dim] = n / 2;
    let at = places(b, &half, position, begins.as_ref(), earlier);
    let at = b.convert(&at, wide.element);
    let pair = b.iota(&half, dim, Element::I32);
    let pair = b.convert(&pair, wide.element);
    let power = b.with_number("multiply", &pair, -2.0);
    let power = b.with_number("divide", &power, n as f64);
    let base = b.splat(BASE, &half, wide.element);
    let speed = b.binary("power", &base, &power);
    let angle = b.binary("multiply", &at, &speed);
    let (cosine, sine) = (b.unary("cosine", &angle), b.unary("sine", &angle));
    let (low, high) = (b.slice(&wide, dim, 0, n / 2), b.slice(&wide, dim, n / 2, n));
    let turned = |b: &mut Builder, op: &str, own: &Value, other: &Value| {
        let own = b.binary("multiply", own, &cosine);
        let other = b.binary("multiply", other, &sine);
        b.binary(op, &own, &other)
    };
    let new_low = turned(b, "subtract", &low, &high);
    let new_high = turned(b, "add", &high, &low);
    let both = b.concatenate(&new_low, &new_high, dim);
    b.convert(&both, a.element)
}

/// The block of a cache that begins at position `begins`, with the new rows at the positions from
/// `first` on of the whole cache.
pub(crate) fn append_block(
    b: &mut Builder,
    cache: &Value,
    new: &Value,
    dim: usize,
    begins: Value,
    first: u64,
) -> Value {
    // With as many rows of zeros in front as the block has, the rows for the block are a slice.
    let size = cache.shape[dim];
    let mut shape = cache.shape.clone();
    shape[dim] = size + new.shape[dim];
    let zeros = b.splat(0.0, &shape, cache.element);
    let start = b.count(size);
    let all = b.update(&zeros, new, dim, &start);
    let at = b.with_number("subtract", &begins, first as f64);
    let at = b.with_number("add", &at, size as f64);
    let at = b.with_number("maximum", &at, 0.0);
    let rows = b.dynamic_slice(&all, dim, &at, size);
    let position = places(b, &cache.shape, dim, Some(&begins), 0);
    let is_new = b.compare_number("GE", &position, first as f64);
    b.select(&is_new, &rows, cache)
}

/// Each position has the value of the position `by` before it; the first `by` positions are 0.
pub(crate) fn shift(b: &mut Builder, a: &Value, dim: usize, by: u64) -> Value {
    let size = a.shape[dim];
    let by = by.min(size);
    let mut front = a.shape.clone();
    front[dim] = by;
    let zeros = b.splat(0.0, &front, a.element);
    if by == size {
        return zeros;
    }
    let kept = b.slice(a, dim, 0, size - by);
    b.concatenate(&zeros, &kept, dim)
}

/// At each position the sum up to that position. Steps give the sums of the last 1, 2, 4, ..
/// positions, each from two sums of the step before. Floats are added in at least 32 bits.
pub(crate) fn cumsum(b: &mut Builder, a: &Value, dim: usize) -> Value {
    let mut sums = if a.element.is_float() { b.convert(a, a.element.wide()) } else { a.clone() };
    let mut reach = 1;
    while reach < a.shape[dim] {
        let before = shift(b, &sums, dim, reach);
        sums = b.binary("add", &sums, &before);
        reach *= 2;
    }
    b.convert(&sums, a.element)
}

/// A causal convolution: at each position the sum of the last values, the value there included,
/// each times its tap. The weights have the dim of the taps in front of the dims of the value.
pub(crate) fn conv(b: &mut Builder, a: &Value, weights: &Value, dim: usize) -> Value {
    let taps = weights.shape[0];
    let term = |b: &mut Builder, back: u64| {
        let tap = b.slice(weights, 0, taps - 1 - back, taps - back);
        let tap = b.reshape(&tap, &a.shape);
        let before = if back == 0 { a.clone() } else { shift(b, a, dim, back) };
        b.binary("multiply", &before, &tap)
    };
    let mut sum = term(b, 0);
    for back in 1..taps.min(a.shape[dim]) {
        let next = term(b, back);
        sum = b.binary("add", &sum, &next);
    }
    sum
}

/// Minus the first position at which a value equals the one that is sought (NaN equals NaN); the
/// least int32 where none does.
pub(crate) fn locate(
    b: &mut Builder,
    a: &Value,
    sought: &Value,
    dim: usize,
    begins: Option<&Value>,
) -> Value {
    let is_equal = b.compare("EQ", a, sought);
    let at = places(b, &a.shape, dim, begins, 0);
    let at = b.unary("negate", &at);
    let least = b.splat(f64::from(i32::MIN), &a.shape, Element::I32);
    let mut found = b.select(&is_equal, &at, &least);
    if a.element.is_float() {
        let is_none = [a, sought].map(|side| b.compare("NE", side, side));
        let of_sought = b.select(&is_none[1], &at, &least);
        found = b.select(&is_none[0], &of_sought, &found);
    }
    b.reduce(Reduction::Max, &found, &[dim])
}

/// The first position of the largest value along a dim.
pub(crate) fn argmax(b: &mut Builder, a: &Value, dim: usize) -> Value {
    let largest = b.reduce(Reduction::Max, a, &[dim]);
    let into: Vec<usize> = (0..a.shape.len()).filter(|at| *at != dim).collect();
    let largest = b.broadcast(&largest, &a.shape, &into);
    let found = locate(b, a, &largest, dim, None);
    b.unary("negate", &found)
}

/// The value from position `offset` on along a dim of `size` positions, and zeros around it.
pub(crate) fn pad(b: &mut Builder, a: &Value, dim: usize, [offset, size]: [u64; 2]) -> Value {
    let mut shape = a.shape.clone();
    shape[dim] = size;
    let zeros = b.splat(0.0, &shape, a.element);
    let start = b.count(offset);
    b.update(&zeros, a, dim, &start)
}

/// The recurrence `s[i] = a[i] + factor[i] * s[i - 1]`. Steps give the results over the last 1, 2,
/// 4, .. positions, each from two results of the step before.
pub(crate) fn scan(b: &mut Builder, a: &Value, factor: &Value, dim: usize) -> Value {
    let (mut sums, mut factor) = (a.clone(), factor.clone());
    let mut reach = 1;
    while reach < a.shape[dim] {
        let before = shift(b, &sums, dim, reach);
        let carried = b.binary("multiply", &factor, &before);
        sums = b.binary("add", &sums, &carried);
        let before = shift(b, &factor, dim, reach);
        factor = b.binary("multiply", &factor, &before);
        reach *= 2;
    }
    sums
}
