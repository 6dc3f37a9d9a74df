//! The optimiser against a brute force that shares none of its machinery: no strategy generator, no
//! move generator, no extraction. Both must agree to the picosecond on the time of the cheapest
//! plan.
//!
//! * `SHARD_BRUTE_FORCE_SEED`: another seed than the one used by default.
//! * `SHARD_BRUTE_FORCE_COUNT`: how many programs are made.
//! * `SHARD_BRUTE_FORCE_ONLY`: one program alone, by number, with all that is known of it printed.

pub(crate) mod attention;
pub(crate) mod elimination;
pub(crate) mod facts;
pub(crate) mod forms;
pub(crate) mod generate;
pub(crate) mod in_pieces;
pub(crate) mod layouts;
pub(crate) mod moves;
pub(crate) mod optimum;
pub(crate) mod print;
pub(crate) mod trees;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::attention::{ATTENTIONS, RINGS, attention_case, ring_case};
use self::facts::Facts;
use self::forms::forms;
use self::generate::{
    Case, case, case_along_lines, case_by_ids, case_with_forms, case_with_scales, hosted_case,
    networked_case,
};
use self::layouts::{Written, meets};
use self::optimum::{Optimum, cheapest_plan};
use self::print::program_text;
use rayon::prelude::*;
use shard_ir::{Def, InstrKind, Op, Plan, Program};
use shard_runtime::{RunOptions, in_program_order, run_against};
use shard_search::{Limits, LowerError, LowerOptions, Lowered, SearchLimit, Status, lower};

const SEED: u64 = 20_240_817;
const COUNT: u64 = 1_000;
const JUDGED_AT_LEAST: usize = 900;
const COUNT_WITH_FORMS: u64 = 200;
const JUDGED_AT_LEAST_WITH_FORMS: usize = 120;
const WITH_SCALES: u64 = 150;
const WITH_SCALES_JUDGED_AT_LEAST: usize = 100;
const ALONG_LINES: u64 = 200;
const ALONG_LINES_JUDGED_AT_LEAST: usize = 190;
const BY_IDS: u64 = 200;
const BY_IDS_JUDGED_AT_LEAST: usize = 190;
const NETWORKED: u64 = 300;
const NETWORKED_JUDGED_AT_LEAST: usize = 250;
const HOSTED: u64 = 400;
const HOSTED_JUDGED_AT_LEAST: usize = 300;
const LOOPED: u64 = 400;
const LOOPED_JUDGED_AT_LEAST: usize = 300;
const LOOPED_NETWORKED: u64 = 150;
const LOOPED_NETWORKED_JUDGED_AT_LEAST: usize = 100;

/// The outcome for one program.
struct Outcome {
    /// The answer of the brute force, or why it has none.
    judged: Result<Optimum, &'static str>,
    /// Whether its plan computes a composite in pieces.
    in_pieces: bool,
    lowering: Duration,
    judging: Duration,
}

#[test]
#[ignore = "slow: all plans of many programs"]
fn no_plan_is_cheaper_than_the_one_chosen() {
    hold(case, COUNT, JUDGED_AT_LEAST, false);
}

#[test]
fn no_plan_is_cheaper_than_the_one_chosen_on_a_torus_or_behind_switches() {
    hold(networked_case, NETWORKED, NETWORKED_JUDGED_AT_LEAST, false);
}

/// Attentions that may run as one kernel, on a chip that has one.
#[test]
fn no_plan_of_an_attention_is_cheaper_either() {
    hold(attention_case, ATTENTIONS, ATTENTIONS as usize, false);
}

/// The same, where blocks of keys and values may travel round.
#[test]
fn no_plan_of_an_attention_with_loops_is_cheaper_either() {
    hold(attention_case, ATTENTIONS, ATTENTIONS as usize, true);
}

/// Rings over one axis of two, and over both in either order.
#[test]
fn no_plan_of_an_attention_with_loops_on_two_axes_is_cheaper_either() {
    hold(ring_case, RINGS, RINGS as usize, true);
}

/// All of this is tested for rings, too.
#[test]
fn several_of_the_attentions_are_rings() {
    let options = LowerOptions { fuse: true, ..LowerOptions::default() };
    let rings = |case: fn(u64, u64) -> Case, count: u64| {
        let is_ring = |number: &u64| {
            let Case { program, hardware, .. } = case(SEED, *number);
            let plan = lower(&program, &hardware, &options).expect("a plan").plan;
            !shard_ir::attention::rings(&plan).is_empty()
        };
        (0..count).filter(is_ring).count()
    };
    let found = (rings(attention_case, ATTENTIONS), rings(ring_case, RINGS));
    eprintln!("rings: {found:?}");
    assert!(found.0 >= 10 && found.1 >= 3, "{found:?}");
}

/// Weights in host memory, beside values of the same shape that may be sent.
#[test]
#[ignore = "slow: all plans of many programs"]
fn no_plan_with_weights_in_host_memory_is_cheaper_either() {
    hold(hosted_case, HOSTED, HOSTED_JUDGED_AT_LEAST, false);
}

/// Chains of einsums, sums with shared operands, sums of einsums and equal ops: programs that have
/// several forms.
#[test]
fn no_plan_of_another_form_is_cheaper_either() {
    hold(case_with_forms, COUNT_WITH_FORMS, JUDGED_AT_LEAST_WITH_FORMS, false);
}

/// Weights in blocks with their scales, and what is almost that.
#[test]
fn no_plan_of_a_product_with_scales_is_cheaper_either() {
    hold(case_with_scales, WITH_SCALES, WITH_SCALES_JUDGED_AT_LEAST, false);
    hold(case_with_scales, WITH_SCALES / 3, WITH_SCALES_JUDGED_AT_LEAST / 4, true);
    let is_one_product = |case: &Case| {
        let lowered = lower(&case.program, &case.hardware, &LowerOptions::default());
        lowered.is_ok_and(|l| {
            l.plan.ids().any(|id| {
                let instr = l.plan.instruction(id);
                matches!(instr.kind, InstrKind::Op(Op::Einsum)) && instr.operands.len() == 3
            })
        })
    };
    let whole = (0..WITH_SCALES).filter(|n| is_one_product(&case_with_scales(SEED, *n))).count();
    assert!(whole > 40 && whole < WITH_SCALES as usize, "{whole} have a product of three");
}

/// Sums up to a position, recurrences and choices of the largest, over dims that are cut in parts.
#[test]
fn no_plan_in_parts_is_cheaper_either() {
    hold(case_along_lines, ALONG_LINES, ALONG_LINES_JUDGED_AT_LEAST, false);
    // Some plans leave the dim split.
    let is_in_parts = |case: &Case| {
        let lowered = lower(&case.program, &case.hardware, &LowerOptions::default());
        lowered.is_ok_and(|l| l.plan.dims.len() > case.program.declared_dims())
    };
    let in_parts = (0..ALONG_LINES).filter(|n| is_in_parts(&case_along_lines(SEED, *n))).count();
    assert!(in_parts > 30, "{in_parts} plans are in parts");
}

/// Rows added up by their ids, with places that axes may split.
#[test]
fn no_plan_of_rows_by_their_ids_is_cheaper_either() {
    hold(case_by_ids, BY_IDS, BY_IDS_JUDGED_AT_LEAST, false);
    // Each device makes its own places among several.
    let splits_places = |plan: &Plan| {
        plan.instructions.iter().any(|instr| {
            let own = instr.kind.op().and_then(shard_ir::Op::own_dim);
            let at = own.and_then(|own| instr.dims.iter().position(|dim| *dim == own));
            at.is_some_and(|at| !instr.layout.axes_of(at).is_empty())
        })
    };
    let found = (0..BY_IDS).filter(|number| {
        let Case { program, hardware, .. } = case_by_ids(SEED, *number);
        let lowered = lower(&program, &hardware, &LowerOptions::default());
        lowered.is_ok_and(|lowered| splits_places(&lowered.plan))
    });
    let found = found.count();
    assert!(found > 30, "{found} plans split the places");
}

/// The same programs, with collectives in the loops of einsums.
#[test]
#[ignore = "slow: all plans of many programs"]
fn no_plan_with_loops_is_cheaper_either() {
    hold(case, LOOPED, LOOPED_JUDGED_AT_LEAST, true);
    hold(networked_case, LOOPED_NETWORKED, LOOPED_NETWORKED_JUDGED_AT_LEAST, true);
}

/// Judges `count` programs that `case` makes.
fn hold(case: fn(u64, u64) -> Case, count: u64, judged_at_least: usize, fuse: bool) {
    let seed = number("SHARD_BRUTE_FORCE_SEED").unwrap_or(SEED);
    let numbers: Vec<u64> = match number("SHARD_BRUTE_FORCE_ONLY") {
        Some(only) => vec![only],
        None => (0..number("SHARD_BRUTE_FORCE_COUNT").unwrap_or(count)).collect(),
    };
    let start = Instant::now();
    let outcome = |number: &u64| {
        let case = case(seed, *number);
        judge(&case, fuse, numbers.len() == 1).map_err(|complaint| {
            let (program, chip) = (program_text(&case.program), &case.hardware_text);
            format!("program {number}: {complaint}\n{program}{chip}")
        })
    };
    let outcomes: Vec<_> = numbers.par_iter().with_max_len(1).map(outcome).collect();
    let complaints: Vec<&String> = outcomes.iter().filter_map(|o| o.as_ref().err()).collect();
    let good: Vec<&Outcome> = outcomes.iter().filter_map(|o| o.as_ref().ok()).collect();
    let judged = good.iter().filter(|o| o.judged.is_ok()).count();
    let unreachable = good.iter().filter(|o| o.judged == Ok(Optimum::NoPlan)).count();
    let in_pieces = good.iter().filter(|o| o.judged.is_ok() && o.in_pieces).count();
    let mut too_large: BTreeMap<&str, usize> = BTreeMap::new();
    good.iter()
        .filter_map(|o| o.judged.err())
        .for_each(|reason| *too_large.entry(reason).or_default() += 1);
    eprintln!(
        "seed {seed}: {} programs, {judged} judged ({unreachable} of them without any plan, \
            {in_pieces} with composites \
         in pieces), too large: {too_large:?}; \
         lowering {:.1?}, judging {:.1?} of all threads, {:.1?} in all",
        outcomes.len(),
        good.iter().map(|o| o.lowering).sum::<Duration>(),
        good.iter().map(|o| o.judging).sum::<Duration>(),
        start.elapsed(),
    );
    for (i, complaint) in complaints.iter().enumerate() {
        // The first few failures are told in full, of the others only what is wrong.
        eprintln!(
            "{}",
            if i < 10 { complaint } else { complaint.lines().next().unwrap_or_default() }
        );
    }
    assert!(
        complaints.is_empty(),
        "{} programs of {} are at fault",
        complaints.len(),
        outcomes.len()
    );
    assert!(
        in_pieces >= numbers.len() / 50 || count <= COUNT_WITH_FORMS,
        "only {in_pieces} have composites in pieces"
    );
    assert!(
        judged >= judged_at_least.min(numbers.len() * 7 / 10),
        "only {judged} programs were judged"
    );
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Lowers a program, tests all that is promised of the plan, and compares its time with that of the
/// brute force.
fn judge(case: &Case, fuse: bool, talk: bool) -> Result<Outcome, String> {
    let Case { program, hardware, .. } = case;
    let start = Instant::now();
    let lowered = lower(program, hardware, &LowerOptions { fuse, ..LowerOptions::default() });
    let lowering = start.elapsed();
    let start = Instant::now();
    let claimed = match &lowered {
        Ok(lowered) => {
            if talk {
                eprintln!(
                    "{}{}{}",
                    program_text(program),
                    case.hardware_text,
                    shard_ir::text::print(&lowered.plan)
                );
            }
            hold_to_promises(case, lowered)?;
            if lowered.optimality.stopped_by == Some(SearchLimit::Forms) {
                return Ok(Outcome {
                    judged: Err("forms"),
                    in_pieces: false,
                    lowering,
                    judging: start.elapsed(),
                });
            }
            Some(lowered.optimality.cost.0)
        }
        Err(LowerError::Unreachable { .. }) => None,
        Err(other) => return Err(format!("not lowered: {other}")),
    };
    // A plan that takes longer than the one chosen is of no interest.
    let judged =
        match cheapest_of_all_forms(program, (hardware, fuse), claimed.unwrap_or(u64::MAX - 1)) {
            Err(reason) => Err(reason),
            Ok(optimum) => match (optimum, claimed) {
                (Optimum::Time(time), Some(claimed)) if time == claimed => Ok(optimum),
                (Optimum::NoPlan, None) => Ok(optimum),
                _ => {
                    return Err(format!(
                        "the plan chosen takes {claimed:?} ps, the brute force says {optimum:?}"
                    ));
                }
            },
        };
    let is_piece = |i: &shard_ir::Instruction| i.origin.piece_of.is_some();
    let in_pieces = lowered.as_ref().is_ok_and(|l| l.plan.instructions.iter().any(is_piece));
    Ok(Outcome { judged, in_pieces, lowering, judging: start.elapsed() })
}

/// The time of the cheapest plan of any form of a program.
fn cheapest_of_all_forms(
    program: &Program,
    (hardware, fuse): (&shard_cost::Hardware, bool),
    at_most: u64,
) -> Result<Optimum, &'static str> {
    let mut best = Optimum::NoPlan;
    for form in forms(program)? {
        match cheapest_plan(&Facts::new(&form, hardware, fuse)?, at_most, true) {
            Optimum::TooLarge(reason) => return Err(reason),
            Optimum::NoPlan => {}
            Optimum::Time(time) => match best {
                Optimum::Time(known) if known <= time => {}
                _ => best = Optimum::Time(time),
            },
        }
    }
    Ok(best)
}

fn hold_to_promises(case: &Case, lowered: &Lowered) -> Result<(), String> {
    let (plan, optimality) = (&lowered.plan, &lowered.optimality);
    let too_many = optimality.stopped_by == Some(SearchLimit::Forms);
    if (optimality.status != Status::Proven || optimality.stopped_by.is_some()) && !too_many {
        return Err(format!("not proven: {optimality:?}"));
    }
    if optimality.lower_bound > optimality.cost {
        return Err(format!("the bound is above the cost: {optimality:?}"));
    }
    shard_ir::verify::verify(plan).map_err(|e| format!("the plan is not legal: {e:?}"))?;
    let price = shard_cost::price(plan, &case.hardware).totals.serial_time;
    if price != optimality.cost {
        return Err(format!(
            "the plan is priced at {price:?}, the search says {:?}",
            optimality.cost
        ));
    }
    answers_to_its_types(&case.program, plan)?;
    let schedule = in_program_order(plan);
    let report = run_against(&Plan::unsharded(&case.program), &schedule, &RunOptions::default())
        .map_err(|e| format!("the plan does not run: {e:?}"))?;
    if !report.equal {
        return Err(format!(
            "the plan computes something else; first wrong: {:?}",
            report.first_wrong
        ));
    }
    Ok(())
}

/// Whether parameters and results have layouts that their types allow, and each label one layout.
fn answers_to_its_types(program: &Program, plan: &Plan) -> Result<(), String> {
    let mut labels = BTreeMap::new();
    let mut check =
        |what: &str, value: &shard_ir::Value, pattern: &shard_ir::LayoutPattern, layout| {
            let written = Written::of(layout, value.dims.len());
            let agrees = pattern.label.is_none_or(|label| {
                let named = written.by_name(&value.dims);
                *labels.entry(label).or_insert_with(|| named.clone()) == named
            });
            if meets(pattern, &written) && agrees {
                Ok(())
            } else {
                Err(format!(
                    "{what} {:?} has a layout that its type does not allow: {written:?}",
                    value.name
                ))
            }
        };
    let mut given = plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Parameter(_)));
    for value in &program.values {
        if let Def::Parameter { pattern, .. } = &value.def {
            let instr = given.next().ok_or("a parameter is missing")?;
            check("parameter", value, pattern, instr.layout)?;
        }
    }
    for (output, result) in program.outputs.iter().zip(&plan.outputs) {
        let instr = plan.instruction(result.id);
        check("result", program.value(output.value), &output.pattern, instr.layout)?;
        if result.dims != output.dims {
            return Err(format!("result {} has its dims in another order", output.name));
        }
    }
    Ok(())
}

/// The bound that steers the brute force hides no plan: without it the answer is the same.
#[test]
fn the_brute_force_finds_the_same_without_its_bound() {
    let mut compared = 0;
    for number in 0..90 {
        let Case { program, hardware, .. } = case(SEED + 1, number);
        let Ok(lowered) = lower(&program, &hardware, &LowerOptions::default()) else { continue };
        let Ok(facts) = Facts::new(&program, &hardware, false) else { continue };
        // A little more than the optimum is allowed, so that there is a choice.
        let at_most = lowered.optimality.cost.0 + lowered.optimality.cost.0 / 20;
        let guided = cheapest_plan(&facts, at_most, true);
        let unguided = cheapest_plan(&facts, at_most, false);
        if !matches!((guided, unguided), (Optimum::TooLarge(_), _) | (_, Optimum::TooLarge(_))) {
            assert_eq!(guided, unguided, "program {number}\n{}", program_text(&program));
            compared += 1;
        }
    }
    eprintln!("{compared} programs compared");
    assert!(compared >= 50);
}

/// With one sweep and few states the search still finds a plan and a true bound. Both are compared
/// with a search that comes to its end.
#[test]
fn a_search_that_ends_early_says_what_is_true() {
    let (mut bounded, mut worse) = (0, 0);
    for (make, count) in
        [(case as fn(u64, u64) -> Case, 500), (case_with_forms, 150), (attention_case, 30)]
    {
        for number in 0..count {
            let Case { program, hardware, .. } = make(SEED + 2, number);
            let Ok(best) = lower(&program, &hardware, &LowerOptions::default()) else { continue };
            let best = best.optimality;
            for expansions in [1, 64, 640] {
                let limits = Limits { expansions, sweeps: 1, ..Limits::default() };
                let options = LowerOptions { limits, ..LowerOptions::default() };
                let found = match lower(&program, &hardware, &options) {
                    Ok(found) => found,
                    Err(LowerError::Limit { .. }) => continue,
                    Err(other) => panic!("program {number}: {other}\n{}", program_text(&program)),
                };
                let price = shard_cost::price(&found.plan, &hardware).totals.serial_time;
                let of = &found.optimality;
                assert!(
                    of.lower_bound <= best.cost && best.lower_bound <= of.cost && of.cost == price,
                    "program {number}: {best:?}, {price:?}, {of:?}\n{}",
                    program_text(&program)
                );
                let is_proven = of.status == Status::Proven && best.status == Status::Proven;
                assert!(!is_proven || of.cost == best.cost, "program {number}: {best:?}, {of:?}");
                bounded += usize::from(of.status == Status::Bounded);
                worse += usize::from(of.cost > best.cost);
            }
        }
    }
    eprintln!("{bounded} bounded, {worse} of them not the best");
    assert!(bounded > 30 && worse > 3, "{bounded} bounded, {worse} of them not the best");
}
