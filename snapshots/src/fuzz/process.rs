//! Running the binary.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The binary under test, and a folder of its own to run it in.
#[derive(Clone, Debug)]
pub struct Shardc {
    /// The binary.
    pub program: PathBuf,
    /// Arguments in front of the command line, with which the binary acts as `shardc`.
    pub first: Option<String>,
    /// The folder.
    pub folder: PathBuf,
    /// How long a command line may take; without limit for `None`.
    pub patience: Option<Duration>,
}

/// The text of an internal error in each of the formats.
const INTERNAL: &[&str] = &[
    "error[E0901]",
    "\"code\": \"E0901\"",
    "\"ruleId\": \"E0901\"",
    "title=E0901",
    "internal error of the interpreter",
];

/// A command line that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// 0, 1 or 2.
    pub(super) status: i32,
    pub(super) out: Vec<u8>,
    pub(super) err: String,
}

impl Shardc {
    /// The path of a file of a case.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file where the command line will find it.
    pub(super) fn put(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let path = self.path(name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|e| e.to_string())?;
        std::fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Runs a command line. It ends by itself, with one of the three statuses, and nothing panics
    /// on the way.
    pub(super) fn run(&self, arguments: &[&str], input: &[u8]) -> Result<Ended, String> {
        let (code, out, err) =
            self.spawn(arguments, input).map_err(|error| format!("cannot be run: {error}"))?;
        let err = String::from_utf8(err).map_err(|_| "standard error is no UTF-8")?;
        let said = || format!("{arguments:?}\n{}", err.chars().take(2000).collect::<String>());
        match code {
            Some(status @ 0..=2) if err.contains("panicked at") => {
                Err(format!("a thread panicked, status {status}: {}", said()))
            }
            Some(0..=2) if INTERNAL.iter().any(|mark| err.contains(mark)) => {
                Err(format!("an internal error: {}", said()))
            }
            Some(status @ 0..=2) => Ok(Ended { status, out, err }),
            Some(status) => Err(format!("status {status}: {}", said())),
            None => Err(format!("ended by a signal, or too slow: {}", said())),
        }
    }

    fn spawn(
        &self,
        arguments: &[&str],
        input: &[u8],
    ) -> std::io::Result<(Option<i32>, Vec<u8>, Vec<u8>)> {
        std::fs::create_dir_all(&self.folder)?;
        let mut child = Command::new(&self.program)
            .args(&self.first)
            .args(arguments)
            .current_dir(&self.folder)
            .env_remove("NO_COLOR")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (to, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let ended_by = self.patience.map(|patience| Instant::now() + patience);
        std::thread::scope(|scope| {
            // A command that does not read its input may have ended already.
            scope.spawn(move || to.map(|mut to| to.write_all(input)));
            let (out, err) = (scope.spawn(|| all(out)), scope.spawn(|| all(err)));
            if let Some(end) = ended_by {
                while child.try_wait()?.is_none() {
                    if Instant::now() > end {
                        child.kill()?;
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            let code = child.wait()?.code();
            let read = |thread: std::thread::ScopedJoinHandle<'_, Vec<u8>>| {
                thread.join().unwrap_or_default()
            };
            Ok((code, read(out), read(err)))
        })
    }
}

fn all(from: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // After a read error, the output is what was read before it.
    let _ = from.map(|mut from| from.read_to_end(&mut bytes));
    bytes
}
