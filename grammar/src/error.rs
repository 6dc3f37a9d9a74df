//! What can be wrong with a text: each error and warning as a value, worded in its `Display`.

use crate::limits;
use shard_words::{Span, WordError};
use std::fmt;

/// A replacement of a stretch of source text that mends an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What to replace; empty to insert.
    pub span: Span,
    /// What to put there; empty to remove.
    pub replacement: String,
}

/// A second place that matters to an error, such as the parenthesis that is still open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The place.
    pub span: Span,
    /// What it has to do with the error.
    pub text: String,
}

/// One syntax error. Its `Display` is its kind's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong.
    pub kind: SyntaxErrorKind,
    /// Where; on character boundaries of the text, perhaps empty.
    pub span: Span,
    /// How to mend it, in words that follow `help:`.
    pub help: Option<String>,
    /// The edit that mends it, where there is one.
    pub fix: Option<Box<Fix>>,
    /// Another place that matters.
    pub note: Option<Box<Note>>,
}

impl SyntaxError {
    /// An error of which nothing but the kind and the place is known.
    pub fn new(kind: SyntaxErrorKind, span: Span) -> SyntaxError {
        SyntaxError { kind, span, help: None, fix: None, note: None }
    }

    /// The same with a help.
    pub fn with_help(mut self, help: impl Into<String>) -> SyntaxError {
        self.help = Some(help.into());
        self
    }

    /// The same with an edit that mends it.
    pub fn with_fix(mut self, span: Span, replacement: impl Into<String>) -> SyntaxError {
        self.fix = Some(Box::new(Fix { span, replacement: replacement.into() }));
        self
    }

    /// The same with a second place.
    pub fn with_note(mut self, span: Span, text: impl Into<String>) -> SyntaxError {
        self.note = Some(Box::new(Note { span, text: text.into() }));
        self
    }

    /// What could have stood there, in the user's words; empty where that is not the point.
    pub fn expected(&self) -> &[String] {
        if let SyntaxErrorKind::Unexpected { expected, .. } = &self.kind { expected } else { &[] }
    }

    /// What stands there, in the user's words; empty where that is not the point.
    pub fn found(&self) -> &str {
        if let SyntaxErrorKind::Unexpected { found, .. } = &self.kind { found } else { "" }
    }

    /// The sentence.
    pub fn message(&self) -> String {
        self.kind.to_string()
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for SyntaxError {}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyntaxErrorKind {
    /// Something else was expected here.
    Unexpected {
        /// What could have stood there, in the user's words: `` `=` ``, `a value name`.
        expected: Vec<String>,
        /// What stands there: `` `)` ``, `the end of the file`.
        found: String,
    },
    /// A `;`: there are none in the language.
    StraySemicolon,
    /// A word where a keyword belongs, and it is near one.
    MisspeltKeyword {
        /// The word.
        word: String,
        /// The keyword.
        meant: &'static str,
    },
    /// A parenthesis, bracket or brace that is never closed.
    Unclosed {
        /// The bracket.
        open: char,
        /// What would close it.
        close: char,
    },
    /// A closing bracket that closes nothing.
    Unopened {
        /// The bracket.
        close: char,
    },
    /// A string without its closing quote.
    UnclosedString,
    /// A name that breaks the lexical rule of its namespace.
    MalformedName {
        /// `value`, `layer`, `mesh axis`, `dim`.
        what: &'static str,
        /// The name.
        name: String,
        /// The rule that it breaks, as a sentence.
        rule: &'static str,
    },
    /// A reserved word where a value or layer is named.
    ReservedName {
        /// The word.
        word: String,
    },
    /// A word that is kept for later where a value or layer is named.
    KeptForLater {
        /// The word.
        word: String,
    },
    /// A word in the place of a dtype that is none.
    UnknownDtype {
        /// The word.
        word: String,
    },
    /// A type without a dtype, where only an annotation may leave it out.
    MissingDtype,
    /// A statement outside a layer.
    StatementOutsideLayer {
        /// `let` or `return`.
        word: &'static str,
    },
    /// Something is wrong inside a layout word, a partial or a list of dims.
    Word {
        /// The sentence.
        message: String,
    },
    /// A list of dims of another length than the operation needs.
    DimCount {
        /// `split` or `merge`.
        word: &'static str,
        /// How many dims there are; two or more are needed.
        found: usize,
    },
    /// A number that is no whole number, where one is needed.
    NotWhole {
        /// The number.
        text: String,
    },
    /// A number beyond what a float can hold.
    NumberTooLarge {
        /// The number.
        text: String,
    },
    /// A sign of another language between two operands.
    NoSuchOperator {
        /// The sign.
        sign: String,
        /// The operands, as far as they can be read.
        operands: Option<Box<(String, String)>>,
    },
    /// A function of another language.
    NoSuchOperation {
        /// Its name.
        name: String,
    },
    /// `a[0]`.
    NoIndexing,
    /// An einsum with its subscripts in quotes.
    QuotedSubscripts,
    /// A reduction, or an operation along a dim, that names no dim.
    ReducesOverDims {
        /// The word.
        word: String,
        /// Its operand as it is written, where the help does not say which dim.
        operand: Option<String>,
    },
    /// A character that is no part of the language.
    StrangeCharacter {
        /// The character.
        character: char,
    },
    /// A comment of another language.
    OtherComment {
        /// What it starts with: `#`, `/*`.
        sign: &'static str,
    },
    /// The file is past [`limits::MAX_FILE_BYTES`].
    FileTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Brackets are nested past [`limits::MAX_NESTING`].
    NestedTooDeep,
    /// More than [`limits::MAX_TREE_DEPTH`] operations of an expression stand one upon another.
    ExpressionTooLong,
    /// A number has too many digits.
    TooManyDigits {
        /// How many are allowed.
        limit: usize,
    },
    /// A name is past [`limits::MAX_NAME_BYTES`].
    NameTooLong,
}

impl fmt::Display for SyntaxErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SyntaxErrorKind::*;
        match self {
            Unexpected { expected, found } => {
                write!(f, "expected {}, found {found}", any_of(expected))
            }
            StraySemicolon => {
                f.write_str("there are no semicolons: `let`, `return` and `}` end a statement")
            }
            MisspeltKeyword { word, meant } => {
                write!(f, "unknown word `{word}`, where `{meant}` could stand")
            }
            Unclosed { open, close } => write!(f, "this `{open}` is never closed by a `{close}`"),
            Unopened { close } => write!(f, "this `{close}` closes nothing"),
            UnclosedString => f.write_str("this string has no closing `\"` on its line"),
            MalformedName { what, name, rule } => {
                write!(f, "`{name}` cannot name a {what}: {rule}")
            }
            ReservedName { word } => {
                write!(f, "`{word}` is a word of the language and cannot name a value or layer")
            }
            KeptForLater { word } => {
                write!(
                    f,
                    "`{word}` is kept for a later version of the language and cannot name a value \
                        or layer"
                )
            }
            UnknownDtype { word } => write!(f, "unknown dtype `{word}`"),
            MissingDtype => f.write_str("this type has no dtype"),
            StatementOutsideLayer { word } => write!(f, "`{word}` stands outside any layer"),
            Word { message } => f.write_str(message),
            DimCount { word, found } => {
                let stand = if *found == 1 { "one stands" } else { "none stands" };
                write!(f, "`{word}` needs two dims or more here, major first, and {stand} here")
            }
            NotWhole { text } => write!(f, "`{text}` is not a whole number"),
            NumberTooLarge { text } => {
                write!(f, "`{text}` is larger than any number of the language")
            }
            NoSuchOperator { sign, .. } => write!(f, "there is no operator `{sign}`"),
            NoSuchOperation { name } => write!(f, "there is no operation `{name}`"),
            NoIndexing => f.write_str(
                "a value is not indexed: dims have names, and positions are taken by operations",
            ),
            QuotedSubscripts => {
                f.write_str("an einsum names the dims of its result alone, without quotes")
            }
            ReducesOverDims { word, .. } => write!(f, "`{word}` goes over dims, which it names"),
            StrangeCharacter { character } => {
                write!(f, "`{}` is no character of the language", character.escape_debug())
            }
            OtherComment { sign } => write!(f, "no comment starts with `{sign}`"),
            FileTooLarge { bytes } => {
                write!(
                    f,
                    "the file has {bytes} bytes, more than the {} allowed",
                    limits::MAX_FILE_BYTES
                )
            }
            NestedTooDeep => {
                write!(f, "brackets are nested more than {} deep", limits::MAX_NESTING)
            }
            ExpressionTooLong => {
                write!(
                    f,
                    "this expression has more than {} operations one upon another",
                    limits::MAX_TREE_DEPTH
                )
            }
            TooManyDigits { limit } => write!(f, "this number has more than {limit} digits"),
            NameTooLong => write!(f, "this name is longer than {} bytes", limits::MAX_NAME_BYTES),
        }
    }
}

/// `a`, `a or b`, `a, b or c`.
fn any_of(words: &[String]) -> String {
    match words {
        [] => "something else".to_string(),
        [word] => word.clone(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// Something that is probably not meant so. Its `Display` is its kind's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxWarning {
    /// What it is.
    pub kind: SyntaxWarningKind,
    /// Where.
    pub span: Span,
    /// How to mend it, in words that follow `help:`.
    pub help: Option<String>,
    /// The edit that mends it, where there is one.
    pub fix: Option<Fix>,
}

/// What is probably not meant so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyntaxWarningKind {
    /// A `///` with no item, parameter or `let` below it.
    DocOfNothing,
    /// A `//!` that is not at the top of the file.
    FileDocNotAtTop,
    /// A name and, on a later line, `(`: this is a call.
    CallOverLines {
        /// The name.
        callee: String,
    },
}

impl fmt::Display for SyntaxWarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SyntaxWarningKind::*;
        match self {
            DocOfNothing => f.write_str(
                "this `///` documents nothing: no item, parameter or `let` starts below it",
            ),
            FileDocNotAtTop => {
                f.write_str("this `//!` is not at the top of the file, so it documents nothing")
            }
            CallOverLines { callee } => {
                write!(
                    f,
                    "this is a call of `{callee}`, although its `(` stands on a later line: line \
                        ends mean nothing"
                )
            }
        }
    }
}

impl fmt::Display for SyntaxWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl From<WordError> for SyntaxError {
    fn from(error: WordError) -> SyntaxError {
        SyntaxError {
            help: error.help,
            ..SyntaxError::new(SyntaxErrorKind::Word { message: error.message }, error.span)
        }
    }
}
