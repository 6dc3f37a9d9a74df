//! `diff` of plans that `explain --emit json` wrote down.

use crate::common::{fed, shardc};
use jsonschema::Validator;
use serde_json::Value;

/// A plan that an older version of the binary wrote.
const OLDER: &str = "explained_by_an_older_binary.json";

fn schema() -> Validator {
    let path = format!("{}/../../spec/schema/diff.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a schema file")).expect("JSON");
    jsonschema::validator_for(&schema).expect("a legal schema")
}

/// The plan of a file as JSON.
fn written(args: &[&str]) -> String {
    let ran = shardc(&[&["explain", "--format", "json", "--no-alternatives"], args].concat());
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran.out
}

#[test]
fn a_plan_does_not_differ_from_what_was_written_of_it() {
    for file in ["mlp.shard", "every_move.shir"] {
        let ran = fed(&["diff", "-", file, "--exit-code"], &written(&[file]));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
        assert!(ran.out.ends_with(": no difference\n"), "{}", ran.out);
    }
}

#[test]
fn what_differs_is_the_same_whether_a_side_is_lowered_or_read() {
    let lowered = shardc(&["diff", "mlp.shard", "--mesh-b", "x=2,y=2,z=4", "--format", "json"]);
    let read = fed(
        &["diff", "mlp.shard", "-", "--format", "json"],
        &written(&["mlp.shard", "--mesh", "x=2,y=2,z=4"]),
    );
    assert_eq!((lowered.status, read.status), (0, 0), "{}", read.err);
    let parse = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let (lowered, read) = (parse(&lowered.out), parse(&read.out));
    let errors: Vec<String> = schema().iter_errors(&read).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(read["differs"], true);
    for list in ["went", "came", "resized", "relaid", "retimed", "values_went", "values_came"] {
        assert_eq!(lowered["layers"][0][list], read["layers"][0][list], "{list}");
    }
    for figure in ["serial_time_s", "comm_time_s", "comm_bytes", "peak_hbm_bytes"] {
        assert_eq!(lowered["layers"][0]["b"][figure], read["layers"][0]["b"][figure], "{figure}");
    }
    assert_eq!(read["layers"][0]["b"]["status"], "proven");
}

#[test]
fn the_text_of_a_difference_is_the_same_whether_plans_are_lowered_or_read() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lowered_or_read");
    std::fs::create_dir_all(&folder).expect("a folder");
    let example = |name: &str| format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    for (at, (a, b)) in [
        ("mlp.shard".to_string(), "every_move.shir".to_string()),
        // Gathers along several dims, and weights.
        (
            example("feed_forward/1d_weight_stationary.shard"),
            example("feed_forward/xyz_weight_gathered.shard"),
        ),
        // Ops with numbers, and einsums with a stated dtype.
        (example("models/recurrentgemma_2b.shard"), example("models/mamba_2.shard")),
    ]
    .into_iter()
    .enumerate()
    {
        let read = ["a", "b"].map(|side| {
            let path = folder.join(format!("{at}{side}.json"));
            let file = if side == "a" { &a } else { &b };
            std::fs::write(&path, written(&[file])).expect("a file");
            path.to_string_lossy().into_owned()
        });
        let of_lowered = shardc(&["diff", &a, &b]);
        let of_read = shardc(&["diff", &read[0], &read[1]]);
        assert_eq!((of_lowered.status, of_read.status), (0, 0), "{}", of_read.err);
        assert_eq!(of_lowered.out, of_read.out, "{a} and {b}");
        assert!(of_lowered.out.contains("  (line "), "{}", of_lowered.out);
    }
}

#[test]
fn a_difference_names_the_phase_of_each_plan() {
    let phases = format!("{}/../../examples/language/phases.shard", env!("CARGO_MANIFEST_DIR"));
    let ran = shardc(&["diff", &phases, "--hardware-b", "h100"]);
    assert!(ran.out.contains("layer mlp, phase prefill\n"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_difference_is_shown_as_text_with_its_lines() {
    let ran =
        fed(&["diff", "mlp.shard", "-", "--exit-code"], &written(&["mlp.shard", "-D", "B=64"]));
    assert_eq!(ran.status, 1, "{}", ran.err);
    for words in ["layer mlp\n", "  all steps", "  collectives\n", "(line 15)"] {
        assert!(ran.out.contains(words), "{words}\n{}", ran.out);
    }
}

#[test]
fn a_plan_of_an_older_binary_is_read() {
    let ran = shardc(&["diff", OLDER, "mlp.shard"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.starts_with("layer mlp"), "{}", ran.out);
    assert_eq!(shardc(&["diff", OLDER, OLDER, "--exit-code"]).out, "layer mlp: no difference\n");
}

#[test]
fn layers_are_told_apart_by_name_and_only_what_was_lowered_can_be_changed() {
    assert_eq!(shardc(&["diff", OLDER, OLDER, "--layer", "mlp"]).status, 0);
    for args in [
        &["diff", OLDER, OLDER, "--layer", "none"][..],
        &["diff", OLDER, "mlp.shard", "--mesh-a", "x=4"],
        &["diff", OLDER, "mlp.shard", "--dim-a", "B=8"],
    ] {
        assert_eq!(shardc(args).status, 2, "{args:?}");
    }
    for text in ["{}", "{\"schema\": \"shardc.cost/1\", \"layers\": []}", "{ \u{1b}[2J"] {
        let ran = fed(&["diff", "-", "mlp.shard"], text);
        assert_eq!(ran.status, 2, "{text}");
        assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
    }
}

/// Most values have no name, two layers are inlined, and a softmax is computed in pieces.
const UNNAMED: &str = "hardware tpu-v4-flat
mesh x=4, y=2
dim B = 512
dim C = 512
dim E = 256
dim F = 1024
layer up(x: bf16 BE?, w: weight bf16 EF?) -> bf16 BF? {
  return gelu(einsum(rmsnorm(x over E), w -> BF) + 1)
}
layer loss(
  x:    bf16 B_xE_y,
  t:    bf16 CF_xy,
  w1:   weight bf16 E_yF_x,
  w2:   weight bf16 E_yF_x,
) -> (pairs: bf16 B_xC_y, norm: f32 []) {
  let pi = softmax(einsum(up(x, w1) * up(x, w2), t -> BC) over C)
  return (pi - 1, sqrt(sum(square(cast(x, f32)) over BE) + sum(cast(pi, f32) over BC)))
}
";

#[test]
fn a_plan_does_not_differ_from_the_strict_file_that_is_written_of_it() {
    let explicit = fed(&["fmt", "--explicit", "-"], UNNAMED);
    assert_eq!(explicit.status, 0, "{}", explicit.err);
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("written_out");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let files = [path("written.shard"), path("written.json"), path("own.json")];
    let own = fed(&["explain", "--format", "json", "--no-alternatives", "-"], UNNAMED).out;
    std::fs::write(&files[0], &explicit.out).expect("a file");
    std::fs::write(&files[1], written(&[&files[0]])).expect("a file");
    std::fs::write(&files[2], own).expect("a file");
    for other in &files {
        let ran = fed(&["diff", "-", other, "--exit-code"], UNNAMED);
        assert_eq!((ran.status, ran.out.as_str()), (0, "layer loss: no difference\n"), "{other}");
    }
}

#[test]
fn dims_that_differ_are_said_of_plans_that_were_written_down() {
    let ran = fed(&["diff", "mlp.shard", "-"], &written(&["mlp.shard", "-D", "B=64"]));
    assert!(ran.out.contains("  dims ") && ran.out.contains("-> B=64"), "{}{}", ran.out, ran.err);
}
