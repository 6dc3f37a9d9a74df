//! Checks a schedule, whatever made it.

use shard_ir::{InstrId, Liveness, ParameterKind, Schedule, Stream, never};

/// Why a schedule cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// There is not one step and one list of frees for each instruction.
    #[error(
        "the schedule has {steps} steps and {frees} lists of frees for {instructions} instructions"
    )]
    Count {
        /// Steps.
        steps: usize,
        /// Lists of frees.
        frees: usize,
        /// Instructions of the plan.
        instructions: usize,
    },
    /// An instruction runs twice or never, or the plan has none of that id.
    #[error("instruction {} does not run exactly once", .0.0)]
    NotOnce(InstrId),
    /// A step that ends before it starts.
    #[error("instruction {} finishes before it starts", .0.0)]
    Backwards(InstrId),
    /// A step that starts before an operand is made.
    #[error("instruction {} starts before its operand {} is made", id.0, operand.0)]
    TooEarly {
        /// The step.
        id: InstrId,
        /// The operand.
        operand: InstrId,
    },
    /// Two steps at once on one stream.
    #[error("instructions {} and {} keep the same stream busy at once", first.0, second.0)]
    StreamBusy {
        /// The step that starts first.
        first: InstrId,
        /// The other.
        second: InstrId,
    },
    /// A value that leaves memory twice, before its last use, or although it is kept or a result.
    #[error("value {} must not leave memory after step {}", value.0, after.0)]
    WrongFree {
        /// The value.
        value: InstrId,
        /// The step behind which it is freed.
        after: InstrId,
    },
    /// The live bytes of a step are not those of its values.
    #[error("step {} holds {expected} bytes, and the schedule says {found}", id.0)]
    LiveBytes {
        /// The step.
        id: InstrId,
        /// What its values take.
        expected: u64,
        /// What the schedule says.
        found: u64,
    },
}

/// Checks that a schedule runs every instruction once, after its operands, one at a time on each
/// stream; that it frees no value too early; and that its live bytes are those of its values.
pub fn verify(schedule: &Schedule) -> Result<(), ScheduleError> {
    let plan = &schedule.plan;
    let count = plan.instructions.len();
    if schedule.steps.len() != count || schedule.frees.len() != count {
        let (steps, frees) = (schedule.steps.len(), schedule.frees.len());
        return Err(ScheduleError::Count { steps, frees, instructions: count });
    }
    let mut position = vec![None; count];
    for (at, step) in schedule.steps.iter().enumerate() {
        match position.get_mut(step.id.index()) {
            Some(free @ None) => *free = Some(at),
            _ => return Err(ScheduleError::NotOnce(step.id)),
        }
    }
    let at = |id: InstrId| {
        position[id.index()].unwrap_or_else(|| {
            never!("an instruction without a step, all of which were counted", usize::MAX)
        })
    };
    for (order, step) in schedule.steps.iter().enumerate() {
        if step.finish < step.start {
            return Err(ScheduleError::Backwards(step.id));
        }
        for operand in &plan.instruction(step.id).operands {
            if at(*operand) >= order || schedule.steps[at(*operand)].finish > step.start {
                return Err(ScheduleError::TooEarly { id: step.id, operand: *operand });
            }
        }
    }
    for stream in [Stream::Compute, Stream::Network] {
        let mut on: Vec<_> =
            schedule.steps.iter().filter(|s| s.stream == stream && s.finish > s.start).collect();
        on.sort_by_key(|s| (s.start, s.finish));
        if let Some(pair) = on.windows(2).find(|pair| pair[1].start < pair[0].finish) {
            return Err(ScheduleError::StreamBusy { first: pair[0].id, second: pair[1].id });
        }
    }
    verify_frees(schedule, &at)?;
    verify_live_bytes(schedule)
}

/// Checks that values are freed once, after their last use, and that those that are kept and those
/// that are results are not freed.
fn verify_frees(schedule: &Schedule, at: &dyn Fn(InstrId) -> usize) -> Result<(), ScheduleError> {
    let plan = &schedule.plan;
    let uses = plan.uses();
    let mut freed = vec![false; plan.instructions.len()];
    for (order, (step, values)) in schedule.steps.iter().zip(&schedule.frees).enumerate() {
        for value in values {
            let wrong = Err(ScheduleError::WrongFree { value: *value, after: step.id });
            let Some(instr) = plan.instructions.get(value.index()) else { return wrong };
            let stays = instr.kind.parameter().is_some_and(ParameterKind::is_kept)
                || plan.outputs.iter().any(|o| o.id == *value);
            let read_later = uses[value.index()].iter().any(|user| at(*user) > order);
            if stays || read_later || at(*value) > order || freed[value.index()] {
                return wrong;
            }
            freed[value.index()] = true;
        }
    }
    Ok(())
}

/// Checks the live bytes of a schedule whose steps are in program order: they are those of
/// [`Liveness`] in the memory of [`buffers`](shard_cost::buffers).
fn verify_live_bytes(schedule: &Schedule) -> Result<(), ScheduleError> {
    if !schedule.steps.iter().map(|s| s.id).eq(schedule.plan.ids()) {
        return Ok(());
    }
    let expected =
        Liveness::in_buffers(&schedule.plan, &shard_cost::buffers(&schedule.plan)).live_bytes;
    match schedule.steps.iter().zip(expected).find(|(step, expected)| step.live_bytes != *expected)
    {
        Some((step, expected)) => {
            Err(ScheduleError::LiveBytes { id: step.id, expected, found: step.live_bytes })
        }
        None => Ok(()),
    }
}
