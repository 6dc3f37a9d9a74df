//! Which floats a module computes in.

use shard_ir::Dtype;

/// Which floats a module computes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Floats {
    /// The floats that the plan states.
    #[default]
    Stated,
    /// All floats have 32 bits.
    F32,
    /// All floats have 64 bits, so that results differ only by the order in which sums are taken.
    F64,
}

impl Floats {
    /// The largest difference that roundings in these dtypes explain, as a fraction of the scale of
    /// a result.
    pub(crate) fn tolerance(self, dtypes: impl Iterator<Item = Dtype>) -> f64 {
        let coarsest = |dtype: Dtype| match (dtype, self) {
            (Dtype::F4, Floats::Stated) => 2.0,
            (Dtype::F8, Floats::Stated) => 0.5,
            (Dtype::Bf16, Floats::Stated) => 1.0 / 16.0,
            (Dtype::F16, Floats::Stated) => 1.0 / 128.0,
            (Dtype::F32, Floats::Stated) | (_, Floats::F32) => 1e-4,
            (_, Floats::F64) => 1e-9,
            (Dtype::Int32 | Dtype::Int8 | Dtype::Int4 | Dtype::Bool, Floats::Stated) => 0.0,
        };
        dtypes.map(coarsest).fold(0.0, f64::max)
    }
}
