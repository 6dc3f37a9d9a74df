//! The timeline of a layer on its page: a row for each stream, and the live memory below. It is
//! drawn here and not by the script, so that it is there without.

use askama::Template;
use shard_cost::Bytes;
use shard_ir::{InstrKind, Picoseconds};
use shard_schedule::Timeline;
use shard_schedule::overlap::{Run, buffers};

use crate::Layer;
use crate::html::class;
use crate::notation::layer_name;
use crate::scale;
use crate::timeline::{alike_text, called, line, part_text};

/// The width of the drawing, in units of its own.
const WIDTH: u128 = 10_000;
/// Bars beyond which layers that are alike are left out.
const MOST_BARS: u64 = 3_000;
/// The height of a row, and of the memory below.
const ROW: usize = 24;
const MEMORY: usize = 72;

#[derive(Template)]
#[template(path = "timeline.html")]
pub(crate) struct TimelineDrawing {
    at: usize,
    name: String,
    facts: String,
    said: String,
    rows: Vec<StreamRow>,
    height: usize,
    /// The outline of what is live.
    memory: String,
    peak: String,
    /// What is said of layers that are left out.
    alike: Vec<String>,
}

struct StreamRow {
    name: String,
    busy: String,
    y: usize,
    bars: Vec<Bar>,
}

struct Bar {
    x: String,
    width: String,
    class: &'static str,
    title: String,
}

/// The timeline of the layer that is the `at`-th of its page; `None` where nothing takes time.
pub(crate) fn drawing(layer: &Layer<'_>, at: usize) -> Option<TimelineDrawing> {
    let (plan, timeline) = (layer.plan(), layer.timeline.whole());
    let bars: usize = timeline.stages.units.iter().map(|unit| unit.busy.len().max(1)).sum();
    let each = bars.div_ceil(timeline.stages.units.len().max(1)) as u64;
    let most = if timeline.run_count().saturating_mul(each) <= MOST_BARS { u64::MAX } else { 0 };
    let runs = timeline.expanded(most);
    let end = runs.iter().map(|run| timeline.finish(run)).max().unwrap_or_default();
    if end == Picoseconds(0) {
        return None;
    }
    let mut rows = Vec::new();
    for (stream, name) in timeline.streams.names().iter().enumerate() {
        let (bars, busy) = row(layer, timeline, &runs, stream, end);
        if !bars.is_empty() {
            let busy = format!("{:.0} %", 100.0 * busy as f64 / end.0 as f64);
            rows.push(StreamRow { name: name.clone(), busy, y: ROW * rows.len() + 2, bars });
        }
    }
    let held = buffers(plan, timeline, most);
    let top = ROW * rows.len();
    let left_out = if most == 0 { timeline.steady.as_slice() } else { &[] };
    let whole = scale::time(layer.timeline.of_all_layers(plan));
    let busy: Vec<String> =
        rows.iter().map(|row| format!("{} busy {}", row.name, row.busy)).collect();
    Some(TimelineDrawing {
        at,
        name: layer_name(plan),
        facts: format!(
            "computing beside communicating {whole}, one after another {}",
            scale::time(layer.price.totals.serial_time.times(plan.repeat))
        ),
        said: format!("done after {whole}; {}", busy.join(", ")),
        rows,
        height: top + MEMORY,
        memory: outline(&held.live(), held.peak(), end, top),
        peak: format!(
            "memory at the peak {}, {} of it weights and caches",
            scale::bytes(Bytes(held.peak())),
            scale::bytes(Bytes(held.kept))
        ),
        alike: left_out
            .iter()
            .map(|steady| format!("{} layers are not drawn: {}", steady.copies, alike_text(steady)))
            .collect(),
    })
}

/// The bars of a stream, and for how long it is busy.
fn row(
    layer: &Layer<'_>,
    timeline: &Timeline,
    runs: &[Run],
    stream: usize,
    end: Picoseconds,
) -> (Vec<Bar>, u64) {
    let (mut bars, mut sum) = (Vec::new(), 0u64);
    for run in runs {
        let unit = &timeline.stages.units[run.unit];
        for part in unit.busy.iter().filter(|part| part.stream == stream) {
            let (from, until) = (run.start + part.from, run.start + part.until);
            sum = sum.saturating_add((until.0).saturating_sub(from.0));
            bars.push(Bar {
                x: place(from, end),
                width: place(Picoseconds(until.0 - from.0), end),
                class: class(layer, unit.first()),
                title: title(layer, timeline, run, part),
            });
        }
    }
    (bars, sum)
}

/// What is said of a bar that is pointed at: what it is, its line and its layouts.
fn title(
    layer: &Layer<'_>,
    timeline: &Timeline,
    run: &Run,
    busy: &shard_schedule::overlap::Busy,
) -> String {
    let plan = layer.plan();
    let unit = &timeline.stages.units[run.unit];
    let copies = timeline.stages.stages[timeline.stages.stage_of(run.unit)].copies;
    let of = if copies > 1 { format!("layer {}: ", run.copy + 1) } else { String::new() };
    let at = line(layer, unit.first()).map_or(String::new(), |line| format!(", line {line}"));
    let last = unit.members.last().copied().unwrap_or(unit.first());
    let layouts = match plan.instruction(last).kind {
        InstrKind::Move(_) => {
            format!("{} → {}", layer.layout_text(plan.moved(last)), layer.layout_text(last))
        }
        InstrKind::Op(_)
        | InstrKind::CollectiveEinsum(_)
        | InstrKind::Parameter(_)
        | InstrKind::Constant(_) => layer.layout_text(last),
    };
    let part = part_text(layer, unit, busy.part);
    let (from, until) = (scale::time(run.start + busy.from), scale::time(run.start + busy.until));
    format!("{of}{}{part}{at}\n{layouts}\n{from} to {until}", called(layer, &unit.members))
}

/// A time along the drawing, to a hundredth of a unit.
fn place(time: Picoseconds, end: Picoseconds) -> String {
    let hundredths = u128::from(time.0) * WIDTH * 100 / u128::from(end.0.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The outline of what is live, as steps from moment to moment.
fn outline(live: &[(Picoseconds, u64)], peak: u64, end: Picoseconds, top: usize) -> String {
    let height = MEMORY - 4;
    let bottom = top + MEMORY;
    let height =
        |bytes: u64| bottom as u128 - u128::from(bytes) * height as u128 / u128::from(peak.max(1));
    let mut path = format!("M0 {bottom}");
    for (at, bytes) in live {
        path.push_str(&format!("H{}V{}", place(*at, end), height(*bytes)));
    }
    path + &format!("H{WIDTH}V{bottom}Z")
}
