//! Models: the parameters that their calls own, and folded blocks.

use crate::common::{check, codes, program};
use shard_ir::{Def, ParameterKind, Plan, Program};

fn model(body: &str) -> Program {
    let layers = "mesh x=2, y=2\ndim B = 8\ndim E = 8\ndim F = E\ndim V = 16\ndim L = 1\ndim S = 4
layer embed(ids: int32 BL, table: weight bf16 VE?) -> bf16 BLE? { return take(table, ids over V) }
layer block(x: bf16 BLE?l, m: bf16 B_xLE, w: weight bf16 EF?, keys: cache bf16 B_xSF)
  -> (y: bf16 BLE?l, k: bf16 B_xSF) repeat 3 {
  let h = einsum(x * m, w -> BLF)
  return (x + rename(h, F -> E), append(keys, h, L -> S))
}
layer unembed(x: bf16 BLE?, table: weight bf16 VE?) -> bf16 BLV? { return einsum(x, table -> BLV) }
";
    program(&format!("{layers}{body}"))
}

fn parameters(p: &Program) -> Vec<(&str, ParameterKind, u64)> {
    let all = p.value_ids().filter_map(|id| match &p.value(id).def {
        Def::Parameter { kind, .. } => {
            Some((p.value(id).name.as_deref().unwrap_or("?"), *kind, p.copies(id)))
        }
        _ => None,
    });
    all.collect()
}

const TOWER: &str = "model tower(ids: int32 BL, m: bf16 BLE?) -> bf16 BLV? {
  let x = embed(ids)
  let y = block(x, m)
  return unembed(y)
}";

#[test]
fn weights_and_caches_of_calls_are_parameters_of_the_model_and_come_first() {
    let p = model(TOWER);
    use ParameterKind::{Activation, Cache, Weight};
    let wanted = [
        ("ids", Activation, 1),
        ("m", Activation, 1),
        ("embed.table", Weight, 1),
        ("block.w", Weight, 3),
        ("block.keys", Cache, 3),
        ("unembed.table", Weight, 1),
    ];
    assert_eq!(parameters(&p), wanted);
    assert!(p.values[..wanted.len()].iter().all(|v| matches!(v.def, Def::Parameter { .. })));
}

#[test]
fn a_call_of_a_repeated_layer_is_one_folded_block_with_an_entry_and_an_exit() {
    let p = model(TOWER);
    assert_eq!(p.folds.len(), 1);
    assert_eq!((p.folds[0].layer.as_str(), p.folds[0].repeat), ("block", 3));
    let fold = shard_ir::FoldId(0);
    let (entry, exit) = (p.entry(fold).unwrap(), p.exit(fold).unwrap());
    assert_eq!((p.value(entry).times, p.value(exit).times), (3, 1));
    assert_eq!(p.value(entry).dims, p.value(exit).dims);
    let inside = p.values.iter().filter(|v| v.fold == Some(fold));
    assert!(inside.clone().all(|v| v.times == 3));
    assert!(p.values.iter().filter(|v| v.fold.is_none()).all(|v| v.times == 1));
}

#[test]
fn what_comes_from_outside_and_is_not_handed_on_is_pinned_outside() {
    let p = model(TOWER);
    let mask = p
        .values
        .iter()
        .find(|v| matches!(v.def, Def::Pin { .. }) && v.name.as_deref() == Some("m"))
        .unwrap();
    assert_eq!((mask.fold, mask.times), (None, 1));
}

#[test]
fn caches_of_a_call_are_state_and_no_results() {
    let p = model(TOWER);
    let outputs: Vec<(&str, bool)> = p.outputs.iter().map(|o| (o.name.as_str(), o.state)).collect();
    assert_eq!(outputs, [("result", false), ("block.k", true)]);
}

#[test]
fn a_cache_that_is_replaced_is_state_too() {
    let p = program(
        "dim B = 8
dim N = 4
dim W = 3
dim O = 1
dim T = 4
layer block(x: f32 BO, decay: weight f32 N, state: cache f32 BN?, last: cache f32 BW?)
  -> (y: f32 BO, state1: f32 BN?, last1: f32 BW?) repeat 3 {
  let all = concat(last, x, W, O -> T)
  let state1 = state * exp(decay) + einsum(x, decay -> BN)
  return (x + einsum(state1, decay -> B), state1, slice(all, T -> W, 1))
}
model tower(x: f32 BO) -> f32 BO { return block(x) }",
    );
    let outputs: Vec<(&str, bool)> = p.outputs.iter().map(|o| (o.name.as_str(), o.state)).collect();
    assert_eq!(outputs, [("result", false), ("block.state1", true), ("block.last1", true)]);
}

#[test]
fn two_calls_own_separate_weights_and_a_shared_one_is_passed_by_name() {
    let p = model(
        "model tower(ids: int32 BL, m: bf16 BLE?, tied: weight bf16 VE?) -> bf16 BLV? {
  let y = block(block(embed(ids, table: tied), m), m)
  return unembed(y, table: tied)
}",
    );
    let names: Vec<&str> = parameters(&p).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["ids", "m", "tied", "block.w", "block.keys", "block_2.w", "block_2.keys"]);
    assert_eq!(p.folds.len(), 2);
}

#[test]
fn a_value_that_a_block_takes_twice_is_copied_so_that_the_two_are_told_apart() {
    let p = program(
        "dim B = 8
layer block(x: f32 B?l, c: f32 B) -> f32 B?l repeat 3 { return x * c }
model tower(x: f32 B) -> f32 B { return block(x, x) }",
    );
    let copies = p
        .values
        .iter()
        .filter(|v| matches!(v.def, Def::Op { op: shard_ir::Op::Cast(_), .. }))
        .count();
    assert_eq!(copies, 1);
}

#[test]
fn the_unsharded_model_is_a_plan_that_verifies_and_unrolls() {
    let plan = Plan::unsharded(&model(TOWER));
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    let unrolled = plan.unrolled(2);
    assert_eq!(shard_ir::verify::verify(&unrolled.plan), Ok(()));
    let names: Vec<&str> = unrolled.plan.outputs.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["result", "block.k.0", "block.k.1"]);
}

#[test]
fn a_block_that_gives_back_what_it_takes_is_still_a_block() {
    let p = program(
        "dim B = 8
layer block(x: f32 B, c: f32 B) -> f32 B repeat 3 { return c }
layer same(x: f32 B) -> f32 B repeat 3 { return x }
model tower(x: f32 B, c: f32 B) -> f32 B { return same(x) + c }",
    );
    assert_eq!(shard_ir::verify::verify(&Plan::unsharded(&p)), Ok(()));
}

#[test]
fn model_is_still_a_good_name_of_a_mesh_axis() {
    let text = "mesh data=2, model=2
dim B = 8
layer f(x: f32 B_{model}) -> f32 B_{data,model} { return gelu(x) }
layer g(x: f32 B_({data,model})) -> f32 B { return gelu(x) }";
    assert_eq!(codes(text), Vec::<&str>::new());
}

/// A model that passes a cache of its own to a repeated block. `given_back` is the value of the
/// cache that the block returns, if it returns one.
fn with_a_cache_of_the_model(given_back: Option<&str>) -> String {
    let (results, returned, bound) = match given_back {
        None => ("f32 BE".to_string(), "z".to_string(), "y"),
        Some(value) => ("(y: f32 BE, k: f32 BS)".to_string(), format!("(z, {value})"), "(y, k)"),
    };
    format!(
        "mesh x=2
dim B = 8
dim E = 8
dim L = 1
dim S = 4
layer block(x: f32 BE, new: f32 BL, keys: cache f32 BS) -> {results} repeat 3 {{
  let z = x + sum(append(keys, new, L -> S) over S)
  return {returned}
}}
model tower(x: f32 BE, new: f32 BL, kept: cache f32 BS) -> (y: f32 BE, kept1: f32 BS) {{
  let {bound} = block(x, new, keys: kept)
  return (y, append(kept, new, L -> S))
}}"
    )
}

#[test]
fn a_repeated_layer_reads_a_cache_of_the_model_but_gives_none_back() {
    assert_eq!(codes(&with_a_cache_of_the_model(None)), Vec::<&str>::new());
    let given_back = with_a_cache_of_the_model(Some("append(keys, new, L -> S)"));
    assert_eq!(codes(&given_back), ["E0635"]);
    let problem = &check(&given_back).diagnostics[0];
    assert_eq!(
        problem.message,
        "`block` is repeated, and its result `k` is of a cache that is not its own"
    );
}

#[test]
fn a_cache_whose_positions_move_is_a_state_of_a_repeated_layer() {
    for moved in [
        "shift(keep over W, 1)",
        "pad(slice(keep, W -> V, 0), V -> W, 1)",
        "concat(slice(keep, W -> V, 1), a, V, L -> W)",
        "rename(rename(keep, W -> R), R -> W)",
        "merge(shift(split(keep, W -> JK) over J, 1), JK -> W)",
    ] {
        let p = program(&format!(
            "mesh x=4\ndim B = 8\ndim W = 4\ndim V = 3\ndim L = 1\ndim R = W\ndim J = 2\ndim K = 2\n\
             layer win(a: f32 BL, keep: cache f32 BW?) -> (out: f32 BL, next: f32 BW?) repeat 4 {{\n\
             let moved = {moved}\nlet out = a + sum(moved over W)\nreturn (out, moved)\n}}\n\
             model net(a: f32 BL) -> f32 BL {{ return win(a) }}"
        ));
        let states: Vec<&str> =
            p.outputs.iter().filter(|o| o.state).map(|o| o.name.as_str()).collect();
        assert_eq!(states, ["win.next"], "{moved}");
    }
}

const KINDS: &str = "mesh x=2, y=2\ndim B = 8\ndim E = 8\ndim F = E\ndim L = 1\ndim S = 4
layer block(x: bf16 BLE?l, m: bf16 B_xLE?l, w: weight bf16 EF?, keys: cache bf16 B_xSF)
  -> (y: bf16 BLE?l, k: bf16 B_xSF) repeat KINDS {
  let h = einsum(x * m, w -> BLF)
  return (x + rename(h, F -> E), append(keys, h, L -> S))
}
";

#[test]
fn a_stack_of_several_kinds_is_a_model_that_calls_it_once() {
    let p = program(&KINDS.replace("KINDS", "2 + 1 + 4"));
    assert_eq!((p.name.as_str(), p.repeat), ("block", 1));
    let folds: Vec<u64> = p.folds.iter().map(|fold| fold.repeat).collect();
    assert_eq!(folds, [2, 4], "one application is no block");
    use ParameterKind::{Activation, Cache, Weight};
    let wanted = [
        ("x", Activation, 1),
        ("m", Activation, 1),
        ("block.w", Weight, 2),
        ("block.keys", Cache, 2),
        ("block_2.w", Weight, 1),
        ("block_2.keys", Cache, 1),
        ("block_3.w", Weight, 4),
        ("block_3.keys", Cache, 4),
    ];
    assert_eq!(parameters(&p), wanted);
    let outputs: Vec<(&str, bool)> = p.outputs.iter().map(|o| (o.name.as_str(), o.state)).collect();
    assert_eq!(
        outputs,
        [("y", false), ("block.k", true), ("block_2.k", true), ("block_3.k", true)]
    );
}

#[test]
fn each_kind_has_labels_of_its_own() {
    let p = program(&KINDS.replace("KINDS", "2 + 4"));
    let labels = |prefix: usize| {
        let inside = p.values.iter().filter(move |v| v.fold.map(|f| f.index()) == Some(prefix));
        inside
            .filter_map(|v| v.def.pattern().and_then(|pattern| pattern.label))
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(!labels(0).is_empty() && labels(0).is_disjoint(&labels(1)));
    let free = p.values.iter().take(2).filter_map(|v| v.def.pattern());
    assert!(free.into_iter().all(|pattern| pattern.label.is_none()));
}

#[test]
fn in_a_model_each_kind_of_a_call_is_a_block_that_takes_what_the_one_before_gives() {
    let text = KINDS.replace("KINDS", "2 + 4");
    let p = program(&format!(
        "{text}model m(x: bf16 BLE, m: bf16 BLE) -> bf16 BLE {{ return block(block(x, m), m) }}"
    ));
    let folds: Vec<u64> = p.folds.iter().map(|fold| fold.repeat).collect();
    assert_eq!(folds, [2, 4, 2, 4]);
    for at in 1..4 {
        let (before, after) = (p.exit(shard_ir::FoldId(at - 1)), p.entry(shard_ir::FoldId(at)));
        let mut value = after.unwrap();
        while Some(value) != before {
            let Def::Pin { operand, .. } = &p.value(value).def else { panic!("{at}: no pin") };
            value = *operand;
        }
    }
}

#[test]
fn no_kind_is_empty_and_a_kind_hands_on_one_result() {
    assert_eq!(codes(&KINDS.replace("KINDS", "2 + 0")), ["E0610"]);
    let two =
        "dim B = 8\nlayer f(a: f32 B) -> (b: f32 B, c: f32 B) repeat 2 + 3 { return (a, -a) }";
    assert_eq!(codes(two), ["E0635"]);
    let many = KINDS.replace("KINDS", &vec!["2"; 70_000].join(" + "));
    assert_eq!(codes(&many), ["E0804"]);
}
