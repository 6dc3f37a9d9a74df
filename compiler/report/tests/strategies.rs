//! The strategies of the feed-forward block are recognised from plans alone.

use shard_ir::Plan;
use shard_report::strategy::strategy;

/// The names of a plan: a mesh, and the instructions of a part of a feed-forward block.
fn names(mesh: &str, instructions: &str) -> Vec<&'static str> {
    let text = format!("shir 1\nlayer mlp\nmesh {mesh}\ndims B=64, L=8, E=64, F=256\n{instructions}");
    let plan: Plan = shard_ir::text::parse(&text).expect("well formed").remove(0);
    shard_ir::verify::verify(&plan).expect("a legal plan");
    strategy(&plan).into_iter().map(|s| s.name()).collect()
}

#[test]
fn weights_that_stay_split_along_one_dim() {
    let plan = "%0 = parameter x : bf16 BLE
%1 = parameter w : weight bf16 EF_xyz
%2 = einsum BLE,EF->BLF %0, %1 : bf16 BLF_xyz
%3 = parameter v : weight bf16 F_xyzE
%4 = einsum BLF,FE->BLE %2, %3 : bf16 BLE(partialsum-xyz)
return y = %4 : BLE(partialsum-xyz)
";
    assert_eq!(names("x=2, y=2, z=2", plan), ["1d-weight-stationary"]);
}

#[test]
fn weights_that_stay_split_along_two_dims() {
    let plan = "%0 = parameter x : bf16 BLE_x
%1 = parameter w : weight bf16 E_xF_yz
%2 = einsum BLE,EF->BLF %0, %1 : bf16 BLF_yz(partialsum-x)
return y = %2 : BLF_yz(partialsum-x)
";
    assert_eq!(names("x=2, y=2, z=2", plan), ["2d-weight-stationary"]);
}

#[test]
fn weights_gathered_over_one_two_or_three_axes_whichever_they_are() {
    let one = "%0 = parameter x : bf16 B_yLE
%1 = parameter w : weight bf16 E_yF_xz
%2 = all-gather %1 over y along E : bf16 EF_xz
%3 = einsum BLE,EF->BLF %0, %2 : bf16 B_yLF_xz
return y = %3 : B_yLF_xz
";
    assert_eq!(names("x=2, y=2, z=2", one), ["x-weight-gathered"]);
    let two = "%0 = parameter x : bf16 B_xL_yE
%1 = parameter w : weight bf16 E_xF_zy
%2 = all-gather %1 over x along E : bf16 EF_zy
%3 = all-gather %2 over y along F : bf16 EF_z
%4 = einsum BLE,EF->BLF %0, %3 : bf16 B_xL_yF_z
return y = %4 : B_xL_yF_z
";
    assert_eq!(names("x=2, y=2, z=2", two), ["xy-weight-gathered"]);
    let three = "%0 = parameter x : bf16 B_xyzLE
%1 = parameter w : weight bf16 EF_xyz
%2 = all-gather %1 over xyz along F : bf16 EF
%3 = einsum BLE,EF->BLF %0, %2 : bf16 B_xyzLF
return y = %3 : B_xyzLF
";
    assert_eq!(names("x=2, y=2, z=2", three), ["xyz-weight-gathered"]);
}

#[test]
fn weights_gathered_over_the_only_axis_are_fsdp() {
    let plan = "%0 = parameter x : bf16 B_xLE
%1 = parameter w : weight bf16 E_xF
%2 = all-gather %1 over x along E : bf16 EF
%3 = einsum BLE,EF->BLF %0, %2 : bf16 B_xLF
return y = %3 : B_xLF
";
    assert_eq!(names("x=8", plan), ["fsdp"]);
}

#[test]
fn replicated_weights_and_a_split_batch_are_data_parallel() {
    let plan = "%0 = parameter x : bf16 B_xLE
%1 = parameter w : weight bf16 EF
%2 = einsum BLE,EF->BLF %0, %1 : bf16 B_xLF
return y = %2 : B_xLF
";
    assert_eq!(names("x=8", plan), ["data-parallel"]);
    let with_tensor_parallel = plan.replace("EF\n", "EF_y\n").replace("B_xLF", "B_xLF_y");
    assert_eq!(names("x=8, y=2", &with_tensor_parallel), ["1d-weight-stationary", "data-parallel"]);
}

#[test]
fn a_gathered_weight_without_a_split_batch_has_no_name() {
    let plan = "%0 = parameter x : bf16 BLE
%1 = parameter w : weight bf16 E_xF
%2 = all-gather %1 over x along E : bf16 EF
%3 = einsum BLE,EF->BLF %0, %2 : bf16 BLF
return y = %3 : BLF
";
    assert_eq!(names("x=8", plan), ["unnamed"]);
    assert_eq!(names("x=8", "%0 = parameter x : bf16 B_xLE\nreturn x = %0 : B_xLE\n"), ["unnamed"]);
}
