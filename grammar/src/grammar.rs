//! The parser that pest builds from `shard.pest` and the catalogue of ops, as `build.rs` puts them
//! together.

#![allow(missing_docs)] // the rules are documented where they are written

include!(concat!(env!("OUT_DIR"), "/grammar.rs"));
