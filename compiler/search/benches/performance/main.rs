//! What the search takes: time and peak memory of each program, beside the mark that it should stay
//! under.
//!
//! ```sh
//! cargo bench -p shard-search                    # every case but the slow ones
//! cargo bench -p shard-search -- palm chain      # those whose name has one of these words, slow ones too
//! cargo bench -p shard-search -- --all           # every case
//! cargo bench -p shard-search -- --write         # every case, and the result into spec/performance.md
//! cargo bench -p shard-search -- --source NAME   # the text of a case, for `shardc explain -`
//! ```
//!
//! Each case runs in a process of its own, on one thread, several times; the fastest run counts,
//! since the others were disturbed. The peak memory is that of the process after its first run.

mod cases;
mod measure;
mod open;
mod plan_space;
mod plot;
mod report;
mod whole_process;

use std::process::ExitCode;

use cases::{Case, cases};
use measure::{Measured, measure, measure_here};
use whole_process::explain_as_a_process;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let after = |flag: &str| args.iter().position(|a| a == flag).and_then(|at| args.get(at + 1));
    let all = cases();
    let named = |name: &String| all.iter().find(|c| c.name == *name);
    if let Some(case) = after("--measure-here").and_then(named) {
        print!("{}", measure_here(case).to_text());
    } else if let Some(case) = after("--source").and_then(named) {
        print!("{}", case.text);
    } else if has("--bench") {
        let words: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
        let everything = has("--all") || has("--write");
        let is_wanted = |case: &&Case| {
            if words.is_empty() {
                everything || !case.slow
            } else {
                words.iter().any(|w| case.name.contains(*w))
            }
        };
        let measured = measure_each(all.iter().filter(is_wanted));
        let processes = if words.is_empty() { explain_as_a_process(&measured) } else { Vec::new() };
        print!("{}", report::processes(&processes));
        if has("--write") {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/performance.md");
            // Sections that other benchmarks write begin with a marker each, and stand behind this
            // one's text.
            let known = std::fs::read_to_string(path).unwrap_or_default();
            let others =
                known.find("<!-- ").map_or(String::new(), |at| format!("\n{}", &known[at..]));
            if let Err(error) = std::fs::write(path, report::page(&measured, &processes) + &others)
            {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    } else if !args.is_empty() && !has("--test") {
        eprintln!("no such case: {args:?}");
        return ExitCode::FAILURE;
    }
    // Without `--bench` it is `cargo test` that calls, and there is nothing to test.
    ExitCode::SUCCESS
}

/// Measures and prints, a line at a time. A case that fails has a reason in place of figures.
fn measure_each<'a>(cases: impl Iterator<Item = &'a Case>) -> Vec<Measured<'a>> {
    println!("{}", report::HEAD);
    cases
        .map(|case| {
            let measured = Measured { case, figures: measure(case) };
            println!("{}", report::row(&measured));
            measured
        })
        .collect()
}
