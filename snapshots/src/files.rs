//! The files of the repository that tests read.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .components()
        .collect::<PathBuf>()
        .parent()
        .expect("a workspace")
        .to_path_buf()
}

/// A right program of `examples`.
#[derive(Clone, Debug)]
pub struct Example {
    /// `feed_forward/2d_weight_stationary`.
    pub name: String,
    /// From the root: `examples/feed_forward/2d_weight_stationary.shard`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Every program of `examples` but those of `examples/errors`, in the order of their names.
pub fn examples() -> Vec<Example> {
    let examples: Vec<Example> =
        all_programs().into_iter().filter(|example| !example.name.starts_with("errors/")).collect();
    assert!(!examples.is_empty(), "no examples found");
    examples
}

/// Every program of `examples`, right and wrong, in the order of their names.
pub fn all_programs() -> Vec<Example> {
    let mut found = Vec::new();
    walk(&root().join("examples"), &mut found);
    let mut examples: Vec<Example> = found
        .into_iter()
        .map(|file| {
            let path = file
                .strip_prefix(root())
                .expect("a file of the repository")
                .to_string_lossy()
                .replace('\\', "/");
            let name = path.trim_start_matches("examples/").trim_end_matches(".shard").to_string();
            Example { name, text: read(&file), path }
        })
        .collect();
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    examples
}

/// The text of a file.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "shard") {
            found.push(path);
        }
    }
}

/// Asserts that a file has this text between two markers; with `SHARDC_UPDATE` set, writes the text
/// there.
///
/// # Panics
///
/// If the file lacks a marker, or has another text between them.
pub fn holds(path: &str, from: &str, to: &str, wanted: &str) {
    let text = read(&root().join(path));
    let start = text.find(from).unwrap_or_else(|| panic!("{path} has no {from}")) + from.len();
    let end = start + text[start..].find(to).unwrap_or_else(|| panic!("{path} has no {to}"));
    if text[start..end] != *wanted && std::env::var_os("SHARDC_UPDATE").is_some() {
        std::fs::write(root().join(path), format!("{}{wanted}{}", &text[..start], &text[end..]))
            .expect("a file of ours");
    } else {
        assert_eq!(&text[start..end], wanted, "{path}: run this test with SHARDC_UPDATE=1");
    }
}

/// All files that end in `.rs`, in a folder and the folders in it.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}
