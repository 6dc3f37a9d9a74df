//! `export`: what it writes, where, and what it refuses. `compiler/export/python/run` tests what
//! the modules compute.

use crate::common::{fed, shardc, text};

#[test]
fn a_module_has_the_mesh_the_specs_and_a_line_for_each_instruction() {
    let ran = shardc(&["export", "jax", "mlp.shard"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    for line in [
        "MESH = jax.make_mesh((4, 4, 4), (\"x\", \"y\", \"z\"), axis_types=(AxisType.Auto,) * 3)",
        "    \"w_in\": P(\"x\", (\"y\", \"z\")),",
        "    check_vma=False,",
        "    x = lax.all_gather(x, (\"y\", \"z\"), axis=2, tiled=True)",
        "    # BLE_x, 4.72 MB: all-gather, sends 4.42 MB",
        "def mlp_unsharded(x, w_in, w_out):",
    ] {
        assert!(ran.out.lines().any(|l| l == line), "{line:?} is not in:\n{}", ran.out);
    }
    assert_eq!(
        shardc(&["export", "jax", "mlp.shard"]).out,
        ran.out,
        "the same input gives the same bytes"
    );
}

#[test]
fn constraints_stand_on_every_move_and_on_no_op() {
    let ran = shardc(&["export", "jax", "mlp.shard", "--style", "constraints"]);
    let body =
        ran.out.split("def mlp(").nth(1).and_then(|text| text.split("def mlp_unsharded(").next());
    let body = body.expect("the function");
    assert_eq!(body.matches(" = at(").count(), 4, "{body}");
    assert!(!ran.out.contains("shard_map"), "{}", ran.out);
}

#[test]
fn loops_are_rings_in_the_module() {
    let ran = shardc(&["export", "jax", "mlp.shard", "--fuse", "-D", "B=64"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.out.contains(" = einsum_gathering(") || ran.out.contains(" = einsum_scattering("),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("\ndef ring(axes):\n"), "the module brings along what it calls");
}

#[test]
fn a_module_goes_to_a_folder_under_a_name_that_python_imports() {
    let folder = std::env::temp_dir().join(format!("shardc-export-{}", std::process::id()));
    let path = folder.to_str().expect("UTF-8");
    let ran = shardc(&["export", "jax", "mlp.shard", "-o", path]);
    assert_eq!((ran.status, ran.out), (0, format!("wrote {path}/mlp.py\n")));
    let ran = shardc(&["export", "specs", "mlp.shard", "-o", path]);
    assert_eq!((ran.status, ran.out), (0, format!("wrote {path}/mlp.specs.json\n")));
    let written = std::fs::read_to_string(folder.join("mlp.py")).expect("written");
    assert_eq!(written, shardc(&["export", "jax", "mlp.shard"]).out);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_module_hides_none_that_it_imports() {
    let folder = std::env::temp_dir().join(format!("shardc-export-of-jax-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, path) = (folder.join("jax.shard"), folder.to_str().expect("UTF-8"));
    std::fs::write(&source, text("mlp.shard")).expect("written");
    let source = source.to_str().expect("UTF-8");
    let ran = shardc(&["export", "jax", source, "-o", path]);
    assert_eq!((ran.status, ran.out), (0, format!("wrote {path}/jax_.py\n")));
    let ran = shardc(&["export", "torch", source, "-o", path]);
    assert_eq!((ran.status, ran.out), (0, format!("wrote {path}/jax_torch.py\n")));
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_file_in_place_of_the_folder_is_told() {
    let ran = shardc(&["export", "jax", "mlp.shard", "-o", "/dev/null"]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("cannot write into `/dev/null`, which is no folder"), "{}", ran.err);
}

#[test]
fn stablehlo_has_the_mesh_and_every_collective_of_the_plan() {
    let ran = shardc(&["export", "stablehlo", "mlp.shard"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    for line in [
        "  sdy.mesh @mesh = <[\"x\"=4, \"y\"=4, \"z\"=4]>",
        "  func.func public @\"main\"(",
        "      // x: BLE_x, 4.72 MB: all-gather, sends 4.42 MB",
    ] {
        assert!(ran.out.lines().any(|l| l == line), "{line:?} is not in:\n{}", ran.out);
    }
    let count = |op: &str| ran.out.matches(&format!("\"stablehlo.{op}\"(")).count();
    assert_eq!(
        ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute"]
            .map(count),
        [2, 2, 0, 0, 0]
    );
    assert_eq!(shardc(&["export", "stablehlo", "mlp.shard"]).out, ran.out);
}

#[test]
fn stablehlo_is_not_written_for_more_devices_than_its_groups_can_list() {
    let plan = "shir 1\n\nlayer l\nhardware tpu-v4-flat\nmesh x=131072\ndims B=131072\n\n\
        %0 = parameter a : f32 B_x\n%1 = all-gather %0 over x along B : f32 B\nreturn y = %1 : B\n";
    let ran = fed(&["export", "stablehlo", "-"], plan);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
    assert!(ran.err.contains("131072 devices"), "{}", ran.err);
    assert!(ran.err.contains("65536"), "{}", ran.err);
}

#[test]
fn names_of_stablehlo_are_its_own_and_strings_are_escaped() {
    let plan = "shir 1\n\nlayer \"a b\"\nhardware tpu-v4-flat\nmesh x=4\ndims B=8\n\n\
        %0 = parameter results : f32 B_x\n%1 = parameter \"größe\" : f32 B_x\n\
        %2 = mul %0, %1 : f32 B_x\nreturn y = %2 : B_x\n";
    let ran = fed(&["export", "stablehlo", "-"], plan);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("%results_2: tensor<2xf32>, %gr__e: tensor<2xf32>"), "{}", ran.out);
}

#[test]
fn names_inside_regions_of_stablehlo_are_not_those_of_the_source() {
    for (name, of) in [
        ("a", "topk(a over V -> K)"),
        ("larger", "topk(larger over V -> K)"),
        ("at_b", "topk(at_b over V -> K)"),
        ("first", "topk(first over V -> K)"),
        ("b", "scatter_add(b, ids over B -> K)"),
        ("both", "scatter_add(both, ids over B -> K)"),
    ] {
        let (ids, result) =
            if of.starts_with("topk") { ("", "B_xK") } else { (", ids: int32 B_x", "KV") };
        let source = format!(
            "mesh x=2\ndim B = 4\ndim V = 8\ndim K = 2\n\
             layer f({name}: f32 B_xV{ids}) -> f32 {result} {{ return {of} }}\n"
        );
        let ran = fed(&["export", "stablehlo", "-", "--hardware", "tpu-v4-flat"], &source);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!(ran.out.matches(&format!("%{name}: tensor")).count(), 1, "{}", ran.out);
        assert!(ran.out.contains(&format!("%{name}_2")), "{}", ran.out);
    }
}

#[test]
fn names_that_python_or_the_linter_claims_are_mangled() {
    let plan = "shir 1\n\nlayer lambda\nhardware tpu-v4-flat\nmesh x=4\ndims B=8\n\n\
        %0 = parameter l : f32 B_x\n%1 = parameter \"größe\" : f32 B_x\n%2 = parameter jnp : f32 \
        B_x\n\
        %3 = mul %0, %1 : f32 B_x\n%4 = add %3, %2 : f32 B_x\nreturn y = %4 : B_x\n";
    let ran = fed(&["export", "jax", "-"], plan);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("def lambda_(l_, größe, jnp_):\n"), "{}", ran.out);
    assert!(ran.out.contains("    \"l\": P(\"x\"),\n"), "{}", ran.out);
}

#[test]
fn small_sizes_are_those_that_run_executes() {
    let ran = shardc(&["run", "mlp.shard"]).out;
    let small = shardc(&["lower", "mlp.shard", "--small"]).out;
    let dims = small.lines().find_map(|l| l.strip_prefix("dims ")).expect("dims");
    for dim in dims.split(", ") {
        // `run` names the dims that it makes smaller, and keeps the others.
        let kept = shardc(&["lower", "mlp.shard"]).out.contains(&format!(" {dim},"));
        assert!(kept || ran.contains(&format!("{dim} for ")), "{dim} is not in {ran}");
    }
    assert_ne!(small, shardc(&["lower", "mlp.shard"]).out);
}

#[test]
fn an_einsum_of_more_dims_than_letters_is_refused() {
    let names: Vec<String> = (0..54).map(|n| format!("D{n}")).collect();
    let dims: String = names.iter().map(|name| format!("dim {name} = 2\n")).collect();
    let operands: Vec<String> = names.chunks(9).map(|part| part.concat()).collect();
    let parameters: Vec<String> =
        operands.iter().enumerate().map(|(at, dims)| format!("a{at}: f32 {dims}")).collect();
    let read: Vec<String> = (0..operands.len()).map(|at| format!("a{at}")).collect();
    let source = format!(
        "hardware tpu-v4-flat\nmesh x=2\n{dims}layer f({}) -> f32 D0 {{ return einsum({} -> D0) \
            }}\n",
        parameters.join(", "),
        read.join(", ")
    );
    let ran = fed(&["export", "jax", "-"], &source);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("E0870"), "{}", ran.err);
}

#[test]
fn layers_on_meshes_of_their_own_make_no_module() {
    let plans = text("every_move.shir")
        + "\nlayer other\nhardware tpu-v4-flat\nmesh x=2\ndims B=4\n\
        %0 = parameter a : f32 B_x\n%1 = relu %0 : f32 B_x\nreturn r = %1 : B_x\n";
    let ran = fed(&["export", "jax", "-"], &plans);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("different meshes"), "{}", ran.err);
}

/// A plan of two independent gathers, a permute, and a ring.
const SENDS: &str = "shir 1\n\nlayer l\nhardware tpu-v4-flat\nmesh x=2, y=2\ndims B=8, E=8, F=8\n\n\
    %0 = parameter a : bf16 B_xyE\n%1 = parameter w : bf16 E_xF\n\
    %2 = all-gather %1 over x along E : bf16 EF\n%3 = parameter v : bf16 F_xE\n\
    %4 = all-gather %3 over x along F : bf16 FE\n%5 = collective-permute %0 : bf16 B_yxE\n\
    %6 = collective-einsum BE,EF->BF %5, %2 all-gather 0 over yx along B : bf16 BF\n\
    %7 = einsum BF,FE->BE %6, %4 : bf16 BE\nreturn r = %7 : EB\n";

#[test]
fn specs_say_who_sends_to_whom_in_which_order_and_what_may_be_sent_together() {
    let ran = fed(&["export", "specs", "-"], SENDS);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let sheet: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let layer = &sheet["layers"][0];
    let of = |id: u64| {
        let all = layer["collectives"].as_array().expect("a list");
        all.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no %{id}: {layer}"))
    };
    assert_eq!((&of(2)["together"], &of(4)["together"]), (&2.into(), &2.into()));
    assert_eq!(of(2)["wire_dtype"], "bf16");
    assert_eq!(of(5)["pairs"], serde_json::json!([[2, 1], [1, 2]]));
    assert!(of(5).get("together").is_none());
    assert_eq!(of(6)["pairs"], serde_json::json!([[0, 2], [2, 1], [1, 3], [3, 0]]));
    assert_eq!(of(6)["chunks"], serde_json::json!({"count": 4, "first": 0}));
    assert_eq!(of(6)["operand"], 5);
    let result = &layer["results"][0];
    assert_eq!(result["transposed"], serde_json::json!([1, 0]));
    assert_eq!(result["accumulates_in"], serde_json::Value::Null);
    assert_eq!(layer["dims"][0], serde_json::json!({"name": "B", "size": 8, "useful": 8}));
}

#[test]
fn specs_have_the_unsharded_source_as_a_plan_that_is_read_again() {
    let ran = shardc(&["export", "specs", "mlp.shard"]);
    let sheet: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let source = sheet["layers"][0]["source"].as_str().expect("the source").to_string();
    assert!(source.contains("einsum BLE,EF->BLF"), "{source}");
    assert!(!source.contains("all-gather"), "{source}");
    let ran = fed(&["export", "stablehlo", "-", "--hardware", "tpu-v4-flat"], &source);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{source}");
    assert!(!ran.out.contains("stablehlo.all_"), "{}", ran.out);
}

#[test]
fn a_module_of_torch_has_groups_placements_and_a_line_for_each_instruction() {
    let ran = shardc(&["export", "torch", "mlp.shard"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    for line in [
        "MESH = {\"x\": 4, \"y\": 4, \"z\": 4}",
        "AXES = ((\"y\", \"z\"), \"x\")",
        "    \"w_in\": (\"x\", (\"y\", \"z\")),",
        "    \"w_in\": [Shard(0), Shard(1), Shard(1)],",
        "    x = all_gather(x, (\"y\", \"z\"), dim=2)  \
            # BLE_x, 4.72 MB: all-gather, sends 4.42 MB",
        "TP_PLAN = None",
        "def mlp_unsharded(x, w_in, w_out):",
    ] {
        assert!(ran.out.lines().any(|l| l == line), "{line:?} is not in:\n{}", ran.out);
    }
    assert_eq!(shardc(&["export", "torch", "mlp.shard"]).out, ran.out, "the same bytes");
}

#[test]
fn every_order_of_axes_has_a_group_and_what_dtensor_lacks_is_said() {
    let plan = "shir 1\n\nlayer f\nhardware tpu-v4-flat\nmesh x=2, y=2\ndims B=8\n\n\
        %0 = parameter a : f32 B_yx\n%1 = parameter b : f32 B_xy\n\
        %2 = all-gather %0 over yx along B : f32 B\n%3 = all-gather %1 over xy along B : f32 B\n\
        %4 = add %2, %3 : f32 B\nreturn r = %4 : B\n";
    let ran = fed(&["export", "torch", "-"], plan);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("AXES = ((\"y\", \"x\"), (\"x\", \"y\"))\n"), "{}", ran.out);
    assert!(ran.out.contains("    \"a\": None,\n"), "{}", ran.out);
    assert!(ran.out.contains("# DTensor cannot say this: yx cuts a dim y first"), "{}", ran.out);
    assert!(ran.out.contains("    \"b\": [Shard(0), Shard(0)],\n"), "{}", ran.out);
}

/// Parameters without names, of one type, beside one that is called as they would be.
const UNNAMED: &str = "shir 1\n\nlayer f\nhardware tpu-v4-flat\nmesh m=4\ndims B=8, E=16, F=32\n\n\
    %0 = parameter : f32 BE\n%1 = parameter : weight f32 EF_m\n%2 = parameter p1 : weight f32 \
    EF_m\n%3 = parameter : weight f32 EF_m\n%4 = einsum BE,EF->BF %0, %1 : f32 BF_m\n%5 = einsum \
    BE,EF->BF %0, %2 : f32 BF_m\n%6 = sub %4, %5 : f32 BF_m\n%7 = einsum BE,EF->BF %0, %3 : f32 \
    BF_m\n%8 = sub %6, %7 : f32 BF_m\nreturn result = %8 : BF_m\n";

#[test]
fn parameters_without_a_name_get_one_that_no_other_has() {
    for system in ["jax", "torch"] {
        let ran = fed(&["export", system, "-"], UNNAMED);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{system}");
        for function in ["def f(p0, p1_2, p1, p3):\n", "def f_unsharded(p0, p1_2, p1, p3):\n"] {
            assert!(ran.out.contains(function), "{function} is not in:\n{}", ran.out);
        }
        let (_, unsharded) = ran.out.split_once("def f_unsharded").expect("it is there");
        let read = |name: &str| unsharded.find(&format!("p0, {name})")).expect("it is read");
        assert!(read("p1_2") < read("p1") && read("p1") < read("p3"), "{unsharded}");
    }
    let ran = fed(&["export", "torch", "-"], UNNAMED);
    let plan = "TP_PLAN = {\n    \"p1_2\": \"colwise\",\n    \"p1\": \"colwise\",\n    \"p3\": \
        \"colwise\",\n}\n";
    assert!(ran.out.contains(plan), "{}", ran.out);
    let ran = fed(&["export", "stablehlo", "-"], UNNAMED);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
}

#[test]
fn a_layer_in_a_phase_called_stack_is_one_of_its_stack() {
    let source = "hardware tpu-v4-flat\nmesh x=2\ndim B = 8\nphase stack { B = 8 }\n\
        phase two { B = 16 }\nlayer f(a: f32 B) -> f32 B repeat 3 { return a + a }\n";
    for (system, sign) in [("jax", "#"), ("torch", "#"), ("stablehlo", "//")] {
        let ran = fed(&["export", system, "-"], source);
        assert_eq!(ran.status, 0, "{ran:?}");
        for (layer, repeat) in [
            ("f.stack", "one of 3"),
            ("f.stack.stack", "all 3"),
            ("f.two", "one of 3"),
            ("f.two.stack", "all 3"),
        ] {
            let heading = format!("{sign} {layer} on tpu-v4-flat, {repeat}: B=");
            assert!(ran.out.contains(&heading), "{heading} is not in:\n{}", ran.out);
        }
    }
}

/// A layer in the form of Megatron-LM, with the result `y`.
fn two_matrices(result: &str) -> String {
    format!(
        "hardware tpu-v4-flat\nmesh m=4\ndim B = 64\ndim E = 64\ndim F = 64\n\
         layer mlp(x: f32 BE, w_in: weight f32 EF_m, w_out: weight f32 F_mE) -> {result} {{\n\
         let h = relu(einsum(x, w_in -> BF))\nreturn einsum(h, w_out -> BE)\n}}\n"
    )
}

#[test]
fn a_plan_of_tensor_parallelism_stands_where_there_is_one() {
    let ran = fed(&["export", "torch", "-"], &two_matrices("f32 BE"));
    assert_eq!(ran.status, 0, "{ran:?}");
    let plan = "TP_PLAN = {\n    \"w_in\": \"colwise\",\n    \"w_out\": \"rowwise\",\n}\n";
    assert!(ran.out.contains(plan), "{}", ran.out);
    let ran = fed(&["export", "torch", "-"], &two_matrices("f32 B_mE"));
    let why =
        "# no plan of tensor parallelism: `w_out` gives a sum that is not all-reduced at once";
    assert!(ran.out.contains(why), "{}", ran.out);
}

#[test]
fn a_stack_is_a_loop_over_its_layers() {
    let source = two_matrices("f32 BE").replace("layer mlp", "layer mlp repeat 3");
    let source = source.replace("} {", "} repeat 3 {").replace("layer mlp repeat 3", "layer mlp");
    let source = source.replace(" -> f32 BE {", " -> f32 BE repeat 3 {");
    let ran = fed(&["export", "torch", "-"], &source);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("    for stack in zip(w_in, w_out):\n"), "{}", ran.out);
    assert!(ran.out.contains("\"w_in\": (None, None, \"m\"),"), "{}", ran.out);
}

#[test]
fn an_op_on_a_dtype_that_torch_does_not_compute_with_is_refused_by_name() {
    let source = "hardware tpu-v4-flat\nmesh x=4\ndim B = 8\n\
        layer f(a: f8 B_x, b: f8 B_x) -> f8 B_x { return a + b }\n";
    let ran = fed(&["export", "torch", "-"], source);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("E0871") && ran.err.contains("`add` of f8"), "{}", ran.err);
    assert_eq!(fed(&["export", "torch", "--dtype", "f32", "-"], source).status, 0);
}
