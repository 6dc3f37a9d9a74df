//! `shardc.audit/1`.

use serde::Serialize;

use crate::before::sharding::whole_partition_spec;
use crate::collectives::Collective;
use crate::compare::{Comparison, Recompiled};
use crate::hlo::tables::Place;
use crate::report::{Report, Totals};

#[derive(Debug, Serialize)]
struct PlaceJson<'a> {
    file: &'a str,
    line: u64,
}

impl<'a> PlaceJson<'a> {
    fn new(place: &'a Place) -> PlaceJson<'a> {
        PlaceJson { file: &place.file, line: place.line }
    }
}

#[derive(Debug, Serialize)]
struct TotalsJson {
    wire_bytes: u64,
    time_s: Option<f64>,
}

impl TotalsJson {
    fn new(totals: Totals) -> TotalsJson {
        TotalsJson {
            wire_bytes: totals.wire_bytes,
            time_s: totals.time.map(shard_ir::Picoseconds::seconds),
        }
    }
}

#[derive(Debug, Serialize)]
struct CollectiveJson<'a> {
    name: &'a str,
    op: &'static str,
    opcode: &'a str,
    computation: &'a str,
    axes: Option<Vec<&'a str>>,
    group_size: u64,
    operands: Vec<String>,
    bytes: u64,
    wire_bytes_once: u64,
    count: u64,
    wire_bytes: u64,
    time_s: Option<f64>,
    source: Option<PlaceJson<'a>>,
    stack: Vec<PlaceJson<'a>>,
    op_name: Option<&'a str>,
    parameter: Option<&'a str>,
    /// What a reduce-scatter would send in its place.
    wire_bytes_as_reduce_scatter: Option<u64>,
    causes: Vec<String>,
    also_spelled_as: &'a [String],
}

#[derive(Debug, Serialize)]
struct LoopJson<'a> {
    body: &'a str,
    trips: u64,
    known_by: &'static str,
    executions: u64,
}

#[derive(Debug, Serialize)]
struct LineJson<'a> {
    source: Option<PlaceJson<'a>>,
    text: Option<&'a str>,
    wire_bytes: u64,
    time_s: Option<f64>,
    share: f64,
}

#[derive(Debug, Serialize)]
struct AdviceJson<'a> {
    kind: &'static str,
    value: &'a str,
    from: &'a str,
    to: &'a str,
    saves_bytes: u64,
    source: Option<PlaceJson<'a>>,
    tried: &'static str,
}

#[derive(Debug, Serialize)]
struct MoveJson<'a> {
    op: &'static str,
    axes: &'a [String],
    wire_bytes: u64,
    value: Option<&'a str>,
    to: Option<String>,
    source: Option<PlaceJson<'a>>,
}

#[derive(Debug, Serialize)]
struct LeftJson<'a> {
    op: &'static str,
    axes: &'a [String],
    wire_bytes: u64,
    source: Option<PlaceJson<'a>>,
}

#[derive(Debug, Serialize)]
struct CompiledJson<'a> {
    platform: &'a str,
    wire_bytes_as_is: u64,
    wire_bytes_edited: u64,
    wire_bytes_optimum: u64,
    constraints: usize,
    compilations: usize,
    left: Vec<LeftJson<'a>>,
}

impl<'a> CompiledJson<'a> {
    fn new(compiled: &'a Recompiled) -> CompiledJson<'a> {
        let left = compiled.left.iter().map(|left| LeftJson {
            op: left.op,
            axes: &left.axes,
            wire_bytes: left.wire_bytes,
            source: left.place.as_ref().map(PlaceJson::new),
        });
        CompiledJson {
            platform: &compiled.platform,
            wire_bytes_as_is: compiled.as_is,
            wire_bytes_edited: compiled.edited,
            wire_bytes_optimum: compiled.optimum,
            constraints: compiled.constraints,
            compilations: compiled.compilations,
            left: left.collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct BarrierJson<'a> {
    op: &'a str,
    count: usize,
    share: f64,
}

#[derive(Debug, Serialize)]
struct AuditJson<'a> {
    schema: &'static str,
    file: &'a str,
    program: &'a str,
    devices: u64,
    mesh_axes: Option<&'a [(String, u64)]>,
    hardware: Option<&'a str>,
    totals: TotalsJson,
    lines: Vec<LineJson<'a>>,
    collectives: Vec<CollectiveJson<'a>>,
    loops: Vec<LoopJson<'a>>,
    optimum_same_specs: Option<TotalsJson>,
    optimum_free: Option<TotalsJson>,
    optimum_moves: Vec<MoveJson<'a>>,
    advice: Vec<AdviceJson<'a>>,
    compiled_again: Option<CompiledJson<'a>>,
    not_compiled_because: Option<&'a str>,
    barriers: Vec<BarrierJson<'a>>,
    by_hand_wire_bytes: u64,
    no_optimum_because: Option<&'a str>,
}

/// The document of `audit --emit json`.
pub fn json(report: &Report) -> String {
    let of = |get: fn(&Comparison) -> Option<Totals>| {
        report.comparison.as_ref().and_then(get).map(TotalsJson::new)
    };
    let comparison = report.comparison.as_ref();
    let lines = report.lines.iter().map(|line| LineJson {
        source: line.place.as_ref().map(PlaceJson::new),
        text: line.text.as_deref(),
        wire_bytes: line.totals.wire_bytes,
        time_s: line.totals.time.map(shard_ir::Picoseconds::seconds),
        share: report.share(line.totals),
    });
    let loops = report.program.loops.iter().map(|one| LoopJson {
        body: &one.body,
        trips: one.trips,
        known_by: one.how,
        executions: u64::try_from(one.executions).unwrap_or(u64::MAX),
    });
    let advice = comparison.into_iter().flat_map(|c| &c.advice).map(|advice| AdviceJson {
        kind: advice.kind.word(),
        value: &advice.value,
        from: &advice.from,
        to: &advice.to,
        saves_bytes: advice.saves_bytes,
        source: advice.source.as_ref().map(PlaceJson::new),
        tried: advice.tried,
    });
    let moves = comparison.into_iter().flat_map(|c| &c.moves).map(|one| MoveJson {
        op: one.op,
        axes: &one.axes,
        wire_bytes: one.wire_bytes,
        value: one.value.as_deref(),
        to: one.to.as_ref().map(whole_partition_spec),
        source: one.place.as_ref().map(PlaceJson::new),
    });
    let barriers = comparison.into_iter().flat_map(|c| &c.barriers);
    let barriers = barriers.map(|b| BarrierJson { op: &b.op, count: b.count, share: b.share });
    let collectives = report.program.collectives.iter().zip(&report.costs);
    shard_report::json::text(&AuditJson {
        schema: "shardc.audit/1",
        file: &report.file,
        program: &report.program.name,
        devices: report.program.devices,
        mesh_axes: report.mesh.as_deref(),
        hardware: report.chip.as_deref(),
        totals: TotalsJson::new(report.totals),
        lines: lines.collect(),
        collectives: collectives.map(|(one, cost)| collective(report, one, *cost)).collect(),
        loops: loops.collect(),
        optimum_same_specs: of(|c| c.same_specs),
        optimum_free: of(|c| c.free),
        optimum_moves: moves.collect(),
        advice: advice.collect(),
        compiled_again: comparison.and_then(|c| c.compiled.as_ref()).map(CompiledJson::new),
        not_compiled_because: comparison.and_then(|c| c.not_compiled.as_deref()),
        barriers: barriers.collect(),
        by_hand_wire_bytes: comparison
            .and_then(|c| c.by_hand)
            .map_or(0, |totals| totals.wire_bytes),
        no_optimum_because: comparison.and_then(|c| c.why_not.as_deref()),
    })
}

fn collective<'a>(report: &'a Report, one: &'a Collective, cost: Totals) -> CollectiveJson<'a> {
    let sliced = one.flow.is_only_sliced && one.kind == crate::collectives::Kind::AllReduce;
    let name = |axis: &usize| report.mesh.as_ref().map(|mesh| mesh[*axis].0.as_str());
    CollectiveJson {
        name: &one.name,
        op: one.kind.name(),
        opcode: &one.opcode,
        computation: &one.computation,
        axes: one.axes.as_ref().and_then(|axes| axes.iter().map(name).collect()),
        group_size: one.group_size,
        operands: one.operands.iter().map(ToString::to_string).collect(),
        bytes: one.buffer_bytes,
        wire_bytes_once: one.wire_bytes_once,
        count: u64::try_from(one.executions).unwrap_or(u64::MAX),
        wire_bytes: cost.wire_bytes,
        time_s: cost.time.map(shard_ir::Picoseconds::seconds),
        source: one.source().map(PlaceJson::new),
        stack: one.stack.iter().map(PlaceJson::new).collect(),
        op_name: one.op_name.as_deref(),
        parameter: one.flow.parameter.as_deref(),
        wire_bytes_as_reduce_scatter: sliced.then_some(cost.wire_bytes / 2),
        causes: one.causes(),
        also_spelled_as: &one.also_spelled_as,
    }
}
