//! `explain --why`: how one instruction came to be, rule by rule, each step with what the best plan
//! took before and after.

use shard_check::Label;
use shard_ir::{InstrId, InstrKind, Picoseconds};
use shard_search::{Alternative, Proof};

use crate::Layer;
use crate::comparison::told;
use crate::draw::snippet;
use crate::notation::phrase;
use crate::page::Page;
use crate::scale;
use crate::words::{reason_of, without};

/// The derivation of one instruction.
#[derive(Clone, Debug)]
pub struct Why<'a> {
    /// The chosen plan.
    pub layer: Layer<'a>,
    /// The instruction.
    pub id: InstrId,
    /// Places of the source: the one that forces it, and those that it follows from.
    pub places: Vec<Label>,
    /// The op whose layouts ask for it, and its layouts from whole on every device to the chosen
    /// one.
    pub steps: Vec<DerivationStep>,
    /// The best plan without it.
    pub alternative: Option<Alternative>,
    /// Lines that could be written so that it goes, the cheapest first.
    pub removals: Vec<Removal>,
}

/// One step of a derivation: a layout of the value, and the best plan that has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DerivationStep {
    /// What the step adds: `yz on the free dim F`.
    pub what: String,
    /// The rule; none for the first step.
    pub rule: Option<String>,
    /// The layout of the value.
    pub layout: String,
    /// What the best plan takes.
    pub time: Picoseconds,
}

/// A line of the source with which the collective is not there; its plan was searched for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removal {
    /// What to write.
    pub text: String,
    /// What the best plan takes then.
    pub time: Picoseconds,
    /// It changes what callers of the layer hand in or get.
    pub moves_the_border: bool,
}

/// The derivations as text.
pub fn why(answers: &[Why<'_>], width: usize, colour: bool) -> String {
    let texts: Vec<String> = answers.iter().map(|a| answer(a, width, colour)).collect();
    texts.join("\n")
}

/// The share of a step that an instruction takes.
pub(crate) fn share(layer: &Layer<'_>, id: InstrId) -> Option<String> {
    scale::percent(layer.time_in_step(id), layer.price.totals.serial_time)
}

fn answer(a: &Why<'_>, width: usize, colour: bool) -> String {
    let mut page = Page::of_width(width);
    let (plan, layer) = (a.layer.plan(), &a.layer);
    let instr = plan.instruction(a.id);
    let time = scale::time(layer.time_in_step(a.id));
    let share = share(layer, a.id).map_or_else(String::new, |s| format!(", {s} of the step"));
    page.row(
        &format!(
            "layer {}: why %{} {}: {}?",
            plan.name,
            a.id.0,
            phrase(plan, a.id),
            told(plan, a.id)
        ),
        &format!("{time}{share}"),
    );
    page.wrapped_more(2, 2, &journey(&a.layer, a.id));
    if let Some(reason) = reason_of(plan, a.id) {
        page.wrapped(2, &reason);
    }
    if let Some(source) = layer.source.filter(|_| !a.places.is_empty()) {
        page.line("");
        page.text.push_str(&snippet(source, &a.places, colour));
    }
    page.line("");
    steps(&mut page, a);
    if let (InstrKind::Move(_), Some(rule)) = (&instr.kind, instr.origin.rules.text()) {
        page.wrapped_more(2, 2, &format!("then {}: {time}, by {rule}", phrase(plan, a.id)));
    }
    bound(&mut page, a);
    removals(&mut page, a);
    page.text
}

fn steps(page: &mut Page, a: &Why<'_>) {
    if a.steps.is_empty() {
        return;
    }
    page.wrapped_more(0, 2, "derivation (the time of the best plan after each step)");
    let mut before: Option<Picoseconds> = None;
    for step in &a.steps {
        let change = match before {
            Some(b) if b > step.time => {
                format!("  -{}", scale::time(Picoseconds(b.0 - step.time.0)))
            }
            Some(b) if b < step.time => {
                format!("  +{}", scale::time(Picoseconds(step.time.0 - b.0)))
            }
            Some(_) => "  as before".to_string(),
            None => String::new(),
        };
        page.row(&format!("  {}", step.what), &format!("{}{change}", scale::time(step.time)));
        let rule = step.rule.as_ref().map_or_else(String::new, |rule| format!("  by {rule}"));
        page.wrapped_more(4, 2, &format!("{}{rule}", step.layout));
        before = Some(step.time);
    }
}

fn bound(page: &mut Page, a: &Why<'_>) {
    let (plan, chosen) = (a.layer.plan(), a.layer.price.totals.serial_time);
    if let Some(other) = &a.alternative {
        let more = scale::time(Picoseconds(other.time.0.saturating_sub(chosen.0)));
        page.line("without it");
        let how = without(plan, &other.avoided);
        let (time, words) = (
            scale::time(other.time),
            match &other.plan {
                Some(plan) if !other.instead.is_empty() => {
                    let instead = other
                        .instead
                        .iter()
                        .map(|id| format!("{} of {}", phrase(plan, *id), told(plan, *id)));
                    format!("{more} more, with {}", instead.collect::<Vec<_>>().join(", "))
                }
                Some(_) => format!("{more} more"),
                None => format!("at least {more} more"),
            },
        );
        page.wrapped(2, &format!("{how}: the best such plan takes {time}, {words}"));
    }
    let Some(o) = a.layer.optimality else { return };
    page.line("why nothing is cheaper");
    let bound = scale::time(o.price_bound.unwrap_or(o.lower_bound));
    let words = match o.proof {
        Some(Proof::Certificate) => format!(
            "Every value in every layout bears a price, so set that no op and no move adds more \
                to the price of what it \
             reads than it costs itself. A plan then takes at least the price of its results, \
             which is {bound}; this plan \
             takes exactly that. `explain --certificate` writes the prices down to be checked."
        ),
        Some(Proof::Search) => format!(
            "Prices on values rule out every plan below {bound}. Every plan between that and {} \
                was looked at one by one, \
             and this is the best of them.",
            scale::time(o.cost)
        ),
        None => format!(
            "Prices on values rule out every plan below {bound}. The search stopped at a limit \
                before it had looked at all \
             plans between that and {}, so one of them may be cheaper.",
            scale::time(o.cost)
        ),
    };
    page.wrapped(2, &words);
}

fn removals(page: &mut Page, a: &Why<'_>) {
    let plan = a.layer.plan();
    let InstrKind::Move(collective) = &plan.instruction(a.id).kind else { return };
    if a.removals.is_empty() {
        let words = match &plan.phase {
            _ if !collective.has_traffic() => {
                "no annotation against it was tried: it sends nothing"
            }
            _ if a.layer.source.is_none() => {
                "no annotation against it was tried: IR text has no lines to annotate"
            }
            Some(phase) => &format!(
                "no one annotation of phase `{phase}` alone does away with it (each that could was \
                    tried; weights stay as all phases store them)"
            ),
            None => "no one annotation does away with it (each that could was tried)",
        };
        page.wrapped_more(0, 2, words);
        return;
    }
    let chosen = a.layer.price.totals.serial_time;
    page.wrapped_more(0, 2, "to do away with it, write (each was lowered)");
    for removal in &a.removals {
        let cost = if removal.time >= chosen {
            format!("+{}", scale::time(Picoseconds(removal.time.0 - chosen.0)))
        } else {
            format!("-{}", scale::time(Picoseconds(chosen.0 - removal.time.0)))
        };
        page.row(&format!("  {}", removal.text), &cost);
        if removal.moves_the_border {
            page.wrapped(4, "(what is saved here, those who hand the value over may have to pay)");
        }
    }
}

/// The layouts that a value goes through up to an instruction, on one line: `x: BLE_xyz -> BLE_x`.
pub fn journey(layer: &Layer<'_>, id: InstrId) -> String {
    let plan = layer.plan();
    let mut layouts = vec![layer.layout_text(id)];
    let mut at = id;
    while let (InstrKind::Move(_), Some(operand)) =
        (&plan.instruction(at).kind, plan.instruction(at).operands.first())
    {
        at = *operand;
        layouts.push(layer.layout_text(at));
    }
    layouts.reverse();
    format!("{}: {}", told(plan, id), layouts.join(" -> "))
}
