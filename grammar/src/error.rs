//! The syntax errors and warnings as values; their `Display` is their wording.

use crate::limits;
use shard_words::{Span, WordError};
use thiserror::Error;

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
    /// How it relates to the error.
    pub text: String,
}

/// One syntax error. Its `Display` is its kind's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct SyntaxError {
    /// What is wrong.
    pub kind: SyntaxErrorKind,
    /// Its place, on character boundaries of the text; perhaps empty.
    pub span: Span,
    /// How to mend it, in words that follow `help:`.
    pub help: Option<String>,
    /// The edit that mends it, where there is one.
    pub fix: Option<Box<Fix>>,
    /// Another place that matters.
    pub note: Option<Box<Note>>,
}

impl SyntaxError {
    /// An error with a kind and a place only.
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

    /// What could have stood there, in the user's words; empty for other kinds of errors.
    pub fn expected(&self) -> &[String] {
        if let SyntaxErrorKind::Unexpected { expected, .. } = &self.kind { expected } else { &[] }
    }

    /// What stands there, in the user's words; empty for other kinds of errors.
    pub fn found(&self) -> &str {
        if let SyntaxErrorKind::Unexpected { found, .. } = &self.kind { found } else { "" }
    }

    /// The sentence.
    pub fn message(&self) -> String {
        self.kind.to_string()
    }
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SyntaxErrorKind {
    /// Something else was expected here.
    #[error("expected {}, found {found}", any_of(expected))]
    Unexpected {
        /// What could have stood there, in the user's words: `` `=` ``, `a value name`.
        expected: Vec<String>,
        /// What stands there: `` `)` ``, `the end of the file`.
        found: String,
    },
    /// A `;`, which the language does not have.
    #[error("there are no semicolons: `let`, `return` and `}}` end a statement")]
    StraySemicolon,
    /// A misspelt keyword.
    #[error("unknown word `{word}`, where `{meant}` could stand")]
    MisspeltKeyword {
        /// The word.
        word: String,
        /// The keyword.
        meant: &'static str,
    },
    /// A parenthesis, bracket or brace that is never closed.
    #[error("this `{open}` is never closed by a `{close}`")]
    Unclosed {
        /// The bracket.
        open: char,
        /// What would close it.
        close: char,
    },
    /// A closing bracket that closes nothing.
    #[error("this `{close}` closes nothing")]
    Unopened {
        /// The bracket.
        close: char,
    },
    /// A string without its closing quote.
    #[error("this string has no closing `\"` on its line")]
    UnclosedString,
    /// A name that breaks the lexical rule of its namespace.
    #[error("`{name}` cannot name a {what}: {rule}")]
    MalformedName {
        /// `value`, `layer`, `mesh axis`, `dim`.
        what: &'static str,
        /// The name.
        name: String,
        /// The rule that it breaks, as a sentence.
        rule: &'static str,
    },
    /// A reserved word where a value or layer is named.
    #[error("`{word}` is a word of the language and cannot name a value or layer")]
    ReservedName {
        /// The word.
        word: String,
    },
    /// A word that is reserved for later versions, where a value or layer is named.
    #[error(
        "`{word}` is kept for a later version of the language and cannot name a value or layer"
    )]
    KeptForLater {
        /// The word.
        word: String,
    },
    /// A word in the place of a dtype that is no dtype.
    #[error("unknown dtype `{word}`")]
    UnknownDtype {
        /// The word.
        word: String,
    },
    /// A type without a dtype, where only an annotation may leave it out.
    #[error("this type has no dtype")]
    MissingDtype,
    /// A statement outside a layer.
    #[error("`{word}` stands outside any layer")]
    StatementOutsideLayer {
        /// `let` or `return`.
        word: &'static str,
    },
    /// Something is wrong inside a layout word, a partial or a list of dims.
    #[error("{message}")]
    Word {
        /// The sentence.
        message: String,
    },
    /// A list of fewer dims than the operation needs.
    #[error(
        "`{word}` needs two dims or more here, major first, and {} here",
        how_many_stand(*found)
    )]
    DimCount {
        /// `split` or `merge`.
        word: &'static str,
        /// How many dims there are; two or more are needed.
        found: usize,
    },
    /// A number that is no whole number, where one is needed.
    #[error("`{text}` is not a whole number")]
    NotWhole {
        /// The number.
        text: String,
    },
    /// A number that no float can hold.
    #[error("`{text}` is larger than any number of the language")]
    NumberTooLarge {
        /// The number.
        text: String,
    },
    /// A sign of another language between two operands.
    #[error("there is no operator `{sign}`")]
    NoSuchOperator {
        /// The sign.
        sign: String,
        /// The operands, if both can be read.
        operands: Option<Box<(String, String)>>,
    },
    /// A function of another language.
    #[error("there is no operation `{name}`")]
    NoSuchOperation {
        /// Its name.
        name: String,
    },
    /// `a[0]`.
    #[error("a value is not indexed: dims have names, and positions are taken by operations")]
    NoIndexing,
    /// An einsum with its subscripts in quotes.
    #[error("an einsum names the dims of its result alone, without quotes")]
    QuotedSubscripts,
    /// A reduction, or an operation along a dim, that names no dim.
    #[error("`{word}` goes over dims, which it names")]
    ReducesOverDims {
        /// The word.
        word: String,
        /// Its operand as written, where the help does not name the dim.
        operand: Option<String>,
    },
    /// A character that is no part of the language.
    #[error("`{}` is no character of the language", shown(*character))]
    StrangeCharacter {
        /// The character.
        character: char,
    },
    /// A comment of another language.
    #[error("no comment starts with `{sign}`")]
    OtherComment {
        /// What it starts with: `#`, `/*`.
        sign: &'static str,
    },
    /// The file is past [`limits::MAX_FILE_BYTES`].
    #[error("the file has {bytes} bytes, more than the {} allowed", limits::MAX_FILE_BYTES)]
    FileTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Brackets are nested past [`limits::MAX_NESTING`].
    #[error("brackets are nested more than {} deep", limits::MAX_NESTING)]
    NestedTooDeep,
    /// More than [`limits::MAX_TREE_DEPTH`] operations of an expression are nested.
    #[error("this expression has more than {} operations one upon another", limits::MAX_TREE_DEPTH)]
    ExpressionTooLong,
    /// A number has too many digits.
    #[error("this number has more than {limit} digits")]
    TooManyDigits {
        /// How many are allowed.
        limit: usize,
    },
    /// A name is past [`limits::MAX_NAME_BYTES`].
    #[error("this name is longer than {} bytes", limits::MAX_NAME_BYTES)]
    NameTooLong,
}

/// `a`, `a or b`, `a, b or c`.
fn any_of(words: &[String]) -> String {
    match words {
        [] => "something else".to_string(),
        [word] => word.clone(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// What stands where two dims or more are needed.
fn how_many_stand(found: usize) -> &'static str {
    if found == 1 { "one stands" } else { "none stands" }
}

/// A warning: something that is probably a mistake. Its `Display` is its kind's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
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

/// The kinds of warnings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SyntaxWarningKind {
    /// A `///` with no item, parameter or `let` below it.
    #[error("this `///` documents nothing: no item, parameter or `let` starts below it")]
    DocOfNothing,
    /// A `//!` that is not at the top of the file.
    #[error("this `//!` is not at the top of the file, so it documents nothing")]
    FileDocNotAtTop,
    /// A name, and `(` on a later line: this is a call.
    #[error(
        "this is a call of `{callee}`, although its `(` stands on a later line: line ends mean \
            nothing"
    )]
    CallOverLines {
        /// The name.
        callee: String,
    },
}

impl From<WordError> for SyntaxError {
    fn from(error: WordError) -> SyntaxError {
        SyntaxError {
            help: error.help,
            ..SyntaxError::new(SyntaxErrorKind::Word { message: error.message }, error.span)
        }
    }
}

/// A character as a message shows it: one that cannot be seen by its escape.
fn shown(character: char) -> String {
    if character.is_ascii_graphic() {
        character.to_string()
    } else {
        character.escape_debug().to_string()
    }
}
