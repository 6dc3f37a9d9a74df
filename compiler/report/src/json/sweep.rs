//! `shardc.sweep/1`.

use serde::Serialize;
use shard_cost::Objective;

use super::{Ordered, text};
use crate::sweep::{Figures, Outcome, SweepRow};

/// The document of `sweep --format json`.
pub fn sweep(rows: &[SweepRow], objective: Objective) -> String {
    let rows = rows.iter().map(row).collect();
    text(&SweepJson { schema: "shardc.sweep/1", objective: objective.name(), rows })
}

#[derive(Debug, Serialize)]
struct SweepJson {
    schema: &'static str,
    objective: &'static str,
    rows: Vec<RowJson>,
}

#[derive(Debug, Serialize)]
struct RowJson {
    layer: Option<String>,
    phase: Option<String>,
    mesh_axes: Option<Vec<(String, u64)>>,
    dims: Ordered<String>,
    /// Where several limits are swept.
    memory_limit_bytes: Option<u64>,
    status: &'static str,
    code: Option<&'static str>,
    reason: Option<String>,
    pareto: bool,
    /// `null` for a point without a plan.
    figures: Option<FiguresJson>,
}

#[derive(Debug, Serialize)]
struct FiguresJson {
    chips: u64,
    tokens: Option<u64>,
    layer_time_s: f64,
    time_s: f64,
    mfu: Option<f64>,
    hardware_utilisation: Option<f64>,
    chip_seconds_per_token: Option<f64>,
    tokens_per_second_per_chip: Option<f64>,
    peak_hbm_bytes: u64,
    fits: bool,
    strategy: Vec<&'static str>,
    status: &'static str,
}

fn row(row: &SweepRow) -> RowJson {
    let figures = match &row.outcome {
        Outcome::Priced(figures) => Some(figures.as_ref()),
        Outcome::Wrong { .. } => None,
    };
    RowJson {
        layer: row.layer.clone(),
        phase: row.phase.clone(),
        mesh_axes: figures.map(|f| f.mesh.clone()).or_else(|| row.mesh.clone()),
        dims: Ordered(row.dims.clone()),
        memory_limit_bytes: row.memory_limit.map(|bytes| bytes.0),
        status: row.status(),
        code: row.code().filter(|code| !code.is_empty()),
        reason: row.reason(),
        pareto: row.on_frontier,
        figures: figures.map(figures_json),
    }
}

fn figures_json(figures: &Figures) -> FiguresJson {
    FiguresJson {
        chips: figures.chips,
        tokens: (figures.tokens > 0).then_some(figures.tokens),
        layer_time_s: figures.layer_time.seconds(),
        time_s: figures.time.seconds(),
        mfu: figures.utilisation.and_then(|u| u.model),
        hardware_utilisation: figures.utilisation.map(|u| u.hardware),
        chip_seconds_per_token: figures.efficiency.map(|e| e.chip_seconds_per_token),
        tokens_per_second_per_chip: figures.efficiency.map(|e| e.tokens_per_second_per_chip),
        peak_hbm_bytes: figures.memory.0,
        fits: figures.fits,
        strategy: figures.strategy.clone(),
        status: if figures.proven { "proven" } else { "bounded" },
    }
}
