//! `diff` of two files as JSON.

use serde::Serialize;
use shard_ir::InstrId;

use super::compared::move_json;
use super::text;
use crate::comparison::{Comparison, Side};
use crate::diff::{Pair, differs};
use crate::strategy::strategies;
use crate::why_not::side;
use crate::{Layer, object};

fn value_json(side: Side<'_>, id: InstrId) -> impl Serialize + use<> {
    let instr = side.plan.instruction(id);
    object!(ValueJson {
        id: id.0,
        op: instr.kind.name(),
        name: instr.name.clone(),
        layout: side.plan.layout_text(id),
        time_s: side.time(id).seconds(),
        line: side.line(id),
    })
}

fn side_json(layer: &Layer<'_>) -> impl Serialize {
    let totals = &layer.price.totals;
    object!(SideJson {
        layer: &layer.plan().name,
        hardware: &layer.hardware.name,
        mesh_axes: layer.plan().mesh.declared(),
        strategy: strategies(layer.plan()),
        serial_time_s: totals.serial_time.seconds(),
        comm_time_s: totals.comm_time.seconds(),
        comm_bytes: totals.comm_bytes.0,
        peak_hbm_bytes: layer.peak().0,
    })
}

/// The differences as `shardc.diff/1`.
pub fn json(pairs: &[Pair<'_>]) -> String {
    let layers = pairs.iter().map(|(a, b)| {
        let (x, y) = (a.as_ref().map(side), b.as_ref().map(side));
        let compared = x.zip(y).map(|(x, y)| Comparison::of(x, y)).unwrap_or_default();
        let moves = |of: Option<Side<'_>>, ids: &[InstrId]| {
            ids.iter().filter_map(|id| Some(move_json(of?, *id))).collect::<Vec<_>>()
        };
        let values = |of: Option<Side<'_>>, ids: &[InstrId]| {
            ids.iter().filter_map(|id| Some(value_json(of?, *id))).collect::<Vec<_>>()
        };
        let both = |ids: &[(InstrId, InstrId)]| {
            let pair = |(i, j): &(InstrId, InstrId)| Some([value_json(x?, *i), value_json(y?, *j)]);
            ids.iter().filter_map(pair).collect::<Vec<_>>()
        };
        let resized = compared.resized.iter();
        object!(PairJson {
            a: a.as_ref().map(side_json),
            b: b.as_ref().map(side_json),
            went: moves(x, &compared.went),
            came: moves(y, &compared.came),
            resized: resized
                .filter_map(|(i, j)| Some([move_json(x?, *i), move_json(y?, *j)]))
                .collect::<Vec<_>>(),
            relaid: both(&compared.relaid),
            retimed: both(&compared.retimed),
            values_went: values(x, &compared.ops_went),
            values_came: values(y, &compared.ops_came),
        })
    });
    text(&object!(DiffJson {
        schema: "shardc.diff/1",
        differs: differs(pairs),
        layers: layers.collect::<Vec<_>>(),
    }))
}
