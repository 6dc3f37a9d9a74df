//! `run --engine` where the engine is missing, fails, or is used wrongly.
//! `compiler/export/python/run` and `run-torch` test that engines compute the right values.

use crate::common::{command, ran, shardc};

#[test]
fn a_python_that_is_missing_is_an_error_with_what_to_type() {
    let ran = shardc(&["run", "mlp.shard", "--engine", "jax", "--python", "/no/such/python"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("the engine jax cannot be started"), "{}", ran.err);
    assert!(ran.err.contains("help: --python PATH or SHARDC_PYTHON=PATH"), "{}", ran.err);
}

#[test]
fn an_engine_that_is_missing_is_an_error_with_the_line_to_type() {
    // `false` is a Python that finds no module.
    let run = ["run", "mlp.shard", "--engine", "torch"];
    let ended = command(&run).env("SHARDC_PYTHON", "false").output().expect("it starts");
    let ran = ran(ended);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("help: false -m pip install torch numpy"), "{}", ran.err);
}

#[test]
fn a_process_that_fails_is_named_and_the_folder_goes() {
    let scratch = std::env::temp_dir().join(format!("shardc-engines-{}", std::process::id()));
    let path = scratch.to_str().expect("UTF-8");
    let run = ["run", "mlp.shard", "--engine", "jax", "--launch", "false {}", "--scratch", path];
    let ran = shardc(&run);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("process 0 of jax ended with exit status: 1"), "{}", ran.err);
    assert_eq!(std::fs::read_dir(&scratch).expect("it is there").count(), 0);
    std::fs::remove_dir_all(scratch).expect("removed");
}

#[test]
fn what_a_process_said_last_is_shown_line_by_line() {
    // The launcher `ls` lists the Python, which does not exist, and the script, which does.
    let ran =
        shardc(&["run", "mlp.shard", "--engine", "jax", "--launch", "ls", "--python", "/no/such"]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(!ran.err.contains("u{a}"), "{}", ran.err);
    let lines: Vec<&str> = ran.err.lines().collect();
    let [first, said, rest @ ..] = lines.as_slice() else { panic!("{}", ran.err) };
    assert!(first.starts_with("error: `mlp` cannot be executed: process 0 of jax ended with"));
    assert_eq!(*said, "  note: it said last");
    assert!(rest.len() > 1 && rest.iter().all(|line| line.starts_with("    ")), "{}", ran.err);
}

#[test]
fn devices_are_shared_evenly() {
    let run = ["run", "mlp.shard", "--engine", "jax", "--launch", "true", "--processes", "3"];
    let ran = shardc(&run);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("64 devices are not shared evenly by 3 processes"), "{}", ran.err);
}

#[test]
fn options_of_an_engine_need_one() {
    let ran = shardc(&["run", "mlp.shard", "--processes", "2"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("--engine <ENGINE>"), "{}", ran.err);
}
