//! `shardc.bound/1`.

use serde::Serialize;
use shard_search::SearchLimit;

use super::text;
use crate::bound::Bounded;
use crate::object;

/// The document of `--bound-only` as JSON.
pub fn bounds(layers: &[Bounded<'_>]) -> String {
    let layers = layers.iter().map(layer).collect::<Vec<_>>();
    text(&object!(BoundsJson { schema: "shardc.bound/1", layers }))
}

fn layer(layer: &Bounded<'_>) -> impl Serialize {
    let Bounded { program, hardware, objective, bound } = *layer;
    object!(LayerJson {
        name: &program.name,
        phase: program.phase.as_ref().map(|phase| &phase.name),
        repeat: program.repeat,
        hardware: &hardware.name,
        mesh_axes: program.mesh.declared(),
        objective: objective.name(),
        lower_bound_s: bound.time.seconds(),
        model_lower_bound_s: layer.stack_time().seconds(),
        least_kept_bytes: bound.least_kept,
        hbm_bytes: hardware.hbm_bytes,
        none_fits: bound.none_fits,
        stopped_by: bound.stopped_by.map(SearchLimit::name),
    })
}
