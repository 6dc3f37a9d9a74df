//! The grid: blocks of known models with open layouts, on known chips, within the memory of the
//! chip and within less. The bench reports for each case whether its plan is proven, how far an
//! unproven plan may be from its bound, and how much longer the search takes within the memory
//! limit.
//!
//! ```sh
//! cargo bench -p shardc --bench grid                       # a sample of 128 of all cases
//! cargo bench -p shardc --bench grid -- --sample 40        # of so many; all for 0
//! cargo bench -p shardc --bench grid -- --seed 7           # another one
//! cargo bench -p shardc --bench grid -- --only palm        # those of it whose name holds this; twice: both
//! cargo bench -p shardc --bench grid -- --patience 20      # ends a search after so many seconds; 60 without it
//! cargo bench -p shardc --bench grid -- --check-pins       # does a plan with pinned weights beat an open one?
//! cargo bench -p shardc --bench grid -- --write            # and the result into spec/performance.md
//! cargo bench -p shardc --bench grid -- --measure-limits   # what plans need, anew into limits.txt
//! cargo bench -p shardc --bench grid -- --source NAME      # the text of a program, for `shardc explain -`
//! ```
//!
//! Searches run on one thread of this process. A search of less than 0.1 s is repeated twice, and
//! the fastest counts. For a longer search the time on the processor counts, where the system
//! reports it, so that other work on the machine does not matter.

mod limits;
mod measure;
mod programs;
mod report;
mod sample;
mod variants;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use limits::Needs;
use measure::{Most, Searched, search};
use programs::{GridProgram, programs};
use report::Row;
use variants::{Variant, one_pinned, strategies};

/// The seed of the sample in `spec/performance.md`, and the number of its cases.
const SEED: u64 = 20_260;
const SAMPLE: usize = 128;

/// Seconds after which a search is stopped.
const PATIENCE: u64 = 60;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        // `cargo test` calls benches without `--bench`, and there is nothing to test.
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let all_after = |flag: &str| -> Vec<&String> {
        args.windows(2).filter(|pair| pair[0] == flag).map(|pair| &pair[1]).collect()
    };
    let number = |flag: &str, without: u64| match all_after(flag).last() {
        None => Ok(without),
        Some(text) => text.parse().map_err(|_| format!("{flag} takes a number, not `{text}`")),
    };
    let patience = Duration::from_secs(number("--patience", PATIENCE)?);
    let (seed, count) = (number("--seed", SEED)?, number("--sample", SAMPLE as u64)?);
    let count = if count == 0 { usize::MAX } else { count as usize };
    let only = all_after("--only");
    let programs = programs()?;
    let wanted = |name: &str| only.iter().all(|word| name.contains(*word));
    if let Some(name) = all_after("--source").first() {
        let found = programs
            .iter()
            .find(|p| p.name == **name)
            .ok_or_else(|| format!("no program `{name}`"))?;
        print!("{}", found.text);
        return Ok(());
    }
    if has("--measure-limits") {
        return measure_limits(programs.iter().filter(|p| wanted(&p.name)), patience);
    }
    let known = limits::known();
    let cases = sample::sample(programs.len(), count, seed);
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut free: Option<(usize, Searched, Option<Needs>)> = None;
    for (at, limit) in cases {
        let program = &programs[at];
        let name = format!("{}@{}", program.name, limit.name());
        if !wanted(&name) {
            continue;
        }
        if free.as_ref().is_none_or(|(of, ..)| *of != at) {
            let searched = search(&program.program, &program.hardware, Most::Any, patience);
            let needs =
                known.get(&program.name).copied().or_else(|| limits::measured(program, patience));
            free = Some((at, searched, needs));
        }
        let Some((_, free, Some(needs))) = &free else {
            return Err(format!("{name}: no plan at all"));
        };
        let bytes = limit.bytes(program.hardware.hbm_bytes, needs.least, needs.fastest);
        let within = search(&program.program, &program.hardware, Most::Bytes(bytes), patience);
        let mut row =
            Row { program, limit, bytes, needs: *needs, free: free.clone(), within, beaten: None };
        if has("--check-pins") {
            row.beaten = Some(beaten(&row, patience));
        }
        println!("{}", report::line(&row));
        rows.push(row);
    }
    let summary = report::summary(&rows);
    print!("{summary}");
    if has("--write") {
        report::write(&rows, seed, &summary)
            .map_err(|error| format!("spec/performance.md: {error}"))?;
    }
    Ok(())
}

/// The variants with pinned weights whose plans, within the same memory, take less time than the
/// plan of the open program; each with its time in picoseconds.
fn beaten(row: &Row<'_>, patience: Duration) -> Vec<(String, u64)> {
    let program = &row.program.program;
    let cheaper = |variant: Variant| {
        let found =
            search(&variant.program, &row.program.hardware, Most::Bytes(row.bytes), patience);
        let cost = found.cost().filter(|cost| row.within.cost().is_none_or(|open| *cost < open))?;
        Some((variant.name, cost))
    };
    one_pinned(program).into_iter().chain(strategies(program)).filter_map(cheaper).collect()
}

fn measure_limits<'a>(
    programs: impl Iterator<Item = &'a GridProgram>,
    patience: Duration,
) -> Result<(), String> {
    let mut known: BTreeMap<String, Needs> = limits::known();
    for program in programs {
        let mut needs = limits::measured(program, patience)
            .ok_or_else(|| format!("{}: no plan", program.name))?;
        // A plan that an earlier search found still exists, so the least need never grows.
        needs.least =
            known.get(&program.name).map_or(needs.least, |before| needs.least.min(before.least));
        println!("{} {} {}", program.name, needs.least, needs.fastest);
        known.insert(program.name.clone(), needs);
        limits::write(&known).map_err(|error| format!("limits.txt: {error}"))?;
    }
    Ok(())
}
