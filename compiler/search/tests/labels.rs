//! One set of prices bounds all layouts of all labels; the plans that it leaves open are divided.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{Program, verify};
use shard_search::{Limits, LowerOptions, Lowered, Status, lower};

const BLOCKS: &str = "
dim B = 8
dim L = 1
dim E = 256
dim S = 64
dim H = 8
dim D = 32
layer block(x: bf16 BLE?l, wq: weight bf16 EHD?, wo: weight bf16 HDE?, k: cache bf16 BSHD?)
  -> (y: bf16 BLE?l, k1: cache bf16 BSHD?) repeat 4 {
  let q = einsum(x, wq -> BLHD)
  let k1 = append(k, q, L -> S)
  let p = softmax(einsum(q, k1 -> BHLS) over S)
  return (x + einsum(einsum(p, k1 -> BLHD), wo -> BLE), k1)
}
";

const MODEL: &str = "model two(x: bf16 BLE?) -> bf16 BLE? { return block(block(x)) }";

fn program(text: &str, mesh: &str) -> Program {
    let text = format!("mesh {mesh}{text}");
    let checked = check_source(&SourceFile::new("test.shard", text), &CheckOptions::default());
    assert!(!checked.has_errors(), "{:?}", checked.diagnostics);
    checked.programs.into_iter().next_back().expect("a program")
}

fn lowered(program: &Program, branches: usize) -> Lowered {
    let limits = Limits { branches, ..Limits::default() };
    let options = LowerOptions { limits, ..LowerOptions::default() };
    let found = lower(program, &Hardware::built_in("tpu-v5e").unwrap(), &options).unwrap();
    assert_eq!(verify::verify(&found.plan), Ok(()));
    found
}

#[test]
fn labels_with_all_branches_are_proven_and_with_few_bounded_truly() {
    for mesh in ["x=4", "x=2, y=2", "x=4, y=2"] {
        let program = program(BLOCKS, mesh);
        assert_eq!(program.labels.len(), 2);
        let all = lowered(&program, 4_000);
        assert_eq!(all.optimality.status, Status::Proven);
        let some = lowered(&program, 1);
        assert!(some.optimality.cost >= all.optimality.cost, "{mesh}");
        assert!(some.optimality.lower_bound <= all.optimality.cost, "{mesh}");
    }
}

#[test]
fn labels_have_the_plan_of_a_search_without_bounds() {
    for mesh in ["x=4", "x=2, y=2"] {
        let program = program(BLOCKS, mesh);
        let whole = LowerOptions { whole_space: true, ..LowerOptions::default() };
        let whole = lower(&program, &Hardware::built_in("tpu-v5e").unwrap(), &whole).unwrap();
        assert_eq!(whole.optimality.status, Status::Proven);
        assert_eq!(lowered(&program, 4_000).optimality.cost, whole.optimality.cost, "{mesh}");
    }
}

#[test]
fn a_model_with_every_layout_open_has_a_plan_on_three_axes() {
    let program = program(&format!("{BLOCKS}{MODEL}"), "x=2, y=2, z=2");
    assert_eq!(program.labels.len(), 4);
    let found = lowered(&program, 4_000);
    assert_eq!(found.optimality.status, Status::Proven);
    assert_eq!(found.plan.folds.len(), 2);
}

#[test]
fn a_label_on_a_value_that_no_result_needs_asks_nothing() {
    let source = "\ndim B = 8\ndim C = 16\nlayer f(a: bf16 BC, b: bf16 BC?) -> bf16 B_(x)C? {
  let unread: BC?l = softmax(a over C)\n  return softmax(b over C) + a\n}\n";
    let found = lowered(&program(source, "x=2, y=2"), 4_000);
    assert_eq!(found.optimality.status, Status::Proven);
}
