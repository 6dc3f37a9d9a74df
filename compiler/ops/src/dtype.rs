//! The types of elements.

use std::fmt;

crate::worded! {
    /// The type of an element.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Dtype {
        /// 32-bit float.
        F32 = "f32",
        /// bfloat16.
        Bf16 = "bf16",
        /// IEEE half.
        F16 = "f16",
        /// 8-bit float.
        F8 = "f8",
        /// 4-bit float, e2m1: two to a byte.
        F4 = "f4",
        /// 8-bit integer.
        Int8 = "int8",
        /// 4-bit integer: two to a byte.
        Int4 = "int4",
        /// 32-bit integer.
        Int32 = "int32",
        /// Truth value, one byte.
        Bool = "bool",
    }
    /// The word in the source.
    fn name;
}

/// The largest bfloat16: 2^128 - 2^120.
const BF16_MAX: f64 = f64::from_bits(0x47ef_e000_0000_0000);

impl Dtype {
    /// The dtype of this name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.name() == name)
    }
    /// Bits of one element.
    pub fn bits(self) -> u64 {
        match self {
            Dtype::F32 | Dtype::Int32 => 32,
            Dtype::Bf16 | Dtype::F16 => 16,
            Dtype::F8 | Dtype::Int8 | Dtype::Bool => 8,
            Dtype::F4 | Dtype::Int4 => 4,
        }
    }
    /// The bytes of so many elements, rounded up to a whole byte.
    pub fn bytes(self, elements: u64) -> u64 {
        (u128::from(elements) * u128::from(self.bits())).div_ceil(8) as u64
    }
    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4)
    }
    /// The smallest and the largest finite number that it holds.
    pub fn range(self) -> (f64, f64) {
        match self {
            Dtype::F32 => (f64::from(f32::MIN), f64::from(f32::MAX)),
            Dtype::Bf16 => (-BF16_MAX, BF16_MAX),
            Dtype::F16 => (-65504.0, 65504.0),
            Dtype::F8 => (-448.0, 448.0),
            Dtype::F4 => (-6.0, 6.0),
            Dtype::Int32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            Dtype::Int8 => (-128.0, 127.0),
            Dtype::Int4 => (-8.0, 7.0),
            Dtype::Bool => (0.0, 1.0),
        }
    }
    /// Whether a number is within its range, or is rounded into it.
    pub fn reaches(self, number: f64) -> bool {
        let (least, largest) = self.range();
        // Half the distance between the two largest floats. A number that is further above the
        // largest would be rounded to the next float, which does not exist.
        let half = match self {
            Dtype::F32 => 2f64.powi(103),
            Dtype::Bf16 => 2f64.powi(119),
            Dtype::F16 => 16.0,
            Dtype::F8 => 16.0,
            Dtype::F4 => 1.0,
            Dtype::Int32 | Dtype::Int8 | Dtype::Int4 | Dtype::Bool => {
                return (least..=largest).contains(&number);
            }
        };
        least - half < number && number < largest + half
    }
    /// Whether it is a narrow dtype: one that is multiplied in the arithmetic of the other operand
    /// (weight-only quantisation).
    pub fn is_narrow(self) -> bool {
        matches!(self, Dtype::Int8 | Dtype::Int4 | Dtype::F8 | Dtype::F4)
    }

    /// The dtype of an elementwise combination of two dtypes, if there is one.
    ///
    /// | a | b | result |
    /// |---|---|---|
    /// | t | t | t |
    /// | bf16, f16, f8, f4 | f32 | f32 |
    /// | anything else | | none |
    pub fn meet(self, other: Dtype) -> Option<Dtype> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Dtype::F32, b) if b.is_float() => Some(Dtype::F32),
            (a, Dtype::F32) if a.is_float() => Some(Dtype::F32),
            _ => None,
        }
    }

    /// The dtype of a product in an einsum, if there is one: as [`Dtype::meet`], except that a
    /// narrow dtype counts as the other one, and int8 with int8 gives int32.
    pub fn product(self, other: Dtype) -> Option<Dtype> {
        match (self, other) {
            (Dtype::Int8, Dtype::Int8) => Some(Dtype::Int32),
            (a, b) if a == b => Some(a),
            (a, b) if a.is_narrow() && !b.is_narrow() && b != Dtype::Bool => Some(b),
            (a, b) if b.is_narrow() && !a.is_narrow() && a != Dtype::Bool => Some(a),
            (a, b) => a.meet(b),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Dtype;

    #[test]
    fn a_number_that_rounds_to_the_largest_float_is_reached() {
        let last = [(Dtype::F16, 65519.0), (Dtype::Bf16, 3.3961e38), (Dtype::F32, 3.40282356e38)];
        for (dtype, number) in last {
            assert!(dtype.reaches(number) && dtype.reaches(-number), "{dtype}");
        }
        let next = [(Dtype::F16, 65520.0), (Dtype::Bf16, 3.3962e38), (Dtype::F32, 3.4028236e38)];
        for (dtype, number) in next {
            assert!(!dtype.reaches(number) && !dtype.reaches(-number), "{dtype}");
        }
    }

    #[test]
    fn whole_numbers_reach_from_the_least_to_the_largest() {
        for (dtype, least, largest) in [(Dtype::Int8, -128.0, 127.0), (Dtype::Int4, -8.0, 7.0)] {
            assert!(dtype.reaches(least) && dtype.reaches(largest));
            assert!(!dtype.reaches(least - 1.0) && !dtype.reaches(largest + 1.0));
        }
    }
}
