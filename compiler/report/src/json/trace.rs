//! The timelines of layers as a trace for Perfetto and Chrome: `shardc trace`.

use serde::Serialize;
use shard_cost::{InstrPrice, Streams};
use shard_ir::{InstrId, InstrKind, Picoseconds, never};
use shard_schedule::overlap::{Run, Unit, buffers, waits};

use super::object::Said;
use super::text;
use crate::notation::{kind_of_layer, layer_name};
use crate::timeline::{called, line, part_text, shown};
use crate::{Layer, object};

/// One event; what does not belong to its kind is left out.
#[derive(Debug, Default, Serialize)]
struct EventJson {
    ph: &'static str,
    pid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u64>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Ties the two ends of an arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// `e`: an arrow ends at the slice that is open then.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    /// `t`: an instant of its track.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<ArgsJson>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ArgsJson {
    Name { name: String },
    Sort { sort_index: u64 },
    Live { bytes: u64 },
    Step(Box<TraceStepJson>),
}

/// What is said of a step.
#[derive(Debug, Serialize)]
struct TraceStepJson {
    /// The instructions of the step, by the numbers of `lower`.
    ids: Vec<u32>,
    /// Which run of a block or of a stack it is of, from 0.
    copy: u64,
    start_ps: u64,
    finish_ps: u64,
    /// Of the whole step, where this is a part of a loop.
    step_start_ps: u64,
    step_finish_ps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    layout: String,
    /// Of a collective: the layout before.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_layout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flops: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hbm_bytes: Option<u64>,
}

/// All timelines as one trace: a process for each layer, a track for each stream.
pub fn trace(layers: &[Layer<'_>]) -> String {
    let mut events = Vec::new();
    let mut described = Vec::new();
    let mut arrows = 0;
    for (at, layer) in layers.iter().enumerate() {
        let process = Process { layer, pid: at as u64 + 1, most: shown(layer.timeline.whole()) };
        described.push(process.described());
        process.tracks(&mut events);
        process.slices(&mut events);
        process.arrows(&mut events, &mut arrows);
        process.live(&mut events);
    }
    // Each event stands on a line, since there may be many.
    let line = |event: &EventJson| {
        serde_json::to_string(event)
            .unwrap_or_else(|_| never!("an event that cannot be written", String::new()))
    };
    // A trace in the JSON object format, but for its events. Their times are in microseconds, whole
    // nanoseconds; picoseconds are among the arguments.
    let head = text(&object!(HeadJson {
        displayTimeUnit: "ns",
        otherData: object!(OtherJson { schema: "shardc.trace/1", layers: described }),
    }));
    let events: Vec<String> = events.iter().map(line).collect();
    format!(
        "{},\n  \"traceEvents\": [\n{}\n  ]\n}}\n",
        head.trim_end().trim_end_matches('}').trim_end(),
        events.join(",\n")
    )
}

/// Whole nanoseconds, as microseconds.
fn micros(time: Picoseconds) -> f64 {
    nanos(time) as f64 / 1000.0
}

fn nanos(time: Picoseconds) -> u64 {
    time.0 / 1000 + u64::from(time.0 % 1000 >= 500)
}

struct Process<'a> {
    layer: &'a Layer<'a>,
    pid: u64,
    /// How many copies of a stage are shown at most where its copies are not listed one by one.
    most: u64,
}

impl<'a> Process<'a> {
    /// What a process of the trace is.
    fn described(&self) -> impl Serialize + use<'a> {
        let (plan, timeline) = (self.layer.plan(), self.layer.timeline.whole());
        let left_out =
            timeline.steady.iter().filter(|steady| steady.copies > self.most).map(|steady| {
                object!(LeftOutJson {
                    // The copy behind which they would stand, from 0.
                    behind: steady.like + self.most,
                    copies: steady.copies - self.most,
                    period_ps: steady.period.0,
                })
            });
        object!(LayerJson {
            pid: self.pid,
            name: &plan.name,
            phase: Said(plan.phase.as_ref()),
            hardware: &self.layer.hardware.name,
            repeat: plan.repeat,
            // Layers that the trace shows: all, or one where a layer cannot run beside the next.
            shown: if timeline.is_stack { plan.repeat } else { 1 },
            makespan_ps: timeline.makespan.0,
            peak_bytes: timeline.peak_bytes,
            // Copies of a block that are alike and not in the trace.
            left_out: Said::list(left_out),
        })
    }

    fn event(&self, ph: &'static str, tid: Option<u64>, name: String) -> EventJson {
        EventJson { ph, pid: self.pid, tid, name, ..EventJson::default() }
    }

    fn tracks(&self, events: &mut Vec<EventJson>) {
        let plan = self.layer.plan();
        let name = format!("{} {}", kind_of_layer(plan), layer_name(plan));
        let process = self.event("M", None, "process_name".to_string());
        events.push(EventJson { args: Some(ArgsJson::Name { name }), ..process });
        for (at, name) in self.layer.timeline.streams.names().iter().enumerate() {
            let track = |event: &str| self.event("M", Some(at as u64), event.to_string());
            events.push(EventJson {
                args: Some(ArgsJson::Name { name: name.clone() }),
                ..track("thread_name")
            });
            let sort_index = at as u64;
            events.push(EventJson {
                args: Some(ArgsJson::Sort { sort_index }),
                ..track("thread_sort_index")
            });
        }
    }

    fn runs(&self) -> Vec<Run> {
        self.layer.timeline.whole().expanded(self.most)
    }

    fn unit(&self, run: &Run) -> &Unit {
        &self.layer.timeline.whole().stages.units[run.unit]
    }

    /// A slice for each time in which a step keeps a stream busy; an instant for one that takes no
    /// time.
    fn slices(&self, events: &mut Vec<EventJson>) {
        let names: Vec<String> =
            self.layer.timeline.whole().stages.units.iter().map(|unit| self.name(unit)).collect();
        for run in self.runs() {
            let unit = self.unit(&run);
            let name = &names[run.unit];
            for busy in &unit.busy {
                let (start, finish) = (run.start + busy.from, run.start + busy.until);
                let whole = format!("{name}{}", part_text(self.layer, unit, busy.part));
                let cat = if busy.stream == Streams::COMPUTE { "compute" } else { "transfer" };
                let (ts, end) = (nanos(start), nanos(finish));
                events.push(EventJson {
                    cat: Some(cat),
                    ts: Some(micros(start)),
                    dur: Some((end - ts) as f64 / 1000.0),
                    args: Some(self.step(&run, start, finish)),
                    ..self.event("X", Some(busy.stream as u64), whole)
                });
            }
            if unit.busy.is_empty() {
                events.push(EventJson {
                    cat: Some("no time"),
                    ts: Some(micros(run.start)),
                    s: Some("t"),
                    args: Some(self.step(&run, run.start, run.start)),
                    ..self.event("i", Some(Streams::COMPUTE as u64), name.clone())
                });
            }
        }
    }

    /// What a unit is called: by its line of the source, if it has one, and by what it does.
    fn name(&self, unit: &Unit) -> String {
        let line = line(self.layer, unit.first())
            .map_or_else(|| format!("%{}", unit.first().0), |n| format!("line {n}"));
        format!("{line}: {}", called(self.layer, &unit.members))
    }

    fn step(&self, run: &Run, start: Picoseconds, finish: Picoseconds) -> ArgsJson {
        let (layer, unit) = (self.layer, self.unit(run));
        let first = unit.first();
        let last = unit.members.last().copied().unwrap_or(first);
        let collective = layer.price.of(first).collective();
        let (flops, hbm_bytes) = match layer.price.of(first) {
            InstrPrice::Kernel { flops, hbm_bytes, .. } => (Some(flops.0), Some(hbm_bytes.0)),
            InstrPrice::Move(_) | InstrPrice::Free => (None, None),
        };
        let is_move = matches!(layer.plan().instruction(first).kind, InstrKind::Move(_));
        ArgsJson::Step(Box::new(TraceStepJson {
            ids: unit.members.iter().map(|id| id.0).collect(),
            copy: run.copy,
            start_ps: start.0,
            finish_ps: finish.0,
            step_start_ps: run.start.0,
            step_finish_ps: layer.timeline.whole().finish(run).0,
            line: line(layer, first),
            source: self.source(first),
            layout: layer.layout_text(last),
            from_layout: is_move.then(|| layer.layout_text(layer.plan().moved(first))),
            bytes: collective.map(|cost| cost.bytes.0),
            wire_bytes: collective.map(|cost| cost.wire_bytes.0),
            flops,
            hbm_bytes,
        }))
    }

    /// The text of the line that made an instruction.
    fn source(&self, id: InstrId) -> Option<String> {
        let line = line(self.layer, id)?;
        self.layer
            .source?
            .text
            .lines()
            .nth(line.checked_sub(1)?)
            .map(|line| line.trim().to_string())
    }

    /// An arrow to each step from the one that it waits for.
    fn arrows(&self, events: &mut Vec<EventJson>, count: &mut u64) {
        let timeline = self.layer.timeline.whole();
        let runs = self.runs();
        for (at, wait) in waits(self.layer.plan(), timeline, self.most).into_iter().enumerate() {
            let Some(wait) = wait else { continue };
            let (from, to) = (&runs[wait.run], &runs[at]);
            let (parts, others) = (&self.unit(from).busy, &self.unit(to).busy);
            let ends = match wait.parts {
                Some((last, first)) => parts.get(last).zip(others.get(first)),
                None => {
                    let last = parts.iter().find(|busy| busy.until == self.unit(from).time);
                    last.zip(others.iter().find(|busy| busy.from == Picoseconds(0)))
                }
            };
            let Some((last, first)) = ends else { continue };
            *count += 1;
            let (begin, end) = (nanos(from.start + last.from), nanos(from.start + last.until));
            let end_of = |ph, stream: usize, nanos: u64| EventJson {
                cat: Some("wait"),
                ts: Some(nanos as f64 / 1000.0),
                id: Some(*count),
                ..self.event(ph, Some(stream as u64), "waits for".to_string())
            };
            // The arrow begins inside the slice that it leaves: a slice is over at its end.
            events.push(end_of("s", last.stream, end.saturating_sub(1).max(begin)));
            events.push(EventJson {
                bp: Some("e"),
                ..end_of("f", first.stream, nanos(to.start + first.from))
            });
        }
    }

    fn live(&self, events: &mut Vec<EventJson>) {
        for (at, bytes) in buffers(self.layer.plan(), self.layer.timeline.whole(), self.most).live()
        {
            events.push(EventJson {
                ts: Some(micros(at)),
                args: Some(ArgsJson::Live { bytes }),
                ..self.event("C", None, "live memory".to_string())
            });
        }
    }
}
