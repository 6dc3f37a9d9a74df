//! `diff` as JSON: `shardc.diff/1`.

use serde::Serialize;

use super::compared::{ComparedMoveJson, move_json};
use super::text;
use crate::comparison::{ComparedPlan, Comparison};
use crate::diff::{Pair, differs};
use crate::object;
use crate::recorded::Recorded;

/// The differences as `shardc.diff/1`.
pub fn json(pairs: &[Pair<&Recorded>]) -> String {
    let side = |of: &Recorded| {
        object!(SideJson {
            layer: of.name.clone(),
            phase: of.phase.clone(),
            hardware: of.hardware.clone(),
            mesh_axes: of.mesh_axes.clone(),
            strategy: of.strategy.clone(),
            serial_time_s: of.totals.serial_time_s,
            comm_time_s: of.totals.comm_time_s,
            comm_bytes: of.totals.comm_bytes,
            peak_hbm_bytes: of.peak_bytes(),
            status: of.optimality.as_ref().map(|found| found.status.clone()),
            lower_bound_s: of.optimality.as_ref().map(|found| found.lower_bound_s),
        })
    };
    let layers = pairs.iter().map(|(x, y)| {
        let compared = x.zip(*y).map(|(x, y)| Comparison::of(x, y)).unwrap_or_default();
        object!(PairJson {
            a: x.map(side),
            b: y.map(side),
            went: moves(*x, &compared.went),
            came: moves(*y, &compared.came),
            resized: compared
                .resized
                .iter()
                .filter_map(|(i, j)| Some([move_json((*x)?, i), move_json((*y)?, j)]))
                .collect::<Vec<_>>(),
            relaid: both(*x, *y, &compared.relaid),
            retimed: both(*x, *y, &compared.retimed),
            values_went: values(*x, &compared.values_went),
            values_came: values(*y, &compared.values_came),
        })
    });
    text(&object!(DiffJson {
        schema: "shardc.diff/1",
        differs: differs(pairs),
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
