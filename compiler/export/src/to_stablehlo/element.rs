//! Element types of StableHLO, and numbers as its text has them.

use shard_ir::{Dtype, Reduction};

use crate::dtypes::Floats;

shard_ir::worded! {
    /// The element type of a tensor.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Element {
        F64 = "f64",
        F32 = "f32",
        Bf16 = "bf16",
        F16 = "f16",
        F8 = "f8E4M3FN",
        F4 = "f4E2M1FN",
        I32 = "i32",
        I8 = "i8",
        I4 = "i4",
        Bool = "i1",
        /// The type of `partition_id` alone.
        Unsigned = "ui32",
    }
    /// The word of MLIR for it.
    fn name;
}

impl Element {
    /// The element type for a dtype of the plan, in the floats in which the module computes.
    pub(crate) fn of(dtype: Dtype, floats: Floats) -> Element {
        match (dtype, floats) {
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4, Floats::F64) => {
                Element::F64
            }
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4, Floats::F32)
            | (Dtype::F32, Floats::Stated) => Element::F32,
            (Dtype::Bf16, Floats::Stated) => Element::Bf16,
            (Dtype::F16, Floats::Stated) => Element::F16,
            (Dtype::F8, Floats::Stated) => Element::F8,
            (Dtype::F4, Floats::Stated) => Element::F4,
            (Dtype::Int32, _) => Element::I32,
            (Dtype::Int8, _) => Element::I8,
            (Dtype::Int4, _) => Element::I4,
            (Dtype::Bool, _) => Element::Bool,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        self.range().is_none()
    }

    /// The largest number of a type of floats that has no infinity; `None` of other types.
    pub(crate) fn largest(self) -> Option<f64> {
        match self {
            Element::F8 => Some(448.0),
            Element::F4 => Some(6.0),
            Element::F64
            | Element::F32
            | Element::Bf16
            | Element::F16
            | Element::I32
            | Element::I8
            | Element::I4
            | Element::Bool
            | Element::Unsigned => None,
        }
    }

    /// The type for computations in which roundings would add up: floats of at least 32 bits.
    pub(crate) fn wide(self) -> Element {
        if self.is_float() && self != Element::F64 { Element::F32 } else { self }
    }

    /// The least and the largest number of a type of whole numbers; `None` of floats.
    pub(crate) fn range(self) -> Option<(i64, i64)> {
        match self {
            Element::I32 => Some((-(1 << 31), (1 << 31) - 1)),
            Element::I8 => Some((-128, 127)),
            Element::I4 => Some((-8, 7)),
            Element::Bool => Some((0, 1)),
            Element::Unsigned => Some((0, (1 << 32) - 1)),
            Element::F64
            | Element::F32
            | Element::Bf16
            | Element::F16
            | Element::F8
            | Element::F4 => None,
        }
    }

    /// The word of `stablehlo.compare` for numbers of this type.
    pub(crate) fn comparison(self) -> &'static str {
        match self.range() {
            None => "FLOAT",
            Some((least, _)) if least < 0 => "SIGNED",
            Some(_) => "UNSIGNED",
        }
    }

    /// Minus infinity of floats, the least number of other types.
    pub(crate) fn least(self) -> f64 {
        match self.range() {
            Some((least, _)) => least as f64,
            None => f64::NEG_INFINITY,
        }
    }

    /// The number that changes no other term of a reduction.
    pub(crate) fn neutral(self, kind: Reduction) -> f64 {
        match kind {
            Reduction::Sum => 0.0,
            Reduction::Max => self.least(),
        }
    }

    /// A number as it is written inside `dense<..>`. A number that the type cannot hold becomes the
    /// nearest that it can hold; NaN becomes 0 where the type has no NaN.
    pub(crate) fn literal(self, value: f64) -> String {
        if let Some((least, most)) = self.range() {
            let whole = if value.is_nan() { 0 } else { (value as i64).clamp(least, most) };
            let truth = self == Element::Bool;
            return if truth { (whole != 0).to_string() } else { whole.to_string() };
        }
        let value = self.largest().map_or(value, |largest| value.clamp(-largest, largest));
        if value.is_finite() {
            let text = format!("{value:?}");
            return match text.split_once('e') {
                Some((digits, power)) if !digits.contains('.') => format!("{digits}.0e{power}"),
                _ => text,
            };
        }
        // MLIR writes infinities and NaN by their bits.
        let [infinity, negative, no_number] = match self {
            Element::F64 => ["0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000"],
            Element::F32 => ["0x7F800000", "0xFF800000", "0x7FC00000"],
            Element::Bf16 => ["0x7F80", "0xFF80", "0x7FC0"],
            Element::F16 => ["0x7C00", "0xFC00", "0x7E00"],
            Element::F8 => ["0x7E", "0xFE", "0x7F"],
            Element::F4 => ["6.0", "-6.0", "0.0"],
            Element::I32 | Element::I8 | Element::I4 | Element::Bool | Element::Unsigned => {
                ["0"; 3]
            }
        };
        match value {
            v if v == f64::INFINITY => infinity,
            v if v == f64::NEG_INFINITY => negative,
            _ => no_number,
        }
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_mlir_reads_them() {
        assert_eq!(Element::F32.literal(1.0), "1.0");
        assert_eq!(Element::F64.literal(1e-6), "1.0e-6");
        assert_eq!(Element::F64.literal(1.5e300), "1.5e300");
        assert_eq!(Element::Bf16.literal(f64::NEG_INFINITY), "0xFF80");
        assert_eq!(Element::F8.literal(f64::NEG_INFINITY), "-448.0");
        assert_eq!(Element::F8.literal(f64::NAN), "0x7F");
        assert_eq!(Element::F4.literal(f64::INFINITY), "6.0");
        assert_eq!(Element::F4.literal(f64::NAN), "0.0");
        assert_eq!(Element::I8.literal(-1e9), "-128");
        assert_eq!(Element::Bool.literal(1.0), "true");
    }
}
