//! The types of elements.

use std::fmt;

/// The type of an element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dtype {
    /// 32-bit float.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// 8-bit float.
    F8,
    /// 4-bit float, e2m1: two to a byte.
    F4,
    /// 8-bit integer.
    Int8,
    /// 4-bit integer: two to a byte.
    Int4,
    /// 32-bit integer.
    Int32,
    /// Truth value, one byte.
    Bool,
}

impl Dtype {
    /// Every dtype.
    pub const ALL: [Dtype; 9] = [
        Dtype::F32,
        Dtype::Bf16,
        Dtype::F16,
        Dtype::F8,
        Dtype::F4,
        Dtype::Int8,
        Dtype::Int4,
        Dtype::Int32,
        Dtype::Bool,
    ];

    /// The word in the source.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
            Dtype::F8 => "f8",
            Dtype::F4 => "f4",
            Dtype::Int8 => "int8",
            Dtype::Int4 => "int4",
            Dtype::Int32 => "int32",
            Dtype::Bool => "bool",
        }
    }
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
    /// Bytes of so many elements, rounded up to a whole byte.
    pub fn bytes(self, elements: u64) -> u64 {
        (u128::from(elements) * u128::from(self.bits())).div_ceil(8) as u64
    }
    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4)
    }
    /// Whether it is stored narrow and multiplied in the other operand's arithmetic (weight-only
    /// quantisation).
    pub fn is_narrow(self) -> bool {
        matches!(self, Dtype::Int8 | Dtype::Int4 | Dtype::F8 | Dtype::F4)
    }

    /// The dtype of an elementwise combination, if the two meet.
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

    /// The dtype of a product in an einsum, if the two meet: as [`Dtype::meet`], but a narrow
    /// operand counts as the other's dtype, and int8 with int8 gives int32.
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
