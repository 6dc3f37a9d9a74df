//! [`Arithmetic`]: how results are rounded, and up to which difference they count as equal.

use shard_ir::op::Flag;
use shard_ir::{Dtype, InstrKind, Instruction, Plan};

/// Whole numbers up to this one are exact in an `f64`.
pub const EXACT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// How results are rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// Whole numbers, exactly.
    Exact,
    /// Every value is rounded to `f32` once its sum is complete. Sums are taken in `f64`, those of
    /// terms on several devices too, so that their order hardly changes a result. Integers are
    /// exact.
    F32,
    /// For large plans: as [`Arithmetic::F32`], but all floats are held as `f32`, terms too, and
    /// large products are taken in `f32` and summed in `f64` block by block.
    Single,
    /// Every result, and every partial sum that travels, is rounded to the value's own dtype;
    /// integers saturate.
    Emulated,
}

impl Arithmetic {
    /// The value that an element of this dtype holds.
    pub fn round(self, dtype: Dtype, value: f64) -> f64 {
        match self {
            Arithmetic::Exact => value,
            Arithmetic::F32 | Arithmetic::Single if dtype.is_float() => f64::from(value as f32),
            Arithmetic::F32 | Arithmetic::Single => value,
            Arithmetic::Emulated => round_to(dtype, value),
        }
    }

    /// The term of a sum that is not complete yet: only [`Arithmetic::Emulated`] rounds it.
    pub fn round_term(self, dtype: Dtype, value: f64) -> f64 {
        match self {
            Arithmetic::Exact | Arithmetic::F32 | Arithmetic::Single => value,
            Arithmetic::Emulated => round_to(dtype, value),
        }
    }

    /// Rounds elements of a value, or of a term of a sum that is not taken yet; `None` where whole
    /// numbers leave the range in which they are exact.
    pub(crate) fn round_all(self, dtype: Dtype, is_term: bool, data: &mut [f64]) -> Option<()> {
        match self {
            Arithmetic::Exact => {
                let is_exact = |v: &f64| !v.is_finite() || v.abs() <= EXACT_LIMIT;
                return data.iter().all(is_exact).then_some(());
            }
            Arithmetic::F32 | Arithmetic::Single => {
                if dtype.is_float() && !is_term {
                    data.iter_mut().for_each(|v| *v = f64::from(*v as f32));
                }
            }
            Arithmetic::Emulated => data.iter_mut().for_each(|v| *v = round_to(dtype, *v)),
        }
        Some(())
    }

    /// The difference, as a part of a result's scale, up to which two results count as equal: 0 in
    /// exact arithmetic, 1e-5 in `f32`, and with emulated dtypes eight roundings of the coarsest
    /// float dtype that the plan computes in. ([`run`](crate::run) adds to the last one twice the
    /// error that roundings make in the unsharded program.)
    pub fn tolerance(self, plan: &Plan) -> f64 {
        match self {
            Arithmetic::Exact => 0.0,
            Arithmetic::F32 | Arithmetic::Single => 1e-5,
            Arithmetic::Emulated => plan
                .instructions
                .iter()
                .filter(|i| rounds(plan, i))
                .map(|i| match i.dtype {
                    Dtype::Bf16 => 8.0 / 256.0,
                    Dtype::F16 => 8.0 / 2048.0,
                    Dtype::F8 => 8.0 / 16.0,
                    Dtype::F4 => 8.0 / 4.0,
                    Dtype::F32 | Dtype::Int32 | Dtype::Int8 | Dtype::Int4 | Dtype::Bool => 1e-5,
                })
                .fold(1e-5, f64::max),
        }
    }
}

/// Whether an instruction rounds. Parameters, and ops and moves that only put values elsewhere,
/// have the same values in the plan and in the unsharded program.
fn rounds(plan: &Plan, instruction: &Instruction) -> bool {
    match &instruction.kind {
        InstrKind::Parameter(_) => false,
        InstrKind::Op(op) => !op.row().is(Flag::View) && !op.row().is(Flag::KeepsValues),
        InstrKind::Move(_) => {
            instruction.operands.iter().any(|o| !plan.instruction(*o).layout.is_complete())
        }
        InstrKind::Constant(_) | InstrKind::CollectiveEinsum(_) => true,
    }
}

/// Whether all instructions of a plan map whole numbers to whole numbers, each step without
/// rounding.
pub fn allows_exact(plan: &Plan) -> bool {
    plan.instructions.iter().all(|i| match &i.kind {
        InstrKind::Parameter(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => true,
        InstrKind::Constant(number) => {
            let value = plan.number(*number);
            value.fract() == 0.0 && value.abs() <= 1024.0
        }
        InstrKind::Op(op) => op.row().is(Flag::Exact),
    })
}

/// A value cast to a dtype: floats rounded to nearest, ties to even, `f8` and `f4` saturated;
/// integers truncated toward zero and saturated; a truth value is 0 or 1.
pub fn round_to(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(value as f32),
        Dtype::Bf16 => {
            round_float(value, 7, -126, f64::from_bits(0x47ef_e000_0000_0000), f64::INFINITY)
        }
        Dtype::F16 => round_float(value, 10, -14, 65504.0, f64::INFINITY),
        // e4m3, which has no infinity: it saturates.
        Dtype::F8 => round_float(value, 3, -6, 448.0, 448.0),
        // e2m1, which has neither infinities nor NaN.
        Dtype::F4 if value.is_nan() => 0.0,
        Dtype::F4 => {
            round_float(value.clamp(-LARGEST_F4, LARGEST_F4), 1, 0, LARGEST_F4, LARGEST_F4)
        }
        Dtype::Int32 => saturate(value, 31),
        Dtype::Int8 => saturate(value, 7),
        Dtype::Int4 => saturate(value, 3),
        Dtype::Bool => f64::from(u8::from(value != 0.0)),
    }
}

/// The largest number of `f4`.
const LARGEST_F4: f64 = 6.0;

fn saturate(value: f64, bits: i32) -> f64 {
    let limit = 2f64.powi(bits);
    if value.is_nan() { 0.0 } else { value.trunc().clamp(-limit, limit - 1.0) }
}

/// Rounds to so many bits behind the leading one, with gradual underflow below `2^least_exponent`;
/// past `largest` comes `overflow`.
fn round_float(value: f64, bits: i32, least_exponent: i32, largest: f64, overflow: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(least_exponent);
    let unit = 2f64.powi(exponent - bits);
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() > largest { overflow.copysign(value) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_round_to_nearest_even() {
        assert_eq!(round_to(Dtype::Bf16, 1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(round_to(Dtype::Bf16, 1.0 + 3.0 / 256.0), 1.0 + 2.0 / 128.0);
        assert_eq!(round_to(Dtype::Bf16, 3.4e38), f64::INFINITY);
        assert_eq!(round_to(Dtype::Bf16, 3.3895313892515355e38), 3.3895313892515355e38);
        assert_eq!(round_to(Dtype::F16, 65520.0), f64::INFINITY);
        assert_eq!(round_to(Dtype::F16, 6e-8), 2f64.powi(-24));
        assert_eq!(round_to(Dtype::F8, 1e6), 448.0);
        assert_eq!(round_to(Dtype::F8, 1.06), 1.0);
        for (value, nearest) in [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0)] {
            assert_eq!(round_to(Dtype::F4, value), nearest);
        }
        for (value, nearest) in [(3.5, 4.0), (5.0, 4.0), (5.1, 6.0), (-7.5, -6.0), (-0.3, -0.5)] {
            assert_eq!(round_to(Dtype::F4, value), nearest);
        }
        assert_eq!(round_to(Dtype::F4, f64::NEG_INFINITY), -6.0);
        assert_eq!(round_to(Dtype::F4, f64::NAN), 0.0);
        assert_eq!(round_to(Dtype::Int8, -300.7), -128.0);
        assert_eq!(round_to(Dtype::Int4, 2.9), 2.0);
        assert_eq!(round_to(Dtype::Bool, 0.5), 1.0);
        assert_eq!(round_to(Dtype::Int32, f64::NEG_INFINITY), -2147483648.0);
    }

    #[test]
    fn bf16_agrees_with_the_bits_of_f32() {
        let mut random = crate::Random::new(3);
        for _ in 0..10_000 {
            let f = f32::from_bits(random.next_u64() as u32);
            if f.is_finite() {
                let bits = f.to_bits();
                let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
                let expected = f64::from(f32::from_bits(rounded));
                let got = round_to(Dtype::Bf16, f64::from(f));
                assert!(got == expected, "{f} {got} {expected}");
            }
        }
    }
}
