//! What a file without errors becomes.

use crate::common::{check, check_with, codes, demand, dims_of, messages, pins, program, value};
use shard_check::CheckOptions;
use shard_ir::{Def, Dtype, Op, ParameterKind};

const FEED_FORWARD: &str = "
hardware tpu-v4-flat
mesh x=4, y=4, z=4
dim B = 512
dim L = 1
dim E = 18432
dim F = 4 * E
layer mlp(x: bf16 BLE_xyz, w_in: weight bf16 E_xF_yz, w_out: weight bf16 F_yzE_x,) -> bf16 BLE_xyz {
  let h = einsum(x, w_in -> BLF)
  let a = gelu(h)
  let y = einsum(a, w_out -> BLE)
  return y
}";

#[test]
fn the_feed_forward_block_has_three_parameters_three_ops_and_one_output() {
    let p = program(FEED_FORWARD);
    assert_eq!((p.name.as_str(), p.repeat, p.strict), ("mlp", 1, false));
    assert_eq!(p.hardware.as_deref(), Some("tpu-v4-flat"));
    assert_eq!(p.values.len(), 6);
    assert_eq!(p.dims[3].size, 73728);
    assert_eq!(demand(&p, value(&p, "w_in")), "E_xF_yz");
    assert!(matches!(value(&p, "w_in").def, Def::Parameter { kind: ParameterKind::Weight, .. }));
    assert!(matches!(value(&p, "h").def, Def::Op { op: Op::Einsum, .. }));
    assert_eq!(p.outputs[0].name, "y");
    assert_eq!(check(FEED_FORWARD).roots, [0]);
}

#[test]
fn a_padded_dim_carries_its_useful_size_into_derived_dims() {
    let p = program(
        "dim H = 48 pad 64\ndim Q = 4\ndim N = H * Q\nlayer f(x: f32 HN) -> f32 HN { return x }",
    );
    let sizes: Vec<(u64, u64)> = p.dims.iter().map(|d| (d.size, d.useful)).collect();
    assert_eq!(sizes, [(64, 48), (4, 4), (256, 192)]);
}

#[test]
fn a_dim_on_the_command_line_changes_the_dims_that_follow_from_it() {
    let options = CheckOptions {
        dim_overrides: vec![("H".into(), "30 pad 32".into())],
        ..CheckOptions::default()
    };
    let text = "dim E = 8\ndim H = E\ndim N = H * 2\nlayer f(x: f32 HN) -> f32 HN { return x }";
    let checked = check_with(text, &options);
    assert_eq!(messages(&checked), Vec::<&str>::new());
    assert_eq!(checked.programs[0].dims[1].size, 32);
    assert_eq!((checked.programs[0].dims[2].size, checked.programs[0].dims[2].useful), (64, 60));
}

#[test]
fn a_wrong_dim_on_the_command_line_is_an_error_without_a_place() {
    let text = "dim Batch = 8\nlayer f(x: f32 [Batch]) -> f32 [Batch] { return x }";
    for (name, right, code) in [
        ("Bacth", "8", "E0312"),
        ("Batch", "8x", "E0313"),
        ("Batch", "0", "E0304"),
        ("Batch", "Z", "E0313"),
    ] {
        let options = CheckOptions {
            dim_overrides: vec![(name.into(), right.into())],
            ..CheckOptions::default()
        };
        let checked = check_with(text, &options);
        assert_eq!(checked.diagnostics[0].code, code, "{:?}", messages(&checked));
        assert_eq!(checked.diagnostics[0].primary_span(), None);
    }
}

#[test]
fn an_axis_that_the_new_mesh_lacks_is_one_error_whose_help_sets_it_to_one() {
    let options = CheckOptions {
        mesh_override: Some(vec![("x".into(), 8), ("y".into(), 8)]),
        ..CheckOptions::default()
    };
    let checked = check_with(FEED_FORWARD, &options);
    assert_eq!(checked.diagnostics.len(), 1);
    assert!(checked.diagnostics[0].helps[0].text.starts_with("z=1"));
    let options = CheckOptions {
        mesh_override: Some(vec![("x".into(), 8), ("y".into(), 8), ("z".into(), 1)]),
        ..CheckOptions::default()
    };
    let checked = check_with(FEED_FORWARD, &options);
    assert!(!checked.has_errors());
    assert_eq!(demand(&checked.programs[0], value(&checked.programs[0], "x")), "BLE_xy");
}

#[test]
fn axes_of_size_one_are_dropped_from_splits_and_partials() {
    let p = program(
        "mesh x=4, y=1, z=1\ndim B = 8\nlayer f(a: f32 B_yx(partialsum-z)) -> f32 B_x { return a }",
    );
    assert_eq!(demand(&p, &p.values[0]), "B_x");
    assert_eq!(p.mesh.axes().len(), 1);
}

#[test]
fn strict_comes_from_the_layer_or_from_the_command_line() {
    let text = "dim B = 8\nstrict layer f(a: f32 B) -> f32 B { return a }\nlayer g(a: f32 B) -> \
        f32 B { return a }";
    let strict = |checked: shard_check::Checked| {
        checked.programs.iter().map(|p| p.strict).collect::<Vec<_>>()
    };
    assert_eq!(strict(check(text)), [true, false]);
    assert_eq!(
        strict(check_with(text, &CheckOptions { strict: true, ..CheckOptions::default() })),
        [true, true]
    );
}

#[test]
fn an_annotation_gives_a_fresh_value_its_order_of_dims() {
    let p = program(
        "mesh x=2\ndim B = 4\ndim F = 8\nlayer f(a: f32 BF) -> f32 BF { let h: f32 F_xB = gelu(a) \
            return h }",
    );
    assert_eq!(dims_of(&p, "h"), "FB");
    assert_eq!(pins(&p), [("h".to_string(), "F_xB".to_string())]);
    assert_eq!(p.dim_names(&p.outputs[0].dims).concat(), "BF");
    assert_eq!(p.outputs[0].pattern.dims.len(), 2);
}

#[test]
fn an_annotation_of_a_value_that_is_there_keeps_its_order() {
    let p = program(
        "mesh x=2\ndim B = 4\ndim F = 8\nlayer f(a: f32 BF) -> f32 BF_x { let h: f32 F_xB = a \
            return h }",
    );
    assert_eq!(pins(&p), [("h".to_string(), "BF_x".to_string())]);
}

#[test]
fn an_annotation_of_dims_alone_pins_nothing() {
    let p =
        program("mesh x=2\ndim B = 4\nlayer f(a: f32 B) -> f32 B { let h: B? = gelu(a) return h }");
    assert_eq!(pins(&p), []);
    let p =
        program("mesh x=2\ndim B = 4\nlayer f(a: f32 B) -> f32 B { let h: B = gelu(a) return h }");
    assert_eq!(pins(&p), [("h".to_string(), "B".to_string())]);
}

#[test]
fn a_reshard_is_a_written_pin_and_an_annotation_is_not() {
    let p = program(
        "mesh x=2\ndim B = 4\nlayer f(a: f32 B) -> f32 B { let h = reshard(a, B_x) let k: B_x = \
            gelu(h) return k }",
    );
    let written: Vec<bool> = p
        .values
        .iter()
        .filter_map(|v| if let Def::Pin { written, .. } = v.def { Some(written) } else { None })
        .collect();
    assert_eq!(written, [true, false]);
    assert_eq!(value(&p, "h").name.as_deref(), Some("h"));
}

#[test]
fn a_number_takes_the_other_operands_dtype_and_alone_is_f32() {
    let p = program("dim B = 4\nlayer f(a: bf16 B) -> bf16 B { return maximum(-2 * a, 0) }");
    let constants: Vec<(f64, Dtype)> = p
        .values
        .iter()
        .filter_map(|v| if let Def::Constant(n) = v.def { Some((n, v.dtype)) } else { None })
        .collect();
    assert_eq!(constants, [(-2.0, Dtype::Bf16), (0.0, Dtype::Bf16)]);
    let p = program("dim B = 4\nlayer f(a: bf16 B) -> f32 B { let c = 2 return a * c }");
    assert_eq!(p.value(p.outputs[0].value).dtype, Dtype::F32);
}

#[test]
fn elementwise_operations_broadcast_by_name_and_keep_the_first_order() {
    let p = program(
        "dim B = 4\ndim E = 8\ndim F = 2\nlayer f(a: f32 BE, b: f32 FE) -> f32 BEF { let c = a + \
            b return c }",
    );
    assert_eq!(dims_of(&p, "c"), "BEF");
}

#[test]
fn a_weight_of_int8_counts_as_the_other_operands_dtype() {
    let p = program(
        "dim B = 4\ndim E = 8\nlayer f(a: bf16 BE, w: weight int8 E) -> bf16 B { return einsum(a, \
            w -> B) }",
    );
    assert_eq!(p.value(p.outputs[0].value).dtype, Dtype::Bf16);
}

#[test]
fn a_layer_may_return_a_parameter_as_it_is() {
    let p =
        program("mesh x=2\ndim A = 4\ndim B = 4\nlayer r(t: f32 AB_x) -> f32 A_xB { return t }");
    assert_eq!((p.values.len(), p.outputs[0].value.0, p.outputs[0].name.as_str()), (1, 0, "t"));
}

#[test]
fn every_operation_of_the_language_checks() {
    let text = "
mesh x=2
dim B = 2
dim L = 4
dim S = 8
dim T = 12
dim H = 4
dim K = 2
dim G = 2
dim Q = 6
dim V = 10
dim W = 3
layer all(ids: int32 BL, t: weight bf16 VQ, c: cache bf16 BSQ?c, n: bf16 BLHQ) -> (y: bf16 BSQ?, z: bf16 BWQ?, m: f32 B?) {
  let e = take(t, ids over V)
  let c2 = append(c, e, L -> S)
  let r = rope(e over Q at L)
  let parts = merge(split(n, H -> KG), KG -> H)
  let s = causal(einsum(parts, c2 -> BHLS) over L, S)
  let p = softmax(s over S)
  let o = einsum(p, c2 -> BLHQ)
  let m = mean(cast(o, f32) over LHQ) + max(cast(rmsnorm(r over Q), f32) over [L, Q])
  let both = concat(c2, layernorm(e over Q), S, L -> T)
  let y = slice(both, T -> S, 4)
  let z = slice(e, L -> W, 1)
  return (y, z, m)
}";
    let p = program(text);
    assert_eq!(p.outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["y", "z", "m"]);
}

#[test]
fn labels_are_shared_by_the_types_that_bear_them() {
    let p = program("mesh x=2\ndim B = 4\nlayer f(a: f32 B?l) -> f32 B?l { return gelu(a) }");
    let Def::Parameter { pattern, .. } = &p.values[0].def else { panic!("a parameter") };
    assert!(pattern.label.is_some());
    assert_eq!(pattern.label, p.outputs[0].pattern.label);
    assert_eq!(p.labels, ["l"]);
}

#[test]
fn a_cache_left_open_on_both_sides_of_a_stack_is_tied() {
    let p = program(
        "mesh x=2\ndim B = 4\ndim S = 8\ndim L = 1\nlayer f(a: f32 B?l, k: cache f32 BS?, n: f32 BL) -> (y: f32 B?l, k2: cache f32 BS?) repeat 3 {
  return (gelu(a), append(k, n, L -> S)) }",
    );
    let Def::Parameter { pattern, .. } = &p.values[1].def else { panic!("a parameter") };
    assert!(pattern.label.is_some());
    assert_eq!(pattern.label, p.outputs[1].pattern.label);
    assert_ne!(pattern.label, p.outputs[0].pattern.label);
}

#[test]
fn a_cache_stated_on_one_side_of_a_stack_is_stated_on_the_other() {
    let p = program(
        "mesh x=2\ndim B = 4\ndim S = 8\ndim L = 1\nlayer f(a: f32 B, k: cache f32 B_xS, n: f32 BL) -> (y: f32 B, k2: cache f32 BS?) repeat 3 {
  return (gelu(a), append(k, n, L -> S)) }",
    );
    assert!(!p.outputs[1].pattern.open);
}

#[test]
fn a_cache_that_is_replaced_is_tied_unless_both_sides_say_where_it_lies() {
    let of = |before: &str, after: &str| {
        program(&format!(
            "mesh x=2\ndim B = 4\ndim S = 8\nlayer f(a: f32 B, k: cache f32 {before}) -> (y: f32 B, \
                k2: cache f32 {after}) repeat 3 {{ return (gelu(a), k * 0.5 + a) }}"
        ))
    };
    assert!(!of("B_xS", "BS?").outputs[1].pattern.open);
    let both = of("B_xS", "BS_x");
    assert!(both.outputs[1].pattern.label.is_none());
}

#[test]
fn a_partial_parameter_under_a_free_gelu_is_no_error() {
    let text = "mesh x=2\ndim B = 4\nlayer f(h: f32 B(partialsum-x)) -> f32 B { let a = gelu(h) \
        return a }";
    assert_eq!(codes(text), Vec::<&str>::new());
}

#[test]
fn a_linear_operation_may_act_on_a_partial_sum() {
    let text = "mesh x=2\ndim B = 4\nlayer f(h: f32 B(partialsum-x)) -> f32 B(partialsum-x) { \
        return -(h * 2) }";
    assert_eq!(codes(text), Vec::<&str>::new());
}

#[test]
fn relu_keeps_order_and_gelu_does_not() {
    let text = |op: &str| {
        format!(
            "mesh x=2\ndim B = 4\nlayer f(h: f32 B(partialmax-x)) -> f32 B(partialmax-x) {{ \
                return {op}(h) }}"
        )
    };
    assert_eq!(codes(&text("relu")), Vec::<&str>::new());
    assert_eq!(codes(&text("gelu")), ["E0501"]);
}

#[test]
fn rope_counts_from_the_front_or_to_the_end_of_a_dim() {
    let text = "dim L = 4\ndim S = 8\ndim Q = 6\nlayer f(a: f32 LQ) -> (y: f32 LQ, z: f32 LQ) {
  let y = rope(a over Q at L)
  let z = rope(a over Q at L, S)
  return (y, z)
}";
    let p = program(text);
    let extent = |name: &str| match &value(&p, name).def {
        Def::Op { op: Op::Rope { extent, .. }, .. } => {
            extent.map(|d| p.dims[d.index()].name.clone())
        }
        def => panic!("{def:?}"),
    };
    assert_eq!((extent("y"), extent("z")), (None, Some("S".to_string())));
}

#[test]
fn a_number_that_is_negated_twice_is_told_without_a_sign() {
    let told = |number: &str| {
        let text = format!("dim B = 8\nlayer f(a: int8 B) -> int8 B {{ return a + {number} }}");
        let found = check(&text).diagnostics.remove(0);
        (found.message, found.helps)
    };
    let (message, helps) = told("9000000000000");
    assert_eq!(message, "9000000000000 is no int8, the dtype that it takes from the other operand");
    assert_eq!(told("-(-9000000000000)"), (message, helps));
    assert!(told("-(-(-300))").0.starts_with("-300 is no int8"));
}

#[test]
fn an_einsum_has_the_dtype_that_it_states_or_that_of_its_product() {
    let text = "dim B = 2\ndim E = 4\ndim F = 4\nlayer f(a: bf16 BE, b: bf16 EF, c: int8 BE, d: int4 EF) -> f32 BF {
  let plain = einsum(a, b -> BF)
  let wide = einsum(a, b -> BF : f32)
  let narrow = einsum(wide, b -> BE : bf16)
  let whole = einsum(c, c -> B : int32)
  let small = einsum(d, d -> E : int32)
  return wide + cast(sum(narrow over BE), f32) + cast(sum(whole over B), f32) + cast(sum(small over E), f32) + cast(plain, f32)
}";
    let p = program(text);
    let dtypes: Vec<&str> =
        ["plain", "wide", "narrow", "whole", "small"].map(|n| value(&p, n).dtype.name()).to_vec();
    assert_eq!(dtypes, ["bf16", "f32", "bf16", "int32", "int32"]);
}

#[test]
fn three_dims_are_merged_and_split() {
    let text = "mesh x=2, y=2\ndim A = 2\ndim B = 4\ndim C = 3\ndim H = A * B * C\nlayer f(a: f32 A_xB_yC) -> (h: f32 H_xy, b: f32 ABC) {
  let h = merge(a, ABC -> H)
  return (h, split(h, H -> ABC))
}";
    let p = program(text);
    assert!(
        matches!(&value(&p, "h").def, Def::Op { op: Op::Merge { from, .. }, .. } if from.len() == 3)
    );
}

#[test]
fn one_wrong_axis_is_one_error_with_a_label_and_an_edit_at_each_place() {
    let types = |count: usize| -> String {
        let params: Vec<String> = (0..count).map(|i| format!("p{i}: f32 B_{{modle}}")).collect();
        format!("mesh model=2\ndim B = 4\nlayer f({}) -> f32 B {{ return p0 }}", params.join(", "))
    };
    for (count, labels, more) in
        [(1, 1, None), (10, 10, None), (14, 10, Some("and in 4 more places"))]
    {
        let file = shard_grammar::SourceFile::new("t", types(count));
        let checked = shard_check::check_source(&file, &shard_check::CheckOptions::default());
        let [error] = checked.diagnostics.as_slice() else { panic!("{:?}", checked.diagnostics) };
        let here = |label: &&shard_check::Label| file.slice(label.span) == "modle";
        assert_eq!((error.code, error.labels.iter().filter(here).count()), ("E0201", labels));
        assert_eq!(
            error.notes.iter().find(|note| note.starts_with("and in")).map(String::as_str),
            more
        );
        let mut mended = file.text.clone();
        error.edits().collect::<Vec<_>>().iter().rev().for_each(|edit| {
            mended.replace_range(edit.span.start..edit.span.end, &edit.replacement);
        });
        assert_eq!(mended, types(count).replace("modle", "model"));
    }
}

#[test]
fn a_phase_does_not_tell_a_wrong_axis_again() {
    let text = "mesh x=2\ndim B = 4\nphase p { B = 8 }\nphase q { B = 2 }\nlayer f(a: f32 B_z, b: \
        f32 B_z) -> f32 B_z { return a + b }";
    let file = shard_grammar::SourceFile::new("t", text);
    let checked = shard_check::check_source(&file, &shard_check::CheckOptions::default());
    assert_eq!(
        checked.diagnostics.iter().map(|d| (d.code, d.labels.len())).collect::<Vec<_>>(),
        [("E0201", 4)]
    );
}

/// The helps of the errors of a text.
fn helps(text: &str) -> Vec<String> {
    let checked = check(text);
    let all = checked.diagnostics.iter().flat_map(|d| d.helps.iter().map(|h| h.text.clone()));
    all.collect()
}

#[test]
fn a_longer_axis_among_letters_puts_all_of_them_in_braces() {
    let text = "mesh d=4, t2=8\ndim B = 64\nlayer f(x: f32 B_dt) -> f32 B_{d,t2} { return x }";
    assert_eq!(helps(text), ["{d,t2}"]);
    let checked = check(text);
    let edit = &checked.diagnostics[0].helps[0].edits[0];
    let mut mended = text.to_string();
    mended.replace_range(edit.span.start..edit.span.end, &edit.replacement);
    assert!(codes(&mended).is_empty(), "{mended}");
    assert_eq!(helps(&text.replace("B_dt)", "B_(dt))")), ["({d,t2})"]);
}

#[test]
fn a_longer_dim_is_told_in_brackets_among_letters_and_as_it_is_elsewhere() {
    let text = "mesh x=4\ndim B = 8\ndim Kv = 64\n";
    let among = format!("{text}layer f(x: f32 BK_x) -> f32 B {{ return sum(x over Kv) }}");
    assert_eq!(helps(&among)[0], "[Kv]    (with the layout's other dims: [B, Kv])");
    let alone = format!("{text}dim F = 4 * K\nlayer f(x: f32 BF) -> f32 BF {{ return x }}");
    assert_eq!(helps(&alone)[0], "Kv");
}

#[test]
fn a_bool_in_arithmetic_is_cast_to_the_number_beside_it() {
    for dtype in ["bf16", "f32", "int32"] {
        let text =
            format!("dim B = 8\nlayer f(a: {dtype} B, m: bool B) -> {dtype} B {{ return a * m }}");
        assert_eq!(helps(&text), [format!("cast(m, {dtype})")]);
        assert!(codes(&text.replace("a * m", &format!("a * cast(m, {dtype})"))).is_empty());
    }
}

#[test]
fn a_dim_above_the_one_that_it_is_to_follow_is_told_in_numbers() {
    let text =
        |dims: &str| format!("{dims}\nlayer f(a: f32 E) -> f32 F {{ return rename(a, E -> F) }}");
    assert_eq!(helps(&text("dim E = 64\ndim F = 128")), ["dim F = E"]);
    assert_eq!(helps(&text("dim F = 128\ndim E = 64")), ["dim F = 64"]);
}

#[test]
fn each_kind_of_dims_that_bears_a_label_wrongly_is_told_a_label_of_its_own() {
    let text = "dim B = 8\ndim E = 8\ndim F = 8\nlayer f(x: f32 BE?l, w: weight f32 EF?l, \
                v: weight f32 EF?l) -> f32 BF?l { return einsum(x, w, v -> BF) }";
    let labels: Vec<String> =
        helps(text).iter().map(|h| h.split(' ').next().unwrap_or("").to_string()).collect();
    assert_eq!(labels, ["?l2", "?l2", "?l3"]);
}
