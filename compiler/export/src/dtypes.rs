//! Which floats a module computes in.

use shard_ir::Dtype;

/// Which floats a module computes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Floats {
    /// Those of the plan.
    #[default]
    Stated,
    /// 32 bits for all.
    F32,
    /// 64 bits for all: what is compared then differs by the order of sums alone.
    F64,
}

impl Floats {
    /// The largest difference that roundings explain, as a part of a result's scale.
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
