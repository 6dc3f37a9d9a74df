//! XLA's optimised HLO as text: read into a [`Module`], and what is asked of one.
//!
//! The reader knows as much of the format as an audit needs: instructions with their shapes,
//! operands and attributes, computations and who calls them, replica groups in their three
//! spellings, and the tables of stack frames. It walks over the text once, keeps slices of it, and
//! takes no more stack for a deeper text.

pub mod attributes;
pub mod groups;
pub mod module;
mod scan;
pub mod shape;
pub mod tables;
pub mod trips;
pub mod visits;

pub use module::{Computation, Instruction, Module};
pub use scan::ReadError;
pub(crate) use scan::shortened;
