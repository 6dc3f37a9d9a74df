//! `shardc explain FILE` from start to end, beside the search alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cases::Case;
use crate::measure::{Figures, fastest};

/// `shardc explain` of a case.
pub(crate) struct Process {
    pub(crate) name: String,
    /// In milliseconds: the whole process, the same without a search (`shardc check`), the search in a warm process and in
    /// a fresh one.
    pub(crate) explain: f64,
    pub(crate) check: f64,
    pub(crate) warm: f64,
    pub(crate) fresh: f64,
}

/// The cases of one block on three axes.
const BLOCKS: [&str; 4] = ["palm_decode", "palm_prefill", "llama_decode", "llama_prefill"];

pub(crate) fn explain_as_a_process(measured: &[(&Case, Figures)]) -> Vec<Process> {
    let Some(shardc) = built() else {
        eprintln!("shardc was not built: `shardc explain` is not measured");
        return Vec::new();
    };
    let blocks = measured.iter().filter(|(case, _)| BLOCKS.contains(&case.name.as_str()));
    blocks
        .filter_map(|(case, figures)| {
            let file = std::env::temp_dir().join(format!("shardc-bench-{}-{}.shard", std::process::id(), case.name));
            std::fs::write(&file, &case.text).ok()?;
            let process = Process {
                name: case.name.clone(),
                explain: milliseconds(&shardc, "explain", &file),
                check: milliseconds(&shardc, "check", &file),
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

fn milliseconds(shardc: &Path, command: &str, file: &Path) -> f64 {
    let run = || {
        let start = Instant::now();
        let mut process = Command::new(shardc);
        let status = process.arg(command).arg(file).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.is_ok_and(|s| s.success()), "shardc {command} {}", file.display());
        start.elapsed()
    };
    fastest(20, Duration::from_secs(2), run).0.as_secs_f64() * 1e3
}
