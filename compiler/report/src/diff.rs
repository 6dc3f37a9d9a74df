//! `diff`: what tells two plans of a layer apart, down to the line of the source.

use shard_ir::Picoseconds;

use crate::Layer;
use crate::comparison::{ComparedPlan, Comparison, Side};
use crate::notation::mesh_text;
use crate::page::Page;
use crate::recorded::sized;
use crate::scale;
use crate::strategy::strategies;
use crate::why_not::{move_lines, side};

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

/// A layer that `diff` compares: lowered now, or read from JSON.
pub(crate) trait ComparedLayer: Copy {
    /// Its plan.
    type Plan: ComparedPlan;

    fn compared(self) -> Self::Plan;
    /// How the layer is named.
    fn title(self) -> String;
    /// The head of the comparison with another layer, alike or not.
    fn facts(self, other: Self) -> Vec<Fact>;
}

impl<'a> ComparedLayer for Layer<'a> {
    type Plan = Side<'a>;

    fn compared(self) -> Side<'a> {
        side(&self)
    }

    fn title(self) -> String {
        self.plan().name.clone()
    }

    fn facts(self, other: Self) -> Vec<Fact> {
        let mesh = |l: &Layer<'_>| mesh_text(&l.plan().mesh);
        let dims = |l: &Layer<'_>| {
            let dims = l.plan().dims.iter().map(|d| sized(&d.name, d.size, d.useful));
            dims.collect::<Vec<_>>()
        };
        let results =
            |l: &Layer<'_>| l.plan().outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
        let names = |l: &Layer<'_>| strategies(l.plan()).join(", ");
        let peak = |l: &Layer<'_>| scale::bytes(l.peak());
        let (a, b) = (&self, &other);
        let (dims_before, dims_after) = apart(&dims(a), &dims(b));
        let (results_before, results_after) = apart(&results(a), &results(b));
        let (s, t) = (&a.price.totals, &b.price.totals);
        vec![
            Fact::new("mesh", mesh(a), mesh(b)),
            Fact::new("hardware", a.hardware.name.clone(), b.hardware.name.clone()),
            Fact::new("dims", dims_before, dims_after),
            Fact::new("results", results_before, results_after),
            Fact::new("strategy", names(a), names(b)),
            Fact::new("bytes sent", scale::bytes(s.comm_bytes), scale::bytes(t.comm_bytes)),
            Fact::new("communication", scale::time(s.comm_time), scale::time(t.comm_time)),
            Fact::new("memory at the peak", peak(a), peak(b)),
            Fact::of_all_steps(s.serial_time, t.serial_time),
        ]
    }
}

/// The members of each of two lists that the other does not have.
pub(crate) fn apart(a: &[String], b: &[String]) -> (String, String) {
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|one| !other.contains(one)).cloned().collect::<Vec<_>>().join(", ")
    };
    (only(a, b), only(b, a))
}

/// Whether anything differs between plans that were lowered now.
pub fn differs(pairs: &[Pair<Layer<'_>>]) -> bool {
    any_differs(pairs)
}

/// The differences of plans that were lowered now, as text; what is the same is left out.
pub fn diff(pairs: &[Pair<Layer<'_>>], width: usize) -> String {
    text(pairs, width)
}

pub(crate) fn any_differs<L: ComparedLayer>(pairs: &[Pair<L>]) -> bool {
    pairs.iter().any(|pair| match pair {
        (Some(a), Some(b)) => {
            !Comparison::of(a.compared(), b.compared()).is_empty()
                || a.facts(*b).iter().any(Fact::differs)
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => true,
    })
}

pub(crate) fn text<L: ComparedLayer>(pairs: &[Pair<L>], width: usize) -> String {
    let texts: Vec<String> = pairs.iter().map(|pair| pair_text(*pair, width)).collect();
    texts.join("\n")
}

fn pair_text<L: ComparedLayer>(pair: Pair<L>, width: usize) -> String {
    let mut page = Page::of_width(width);
    match pair {
        (Some(a), Some(b)) => differences(&mut page, a, b),
        (Some(one), None) => page.line(&format!("layer {}: only in the first", one.title())),
        (None, Some(one)) => page.line(&format!("layer {}: only in the second", one.title())),
        (None, None) => {}
    }
    page.text
}

fn differences<L: ComparedLayer>(page: &mut Page, a: L, b: L) {
    let name =
        if a.title() == b.title() { a.title() } else { format!("{} -> {}", a.title(), b.title()) };
    let (facts, x, y) = (a.facts(b), a.compared(), b.compared());
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
