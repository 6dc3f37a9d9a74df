//! `shardc lsp`.

use crate::console::{Console, Outcome};
use crate::lsp;

pub(crate) fn run(console: &mut Console) -> Outcome {
    lsp::serve().map_err(|error| console.usage(&format!("the client and the server lost each other: {error}"), None))
}
