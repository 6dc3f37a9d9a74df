//! What other orders of axes would save, compared with searches that share nothing.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::{Picoseconds, Program, ValueId};
use shard_search::{Forced, LowerOptions, OrderSavings, least_kept, lower, order_savings};

/// Orders on weights, on an activation, on a pin and on results, which hang together by what reads
/// them: an attention block with its caches, and a feed-forward block.
const SOURCES: [&str; 3] = [
    "dim B = 64\ndim L = 256\ndim S = 512\ndim E = 1024\ndim H = 16\ndim Q = 64\n\
     layer f(x: bf16 BLE_AXES, k0: cache bf16 B_AXESSQ, w_q: weight bf16 E_xH_yzQ,\n\
     w_k: weight bf16 E_AXESQ, w_v: weight bf16 E_AXESQ) -> (y: bf16 BLH_AXESQ, k: bf16 B_AXESSQ) {\n\
     let h = rmsnorm(x over E)\n let q = einsum(h, w_q -> BLHQ)\n\
     let k = append(k0, einsum(h, w_k -> BLQ), L -> S)\n let v = einsum(h, w_v -> BLQ)\n\
     let p = softmax(einsum(q, k -> BHLS) over S)\n\
     let o: BLH_AXESQ = einsum(q, v -> BLHQ)\n\
     return (o * einsum(p, k -> BLHQ), k)\n}\n",
    "dim B = 512\ndim E = 4096\ndim F = 16384\n\
     layer f(x: bf16 BE_AXES, w: weight bf16 E_xF_yz, v: weight bf16 F_zyE_x) -> bf16 BE_AXES {\n\
     let h: BF_AXES = einsum(x, w -> BF)\n return einsum(gelu(h), v -> BE)\n}\n",
    "dim B = 512\ndim E = 4096\ndim F = 16384\n\
     layer f(x: bf16 B_AXESE, w: weight bf16 E_AXESF, v: weight bf16 E_yzxF) -> (a: bf16 B_AXESF, \
     b: bf16 BF_AXES) {\n return (einsum(x, w -> BF), einsum(x, v -> BF))\n}\n",
];

fn program(source: &str, axes: &str) -> Program {
    let text = format!("mesh x=4, y=2, z=2\n{}", source.replace("AXES", axes));
    let checked = check_source(&SourceFile::new("f", text.as_str()), &CheckOptions::default());
    assert!(checked.diagnostics.iter().all(|d| !d.is_error()), "{:#?}", checked.diagnostics);
    checked.programs.into_iter().next().expect("a program")
}

/// Asks in two ways what other orders of a program would save, and asserts that the answers are the
/// same. Returns the number of places where something would be saved.
fn savings_told_twice(program: &Program, chip: &Hardware) -> usize {
    let options = LowerOptions { any_size: true, ..LowerOptions::default() };
    let lowered = lower(program, chip, &options).expect("a plan");
    let by_prices = order_savings(program, &lowered, chip, &options).expect("savings");
    // Where ways of making values are forced, even to any way, searches reuse nothing of another
    // program.
    let any = Forced::ops(|_, _, _| true);
    let alone = LowerOptions { forced: Some(any), ..options };
    let alone = order_savings(program, &lowered, chip, &alone).expect("savings");
    assert_eq!(told(&by_prices), told(&alone), "{} {}", chip.name, program.name);
    by_prices.found.len()
}

/// Where, and how much.
fn told(savings: &OrderSavings) -> Vec<(ValueId, Option<usize>, Picoseconds)> {
    savings.found.iter().map(|s| (s.value, s.output, s.saved)).collect()
}

#[test]
fn what_prices_say_of_an_order_is_what_a_search_of_its_own_finds() {
    let (mut asked, mut found) = (0, 0);
    for chip in ["tpu-v4-flat", "tpu-v5e", "h100"] {
        let chip = Hardware::built_in(chip).expect("a built-in chip");
        for (source, axes) in SOURCES.iter().flat_map(|s| ["xyz", "zyx", "yxz"].map(|a| (s, a))) {
            asked += 1;
            found += savings_told_twice(&program(source, axes), &chip);
        }
    }
    assert!(asked == 27 && found >= 10, "{found} of {asked}");
}

/// A whole block of prompts: four orders of it save something, and five do not.
#[test]
fn orders_of_a_block_save_by_prices_what_searches_of_their_own_find() {
    let text = include_str!("../benches/programs/palm.shard");
    let text = text.replace("dim L = 1\n", "dim L = 2048\n");
    let checked = check_source(&SourceFile::new("palm", text), &CheckOptions::default());
    let chip = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
    assert_eq!(savings_told_twice(&checked.programs[0], &chip), 4);
}

/// Weights that are left open, of which memory has no room for all that the fastest plan stores.
#[test]
fn within_memory_orders_save_what_searches_without_bounds_find() {
    let (mut bound, mut found) = (0, 0);
    for (source, weight) in
        [(SOURCES[1], "v: weight bf16 F_zyE_x"), (SOURCES[2], "w: weight bf16 E_AXESF")]
    {
        let open = weight.replace("F_zyE_x", "FE?").replace("E_AXESF", "EF?");
        let source = source.replace(weight, &open);
        for (chip, axes) in ["tpu-v5e", "h100"].iter().flat_map(|c| ["xyz", "yxz"].map(|a| (c, a)))
        {
            let program = program(&source, axes);
            let mut chip = Hardware::built_in(chip).expect("a built-in chip");
            let options = LowerOptions::default();
            let fastest = lower(&program, &chip, &options).expect("a plan");
            let (least, most) = (least_kept(&program), Memory::of(&fastest.plan).peak().0);
            for eighths in [3, 5, 7] {
                chip.hbm_bytes = least + most.saturating_sub(least) / 8 * eighths;
                let Ok(lowered) = lower(&program, &chip, &options) else { continue };
                bound += usize::from(lowered.optimality.cost > fastest.optimality.cost);
                let by_prices =
                    order_savings(&program, &lowered, &chip, &options).expect("savings");
                let whole = LowerOptions { whole_space: true, ..options.clone() };
                let alone = order_savings(&program, &lowered, &chip, &whole).expect("savings");
                assert_eq!(
                    told(&by_prices),
                    told(&alone),
                    "{} {} {source}",
                    chip.name,
                    chip.hbm_bytes
                );
                found += by_prices.found.len();
            }
        }
    }
    assert!(bound >= 5 && found >= 5, "{found} where memory bound {bound} plans");
}
