//! What JSON says of a move in a comparison of two plans.

use serde::Serialize;

use crate::comparison::ComparedPlan;

/// A move of a plan; bytes and time are of all its applications.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedMoveJson {
    id: u32,
    op: String,
    name: Option<String>,
    from_layout: String,
    layout: String,
    bytes: u64,
    time_s: f64,
    line: Option<usize>,
}

/// A move as JSON.
pub(crate) fn move_json<P: ComparedPlan>(plan: P, step: P::Step) -> ComparedMoveJson {
    ComparedMoveJson {
        id: plan.id(step),
        op: plan.op(step),
        name: plan.name(step),
        from_layout: plan.source(step).map_or_else(String::new, |source| plan.layout(source)),
        layout: plan.layout(step),
        bytes: plan.bytes(step).0,
        time_s: plan.time(step).seconds(),
        line: plan.line(step),
    }
}
