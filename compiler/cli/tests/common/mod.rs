//! Running the binary.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What one command line did.
#[derive(Debug)]
pub struct Ran {
    /// The exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The binary, in the folder of the test files.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardc"));
    command.args(args).current_dir(files()).env_remove("NO_COLOR");
    command
}

/// The folder of the test files.
pub fn files() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

/// Runs a command line with nothing on standard input.
pub fn shardc(args: &[&str]) -> Ran {
    fed(args, "")
}

/// Runs a command line with a text on standard input.
pub fn fed(args: &[&str], input: &str) -> Ran {
    let mut child = command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that does not read its input may have ended already.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    ran(child.wait_with_output().expect("the binary ends"))
}

/// An ended process as text.
pub fn ran(output: Output) -> Ran {
    Ran {
        status: output.status.code().expect("not ended by a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The text of a test file.
pub fn text(file: &str) -> String {
    std::fs::read_to_string(files().join(file)).expect("a test file")
}
