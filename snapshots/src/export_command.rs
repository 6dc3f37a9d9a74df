//! `cargo run -p shard-snapshots --bin random-exports -- COUNT DIR [fuse]`: random programs as
//! modules of JAX, each beside its plan as IR text, for `compiler/export/python/test_exports.py`.

use std::path::Path;

use shard_export::{Exported, Floats, JaxOptions, jax};
use shard_ir::{Plan, text};
use shard_snapshots::judge::check;
use shard_snapshots::random_programs::{LoweredPhase, generate, lowered, refused};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (count, folder, fuse) = match arguments.as_slice() {
        [count, folder] => (count, folder, false),
        [count, folder, fuse] if fuse == "fuse" => (count, folder, true),
        _ => {
            eprintln!("usage: random-exports COUNT DIR [fuse]");
            std::process::exit(2);
        }
    };
    let count: usize = count.parse().expect("a count");
    std::fs::create_dir_all(folder).expect("the folder can be made");
    let made = (0..).filter(|seed| write(*seed, Path::new(folder), fuse)).take(count).count();
    println!("{made} programs in {folder}");
}

/// Writes the program of a seed, unless the checker refuses it.
fn write(seed: u64, folder: &Path, fuse: bool) -> bool {
    let checked = check(&generate(seed));
    let failed = |problem: String| -> ! { panic!("seed {seed}: {problem}") };
    if refused(&checked).unwrap_or_else(|problem| failed(problem)) {
        return false;
    }
    let phases = lowered(&checked, fuse).unwrap_or_else(|problem| failed(problem));
    let sources: Vec<Plan> =
        phases.iter().map(|LoweredPhase { program, .. }| Plan::unsharded(program)).collect();
    let layers: Vec<Exported<'_>> = phases
        .iter()
        .zip(&sources)
        .map(|(phase, source)| Exported { plan: &phase.plan, source: Some(source) })
        .collect();
    let options = JaxOptions { floats: Floats::F64, ..JaxOptions::default() };
    let origin = format!("The random program of seed {seed}.");
    let module = jax(&layers, &origin, options).unwrap_or_else(|error| failed(error.to_string()));
    let plans: Vec<Plan> = phases.iter().map(|phase| phase.plan.clone()).collect();
    for (extension, content) in [("py", module), ("shir", text::print_all(&plans))] {
        std::fs::write(folder.join(format!("seed_{seed:05}.{extension}")), content)
            .expect("the folder can be written");
    }
    true
}
