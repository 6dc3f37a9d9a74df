//! `diff` where a side is a plan that was written down: what tells two [`Recorded`] plans apart.
//!
//! It says what [`diff`](crate::diff) says of two plans that were both lowered now, and how far
//! each was proven.

use shard_cost::Bytes;
use shard_ir::Picoseconds;

use crate::comparison::ComparedPlan;
use crate::diff::{self, ComparedLayer, Fact, Pair, apart};
use crate::recorded::{Dim, Recorded, RecordedStep, picoseconds};
use crate::same::{Kind, Known};
use crate::scale;

/// Whether anything differs.
pub fn differs(pairs: &[Pair<&Recorded>]) -> bool {
    diff::any_differs(pairs)
}

/// The differences as text; what is the same is left out.
pub fn text(pairs: &[Pair<&Recorded>], width: usize) -> String {
    diff::text(pairs, width)
}

impl<'a> ComparedPlan for &'a Recorded {
    type Step = &'a RecordedStep;

    const KEEPS_BLANKS: bool = false;

    fn steps(self) -> Vec<&'a RecordedStep> {
        self.instructions.iter().collect()
    }

    fn known(self) -> Vec<Known> {
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
            what: step.phrase(),
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

impl ComparedLayer for &Recorded {
    type Plan = Self;

    fn compared(self) -> Self {
        self
    }

    fn title(self) -> String {
        Recorded::title(self)
    }

    fn facts(self, other: Self) -> Vec<Fact> {
        let mesh = |of: &Recorded| match of.mesh_axes.as_slice() {
            [] => "none".to_string(),
            axes => {
                let axes = axes.iter().map(|(name, size)| format!("{name}={size}"));
                axes.collect::<Vec<_>>().join(", ")
            }
        };
        let objective = |of: &Recorded| of.objective.clone().unwrap_or_default();
        let time = |seconds: f64| Picoseconds(picoseconds(seconds));
        let bytes = |bytes: u64| scale::bytes(Bytes(bytes));
        let (a, b) = (self, other);
        let (s, t) = (&a.totals, &b.totals);
        let mut out = vec![
            Fact::new("mesh", mesh(a), mesh(b)),
            Fact::new("hardware", a.hardware.clone(), b.hardware.clone()),
            Fact::new("objective", objective(a), objective(b)),
            Fact::new("strategy", a.strategy.join(", "), b.strategy.join(", ")),
            Fact::new("proof", proof(a), proof(b)),
            Fact::new("bytes sent", bytes(s.comm_bytes), bytes(t.comm_bytes)),
            Fact::new(
                "communication",
                scale::time(time(s.comm_time_s)),
                scale::time(time(t.comm_time_s)),
            ),
            Fact::new("memory at the peak", bytes(a.peak_bytes()), bytes(b.peak_bytes())),
            Fact::of_all_steps(time(s.serial_time_s), time(t.serial_time_s)),
        ];
        let dims = |of: &Recorded| of.dims.iter().map(Dim::sized).collect::<Vec<_>>();
        let results = |of: &Recorded| of.outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
        for (name, x, y) in [("dims", dims(a), dims(b)), ("results", results(a), results(b))] {
            // A document of an earlier version may lack them.
            let known = !x.is_empty() && !y.is_empty();
            let (x, y) = apart(&x, &y);
            if known && x != y {
                out.insert(2, Fact::new(name, x, y));
            }
        }
        out
    }
}

/// How far a plan was proven.
fn proof(of: &Recorded) -> String {
    match &of.optimality {
        None => "not searched for".to_string(),
        Some(found) if found.status == "proven" => "proven".to_string(),
        Some(found) => {
            let by =
                found.stopped_by.as_ref().map_or(String::new(), |limit| format!(" by {limit}"));
            let least = scale::seconds(found.lower_bound_s);
            format!("{}{by}, at least {least} of {}", found.status, scale::seconds(found.cost_s))
        }
    }
}
