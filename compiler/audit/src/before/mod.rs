//! The program before it was partitioned, as StableHLO: read, written as a `.shard` layer, and
//! lowered to what it could send.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`read`] | the text of a module | functions of ops, with shardings and places |
//! | [`sharding`] | `#sdy.sharding<..>`, `{devices=..}` | the axes of each dim |
//! | [`translate`] | a function | a [`translate::Layer`]: dims, statements, what is fixed |
//! | [`optimum`] | a layer and what of it is free | what the best plan sends |
//! | [`advise`] | a layer | the edits that make the optimum better |
//! | [`edit`] | a text and edits | the text with them |
//! | [`recompile`] | edits and XLA | what XLA sends with them |
//! | `constrain` | a plan and XLA | the constraints that XLA needs to come near it |

pub mod advise;
mod constrain;
pub mod edit;
pub mod optimum;
pub mod read;
pub mod recompile;
pub mod sharding;
pub mod translate;
