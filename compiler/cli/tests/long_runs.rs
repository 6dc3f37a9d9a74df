//! Long searches: they end when they are told to, and report their progress.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Ran, command, fed, ran, shardc};

/// Sixteen feed-forward layers of different widths without any layouts, on a mesh of five axes.
/// Their search takes about 10 s on one core. No test gives it more than 4 s, or waits longer than
/// the search takes to report its end.
fn layers() -> String {
    let count = 16;
    let (mut dims, mut params, mut body) = (String::new(), String::new(), String::new());
    let mut last = "x".to_string();
    for i in 0..count {
        dims += &format!("dim F{i} = {}\n", 1024 * (i + 4));
        params += &format!(", v{i}: weight bf16 EF{i}?, u{i}: weight bf16 F{i}E?");
        body += &format!("  let h{i} = gelu(einsum(rmsnorm({last} over E), v{i} -> BLF{i}))\n");
        body += &format!("  let y{i} = {last} + einsum(h{i}, u{i} -> BLE)\n");
        last = format!("y{i}");
    }
    format!(
        "hardware tpu-v4\nmesh x=2, y=2, z=2, w=2, v=2\ndim B = 1024\ndim L = 1024\ndim E = \
            4096\n{dims}layer f(x: bf16 BLE?{params}) -> bf16 BLE? {{\n{body}  return {last}\n}}\n"
    )
}

/// Whether a command line with a time limit ended in an allowed way: with a plan and a warning, or
/// with the error that no plan was found. Only the result goes to standard output.
fn ended_in_time(ran: &Ran) -> bool {
    match ran.status {
        0 => {
            let document: serde_json::Value =
                serde_json::from_str(&ran.out).expect("JSON and nothing else");
            let optimality = &document["layers"][0]["optimality"];
            assert_eq!(
                (&optimality["status"], &optimality["stopped_by"]),
                (&"bounded".into(), &"time-limit".into())
            );
            let figure = |key: &str| optimality[key].as_f64().expect("a time");
            assert!(figure("lower_bound_s") <= figure("cost_s"), "{optimality}");
            ran.err.contains("warning[W0803]: the time was up")
                && ran.err.contains("another run may")
        }
        _ => {
            ran.status == 1
                && ran.out.is_empty()
                && ran.err.contains("error[E0807]: the time was up before any plan")
        }
    }
}

#[test]
fn a_search_out_of_time_gives_its_best_plan_or_says_that_it_has_none() {
    for limit in ["0.05", "2"] {
        let start = Instant::now();
        let args = ["explain", "-", "--time-limit", limit, "--no-alternatives", "--format", "json"];
        let ran = fed(&args, &layers());
        assert!(ended_in_time(&ran), "{limit}: {} {}", ran.status, ran.err);
        assert!(start.elapsed() < Duration::from_secs(1000), "{:?}", start.elapsed());
    }
}

#[test]
fn a_search_that_ends_by_itself_is_the_same_with_a_time_limit() {
    let free = shardc(&["explain", "mlp.shard", "--format", "json"]);
    let limited = shardc(&[
        "explain",
        "mlp.shard",
        "--format",
        "json",
        "--time-limit",
        "600",
        "--progress",
        "always",
    ]);
    assert_eq!((limited.status, limited.out, limited.err), (0, free.out, free.err));
}

#[test]
fn a_snapshot_is_of_no_plan_that_another_run_may_not_find() {
    let ran = shardc(&["snapshot", "mlp.shard", "--time-limit", "9"]);
    assert!(ran.status == 2 && ran.err.contains("--time-limit"), "{ran:?}");
    for wrong in ["0", "-1", "nan", "x"] {
        assert_eq!(shardc(&["explain", "mlp.shard", "--time-limit", wrong]).status, 2, "{wrong}");
    }
}

#[test]
fn progress_is_on_standard_error_and_an_interruption_says_how_far_it_was() {
    let mut child = command(&["explain", "-", "--progress", "always"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("piped").write_all(layers().as_bytes()).expect("written");
    // The test interrupts the search once it reports that it searches, however fast the machine is.
    let mut err = BufReader::new(child.stderr.take().expect("piped")).lines();
    let first = err
        .by_ref()
        .map(|line| line.expect("UTF-8"))
        .find(|line| line.starts_with("searching `f` for "))
        .expect("a search is shown that takes longer than 2 s");
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill").success()
    );
    let rest: Vec<String> = err.map(|line| line.expect("UTF-8")).collect();
    let ended = ran(child.wait_with_output().expect("it ends"));
    assert_eq!((ended.status, ended.out.as_str()), (130, ""), "{rest:?}");
    assert!(first.contains(" bound ") || first.contains("no bound yet"), "{first:?}");
    assert!(!first.contains("for 0 s") && !first.contains("for 1 s"), "{first:?}");
    let last = rest.last().map_or("", String::as_str);
    assert!(last.starts_with("interrupted: searched `f` for "), "{last:?}");
    // Where standard error is no terminal, progress is shown only if it is asked for.
    let silent = fed(
        &["explain", "-", "--time-limit", "4", "--no-alternatives", "--format", "json"],
        &layers(),
    );
    assert!(!silent.err.contains("searching"), "{}", silent.err);
}

#[test]
fn timings_are_one_line_a_pass_on_standard_error() {
    let plain = shardc(&["explain", "mlp.shard"]);
    let timed = shardc(&["explain", "mlp.shard", "--timings"]);
    assert_eq!((timed.status, &timed.out), (0, &plain.out));
    let passes: Vec<&str> = timed
        .err
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let pass = words.next().expect("a word");
            let taken: f64 = words.next().expect("a figure").parse().expect("a number");
            assert!(taken >= 0.0 && words.eq(["ms"]), "{line}");
            pass
        })
        .collect();
    assert_eq!(passes, ["check", "search", "warnings", "alternatives"], "{}", timed.err);
    for args in [
        &["cost", "mlp.shard"][..],
        &["sweep", "mlp.shard", "-D", "B=8,16"],
        &["check", "mlp.shard"],
    ] {
        let mut args = args.to_vec();
        args.push("--timings");
        assert!(
            shardc(&args)
                .err
                .lines()
                .any(|line| line.starts_with("search ") && line.ends_with(" ms")),
            "{args:?}"
        );
    }
}
