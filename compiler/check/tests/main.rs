//! Tests of the type checker.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

mod calls;
mod common;
mod fuzz;
mod models;
mod programs;
mod unread;
