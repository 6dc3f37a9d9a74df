//! `examples/README.md` is a table of the examples, made from their headers and from the output of
//! `explain`.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;
use shard_report::scale;
use shard_snapshots::files::{Example, examples, read, root};

const START: &str = "\
# Examples

These programs are for reading and for copying from. The header of each says what it is, where its figures come from, and
what to expect of its plan. Tests check, lower and explain each program, run its plan, and compare the results with those
of the unsharded program. `errors/` has a folder of wrong programs for each diagnostic. This explains an example:

```sh
cargo run --release -- explain examples/feed_forward/2d_weight_stationary.shard
```

The column `step` is the time of one step of one layer, with all ops and collectives one after another.
";

/// The first sentence of a header.
fn title(example: &Example) -> String {
    let lines = example.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].trim_end_matches(['.', ':']).replace('|', "\\|")
}

/// The output of `explain` for an example, layer by layer.
fn layers(example: &Example) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args(["explain", "--alternatives", "none", "--format", "json", &example.path])
        .current_dir(root())
        .output()
        .expect("the compiler starts");
    assert!(
        output.status.success(),
        "{}: {}",
        example.path,
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["layers"].as_array().expect("layers").clone()
}

fn row(example: &Example, layer: &Value, first: bool) -> String {
    let text = |key: &str| layer[key].as_str().unwrap_or_default().to_string();
    let axes = layer["mesh_axes"].as_array().expect("axes");
    let mesh: Vec<String> = axes
        .iter()
        .map(|axis| format!("{}={}", axis[0].as_str().unwrap_or_default(), axis[1]))
        .collect();
    let names: Vec<&str> =
        layer["strategy"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    let phase = text("phase");
    let of = if phase.is_empty() {
        format!("`{}`", text("name"))
    } else {
        format!("`{}`, {phase}", text("name"))
    };
    let seconds = layer["totals"]["serial_time_s"].as_f64().expect("seconds");
    let (file, what) = if first {
        let short = example.name.rsplit('/').next().unwrap_or_default();
        (format!("[{short}]({}.shard)", example.name), title(example))
    } else {
        (String::new(), String::new())
    };
    let status = layer["optimality"]["status"].as_str().unwrap_or_default();
    format!(
        "| {file} | {what} | {of} | {}, {} | {} | {} | {status} |\n",
        text("hardware"),
        mesh.join(" "),
        names.join(", "),
        scale::seconds(seconds)
    )
}

fn page() -> String {
    let mut page = START.to_string();
    let mut folder = "";
    let all = examples();
    for example in &all {
        let own = example.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        if own != folder {
            folder = own;
            let _ = write!(
                page,
                "\n## {folder}\n\n| file | what | layer | chips | strategy | step | \
                    |\n|---|---|---|---|---|---|---|\n"
            );
        }
        for (i, layer) in layers(example).iter().enumerate() {
            page.push_str(&row(example, layer, i == 0));
        }
    }
    page
}

/// `UPDATE_EXAMPLES=1` writes the page.
#[test]
fn the_page_of_examples_says_what_they_are_and_what_they_take() {
    let path = root().join("examples/README.md");
    let page = page();
    if std::env::var_os("UPDATE_EXAMPLES").is_some() {
        std::fs::write(&path, &page).expect("examples/README.md is written");
    }
    assert_eq!(
        read(&path),
        page,
        "UPDATE_EXAMPLES=1 cargo test -p shard-snapshots index:: writes the page"
    );
}
