//! Lists of dims without axes: an einsum's output, `over BL`, `-> [Kv, Group]`.

use crate::lexer::{Cursor, Long, Short, error, error_with_help};
use crate::source::Span;
use crate::words::{DimList, DimsForm, Name, WordError};

/// Reads a dim list that is the whole of `text`. `offset` is the place of `text` in its file, which
/// spans refer to.
///
/// ```
/// assert_eq!(shard_words::parse_dim_list("BLF2", 0).unwrap().dims.len(), 3);
/// assert_eq!(shard_words::parse_dim_list("[Batch, Seq]", 0).unwrap().dims.len(), 2);
/// assert_eq!(shard_words::parse_dim_list("Seq", 0).unwrap().dims.len(), 1);
/// ```
pub fn parse_dim_list(text: &str, offset: usize) -> Result<DimList, WordError> {
    let mut cursor = Cursor::new(text, offset);
    cursor.skip_blanks();
    let start = cursor.position();
    let (form, dims) = if cursor.take(Long::OpenBracket).is_some() {
        let mut dims = Vec::new();
        loop {
            cursor.skip_blanks();
            if cursor.take(Long::CloseBracket).is_some() {
                break;
            }
            let Some(token) = cursor.take(Long::Upper) else {
                return Err(cursor.unexpected("a dim (a name that starts upper-case) or `]`"));
            };
            dims.push(cursor.name(token)?);
            refuse_layout(&cursor, text)?;
            cursor.skip_blanks();
            if cursor.take(Long::Comma).is_none() && !cursor.sees(Long::CloseBracket) {
                return Err(cursor.unexpected("`,` or `]`"));
            }
        }
        (DimsForm::Bracketed, dims)
    } else if let Some(name) = single_name(&mut cursor)? {
        (DimsForm::Single, vec![name])
    } else {
        let mut dims = Vec::new();
        while let Some(token) = cursor.take(Short::Dim) {
            dims.push(cursor.name(token)?);
            refuse_layout(&cursor, text)?;
        }
        if dims.is_empty() {
            return Err(cursor.unexpected("a dim (an upper-case letter) or `[`"));
        }
        (DimsForm::Compact, dims)
    };
    refuse_layout(&cursor, text)?;
    let end = cursor.position();
    let raw = cursor.text_since(start).to_string();
    cursor.skip_blanks();
    if !cursor.at_end() {
        return Err(error(
            cursor.next_span(),
            format!("{} stands behind the dims", cursor.found()),
        ));
    }
    Ok(DimList { span: Span::new(start, end), raw, form, dims })
}

/// Takes one name with lower-case letters in it, such as `Seq`, if that comes next.
fn single_name(cursor: &mut Cursor<'_>) -> Result<Option<Name>, WordError> {
    let word: &str =
        cursor.rest().split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    if !word.contains(|c: char| c.is_ascii_lowercase()) {
        return Ok(None);
    }
    match cursor.take(Long::Upper) {
        Some(token) => cursor.name(token).map(Some),
        None => Ok(None),
    }
}

/// Refuses axes and `?`, which belong to types and not to lists of dims.
fn refuse_layout(cursor: &Cursor<'_>, text: &str) -> Result<(), WordError> {
    if !(cursor.sees(Long::Underscore) || cursor.sees(Long::Question)) {
        return Ok(());
    }
    let message =
        "only dims stand here: a layout is pinned by an annotation, as in `let h: BLF_x = ...`";
    Err(match crate::parse_layout_word(text, 0) {
        Ok(word) => {
            let names: Vec<&str> = word.dims.iter().map(|dim| dim.name.value.as_str()).collect();
            let help = match word.form {
                DimsForm::Bracketed => format!("[{}]", names.join(", ")),
                DimsForm::Compact | DimsForm::Single => names.concat(),
            };
            error_with_help(cursor.next_span(), message, help)
        }
        Err(_) => error(cursor.next_span(), message),
    })
}
