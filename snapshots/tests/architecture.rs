//! `ARCHITECTURE.md` is true: its crates and arrows are those of `cargo metadata`, and the files
//! that it names exist. And all crates follow the rules for tests and comments.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use shard_snapshots::files::{read, root, rust_files};

/// Our own crates, each with its folder and its dependencies on other crates of ours, without those
/// of tests.
fn crates() -> BTreeMap<String, (String, Vec<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_string();
    let of_package = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        let folder = manifest.strip_suffix("/Cargo.toml").expect("a manifest");
        let folder =
            folder.strip_prefix(root().to_str().expect("a path")).expect("in the workspace");
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        let own = dependencies.filter(|d| d["path"].is_string() && d["kind"].is_null());
        let mut own: Vec<String> = own.map(|d| text(&d["name"])).collect();
        own.sort();
        (text(&package["name"]), (folder.trim_start_matches('/').to_string(), own))
    };
    metadata["packages"].as_array().expect("packages").iter().map(of_package).collect()
}

/// The texts between back-ticks of a line.
fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_crates_and_their_arrows_are_those_of_the_workspace() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let table: Vec<&str> =
        text.split("| crate | folder |").nth(1).expect("the table").lines().skip(2).collect();
    let rows = table.into_iter().take_while(|line| line.starts_with('|'));
    let mut stated: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for row in rows {
        let names = quoted(row);
        let own = names[2..].iter().map(ToString::to_string).collect();
        stated.insert(names[0].to_string(), (names[1].to_string(), own));
    }
    let mut found = crates();
    // The tests may depend on everything.
    let own = stated["shard-snapshots"].1.clone();
    found.get_mut("shard-snapshots").expect("the tests").1 = own;
    assert_eq!(stated, found);
}

#[test]
fn no_arrow_leads_up() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let place = |name: &str| {
        text.find(&format!("\n| `{name}` |")).unwrap_or_else(|| panic!("no row of {name}"))
    };
    for (name, (_, own)) in crates() {
        for on in own {
            assert!(place(&on) < place(&name), "{name} depends on {on}, which stands below it");
        }
    }
}

#[test]
fn every_file_that_it_names_exists() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let names_a_file =
        |name: &&str| name.contains('/') && !name.contains(' ') && !name.ends_with('/');
    let paths: Vec<&str> = text.lines().flat_map(quoted).filter(names_a_file).collect();
    assert!(paths.len() > 30, "{}", paths.len());
    for path in paths {
        assert!(root().join(path).exists(), "there is no {path}");
    }
}

#[test]
fn the_judge_of_plans_sees_neither_the_search_nor_the_prices() {
    let found = crates();
    assert_eq!(found["shard-runtime"].1, ["shard-ir"]);
    assert!(!found["shard-certificate"].1.contains(&"shard-search".to_string()));
}

#[test]
fn what_stands_behind_the_check_needs_no_grammar() {
    let found = crates();
    let names = ["ir", "cost", "runtime", "schedule", "certificate", "search", "export"];
    for name in names.map(|name| format!("shard-{name}")) {
        assert!(!found[&name].1.contains(&"shard-grammar".to_string()), "{name}");
    }
}

#[test]
fn reports_as_text_import_nothing_of_the_json_documents() {
    let folder = root().join("compiler/report/src");
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|e| e == "rs") {
            let text = read(&path);
            // The page for browsers holds the JSON document itself.
            let of_page = path.ends_with("html.rs");
            assert!(of_page || !text.contains("crate::json"), "{}", path.display());
        }
    }
}

#[test]
fn every_file_of_tests_is_part_of_the_binary_of_its_crate() {
    let mut of_one_binary = 0;
    for (name, (folder, _)) in crates() {
        let tests = root().join(folder).join("tests");
        if !tests.join("main.rs").exists() {
            continue;
        }
        of_one_binary += 1;
        let main = read(&tests.join("main.rs"));
        for entry in std::fs::read_dir(&tests).expect("a folder") {
            let path = entry.expect("a file").path();
            let is_module =
                path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists();
            let module = path.file_stem().expect("a name").to_string_lossy();
            let declared = main.lines().any(|line| line == format!("mod {module};"));
            assert!(!is_module || module == "main" || declared, "{name}: {}", path.display());
        }
    }
    assert!(of_one_binary > 10, "{of_one_binary}");
}

/// Comments are read beside the code, so their lines are short. Tables, formulas, code and commands
/// may be wider.
#[test]
fn comments_are_at_most_100_columns_wide() {
    let mut looked_at = 0;
    for (folder, _) in crates().into_values() {
        for path in rust_files(&root().join(folder)) {
            let text = read(&path);
            let mut is_code = false;
            for (number, line) in text.lines().enumerate() {
                let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
                let words = comment.trim_start_matches(['/', '!']);
                is_code ^= words.trim_start().starts_with("```");
                let is_set = is_code || words.starts_with(" |") || words.starts_with("  ");
                looked_at += 1;
                assert!(
                    is_set || line.chars().count() <= 100,
                    "{}:{}: {line}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
    assert!(looked_at > 10_000, "{looked_at} lines");
}
