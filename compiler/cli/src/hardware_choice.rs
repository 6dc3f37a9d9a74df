//! Which chip a file is compiled for: `--hardware`, or the file's own `hardware` line.

use std::path::{Path, PathBuf};

use shard_check::diagnostics::HardwareProblem;
use shard_check::{Diagnostic, Help, Label};
use shard_cost::hardware::BUILT_IN;
use shard_cost::{Hardware, HardwareError};
use shard_grammar::ast::HardwareRef;
use shard_grammar::{SourceFile, Span};

use crate::console::{Console, Outcome, Status};
use crate::input;

/// The chip of `--hardware NAME|FILE`.
pub(crate) fn from_command_line(name: &str, console: &mut Console) -> Outcome<Hardware> {
    if let Some(hardware) = Hardware::built_in(name) {
        return Ok(hardware);
    }
    if looks_like_a_path(name) || Path::new(name).exists() {
        return load(Path::new(name)).map_err(|error| {
            error.report(console);
            Status::Usage
        });
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
        Some(HardwareRef::Path(path)) => match load(&beside(&file.name, &path.value)) {
            Ok(hardware) => Ok(Some(hardware)),
            Err(LoadError::Unreadable { why, .. }) => {
                let (name, span) = (path.value.clone(), Some(path.span));
                console.report(Some(file), vec![HardwareProblem::File { path: name, span, message: why }.into()]);
                Err(Status::Usage)
            }
            Err(error @ LoadError::Wrong(_)) => {
                error.report(console);
                Err(Status::Wrong)
            }
        },
    }
}

/// The hardware file that a source file is compiled with, as text: `--hardware`, or the file's own line. It was read before.
pub(crate) fn text(named: Option<&str>, file: &SourceFile, console: &mut Console) -> Outcome<String> {
    let tree = shard_grammar::parse(file).file;
    let (name, path) = match (named, tree.hardware().next().map(|line| &line.chip)) {
        (Some(name), _) => (name.to_string(), PathBuf::from(name)),
        (None, Some(HardwareRef::BuiltIn(name))) => (name.value.clone(), PathBuf::new()),
        (None, Some(HardwareRef::Path(path))) => (String::new(), beside(&file.name, &path.value)),
        (None, None) => return Err(none(console)),
    };
    match BUILT_IN.iter().find(|chip| chip.name == name) {
        Some(chip) => Ok(chip.text.to_string()),
        None => input::read_text(&path, console).map(|file| file.text),
    }
}

/// The chip that IR text names: a built-in one, or a file.
pub(crate) fn from_plan(name: &str, file: &Path, console: &mut Console) -> Outcome<Hardware> {
    match Hardware::built_in(name) {
        Some(hardware) => Ok(hardware),
        None if looks_like_a_path(name) => load(&beside(&file.display().to_string(), name)).map_err(|error| {
            error.report(console);
            Status::Wrong
        }),
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

/// Why a hardware file gives no hardware.
enum LoadError {
    Unreadable { path: String, why: String },
    Wrong(Box<(SourceFile, HardwareError)>),
}

fn load(path: &Path) -> Result<Hardware, LoadError> {
    let unreadable = |why| LoadError::Unreadable { path: path.display().to_string(), why };
    let file = input::read(path).map_err(unreadable)?;
    Hardware::parse(&file.text).map_err(|error| LoadError::Wrong(Box::new((file, error))))
}

impl LoadError {
    /// Reports the error, over the text of the hardware file where there is one.
    fn report(self, console: &mut Console) {
        match self {
            LoadError::Unreadable { path, why } => {
                console.report(None, vec![HardwareProblem::File { path, span: None, message: why }.into()]);
            }
            LoadError::Wrong(wrong) => {
                let (file, error) = *wrong;
                let path = file.name.clone();
                let mut found = Diagnostic::from(HardwareProblem::File { path, span: None, message: error.message });
                let text = if error.key.is_empty() { "here".to_string() } else { format!("`{}`", error.key) };
                let span = Span::new(error.span.start, error.span.end);
                found.labels.push(Label { span, text, primary: true });
                found.helps =
                    error.help.into_iter().map(|text| Help { text, edits: Vec::new() }).chain(found.helps).collect();
                console.report(Some(&file), vec![found]);
            }
        }
    }
}
