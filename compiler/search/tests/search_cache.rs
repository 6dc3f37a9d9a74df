//! What searches share is made once, and no result depends on which search made it.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{Limits, LowerError, LowerOptions, Lowered, SearchCache, lower};

/// A product that has several forms, dims of the same names and other sizes, a maximum, which moves
/// otherwise than a sum, and an attention, which is one kernel on a chip that has one.
const SOURCES: [&str; 5] = [
    "mesh x=4, y=2\ndim C = 16\ndim Q = 4\ndim U = 64\ndim V = 32\nlayer f(c: bf16 CQ?, \
     w: weight bf16 QU?, q: bf16 CU?) -> bf16 CQ? {\n  \
     let k = einsum(c, w -> CU)\n  let s = einsum(q, k -> C)\n  return einsum(c, gelu(s) -> CQ)\n}\n",
    "mesh x=4, y=2\ndim B = 64\ndim E = 128\ndim F = 256\nlayer f(a: bf16 BE_x, \
     w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 BE? {\n  \
     return einsum(gelu(einsum(a, w -> BF)), v -> BE)\n}\n",
    "mesh x=4, y=2\ndim B = 512\ndim E = 64\ndim F = 32\nlayer f(a: bf16 BE_x, \
     w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 BE? {\n  \
     return einsum(gelu(einsum(a, w -> BF)), v -> BE)\n}\n",
    "mesh x=4, y=2\ndim B = 64\ndim E = 128\ndim F = 256\nlayer f(a: bf16 BE_x, \
     w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 B? {\n  \
     return max(einsum(gelu(einsum(a, w -> BF)), v -> BE) over E)\n}\n",
    "mesh x=4, y=2\ndim B = 8\ndim L = 16\ndim S = 64\ndim H = 8\ndim D = 16\nlayer f(\
     q: bf16 BLHD?, k: bf16 BSHD?, v: bf16 BSHD?) -> bf16 BLHD? {\n  \
     let s = softmax(einsum(q, k -> BHLS) over S)\n  return einsum(s, v -> BLHD)\n}\n",
];

fn program(source: &str) -> Program {
    let checked = check_source(&SourceFile::new("f", source), &CheckOptions::default());
    assert!(checked.diagnostics.iter().all(|d| !d.is_error()), "{:#?}", checked.diagnostics);
    checked.programs.into_iter().next().expect("a program")
}

fn told(found: Result<Lowered, LowerError>) -> String {
    found.map_or_else(
        |error| format!("{error:?}"),
        |found| format!("{:?} {:?} {:?}", found.plan, found.optimality, found.stats),
    )
}

/// Every way of asking for a plan of the sources: chips, memory, loops, and free moves.
fn asked(each: &mut dyn FnMut(&Program, &Hardware, LowerOptions)) {
    for chip in ["tpu-v4-flat", "tpu-v5e", "h100"] {
        let chip = Hardware::built_in(chip).expect("a built-in chip");
        for (source, memory) in
            SOURCES.iter().flat_map(|source| [(source, None), (source, Some(40_000))])
        {
            let chip = memory.map_or_else(|| chip.clone(), |bytes| chip.with_memory_limit(bytes));
            for (fuse, strict) in [(false, false), (true, false), (false, true)] {
                each(
                    &program(source),
                    &chip,
                    LowerOptions { fuse, strict, ..LowerOptions::default() },
                );
            }
        }
    }
}

#[test]
fn a_search_finds_the_same_whatever_others_have_made() {
    let cache = SearchCache::default();
    let mut plans = 0;
    asked(&mut |program, chip, options| {
        let alone = told(lower(program, chip, &options));
        let limits = Limits { cache: cache.clone(), ..Limits::default() };
        for _ in 0..2 {
            let beside = told(lower(
                program,
                chip,
                &LowerOptions { limits: limits.clone(), ..options.clone() },
            ));
            assert_eq!(alone, beside);
        }
        plans += usize::from(alone.starts_with("Plan"));
    });
    assert!(plans > 30, "{plans} plans");
}

#[test]
fn strategies_that_others_have_made_count_toward_the_limit_too() {
    let (program, chip) = (program(SOURCES[1]), Hardware::built_in("tpu-v5e").expect("a chip"));
    let options = |strategies: usize, cache: &SearchCache| LowerOptions {
        limits: Limits { strategies, cache: cache.clone(), ..Limits::default() },
        ..LowerOptions::default()
    };
    let all = SearchCache::default();
    lower(&program, &chip, &options(usize::MAX, &all)).expect("a plan");
    for strategies in (0..1200).step_by(50) {
        let alone = told(lower(&program, &chip, &options(strategies, &SearchCache::default())));
        let beside = told(lower(&program, &chip, &options(strategies, &all)));
        assert_eq!(alone, beside, "of {strategies}");
    }
}
