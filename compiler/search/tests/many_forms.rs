//! Programs whose forms are bounded together, compared with all their forms looked at one by one.

use crate::common::blocks::blocks;
use crate::common::dice::Dice;
use rayon::prelude::*;
use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{
    Limits, LowerError, LowerOptions, Lowered, Proof, Status, certificate, least_kept, lower,
};

fn program(source: &str) -> Program {
    let mut checked = check_source(&SourceFile::new("test", source), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    checked.programs.swap_remove(checked.roots[0])
}

fn with_forms(forms: usize, program: &Program, hardware: &Hardware) -> Result<Lowered, LowerError> {
    let limits = Limits { forms, ..Limits::default() };
    lower(program, hardware, &LowerOptions { limits, ..LowerOptions::default() })
}

/// Programs of which enough are tried.
const PROGRAMS: u64 = 30;

#[test]
fn forms_chosen_apart_have_the_plan_of_all_forms_one_by_one() {
    let programs =
        std::env::var("SHARDC_PROGRAMS").map_or(PROGRAMS, |n| n.parse().expect("a number"));
    let (compared, by_clusters) =
        (0..programs).into_par_iter().map(compared).reduce(|| (0, 0), both);
    eprintln!("{compared} compared, {by_clusters} proven apart");
    assert!(compared >= PROGRAMS / 2 && by_clusters >= PROGRAMS / 3, "{compared}, {by_clusters}");
}

fn both(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

/// Compares a program with its forms bounded together and one by one, in several memories. Returns
/// how many memories were compared, and how often a search proved the former.
fn compared(seed: u64) -> (u64, u64) {
    let (mut compared, mut by_clusters) = (0, 0);
    let source = blocks(&mut Dice(seed));
    let program = program(&source);
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let within = |hbm_bytes| {
        let chip = chip.with_memory_limit(hbm_bytes);
        let (all, few) =
            rayon::join(|| with_forms(4096, &program, &chip), || with_forms(1, &program, &chip));
        (hbm_bytes, all, few)
    };
    let mut searched = vec![within(1 << 40)];
    if let (_, Ok(fastest), _) = &searched[0] {
        let (least, most) = (least_kept(&program), Memory::of(&fastest.plan).peak().0);
        let cost = fastest.optimality.cost;
        searched.push(within(least + most.saturating_sub(least) / 16 * (1 + seed % 15)));
        let limits = Limits { forms: 4096, enumerated_forms: 2, ..Limits::default() };
        let options = LowerOptions { limits, ..LowerOptions::default() };
        if let Ok(cut) = lower(&program, &chip, &options) {
            let bound = cut.optimality.lower_bound;
            assert!(bound <= cost, "seed {seed}: {bound:?} where a plan takes {cost:?}\n{source}");
        }
    }
    for (capacity, all, few) in searched {
        let (all, few) = match (all, few) {
            (Ok(all), Ok(few)) => (all, few),
            (Err(LowerError::NoPlanFits { proven: true, .. }), Ok(few)) => {
                panic!("seed {seed}: {:?} where none is proven to fit\n{source}", few.optimality)
            }
            (Ok(all), Err(LowerError::NoPlanFits { proven: true, .. })) => {
                panic!(
                    "seed {seed}: none is proven to fit where there is {:?}\n{source}",
                    all.optimality
                )
            }
            _ => continue,
        };
        certificate::computes(&few.plan, &program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{source}"));
        let said = format!(
            "seed {seed}, {capacity} bytes: {:?} {:?}\n{source}",
            all.optimality, few.optimality
        );
        assert!(few.optimality.lower_bound <= all.optimality.cost, "the bound is false: {said}");
        if [&all, &few].iter().all(|l| l.optimality.status == Status::Proven) {
            compared += 1;
            assert_eq!(all.optimality.cost, few.optimality.cost, "{said}");
        }
        by_clusters += u64::from(few.optimality.proof == Some(Proof::Search));
    }
    (compared, by_clusters)
}

/// Heads that are summed over all their dims, which can be computed by summing their weights.
fn heads(count: usize) -> String {
    let mut source =
        "mesh x=2\ndim A = 62\ndim B = 2\ndim C = 1022\nlayer f(x: bf16 AB".to_string();
    (0..count).for_each(|head| source += &format!(", w{head}: weight bf16 BC?"));
    source += ") -> bf16 A {\n return ";
    let added: Vec<String> =
        (0..count).map(|head| format!("sum(einsum(x, w{head} -> AC) over C)")).collect();
    source + &added.join(" + ") + "\n}\n"
}

#[test]
fn of_more_forms_than_are_read_off_those_of_few_flops_are_searched() {
    // Each head in two ways, all of the same x: so 65,536 forms in one cluster.
    let program = program(&heads(16));
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    // All weights, and less than the scores of a head.
    for hbm_bytes in [1 << 40, 60_000] {
        let lowered = lower(&program, &chip.with_memory_limit(hbm_bytes), &LowerOptions::default());
        let lowered = lowered.unwrap_or_else(|error| panic!("{hbm_bytes}: {error}"));
        assert_eq!(lowered.optimality.status, Status::Bounded);
        assert!(Memory::of(&lowered.plan).peak().0 < 60_000, "{:?}", Memory::of(&lowered.plan));
    }
}
