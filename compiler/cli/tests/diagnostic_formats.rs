//! Diagnostics for CI: GitHub's workflow commands and SARIF.

use crate::common::{fed, shardc, text};

fn wrong() -> String {
    text("mlp.shard").replace("let a = gelu(h)", "let a = gelu(hh)").replace("E_xF_yz", "E_xF_yw")
}

#[test]
fn github_gets_one_command_for_each_diagnostic() {
    let ran = fed(&["check", "--format", "github", "-"], &wrong());
    assert_eq!((ran.status, ran.err.as_str()), (1, ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.out);
    assert!(lines[0].starts_with("::error file=-,line="), "{}", lines[0]);
    assert!(lines[0].contains(",title=E0201::"), "{}", lines[0]);
    assert!(lines[1].contains(",title=E0601::there is no value `hh` here%0A"), "{}", lines[1]);
    assert!(lines[1].ends_with("%0Ahelp: h"), "{}", lines[1]);
    assert_eq!(
        shardc(&["check", "--format", "github", "mlp.shard"]).out,
        "",
        "nothing is wrong, nothing is said"
    );
    let ran = fed(&["explain", "--error-format", "github", "-"], &wrong());
    assert!(ran.status == 1 && ran.out.is_empty() && ran.err.starts_with("::error "), "{ran:?}");
}

#[test]
fn what_could_end_a_command_is_escaped() {
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("a,b:c%d");
    std::fs::create_dir_all(&dir).expect("a folder");
    let file = dir.join("t.shard");
    std::fs::write(&file, "mesh x=0\n").expect("written");
    let ran = shardc(&["check", "--format", "github", file.to_str().expect("UTF-8")]);
    assert!(ran.out.contains("a%2Cb%3Ac%25d/t.shard,line=1,"), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 1);
}

#[test]
fn sarif_meets_its_schema_and_lists_every_code_as_a_rule() {
    let path = format!("{}/../../spec/schema/sarif.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a schema file")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a legal schema");
    let broken = text("mlp.shard").replace("let a = gelu(h)", "let a: BLF = gelu(h)");
    for (source, results) in
        [(wrong(), 2), (text("mlp.shard"), 0), (broken, 1), ("mesh".to_string(), 1)]
    {
        let ran = fed(&["check", "--format", "sarif", "-"], &source);
        let log: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        let errors: Vec<String> =
            validator.iter_errors(&log).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{}", ran.out);
        let run = &log["runs"][0];
        assert_eq!(run["results"].as_array().expect("results").len(), results);
        let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), shard_check::diagnostics::ALL.len());
        for result in run["results"].as_array().expect("results") {
            let index =
                usize::try_from(result["ruleIndex"].as_u64().expect("an index")).expect("small");
            assert_eq!(rules[index]["id"], result["ruleId"]);
        }
    }
    let log: serde_json::Value =
        serde_json::from_str(&fed(&["check", "--format", "sarif", "-"], &wrong()).out)
            .expect("JSON");
    let result = &log["runs"][0]["results"][1];
    let region = &result["locations"][0]["physicalLocation"]["region"];
    let replacement = &result["fixes"][0]["artifactChanges"][0]["replacements"][0];
    assert_eq!(replacement["insertedContent"]["text"], "h");
    assert_eq!(&replacement["deletedRegion"], region);
}

#[test]
fn results_that_are_no_diagnostics_have_no_such_format() {
    for format in ["github", "sarif"] {
        let ran = shardc(&["explain", "--format", format, "mlp.shard"]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(
            ran.err.contains("help: --error-format takes them with every command"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_plan_that_differs_from_its_snapshot_is_one_diagnostic_with_the_diff_in_a_note() {
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("formats");
    std::fs::create_dir_all(&dir).expect("a folder");
    let file = dir.join("mlp.shard");
    std::fs::write(&file, text("mlp.shard")).expect("written");
    std::fs::write(
        dir.join("mlp.lowered.snap"),
        "// shardc snapshot 1\n// options: none\nshir 1\n",
    )
    .expect("written");
    let name = file.to_str().expect("UTF-8");
    let ran = shardc(&["snapshot", "--format", "github", name]);
    assert_eq!((ran.status, ran.out.lines().count()), (1, 1), "{ran:?}");
    assert!(
        ran.out.contains("title=E0831::") && ran.out.contains("%0A+layer mlp%0A"),
        "{}",
        ran.out
    );
    let ran = shardc(&["snapshot", "--format", "json", name]);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(document["diagnostics"][0]["code"], "E0831");
}
