//! `cost` as text: what each step takes, where the time of the layer goes, what is in memory, and
//! how well the machine is used.

use shard_cost::{Bytes, Capacity, Flops, InstrPrice, Kept, Largest, Objective, Summary};
use shard_ir::{DimId, InstrId, InstrKind, ParameterKind, Picoseconds, Plan};

use crate::Layer;
use crate::notation::{
    kind_of_layer, layer_name, loop_bound, mesh_text, phrase, repeated, value_name,
};
use crate::optimality::bounded;
use crate::page::Page;
use crate::paint::{Paint, Style};
use crate::scale;
use crate::strategy::strategies;
use crate::table::{Column, Row, table};

/// A layer with all that the cost report says of it.
#[derive(Clone, Debug)]
pub struct CostLayer<'a> {
    /// The layer.
    pub layer: Layer<'a>,
    /// The figures of the whole.
    pub summary: &'a Summary,
    /// The memory that there is.
    pub capacity: Capacity,
    /// How far dims may grow.
    pub largest: &'a [LargestDim],
}

impl CostLayer<'_> {
    /// The bytes that a weight or cache takes on a chip, over all layers; 0 for a weight in host
    /// memory.
    pub(crate) fn held(&self, kept: &Kept) -> Bytes {
        match kept.kind {
            ParameterKind::HostWeight => Bytes(0),
            ParameterKind::Weight | ParameterKind::Cache | ParameterKind::Activation => {
                kept.chip_bytes.times(self.layer.plan().repeat)
            }
        }
    }
}

/// The share that some bytes are of the memory that is there.
pub(crate) fn share_of_memory(part: Bytes, there: Bytes) -> f64 {
    part.0 as f64 / there.0.max(1) as f64
}

/// How far one dim may grow, all else as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargestDim {
    /// The dim.
    pub dim: DimId,
    /// What it counts.
    pub role: Role,
    /// Its largest size.
    pub largest: Largest,
}

shard_ir::worded! {
    /// What a dim counts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Role {
        /// Sequences.
        Batch = "batch",
        /// Positions in a cache.
        Context = "context",
        /// Tokens, in a layer without a cache.
        Tokens = "tokens",
    }
    /// The word in reports.
    fn name;
}

/// The cost report of some layers, `width` characters wide.
pub fn cost(layers: &[CostLayer<'_>], width: usize, paint: Paint) -> String {
    let texts: Vec<String> = layers.iter().map(|layer| layer_text(layer, width, paint)).collect();
    texts.join("\n")
}

fn layer_text(report: &CostLayer<'_>, width: usize, paint: Paint) -> String {
    let parts = [
        header(report, width),
        steps(report, width, paint),
        times(report, width, paint),
        memory(report, width, paint),
        holders(report, width, paint),
        use_of_chips(report, width, paint),
    ];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn header(report: &CostLayer<'_>, width: usize) -> String {
    let plan = report.layer.plan();
    let devices = plan.mesh.devices();
    let mut page = Page::of_width(width);
    if let Some(bounded) = bounded(&report.layer) {
        page.labelled("  plan       ", &bounded);
    }
    let plan_line = page.text;
    format!(
        "{} {}{}\n  mesh       {} ({devices} chip{})\n  hardware   {}\n  \
            strategy   {}\n{plan_line}",
        kind_of_layer(plan),
        layer_name(plan),
        repeated(plan.repeat),
        mesh_text(&plan.mesh),
        if devices == 1 { "" } else { "s" },
        report.layer.hardware.name,
        strategies(plan).join(", ")
    )
}

/// A row for each step, with the number that `--why` takes.
fn steps(report: &CostLayer<'_>, width: usize, paint: Paint) -> String {
    let plan = report.layer.plan();
    let columns = [
        Column { title: "flops", yields: 2 },
        Column { title: "bytes", yields: 1 },
        Column { title: "sent", yields: 4 },
        Column { title: "time", yields: 0 },
        Column { title: "share", yields: 0 },
        Column { title: "bound", yields: 0 },
        Column { title: "flop/B", yields: 3 },
    ];
    let bound_column = 5;
    let mut rows = Vec::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        let words = match instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => continue,
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                format!("{:>3}  {} = {}", id.0, value_name(plan, id), phrase(plan, id))
            }
            InstrKind::Move(_) => {
                let moved = instr
                    .operands
                    .first()
                    .map_or(String::new(), |o| format!(": {}", value_name(plan, *o)));
                format!("{:>3}  {}{moved}", id.0, phrase(plan, id))
            }
        };
        let words = match plan.repeat_of(id) {
            1 => words,
            repeat => format!("{words}, {repeat} x"),
        };
        let (figures, style) = step_figures(report, id);
        let styled_column = (style != Some(Style::Faint)).then_some(bound_column);
        rows.push(Row { words, figures, style, styled_column });
    }
    let title = if plan.folds.is_empty() {
        "steps of one layer, on each chip"
    } else {
        "steps, on each chip; shares of all times"
    };
    table(title, &columns, &rows, width, paint)
}

fn step_figures(report: &CostLayer<'_>, id: InstrId) -> (Vec<String>, Option<Style>) {
    let none = String::new;
    let repeat = report.layer.plan().repeat_of(id);
    let share =
        |time: Picoseconds| share_text(time.times(repeat), report.layer.price.totals.serial_time);
    match *report.layer.price.of(id) {
        InstrPrice::Kernel { fused_into: Some(first), .. } => {
            let with = format!("in {}", first.0);
            (vec![none(), none(), none(), none(), none(), with, none()], Some(Style::Faint))
        }
        InstrPrice::Kernel { time, .. } if time == Picoseconds(0) => (
            vec![none(), none(), none(), scale::time(time), none(), "free".to_string(), none()],
            Some(Style::Faint),
        ),
        InstrPrice::Kernel { flops, hbm_bytes, time, bound, looped, .. } => {
            let waits = looped.is_some_and(|looped| looped.exposed() > Picoseconds(0));
            let style = match bound {
                _ if waits => Style::Network,
                shard_cost::Bound::Compute => Style::Compute,
                shard_cost::Bound::Memory | shard_cost::Bound::Pcie => Style::Memory,
            };
            let some_flops = flops > Flops(0);
            let figures = vec![
                if some_flops { scale::count(flops.0) } else { none() },
                scale::bytes(hbm_bytes),
                looped.map_or_else(none, |looped| scale::bytes(looped.collective.wire_bytes)),
                scale::time(time),
                share(time),
                looped.map_or(bound.name(), |looped| loop_bound(&looped, bound)).to_string(),
                if some_flops {
                    scale::number(intensity(flops, hbm_bytes).unwrap_or(0.0))
                } else {
                    none()
                },
            ];
            (figures, Some(style))
        }
        InstrPrice::Move(cost) if cost.wire_bytes == Bytes(0) => (
            vec![
                none(),
                none(),
                none(),
                scale::time(cost.time),
                none(),
                "free".to_string(),
                none(),
            ],
            Some(Style::Faint),
        ),
        InstrPrice::Move(cost) => {
            let figures = vec![
                none(),
                scale::bytes(cost.bytes),
                scale::bytes(cost.wire_bytes),
                scale::time(cost.time),
                share(cost.time),
                "network".to_string(),
                none(),
            ];
            (figures, Some(Style::Network))
        }
        InstrPrice::Free => (Vec::new(), None),
    }
}

/// Flops for each byte of HBM traffic; none without traffic.
pub(crate) fn intensity(flops: Flops, bytes: Bytes) -> Option<f64> {
    (bytes > Bytes(0)).then(|| flops.0 as f64 / bytes.0 as f64)
}

/// The share that a time is of a whole; `None` where the whole is 0.
pub(crate) fn share_of(part: Picoseconds, whole: Picoseconds) -> Option<f64> {
    (whole > Picoseconds(0)).then(|| part.0 as f64 / whole.0 as f64)
}

fn share_text(part: Picoseconds, whole: Picoseconds) -> String {
    share_of(part, whole).map_or_else(String::new, |share| format!("{:.1}%", share * 100.0))
}

/// The columns of a table of sums: one layer, and the stack where it has several layers.
fn layer_columns(plan: &Plan, stack: &'static str) -> Vec<Column> {
    let mut columns = vec![
        Column { title: "amount", yields: 1 },
        Column { title: if plan.folds.is_empty() { "one layer" } else { "the model" }, yields: 0 },
    ];
    if plan.repeat > 1 {
        columns.push(Column { title: stack, yields: 0 });
    }
    columns
}

fn times(report: &CostLayer<'_>, width: usize, paint: Paint) -> String {
    let (plan, totals, summary) = (report.layer.plan(), &report.layer.price.totals, report.summary);
    let mut rows = Vec::new();
    let mut row_of = |words: String, amount: String, time: Picoseconds, all: Picoseconds| {
        let mut figures = vec![amount, scale::time(time)];
        if plan.repeat > 1 {
            figures.push(scale::time(all));
        }
        rows.push(Row::plain(words, figures));
    };
    let overlapped = report.layer.timeline;
    let mut row = |words: String, amount: String, time: Picoseconds| {
        row_of(words, amount, time, time.times(plan.repeat));
    };
    row("  arithmetic".to_string(), scale::flops(totals.flops), totals.compute_time);
    row("  memory traffic".to_string(), scale::bytes(totals.hbm_bytes), totals.memory_time);
    row("  communication".to_string(), scale::bytes(totals.comm_bytes), totals.comm_time);
    for group in &summary.communication {
        let axes = plan.mesh.axes_text(group.axes.iter());
        row(format!("    over {axes}"), scale::bytes(group.wire_bytes), group.time);
    }
    row("  one after another".to_string(), String::new(), totals.serial_time);
    row_of(
        "  overlapped".to_string(),
        String::new(),
        overlapped.makespan,
        overlapped.of_all_layers(plan),
    );
    let mut row = |words: String, amount: String, time: Picoseconds| {
        row_of(words, amount, time, time.times(plan.repeat));
    };
    let overhead = report.layer.hardware.layer_overhead;
    if overhead > Picoseconds(0) {
        row("  overhead of the layer, beside either".to_string(), String::new(), overhead);
    }
    row("  no schedule takes less than".to_string(), String::new(), summary.lower_bound);
    let mut text = table("time of a step", &layer_columns(plan, "all layers"), &rows, width, paint);
    let mut line = "  overlapped, each step waits for the one before:".to_string();
    for id in report.layer.timeline.critical_path.iter().map(|id| id.0.to_string()) {
        if line.chars().count() + 1 + id.len() > width {
            text.push_str(&format!("{line}\n"));
            line = "   ".to_string();
        }
        line.push_str(&format!(" {id}"));
    }
    text.push_str(&format!("{line}\n"));
    text
}

fn memory(report: &CostLayer<'_>, width: usize, paint: Paint) -> String {
    let (plan, inventory) = (report.layer.plan(), &report.summary.inventory);
    let memory = &inventory.memory;
    let mut rows = Vec::new();
    let mut row = |words: &str, layer: Bytes, all: Bytes| {
        let mut figures = vec![String::new(), scale::bytes(layer)];
        if plan.repeat > 1 {
            figures.push(scale::bytes(all));
        }
        rows.push(Row::plain(words, figures));
    };
    for (kind, words, layer, all) in [
        (ParameterKind::Weight, "  weights", memory.weights, memory.all_weights()),
        (ParameterKind::Cache, "  caches", memory.caches, memory.all_caches()),
    ] {
        row(words, layer, all);
        let copies = inventory.sum(kind, |k| k.replicated_chip_bytes());
        if copies > Bytes(0) {
            row("    of that copies", copies, copies.times(plan.repeat));
        }
    }
    row("  activations at the peak", memory.activations, memory.activations);
    row("  together", memory.layer_peak(), memory.peak());
    let mut text =
        table("memory of a chip", &layer_columns(plan, "all layers"), &rows, width, paint);
    text.push_str(&format!("  {}\n", verdict(report, paint)));
    if let Some(line) = crate::memory::line(report.layer.hardware) {
        text.push_str(&format!("  {line}\n"));
    }
    for largest in report.largest {
        let name = &plan.dims[largest.dim.index()].name;
        let size = match largest.largest {
            Largest::Size(size) => size.to_string(),
            Largest::Legal(size) => format!("{size}, the most that the language allows"),
            Largest::None => "no size fits".to_string(),
            Largest::Unlimited => "any size fits".to_string(),
        };
        let role = match largest.role {
            Role::Batch | Role::Context => format!("{} ", largest.role.name()),
            Role::Tokens => String::new(),
        };
        text.push_str(&format!("  largest {role}{name}: {size}\n"));
    }
    text
}

/// At most so many weights and caches are named, the largest.
const HOLDERS: usize = 12;

/// Which weights and caches take the memory of a chip, over all layers, largest first, with the
/// part of it that each takes.
fn holders(report: &CostLayer<'_>, width: usize, paint: Paint) -> String {
    let plan = report.layer.plan();
    let mut kept: Vec<&Kept> =
        report.summary.inventory.kept.iter().filter(|k| report.held(k) > Bytes(0)).collect();
    if kept.is_empty() {
        return String::new();
    }
    kept.sort_by_key(|k| (std::cmp::Reverse(report.held(k)), k.id));
    let figures = |held: Bytes, copies: u64| {
        let copies = if copies > 1 { format!("{copies}") } else { String::new() };
        let share = format!(
            "{:.1}%",
            100.0 * share_of_memory(held, Bytes(report.layer.hardware.chip_hbm_bytes))
        );
        vec![copies, scale::bytes(held), share]
    };
    let row = |k: &&Kept| {
        let instr = plan.instruction(k.id);
        let kind = if k.kind == ParameterKind::Cache { "cache " } else { "" };
        let layout = report.layer.layout_text(k.id);
        Row::plain(
            format!("  {}: {kind}{} {layout}", value_name(plan, k.id), instr.dtype),
            figures(report.held(k), k.copies),
        )
    };
    let mut rows: Vec<Row> = kept.iter().take(HOLDERS).map(row).collect();
    if let Some(rest) = kept.get(HOLDERS..).filter(|rest| !rest.is_empty()) {
        let held: Bytes = rest.iter().map(|k| report.held(k)).sum();
        rows.push(Row::plain(format!("  {} smaller ones", rest.len()), figures(held, 1)));
    }
    let title = if plan.repeat > 1 { "what takes it, all layers" } else { "what takes it" };
    let columns = [
        Column { title: "copies", yields: 1 },
        Column { title: "on a chip", yields: 0 },
        Column { title: "of a chip", yields: 0 },
    ];
    table(title, &columns, &rows, width, paint)
}

fn verdict(report: &CostLayer<'_>, paint: Paint) -> String {
    let (memory, capacity) = (&report.summary.inventory.memory, &report.capacity);
    let (peak, along) = match report.layer.objective {
        Objective::Overlap => (report.layer.peak(), " along the overlapped schedule"),
        Objective::Serial | Objective::Comm | Objective::Memory => (report.layer.peak(), ""),
    };
    let over = |needed: Bytes, there: Bytes| scale::bytes(Bytes(needed.0 - there.0));
    if peak > capacity.all {
        let over = over(peak, capacity.all);
        return paint.style(
            &format!("DOES NOT FIT in {}: {over} too much{along}", scale::bytes(capacity.all)),
            Style::Bad,
        );
    }
    if memory.all_caches() > capacity.caches {
        let over = over(memory.all_caches(), capacity.caches);
        let text = format!(
            "caches DO NOT FIT in their {}: {over} too much",
            scale::bytes(capacity.caches)
        );
        return paint.style(&text, Style::Bad);
    }
    let free = 100.0 * (capacity.all.0 - peak.0) as f64 / capacity.all.0.max(1) as f64;
    let text = format!("fits in {}, {free:.1}% free{along}", scale::bytes(capacity.all));
    paint.style(&text, Style::Good)
}

fn use_of_chips(report: &CostLayer<'_>, width: usize, paint: Paint) -> String {
    let (plan, summary) = (report.layer.plan(), report.summary);
    let inventory = &summary.inventory;
    let names = |dims: &[DimId]| plan.dim_names(dims).join(" ");
    let all = inventory.parameters.saturating_mul(u128::from(plan.repeat));
    let mut rows = vec![Row::plain("  parameters", vec![scale::count(all)])];
    if inventory.cache_bytes_per_token > Bytes(0) {
        let bytes = inventory.cache_bytes_per_token.times(plan.repeat);
        rows.push(Row::plain("  cache of a token", vec![scale::bytes(bytes)]));
    }
    let counts_tokens = inventory.has_weights();
    if summary.tokens > 0 && counts_tokens {
        let words = format!("  tokens of a step ({})", names(&inventory.roles.tokens));
        rows.push(Row::plain(words, vec![scale::count(u128::from(summary.tokens))]));
    }
    if let Some(utilisation) = summary.utilisation {
        let percent = |share: f64| vec![format!("{:.1}%", share * 100.0)];
        if let Some(mfu) = utilisation.model {
            rows.push(Row::plain(
                format!("  MFU, of the {} peak", utilisation.arithmetic.name()),
                percent(mfu),
            ));
        }
        rows.push(Row::plain("  hardware utilisation", percent(utilisation.hardware)));
    }
    if let Some(efficiency) = summary.efficiency.filter(|_| counts_tokens) {
        let chip_seconds = scale::seconds(efficiency.chip_seconds_per_token);
        rows.push(Row::plain("  chip time of a token", vec![chip_seconds]));
        let rate = scale::number(efficiency.tokens_per_second);
        rows.push(Row::plain("  tokens a second", vec![rate]));
        let rate = scale::number(efficiency.tokens_per_second_per_chip);
        rows.push(Row::plain("  tokens a second a chip", vec![rate]));
    }
    table("use of the chips", &[Column { title: "", yields: 0 }], &rows, width, paint)
}
