//! `shardc explain FILE` from start to end, beside the search alone.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{Measured, fastest};

/// `shardc explain` of a case.
pub(crate) struct Process {
    pub(crate) name: String,
    /// In milliseconds: the whole process, a process that does nothing (`shardc --version`), the
    /// search in a warm process and in a fresh one.
    pub(crate) explain: f64,
    pub(crate) start: f64,
    pub(crate) warm: f64,
    pub(crate) fresh: f64,
}

/// The cases of one block on three axes, and a chain.
const PROCESSES: [&str; 5] =
    ["palm_decode", "palm_prefill", "llama_decode", "llama_prefill", "chain_64"];

pub(crate) fn explain_as_a_process(measured: &[Measured<'_>]) -> Vec<Process> {
    let Some(shardc) = built() else {
        eprintln!("shardc was not built: `shardc explain` is not measured");
        return Vec::new();
    };
    let whole = measured.iter().filter(|m| PROCESSES.contains(&m.case.name.as_str()));
    whole
        .filter_map(|m| {
            let (case, figures) = (m.case, m.figures.as_ref().ok()?);
            let file = std::env::temp_dir().join(format!(
                "shardc-bench-{}-{}.shard",
                std::process::id(),
                case.name
            ));
            std::fs::write(&file, &case.text).ok()?;
            let process = Process {
                name: case.name.clone(),
                explain: milliseconds(Command::new(&shardc).arg("explain").arg(&file)),
                start: milliseconds(Command::new(&shardc).arg("--version")),
                warm: figures.milliseconds(),
                fresh: figures.first as f64 / 1e6,
            };
            std::fs::remove_file(&file).ok()?;
            Some(process)
        })
        .collect()
}

/// `shardc`, built as this program was.
fn built() -> Option<PathBuf> {
    let this = std::env::current_exe().ok()?;
    let release = this.parent()?.parent()?;
    let build = ["build", "--release", "--quiet", "-p", "shardc", "--target-dir"];
    let status = Command::new(env!("CARGO")).args(build).arg(release.parent()?).status().ok()?;
    let shardc = release.join("shardc");
    (status.success() && shardc.exists()).then_some(shardc)
}

fn milliseconds(command: &mut Command) -> f64 {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let run = || {
        let start = Instant::now();
        let status = command.status();
        let took = start.elapsed();
        assert!(status.is_ok_and(|s| s.success()), "{command:?}");
        took
    };
    fastest(20, Duration::from_secs(2), run).0.as_secs_f64() * 1e3
}
