//! The report as a page of its own: no script, nothing from elsewhere.

use std::fmt::Write;

use shard_cost::Bytes;
use shard_report::scale;

use crate::before::sharding::whole_partition_spec;
use crate::compare::{Comparison, Recompiled};
use crate::report::{Report, Totals};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
    padding:0 1rem;color:#1c2430}table{border-collapse:collapse;width:100%}td,th{text-align:left;\
    padding:.25rem .6rem;border-bottom:1px solid #dde2ea;vertical-align:top}td.n,th.n{text-align:\
    right;white-space:nowrap}code,pre{font:13px ui-monospace,monospace}.bar{background:#4a7ab5;\
    height:.5rem;display:block}.why{color:#5a6575;font-size:13px}tr.line td{background:#f4f6f9;\
    font-weight:600}ins{background:#dff3e0;text-decoration:none}del{background:#fbe3e3;\
    text-decoration:none}";

/// The page.
pub fn html(report: &Report) -> String {
    let mut out = String::new();
    let title = format!("audit of {}", report.file);
    let head = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title>\
        <style>{STYLE}</style>\n<h1>{0}</h1>\n",
        escaped(&title)
    );
    out.push_str(&head);
    columns(report, &mut out);
    advice(report, &mut out);
    lines(report, &mut out);
    out.push_str("</html>\n");
    out
}

fn cells(totals: Totals) -> String {
    let time = totals.time.map_or("–".to_string(), scale::time);
    let bytes = scale::bytes(Bytes(totals.wire_bytes));
    format!("<td class=\"n\">{bytes}<td class=\"n\">{time}")
}

/// Theirs and ours side by side.
fn columns(report: &Report, out: &mut String) {
    let chip = report.chip.as_deref().unwrap_or("no chip named");
    let mesh = report.mesh.as_ref().map_or("no mesh given".to_string(), |mesh| {
        let axes: Vec<String> = mesh.iter().map(|(name, n)| format!("{name}={n}")).collect();
        axes.join(", ")
    });
    let _ = writeln!(
        out,
        "<p>{}: {} devices, {}, {}. Each figure is of one device and one run.\n<table><tr><th>\
        plan<th class=\"n\">sent<th class=\"n\">time",
        escaped(&report.program.name),
        report.program.devices,
        escaped(&mesh),
        escaped(chip)
    );
    let _ = writeln!(out, "<tr><td>as compiled{}", cells(report.totals));
    let comparison = report.comparison.as_ref();
    for (name, totals) in [
        (
            "optimum, arguments and results laid out as they are",
            comparison.and_then(|c| c.same_specs),
        ),
        ("optimum, parameters laid out freely", comparison.and_then(|c| c.free)),
    ] {
        if let Some(totals) = totals {
            let _ = writeln!(out, "<tr><td>{name}{}", cells(totals));
        }
    }
    out.push_str("</table>\n");
    if let Some(compiled) = comparison.and_then(|c| c.compiled.as_ref()) {
        again(compiled, out);
    }
    if let Some(why) = comparison.and_then(|c| c.not_compiled.as_ref()) {
        let _ = writeln!(out, "<p class=\"why\">not compiled again: {}", escaped(why));
    }
    for barrier in comparison.iter().flat_map(|c| &c.barriers) {
        let _ = writeln!(
            out,
            "<p class=\"why\">not understood: {} x {}, {:.1} % of the ops",
            barrier.count,
            escaped(&barrier.op),
            100.0 * barrier.share
        );
    }
    ours(comparison, out);
    if let Some(why) = comparison.and_then(|c| c.why_not.as_ref()) {
        let _ = writeln!(out, "<p class=\"why\">{}", escaped(why));
    }
}

/// What XLA made of the edits.
fn again(compiled: &Recompiled, out: &mut String) {
    let _ = writeln!(
        out,
        "<h2>Compiled again for {}</h2>\n<table><tr><th>program<th class=\"n\">sent",
        escaped(&compiled.platform)
    );
    for (name, bytes) in [
        ("as it is", compiled.as_is),
        ("with the edits below", compiled.edited),
        ("optimum with these edits", compiled.optimum),
    ] {
        let _ = writeln!(out, "<tr><td>{name}<td class=\"n\">{}", scale::bytes(Bytes(bytes)));
    }
    for left in &compiled.left {
        let place = left.place.as_ref().map_or("no source line".to_string(), ToString::to_string);
        let _ = writeln!(
            out,
            "<tr><td class=\"why\">still: {}: {} over {}<td class=\"n\">{}",
            escaped(&place),
            left.op,
            escaped(&left.axes.join(", ")),
            scale::bytes(Bytes(left.wire_bytes))
        );
    }
    let _ = writeln!(out, "</table>\n<p class=\"why\">{}", escaped(&compiled.verdict()));
}

/// What the best plan sends, beside what is said of the lines below.
fn ours(comparison: Option<&Comparison>, out: &mut String) {
    let Some(moves) = comparison.map(|c| &c.moves).filter(|moves| !moves.is_empty()) else {
        return;
    };
    out.push_str(
        "<h2>What the optimum sends</h2>\n<table><tr><th>where<th>move<th>asked for by<th \
        class=\"n\">sent\n",
    );
    for one in moves {
        let place = one.place.as_ref().map_or(String::new(), ToString::to_string);
        let asked = one.to.as_ref().map_or(String::new(), |spec| {
            format!("with_sharding_constraint(.., {})", whole_partition_spec(spec))
        });
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{} over {} of <code>{}</code><td><code>{}</code><td class=\"n\">{}",
            escaped(&place),
            one.op,
            escaped(&one.axes.join(", ")),
            escaped(one.value.as_deref().unwrap_or("a value")),
            escaped(&asked),
            scale::bytes(Bytes(one.wire_bytes))
        );
    }
    out.push_str("</table>\n");
}

fn advice(report: &Report, out: &mut String) {
    let Some(comparison) = report.comparison.as_ref().filter(|c| !c.advice.is_empty()) else {
        return;
    };
    out.push_str("<h2>To edit</h2>\n<table><tr><th>where<th>value<th>edit<th class=\"n\">saves\n");
    for one in &comparison.advice {
        let place = one.source.as_ref().map_or(String::new(), ToString::to_string);
        let _ = writeln!(
            out,
            "<tr><td>{}<td><code>{}</code><td><del><code>{}</code></del> <ins><code>{}</code>\
            </ins><br><span class=\"why\">tried: {}</span><td class=\"n\">{}",
            escaped(&place),
            escaped(&one.value),
            escaped(&one.from),
            escaped(&one.to),
            one.tried_words(),
            scale::bytes(Bytes(one.saves_bytes))
        );
    }
    out.push_str("</table>\n");
}

fn lines(report: &Report, out: &mut String) {
    out.push_str(
        "<h2>By source line</h2>\n<table><tr><th>line<th class=\"n\">sent<th class=\"n\">time<th>\
        share\n",
    );
    for line in &report.lines {
        let place = line.place.as_ref().map_or("no source line".to_string(), ToString::to_string);
        let text = line.text.as_deref().unwrap_or_default().trim();
        let share = 100.0 * report.share(line.totals);
        let _ = writeln!(
            out,
            "<tr class=\"line\"><td>{}<br><code>{}</code>{}<td><span class=\"bar\" \
            style=\"width:{share:.1}%\"></span>{share:.1} %",
            escaped(&place),
            escaped(text),
            cells(line.totals)
        );
        for index in &line.collectives {
            let one = &report.program.collectives[*index];
            let operands: Vec<String> = one.operands.iter().map(ToString::to_string).collect();
            let causes: Vec<String> = one.causes().iter().map(|cause| escaped(cause)).collect();
            let _ = writeln!(
                out,
                "<tr><td>{} over {} of <code>{}</code>, x{}<br><span class=\"why\">{} \
                <code>{}</code></span>{}<td>",
                one.kind.name(),
                escaped(&report.over(one)),
                escaped(&operands.join(", ")),
                one.executions,
                causes.join("; "),
                escaped(one.op_name.as_deref().unwrap_or_default()),
                cells(report.costs[*index])
            );
        }
    }
    out.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
