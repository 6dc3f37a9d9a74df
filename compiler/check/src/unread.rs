//! Which parts of a file could not be read, and so which names may be declared there.

use shard_grammar::limits::MAX_ERRORS;
use shard_grammar::{SyntaxError, ast};

/// The parts of a file that syntax errors hide.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    /// Whether something outside the bodies of layers is hidden: a line, a header, a stray
    /// statement.
    pub(crate) elsewhere: bool,
    /// The starts of the layers with an error in their body.
    layers: Vec<usize>,
}

impl Unread {
    /// The parts of a file that these errors hide.
    pub(crate) fn of(tree: &ast::File, errors: &[SyntaxError]) -> Unread {
        // If errors were dropped because of their number, they may be anywhere.
        let mut unread = Unread { elsewhere: errors.len() >= MAX_ERRORS, layers: Vec::new() };
        for error in errors {
            let holds = |layer: &&ast::Layer| {
                layer.body_span.start < error.span.start && error.span.end < layer.body_span.end
            };
            match tree.layers().find(holds) {
                Some(layer) => unread.layers.push(layer.span.start),
                None => unread.elsewhere = true,
            }
        }
        unread
    }

    /// Whether nothing is hidden.
    pub(crate) fn is_empty(&self) -> bool {
        !self.elsewhere && self.layers.is_empty()
    }

    /// Whether a value of a layer may be declared in a part that could not be read.
    pub(crate) fn hides_values_of(&self, layer: &ast::Layer) -> bool {
        self.elsewhere || self.layers.contains(&layer.span.start)
    }
}
