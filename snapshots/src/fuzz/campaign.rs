//! A number of cases of a seed, each judged; panics are caught and named.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;
use std::time::{Duration, Instant};

use shard_runtime::Random;

use super::{Depth, Shardc, Surface, Verdict};
use crate::files::root;

/// Some cases of one surface.
#[derive(Clone, Copy)]
pub struct Campaign<'a> {
    /// The surface.
    pub surface: &'a Surface,
    /// The binary under test.
    pub shardc: &'a Shardc,
    /// The seed of the cases.
    pub seed: u64,
    /// The number of the first case.
    pub first: u64,
    /// How many cases.
    pub count: u64,
    /// The number of failures after which the campaign ends.
    pub most_failures: usize,
}

/// A case on which a claim is broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The number of the case.
    pub number: u64,
    /// The input.
    pub case: Vec<u8>,
    /// What is broken.
    pub why: String,
}

/// The results of all cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Cases that were refused, accepted, and executed.
    pub cases: [u64; 3],
    /// The slowest case and its time.
    pub slowest: (u64, Duration),
    /// What failed.
    pub failures: Vec<Failure>,
}

impl Campaign<'_> {
    /// Makes and judges every case. `each` is called with a case before it is judged, since a judge
    /// that ends the process cannot report it; `failed` is called at once with each failure.
    pub fn run(&self, mut each: impl FnMut(u64, &[u8]), mut failed: impl FnMut(&Failure)) -> Tally {
        let corpus = (self.surface.corpus)(self.shardc);
        let mut tally = Tally::default();
        for number in self.first..self.first.saturating_add(self.count) {
            let case = (self.surface.make)(&corpus, &mut Random::for_part(self.seed, number));
            each(number, &case);
            let started = Instant::now();
            match caught(self.surface, self.shardc, &case) {
                Ok(depth) => tally.cases[depth as usize] += 1,
                Err(why) => {
                    let failure = Failure { number, case, why };
                    failed(&failure);
                    tally.failures.push(failure);
                }
            }
            let took = started.elapsed();
            if took > tally.slowest.1 {
                tally.slowest = (number, took);
            }
            if tally.failures.len() >= self.most_failures {
                break;
            }
        }
        tally
    }
}

/// The inputs that once failed, each with its path from the repository's root, in the order of
/// their names.
pub fn kept(surface: &Surface) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from("snapshots/fuzzed").join(surface.name);
    let listed = std::fs::read_dir(root().join(&folder)).into_iter().flatten().flatten();
    let mut found: Vec<(String, Vec<u8>)> = listed
        .map(|entry| {
            let path = folder.join(entry.file_name()).display().to_string();
            let bytes =
                std::fs::read(entry.path()).unwrap_or_else(|error| panic!("{path}: {error}"));
            (path, bytes)
        })
        .collect();
    found.sort();
    found
}

thread_local! {
    /// Whether this thread is judging a case: its panic is then a result, and is not printed.
    static JUDGING: Cell<bool> = const { Cell::new(false) };
    /// Where and why this thread panicked.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The verdict on an input; a panic is a verdict, too.
pub fn caught(surface: &Surface, shardc: &Shardc, case: &[u8]) -> Verdict {
    listen();
    JUDGING.set(true);
    let judged = catch_unwind(AssertUnwindSafe(|| (surface.judge)(shardc, case)));
    JUDGING.set(false);
    judged.unwrap_or_else(|_| Err(format!("panic: {}", PANIC.take())))
}

/// Keeps the panics of judges, and prints all other panics as before.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if JUDGING.get() {
                PANIC.set(info.to_string().replace('\n', " "))
            } else {
                before(info)
            }
        }));
    });
}

impl Tally {
    /// How many cases came at least this far.
    pub fn reached(&self, depth: Depth) -> u64 {
        self.cases[depth as usize..].iter().sum()
    }
}
