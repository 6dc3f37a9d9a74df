//! Searches without which an answer is only less full. One that failed for an internal error is not
//! lost: it is noted as a defect, and reported.

use shard_ir::catalogue::defects;
use shard_search::LowerError;

use crate::pipeline::CompileError;

/// What a search found; `None` where it failed as searches may, at a limit or for want of a plan.
pub(crate) fn ok_or_noted<T>(result: Result<T, LowerError>) -> Option<T> {
    if let Err(LowerError::Internal(what)) = &result {
        defects::note(what, file!(), line!());
    }
    result.ok()
}

/// The same of what was compiled.
pub(crate) fn compiled_or_noted<T>(result: Result<T, CompileError>) -> Option<T> {
    ok_or_noted(result.map_err(|error| match error {
        CompileError::Lower(error) => error,
        CompileError::Internal(problem) => LowerError::Internal(problem.message),
    }))
}
