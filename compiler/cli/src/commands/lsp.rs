//! `shardc lsp`.

use crate::console::{Outcome, Status};
use crate::lsp::{End, serve};

pub(crate) fn run() -> Outcome {
    match serve() {
        End::Clean => Ok(()),
        // The protocol asks for status 1 then.
        End::Abrupt => Err(Status::Wrong),
    }
}
