//! Puts the pages of the diagnostics into the binary, so that no list of them has to be kept beside
//! the folder.
//!
//! `diagnostics` is a symbolic link to the folder in the specification, and a folder in the crate's
//! package. A checkout without symbolic links reads the specification itself.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let own = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let linked = Path::new(&own).join("diagnostics");
    let folder =
        if linked.is_dir() { linked } else { Path::new(&own).join("../../spec/diagnostics") };
    let folder = fs::canonicalize(folder)?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut codes = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        codes.extend(name.strip_suffix(".md").filter(|code| *code != "README").map(str::to_string));
    }
    codes.sort();
    let page = |code: &String| {
        let path = folder.join(format!("{code}.md"));
        format!(
            "    DiagnosticPage {{ code: {code:?}, text: include_str!({:?}) }},\n",
            path.display().to_string()
        )
    };
    let pages: String = codes.iter().map(page).collect();
    fs::write(Path::new(&out).join("pages.rs"), format!("&[\n{pages}]\n"))
}
