//! `shardc.bound/1`.

use serde::Serialize;

use super::text;
use crate::bound::Bounded;

/// The document of `--bound-only` as JSON.
pub fn bounds(layers: &[Bounded<'_>]) -> String {
    text(&BoundsJson { schema: "shardc.bound/1", layers: layers.iter().map(layer).collect() })
}

#[derive(Debug, Serialize)]
struct BoundsJson<'a> {
    schema: &'static str,
    layers: Vec<LayerJson<'a>>,
}

#[derive(Debug, Serialize)]
struct LayerJson<'a> {
    name: &'a str,
    phase: Option<&'a str>,
    repeat: u64,
    hardware: &'a str,
    mesh_axes: Vec<(String, u64)>,
    objective: &'static str,
    lower_bound_s: f64,
    model_lower_bound_s: f64,
    least_kept_bytes: u64,
    hbm_bytes: u64,
    none_fits: bool,
    stopped_by: Option<&'a str>,
}

fn layer<'a>(layer: &Bounded<'a>) -> LayerJson<'a> {
    let Bounded { program, hardware, objective, bound } = *layer;
    LayerJson {
        name: &program.name,
        phase: program.phase.as_ref().map(|phase| phase.name.as_str()),
        repeat: program.repeat,
        hardware: &hardware.name,
        mesh_axes: program.mesh.declared().to_vec(),
        objective: objective.name(),
        lower_bound_s: bound.time.seconds(),
        model_lower_bound_s: layer.stack_time().seconds(),
        least_kept_bytes: bound.least_kept,
        hbm_bytes: hardware.hbm_bytes,
        none_fits: bound.none_fits,
        stopped_by: bound.stopped_by.as_deref(),
    }
}
