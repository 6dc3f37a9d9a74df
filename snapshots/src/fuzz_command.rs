//! `cargo run -p shard-snapshots --bin fuzz -- --surface shir --seed N --count M`: a fuzz campaign
//! by hand.
//!
//! See `spec/fuzzing.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shard_snapshots::fuzz::{
    Campaign, Failure, SURFACES, Shardc, Surface, Tally, caught, smaller, surface,
};

/// The first argument with which this binary acts as `shardc`.
const AS_SHARDC: &str = "shardc";

const USAGE: &str = "\
fuzz --surface NAME [--seed N] [--first N] [--count N] [--patience SECONDS] [--failures N]
fuzz --surface NAME --judge FILE      the verdict on one input
fuzz --surface NAME --shrink FILE     the same made smaller, as long as the same claim is broken
fuzz --surface NAME --seed N --show N one case, to standard output";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    if std::env::args_os().nth(1).is_some_and(|first| first == AS_SHARDC) {
        return shardc::main(std::iter::once(program).chain(arguments.skip(1)));
    }
    // Cases are judged on a thread with the stack size of the language server's threads, so that
    // too deep recursion is found here, too.
    let worker =
        std::thread::Builder::new().stack_size(2 << 20).spawn(command).map(|thread| thread.join());
    match worker {
        Ok(Ok(Ok(true))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(false))) => ExitCode::from(1),
        Ok(Ok(Err(why))) => {
            eprintln!(
                "{why}\n{USAGE}\nsurfaces: {}",
                SURFACES.iter().map(|s| s.name).collect::<Vec<_>>().join(" ")
            );
            ExitCode::from(2)
        }
        Ok(Err(_)) | Err(_) => ExitCode::from(101),
    }
}

/// Whether every claim holds.
fn command() -> Result<bool, String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let known = [
        "--surface",
        "--seed",
        "--first",
        "--count",
        "--patience",
        "--failures",
        "--judge",
        "--shrink",
        "--show",
    ];
    if let Some(other) = given.iter().step_by(2).find(|name| !known.contains(&name.as_str())) {
        return Err(format!("unknown argument `{other}`"));
    }
    let text = |name: &str| {
        given.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1)).cloned()
    };
    let number = |name: &str, or: u64| match text(name) {
        Some(text) => text.parse().map_err(|_| format!("{name} {text} is no number")),
        None => Ok(or),
    };
    let surface = text("--surface").and_then(|name| surface(&name)).ok_or("no such surface")?;
    let patience = Duration::from_secs(number("--patience", 60)?);
    let folder = target();
    let shardc = Shardc {
        program: std::env::current_exe().map_err(|e| e.to_string())?,
        first: Some(AS_SHARDC.to_string()),
        folder: folder.join(format!("{}-{}", surface.name, std::process::id())).join("a/b/c"),
        patience: Some(patience),
    };
    let read = |path: String| std::fs::read(&path).map_err(|e| format!("{path}: {e}"));
    if let Some(path) = text("--judge") {
        let verdict = caught(surface, &shardc, &read(path)?);
        println!("{verdict:?}");
        return Ok(verdict.is_ok());
    }
    if let Some(path) = text("--shrink") {
        let small = smaller(surface, &shardc, &read(path)?);
        write(&small)?;
        return Ok(true);
    }
    let seed = number("--seed", 0)?;
    if let Some(show) = text("--show") {
        let number = show.parse().map_err(|_| format!("--show {show} is no number"))?;
        let case = (surface.make)(
            &(surface.corpus)(&shardc),
            &mut shard_runtime::Random::for_part(seed, number),
        );
        write(&case)?;
        return Ok(true);
    }
    let campaign = Campaign {
        surface,
        shardc: &shardc,
        seed,
        first: number("--first", 0)?,
        count: number("--count", 1000)?,
        most_failures: number("--failures", 20)? as usize,
    };
    let tally = watched(&campaign, &folder, patience);
    report(surface, seed, &tally);
    let _ =
        std::fs::remove_dir_all(folder.join(format!("{}-{}", surface.name, std::process::id())));
    Ok(tally.failures.is_empty())
}

/// Where cases are written: beside the binary, in `target/fuzz`.
fn target() -> PathBuf {
    let beside =
        std::env::current_exe().ok().and_then(|path| Some(path.parent()?.parent()?.to_path_buf()));
    beside.unwrap_or_else(std::env::temp_dir).join("fuzz")
}

fn write(bytes: &[u8]) -> Result<(), String> {
    std::io::Write::write_all(&mut std::io::stdout(), bytes).map_err(|e| e.to_string())
}

/// Runs a campaign. The current case is kept in a file, in case it ends the process. A case that
/// takes too long ends the process here.
fn watched(campaign: &Campaign<'_>, folder: &Path, patience: Duration) -> Tally {
    let (name, seed) = (campaign.surface.name, campaign.seed);
    let current = folder.join(format!("{name}-{seed}-current.{}", campaign.surface.extension));
    let _ = std::fs::create_dir_all(folder);
    let number = std::sync::Arc::new(AtomicU64::new(u64::MAX));
    let (seen, place) = (std::sync::Arc::clone(&number), current.clone());
    // Twice the time that the binary may take, so that the binary ends first.
    let step = patience * 2;
    std::thread::spawn(move || {
        let mut before = u64::MAX;
        loop {
            std::thread::sleep(step);
            let now = seen.load(Ordering::Relaxed);
            if now == before && now != u64::MAX {
                eprintln!(
                    "case {now} of seed {seed} takes more than {} s: {}",
                    step.as_secs(),
                    place.display()
                );
                std::process::exit(1);
            }
            before = now;
        }
    });
    let each = |at: u64, case: &[u8]| {
        number.store(at, Ordering::Relaxed);
        let _ = std::fs::write(&current, case);
    };
    let tally = campaign.run(each, |failure| tell(campaign.surface, seed, failure, folder));
    number.store(u64::MAX, Ordering::Relaxed);
    let _ = std::fs::remove_file(&current);
    tally
}

/// Writes a case that failed, and says why it did.
fn tell(surface: &Surface, seed: u64, failure: &Failure, folder: &Path) {
    let path =
        folder.join(format!("{}-{seed}-{}.{}", surface.name, failure.number, surface.extension));
    let written = std::fs::write(&path, &failure.case)
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    let why: String = failure.why.chars().take(1500).collect();
    println!("case {} of seed {seed}: {why}\n  {} {written}\n", failure.number, path.display());
}

fn report(surface: &Surface, seed: u64, tally: &Tally) {
    let [refused, accepted, executed] = tally.cases;
    let (slowest, took) = tally.slowest;
    println!(
        "{}: seed {seed}, {} failures; {refused} refused, {accepted} accepted, {executed} \
            executed; slowest {slowest} \
         ({took:.1?})",
        surface.name,
        tally.failures.len(),
    );
}
