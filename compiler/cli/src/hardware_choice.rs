//! Which chip a file is compiled for: `--hardware`, or the file's own `hardware` line.

use std::path::{Path, PathBuf};

use shard_check::Diagnostic;
use shard_check::diagnostics::HardwareProblem;
use shard_cost::Hardware;
use shard_cost::hardware::BUILT_IN;
use shard_grammar::ast::HardwareRef;
use shard_grammar::{SourceFile, Span};

use crate::console::{Console, Outcome, Status};
use crate::input::read_text;

/// The chip of `--hardware NAME|FILE`.
pub(crate) fn from_command_line(name: &str, console: &mut Console) -> Outcome<Hardware> {
    if let Some(hardware) = Hardware::built_in(name) {
        return Ok(hardware);
    }
    if looks_like_a_path(name) || Path::new(name).exists() {
        return read_file(Path::new(name), console).map_err(|_| Status::Usage);
    }
    console.report(None, vec![unknown(name, None)]);
    Err(Status::Usage)
}

/// The chip of a source file's own line, if it has one.
pub(crate) fn from_source(
    file: &SourceFile,
    line: Option<&HardwareRef>,
    console: &mut Console,
) -> Outcome<Option<Hardware>> {
    match line {
        None => Ok(None),
        Some(HardwareRef::BuiltIn(name)) => match Hardware::built_in(&name.value) {
            Some(hardware) => Ok(Some(hardware)),
            None => {
                console.report(Some(file), vec![unknown(&name.value, Some(name.span))]);
                Err(Status::Wrong)
            }
        },
        Some(HardwareRef::Path(path)) => {
            read_file(&beside(&file.name, &path.value), console).map(Some).inspect_err(|_| {
                let problem = HardwareProblem::File {
                    path: path.value.clone(),
                    span: Some(path.span),
                    message: "see above".to_string(),
                };
                console.report(Some(file), vec![problem.into()]);
            })
        }
    }
}

/// The chip that IR text names: a built-in one, or a file.
pub(crate) fn from_plan(name: &str, file: &Path, console: &mut Console) -> Outcome<Hardware> {
    match Hardware::built_in(name) {
        Some(hardware) => Ok(hardware),
        None if looks_like_a_path(name) => read_file(&beside(&file.display().to_string(), name), console),
        None => {
            console.report(None, vec![unknown(name, None)]);
            Err(Status::Wrong)
        }
    }
}

/// Reports a name that no chip has.
pub(crate) fn report_unknown(name: &str, console: &mut Console) {
    console.report(None, vec![unknown(name, None)]);
}

/// Reports that no chip is named.
pub(crate) fn none(console: &mut Console) -> Status {
    console.report(None, vec![HardwareProblem::None { known: known() }.into()]);
    Status::Usage
}

fn looks_like_a_path(name: &str) -> bool {
    name.contains(['/', '\\']) || Path::new(name).extension().is_some_and(|e| e == "toml")
}

fn known() -> Vec<String> {
    BUILT_IN.iter().map(|chip| chip.name.to_string()).collect()
}

fn unknown(name: &str, span: Option<Span>) -> Diagnostic {
    HardwareProblem::Unknown { name: name.to_string(), span, known: known() }.into()
}

/// A path relative to the folder of a file.
fn beside(file: &str, path: &str) -> PathBuf {
    Path::new(file).parent().unwrap_or(Path::new("")).join(path)
}

fn read_file(path: &Path, console: &mut Console) -> Outcome<Hardware> {
    let file = read_text(path, console)?;
    Hardware::parse(&file.text).map_err(|error| {
        let problem = HardwareProblem::File { path: file.name.clone(), span: None, message: error.message.clone() };
        let mut found = Diagnostic::from(problem);
        let key = if error.key.is_empty() { "here".to_string() } else { format!("`{}`", error.key) };
        let span = Span::new(error.span.start, error.span.end);
        found.labels.push(shard_check::Label { span, text: key, primary: true });
        if let Some(text) = error.help {
            found.helps.insert(0, shard_check::Help { text, edits: Vec::new() });
        }
        console.report(Some(&file), vec![found]);
        Status::Wrong
    })
}
