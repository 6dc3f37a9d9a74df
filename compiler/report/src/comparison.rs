//! Two plans side by side: which moves came and which went, which ops changed.

use std::collections::BTreeMap;

use shard_cost::{InstrPrice, PlanPrice};
use shard_grammar::SourceFile;
use shard_ir::{InstrId, InstrKind, Picoseconds, Plan};

use crate::notation::{phrase, value_name};
use crate::origins::origin;

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

/// What tells two plans apart. The same value in both is one of the same name, op and inlined
/// layers, counted in order.
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
        let mut out = Comparison::default();
        let (before, mut after) = (moves(a), moves(b));
        for (key, id) in before {
            match after.iter().position(|(k, _)| *k == key).map(|at| after.remove(at)) {
                Some((_, other))
                    if a.price.of(id) == b.price.of(other)
                        && a.plan.repeat_of(id) == b.plan.repeat_of(other) => {}
                Some((_, other)) => out.resized.push((id, other)),
                None => out.went.push(id),
            }
        }
        out.came = after.into_iter().map(|(_, id)| id).collect();
        let (before, mut after) = (values(a), values(b));
        for (key, id) in before {
            let Some(other) = after.remove(&key) else {
                out.ops_went.push(id);
                continue;
            };
            if a.plan.layout_text(id) != b.plan.layout_text(other) {
                out.relaid.push((id, other));
            } else if a.time(id) != b.time(other) {
                out.retimed.push((id, other));
            }
        }
        out.ops_came = after.into_values().collect();
        out.ops_came.sort_unstable();
        out.ops_went.sort_unstable();
        out.relaid.sort_unstable();
        out.retimed.sort_unstable();
        out
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Comparison::default()
    }
}

/// Moves with traffic, each by what it does: the value, the phrase, the layouts before and after.
fn moves(side: Side<'_>) -> Vec<(String, InstrId)> {
    let plan = side.plan;
    let key = |id: InstrId| {
        let from = plan
            .instruction(id)
            .operands
            .first()
            .map_or_else(String::new, |o| plan.layout_text(*o));
        let within = plan.instruction(id).origin.in_layers.join("/");
        let name = plan.instruction(id).name.clone().unwrap_or_default();
        format!("{name}|{within}|{}|{from}|{}", phrase(plan, id), plan.layout_text(id))
    };
    plan.ids().filter(|id| side.is_traffic(*id)).map(|id| (key(id), id)).collect()
}

/// Parameters and ops by what they are, the n-th of its kind.
fn values(side: Side<'_>) -> BTreeMap<(String, usize), InstrId> {
    let plan = side.plan;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        if matches!(instr.kind, InstrKind::Move(_) | InstrKind::Constant(_)) {
            continue;
        }
        let name = instr.name.clone().unwrap_or_default();
        // An einsum is the same one with a collective in its loop.
        let what = match instr.kind {
            InstrKind::CollectiveEinsum(_) => format!("einsum {}", plan.equation(id)),
            InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Op(_)
            | InstrKind::Move(_) => phrase(plan, id),
        };
        // A piece of a composite is no op of the same kind elsewhere.
        let piece_of = instr.origin.piece_of.as_deref().unwrap_or_default();
        let key = format!("{name}|{}|{what}|{piece_of}", instr.origin.in_layers.join("/"));
        let count = seen.entry(key.clone()).or_default();
        out.insert((key, *count), id);
        *count += 1;
    }
    out
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
