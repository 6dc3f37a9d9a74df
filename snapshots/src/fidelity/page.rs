//! `spec/fidelity.md`.

use std::fmt::Write;

use shard_cost::Hardware;
use shard_report::strategy::strategy;

use super::fit::{Point, TableD2};
use super::paper::TABLE_2;
use super::{CALIBRATED, System};
use crate::files::{read, root};

const BF16: &str = "examples/calibration/palm_540b_2d.shard";
const INT8: &str = "examples/calibration/palm_540b_2d_int8.shard";

/// The whole page.
pub fn page() -> String {
    let chip = Hardware::parse(&read(&root().join(CALIBRATED))).expect("the calibrated chip");
    let mut page = HEAD.to_string();
    page.push_str(&table_2(&chip));
    page.push_str(&quoted(&chip));
    page.push_str(&table_d2(&TableD2::lower(|_| true).points(&chip)));
    page
}

const HEAD: &str = "# Fidelity

The paper \"Efficiently Scaling Transformer Inference\" (ESTI) measured systems. This page compares its figures with those
that the cost model predicts. `cargo run -p shard-snapshots --bin fidelity -- --write` writes the page.

The chip is [`examples/calibration/tpu_v4_measured.toml`](../examples/calibration/tpu_v4_measured.toml): a TPU v4 with
four factors, of which three are for a resource each and one is a fixed time for each layer. The factors were fitted to
Table D.2 alone, by least squares of the relative errors (`-- --fit` fits them again). Nothing else was fitted.

* `matmul` and `hbm` say which part of the chip's peaks large products and reads of weights reach.
* `network` says which part of the bandwidth of the network is reached. ESTI counts all six links of a chip, 270 GB/s. A
  collective over one of the three torus axes uses two of the links, and one over two axes uses four. So it can reach
  a third or two thirds at most.
* `overhead.layer` is the time that a layer takes even with very little work. A decode step of few sequences spends about
  half of its time there. No plan can change this time, so it does not affect the choice of a plan.

The time of a step is the sum of the times of its kernels, its moves and the overhead. The paper hides some moves behind
arithmetic (its looped CollectiveEinsum). The model does not have such loops here; the factors contain what they save.

The plans of Table D.2 and in the column \"as in the paper\" have the layouts of the paper, which are pinned in
`examples/calibration/*.shard`. The programs leave out the embedding, which has 4.7 of the 540 billion parameters of PaLM.
So a utilisation is 1 % lower than the paper would compute from the same time.

";

fn error(measured: f64, predicted: f64) -> String {
    format!("{:+.1} %", (predicted / measured - 1.0) * 100.0)
}

/// The median of the absolute values of some errors, in percent.
fn median(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut errors: Vec<f64> = pairs.map(|(m, p)| (p / m - 1.0).abs() * 100.0).collect();
    errors.sort_by(f64::total_cmp);
    match errors.len() {
        0 => 0.0,
        n if n % 2 == 1 => errors[n / 2],
        n => (errors[n / 2 - 1] + errors[n / 2]) / 2.0,
    }
}

fn table_2(chip: &Hardware) -> String {
    let mut text = String::from(
        "## Table 2: PaLM 540B on 64 chips

| | layouts | latency, paper | as in the paper | error | MFU, paper | MFU | the compiler's own plan | takes |
|---|---|---|---|---|---|---|---|---|
",
    );
    let mut pairs = Vec::new();
    for column in &TABLE_2 {
        let pinned = System::lower(column.paper.0, column.paper.1, None, chip);
        let open = System::lower(column.open.0, &[], Some(column.open.1), chip);
        let (latency, own) =
            (pinned.step(chip) * column.steps as f64, open.step(chip) * column.steps as f64);
        let names: Vec<&str> = strategy(open.plan()).iter().map(|s| s.name()).collect();
        writeln!(
            text,
            "| {} | {} | {:.2} s | {latency:.2} s | {} | {:.0} % | {:.0} % | {} | {own:.2} s |",
            column.name,
            column.form,
            column.latency,
            error(column.latency, latency),
            column.mfu * 100.0,
            pinned.mfu(chip) * 100.0,
            names.join(", "),
        )
        .ok();
        pairs.push((column.latency, latency));
    }
    writeln!(text, "\nMedian error of the latencies: {:.1} %.\n", median(pairs.into_iter())).ok();
    text
}

fn quoted(chip: &Hardware) -> String {
    let step = |file: &str, batch: &str, length: &str, positions: &str| {
        System::lower(file, &[("B", batch), ("L", length), ("S", positions)], None, chip).step(chip)
    };
    let (int8, bf16) = (step(INT8, "64", "1", "2048"), step(BF16, "64", "1", "2048"));
    let large = step(BF16, "512", "1", "2048");
    let chat = step(INT8, "1", "64", "1984") + 64.0 * int8;
    let prompts = System::lower(
        "examples/calibration/palm_540b_xyz.shard",
        &[("L", "1984"), ("S", "1984")],
        None,
        chip,
    );
    let prefill = prompts.step(chip);
    let offline = prompts.mfu(chip) * prefill / (prefill + 64.0 * large) * 2048.0 / 1984.0;
    let open = |file: &str, phase| System::lower(file, &[], phase, chip).step(chip);
    let serial = open("examples/palm/540b_serial.shard", None)
        / open("examples/palm/540b.shard", Some("decode"));
    let share =
        |batch, positions| 1.0 - step(BF16, batch, "1", "64") / step(BF16, batch, "1", positions);
    type Row = (&'static str, &'static str, f64, f64, fn(f64) -> String);
    let rows: [Row; 8] = [
        ("decode step, int8 weights, batch 64", "4.4", 0.0285, int8, ms),
        ("decode step, bf16 weights, batch 64", "4.4", 0.0369, bf16, ms),
        ("a turn of a chat: 64 tokens read after 1920, 64 written, int8", "1", 1.9, chat, |s| {
            format!("{s:.2} s")
        }),
        ("utilisation, 1984 tokens read and 64 written, batch 512", "1", 0.73, offline, percent),
        (
            "decode step of batch 512, of the lowest (int8, batch 64)",
            "4.4",
            3.0,
            large / int8,
            times,
        ),
        ("decode step with serial blocks, of that with parallel ones", "4.3", 1.14, serial, times),
        (
            "attention's share of a step, batch 512, 8192 positions",
            "4.2",
            0.08,
            share("512", "8192"),
            percent,
        ),
        (
            "attention's share of a step, batch 128, 32768 positions",
            "4.2",
            0.31,
            share("128", "32768"),
            percent,
        ),
    ];
    let mut text = String::from(
        "## Figures that the text quotes

| | section | paper | predicted | error |
|---|---|---|---|---|
",
    );
    for (what, section, measured, predicted, show) in &rows {
        let (paper, ours) = (show(*measured), show(*predicted));
        writeln!(
            text,
            "| {what} | {section} | {paper} | {ours} | {} |",
            error(*measured, *predicted)
        )
        .ok();
    }
    text.push_str(
        "\nThe paper gives two shares of attention, both of a model with 8 layers; the predicted shares lie between them. The cache
has the same bytes in both. The predicted utilisation is too low for the same reason as that of the high-throughput
prefill in Table 2: the paper hides most of the gathers of weights behind the products, and the model does not.\n\n",
    );
    text
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2} x")
}

fn table_d2(points: &[Point]) -> String {
    let mut text = String::from(
        "## Table D.2: what the factors were fitted on

20 tokens in, 8 out, in milliseconds.

| batch | PaLM prefill | | | PaLM generate | | | MT-NLG total | | |
|---|---|---|---|---|---|---|---|---|---|
",
    );
    for row in points.chunks(3) {
        write!(text, "| {} |", row[0].1).ok();
        for (_, _, measured, predicted) in row {
            write!(text, " {measured:.0} | {predicted:.0} | {} |", error(*measured, *predicted))
                .ok();
        }
        text.push('\n');
    }
    for column in ["PaLM prefill", "PaLM generate", "MT-NLG total"] {
        let of_column = points.iter().filter(|p| p.0 == column).map(|p| (p.2, p.3));
        writeln!(text, "\nMedian error, {column}: {:.1} %.", median(of_column)).ok();
    }
    text.push_str(
        "\nMT-NLG is predicted up to a sixth too fast at small batches. Its blocks are serial: each has two halves, and the second
waits for the first. The model has one overhead for each layer, whatever the layer contains. A second factor for
halves would correct the column, but it would be fitted to this column alone.\n",
    );
    text
}
