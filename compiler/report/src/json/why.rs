//! `explain --why` as JSON.

use serde::Serialize;
use shard_grammar::Span;
use shard_ir::Picoseconds;

use super::compared::{MoveJson, move_json};
use super::text;
use crate::comparison::Side;
use crate::why::{Why, journey};
use crate::words::{reason_of, without};

#[derive(Debug, Serialize)]
struct WhyJson {
    schema: &'static str,
    answers: Vec<AnswerJson>,
}

#[derive(Debug, Serialize)]
struct AnswerJson {
    layer: String,
    id: u32,
    op: &'static str,
    name: Option<String>,
    layout: String,
    journey: String,
    time_s: f64,
    rule: Option<String>,
    reason: Option<String>,
    places: Vec<PlaceJson>,
    derivation: Vec<StepJson>,
    without: Option<WithoutJson>,
    lower_bound_s: Option<f64>,
    price_bound_s: Option<f64>,
    removals: Vec<RemovalJson>,
}

#[derive(Debug, Serialize)]
struct PlaceJson {
    line: usize,
    byte_start: usize,
    byte_end: usize,
    text: String,
    forcing: bool,
}

#[derive(Debug, Serialize)]
struct StepJson {
    what: String,
    rule: Option<String>,
    layout: String,
    best_time_s: f64,
}

#[derive(Debug, Serialize)]
struct WithoutJson {
    how: String,
    time_s: f64,
    added_s: f64,
    /// The plan was searched for; else the time is a bound on it.
    exact: bool,
    instead: Vec<MoveJson>,
}

#[derive(Debug, Serialize)]
struct RemovalJson {
    write: String,
    time_s: f64,
    moves_the_border: bool,
}

/// The derivations as `shardc.why/1`.
pub fn json(answers: &[Why<'_>]) -> String {
    let answer = |a: &Why<'_>| {
        let plan = a.layer.plan();
        let instr = plan.instruction(a.id);
        let line = |span: Span| a.layer.source.map_or(0, |s| s.line_column(span.start).line);
        let chosen = a.layer.price.totals.serial_time;
        AnswerJson {
            layer: plan.name.clone(),
            id: a.id.0,
            op: instr.kind.name(),
            name: instr.name.clone(),
            layout: plan.layout_text(a.id),
            journey: journey(&a.layer, a.id),
            time_s: a.layer.price.of(a.id).time().seconds(),
            rule: instr.origin.rules.text(),
            reason: reason_of(plan, a.id),
            places: a
                .places
                .iter()
                .map(|p| PlaceJson {
                    line: line(p.span),
                    byte_start: p.span.start,
                    byte_end: p.span.end,
                    text: p.text.clone(),
                    forcing: p.primary,
                })
                .collect(),
            derivation: a
                .steps
                .iter()
                .map(|s| StepJson {
                    what: s.what.clone(),
                    rule: s.rule.clone(),
                    layout: s.layout.clone(),
                    best_time_s: s.time.seconds(),
                })
                .collect(),
            without: a.alternative.as_ref().map(|other| WithoutJson {
                how: without(plan, &other.avoided),
                time_s: other.time.seconds(),
                added_s: Picoseconds(other.time.0.saturating_sub(chosen.0)).seconds(),
                exact: other.plan.is_some(),
                instead: other.plan.as_ref().map_or_else(Vec::new, |plan| {
                    let price = shard_cost::price(plan, a.layer.hardware);
                    let side = Side { plan, price: &price, source: a.layer.source };
                    other.instead.iter().map(|id| move_json(side, *id)).collect()
                }),
            }),
            lower_bound_s: a.layer.optimality.map(|o| o.lower_bound.seconds()),
            price_bound_s: a.layer.optimality.and_then(|o| o.price_bound).map(Picoseconds::seconds),
            removals: a
                .removals
                .iter()
                .map(|r| RemovalJson {
                    write: r.text.clone(),
                    time_s: r.time.seconds(),
                    moves_the_border: r.moves_the_border,
                })
                .collect(),
        }
    };
    text(&WhyJson { schema: "shardc.why/1", answers: answers.iter().map(answer).collect() })
}
