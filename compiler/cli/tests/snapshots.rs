//! `snapshot`, from outside.

use std::path::PathBuf;

use crate::common::{Ran, command, fed, files, ran, text};

/// A folder of a test's own with `mlp.shard` in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("snapshots").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        std::fs::copy(files().join("mlp.shard"), folder.join("mlp.shard")).expect("copied");
        Folder(folder)
    }

    fn shardc(&self, args: &[&str]) -> Ran {
        ran(command(args).current_dir(&self.0).output().expect("the binary runs"))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).expect("a file")
    }

    /// Puts one text in place of another in the source.
    fn change(&self, from: &str, to: &str) {
        let source = self.read("mlp.shard");
        assert!(source.contains(from));
        std::fs::write(self.0.join("mlp.shard"), source.replace(from, to)).expect("written");
    }
}

#[test]
fn a_snapshot_is_the_lowered_program_under_two_lines_that_say_how_it_was_made() {
    let folder = Folder::new("form");
    let updated = folder.shardc(&["snapshot", "--update", "mlp.shard"]);
    assert_eq!(
        (updated.status, updated.out.as_str()),
        (0, "wrote mlp.lowered.snap\n"),
        "{updated:?}"
    );
    let lowered = folder.shardc(&["lower", "mlp.shard"]).out;
    let snapshot = folder.read("mlp.lowered.snap");
    assert_eq!(snapshot, format!("// shardc snapshot 1\n// options: none\n{lowered}"));
    assert_eq!(fed(&["lower", "-"], &lowered).out, lowered);
    assert_eq!(
        folder.shardc(&["snapshot", "--update", "mlp.shard"]).out,
        "",
        "nothing has changed"
    );
}

#[test]
fn a_plan_that_is_the_same_passes_in_silence() {
    let folder = Folder::new("same");
    folder.shardc(&["snapshot", "--update", "mlp.shard"]);
    folder.change("let h = einsum", "// a comment\n  let h = einsum");
    for args in [&["snapshot", "mlp.shard"][..], &["snapshot", "--check", "mlp.shard"]] {
        let checked = folder.shardc(args);
        assert_eq!((checked.status, checked.out.as_str(), checked.err.as_str()), (0, "", ""));
    }
    let crlf = folder.read("mlp.lowered.snap").replace('\n', "\r\n");
    std::fs::write(folder.0.join("mlp.lowered.snap"), crlf).expect("written");
    assert_eq!(
        folder.shardc(&["snapshot", "mlp.shard"]).status,
        0,
        "another system's line ends are no difference"
    );
}

#[test]
fn a_plan_that_differs_is_shown_as_a_diff_and_its_first_line_in_the_source() {
    let folder = Folder::new("differs");
    folder.shardc(&["snapshot", "--update", "mlp.shard"]);
    folder.change("let a = gelu(h)", "let a: BLF_y = gelu(h)");
    let checked = folder.shardc(&["snapshot", "mlp.shard"]);
    assert_eq!(checked.status, 1);
    assert!(
        checked.out.starts_with("--- mlp.lowered.snap\n+++ mlp.shard (lowered now)\n@@ "),
        "{}",
        checked.out
    );
    assert!(
        checked.out.lines().any(|l| l.starts_with("-%"))
            && checked.out.lines().any(|l| l.starts_with("+%"))
    );
    assert!(
        checked.err.contains("error[E0831]: the plan differs from its snapshot `mlp.lowered.snap`")
    );
    assert!(checked.err.contains("the first difference comes from here"), "{}", checked.err);
    assert!(checked.err.contains("help: shardc snapshot --update mlp.shard\n"), "{}", checked.err);
    assert_eq!(folder.shardc(&["snapshot", "--update", "mlp.shard"]).status, 0);
    assert_eq!(folder.shardc(&["snapshot", "mlp.shard"]).status, 0);
}

#[test]
fn a_snapshot_that_is_not_there_is_an_error_that_says_how_to_take_it() {
    let folder = Folder::new("missing");
    let checked = folder.shardc(&["snapshot", "mlp.shard", "-D", "B=64"]);
    assert_eq!((checked.status, checked.out.as_str()), (1, ""));
    assert!(
        checked.err.starts_with("error[E0830]: there is no snapshot `mlp.lowered.snap`"),
        "{}",
        checked.err
    );
    assert!(
        checked.err.contains("help: shardc snapshot --update mlp.shard -D B=64\n"),
        "{}",
        checked.err
    );
    assert!(!folder.0.join("mlp.lowered.snap").exists());
}

#[test]
fn options_are_recorded_and_other_ones_are_an_error() {
    let folder = Folder::new("options");
    let options = ["-D", "B=64,L=2", "--mesh", "x=2, y=2,z=1"];
    folder.shardc(&[&["snapshot", "--update", "mlp.shard"][..], &options].concat());
    let snapshot = folder.read("mlp.lowered.snap");
    assert!(snapshot.contains("\n// options: -D B=64,L=2 --mesh 'x=2, y=2,z=1'\n"), "{snapshot}");
    assert_eq!(folder.shardc(&[&["snapshot", "mlp.shard"][..], &options].concat()).status, 0);
    let other = folder.shardc(&["snapshot", "mlp.shard"]);
    assert_eq!(other.status, 1);
    assert!(other.err.starts_with("error[E0832]: "), "{}", other.err);
    let help = "help: shardc snapshot --check mlp.shard -D B=64,L=2 --mesh 'x=2, y=2,z=1'\n";
    assert!(other.err.contains(help), "{}", other.err);
}

#[test]
fn a_snapshot_holds_no_path_of_one_machine() {
    let folder = Folder::new("paths");
    let chip = folder.shardc(&["hardware", "tpu-v4-flat"]).out.replace("tpu-v4-flat", "mine");
    std::fs::write(folder.0.join("chip.toml"), chip).expect("written");
    let absolute = folder.0.join("chip.toml").to_str().expect("UTF-8").to_string();
    assert_eq!(
        folder.shardc(&["snapshot", "--update", "mlp.shard", "--hardware", &absolute]).status,
        0
    );
    let snapshot = folder.read("mlp.lowered.snap");
    assert!(
        snapshot.contains("\n// options: --hardware mine\n") && !snapshot.contains(&absolute),
        "{snapshot}"
    );
}

#[test]
fn every_file_gets_its_turn_and_the_worst_outcome_is_the_outcome() {
    let folder = Folder::new("several");
    std::fs::copy(folder.0.join("mlp.shard"), folder.0.join("other.shard")).expect("copied");
    folder.shardc(&["snapshot", "--update", "other.shard"]);
    let checked = folder.shardc(&["snapshot", "mlp.shard", "other.shard"]);
    assert_eq!(checked.status, 1);
    assert_eq!(checked.err.matches("error[").count(), 1, "{}", checked.err);
    assert_eq!(folder.shardc(&["snapshot", "mlp.shard", "no-such-file.shard"]).status, 2);
}

#[test]
fn what_has_no_snapshot_is_wrong_usage() {
    assert_eq!(fed(&["snapshot", "-"], &text("mlp.shard")).status, 2);
    let folder = Folder::new("usage");
    std::fs::write(folder.0.join("mlp.shir"), folder.shardc(&["lower", "mlp.shard"]).out)
        .expect("written");
    assert_eq!(folder.shardc(&["snapshot", "mlp.shir"]).status, 2);
    assert_eq!(folder.shardc(&["snapshot", "--check", "--update", "mlp.shard"]).status, 2);
    assert_eq!(folder.shardc(&["snapshot"]).status, 2);
}

#[test]
fn a_check_holds_the_plan_to_its_expectations_too() {
    let folder = Folder::new("expect");
    folder.change("let h = einsum", "expect all-gathers == 7\n  let h = einsum");
    assert_eq!(
        folder.shardc(&["snapshot", "--update", "mlp.shard"]).status,
        0,
        "an update only writes"
    );
    let checked = folder.shardc(&["snapshot", "mlp.shard"]);
    assert_eq!((checked.status, checked.out.as_str()), (1, ""));
    assert!(checked.err.starts_with("error[E0837]: "), "{}", checked.err);
}
