//! Dims, dtypes and the type of a tensor without its layout.

pub use shard_ops::Dtype;

/// How many dims a tensor may have: a [`Layout`](crate::Layout) stores the dim of an axis in four
/// bits.
pub const MAX_RANK: usize = 14;

/// How many dims a program may declare.
pub const MAX_DIMS: usize = 1024;

/// The largest size of a dim; products of a tensor's dims are kept below [`MAX_ELEMENTS`].
pub const MAX_DIM_SIZE: u64 = 1 << 40;

/// The largest number of elements of a tensor, so that bytes and flops (a few products of such
/// tensors) fit in `u128`, and times in picoseconds in `u64`.
pub const MAX_ELEMENTS: u64 = 1 << 52;

/// A dim of the program, as an index into [`Program::dims`](crate::Program::dims).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DimId(pub u16);

/// Gives ids their index.
macro_rules! indices {
    ($($id:path),+) => {
        $(impl $id {
            /// The index into its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        })+
    };
}
indices!(DimId, crate::AxisId, crate::FoldId, crate::InstrId, crate::ValueId);

/// A named dim: one size in the whole program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dim {
    /// The name in the source: `E`, `Batch`.
    pub name: String,
    /// The size that is computed with (padded, where `pad` is written).
    pub size: u64,
    /// The size that useful work is counted with; equals `size` without `pad`.
    pub useful: u64,
}

/// A tensor's dims, in memory order, and its dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    /// The dims, in memory order, all different.
    pub dims: Vec<DimId>,
    /// The dtype.
    pub dtype: Dtype,
}
