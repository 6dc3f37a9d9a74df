//! Types whose words stand in another order, or apart.

use super::{Mend, Place};
use crate::elsewhere::other_dtype_word;
use crate::foreign::FAR;
use crate::parser::reads;
use crate::scan::TokenKind;
use shard_ops::Dtype;
use std::ops::Range;

/// What a type belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Let,
    Param,
    Result,
}

/// `x: bf16 B E`, `x: BE bf16`, `bf16 BE x`, `x: f32[8, 64]`: a name and the words of a type,
/// whatever stands between.
pub(super) fn words_of_a_type(place: &Place<'_, '_>) -> Option<Mend> {
    let (role, tokens) = around(place)?;
    let words = words(place, tokens.clone())?;
    // Parameters and results need a dtype.
    let assumed = (words.is_tensor && role != Role::Let).then_some("bf16");
    let dtype = words.dtype.or(assumed).map_or(String::new(), |dtype| format!("{dtype} "));
    let kind = words.kind.map_or(String::new(), |kind| format!("{kind} "));
    let mut dims: Vec<String> = words.dims.iter().map(ToString::to_string).collect();
    if let Some(last) = dims.last_mut() {
        last.extend(words.axes);
    }
    let (layout, unnamed) = match words.sizes.as_slice() {
        [] => (layout(&dims)?, Vec::new()),
        sizes if words.dims.is_empty() => dims_of_sizes(place, sizes)?,
        _ => return None,
    };
    let partial = words.partial.map_or(String::new(), |partial| place.text(partial));
    let open = if words.is_open { "?" } else { "" };
    let ty = format!("{kind}{dtype}{layout}{open}{partial}");
    let named = words.name.map(|name| format!("{name}: {ty}"));
    let (written, alone) = match (role, named) {
        (Role::Result, _) => (format!("-> {ty}"), format!("layer f() -> {ty} {{ return a }}")),
        (Role::Param, Some(named)) => {
            let alone = format!("layer f({named}) -> f32 [] {{ return a }}");
            (named, alone)
        }
        (Role::Let, Some(named)) => {
            let alone = format!("layer f() -> f32 [] {{ let {named} = a return a }}");
            (named, alone)
        }
        (Role::Param | Role::Let, None) => return None,
    };
    if written == place.text(tokens.clone()) || !reads(&alone) {
        return None;
    }
    if unnamed.is_empty() {
        return Some(place.in_place_of(tokens, written));
    }
    let help = format!("{written}    (with {})", unnamed.join(" and "));
    Some(Mend { help, fix: None })
}

/// The tokens of the parameter, the result or the annotation that the error is in.
fn around(place: &Place<'_, '_>) -> Option<(Role, Range<usize>)> {
    let at = place.at;
    let mut depth = 0usize;
    let start = (at.saturating_sub(FAR)..at).rev().find(|&at| match place.word(at) {
        ")" | "]" => {
            depth += 1;
            false
        }
        "(" | "," if depth == 0 => true,
        "(" | "[" => {
            depth = depth.saturating_sub(1);
            false
        }
        "->" | "let" | "=" | "{" | "}" => true,
        _ => false,
    })?;
    let role = match place.word(start) {
        "let" => Role::Let,
        "->" => Role::Result,
        "(" | "," => Role::Param,
        _ => return None,
    };
    const KEYWORDS: [&str; 5] = ["let", "expect", "return", "layer", "model"];
    let keyword = (start.saturating_sub(4 * FAR)..=start)
        .rev()
        .find(|at| KEYWORDS.contains(&place.word(*at)))
        .map(|at| place.word(at))?;
    if (role == Role::Let) != (keyword == "let") || matches!(keyword, "expect" | "return") {
        return None;
    }
    let start = start + 1;
    let mut depth = 0usize;
    let end = (start..start + FAR).find(|&at| match place.word(at) {
        "," | ")" | "repeat" | "{" | "" if depth == 0 => true,
        "=" if depth == 0 && role == Role::Let => true,
        "(" | "[" | "<" => {
            depth += 1;
            false
        }
        ")" | "]" | ">" => {
            depth = depth.saturating_sub(1);
            false
        }
        "{" | "}" | "" => true,
        _ => false,
    })?;
    let ends_well = match place.word(end) {
        "=" => role == Role::Let,
        "," | ")" => role == Role::Param,
        "{" | "repeat" => role == Role::Result,
        _ => false,
    };
    // `-> (f32 A)`
    let is_bracketed = role == Role::Param && start > 1 && place.word(start - 2) == "->";
    let is_alone = !(start..end).any(|at| place.word(at) == ":") && place.word(end) == ")";
    let found = if is_bracketed && is_alone {
        (Role::Result, start - 2..end + 1)
    } else if role == Role::Result {
        (role, start - 1..end)
    } else {
        (role, start..end)
    };
    (ends_well && at <= end).then_some(found)
}

/// What other languages call a tensor, before its type in brackets.
const CONTAINERS: [&str; 5] = ["tensor", "array", "memref", "ndarray", "buffer"];

/// The words of a type, in any order.
#[derive(Default)]
struct Words<'t> {
    name: Option<&'t str>,
    kind: Option<&'t str>,
    dtype: Option<&'static str>,
    dims: Vec<&'t str>,
    /// The axes behind the bracket of the dims: `_x`.
    axes: Option<&'t str>,
    /// Whether its layout is left to the compiler: `EF?`.
    is_open: bool,
    sizes: Vec<&'t str>,
    partial: Option<Range<usize>>,
    /// Whether a word of [`CONTAINERS`] is there.
    is_tensor: bool,
}

/// The words of a type; `None` where one occurs twice or is no part of a type.
fn words<'t>(place: &Place<'_, 't>, tokens: Range<usize>) -> Option<Words<'t>> {
    let mut words = Words::default();
    let count = |word: &str| tokens.clone().filter(|at| place.word(*at) == word).count();
    if count("(") != count(")")
        || count("[") != count("]")
        || matches!(place.word(tokens.end - 1), ":" | "=" | ",")
    {
        return None;
    }
    let small = tokens.clone().any(|at| dtype(place.word(at)).is_some());
    let mut at = tokens.start;
    while at < tokens.end {
        let word = place.word(at);
        let is_name = at == tokens.start && matches!(place.word(at + 1), ":" | "=");
        let is_upper = word.starts_with(|c: char| c.is_ascii_uppercase());
        let lower = word.to_ascii_lowercase();
        let is_tensor = CONTAINERS.contains(&lower.as_str())
            && (place.is(at + 1, TokenKind::Open) || place.word(at + 1) == "<");
        let is_twice = match place.scan.tokens[at].kind {
            TokenKind::Word if is_tensor => std::mem::replace(&mut words.is_tensor, true),
            // `8x64xf32`
            TokenKind::Number => {
                let (sizes, last) = word.rsplit_once('x').unwrap_or((word, ""));
                let of_last = dtype(last);
                let sizes = if of_last.is_some() { sizes } else { word };
                words.sizes.extend(sizes.split('x'));
                of_last.is_some() && std::mem::replace(&mut words.dtype, of_last).is_some()
            }
            TokenKind::Word if is_name => words.name.replace(word).is_some(),
            TokenKind::Word if matches!(word, "weight" | "cache") => {
                words.kind.replace(word).is_some()
            }
            // `w: weights bf16 EF`
            TokenKind::Word if words.name.is_some() && matches!(word, "weights" | "param") => {
                words.kind.replace("weight").is_some()
            }
            // `[B, E]_x`: the axes of the dim that stands last.
            TokenKind::Word if word.starts_with('_') && place.word(at - 1) == "]" => {
                words.axes.replace(word).is_some()
            }
            TokenKind::Word
                if dtype(word).is_some() || is_upper && !small && dtype(&lower).is_some() =>
            {
                std::mem::replace(&mut words.dtype, dtype(&lower)).is_some()
            }
            // A word with brackets behind it is no dim.
            TokenKind::Word if is_upper => {
                words.dims.push(word);
                let is_called = at + 1 < tokens.end && place.is(at + 1, TokenKind::Open);
                is_called && !place.word(at + 2).starts_with("partial")
            }
            TokenKind::Word => words.name.replace(word).is_some(),
            TokenKind::Open if place.word(at + 1).starts_with("partial") => {
                let close = (at..tokens.end).find(|at| place.word(*at) == ")")?;
                let partial = at..close + 1;
                at = close;
                words.partial.replace(partial).is_some()
            }
            TokenKind::Open | TokenKind::Close => false,
            _ if word == "?" => std::mem::replace(&mut words.is_open, true),
            _ => !matches!(word, "->" | ":" | "=" | "," | "*" | "<" | ">"),
        };
        if is_twice {
            return None;
        }
        at += 1;
    }
    // Axes need a dim that they split.
    (words.axes.is_none() || !words.dims.is_empty()).then_some(words)
}

/// The dtype that a word means, here or in another language.
pub(super) fn dtype(word: &str) -> Option<&'static str> {
    Dtype::from_name(word).map(Dtype::name).or_else(|| other_dtype_word(word))
}

/// The dims as one word, if they are letters; else in brackets.
fn layout(dims: &[impl AsRef<str>]) -> Option<String> {
    let dims: Vec<&str> = dims.iter().map(AsRef::as_ref).collect();
    let is_short = |dim: &&str| {
        let name = dim.split('_').next().unwrap_or(dim);
        !name.contains(|c: char| c.is_ascii_lowercase())
    };
    let all_short = dims.iter().all(is_short);
    let list = if all_short { dims.concat() } else { format!("[{}]", dims.join(", ")) };
    (!dims.is_empty()).then_some(list)
}

/// Dims of the given sizes as a layout: those that the first lines of the file define, and new
/// ones, with the lines that would define them.
fn dims_of_sizes(place: &Place<'_, '_>, sizes: &[&str]) -> Option<(String, Vec<String>)> {
    const NAMES: [&str; 8] = ["B", "E", "F", "H", "K", "L", "M", "N"];
    let known: Vec<(&str, &str)> = (0..4 * FAR)
        .filter(|at| place.word(*at) == "dim" && place.word(at + 2) == "=")
        .map(|at| {
            let is_number = !matches!(place.word(at + 4), "+" | "-" | "*" | "/" | "pad");
            (place.word(at + 1), if is_number { place.word(at + 3) } else { "" })
        })
        .collect();
    let (mut dims, mut lines) = (Vec::new(), Vec::new());
    for &size in sizes {
        let named = known.iter().find(|(name, of)| *of == size && !dims.contains(name));
        dims.push(match named {
            Some((name, _)) => name,
            None => {
                let is_free = |name: &&&str| {
                    !dims.contains(*name) && known.iter().all(|(known, _)| known != *name)
                };
                let name = NAMES.iter().find(is_free)?;
                lines.push(format!("dim {name} = {size}"));
                name
            }
        });
    }
    lines.iter().all(|line| reads(line)).then_some((layout(&dims)?, lines))
}
