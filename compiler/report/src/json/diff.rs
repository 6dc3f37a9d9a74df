//! `diff` of two files as JSON.

use serde::Serialize;
use shard_ir::InstrId;

use super::compared::{MoveJson, move_json};
use super::text;
use crate::Layer;
use crate::comparison::{Comparison, Side};
use crate::diff::{Pair, differs};
use crate::why_not::{side, strategies};

#[derive(Debug, Serialize)]
struct DiffJson {
    schema: &'static str,
    differs: bool,
    layers: Vec<PairJson>,
}

#[derive(Debug, Serialize)]
struct PairJson {
    a: Option<SideJson>,
    b: Option<SideJson>,
    went: Vec<MoveJson>,
    came: Vec<MoveJson>,
    resized: Vec<[MoveJson; 2]>,
    relaid: Vec<[ValueJson; 2]>,
    retimed: Vec<[ValueJson; 2]>,
    values_went: Vec<ValueJson>,
    values_came: Vec<ValueJson>,
}

#[derive(Debug, Serialize)]
struct SideJson {
    layer: String,
    hardware: String,
    mesh_axes: Vec<(String, u64)>,
    strategy: Vec<&'static str>,
    serial_time_s: f64,
    comm_time_s: f64,
    comm_bytes: u64,
    peak_hbm_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ValueJson {
    id: u32,
    op: &'static str,
    name: Option<String>,
    layout: String,
    time_s: f64,
    line: Option<usize>,
}

fn value_json(side: Side<'_>, id: InstrId) -> ValueJson {
    let instr = side.plan.instruction(id);
    ValueJson {
        id: id.0,
        op: instr.kind.name(),
        name: instr.name.clone(),
        layout: side.plan.layout_text(id),
        time_s: side.time(id).seconds(),
        line: side.line(id),
    }
}

fn side_json(layer: &Layer<'_>) -> SideJson {
    let totals = &layer.price.totals;
    SideJson {
        layer: layer.plan().name.clone(),
        hardware: layer.hardware.name.clone(),
        mesh_axes: layer.plan().mesh.declared().to_vec(),
        strategy: strategies(layer),
        serial_time_s: totals.serial_time.seconds(),
        comm_time_s: totals.comm_time.seconds(),
        comm_bytes: totals.comm_bytes.0,
        peak_hbm_bytes: layer.peak().0,
    }
}

/// The differences as `shardc.diff/1`.
pub fn json(pairs: &[Pair<'_>]) -> String {
    let layers = pairs.iter().map(|(a, b)| {
        let (Some(first), Some(second)) = (a, b) else {
            return PairJson {
                a: a.as_ref().map(side_json),
                b: b.as_ref().map(side_json),
                went: Vec::new(),
                came: Vec::new(),
                resized: Vec::new(),
                relaid: Vec::new(),
                retimed: Vec::new(),
                values_went: Vec::new(),
                values_came: Vec::new(),
            };
        };
        let (x, y) = (side(first), side(second));
        let compared = Comparison::of(x, y);
        let both = |ids: &[(InstrId, InstrId)]| {
            ids.iter().map(|(i, j)| [value_json(x, *i), value_json(y, *j)]).collect::<Vec<_>>()
        };
        PairJson {
            a: Some(side_json(first)),
            b: Some(side_json(second)),
            went: compared.went.iter().map(|id| move_json(x, *id)).collect(),
            came: compared.came.iter().map(|id| move_json(y, *id)).collect(),
            resized: compared
                .resized
                .iter()
                .map(|(i, j)| [move_json(x, *i), move_json(y, *j)])
                .collect(),
            relaid: both(&compared.relaid),
            retimed: both(&compared.retimed),
            values_went: compared.ops_went.iter().map(|id| value_json(x, *id)).collect(),
            values_came: compared.ops_came.iter().map(|id| value_json(y, *id)).collect(),
        }
    });
    text(&DiffJson { schema: "shardc.diff/1", differs: differs(pairs), layers: layers.collect() })
}
