//! One case, measured in a process of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use shard_cost::Hardware;
use shard_ir::{Def, Program};
use shard_search::{LowerOptions, Lowered, Proof, Status, lower};

use crate::cases::{CHIP, Case};
use crate::plan_space::PlanSpace;

/// A case with its figures, or why it has none.
pub(crate) struct Measured<'a> {
    pub(crate) case: &'a Case,
    pub(crate) figures: Result<Figures, String>,
}

impl Measured<'_> {
    /// The time in milliseconds.
    pub(crate) fn milliseconds(&self) -> Option<f64> {
        self.figures.as_ref().ok().map(Figures::milliseconds)
    }

    /// Whether the mark, if there is one, is met.
    pub(crate) fn meets_mark(&self) -> Option<bool> {
        self.case.mark.map(|mark| self.milliseconds().is_some_and(|time| time <= mark))
    }
}

/// The figures of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Ops of the program.
    pub(crate) ops: u64,
    /// The whole plan space.
    pub(crate) layouts: u64,
    pub(crate) strategies: u64,
    pub(crate) moves: u64,
    /// What the search made e-classes and e-nodes of, and the states that it expanded.
    pub(crate) classes: u64,
    pub(crate) nodes: u64,
    pub(crate) expansions: u64,
    /// Times in nanoseconds: the fastest run, what a run was on the processor on average, and the
    /// first run of the process.
    pub(crate) fastest: u64,
    pub(crate) on_cpu: u64,
    pub(crate) first: u64,
    pub(crate) runs: u64,
    /// The most memory that the process held by the end of its first run, in KiB.
    pub(crate) peak: u64,
    /// The plan's time in picoseconds, and 2, 1 or 0: proven by certificate, proven by search,
    /// bounded.
    pub(crate) cost: u64,
    pub(crate) proof: u64,
}

impl Figures {
    fn fields(&mut self) -> [(&'static str, &mut u64); 14] {
        [
            ("ops", &mut self.ops),
            ("layouts", &mut self.layouts),
            ("strategies", &mut self.strategies),
            ("moves", &mut self.moves),
            ("classes", &mut self.classes),
            ("nodes", &mut self.nodes),
            ("expansions", &mut self.expansions),
            ("fastest", &mut self.fastest),
            ("on_cpu", &mut self.on_cpu),
            ("first", &mut self.first),
            ("runs", &mut self.runs),
            ("peak", &mut self.peak),
            ("cost", &mut self.cost),
            ("proof", &mut self.proof),
        ]
    }

    /// A line a figure.
    pub(crate) fn to_text(&self) -> String {
        self.clone().fields().into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn from_text(text: &str) -> Option<Figures> {
        let mut figures = Figures::default();
        for (name, value) in figures.fields() {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
            *value = line.parse().ok()?;
        }
        Some(figures)
    }

    pub(crate) fn milliseconds(&self) -> f64 {
        self.fastest as f64 / 1e6
    }
}

/// Measures a case in a new process of this program.
pub(crate) fn measure(case: &Case) -> Result<Figures, String> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new(this)
        .args(["--measure-here", &case.name])
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A panic says where on its first line, and what on the next.
    let complaint = String::from_utf8_lossy(&output.stderr);
    let why = || {
        complaint
            .lines()
            .skip_while(|l| !l.contains("panicked"))
            .nth(1)
            .unwrap_or("no figures")
            .to_string()
    };
    Figures::from_text(&text).ok_or_else(why)
}

/// Measures a case in this process.
pub(crate) fn measure_here(case: &Case) -> Figures {
    let program = case.program();
    let start = Instant::now();
    let lowered = search(&program);
    let first = start.elapsed();
    let peak = peak_memory();
    let most = if case.slow { Duration::from_secs(20) } else { Duration::from_secs(1) };
    let before = time_on_cpu();
    let (again, runs) = fastest(4, most, || {
        let start = Instant::now();
        drop(std::hint::black_box(search(&program)));
        start.elapsed()
    });
    let on_cpu = (time_on_cpu() - before) / runs;
    let space = PlanSpace::of(&program);
    let nanoseconds = |d: Duration| d.as_nanos() as u64;
    Figures {
        ops: program.values.iter().filter(|v| matches!(v.def, Def::Op { .. })).count() as u64,
        layouts: space.layouts,
        strategies: space.strategies,
        moves: space.moves,
        classes: lowered.stats.classes as u64,
        nodes: lowered.stats.nodes as u64,
        expansions: lowered.stats.expansions as u64,
        fastest: nanoseconds(again.min(first)),
        on_cpu,
        first: nanoseconds(first),
        runs: runs + 1,
        peak,
        cost: lowered.optimality.cost.0,
        proof: match (lowered.optimality.status, lowered.optimality.proof) {
            (Status::Proven, Some(Proof::Certificate)) => 2,
            (Status::Proven, _) => 1,
            (Status::Bounded, _) => 0,
        },
    }
}

/// Kernels, bounds, e-graph, extraction and proof.
fn search(program: &Program) -> Lowered {
    let hardware = Hardware::built_in(CHIP).unwrap_or_else(|| panic!("{CHIP} is built in"));
    // Activations of many dims are too large for a chip; it is the search that is measured.
    lower(program, &hardware, &LowerOptions { any_size: true, ..LowerOptions::default() })
        .unwrap_or_else(|error| panic!("{}: {error}", program.name))
}

/// The fastest of at least so many runs, more of them while there is time, and how many there were.
pub(crate) fn fastest(
    at_least: u64,
    most: Duration,
    mut run: impl FnMut() -> Duration,
) -> (Duration, u64) {
    let start = Instant::now();
    let (mut best, mut runs) = (Duration::MAX, 0);
    while runs < at_least || (start.elapsed() < most && runs < 1000) {
        best = best.min(run());
        runs += 1;
    }
    (best, runs)
}

/// The most memory that this process ever held, in KiB; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// How long this process, which has one thread, has been on a processor, in nanoseconds: what
/// others do there does not count. The system brings it up to date every few milliseconds only.
fn time_on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
