//! `explain` as text: the source, line by line, and under each line what the compiler made of it.
//!
//! ```text
//! layer mlp
//!   mesh       x=4, y=4, z=4 (64 devices)
//!   hardware   tpu-v4-flat
//!   strategy   2d-weight-stationary
//!
//!  15 |   let h = einsum(x, w_in -> BLF)
//!      + all-gather yz along E: x                                 4.72 MB  16.4 us
//!          BLE_xyz -> BLE_x
//!          contraction over E, which x splits, leaves h partial over x
//!        h = einsum BLE,EF->BLF               21.7 Gflop  51.9 MB  79.1 us compute
//!          BLF_yz(partialsum-x)
//! ```

use std::collections::BTreeMap;

use shard_cost::{Bytes, InstrPrice};
use shard_ir::{AxisList, Collective, InstrId, InstrKind, Layout, Picoseconds, Plan, Program};
use shard_rewrite::{Alternative, Avoided, Proof, SharedWeight, Status};

use crate::json::explain::{gap, status_word};
use crate::json::sharing::layout;
use crate::notation::{layer_name, phrase, value_name};
use crate::scale;
use crate::strategy::strategy;
use crate::{Layer, Sharing};

/// How wide the text is where names allow.
const WIDTH: usize = 80;

/// The explanation of some layers.
pub fn explain(layers: &[Layer<'_>]) -> String {
    let texts: Vec<String> = layers.iter().map(layer_text).collect();
    texts.join("\n")
}

fn layer_text(layer: &Layer<'_>) -> String {
    let mut page = Page::default();
    header(&mut page, layer);
    let plan = layer.plan();
    page.line("");
    let mut shown = None;
    for id in plan.ids() {
        if matches!(plan.instruction(id).kind, InstrKind::Parameter(_) | InstrKind::Constant(_)) {
            continue;
        }
        source_line(&mut page, layer, id, &mut shown);
        match &plan.instruction(id).kind {
            InstrKind::Move(_) => move_lines(&mut page, layer, id),
            InstrKind::Op(_) => op_lines(&mut page, layer, id),
            InstrKind::Parameter(_) | InstrKind::Constant(_) => {}
        }
    }
    for output in &plan.outputs {
        page.line(&format!("       return {}: {}", output.name, layer.output_layout_text(output)));
    }
    page.line("");
    totals(&mut page, layer);
    page.text
}

fn header(page: &mut Page, layer: &Layer<'_>) {
    let plan = layer.plan();
    let repeat = if plan.repeat > 1 { format!(" (repeated {} times)", plan.repeat) } else { String::new() };
    page.line(&format!("layer {}{repeat}", layer_name(plan)));
    let devices = plan.mesh.devices();
    let mesh = if plan.mesh.declared().is_empty() { "none".to_string() } else { plan.mesh.to_string() };
    page.line(&format!("  mesh       {mesh} ({devices} device{})", if devices == 1 { "" } else { "s" }));
    page.line(&format!("  hardware   {}", layer.hardware.name));
    let names: Vec<&str> = strategy(plan).into_iter().map(|s| s.name()).collect();
    page.line(&format!("  strategy   {}", names.join(", ")));
    let parameters: Vec<InstrId> =
        plan.ids().filter(|id| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_))).collect();
    if !parameters.is_empty() {
        page.line("  parameters, on each device");
    }
    for id in parameters {
        let instr = plan.instruction(id);
        let InstrKind::Parameter(kind) = instr.kind else { continue };
        let kind = kind.word().map_or(String::new(), |word| format!("{word} "));
        let left = format!("    {}: {kind}{} {}", value_name(plan, id), instr.dtype, layer.layout_text(id));
        page.row(&left, &scale::bytes(Bytes(plan.local_bytes(id))));
    }
}

/// The line of the source that an instruction comes from, where it is not the one shown last.
fn source_line(page: &mut Page, layer: &Layer<'_>, id: InstrId, shown: &mut Option<(usize, Vec<String>)>) {
    let origin = &layer.plan().instruction(id).origin;
    let (Some(source), Some(span)) = (layer.source, origin.span) else { return };
    let line = source.line_column(span.start).line;
    let here = (line, origin.in_layers.clone());
    if shown.as_ref() == Some(&here) {
        return;
    }
    if !origin.in_layers.is_empty() && shown.as_ref().map(|(_, layers)| layers) != Some(&origin.in_layers) {
        page.line(&format!("     in {}", origin.in_layers.join(" / ")));
    }
    page.line(&format!("{line:>4} | {}", source.line(line).unwrap_or_default()));
    *shown = Some(here);
}

fn move_lines(page: &mut Page, layer: &Layer<'_>, id: InstrId) {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let source = instr.operands.first().copied().unwrap_or(id);
    let figures = match layer.price.of(id) {
        InstrPrice::Move(cost) if cost.time > Picoseconds(0) => {
            format!("{}  {}", scale::bytes(cost.bytes), scale::time(cost.time))
        }
        InstrPrice::Move(_) | InstrPrice::Free | InstrPrice::Kernel { .. } => "no traffic".to_string(),
    };
    page.row(&format!("     + {}: {}", phrase(plan, id), value_name(plan, source)), &figures);
    page.line(&format!("         {} -> {}", layer.layout_text(source), layer.layout_text(id)));
    if let Some(reason) = &instr.origin.reason {
        page.wrapped(9, reason);
    }
    let other = layer.alternatives.iter().find(|a| a.id == id);
    // A chain of collectives is done without as one: said at the first of them.
    let is_first = |other: &&Alternative| {
        layer.alternatives.iter().find(|a| a.avoided == other.avoided).is_some_and(|first| first.id == id)
    };
    // A bound that adds nothing says nothing.
    let says_something = |other: &&Alternative| other.plan.is_some() || other.time > layer.price.totals.serial_time;
    if let Some(other) = other.filter(is_first).filter(says_something) {
        page.wrapped(9, &alternative_text(layer.price.totals.serial_time, other));
    }
}

fn op_lines(page: &mut Page, layer: &Layer<'_>, id: InstrId) {
    let plan = layer.plan();
    let figures = match *layer.price.of(id) {
        InstrPrice::Kernel { fused_into: Some(first), .. } => format!("fused into {}", value_name(plan, first)),
        InstrPrice::Kernel { time: Picoseconds(0), .. } => "no traffic".to_string(),
        InstrPrice::Kernel { flops, hbm_bytes, time, bound, .. } => {
            let flops = if flops.0 == 0 { String::new() } else { format!("{}  ", scale::flops(flops)) };
            format!("{flops}{}  {} {}", scale::bytes(hbm_bytes), scale::time(time), bound.name())
        }
        InstrPrice::Free | InstrPrice::Move(_) => String::new(),
    };
    page.row(&format!("       {} = {}", value_name(plan, id), phrase(plan, id)), &figures);
    page.line(&format!("         {}", layer.layout_text(id)));
    // An op has a reason where it is not what the source says.
    if let Some(reason) = &plan.instruction(id).origin.reason {
        page.wrapped(9, reason);
    }
}

fn totals(page: &mut Page, layer: &Layer<'_>) {
    let (plan, totals) = (layer.plan(), &layer.price.totals);
    page.line("totals, on each device");
    page.row("  communication", &scale::time(totals.comm_time));
    page.row("  arithmetic", &format!("{}  {}", scale::flops(totals.flops), scale::time(totals.compute_time)));
    page.row("  memory traffic", &format!("{}  {}", scale::bytes(totals.hbm_bytes), scale::time(totals.memory_time)));
    page.row("  all steps, one after another", &scale::time(totals.serial_time));
    if plan.repeat > 1 {
        let model = Picoseconds(totals.serial_time.0.saturating_mul(plan.repeat));
        page.row(&format!("  {} layers", plan.repeat), &scale::time(model));
    }
    let capacity = scale::bytes(Bytes(layer.hardware.hbm_bytes));
    page.row("  memory at the peak", &format!("{} of {capacity}", scale::bytes(totals.peak_hbm_bytes)));
    let excess = totals.peak_hbm_bytes.0.saturating_sub(layer.hardware.hbm_bytes);
    if excess > 0 {
        page.row("  DOES NOT FIT in memory", &format!("over by {}", scale::bytes(Bytes(excess))));
    }
    page.row("  bytes sent", &scale::bytes(totals.comm_bytes));
    for (axes, bytes) in sent_over(layer) {
        page.row(&format!("    over {axes}"), &scale::bytes(bytes));
    }
    optimality(page, layer);
}

/// The bytes sent over each group of mesh axes, in the order in which groups are first used.
pub(crate) fn sent_over(layer: &Layer<'_>) -> Vec<(String, Bytes)> {
    let plan = layer.plan();
    let mut order: Vec<AxisList> = Vec::new();
    let mut sent: BTreeMap<AxisList, Bytes> = BTreeMap::new();
    for id in plan.ids() {
        let (Some((collective, from)), InstrPrice::Move(cost)) = (moved(plan, id), layer.price.of(id)) else {
            continue;
        };
        if cost.wire_bytes == Bytes(0) {
            continue;
        }
        let axes: AxisList = collective.axes(&plan.mesh, plan.instruction(from).layout).set().iter().collect();
        if !order.contains(&axes) {
            order.push(axes);
        }
        let sum = sent.entry(axes).or_default();
        *sum = *sum + cost.wire_bytes;
    }
    order.into_iter().map(|axes| (plan.mesh.axes_text(axes.iter()), sent[&axes])).collect()
}

fn moved(plan: &Plan, id: InstrId) -> Option<(&Collective, InstrId)> {
    let instr = plan.instruction(id);
    match &instr.kind {
        InstrKind::Move(collective) => Some((collective, *instr.operands.first()?)),
        InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => None,
    }
}

fn optimality(page: &mut Page, layer: &Layer<'_>) {
    sharing(page, layer);
    page.wrapped(0, &optimality_text(layer));
}

/// How far from the best plan.
pub(crate) fn optimality_text(layer: &Layer<'_>) -> String {
    let Some(o) = layer.optimality else {
        return "plan given as IR: not searched for".to_string();
    };
    let status = status_word(o.status);
    match o.proof {
        Some(Proof::Certificate) => {
            format!("{status} by certificate: no plan takes less than {}", scale::time(o.lower_bound))
        }
        Some(Proof::Search) => format!(
            "{status} by search: no plan takes less than {} (prices alone rule out less than {})",
            scale::time(o.cost),
            scale::time(o.lower_bound)
        ),
        None => {
            let gap =
                gap(o.cost, o.lower_bound).map_or("by an unknown share".to_string(), |g| format!("{:.2} %", g * 100.0));
            let limit =
                o.stopped_by.as_ref().map_or(String::new(), |limit| format!(" (stopped by the limit of {limit})"));
            format!("{status}: at most {gap} above the bound of {}{limit}", scale::time(o.lower_bound))
        }
    }
}

/// How the weights are stored for all phases, and what that costs this one and a whole request.
fn sharing(page: &mut Page, layer: &Layer<'_>) {
    let Some(Sharing { shared, phase }) = layer.sharing else { return };
    let program = &shared.programs[phase];
    let name = |of: &Program| of.phase.as_ref().map_or_else(String::new, |phase| phase.name.clone());
    let named = |weight: &SharedWeight, text: Layout| {
        let of = program.value(weight.value).name.as_deref().unwrap_or("a weight");
        format!("{of} {}", layout(program, weight.value, text))
    };
    let stored: Vec<String> = shared.weights.iter().map(|w| named(w, w.stored)).collect();
    page.wrapped(0, &format!("stored for all phases: {}", stored.join(", ")));
    let other: Vec<String> =
        shared.weights.iter().filter(|w| w.alone[phase] != w.stored).map(|w| named(w, w.alone[phase])).collect();
    let (time, alone) = (layer.price.totals.serial_time, shared.alone[phase]);
    page.wrapped(
        2,
        &match other.is_empty() {
            true => format!("as {} alone would have it", name(program)),
            false => format!(
                "alone, {} would have {} and take {}: sharing costs it {}",
                name(program),
                other.join(", "),
                scale::time(alone),
                share(time, alone)
            ),
        },
    );
    let steps: Vec<String> = shared
        .programs
        .iter()
        .map(|p| format!("{} {}", p.phase.as_ref().map_or(1, |phase| phase.repeat), name(p)))
        .collect();
    let status = match shared.request.status {
        Status::Proven => "proven: no stored layouts take less".to_string(),
        Status::Bounded => format!("bounded: none take less than {}", scale::time(shared.request.lower_bound)),
    };
    page.wrapped(
        2,
        &format!(
            "a request ({}) takes {}, {status}; stored for each phase alone, {}",
            steps.join(", "),
            scale::time(shared.request.cost),
            scale::time(shared.request_alone()),
        ),
    );
}

/// `nothing`, or how much one time is above another, also in percent.
fn share(time: Picoseconds, least: Picoseconds) -> String {
    let more = Picoseconds(time.0.saturating_sub(least.0));
    match gap(time, least) {
        _ if more == Picoseconds(0) => "nothing".to_string(),
        Some(part) => format!("{} ({:.2} %)", scale::time(more), part * 100.0),
        None => scale::time(more),
    }
}

/// What a collective was preferred to, and what that would have cost.
pub(crate) fn alternative_text(chosen: Picoseconds, other: &Alternative) -> String {
    let how = without(&other.avoided);
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
        .map(|id| format!("{} of {}", phrase(plan, *id), value_name(plan, *id)))
        .collect();
    let rest = match other.instead.len().saturating_sub(MOST_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match instead.is_empty() {
        true => format!("rather than {how}: {cost}"),
        false => format!("rather than {how}: {cost}, by {}{rest}", instead.join(", ")),
    }
}

/// So many of an alternative's collectives are named.
const MOST_SHOWN: usize = 3;

/// How an alternative does without a collective, in words.
pub(crate) fn without(avoided: &Avoided) -> String {
    match avoided {
        Avoided::Unmoved { reader, value } => format!("{reader} with {value} left where it lies"),
        Avoided::Complete { value, axes } => format!("{value} never partial over {axes}"),
        Avoided::MadeElsewhere { value, layout } => format!("{value} not made as {layout}"),
    }
}

/// Text under construction; no line ends in blanks.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Words on the left, figures on the right edge; on two lines where one is too short.
    fn row(&mut self, left: &str, right: &str) {
        let (l, r) = (left.chars().count(), right.chars().count());
        if l + 2 + r <= WIDTH {
            self.line(&format!("{left}{right:>width$}", width = WIDTH - l));
        } else {
            self.line(left);
            self.line(&format!("{right:>WIDTH$}"));
        }
    }

    /// Words broken into lines that fit.
    fn wrapped(&mut self, indent: usize, words: &str) {
        let mut line = String::new();
        for word in words.split_whitespace() {
            if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.line(&format!("{:indent$}{line}", ""));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&format!("{:indent$}{line}", ""));
    }
}
