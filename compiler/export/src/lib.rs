//! Plans that leave the tool: what a verified plan is in the words of other systems.
//!
//! * [`jax`] writes a module of JAX: one `shard_map` a layer, one line an instruction, and a check
//!   beside it.
//! * [`stablehlo`] writes the same functions as text of StableHLO, with a mesh of Shardy.
//! * [`specs`] says how every parameter, value and result lies, as JSON.
//!
//! The crate sees the IR and nothing else: what is exported is the plan, whoever found it. Every op
//! and every collective is matched in full, so that a new one cannot be forgotten here.

mod devices;
mod error;
mod helpers;
mod names;
mod python;
mod sends;
mod sheet;
mod specs;
mod to_jax;
mod to_stablehlo;

pub use error::ExportError;
pub use sheet::{Texts, Writer, specs};
pub use to_jax::{Exported, Floats, JaxOptions, Style, jax};
pub use to_stablehlo::stablehlo;
