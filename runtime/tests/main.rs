//! Tests of the interpreter.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

#![allow(missing_docs)]

mod collectives;
mod common;
mod engine;
mod loops;
mod ops;
mod random_plans;
mod running;
mod shrinking;
