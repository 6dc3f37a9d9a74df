//! The measurements, as lines of output and as a section of `spec/performance.md`.

use std::fmt::Write;
use std::time::Duration;

use shard_search::Proof;

use crate::limits::Needs;
use crate::measure::{NoPlan, Searched};
use crate::programs::GridProgram;
use crate::sample::Limit;

/// The marks: the least part of the cases that is proven, the widest gap, and the longest search,
/// as a multiple of the search without a limit (at least `FLOOR`, at most `LONGEST`).
const PROVEN_MARK: f64 = 0.9;
const GAP_MARK: f64 = 0.02;
const RATIO_MARK: u32 = 10;
const FLOOR: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);

/// A case and its measurements.
pub(crate) struct Row<'a> {
    pub(crate) program: &'a GridProgram,
    pub(crate) limit: Limit,
    /// The memory limit, in bytes on a device.
    pub(crate) bytes: u64,
    pub(crate) needs: Needs,
    /// The search without the limit; `within` is the search within it.
    pub(crate) free: Searched,
    pub(crate) within: Searched,
    /// Variants that are faster than the open program, each with its time in picoseconds; `None`
    /// unless `--check-pins` asks for them.
    pub(crate) beaten: Option<Vec<(String, u64)>>,
}

impl Row<'_> {
    /// The longest time that the search within the limit may take.
    fn mark(&self) -> Duration {
        (self.free.time * RATIO_MARK).max(FLOOR).min(LONGEST)
    }

    /// The most by which the plan within the limit exceeds the best one; see `Found::gap`.
    fn gap(&self) -> Option<f64> {
        self.within.found.as_ref().ok().map(|found| found.gap())
    }

    /// How much longer the open plan takes than the best variant: 0.25 where the open plan takes a
    /// quarter more. Infinite where the open program has no plan; `None` where no variant is
    /// faster.
    fn by(&self) -> Option<f64> {
        let best = self.beaten.iter().flatten().map(|(_, cost)| *cost).min()?;
        Some(self.within.cost().map_or(f64::INFINITY, |open| open as f64 / best as f64 - 1.0))
    }
}

/// The line that is printed when a case is done.
pub(crate) fn line(row: &Row<'_>) -> String {
    let mut out = format!(
        "{:36} {:4} {:8.3} GB ({:.3}-{:.3})  ",
        row.program.name,
        row.limit.name(),
        row.bytes as f64 / 1e9,
        row.needs.least as f64 / 1e9,
        row.needs.fastest as f64 / 1e9
    );
    let times = format!(
        "{:9.1} ms (free {:.1}){}",
        milliseconds(row.within.time),
        milliseconds(row.free.time),
        if row.within.time > row.mark() { " SLOW" } else { "" }
    );
    // Writing to a string cannot fail.
    let _ = match &row.within.found {
        Ok(found) => write!(
            out,
            "{:10.3} us >= {:10.3} us  gap {:6.2} %  {:11} {times}  {} e-nodes, {} expanded, \
                needs {:.3} GB{}",
            microseconds(found.cost),
            microseconds(found.bound),
            100.0 * found.gap(),
            proof(&row.within),
            found.stats.nodes,
            found.stats.expansions,
            found.needed() as f64 / 1e9,
            found.stopped_by.as_ref().map_or(String::new(), |by| format!(", stopped by {by}"))
        ),
        Err(NoPlan::Fits { proven: true }) => {
            write!(out, "none fits, proven                 {times}")
        }
        Err(NoPlan::Fits { proven: false }) => {
            write!(out, "NONE FOUND                        {times}")
        }
        Err(NoPlan::Other(why)) => write!(out, "FAILED: {why} {times}"),
    };
    for (name, cost) in row.beaten.iter().flatten() {
        let _ = write!(out, "\n    BEATEN by {name}: {:.3} us", microseconds(*cost));
    }
    out
}

fn proof(searched: &Searched) -> &'static str {
    match &searched.found {
        Ok(found) => match found.proof {
            Some(Proof::Certificate) => "certificate",
            Some(Proof::Search) => "search",
            None => "bounded",
        },
        Err(NoPlan::Fits { proven: true }) => "none fits",
        Err(NoPlan::Fits { proven: false }) => "none found",
        Err(NoPlan::Other(_)) => "failed",
    }
}

/// The results of all cases, each beside its mark.
pub(crate) fn summary(rows: &[Row<'_>]) -> String {
    let proven = rows.iter().filter(|row| row.within.is_proven()).count();
    let proven_free = rows.iter().filter(|row| row.free.is_proven()).count();
    let part = proven as f64 / rows.len().max(1) as f64;
    let named = |row: &Row<'_>| format!("{}@{}", row.program.name, row.limit.name());
    let worst_gap =
        rows.iter().filter_map(|row| Some((row.gap()?, row))).max_by(|a, b| a.0.total_cmp(&b.0));
    let ratio = |row: &Row<'_>| {
        row.within.time.as_secs_f64() / row.free.time.max(FLOOR / RATIO_MARK).as_secs_f64()
    };
    let worst_ratio = rows.iter().map(|row| (ratio(row), row)).max_by(|a, b| a.0.total_cmp(&b.0));
    let slow = rows.iter().filter(|row| row.within.time > row.mark()).count();
    let too_long = rows.iter().filter(|row| row.within.time > LONGEST).count();
    let longest = rows.iter().max_by_key(|row| row.within.time);
    let without =
        rows.iter().filter(|row| row.within.found.is_err() && row.bytes >= row.needs.least).count();
    let wide = rows.iter().filter(|row| row.gap().is_some_and(|gap| gap > GAP_MARK)).count();
    let verdict = |met: bool| if met { "met" } else { "**missed**" };
    let mut out = String::new();
    let mut say = |line: String| out += &format!("* {line}\n");
    say(format!(
        "Proven: {proven} of {} ({:.1} %; mark {:.0} %: {}). Without a limit: {proven_free}.",
        rows.len(),
        100.0 * part,
        100.0 * PROVEN_MARK,
        verdict(part >= PROVEN_MARK)
    ));
    // A plan is known to exist for each limit that is at least `needs.least`.
    say(format!("Without a plan, though there is one: {without}: {}.", verdict(without == 0)));
    if let Some((gap, row)) = worst_gap {
        say(format!(
            "Widest gap: {:.2} % (`{}`); {wide} above the mark of {:.0} %: {}.",
            100.0 * gap,
            named(row),
            100.0 * GAP_MARK,
            verdict(wide == 0)
        ));
    }
    if let Some((ratio, row)) = worst_ratio {
        say(format!(
            "Time within a limit: at most {ratio:.1} times that without (or {} ms, whichever is \
                more; `{}`); {slow} above the mark of {RATIO_MARK} times, {} ms or {} s: {}.",
            (FLOOR / RATIO_MARK).as_millis(),
            named(row),
            FLOOR.as_millis(),
            LONGEST.as_secs(),
            verdict(slow == 0)
        ));
    }
    if let Some(row) = longest {
        say(format!(
            "Longest search: {:.2} s (`{}`); {too_long} of more than {} s.",
            row.within.time.as_secs_f64(),
            named(row),
            LONGEST.as_secs()
        ));
    }
    let checked = rows.iter().filter(|row| row.beaten.is_some()).count();
    let by =
        rows.iter().filter_map(|row| Some((row.by()?, row))).max_by(|a, b| a.0.total_cmp(&b.0));
    let beaten = rows.iter().filter(|row| row.by().is_some()).count();
    match (checked, by) {
        (0, _) => {}
        (_, None) => say(format!("Beaten by a variant with pinned weights: 0 of {checked}: met.")),
        (_, Some((by, row))) => say(format!(
            "Beaten by a variant with pinned weights: {beaten} of {checked}, by up to {:.2} % \
                (`{}`): **missed**.",
            100.0 * by,
            named(row)
        )),
    }
    out
}

const BEGIN: &str = "<!-- the grid: `cargo bench -p shardc --bench grid -- --write` -->";
const END: &str = "<!-- the end of the grid -->";

/// Replaces the section of the grid in `spec/performance.md`.
pub(crate) fn write(rows: &[Row<'_>], seed: u64, summary: &str) -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/performance.md");
    let page = std::fs::read_to_string(path)?;
    let (before, after) = match page.split_once(BEGIN) {
        Some((before, rest)) => {
            (before.to_string(), rest.split_once(END).map_or("", |(_, after)| after).to_string())
        }
        None => (page.trim_end().to_string() + "\n\n", "\n".to_string()),
    };
    std::fs::write(path, format!("{before}{BEGIN}\n{}{END}{after}", section(rows, seed, summary)))
}

fn section(rows: &[Row<'_>], seed: u64, summary: &str) -> String {
    let mut out = format!(
        "
## The grid

Written by `cargo bench -p shardc --bench grid -- --write`; seed {seed}, {} cases drawn. A case is one block as `shardc new` writes
it, in a stack, its weights open: {{Llama 3 8B, 70B, 405B; Qwen 2.5 72B; Mixtral 8x7B; PaLM 540B; GPT-3}} on {{v5e, v5p, v6e, H100}},
each on the least power of two of chips (from 8) whose memory weights and caches fill to three quarters at most and on four times
(where there is no such slice: two times) as many, for decode at 8192 cached positions and for prompts of 1024 and 4096 tokens; within what the chip has, and at 1/4,
1/2 and 3/4 of the way from the least memory that `--objective memory` finds a plan for to what the fastest plan takes
(`compiler/cli/benches/grid/limits.txt`). Times are of `shard_search::lower` on one thread, in release: of a search of less than 0.1 s
the fastest of three, of a longer one what it was on the processor. {machine}

{summary}
| program | limit | GB | us | bound us | gap % | proof | ms | ms without a limit | e-nodes | expanded |
|---|---|---|---|---|---|---|---|---|---|---|
",
        rows.len(),
        machine = machine(),
    );
    for row in rows {
        let (us, bound, gap, nodes, expanded) = match &row.within.found {
            Ok(found) => (
                format!("{:.3}", microseconds(found.cost)),
                format!("{:.3}", microseconds(found.bound)),
                format!("{:.2}", 100.0 * found.gap()),
                found.stats.nodes.to_string(),
                found.stats.expansions.to_string(),
            ),
            Err(_) => ("-".into(), "-".into(), "-".into(), "-".into(), "-".into()),
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {:.3} | {us} | {bound} | {gap} | {} | {:.1}{} | {:.1} | {nodes} | \
                {expanded} |",
            row.program.name,
            row.limit.name(),
            row.bytes as f64 / 1e9,
            proof(&row.within),
            milliseconds(row.within.time),
            if row.within.time > row.mark() { " **slow**" } else { "" },
            milliseconds(row.free.time)
        );
    }
    out + "\n"
}

/// The machine that the measurements were taken on.
fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let git =
        std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output().ok();
    let commit = git
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default();
    format!("Commit {commit}. Machine: {}.", model.trim_start_matches([' ', '\t', ':']).trim())
}

fn microseconds(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1e6
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
