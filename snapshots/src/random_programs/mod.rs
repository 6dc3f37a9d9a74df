//! Random programs as text. They are correct: some tests execute them, others spoil them.

mod generator;
mod lowered;
mod shrink;

pub use generator::generate;
pub use lowered::{LoweredPhase, lowered, refused};
pub use shrink::shrink;
