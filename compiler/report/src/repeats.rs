//! Layers that a program calls several times in a row and that come out equal: a listing shows the
//! first of them.

use std::collections::HashMap;

use shard_ir::{InstrId, InstrKind, Picoseconds, Plan};

use crate::Layer;
use crate::notation::phrase;

/// The fewest equal layers of which only the first is listed.
const FEWEST: usize = 3;

/// Steps that stand several times in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The steps that are shown, in program order.
    pub(crate) shown: Vec<InstrId>,
    /// The steps that are like them and stand behind, in program order.
    pub(crate) alike: Vec<InstrId>,
}

impl Run {
    /// How often the steps are repeated, the first time included.
    pub(crate) fn copies(&self) -> usize {
        1 + self.alike.len() / self.shown.len().max(1)
    }

    /// What the steps that are not shown take of a step of the layer.
    pub(crate) fn hidden_time(&self, layer: &Layer<'_>) -> Picoseconds {
        self.alike.iter().map(|id| layer.time_in_step(*id)).sum()
    }

    /// The layer that is called, by its name.
    pub(crate) fn called<'a>(&self, plan: &'a Plan) -> &'a str {
        let first = self.shown.first().map(|id| &plan.instruction(*id).origin.in_layers);
        first.and_then(|path| path.last()).map_or("", String::as_str)
    }
}

/// The runs of a plan, none inside another. Steps are equal that come from the same place in the
/// source, are called the same way, do the same in the same layouts and cost the same; their
/// weights and their alternatives may differ.
pub(crate) fn runs(layer: &Layer<'_>) -> Vec<Run> {
    let plan = layer.plan();
    let is_step = |id: &InstrId| match plan.instruction(*id).kind {
        InstrKind::Parameter(_) | InstrKind::Constant(_) => false,
        InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) | InstrKind::Move(_) => true,
    };
    let steps: Vec<InstrId> = plan.ids().filter(is_step).collect();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut keys: Vec<usize> = Vec::with_capacity(steps.len());
    // For each step the next step with the same key.
    let mut next: Vec<Option<usize>> = vec![None; steps.len()];
    let mut last: HashMap<usize, usize> = HashMap::new();
    for (at, id) in steps.iter().enumerate() {
        let count = numbers.len();
        let key = *numbers.entry(key(layer, *id)).or_insert(count);
        keys.push(key);
        if let Some(before) = last.insert(key, at) {
            next[before] = Some(at);
        }
    }
    let mut found = Vec::new();
    let mut at = 0;
    while at < steps.len() {
        let copies = next[at].filter(|_| begins_a_call(plan, &steps, at)).and_then(|other| {
            let period = other - at;
            let shown = &keys[at..other];
            let copies = keys[at..].chunks_exact(period).take_while(|of| *of == shown).count();
            (copies >= FEWEST).then_some((period, copies))
        });
        let Some((period, copies)) = copies else {
            at += 1;
            continue;
        };
        let end = at + period * copies;
        found.push(Run {
            shown: steps[at..at + period].to_vec(),
            alike: steps[at + period..end].to_vec(),
        });
        at = end;
    }
    found
}

/// Whether a step is the first of a call: the step before it is of another layer, or stands behind
/// it in the source.
fn begins_a_call(plan: &Plan, steps: &[InstrId], at: usize) -> bool {
    let origin = |at: usize| &plan.instruction(steps[at]).origin;
    let start = |at: usize| origin(at).span.map(|span| span.start);
    if origin(at).in_layers.is_empty() || start(at).is_none() {
        return false;
    }
    at.checked_sub(1).is_none_or(|before| {
        origin(before).in_layers != origin(at).in_layers || start(at) < start(before)
    })
}

/// All that a listing shows of a step, except for the names of weights.
fn key(layer: &Layer<'_>, id: InstrId) -> String {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    // A move bears the name of the moved value, which in the first layer comes from elsewhere.
    let name = instr.name.as_ref().filter(|_| !matches!(instr.kind, InstrKind::Move(_)));
    let from: Vec<String> = instr.operands.iter().map(|o| plan.layout_text(*o)).collect();
    let price = match *layer.price.of(id) {
        // Which instruction it is fused into has another number in each copy.
        shard_cost::InstrPrice::Kernel { fused_into: Some(_), .. } => "fused".to_string(),
        other => format!("{other:?}"),
    };
    format!(
        "{:?}|{:?}|{:?}|{:?}|{}|{}|{}|{:?}|{price}",
        instr.origin.span,
        instr.origin.in_layers,
        name,
        instr.fold,
        phrase(plan, id),
        plan.layout_text(id),
        from.join(","),
        instr.dtype,
    )
}
