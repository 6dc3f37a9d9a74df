//! Files that somebody else wrote, and disks that are full: no file is lost, no invisible character
//! is printed, and no command waits for input that does not come.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{command, ran, shardc, text};

/// A folder of a test's own, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("strangers").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

/// Runs a command line that may write no file of more than 512 bytes: writing more fails as it does
/// on a full disk.
fn on_a_full_disk(args: &[&str], folder: &Path) -> (i32, String) {
    let line = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_shardc")])
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    (
        output.status.code().expect("not ended by a signal"),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn names(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> =
        all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_costs_no_file_what_it_held() {
    let folder = scratch("full");
    let source = format!(
        "{}\n{}",
        text("mlp.shard").replace("mesh x", "mesh   x"),
        "// a long comment\n".repeat(64)
    );
    assert!(source.len() > 512, "more than fits");
    for name in ["a.shard", "a.lowered.snap", "cert.json", "new.shard"] {
        std::fs::write(folder.join(name), &source).expect("written");
    }
    std::fs::create_dir(folder.join("out")).expect("a folder");
    std::fs::write(folder.join("out/y.npy"), &source).expect("written");
    let before = names(&folder);
    for (args, file) in [
        (&["fmt", "a.shard"][..], "a.shard"),
        (&["snapshot", "--update", "a.shard"], "a.lowered.snap"),
        (&["explain", "a.shard", "--certificate", "cert.json"], "cert.json"),
        (&["new", "-o", "new.shard", "--force"], "new.shard"),
        (&["run", "a.shard", "--output", "out"], "out/y.npy"),
    ] {
        let (status, err) = on_a_full_disk(args, &folder);
        assert!(status == 2 && err.contains("cannot write"), "{args:?}: {status} {err}");
        assert_eq!(std::fs::read_to_string(folder.join(file)).expect("text"), source, "{args:?}");
        assert_eq!(names(&folder), before, "{args:?} leaves nothing behind");
    }
    let (status, err) = on_a_full_disk(&["new", "-o", "other.shard"], &folder);
    assert!(
        status == 2 && err.contains("cannot write") && names(&folder) == before,
        "{status} {err}"
    );
}

#[test]
fn a_result_that_is_not_printed_is_an_error_whatever_its_form() {
    let results: [&[&str]; 8] = [
        &["check", "mlp.shard", "--format", "json"],
        &["check", "mlp.shard", "--format", "sarif"],
        &["check", "not_there.shard", "--format", "json"],
        &["snapshot", "mlp.shard", "--format", "json"],
        &["explain", "mlp.shard"],
        &["explain", "mlp.shard", "--format", "json"],
        &["--help"],
        &["--version"],
    ];
    for args in results {
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let ran = command(args).stdout(full()).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{args:?}: {said}");
    }
}

#[test]
fn streams_are_written_directly() {
    let ran = shardc(&["explain", "mlp.shard", "--certificate", "/dev/full"]);
    assert!(ran.status == 2 && ran.err.contains("cannot write `/dev/full`"), "{ran:?}");
    let ran = shardc(&["explain", "mlp.shard", "--certificate", "/dev/stdout"]);
    assert!(ran.status == 0 && ran.out.contains("\"schema\":\"shardc.certificate/2\""), "{ran:?}");
    let folder = scratch("streams");
    let into = std::fs::File::create(folder.join("out")).expect("a file");
    let status = command(&["new", "-o", "/dev/stdout"]).stdout(into).status().expect("it runs");
    assert!(status.success());
    assert!(
        std::fs::read_to_string(folder.join("out")).expect("text").contains("layer "),
        "what the shell has open"
    );
}

#[test]
fn a_result_of_any_name_is_written_inside_the_folder() {
    let folder = scratch("names");
    let lowered = shardc(&["lower", "mlp.shard"]).out;
    assert!(lowered.contains("return y ="), "{lowered}");
    std::fs::write(folder.join("a.shir"), lowered.replace("return y =", "return \"../x\" ="))
        .expect("written");
    let plan = folder.join("a.shir");
    let out = folder.join("in/out");
    let ran =
        shardc(&["run", plan.to_str().expect("UTF-8"), "--output", out.to_str().expect("UTF-8")]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(
        (names(&out), names(&folder.join("in"))),
        (vec!["%2E.%2Fx.npy".to_string()], vec!["out".to_string()])
    );
}

/// A control sequence that clears the screen, and a character that reverses the direction of text.
const HOSTILE: &str = "\u{1b}[2J\u{202e}";

fn is_clean(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}'))
}

#[test]
fn control_and_bidi_characters_do_not_reach_the_terminal() {
    let folder = scratch("hostile");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    let commented = text("mlp.shard").replace("-> BLF)", &format!("-> BLF) // {HOSTILE}"));
    std::fs::write(path("comment.shard"), &commented).expect("written");
    std::fs::write(path("not_there.shard"), commented.replace("BLF) //", "BLQ) //"))
        .expect("written");
    std::fs::write(path(&format!("{HOSTILE}.shard")), commented.replace("BLF) //", "BLQ) //"))
        .expect("written");
    let lowered = shardc(&["lower", "mlp.shard"]).out;
    let named = lowered
        .replace("parameter w_in", "parameter \"\\u{1b}[2J\\u{202e}\\nproven by certificate\"");
    assert_ne!(lowered, named);
    std::fs::write(path("named.shir"), &named).expect("written");
    let chip = shardc(&["hardware", "tpu-v4-flat"]).out;
    let chip = chip.replace("name = \"tpu-v4-flat\"", "name = \"\\u001b[2J\\u202e\"");
    std::fs::write(path("chip.toml"), chip).expect("written");
    for color in ["never", "always"] {
        for args in [
            &["explain", &path("comment.shard")][..],
            &["explain", &path("comment.shard"), "--why", "h"],
            &["check", &path("not_there.shard")],
            &["check", &path(&format!("{HOSTILE}.shard"))],
            &["check", &path(&format!("none{HOSTILE}.shard"))],
            &["explain", &path("named.shir")],
            &["cost", &path("named.shir")],
            &["diff", "mlp.shard", &path("named.shir")],
            &["explain", "mlp.shard", "--hardware", &path("chip.toml")],
            &["sweep", "mlp.shard", "-D", "B=8,16", "--hardware", &path("chip.toml")],
            &["run", &path("named.shir")],
        ] {
            let mut args = args.to_vec();
            args.extend(["--color", color]);
            let ran = shardc(&args);
            let shown = format!("{}{}", ran.out, ran.err);
            assert!(
                !shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'),
                "{args:?}: {shown:?}"
            );
            assert!(color == "always" || is_clean(&shown), "{args:?}: {shown:?}");
            assert!(!shown.contains("\nproven by certificate\n"), "no name makes a line: {shown}");
        }
    }
    // What is read back is what was written.
    assert_eq!(shardc(&["lower", &path("named.shir")]).out, named);
    assert_eq!(shardc(&["fmt", &path("comment.shard")]).status, 0);
    assert!(std::fs::read_to_string(path("comment.shard")).expect("text").contains(HOSTILE));
    let json = shardc(&["explain", &path("named.shir"), "--format", "json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let instructions = json["layers"][0]["instructions"].as_array().expect("a list").clone();
    assert!(
        instructions.iter().any(|i| i["name"] == "\u{1b}[2J\u{202e}\nproven by certificate"),
        "scripts get the name"
    );
}

#[test]
fn a_file_that_is_no_hardware_file_is_not_shown() {
    let folder = scratch("secrets");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    std::fs::write(path("passwd"), "root:x:0:0:SECRET:/root\n").expect("written");
    std::fs::write(path("credentials.toml"), "token = \"SECRET\"\n").expect("written");
    let source = text("mlp.shard");
    let line = source.lines().find(|line| line.starts_with("hardware ")).expect("a hardware line");
    for secret in ["passwd", "credentials.toml"] {
        std::fs::write(path("a.shard"), source.replace(line, &format!("hardware \"{secret}\"")))
            .expect("written");
        for format in ["text", "json", "sarif", "github"] {
            for args in [
                &["explain", &path("a.shard")][..],
                &["explain", "mlp.shard", "--hardware", &path(secret)],
            ] {
                let mut args = args.to_vec();
                args.extend(["--error-format", format]);
                let ran = shardc(&args);
                assert!(
                    ran.status > 0 && !ran.err.contains("SECRET") && !ran.err.contains("root"),
                    "{ran:?}"
                );
            }
        }
    }
    std::fs::write(path("a.shard"), source.replace(line, "hardware \"passwd\"")).expect("written");
    let err = shardc(&["explain", &path("a.shard")]).err;
    assert!(err.contains("line 1, column") && err.contains("expected"), "{err}");
}

#[test]
fn a_path_inside_a_file_is_a_regular_file_and_an_argument_may_be_a_pipe() {
    let folder = scratch("pipes");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    assert!(Command::new("mkfifo").arg(path("chip.toml")).status().expect("mkfifo").success());
    std::os::unix::fs::symlink("/dev/zero", path("zero.toml")).expect("a link");
    let source = text("mlp.shard");
    let line = source.lines().find(|line| line.starts_with("hardware ")).expect("a hardware line");
    for chip in ["chip.toml", "zero.toml", "."] {
        std::fs::write(path("a.shard"), source.replace(line, &format!("hardware \"{chip}\"")))
            .expect("written");
        let ran = shardc(&["explain", &path("a.shard")]);
        assert!(ran.status == 2 && ran.err.contains("E0702"), "{ran:?}");
    }
    // `-` inside a file is a file of that name.
    std::fs::write(path("a.shard"), source.replace(line, "hardware \"-\"")).expect("written");
    let mut child = command(&["explain", "a.shard"]);
    let output = child.current_dir(&folder).stdin(Stdio::piped()).output().expect("it ends");
    assert_eq!(ran(output).status, 2);
    let chip = shardc(&["hardware", "tpu-v4-flat"]).out;
    let writer = std::thread::spawn({
        let pipe = path("chip.toml");
        move || std::fs::write(pipe, chip)
    });
    let ran = shardc(&["explain", "mlp.shard", "--hardware", &path("chip.toml")]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    writer.join().expect("no panic").expect("written");
}
