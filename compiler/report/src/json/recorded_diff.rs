//! `diff` of two recorded plans as JSON.

use serde::Serialize;
use shard_ir::Picoseconds;

use super::text;
use crate::object;
use crate::recorded::{Recorded, Step};
use crate::recorded_diff::{Comparison, Pair, differs};

fn side_json(of: &Recorded) -> impl Serialize {
    object!(SideJson {
        layer: &of.name,
        phase: &of.phase,
        hardware: &of.hardware,
        mesh_axes: &of.mesh_axes,
        strategy: &of.strategy,
        serial_time_s: of.totals.serial_time_s,
        comm_time_s: of.totals.comm_time_s,
        comm_bytes: of.totals.comm_bytes,
        peak_hbm_bytes: of.peak_bytes(),
        status: of.optimality.as_ref().map(|found| found.status.as_str()),
        lower_bound_s: of.optimality.as_ref().map(|found| found.lower_bound_s),
    })
}

fn move_json<'a>(of: &'a Recorded, step: &'a Step) -> impl Serialize {
    object!(MoveJson {
        id: step.id,
        op: &step.op,
        name: &step.name,
        from_layout: of.source(step).map_or("", |source| source.layout.as_str()),
        layout: &step.layout,
        // Of all applications, as the time.
        bytes: step.bytes(),
        time_s: Picoseconds(step.time()).seconds(),
        line: step.line(),
    })
}

fn value_json(step: &Step) -> impl Serialize {
    object!(ValueJson {
        id: step.id,
        op: &step.op,
        name: &step.name,
        layout: &step.layout,
        time_s: Picoseconds(step.time()).seconds(),
        line: step.line(),
    })
}

fn both<'a>(pairs: &[(&'a Step, &'a Step)]) -> Vec<[impl Serialize + use<'a>; 2]> {
    pairs.iter().map(|(s, t)| [value_json(s), value_json(t)]).collect()
}

/// The differences as `shardc.diff/1`.
pub fn json<'a>(pairs: &[Pair<'a>]) -> String {
    let layers = pairs.iter().map(|&(a, b)| {
        let compared = a.zip(b).map(|(a, b)| Comparison::of(a, b)).unwrap_or_default();
        let resized = compared.resized.iter();
        let moves = |of: Option<&'a Recorded>, steps: &[&'a Step]| {
            steps.iter().filter_map(|step| Some(move_json(of?, step))).collect::<Vec<_>>()
        };
        object!(PairJson {
            a: a.map(side_json),
            b: b.map(side_json),
            went: moves(a, &compared.went),
            came: moves(b, &compared.came),
            resized: resized
                .filter_map(|(s, t)| Some([move_json(a?, s), move_json(b?, t)]))
                .collect::<Vec<_>>(),
            relaid: both(&compared.relaid),
            retimed: both(&compared.retimed),
            values_went: compared
                .values_went
                .iter()
                .map(|step| value_json(step))
                .collect::<Vec<_>>(),
            values_came: compared
                .values_came
                .iter()
                .map(|step| value_json(step))
                .collect::<Vec<_>>(),
        })
    });
    text(&object!(DiffJson {
        schema: "shardc.diff/1",
        differs: differs(pairs),
        layers: layers.collect::<Vec<_>>(),
    }))
}
