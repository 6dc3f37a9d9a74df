//! Random programs through the whole compiler: each is checked, lowered, verified, printed and read
//! back, executed on simulated devices, and must give the results of the unsharded program, with
//! the bytes of the cost model.
//!
//! `SHARDC_PROGRAMS=n` runs n of them, `SHARDC_SEED=n` the one of that seed, with its source and
//! plan printed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shard_ir::{Def, Op, Program, text};
use shard_search::Status;
use shard_snapshots::judge::{check, judge};
use shard_snapshots::random_programs::{LoweredPhase, generate, lowered, refused, shrink};

const PROGRAMS: u64 = 10_000;

/// The number of programs in the fast set.
const FEW_PROGRAMS: u64 = 400;

/// Programs whose einsums may do a collective in their loops.
const LOOPED_PROGRAMS: u64 = 1_500;

/// The most failures that are shown.
const MOST_FAILURES: usize = 20;

/// The result of one program.
struct Outcome {
    proven: bool,
    exact: bool,
    moves: usize,
    lowering: Duration,
    kind: Kind,
}

/// The features of a program beyond a layer in one phase with weights on the chips.
#[derive(Clone, Copy, Default)]
struct Kind {
    phases: bool,
    strict: bool,
    host: bool,
    padded: bool,
    model: bool,
}

/// The result of a program; `None` where the checker refuses it for a partial value.
fn try_program(source: &str, seed: u64, fuse: bool, loud: bool) -> Result<Option<Outcome>, String> {
    let checked = check(source);
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
    let mut outcome =
        Outcome { proven: true, exact: true, moves: 0, lowering: started.elapsed(), kind };
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
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
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

/// The same, with a panic as an ordinary failure, so that a panic in a pass also names the program.
fn outcome_of(source: &str, seed: u64, fuse: bool) -> Result<Option<Outcome>, String> {
    std::panic::catch_unwind(|| try_program(source, seed, fuse, false))
        .unwrap_or_else(|_| Err("a panic".into()))
}

/// The smallest failing program similar to that of a seed, as a file.
fn smallest(seed: u64, fuse: bool) -> String {
    shrink(&generate(seed), &|source| outcome_of(source, seed, fuse).is_err())
}

/// Counts of what was done.
#[derive(Default)]
struct Counts {
    done: AtomicUsize,
    refused: AtomicUsize,
    proven: AtomicUsize,
    exact: AtomicUsize,
    moves: AtomicUsize,
    /// Microseconds.
    lowering: AtomicU64,
    /// The longest, with its seed in the lower half.
    slowest: AtomicU64,
    kinds: [AtomicUsize; 5],
}

impl Counts {
    fn add(&self, seed: u64, outcome: &Outcome) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.proven.fetch_add(usize::from(outcome.proven), Ordering::Relaxed);
        self.exact.fetch_add(usize::from(outcome.exact), Ordering::Relaxed);
        self.moves.fetch_add(outcome.moves, Ordering::Relaxed);
        let Kind { phases, strict, host, padded, model } = outcome.kind;
        for (count, is) in self.kinds.iter().zip([phases, strict, host, padded, model]) {
            count.fetch_add(usize::from(is), Ordering::Relaxed);
        }
        let micros = outcome.lowering.as_micros() as u64;
        self.lowering.fetch_add(micros, Ordering::Relaxed);
        self.slowest.fetch_max(micros << 32 | seed, Ordering::Relaxed);
    }

    /// Prints what was done, and asserts that it tested enough.
    fn tell(&self, took: Duration, threads: usize) {
        let get = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let slowest = self.slowest.load(Ordering::Relaxed);
        eprintln!(
            "{} programs in {took:?}, {} refused by the checker; {} proven best, {} exact, {} \
                moves; lowering {:.1} s on \
             {threads} threads, the slowest {:.1} s (seed {})",
            get(&self.done),
            get(&self.refused),
            get(&self.proven),
            get(&self.exact),
            get(&self.moves),
            self.lowering.load(Ordering::Relaxed) as f64 / 1e6,
            (slowest >> 32) as f64 / 1e6,
            slowest & 0xffff_ffff,
        );
        let [phases, strict, host, padded, models] = self.kinds.each_ref().map(get);
        eprintln!(
            "{phases} in phases, {strict} strict and with all moves written, {host} with host \
                weights, {padded} padded, \
             {models} with a folded block"
        );
        let enough = get(&self.done) / 100;
        assert!(
            phases.min(host).min(padded).min(models) >= enough && strict >= enough / 2,
            "of some kind there are too few programs"
        );
        let refused = get(&self.refused);
        assert!(
            refused * 4 < get(&self.done),
            "the checker refuses too many programs to call them random"
        );
        // The test would find little if most programs were inexact, or moved nothing.
        assert!(get(&self.exact) * 2 > get(&self.done), "most programs are to be compared exactly");
        assert!(get(&self.moves) > get(&self.done), "a program moves something, on average");
    }
}

/// The program of `SHARDC_SEED`, with all output.
fn hold_one(seed: u64, fuse: bool) {
    let source = generate(seed);
    eprintln!("{source}");
    match try_program(&source, seed, fuse, true) {
        Ok(Some(_)) => eprintln!("right"),
        Ok(None) => eprintln!("refused by the checker"),
        Err(problem) => panic!("{problem}\n\nthe smallest like it:\n\n{}", smallest(seed, fuse)),
    }
}

fn hold(programs: u64, fuse: bool) {
    if let Some(seed) = number("SHARDC_SEED") {
        return hold_one(seed, fuse);
    }
    let wanted = number("SHARDC_PROGRAMS").unwrap_or(programs) as usize;
    let (seed, counts) = (AtomicU64::new(0), Counts::default());
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    let started = Instant::now();
    let work = || {
        while counts.done.load(Ordering::Relaxed) < wanted {
            let seed = seed.fetch_add(1, Ordering::Relaxed);
            match outcome_of(&generate(seed), seed, fuse) {
                Ok(None) => {
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Some(outcome)) => counts.add(seed, &outcome),
                Err(problem) => {
                    let mut failures =
                        failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    failures.push((
                        seed,
                        format!("SHARDC_SEED={seed}: {problem}\n\n{}", generate(seed)),
                    ));
                    if failures.len() >= MOST_FAILURES {
                        return;
                    }
                }
            }
        }
    };
    rayon::broadcast(|_| work());
    let mut failures = failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    failures.sort_by_key(|(_, text)| text.len());
    if let Some((seed, _)) = failures.first() {
        let all: Vec<&str> = failures.iter().map(|(_, text)| text.as_str()).collect();
        let smallest = smallest(*seed, fuse);
        let count = failures.len();
        panic!(
            "{count} programs fail, the shortest first:\n{}\nthe smallest like the \
                first:\n\n{smallest}",
            all.join("\n")
        );
    }
    counts.tell(started.elapsed(), rayon::current_num_threads());
}

/// A planted fault: the test treats every program with this op as a failure of the compiler.
fn planted(source: &str, is_wrong: impl Fn(&Op) -> bool) -> bool {
    let checked = check(source);
    let mut values = checked.programs.iter().flat_map(|program| &program.values);
    values.any(|value| matches!(&value.def, Def::Op { op, .. } if is_wrong(op)))
}

#[test]
fn a_program_that_fails_is_shrunk_to_a_few_lines() {
    for (name, is_wrong) in [
        ("softmax", (|op| matches!(op, Op::Softmax { .. })) as fn(&Op) -> bool),
        ("einsum", |op| matches!(op, Op::Einsum)),
        ("take", |op| matches!(op, Op::Take { .. })),
    ] {
        let fails = |source: &str| planted(source, is_wrong);
        let whole = (0..).map(generate).find(|source| source.lines().count() > 15 && fails(source));
        let whole = whole.expect("seeds have no end");
        let small = shrink(&whole, &fails);
        assert!(fails(&small), "{small}");
        assert!(small.contains(name), "{small}");
        // Dims, the head, what is wrong, and a brace.
        assert!(
            small.lines().filter(|line| !line.is_empty()).count() <= 8,
            "{whole}\nis shrunk to\n{small}"
        );
        assert!(!check(&small).has_errors(), "{small}");
    }
}

#[test]
fn what_fails_by_its_layout_keeps_the_layout() {
    let fails = |source: &str| source.contains("B_x");
    let whole = "mesh x=4, y=2\ndim A = 8\ndim B = 12\nlayer f(a: weight f32 A_yB_x, b: f32 A_y) \
        -> f32 AB {\n  \
                 let c: A_yB_x = gelu(a)\n  let d = c * b\n  return d + c\n}\n";
    let small = shrink(whole, &fails);
    assert_eq!(small, "mesh x=1\ndim B = 1\n\nlayer f(a: f32 B_x) -> f32 B {\n  return a\n}\n");
}

#[test]
fn a_seed_gives_the_same_program_every_time() {
    for seed in 0..100 {
        assert_eq!(generate(seed), generate(seed));
    }
}
