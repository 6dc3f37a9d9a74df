//! `diff`: what tells two plans of a layer apart, down to the line of the source.
//!
//! Both plans are [`Recorded`], also one that was lowered now. So a plan is compared in the same
//! way before and after it is written down.

use shard_cost::Bytes;
use shard_ir::Picoseconds;

use crate::comparison::{ComparedPlan, Comparison};
use crate::page::Page;
use crate::recorded::{Dim, Optimality, Recorded, picoseconds};
use crate::scale;
use crate::why_not::move_lines;

/// Two sides of a layer; `None` where only one side has it.
pub type Pair<L> = (Option<L>, Option<L>);

/// A line of the head of a comparison: a figure or a name before and after.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) before: String,
    pub(crate) after: String,
    /// ` (+39.0 us, +17.8 %)`, or nothing.
    pub(crate) more: String,
}

impl Fact {
    pub(crate) fn new(name: &'static str, before: String, after: String) -> Fact {
        Fact { name, before, after, more: String::new() }
    }

    /// The time of all steps; how much more it is stands behind, where it is another.
    pub(crate) fn of_all_steps(before: Picoseconds, after: Picoseconds) -> Fact {
        let more = if before == after { String::new() } else { change(before, after) };
        Fact { more, ..Fact::new("all steps", scale::time(before), scale::time(after)) }
    }

    pub(crate) fn differs(&self) -> bool {
        self.before != self.after
    }
}

/// The head of the comparison of two layers: each figure and name, alike or not.
pub(crate) fn facts(a: &Recorded, b: &Recorded) -> Vec<Fact> {
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
    let dims = |of: &Recorded| of.dims.iter().map(Dim::sized).collect::<Vec<_>>();
    let results = |of: &Recorded| of.outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
    let lists = [("dims", dims(a), dims(b)), ("results", results(a), results(b))];
    // A document of an earlier version may lack them.
    let known = lists.into_iter().filter(|(_, x, y)| !x.is_empty() && !y.is_empty());
    let lists = known.map(|(name, x, y)| {
        let (x, y) = apart(&x, &y);
        Fact::new(name, x, y)
    });
    // Nothing was proven of a plan that was given as IR text, which may be the same plan.
    let proofs = a.optimality.as_ref().zip(b.optimality.as_ref());
    let proofs = proofs.map(|(x, y)| Fact::new("proof", proof(x), proof(y)));
    let (s, t) = (&a.totals, &b.totals);
    let mut out = vec![
        Fact::new("mesh", mesh(a), mesh(b)),
        Fact::new("hardware", a.hardware.clone(), b.hardware.clone()),
    ];
    out.extend(lists);
    out.extend([
        Fact::new("objective", objective(a), objective(b)),
        Fact::new("strategy", a.strategy.join(", "), b.strategy.join(", ")),
    ]);
    out.extend(proofs);
    out.extend([
        Fact::new("bytes sent", bytes(s.comm_bytes), bytes(t.comm_bytes)),
        Fact::new(
            "communication",
            scale::time(time(s.comm_time_s)),
            scale::time(time(t.comm_time_s)),
        ),
        Fact::new("memory at the peak", bytes(a.peak_bytes()), bytes(b.peak_bytes())),
        Fact::of_all_steps(time(s.serial_time_s), time(t.serial_time_s)),
    ]);
    out
}

/// How far a plan was proven.
fn proof(found: &Optimality) -> String {
    if found.status == "proven" {
        return "proven".to_string();
    }
    let by = found.stopped_by.as_ref().map_or(String::new(), |limit| format!(" by {limit}"));
    let least = scale::seconds(found.lower_bound_s);
    format!("{}{by}, at least {least} of {}", found.status, scale::seconds(found.cost_s))
}

/// The members of each of two lists that the other does not have.
pub(crate) fn apart(a: &[String], b: &[String]) -> (String, String) {
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|one| !other.contains(one)).cloned().collect::<Vec<_>>().join(", ")
    };
    (only(a, b), only(b, a))
}

/// Whether anything differs.
pub fn differs(pairs: &[Pair<&Recorded>]) -> bool {
    pairs.iter().any(|pair| match pair {
        (Some(a), Some(b)) => {
            !Comparison::of(*a, *b).is_empty() || facts(a, b).iter().any(Fact::differs)
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => true,
    })
}

/// The differences as text; what is the same is left out.
pub fn text(pairs: &[Pair<&Recorded>], width: usize) -> String {
    let texts: Vec<String> = pairs.iter().map(|pair| pair_text(*pair, width)).collect();
    texts.join("\n")
}

fn pair_text(pair: Pair<&Recorded>, width: usize) -> String {
    let mut page = Page::of_width(width);
    match pair {
        (Some(a), Some(b)) => differences(&mut page, a, b),
        (Some(one), None) => page.line(&format!("layer {}: only in the first", one.title())),
        (None, Some(one)) => page.line(&format!("layer {}: only in the second", one.title())),
        (None, None) => {}
    }
    page.text
}

fn differences(page: &mut Page, x: &Recorded, y: &Recorded) {
    let name =
        if x.title() == y.title() { x.title() } else { format!("{} -> {}", x.title(), y.title()) };
    let facts = facts(x, y);
    let compared = Comparison::of(x, y);
    if compared.is_empty() && !facts.iter().any(Fact::differs) {
        return page.line(&format!("layer {name}: no difference"));
    }
    page.line(&format!("layer {name}"));
    for fact in facts.iter().filter(|fact| fact.differs()) {
        let Fact { name, before, after, more } = fact;
        page.row(&format!("  {name}"), &format!("{before} -> {after}{more}"));
    }
    if !(compared.went.is_empty() && compared.came.is_empty() && compared.resized.is_empty()) {
        page.line("  collectives");
    }
    compared.went.iter().for_each(|step| move_lines(page, '-', x, *step));
    compared.came.iter().for_each(|step| move_lines(page, '+', y, *step));
    for (before, after) in &compared.resized {
        page.row(
            &format!("    ~ {}: {}{}", y.phrase(*after), y.told(*after), in_line(y, *after)),
            &format!("{} -> {}", figures(x, *before), figures(y, *after)),
        );
    }
    if !compared.relaid.is_empty() {
        page.line("  values that lie otherwise");
    }
    for (before, after) in &compared.relaid {
        let layouts = format!("{} -> {}", x.layout(*before), y.layout(*after));
        page.row(&format!("    {}{}", y.told(*after), in_line(y, *after)), &layouts);
    }
    if !compared.retimed.is_empty() {
        page.line("  ops that take another time");
    }
    for (before, after) in &compared.retimed {
        let times = format!("{} -> {}", scale::time(x.time(*before)), scale::time(y.time(*after)));
        page.row(&format!("    {}{}", y.told(*after), in_line(y, *after)), &times);
    }
    if !(compared.values_went.is_empty() && compared.values_came.is_empty()) {
        page.line("  values");
    }
    for (sign, plan, steps) in [('-', x, &compared.values_went), ('+', y, &compared.values_came)] {
        for step in steps {
            let (told, line) = (plan.told(*step), in_line(plan, *step));
            page.row(
                &format!("    {sign} {told} = {}{line}", plan.phrase(*step)),
                &plan.layout(*step),
            );
        }
    }
}

/// `  (line 3)`, or nothing.
pub(crate) fn in_line<P: ComparedPlan>(plan: P, step: P::Step) -> String {
    plan.line(step).map_or_else(String::new, |line| format!("  (line {line})"))
}

/// The bytes and the time of a move.
fn figures<P: ComparedPlan>(plan: P, step: P::Step) -> String {
    format!("{}, {}", scale::bytes(plan.bytes(step)), scale::time(plan.time(step)))
}

/// ` (+39.0 us, +17.8 %)`.
fn change(before: Picoseconds, after: Picoseconds) -> String {
    let (sign, by) =
        if after >= before { ('+', after.0 - before.0) } else { ('-', before.0 - after.0) };
    match before.0 {
        0 => format!(" ({sign}{})", scale::time(Picoseconds(by))),
        n => format!(
            " ({sign}{}, {sign}{:.1} %)",
            scale::time(Picoseconds(by)),
            100.0 * by as f64 / n as f64
        ),
    }
}
