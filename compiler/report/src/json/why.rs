//! `explain --why` as JSON.

use shard_check::Label;
use shard_ir::Picoseconds;

use super::compared::move_json;
use super::text;
use crate::comparison::Side;
use crate::object;
use crate::why::{Why, journey};
use crate::words::{reason_of, without};

/// The derivations as `shardc.why/1`.
pub fn json(answers: &[Why<'_>]) -> String {
    let answers = answers.iter().map(|a| {
        let plan = a.layer.plan();
        let instr = plan.instruction(a.id);
        let chosen = a.layer.price.totals.serial_time;
        object!(AnswerJson {
            layer: &plan.name,
            id: a.id.0,
            op: instr.kind.name(),
            name: &instr.name,
            layout: plan.layout_text(a.id),
            journey: journey(&a.layer, a.id),
            time_s: a.layer.price.of(a.id).time().seconds(),
            rule: instr.origin.rules.text(),
            reason: reason_of(plan, a.id),
            // A plan that was given as IR text has no places.
            places: a.layer.source.map_or_else(Vec::new, |source| {
                let place = |p: &Label| {
                    object!(PlaceJson {
                        line: source.line_column(p.span.start).line,
                        byte_start: p.span.start,
                        byte_end: p.span.end,
                        text: p.text.clone(),
                        forcing: p.primary,
                    })
                };
                a.places.iter().map(place).collect()
            }),
            derivation: a
                .steps
                .iter()
                .map(|s| object!(DerivationStepJson {
                    what: &s.what,
                    rule: &s.rule,
                    layout: &s.layout,
                    best_time_s: s.time.seconds(),
                }))
                .collect::<Vec<_>>(),
            without: a.alternative.as_ref().map(|other| object!(WithoutJson {
                how: without(plan, &other.avoided),
                time_s: other.time.seconds(),
                added_s: Picoseconds(other.time.0.saturating_sub(chosen.0)).seconds(),
                // The plan was searched for; else the time is a bound on it.
                exact: other.plan.is_some(),
                instead: other.plan.as_ref().map_or_else(Vec::new, |plan| {
                    let price = shard_cost::price(plan, a.layer.hardware);
                    let side = Side { plan, price: &price, source: a.layer.source };
                    other.instead.iter().map(|id| move_json(side, *id)).collect()
                }),
            })),
            lower_bound_s: a.layer.optimality.map(|o| o.lower_bound.seconds()),
            price_bound_s: a.layer.optimality.and_then(|o| o.price_bound).map(Picoseconds::seconds),
            removals: a
                .removals
                .iter()
                .map(|r| object!(RemovalJson {
                    write: &r.text,
                    time_s: r.time.seconds(),
                    moves_the_border: r.moves_the_border,
                }))
                .collect::<Vec<_>>(),
        })
    });
    text(&object!(WhyJson { schema: "shardc.why/1", answers: answers.collect::<Vec<_>>() }))
}
