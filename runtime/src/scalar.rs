//! Maps and binaries on single numbers.

use shard_ir::{Binary, Map};

/// A map of one number. It is inlined, so that the compiler moves the choice of the map out of the
/// loops that call it.
#[inline(always)]
pub(crate) fn map(map: Map, a: f64) -> f64 {
    let sigmoid = |a: f64| 1.0 / (1.0 + (-a).exp());
    match map {
        Map::Neg => -a,
        // a (1 + tanh u) / 2 with one exponential, since (1 + tanh u) / 2 = 1 / (1 + exp -2u).
        Map::Gelu => {
            a * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (a + 0.044715 * a * a * a))
        }
        Map::Relu => maximum(a, 0.0),
        Map::Silu => a * sigmoid(a),
        Map::Sigmoid => sigmoid(a),
        Map::Tanh => a.tanh(),
        Map::Exp => a.exp(),
        // log(1 + exp a), in a form in which the exponential of a large number does not overflow.
        Map::Softplus => a.max(0.0) + (-a.abs()).exp().ln_1p(),
        Map::Log => a.ln(),
        Map::Sqrt => a.sqrt(),
        Map::Rsqrt => 1.0 / a.sqrt(),
        Map::Square => a * a,
        Map::Abs => a.abs(),
    }
}

/// A binary op on two numbers. If `whole`, a division is one of integers: it truncates toward zero,
/// and gives 0 if the divisor is 0.
pub(crate) fn binary(binary: Binary, a: f64, b: f64, whole: bool) -> f64 {
    match binary {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div if whole => {
            if b == 0.0 {
                0.0
            } else {
                (a / b).trunc()
            }
        }
        Binary::Div => a / b,
        Binary::Maximum => maximum(a, b),
        Binary::Minimum => -maximum(-a, -b),
        Binary::Less => truth(a < b),
        Binary::LessEqual => truth(a <= b),
        Binary::Equal => truth(a == b),
    }
}

/// A truth value as a number.
fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// The larger of two; NaN if either is.
pub(crate) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}
