//! IR text on the command line: how it is recognised, what is refused in it, and that it is printed
//! as it was read.

use crate::common::{fed, shardc, text};

#[test]
fn ir_text_goes_through_and_comes_out_the_same() {
    let lowered = shardc(&["lower", "mlp.shard"]).out;
    assert!(lowered.starts_with("shir 1\n"));
    let again = fed(&["lower", "-"], &lowered);
    assert_eq!((again.status, &again.out), (0, &lowered));
    let moves = shardc(&["lower", "every_move.shir"]);
    assert_eq!(moves.status, 0, "{moves:?}");
    assert_eq!(fed(&["lower", "-"], &moves.out).out, moves.out);
}

#[test]
fn fmt_says_of_ir_text_what_it_is() {
    let lowered = shardc(&["lower", "mlp.shard"]).out;
    for flags in [&["fmt", "-"][..], &["fmt", "--check", "-"]] {
        let ran = fed(flags, &lowered);
        let said = "error: IR text has one form, which `lower` writes: `fmt` takes a source file";
        assert_eq!((ran.status, ran.err.trim_end()), (2, said));
    }
}

#[test]
fn broken_ir_text_is_shown_with_its_line() {
    let ran = fed(
        &["lower", "-"],
        "shir 1\nlayer a\nmesh x=2\ndims B=4\n%0 = parameter x : f32 B_w\nreturn x = %0 : B_w\n",
    );
    assert_eq!(ran.status, 1);
    assert!(ran.err.starts_with("error[E0860]: ") && ran.err.contains("[ -:5:"), "{}", ran.err);
    let json =
        fed(&["lower", "-", "--error-format", "json"], "shir 1\nlayer a\nmesh x=2\ndims B=\n");
    assert!(
        json.err.contains("\"code\":\"E0860\"") || json.err.contains("\"code\": \"E0860\""),
        "{}",
        json.err
    );
    let illegal = text("every_move.shir")
        .replace("%9, %6 : f32 [Batch_{data}, Heads_{model}", "%9, %6 : f32 [Batch_{data}, Heads");
    let ran = fed(&["lower", "-"], &illegal);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.starts_with("error[E0861]: layer `all` is not a legal plan: "), "{}", ran.err);
}

#[test]
fn ir_text_is_known_by_its_first_line_behind_comments() {
    let ir = text("every_move.shir");
    for comments in ["// lowered by hand\n\n// twice\n", "\n", "---\nsource: x\n---\n// y\n"] {
        let ran = fed(&["explain", "-"], &format!("{comments}{ir}"));
        assert_eq!(ran.status, 0, "{comments:?}: {}", ran.err);
        assert_eq!(ran.out, shardc(&["explain", "every_move.shir"]).out, "{comments:?}");
    }
}

#[test]
fn ir_text_that_gives_no_result_is_no_plan() {
    let ir = text("every_move.shir");
    let cut: String =
        ir.lines().filter(|line| !line.starts_with("return")).map(|l| format!("{l}\n")).collect();
    for command in ["check", "run", "explain"] {
        let ran = fed(&[command, "-"], &cut);
        assert_eq!(ran.status, 1, "{command}: {}", ran.out);
        assert!(ran.err.contains("E0861") && ran.err.contains("`return`"), "{}", ran.err);
    }
}

#[test]
fn check_takes_no_option_that_ir_text_cannot_follow() {
    for option in [
        &["--mesh", "x=2"][..],
        &["-D", "B=2"],
        &["--strict"],
        &["--hardware", "none"],
        &["--layer", "none"],
        &["--phase", "none"],
        &["--objective", "memory"],
        &["--expect"],
    ] {
        let ran = shardc(&[&["check", "every_move.shir"], option].concat());
        assert_eq!(ran.status, 2, "{option:?}: {}", ran.err);
    }
    assert_eq!(shardc(&["explain", "every_move.shir", "--objective", "memory"]).status, 2);
    assert_eq!(shardc(&["check", "every_move.shir"]).status, 0);
}

#[test]
fn ir_text_with_a_weight_in_host_memory_needs_a_chip_with_a_way_there() {
    let example = "../../examples/language/weights_with_the_host.shard";
    let ir = shardc(&["lower", &format!("{}/{example}", env!("CARGO_MANIFEST_DIR"))]).out;
    for command in ["explain", "cost", "lower"] {
        let ran = fed(&[command, "-", "--hardware", "tpu-v4-flat"], &ir);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{command}: {ran:?}");
        let said = "error[E0650]: `up` is in host memory, and `tpu-v4-flat` states no way there";
        assert!(ran.err.contains(said), "{command}: {ran:?}");
        assert_eq!(fed(&[command, "-"], &ir).status, 0, "{command}");
    }
    // A fetch alone needs a way there as well.
    let fetched = ir.replace("weight host", "weight");
    assert_ne!(fetched, ir);
    assert_eq!(fed(&["cost", "-", "--hardware", "tpu-v4-flat"], &fetched).status, 1);
}

#[test]
fn ir_text_without_room_in_the_memory_that_was_asked_for_is_refused() {
    for command in ["check", "explain", "cost", "lower"] {
        let ran = shardc(&[command, "every_move.shir", "--memory-limit", "1KB"]);
        assert_eq!((ran.status, ran.out.contains("shir 1")), (1, false), "{command}: {ran:?}");
        let said = if command == "check" { &ran.out } else { &ran.err };
        let said = format!("{said}{}", ran.err);
        assert!(said.contains("error[E0862]: the plan of `all` has no room in 1000 B"), "{said}");
        // The limit that the help suggests is enough, and one byte less is not.
        let (_, help) = said.split_once("help: --memory-limit ").expect("a help");
        let bytes = help.split_whitespace().next().expect("a number");
        let ran = shardc(&[command, "every_move.shir", "--memory-limit", bytes]);
        assert_eq!(ran.status, 0, "{command} {bytes}: {ran:?}");
        let less = (bytes.parse::<u64>().expect("bytes") - 1).to_string();
        assert_eq!(shardc(&[command, "every_move.shir", "--memory-limit", &less]).status, 1);
    }
    assert_eq!(shardc(&["run", "every_move.shir", "--memory-limit", "1KB"]).status, 0);
    // A plan without a chip needs as much memory.
    let ir = text("every_move.shir").replace("hardware tpu-v4-flat\n", "");
    assert_eq!(fed(&["check", "-", "--memory-limit", "1KB"], &ir).status, 1);
    assert_eq!(fed(&["check", "-", "--memory-limit", "1GB"], &ir).status, 0);
}
