//! `diff` of two recorded plans as JSON.

use serde::Serialize;
use shard_ir::Picoseconds;

use super::text;
use crate::recorded::{Recorded, Step};
use crate::recorded_diff::{Comparison, Pair, differs};

#[derive(Debug, Serialize)]
struct DiffJson<'a> {
    schema: &'static str,
    differs: bool,
    layers: Vec<PairJson<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct PairJson<'a> {
    a: Option<SideJson<'a>>,
    b: Option<SideJson<'a>>,
    went: Vec<MoveJson<'a>>,
    came: Vec<MoveJson<'a>>,
    resized: Vec<[MoveJson<'a>; 2]>,
    relaid: Vec<[ValueJson<'a>; 2]>,
    retimed: Vec<[ValueJson<'a>; 2]>,
    values_went: Vec<ValueJson<'a>>,
    values_came: Vec<ValueJson<'a>>,
}

#[derive(Debug, Serialize)]
struct SideJson<'a> {
    layer: &'a str,
    phase: Option<&'a str>,
    hardware: &'a str,
    mesh_axes: &'a [(String, u64)],
    strategy: &'a [String],
    serial_time_s: f64,
    comm_time_s: f64,
    comm_bytes: u64,
    peak_hbm_bytes: u64,
    status: Option<&'a str>,
    lower_bound_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct MoveJson<'a> {
    id: u32,
    op: &'a str,
    name: Option<&'a str>,
    from_layout: &'a str,
    layout: &'a str,
    /// Of all applications, as the time.
    bytes: u64,
    time_s: f64,
    line: Option<usize>,
}

#[derive(Debug, Serialize)]
struct ValueJson<'a> {
    id: u32,
    op: &'a str,
    name: Option<&'a str>,
    layout: &'a str,
    time_s: f64,
    line: Option<usize>,
}

fn side_json(of: &Recorded) -> SideJson<'_> {
    SideJson {
        layer: &of.name,
        phase: of.phase.as_deref(),
        hardware: &of.hardware,
        mesh_axes: &of.mesh_axes,
        strategy: &of.strategy,
        serial_time_s: of.totals.serial_time_s,
        comm_time_s: of.totals.comm_time_s,
        comm_bytes: of.totals.comm_bytes,
        peak_hbm_bytes: of.peak_bytes(),
        status: of.optimality.as_ref().map(|found| found.status.as_str()),
        lower_bound_s: of.optimality.as_ref().map(|found| found.lower_bound_s),
    }
}

fn move_json<'a>(of: &'a Recorded, step: &'a Step) -> MoveJson<'a> {
    MoveJson {
        id: step.id,
        op: &step.op,
        name: step.name.as_deref(),
        from_layout: of.source(step).map_or("", |source| source.layout.as_str()),
        layout: &step.layout,
        bytes: step.bytes(),
        time_s: Picoseconds(step.time()).seconds(),
        line: step.line(),
    }
}

fn value_json(step: &Step) -> ValueJson<'_> {
    ValueJson {
        id: step.id,
        op: &step.op,
        name: step.name.as_deref(),
        layout: &step.layout,
        time_s: Picoseconds(step.time()).seconds(),
        line: step.line(),
    }
}

/// The differences as `shardc.diff/1`.
pub fn json(pairs: &[Pair<'_>]) -> String {
    let layers = pairs.iter().map(|(a, b)| {
        let sides = PairJson { a: a.map(side_json), b: b.map(side_json), ..PairJson::default() };
        let (Some(x), Some(y)) = (*a, *b) else { return sides };
        let compared = Comparison::of(x, y);
        PairJson {
            went: compared.went.iter().map(|step| move_json(x, step)).collect(),
            came: compared.came.iter().map(|step| move_json(y, step)).collect(),
            resized: compared
                .resized
                .iter()
                .map(|(s, t)| [move_json(x, s), move_json(y, t)])
                .collect(),
            relaid: compared.relaid.iter().map(|(s, t)| [value_json(s), value_json(t)]).collect(),
            retimed: compared.retimed.iter().map(|(s, t)| [value_json(s), value_json(t)]).collect(),
            values_went: compared.values_went.iter().map(|step| value_json(step)).collect(),
            values_came: compared.values_came.iter().map(|step| value_json(step)).collect(),
            ..sides
        }
    });
    text(&DiffJson { schema: "shardc.diff/1", differs: differs(pairs), layers: layers.collect() })
}
