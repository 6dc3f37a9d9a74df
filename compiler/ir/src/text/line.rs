//! One line of `.shir` and a cursor over it.

use shard_words::Span;

/// A name as it stands in text: as it is if it is a plain word, else in quotes.
pub(super) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_word_char);
    if plain { name.to_string() } else { format!("{name:?}") }
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// What is wrong in a line, and where in the file.
#[derive(Debug)]
pub(super) struct LineError {
    pub(super) span: Span,
    pub(super) message: String,
}

pub(super) type Parsed<T> = Result<T, LineError>;

/// A place in a line.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t> {
    line: &'t str,
    /// Where the line starts in the file.
    offset: usize,
    at: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(line: &'t str, offset: usize) -> Cursor<'t> {
        Cursor { line, offset, at: 0 }
    }

    pub(super) fn rest(&self) -> &'t str {
        &self.line[self.at..]
    }

    /// The byte of the file at which the cursor stands.
    pub(super) fn position(&self) -> usize {
        self.offset + self.at
    }

    pub(super) fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t', '\r']).len();
    }

    /// Moves on by so many bytes, and gives the text of them.
    pub(super) fn advance(&mut self, bytes: usize) -> &'t str {
        let text = &self.rest()[..bytes];
        self.at += bytes;
        text
    }

    /// An error at the next word.
    pub(super) fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        let mut here = *self;
        here.skip_blanks();
        let mut len =
            here.rest().find([' ', '\t', '\r', ',', ';']).unwrap_or(here.rest().len()).min(40);
        while !here.rest().is_char_boundary(len) {
            len -= 1;
        }
        let len = len.max(here.rest().chars().next().map_or(0, char::len_utf8));
        let found = match len {
            0 => "the end of the line".to_string(),
            _ => format!("`{}`", &here.rest()[..len]),
        };
        let span = Span::new(here.position(), here.position() + len);
        Err(LineError { span, message: format!("expected {expected}, found {found}") })
    }

    /// An error about the text between a place and the cursor.
    pub(super) fn error_since<T>(&self, start: usize, message: impl Into<String>) -> Parsed<T> {
        Err(LineError { span: Span::new(start, self.position()), message: message.into() })
    }

    /// Takes this text if it comes next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let mut here = *self;
        here.skip_blanks();
        if !here.rest().starts_with(text) {
            return false;
        }
        here.at += text.len();
        *self = here;
        true
    }

    /// Takes this whole word if it comes next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let before = *self;
        if self.take(word) && !self.rest().starts_with(is_word_char) {
            return true;
        }
        *self = before;
        false
    }

    pub(super) fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.take(text) { Ok(()) } else { self.unexpected(&format!("`{text}`")) }
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word) { Ok(()) } else { self.unexpected(&format!("`{word}`")) }
    }

    pub(super) fn end(&mut self) -> Parsed<()> {
        self.skip_blanks();
        if self.rest().is_empty() { Ok(()) } else { self.unexpected("the end of the line") }
    }

    /// A run of characters of one kind; may be empty.
    fn run(&mut self, test: impl Fn(char) -> bool) -> &'t str {
        self.skip_blanks();
        let len = self.rest().find(|c| !test(c)).unwrap_or(self.rest().len());
        self.advance(len)
    }

    /// A plain word such as `all-gather` or `bf16`.
    pub(super) fn word(&mut self, what: &str) -> Parsed<&'t str> {
        let before = *self;
        match self.run(is_word_char) {
            "" => before.unexpected(what),
            word => Ok(word),
        }
    }

    /// A name: a plain word, or any text in quotes.
    pub(super) fn name(&mut self, what: &str) -> Parsed<String> {
        if !self.take("\"") {
            return self.word(what).map(str::to_string);
        }
        let start = self.position() - 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else {
                return self.error_since(start, "this quote is not closed");
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => match self.escape() {
                    Some(c) => out.push(c),
                    None => {
                        return self.error_since(
                            start,
                            "an escape is `\\n`, `\\\"`, `\\\\`, `\\u{..}` and the like",
                        );
                    }
                },
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '0' => '\0',
            '"' | '\\' | '\'' => c,
            'u' => {
                let digits = self.rest().strip_prefix('{')?.split_once('}')?.0;
                self.at += digits.len() + 2;
                (digits.len() <= 6)
                    .then(|| u32::from_str_radix(digits, 16).ok().and_then(char::from_u32))??
            }
            _ => return None,
        })
    }

    /// A whole number of at most 18 digits.
    pub(super) fn number(&mut self, what: &str) -> Parsed<u64> {
        let before = *self;
        match self.run(|c| c.is_ascii_digit()) {
            "" => before.unexpected(what),
            digits if digits.len() > 18 => before.unexpected("a number of at most 18 digits"),
            digits => digits.parse().or_else(|_| before.unexpected(what)),
        }
    }

    /// A finite number such as `0.5` or `-1e-6`.
    pub(super) fn float(&mut self) -> Parsed<f64> {
        let before = *self;
        let text = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && text.len() <= 64 => Ok(value),
            _ => before.unexpected("a number"),
        }
    }

    /// The text up to the first blank outside of brackets; with `commas`, up to the first blank or
    /// comma.
    pub(super) fn bracketed_word(&mut self, what: &str, commas: bool) -> Parsed<&'t str> {
        self.skip_blanks();
        let (mut depth, mut len) = (0i32, self.rest().len());
        for (at, c) in self.rest().char_indices() {
            match c {
                '[' | '(' | '{' => depth += 1,
                ']' | ')' | '}' => depth -= 1,
                ' ' | '\t' | '\r' if depth <= 0 => {
                    len = at;
                    break;
                }
                ',' if commas && depth <= 0 => {
                    len = at;
                    break;
                }
                _ => {}
            }
        }
        match len {
            0 => self.unexpected(what),
            _ => Ok(self.advance(len)),
        }
    }
}
