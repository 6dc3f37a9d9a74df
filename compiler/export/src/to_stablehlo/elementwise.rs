//! Maps, binaries, casts, reductions, and what normalises along a dim.

use shard_ir::op::{Flag, NORM_EPSILON};
use shard_ir::{Binary, Map, Norm, Reduce, Reduction};

use super::builder::{Builder, Value};
use super::element::Element;

/// An elementwise map. A map that is not exact is computed in floats of at least 32 bits.
pub(crate) fn map(b: &mut Builder, map: Map, a: &Value) -> Value {
    let wide = if map.row().is(Flag::Exact) { a.element } else { a.element.wide() };
    let wide = b.convert(a, wide);
    let mapped = match map {
        Map::Neg => b.unary("negate", &wide),
        Map::Gelu => gelu(b, &wide),
        Map::Relu => b.with_number("maximum", &wide, 0.0),
        Map::Silu => {
            let gate = b.unary("logistic", &wide);
            b.binary("multiply", &wide, &gate)
        }
        Map::Sigmoid => b.unary("logistic", &wide),
        Map::Tanh => b.unary("tanh", &wide),
        Map::Exp => b.unary("exponential", &wide),
        Map::Softplus => softplus(b, &wide),
        Map::Log => b.unary("log", &wide),
        Map::Sqrt => b.unary("sqrt", &wide),
        Map::Rsqrt => b.unary("rsqrt", &wide),
        Map::Square => b.binary("multiply", &wide, &wide),
        Map::Abs => b.unary("abs", &wide),
    };
    b.convert(&mapped, a.element)
}

/// `max(a, 0) + log(1 + exp(-|a|))`, which no large number overflows.
fn softplus(b: &mut Builder, a: &Value) -> Value {
    let size = b.unary("abs", a);
    let below = b.unary("negate", &size);
    let power = b.unary("exponential", &below);
    let rest = b.unary("log_plus_one", &power);
    let above = b.with_number("maximum", a, 0.0);
    b.binary("add", &above, &rest)
}

/// The tanh form: `a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3)))`.
fn gelu(b: &mut Builder, a: &Value) -> Value {
    let square = b.binary("multiply", a, a);
    let cube = b.binary("multiply", &square, a);
    let cube = b.with_number("multiply", &cube, 0.044715);
    let inner = b.binary("add", a, &cube);
    let inner = b.with_number("multiply", &inner, (2.0 / std::f64::consts::PI).sqrt());
    let bent = b.unary("tanh", &inner);
    let gate = b.with_number("add", &bent, 1.0);
    let half = b.with_number("multiply", a, 0.5);
    b.binary("multiply", &half, &gate)
}

/// Two values of one shape and type combined.
pub(crate) fn binary(b: &mut Builder, binary: Binary, left: &Value, right: &Value) -> Value {
    match binary {
        Binary::Add => b.binary("add", left, right),
        Binary::Sub => b.binary("subtract", left, right),
        Binary::Mul => b.binary("multiply", left, right),
        Binary::Div if left.element.is_float() => b.binary("divide", left, right),
        // A quotient of whole numbers is truncated toward zero, and 0 where the divisor is 0.
        Binary::Div => {
            let zero = b.splat(0.0, &right.shape, right.element);
            let one = b.splat(1.0, &right.shape, right.element);
            let by_zero = b.compare("EQ", right, &zero);
            let divisor = b.select(&by_zero, &one, right);
            let quotient = b.binary("divide", left, &divisor);
            b.select(&by_zero, &zero, &quotient)
        }
        Binary::Maximum => b.binary("maximum", left, right),
        Binary::Minimum => b.binary("minimum", left, right),
        Binary::Less => b.compare("LT", left, right),
        Binary::LessEqual => b.compare("LE", left, right),
        Binary::Equal => b.compare("EQ", left, right),
    }
}

/// The cast of a value to another type. Floats that become whole numbers are truncated toward zero;
/// a number outside the range of the type becomes the nearest inside, and NaN becomes 0.
pub(crate) fn cast(b: &mut Builder, a: &Value, to: Element) -> Value {
    if a.element == to || to.is_float() || a.element == Element::Bool {
        return b.convert(a, to);
    }
    if to == Element::Bool {
        return b.compare_number("NE", a, 0.0);
    }
    let Some((least, most)) = to.range() else { return b.convert(a, to) };
    let [least, most] = [least, most].map(|end| end as f64);
    if let Some((lower, upper)) = a.element.range() {
        if lower as f64 >= least && upper as f64 <= most {
            return b.convert(a, to);
        }
        let above = b.with_number("maximum", a, least);
        let inside = b.with_number("minimum", &above, most);
        return b.convert(&inside, to);
    }
    let wide = b.convert(a, a.element.wide());
    let no_number = b.compare("NE", &wide, &wide);
    let zero = b.splat(0.0, &wide.shape, wide.element);
    let wide = b.select(&no_number, &zero, &wide);
    let above = b.with_number("maximum", &wide, least);
    let inside = b.with_number("minimum", &above, most);
    let inside = b.convert(&inside, to);
    // The largest whole number may not be a float of this type: the nearest float may be above it.
    let is_most = b.compare_number("GE", &wide, most);
    let most = b.splat(most, &wide.shape, to);
    b.select(&is_most, &most, &inside)
}

/// A reduction over some dims of a device's block. `count` is the number of elements on all devices
/// that one element of the result is reduced from.
pub(crate) fn reduce(
    b: &mut Builder,
    kind: Reduce,
    a: &Value,
    over: &[usize],
    count: u64,
) -> Value {
    match kind {
        Reduce::Sum => b.sum(a, over),
        Reduce::Mean => {
            let wide = b.convert(a, a.element.wide());
            let mean = mean(b, &wide, over, count);
            b.convert(&mean, a.element)
        }
        Reduce::Max => b.reduce(Reduction::Max, a, over),
    }
}

fn mean(b: &mut Builder, wide: &Value, over: &[usize], count: u64) -> Value {
    let sum = b.reduce(Reduction::Sum, wide, over);
    b.with_number("divide", &sum, count as f64)
}

/// A value that lacks a dim, broadcast along that dim to a shape.
fn along(b: &mut Builder, a: &Value, shape: &[u64], dim: usize) -> Value {
    let into: Vec<usize> = (0..shape.len()).filter(|at| *at != dim).collect();
    b.broadcast(a, shape, &into)
}

/// `exp(a) / sum(exp(a))` along a dim, where the largest is subtracted from all exponents. Sinks
/// have the shape of the value; `exp(sinks)` is one term more of the sum.
pub(crate) fn softmax(b: &mut Builder, a: &Value, sinks: Option<&Value>, dim: usize) -> Value {
    let wide = b.convert(a, a.element.wide());
    let sinks = sinks.map(|sinks| b.convert(sinks, wide.element));
    let largest = b.reduce(Reduction::Max, &wide, &[dim]);
    let mut largest = along(b, &largest, &wide.shape, dim);
    if let Some(sinks) = &sinks {
        largest = b.binary("maximum", &largest, sinks);
    }
    let below = b.binary("subtract", &wide, &largest);
    let powers = b.unary("exponential", &below);
    let sum = b.reduce(Reduction::Sum, &powers, &[dim]);
    let mut sum = along(b, &sum, &wide.shape, dim);
    if let Some(sinks) = &sinks {
        let sinks = b.binary("subtract", sinks, &largest);
        let sinks = b.unary("exponential", &sinks);
        sum = b.binary("add", &sum, &sinks);
    }
    let parts = b.binary("divide", &powers, &sum);
    b.convert(&parts, a.element)
}

/// The softmax over the keys of a device, and its statistics, the logarithm of the sum of `exp(a)`.
/// A query that sees no key of the device has the weights 0 and the statistics minus infinity.
pub(crate) fn softmax_of_part(b: &mut Builder, a: &Value, dim: usize) -> [Value; 2] {
    let wide = b.convert(a, a.element.wide());
    let largest = b.reduce(Reduction::Max, &wide, &[dim]);
    let seen = b.compare_number("GT", &largest, f64::NEG_INFINITY);
    let zero = b.splat(0.0, &largest.shape, largest.element);
    let finite = b.select(&seen, &largest, &zero);
    let beside = along(b, &finite, &wide.shape, dim);
    let below = b.binary("subtract", &wide, &beside);
    let powers = b.unary("exponential", &below);
    let sum = b.reduce(Reduction::Sum, &powers, &[dim]);
    let one = b.splat(1.0, &sum.shape, sum.element);
    let sum = b.select(&seen, &sum, &one);
    let beside = along(b, &sum, &wide.shape, dim);
    let parts = b.binary("divide", &powers, &beside);
    let parts = b.convert(&parts, a.element);
    // Where the device sees no key, this is minus infinity plus 0.
    let logarithm = b.unary("log", &sum);
    [parts, b.binary("add", &largest, &logarithm)]
}

/// A normalisation along a dim, without learned scales.
pub(crate) fn norm(b: &mut Builder, kind: Norm, a: &Value, dim: usize) -> Value {
    let mut wide = b.convert(a, a.element.wide());
    let count = wide.shape[dim];
    match kind {
        Norm::Rms => {}
        Norm::Layer => {
            let centre = mean(b, &wide, &[dim], count);
            let centre = along(b, &centre, &wide.shape, dim);
            wide = b.binary("subtract", &wide, &centre);
        }
    }
    let squares = b.binary("multiply", &wide, &wide);
    let square = mean(b, &squares, &[dim], count);
    let square = b.with_number("add", &square, NORM_EPSILON);
    let scale = b.unary("rsqrt", &square);
    let scale = along(b, &scale, &wide.shape, dim);
    let scaled = b.binary("multiply", &wide, &scale);
    b.convert(&scaled, a.element)
}
