//! [`Host`]: what the driver asks of its caller. The driver itself prints nothing, reads no file
//! and looks at no clock.

use std::path::Path;

use shard_check::diagnostics::InternalProblem;
use shard_check::{Diagnostic, Help, Severity};
use shard_grammar::SourceFile;
use shard_search::Stop;

/// Why a request ended without a result, the worse reason last. The problem has been reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Status {
    /// The program is wrong, or a check failed.
    Wrong,
    /// Wrong usage, or unreadable input.
    Usage,
}

/// The result of a request whose problems are reported on the way.
pub type Outcome<T = ()> = Result<T, Status>;

/// Who names a file that is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// The user: it may be any file, a pipe too.
    ByUser,
    /// Another file, which may be a stranger's: it must be a regular file.
    InFile,
}

/// A pass that goes on until it is dropped.
pub trait Pass {
    /// What ends its searches.
    fn stop(&self) -> Stop;
}

/// The part of the time left before a time limit that a pass may take, in searches of about equal
/// length: `part` of the `whole` that is to be searched from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The searches of the pass.
    pub part: usize,
    /// These and all that are to come after them.
    pub whole: usize,
}

impl Share {
    /// A pass that searches nothing, so that no limit ends it.
    pub const NONE: Share = Share { part: 0, whole: 1 };
    /// A pass that may take all the time that is left.
    pub const ALL: Share = Share { part: 1, whole: 1 };
}

/// Takes what is found, watches over passes, and reads files.
pub trait Host {
    /// Takes what was found in a file, or outside of any file.
    fn report(&mut self, file: Option<&SourceFile>, found: Vec<Diagnostic>);

    /// Begins a pass, which ends when the returned value is dropped. `what` names it to people.
    fn begin(&mut self, pass: &'static str, what: String, share: Share) -> Box<dyn Pass>;

    /// Reads a text file, or says why not.
    fn read(&mut self, path: &Path, by: Named) -> Result<SourceFile, String>;

    /// Whether there is such a file.
    fn is_there(&mut self, path: &Path) -> bool;

    /// Reports wrong usage or unreadable input.
    fn usage(&mut self, message: &str, help: Option<String>) -> Status {
        let helps = help.into_iter().map(|text| Help { text, edits: Vec::new() }).collect();
        self.report(None, vec![problem(message, helps)]);
        Status::Usage
    }
}

/// A diagnostic of a request itself: it has no code.
pub fn problem(message: &str, helps: Vec<Help>) -> Diagnostic {
    Diagnostic {
        code: "",
        severity: Severity::Error,
        message: message.to_string(),
        labels: Vec::new(),
        notes: Vec::new(),
        helps,
    }
}

/// Internal errors, one for each defect that a pass has noted since the last call; see
/// [`shard_ir::never`].
pub fn defects() -> Vec<Diagnostic> {
    let problem =
        |message| InternalProblem { pass: "an invariant".to_string(), message, span: None }.into();
    shard_ir::catalogue::defects::taken().into_iter().map(problem).collect()
}

/// How a [`Keeper`] reads files.
pub type Reader = fn(&Path, Named) -> Result<SourceFile, String>;

/// A host that keeps what is reported. By default it has no files, and its searches go on to their
/// end.
#[derive(Default)]
pub struct Keeper {
    /// What was reported, in order, each with the file that it is about.
    pub reported: Vec<(Option<SourceFile>, Vec<Diagnostic>)>,
    /// Ends the searches, when somebody asks it to.
    pub stop: Stop,
    /// Reads files; `None`: there are none.
    pub reader: Option<Reader>,
}

impl Keeper {
    /// What was reported of a file, or of none.
    pub fn of(self, file: &SourceFile) -> Vec<Diagnostic> {
        let of_file =
            |other: &Option<SourceFile>| other.as_ref().is_none_or(|other| other.name == file.name);
        self.reported
            .into_iter()
            .filter(|(other, _)| of_file(other))
            .flat_map(|(_, found)| found)
            .collect()
    }
}

/// A pass that nobody watches.
struct Unwatched(Stop);

impl Pass for Unwatched {
    fn stop(&self) -> Stop {
        self.0.clone()
    }
}

impl Host for Keeper {
    fn report(&mut self, file: Option<&SourceFile>, found: Vec<Diagnostic>) {
        if !found.is_empty() {
            self.reported.push((file.cloned(), found));
        }
    }

    fn begin(&mut self, _: &'static str, _: String, _: Share) -> Box<dyn Pass> {
        Box::new(Unwatched(self.stop.clone()))
    }

    fn read(&mut self, path: &Path, by: Named) -> Result<SourceFile, String> {
        match self.reader {
            Some(reader) => reader(path, by),
            None => Err("there are no files here".to_string()),
        }
    }

    fn is_there(&mut self, path: &Path) -> bool {
        self.reader.is_some_and(|reader| reader(path, Named::ByUser).is_ok())
    }
}
