//! The certificate of every example is written, compared with its schema and checked; the result is
//! compared with the table of `spec/certificate.md`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::common::shardc;
use rayon::prelude::*;

const BEGIN: &str = "<!-- certificates of examples -->\n";
const END: &str = "<!-- end -->";

/// The largest size of an example's certificate, in bytes.
const MOST_BYTES: u64 = 10_000_000;

fn examples(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("errors") {
            examples(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "shard") {
            all.push(path);
        }
    }
}

/// The name of each layer, whether prices prove its plan, and the reason if they do not.
fn layers(out: &str) -> Vec<(String, &'static str, String)> {
    let mut layers: Vec<(String, &str, String)> = Vec::new();
    for line in out.lines() {
        match (line.strip_prefix("  "), layers.last_mut()) {
            (Some(said), Some(layer))
                if said.starts_with("the file says why: ") || said.starts_with("its forms are") =>
            {
                layer.2 = said.to_string();
            }
            (Some(_), _) => {}
            (None, _) => {
                let (name, claim) =
                    line.split_once(": ").expect("a layer and what is claimed of it");
                let status =
                    if claim.starts_with("proven: ") { "proven" } else { "not proven by prices" };
                layers.push((name.to_string(), status, String::new()));
            }
        }
    }
    layers
}

/// The row of an example in the table: the part that the test compares, and the measurements.
fn row(path: &Path, name: &str) -> (String, String) {
    let out = format!("certificate_of_{}.json", name.replace('/', "_"));
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(out);
    let out = out.to_str().expect("UTF-8");
    let explained = shardc(&["explain", path.to_str().expect("UTF-8"), "--certificate", out]);
    assert_eq!(explained.status, 0, "{name}: {explained:?}");
    let begun = Instant::now();
    let ran = shardc(&["verify-certificate", out]);
    let seconds = begun.elapsed().as_secs_f64();
    let layers = layers(&ran.out);
    let is_proven = layers.iter().all(|(_, status, _)| *status == "proven");
    assert_eq!((ran.status, ran.err.as_str()), (i32::from(!is_proven), ""), "{name}: {ran:?}");
    let bytes = std::fs::metadata(out).expect("written").len();
    assert!(bytes <= MOST_BYTES, "{name}: {bytes} bytes");
    std::fs::remove_file(out).expect("a file");
    let names: Vec<&str> = layers.iter().map(|(name, _, _)| name.as_str()).collect();
    let said =
        layers.iter().filter(|(_, status, _)| *status != "proven").map(|(_, status, why)| {
            if why.is_empty() { status.to_string() } else { format!("{status}: {why}") }
        });
    let said: Vec<String> = said.collect();
    let said = if said.is_empty() { "proven".to_string() } else { said.join("; ") };
    (format!("| `{name}` | {} | {said} |", names.join(", ")), format!("{bytes} | {seconds:.2}"))
}

#[test]
fn the_certificate_of_every_example_says_what_the_page_says() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .canonicalize()
        .expect("the repository");
    let mut all = Vec::new();
    examples(&root.join("examples"), &mut all);
    all.sort();
    let row_of = |path: &PathBuf| {
        let name =
            path.strip_prefix(root.join("examples")).expect("an example").display().to_string();
        row(path, &name)
    };
    let rows: Vec<_> = all.par_iter().with_max_len(1).map(row_of).collect();
    let mut table =
        "| example | layers | by prices | bytes | seconds |\n|---|---|---|---|---|\n".to_string();
    for (held, measured) in &rows {
        let _ = writeln!(table, "{held} {measured} |");
    }
    let page = root.join("spec/certificate.md");
    let text = std::fs::read_to_string(&page).expect("a page");
    let (before, rest) = text.split_once(BEGIN).expect("where the table begins");
    let (now, after) = rest.split_once(END).expect("where the table ends");
    if std::env::var_os("SHARDC_UPDATE").is_some() {
        std::fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
        return;
    }
    let said: Vec<&str> = now.lines().skip(2).collect();
    assert_eq!(said.len(), rows.len(), "every example stands in the table, once");
    for (said, (row, _)) in said.iter().zip(&rows) {
        assert!(said.starts_with(row.as_str()), "the page says `{said}`, and it is `{row}`");
    }
}
