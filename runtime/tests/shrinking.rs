//! Shrunk plans verify, are small, and run.

use crate::common::check;
use shard_ir::verify::verify;
use shard_ir::{Plan, text};
use shard_runtime::{RunError, RunOptions, run_plan, shrink, work_needed};

fn plan(body: &str) -> Plan {
    let plan = text::parse(&format!("shir 1\n{body}")).unwrap_or_else(|e| panic!("{e}")).remove(0);
    assert_eq!(verify(&plan), Ok(()));
    plan
}

fn sizes(plan: &Plan) -> String {
    plan.dims.iter().map(|d| format!("{}={}", d.name, d.size)).collect::<Vec<_>>().join(" ")
}

const MLP: &str = "layer mlp repeat 118
mesh x=4, y=4, z=4
dims B=512, L=1, E=18432, F=73728
%0 = parameter x : bf16 BLE_xyz
%1 = parameter w_in : weight bf16 E_xF_yz
%2 = parameter w_out : weight bf16 F_yzE_x
%3 = all-gather %0 over yz along E : bf16 BLE_x
%4 = einsum BLE,EF->BLF %3, %1 : bf16 BLF_yz(partialsum-x)
%5 = reduce-scatter %4 sum over x along F : bf16 BLF_yzx
%6 = gelu %5 : bf16 BLF_yzx
%7 = all-gather %6 over x along F : bf16 BLF_yz
%8 = einsum BLF,FE->BLE %7, %2 : bf16 BLE_x(partialsum-yz)
%9 = reduce-scatter %8 sum over yz along E : bf16 BLE_xyz
return y = %9 : BLE_xyz
";

const ATTENTION: &str = "layer attention
mesh x=4, y=2
dims B=64, L=128, S=2048, H=32, K=4, G=8, Q=128, M=2048, W=1024, Two=4096
%0 = parameter q : bf16 B_xLH_yQ
%1 = parameter cache : cache bf16 B_xSQ
%2 = parameter new : bf16 B_xLQ
%3 = rope %0 over Q at L : bf16 B_xLH_yQ
%4 = append %1, %2, L -> S : bf16 B_xSQ
%5 = split %3, H -> KG : bf16 B_xLK_yGQ
%6 = einsum BLKGQ,BSQ->BKGLS %5, %4 : bf16 B_xK_yGLS
%7 = causal %6 over L, S : bf16 B_xK_yGLS
%8 = softmax %7 over S : bf16 B_xK_yGLS
%9 = rename %8, S -> M : bf16 B_xK_yGLM
%10 = slice-dim %8, S -> W, 1024 : bf16 B_xK_yGLW
%11 = concat %8, %9, S, M -> [Two] : bf16 [B_x, K_y, G, L, Two]
%12 = merge %10, KG -> H : bf16 B_xH_yLW
return a = %12 : B_xH_yLW
";

#[test]
fn an_mlp_shrinks_to_small_blocks() {
    let small = shrink(&plan(MLP));
    assert_eq!(sizes(&small), "B=2 L=1 E=128 F=192");
    assert_eq!(verify(&small), Ok(()));
    check(&small, 3);
}

#[test]
fn relations_between_dims_survive() {
    let plan = plan(&ATTENTION.replace("M -> [Two]", "M -> Two"));
    let small = shrink(&plan);
    assert_eq!(verify(&small), Ok(()));
    assert_eq!(sizes(&small), "B=8 L=3 S=5 H=8 K=4 G=2 Q=6 M=5 W=2 Two=10");
    // The slice that ended at the end of its dim still does.
    assert!(text::print(&small).contains("slice-dim %8, S -> W, 3 :"));
    check(&small, 5);
}

#[test]
fn a_dim_dealt_to_the_last_device_keeps_its_size() {
    // K has one element a device, and the axes go on to G: of a larger K a device would hold parts
    // of two.
    let body = "layer l\nmesh x=4, y=2\ndims H=64, K=4, G=16\n%0 = parameter a : f32 H_xy\n%1 = \
        split %0, H -> KG : f32 K_xG_y\nreturn b = %1 : K_xG_y\n";
    let small = shrink(&plan(body));
    assert_eq!(sizes(&small), "H=24 K=4 G=6");
    check(&small, 0);
}

#[test]
fn a_whole_split_more_finely_than_its_parts_is_found() {
    let body = "layer l\nmesh x=4, y=4\ndims H=4096, K=64, G=64\n%0 = parameter a : f32 H_xy\n%1 \
        = all-gather %0 over xy along H : f32 H\n%2 = split %1, H -> KG : f32 KG\nreturn b = %2 : \
        KG\n";
    let small = shrink(&plan(body));
    assert!(small.dims[0].size.is_multiple_of(16) && small.dims[0].size <= 64, "{}", sizes(&small));
    check(&small, 0);
}

#[test]
fn sizes_of_one_and_useful_sizes_stay_sane() {
    let body = "layer l\nmesh x=2\ndims L=1, H=64 useful 48, U=1000\n%0 = parameter a : f32 \
        LH_x\nreturn b = %0 : LH_x\n";
    let small = shrink(&plan(body));
    assert_eq!(sizes(&small), "L=1 H=4 U=1000");
    assert_eq!(small.dims[1].useful, 3);
}

#[test]
fn a_large_mesh_gets_lean_blocks() {
    let wide = MLP
        .replace("x=4, y=4, z=4", "x=16, y=16, z=16")
        .replace("B=512", "B=4096")
        .replace("18432", "65536")
        .replace("73728", "262144");
    let small = shrink(&plan(&wide));
    assert_eq!(verify(&small), Ok(()));
    assert!(small.dims[2].size <= 8192, "{}", sizes(&small));
    assert!(work_needed(&small) < 1 << 40);
}

#[test]
fn what_is_too_large_is_refused_with_the_numbers() {
    let Err(RunError::TooLarge { needed, cap }) = run_plan(&plan(MLP), &RunOptions::default())
    else {
        panic!("too large")
    };
    assert!(needed > cap);
}
