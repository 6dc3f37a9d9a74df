//! The program before it was partitioned, as StableHLO: read, written as a `.shard` layer, and
//! lowered to what it could send.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`read`] | the text of a module | functions of ops, with shardings and places |
//! | [`sharding`] | `#sdy.sharding<..>`, `{devices=..}` | the axes of each dim |
//! | [`translate`] | a function | a [`translate::Layer`]: dims, statements, what is fixed |
//! | [`optimum`] | a layer and what of it is free | what the best plan sends |

pub mod advise;
pub mod optimum;
pub mod read;
pub mod sharding;
pub mod translate;
