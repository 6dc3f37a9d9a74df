//! Reads XLA's optimised HLO into a [`Module`], and answers what an audit asks of it.
//!
//! The reader knows as much of the format as an audit needs: instructions with their shapes,
//! operands and attributes, computations and their callers, replica groups in their three
//! spellings, and the tables of stack frames. The reader passes over the text once, keeps slices of
//! it, and does not recurse into nested text.

pub mod attributes;
pub mod groups;
pub mod module;
mod scan;
pub mod shape;
pub mod tables;
pub mod trips;
pub mod visits;

pub use module::{Computation, Instruction, InstructionId, Module};
pub use scan::ReadError;
pub(crate) use scan::shortened;
