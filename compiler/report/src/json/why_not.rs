//! `explain --why-not` as JSON.

use serde::Serialize;
use shard_ir::Picoseconds;

use super::compared::move_json;
use super::object::Said;
use super::text;
use crate::comparison::Comparison;
use crate::strategy::strategies;
use crate::why_not::{Crossing, Faster, Turn, Varied, WhyNot, factor, fits, needed, side, time};
use crate::{Layer, object};

#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum TurnJson<At> {
    Wins { at: At, loses_at: At, behind_s: f64 },
    Never { to: At, behind_s: f64 },
    Unknown,
}

fn faster_because(faster: Faster) -> &'static str {
    match faster {
        Faster::DoesNotFit => "does-not-fit",
        Faster::Bounded => "bounded",
        Faster::Objective => "objective",
        Faster::Outside => "outside",
    }
}

/// How much longer one takes than the other, below zero where it takes less.
fn added_seconds(one: Picoseconds, other: Picoseconds) -> f64 {
    if one >= other {
        Picoseconds(one.0 - other.0).seconds()
    } else {
        -Picoseconds(other.0 - one.0).seconds()
    }
}

/// Where an answer turns; `at` says how a size or a factor is written.
fn turn_json<At>(turn: Turn, at: impl Fn(u64) -> At) -> TurnJson<At> {
    match turn {
        Turn::Wins { at: wins, loses_at, behind } => {
            TurnJson::Wins { at: at(wins), loses_at: at(loses_at), behind_s: behind.seconds() }
        }
        Turn::Never { to, behind } => TurnJson::Never { to: at(to), behind_s: behind.seconds() },
        Turn::Unknown => TurnJson::Unknown,
    }
}

fn plan_json(layer: &Layer<'_>) -> impl Serialize {
    let totals = &layer.price.totals;
    object!(PlanJson {
        strategy: strategies(layer.plan()),
        serial_time_s: totals.serial_time.seconds(),
        comm_time_s: totals.comm_time.seconds(),
        comm_bytes: totals.comm_bytes.0,
        peak_hbm_bytes: layer.peak().0,
        // Over the whole stack.
        needed_bytes: needed(layer).0,
        fits: fits(layer),
    })
}

fn crossing_json(crossing: &Crossing) -> Option<impl Serialize> {
    let Varied::Dim(dim) = &crossing.varied else { return None };
    let (up, down) = (turn_json(crossing.up, |at| at), turn_json(crossing.down, |at| at));
    Some(object!(CrossingJson { dim, now: crossing.now, up, down }))
}

/// The answers as `shardc.why-not/1`.
pub fn json(answers: &[WhyNot<'_>]) -> String {
    let answers = answers.iter().map(|a| {
        let (x, y) = (side(&a.chosen), side(&a.other));
        let compared = Comparison::of(x, y);
        let network = a.crossings.iter().find(|c| c.varied == Varied::Network);
        object!(AnswerJson {
            layer: &a.chosen.plan().name,
            asked: &a.asked,
            is_chosen: a.is_chosen,
            chosen: plan_json(&a.chosen),
            other: plan_json(&a.other),
            // Below zero where the other plan takes less.
            added_s: added_seconds(time(&a.other), time(&a.chosen)),
            faster_because: Faster::of(a).map(faster_because),
            adds: compared.came.iter().map(|id| move_json(y, *id)).collect::<Vec<_>>(),
            saves: compared.went.iter().map(|id| move_json(x, *id)).collect::<Vec<_>>(),
            stated: &a.stated,
            ways: a.ways,
            ways_cut: a.cut,
            crossings_at_most: a.crossings.iter().any(|crossing| crossing.at_most),
            crossings: a.crossings.iter().filter_map(crossing_json).collect::<Vec<_>>(),
            // Where the answer turns on a faster and on a slower network, as multiples of the
            // chip's bandwidth.
            bandwidth: Said(network.map(|c| object!(BandwidthJson {
                up: turn_json(c.up, factor),
                down: turn_json(c.down, factor),
            }))),
        })
    });
    text(&object!(WhyNotJson { schema: "shardc.why-not/1", answers: answers.collect::<Vec<_>>() }))
}
