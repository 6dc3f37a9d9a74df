//! Layout words and partials: `BLE_xyz`, `[Batch_{data}, Seq]`, `E_(xy)`, `BLE?l`,
//! `BLF_yz(partialsum-x)`.

use crate::lexer::{Cursor, Long, Short, error, error_with_help};
use crate::source::{Span, Spanned};
use crate::words::{
    AxesWord, DimWord, DimsForm, FreeMark, LayoutWord, Name, PartialGroup, PartialOp, WordError,
};

/// Reads a layout word that is the whole of `text`. `offset` is the place of `text` in its file,
/// which spans refer to.
///
/// ```
/// let word = shard_words::parse_layout_word("B_xLE_{data,model}", 0).unwrap();
/// assert_eq!(word.dims.len(), 3);
/// assert_eq!(word.dims[2].axes.as_ref().unwrap().axes[1].value, "model");
/// assert!(shard_words::parse_layout_word("B_x_y", 0).is_err());
/// ```
pub fn parse_layout_word(text: &str, offset: usize) -> Result<LayoutWord, WordError> {
    let mut cursor = Cursor::new(text, offset);
    cursor.skip_blanks();
    let word = layout_word(&mut cursor)?;
    finish(&mut cursor, "behind the layout")?;
    Ok(word)
}

/// Reads a layout word and, perhaps behind a blank, its partials: `BLF_yz(partialsum-x)`.
///
/// ```
/// let (word, partial) = shard_words::parse_layout_with_partial("BLF_yz (partialsum-x)", 0).unwrap();
/// assert_eq!((word.dims.len(), partial.len()), (3, 1));
/// ```
pub fn parse_layout_with_partial(
    text: &str,
    offset: usize,
) -> Result<(LayoutWord, Vec<PartialGroup>), WordError> {
    let mut cursor = Cursor::new(text, offset);
    cursor.skip_blanks();
    let word = layout_word(&mut cursor)?;
    cursor.skip_blanks();
    let groups =
        if cursor.sees(Long::OpenParen) { partial_groups(&mut cursor)? } else { Vec::new() };
    finish(&mut cursor, "behind the layout")?;
    Ok((word, groups))
}

/// Reads parenthesised partials that are the whole of `text`: `(partialsum-x, partialmax-y)`.
pub fn parse_partial(text: &str, offset: usize) -> Result<Vec<PartialGroup>, WordError> {
    let mut cursor = Cursor::new(text, offset);
    cursor.skip_blanks();
    let groups = partial_groups(&mut cursor)?;
    finish(&mut cursor, "behind the partial")?;
    Ok(groups)
}

fn finish(cursor: &mut Cursor<'_>, place: &str) -> Result<(), WordError> {
    cursor.skip_blanks();
    if cursor.at_end() {
        return Ok(());
    }
    Err(error(cursor.next_span(), format!("{} stands {place}", cursor.found())))
}

fn layout_word(cursor: &mut Cursor<'_>) -> Result<LayoutWord, WordError> {
    let start = cursor.position();
    let (form, dims) = if cursor.sees(Long::OpenBracket) {
        (DimsForm::Bracketed, bracketed_dims(cursor)?)
    } else {
        (DimsForm::Compact, compact_dims(cursor)?)
    };
    let free = free_mark(cursor)?;
    Ok(LayoutWord { span: Span::new(start, cursor.position()), form, dims, free })
}

fn compact_dims(cursor: &mut Cursor<'_>) -> Result<Vec<DimWord>, WordError> {
    let start = cursor.position();
    let mut dims: Vec<DimWord> = Vec::new();
    while let Some(token) = cursor.take(Short::Dim) {
        let name = cursor.name(token)?;
        dims.push(subscripted(cursor, name)?);
    }
    if dims.is_empty() {
        return Err(cursor.unexpected("a dim (an upper-case letter) or `[`"));
    }
    if cursor.sees(Long::Underscore) {
        return Err(second_subscript(cursor, &dims));
    }
    if let Some(stray) = cursor.take(Long::Lower) {
        let before = &cursor.text_since(start)[..stray.span.start - start];
        return Err(if stray.value.len() == 1 {
            let message = format!(
                "`{}` is no dim: dims are upper-case letters, and mesh axes stand behind `_`",
                stray.value
            );
            error_with_help(stray.span, message, format!("{before}_{}", stray.value))
        } else {
            let word = format!("{before}{}{}", stray.value, word_tail(cursor.rest()));
            let message = format!(
                "a dim with a name longer than one letter stands in brackets, `{}` does not",
                stray.value
            );
            error_with_help(stray.span, message, format!("[{word}]"))
        });
    }
    Ok(dims)
}

/// The beginning of a text that still belongs to a compact word.
fn word_tail(rest: &str) -> &str {
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '{' | '}')))
        .unwrap_or(rest.len());
    &rest[..end]
}

fn bracketed_dims(cursor: &mut Cursor<'_>) -> Result<Vec<DimWord>, WordError> {
    let mut dims = Vec::new();
    cursor.take(Long::OpenBracket);
    loop {
        cursor.skip_blanks();
        if cursor.take(Long::CloseBracket).is_some() {
            return Ok(dims);
        }
        let Some(token) = cursor.take(Long::Upper) else {
            return Err(cursor.unexpected("a dim (a name that starts upper-case) or `]`"));
        };
        let name = cursor.name(token)?;
        dims.push(subscripted(cursor, name)?);
        if cursor.sees(Long::Underscore) {
            return Err(second_subscript(cursor, &dims));
        }
        cursor.skip_blanks();
        if cursor.take(Long::Comma).is_none() && !cursor.sees(Long::CloseBracket) {
            return Err(cursor.unexpected("`,` or `]`"));
        }
    }
}

fn second_subscript(cursor: &Cursor<'_>, dims: &[DimWord]) -> WordError {
    let dim = dims.last().map_or("", |dim| dim.name.value.as_str());
    error(
        cursor.next_span(),
        format!("dim `{dim}` has a second `_`: all its axes stand behind one, major first"),
    )
}

/// The dim with the axes behind its `_`, if there are any.
fn subscripted(cursor: &mut Cursor<'_>, name: Name) -> Result<DimWord, WordError> {
    let Some(underscore) = cursor.take(Long::Underscore) else {
        return Ok(DimWord { span: name.span, name, axes: None });
    };
    let start = cursor.position();
    let axes = if cursor.take(Long::OpenParen).is_some() {
        cursor.skip_blanks();
        let inner = axes_word(cursor, underscore.span)?;
        cursor.skip_blanks();
        if cursor.take(Long::CloseParen).is_none() {
            return Err(cursor.unexpected("a mesh axis or `)`"));
        }
        AxesWord { span: Span::new(start, cursor.position()), any_order: true, ..inner }
    } else {
        axes_word(cursor, underscore.span)?
    };
    Ok(DimWord { span: name.span.to(axes.span), name, axes: Some(axes) })
}

/// `xyz` or `{data,model}`; `sign` is the `_` or `-` before it.
fn axes_word(cursor: &mut Cursor<'_>, sign: Span) -> Result<AxesWord, WordError> {
    let start = cursor.position();
    let mut axes = Vec::new();
    if let Some(open) = cursor.take(Long::OpenBrace) {
        loop {
            cursor.skip_blanks();
            if cursor.take(Long::CloseBrace).is_some() {
                break;
            }
            let Some(token) = cursor.take(Long::Lower) else {
                return Err(cursor.unexpected("a mesh axis (a name that starts lower-case) or `}`"));
            };
            axes.push(cursor.name(token)?);
            cursor.skip_blanks();
            if cursor.take(Long::Comma).is_none() && !cursor.sees(Long::CloseBrace) {
                return Err(cursor.unexpected("`,` or `}`"));
            }
        }
        if axes.is_empty() {
            return Err(error(
                open.span.to(Span::at(cursor.position())),
                "no mesh axis stands in these braces",
            ));
        }
    } else {
        while let Some(token) = cursor.take(Short::Axis) {
            axes.push(cursor.name(token)?);
        }
        if axes.is_empty() {
            let (span, found) = (cursor.next_span(), cursor.found());
            let sign_span = sign.to(span);
            return Err(match cursor.take(Short::Dim) {
                Some(dim) => error_with_help(
                    dim.span,
                    format!(
                        "`{}` stands where a mesh axis is expected: axes are lower-case",
                        dim.value
                    ),
                    dim.value.to_lowercase(),
                ),
                None => error(sign_span, format!("expected a mesh axis, found {found}")),
            });
        }
        if let Some(long) = axes.iter().find(|axis| axis.value.len() > 1) {
            let names: Vec<&str> = axes.iter().map(|axis| axis.value.as_str()).collect();
            let message = format!(
                "mesh axis `{}` has a name longer than one letter, so it stands in braces",
                long.value
            );
            return Err(error_with_help(long.span, message, format!("{{{}}}", names.join(","))));
        }
    }
    let raw = cursor.text_since(start).to_string();
    Ok(AxesWord { span: Span::new(start, cursor.position()), raw, any_order: false, axes })
}

fn free_mark(cursor: &mut Cursor<'_>) -> Result<Option<FreeMark>, WordError> {
    let Some(mark) = cursor.take(Long::Question) else { return Ok(None) };
    let label = match cursor.take(Long::Lower) {
        Some(token) => Some(cursor.name(token)?),
        None if cursor.rest().starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') => {
            let rule = "a layout label (a lower-case letter, then letters and digits)";
            return Err(cursor.unexpected(rule));
        }
        None => None,
    };
    Ok(Some(FreeMark { span: mark.span.to(Span::at(cursor.position())), label }))
}

fn partial_groups(cursor: &mut Cursor<'_>) -> Result<Vec<PartialGroup>, WordError> {
    if cursor.take(Long::OpenParen).is_none() {
        return Err(cursor.unexpected("`(`"));
    }
    let mut groups = Vec::new();
    loop {
        cursor.skip_blanks();
        if !groups.is_empty() && cursor.take(Long::CloseParen).is_some() {
            return Ok(groups);
        }
        groups.push(partial_group(cursor)?);
        cursor.skip_blanks();
        if cursor.take(Long::Comma).is_none() && !cursor.sees(Long::CloseParen) {
            return Err(cursor.unexpected("`,` or `)`"));
        }
    }
}

fn partial_group(cursor: &mut Cursor<'_>) -> Result<PartialGroup, WordError> {
    let expected = "`partialsum-` or `partialmax-` and mesh axes";
    let start = cursor.position();
    let Some(word) = cursor.take(Long::Lower) else { return Err(cursor.unexpected(expected)) };
    let mut ops = [PartialOp::Sum, PartialOp::Max, PartialOp::Softmax].into_iter();
    let Some(op) = ops.find(|op| op.word() == word.value) else {
        return Err(error(word.span, format!("expected {expected}, found `{}`", word.value)));
    };
    let Some(dash) = cursor.take(Long::Dash) else {
        let rest = cursor.rest().strip_prefix('_').unwrap_or_default();
        let message =
            format!("expected `-` and mesh axes behind `{}`, found {}", op.word(), cursor.found());
        let mut wrong = error(cursor.next_span(), message);
        if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '{') {
            wrong.help = Some(format!("{}-{}", op.word(), word_tail(rest)));
        }
        return Err(wrong);
    };
    if cursor.sees(Long::OpenParen) {
        return Err(error(
            cursor.next_span(),
            "the axes of a partial have no order, so they need no parentheses",
        ));
    }
    let axes = axes_word(cursor, dash.span)?;
    Ok(PartialGroup {
        span: Span::new(start, cursor.position()),
        op: Spanned::new(op, word.span),
        axes,
    })
}
