//! The catalogue of ops: one [`Row`] for each op, with everything that the op has in common with
//! others. Written by hand, in exhaustive matches elsewhere, are its type, its work and its two
//! evaluators, and the certificate's own reading of `spec/types.md`.
//!
//! [`Code`] names an op; [`Code::row`] gives its row. [`never!`] is for what cannot happen.

pub mod defects;
mod dtype;
mod moves;
mod ops;
mod phrase;
mod random;
mod row;
mod table;

pub use dtype::Dtype;
pub use moves::{Move, MoveRow, Sends};
pub use ops::{Binary, Code, Form, Map, Norm, Reduce};
pub use phrase::filled;
pub use random::Random;
pub use row::{
    Amount, Combined, Field, Fit, Flag, Lead, Of, Part, Partial, Row, Slot, Takes, Traffic,
};

/// The `op` of JSON output for every op, each once.
pub fn op_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for code in Code::all() {
        if !names.contains(&code.row().op) {
            names.push(code.row().op);
        }
    }
    names
}

/// The plural of a name: `binaries`, `softmaxes`, `all-gathers`.
pub fn plural(name: &str) -> String {
    match name.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if name.ends_with(['x', 's']) || name.ends_with("ch") => format!("{name}es"),
        None => format!("{name}s"),
    }
}
