//! `explain` as text: the source, line by line, and under each line what the compiler made of it.
//!
//! ```text
//! layer mlp
//!   mesh       x=4, y=4, z=4 (64 devices)
//!   hardware   tpu-v4-flat
//!   strategy   2d-weight-stationary
//!
//!  15 |   let h = einsum(x, w_in -> BLF)
//!      + all-gather yz along E: x                         4.72 MB  16.4 us   7.5 %
//!          BLE_xyz -> BLE_x
//!          z 885 kB 3.28 us, then y 3.54 MB 13.1 us
//!          yz splits E of `x`; einsum `h` reads it whole over yz (where yz splits
//!          F of `w_in`); forced by `w_in`: E_xF_yz in line 12
//!          rule all_gather_undoes_a_split
//!        h = einsum BLE,EF->BLF       21.7 Gflop  51.9 MB  79.1 us compute  36.1 %
//!          BLF_yz(partialsum-x)
//! ```

use std::collections::BTreeSet;

use shard_cost::{Bytes, InstrPrice, LoopPrice};
use shard_grammar::ast;
use shard_ir::{DimId, FoldId, InstrId, InstrKind, Op, Picoseconds, Plan, never};
use shard_search::Alternative;
use shard_search::rules::pieces::IN_PIECES;

use crate::Layer;
use crate::comparison::told;
use crate::explain_totals::totals;
use crate::notation::{
    kind_of_layer, layer_name, loop_bound, loop_phrase, mesh_text, phrase, repeated, ring_phrase,
    value_name,
};
use crate::origins::{axis_by_axis, forcing};
use crate::page::{Page, WIDTH};
use crate::repeats::{self, Run};
use crate::scale;
use crate::strategy::strategies;
use crate::striped::{self, Striped};
use crate::words::{reason_of, without};

/// The explanation of some layers.
pub fn explain(layers: &[Layer<'_>]) -> String {
    explain_within(layers, WIDTH)
}

/// The explanation of some layers, `width` columns wide; a line is wider where a name is.
pub fn explain_within(layers: &[Layer<'_>], width: usize) -> String {
    let texts: Vec<String> = layers.iter().map(|layer| layer_text(layer, width)).collect();
    texts.join("\n")
}

fn layer_text(layer: &Layer<'_>, width: usize) -> String {
    let mut page = Page::of_width(width);
    header(&mut page, layer);
    let plan = layer.plan();
    page.line("");
    let mut shown = None;
    let mut inside = None;
    let runs = repeats::runs(layer);
    let striped = striped::all(layer);
    let alike: BTreeSet<InstrId> = runs.iter().flat_map(|run| run.alike.iter().copied()).collect();
    for id in plan.ids().filter(|id| !alike.contains(id)) {
        if matches!(plan.instruction(id).kind, InstrKind::Parameter(_) | InstrKind::Constant(_)) {
            continue;
        }
        if plan.runs_in(id) != inside {
            inside.iter().for_each(|fold| end_of_block(&mut page, layer, *fold));
            inside = plan.runs_in(id);
            inside.iter().for_each(|fold| start_of_block(&mut page, plan, *fold));
            shown = None;
        }
        source_line(&mut page, layer, id, &mut shown);
        composite_line(&mut page, plan, id);
        match &plan.instruction(id).kind {
            InstrKind::Move(_) => move_lines(&mut page, layer, id),
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                op_lines(&mut page, layer, id, &striped)
            }
            InstrKind::Parameter(_) | InstrKind::Constant(_) => {}
        }
        if let Some(run) = runs.iter().find(|run| run.shown.last() == Some(&id)) {
            end_of_run(&mut page, layer, run);
            shown = None;
        }
    }
    inside.iter().for_each(|fold| end_of_block(&mut page, layer, *fold));
    for output in &plan.outputs {
        let word = if output.state { "keep" } else { "return" };
        page.line(&format!("       {word} {}: {}", output.name, layer.output_layout_text(output)));
    }
    page.line("");
    journeys(&mut page, layer);
    totals(&mut page, layer);
    page.text
}

/// Writes the line above a folded block: its figures are those of one application, its shares those
/// of all.
fn start_of_block(page: &mut Page, plan: &Plan, fold: FoldId) {
    let fold = &plan.folds[fold.index()];
    page.line(&format!("  {} x {}: figures of one, shares of all", fold.repeat, fold.layer));
}

/// Writes the time of the other layers below the first of several equal ones.
fn end_of_run(page: &mut Page, layer: &Layer<'_>, run: &Run) {
    let time = run.hidden_time(layer);
    let share = part_of_step(layer, time);
    let times = run.copies() - 1;
    page.row(
        &format!("  {times} more calls of {}, equal to this one", run.called(layer.plan())),
        &format!("{}{share}", scale::time(time)),
    );
}

/// Writes the time of all applications below a folded block.
fn end_of_block(page: &mut Page, layer: &Layer<'_>, fold: FoldId) {
    let plan = layer.plan();
    let time: Picoseconds = plan
        .ids()
        .filter(|id| plan.runs_in(*id) == Some(fold))
        .map(|id| layer.time_in_step(id))
        .sum();
    let share = part_of_step(layer, time);
    let fold = &plan.folds[fold.index()];
    page.row(
        &format!("  {} x {}, together", fold.repeat, fold.layer),
        &format!("{}{share}", scale::time(time)),
    );
}

/// The share of a step, as a column behind the time.
fn part_of_step(layer: &Layer<'_>, time: Picoseconds) -> String {
    let share = scale::percent(time, layer.price.totals.serial_time);
    share.map_or_else(String::new, |share| format!("  {share}"))
}

fn header(page: &mut Page, layer: &Layer<'_>) {
    let plan = layer.plan();
    let repeat = repeated(plan.repeat);
    page.line(&format!("{} {}{repeat}", kind_of_layer(plan), layer_name(plan)));
    let devices = plan.mesh.devices();
    let mesh = mesh_text(&plan.mesh);
    page.labelled(
        "  mesh       ",
        &format!("{mesh} ({devices} device{})", if devices == 1 { "" } else { "s" }),
    );
    page.labelled("  hardware   ", &layer.hardware.name);
    page.labelled("  strategy   ", &strategies(plan).join(", "));
    let parameters: Vec<InstrId> = plan
        .ids()
        .filter(|id| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_)))
        .collect();
    if !parameters.is_empty() {
        page.line("  parameters, on each device");
    }
    for id in parameters {
        let instr = plan.instruction(id);
        let InstrKind::Parameter(kind) = instr.kind else { continue };
        let kind = kind.word().map_or(String::new(), |word| format!("{word} "));
        let whole = instr.layout.replicated_axes(&plan.mesh);
        let whole = if whole.is_empty() {
            String::new()
        } else {
            format!(", whole over {}", plan.mesh.axes_text(whole.iter()))
        };
        let left = format!(
            "    {}: {kind}{} {}{whole}",
            value_name(plan, id),
            instr.dtype,
            layer.layout_text(id)
        );
        let copies = plan.copies_of(id);
        let each = if copies > 1 { format!("{copies} x ") } else { String::new() };
        page.row(&left, &format!("{each}{}", scale::bytes(Bytes(plan.local_bytes(id)))));
    }
}

/// Writes the source line of an instruction, unless that line was shown last.
fn source_line(
    page: &mut Page,
    layer: &Layer<'_>,
    id: InstrId,
    shown: &mut Option<(usize, Vec<String>)>,
) {
    let origin = &layer.plan().instruction(id).origin;
    let (Some(source), Some(span)) = (layer.source, origin.span) else { return };
    let line = source.line_column(span.start).line;
    let here = (line, origin.in_layers.clone());
    if shown.as_ref() == Some(&here) {
        return;
    }
    if !origin.in_layers.is_empty()
        && shown.as_ref().map(|(_, layers)| layers) != Some(&origin.in_layers)
    {
        page.line(&format!("     in {}", origin.in_layers.join(" / ")));
    }
    page.line(&format!(
        "{line:>4} | {}",
        source.line(line).unwrap_or_else(|| never!("a place behind the end of its file", ""))
    ));
    *shown = Some(here);
}

/// Writes, above the first piece of a composite, what the pieces make and by which rule.
fn composite_line(page: &mut Page, plan: &Plan, id: InstrId) {
    let origin = &plan.instruction(id).origin;
    let before = id.0.checked_sub(1).map(|before| &plan.instruction(InstrId(before)).origin);
    let goes_on = before.is_some_and(|b| b.piece_of == origin.piece_of && b.span == origin.span);
    if let (Some(whole), Some(_), false) = (&origin.piece_of, origin.rules.names().next(), goes_on)
    {
        let is_of_pieces = |name: &&str| IN_PIECES.iter().any(|rule| rule.name == *name);
        let rule = origin.rules.names().find(is_of_pieces).unwrap_or_default();
        page.wrapped(7, &format!("{whole} in pieces: {rule}"));
    }
}

fn move_lines(page: &mut Page, layer: &Layer<'_>, id: InstrId) {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let source = plan.moved(id);
    let figures = match layer.price.of(id) {
        InstrPrice::Move(cost) if cost.time > Picoseconds(0) => {
            format!(
                "{}  {}{}",
                scale::bytes(cost.bytes),
                scale::time(cost.time),
                of_step(layer, id)
            )
        }
        InstrPrice::Move(_) | InstrPrice::Free | InstrPrice::Kernel { .. } => {
            "no traffic".to_string()
        }
    };
    page.row(&format!("     + {}: {}", phrase(plan, id), value_name(plan, source)), &figures);
    page.wrapped(9, &format!("{} -> {}", layer.layout_text(source), layer.layout_text(id)));
    let steps = axis_by_axis(layer, id);
    if !steps.is_empty() {
        let steps = steps.iter().map(|(axis, cost)| {
            format!("{axis} {} {}", scale::bytes(cost.wire_bytes), scale::time(cost.time))
        });
        page.wrapped(9, &steps.collect::<Vec<_>>().join(", then "));
    }
    if let Some(reason) = reason_of(plan, id) {
        page.wrapped(9, &format!("{reason}{}", forced_by(layer, id)));
    }
    if let Some(rule) = instr.origin.rules.text() {
        page.wrapped(9, &format!("rule {rule}"));
    }
    rejected(page, layer, id);
}

/// Writes the alternative to a collective that the search rejected.
fn rejected(page: &mut Page, layer: &Layer<'_>, id: InstrId) {
    let other = layer.alternatives.iter().find(|a| a.id == id);
    // Collectives of a chain are avoided together: their alternative is told at the first of them.
    let is_first = |other: &&Alternative| {
        layer
            .alternatives
            .iter()
            .find(|a| a.avoided == other.avoided)
            .is_some_and(|first| first.id == id)
    };
    // A bound no larger than the chosen time tells nothing.
    let says_something =
        |other: &&Alternative| other.plan.is_some() || other.time > layer.chosen_by();
    if let Some(other) = other.filter(is_first).filter(says_something) {
        page.wrapped(9, &alternative_text(layer, other));
    }
}

/// `; forced by w_in: E_xF_yz in line 18`: the declaration that a move follows from. Where that
/// leaves the layout open, `; goes with w_in: E_xF_yz, chosen, line 18 leaves it open`. What
/// follows from no declaration is `; forced in line 18` where that line states the layout, and else
/// `; for line 18`.
fn forced_by(layer: &Layer<'_>, id: InstrId) -> String {
    let plan = layer.plan();
    let line =
        |id: InstrId| Some(layer.source?.line_column(plan.instruction(id).origin.span?.start).line);
    match forcing(plan, id) {
        Some(given) => {
            let of = format!("`{}`: {}", value_name(plan, given), layer.layout_text(given));
            match line(given) {
                Some(line) if is_open(layer, given) => {
                    format!("; goes with {of}, chosen, line {line} leaves it open")
                }
                Some(line) => format!("; forced by {of} in line {line}"),
                None => format!("; forced by {of}"),
            }
        }
        None => line(id).map_or_else(String::new, |line| {
            let how = if states_its_layout(layer, id) { "forced in" } else { "for" };
            format!("; {how} line {line}")
        }),
    }
}

/// Whether a move comes from a layout that the source states and leaves open nowhere.
fn states_its_layout(layer: &Layer<'_>, id: InstrId) -> bool {
    let origin = &layer.plan().instruction(id).origin;
    let Some((source, span)) = layer.source.zip(origin.span) else { return origin.written };
    let word = source.slice(span).split_whitespace().last().unwrap_or_default();
    let is_closed = |word: &ast::LayoutWord| word.free.is_none();
    origin.written
        || shard_grammar::parse_layout_with_partial(word, 0).is_ok_and(|(word, _)| is_closed(&word))
}

/// Whether the source leaves the layout of a value to the compiler, wholly or in part: the type of
/// a parameter has a `?`, or a statement gives its value no type.
fn is_open(layer: &Layer<'_>, id: InstrId) -> bool {
    let instr = layer.plan().instruction(id);
    let Some((source, span)) = layer.source.zip(instr.origin.span) else { return false };
    let (before, text) = (&source.text[..span.start], &source.text[span.start..span.end]);
    match instr.kind {
        InstrKind::Parameter(_) => text.contains('?'),
        InstrKind::Constant(_)
        | InstrKind::Op(_)
        | InstrKind::Move(_)
        | InstrKind::CollectiveEinsum(_) => {
            let named = before.rsplit("let ").next().unwrap_or("");
            let typed = named.split_once(':').is_some_and(|(name, ty)| {
                name.chars().all(|c| c.is_alphanumeric() || c == '_')
                    && ty.trim_end().ends_with('=')
                    && !ty.contains('?')
            });
            !typed
        }
    }
}

/// `  7.5 %` of the time of a step.
fn of_step(layer: &Layer<'_>, id: InstrId) -> String {
    crate::why::share(layer, id).map_or_else(String::new, |share| format!("  {share:>6}"))
}

/// The layouts that each moved value goes through, a line for each.
fn journeys(page: &mut Page, layer: &Layer<'_>) {
    let plan = layer.plan();
    let uses = plan.uses();
    let is_move = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Move(_));
    // The line of the last move of a chain has all layouts of the chain.
    let ends: Vec<InstrId> =
        plan.ids().filter(|id| is_move(id) && !uses[id.index()].iter().any(is_move)).collect();
    if ends.is_empty() {
        return;
    }
    page.line("what moves, from where to where");
    for id in ends {
        page.wrapped_more(2, 4, &crate::why::journey(layer, id));
    }
    page.line("");
}

fn op_lines(page: &mut Page, layer: &Layer<'_>, id: InstrId, striped: &[Striped]) {
    let plan = layer.plan();
    let figures = match *layer.price.of(id) {
        InstrPrice::Kernel { fused_into: Some(first), .. } => {
            format!("fused into {}", value_name(plan, first))
        }
        InstrPrice::Kernel { time: Picoseconds(0), .. } => "no traffic".to_string(),
        InstrPrice::Kernel { flops, hbm_bytes, time, bound, looped, .. } => {
            let flops =
                if flops.0 == 0 { String::new() } else { format!("{}  ", scale::flops(flops)) };
            let share = of_step(layer, id);
            let bound = looped.map_or(bound.name(), |looped| loop_bound(&looped, bound));
            format!("{flops}{}  {} {bound}{share}", scale::bytes(hbm_bytes), scale::time(time))
        }
        InstrPrice::Free | InstrPrice::Move(_) => String::new(),
    };
    let is_loop = matches!(plan.instruction(id).kind, InstrKind::CollectiveEinsum(_));
    let what = if is_loop { format!("einsum {}", plan.equation(id)) } else { phrase(plan, id) };
    page.row(&format!("       {} = {what}", value_name(plan, id)), &figures);
    if is_loop {
        loop_lines(page, layer, id);
    }
    page.wrapped_more(9, 2, &layer.layout_text(id));
    // Only an op that differs from the source has a reason.
    if let Some(reason) = reason_of(plan, id) {
        page.wrapped(9, &reason);
    }
    if let Some(joined) = joined_as_it_lies(plan, id) {
        page.wrapped(9, &joined);
    }
    if let Some(striped) = striped.iter().find(|striped| striped.id == id) {
        page.wrapped(9, &striped.text(layer));
    }
    rejected(page, layer, id);
}

/// The line of a concat inside an attention: the joined value is never in memory as a whole.
fn joined_as_it_lies(plan: &Plan, id: InstrId) -> Option<String> {
    let instr = plan.instruction(id);
    let InstrKind::Op(Op::Concat { left, right, to }) = &instr.kind else { return None };
    let name = |dim: &DimId| plan.dims[dim.index()].name.as_str();
    let (left, right) = (name(left), name(right));
    let at = instr.dims.iter().position(|dim| dim == to)?;
    let axes = instr.layout.axes_of(at);
    let of_both = if axes.is_empty() {
        String::new()
    } else {
        let axes = plan.mesh.axes_text(axes.iter());
        format!("; {axes} splits each: a device has its block of {left} and its block of {right}")
    };
    instr.origin.attention.then(|| {
        format!("joined in no memory: the attention goes over {left}, then {right}{of_both}")
    })
}

/// The collective inside the loop of a collective einsum, and what the loop saves.
fn loop_lines(page: &mut Page, layer: &Layer<'_>, id: InstrId) {
    let plan = layer.plan();
    let InstrPrice::Kernel { looped: Some(looped), .. } = layer.price.of(id) else { return };
    let LoopPrice { collective, einsum, chunks, full } = looped;
    let by_itself =
        format!("{}  {} by itself", scale::bytes(collective.bytes), scale::time(collective.time));
    if full.is_some() {
        page.row(&format!("         with {}", ring_phrase(plan, id)), &by_itself);
        page.wrapped(
            11,
            &format!(
                "{chunks} steps; the attention takes {} by itself, so the ring saves {} of {}",
                scale::time(*einsum),
                scale::time(looped.hidden()),
                scale::time(collective.time + *einsum),
            ),
        );
        return;
    }
    page.row(&format!("         with {} in the loop", loop_phrase(plan, id)), &by_itself);
    page.wrapped(
        11,
        &format!(
            "{chunks} chunks; the einsum takes {} by itself, so the loop saves {} of {}",
            scale::time(*einsum),
            scale::time(looped.hidden()),
            scale::time(collective.time + *einsum),
        ),
    );
}

/// The alternative to a collective in words, with the time that it would add.
pub(crate) fn alternative_text(layer: &Layer<'_>, other: &Alternative) -> String {
    let (chosen, how) = (layer.chosen_by(), without(layer.plan(), &other.avoided));
    let more = Picoseconds(other.time.0.saturating_sub(chosen.0));
    let Some(plan) = &other.plan else {
        return format!("rather than {how}: at least +{}", scale::time(more));
    };
    let cost = match more {
        Picoseconds(0) => "as fast".to_string(),
        more => format!("+{}", scale::time(more)),
    };
    let instead: Vec<String> = other
        .instead
        .iter()
        .take(MOST_SHOWN)
        .map(|id| format!("{} of {}", phrase(plan, *id), told(plan, *id)))
        .collect();
    let rest = match other.instead.len().saturating_sub(MOST_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if instead.is_empty() {
        format!("rather than {how}: {cost}")
    } else {
        format!("rather than {how}: {cost}, by {}{rest}", instead.join(", "))
    }
}

/// At most so many collectives of an alternative are named.
const MOST_SHOWN: usize = 3;
