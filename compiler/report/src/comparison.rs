//! Two plans side by side: which moves came and which went, which ops changed.

use std::collections::BTreeSet;

use shard_cost::{InstrPrice, PlanPrice};
use shard_grammar::SourceFile;
use shard_ir::{InstrId, InstrKind, Picoseconds, Plan};

use crate::notation::{phrase, value_name};
use crate::origins::origin;
use crate::same::{Kind, Known, same};

/// One of the two plans.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What it costs.
    pub price: &'a PlanPrice,
    /// What its spans point into.
    pub source: Option<&'a SourceFile>,
}

impl Side<'_> {
    /// What an instruction takes of a step.
    pub fn time(&self, id: InstrId) -> Picoseconds {
        self.price.of(id).time().times(self.plan.repeat_of(id))
    }

    /// The line of the source that an instruction comes from.
    pub fn line(&self, id: InstrId) -> Option<usize> {
        let span = self.plan.instruction(id).origin.span?;
        Some(self.source?.line_column(span.start).line)
    }

    /// Whether an instruction is a move with traffic.
    fn is_traffic(&self, id: InstrId) -> bool {
        matches!(self.price.of(id), InstrPrice::Move(cost) if cost.time > Picoseconds(0))
    }
}

/// What tells two plans apart. The same value in both is one of the same name, or made in the same
/// way of the same values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    /// Moves with traffic of the first plan alone.
    pub went: Vec<InstrId>,
    /// Moves with traffic of the second plan alone.
    pub came: Vec<InstrId>,
    /// Moves of both whose bytes or time differ.
    pub resized: Vec<(InstrId, InstrId)>,
    /// Parameters and ops of both that lie otherwise.
    pub relaid: Vec<(InstrId, InstrId)>,
    /// Ops of both that lie as before and take another time.
    pub retimed: Vec<(InstrId, InstrId)>,
    /// Parameters and ops of the first plan alone.
    pub ops_went: Vec<InstrId>,
    /// Parameters and ops of the second plan alone.
    pub ops_came: Vec<InstrId>,
}

impl Comparison {
    /// Compares two plans.
    pub fn of(a: Side<'_>, b: Side<'_>) -> Comparison {
        let found = same(&known(a), &known(b));
        let ids = |pairs: Vec<(usize, usize)>| {
            let id = |side: Side<'_>, at: usize| side.plan.ids().nth(at);
            pairs.into_iter().filter_map(|(x, y)| Some((id(a, x)?, id(b, y)?))).collect::<Vec<_>>()
        };
        let (moves, values) = (ids(found.moves), ids(found.values));
        let mut out = Comparison::default();
        for (id, other) in &moves {
            let alike = a.price.of(*id) == b.price.of(*other)
                && a.plan.repeat_of(*id) == b.plan.repeat_of(*other);
            if !alike {
                out.resized.push((*id, *other));
            }
        }
        for (id, other) in &values {
            if a.plan.layout_text(*id) != b.plan.layout_text(*other) {
                out.relaid.push((*id, *other));
            } else if a.time(*id) != b.time(*other) {
                out.retimed.push((*id, *other));
            }
        }
        let alone = |side: Side<'_>, paired: BTreeSet<InstrId>, kinds: &[Kind]| {
            let is_left = |id: &InstrId| !paired.contains(id) && kinds.contains(&kind(side, *id));
            side.plan.ids().filter(is_left).collect::<Vec<_>>()
        };
        let (first, second) = (|p: &(InstrId, InstrId)| p.0, |p: &(InstrId, InstrId)| p.1);
        out.went = alone(a, moves.iter().map(first).collect(), &[Kind::Move]);
        out.came = alone(b, moves.iter().map(second).collect(), &[Kind::Move]);
        let of_values = [Kind::Parameter, Kind::Op];
        out.ops_went = alone(a, values.iter().map(first).collect(), &of_values);
        out.ops_came = alone(b, values.iter().map(second).collect(), &of_values);
        out
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Comparison::default()
    }
}

/// What each step of a plan is known by.
fn known(side: Side<'_>) -> Vec<Known> {
    let plan = side.plan;
    let of = |id: InstrId| {
        let instr = plan.instruction(id);
        // An einsum is the same one with a collective in its loop.
        let what = match instr.kind.fused() {
            Some(_) => format!("einsum {}", plan.equation(id)),
            None => phrase(plan, id),
        };
        Known {
            kind: kind(side, id),
            name: instr.name.clone().unwrap_or_default(),
            within: instr.origin.in_layers.join("/"),
            what,
            // A piece of a composite is no op of the same kind elsewhere.
            piece_of: instr.origin.piece_of.clone().unwrap_or_default(),
            layout: plan.layout_text(id),
            operands: instr.operands.iter().map(|operand| operand.index()).collect(),
        }
    };
    plan.ids().map(of).collect()
}

fn kind(side: Side<'_>, id: InstrId) -> Kind {
    match side.plan.instruction(id).kind {
        InstrKind::Parameter(_) => Kind::Parameter,
        InstrKind::Constant(_) => Kind::Constant,
        InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => Kind::Op,
        InstrKind::Move(_) if side.is_traffic(id) => Kind::Move,
        InstrKind::Move(_) => Kind::LocalMove,
    }
}

/// How a value is spoken of in a plan that is not the one on the page: by name, or by what makes
/// it.
pub fn told(plan: &Plan, id: InstrId) -> String {
    if plan.instruction(id).name.is_some() {
        return value_name(plan, id);
    }
    let at = origin(plan, id);
    match (&plan.instruction(at).kind, &plan.instruction(at).name) {
        (_, Some(name)) => name.clone(),
        (InstrKind::Op(_) | InstrKind::CollectiveEinsum(_), None) => {
            format!("the {}", phrase(plan, at))
        }
        (InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Move(_), None) => {
            "a constant".to_string()
        }
    }
}
