//! Small layers within less and less memory, two fixed and others random. What a search says for
//! one limit is compared with the plans found for other limits, with and without bounds.
//!
//! * `SHARD_LESS_MEMORY_COUNT`: how many layers are made.
//! * `SHARD_LESS_MEMORY_SEED`: another seed.

use std::fmt::Write;

use crate::common::dice::Dice;
use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{LowerError, LowerOptions, Lowered, Status, least_kept, lower, smallest};

const SEED: u64 = 20_261_129;
const COUNT: u64 = 25;

/// How many limits are tried for each layer, between the memory of its weights and that of its
/// fastest plan.
const LIMITS: u64 = 7;

/// Flops, bandwidth of memory and of the network, and latency, in seconds.
const RATES: [[f64; 4]; 3] =
    [[1e12, 1e12, 1e11, 0.0], [1e12, 1e12, 1e9, 1e-7], [1e12, 1e12, 1e10, 1e-6]];

/// The same where bytes cost little compared with flops.
const LARGE: [f64; 4] = [1e12, 1e12, 1e11, 0.0];

fn number(variable: &str, without: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(without)
}

/// A layout of these dims in which each axis splits one of them, or none.
fn layout(dice: &mut Dice, dims: &str, axes: &[&str]) -> String {
    if dice.below(4) == 0 {
        return format!("{dims}?");
    }
    let mut split = vec![String::new(); dims.len()];
    for axis in axes {
        let at = dice.below(dims.len() + 1);
        if let Some(split) = split.get_mut(at) {
            split.push_str(axis);
        }
    }
    let written = dims.chars().zip(split).map(|(dim, axes)| match axes.as_str() {
        "" => dim.to_string(),
        axes => format!("{dim}_{axes}"),
    });
    written.collect()
}

/// A layer of up to five ops on values of two dims, with one result or more.
fn layer(dice: &mut Dice) -> String {
    let (mesh, axes): (&str, &[&str]) = match dice.below(3) {
        0 => ("x=2, y=2, z=2", &["x", "y", "z"]),
        1 => ("x=4, y=2", &["x", "y"]),
        _ => ("x=2, y=2", &["x", "y"]),
    };
    let mut text = format!("mesh {mesh}\n");
    for dim in ["A", "B", "C"] {
        let _ = writeln!(text, "dim {dim} = {}", 8 << dice.below(3));
    }
    let mut values: Vec<(String, String)> = Vec::new();
    let mut parameters = Vec::new();
    for n in 0..2 + dice.below(2) {
        let dims = dice.of(&["AB", "BC", "AC", "BA"]).to_string();
        let kind = dice.of(&["", "", "weight "]);
        parameters.push(format!("p{n}: {kind}bf16 {}", layout(dice, &dims, axes)));
        values.push((format!("p{n}"), dims));
    }
    let mut body = String::new();
    for n in 0..1 + dice.below(4) {
        let (a, dims) = values[dice.below(values.len())].clone();
        let (b, others) = values[dice.below(values.len())].clone();
        let shared = dims.chars().find(|dim| others.contains(*dim));
        let (made, of) = match (dice.below(4), shared) {
            (0, _) => (format!("relu({a})"), dims),
            (1, _) => (format!("rmsnorm({a} over {})", &dims[1..]), dims),
            (2, _) if dims == others && a != b => (format!("gelu({a}) + {b}"), dims),
            (_, Some(shared)) if dims != others => {
                let kept: Vec<char> =
                    dims.chars().chain(others.chars()).filter(|dim| *dim != shared).collect();
                let of: String = if kept[0] == kept[1] {
                    kept[..1].iter().collect()
                } else {
                    kept.iter().collect()
                };
                if of.len() < 2 {
                    (format!("tanh({a})"), dims)
                } else {
                    (format!("einsum({a}, {b} -> {of})"), of)
                }
            }
            _ => (format!("tanh({a})"), dims),
        };
        let _ = writeln!(body, "  let v{n} = {made}");
        values.push((format!("v{n}"), of));
    }
    let mut results: Vec<(String, String)> = vec![values[values.len() - 1].clone()];
    for _ in 0..dice.below(3) {
        let more = values[dice.below(values.len())].clone();
        if !results.contains(&more) {
            results.push(more);
        }
    }
    let typed = results.iter().enumerate();
    let typed: Vec<String> =
        typed.map(|(n, (_, dims))| format!("r{n}: bf16 {}", layout(dice, dims, axes))).collect();
    let returned: Vec<&str> = results.iter().map(|(name, _)| name.as_str()).collect();
    let parameters = parameters.join(", ");
    format!(
        "{text}layer f({parameters}) -> ({}) {{\n{body}  return ({})\n}}\n",
        typed.join(", "),
        returned.join(", ")
    )
}

/// The first layer of a file without errors.
fn program(text: &str) -> Option<Program> {
    let source = SourceFile::new("test.shard", text);
    let checked = check_source(&source, &CheckOptions::default());
    let is_right = checked.diagnostics.iter().all(|d| !d.is_error());
    checked.programs.into_iter().next().filter(|_| is_right)
}

fn chip(hbm_bytes: u64, [flops, hbm, network, latency]: [f64; 4]) -> Hardware {
    let text = format!(
        "name = \"small\"\nsource = \"a test\"\n[chip]\nflops = {{ bf16 = {flops:e} }}\n\
         hbm_bytes = {hbm_bytes}\nhbm_bandwidth = {hbm:e}\n[network]\nkind = \"flat\"\n\
         bandwidth = {network:e}\nlatency = {latency:e}\n"
    );
    Hardware::parse(&text).expect("a hardware file")
}

fn needed(lowered: &Lowered) -> u64 {
    Memory::of(&lowered.plan).peak().0
}

/// What a search says for a limit: a plan or none, and whether that is proven.
struct Told {
    bytes: u64,
    whole_space: bool,
    said: Result<Lowered, bool>,
}

#[derive(Default)]
struct Counts {
    layers: u64,
    plans: u64,
    proven: u64,
    none: u64,
    unproven: u64,
}

fn told_of_limits(program: &Program, rates: [f64; 4], text: &str) -> Option<Vec<Told>> {
    let options = LowerOptions::default();
    let fastest = lower(program, &chip(1 << 40, rates), &options).ok()?;
    let (least, most) = (least_kept(program), needed(&fastest));
    let mut all = Vec::new();
    for part in 1..=LIMITS {
        let bytes = least + (most - least) * part / (LIMITS + 1);
        // Where there are three axes the whole space takes long.
        for whole_space in [false, true] {
            if whole_space && program.mesh.axes().len() > 2 {
                continue;
            }
            let options = LowerOptions { whole_space, ..options.clone() };
            let said = match lower(program, &chip(bytes, rates), &options) {
                Ok(found) => Ok(found),
                Err(LowerError::NoPlanFits { proven, .. }) => Err(proven),
                Err(LowerError::Limit { .. }) => Err(false),
                Err(other) => panic!("{text}\n{bytes}: {other:?}"),
            };
            all.push(Told { bytes, whole_space, said });
        }
    }
    Some(all)
}

#[test]
fn what_is_said_of_some_memory_holds_against_the_plans_in_less() {
    let seed = number("SHARD_LESS_MEMORY_SEED", SEED);
    let mut counts = Counts::default();
    for case in 0..number("SHARD_LESS_MEMORY_COUNT", COUNT) {
        let mut dice = Dice(seed.wrapping_add(case.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let text = layer(&mut dice);
        let Some(program) = program(&text) else { continue };
        let rates = RATES[dice.below(RATES.len())];
        let Some(told) = told_of_limits(&program, rates, &text) else { continue };
        counts.layers += 1;
        for plan in told.iter().filter_map(|told| told.said.as_ref().ok()) {
            let (needs, cost) = (needed(plan), plan.optimality.cost);
            for Told { bytes, whole_space, said } in told.iter().filter(|t| needs <= t.bytes) {
                let of = || {
                    let how = if *whole_space { "the whole space" } else { "prices" };
                    format!("case {case} of {seed}: {how} in {bytes}, {needs} are enough\n{text}")
                };
                match said {
                    Err(proven) => assert!(!proven, "none fits: {}", of()),
                    Ok(found) => {
                        let bound = found.optimality.lower_bound;
                        assert!(bound <= cost, "{bound:?} is above {cost:?}: {}", of());
                    }
                }
            }
        }
        for Told { bytes, said, .. } in &told {
            match said {
                Ok(found) => {
                    assert!(needed(found) <= *bytes, "{text}");
                    assert!(found.optimality.lower_bound <= found.optimality.cost, "{text}");
                    counts.plans += 1;
                    counts.proven += u64::from(found.optimality.status == Status::Proven);
                }
                Err(proven) => {
                    counts.none += 1;
                    counts.unproven += u64::from(!proven);
                }
            }
        }
    }
    let Counts { layers, plans, proven, none, unproven } = counts;
    eprintln!(
        "{layers} layers: {plans} plans, {proven} proven; {none} without, {unproven} not proven"
    );
    assert!(proven * 10 >= plans * 9, "{proven} of {plans}");
}

/// The cheapest moves to the first result hold more than others do.
const DETOUR: &str = "mesh x=2, y=2
dim A = 2
dim B = 2
layer f(x: bf16 A_yB_x, a: bf16 A) -> (r0: bf16 AB_y, r1: bf16 A) {
  return (x, a)
}
";

#[test]
fn where_the_cheapest_moves_leave_no_room_others_do() {
    let program = program(DETOUR).expect("a layer");
    for whole_space in [false, true] {
        let options = LowerOptions { whole_space, ..LowerOptions::default() };
        for (capacity, fits) in (8..=16).map(|capacity| (capacity, capacity >= 10)) {
            match lower(&program, &chip(capacity, LARGE), &options) {
                Ok(found) => {
                    assert!(fits && needed(&found) <= capacity, "{capacity}");
                    assert_eq!(found.optimality.status, Status::Proven, "{capacity}");
                }
                Err(LowerError::NoPlanFits { proven, .. }) => {
                    assert!(!fits && proven, "{whole_space} {capacity} {proven}");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// An activation that is given and read late takes almost all of the memory of the first step; the
/// search, which goes backwards, settles it last.
const GIVEN: &str = "mesh x=2, y=2
dim A = 8
dim B = 8
dim D = 8
dim S = 32
layer f(_p: bf16 BSA_x, w: weight bf16 A?) -> (r0: bf16 DB_y, r1: bf16 A) {
  let a = gelu(w)
  let b = w - w
  let c = rename(a, A -> D)
  let d = c * b
  return (rename(d, A -> B), b)
}
";

#[test]
fn what_is_given_leaves_no_room_from_the_first_step() {
    let program = program(GIVEN).expect("a layer");
    let options = LowerOptions::default();
    let none = lower(&program, &chip(2051, LARGE), &options);
    assert!(matches!(none, Err(LowerError::NoPlanFits { proven: true, .. })), "{none:?}");
    let found = lower(&program, &chip(2052, LARGE), &options).expect("a plan");
    assert_eq!((needed(&found), found.optimality.status), (2052, Status::Proven));
    assert!(found.stats.expansions < 1_000, "{} expansions", found.stats.expansions);
    let fastest = lower(&program, &chip(1 << 40, LARGE), &options).expect("a plan");
    let small = smallest(&program, &chip(1 << 40, LARGE), &options, &fastest).expect("an answer");
    assert_eq!(small.least, 2052);
}
