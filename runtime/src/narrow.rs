//! Ops on blocks whose elements are held as `f32`: products and elementwise ops, in which a large
//! plan spends its time. All other ops work on `f64`.

use shard_ir::{DimId, Op};

use crate::error::RunError;
use crate::product::{Factor, How, Numbers, Precision, product};
use crate::scalar;
use crate::spare::Spare;
use crate::tensor::Tensor;

/// One operand on one device.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) dims: &'a [DimId],
    pub(crate) block: &'a Tensor<f32>,
}

/// The block of the result, of these dims and local sizes; `None` if the op has to be done on
/// `f64`.
pub(crate) fn evaluate(
    op: &Op,
    operands: &[Operand<'_>],
    dims: &[DimId],
    sizes: &[usize],
    spare: &Spare,
) -> Option<Result<Tensor<f32>, RunError>> {
    let in_order = operands.iter().all(|o| o.dims == dims);
    let data = match (op, operands) {
        (Op::Einsum, [a, b]) => {
            let factors = [a, b].map(|o| Factor {
                dims: o.dims,
                sizes: &o.block.sizes,
                data: Numbers::Narrow(&o.block.data),
            });
            let precision = Precision::Single;
            product(factors, dims, How { precision, on_all_cores: false, spare })
        }
        (Op::Map(map), [a]) if in_order => {
            let mut data = spare.narrow_room(a.block.data.len());
            let of = |a: &f32| scalar::map(*map, f64::from(*a)) as f32;
            data.extend(a.block.data.iter().map(of));
            Ok(data)
        }
        (Op::Binary(binary), [a, b]) if in_order => {
            let mut data = spare.narrow_room(a.block.data.len());
            let of = |(a, b): (&f32, &f32)| {
                scalar::binary(*binary, f64::from(*a), f64::from(*b), false) as f32
            };
            data.extend(a.block.data.iter().zip(&b.block.data).map(of));
            Ok(data)
        }
        _ => return None,
    };
    Some(data.and_then(|data| {
        let problem = RunError::Internal("an op gave a block of the wrong size");
        Tensor::new(sizes.to_vec(), data).ok_or(problem)
    }))
}
