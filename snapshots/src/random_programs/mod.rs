//! Random programs as text: right ones, for the tests that execute them and as a start for those
//! that spoil them.

mod generator;
mod lowered;
mod shrink;

pub use generator::generate;
pub use lowered::{LoweredPhase, lowered, refused};
pub use shrink::shrink;
