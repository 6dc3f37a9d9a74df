//! A [`Recorded`] plan as comparisons read it.

use shard_cost::Bytes;
use shard_ir::Picoseconds;

use crate::comparison::ComparedPlan;
use crate::recorded::{Recorded, RecordedStep};
use crate::same::{Kind, Known};

impl<'a> ComparedPlan for &'a Recorded {
    type Step = &'a RecordedStep;

    fn steps(self) -> Vec<&'a RecordedStep> {
        self.instructions.iter().collect()
    }

    fn known(self, other: Self) -> Vec<Known> {
        // A document of an earlier version has no phrases: those of its fields say less.
        let have_phrases = self.has_phrases() && other.has_phrases();
        let what = |step: &RecordedStep| match (&step.phrase, &step.fused) {
            // An einsum with a collective in its loop is recognised as the einsum alone.
            (Some(phrase), None) if have_phrases => phrase.clone(),
            (Some(_), _) | (None, _) => step.phrase_of_fields(),
        };
        let known = |step: &RecordedStep| Known {
            kind: match step.op.as_str() {
                "parameter" => Kind::Parameter,
                "constant" => Kind::Constant,
                _ if step.is_move() && step.time() > 0 => Kind::Move,
                _ if step.is_move() => Kind::LocalMove,
                _ => Kind::Op,
            },
            name: step.name.clone().unwrap_or_default(),
            within: step.within.join("/"),
            what: what(step),
            piece_of: step.piece_of.clone().unwrap_or_default(),
            layout: step.layout.clone(),
            operands: step.operands.iter().map(|id| *id as usize).collect(),
        };
        self.instructions.iter().map(known).collect()
    }

    fn costs_alike(self, step: &RecordedStep, _: Self, of_other: &RecordedStep) -> bool {
        (step.bytes(), step.time()) == (of_other.bytes(), of_other.time())
    }

    fn id(self, step: &RecordedStep) -> u32 {
        step.id
    }

    fn op(self, step: &RecordedStep) -> String {
        step.op.clone()
    }

    fn name(self, step: &RecordedStep) -> Option<String> {
        step.name.clone()
    }

    fn phrase(self, step: &RecordedStep) -> String {
        step.phrase()
    }

    /// By its name, that of what it is another layout of, or by what makes it.
    fn told(self, step: &RecordedStep) -> String {
        let mut at = step;
        while at.name.is_none() && at.is_move() {
            match Recorded::source(self, at) {
                Some(source) => at = source,
                None => break,
            }
        }
        match &at.name {
            Some(name) => name.clone(),
            None if at.op == "constant" => "a constant".to_string(),
            None => format!("the {}", at.phrase()),
        }
    }

    fn source(self, step: &RecordedStep) -> Option<&'a RecordedStep> {
        Recorded::source(self, step)
    }

    fn layout(self, step: &RecordedStep) -> String {
        step.layout.clone()
    }

    fn bytes(self, step: &RecordedStep) -> Bytes {
        Bytes(step.bytes())
    }

    fn time(self, step: &RecordedStep) -> Picoseconds {
        Picoseconds(step.time())
    }

    fn line(self, step: &RecordedStep) -> Option<usize> {
        step.line()
    }
}
