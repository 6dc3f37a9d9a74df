//! Plans that leave the tool: what a verified plan is in the words of other systems.
//!
//! * [`jax`] writes a module of JAX: one `shard_map` a layer, one line an instruction, and a check
//!   beside it.
//! * [`stablehlo`] writes the same functions as text of StableHLO, with a mesh of Shardy.
//! * [`torch()`] writes a module of PyTorch: what each process does on its own blocks, with the
//!   same beside it.
//! * [`specs`] says how every parameter, value and result lies, as JSON.
//!
//! The crate sees the IR and nothing else: what is exported is the plan, whoever found it. Every op
//! and every collective is matched in full, so that a new one cannot be forgotten here.

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
