//! `diff`: what tells two plans of a layer apart, down to the line of the source.

use shard_cost::InstrPrice;
use shard_ir::{InstrId, Picoseconds};

use crate::Layer;
use crate::comparison::{Comparison, Side, told};
use crate::notation::{mesh_text, phrase};
use crate::page::Page;
use crate::recorded::sized;
use crate::scale;
use crate::strategy::strategies;
use crate::why_not::{move_line, side};

/// Two sides of a layer; `None` where only one side has it.
pub type Pair<'a> = (Option<Layer<'a>>, Option<Layer<'a>>);

/// Whether anything differs.
pub fn differs(pairs: &[Pair<'_>]) -> bool {
    pairs.iter().any(|pair| match pair {
        (Some(a), Some(b)) => {
            !Comparison::of(side(a), side(b)).is_empty()
                || facts(a, b).iter().any(|f| f.before != f.after)
        }
        _ => true,
    })
}

/// One line of the head: a fact before and after.
struct Fact {
    name: &'static str,
    before: String,
    after: String,
}

/// Those of two lists that the other does not have.
pub(crate) fn apart(a: &[String], b: &[String]) -> (String, String) {
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|one| !other.contains(one)).cloned().collect::<Vec<_>>().join(", ")
    };
    (only(a, b), only(b, a))
}

fn facts(a: &Layer<'_>, b: &Layer<'_>) -> Vec<Fact> {
    let mesh = |l: &Layer<'_>| mesh_text(&l.plan().mesh);
    let dims = |l: &Layer<'_>| {
        let dims = l.plan().dims.iter().map(|d| sized(&d.name, d.size, d.useful));
        dims.collect::<Vec<_>>()
    };
    let results =
        |l: &Layer<'_>| l.plan().outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
    let names = |l: &Layer<'_>| strategies(l.plan()).join(", ");
    let (dims_before, dims_after) = apart(&dims(a), &dims(b));
    let (results_before, results_after) = apart(&results(a), &results(b));
    let (s, t) = (&a.price.totals, &b.price.totals);
    let peak = |layer: &Layer<'_>| scale::bytes(layer.peak());
    let fact = |name, before, after| Fact { name, before, after };
    vec![
        fact("mesh", mesh(a), mesh(b)),
        fact("hardware", a.hardware.name.clone(), b.hardware.name.clone()),
        fact("dims", dims_before, dims_after),
        fact("results", results_before, results_after),
        fact("strategy", names(a), names(b)),
        fact("bytes sent", scale::bytes(s.comm_bytes), scale::bytes(t.comm_bytes)),
        fact("communication", scale::time(s.comm_time), scale::time(t.comm_time)),
        fact("memory at the peak", peak(a), peak(b)),
        fact("all steps", scale::time(s.serial_time), scale::time(t.serial_time)),
    ]
}

/// The differences as text; what is the same is not said.
pub fn diff(pairs: &[Pair<'_>], width: usize) -> String {
    let texts: Vec<String> = pairs.iter().map(|pair| pair_text(pair, width)).collect();
    texts.join("\n")
}

fn pair_text(pair: &Pair<'_>, width: usize) -> String {
    let mut page = Page::of_width(width);
    let (a, b) = match pair {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => {
            page.line(&format!("layer {}: only in the first", a.plan().name));
            return page.text;
        }
        (None, Some(b)) => {
            page.line(&format!("layer {}: only in the second", b.plan().name));
            return page.text;
        }
        (None, None) => return page.text,
    };
    let names = (&a.plan().name, &b.plan().name);
    let name =
        if names.0 == names.1 { names.0.clone() } else { format!("{} -> {}", names.0, names.1) };
    let facts = facts(a, b);
    let compared = Comparison::of(side(a), side(b));
    if compared.is_empty() && facts.iter().all(|f| f.before == f.after) {
        page.line(&format!("layer {name}: no difference"));
        return page.text;
    }
    page.line(&format!("layer {name}"));
    for fact in facts.iter().filter(|f| f.before != f.after) {
        let more = match fact.name {
            "all steps" => change(a.price.totals.serial_time, b.price.totals.serial_time),
            _ => String::new(),
        };
        page.row(&format!("  {}", fact.name), &format!("{} -> {}{more}", fact.before, fact.after));
    }
    let (x, y) = (side(a), side(b));
    if !(compared.went.is_empty() && compared.came.is_empty() && compared.resized.is_empty()) {
        page.line("  collectives");
        compared.went.iter().for_each(|id| move_line(&mut page, '-', x, *id));
        compared.came.iter().for_each(|id| move_line(&mut page, '+', y, *id));
    }
    for (before, after) in &compared.resized {
        let figures = format!("{} -> {}", cost(x, *before), cost(y, *after));
        page.row(
            &format!("    ~ {}: {}{}", phrase(y.plan, *after), told(y.plan, *after), at(y, *after)),
            &figures,
        );
    }
    if !compared.relaid.is_empty() {
        page.line("  values that lie otherwise");
    }
    for (before, after) in &compared.relaid {
        let layouts = format!("{} -> {}", x.plan.layout_text(*before), y.plan.layout_text(*after));
        page.row(&format!("    {}{}", told(y.plan, *after), at(y, *after)), &layouts);
    }
    if !compared.retimed.is_empty() {
        page.line("  ops that take another time");
    }
    for (before, after) in &compared.retimed {
        let times = format!("{} -> {}", scale::time(x.time(*before)), scale::time(y.time(*after)));
        page.row(&format!("    {}{}", told(y.plan, *after), at(y, *after)), &times);
    }
    if !(compared.ops_went.is_empty() && compared.ops_came.is_empty()) {
        page.line("  values");
    }
    for (sign, side, ids) in [('-', x, &compared.ops_went), ('+', y, &compared.ops_came)] {
        for id in ids {
            let text = format!(
                "    {sign} {} = {}{}",
                told(side.plan, *id),
                phrase(side.plan, *id),
                at(side, *id)
            );
            page.row(&text, &side.plan.layout_text(*id));
        }
    }
    page.text
}

/// The line of an instruction, in brackets.
fn at(side: Side<'_>, id: InstrId) -> String {
    side.line(id).map_or_else(String::new, |line| format!("  (line {line})"))
}

/// The bytes and the time of all applications.
fn cost(side: Side<'_>, id: InstrId) -> String {
    let bytes = match side.price.of(id) {
        InstrPrice::Move(cost) => {
            format!("{}, ", scale::bytes(cost.bytes.times(side.plan.repeat_of(id))))
        }
        InstrPrice::Free | InstrPrice::Kernel { .. } => String::new(),
    };
    format!("{bytes}{}", scale::time(side.time(id)))
}

/// ` (+39.0 us, +17.8 %)`.
pub(crate) fn change(before: Picoseconds, after: Picoseconds) -> String {
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
