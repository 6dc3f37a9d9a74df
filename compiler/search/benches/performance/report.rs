//! The figures as tables, for the terminal and for `spec/performance.md`.

use std::fmt::Write;
use std::process::Command;

use crate::measure::Measured;
use crate::plot::curves;
use crate::whole_process::Process;

/// The head of the table.
pub(crate) const HEAD: &str = "\
| program | ops | axes | layouts | strategies | moves | e-classes | e-nodes | expanded | proof | time ms | mark ms | time / mark | on CPU ms | first run ms | peak MB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// The most memory a case on up to four axes should hold, in MB.
const MEMORY_MARK: f64 = 100.0;

/// `shardc explain` should take no more than so many times the search in a process of its own, and
/// so many milliseconds.
const PROCESS_MARK: f64 = 1.5;
const START: f64 = 2.0;

/// What a process may take, in milliseconds.
fn process_mark(process: &Process) -> f64 {
    process.fresh * PROCESS_MARK + START
}

/// A line of the table.
pub(crate) fn row(measured: &Measured<'_>) -> String {
    let case = measured.case;
    let f = match &measured.figures {
        Ok(figures) => figures,
        Err(why) => return format!("| `{}` | **failed**: {} |", case.name, why.replace('|', " ")),
    };
    let proof = ["bounded", "search", "certificate"][f.proof.min(2) as usize];
    let time = f.milliseconds();
    let (mark, ratio) = match case.mark {
        Some(mark) => (format!("{mark}"), verdict(time / mark, 1.0)),
        None => ("-".into(), "-".into()),
    };
    let peak = megabytes(f.peak);
    let over = if meets_memory_mark(measured) == Some(false) { " **over**" } else { "" };
    format!(
        "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {proof} | {time:.2} | {mark} | {ratio} \
            | {:.2} | {:.2} | {peak:.1}{over} |",
        case.name,
        f.ops,
        case.axes,
        count(f.layouts),
        count(f.strategies),
        count(f.moves),
        count(f.classes),
        count(f.nodes),
        f.expansions,
        f.on_cpu as f64 / 1e6,
        f.first as f64 / 1e6,
    )
}

/// KiB, as the kernel counts them, in MB.
fn megabytes(peak: u64) -> f64 {
    peak as f64 * 1.024e-3
}

/// Whether a case on up to four axes held no more than its mark.
fn meets_memory_mark(measured: &Measured<'_>) -> Option<bool> {
    let peak = measured.figures.as_ref().ok().map(|f| megabytes(f.peak));
    (measured.case.axes <= 4).then(|| peak.is_some_and(|peak| peak <= MEMORY_MARK))
}

/// `16 of 17 marks of time`: how many of some marks are met.
fn met(marks: impl Iterator<Item = bool>, of: &str) -> String {
    let marks: Vec<bool> = marks.collect();
    format!("{} of {} marks of {of}", marks.iter().filter(|met| **met).count(), marks.len())
}

fn verdict(ratio: f64, mark: f64) -> String {
    if ratio <= mark { format!("{ratio:.2} met") } else { format!("{ratio:.2} **missed**") }
}

/// Three digits: `37.2k`.
fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.2}M", n as f64 / 1e6),
    }
}

/// The table of whole processes.
pub(crate) fn processes(processes: &[Process]) -> String {
    if processes.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n| program | `shardc explain` ms | mark ms | time / mark | `shardc --version` ms | search, \
            first run ms | search ms |\n|---|---|---|---|---|---|---|\n",
    );
    for p in processes {
        let mark = process_mark(p);
        let met = verdict(p.explain / mark, 1.0);
        let _ = writeln!(
            text,
            "| `{}` | {:.2} | {mark:.2} | {met} | {:.2} | {:.2} | {:.2} |",
            p.name, p.explain, p.start, p.fresh, p.warm
        );
    }
    text
}

/// `spec/performance.md`.
pub(crate) fn page(measured: &[Measured<'_>], whole: &[Process]) -> String {
    let rows: String = measured.iter().map(|m| row(m) + "\n").collect();
    let met = [
        met(measured.iter().filter_map(Measured::meets_mark), "the time of a search"),
        met(measured.iter().filter_map(meets_memory_mark), "its memory"),
        met(whole.iter().map(|p| p.explain <= process_mark(p)), "the time of a whole process"),
    ];
    format!(
        "\
# Performance of the search

Written by `cargo bench -p shard-search -- --write`; not by hand. Met are {met}.

{machine}

## The programs

Each case is a program text: `cargo bench -p shard-search -- --source NAME` prints it, and `shardc explain -` takes it. The
files are in `compiler/search/benches/programs/`. All are bf16 on 64 chips of `tpu-v4-flat`.

* `feed_forward`: E=18432, F=4E, 64 tokens.
* `palm`: one PaLM 540B block with attention and feed-forward side by side, one key and value head, 64 sequences, 2048
  cached positions. Decode is 1 token a sequence, prefill 2048.
* `llama`: one Llama 70B block, 8 groups of 8 heads, SwiGLU; the rotary embeddings of q and k are ops of their own.
* `chain_N`: N einsums one after another.
* `NAME_stack_N`: N blocks one on another, each with its own feed-forward width and number of cached positions; the layouts
  between them are free.
* `NAME_4_axes`, `NAME_5_axes`: the same 64 chips as 4x4x2x2 and 4x2x2x2x2 (1 axis: 64; 2 axes: 4x16), the weights split over
  as many chips as before.
* `feed_forward_N_dims`: activations of N dims, each of the batch dims 64.
* `latent_N`: N blocks of latent attention with weights and caches open, each of which has several forms.
* `labelled_calls_N`: N calls of a Llama block whose input and output have one layout, `?l`, in each call; weights open.
* `three_labels_4_axes`: one such block on 4x4x2x2, with a label on the activation and on each of its caches.
* `mismatched_N`: one value read by N einsums, with weights of eight layouts in turn.

## Time and memory

*Layouts*, *strategies* and *moves* count the whole plan space (one op a kernel), from the rules: what saturation would build if
nothing were bounded. *E-classes* and *e-nodes* are what the search built, in all its regions; *expanded* are states of the
extraction. *Time* is the fastest of several runs of `shard_search::lower` in one process on one core: kernels, bounds, e-graph,
extraction, proof, plan. *On CPU* is what a run was on the processor on average: where the time is longer, other work had the
core. *First run* is the first of that process, with cold caches and an empty heap. *Peak* is the process's `VmHWM` after it. The
mark for memory is {MEMORY_MARK} MB up to 4 axes.

For comparison, as measured elsewhere: on such blocks XLA's partitioner, which proves nothing, takes 2.4 to 7.9 ms (Shardy) or
0.2 to 2.6 ms (GSPMD), and on 32 different PaLM blocks 67 ms or 37 ms.

{HEAD}
{rows}
## How time grows

Bars are logarithmic, from 0.1 ms to 100 s.

```text
{curves}```

## A whole process

`shardc explain FILE`, from start to exit with all warnings and alternatives, the fastest of at least 20 runs; the mark is {PROCESS_MARK} times the
search as it is in a process of its own, with cold caches, and {START} ms.
{processes}",
        met = met.join(", "),
        machine = machine(),
        curves = curves(measured),
        processes = processes(whole),
    )
}

/// What the figures were taken on.
fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok();
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
    };
    let changed = !git(&["status", "--porcelain", "--untracked-files=no", "--", "*.rs"]).is_empty();
    format!(
        "Commit {}{}. Machine: {}, {} cores; load average {} at the end. One thread, release \
            build.",
        git(&["rev-parse", "--short", "HEAD"]),
        if changed { ", with changes" } else { "" },
        model.trim_start_matches([' ', '\t', ':']).trim(),
        cpus.lines().filter(|l| l.starts_with("processor")).count(),
        load.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}
