//! Errors and warnings of the parser as diagnostics, in the words of the grammar crate.

use shard_grammar::{SyntaxError, SyntaxErrorKind, SyntaxWarning, SyntaxWarningKind};

use crate::diagnostic::{Diagnostic, Edit, Help};

impl From<&SyntaxError> for Diagnostic {
    fn from(error: &SyntaxError) -> Diagnostic {
        let (code, here) = code(&error.kind);
        let mut out = Diagnostic::error(code, error.message()).at(error.span, here);
        if let SyntaxErrorKind::NoSuchOperator { .. } | SyntaxErrorKind::NoSuchOperation { .. } =
            &error.kind
        {
            out = out.note(format!("operations: {}", *shard_grammar::OPERATIONS));
        }
        if let Some(note) = &error.note {
            out = out.also(note.span, note.text.clone());
        }
        match help(error.help.as_ref(), error.fix.as_deref()) {
            Some(help) => out.helps.push(help),
            None => out = out.help(usual_form(&error.kind)),
        }
        out
    }
}

impl From<&SyntaxWarning> for Diagnostic {
    fn from(warning: &SyntaxWarning) -> Diagnostic {
        let (code, here) = match warning.kind {
            SyntaxWarningKind::DocOfNothing => ("W0101", "documents nothing"),
            SyntaxWarningKind::FileDocNotAtTop => ("W0101", "not at the top"),
            SyntaxWarningKind::CallOverLines { .. } => ("W0102", "read as one call"),
        };
        let mut out = Diagnostic::warning(code, warning.to_string()).at(warning.span, here);
        out.helps.extend(help(warning.help.as_ref(), warning.fix.as_ref()));
        out
    }
}

fn help(text: Option<&String>, fix: Option<&shard_grammar::Fix>) -> Option<Help> {
    let edits: Vec<Edit> = fix
        .iter()
        .map(|fix| Edit { span: fix.span, replacement: fix.replacement.clone() })
        .collect();
    match (text, fix) {
        (Some(text), _) => Some(Help { text: text.clone(), edits }),
        (None, Some(fix)) if fix.replacement.is_empty() => {
            Some(Help { text: "remove it".to_string(), edits })
        }
        (None, Some(fix)) => Some(Help { text: fix.replacement.clone(), edits }),
        (None, None) => None,
    }
}

/// What usually stands at such a place, for an error without a help of its own.
fn usual_form(kind: &SyntaxErrorKind) -> &'static str {
    use SyntaxErrorKind::*;
    match kind {
        Unexpected { .. }
        | StrangeCharacter { .. }
        | OtherComment { .. }
        | MisspeltKeyword { .. }
        | StraySemicolon => {
            "a file is made of `hardware`, `mesh`, `dim`, `phase` and `layer`; a layer of `let` \
                and `return`"
        }
        Unclosed { .. } | Unopened { .. } | UnclosedString => {
            "each bracket and quote needs its other end"
        }
        MalformedName { .. } | ReservedName { .. } | KeptForLater { .. } => "another name",
        UnknownDtype { .. } | MissingDtype => "one of f32 bf16 f16 f8 f4 int8 int4 int32 bool",
        Word { .. } => {
            "a layout is written like BLE_xyz, [Batch_{data}, Seq], BLF_y(partialsum-x) or BLE?l"
        }
        DimCount { .. } => {
            "one dim as several and back: split(a, H -> KG), merge(a, KG -> H); under another \
                name: rename(a, H -> K)"
        }
        NoSuchOperator { .. }
        | NoSuchOperation { .. }
        | NoIndexing
        | QuotedSubscripts
        | ReducesOverDims { .. } => &shard_grammar::OPERATIONS,
        NotWhole { .. } => "a number without a point",
        NumberTooLarge { .. } | TooManyDigits { .. } => "a smaller number",
        StatementOutsideLayer { .. } => "move it between the braces of a layer",
        FileTooLarge { .. } => "two files",
        NestedTooDeep | ExpressionTooLong => "name a part of it with `let`",
        NameTooLong => "a shorter name",
    }
}

/// The code of a syntax error, and the words at its place.
fn code(kind: &SyntaxErrorKind) -> (&'static str, &'static str) {
    use SyntaxErrorKind::*;
    match kind {
        Unexpected { .. } => ("E0101", "not expected here"),
        StrangeCharacter { .. } => ("E0101", "this character"),
        OtherComment { .. } => ("E0101", "comments start with `//`"),
        MisspeltKeyword { .. } => ("E0101", "this word"),
        StraySemicolon => ("E0101", "not needed"),
        Unclosed { .. } => ("E0102", "opened here"),
        Unopened { .. } => ("E0102", "closes nothing"),
        UnclosedString => ("E0102", "starts here"),
        MalformedName { .. } => ("E0103", "this name"),
        ReservedName { .. } => ("E0103", "a word of the language"),
        KeptForLater { .. } => ("E0103", "kept for later"),
        UnknownDtype { .. } => ("E0104", "no dtype"),
        MissingDtype => ("E0104", "a dtype belongs before it"),
        Word { .. } => ("E0105", "in this word"),
        DimCount { .. } => ("E0105", "two dims or more belong here"),
        NoSuchOperator { .. } => ("E0603", "no operator of the language"),
        NoSuchOperation { .. } => ("E0603", "no operation of the language"),
        NoIndexing => ("E0603", "no operator of the language"),
        QuotedSubscripts => ("E0101", "no string belongs here"),
        ReducesOverDims { .. } => ("E0101", "`over` and a dim belong in here"),
        NotWhole { .. } => ("E0106", "a whole number belongs here"),
        NumberTooLarge { .. } => ("E0106", "too large"),
        TooManyDigits { .. } => ("E0106", "too long"),
        StatementOutsideLayer { .. } => ("E0107", "not inside a layer"),
        FileTooLarge { .. } => ("E0108", "here"),
        NestedTooDeep => ("E0108", "one bracket too many"),
        ExpressionTooLong => ("E0108", "too long"),
        NameTooLong => ("E0108", "too long"),
    }
}
