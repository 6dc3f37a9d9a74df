//! The dumps that the tests read.

#![allow(dead_code, unreachable_pub)] // not every test file needs every part

use std::path::{Path, PathBuf};

use serde_json::Value;

/// One compiled program.
#[derive(Debug)]
pub struct Build {
    /// Folder and file, for messages.
    pub name: String,
    /// The text of the dump.
    pub text: String,
    /// What was counted in it.
    pub counts: Value,
    /// The mesh of the program.
    pub mesh: Vec<(String, u64)>,
}

/// The dumps of this repository.
pub fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps")
}

/// The dumps beside the repository, if they are there.
pub fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["../../../shared/hlo", "../../../../shared/hlo"]
        .map(|path| root.join(path))
        .into_iter()
        .find(|path| path.is_dir())
}

/// The folders of programs.
pub fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).expect("a folder of dumps");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("counts.json").is_file())
        .collect();
    folders.sort();
    folders
}

pub fn counts(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("counts.json")).expect("counts");
    serde_json::from_str(&text).expect("JSON")
}

pub fn mesh(counts: &Value) -> Vec<(String, u64)> {
    let axis = |axis: &Value| {
        (axis[0].as_str().expect("a name").to_string(), axis[1].as_u64().expect("a size"))
    };
    counts["mesh"].as_array().expect("a mesh").iter().map(axis).collect()
}

/// Every dump under a folder that was counted and is there.
pub fn builds(of: &Path) -> Vec<Build> {
    let mut found = Vec::new();
    for folder in folders(of) {
        let all = counts(&folder);
        for (build, counts) in all["builds"].as_object().expect("builds") {
            let path = folder.join(counts["file"].as_str().expect("a file"));
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let program = folder.file_name().expect("a name").to_string_lossy();
            let name = format!("{program}/{build}");
            found.push(Build { name, text, counts: counts.clone(), mesh: mesh(&all) });
        }
    }
    found
}
