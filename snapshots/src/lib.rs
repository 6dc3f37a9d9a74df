//! Tests over ../examples, ../spec and random programs; this library is what they share.

pub mod fidelity;
pub mod files;
pub mod fuzz;
pub mod judge;
pub mod random_programs;

pub use files::{examples, root};
pub use judge::{Moved, check, compile, judge, lower_all, moves};
