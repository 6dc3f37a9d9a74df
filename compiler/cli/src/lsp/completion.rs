//! What may stand at the cursor.

use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionTextEdit, Position, Range, TextEdit,
};
use shard_cost::hardware::BUILT_IN;
use shard_grammar::Span;
use shard_grammar::ast::{Layer, LetTarget, Statement};
use shard_ir::Dtype;
use shard_ir::catalogue::Code;

use super::document::Document;
use super::position::{offset_of, position_of};

/// The words for a place: chips behind `hardware`, axes behind the `_` of a dim and in a partial
/// sum, dims in a layout word and behind `over`, `at` and the arrow of an operation, else values,
/// layers and operations.
pub(crate) fn completions(document: &Document, place: Position) -> Vec<CompletionItem> {
    let at = offset_of(&document.file, place);
    let before = document.file.slice(Span::new(0, at));
    if is_in_a_comment(before) {
        return Vec::new();
    }
    let in_word = |c: char| c.is_ascii_alphanumeric() || "_{},".contains(c);
    let word = before.trim_end_matches(in_word).len();
    // A comma is part of a word of axes only inside braces.
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
    let (ahead, prefix) = before.split_at(word);
    let range = Range { start: position_of(&document.file, word), end: place };
    let line = before.rsplit('\n').next().unwrap_or_default();
    if line.trim_start().starts_with("hardware ") {
        if line.contains('"') {
            return Vec::new();
        }
        let start = before.rfind(' ').map_or(0, |blank| blank + 1);
        let range = Range { start: position_of(&document.file, start), end: place };
        let chips = BUILT_IN.iter();
        return chips.map(|chip| item(chip.name, CompletionItemKind::CONSTANT, range)).collect();
    }
    let word_before = ahead.strip_suffix("_(").map(|before| {
        before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len()
    });
    let is_dim = |start: usize| ahead[start..].starts_with(|c: char| c.is_ascii_uppercase());
    let is_partial = ahead.ends_with("(partialsum-")
        || ahead.ends_with("(partialmax-")
        || word_before.is_some_and(is_dim);
    let of_dim = prefix.rfind('_').filter(|i| {
        prefix.starts_with(|c: char| c.is_ascii_uppercase())
            && !prefix[*i..].contains(|c: char| c.is_ascii_uppercase())
    });
    match of_dim {
        Some(sign) => return axes(document, prefix, word + sign + 1, place),
        None if is_partial => return axes(document, prefix, word, place),
        None if prefix.starts_with(|c: char| c.is_ascii_uppercase()) => {
            return dims(document, Range { start: place, end: place });
        }
        None => {}
    }
    let layer = document.tree.layers().find(|l| l.span.start <= at && at <= l.span.end);
    if layer.is_some() && takes_a_dim(ahead) {
        return dims(document, range);
    }
    let mut items = match layer {
        Some(layer) => of_body(layer, at, range),
        None => ["hardware", "mesh", "dim", "phase", "layer", "model", "strict"]
            .map(|word| item(word, CompletionItemKind::KEYWORD, range))
            .to_vec(),
    };
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

/// What only the body of a layer may have: its values up to a byte, operations, and keywords.
fn of_body(layer: &Layer, at: usize, range: Range) -> Vec<CompletionItem> {
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
    let values = values.into_iter().map(|name| item(name, CompletionItemKind::VARIABLE, range));
    let ops = Code::all().filter_map(|code| {
        let row = code.row();
        let detail = Some(row.signature());
        Some(CompletionItem { detail, ..item(row.source?, CompletionItemKind::FUNCTION, range) })
    });
    let words = [
        ("reshard", CompletionItemKind::FUNCTION),
        ("return", CompletionItemKind::FUNCTION),
        ("let", CompletionItemKind::KEYWORD),
    ];
    values.chain(ops).chain(words.map(|(word, kind)| item(word, kind, range))).collect()
}

/// Whether a text ends in a comment: its last line has two slashes outside of quotes.
fn is_in_a_comment(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or("");
    line.split('"').step_by(2).any(|outside| outside.contains("//"))
}

/// Whether a dim follows: behind `over`, `at` and the arrow of an operation, whose parenthesis is
/// open.
fn takes_a_dim(ahead: &str) -> bool {
    let ahead = ahead.trim_end();
    let mut depth = 0usize;
    let is_open = |c: char| {
        match c {
            ')' => depth += 1,
            '(' if depth == 0 => return true,
            '(' => depth -= 1,
            _ => {}
        }
        false
    };
    [" over", " at", "->"].iter().any(|sign| ahead.ends_with(sign))
        && ahead.chars().rev().any(is_open)
}

/// The axes that the word does not have yet. Those that it has begin at `start`; a name of several
/// letters among axes of one letter puts all of them in braces.
fn axes(document: &Document, prefix: &str, start: usize, place: Position) -> Vec<CompletionItem> {
    let letters = document.file.slice(Span::new(start, offset_of(&document.file, place)));
    let from = |at: usize| Range { start: position_of(&document.file, start + at), end: place };
    let in_braces = letters.starts_with('{').then(|| letters.rfind(['{', ',']).unwrap_or(0) + 1);
    let is_axis = |c: char| {
        let mut all = document.tree.meshes().flat_map(|mesh| &mesh.axes);
        all.any(|axis| axis.name.value.starts_with(c) && axis.name.value.len() == 1)
    };
    let mesh = document.tree.meshes().flat_map(|mesh| &mesh.axes);
    mesh.filter(|axis| axis.name.value.len() > 1 || !prefix.contains(axis.name.value.as_str()))
        .map(|axis| {
            let name = axis.name.value.as_str();
            let detail = Some(format!("mesh axis of {}", axis.size.value));
            let of = |text: &str, range| CompletionItem {
                detail: detail.clone(),
                ..item(text, CompletionItemKind::ENUM_MEMBER, range)
            };
            if let Some(at) = in_braces {
                return of(name, from(at));
            }
            if name.len() == 1 {
                return of(name, from(letters.len()));
            }
            // The part of the name that is typed stands last.
            let typed = letters.char_indices().map(|(at, _)| at).find(|at| {
                name.starts_with(&letters[*at..]) && !letters[*at..].chars().all(is_axis)
            });
            let (known, _) = letters.split_at(typed.unwrap_or(letters.len()));
            let names = known.chars().map(String::from).chain([name.to_string()]);
            let all = format!("{{{}}}", names.collect::<Vec<_>>().join(","));
            // Editors compare this with the text in front of the cursor.
            CompletionItem { filter_text: Some(format!("{known}{name}")), ..of(&all, from(0)) }
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
