//! `shardc lsp`.

use crate::console::{Outcome, Status};
use crate::lsp::{End, serve};

pub(crate) fn run() -> Outcome {
    match serve() {
        End::Clean => Ok(()),
        // As the protocol says.
        End::Abrupt => Err(Status::Wrong),
    }
}
