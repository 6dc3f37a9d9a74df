//! The comparison with the program before partitioning: what it could send at least, and the edits
//! that get it there.

use crate::before::optimum::Move;
use crate::hlo::tables::Place;
use crate::report::Totals;

shard_ir::worded! {
    /// What an edit changes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AdviceKind {
        /// A `with_sharding_constraint` on a value.
        Constraint = "constraint",
        /// The `PartitionSpec` of an argument or a result.
        Spec = "spec",
    }
    /// The word in JSON.
    fn word;
}

shard_ir::worded! {
    /// How an edit was tried.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Tried {
        /// The layer was lowered with the edit, and its plan priced.
        Lowered = "lowered",
        /// XLA compiled the program with the edit.
        Compiled = "compiled",
    }
    /// The word in JSON.
    fn word;
}

impl Tried {
    /// The words in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Tried::Lowered => "lowered with the edit, and priced",
            Tried::Compiled => "compiled again by XLA with the edit",
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
    /// How it was tried.
    pub tried: Tried,
}

impl Recompiled {
    /// A sentence on how near XLA comes to the optimum.
    pub fn verdict(&self) -> String {
        let beside = match (self.edited, self.optimum) {
            (0, 0) => "nothing is sent, as in the optimum".to_string(),
            (_, 0) => "the optimum sends nothing".to_string(),
            (edited, optimum) => {
                format!("{:.2} times the optimum", edited as f64 / optimum as f64)
            }
        };
        let counted = match self.platform.as_str() {
            "cpu" => {
                "; an all-reduce of which each device uses a part counts as a reduce-scatter, and \
                    floats have 32 bits, as XLA for CPU sends them"
            }
            _ => "",
        };
        let left = if self.left.is_empty() { "" } else { "; what XLA still sends:" };
        format!("{beside}{counted}{left}")
    }
}

/// What XLA sends when it compiles the program again with the edits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recompiled {
    /// The kind of device that it was compiled for: `cpu`, `tpu`, `gpu`.
    pub platform: String,
    /// Bytes that a device sends as the program is. For `cpu`, an all-reduce of which each device
    /// uses its own part alone counts as the reduce-scatter that other devices have.
    pub as_is: u64,
    /// Bytes that a device sends with all edits, counted in the same way.
    pub edited: u64,
    /// Bytes that a device sends in the best plan with the specs of the edits. For `cpu`, floats of
    /// 16 bits count as 32 bits.
    pub optimum: u64,
    /// How many of the edits are new constraints.
    pub constraints: usize,
    /// What is still sent, if that is more than a twentieth above the optimum; else empty.
    pub left: Vec<Left>,
    /// How often XLA compiled the program.
    pub compilations: usize,
}

/// Collectives of one kind that a line still has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// What it does: `all-gather`.
    pub op: &'static str,
    /// The axes that it runs along.
    pub axes: Vec<String>,
    /// The line, if XLA has one.
    pub place: Option<Place>,
    /// Bytes that a device sends.
    pub wire_bytes: u64,
}

/// An operation that is not understood. The layouts of its results are free.
#[derive(Clone, PartialEq, Debug)]
pub struct Barrier {
    /// The operation.
    pub op: String,
    /// How often it occurs.
    pub count: usize,
    /// Which share of the ops of the program it is, from 0 to 1.
    pub share: f64,
}

/// A program before partitioning, compared with the compiled one.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The optimum with the layouts of arguments and results that the program has.
    pub same_specs: Option<Totals>,
    /// The optimum with the edits of the advice.
    pub free: Option<Totals>,
    /// What the optimum with the same layouts sends, in order.
    pub moves: Vec<Move>,
    /// The edits, those that save most first.
    pub advice: Vec<Advice>,
    /// What the program sends and takes by hand, inside `shard_map`s; it is part of each optimum.
    /// `None` if the program has no `shard_map`.
    pub by_hand: Option<Totals>,
    /// The operations that are not understood.
    pub barriers: Vec<Barrier>,
    /// What XLA sends with the edits, where it was asked.
    pub compiled: Option<Recompiled>,
    /// Why XLA gave nothing, if it was asked and gave nothing.
    pub not_compiled: Option<String>,
    /// Why there is no optimum or no proof of it, if so.
    pub why_not: Option<String>,
}
