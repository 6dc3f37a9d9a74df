//! The timeline of a layer in reports: which parts of it are shown, and its text for a terminal.

use shard_cost::{Bytes, InstrPrice, Streams};
use shard_ir::{InstrId, Picoseconds, never};
use shard_schedule::Timeline;
use shard_schedule::overlap::{Part, Run, Steady, Unit, buffers};

use crate::Layer;
use crate::notation::{kind_of_layer, layer_name, phrase, value_name};
use crate::paint::{Paint, Style};
use crate::scale;

/// The most runs that are all shown: beyond, copies of a layer that are alike are left out.
const MOST_RUNS: u64 = 20_000;
/// How many of each group of alike copies are shown where others are left out.
const FEW: u64 = 2;

/// The most copies that are shown of each group of alike ones.
pub(crate) fn shown(timeline: &Timeline) -> u64 {
    let parts: usize = timeline.stages.units.iter().map(|unit| unit.busy.len().max(1)).sum();
    let each = parts.div_ceil(timeline.stages.units.len().max(1)) as u64;
    if timeline.run_count().saturating_mul(each) <= MOST_RUNS { u64::MAX } else { FEW }
}

/// The line of the source that made an instruction.
pub(crate) fn line(layer: &Layer<'_>, id: InstrId) -> Option<usize> {
    Some(layer.source?.line_column(layer.plan().instruction(id).origin.span?.start).line)
}

/// What a unit is called: `h = einsum BLE,EF->BLF, gelu`.
pub(crate) fn called(layer: &Layer<'_>, members: &[InstrId]) -> String {
    let plan = layer.plan();
    let phrases: Vec<String> = members.iter().map(|id| phrase(plan, *id)).collect();
    let Some(last) = members.last() else { return never!("a unit of no steps", String::new()) };
    if plan.instruction(*last).name.is_none() {
        return phrases.join(", ");
    }
    let name = value_name(plan, *last);
    match (members, layer.price.of(*last)) {
        ([_], InstrPrice::Move(_)) => format!("{}: {name}", phrases.join(", ")),
        _ => format!("{name} = {}", phrases.join(", ")),
    }
}

/// What a part of a unit adds to its name.
pub(crate) fn part_text(layer: &Layer<'_>, unit: &Unit, part: Part) -> String {
    let first = unit.first();
    match part {
        Part::Kernel | Part::Transfer | Part::Fetch => String::new(),
        Part::Chunk(at) => {
            let chunks = layer.price.of(first).looped().map_or(1, |looped| looped.chunks);
            format!(", chunk {} of {chunks}", at + 1)
        }
        Part::Send(at) => {
            let fused = layer.plan().instruction(first).kind.fused();
            let gathers = fused.is_some_and(|fused| fused.gathered().is_some());
            let what = if gathers { "gather" } else { "scatter" };
            format!(", {what} of chunk {}", at + u64::from(gathers))
        }
    }
}

/// The timelines of some layers for a terminal: a row of marks for each stream, then the steps in
/// the order in which they start.
pub fn timelines(layers: &[Layer<'_>], width: usize, paint: Paint) -> String {
    layers.iter().map(|layer| timeline(layer, width, paint)).collect::<Vec<_>>().join("\n")
}

fn timeline(layer: &Layer<'_>, width: usize, paint: Paint) -> String {
    let (plan, timeline) = (layer.plan(), layer.timeline.whole());
    let layers =
        if plan.repeat > 1 { format!(" of {} layers", plan.repeat) } else { String::new() };
    let mut text = format!(
        "{} {}: {} overlapped{}, {} one after another\n",
        kind_of_layer(plan),
        layer_name(plan),
        scale::time(layer.timeline.of_all_layers(plan)),
        if timeline.is_stack || plan.repeat == 1 { layers.as_str() } else { "" },
        scale::time(layer.price.totals.serial_time.times(plan.repeat)),
    );
    if plan.repeat > 1 && !timeline.is_stack {
        text.push_str(&format!(
            "one layer is shown, {}: it cannot run beside the next\n",
            scale::time(timeline.makespan)
        ));
    }
    text.push('\n');
    lanes(layer, width, paint, &mut text);
    text.push('\n');
    steps(layer, width, paint, &mut text);
    text
}

/// A row for each stream that anything is done on: how busy it is in each part of the time, and in
/// all.
fn lanes(layer: &Layer<'_>, width: usize, paint: Paint, text: &mut String) {
    let timeline = layer.timeline.whole();
    let names = timeline.streams.names();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let columns = width.saturating_sub(longest + 10).clamp(10, 200);
    let most = shown(timeline);
    let (runs, all) = (timeline.expanded(most), end_of(timeline, most));
    for (stream, name) in names.iter().enumerate() {
        let mut busy = vec![0u128; columns];
        let mut sum = 0u128;
        for run in &runs {
            for part in
                timeline.stages.units[run.unit].busy.iter().filter(|part| part.stream == stream)
            {
                let (from, until) = ((run.start + part.from).0, (run.start + part.until).0);
                sum += u128::from(until - from);
                fill(&mut busy, from, until, all.0);
            }
        }
        if sum == 0 {
            continue;
        }
        let whole = u128::from(all.0.max(1));
        let marks: String = busy.iter().map(|part| mark(*part, whole)).collect();
        let style = if stream == Streams::COMPUTE { Style::Compute } else { Style::Network };
        let share = sum as f64 * 100.0 / whole as f64;
        let row = format!("  {name:<longest$} {} {share:>5.1}%", paint.style(&marks, style));
        text.push_str(&format!("{}\n", row.trim_end()));
    }
    text.push_str(&format!(
        "  {:<longest$} 0 s{:>rest$}\n",
        "",
        scale::time(all),
        rest = columns.saturating_sub(3)
    ));
}

/// When all runs that are shown are done.
fn end_of(timeline: &Timeline, most: u64) -> Picoseconds {
    timeline.expanded(most).iter().map(|run| timeline.finish(run)).max().unwrap_or_default()
}

/// Adds a busy time to the columns that it covers. A column that is busy throughout gets `all`.
fn fill(columns: &mut [u128], from: u64, until: u64, all: u64) {
    let (count, all) = (columns.len() as u128, u128::from(all.max(1)));
    let (from, until) = (u128::from(from) * count, u128::from(until) * count);
    let mut at = (from / all).min(count - 1);
    while at < count && at * all < until {
        columns[at as usize] += until.min((at + 1) * all) - from.max(at * all);
        at += 1;
    }
}

/// How much of a column is busy.
fn mark(busy: u128, whole: u128) -> char {
    match busy * 8 / whole.max(1) {
        0 if busy == 0 => ' ',
        0 | 1 => '.',
        2..=5 => '-',
        6 | 7 => '=',
        _ => '#',
    }
}

/// The steps of the first copies, of one that others are like, and of the last.
fn steps(layer: &Layer<'_>, width: usize, paint: Paint, text: &mut String) {
    let (plan, timeline) = (layer.plan(), layer.timeline.whole());
    let mut runs: Vec<Run> = timeline.expanded(shown(timeline));
    runs.retain(|run| {
        timeline.stages.units[run.unit].time > Picoseconds(0) && is_listed(timeline, run)
    });
    runs.sort_by_key(|run| (run.start, run.unit, run.copy));
    let time = |time| format!("{:>8}", scale::time(time));
    text.push_str(&format!("  {:>8}  {:>8}  {:>8}\n", "start", "end", "time"));
    for run in &runs {
        let unit = &timeline.stages.units[run.unit];
        let stage = timeline.stages.stage_of(run.unit);
        let copies = timeline.stages.stages[stage].copies;
        let of = if copies > 1 { format!("layer {}: ", run.copy + 1) } else { String::new() };
        let line =
            line(layer, unit.first()).map_or_else(String::new, |line| format!(" (line {line})"));
        let words = format!("{of}{}{line}", called(layer, &unit.members));
        let is_kernel = matches!(layer.price.of(unit.first()), InstrPrice::Kernel { .. });
        let style = if is_kernel { Style::Compute } else { Style::Network };
        let figures = [time(run.start), time(timeline.finish(run)), time(unit.time)].join("  ");
        text.push_str(&format!("  {figures}  {}\n", paint.style(&shortened(&words, width), style)));
    }
    for steady in &timeline.steady {
        text.push_str(&format!("  {}\n", alike_text(steady)));
    }
    let held = buffers(plan, timeline, 0);
    let (peak, kept) = (scale::bytes(Bytes(held.peak())), scale::bytes(Bytes(held.kept)));
    text.push_str(&format!("  memory at the peak {peak}, {kept} of it weights and caches\n"));
}

/// What is said of layers that are alike.
pub(crate) fn alike_text(steady: &Steady) -> String {
    let (first, last) = alike(steady);
    let period = scale::time(steady.period);
    format!("layers {first} to {last} are alike, each {period} after the one before")
}

/// The first and the last of a group of alike copies, counted from 1: from the copy before the
/// listed one to the copy after those that are left out.
fn alike(steady: &Steady) -> (u64, u64) {
    (steady.like, steady.like + steady.copies + 2)
}

fn is_listed(timeline: &Timeline, run: &Run) -> bool {
    let stage = timeline.stages.stage_of(run.unit);
    let copies = timeline.stages.stages[stage].copies;
    let last = timeline.expanded_copies(stage, shown(timeline));
    match timeline.steady.iter().find(|steady| steady.stage == stage) {
        Some(steady) => run.copy <= steady.like || run.copy + 1 == last,
        None => copies <= 4 || run.copy < 2 || run.copy + 1 == last,
    }
}

fn shortened(text: &str, width: usize) -> String {
    let columns = width.saturating_sub(32).max(20);
    match text.chars().count() {
        count if count > columns => text.chars().take(columns - 3).chain("...".chars()).collect(),
        _ => text.to_string(),
    }
}
