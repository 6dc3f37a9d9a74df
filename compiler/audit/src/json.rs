//! The document `shardc.audit/1`.

use serde::Serialize;
use shard_ir::Picoseconds;
use shard_report::{json, object};

use crate::before::sharding::whole_partition_spec;
use crate::collectives::Collective;
use crate::compare::{Comparison, Recompiled};
use crate::hlo::tables::Place;
use crate::report::{Report, Totals};

fn place(of: &Place) -> impl Serialize {
    object!(PlaceJson { file: &of.file, line: of.line })
}

fn totals(of: Totals) -> impl Serialize {
    object!(TotalsJson { wire_bytes: of.wire_bytes, time_s: of.time.map(Picoseconds::seconds) })
}

fn compiled(of: &Recompiled) -> impl Serialize {
    let left = of.left.iter().map(|left| {
        object!(LeftJson {
            op: left.op,
            axes: &left.axes,
            wire_bytes: left.wire_bytes,
            source: left.place.as_ref().map(place),
        })
    });
    object!(CompiledJson {
        platform: &of.platform,
        wire_bytes_as_is: of.as_is,
        wire_bytes_edited: of.edited,
        wire_bytes_optimum: of.optimum,
        constraints: of.constraints,
        compilations: of.compilations,
        left: left.collect::<Vec<_>>(),
    })
}

/// The document of `audit --emit json`.
pub fn json(report: &Report) -> String {
    let of = |get: fn(&Comparison) -> Option<Totals>| {
        report.comparison.as_ref().and_then(get).map(totals)
    };
    let comparison = report.comparison.as_ref();
    let lines = report.lines.iter().map(|line| {
        object!(LineJson {
            source: line.place.as_ref().map(place),
            text: line.text.as_deref(),
            wire_bytes: line.totals.wire_bytes,
            time_s: line.totals.time.map(Picoseconds::seconds),
            share: report.share(line.totals),
        })
    });
    let loops = report.program.loops.iter().map(|one| {
        object!(LoopJson {
            body: &one.body,
            trips: one.trips,
            known_by: one.known.word(),
            executions: u64::try_from(one.executions).unwrap_or(u64::MAX),
        })
    });
    let advice = comparison.into_iter().flat_map(|c| &c.advice).map(|advice| {
        object!(AdviceJson {
            kind: advice.kind.word(),
            value: &advice.value,
            from: &advice.from,
            to: &advice.to,
            saves_bytes: advice.saves_bytes,
            source: advice.source.as_ref().map(place),
            tried: advice.tried.word(),
        })
    });
    let moves = comparison.into_iter().flat_map(|c| &c.moves).map(|one| {
        object!(MoveJson {
            op: one.op,
            axes: &one.axes,
            wire_bytes: one.wire_bytes,
            value: one.value.as_deref(),
            to: one.to.as_ref().map(whole_partition_spec),
            source: one.place.as_ref().map(place),
        })
    });
    let barriers = comparison.into_iter().flat_map(|c| &c.barriers);
    let barriers =
        barriers.map(|b| object!(BarrierJson { op: &b.op, count: b.count, share: b.share }));
    let collectives = report.program.collectives.iter().zip(&report.costs);
    json::text(&object!(AuditJson {
        schema: "shardc.audit/1",
        file: &report.file,
        program: &report.program.name,
        devices: report.program.devices,
        mesh_axes: report.mesh.as_deref(),
        hardware: report.chip.as_deref(),
        totals: totals(report.totals),
        lines: lines.collect::<Vec<_>>(),
        collectives: collectives
            .map(|(one, cost)| collective(report, one, *cost))
            .collect::<Vec<_>>(),
        loops: loops.collect::<Vec<_>>(),
        optimum_same_specs: of(|c| c.same_specs),
        optimum_free: of(|c| c.free),
        optimum_moves: moves.collect::<Vec<_>>(),
        advice: advice.collect::<Vec<_>>(),
        compiled_again: comparison.and_then(|c| c.compiled.as_ref()).map(compiled),
        not_compiled_because: comparison.and_then(|c| c.not_compiled.as_deref()),
        barriers: barriers.collect::<Vec<_>>(),
        by_hand_wire_bytes: comparison
            .and_then(|c| c.by_hand)
            .map_or(0, |totals| totals.wire_bytes),
        no_optimum_because: comparison.and_then(|c| c.why_not.as_deref()),
    }))
}

fn collective(report: &Report, one: &Collective, cost: Totals) -> impl Serialize {
    let sliced = one.flow.is_only_sliced && one.kind == crate::collectives::Kind::AllReduce;
    let name = |axis: &usize| report.mesh.as_ref().map(|mesh| mesh[*axis].0.as_str());
    object!(CollectiveJson {
        name: &one.name,
        op: one.kind.name(),
        opcode: &one.opcode,
        computation: &one.computation,
        axes: one.axes.as_ref().and_then(|axes| axes.iter().map(name).collect::<Option<Vec<_>>>()),
        group_size: one.group_size,
        operands: one.operands.iter().map(ToString::to_string).collect::<Vec<_>>(),
        bytes: one.buffer_bytes,
        wire_bytes_once: one.wire_bytes_once,
        count: u64::try_from(one.executions).unwrap_or(u64::MAX),
        wire_bytes: cost.wire_bytes,
        time_s: cost.time.map(Picoseconds::seconds),
        source: one.source().map(place),
        stack: one.stack.iter().map(place).collect::<Vec<_>>(),
        op_name: one.op_name.as_deref(),
        parameter: one.flow.parameter.as_deref(),
        // A reduce-scatter in its place would send half.
        wire_bytes_as_reduce_scatter: sliced.then_some(cost.wire_bytes / 2),
        causes: one.causes(),
        also_spelled_as: &one.also_spelled_as,
    })
}
