//! Why a plan is not exported.

use shard_ir::Dtype;
use shard_words::Span;

/// Why a plan is not exported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportError {
    /// An einsum over more dims than there are letters.
    #[error(
        "an einsum of `{layer}` has more than 52 dims, and modules have a letter for each of 52"
    )]
    Einsum {
        /// The layer.
        layer: String,
        /// The place in the source.
        span: Option<Span>,
    },
    /// An op on values of a dtype that a system stores and does not compute with.
    #[error("PyTorch computes no `{op}` of {dtype}, and `{layer}` has one")]
    Dtype {
        /// The layer.
        layer: String,
        /// The op.
        op: &'static str,
        /// The dtype.
        dtype: Dtype,
        /// The place in the source.
        span: Option<Span>,
    },
    /// Layers on different meshes, as IR text may have them.
    #[error("the layers are on different meshes, and a module has one")]
    Meshes,
    /// A mesh of more devices than a text that lists all devices is written for.
    #[error(
        "the mesh has {devices} devices; StableHLO lists them in every collective, and the limit \
        is {most}"
    )]
    Devices {
        /// How many devices the mesh has.
        devices: u64,
        /// The limit.
        most: u64,
    },
    /// The plan is not as it was verified to be: a defect of the compiler.
    #[error("{0}")]
    Internal(&'static str),
}
