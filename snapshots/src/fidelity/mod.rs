//! How well the cost model predicts measurements: the plans of ESTI's systems are priced on a chip
//! whose few factors are fitted on one table, and compared with the paper's figures.
//!
//! * [`paper`]: what the paper prints.
//! * [`System`]: a program of `examples` at some sizes, with its plan and the time of its step.
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
