//! Tests of layouts, plans, their text and their verifier.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

mod common;
mod laws;
mod layouts;
mod text;
mod verifier;
