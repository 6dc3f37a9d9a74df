//! What `--objective overlap` would choose in place of a plan, and what that saves.

use shard_ir::Picoseconds;

use crate::Layer;
use crate::scale;

/// The plan that `--objective overlap` chooses, beside the one of a report. Times are those of the
/// whole stack, where one layer goes on beside the next, else of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlapChoice {
    /// Whether it is the plan of the report.
    pub is_same: bool,
    /// When the plan of the report is done, if computing and communicating overlap.
    pub own_time: Picoseconds,
    /// When the plan that is chosen is done, likewise.
    pub time: Picoseconds,
    /// What the steps of that plan take one after another, in one layer.
    pub serial_time: Picoseconds,
    /// A lower bound on when any schedule of any plan is done.
    pub lower_bound: Picoseconds,
}

impl OverlapChoice {
    /// How much sooner the plan that is chosen is done.
    pub fn saves(&self) -> Picoseconds {
        Picoseconds(self.own_time.0.saturating_sub(self.time.0))
    }
}

/// What a report says of it.
pub(crate) fn text(layer: &Layer<'_>, choice: &OverlapChoice) -> String {
    let all = match layer.timeline.stack {
        Some(_) => format!("all {} layers are done", layer.plan().repeat),
        None => "it is done".to_string(),
    };
    let bound = scale::time(choice.lower_bound);
    if choice.is_same {
        return format!(
            "--objective overlap chooses the same plan: {all} after {}, and no schedule of any \
             plan before {bound}",
            scale::time(choice.own_time)
        );
    }
    let saves = choice.saves();
    let part = 100.0 * saves.0 as f64 / choice.own_time.0.max(1) as f64;
    format!(
        "--objective overlap chooses another plan: {all} after {} and not after {}, which saves {} \
         ({part:.1} %); its steps take {} one after another; no schedule of any plan is done \
         before {bound}",
        scale::time(choice.time),
        scale::time(choice.own_time),
        scale::time(saves),
        scale::time(choice.serial_time),
    )
}
