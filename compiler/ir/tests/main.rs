//! Tests of layouts, plans, their text and their verifier.
//!
//! All tests are one binary, since linking one for each file would take longer than most of them
//! run.

mod common;
mod laws;
mod layouts;
mod text;
mod verifier;
