//! Tests of how layouts are written and strategies recognised.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

#![allow(missing_docs, unreachable_pub)]

mod layout_notations;
mod strategies;
