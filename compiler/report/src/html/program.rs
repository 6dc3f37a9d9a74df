//! The program on the page: the layer's own lines, each followed by the steps that come of it; then
//! the lines of the layers that it calls.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use shard_cost::InstrPrice;
use shard_grammar::{SourceFile, Span};
use shard_ir::{InstrId, InstrKind, Picoseconds, never};
use shard_search::Avoided;

use super::{class, share};
use crate::Layer;
use crate::explain::alternative_text;
use crate::notation::{phrase, value_name};
use crate::repeats;
use crate::scale;
use crate::words::reason_of;

#[derive(Template)]
#[template(path = "program.html")]
pub(super) struct Program {
    at: usize,
    rows: Vec<ProgramRow>,
}

enum ProgramRow {
    /// The lines below are of the called layer with this path.
    In(String),
    /// A line of the source.
    Line { number: usize, pieces: Vec<Piece>, comment: String },
    /// A step of the plan.
    Step(ShownStep),
    /// Steps that repeat those shown, of calls equal to the first one.
    Alike(Vec<ShownStep>),
}

struct ShownStep {
    id: u32,
    class: &'static str,
    what: Vec<Piece>,
    figures: String,
    layouts: String,
    why: Vec<String>,
}

/// A piece of text, with the instruction whose value it names where the reader can point at it.
struct Piece {
    text: String,
    value: Option<u32>,
}

impl Piece {
    fn plain(text: &str) -> Piece {
        Piece { text: text.to_string(), value: None }
    }

    fn value(id: InstrId, text: String) -> Piece {
        Piece { text, value: Some(id.0) }
    }
}

/// The program of the layer that is the `at`-th of its page.
pub(super) fn program(layer: &Layer<'_>, at: usize) -> Program {
    let plan = layer.plan();
    let is_step = |id: &InstrId| match plan.instruction(*id).kind {
        InstrKind::Parameter(_) | InstrKind::Constant(_) => false,
        InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) | InstrKind::Move(_) => true,
    };
    // The layers whose lines are shown: this one, then those that it calls, in the order in which
    // they first do something.
    let mut paths: Vec<&[String]> = vec![&[]];
    let mut of_line: BTreeMap<(usize, usize), Vec<InstrId>> = BTreeMap::new();
    let mut unplaced = Vec::new();
    for id in plan.ids().filter(is_step) {
        let origin = &plan.instruction(id).origin;
        let Some((source, span)) = layer.source.zip(origin.span) else {
            unplaced.push(id);
            continue;
        };
        let known = paths.iter().position(|p| *p == origin.in_layers).unwrap_or_else(|| {
            paths.push(&origin.in_layers);
            paths.len() - 1
        });
        of_line.entry((known, source.line_column(span.start).line)).or_default().push(id);
    }
    let mut rows = Vec::new();
    let runs = repeats::runs(layer);
    let alike: BTreeSet<InstrId> = runs.into_iter().flat_map(|run| run.alike).collect();
    if let Some(source) = layer.source {
        for (known, path) in paths.iter().enumerate() {
            let name = path.last().unwrap_or(&plan.name);
            if !path.is_empty() {
                rows.push(ProgramRow::In(path.join(" / ")));
            }
            let mut lines: BTreeSet<usize> =
                of_line.keys().filter(|(p, _)| *p == known).map(|(_, line)| *line).collect();
            if let Some(span) = layer_span(source, name) {
                lines.extend(
                    source.line_column(span.start).line..=source.line_column(span.end).line,
                );
            }
            for line in lines {
                rows.push(line_of(layer, source, line, path));
                let steps = of_line.get(&(known, line)).map_or(&[][..], Vec::as_slice);
                let shown = steps.iter().filter(|id| !alike.contains(id));
                rows.extend(shown.map(|id| ProgramRow::Step(step(layer, *id))));
                let others: Vec<ShownStep> = steps
                    .iter()
                    .filter(|id| alike.contains(id))
                    .map(|id| step(layer, *id))
                    .collect();
                rows.extend((!others.is_empty()).then_some(ProgramRow::Alike(others)));
            }
        }
    }
    rows.extend(unplaced.into_iter().map(|id| ProgramRow::Step(step(layer, id))));
    Program { at, rows }
}

/// A line of the source; the names of values can be pointed at.
fn line_of(layer: &Layer<'_>, source: &SourceFile, line: usize, path: &[String]) -> ProgramRow {
    let text =
        source.line(line).unwrap_or_else(|| never!("a place behind the end of its file", ""));
    let (code, comment) = text.split_at(text.find("//").unwrap_or(text.len()));
    let mut pieces = Vec::new();
    let mut rest = code;
    while !rest.is_empty() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts_word = rest.starts_with(is_word);
        let end = rest.find(|c| is_word(c) != starts_word).unwrap_or(rest.len());
        let (piece, behind) = rest.split_at(end);
        pieces.push(match named(layer, piece, path).filter(|_| starts_word) {
            Some(id) => Piece::value(id, piece.to_string()),
            None => Piece::plain(piece),
        });
        rest = behind;
    }
    ProgramRow::Line { number: line, pieces, comment: comment.to_string() }
}

/// The instruction that makes the value of a name.
fn named(layer: &Layer<'_>, name: &str, path: &[String]) -> Option<InstrId> {
    let plan = layer.plan();
    plan.ids().find(|id| {
        let instr = plan.instruction(*id);
        instr.name.as_deref() == Some(name) && instr.origin.in_layers == path
    })
}

fn step(layer: &Layer<'_>, id: InstrId) -> ShownStep {
    let plan = layer.plan();
    let source = plan.moved(id);
    let (what, layouts) = match &plan.instruction(id).kind {
        InstrKind::Move(_) => (
            vec![
                Piece::value(id, phrase(plan, id)),
                Piece::plain(" of "),
                Piece::value(source, value_name(plan, source)),
            ],
            format!("{} → {}", layer.layout_text(source), layer.layout_text(id)),
        ),
        InstrKind::Op(_)
        | InstrKind::CollectiveEinsum(_)
        | InstrKind::Parameter(_)
        | InstrKind::Constant(_) => (
            vec![
                Piece::value(id, value_name(plan, id)),
                Piece::plain(&format!(" = {}", phrase(plan, id))),
            ],
            layer.layout_text(id),
        ),
    };
    ShownStep {
        id: id.0,
        class: class(layer, id),
        what,
        figures: figures(layer, id),
        layouts,
        why: why(layer, id),
    }
}

fn figures(layer: &Layer<'_>, id: InstrId) -> String {
    let plan = layer.plan();
    let repeat = plan.repeat_of(id);
    let each = if repeat > 1 { format!("{repeat} x ") } else { String::new() };
    let time = |time: Picoseconds| {
        format!("{each}{} · {}", scale::time(time), share(layer, time.times(repeat)))
    };
    match *layer.price.of(id) {
        InstrPrice::Move(cost) if cost.time > Picoseconds(0) => {
            format!("{} · {}", scale::bytes(cost.bytes), time(cost.time))
        }
        InstrPrice::Kernel { fused_into: Some(first), .. } => {
            format!("fused into {}", value_name(plan, first))
        }
        InstrPrice::Kernel { flops, time: spent, .. } if spent > Picoseconds(0) => match flops.0 {
            0 => time(spent),
            _ => format!("{} · {}", scale::flops(flops), time(spent)),
        },
        InstrPrice::Kernel { .. } | InstrPrice::Move(_) => "no traffic".to_string(),
        InstrPrice::Free => String::new(),
    }
}

fn why(layer: &Layer<'_>, id: InstrId) -> Vec<String> {
    let instr = layer.plan().instruction(id);
    let mut lines: Vec<String> = reason_of(layer.plan(), id).into_iter().collect();
    let other = layer.alternatives.iter().find(|a| a.id == id);
    // Collectives of a chain are avoided together: their alternative is told at the first of them.
    let is_first = |avoided: &Avoided| {
        layer.alternatives.iter().find(|a| a.avoided == *avoided).is_some_and(|a| a.id == id)
    };
    if let Some(other) = other.filter(|other| is_first(&other.avoided)) {
        lines.push(alternative_text(layer, other));
    }
    if matches!(instr.kind, InstrKind::Move(_)) {
        lines.extend(instr.origin.rules.text().map(|rule| format!("rule {rule}")));
    }
    lines
}

/// The layer of a name, from its header to its closing brace.
fn layer_span(source: &SourceFile, name: &str) -> Option<Span> {
    let tree = shard_grammar::parse(source).file;
    let layer = tree.layers().find(|layer| layer.name.value == name)?;
    Some(layer.span)
}
