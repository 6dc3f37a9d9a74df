//! Which chip a file is compiled for: `--hardware`, or the file's own `hardware` line.

use std::path::{Path, PathBuf};

use shard_check::diagnostics::HardwareProblem;
use shard_check::{Diagnostic, Edit, Help, Label, names};
use shard_cost::hardware::{BUILT_IN, SliceProblem};
use shard_cost::{Hardware, HardwareError};
use shard_grammar::ast::HardwareRef;
use shard_grammar::{SourceFile, Span};

use crate::host::{Host, Named, Outcome, Status};

/// The chip of `--hardware NAME|FILE`.
pub fn from_command_line(name: &str, host: &mut dyn Host) -> Outcome<Hardware> {
    if let Some(hardware) = Hardware::built_in(name) {
        return Ok(hardware);
    }
    if looks_like_a_path(name) || host.is_there(Path::new(name)) {
        return load(Path::new(name), Named::ByUser, host).map_err(|error| {
            error.report(host);
            Status::Usage
        });
    }
    host.report(None, vec![unknown(name, None)]);
    Err(Status::Usage)
}

/// The chip of a source file's own line, if it has one.
pub fn from_source(
    file: &SourceFile,
    line: Option<&HardwareRef>,
    host: &mut dyn Host,
) -> Outcome<Option<Hardware>> {
    match line {
        None => Ok(None),
        Some(HardwareRef::BuiltIn(name)) => match Hardware::built_in(&name.value) {
            Some(hardware) => Ok(Some(hardware)),
            None => {
                host.report(Some(file), vec![unknown(&name.value, Some(name.span))]);
                Err(Status::Wrong)
            }
        },
        Some(HardwareRef::Path(path)) => {
            match load(&beside(&file.name, &path.value), Named::InFile, host) {
                Ok(hardware) => Ok(Some(hardware)),
                Err(LoadError::Unreadable { why, .. }) => {
                    let (name, span) = (path.value.clone(), Some(path.span));
                    let built_in = Hardware::built_in(&name).is_some().then(|| name.clone());
                    let problem =
                        HardwareProblem::File { path: name, span, message: why, built_in };
                    host.report(Some(file), vec![problem.into()]);
                    Err(Status::Usage)
                }
                Err(error @ LoadError::Wrong(..)) => {
                    error.report(host);
                    Err(Status::Wrong)
                }
            }
        }
    }
}

/// The text of the hardware file that a source file is compiled with: that of `--hardware`, or of
/// the file's own line. It was read before, and is right.
pub fn text(named: Option<&str>, file: &SourceFile, host: &mut dyn Host) -> Outcome<String> {
    let tree = shard_grammar::parse(file).file;
    let (name, path, by) = match (named, tree.hardware().next().map(|line| &line.chip)) {
        (Some(name), _) => (name.to_string(), PathBuf::from(name), Named::ByUser),
        (None, Some(HardwareRef::BuiltIn(name))) => {
            (name.value.clone(), PathBuf::new(), Named::InFile)
        }
        (None, Some(HardwareRef::Path(path))) => {
            (String::new(), beside(&file.name, &path.value), Named::InFile)
        }
        (None, None) => return Err(none(host)),
    };
    match BUILT_IN.iter().find(|chip| chip.name == name) {
        Some(chip) => Ok(chip.text.to_string()),
        None => host
            .read(&path, by)
            .map(|file| file.text)
            .map_err(|why| host.usage(&format!("cannot read `{}`: {why}", path.display()), None)),
    }
}

/// The chip that IR text names: a built-in one, or a file.
pub fn from_plan(name: &str, file: &Path, host: &mut dyn Host) -> Outcome<Hardware> {
    match Hardware::built_in(name) {
        Some(hardware) => Ok(hardware),
        None if looks_like_a_path(name) => {
            load(&beside(&file.display().to_string(), name), Named::InFile, host).map_err(|error| {
                error.report(host);
                Status::Wrong
            })
        }
        None => {
            host.report(None, vec![unknown(name, None)]);
            Err(Status::Wrong)
        }
    }
}

/// Reports a name that no chip has.
pub fn report_unknown(name: &str, host: &mut dyn Host) {
    host.report(None, vec![unknown(name, None)]);
}

/// Reports that no chip is named.
pub fn none(host: &mut dyn Host) -> Status {
    host.report(None, vec![HardwareProblem::None { known: known() }.into()]);
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
    Wrong(SourceFile, Vec<HardwareError>),
}

fn load(path: &Path, by: Named, host: &mut dyn Host) -> Result<Hardware, LoadError> {
    let unreadable = |why| LoadError::Unreadable { path: path.display().to_string(), why };
    let file = host.read(path, by).map_err(unreadable)?;
    Hardware::read(&file.text).map_err(|errors| LoadError::Wrong(file, errors))
}

impl LoadError {
    /// Reports what is wrong, over the text of the hardware file where there is one.
    fn report(self, host: &mut dyn Host) {
        match self {
            LoadError::Unreadable { path, why } => {
                host.report(
                    None,
                    vec![
                        HardwareProblem::File { path, span: None, message: why, built_in: None }
                            .into(),
                    ],
                );
            }
            LoadError::Wrong(file, errors) => {
                // A file that does not look like a hardware file may be anything, and is not shown:
                // a stranger's program can name any file, and a log may be public.
                match unseen(&file, &errors) {
                    Some(problem) => host.report(None, vec![problem]),
                    None => {
                        let found = errors.into_iter().map(|error| wrong(&file, error)).collect();
                        host.report(Some(&file), found);
                    }
                }
            }
        }
    }
}

/// Why a file is no hardware file at all, told by places and without its text; `None` where it
/// looks like one.
fn unseen(file: &SourceFile, errors: &[HardwareError]) -> Option<Diagnostic> {
    let has = |key: &str| errors.iter().any(|error| error.key == key);
    let message = match errors.iter().find(|error| error.key.is_empty()) {
        Some(error) => {
            let place = file.line_column(error.span.start);
            format!("line {}, column {}: {}", place.line, place.column, error.message)
        }
        None if has("chip") && has("network") => {
            "it has neither a table `[chip]` nor a table `[network]`".to_string()
        }
        None => return None,
    };
    Some(
        HardwareProblem::File { path: file.name.clone(), span: None, message, built_in: None }
            .into(),
    )
}

/// One thing that is wrong with a hardware file.
fn wrong(file: &SourceFile, error: HardwareError) -> Diagnostic {
    let path = file.name.clone();
    let mut found = Diagnostic::from(HardwareProblem::File {
        path,
        span: None,
        message: error.message,
        built_in: None,
    });
    let text = if error.key.is_empty() { "here".to_string() } else { format!("`{}`", error.key) };
    let span = Span::new(error.span.start, error.span.end);
    found.labels.push(Label { span, text, primary: true });
    let written = file.text.get(error.span).unwrap_or_default();
    let near = names::nearest(written, error.known.iter().map(String::as_str)).map(|near| Help {
        text: near.to_string(),
        edits: vec![Edit { span, replacement: near.to_string() }],
    });
    let own = error.help.map(|text| Help { text, edits: Vec::new() });
    found.helps = near.into_iter().chain(own).chain(found.helps).collect();
    found
}

/// What is wrong with the slice of a chip that a mesh needs: a warning where the chip does not come
/// in slices of this shape, an error where no mesh of this shape can be built.
pub fn slices(
    hardware: &Hardware,
    mesh: &shard_ir::Mesh,
    line: Option<Span>,
) -> Option<Diagnostic> {
    let (chip, span) = (hardware.name.clone(), line);
    let nearest = || hardware.nearest_slice(mesh).map(|mesh| mesh.declared().to_vec());
    Some(match hardware.slice_problem(mesh)? {
        SliceProblem::Fold { axis, size, torus } => {
            HardwareProblem::Fold { axis, size, torus, chip, span }.into()
        }
        SliceProblem::Pod { shape, pod, fold } => HardwareProblem::NoSuchSlice {
            chip,
            shape,
            reason: format!("its largest slice is {}", times(&pod)),
            fold,
            nearest: nearest(),
            span,
        }
        .into(),
        SliceProblem::Cubes { shape } => HardwareProblem::NoSuchSlice {
            chip,
            shape,
            reason: "a slice is part of one 4x4x4 cube, or made of whole cubes: each axis a \
                multiple of 4"
                .to_string(),
            fold: None,
            nearest: nearest(),
            span,
        }
        .into(),
        SliceProblem::Face { shape } => {
            let faced = format!("{chip}-face");
            let faced = Hardware::built_in(&faced).map(|_| faced);
            HardwareProblem::Face { chip, shape, faced, span }.into()
        }
        SliceProblem::Straddles { axis, node, fits, inside } => {
            HardwareProblem::Straddles { axis, node, fits, inside, chip, span }.into()
        }
    })
}

/// `16x20x28`.
fn times(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}
