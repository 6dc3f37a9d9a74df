//! A value that many ops read, each in another layout.

use std::fmt::Write;

use crate::common::dice::Dice;
use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{LowerOptions, Lowered, Proof, Status, lower, order_savings};

/// On three axes of four.
const LAYOUTS: [&str; 8] =
    ["E_xF_yz", "E_yF_xz", "E_zF_xy", "EF_xyz", "E_xyzF", "E_xyF_z", "E_yzF_x", "E_xF_zy"];

/// One value, and products with weights of these layouts: each through a gelu, and all added up.
fn branches(head: &str, x: &str, result: &str, layouts: &[&str]) -> Program {
    let mut text = format!("{head}layer branches(x: bf16 {x},\n");
    for (i, layout) in layouts.iter().enumerate() {
        let _ = writeln!(text, "  w{i}: weight bf16 {layout},");
    }
    let _ = writeln!(text, ") -> bf16 {result} {{");
    for i in 0..layouts.len() {
        let _ = writeln!(text, "  let h{i} = gelu(einsum(x, w{i} -> BF))");
    }
    let sum: Vec<String> = (0..layouts.len()).map(|i| format!("h{i}")).collect();
    let _ = writeln!(text, "  return {}\n}}", sum.join(" + "));
    checked(&text)
}

fn checked(text: &str) -> Program {
    let mut checked = check_source(&SourceFile::new("test.shard", text), &CheckOptions::default());
    assert!(checked.diagnostics.iter().all(|d| !d.is_error()), "{:#?}", checked.diagnostics);
    checked.programs.remove(0)
}

/// One value, and products with weights of these layouts, each of them a result in a layout of its
/// own.
fn apart(head: &str, x: &str, products: &[(&str, &str)]) -> Program {
    let mut text = format!("{head}layer apart(x: bf16 {x},\n");
    for (i, (weight, _)) in products.iter().enumerate() {
        let _ = writeln!(text, "  w{i}: weight bf16 {weight},");
    }
    let listed = |of: &dyn Fn(usize) -> String| {
        (0..products.len()).map(of).collect::<Vec<String>>().join(", ")
    };
    let _ = writeln!(text, ") -> ({}) {{", listed(&|i| format!("r{i}: bf16 {}", products[i].1)));
    for i in 0..products.len() {
        let _ = writeln!(text, "  let r{i} = gelu(einsum(x, w{i} -> BF))");
    }
    let _ = writeln!(text, "  return ({})\n}}", listed(&|i| format!("r{i}")));
    checked(&text)
}

/// So many branches on 64 chips, with weights of the first `kinds` of the layouts in turn.
fn mismatched(count: usize, kinds: usize) -> Program {
    let head = "mesh x=4, y=4, z=4\ndim B = 512\ndim E = 8192\ndim F = 8192\n";
    let layouts: Vec<&str> = (0..count).map(|i| LAYOUTS[i % kinds]).collect();
    branches(head, "B_xE_y", "B_xF_y", &layouts)
}

fn chip() -> Hardware {
    Hardware::built_in("tpu-v4-flat").expect("a built-in chip")
}

fn options() -> LowerOptions {
    LowerOptions { any_size: true, ..LowerOptions::default() }
}

fn lowered(program: &Program, whole_space: bool) -> Lowered {
    let options = LowerOptions { whole_space, ..options() };
    lower(program, &chip(), &options).expect("a plan")
}

#[test]
fn prices_alone_prove_that_each_layout_of_a_value_takes_a_permute_of_its_own() {
    for count in 2..=6 {
        let found = lowered(&mismatched(count, 8), false);
        assert_eq!(found.optimality.proof, Some(Proof::Certificate), "{count} {found:?}");
    }
}

#[test]
fn readers_of_eight_layouts_are_proven_however_many_they_are() {
    for (count, most) in [(8, 10_000), (16, 15_000), (64, 20_000)] {
        let found = lowered(&mismatched(count, 8), false);
        assert_eq!(found.optimality.status, Status::Proven, "{count} {:?}", found.optimality);
        assert!(found.stats.expansions < most, "{count} {:?}", found.stats);
        // Prices come close, so that it is a small part of all plans that is looked at one by one.
        let (cost, bound) =
            (found.optimality.cost.0, found.optimality.price_bound.map_or(0, |bound| bound.0));
        assert!(cost - bound < cost / 500, "{count}: {bound} of {cost}");
    }
}

#[test]
fn readers_that_are_alike_are_proven_by_prices_where_there_are_more_than_are_priced_one_by_one() {
    for (count, kinds) in [(9, 1), (12, 2), (16, 2)] {
        let found = lowered(&mismatched(count, kinds), false);
        assert_eq!(found.optimality.proof, Some(Proof::Certificate), "{count} {kinds} {found:?}");
    }
}

#[test]
fn orders_of_axes_are_asked_about_as_far_as_the_work_on_the_plan_goes_and_the_rest_is_told() {
    // Of a small program all are asked about, of a large one the first.
    for (count, asked) in [(8, 9), (64, 1)] {
        let program = mismatched(count, 8);
        let found = lowered(&program, false);
        let savings = order_savings(&program, &found, &chip(), &options()).expect("savings");
        assert!((1..=asked).contains(&savings.found.len()), "{count} {:?}", savings.found.len());
        assert_eq!(savings.unasked.is_some(), count == 64);
        if let Some(unasked) = savings.unasked {
            assert_eq!(unasked.count, 15);
            assert!(savings.found.iter().all(|found| found.saved <= unasked.at_most));
        }
    }
}

#[test]
fn the_whole_space_has_no_better_plan_for_many_readers() {
    let mut dice = Dice(11);
    let mut compared = 0;
    for case in 0..CASES {
        let kinds: Vec<&str> = (0..1 + dice.below(3)).map(|_| dice.of(&WEIGHTS)).collect();
        let layouts: Vec<&str> = (0..9 + dice.below(3)).map(|_| dice.of(&kinds)).collect();
        let rows = 8 << (2 * dice.below(5));
        let x = dice.of(&["B_xE_y", "BE_xy", "B_xyE", "BE"]);
        let result = dice.of(&["B_xF_y", "BF", "BF_xy"]);
        let program = branches(&head(rows), x, result, &layouts);
        let told = format!("case {case}: B={rows} {x} {result} {layouts:?}");
        compared += usize::from(agrees_with_the_whole_space(&program, &told));
    }
    assert!(compared * 2 >= CASES, "{compared}");
}

/// Readers that are made alike pay one price; one of them may still read another layout than the
/// others.
#[test]
fn readers_that_are_made_alike_and_wanted_otherwise_hide_no_plan() {
    // Of the first every plan was left out, of the second the best one.
    let wanted = ["B_xF", "B_yF_x", "B_xF", "B_xF", "B_yF_x", "B_xF", "B_xF", "B_xF", "B_xF"];
    let program = apart(&head(2048), "BE", &wanted.map(|result| ("E_xF", result)));
    assert!(agrees_with_the_whole_space(&program, "one kind of weights"));
    let products = [
        ("EF", "BF"),
        ("EF", "BF"),
        ("EF_xy", "BF"),
        ("EF", "B_xF"),
        ("EF", "B_xyF"),
        ("EF", "B_xF"),
        ("EF", "B_xF"),
        ("EF_xy", "BF"),
        ("EF", "B_xyF"),
        ("EF_xy", "B_xF"),
    ];
    let program = apart(&head(512), "B_xE_y", &products);
    assert!(agrees_with_the_whole_space(&program, "two kinds of weights"));
    random_results_agree_with_the_whole_space(CASES);
}

#[test]
#[ignore = "slow: 1000 programs in place of 24"]
fn readers_that_are_made_alike_hide_no_plan_of_a_thousand_programs() {
    random_results_agree_with_the_whole_space(1000);
}

fn random_results_agree_with_the_whole_space(cases: usize) {
    let results = ["B_xF_y", "B_yF_x", "BF_xy", "B_xyF", "BF", "B_xF", "BF_y"];
    let mut dice = Dice(11);
    let mut compared = 0;
    for case in 0..cases {
        let kinds: Vec<&str> = (0..1 + dice.below(2)).map(|_| dice.of(&WEIGHTS)).collect();
        let wanted: Vec<&str> = (0..1 + dice.below(3)).map(|_| dice.of(&results)).collect();
        let products: Vec<(&str, &str)> =
            (0..9 + dice.below(3)).map(|_| (dice.of(&kinds), dice.of(&wanted))).collect();
        let rows = 8 << (2 * dice.below(5));
        let x = dice.of(&["B_xE_y", "BE_xy", "B_xyE", "BE"]);
        let program = apart(&head(rows), x, &products);
        let told = format!("case {case}: B={rows} {x} {products:?}");
        compared += usize::from(agrees_with_the_whole_space(&program, &told));
    }
    assert!(compared * 2 >= cases, "{compared}");
}

const CASES: usize = 24;

/// On two axes of two.
const WEIGHTS: [&str; 7] = ["E_xF_y", "E_yF_x", "EF_xy", "E_xyF", "E_xF", "EF_y", "EF"];

fn head(rows: usize) -> String {
    format!("mesh x=2, y=2\ndim B = {rows}\ndim E = 1024\ndim F = 512\n")
}

/// Whether a search with bounds and one of the whole space both prove a plan. Asserts that neither
/// has a bound above the plan of the other.
fn agrees_with_the_whole_space(program: &Program, told: &str) -> bool {
    let (found, whole) = (lowered(program, false).optimality, lowered(program, true).optimality);
    let told = format!("{told}\n{found:?}\n{whole:?}");
    assert!(found.lower_bound <= whole.cost && whole.lower_bound <= found.cost, "{told}");
    let both = found.status == Status::Proven && whole.status == Status::Proven;
    assert!(!both || found.cost == whole.cost, "{told}");
    both
}
