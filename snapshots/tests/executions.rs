//! Schedules that are executed, stream by stream and at their addresses, in checking mode: what
//! random programs compute, what they hold, and that a spoilt one is found out.

#![allow(missing_docs)]

use shard_cost::{Hardware, price};
use shard_ir::{Execution, Plan, text};
use shard_runtime::{Report, RunError, RunOptions, run_on_streams};
use shard_schedule::overlap;
use shard_schedule::overlap::{executable, verify_execution};
use shard_snapshots::judge;
use shard_snapshots::random_programs::{LoweredPhase, generate, lowered, refused};

fn chips() -> [Hardware; 3] {
    ["tpu-v4-flat", "tpu-v5e", "h100"].map(|name| {
        let mut chip = Hardware::built_in(name).expect("built in");
        chip.host_rate = Some(15_000_000_000);
        chip
    })
}

/// The schedules of a plan on a chip: that of a layer, and that of a stack where there is one.
fn executions(plan: &Plan, chip: &Hardware) -> Vec<Execution> {
    let price = price(plan, chip);
    let timeline = overlap(plan, &price, chip);
    let stack = timeline.stack.as_deref();
    let all = [Some(&timeline), stack].into_iter().flatten();
    all.filter_map(|timeline| executable(plan, &price, timeline, 3)).map(|e| e.execution).collect()
}

fn run(execution: &Execution, seed: u64) -> Result<Report, RunError> {
    let options = RunOptions { seed, ..RunOptions::default() };
    run_on_streams(&execution.plan, execution, &options)
}

/// What holds of every schedule that is executed.
fn is_right(execution: &Execution, chip: &Hardware, seed: u64) -> Result<(), String> {
    if let Err(error) = verify_execution(execution) {
        return Err(format!("{error}\n{execution:#?}\n{}", text::print(&execution.plan)));
    }
    let report = match run(execution, seed) {
        Ok(report) => report,
        Err(error) => {
            return Err(format!("{error}\n{execution:#?}\n{}", text::print(&execution.plan)));
        }
    };
    let plan = text::print(&execution.plan);
    if !report.equal {
        return Err(format!("it differs by {:e}\n{plan}", report.max_abs_err));
    }
    if report.peak_bytes != execution.peak_bytes {
        let (held, said) = (report.peak_bytes, execution.peak_bytes);
        return Err(format!("{held} bytes are held, and the schedule says {said}\n{plan}"));
    }
    if execution.extent() * 100 > execution.peak_bytes * 105 {
        let (extent, peak) = (execution.extent(), execution.peak_bytes);
        return Err(format!("{extent} bytes of addresses for {peak} that are live\n{plan}"));
    }
    let price = price(&execution.plan, chip);
    for sent in &report.collectives {
        let said = price.of(sent.id).collective().map(|cost| cost.wire_bytes.0);
        if said != Some(sent.wire_bytes) {
            return Err(format!(
                "%{} sent {} bytes, not {said:?}\n{plan}",
                sent.id.0, sent.wire_bytes
            ));
        }
    }
    Ok(())
}

/// All schedules of the random program of a seed.
fn of_seed(seed: u64, mut each: impl FnMut(&Execution, &Hardware)) {
    let checked = judge::check(&generate(seed));
    if refused(&checked).unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
        return;
    }
    let phases =
        lowered(&checked, !seed.is_multiple_of(2)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for LoweredPhase { plan, .. } in phases {
        let [first, second, third] = chips();
        let chip = [first, second, third][(seed % 3) as usize].clone();
        let stacked = Plan { repeat: [1, 3, 11][(seed / 3 % 3) as usize], ..plan.clone() };
        let stacked = if plan.folds.is_empty() { stacked } else { plan };
        executions(&stacked, &chip).iter().for_each(|execution| each(execution, &chip));
    }
}

fn random_schedules_are_right(seeds: std::ops::Range<u64>) {
    let mut failures: Vec<String> = Vec::new();
    let mut count = 0;
    for seed in seeds {
        of_seed(seed, |execution, chip| {
            count += 1;
            if let Err(problem) = is_right(execution, chip, seed) {
                failures.push(format!("seed {seed} on {}: {problem}", chip.name));
            }
        });
    }
    eprintln!("{count} schedules");
    failures.sort_by_key(String::len);
    let first = |text: &String| text.lines().next().unwrap_or_default().to_string();
    let all: Vec<String> = failures.iter().map(first).take(20).collect();
    assert!(
        failures.is_empty(),
        "{} fail:\n{}\nthe shortest:\n{}",
        failures.len(),
        all.join("\n"),
        failures.first().map_or("", String::as_str)
    );
}

#[test]
fn random_schedules_compute_what_they_say_without_a_race() {
    random_schedules_are_right(0..200);
}

#[test]
#[ignore = "slow: 5,000 random programs"]
fn many_random_schedules_compute_what_they_say_without_a_race() {
    random_schedules_are_right(0..5000);
}
