//! A search that is asked to stop, one whose time is up, and one whose plans take longer than times
//! are counted.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{Limits, LowerError, LowerOptions, SearchLimit, Status, Stop, lower};

const SOURCE: &str = "mesh x=4, y=2\ndim B = 64\ndim E = 128\ndim F = 256\nlayer f(a: bf16 BE_x, \
    w: weight bf16 E_xF_y) \
                      -> bf16 BF? {\n  return gelu(einsum(a, w -> BF))\n}\n";

/// Several layers with their weights left open: one case after another is searched for each label.
const LABELLED: &str = "mesh x=4, y=2, z=2\ndim B = 64\ndim E = 128\ndim F = 256\n\
                        layer f(a: bf16 BE?l, w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 \
                        BE?l {\n  \
                        return einsum(gelu(einsum(a, w -> BF)), v -> BE)\n}\n";

fn program(source: &str) -> Program {
    check_source(&SourceFile::new("f", source), &CheckOptions::default()).programs.swap_remove(0)
}

fn options(stop: &Stop) -> LowerOptions {
    LowerOptions {
        limits: Limits { stop: stop.clone(), ..Limits::default() },
        ..LowerOptions::default()
    }
}

#[test]
fn a_search_that_is_stopped_says_so_and_one_that_is_not_is_what_it_is_without_the_flag() {
    let program = program(SOURCE);
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let stop = Stop::default();
    let free = lower(&program, &chip, &LowerOptions::default()).expect("a plan");
    let watched = lower(&program, &chip, &options(&stop)).expect("a plan");
    assert_eq!((free.plan, free.optimality), (watched.plan, watched.optimality));
    stop.ask();
    assert_eq!(lower(&program, &chip, &options(&stop)).err(), Some(LowerError::Stopped));
}

#[test]
fn a_search_whose_time_was_up_before_it_began_has_no_plan() {
    let stop = Stop::default();
    stop.time_is_up();
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    assert_eq!(lower(&program(SOURCE), &chip, &options(&stop)).err(), Some(LowerError::OutOfTime));
    stop.ask();
    assert_eq!(
        lower(&program(SOURCE), &chip, &options(&stop)).err(),
        Some(LowerError::Stopped),
        "the stronger wish"
    );
}

#[test]
fn whenever_the_time_is_up_the_plan_is_the_best_or_bounded_by_what_is_true() {
    let program = program(LABELLED);
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let best = lower(&program, &chip, &LowerOptions::default()).expect("a plan").optimality;
    assert_eq!(best.status, Status::Proven);
    // The time is up a little later in each round. Whenever it is, what the search says has to
    // hold.
    for wait in 0..40u64 {
        let stop = Stop::default();
        let clock = stop.clone();
        let watch = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(wait * wait * 100));
            clock.time_is_up();
        });
        match lower(&program, &chip, &options(&stop)) {
            Ok(found) => {
                let found = found.optimality;
                assert!(
                    found.lower_bound <= best.cost && best.cost <= found.cost,
                    "{found:?} and {best:?}"
                );
                match found.status {
                    Status::Proven => assert_eq!(found.cost, best.cost),
                    Status::Bounded => assert_eq!(found.stopped_by, Some(SearchLimit::Time)),
                }
            }
            Err(error) => assert_eq!(error, LowerError::OutOfTime),
        }
        watch.join().expect("no panic");
    }
}

#[test]
fn what_takes_longer_than_times_are_counted_is_not_called_unreachable() {
    let text = "name = \"c\"\n[chip]\nflops = { bf16 = 1 }\nhbm_bytes = 1e11\nhbm_bandwidth = \
        1e12\n[network]\n\
                kind = \"flat\"\nbandwidth = 1e9\nlatency = 0\n";
    let chip = Hardware::parse(text).expect("a chip");
    let lowered = |b: &str| {
        let options =
            CheckOptions { dim_overrides: vec![("B".into(), b.into())], ..CheckOptions::default() };
        lower(
            &check_source(&SourceFile::new("f", SOURCE), &options).programs[0],
            &chip,
            &LowerOptions::default(),
        )
    };
    // 64 * 128 * 256 multiplications and additions on 8 devices, one a second: six days.
    let days = lowered("64").expect("a plan");
    assert!(days.optimality.cost.seconds() > 5e5, "{:?}", days.optimality);
    assert!(matches!(lowered("128"), Err(LowerError::TooLong(_))));
}
