//! `explain --emit html`: one file that holds all it shows and fetches nothing. The page is whole
//! without its script, which draws on the mesh the value that one points at, moves to or taps.

mod panel;
mod program;
pub mod side_by_side;
mod summary;
mod tables;

use askama::Template;
use shard_cost::InstrPrice;
use shard_ir::{InstrId, Picoseconds, never};

use crate::Layer;
use crate::notation::{kind_of_layer, mesh_text};
use crate::optimality::optimality_text;
use crate::overlap_choice;
use crate::padding::Padding;
use crate::scale;
use crate::strategy::strategies;
use crate::timeline_svg::{TimelineDrawing, drawing};
use panel::layer_data;
use program::{Program, program};
use summary::{Overview, Tile, overview, totals};
use tables::{Table, time_table, traffic_table};

/// The page: its layers, and what its script draws from.
#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage<'a> {
    title: String,
    sections: Vec<LayerSection<'a>>,
    /// JSON without `<`.
    data: String,
}

/// A layer.
#[derive(Template)]
#[template(path = "section.html")]
struct LayerSection<'a> {
    at: usize,
    kind: &'static str,
    name: &'a str,
    phase: Option<&'a str>,
    /// Whether the plan is proven.
    badge: Option<&'static str>,
    facts: String,
    tiles: Vec<Tile>,
    overview: Overview,
    drawing: Option<TimelineDrawing>,
    program: Program,
    tables: Vec<Table>,
    optimality: String,
    /// What `--objective overlap` would choose, where that was asked for.
    overlap_choice: Option<String>,
    /// Paddings that make the plan faster.
    paddings: Vec<String>,
}

/// The explanation of some layers as one HTML file.
pub fn html(layers: &[Layer<'_>]) -> String {
    let file =
        layers.iter().find_map(|layer| layer.source).map_or("", |source| file_name(&source.name));
    let names: Vec<&str> = layers.iter().map(|layer| layer.plan().name.as_str()).collect();
    let title = format!("shardc explain {file}: {}", names.join(", "));
    let sections = layers.iter().enumerate().map(|(at, layer)| section(layer, at)).collect();
    let data: Vec<_> = layers.iter().map(layer_data).collect();
    // Serialising these types to memory cannot fail. `<` could end the script.
    let data = serde_json::to_string(&data)
        .unwrap_or_else(|_| never!("data that cannot be written", String::new()))
        .replace('<', "\\u003c");
    let page = ExplainPage { title, sections, data };
    // Writing to memory cannot fail. A template ends without the last line's end.
    page.render().unwrap_or_else(|_| never!("a page that cannot be written", String::new())) + "\n"
}

fn section<'a>(layer: &Layer<'a>, at: usize) -> LayerSection<'a> {
    let plan = layer.plan();
    let mut repeat =
        if plan.repeat > 1 { format!(" · {} times", plan.repeat) } else { String::new() };
    plan.folds.iter().for_each(|fold| repeat += &format!(" · {} x {}", fold.repeat, fold.layer));
    LayerSection {
        at,
        kind: kind_of_layer(plan),
        name: &plan.name,
        phase: plan.phase.as_deref(),
        badge: layer.optimality.map(|o| o.status.word()),
        facts: format!(
            "mesh {} · {} devices · {} · {}{repeat}",
            mesh_text(&plan.mesh),
            plan.mesh.devices(),
            layer.hardware.name,
            strategies(plan).join(", ")
        ),
        tiles: totals(layer),
        overview: overview(layer, at),
        drawing: drawing(layer, at),
        program: program(layer, at),
        tables: [Some(time_table(layer)), traffic_table(layer)].into_iter().flatten().collect(),
        optimality: optimality_text(layer),
        overlap_choice: layer.overlap_choice.map(|choice| overlap_choice::text(layer, choice)),
        paddings: layer.paddings.iter().map(Padding::text).collect(),
    }
}

/// The class of a step in the style sheet, by what bounds its time: it gives the colour.
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

/// The steps that take time.
fn timed(layer: &Layer<'_>) -> Vec<(InstrId, Picoseconds)> {
    let timed = layer.plan().ids().map(|id| (id, layer.time_in_step(id)));
    timed.filter(|(_, time)| time.0 > 0).collect()
}

/// A time, and its share of the step.
fn time_and_share(layer: &Layer<'_>, time: Picoseconds) -> [String; 2] {
    [scale::time(time), share(layer, time)]
}

/// A time as a part of the step.
fn share(layer: &Layer<'_>, time: Picoseconds) -> String {
    scale::percent(time, layer.price.totals.serial_time).unwrap_or_else(|| "0 %".to_string())
}

/// The last part of a path: its folders differ from machine to machine.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
