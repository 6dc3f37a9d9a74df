//! `shardc.sweep/1`.

use serde::Serialize;
use shard_cost::Objective;

use super::{Ordered, text};
use crate::object;
use crate::sweep::{Figures, Outcome, SweepRow};

/// The document of `sweep --format json`.
pub fn sweep(rows: &[SweepRow], objective: Objective) -> String {
    let rows = rows.iter().map(row).collect::<Vec<_>>();
    text(&object!(SweepJson { schema: "shardc.sweep/1", objective: objective.name(), rows }))
}

fn row(row: &SweepRow) -> impl Serialize {
    let figures = match &row.outcome {
        Outcome::Priced(figures) => Some(figures.as_ref()),
        Outcome::Wrong { .. } => None,
    };
    object!(RowJson {
        layer: &row.layer,
        phase: &row.phase,
        mesh_axes: figures.map(|f| &f.mesh).or(row.mesh.as_ref()),
        dims: Ordered(row.dims.clone()),
        // Where several limits are swept.
        memory_limit_bytes: row.memory_limit.map(|bytes| bytes.0),
        status: row.status().word(),
        code: row.code().filter(|code| !code.is_empty()),
        reason: row.reason(),
        pareto: row.on_frontier,
        // `null` for a point without a plan.
        figures: figures.map(figures_json),
    })
}

fn figures_json(figures: &Figures) -> impl Serialize {
    object!(FiguresJson {
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
        strategy: &figures.strategy,
        status: figures.proof().word(),
    })
}
