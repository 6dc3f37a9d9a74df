//! Certificates: that they prove what is true, and nothing else.

#[path = "../common/attentions.rs"]
mod attentions;
mod branches;
#[path = "../common/dice.rs"]
mod dice;
mod forged;
#[path = "../common/blocks.rs"]
mod generated;
mod made;
mod programs;
mod tampered;
mod together;
