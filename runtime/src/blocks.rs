//! [`Blocks`]: what all devices hold of one value.

use std::borrow::Cow;
use std::sync::Arc;

use shard_ir::Dtype;

use crate::arithmetic::Arithmetic;
use crate::collectives::Held;
use crate::tensor::{Element, Tensor};

/// The block of each device, in the order of the devices.
#[derive(Clone, Debug)]
pub(crate) enum Blocks {
    /// Elements are `f64`.
    Wide(Held<f64>),
    /// Elements are `f32`: the arithmetic rounds each of them to one.
    Narrow(Held<f32>),
}

impl Blocks {
    /// Blocks with elements of `f64`.
    pub(crate) fn wide(blocks: Vec<Tensor>) -> Blocks {
        Blocks::Wide(blocks.into_iter().map(Arc::new).collect())
    }

    /// Whether values of a dtype are held in `f32`.
    pub(crate) fn are_narrow(arithmetic: Arithmetic, dtype: Dtype) -> bool {
        match arithmetic {
            Arithmetic::Single => dtype.is_float(),
            Arithmetic::Exact | Arithmetic::F32 | Arithmetic::Emulated => false,
        }
    }

    /// Blocks of a value, held as values of its dtype are in this arithmetic.
    pub(crate) fn of(arithmetic: Arithmetic, dtype: Dtype, blocks: Held<f64>) -> Blocks {
        if Blocks::are_narrow(arithmetic, dtype) {
            Blocks::Narrow(held_as(&blocks))
        } else {
            Blocks::Wide(blocks)
        }
    }

    /// The elements as `f64`.
    pub(crate) fn widened(&self) -> Cow<'_, [Arc<Tensor>]> {
        match self {
            Blocks::Wide(blocks) => Cow::Borrowed(blocks),
            Blocks::Narrow(blocks) => Cow::Owned(held_as(blocks)),
        }
    }

    /// What one device holds, as `f64`.
    pub(crate) fn on(&self, device: usize) -> Cow<'_, Tensor> {
        match self {
            Blocks::Wide(blocks) => Cow::Borrowed(&*blocks[device]),
            Blocks::Narrow(blocks) => Cow::Owned(blocks[device].held_as()),
        }
    }

    /// Whether the blocks of two devices are the same, up to `tolerance` times the largest element.
    pub(crate) fn are_same(&self, first: usize, second: usize, tolerance: f64) -> bool {
        match self {
            Blocks::Wide(blocks) => same(&blocks[first], &blocks[second], tolerance),
            Blocks::Narrow(blocks) => same(&blocks[first], &blocks[second], tolerance),
        }
    }

    /// Writes what a device holds into a whole tensor.
    pub(crate) fn write_to(&self, whole: &mut Tensor, origin: &[usize], device: usize) {
        match self {
            Blocks::Wide(blocks) => whole.write_block_of(origin, &blocks[device]),
            Blocks::Narrow(blocks) => whole.write_block_of(origin, &blocks[device]),
        }
    }
}

/// Whether two blocks are the same, up to `tolerance` times the largest element of the first. A
/// tolerance above 0 is for systems that add terms in an order of their own.
fn same<T: Element>(a: &Arc<Tensor<T>>, b: &Arc<Tensor<T>>, tolerance: f64) -> bool {
    if Arc::ptr_eq(a, b) {
        return true;
    }
    let [a, b] = [a, b].map(|block| block.data.iter().map(|v| v.value()));
    let largest = a.clone().map(f64::abs).filter(|v| v.is_finite()).fold(0.0, f64::max);
    a.zip(b)
        .all(|(a, b)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * largest)
}

/// The same blocks, their elements held as another type. Devices that share a block still do.
fn held_as<T: Element, U: Element>(blocks: &Held<T>) -> Held<U> {
    let mut made: Held<U> = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.iter().enumerate() {
        let known = blocks[..at].iter().position(|known| Arc::ptr_eq(known, block));
        made.push(known.map_or_else(|| Arc::new(block.held_as()), |known| made[known].clone()));
    }
    made
}
