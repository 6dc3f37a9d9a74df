//! A bounded fuzz campaign over every surface: seeds and counts are fixed, so that every machine
//! judges the same cases. Cases that once failed are judged first. `spec/fuzzing.md` says how to
//! run larger campaigns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use shard_snapshots::fuzz::{Campaign, Depth, SURFACES, Shardc, Surface, caught, kept, surface};

/// The seed of every campaign of this test.
const SEED: u64 = 2026;

fn shardc(name: &str) -> Shardc {
    Shardc {
        program: PathBuf::from(env!("CARGO_BIN_EXE_shardc-under-test")),
        first: None,
        folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(name),
        // Far beyond what any case takes: a command line that hangs fails with its number, and does
        // not hang the tests.
        patience: Some(Duration::from_secs(600)),
    }
}

fn named(name: &str) -> &'static Surface {
    surface(name).unwrap_or_else(|| panic!("there is no surface `{name}`"))
}

/// The number of cases of a surface, and how many of them have to be accepted: otherwise they test
/// little.
fn holds(name: &str, count: u64, accepted: u64) {
    let (surface, shardc) = (named(name), shardc(&format!("{name}-{count}")));
    let tally =
        Campaign { surface, shardc: &shardc, seed: SEED, first: 0, count, most_failures: 5 }
            .run(|_, _| {}, |_| {});
    let failures: Vec<String> = tally
        .failures
        .iter()
        .map(|f| format!("--surface {name} --seed {SEED} --show {}: {}", f.number, f.why))
        .collect();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n\n"));
    let reached = tally.reached(Depth::Accepted);
    assert!(
        reached >= accepted,
        "{reached} of {count} cases were accepted, and {accepted} should be: {tally:?}"
    );
}

#[test]
fn what_once_failed_holds() {
    for surface in SURFACES {
        for (path, case) in kept(surface) {
            let verdict = caught(surface, &shardc("kept"), &case);
            assert!(verdict.is_ok(), "{path}: {verdict:?}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_cases_every_time() {
    for surface in SURFACES {
        let shardc = shardc("seeds");
        let made = || {
            let corpus = (surface.corpus)(&shardc);
            let case = |number| {
                (surface.make)(&corpus, &mut shard_runtime::Random::for_part(SEED, number))
            };
            (0..20).map(case).collect::<Vec<_>>()
        };
        assert_eq!(made(), made(), "{}", surface.name);
    }
}

/// The fast set has the first cases of each campaign: one part in this number.
const PART: u64 = 10;

macro_rules! campaigns {
    ($($test:ident: $name:literal, $count:literal, $accepted:literal;)+) => {
        mod first_cases {
            $(#[test]
            fn $test() {
                super::holds($name, $count / super::PART, $accepted / super::PART / 2);
            })+
        }

        $(#[test]
        #[ignore = "slow: the whole campaign"]
        fn $test() {
            holds($name, $count, $accepted);
        })+
    };
}

campaigns! {
    spoiled_programs_are_refused_or_computed: "shard", 1500, 200;
    spoiled_plans_are_refused_or_computed: "shir", 4000, 300;
    spoiled_hardware_files_are_refused_or_priced: "hardware", 400, 40;
    spoiled_certificates_are_refused_or_true: "certificate", 400, 20;
    spoiled_configurations_are_refused_or_give_a_program: "config", 250, 30;
    spoiled_arrays_are_refused_or_read: "npy", 250, 10;
    spoiled_command_lines_end_by_themselves: "arguments", 250, 40;
    spoiled_snapshots_are_seen: "snapshot", 60, 1;
    spoiled_sessions_end_by_themselves: "editor", 100, 50;
}
