//! Standard output for results, standard error for diagnostics.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

use shard_check::Diagnostic;
pub(crate) use shard_driver::host::problem;
use shard_driver::{Host, Named, Pass, Share};
pub(crate) use shard_driver::{Outcome, Status};
use shard_grammar::SourceFile;
use shard_report::InFile;
use shard_report::github::github;
use shard_report::json::diagnostics::diagnostics;
use shard_report::json::sarif::sarif;
use shard_report::printable::{escaped, escaped_but_colour};

use crate::args::{DisplayArgs, Format, ReportFormat, ResultFormat, SearchArgs, When};
use crate::input;
use crate::watch::Watch;

/// Where everything that is shown goes.
pub(crate) struct Console {
    /// How results are shown.
    pub(crate) format: Format,
    /// Results are shown as comma-separated values.
    pub(crate) csv: bool,
    /// How diagnostics are shown where they are the result.
    result_format: ReportFormat,
    error_format: ReportFormat,
    color: bool,
    /// Whether results are coloured, where a command colours them.
    pub(crate) result_color: bool,
    /// Diagnostics in other formats than text, which wait until the end: they are one document.
    waiting: Vec<(Option<SourceFile>, Vec<Diagnostic>)>,
    /// Whether diagnostics are printed to standard output as the result, even if there are none.
    as_result: bool,
    /// Whether diagnostics were drawn, so that an empty line comes before the next.
    said_something: bool,
    /// How long the command takes, and when its searches end.
    pub(crate) watch: Watch,
}

impl Console {
    pub(crate) fn new(display: &DisplayArgs, search: &SearchArgs) -> Console {
        let coloured = |is_terminal: bool| match display.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                    && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
                    && is_terminal
            }
        };
        Console {
            format: if display.format == ResultFormat::Json { Format::Json } else { Format::Text },
            csv: display.format == ResultFormat::Csv,
            result_format: match display.format {
                ResultFormat::Text | ResultFormat::Csv => ReportFormat::Text,
                ResultFormat::Json => ReportFormat::Json,
                ResultFormat::Github => ReportFormat::Github,
                ResultFormat::Sarif => ReportFormat::Sarif,
            },
            error_format: display.error_format,
            color: coloured(std::io::stderr().is_terminal()),
            result_color: coloured(std::io::stdout().is_terminal()),
            waiting: Vec::new(),
            as_result: false,
            said_something: false,
            watch: Watch::new(search, display.error_format == ReportFormat::Text),
        }
    }

    /// Whether results that draw from the source may be coloured: they go to standard output.
    pub(crate) fn colours_results(&self) -> bool {
        self.color && std::io::stdout().is_terminal()
    }

    /// Makes diagnostics the result of the command: in other formats than text they go to standard
    /// output.
    pub(crate) fn diagnostics_are_the_result(&mut self) {
        self.as_result = self.result_format != ReportFormat::Text;
    }

    /// Whether diagnostics, as the result, are for people.
    pub(crate) fn result_is_text(&self) -> bool {
        self.result_format == ReportFormat::Text
    }

    /// Refuses the formats that only diagnostics have, where they are not the result.
    pub(crate) fn require_a_format_of_results(&mut self) -> Outcome {
        match self.result_format {
            ReportFormat::Text | ReportFormat::Json => Ok(()),
            ReportFormat::Github | ReportFormat::Sarif => {
                let message = "`--format github` and `--format sarif` are for diagnostics: \
                    `check` and `snapshot` have them";
                let help = "--error-format takes them with every command".to_string();
                Err(self.usage(message, Some(help)))
            }
        }
    }

    /// Refuses comma-separated values, where results are no table.
    pub(crate) fn require_no_csv(&mut self) -> Outcome {
        if self.csv {
            Err(self.usage(
                "`--format csv` is for tables: `sweep` has it",
                Some("--format json".to_string()),
            ))
        } else {
            Ok(())
        }
    }

    /// Prints a result.
    pub(crate) fn result(&mut self, text: &str) -> Outcome {
        self.watch.quiet();
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            // The reader has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(error) => {
                self.usage(&format!("cannot write to standard output: {error}"), None);
                Err(Status::Usage)
            }
        }
    }

    /// Prints a result for people: what a terminal would take as a command is escaped.
    pub(crate) fn people(&mut self, text: &str) -> Outcome {
        self.result(&shown(text, self.result_color))
    }

    /// Reports what was found in a file (or, without one, around it).
    pub(crate) fn report(&mut self, file: Option<&SourceFile>, found: Vec<Diagnostic>) {
        if found.is_empty() {
            return;
        }
        if self.as_result || self.error_format != ReportFormat::Text {
            self.waiting.push((file.cloned(), found));
            return;
        }
        self.watch.quiet();
        let nowhere = SourceFile::new("", "");
        let text = shard_report::draw::diagnostics(&found, file.unwrap_or(&nowhere), self.color);
        write_stderr(if self.said_something { "\n" } else { "" });
        write_stderr(&shown(&text, self.color));
        self.said_something = true;
    }

    /// Reports wrong usage or unreadable input.
    pub(crate) fn usage(&mut self, message: &str, help: Option<String>) -> Status {
        Host::usage(self, message, help)
    }

    /// Prints the diagnostics that wait, and the timings.
    pub(crate) fn finish(mut self) -> Outcome {
        let mut outcome = Ok(());
        if std::mem::take(&mut self.as_result) {
            let found = std::mem::take(&mut self.waiting);
            outcome = self.result(&document(self.result_format, &in_files(&found)));
        }
        // Diagnostics that wait now say that the result could not be printed, or are no result.
        if !self.waiting.is_empty() {
            write_stderr(&document(self.error_format, &in_files(&self.waiting)));
        }
        write_stderr(&self.watch.timings());
        outcome
    }
}

/// Prints the text that a command line asks for in place of a command: `--help` and `--version`.
pub(crate) fn print(text: &clap::Error) -> Outcome {
    match text.print().and_then(|()| std::io::stdout().flush()) {
        Err(error) if text.exit_code() == 0 && error.kind() != ErrorKind::BrokenPipe => {
            write_stderr(&format!("error: cannot write to standard output: {error}\n"));
            Err(Status::Usage)
        }
        // Where nobody reads standard error there is nothing left to say.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn in_files(waiting: &[(Option<SourceFile>, Vec<Diagnostic>)]) -> Vec<InFile<'_>> {
    waiting.iter().map(|(file, list)| (file.as_ref(), list.as_slice())).collect()
}

impl Host for Console {
    fn report(&mut self, file: Option<&SourceFile>, found: Vec<Diagnostic>) {
        self.report(file, found);
    }

    fn begin(&mut self, pass: &'static str, what: String, share: Share) -> Box<dyn Pass> {
        Box::new(self.watch.begin(pass, what, share))
    }

    fn read(&mut self, path: &Path, by: Named) -> Result<SourceFile, String> {
        input::read_named(path, by)
    }

    fn is_there(&mut self, path: &Path) -> bool {
        path.exists()
    }
}

fn document(format: ReportFormat, files: &[InFile<'_>]) -> String {
    match format {
        ReportFormat::Github => github(files),
        ReportFormat::Sarif => sarif(files),
        // Text is drawn at once and never waits.
        ReportFormat::Text | ReportFormat::Json => diagnostics(files),
    }
}

/// A text as a terminal may get it.
fn shown(text: &str, coloured: bool) -> Cow<'_, str> {
    if coloured { escaped_but_colour(text) } else { escaped(text) }
}

fn write_stderr(text: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
