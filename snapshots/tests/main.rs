//! Tests of the whole compiler: snapshots, facts of the documents, the spec, random programs.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

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
