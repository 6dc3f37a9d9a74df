//! Every program of `examples`, through every stage. The snapshots of a stage are in the folder of
//! its name.

use std::process::Command;

use shard_grammar::SourceFile;
use shard_snapshots::files::{examples, read, root};
use shard_snapshots::judge::check;

/// The output of `shardc` for an example, run at the root. It must succeed and print nothing on
/// standard error.
fn shardc(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the compiler starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "shardc {arguments:?}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).expect("the output is text")
}

/// Compares the output of a command for each example with the snapshots of a stage.
fn snapshots(stage: &str, command: &[&str]) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots").join(stage));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for example in examples() {
            let mut arguments = command.to_vec();
            arguments.push(&example.path);
            insta::assert_snapshot!(example.name.replace('/', "-"), shardc(&arguments));
        }
    });
}

#[test]
fn every_example_is_right_without_a_warning() {
    for example in examples() {
        let found = check(&example.text).diagnostics;
        assert!(found.is_empty(), "{}: {found:#?}", example.path);
    }
}

#[test]
fn every_example_is_formatted() {
    for example in examples() {
        let formatted =
            shard_grammar::format(&SourceFile::new(example.path.clone(), example.text.clone()));
        assert_eq!(formatted.as_ref(), Ok(&example.text), "shardc fmt {}", example.path);
    }
}

#[test]
fn every_example_says_what_it_is_where_it_comes_from_and_what_to_expect() {
    for example in examples() {
        let header: Vec<&str> =
            example.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let header = header.join("\n");
        assert!(
            header.contains("Expect") || header.contains("gives\n"),
            "{}: nothing to expect",
            example.path
        );
        let quotes = example.name.starts_with("language/") || header.contains("Source: ");
        assert!(quotes, "{}: no source", example.path);
    }
}

#[test]
fn every_example_lowers_as_its_snapshot_has_it() {
    snapshots("lowered", &["lower"]);
}

#[test]
fn every_example_is_explained_as_its_snapshot_has_it() {
    snapshots("explained", &["explain"]);
}

#[test]
fn every_example_computes_what_its_unsharded_program_does_with_the_bytes_of_the_model() {
    for example in examples() {
        let report: serde_json::Value =
            serde_json::from_str(&shardc(&["run", "--format", "json", &example.path]))
                .expect("JSON");
        let layers = report["layers"].as_array().expect("layers");
        assert!(!layers.is_empty(), "{}", example.path);
        for layer in layers {
            assert_eq!(layer["equal"], true, "{}: {layer}", example.path);
            for collective in layer["collectives"].as_array().expect("collectives") {
                assert_eq!(
                    collective["wire_bytes"], collective["model_wire_bytes"],
                    "{}: {layer}",
                    example.path
                );
            }
        }
    }
}

/// Stacks and blocks three copies deep, on streams and at addresses, without a race.
#[test]
#[ignore = "slow: every example, executed or lowered several times over"]
fn every_example_computes_what_its_unsharded_program_does_on_the_streams_of_its_schedule() {
    for example in examples() {
        let report: serde_json::Value = serde_json::from_str(&shardc(&[
            "run",
            "--schedule",
            "--format",
            "json",
            &example.path,
        ]))
        .expect("JSON");
        for layer in report["layers"].as_array().expect("layers") {
            assert_eq!(layer["equal"], true, "{}: {layer}", example.path);
            let held = &layer["schedule"];
            assert!(held["tasks"].is_u64(), "{}: {layer}", example.path);
            assert_eq!(held["peak_bytes"], held["model_peak_bytes"], "{}", example.path);
        }
    }
}

/// The seed of an example in which tokens choose experts. Where two scores are equal except for
/// their rounding, either may be the larger, so with some inputs a token goes to another expert if
/// sums are rounded in another order. With these seeds that does not happen.
const SEEDS: &[(&str, &str)] = &[("book/experts", "1")];

/// Within the tolerance that `spec/ir.md` states.
#[test]
#[ignore = "slow: every example, executed or lowered several times over"]
fn every_example_computes_what_its_unsharded_program_does_in_the_dtypes_that_it_names() {
    for example in examples() {
        let mut arguments = vec!["run", "--emulate-dtypes", "--format", "json", &example.path];
        if let Some((_, seed)) = SEEDS.iter().find(|(name, _)| *name == example.name) {
            arguments.extend(["--seed", seed]);
        }
        let report: serde_json::Value = serde_json::from_str(&shardc(&arguments)).expect("JSON");
        for layer in report["layers"].as_array().expect("layers") {
            assert_eq!(layer["equal"], true, "{}: {layer}", example.path);
        }
    }
}

/// The plans of an example meet its expectations.
#[test]
fn every_example_meets_its_expectations() {
    for example in examples().iter().filter(|example| example.text.contains("\n  expect ")) {
        shardc(&["check", "--expect", &example.path]);
    }
}

#[test]
#[ignore = "slow: every example, executed or lowered several times over"]
fn lowering_an_example_twice_gives_the_same_bytes() {
    for example in examples() {
        // IR text is compared with the snapshots, which another process has written.
        for emit in ["json", "dot"] {
            // Two processes, to find any result that depends on what differs between processes
            // (addresses, hash seeds).
            let lower = || shardc(&["lower", "--emit", emit, &example.path]);
            assert_eq!(lower(), lower(), "lower --emit {emit} {}", example.path);
        }
    }
}

/// The output of `lower` is compared with the snapshots:
/// [`every_example_lowers_as_its_snapshot_has_it`].
#[test]
fn what_lower_prints_is_read_back_and_prints_the_same() {
    for example in examples() {
        let snapshot = read(
            &root().join(format!("snapshots/lowered/{}.snap", example.name.replace('/', "-"))),
        );
        let printed = snapshot.splitn(3, "---\n").nth(2).expect("a text behind its header");
        let plans = shard_ir::text::parse(printed)
            .unwrap_or_else(|error| panic!("{}: {error}", example.path));
        assert_eq!(shard_ir::text::print_all(&plans), printed, "{}", example.path);
    }
}
