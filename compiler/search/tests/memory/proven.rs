//! What is proven within memory, compared with searches of another kind.

use shard_ir::{Def, LayoutPattern, Program};
use shard_search::{LowerError, LowerOptions, Lowered, Status, least_kept, lower};

use super::{chip, chip_of, needed, program};

/// A layer that gathers its weights when there is room for them.
const GATHERED: &str = "mesh x=4, y=2
dim B = 512
dim E = 256
dim F = 1024
layer mlp(x: bf16 B_xE, w_in: weight bf16 E_xF_y, w_out: weight bf16 F_yE_x) -> bf16 B_xE {
  let h = einsum(x, w_in -> BF)
  let y = einsum(gelu(h), w_out -> BE)
  return y
}
";

/// A layer whose weight is free to be stored anywhere.
const FREE: &str = "mesh x=4, y=2
dim B = 512
dim E = 256
dim F = 1024
layer mlp(x: bf16 B_xyE, w_in: weight bf16 EF?, w_out: weight bf16 FE?) -> bf16 B_xyE repeat 4 {
  let h = einsum(x, w_in -> BF)
  let y = einsum(gelu(h), w_out -> BE)
  return y
}
";

#[test]
fn less_memory_never_gives_a_faster_plan_and_every_plan_fits() {
    for source in [GATHERED, FREE] {
        let program = program(source);
        let options = LowerOptions::default();
        let fastest = lower(&program, &chip(1 << 40), &options).expect("a plan");
        let most = needed(&fastest);
        let mut last = fastest.optimality.cost;
        let (mut slower, mut refused) = (0, 0);
        for tenths in (1..=10).rev() {
            let capacity = most * tenths / 10;
            match lower(&program, &chip(capacity), &options) {
                Ok(lowered) => {
                    assert_eq!(refused, 0, "a plan fits in {capacity} bytes, and none in more");
                    assert!(needed(&lowered) <= capacity, "{} in {capacity}", needed(&lowered));
                    assert!(lowered.optimality.cost >= last);
                    slower += usize::from(lowered.optimality.cost > last);
                    last = lowered.optimality.cost;
                }
                Err(LowerError::NoPlanFits { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(slower > 0, "memory never mattered: {source}");
        assert!(refused > 0, "a tenth of the memory is enough: {source}");
    }
}

#[test]
fn a_search_with_bounds_and_one_of_the_whole_space_find_the_same_under_a_constraint() {
    for source in [GATHERED, FREE] {
        let program = program(source);
        let options = LowerOptions::default();
        let most = needed(&lower(&program, &chip(1 << 40), &options).expect("a plan"));
        for tenths in [9, 7, 6, 5, 4] {
            let hardware = chip(most * tenths / 10);
            let bounded = lower(&program, &hardware, &options);
            let whole =
                lower(&program, &hardware, &LowerOptions { whole_space: true, ..options.clone() });
            match (bounded, whole) {
                (Ok(bounded), Ok(whole)) => {
                    let proven = |l: &Lowered| l.optimality.status == Status::Proven;
                    if proven(&bounded) && proven(&whole) {
                        assert_eq!(
                            bounded.optimality.cost, whole.optimality.cost,
                            "{tenths} tenths"
                        );
                    }
                    assert!(bounded.optimality.lower_bound <= whole.optimality.cost);
                }
                (Err(LowerError::NoPlanFits { .. }), Err(LowerError::NoPlanFits { .. })) => {}
                (bounded, whole) => panic!("{tenths} tenths: {bounded:?} and {whole:?}"),
            }
        }
    }
}

/// A layer whose weights, cache and result are free, two pairs of them tied.
const TIED: &str = "dim B = 16
dim S = 8
dim E = 32
dim F = 64
layer f(x: bf16 BE?l, w_in: weight bf16 EF?, w_out: weight bf16 FE?, k: cache bf16 BSE?c)
  -> (y: bf16 BE?l, k1: cache bf16 BSE?c) repeat 4 {
  let h = einsum(x, w_in -> BF)
  let y = x + einsum(gelu(h), w_out -> BE)
  let p = softmax(einsum(y, k -> BS) over S)
  let z = y + einsum(p, k -> BE)
  return (z, k)
}
";

#[test]
fn labels_and_memory_together_have_the_plan_of_a_search_without_bounds() {
    let rates = [[1e12, 1e12, 1e11], [1e13, 1e11, 1e11]];
    let (mut proven, mut slower) = (0, 0);
    for (mesh, rates) in
        ["x=2", "x=4", "x=2, y=2"].into_iter().flat_map(|mesh| rates.map(|rates| (mesh, rates)))
    {
        let program = program(&format!("mesh {mesh}\n{TIED}"));
        let options = LowerOptions::default();
        let fastest = lower(&program, &chip_of(1 << 40, rates), &options).expect("a plan");
        assert_eq!(fastest.optimality.status, Status::Proven);
        let (least, most) = (least_kept(&program), needed(&fastest));
        for eighths in [1, 3, 5, 7] {
            let hardware = chip_of(least + (most - least) * eighths / 8, rates);
            let bounded = lower(&program, &hardware, &options);
            let whole =
                lower(&program, &hardware, &LowerOptions { whole_space: true, ..options.clone() });
            match (bounded, whole) {
                (Ok(bounded), Ok(whole)) => {
                    assert!(needed(&bounded) <= hardware.hbm_bytes);
                    assert!(
                        bounded.optimality.lower_bound <= whole.optimality.cost,
                        "{mesh}, {eighths} eighths"
                    );
                    assert!(
                        whole.optimality.lower_bound <= bounded.optimality.cost,
                        "{mesh}, {eighths} eighths"
                    );
                    proven += usize::from(bounded.optimality.status == Status::Proven);
                    slower += usize::from(bounded.optimality.cost > fastest.optimality.cost);
                }
                (Err(LowerError::NoPlanFits { proven: true, .. }), Ok(_)) => {
                    panic!("{mesh}, {eighths}: there is a plan")
                }
                (Ok(_), Err(LowerError::NoPlanFits { proven: true, .. })) => {
                    panic!("{mesh}, {eighths}: wrong proof")
                }
                _ => {}
            }
        }
    }
    assert!(proven > 12 && slower > 6, "{proven} proven, {slower} slower");
}

/// A block of Llama 3 8B that reads prompts, all of it free, on eight chips.
const BLOCK: &str = "mesh x=4, y=2
dim B = 16
dim L = 1024
dim S = 1024
dim E = 4096
dim K = 8
dim G = 4
dim D = 128
dim F = 14336
layer block(x: bf16 BLE?l, wq: weight bf16 EKGD?, wk: weight bf16 EKD?, wv: weight bf16 EKD?, wo: weight bf16 KGDE?,
  w_gate: weight bf16 EF?, w_up: weight bf16 EF?, w_down: weight bf16 FE?, keys: cache bf16 BSKD?c,
  values: cache bf16 BSKD?c) -> (y: bf16 BLE?l, k1: bf16 BSKD?c, v1: bf16 BSKD?c) repeat 32 {
  let h = rmsnorm(x over E)
  let k1 = append(keys, einsum(h, wk -> BLKD), L -> S)
  let v1 = append(values, einsum(h, wv -> BLKD), L -> S)
  let q = einsum(h, wq -> BLKGD)
  let p = softmax(einsum(q, k1 -> BKGLS) over S)
  let a = x + einsum(einsum(p, v1 -> BLKGD), wo -> BLE)
  let n = rmsnorm(a over E)
  let y = a + einsum(silu(einsum(n, w_gate -> BLF)) * einsum(n, w_up -> BLF), w_down -> BLE)
  return (y, k1, v1)
}
";

/// The program with a parameter in the layout that a plan stores it in.
fn stored_as(program: &Program, lowered: &Lowered, parameter: usize) -> Program {
    let mut pinned = program.clone();
    let value = &mut pinned.values[parameter];
    if let Def::Parameter { pattern, .. } = &mut value.def {
        let layout =
            LayoutPattern::exactly(lowered.plan.instructions[parameter].layout, value.dims.len());
        *pattern = LayoutPattern { label: pattern.label, ..layout };
    }
    pinned
}

#[test]
fn what_is_proven_within_memory_is_beaten_neither_by_less_memory_nor_by_a_weight_pinned() {
    let program = program(BLOCK);
    let options = LowerOptions::default();
    let v5e = |hbm_bytes| chip_of(hbm_bytes, [197e12, 8.1e11, 45e9]);
    let fastest = lower(&program, &v5e(1 << 40), &options).expect("a plan");
    let (least, most) = (least_kept(&program), needed(&fastest));
    let mut smaller: Option<Lowered> = None;
    let mut proven = 0;
    for sixteenths in [2, 5, 8, 11, 14] {
        let hardware = v5e(least + (most - least) / 16 * sixteenths);
        let found = match lower(&program, &hardware, &options) {
            Ok(found) => found,
            Err(LowerError::NoPlanFits { .. }) => {
                assert!(smaller.is_none(), "a plan fits in less than {sixteenths} sixteenths");
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let bound = found.optimality.lower_bound;
        if let Some(smaller) = &smaller {
            assert!(
                bound <= smaller.optimality.cost,
                "{sixteenths} sixteenths: a plan in less memory beats the bound"
            );
            for parameter in 0..10 {
                match lower(&stored_as(&program, smaller, parameter), &hardware, &options) {
                    Ok(pinned) => assert!(
                        bound <= pinned.optimality.cost
                            && pinned.optimality.lower_bound <= smaller.optimality.cost,
                        "{sixteenths} sixteenths, {parameter}: {bound:?}, {:?} and {:?} in less \
                            memory",
                        pinned.optimality,
                        smaller.optimality
                    ),
                    // Not all plans are looked at that need less memory for what is live at the
                    // peak.
                    Err(LowerError::NoPlanFits { proven, .. }) => {
                        assert!(!proven, "{sixteenths}, {parameter}")
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        proven += usize::from(found.optimality.status == Status::Proven);
        smaller = Some(found);
    }
    assert!(proven > 2, "{proven}");
}

#[test]
fn weights_of_all_layers_count() {
    let of_layers = |n: u64| {
        program(&GATHERED.replace("-> bf16 B_xE {", &format!("-> bf16 B_xE repeat {n} {{")))
    };
    let one = least_kept(&of_layers(1));
    assert_eq!(one, 2 * 2 * 256 * 1024 / 8, "two weights over eight devices");
    assert_eq!(least_kept(&of_layers(10)), 10 * one);
    let hardware = chip(4 << 20);
    assert!(lower(&of_layers(1), &hardware, &LowerOptions::default()).is_ok());
    match lower(&of_layers(100), &hardware, &LowerOptions::default()) {
        Err(LowerError::NoPlanFits { least, .. }) => assert_eq!(least, 100 * one),
        other => panic!("{other:?}"),
    }
    let any_size = LowerOptions { any_size: true, ..LowerOptions::default() };
    assert!(lower(&of_layers(100), &hardware, &any_size).is_ok(), "unless any size will do");
}
