//! Schedules that are executed, stream by stream and at their addresses, in checking mode: the
//! results and the memory of random programs, and a test that changed schedules are found to be
//! wrong.

use shard_cost::{Hardware, price};
use shard_ir::{Execution, Picoseconds, Plan, Task, Work, text};
use shard_runtime::{NamedTensor, Random, Report, RunError, RunOptions, run_on_streams};
use shard_schedule::overlap;
use shard_schedule::overlap::{executable, verify_execution, verify_times};
use shard_snapshots::judge;
use shard_snapshots::random_programs::{LoweredPhase, generate, lowered, refused};

fn chips() -> [Hardware; 3] {
    ["tpu-v4-flat", "tpu-v5e", "h100"].map(|name| {
        let mut chip = Hardware::built_in(name).expect("built in");
        chip.host_rate = Some(15_000_000_000);
        chip
    })
}

/// The schedules of a plan on a chip: that of a layer, and that of the stack if there is one.
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

/// The claims about every schedule that is executed.
fn is_right(execution: &Execution, chip: &Hardware, seed: u64) -> Result<(), String> {
    if let Err(error) = verify_execution(execution) {
        return Err(format!("{error}\n{execution:#?}\n{}", text::print(&execution.plan)));
    }
    if let Err(error) = verify_times(execution, chip) {
        return Err(format!("{error}\n{execution:#?}\n{}", text::print(&execution.plan)));
    }
    let report = match run(execution, seed) {
        Ok(report) => report,
        Err(error) => {
            return Err(format!("{error}\n{execution:#?}\n{}", text::print(&execution.plan)));
        }
    };
    let plan = text::print(&execution.plan);
    // A number beyond the largest of its type is infinite, and its product with a zero that a plan
    // adds is NaN, so plans do not keep such numbers.
    let overflows = |tensor: &NamedTensor| tensor.tensor.data.iter().any(|v| v.is_infinite());
    let overflowed = report.max_abs_err.is_infinite() && report.expected.iter().any(overflows);
    if !report.equal && !overflowed {
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

fn random_schedules_are_right(seeds: impl IntoIterator<Item = u64>) {
    let wanted = std::env::var("SHARDC_SEED").ok().map(|text| text.parse().expect("a number"));
    let seeds = wanted.map_or_else(|| seeds.into_iter().collect(), |seed: u64| vec![seed]);
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

/// A layer that runs nothing and returns its parameter; a layer that takes a weight from the host
/// and returns a value on the chip; results in buffers of earlier copies; appends in blocks;
/// buffers whose addresses took 6 % more than the live bytes.
#[test]
fn random_schedules_that_once_were_wrong_are_right() {
    random_schedules_are_right([
        483, 655, 1545, 1718, 2547, 2555, 2986, 2992, 3104, 3544, 3682, 4484, 4527, 4630, 4741,
    ]);
}

#[test]
#[ignore = "slow: 5,000 random programs"]
fn many_random_schedules_compute_what_they_say_without_a_race() {
    random_schedules_are_right(0..5000);
}

/// A change that makes a schedule wrong, with its description; `None` where the schedule has
/// nothing to change in this way.
fn spoilt(execution: &Execution, random: &mut Random) -> Option<(String, Execution)> {
    let mut bad = execution.clone();
    let pick = |random: &mut Random, count: usize| {
        (count > 0).then(|| random.below(count as u64) as usize)
    };
    let tasks = &execution.tasks;
    let waiting: Vec<usize> = (0..tasks.len()).filter(|at| !tasks[*at].waits.is_empty()).collect();
    let allocations = &execution.buffers;
    let what = match random.below(5) {
        0 => {
            // The order of tasks: a wait is left out.
            let at = waiting[pick(random, waiting.len())?];
            let by = pick(random, tasks[at].waits.len())?;
            let of = bad.tasks[at].waits.remove(by);
            format!("task {at} does not wait for task {of}")
        }
        1 => {
            // Two buffers that are held at once, at one address.
            let at = pick(random, allocations.len())?;
            let beside = |other: &usize| {
                let (a, b) = (&allocations[at], &allocations[*other]);
                *other != at && a.from < b.until && b.from < a.until
            };
            let others: Vec<usize> = (0..allocations.len()).filter(beside).collect();
            let other = others[pick(random, others.len())?];
            bad.buffers[at].address = allocations[other].address;
            format!("buffers {at} and {other} lie at one address")
        }
        2 => {
            // An asynchronous transfer is done too early: a task that waits for it starts while it
            // goes on.
            let is_async = |by: &usize| matches!(tasks[*by].work, Work::Transfer | Work::Send(_));
            let early: Vec<(usize, usize)> = waiting
                .iter()
                .flat_map(|at| tasks[*at].waits.iter().map(move |by| (*at, *by)))
                .filter(|(_, by)| is_async(by) && tasks[*by].finish > tasks[*by].start)
                .collect();
            let (at, by) = early[pick(random, early.len())?];
            let takes = tasks[at].finish.0 - tasks[at].start.0;
            bad.tasks[at].start = Picoseconds(tasks[by].finish.0 - 1);
            bad.tasks[at].finish = Picoseconds(bad.tasks[at].start.0 + takes);
            format!("task {at} starts before task {by} is done")
        }
        3 => {
            // A buffer that is freed before it is read for the last time.
            let at = pick(random, allocations.len())?;
            let touches = |task: &&Task| {
                let plan = &execution.plan;
                let read = task.members.iter().flat_map(|id| &plan.instruction(*id).operands);
                let mut all = read.chain(&task.members);
                let id = allocations[at].id;
                !allocations[at].of_loop
                    && all.any(|of| execution.held_by[of.index()] == Some(id))
                    && task.finish > task.start
            };
            let last = tasks.iter().filter(touches).map(|task| task.finish).max()?;
            bad.buffers[at].until = Picoseconds(last.0 - 1);
            format!("buffer {at} is freed too early")
        }
        _ => {
            // A buffer that is too small for its value.
            let at = pick(random, allocations.len())?;
            bad.buffers[at].bytes -= 1;
            format!("buffer {at} is too small")
        }
    };
    Some((what, bad))
}

fn spoilt_schedules_are_found_out(seeds: std::ops::Range<u64>, least: usize) {
    let mut random = Random::new(14);
    let (mut refused_, mut found, mut missed) = (0, 0, Vec::new());
    for seed in seeds {
        of_seed(seed, |execution, _| {
            for _ in 0..4 {
                let Some((what, bad)) = spoilt(execution, &mut random) else { continue };
                if verify_execution(&bad).is_err() {
                    refused_ += 1;
                    continue;
                }
                match run(&bad, seed) {
                    Ok(report) if report.equal && report.peak_bytes == bad.peak_bytes => {
                        let plan = text::print(&bad.plan);
                        missed.push(format!("seed {seed}: {what}\n{bad:#?}\n{plan}"));
                    }
                    Ok(_) | Err(_) => found += 1,
                }
            }
        });
    }
    eprintln!("{refused_} refused, {found} found by running, {} missed", missed.len());
    missed.sort_by_key(String::len);
    assert!(missed.is_empty(), "{} missed, the shortest:\n{}", missed.len(), missed[0]);
    assert!(refused_ >= least && found >= least / 4, "{refused_} refused, {found} found");
}

#[test]
fn spoilt_schedules_are_refused_or_found_by_running() {
    spoilt_schedules_are_found_out(0..150, 200);
}

#[test]
#[ignore = "slow: thousands of spoilt schedules"]
fn thousands_of_spoilt_schedules_are_refused_or_found_by_running() {
    spoilt_schedules_are_found_out(0..1500, 2000);
}
