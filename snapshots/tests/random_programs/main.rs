//! Random programs through the whole compiler: each is checked, lowered, verified, printed and read back, executed on
//! simulated devices, and must equal the unsharded program, with the bytes that the model says.
//!
//! `SHARDC_PROGRAMS=n` runs n of them, `SHARDC_SEED=n` the one of that seed, with its source and plan printed.

#![allow(missing_docs)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shard_ir::{Program, text};
use shard_search::Status;
use shard_snapshots::judge::{check, judge};
use shard_snapshots::random_programs::{LoweredPhase, generate, lowered, refused};

const PROGRAMS: u64 = 10_000;

/// Of them, in the fast set.
const FEW_PROGRAMS: u64 = 400;

/// Programs whose einsums may do a collective in their loops.
const LOOPED_PROGRAMS: u64 = 1_500;

/// Failures shown at once.
const MOST_FAILURES: usize = 20;

/// What became of one program.
struct Outcome {
    proven: bool,
    exact: bool,
    moves: usize,
    lowering: Duration,
    kind: Kind,
}

/// What a program is beside a layer in one phase on the chips.
#[derive(Clone, Copy, Default)]
struct Kind {
    phases: bool,
    strict: bool,
    host: bool,
    padded: bool,
    model: bool,
}

/// The program of a seed; `None` where the checker refuses it for a partial value.
fn try_program(seed: u64, fuse: bool, loud: bool) -> Result<Option<Outcome>, String> {
    let source = generate(seed);
    if loud {
        eprintln!("{source}");
    }
    let checked = check(&source);
    if refused(&checked)? {
        return Ok(None);
    }
    let phases: Vec<&Program> = checked.roots.iter().map(|root| &checked.programs[*root]).collect();
    let [program, ..] = phases.as_slice() else { return Err("no program".to_string()) };
    let kind = Kind {
        phases: phases.len() > 1,
        strict: program.strict,
        host: program.value_ids().any(|id| program.in_host_memory(id)),
        padded: program.dims.iter().any(|dim| dim.useful < dim.size),
        model: !program.folds.is_empty(),
    };
    let started = Instant::now();
    let lowered = lowered(&checked, fuse)?;
    let mut outcome = Outcome { proven: true, exact: true, moves: 0, lowering: started.elapsed(), kind };
    for LoweredPhase { plan, optimality, .. } in &lowered {
        if loud {
            eprintln!("{}\n{optimality:?}", text::print(plan));
        }
        match optimality {
            Some(found) => outcome.proven &= found.status == Status::Proven,
            None => outcome.kind.strict = false,
        }
        let report = judge(plan, seed)?;
        outcome.exact &= report.exact;
        outcome.moves += report.collectives.len();
    }
    Ok(Some(outcome))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

#[test]
fn some_random_programs_compute_what_they_say() {
    hold(FEW_PROGRAMS, false);
}

#[test]
#[ignore = "slow: ten thousand programs"]
fn random_programs_compute_what_they_say_wherever_their_data_lies() {
    hold(PROGRAMS, false);
}

#[test]
#[ignore = "slow: more than a thousand programs"]
fn random_programs_compute_what_they_say_with_collectives_in_loops() {
    hold(LOOPED_PROGRAMS, true);
}

fn hold(programs: u64, fuse: bool) {
    if let Some(seed) = number("SHARDC_SEED") {
        match try_program(seed, fuse, true) {
            Ok(Some(_)) => eprintln!("right"),
            Ok(None) => eprintln!("refused by the checker"),
            Err(problem) => panic!("{problem}"),
        }
        return;
    }
    let wanted = number("SHARDC_PROGRAMS").unwrap_or(programs) as usize;
    let (seed, done, refused) = (AtomicU64::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let (proven, exact, moves) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let (lowering, slowest) = (AtomicU64::new(0), AtomicU64::new(0));
    let kinds: [AtomicUsize; 5] = Default::default();
    let failures = Mutex::new(Vec::new());
    let started = Instant::now();
    let work = || {
        while done.load(Ordering::Relaxed) < wanted {
            let seed = seed.fetch_add(1, Ordering::Relaxed);
            // A panic in a pass has to name the program too.
            let tried =
                std::panic::catch_unwind(|| try_program(seed, fuse, false)).unwrap_or_else(|_| Err("a panic".into()));
            match tried {
                Ok(None) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Some(outcome)) => {
                    done.fetch_add(1, Ordering::Relaxed);
                    proven.fetch_add(usize::from(outcome.proven), Ordering::Relaxed);
                    exact.fetch_add(usize::from(outcome.exact), Ordering::Relaxed);
                    moves.fetch_add(outcome.moves, Ordering::Relaxed);
                    let Kind { phases, strict, host, padded, model } = outcome.kind;
                    for (count, is) in kinds.iter().zip([phases, strict, host, padded, model]) {
                        count.fetch_add(usize::from(is), Ordering::Relaxed);
                    }
                    let micros = outcome.lowering.as_micros() as u64;
                    lowering.fetch_add(micros, Ordering::Relaxed);
                    slowest.fetch_max(micros << 32 | seed, Ordering::Relaxed);
                }
                Err(problem) => {
                    let mut failures = failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    failures.push(format!("SHARDC_SEED={seed}: {problem}\n\n{}", generate(seed)));
                    if failures.len() >= MOST_FAILURES {
                        return;
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    failures.sort_by_key(String::len);
    assert!(failures.is_empty(), "{} programs fail, the shortest first:\n{}", failures.len(), failures.join("\n"));
    let get = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    let slowest = slowest.load(Ordering::Relaxed);
    eprintln!(
        "{} programs in {:?}, {} refused by the checker; {} proven best, {} exact, {} moves; lowering {:.1} s on {threads} \
         threads, the slowest {:.1} s (seed {})",
        get(&done),
        started.elapsed(),
        get(&refused),
        get(&proven),
        get(&exact),
        get(&moves),
        lowering.load(Ordering::Relaxed) as f64 / 1e6,
        (slowest >> 32) as f64 / 1e6,
        slowest & 0xffff_ffff,
    );
    let [phases, strict, host, padded, models] = kinds.each_ref().map(get);
    eprintln!(
        "{phases} in phases, {strict} strict and with all moves written, {host} with host weights, {padded} padded, {models} \
         with a folded block"
    );
    let enough = get(&done) / 100;
    assert!(
        phases.min(host).min(padded).min(models) >= enough && strict >= enough / 2,
        "of some kind there are too few programs"
    );
    assert!(get(&refused) * 4 < get(&done), "the checker refuses too many programs to call them random");
    // The test would be worth little if most programs were inexact, or moved nothing.
    assert!(get(&exact) * 2 > get(&done), "most programs are to be compared exactly");
    assert!(get(&moves) > get(&done), "a program moves something, on average");
}

#[test]
fn a_seed_gives_the_same_program_every_time() {
    for seed in 0..100 {
        assert_eq!(generate(seed), generate(seed));
    }
}
