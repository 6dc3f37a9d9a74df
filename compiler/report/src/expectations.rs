//! Compares a plan with what its layer expects of it (`expect` lines).

use shard_check::Diagnostic;
use shard_check::diagnostics::ExpectationProblem;
use shard_check::expectations::{Expectation, Meaning, Measure, OPS, Unit, with_amount};
use shard_cost::Bytes;
use shard_grammar::ast::{Amount, Claim, Comparison};
use shard_grammar::{Span, Spanned, print_claim};
use shard_ir::{InstrId, InstrKind, Liveness, Op, Picoseconds, Plan, never};

use crate::Layer;
use crate::notation::{phrase, value_name};
use crate::scale;
use crate::strategy::strategies;

/// At most so many places of the source are shown as the cause.
const MOST_CAUSES: usize = 3;

/// One diagnostic for each expectation that the plan of the layer does not meet.
pub fn unmet(layer: &Layer<'_>, expected: &[Expectation]) -> Vec<Diagnostic> {
    expected
        .iter()
        .filter_map(|expectation| check(layer, expectation))
        .map(Diagnostic::from)
        .collect()
}

fn check(layer: &Layer<'_>, expectation: &Expectation) -> Option<ExpectationProblem> {
    let (found, causes, holds) = match &expectation.meaning {
        Meaning::Strategy(name) => {
            let names = strategies(layer.plan());
            if names.contains(&name.as_str()) {
                return None;
            }
            let first = names.first().map_or(String::new(), |name| (*name).to_string());
            let holds = Claim::Strategy { name: Spanned::new(first, expectation.span) };
            (format!("the strategy {}", names.join(", ")), moved_weights(layer), holds)
        }
        Meaning::Measured { measure, of, comparison, amount } => {
            let parts = parts(layer, *measure, of.as_deref());
            let found = match measure {
                Measure::PeakMemory => u128::from(layer.peak().0),
                Measure::SerialTime => u128::from(layer.price.totals.serial_time.0),
                Measure::Comm | Measure::WireBytes | Measure::Collectives | Measure::Count(_) => {
                    parts.iter().map(|(_, part)| part).sum()
                }
            };
            if comparison.holds(found, *amount) {
                return None;
            }
            let causes = if found > *amount { largest(layer, *measure, parts) } else { Vec::new() };
            (
                said(*measure, of.as_deref(), found, *comparison, *amount),
                causes,
                holding(expectation, *measure, *comparison, found),
            )
        }
    };
    Some(ExpectationProblem::Unmet {
        claim: print_claim(&expectation.written),
        span: expectation.span,
        found,
        causes,
        holds: print_claim(&holds),
    })
}

/// What each instruction contributes to a measure, in the base unit of the measure; instructions
/// that contribute nothing are left out.
fn parts(layer: &Layer<'_>, measure: Measure, of: Option<&str>) -> Vec<(InstrId, u128)> {
    let plan = layer.plan();
    let part = |id: InstrId| -> u128 {
        let price = layer.price.of(id);
        let repeat = u128::from(plan.repeat_of(id));
        let once = match (measure, price) {
            (Measure::Comm, price) => price.collective().map_or(0, |cost| u128::from(cost.time.0)),
            (Measure::WireBytes, price) => {
                price.collective().map_or(0, |cost| u128::from(cost.wire_bytes.0))
            }
            (Measure::SerialTime, price) => u128::from(price.time().0),
            (Measure::PeakMemory, _) => {
                return u128::from(plan.local_bytes(id))
                    .saturating_mul(u128::from(plan.copies_of(id)));
            }
            (Measure::Collectives, _) => match &plan.instruction(id).kind {
                InstrKind::Move(collective) => u128::from(collective.has_traffic()),
                InstrKind::CollectiveEinsum(_) => 1,
                InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => 0,
            },
            (Measure::Count(op), _) => u128::from(plan.instruction(id).kind.name() == op),
        };
        once.saturating_mul(repeat)
    };
    let held: Vec<InstrId> = match measure {
        Measure::PeakMemory => held_at_the_peak(plan),
        Measure::Comm
        | Measure::SerialTime
        | Measure::WireBytes
        | Measure::Collectives
        | Measure::Count(_) => plan.ids().collect(),
    };
    let is_of = |id: InstrId| of.is_none_or(|name| is_of_value(plan, id, name));
    held.into_iter()
        .filter(|id| is_of(*id))
        .map(|id| (id, part(id)))
        .filter(|(_, part)| *part > 0)
        .collect()
}

/// Whether an instruction makes or moves the value of this name. Values of layers that are called
/// do not count.
fn is_of_value(plan: &Plan, id: InstrId, name: &str) -> bool {
    let bears = |id: InstrId| {
        let instr = plan.instruction(id);
        let names = [instr.name.as_deref(), instr.origin.piece_of.as_deref()];
        instr.origin.in_layers.is_empty() && names.contains(&Some(name))
    };
    let mut made = id;
    while let (InstrKind::Move(_), [operand]) =
        (&plan.instruction(made).kind, plan.instruction(made).operands.as_slice())
    {
        made = *operand;
    }
    bears(id) || bears(made)
}

/// The values in memory while that instruction runs at which memory is at its peak.
fn held_at_the_peak(plan: &Plan) -> Vec<InstrId> {
    let liveness = Liveness::of(plan);
    let peak = liveness.peak_bytes();
    let Some(at) = plan.ids().find(|id| liveness.live_bytes[id.index()] == peak) else {
        return Vec::new();
    };
    let freed: Vec<InstrId> =
        plan.ids().take(at.index()).flat_map(|id| liveness.frees[id.index()].clone()).collect();
    let is_held = |id: &InstrId| {
        let is_there = *id <= at || matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
        is_there && !freed.contains(id)
    };
    plan.ids().filter(is_held).collect()
}

/// The source lines whose instructions contribute most, each line once, with the contribution of
/// each instruction.
fn largest(
    layer: &Layer<'_>,
    measure: Measure,
    mut parts: Vec<(InstrId, u128)>,
) -> Vec<(Span, String)> {
    let plan = layer.plan();
    parts.sort_by_key(|(id, part)| (std::cmp::Reverse(*part), *id));
    let mut causes: Vec<(Span, String)> = Vec::new();
    for (id, part) in parts {
        let Some(span) = plan.instruction(id).origin.span else { continue };
        let part = match measure.unit() {
            Unit::Count => String::new(),
            Unit::Time | Unit::Bytes => format!(": {}", scaled(measure, part)),
        };
        let text = format!("{}{part}", described(plan, id));
        match causes.iter().position(|(known, _)| *known == span) {
            Some(at) => causes[at].1 = format!("{}; {text}", causes[at].1),
            None if causes.len() < MOST_CAUSES => causes.push((span, text)),
            None => {}
        }
    }
    causes
}

/// The moves of weights, from which the strategy of a plan is recognised.
fn moved_weights(layer: &Layer<'_>) -> Vec<(Span, String)> {
    let plan = layer.plan();
    let moves = plan.ids().filter(|id| {
        let instr = plan.instruction(*id);
        let moved = match &instr.kind {
            InstrKind::Move(collective) => collective.has_traffic().then_some(0),
            InstrKind::CollectiveEinsum(fused) => fused.gathered(),
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => None,
        };
        let moved = moved.and_then(|place| instr.operands.get(place));
        let is_weight = |kind: &InstrKind| matches!(kind, InstrKind::Parameter(p) if p.is_weight());
        moved.is_some_and(|o| is_weight(&plan.instruction(*o).kind))
    });
    let mut causes: Vec<(Span, String)> = Vec::new();
    for id in moves {
        if let Some(span) =
            plan.instruction(id).origin.span.filter(|s| causes.iter().all(|(known, _)| known != s))
        {
            causes.push((span, described(plan, id)));
        }
    }
    causes.truncate(MOST_CAUSES);
    causes
}

fn described(plan: &Plan, id: InstrId) -> String {
    let instr = plan.instruction(id);
    match (&instr.kind, instr.operands.first()) {
        (InstrKind::Move(_), Some(source)) => {
            format!("{} of {}", phrase(plan, id), value_name(plan, *source))
        }
        (InstrKind::Op(Op::Einsum), _) => phrase(plan, id),
        _ => format!("{} ({})", value_name(plan, id), phrase(plan, id)),
    }
}

/// A figure in words: `59.0 us of comm`, `3 all-gathers of x`. The figure has all its digits where
/// three would read as if the plan kept the claim that it breaks.
fn said(
    measure: Measure,
    of: Option<&str>,
    found: u128,
    comparison: Comparison,
    expected: u128,
) -> String {
    let of = of.map_or(String::new(), |value| format!(" of {value}"));
    let scaled = |measure: Measure, found: u128| {
        let text = scaled(measure, found);
        if shown(measure, &text).is_none_or(|shown| !comparison.holds(shown, expected)) {
            return text;
        }
        let Amount { number, unit, .. } = exactly(measure, found);
        unit.map_or(number.clone(), |unit| format!("{number} {}", unit.value))
    };
    match measure {
        Measure::Comm => format!("{} of comm{of}", scaled(measure, found)),
        Measure::SerialTime => format!("a serial time of {}", scaled(measure, found)),
        Measure::PeakMemory => format!("{} at the peak", scaled(measure, found)),
        Measure::WireBytes => format!("{} on the wire{of}", scaled(measure, found)),
        Measure::Collectives => {
            format!("{found} collective{}{of}", if found == 1 { "" } else { "s" })
        }
        Measure::Count(op) => format!("{found} {}{of}", if found == 1 { op } else { plural(op) }),
    }
}

fn plural(op: &'static str) -> &'static str {
    OPS.iter().find(|(one, _)| *one == op).map_or(op, |(_, many)| many)
}

fn scaled(measure: Measure, amount: u128) -> String {
    let amount = u64::try_from(amount).unwrap_or(u64::MAX);
    match measure.unit() {
        Unit::Time => scale::time(Picoseconds(amount)),
        Unit::Bytes => scale::bytes(Bytes(amount)),
        Unit::Count => amount.to_string(),
    }
}

/// The amount that a figure with a unit reads as: 16,400,000 of `16.4 us`.
fn shown(measure: Measure, text: &str) -> Option<u128> {
    let (number, word) = text.split_once(' ')?;
    let (_, scale) = measure.unit().words().iter().find(|(unit, _)| *unit == word)?;
    Some((number.parse::<f64>().ok()? * *scale as f64).round() as u128)
}

/// The claim with an amount that the plan keeps.
fn holding(
    expectation: &Expectation,
    measure: Measure,
    comparison: Comparison,
    found: u128,
) -> Claim {
    // A plan with 0 of something keeps no claim `> n`: the claim becomes `>= 0`.
    let (comparison, amount) = match comparison {
        Comparison::Equal => (comparison, exactly(measure, found)),
        Comparison::AtMost => (comparison, about(measure, found, true)),
        Comparison::Less => (comparison, about(measure, found + 1, true)),
        Comparison::Greater if found > 0 => (comparison, about(measure, found - 1, false)),
        Comparison::AtLeast | Comparison::Greater => {
            (Comparison::AtLeast, about(measure, found, false))
        }
    };
    match with_amount(&expectation.written, amount) {
        Claim::Measured { measure: word, of, amount, .. } => {
            let is_none = matches!(expectation.written, Claim::None { .. });
            // `no all-gather` becomes a number of all-gathers; of a time or of bytes, a bound.
            let (comparison, amount) = match measure.unit() {
                Unit::Count => (comparison, amount),
                Unit::Time | Unit::Bytes if is_none => {
                    (Comparison::AtMost, about(measure, found, true))
                }
                Unit::Time | Unit::Bytes => (comparison, amount),
            };
            let many = match measure {
                Measure::Count(op) if is_none => plural(op).to_string(),
                Measure::Collectives if is_none => "collectives".to_string(),
                Measure::Comm
                | Measure::SerialTime
                | Measure::PeakMemory
                | Measure::WireBytes
                | Measure::Collectives
                | Measure::Count(_) => word.value.clone(),
            };
            let (word, comparison) =
                (Spanned::new(many, word.span), Spanned::new(comparison, word.span));
            Claim::Measured { measure: word, of, comparison, amount }
        }
        other => other,
    }
}

/// An amount to the last base unit, in the largest unit that divides it: `16384ns`, `4423680B`.
fn exactly(measure: Measure, found: u128) -> Amount {
    let (word, scale) = largest_unit(measure, |word, scale| {
        !word.contains('i') && found.is_multiple_of(scale) && scale <= found
    });
    written((found / scale).to_string(), word)
}

/// An amount with at most three decimals, not below what was found, or not above it where `up` is
/// false.
fn about(measure: Measure, found: u128, up: bool) -> Amount {
    // Decimal units only: they are the ones that reports use.
    let (word, scale) = largest_unit(measure, |word, scale| !word.contains('i') && scale <= found);
    let thousandths = found.saturating_mul(1000);
    let thousandths = if up { thousandths.div_ceil(scale) } else { thousandths / scale };
    // An amount in the base unit is whole: its decimals are zeros, which are cut off.
    let number = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    written(number.trim_end_matches('0').trim_end_matches('.').to_string(), word)
}

/// The largest unit that will do; the base unit where none does.
fn largest_unit(measure: Measure, will_do: impl Fn(&str, u128) -> bool) -> (&'static str, u128) {
    let units = measure.unit().words().iter().map(|(word, scale)| (*word, u128::from(*scale)));
    units
        .filter(|(word, scale)| *scale == 1 || will_do(word, *scale))
        .max_by_key(|unit| unit.1)
        .unwrap_or_else(|| never!("a measure without a base unit", ("", 1)))
}

fn written(number: String, unit: &str) -> Amount {
    let unit = (!unit.is_empty()).then(|| Spanned::new(unit.to_string(), Span::default()));
    Amount { span: Span::default(), number, unit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;
    use shard_check::expectations::STRATEGIES;

    fn text(amount: Amount) -> String {
        format!("{}{}", amount.number, amount.unit.map_or(String::new(), |u| u.value))
    }

    #[test]
    fn an_amount_that_holds_is_rounded_to_the_right_side() {
        assert_eq!(text(about(Measure::Comm, 16_384_123, true)), "16.385us");
        assert_eq!(text(about(Measure::Comm, 16_384_123, false)), "16.384us");
        assert_eq!(text(about(Measure::Comm, 0, true)), "0ps");
        assert_eq!(text(about(Measure::WireBytes, 4_423_680, true)), "4.424MB");
        assert_eq!(text(about(Measure::Collectives, 3, true)), "3");
        assert_eq!(text(exactly(Measure::Comm, 16_384_000)), "16384ns");
        assert_eq!(text(exactly(Measure::WireBytes, 4096)), "4096B");
        assert_eq!(text(exactly(Measure::Collectives, 2)), "2");
    }

    #[test]
    fn every_strategy_of_a_report_can_be_expected() {
        for name in Strategy::ALL {
            assert!(STRATEGIES.contains(&name.name()), "{}", name.name());
        }
    }
}
