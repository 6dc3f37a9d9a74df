//! `explain --emit html`: one file that holds all it shows and fetches nothing. The page is whole
//! without its script, which draws on the mesh the value that one points at, moves to or taps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use askama::Template;
use serde::Serialize;
use shard_cost::{Bytes, InstrPrice, Utilisation};
use shard_grammar::{SourceFile, Span};
use shard_ir::{InstrId, InstrKind, Picoseconds, Reduction, never};
use shard_search::Avoided;

use crate::Layer;
use crate::explain::{alternative_text, bounded, optimality_text, sent_over};
use crate::notation::{phrase, value_name};
use crate::scale;
use crate::status::status_word;
use crate::strategy::strategy;
use crate::timeline_svg::drawing;
use crate::words::reason_of;

/// The page around what is known of the layers.
#[derive(Template)]
#[template(path = "explain.html")]
struct Page {
    title: String,
    /// As HTML.
    body: String,
    /// What the script draws from: JSON without `<`.
    data: String,
}

/// What is said of a layer above its program.
#[derive(Template)]
#[template(path = "summary.html")]
struct Overview {
    at: usize,
    steps: Vec<Mattering>,
    parameters: Vec<Stored>,
}

/// A step that takes a large part of the time.
struct Mattering {
    id: u32,
    name: String,
    figures: String,
}

/// A parameter in the layout in which it is given.
struct Stored {
    name: String,
    layout: String,
    bytes: String,
}

/// So many steps matter most.
const MATTERING: usize = 3;

/// The explanation of some layers as one HTML file.
pub fn html(layers: &[Layer<'_>]) -> String {
    let file =
        layers.iter().find_map(|layer| layer.source).map_or("", |source| file_name(&source.name));
    let names: Vec<&str> = layers.iter().map(|layer| layer.plan().name.as_str()).collect();
    let title = format!("shardc explain {file}: {}", names.join(", "));
    let mut body = format!("<h1>{}</h1>\n<div class=\"cols\">\n<div>\n", escaped(&title));
    for (at, layer) in layers.iter().enumerate() {
        section(&mut body, at, layer);
    }
    body.push_str(
        "</div>\n<aside id=\"panel\" aria-live=\"polite\" \
            aria-label=\"layout\">\n<h2>Layout</h2>\n<p>Point at a value, move to \
         it with Tab, or tap it, to see how it lies on the mesh. Devices of one colour hold the \
         same block; a stroke marks \
         terms of a sum.</p>\n</aside>\n</div>",
    );
    let data: Vec<LayerData<'_>> = layers.iter().map(layer_data).collect();
    // Serialising these types to memory cannot fail. `<` could end the script.
    let data = serde_json::to_string(&data)
        .unwrap_or_else(|_| never!("data that cannot be written", String::new()))
        .replace('<', "\\u003c");
    // A template ends without the last line's end.
    written(&Page { title, body, data }) + "\n"
}

/// A template with its places filled. Writing to memory cannot fail.
fn written(template: &impl Template) -> String {
    template.render().unwrap_or_else(|_| never!("a page that cannot be written", String::new()))
}

/// The steps that take most of the time, the longest first, and how parameters are given: what the
/// types say, or what was chosen where they leave it open.
fn overview(layer: &Layer<'_>, at: usize) -> Overview {
    let plan = layer.plan();
    let mut steps: Vec<(InstrId, Picoseconds)> =
        plan.ids().map(|id| (id, layer.time_in_step(id))).filter(|(_, time)| time.0 > 0).collect();
    steps.sort_by_key(|(id, time)| (std::cmp::Reverse(*time), *id));
    let step = |(id, time): &(InstrId, Picoseconds)| Mattering {
        id: id.0,
        name: format!("{}: {}", value_name(plan, *id), phrase(plan, *id)),
        figures: format!("{}, {}", scale::time(*time), share(layer, *time)),
    };
    let is_given = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    let stored = |id: InstrId| Stored {
        name: value_name(plan, id),
        layout: layer.layout_text(id),
        bytes: scale::bytes(Bytes(plan.local_bytes(id))),
    };
    Overview {
        at,
        steps: steps.iter().take(MATTERING).map(step).collect(),
        parameters: plan.ids().filter(is_given).map(stored).collect(),
    }
}

/// Whether the plan is proven, as a mark beside its name.
fn badge(layer: &Layer<'_>) -> String {
    let mark = layer.optimality.map(|o| status_word(o.status));
    mark.map_or(String::new(), |word| format!(" <span class=\"badge {word}\">{word}</span>"))
}

fn section(out: &mut String, at: usize, layer: &Layer<'_>) {
    let plan = layer.plan();
    let strategies: Vec<&str> = strategy(plan).into_iter().map(|s| s.name()).collect();
    let mesh =
        if plan.mesh.declared().is_empty() { "none".to_string() } else { plan.mesh.to_string() };
    let mut repeat =
        if plan.repeat > 1 { format!(" · {} times", plan.repeat) } else { String::new() };
    plan.folds.iter().for_each(|fold| repeat += &format!(" · {} x {}", fold.repeat, fold.layer));
    let facts = format!(
        "mesh {mesh} · {} devices · {} · {}{repeat}",
        plan.mesh.devices(),
        layer.hardware.name,
        strategies.join(", ")
    );
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<section aria-labelledby=\"layer{at}\">\n<h2 id=\"layer{at}\">{} {}{}{}</h2>\n<p \
            class=\"facts\">{}</p>\n",
        crate::notation::kind_of_layer(plan),
        escaped(&plan.name),
        plan.phase.as_ref().map_or(String::new(), |phase| format!(", phase {}", escaped(phase))),
        badge(layer),
        escaped(&facts)
    );
    totals(out, layer);
    out.push_str(&written(&overview(layer, at)));
    out.push_str(&drawing(layer, at));
    out.push_str("<h3>Program</h3>\n");
    Program { layer, at, out }.write();
    time_table(out, layer);
    traffic_table(out, layer);
    let _ = writeln!(out, "<p>{}</p>\n</section>", escaped(&optimality_text(layer)));
}

fn totals(out: &mut String, layer: &Layer<'_>) {
    let totals = &layer.price.totals;
    let (capacity, peak) = (Bytes(layer.hardware.hbm_bytes), layer.price.memory.peak());
    let fits = if peak > capacity { " (does not fit)" } else { "" };
    let repeat = layer.plan().repeat;
    let limit =
        crate::memory::limit(layer.hardware).map_or(String::new(), |why| format!(" ({why})"));
    let peak = format!("{} of {}{limit}{fits}", scale::bytes(peak), scale::bytes(capacity));
    let utilisation = Utilisation::of(
        layer.plan(),
        layer.price,
        layer.hardware,
        layer.hardware.stack_time(totals.serial_time, layer.plan()),
    );
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut tiles = vec![
        ("serial time", scale::time(totals.serial_time)),
        ("communication", scale::time(totals.comm_time)),
        ("compute", scale::time(totals.compute_time)),
        ("memory traffic", scale::time(totals.memory_time)),
        ("bytes sent", scale::bytes(totals.comm_bytes)),
        (if repeat > 1 { "memory at the peak, all layers" } else { "memory at the peak" }, peak),
    ];
    if let Some(utilisation) = utilisation {
        tiles.extend(utilisation.model.map(|mfu| ("MFU", percent(mfu))));
        tiles.push(("hardware utilisation", percent(utilisation.hardware)));
    }
    if let Some(bounded) = bounded(layer) {
        tiles.push(("plan", bounded));
    }
    if repeat > 1 {
        tiles.push((
            "all layers",
            scale::time(layer.hardware.stack_time(totals.serial_time, layer.plan())),
        ));
    }
    out.push_str("<dl class=\"tiles totals\">\n");
    for (name, figure) in tiles {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&figure));
    }
    out.push_str("</dl>\n");
}

/// The layer's own lines, each followed by the steps that come of it; then the lines of the layers
/// that it calls.
struct Program<'o, 'l> {
    layer: &'l Layer<'l>,
    at: usize,
    out: &'o mut String,
}

impl Program<'_, '_> {
    fn write(&mut self) {
        let plan = self.layer.plan();
        let steps: Vec<InstrId> = plan
            .ids()
            .filter(|id| {
                !matches!(
                    plan.instruction(*id).kind,
                    InstrKind::Parameter(_) | InstrKind::Constant(_)
                )
            })
            .collect();
        let place = |id: &InstrId| {
            let origin = &plan.instruction(*id).origin;
            Some((self.layer.source?, origin.span?, origin.in_layers.clone()))
        };
        let (placed, unplaced): (Vec<InstrId>, Vec<InstrId>) =
            steps.iter().partition(|id| place(id).is_some());
        // Which layers' lines are shown: this layer's, then those that it calls, in the order in
        // which they first do something.
        let mut paths: Vec<Vec<String>> = vec![Vec::new()];
        let mut of_line: BTreeMap<(usize, usize), Vec<InstrId>> = BTreeMap::new();
        for id in placed {
            let Some((source, span, path)) = place(&id) else { continue };
            let known = paths.iter().position(|p| *p == path).unwrap_or_else(|| {
                paths.push(path);
                paths.len() - 1
            });
            of_line.entry((known, source.line_column(span.start).line)).or_default().push(id);
        }
        if let Some(source) = self.layer.source {
            for (known, path) in paths.iter().enumerate() {
                let name = path.last().unwrap_or(&plan.name);
                if !path.is_empty() {
                    let _ = writeln!(
                        self.out,
                        "<p class=\"facts\">in {}</p>",
                        escaped(&path.join(" / "))
                    );
                }
                let mut lines: BTreeSet<usize> =
                    of_line.keys().filter(|(p, _)| *p == known).map(|(_, line)| *line).collect();
                if let Some(span) = layer_span(source, name) {
                    lines.extend(
                        source.line_column(span.start).line..=source.line_column(span.end).line,
                    );
                }
                for line in lines {
                    self.line(source, line, path);
                    for id in of_line.get(&(known, line)).into_iter().flatten() {
                        self.step(*id);
                    }
                }
            }
        }
        for id in unplaced {
            self.step(id);
        }
    }

    /// A line of the source; the names of values can be pointed at.
    fn line(&mut self, source: &SourceFile, line: usize, path: &[String]) {
        let text =
            source.line(line).unwrap_or_else(|| never!("a place behind the end of its file", ""));
        let (code, comment) = text.split_at(text.find("//").unwrap_or(text.len()));
        let mut marked = String::new();
        let mut rest = code;
        while !rest.is_empty() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let starts_word = rest.starts_with(is_word);
            let end = rest.find(|c| is_word(c) != starts_word).unwrap_or(rest.len());
            let (piece, behind) = rest.split_at(end);
            match self.named(piece, path).filter(|_| starts_word) {
                Some(id) => marked.push_str(&self.value(id, piece)),
                None => marked.push_str(&escaped(piece)),
            }
            rest = behind;
        }
        let comment = escaped(comment);
        let _ = writeln!(
            self.out,
            "<div class=\"line\"><b>{line}</b><span>{marked}<span \
                class=\"why\">{comment}</span></span></div>"
        );
    }

    /// The instruction that makes the value of a name.
    fn named(&self, name: &str, path: &[String]) -> Option<InstrId> {
        let plan = self.layer.plan();
        plan.ids().find(|id| {
            let instr = plan.instruction(*id);
            instr.name.as_deref() == Some(name) && instr.origin.in_layers == path
        })
    }

    fn value(&self, id: InstrId, text: &str) -> String {
        format!(
            "<span class=\"v\" tabindex=\"0\" role=\"button\" data-l=\"{}\" \
                data-v=\"{}\">{}</span>",
            self.at,
            id.0,
            escaped(text)
        )
    }

    fn step(&mut self, id: InstrId) {
        let layer = self.layer;
        let plan = layer.plan();
        let instr = plan.instruction(id);
        let source = plan.moved(id);
        let figures = figures(layer, id);
        let (what, layouts) = match &instr.kind {
            InstrKind::Move(_) => (
                format!(
                    "{} of {}",
                    self.value(id, &phrase(plan, id)),
                    self.value(source, &value_name(plan, source))
                ),
                format!("{} → {}", layer.layout_text(source), layer.layout_text(id)),
            ),
            InstrKind::Op(_)
            | InstrKind::CollectiveEinsum(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_) => (
                format!(
                    "{} = {}",
                    self.value(id, &value_name(plan, id)),
                    escaped(&phrase(plan, id))
                ),
                layer.layout_text(id),
            ),
        };
        let _ = writeln!(
            self.out,
            "<div id=\"layer{}-step{}\" class=\"step {}\"><div class=\"what\"><span>{what}</span><span \
                class=\"num\">{}</span></div>\
             <div class=\"lay\">{}</div>{}</div>",
            self.at,
            id.0,
            class(layer, id),
            escaped(&figures),
            escaped(&layouts),
            self.why(id)
        );
    }

    fn why(&self, id: InstrId) -> String {
        let layer = self.layer;
        let origin = &layer.plan().instruction(id).origin;
        let mut lines: Vec<String> = reason_of(layer.plan(), id).into_iter().collect();
        let other = layer.alternatives.iter().find(|a| a.id == id);
        // A chain of collectives is done without as one: said at the first of them.
        let is_first = |avoided: &Avoided| {
            layer.alternatives.iter().find(|a| a.avoided == *avoided).is_some_and(|a| a.id == id)
        };
        if let Some(other) = other.filter(|other| is_first(&other.avoided)) {
            lines.push(alternative_text(layer, other));
        }
        if matches!(layer.plan().instruction(id).kind, InstrKind::Move(_)) {
            lines.extend(origin.rules.text().map(|rule| format!("rule {rule}")));
        }
        lines.iter().map(|line| format!("<div class=\"why\">{}</div>", escaped(line))).collect()
    }
}

/// The layer of a name, from its header to its closing brace.
fn layer_span(source: &SourceFile, name: &str) -> Option<Span> {
    let tree = shard_grammar::parse(source).file;
    let layer = tree.layers().find(|layer| layer.name.value == name)?;
    Some(layer.span)
}

/// The colour of a step: what it takes time from.
pub(crate) fn class(layer: &Layer<'_>, id: InstrId) -> &'static str {
    match layer.price.of(id) {
        InstrPrice::Move(_) => "move",
        InstrPrice::Kernel { looped: Some(looped), .. } if looped.exposed() > Picoseconds(0) => {
            "move"
        }
        InstrPrice::Kernel { bound, .. } => bound.name(),
        InstrPrice::Free => "",
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

/// A time as a part of the step.
fn share(layer: &Layer<'_>, time: Picoseconds) -> String {
    match layer.price.totals.serial_time.0 {
        0 => "0 %".to_string(),
        all => format!("{:.1} %", 100.0 * time.0 as f64 / all as f64),
    }
}

fn time_table(out: &mut String, layer: &Layer<'_>) {
    let plan = layer.plan();
    let steps: Vec<(InstrId, Picoseconds)> =
        plan.ids().map(|id| (id, layer.time_in_step(id))).filter(|(_, time)| time.0 > 0).collect();
    let most = steps.iter().map(|(_, time)| time.0).max().unwrap_or(1);
    out.push_str(
        "<h3>Time</h3>\n<p class=\"key\">bound by<i style=\"background:var(--comm)\"></i>network\
         <i style=\"background:var(--compute)\"></i>compute<i \
         style=\"background:var(--memory)\"></i>memory</p>\n<table>\n",
    );
    for (id, time) in steps {
        let figures = [scale::time(time), share(layer, time)];
        bar(
            out,
            &format!("{}: {}", value_name(plan, id), phrase(plan, id)),
            class(layer, id),
            time.0,
            most,
            &figures,
        );
    }
    out.push_str("</table>\n");
}

fn traffic_table(out: &mut String, layer: &Layer<'_>) {
    let sent = sent_over(layer);
    if sent.is_empty() {
        return;
    }
    let most = sent.iter().map(|(_, bytes, _)| bytes.0).max().unwrap_or(1);
    out.push_str("<h3>Bytes sent by each device</h3>\n<table>\n");
    for (axes, bytes, _) in sent {
        bar(out, &format!("over {axes}"), "move", bytes.0, most, &[scale::bytes(bytes)]);
    }
    out.push_str("</table>\n");
}

fn bar(out: &mut String, name: &str, class: &str, part: u64, most: u64, figures: &[String]) {
    let width = 100.0 * part as f64 / most.max(1) as f64;
    let _ = write!(
        out,
        "<tr><th scope=\"row\">{}</th><td class=\"bar\"><span class=\"{class}\" \
            style=\"width:{width:.2}%\"></span></td>",
        escaped(name)
    );
    for figure in figures {
        let _ = write!(out, "<td class=\"num\">{}</td>", escaped(figure));
    }
    out.push_str("</tr>\n");
}

/// What the script draws from.
#[derive(Serialize)]
struct LayerData<'a> {
    /// The axes that have more than one place.
    mesh: Vec<(&'a str, u64)>,
    /// One for each instruction.
    values: Vec<ValueData<'a>>,
}

#[derive(Serialize)]
struct ValueData<'a> {
    name: String,
    dtype: &'static str,
    layout: String,
    words: String,
    bytes: String,
    dims: Vec<DimData<'a>>,
    partial: Vec<&'a str>,
}

#[derive(Serialize)]
struct DimData<'a> {
    /// Major to minor.
    axes: Vec<&'a str>,
}

fn layer_data<'a>(layer: &Layer<'a>) -> LayerData<'a> {
    let plan = layer.plan();
    let mesh = &plan.mesh;
    let value = |id: InstrId| {
        let instr = plan.instruction(id);
        let axes = |at| instr.layout.axes_of(at).iter().map(|axis| mesh.name(axis)).collect();
        let sizes: Vec<String> = plan.local_sizes(id).iter().map(u64::to_string).collect();
        let shape = if sizes.is_empty() { "a scalar".to_string() } else { sizes.join(" × ") };
        ValueData {
            name: value_name(plan, id),
            dtype: instr.dtype.name(),
            layout: layer.layout_text(id),
            words: words(layer, id),
            bytes: format!("{shape}, {} on each device", scale::bytes(Bytes(plan.local_bytes(id)))),
            dims: (0..instr.dims.len()).map(|at| DimData { axes: axes(at) }).collect(),
            partial: instr.layout.partial_axes().iter().map(|axis| mesh.name(axis)).collect(),
        }
    };
    LayerData {
        mesh: mesh.axis_ids().map(|axis| (mesh.name(axis), mesh.size(axis))).collect(),
        values: plan.ids().map(value).collect(),
    }
}

/// A layout in words.
fn words(layer: &Layer<'_>, id: InstrId) -> String {
    let plan = layer.plan();
    let (instr, mesh) = (plan.instruction(id), &plan.mesh);
    let names = |axes: &mut dyn Iterator<Item = shard_ir::AxisId>| -> String {
        axes.map(|axis| mesh.name(axis)).collect::<Vec<_>>().join(", ")
    };
    let (mut parts, mut whole) = (Vec::new(), Vec::new());
    for (at, (name, local)) in
        plan.dim_names(&instr.dims).into_iter().zip(plan.local_sizes(id)).enumerate()
    {
        let axes = instr.layout.axes_of(at);
        if axes.is_empty() {
            whole.push(name)
        } else {
            parts.push(format!(
                "{name} is cut into {} parts of {local} over {}",
                mesh.group_size(axes.iter()),
                names(&mut axes.iter())
            ))
        }
    }
    if !whole.is_empty() {
        parts.push(format!(
            "{} {} whole",
            whole.join(", "),
            if whole.len() == 1 { "is" } else { "are" }
        ));
    }
    for (kind, word) in [(Reduction::Sum, "sum"), (Reduction::Max, "maximum")] {
        let axes = instr.layout.partial(kind);
        if !axes.is_empty() {
            parts.push(format!(
                "each device along {} holds a term of a {word}",
                names(&mut axes.iter())
            ));
        }
    }
    let replicated = instr.layout.replicated_axes(mesh);
    if !replicated.is_empty() {
        parts.push(format!("the devices along {} hold the same", names(&mut replicated.iter())));
    }
    parts.join("; ")
}

/// The last part of a path: the folders are those of one machine.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Text as HTML shows it, in content and in attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
