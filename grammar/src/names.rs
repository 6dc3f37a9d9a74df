//! The lexical rules of the namespaces, and the words that cannot be names.

use crate::error::{SyntaxError, SyntaxErrorKind};
use shard_ops::{Code, Flag};
use shard_words::Span;

/// Words that are kept for a later version of the language.
pub const KEPT_FOR_LATER: [&str; 1] = ["grad"];

/// Words of items and types. The grammar could read them as names, but people would be misled.
pub const WORDS_ELSEWHERE: [&str; 4] = ["phase", "host", "strict", "model"];

/// The namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    Value,
    Layer,
    Phase,
    Axis,
    Dim,
}

/// Whether a word is reserved: it names no value and no layer.
pub fn is_reserved(word: &str) -> bool {
    matches!(word, "let" | "expect" | "return" | "layer" | "reshard")
        || Code::of_source(word).is_some_and(|code| !code.row().is(Flag::Later))
}

/// What is wrong with a name of this namespace, if anything is.
pub(crate) fn name_error(namespace: Namespace, name: &str, span: Span) -> Option<SyntaxError> {
    let first = name.chars().next().unwrap_or('_');
    let (what, starts_well, underscores, rule) = match namespace {
        Namespace::Value => (
            "value",
            first.is_ascii_lowercase() || first == '_',
            true,
            "a value starts with a lower-case letter or `_`",
        ),
        Namespace::Layer => (
            "layer",
            first.is_ascii_lowercase(),
            true,
            "a layer starts with a lower-case letter, and goes on with letters, digits and `_`",
        ),
        Namespace::Phase => (
            "phase",
            first.is_ascii_lowercase(),
            true,
            "a phase starts with a lower-case letter, and goes on with letters, digits and `_`",
        ),
        Namespace::Axis => (
            "mesh axis",
            first.is_ascii_lowercase(),
            false,
            "an axis is a lower-case letter, then letters and digits",
        ),
        Namespace::Dim => (
            "dim",
            first.is_ascii_uppercase(),
            false,
            "a dim is an upper-case letter, then letters and digits",
        ),
    };
    if !starts_well || (!underscores && name.contains('_')) {
        let mended = mended(namespace, name);
        let error = SyntaxError::new(
            SyntaxErrorKind::MalformedName { what, name: name.to_string(), rule },
            span,
        );
        return Some(match mended {
            Some(mended) => error.with_help(mended.clone()).with_fix(span, mended),
            None => error,
        });
    }
    if !matches!(namespace, Namespace::Value | Namespace::Layer) {
        return None;
    }
    if is_reserved(name) || WORDS_ELSEWHERE.contains(&name) {
        let kind = SyntaxErrorKind::ReservedName { word: name.to_string() };
        return Some(
            SyntaxError::new(kind, span).with_help(format!("another name, such as `{name}_out`")),
        );
    }
    if KEPT_FOR_LATER.contains(&name) {
        let kind = SyntaxErrorKind::KeptForLater { word: name.to_string() };
        return Some(
            SyntaxError::new(kind, span).with_help(format!("another name, such as `{name}_in`")),
        );
    }
    None
}

/// A similar name that keeps the rule, if there is one.
fn mended(namespace: Namespace, name: &str) -> Option<String> {
    let bare: String = match namespace {
        Namespace::Value => name.to_string(),
        Namespace::Layer | Namespace::Phase => name.trim_start_matches('_').to_string(),
        Namespace::Axis | Namespace::Dim => name.replace('_', ""),
    };
    let mut chars = bare.chars();
    let first = chars.next()?;
    let first = if namespace == Namespace::Dim {
        first.to_ascii_uppercase()
    } else {
        first.to_ascii_lowercase()
    };
    let mended: String = std::iter::once(first).chain(chars).collect();
    let taken = |word: &str| {
        is_reserved(word) || WORDS_ELSEWHERE.contains(&word) || KEPT_FOR_LATER.contains(&word)
    };
    (first.is_ascii_alphabetic() && !taken(&mended)).then_some(mended)
}
