//! The report as an HTML page that needs no script and no other file.

use askama::Template;
use shard_cost::Bytes;
use shard_ir::never;
use shard_report::scale;

use crate::before::optimum::Move;
use crate::before::sharding::whole_partition_spec;
use crate::compare::{Advice, Comparison, Recompiled};
use crate::hlo::tables::Place;
use crate::report::{Line, Report, Totals};

/// The texts of the page.
#[derive(Template)]
#[template(path = "audit.html")]
struct Page<'a> {
    title: String,
    facts: String,
    /// The compiled program and the optima, each with what it costs.
    plans: Vec<(&'static str, Cost)>,
    again: Option<Again<'a>>,
    /// Sentences on what was not compiled, not understood or not found.
    notes: Vec<String>,
    moves: Vec<MoveRow<'a>>,
    edits: Vec<EditRow<'a>>,
    lines: Vec<LineRow<'a>>,
}

/// What is sent, and how long that takes.
struct Cost {
    sent: String,
    time: String,
}

/// What XLA made of the edits.
struct Again<'a> {
    platform: &'a str,
    programs: [(&'static str, String); 3],
    left: Vec<(String, String)>,
    verdict: String,
}

/// A move of the optimum.
struct MoveRow<'a> {
    place: String,
    what: String,
    value: &'a str,
    asked: String,
    sent: String,
}

struct EditRow<'a> {
    place: String,
    value: &'a str,
    from: &'a str,
    to: &'a str,
    tried: &'static str,
    saves: String,
}

struct LineRow<'a> {
    place: String,
    text: &'a str,
    cost: Cost,
    share: String,
    collectives: Vec<CollectiveRow<'a>>,
}

struct CollectiveRow<'a> {
    what: String,
    operands: String,
    executions: String,
    causes: String,
    op: &'a str,
    cost: Cost,
}

/// The page.
pub fn html(report: &Report) -> String {
    let comparison = report.comparison.as_ref();
    let page = Page {
        title: format!("audit of {}", report.file),
        facts: facts(report),
        plans: plans(report),
        again: comparison.and_then(|c| c.compiled.as_ref()).map(again),
        notes: comparison.map(notes).unwrap_or_default(),
        moves: comparison.map(|c| c.moves.iter().map(move_row).collect()).unwrap_or_default(),
        edits: comparison.map(|c| c.advice.iter().map(edit).collect()).unwrap_or_default(),
        lines: report.lines.iter().map(|line| line_row(report, line)).collect(),
    };
    // Rendering cannot fail, since every hole of the template is a string.
    page.render().unwrap_or_else(|_| never!("a page that does not render", String::new()))
}

fn sent(bytes: u64) -> String {
    scale::bytes(Bytes(bytes))
}

fn cost(totals: Totals) -> Cost {
    let time = totals.time.map_or("–".to_string(), scale::time);
    Cost { sent: sent(totals.wire_bytes), time }
}

/// A place as text, or the words `none` without one.
fn place(place: Option<&Place>, none: &str) -> String {
    place.map_or(none.to_string(), ToString::to_string)
}

fn facts(report: &Report) -> String {
    let mesh = report.mesh.as_ref().map_or("no mesh given".to_string(), |mesh| {
        let axes: Vec<String> = mesh.iter().map(|(name, n)| format!("{name}={n}")).collect();
        axes.join(", ")
    });
    let (program, chip) = (&report.program, report.chip.as_deref().unwrap_or("no chip named"));
    format!("{}: {} devices, {mesh}, {chip}", program.name, program.devices)
}

fn plans(report: &Report) -> Vec<(&'static str, Cost)> {
    let of = |of: fn(&Comparison) -> Option<Totals>| report.comparison.as_ref().and_then(of);
    let plans = [
        ("as compiled", Some(report.totals)),
        ("optimum, arguments and results laid out as they are", of(|c| c.same_specs)),
        ("optimum with the edits applied", of(|c| c.free)),
    ];
    plans.into_iter().filter_map(|(name, totals)| Some((name, cost(totals?)))).collect()
}

fn again(compiled: &Recompiled) -> Again<'_> {
    let left = compiled.left.iter().map(|left| {
        let (at, axes) = (place(left.place.as_ref(), "no source line"), left.axes.join(", "));
        (format!("{at}: {} over {axes}", left.op), sent(left.wire_bytes))
    });
    Again {
        platform: &compiled.platform,
        programs: [
            ("as it is", sent(compiled.as_is)),
            ("with the edits below", sent(compiled.edited)),
            ("optimum with these edits", sent(compiled.optimum)),
        ],
        left: left.collect(),
        verdict: compiled.verdict(),
    }
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let not_compiled =
        comparison.not_compiled.iter().map(|why| format!("not compiled again: {why}"));
    let barriers = comparison.barriers.iter().map(|barrier| {
        let share = 100.0 * barrier.share;
        format!("not understood: {} x {}, {share:.1} % of the ops", barrier.count, barrier.op)
    });
    not_compiled.chain(barriers).chain(comparison.why_not.clone()).collect()
}

fn move_row(one: &Move) -> MoveRow<'_> {
    let asked = |spec| format!("with_sharding_constraint(.., {})", whole_partition_spec(spec));
    MoveRow {
        place: place(one.place.as_ref(), ""),
        what: format!("{} over {}", one.op, one.axes.join(", ")),
        value: one.value.as_deref().unwrap_or("a value"),
        asked: one.to.as_ref().map(asked).unwrap_or_default(),
        sent: sent(one.wire_bytes),
    }
}

fn edit(one: &Advice) -> EditRow<'_> {
    EditRow {
        place: place(one.source.as_ref(), ""),
        value: &one.value,
        from: &one.from,
        to: &one.to,
        tried: one.tried.words(),
        saves: sent(one.saves_bytes),
    }
}

fn line_row<'a>(report: &'a Report, line: &'a Line) -> LineRow<'a> {
    let collective = |index: &usize| {
        let one = &report.program.collectives[*index];
        let operands: Vec<String> = one.operands.iter().map(ToString::to_string).collect();
        CollectiveRow {
            what: format!("{} over {}", one.kind.name(), report.over(one)),
            operands: operands.join(", "),
            executions: one.executions.to_string(),
            causes: one.causes().join("; "),
            op: one.op_name.as_deref().unwrap_or_default(),
            cost: cost(report.costs[*index]),
        }
    };
    LineRow {
        place: place(line.place.as_ref(), "no source line"),
        text: line.text.as_deref().unwrap_or_default().trim(),
        cost: cost(line.totals),
        share: format!("{:.1}", 100.0 * report.share(line.totals)),
        collectives: line.collectives.iter().map(collective).collect(),
    }
}
