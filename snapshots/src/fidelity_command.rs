//! `cargo run -p shard-snapshots --bin fidelity`: prints `spec/fidelity.md`. `--fit` prints the
//! calibrated chip, and `--write` writes to the repository.

use shard_snapshots::fidelity::fit::TableD2;
use shard_snapshots::fidelity::{CALIBRATED, PAGE, fit, page};
use shard_snapshots::files::root;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(other) = arguments.iter().find(|a| !["--fit", "--write"].contains(&a.as_str())) {
        eprintln!("unknown argument `{other}`: there are --fit and --write");
        std::process::exit(2);
    }
    let has = |name: &str| arguments.iter().any(|a| a == name);
    let (path, text) = if has("--fit") {
        (CALIBRATED, fit(&TableD2::lower(|_| true)).file())
    } else {
        (PAGE, page())
    };
    if has("--write") {
        std::fs::write(root().join(path), text).expect("the repository can be written")
    } else {
        print!("{text}")
    }
}
