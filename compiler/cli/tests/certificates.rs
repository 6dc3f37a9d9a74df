//! `explain --certificate` and `verify-certificate`, from outside.

use std::path::PathBuf;

use crate::common::{fed, shardc, text};

/// The path that a test writes a certificate to.
fn file(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("certificates");
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder.join(name).to_str().expect("UTF-8").to_string()
}

fn holds(name: &str, document: &str) {
    let path = format!("{}/../../spec/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a schema file")).expect("JSON");
    assert!(jsonschema::meta::is_valid(&schema), "{name}");
    let document: serde_json::Value = serde_json::from_str(document).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a legal schema");
    let errors: Vec<String> =
        validator.iter_errors(&document).map(|e| format!("{e} at {}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
}

#[test]
fn a_written_certificate_is_confirmed() {
    let out = file("mlp.json");
    let explained = shardc(&["explain", "mlp.shard", "--certificate", &out]);
    assert_eq!((explained.status, explained.out), (0, shardc(&["explain", "mlp.shard"]).out));
    let ran = shardc(&["verify-certificate", &out]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.out.starts_with("mlp: proven: no plan of the plan space takes less\n  cost "),
        "{}",
        ran.out
    );
    assert!(ran.out.ends_with(" inequalities\n"), "{}", ran.out);
    assert_eq!(
        fed(&["verify-certificate", "-"], &std::fs::read_to_string(&out).expect("written")).out,
        ran.out
    );
}

#[test]
fn a_certificate_of_a_plan_with_loops_is_confirmed() {
    let out = file("fuse.json");
    let explained = shardc(&["explain", "mlp.shard", "--fuse", "--certificate", &out]);
    assert!(explained.out.contains("with all-gather yz along E of x in the loop"), "{explained:?}");
    holds("certificate", &std::fs::read_to_string(&out).expect("written"));
    let ran = shardc(&["verify-certificate", &out]);
    assert!(
        ran.out.starts_with("mlp: proven: no plan of the plan space takes less\n  cost "),
        "{ran:?}"
    );
}

/// A `reshard` cannot say that a collective is done inside a loop, so no strict file can hold such
/// a plan.
#[test]
fn a_plan_with_loops_is_not_written_out() {
    let ran = fed(&["fmt", "--explicit", "--fuse", "-"], &text("mlp.shard"));
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(
        ran.err.contains("inside a loop: einsum BLE,EF->BLF with all-gather yz along E of x"),
        "{}",
        ran.err
    );
    let strict = text("mlp.shard").replace("layer mlp", "strict layer mlp");
    assert_eq!(fed(&["check", "-", "--fuse"], &strict).err, fed(&["check", "-"], &strict).err);
}

#[test]
fn documents_meet_their_schemas() {
    let out = file("schema.json");
    let args =
        ["explain", "mlp.shard", "-D", "B=64,L=8", "--mesh", "x=2,y=2,z=2", "--certificate", &out];
    assert_eq!(shardc(&args).status, 0);
    holds("certificate", &std::fs::read_to_string(&out).expect("written"));
    let ran = shardc(&["verify-certificate", &out, "--format", "json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    holds("verify-certificate", &ran.out);
}

#[test]
fn a_certificate_stands_for_its_own_chip() {
    let (chip, out) = (file("chip.toml"), file("chip.json"));
    std::fs::write(&chip, shardc(&["hardware", "tpu-v4-flat"]).out.replace("270e9", "27e9"))
        .expect("written");
    assert_eq!(
        shardc(&["explain", "mlp.shard", "--hardware", &chip, "--certificate", &out]).status,
        0
    );
    std::fs::remove_file(&chip).expect("there");
    assert_eq!(shardc(&["verify-certificate", &out]).status, 0);
}

#[test]
fn a_changed_certificate_proves_nothing() {
    let out = file("changed.json");
    assert_eq!(shardc(&["explain", "mlp.shard", "--certificate", &out]).status, 0);
    let written = std::fs::read_to_string(&out).expect("written");
    for (from, to) in [
        ("\"cost_ps\":", "\"cost_ps\":1"),
        ("gelu(h)", "relu(h)"),
        ("270e9", "300e9"),
        ("BLF_yz", "BLF_zy"),
        ("{", "["),
    ] {
        let changed = written.replace(from, to);
        assert_ne!(changed, written, "{from}");
        let ran = fed(&["verify-certificate", "-"], &changed);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{from}");
        assert!(ran.err.starts_with("error: `-` proves nothing: "), "{}", ran.err);
    }
}

#[test]
fn what_cannot_be_read_or_written_or_certified_is_usage() {
    for args in [
        &["verify-certificate"][..],
        &["verify-certificate", "no-such-file.json"],
        &["explain", "mlp.shard", "--certificate", "no-such-folder/out.json"],
        &["explain", "every_move.shir", "--certificate", &file("never.json")],
    ] {
        let ran = shardc(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}");
    }
    assert!(text("mlp.shard").contains("hardware tpu-v4-flat"));
}

/// A source of two layers, and a certificate of it whose first layer claims that the search alone
/// proves it best.
fn with_a_layer_that_rests_on_the_search(name: &str) -> String {
    let (source, out) = (file(&format!("{name}.shard")), file(&format!("{name}.json")));
    let layer = |name: &str| {
        format!("layer {name}(a: bf16 B_xC) -> bf16 BC {{\n  return gelu(a) + a\n}}\n")
    };
    let text = format!(
        "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim C = 128\n{}{}",
        layer("f"),
        layer("g")
    );
    std::fs::write(&source, text).expect("written");
    assert_eq!(shardc(&["explain", &source, "--certificate", &out]).status, 0);
    let mut certificate: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&out).expect("written")).expect("JSON");
    let first = &mut certificate["layers"][0];
    first["proof"] = "search".into();
    // Without prices a certificate proves no bound.
    first["forms"] = serde_json::json!([[]]);
    first["lower_bound_ps"] = 0.into();
    certificate.to_string()
}

#[test]
fn a_plan_that_rests_on_the_search_alone_fails_the_check_and_it_is_said() {
    let certificate = with_a_layer_that_rests_on_the_search("search");
    let ran = fed(&["verify-certificate", "-"], &certificate);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(
        ran.out.starts_with("f: not proven by prices: no plan takes less than the bound; "),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("\ng: proven: no plan of the plan space takes less\n"), "{}", ran.out);
    let ran = fed(&["verify-certificate", "-", "--format", "json"], &certificate);
    assert_eq!(ran.status, 1, "{ran:?}");
    holds("verify-certificate", &ran.out);
    let said: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let status = |layer: usize| said["layers"][layer]["status"].as_str().map(str::to_string);
    assert_eq!(
        (status(0).as_deref(), status(1).as_deref()),
        (Some("not proven by prices"), Some("proven"))
    );
}

#[test]
fn an_invalid_layer_outranks_one_that_is_not_proven() {
    let mut certificate: serde_json::Value =
        serde_json::from_str(&with_a_layer_that_rests_on_the_search("invalid")).expect("JSON");
    certificate["layers"][1]["cost_ps"] = 1.into();
    let ran = fed(&["verify-certificate", "-"], &certificate.to_string());
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(
        ran.err.starts_with("error: `-` proves nothing: layer `g`: the plan takes "),
        "{}",
        ran.err
    );
}

/// A plan names its chip: a plan that was lowered for another chip than the file's own is priced
/// for that chip when it is read again.
#[test]
fn a_plan_names_the_chip_of_the_command_line() {
    let lowered = shardc(&["lower", "mlp.shard", "--hardware", "tpu-v5p"]).out;
    assert!(lowered.contains("\nhardware tpu-v5p\n"), "{lowered}");
    let plan = file("v5p.shir");
    std::fs::write(&plan, &lowered).expect("written");
    let time = |args: &[&str]| {
        let said: serde_json::Value = serde_json::from_str(&shardc(args).out).expect("JSON");
        said["layers"][0]["totals"]["serial_time_s"].as_f64()
    };
    let of_source = time(&["explain", "mlp.shard", "--hardware", "tpu-v5p", "--format", "json"]);
    assert_eq!(time(&["explain", &plan, "--format", "json"]), of_source);
}

/// What `spec/certificate.md` shows is what the commands say.
#[test]
fn the_page_on_certificates_shows_what_is_said() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = std::fs::read_to_string(format!("{root}/spec/certificate.md")).expect("the page");
    let out = file("page.json");
    let example = format!("{root}/examples/feed_forward/2d_weight_stationary.shard");
    assert_eq!(shardc(&["explain", &example, "--certificate", &out]).status, 0);
    let said = shardc(&["verify-certificate", &out]).out;
    assert!(
        page.contains(&format!("$ shardc verify-certificate mlp.certificate.json\n{said}```")),
        "{said}"
    );
}

/// Blocks of latent attention: in each the product of the cache and its weights may be absorbed
/// into the query.
fn latent(blocks: usize) -> String {
    let (mut parameters, mut body) = ("x0: bf16 BE_xy".to_string(), String::new());
    for i in 0..blocks {
        parameters += &format!(
            ", wq{i}: weight bf16 EHD?, wk{i}: weight bf16 CHD?, wo{i}: weight bf16 HCE?, c{i}: \
                cache bf16 BSC?"
        );
        body += &format!(
            "  let k{i} = einsum(c{i}, wk{i} -> BSHD)\n  \
             let p{i} = softmax(einsum(einsum(rmsnorm(x{i} over E), wq{i} -> BHD), k{i} -> BHS) \
             over S)\n  \
             let x{} = x{i} + einsum(einsum(p{i}, c{i} -> BHC), wo{i} -> BE)\n",
            i + 1
        );
    }
    format!(
        "hardware tpu-v4-flat\nmesh x=4, y=2\ndim B = 64\ndim E = 1024\ndim S = 1024\ndim H = \
            8\ndim D = 128\ndim C = 256\n\
         layer latent({parameters}) -> bf16 BE_xy {{\n{body}  return x{blocks}\n}}\n"
    )
}

#[test]
fn forms_without_number_are_proven_by_the_prices_of_one() {
    let out = file("latent.json");
    assert_eq!(fed(&["explain", "-", "--certificate", &out], &latent(9)).status, 0);
    holds("certificate", &std::fs::read_to_string(&out).expect("written"));
    let ran = shardc(&["verify-certificate", &out]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.out.starts_with("latent: proven: no plan of the plan space takes less\n  cost "),
        "{ran:?}"
    );
}

/// An einsum of too many operands has forms that are not enumerated, so they have no bound. The
/// check reports that as no proof, not as a false claim.
#[test]
fn a_limit_that_is_passed_is_named() {
    let operands: Vec<String> = (0..8).map(|i| format!("a{i}")).collect();
    let dims: Vec<char> = "ABCDEGHIJ".chars().collect();
    let sizes: String = dims.iter().map(|dim| format!("dim {dim} = 8\n")).collect();
    let typed: Vec<String> = operands
        .iter()
        .enumerate()
        .map(|(i, a)| format!("{a}: bf16 {}{}", dims[i], dims[i + 1]))
        .collect();
    let source = format!(
        "hardware tpu-v4-flat\nmesh x=4\n{sizes}layer f({}) -> bf16 AJ {{ return einsum({} -> AJ) \
            }}\n",
        typed.join(", "),
        operands.join(", ")
    );
    let out = file("long.json");
    assert_eq!(fed(&["explain", "-", "--certificate", &out], &source).status, 0);
    let ran = shardc(&["verify-certificate", &out]);
    assert_eq!((ran.status, ran.err.as_str()), (1, ""), "{ran:?}");
    assert!(ran.out.starts_with("f: not proven by prices: "), "{ran:?}");
    assert!(
        ran.out.ends_with("  its forms are not bounded: an einsum has more than 7 operands\n"),
        "{ran:?}"
    );
    let ran = shardc(&["verify-certificate", &out, "--format", "json"]);
    holds("verify-certificate", &ran.out);
    assert!(ran.out.contains("\"limit\": \"an einsum has more than 7 operands\""), "{ran:?}");
}

/// The memory has no room for weights that are all stored whole. The search branches on how weights
/// are stored, and the certificate has prices for each branch.
#[test]
fn what_the_search_divided_the_file_divides() {
    let source = "hardware tpu-v4-flat\nmesh x=4, y=2\ndim B = 512\ndim E = 256\ndim F = 1024
layer mlp(x: bf16 B_xyE, w_in: weight bf16 EF?, w_out: weight bf16 FE?) -> bf16 B_xyE repeat 4 {
  let h = einsum(x, w_in -> BF)\n  let y = einsum(gelu(h), w_out -> BE)\n  return y\n}\n";
    let out = file("divided.json");
    let mut divided = 0;
    for kilobytes in [1800, 2000, 2200, 2400] {
        let limit = format!("{}", kilobytes * 1000);
        let ran = fed(&["explain", "-", "--memory-limit", &limit, "--certificate", &out], source);
        assert_eq!(ran.status, 0, "{ran:?}");
        let text = std::fs::read_to_string(&out).expect("written");
        holds("certificate", &text);
        let ran = shardc(&["verify-certificate", &out]);
        let is_proven = ran.out.starts_with("mlp: proven: no plan of the plan space takes less\n");
        assert_eq!((ran.status, ran.err.as_str()), (i32::from(!is_proven), ""), "{ran:?}");
        divided += usize::from(is_proven && text.contains("\"branches\":["));
    }
    assert!(divided > 0);
}
