//! Lines of hardware, mesh and dims, and headers of layers.

use super::statements::OTHER_LETS;
use super::{Mend, Place};
use crate::expected::A_TYPE;
use crate::foreign::FAR;
use crate::parser::reads;
use crate::scan::TokenKind;
use std::ops::Range;

/// `hardware = tpu-v5e`, `hardware: tpu-v5e`, `hardware tpu v5e`.
pub(super) fn hardware(place: &Place<'_, '_>) -> Option<Mend> {
    let name = inside(place, "hardware")?;
    let name = place.text(name);
    let is_one_in_two = !name.starts_with('"') && name.split(' ').count() == 2;
    let name = if is_one_in_two { name.replace(' ', "-") } else { name };
    if name.ends_with('-') {
        return None;
    }
    place.as_item(format!("hardware {name}"))
}

/// `mesh (x: 4)`, `mesh 4x4`, `mesh x4 y2`, `mesh {"x": 4, "y": 2}`, `mesh = ((4, 2), ("x", "y"))`.
pub(super) fn mesh(place: &Place<'_, '_>) -> Option<Mend> {
    const NAMES: [&str; 4] = ["x", "y", "z", "w"];
    let (mut names, mut sizes) = (Vec::new(), Vec::new());
    for at in inside(place, "mesh")? {
        let word = place.word(at);
        match place.scan.tokens[at].kind {
            TokenKind::Word => names.push(word),
            TokenKind::Text => names.push(word.trim_matches('"')),
            TokenKind::Number => sizes.extend(word.split('x')),
            TokenKind::Open | TokenKind::Close => {}
            _ if matches!(word, "=" | ":" | "," | "*") => {}
            _ => return None,
        }
    }
    // `x4 y2`
    if sizes.is_empty() {
        let parts: Option<Vec<(&str, &str)>> = names.iter().map(|name| named_size(name)).collect();
        (names, sizes) = parts?.into_iter().unzip();
    }
    // `4 x 4`
    let has_names = names.len() == sizes.len() && !names.is_empty();
    if !has_names && names.iter().all(|name| *name == "x") && sizes.len() <= NAMES.len() {
        names = NAMES[..sizes.len()].to_vec();
    }
    // `0x10` is one number.
    if names.len() != sizes.len() || sizes.contains(&"0") {
        return None;
    }
    let axes: Vec<String> =
        names.iter().zip(&sizes).map(|(name, size)| format!("{name}={size}")).collect();
    place.as_item(format!("mesh {}", axes.join(", ")))
}

/// The name and the size of `x4`.
fn named_size(word: &str) -> Option<(&str, &str)> {
    let size = word.find(|c: char| c.is_ascii_digit())?;
    let (name, size) = word.split_at(size);
    (!name.is_empty() && size.bytes().all(|b| b.is_ascii_digit())).then_some((name, size))
}

/// A size with its unit written out: `8 * 1024` for `8K`, and likewise for `M`.
fn with_unit(value: String) -> String {
    let units = [('K', 1 << 10), ('k', 1 << 10), ('M', 1 << 20)];
    let of = |(unit, times): (char, u32)| {
        let number = value.strip_suffix(unit)?.trim_end();
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| format!("{number} * {times}"))
    };
    units.into_iter().find_map(of).unwrap_or(value)
}

/// `dim B: 8`, `dim B = 8K`, `dim B = 8, E = 64`, `dim {B: 8, E: 64}`, and `B = 8` or `const B = 8`
/// where a line may start.
pub(super) fn dims(place: &Place<'_, '_>) -> Option<Mend> {
    let starts = |at: usize| {
        place.word(at).starts_with(|c: char| c.is_ascii_uppercase())
            && matches!(place.word(at + 1), "=" | ":")
    };
    let tokens = match inside(place, "dim") {
        Some(tokens) => tokens,
        None if place.expects(&["the next item", "`dim`"]) => {
            let line = place.line.clone();
            line.start + usize::from(OTHER_LETS.contains(&place.word(line.start)))..line.end
        }
        None => return None,
    };
    let heads: Vec<usize> = tokens.clone().filter(|at| starts(*at)).collect();
    if heads.first() != Some(&tokens.start) {
        return None;
    }
    let ends = heads.iter().skip(1).copied().chain([tokens.end]);
    let lines = heads.iter().zip(ends).map(|(&head, end)| {
        let end = if place.word(end - 1) == "," { end - 1 } else { end };
        let value = (head + 1..end).find(|at| !matches!(place.word(*at), "=" | ":"))?;
        Some(format!("dim {} = {}", place.word(head), with_unit(place.text(value..end))))
    });
    let lines: Vec<String> = lines.collect::<Option<_>>()?;
    let Mend { help, fix } = place.as_item(lines.join("\n"))?;
    // A help is one line.
    let each = if lines.len() > 1 { "    (a line each)" } else { "" };
    Some(Mend { help: help.replace('\n', " ") + each, fix })
}

/// The tokens of a line behind its keyword, without signs and brackets around them.
fn inside(place: &Place<'_, '_>, keyword: &str) -> Option<Range<usize>> {
    let line = &place.line;
    if line.is_empty() || place.word(line.start) != keyword {
        return None;
    }
    let (mut start, mut end) = (line.start + 1, line.end);
    while start < end && matches!(place.word(start), "=" | ":") {
        start += 1;
    }
    if start < end && place.word(end - 1) == "," {
        end -= 1;
    }
    // Brackets around the whole content are ignored.
    if start < end && place.is(start, TokenKind::Open) && place.is(end - 1, TokenKind::Close) {
        (start, end) = (start + 1, end - 1);
    }
    (start < end).then_some(start..end)
}

/// `layer f(a: f32 A): f32 A {`, `=> f32 A {`, and a header that does not say its result.
pub(super) fn result(place: &Place<'_, '_>) -> Option<Mend> {
    let at = place.at;
    let start = match place.word(at) {
        "{" if place.expects(&[A_TYPE]) => at,
        _ if !place.expects(&["`->`"]) => return None,
        ":" => at + 1,
        "=" if place.is_sign(at, "=>") => at + 2,
        _ => at,
    };
    let end = (start..start + FAR).find(|at| matches!(place.word(*at), "{" | "repeat"))?;
    let is_left_out = start == end;
    let ty = if is_left_out { first_type(place) } else { place.text(start..end) };
    let written = format!("-> {ty}");
    if !reads(&format!("layer f() {written} {{ return a }}")) {
        return None;
    }
    if is_left_out {
        let help = format!("{written}    (the type of what is returned)");
        return Some(Mend { help, fix: None });
    }
    // `): f32 A`: the sign stands right behind the parameters.
    let mut mend = place.in_place_of(at..end, written);
    if let Some(fix) = &mut mend.fix
        && place.scan.tokens[at - 1].span.end == fix.span.start
    {
        fix.replacement.insert(0, ' ');
    }
    Some(mend)
}

/// `-> (f32 A, f32 B)`: results without names. A result gets the name of the value that is returned
/// in its place, if that is a name that no other result has.
pub(super) fn unnamed_results(place: &Place<'_, '_>) -> Option<Mend> {
    const NAMES: [&str; 6] = ["y", "z", "u", "v", "w", "t"];
    let open = (place.at.saturating_sub(4 * FAR)..place.at)
        .rev()
        .find(|at| place.word(*at) == "(" && *at > 0 && place.word(at - 1) == "->")?;
    let ends = commas(place, open + 1)?;
    let close = *ends.last().filter(|close| ends.len() > 1 && place.at <= **close)?;
    let starts: Vec<usize> = std::iter::once(open).chain(ends.iter().copied()).collect();
    let is_named = |start: usize| place.word(start + 2) == ":";
    let mut used: Vec<&str> =
        starts.iter().filter(|at| is_named(**at)).map(|at| place.word(at + 1)).collect();
    let returned = returned(place, close);
    let mut results = Vec::new();
    for (i, (start, end)) in starts.iter().zip(&ends).enumerate() {
        let ty = place.text(start + 1..*end);
        if is_named(*start) {
            results.push(ty);
            continue;
        }
        let own = returned.get(i).copied().flatten();
        let others = NAMES.into_iter().filter(|name| !returned.contains(&Some(name)));
        let name = own.into_iter().chain(others).find(|name| !used.contains(name))?;
        used.push(name);
        results.push(format!("{name}: {ty}"));
    }
    let written = format!("({})", results.join(", "));
    reads(&format!("layer f() -> {written} {{ return a }}"))
        .then(|| place.in_place_of(open..close + 1, written))
}

/// The ends of the parts of a bracket that opens before `start`: its commas, and the token that
/// closes it.
fn commas(place: &Place<'_, '_>, start: usize) -> Option<Vec<usize>> {
    let (mut depth, mut ends) = (0usize, Vec::new());
    for at in start..start + 8 * FAR {
        match place.word(at) {
            "," if depth == 0 => ends.push(at),
            ")" if depth == 0 => {
                ends.push(at);
                return Some(ends);
            }
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            "" | "let" | "return" => return None,
            _ => {}
        }
    }
    None
}

/// What the layer returns, by the first `return (..)` behind the token `from`: the name of each
/// value, `None` for a value that is not just a name.
fn returned<'t>(place: &Place<'_, 't>, from: usize) -> Vec<Option<&'t str>> {
    let values = (from..place.scan.tokens.len())
        .take_while(|at| !matches!(place.word(*at), "layer" | "model"))
        .find(|at| place.word(*at) == "return" && place.word(at + 1) == "(")
        .and_then(|at| Some((at + 2, commas(place, at + 2)?)));
    let Some((first, ends)) = values else { return Vec::new() };
    let starts = std::iter::once(first).chain(ends.iter().map(|end| end + 1));
    let name = |(start, end): (usize, &usize)| {
        (start + 1 == *end && place.is(start, TokenKind::Word)).then(|| place.word(start))
    };
    starts.zip(&ends).map(name).collect()
}

/// The type of the first parameter, which a result often has.
fn first_type(place: &Place<'_, '_>) -> String {
    let from = place.at.saturating_sub(4 * FAR);
    let layer = (from..place.at).rev().find(|at| matches!(place.word(*at), "layer" | "model"));
    // `layer f(a:`
    let start = layer.map_or(place.at, |layer| layer + 5);
    let start = start + usize::from(matches!(place.word(start), "weight" | "cache"));
    let mut depth = 0usize;
    let end = (start..place.at).find(|at| match place.word(*at) {
        "," | ")" if depth == 0 => true,
        "(" | "[" | "{" => {
            depth += 1;
            false
        }
        ")" | "]" | "}" => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => false,
    });
    end.map_or("bf16 BE".to_string(), |end| place.text(start..end))
}

/// `layer f(a: f32 A) -> f32 A:`, with the statements indented below.
pub(super) fn braces(place: &Place<'_, '_>) -> Option<Mend> {
    let is_body = place.word(place.at) == ":" && place.expects(&["`{`"]);
    let help = "{ return ... }    (the statements of a layer stand in braces)".to_string();
    is_body.then_some(Mend { help, fix: None })
}
