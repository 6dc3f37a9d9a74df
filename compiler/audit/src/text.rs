//! The report as text for people.

use shard_cost::Bytes;
use shard_report::page::Page;
use shard_report::scale;

use crate::before::optimum::Move;
use crate::before::sharding::whole_partition_spec;
use crate::collectives::Collective;
use crate::compare::{AdviceKind, Comparison, Recompiled};
use crate::hlo::trips::Known;
use crate::report::{Line, Report, Totals};

/// The most characters of a line; only lines with the user's own text may be longer.
const WIDTH: usize = 92;

/// Columns of bytes, time and share.
const FIGURES: usize = 30;

/// The report as text.
pub fn text(report: &Report) -> String {
    let mut page = Page::of_width(WIDTH);
    heading(report, &mut page);
    for line in &report.lines {
        one_line(report, line, &mut page);
    }
    sums(report, &mut page);
    if let Some(comparison) = &report.comparison {
        compared(report, comparison, &mut page);
    }
    page.text
}

/// A row with words on the left and figures at the right edge.
fn row(page: &mut Page, words: &str, figures: &str) {
    let left = WIDTH.saturating_sub(words.chars().count());
    if left > figures.chars().count() {
        page.line(&format!("{words}{figures:>left$}"));
    } else {
        page.line(words);
        page.line(&format!("{figures:>WIDTH$}"));
    }
}

fn figures(report: &Report, of: Totals, share: bool) -> String {
    let bytes = scale::bytes(Bytes(of.wire_bytes));
    let time = match of.time {
        Some(time) => scale::time(time),
        None if report.chip.is_some() => "-".to_string(),
        None => String::new(),
    };
    let share = if share { format!("{:.1} %", 100.0 * report.share(of)) } else { String::new() };
    let text = format!("{bytes:>10}{time:>11}{share:>9}");
    debug_assert!(text.chars().count() <= FIGURES + 4);
    text
}

fn heading(report: &Report, page: &mut Page) {
    let sent = scale::bytes(Bytes(report.totals.wire_bytes));
    let devices = match report.program.devices {
        1 => "1 device".to_string(),
        n => format!("{n} devices"),
    };
    let mesh = report.mesh.as_ref().map_or_else(
        || "no mesh given: groups instead of axes".to_string(),
        |mesh| {
            let axes: Vec<String> = mesh.iter().map(|(name, n)| format!("{name}={n}")).collect();
            format!("mesh {}", axes.join(", "))
        },
    );
    page.line(&format!("{}: {}, {devices}, {mesh}", report.file, report.program.name));
    let runs: u128 = report.program.collectives.iter().map(|one| one.executions).sum();
    let time = match (&report.chip, report.totals.time) {
        (Some(chip), Some(time)) => format!(", {} on {chip}", scale::time(time)),
        (Some(chip), None) => {
            format!(", for a time on {chip} that is not known of all groups")
        }
        (None, _) => String::new(),
    };
    let count = report.program.collectives.len();
    let collectives = match (count, runs) {
        (0, _) => "no collective".to_string(),
        (1, 1) => "1 collective, once".to_string(),
        (1, n) => format!("1 collective, {n} times"),
        (many, n) => format!("{many} collectives, run {n} times in all"),
    };
    page.line(&format!("each run, a device sends {sent}{time}: {collectives}"));
    page.line("");
}

fn one_line(report: &Report, line: &Line, page: &mut Page) {
    let place = line.place.as_ref().map_or("no source line".to_string(), ToString::to_string);
    row(page, &place, &figures(report, line.totals, true));
    if let Some(text) = &line.text {
        page.line(&format!("  | {}", text.trim()));
    }
    for alike in alike(report, &line.collectives) {
        let one = &report.program.collectives[alike[0]];
        let mut totals = Totals { wire_bytes: 0, time: Some(shard_ir::Picoseconds(0)) };
        for index in &alike {
            let cost = report.costs[*index];
            totals.wire_bytes = totals.wire_bytes.saturating_add(cost.wire_bytes);
            totals.time = totals.time.zip(cost.time).map(|(a, b)| a + b);
        }
        row(
            page,
            &format!("  {}", what(report, one, alike.len())),
            &figures(report, totals, false),
        );
        for cause in one.causes() {
            page.wrapped(6, &cause);
        }
        if let Some(op) = &one.op_name {
            page.line(&format!("      from {op}"));
        }
        let callers: Vec<String> = one.stack.iter().skip(1).map(ToString::to_string).collect();
        if !callers.is_empty() {
            page.wrapped(6, &format!("called from {}", callers.join(", ")));
        }
    }
    page.line("");
}

/// Collectives in groups that one sentence describes.
fn alike(report: &Report, of: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for index in of {
        let one = &report.program.collectives[*index];
        let key = format!("{} {:?} {:?}", what(report, one, 1), one.causes(), one.op_name);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(*index),
            None => groups.push((key, vec![*index])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// `all-gather over model of f32[4,256,1024], 8 times in a loop`.
fn what(report: &Report, one: &Collective, count: usize) -> String {
    let operands = match &one.operands[..] {
        [only] => only.to_string(),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            format!("{} x {first}", rest.len() + 1)
        }
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    };
    let times = if count > 1 { format!("{count} x ") } else { String::new() };
    let turns = match one.executions {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let unknown = one.loops.iter().any(|at| report.program.loops[*at].known == Known::No);
    let unknown = if unknown { ", in a loop of unknown length" } else { "" };
    format!("{times}{} over {} of {operands}{turns}{unknown}", one.kind.name(), report.over(one))
}

fn sums(report: &Report, page: &mut Page) {
    if report.program.collectives.is_empty() {
        return;
    }
    page.line("by kind");
    for (kind, totals) in report.sums(|one| one.kind) {
        row(page, &format!("  {}", kind.name()), &figures(report, totals, true));
    }
    page.line("by axes");
    for (axes, totals) in report.sums(|one| report.over(one)) {
        row(page, &format!("  {axes}"), &figures(report, totals, true));
    }
    let loops: Vec<String> = report
        .program
        .loops
        .iter()
        .map(|one| match one.known {
            Known::No => format!("{} (length unknown, counted once)", one.body),
            Known::Printed | Known::Condition => format!("{} x{}", one.body, one.trips),
        })
        .collect();
    if !loops.is_empty() {
        page.line("loops");
        page.wrapped(2, &loops.join(", "));
    }
}

fn compared(report: &Report, comparison: &Comparison, page: &mut Page) {
    page.line("");
    page.line("could be");
    row(page, "  as compiled", &figures(report, report.totals, false));
    let rows = [
        ("  optimum, arguments and results laid out as they are", comparison.same_specs),
        ("  optimum with the edits applied", comparison.free),
    ];
    for (words, totals) in rows {
        if let Some(totals) = totals {
            row(page, words, &figures(report, totals, false));
        }
    }
    if let Some(by_hand) = comparison.by_hand.filter(|totals| totals.wire_bytes > 0) {
        row(page, "  of each, what shard_maps send by hand", &figures(report, by_hand, false));
    }
    if !comparison.moves.is_empty() && comparison.same_specs != Some(report.totals) {
        page.line("  what the first of the two sends");
        for (one, times) in counted(&comparison.moves) {
            let place = one.place.as_ref().map_or(String::new(), |place| format!("{place}: "));
            let value = one.value.as_deref().unwrap_or("a value");
            let axes = one.axes.join(", ");
            let bytes = scale::bytes(Bytes(one.wire_bytes));
            let behind = " ".repeat(20);
            // Turns of a loop that is written out have moves that are alike.
            let times = if times > 1 { format!(", {times} times") } else { String::new() };
            let words = format!("    {place}{} over {axes} of {value}{times}", one.op);
            row(page, &words, &format!("{bytes:>10}{behind}"));
            if let Some(spec) = &one.to {
                let spec = whole_partition_spec(spec);
                page.line(&format!("      with_sharding_constraint(.., {spec}) asks for it"));
            }
        }
    }
    if let Some(why) = &comparison.why_not {
        page.wrapped(2, why);
    }
    if let Some(compiled) = &comparison.compiled {
        recompiled(compiled, page);
    }
    if let Some(why) = &comparison.not_compiled {
        page.wrapped(2, &format!("not compiled again: {why}"));
    }
    for barrier in &comparison.barriers {
        let (count, op, share) = (barrier.count, &barrier.op, 100.0 * barrier.share);
        let words = format!("not understood: {count} x {op}, {share:.1} % of the ops");
        page.wrapped(2, &words);
    }
    if comparison.advice.is_empty() {
        return;
    }
    page.line("");
    page.line("to edit");
    for advice in &comparison.advice {
        let place = advice.source.as_ref().map_or(String::new(), |place| format!("{place}: "));
        let what = match advice.kind {
            AdviceKind::Constraint => "constrain",
            AdviceKind::Spec => "annotate",
        };
        let saves = scale::bytes(Bytes(advice.saves_bytes));
        row(page, &format!("  {place}{what} {}", advice.value), &format!("saves {saves}"));
        page.line(&format!("    - {}", advice.from));
        page.line(&format!("    + {}", advice.to));
        page.wrapped(4, &format!("tried: {}", advice.tried.words()));
    }
}

/// Moves with those that are alike as one, which has the sum of what they send; each with the
/// number of moves that it stands for.
fn counted(moves: &[Move]) -> Vec<(Move, usize)> {
    let mut found: Vec<(Move, usize)> = Vec::new();
    for one in moves {
        let is_alike = |(known, times): &(Move, usize)| {
            let times = *times as u64;
            known.wire_bytes == one.wire_bytes.saturating_mul(times)
                && Move { wire_bytes: one.wire_bytes, ..known.clone() } == *one
        };
        match found.iter_mut().find(|known| is_alike(known)) {
            Some((known, times)) => {
                known.wire_bytes = known.wire_bytes.saturating_add(one.wire_bytes);
                *times += 1;
            }
            None => found.push((one.clone(), 1)),
        }
    }
    found
}

/// What XLA made of the edits.
fn recompiled(compiled: &Recompiled, page: &mut Page) {
    let bytes_row = |page: &mut Page, words: &str, bytes: u64| {
        let bytes = scale::bytes(Bytes(bytes));
        row(page, words, &format!("{bytes:>10}{:20}", ""));
    };
    page.line("");
    page.line(&format!(
        "compiled again for {}, {} times",
        compiled.platform, compiled.compilations
    ));
    bytes_row(page, "  as it is", compiled.as_is);
    bytes_row(page, "  with the edits below", compiled.edited);
    bytes_row(page, "  optimum with these edits", compiled.optimum);
    page.wrapped(2, &compiled.verdict());
    for left in &compiled.left {
        let place = left.place.as_ref().map_or("no source line".to_string(), ToString::to_string);
        let words = format!("    {place}: {} over {}", left.op, left.axes.join(", "));
        bytes_row(page, &words, left.wire_bytes);
    }
}
