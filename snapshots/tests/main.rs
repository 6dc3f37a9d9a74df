//! Tests of the whole compiler: snapshots, facts from the literature, the specification, random
//! programs.
//!
//! All tests are one binary, since linking one for each file takes longer than running most of
//! them.

#![allow(missing_docs)]

mod architecture;
mod catalogue;
mod errors;
mod esti;
mod examples;
mod executions;
mod explicit;
mod facts;
mod feed_forward;
mod fidelity;
mod fuzz;
mod gaps;
mod index;
mod internal_error;
mod lacking;
mod models;
mod overlap;
mod questions;
mod random_programs;
mod spec;
mod systems;
mod timelines;
mod utilisation;
