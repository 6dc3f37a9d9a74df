//! Products with a weight that is stored narrow, with a scale for each of its blocks.

use crate::op::Op;
use crate::program::{Def, Program, Value, ValueId};
use crate::tensor::{DimId, Dtype};

/// An operand of an einsum.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    /// Its dims.
    pub dims: &'a [DimId],
    /// The dtype in which it is stored.
    pub dtype: Dtype,
    /// Whether it is a weight, also behind pins and fetches.
    pub is_weight: bool,
}

/// Whether an einsum of three operands is a product with a weight in blocks: one operand is a
/// weight in 8 bits or fewer; another is a weight that has some of its dims and no others, its
/// scales; and the einsum sums over a dim of the scales. It is one product, in which each number is
/// scaled as it is read.
///
/// As two products it would be inefficient in every order: weight times scales writes the weight in
/// 16 bits and reads it again, and the other two orders have a number for each block and result.
pub fn is_scaled_product(factors: &[Factor<'_>], result: &[DimId]) -> bool {
    factors.len() == 3
        && factors.iter().any(|weight| {
            weight.is_weight
                && weight.dtype.is_narrow()
                && factors.iter().any(|scales| are_scales(scales, weight, result))
        })
}

fn are_scales(scales: &Factor<'_>, weight: &Factor<'_>, result: &[DimId]) -> bool {
    scales.is_weight
        && scales.dims.len() < weight.dims.len()
        && scales.dims.iter().all(|dim| weight.dims.contains(dim))
        && scales.dims.iter().any(|dim| !result.contains(dim))
}

impl Program {
    /// Whether a value is a product with a weight in blocks ([`is_scaled_product`]).
    pub fn is_scaled_product(&self, id: ValueId) -> bool {
        let value = self.value(id);
        let Def::Op { op: Op::Einsum, operands } = &value.def else { return false };
        let factor = |operand: &ValueId| {
            let Value { dims, dtype, .. } = self.value(*operand);
            Factor { dims, dtype: *dtype, is_weight: self.is_weight(*operand) }
        };
        let factors: Vec<Factor<'_>> = operands.iter().map(factor).collect();
        is_scaled_product(&factors, &value.dims)
    }

    /// Whether a value is a weight, also behind pins and fetches.
    fn is_weight(&self, mut id: ValueId) -> bool {
        loop {
            match &self.value(id).def {
                Def::Parameter { kind, .. } => return kind.is_weight(),
                Def::Pin { operand, .. } => id = *operand,
                Def::Op { op: Op::Fetch, operands } if !operands.is_empty() => id = operands[0],
                Def::Op { .. } | Def::Constant(_) => return false,
            }
        }
    }
}
