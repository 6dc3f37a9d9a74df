//! Programs of more forms than are looked at one by one, against all their forms one by one.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_rewrite::{Limits, LowerError, LowerOptions, Lowered, Proof, Status, certificate, least_kept, lower};

fn program(source: &str) -> Program {
    let mut checked = check_source(&SourceFile::new("test", source), &CheckOptions::default());
    let errors: Vec<_> = checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    checked.programs.swap_remove(checked.roots[0])
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Blocks one after another, each of which may be computed in several ways.
fn blocks(dice: &mut Dice) -> String {
    let mut parameters = format!("x0: bf16 {}", dice.of(&["AB?", "A_xB", "AB_y", "A_xB_y"]));
    let (mut body, mut results, mut types) = (String::new(), vec![], vec![]);
    let count = 2 + dice.below(2);
    for i in 0..count {
        let mut weight = |name: &str, dims: &str, dice: &mut Dice| {
            let (a, b) = dims.split_at(1);
            let layout = match dice.below(5) {
                0 => format!("{a}_x{b}"),
                1 => format!("{a}{b}_y"),
                2 => format!("{a}_yx{b}"),
                3 if dims == "BC" => format!("{a}{b}?l"),
                _ => format!("{a}{b}?"),
            };
            parameters += &format!(", {name}{i}: weight bf16 {layout}");
        };
        match dice.below(4) {
            0 => {
                weight("wq", "BC", dice);
                weight("wk", "BC", dice);
                weight("c", "DB", dice);
                weight("v", "DB", dice);
                body += &format!(
                    "  let q{i} = einsum(x{i}, wq{i} -> AC)\n  let k{i} = {}\n  let s{i} = einsum(q{i}, k{i} -> AD)\n  \
                     let p{i} = {}\n  let y{i} = einsum(p{i}, v{i} -> AB)\n",
                    dice.of(&["einsum(c#, wk# -> DC)", "relu(einsum(c#, wk# -> DC))"]).replace('#', &i.to_string()),
                    dice.of(&["softmax(s# over D)", "gelu(s# * 0.5)", "s# * 0.5", "relu(s#) + s#"])
                        .replace('#', &i.to_string()),
                );
                if dice.below(3) == 0 {
                    results.push(format!("k{i}"));
                    types.push("DC?");
                }
            }
            1 => {
                weight("w", "BC", dice);
                weight("u", "CB", dice);
                body += &format!("  let h{i} = einsum(x{i}, w{i} -> AC)\n  let y{i} = einsum(h{i}, u{i} -> AB)\n");
                if dice.below(3) == 0 {
                    results.push(format!("gelu(h{i})"));
                    types.push("AC?");
                }
            }
            2 => {
                weight("w", "BC", dice);
                weight("u", "BC", dice);
                weight("v", "CB", dice);
                body += &format!(
                    "  let g{i} = einsum(x{i}, w{i} -> AC) + einsum(x{i}, u{i} -> AC)\n  \
                     let y{i} = einsum({}, v{i} -> AB)\n",
                    dice.of(&["g#", "g# * 0.5", "relu(g#)"]).replace('#', &i.to_string())
                );
            }
            _ => {
                weight("w", "BC", dice);
                body += &format!(
                    "  let h{i} = einsum(x{i}, w{i} -> AC)\n  let z{i} = sum(h{i} over C)\n  \
                     let y{i} = einsum(z{i}, x{i} -> AB)\n"
                );
            }
        }
        let next = dice.of(&[
            "relu(y#)",
            "y#",
            "y# * 0.5",
            "x# + y#",
            "rmsnorm(y# over B)",
            "x# + relu(y#)",
            "relu(y#) * relu(y#)",
        ]);
        let pin = dice.of(&["", "", "", ": A_xB", ": AB_y"]);
        body += &format!("  let x{}{pin} = {}\n", i + 1, next.replace('#', &i.to_string()));
    }
    results.push(format!("x{count}"));
    types.push(dice.of(&["AB?", "A_xB", "AB_y"]));
    let sizes: Vec<usize> = (0..4).map(|_| 64 << dice.below(6)).collect();
    let types: Vec<String> = types.iter().enumerate().map(|(i, ty)| format!("r{i}: bf16 {ty}")).collect();
    format!(
        "mesh x=2, y=4\ndim A = {}\ndim B = {}\ndim C = {}\ndim D = {}\nlayer f({parameters}) -> ({}) {{\n{body}  \
         return ({})\n}}\n",
        sizes[0],
        sizes[1],
        sizes[2],
        sizes[3],
        types.join(", "),
        results.join(", ")
    )
}

fn with_forms(forms: usize, program: &Program, hardware: &Hardware) -> Result<Lowered, LowerError> {
    let limits = Limits { forms, ..Limits::default() };
    lower(program, hardware, &LowerOptions { limits, ..LowerOptions::default() })
}

/// Programs of which enough are tried.
const PROGRAMS: u64 = 30;

#[test]
fn forms_chosen_apart_have_the_plan_of_all_forms_one_by_one() {
    let mut chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let (mut compared, mut by_clusters) = (0, 0);
    for seed in 0..std::env::var("SHARDC_PROGRAMS").map_or(PROGRAMS, |n| n.parse().expect("a number")) {
        let source = blocks(&mut Dice(seed));
        let program = program(&source);
        chip.hbm_bytes = 1 << 40;
        let mut capacities = vec![chip.hbm_bytes];
        if let Ok(fastest) = with_forms(4096, &program, &chip) {
            let (least, most) = (least_kept(&program), Memory::of(&fastest.plan).peak().0);
            let share = 1 + seed % 15;
            capacities.push(least + most.saturating_sub(least) / 16 * share);
        }
        for capacity in capacities {
            chip.hbm_bytes = capacity;
            let (all, few) = (with_forms(4096, &program, &chip), with_forms(1, &program, &chip));
            let (all, few) = match (all, few) {
                (Ok(all), Ok(few)) => (all, few),
                (Err(LowerError::NoPlanFits { proven: true, .. }), Ok(few)) => {
                    panic!("seed {seed}: {:?} where none is proven to fit\n{source}", few.optimality)
                }
                (Ok(all), Err(LowerError::NoPlanFits { proven: true, .. })) => {
                    panic!("seed {seed}: none is proven to fit where there is {:?}\n{source}", all.optimality)
                }
                _ => continue,
            };
            certificate::computes(&few.plan, &program).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{source}"));
            let said = format!("seed {seed}, {capacity} bytes: {:?} {:?}\n{source}", all.optimality, few.optimality);
            assert!(few.optimality.lower_bound <= all.optimality.cost, "the bound is false: {said}");
            if [&all, &few].iter().all(|l| l.optimality.status == Status::Proven) {
                compared += 1;
                assert_eq!(all.optimality.cost, few.optimality.cost, "{said}");
            }
            by_clusters += usize::from(few.optimality.proof == Some(Proof::Search));
        }
    }
    eprintln!("{compared} compared, {by_clusters} proven apart");
    assert!(compared as u64 >= PROGRAMS / 2 && by_clusters as u64 >= PROGRAMS / 3, "{compared}, {by_clusters}");
}
