//! `diff` as JSON: `shardc.diff/1`.

use serde::Serialize;

use super::compared::{ComparedMoveJson, move_json};
use super::text;
use crate::comparison::{ComparedPlan, Comparison};
use crate::diff::{ComparedLayer, Pair, any_differs};
use crate::recorded::Recorded;
use crate::strategy::strategies;
use crate::{Layer, object};

/// The differences of plans that were lowered now.
pub fn json(pairs: &[Pair<Layer<'_>>]) -> String {
    document(pairs, |layer| {
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
    })
}

/// The differences of plans of which at least one was written down.
pub fn recorded(pairs: &[Pair<&Recorded>]) -> String {
    document(pairs, |of| {
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
    })
}

fn document<L: ComparedLayer, S: Serialize>(pairs: &[Pair<L>], side: impl Fn(L) -> S) -> String {
    let layers = pairs.iter().map(|(a, b)| {
        let (x, y) = (a.map(L::compared), b.map(L::compared));
        let compared = x.zip(y).map(|(x, y)| Comparison::of(x, y)).unwrap_or_default();
        object!(PairJson {
            a: a.map(&side),
            b: b.map(&side),
            went: moves(x, &compared.went),
            came: moves(y, &compared.came),
            resized: compared
                .resized
                .iter()
                .filter_map(|(i, j)| Some([move_json(x?, *i), move_json(y?, *j)]))
                .collect::<Vec<_>>(),
            relaid: both(x, y, &compared.relaid),
            retimed: both(x, y, &compared.retimed),
            values_went: values(x, &compared.values_went),
            values_came: values(y, &compared.values_came),
        })
    });
    text(&object!(DiffJson {
        schema: "shardc.diff/1",
        differs: any_differs(pairs),
        layers: layers.collect::<Vec<_>>(),
    }))
}

fn moves<P: ComparedPlan>(plan: Option<P>, steps: &[P::Step]) -> Vec<ComparedMoveJson> {
    steps.iter().filter_map(|step| Some(move_json(plan?, *step))).collect()
}

fn values<P: ComparedPlan>(plan: Option<P>, steps: &[P::Step]) -> Vec<impl Serialize + use<P>> {
    steps.iter().filter_map(|step| Some(value_json(plan?, *step))).collect()
}

fn both<P: ComparedPlan>(
    x: Option<P>,
    y: Option<P>,
    pairs: &[(P::Step, P::Step)],
) -> Vec<[impl Serialize + use<P>; 2]> {
    pairs.iter().filter_map(|(i, j)| Some([value_json(x?, *i), value_json(y?, *j)])).collect()
}

fn value_json<P: ComparedPlan>(plan: P, step: P::Step) -> impl Serialize + use<P> {
    object!(ValueJson {
        id: plan.id(step),
        op: plan.op(step),
        name: plan.name(step),
        layout: plan.layout(step),
        time_s: plan.time(step).seconds(),
        line: plan.line(step),
    })
}
