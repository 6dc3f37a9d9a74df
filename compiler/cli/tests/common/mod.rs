//! Running the binary.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
#[allow(dead_code)] // not every test file needs every way to run it
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
#[allow(dead_code)]
pub fn text(file: &str) -> String {
    std::fs::read_to_string(files().join(file)).expect("a test file")
}

/// What a function makes of each item, in their order; each core takes an item as soon as it is done
/// with one.
#[allow(dead_code)] // see above
pub fn on_all_cores<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = act(item);
            made.lock().expect("no thread failed").push((at, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut made = made.into_inner().expect("no thread failed");
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, result)| result).collect()
}
