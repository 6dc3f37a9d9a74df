//! Why a plan was not executed.

use shard_ir::InstrId;
use shard_ir::verify::VerifyError;

/// Why a plan was not executed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RunError {
    /// The verifier refuses the plan.
    #[error("the plan is wrong: {}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Invalid(Vec<VerifyError>),
    /// The data of all devices and of the reference would not fit.
    #[error("execution needs {needed} bytes of memory; the cap is {cap}")]
    TooLarge {
        /// Bytes needed.
        needed: u128,
        /// [`MAX_BYTES`](crate::MAX_BYTES).
        cap: u128,
    },
    /// The execution would take long, and [`RunOptions::patient`](crate::RunOptions::patient) is
    /// not set.
    #[error("execution would take about {}", duration(*seconds))]
    TooLong {
        /// Seconds, estimated.
        seconds: u128,
        /// [`MAX_SECONDS`](crate::MAX_SECONDS).
        cap: u64,
    },
    /// The plan has too many instructions once its folded blocks are written out.
    #[error("execution takes {needed} instructions, its blocks written out; the cap is {cap}")]
    TooMany {
        /// Instructions needed.
        needed: u128,
        /// [`MAX_APPLIED`](crate::MAX_APPLIED).
        cap: u128,
    },
    /// A given input does not fit its parameter, or names no parameter.
    #[error("input {name}: {problem}")]
    Input {
        /// The parameter's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// Whole-number arithmetic left the range in which it is exact.
    #[error("%{} overflows: whole numbers are exact up to 2^53", .id.0)]
    Overflow {
        /// The instruction.
        id: InstrId,
    },
    /// The schedule does not run every instruction once, operands first and still in memory.
    #[error("the schedule is wrong at %{}: {problem}", .id.0)]
    Schedule {
        /// The instruction.
        id: InstrId,
        /// What is wrong.
        problem: &'static str,
    },
    /// Two tasks touch the same bytes, one of them to write, and neither has to wait for the other.
    #[error("%{} and %{} touch the same bytes, and neither waits for the other", first.0, second.0)]
    Race {
        /// The instruction that touches them first, by the times.
        first: InstrId,
        /// The instruction that touches them second.
        second: InstrId,
    },
    /// Two devices that should hold the same data do not.
    #[error("devices {first} and {second} should hold the same block of %{} and do not", .id.0)]
    ReplicasDiffer {
        /// The instruction.
        id: InstrId,
        /// A device.
        first: usize,
        /// Another.
        second: usize,
    },
    /// The [`Engine`](crate::Engine) failed, for this reason.
    #[error("{0}")]
    Engine(String),
    /// A fault of the interpreter itself.
    #[error("internal error of the interpreter: {0}")]
    Internal(&'static str),
}

/// A time in words: `90 seconds`, `3 hours`.
fn duration(seconds: u128) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if seconds < 120 {
        format!("{seconds} seconds")
    } else if minutes < 120 {
        format!("{minutes} minutes")
    } else if hours < 48 {
        format!("{hours} hours")
    } else {
        format!("{days} days")
    }
}
