//! What may stand at the cursor.

use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionTextEdit, Position, Range, TextEdit,
};
use shard_grammar::Span;
use shard_grammar::ast::{LetTarget, Statement};
use shard_ir::Dtype;
use shard_ir::catalogue::Code;

use super::document::Document;
use super::position::{offset_of, position_of};

/// The words for a place: axes behind the `_` of a dim, dims in a layout word, else values, layers
/// and operations.
pub(crate) fn completions(document: &Document, place: Position) -> Vec<CompletionItem> {
    let at = offset_of(&document.file, place);
    let before = document.file.slice(Span::new(0, at));
    if is_in_a_comment(before) {
        return Vec::new();
    }
    let in_word = |c: char| c.is_ascii_alphanumeric() || "_{},".contains(c);
    let word = before.trim_end_matches(in_word).len();
    // A comma goes on with a word of axes only inside braces.
    let word = match before[word..].rfind(',') {
        Some(comma)
            if before[word..]
                .rfind('{')
                .is_none_or(|open| before[word..][open..].contains('}')) =>
        {
            word + comma + 1
        }
        _ => word,
    };
    let prefix = &before[word..];
    let here = Range { start: place, end: place };
    if prefix.starts_with(|c: char| c.is_ascii_uppercase()) {
        let behind_dim = prefix
            .rfind('_')
            .is_some_and(|i| !prefix[i..].contains(|c: char| c.is_ascii_uppercase()));
        return if behind_dim { axes(document, prefix, here) } else { dims(document, here) };
    }
    let range = Range { start: position_of(&document.file, word), end: place };
    let layer = document.tree.layers().find(|l| l.span.start <= at && at <= l.span.end);
    let mut items = Vec::new();
    if let Some(layer) = layer {
        let mut values: Vec<&str> = layer.params.iter().map(|p| p.name.value.as_str()).collect();
        for statement in layer.body.iter().filter(|s| s.span().end <= at) {
            if let Statement::Let(statement) = statement {
                match &statement.target {
                    LetTarget::One { name, .. } => values.push(&name.value),
                    LetTarget::Many { names, .. } => {
                        values.extend(names.iter().map(|n| n.value.as_str()))
                    }
                }
            }
        }
        items
            .extend(values.into_iter().map(|name| item(name, CompletionItemKind::VARIABLE, range)));
        items.extend(Code::all().filter_map(|code| {
            let row = code.row();
            let detail = Some(row.signature());
            Some(CompletionItem {
                detail,
                ..item(row.source?, CompletionItemKind::FUNCTION, range)
            })
        }));
        items.extend(
            ["reshard", "return"].map(|word| item(word, CompletionItemKind::FUNCTION, range)),
        );
        items.push(item("let", CompletionItemKind::KEYWORD, range));
    } else {
        let words = ["hardware", "mesh", "dim", "phase", "layer", "model", "strict"];
        items.extend(words.map(|word| item(word, CompletionItemKind::KEYWORD, range)));
    }
    items.extend(
        document.tree.layers().map(|l| item(&l.name.value, CompletionItemKind::FUNCTION, range)),
    );
    items.extend(
        Dtype::ALL.iter().map(|d| item(d.name(), CompletionItemKind::TYPE_PARAMETER, range)),
    );
    items.extend(["weight", "cache"].map(|word| item(word, CompletionItemKind::KEYWORD, range)));
    items.extend(dims(document, range));
    items
}

/// Whether a text ends in a comment: its last line has two slashes outside of quotes.
fn is_in_a_comment(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or("");
    line.split('"').step_by(2).any(|outside| outside.contains("//"))
}

/// The axes that the word does not have yet.
fn axes(document: &Document, prefix: &str, range: Range) -> Vec<CompletionItem> {
    let has_braces = prefix.ends_with(['{', ',']);
    let mesh = document.tree.meshes().flat_map(|mesh| &mesh.axes);
    mesh.filter(|axis| axis.name.value.len() > 1 || !prefix.contains(axis.name.value.as_str()))
        .map(|axis| {
            let name = axis.name.value.as_str();
            let text = if name.len() > 1 && !has_braces {
                format!("{{{name}}}")
            } else {
                name.to_string()
            };
            let detail = Some(format!("mesh axis of {}", axis.size.value));
            CompletionItem { detail, ..item(&text, CompletionItemKind::ENUM_MEMBER, range) }
        })
        .collect()
}

fn dims(document: &Document, range: Range) -> Vec<CompletionItem> {
    let sizes = document.checked.programs.first().map_or(&[][..], |p| p.dims.as_slice());
    document
        .tree
        .dims()
        .map(|dim| {
            let size = sizes
                .iter()
                .find(|d| d.name == dim.name.value)
                .map(|d| format!("dim of {}", d.size));
            CompletionItem {
                detail: size,
                ..item(&dim.name.value, CompletionItemKind::CONSTANT, range)
            }
        })
        .collect()
}

fn item(text: &str, kind: CompletionItemKind, range: Range) -> CompletionItem {
    CompletionItem {
        label: text.to_string(),
        kind: Some(kind),
        text_edit: Some(CompletionTextEdit::Edit(TextEdit { range, new_text: text.to_string() })),
        ..CompletionItem::default()
    }
}
