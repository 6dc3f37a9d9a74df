//! Plans that are chosen by communication time alone.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Objective, price};
use shard_grammar::SourceFile;
use shard_search::{LowerOptions, lower};

/// The head of a language model and its gradients, all layouts open.
const HEAD: &str = "mesh d=8, t=8
dim B = 64
dim L = 4096
dim E = 8192
dim V = 256000
layer head(
  x:      bf16 BLE?,
  w:      weight bf16 VE?,
  labels: int32 BL,
  ids:    int32 BL,
  dx0:    bf16 BLE?,
) -> (loss: f32 [], dx: bf16 BLE?, dw: bf16 VE?) {
  let z = einsum(x, w -> BLV : f32)
  let m = max(z over V)
  let e = exp(z - m)
  let s = sum(e over V)
  let at = equal(iota(z over V), labels)
  let zl = sum(where(at, z, 0.0) over V)
  let loss = mean(log(s) + m - zl over BL)
  let dz = cast(e / s - where(at, 1.0, 0.0), bf16)
  let dx = einsum(dz, w -> BLE)
  let dw = einsum(dz, x -> VE) + scatter_add(dx0, ids over BL -> V)
  return (loss, dx, dw)
}
";

#[test]
fn no_plan_chosen_for_all_steps_communicates_for_less_time() {
    let checked = check_source(&SourceFile::new("test.shard", HEAD), &CheckOptions::default());
    let program = &checked.programs[0];
    let hardware = Hardware::built_in("tpu-v5p-face").expect("a built-in chip");
    let of = |objective| {
        let options = LowerOptions { objective, ..LowerOptions::default() };
        lower(program, &hardware, &options).expect("a plan")
    };
    let (fastest, quietest) = (of(Objective::Serial), of(Objective::Comm));
    let comm = |plan| price(plan, &hardware).totals.comm_time;
    assert!(comm(&quietest.plan) <= comm(&fastest.plan));
    assert_eq!(comm(&quietest.plan), quietest.optimality.cost);
    assert!(quietest.optimality.lower_bound <= quietest.optimality.cost);
}
