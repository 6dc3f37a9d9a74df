//! Snapshots of lowered programs: their text, and how a changed plan differs from its snapshot.

use shard_grammar::{SourceFile, Span};
use shard_ir::{InstrId, Plan};
use similar::{ChangeTag, TextDiff};

use crate::compile::Compilation;

/// The first line of a snapshot; the number is the version of the format.
const FORM: &str = "// shardc snapshot 1";
/// What the second line starts with.
const OPTIONS: &str = "// options: ";

/// A whole snapshot: two lines of comment, and the IR text of all layers.
pub fn text(options: &str, compilation: &Compilation) -> String {
    let plans: Vec<Plan> = compilation.layers().iter().map(|layer| layer.plan().clone()).collect();
    let options = if options.is_empty() { "none" } else { options };
    format!("{FORM}\n{OPTIONS}{options}\n{}", shard_ir::text::print_all(&plans))
}

/// What tells a text of now from one of before.
pub struct Difference {
    /// A unified diff.
    pub shown: String,
    /// Lines that are new, and lines that are gone.
    pub counts: (usize, usize),
    /// The place in the source that the first line that differs comes from.
    pub span: Option<Span>,
}

/// What tells the new snapshot of a compilation from an old one; the names of both head the diff.
pub fn difference(old: &SourceFile, new: &SourceFile, compilation: &Compilation) -> Difference {
    let diff = TextDiff::from_lines(&old.text, &new.text);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let shown = diff.unified_diff().header(&old.name, &new.name).to_string();
    let first = diff.iter_all_changes().position(|change| change.tag() != ChangeTag::Equal);
    // `take` counts lines of the old and of the new text, and those before the first difference are
    // equal.
    let at = first.map_or(0, |first| diff.iter_all_changes().take(first).count());
    let counts = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    Difference { shown, counts, span: origin(&new.text, at, compilation) }
}

/// The options in the second line of a snapshot.
pub fn recorded_options(old: &str) -> Option<&str> {
    let options = old.lines().nth(1)?.strip_prefix(OPTIONS)?;
    Some(if options == "none" { "" } else { options })
}

/// The place in the source that the instruction in a line of the new text comes from.
fn origin(new: &str, line: usize, compilation: &Compilation) -> Option<Span> {
    let mut layer = None;
    for text in new.lines().take(line + 1) {
        if text.starts_with("layer ") {
            layer = Some(layer.map_or(0, |at| at + 1));
        }
    }
    let plan = compilation.layers().get(layer?)?.plan();
    let text = new.lines().nth(line)?;
    // A `return` line stands for the instruction that makes its value.
    let number =
        text.split('%').nth(1).filter(|_| text.starts_with('%') || text.starts_with("return "))?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    let id = InstrId(digits.parse().ok()?);
    plan.instructions.get(id.index())?.origin.span
}
