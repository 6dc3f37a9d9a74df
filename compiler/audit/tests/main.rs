//! Tests of `audit`: dumps and programs of others, and what is said of them.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

#![allow(missing_docs)]

mod common;
mod culprits;
mod dumps;
mod loops;
mod programs;
mod recompile;
mod wrong_dumps;
