//! The search and the brute force, compared with a second exact solver of small programs. It
//! eliminates values one after another, and knows what weights and caches take. The programs have
//! labels, forms, weights of the host, collectives in loops, and memory limits.
//!
//! * `SHARD_SECOND_SOLVER_COUNT`: how many programs of each kind are made.
//! * `SHARD_SECOND_SOLVER_SEED`: another seed.

use crate::brute_force::elimination::{cheapest_within, least_stored};
use crate::brute_force::facts::Facts;
use crate::brute_force::forms::forms;
use crate::brute_force::generate::{
    Case, case, case_by_ids, case_with_forms, hosted_case, networked_case,
};
use crate::brute_force::optimum::{Optimum, cheapest_plan};
use crate::brute_force::print::program_text;
use shard_cost::{Hardware, Memory};
use shard_ir::{Def, LayoutPattern, ParameterKind, Program};
use shard_search::{Limits, LowerError, LowerOptions, SearchLimit, Status, lower};

const SEED: u64 = 20_261_122;
const COUNT: u64 = 50;

fn number(variable: &str, without: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(without)
}

fn numbers(count: u64) -> impl Iterator<Item = (u64, u64)> {
    let seed = number("SHARD_SECOND_SOLVER_SEED", SEED);
    (0..number("SHARD_SECOND_SOLVER_COUNT", count)).map(move |number| (seed, number))
}

/// What the second solver says of a program in all its forms; `None` where some form is too large
/// for it.
fn second(
    program: &Program,
    hardware: &Hardware,
    fuse: bool,
    at_most: u64,
    stored: u64,
) -> Option<Option<u64>> {
    let mut best = None;
    for form in forms(program).ok()? {
        match cheapest_within(&Facts::new(&form, hardware, fuse).ok()?, at_most, stored) {
            Optimum::TooLarge(_) => return None,
            Optimum::NoPlan => {}
            Optimum::Time(time) => best = Some(best.map_or(time, |known: u64| known.min(time))),
        }
    }
    Some(best)
}

#[test]
fn two_ways_of_looking_at_all_plans_agree() {
    let mut compared = 0;
    for (seed, number) in numbers(COUNT) {
        let Case { program, hardware, .. } = case(seed, number);
        let Ok(facts) = Facts::new(&program, &hardware, false) else { continue };
        let Ok(lowered) = lower(&program, &hardware, &LowerOptions::default()) else { continue };
        // A little more than the optimum is allowed, so that there is a choice.
        let at_most = lowered.optimality.cost.0 + lowered.optimality.cost.0 / 20;
        let ways =
            (cheapest_plan(&facts, at_most, true), cheapest_within(&facts, at_most, u64::MAX));
        if let (Optimum::Time(_) | Optimum::NoPlan, Optimum::Time(_) | Optimum::NoPlan) = ways {
            assert_eq!(
                ways.0,
                ways.1,
                "program {number} of seed {seed}\n{}",
                program_text(&program)
            );
            compared += 1;
        }
    }
    eprintln!("{compared} programs compared");
    assert!(compared * 10 >= number("SHARD_SECOND_SOLVER_COUNT", COUNT) * 6, "only {compared}");
}

/// Compares the search with the second solver; returns how many programs were judged.
fn hold(case: fn(u64, u64) -> Case, count: u64, fuse: bool) -> u64 {
    let mut judged = 0;
    for (seed, number) in numbers(count) {
        let Case { program, hardware, .. } = case(seed, number);
        let claimed =
            match lower(&program, &hardware, &LowerOptions { fuse, ..LowerOptions::default() }) {
                Ok(found) if found.optimality.stopped_by == Some(SearchLimit::Forms) => {
                    continue;
                }
                Ok(found) => Some(found.optimality.cost.0),
                Err(LowerError::Unreachable { .. }) => None,
                Err(other) => {
                    panic!("program {number} of seed {seed}: {other}\n{}", program_text(&program))
                }
            };
        let at_most = claimed.unwrap_or(u64::MAX - 1);
        if let Some(found) = second(&program, &hardware, fuse, at_most, u64::MAX) {
            assert_eq!(
                claimed,
                found,
                "program {number} of seed {seed}\n{}",
                program_text(&program)
            );
            judged += 1;
        }
    }
    eprintln!("{judged} programs judged");
    judged
}

#[test]
#[ignore = "slow: all plans of many programs, by another solver"]
fn no_plan_is_cheaper_by_the_second_solver_either() {
    assert!(hold(case, COUNT, false) >= 1);
    assert!(hold(networked_case, COUNT / 2, false) >= 1);
    assert!(hold(hosted_case, COUNT / 2, false) >= 1);
    assert!(hold(case_with_forms, COUNT / 2, false) >= 1);
    assert!(hold(case_by_ids, COUNT, false) >= 1);
    assert!(hold(case, COUNT / 2, true) >= 1);
}

/// The height of a stack so high that the activations of one layer count as nothing beside a byte
/// of its weights: a plan fits if the weights and caches of one layer do.
const STACK: u64 = 1 << 30;

/// The program in such a stack, its weights free to lie anywhere.
fn stacked(program: &Program) -> Program {
    let mut program = Program { repeat: STACK, ..program.clone() };
    for value in &mut program.values {
        let rank = value.dims.len();
        if let Def::Parameter { kind: ParameterKind::Weight, pattern } = &mut value.def
            && pattern.label.is_none()
        {
            *pattern = LayoutPattern::any(rank, false);
        }
    }
    program
}

#[test]
#[ignore = "slow: all plans of many programs, by another solver"]
fn within_a_memory_limit_no_plan_that_fits_is_cheaper() {
    let [slower, _] = hold_within_memory(&Limits::default());
    assert!(
        slower >= 1 || number("SHARD_SECOND_SOLVER_COUNT", COUNT) < COUNT,
        "no limit makes a difference"
    );
}

/// With so few branches, plans within memory are mostly left open, so that they are divided by the
/// layouts of values.
#[test]
#[ignore = "slow: all plans of many programs, by another solver"]
fn nor_where_plans_are_divided_by_the_layouts_of_values() {
    let limits = Limits { branches: 8, ..Limits::default() };
    let [_, bounded] = hold_within_memory(&limits);
    let [_, without] = hold_within_memory(&Limits { trials: false, ..limits });
    assert!(bounded < without || number("SHARD_SECOND_SOLVER_COUNT", COUNT) < COUNT);
}

/// Compares what is found for many programs within these limits with the second solver. Returns how
/// many memory limits make a plan slower, and how many plans are not proven.
fn hold_within_memory(limits: &Limits) -> [usize; 2] {
    let options = LowerOptions { limits: limits.clone(), ..LowerOptions::default() };
    let (mut judged, mut bound, mut bounded, mut without) = (0, 0, 0, 0);
    for (seed, number) in numbers(COUNT) {
        for make in [case, networked_case, case_with_forms, case_by_ids] {
            let Case { program, hardware, .. } = make(seed, number);
            let program = stacked(&program);
            let Ok(facts) = Facts::new(&program, &hardware, false) else { continue };
            let free = LowerOptions { any_size: true, ..LowerOptions::default() };
            let Ok(fastest) = lower(&program, &hardware, &free) else { continue };
            let needed = Memory::of(&fastest.plan).weights.0 + Memory::of(&fastest.plan).caches.0;
            let (least, true) = least_stored(&facts) else { continue };
            for stored in [least, (least + needed) / 2, needed.saturating_sub(1)] {
                if stored < least || stored >= needed {
                    continue;
                }
                let said = || {
                    format!(
                        "program {number} of seed {seed} in {stored}\n{}",
                        program_text(&program)
                    )
                };
                let limited = hardware.with_memory_limit(STACK * stored + STACK - 1);
                let found = lower(&program, &limited, &options);
                let (claimed, least_time, proven) = match &found {
                    Ok(found) => {
                        let stopped = found.optimality.stopped_by;
                        if stopped == Some(SearchLimit::Forms) {
                            continue;
                        }
                        let peak = Memory::of(&found.plan).peak().0;
                        assert!(peak <= limited.hbm_bytes, "{}", said());
                        let proven = found.optimality.status == Status::Proven;
                        (Some(found.optimality.cost.0), found.optimality.lower_bound.0, proven)
                    }
                    Err(LowerError::NoPlanFits { proven, .. }) => (None, 0, *proven),
                    Err(other) => panic!("{other}: {}", said()),
                };
                let Some(exact) =
                    second(&program, &hardware, false, claimed.unwrap_or(u64::MAX - 1), stored)
                else {
                    continue;
                };
                judged += 1;
                bound += usize::from(exact.is_some_and(|exact| exact > fastest.optimality.cost.0));
                without += usize::from(exact.is_none());
                if proven {
                    assert_eq!(claimed, exact, "{}", said())
                } else {
                    bounded += 1;
                    assert!(exact.is_none_or(|exact| least_time <= exact), "{}", said());
                    eprintln!(
                        "bounded: {claimed:?} and {least_time}, exactly {exact:?}: {}",
                        said()
                    );
                }
            }
        }
    }
    eprintln!(
        "{judged} judged; the limit makes {bound} slower, {without} impossible; {bounded} not \
            proven"
    );
    [bound, bounded]
}
