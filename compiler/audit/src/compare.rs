//! What the program before partitioning could send at least, and the edits that get it there.

use crate::before::optimum::Move;
use crate::hlo::tables::Place;
use crate::report::Totals;

/// What an edit changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdviceKind {
    /// A `with_sharding_constraint` on a value.
    Constraint,
    /// The `PartitionSpec` of an argument or a result.
    Spec,
}

impl AdviceKind {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            AdviceKind::Constraint => "constraint",
            AdviceKind::Spec => "spec",
        }
    }
}

/// An edit that removes something that is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// What it changes.
    pub kind: AdviceKind,
    /// The value, as the program names it.
    pub value: String,
    /// Its layout now: `P(None, 'model')`.
    pub from: String,
    /// The layout to write instead.
    pub to: String,
    /// By how many bytes the optimum sends less with it.
    pub saves_bytes: u64,
    /// The line that causes it, where it is known.
    pub source: Option<Place>,
    /// How it was tried: `lowered` by us.
    pub tried: &'static str,
}

/// A part of the program that is not understood: its layouts are taken as they are.
#[derive(Clone, PartialEq, Debug)]
pub struct Barrier {
    /// The operation.
    pub op: String,
    /// How often it occurs.
    pub count: usize,
    /// Which share of the ops of the program it is, from 0 to 1.
    pub share: f64,
}

/// A program before partitioning, compared.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The proven optimum with the layouts of arguments and results that the program has.
    pub same_specs: Option<Totals>,
    /// The optimum where the layouts of weights are free.
    pub free: Option<Totals>,
    /// What the optimum with the same layouts sends, in order.
    pub moves: Vec<Move>,
    /// The edits, those that save most first.
    pub advice: Vec<Advice>,
    /// What is not understood.
    pub barriers: Vec<Barrier>,
    /// Why there is no optimum, where there is none.
    pub why_not: Option<String>,
}
