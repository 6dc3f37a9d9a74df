//! `explain --why-not` as JSON.

use serde::Serialize;
use shard_ir::Picoseconds;

use super::compared::{MoveJson, move_json};
use super::text;
use crate::Layer;
use crate::comparison::Comparison;
use crate::why_not::{
    Crossing, Faster, Figure, Turn, WhyNot, factor, fits, needed, side, strategies, time,
};

#[derive(Debug, Serialize)]
struct WhyNotJson {
    schema: &'static str,
    answers: Vec<AnswerJson>,
}

#[derive(Debug, Serialize)]
struct AnswerJson {
    layer: String,
    asked: String,
    is_chosen: bool,
    chosen: PlanJson,
    other: PlanJson,
    /// Below zero where the other plan takes less.
    added_s: f64,
    faster_because: Option<&'static str>,
    adds: Vec<MoveJson>,
    saves: Vec<MoveJson>,
    stated: Vec<String>,
    ways: usize,
    ways_cut: bool,
    crossings_at_most: bool,
    crossings: Vec<CrossingJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth: Option<BandwidthJson>,
}

#[derive(Debug, Serialize)]
struct PlanJson {
    strategy: Vec<&'static str>,
    serial_time_s: f64,
    comm_time_s: f64,
    comm_bytes: u64,
    peak_hbm_bytes: u64,
    /// Over the whole stack.
    needed_bytes: u64,
    fits: bool,
}

#[derive(Debug, Serialize)]
struct CrossingJson {
    dim: String,
    now: u64,
    up: TurnJson<u64>,
    down: TurnJson<u64>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum TurnJson<At> {
    Wins { at: At, loses_at: At, behind_s: f64 },
    Never { to: At, behind_s: f64 },
    Unknown,
}

/// Where the answer turns on a faster and on a slower network, as multiples of the chip's
/// bandwidth.
#[derive(Debug, Serialize)]
struct BandwidthJson {
    up: TurnJson<f64>,
    down: TurnJson<f64>,
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

fn plan_json(layer: &Layer<'_>) -> PlanJson {
    let totals = &layer.price.totals;
    PlanJson {
        strategy: strategies(layer),
        serial_time_s: totals.serial_time.seconds(),
        comm_time_s: totals.comm_time.seconds(),
        comm_bytes: totals.comm_bytes.0,
        peak_hbm_bytes: layer.peak().0,
        needed_bytes: needed(layer).0,
        fits: fits(layer),
    }
}

fn crossing_json(crossing: &Crossing) -> Option<CrossingJson> {
    let Figure::Dim(dim) = &crossing.figure else { return None };
    let (up, down) = (turn_json(crossing.up, |at| at), turn_json(crossing.down, |at| at));
    Some(CrossingJson { dim: dim.clone(), now: crossing.now, up, down })
}

/// The answers as `shardc.why-not/1`.
pub fn json(answers: &[WhyNot<'_>]) -> String {
    let answer = |a: &WhyNot<'_>| {
        let (x, y) = (side(&a.chosen), side(&a.other));
        let compared = Comparison::of(x, y);
        AnswerJson {
            layer: a.chosen.plan().name.clone(),
            asked: a.asked.clone(),
            is_chosen: a.is_chosen,
            chosen: plan_json(&a.chosen),
            other: plan_json(&a.other),
            added_s: added_seconds(time(&a.other), time(&a.chosen)),
            faster_because: Faster::of(a).map(faster_because),
            adds: compared.came.iter().map(|id| move_json(y, *id)).collect(),
            saves: compared.went.iter().map(|id| move_json(x, *id)).collect(),
            stated: a.stated.clone(),
            ways: a.ways,
            ways_cut: a.cut,
            crossings_at_most: a.crossings.iter().any(|crossing| crossing.at_most),
            crossings: a.crossings.iter().filter_map(crossing_json).collect(),
            bandwidth: a.crossings.iter().find(|c| c.figure == Figure::Network).map(|c| {
                BandwidthJson { up: turn_json(c.up, factor), down: turn_json(c.down, factor) }
            }),
        }
    };
    text(&WhyNotJson { schema: "shardc.why-not/1", answers: answers.iter().map(answer).collect() })
}
