//! `fmt --explicit` of every example: a strict file with the same lowered program.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use rayon::prelude::*;
use shard_grammar::SourceFile;
use shard_ir::{Collective, InstrKind, Plan, text};
use shard_report::explicit::difference;
use shard_snapshots::examples;
use shard_snapshots::files::{Example, root};

/// Runs `shardc` with a text on standard input, in a folder below the root with the files that the
/// text names.
fn fed(folder: &Path, arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args(arguments)
        .current_dir(root().join(folder))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the compiler starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("standard input is read");
    child.wait_with_output().expect("the compiler ends")
}

fn printed(folder: &Path, arguments: &[&str], input: &str) -> String {
    let output = fed(folder, arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}\n{input}");
    String::from_utf8(output.stdout).expect("text")
}

/// An example, once for each phase that it has.
struct Variant {
    path: String,
    text: String,
    /// Its plans.
    plans: Vec<Plan>,
    /// Its explicit form.
    written: String,
}

impl Variant {
    fn folder(&self) -> &Path {
        folder(&self.path)
    }
}

/// The folder of an example.
fn folder(path: &str) -> &Path {
    Path::new(path).parent().expect("an example lies in a folder")
}

/// All examples, each computed once for all tests.
fn variants() -> &'static [Variant] {
    static ALL: OnceLock<Vec<Variant>> = OnceLock::new();
    ALL.get_or_init(make_variants)
}

fn make_variants() -> Vec<Variant> {
    let mut layers = examples();
    layers.retain(|example| !is_model(&example.text));
    layers.par_iter().with_max_len(1).flat_map_iter(variants_of).collect()
}

/// An example in each of its phases.
fn variants_of(example: &Example) -> Vec<Variant> {
    let words = example.text.lines().filter_map(|line| line.strip_prefix("phase "));
    let phases: Vec<&str> = words.filter_map(|rest| rest.split(' ').next()).collect();
    let options: Vec<Vec<&str>> = if phases.is_empty() {
        vec![Vec::new()]
    } else {
        phases.into_iter().map(|phase| vec!["--phase", phase]).collect()
    };
    let variant = |phase: Vec<&str>| {
        let with = |command: &[&str]| {
            printed(folder(&example.path), &[command, &phase].concat(), &example.text)
        };
        let plans = text::parse(&with(&["lower", "-"])).expect("IR text");
        (!plans.iter().any(merges)).then(|| Variant {
            path: example.path.clone(),
            text: example.text.clone(),
            written: with(&["fmt", "--explicit", "-"]),
            plans,
        })
    };
    options.into_iter().filter_map(variant).collect()
}

/// Whether attentions over parts of the keys are merged, which no strict file can state.
fn merges(plan: &Plan) -> bool {
    let is_merge =
        |kind: &InstrKind| matches!(kind, InstrKind::Move(Collective::SoftmaxMerge { .. }));
    plan.instructions.iter().any(|instr| is_merge(&instr.kind))
}

#[test]
fn a_merge_of_attentions_is_refused_by_name() {
    let all = examples();
    let found = all.iter().find(|example| example.path.contains("flash_decoding"));
    let example = found.expect("flash-decoding");
    let refused = fed(folder(&example.path), &["fmt", "--explicit", "-"], &example.text);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("E0820") && errors.contains("softmax-merge"), "{errors}");
}

/// A model is written layer by layer: `fmt --explicit` of the whole is refused.
fn is_model(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("model "))
}

#[test]
fn of_a_model_each_layer_is_written_back_and_the_whole_is_refused_with_their_names() {
    let models: Vec<_> = examples().into_iter().filter(|example| is_model(&example.text)).collect();
    assert!(models.len() >= 2);
    for example in models {
        let phase: &[&str] =
            if example.text.contains("\nphase decode ") { &["--phase", "decode"] } else { &[] };
        let refused = fed(
            folder(&example.path),
            &[&["fmt", "--explicit", "-"], phase].concat(),
            &example.text,
        );
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{}: {errors}", example.path);
        assert!(errors.contains("E0820") && errors.contains("--layer block"), "{errors}");
        printed(
            folder(&example.path),
            &[&["fmt", "--explicit", "--layer", "block", "-"], phase].concat(),
            &example.text,
        );
    }
}

fn plans(folder: &Path, source: &str) -> Vec<Plan> {
    text::parse(&printed(folder, &["lower", "-"], source)).expect("IR text")
}

#[test]
#[ignore = "slow: every example, lowered twice"]
fn every_example_is_written_back_as_a_strict_file_with_the_same_lowered_program() {
    for example in variants() {
        let written = &example.written;
        let (before, after) = (&example.plans, plans(example.folder(), written));
        assert_eq!(before.len(), after.len(), "{}", example.path);
        for (a, b) in before.iter().zip(&after) {
            assert_eq!(difference(a, b), None, "{}: {}\n{written}", example.path, a.name);
            let names =
                |plan: &Plan| plan.outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
            assert_eq!(
                names(a),
                names(b),
                "{}: the results keep their names\n{written}",
                example.path
            );
        }
        // Each layer is strict, so that nothing was inserted.
        let layers: Vec<&str> =
            written.lines().filter(|l| l.contains("layer ") && !l.starts_with("//")).collect();
        assert!(
            layers.iter().all(|l| l.starts_with("strict layer ")),
            "{}: {layers:?}",
            example.path
        );
    }
}

#[test]
fn what_is_written_formats_as_itself_and_is_explicit_already() {
    for example in variants() {
        let written = &example.written;
        let formatted =
            shard_grammar::format(&SourceFile::new(example.path.clone(), written.clone()));
        assert_eq!(formatted.as_ref(), Ok(written), "{}", example.path);
        assert_eq!(
            &printed(example.folder(), &["fmt", "--explicit", "-"], written),
            written,
            "{}",
            example.path
        );
    }
}

#[test]
fn every_collective_is_a_line_of_its_own() {
    for example in variants() {
        let written = &example.written;
        let lines = written.lines().filter(|l| !l.trim_start().starts_with("//"));
        let reshards: usize = lines.map(|l| l.matches("reshard(").count()).sum();
        let moves = |plan: &Plan| {
            plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Move(_))).count()
        };
        assert_eq!(
            reshards,
            example.plans.iter().map(moves).sum::<usize>(),
            "{}\n{written}",
            example.path
        );
    }
}

#[test]
fn comments_and_the_rest_of_the_file_stay() {
    for example in variants() {
        let written = &example.written;
        for line in example.text.lines().filter(|l| l.starts_with("//!") || l.starts_with("mesh "))
        {
            assert!(written.lines().any(|l| l == line), "{}: {line}\n{written}", example.path);
        }
    }
    let source = "mesh x=4\ndim B = 8 // rows\ndim E = 16\n\nlayer f(a: f32 BE_x, w: f32 E_xB) -> \
        f32 B? {\n  // gathers\n  \
                  let r = relu(a) // one\n\n  /// two\n  let s = sum(r over E)\n  // end\n  \
                  return s // done\n}\n";
    let source = source.replace(", w: f32 E_xB", "");
    let written =
        printed(Path::new(""), &["fmt", "--explicit", "--hardware", "tpu-v4-flat", "-"], &source);
    for comment in ["// rows", "// gathers", "// one", "/// two", "// end", "// done"] {
        assert_eq!(written.matches(comment).count(), 1, "{comment}\n{written}");
    }
    assert!(written.contains("hardware tpu-v4-flat\n"), "{written}");
}

#[test]
fn what_the_command_line_changes_is_written_into_the_file() {
    let source = std::fs::read_to_string(root().join("examples/feed_forward/by_batch.shard"))
        .expect("an example");
    let here = Path::new("");
    let changes = ["-D", "B=1024", "--mesh", "x=2,y=4,z=8"];
    let written =
        printed(here, &[&["fmt", "--explicit", "-"], changes.as_slice()].concat(), &source);
    let before =
        text::parse(&printed(here, &[&["lower", "-"], changes.as_slice()].concat(), &source))
            .expect("IR text");
    assert_eq!(difference(&before[0], &plans(here, &written)[0]), None, "{written}");
}
