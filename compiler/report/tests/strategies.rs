//! Strategies are recognised from plans alone.

use shard_ir::Plan;
use shard_report::strategy::strategy;

/// The names of the strategies of a plan, given by a mesh and the instructions of a part of a
/// feed-forward block.
fn names(mesh: &str, instructions: &str) -> Vec<&'static str> {
    let text = format!(
        "shir 1\nlayer block\nmesh {mesh}\ndims B=64, L=8, E=64, F=256, H=8, Q=8, S=32, \
            X=8\n{instructions}"
    );
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
    assert_eq!(names("x=2, y=2, z=2", three), ["xyz-weight-gathered", "fsdp"]);
    let three_along_two_dims = three.replace("EF_xyz", "E_xF_yz").replace(
        "%2 = all-gather %1 over xyz along F : bf16 EF\n%3 = einsum BLE,EF->BLF %0, %2 : bf16 \
            B_xyzLF\nreturn y = %3",
        "%2 = all-gather %1 over x along E : bf16 EF_yz\n%3 = all-gather %2 over yz along F : \
            bf16 EF\n\
         %4 = einsum BLE,EF->BLF %0, %3 : bf16 B_xyzLF\nreturn y = %4",
    );
    assert_eq!(names("x=2, y=2, z=2", &three_along_two_dims), ["xyz-weight-gathered"]);
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
fn weights_gathered_over_a_data_axis_and_split_over_a_tensor_axis_are_fsdp_as_well() {
    let plan = "%0 = parameter x : bf16 B_xLE
%1 = parameter w : weight bf16 E_xF_y
%2 = all-gather %1 over x along E : bf16 EF_y
%3 = einsum BLE,EF->BLF %0, %2 : bf16 B_xLF_y
return y = %3 : B_xLF_y
";
    assert_eq!(names("x=8, y=4", plan), ["x-weight-gathered", "fsdp"]);
}

#[test]
fn the_form_of_most_bytes_of_weights_names_the_plan() {
    let plan = "%0 = parameter x : bf16 B_xLE
%1 = parameter k : weight bf16 E_xQ
%2 = all-gather %1 over x along E : bf16 EQ
%3 = einsum BLE,EQ->BLQ %0, %2 : bf16 B_xLQ
%4 = parameter w : weight bf16 EF_y
%5 = einsum BLE,EF->BLF %0, %4 : bf16 B_xLF_y
return k = %3 : B_xLQ
return y = %5 : B_xLF_y
";
    assert_eq!(names("x=8, y=4", plan), ["1d-weight-stationary"]);
}

/// Attention with one head of keys for all heads of queries, in these layouts.
fn attention(q: &str, k: &str, s: &str, o: &str) -> String {
    format!(
        "%0 = parameter x : bf16 BLE
%1 = parameter w : weight bf16 EHQ
%2 = einsum BLE,EHQ->BLHQ %0, %1 : bf16 BLHQ
%3 = parameter q : bf16 {q}
%4 = parameter k : cache bf16 {k}
%5 = einsum BLHQ,BSQ->BHLS %3, %4 : bf16 {s}
%6 = causal %5 over L, S : bf16 {s}
%7 = softmax %6 over S : bf16 {s}
%8 = einsum BHLS,BSQ->BLHQ %7, %4 : bf16 {o}
return w = %2 : BLHQ
return o = %8 : {o}
"
    )
}

#[test]
fn attention_is_named_by_what_splits_its_scores() {
    for (plan, name) in [
        (attention("B_xLHQ", "B_xSQ", "B_xHLS", "B_xLHQ"), "batch-sharded-attention"),
        (attention("BLH_xQ", "BSQ", "BH_xLS", "BLH_xQ"), "head-sharded-attention"),
        (attention("BL_xHQ", "BSQ", "BHL_xS", "BL_xHQ"), "sequence-sharded-attention"),
    ] {
        assert_eq!(names("x=4", &plan), [name]);
    }
    let both = attention("B_xLH_yQ", "B_xSQ", "B_xH_yLS", "B_xLH_yQ");
    assert_eq!(names("x=4, y=2", &both), ["head-sharded-attention", "batch-sharded-attention"]);
}

#[test]
fn a_softmax_over_experts_is_no_attention_and_split_experts_have_a_name() {
    let plan = "%0 = parameter x : bf16 BLE
%1 = parameter r : weight bf16 EX_x
%2 = einsum BLE,EX->BLX %0, %1 : bf16 BLX_x
%3 = all-gather %2 over x along X : bf16 BLX
%4 = softmax %3 over X : bf16 BLX
%5 = slice %4 over x along X : bf16 BLX_x
%6 = einsum BLE,BLX->BXLE %0, %5 : bf16 BX_xLE
%7 = parameter w : weight bf16 X_xEF_y
%8 = einsum BXLE,XEF->BXLF %6, %7 : bf16 BX_xLF_y
%9 = einsum BXLF,BLX->BLF %8, %5 : bf16 BLF_y(partialsum-x)
return y = %9 : BLF_y(partialsum-x)
";
    assert_eq!(names("x=4, y=2", plan), ["1d-weight-stationary", "expert-parallel"]);
}

/// A dim that a weight shares with its scales is not a dim of experts.
#[test]
fn scales_of_a_weight_in_blocks_say_nothing_of_its_dims() {
    let plan = "%0 = parameter x : bf16 BLEQ
%1 = parameter w : weight f4 EQF_y
%2 = parameter s : weight f8 EF_y
%3 = einsum BLEQ,EQF,EF->BLF %0, %1, %2 : bf16 BLF_y
return y = %3 : BLF_y
";
    assert_eq!(names("x=4, y=2", plan), ["1d-weight-stationary"]);
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
