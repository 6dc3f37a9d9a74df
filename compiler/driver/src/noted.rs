//! Searches without which an answer is only less full.

use shard_ir::catalogue::defects;
use shard_search::LowerError;

/// What a search found; nothing where it failed as searches may, at a limit or for want of a plan.
/// An internal error is noted as a defect: the answer does without, and the error is reported.
pub(crate) fn found<T>(result: Result<T, LowerError>) -> Option<T> {
    if let Err(LowerError::Internal(what)) = &result {
        defects::note(what, file!(), line!());
    }
    result.ok()
}
