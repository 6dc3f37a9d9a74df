//! How well the cost model predicts what was measured: ESTI's systems, their plans priced on a chip
//! whose few factors are fitted on one table, beside the paper's figures.
//!
//! * [`paper`]: what the paper prints.
//! * [`System`]: a program of `examples` at some sizes; its plan, and what a step of it takes.
//! * [`mod@fit`] finds the factors, from Table D.2 alone.
//! * [`page`] writes `spec/fidelity.md`.
//!
//! `cargo run -p shard-snapshots --bin fidelity` prints the page.

pub mod fit;
mod page;
pub mod paper;
mod system;

pub use fit::{Factors, fit};
pub use page::page;
pub use system::System;

/// The calibrated chip, from the root of the repository.
pub const CALIBRATED: &str = "examples/calibration/tpu_v4_measured.toml";

/// The page, from the root of the repository.
pub const PAGE: &str = "spec/fidelity.md";
