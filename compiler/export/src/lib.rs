//! Verified plans as programs of other systems.
//!
//! * [`jax`] writes a module of JAX: a `shard_map` for each layer, a line for each instruction, and
//!   a check that compares with the unsharded layer.
//! * [`stablehlo`] writes the same functions as text of StableHLO, with a mesh of Shardy.
//! * [`torch()`] writes a module of PyTorch: what each process does on its own blocks, and the same
//!   check.
//! * [`specs`] writes the layout of every parameter, value and result as JSON.
//!
//! The crate sees plans of the IR and nothing of the search. It matches every op and every
//! collective in full, so that the compiler names the places where a new one is missing.

mod body;
mod comments;
mod data;
mod devices;
mod dtypes;
mod engine;
mod error;
mod exchange;
mod helpers;
mod layer;
mod moved;
mod names;
mod ops;
mod parts;
mod python;
mod sends;
mod sheet;
mod specs;
mod stack;
mod to_jax;
mod to_stablehlo;
mod to_torch;
mod words;

pub use dtypes::Floats;
pub use engine::EngineSystem;
pub use error::ExportError;
pub use layer::Exported;
pub use names::module_name;
pub use sheet::{Texts, Writer, specs};
pub use to_jax::{JaxOptions, Style, jax};
pub use to_stablehlo::stablehlo;
pub use to_torch::torch;
