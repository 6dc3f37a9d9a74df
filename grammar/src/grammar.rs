//! The parser that pest builds from `shard.pest`.

#![allow(missing_docs)] // the rules are documented where they are written

/// The pieces of a file, by the rules of `shard.pest`.
#[derive(pest_derive::Parser)]
#[grammar = "../shard.pest"]
pub(crate) struct ShardGrammar;
