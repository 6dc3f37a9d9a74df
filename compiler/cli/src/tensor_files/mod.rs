//! Files of tensors, read and written by `run`.

pub(crate) mod npy;
mod npy_header;
pub(crate) mod safetensors;

/// The largest file that is read: what execution could ever hold.
const MAX_BYTES: u64 = 1 << 31;
