//! A cursor that moves forward over a text.

use shard_words::Span;

/// An error of a reader, with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadError {
    /// What is wrong, or what was expected: lower case, no full stop.
    pub message: String,
    /// Where, in bytes of the text.
    pub span: Span,
}

/// The depth to which brackets may be nested.
const MAX_DEPTH: usize = 1000;

/// The most characters of the text that a message shows.
const SHOWN: usize = 24;

/// The beginning of the first line of a text, as a message shows it.
pub(crate) fn shortened(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(40).collect()
}

/// Reads a text from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    /// The offset of the next byte.
    at: usize,
    /// The number of bytes that were looked at; a test holds it to a multiple of the text.
    pub(crate) work: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0, work: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Takes the bytes that meet a condition. The condition must not hold for only some bytes of a
    /// character.
    pub(crate) fn take_while(&mut self, meets: impl Fn(u8) -> bool) -> &'a str {
        let bytes = &self.text.as_bytes()[self.at..];
        let long = bytes.iter().position(|b| !meets(*b)).unwrap_or(bytes.len());
        let start = self.at;
        self.at += long;
        self.work += long as u64 + 1;
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Skips blanks within the line.
    pub(crate) fn skip_blanks(&mut self) {
        self.take_while(|b| b == b' ' || b == b'\t' || b == b'\r');
    }

    /// Skips blanks, line ends, and comments that are a line.
    pub(crate) fn skip_space(&mut self) {
        loop {
            self.take_while(|b| b.is_ascii_whitespace());
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|b| b != b'\n');
        }
    }

    /// Takes a text if it is next.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        self.work += text.len() as u64;
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    /// Takes a text that has to be next.
    pub(crate) fn expect(&mut self, text: &str) -> Result<(), ReadError> {
        if self.take(text) { Ok(()) } else { Err(self.expected(&format!("`{text}`"))) }
    }

    /// Takes a name, without a `%` in front.
    pub(crate) fn name(&mut self, what: &str) -> Result<&'a str, ReadError> {
        self.take("%");
        let name = self.take_while(is_of_name);
        if name.is_empty() { Err(self.expected(what)) } else { Ok(name) }
    }

    /// Takes a whole number.
    pub(crate) fn number(&mut self, what: &str) -> Result<u64, ReadError> {
        let start = self.at;
        let digits = self.take_while(|b| b.is_ascii_digit());
        digits.parse().map_err(|_| {
            self.at = start;
            self.expected(what)
        })
    }

    /// Takes everything up to a byte for which `stop` holds outside all brackets and strings, or up
    /// to a line end outside of them.
    pub(crate) fn balanced(&mut self, stop: impl Fn(u8) -> bool) -> Result<&'a str, ReadError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut open: Vec<(u8, usize)> = Vec::new();
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            if open.is_empty() && (byte == b'\n' || stop(byte)) {
                break;
            }
            match byte {
                b'"' => {
                    at = end_of_string(bytes, at).ok_or_else(|| self.unclosed('"', at))?;
                }
                b'(' | b'[' | b'{' if open.len() >= MAX_DEPTH => {
                    let message =
                        format!("brackets stand {MAX_DEPTH} deep here, and no deeper is read");
                    return Err(ReadError { message, span: Span::new(at, at + 1) });
                }
                b'(' => open.push((b')', at)),
                b'[' => open.push((b']', at)),
                b'{' => open.push((b'}', at)),
                b')' | b']' | b'}' => match open.pop() {
                    Some((closes, _)) if closes == byte => {}
                    Some((closes, _)) => {
                        let message = format!(
                            "expected `{}`, which closes a bracket, and found `{}`",
                            char::from(closes),
                            char::from(byte)
                        );
                        return Err(ReadError { message, span: Span::new(at, at + 1) });
                    }
                    None => {
                        let message =
                            format!("`{}` closes no bracket of this line", char::from(byte));
                        return Err(ReadError { message, span: Span::new(at, at + 1) });
                    }
                },
                _ => {}
            }
            at += 1;
        }
        self.work += (at - start) as u64 + 1;
        if let Some((closes, from)) = open.pop() {
            return Err(self.unclosed(char::from(closes), from));
        }
        self.at = at;
        Ok(self.text.get(start..at).unwrap_or_default())
    }

    fn unclosed(&self, closes: char, from: usize) -> ReadError {
        let message = format!("the text ends before the `{closes}` that closes this");
        ReadError { message, span: Span::new(from, from + 1) }
    }

    /// An error at this place, with what was expected and the text that stands there.
    pub(crate) fn expected(&self, what: &str) -> ReadError {
        let mut found: String =
            self.rest().chars().take_while(|c| *c != '\n').take(SHOWN).collect();
        let line_goes_on = self.rest().chars().nth(SHOWN).is_some_and(|c| c != '\n');
        if found.chars().count() == SHOWN && line_goes_on {
            found.push_str("..");
        }
        let message = if self.at_end() {
            format!("expected {what}, and the text ends: is it cut off?")
        } else if found.trim().is_empty() {
            format!("expected {what}, and the line ends")
        } else {
            format!("expected {what}, and found `{}`", found.trim_end())
        };
        let first = self.rest().chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
        ReadError { message, span: Span::new(self.at, self.at + first) }
    }
}

/// The offset of the quote that ends the string that begins at `from`.
fn end_of_string(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether a byte belongs to the name of an instruction or computation.
pub(crate) fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-') || byte >= 0x80
}

/// The parts of a text between commas outside all brackets and strings, each with its offset.
pub(crate) fn parts(text: &str) -> Result<Vec<(usize, &str)>, ReadError> {
    let mut cursor = Cursor::new(text);
    let mut found = Vec::new();
    loop {
        let start = cursor.at();
        let mut part = cursor.balanced(|b| b == b',')?;
        // A line end outside brackets does not end a part.
        while cursor.peek() == Some(b'\n') {
            cursor.take("\n");
            cursor.balanced(|b| b == b',')?;
            part = &text[start..cursor.at()];
        }
        if !part.trim().is_empty() {
            found.push((start, part));
        }
        if !cursor.take(",") {
            return Ok(found);
        }
    }
}
