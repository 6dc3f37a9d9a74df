//! Searches that only add to an answer. One that fails for an internal error is noted as a defect,
//! which is reported; the answer goes without it.

use shard_ir::catalogue::defects;
use shard_search::LowerError;

use crate::pipeline::CompileError;

/// What a search found; `None` where it failed, at a limit or for want of a plan too.
pub(crate) fn ok_or_noted<T>(result: Result<T, LowerError>) -> Option<T> {
    if let Err(LowerError::Internal(what)) = &result {
        defects::note(what, file!(), line!());
    }
    result.ok()
}

/// The same for a compilation.
pub(crate) fn compiled_or_noted<T>(result: Result<T, CompileError>) -> Option<T> {
    ok_or_noted(result.map_err(|error| match error {
        CompileError::Lower(error) => error,
        CompileError::Internal(problem) => LowerError::Internal(problem.message),
    }))
}
