//! The factors of the calibrated chip: least squares of the relative errors over Table D.2.
//!
//! The fit is a descent along one factor at a time, with steps that are halved where none helps. It uses nothing but sums,
//! products and quotients of doubles in a fixed order, so that it ends at the same factors everywhere.

use shard_cost::Hardware;

use super::System;
use super::paper::TABLE_D2;

/// What a chip reaches of its peaks, and what a layer takes beside its kernels and moves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factors {
    /// Of the peak of its arithmetic.
    pub matmul: f64,
    /// Of the bandwidth of its memory.
    pub hbm: f64,
    /// Of all its links together: a collective over one of three torus axes has a third of them.
    pub network: f64,
    /// Seconds in each layer.
    pub layer: f64,
}

impl Factors {
    /// A chip at its peaks.
    pub const PEAK: Factors = Factors { matmul: 1.0, hbm: 1.0, network: 1.0, layer: 0.0 };

    /// The hardware file with these factors.
    pub fn file(&self) -> String {
        format!(
            r#"# TPU v4 as "Efficiently Scaling Transformer Inference" measured it: the built-in `tpu-v4-flat` with what its
# systems reached. The four factors are fitted on the paper's Table D.2 alone, by
#     cargo run -p shard-snapshots --bin fidelity -- --fit
# and spec/fidelity.md shows what they predict elsewhere.
name = "tpu-v4-measured"
source = "ESTI section 4, appendix A.1; fitted on Table D.2"

[chip]
flops = {{ bf16 = 275e12, int8 = 275e12 }}
hbm_bytes = 34359738368
hbm_bandwidth = 1.2e12

[network]
kind = "flat"
bandwidth = 270e9 # six links; most collectives run over one or two of the three torus axes, and reach a part
latency = 0.0

[efficiency]
matmul = {:.3}
hbm = {:.3}
network = {:.3}

[overhead]
layer = {:.1}e-6 # launches, small operations, waiting: about half of a decode step of few sequences
"#,
            self.matmul,
            self.hbm,
            self.network,
            self.layer * 1e6
        )
    }

    /// The chip with these factors.
    pub fn hardware(&self) -> Hardware {
        Hardware::parse(&self.file()).expect("a hardware file of our own")
    }

    fn with(mut self, which: usize, change: f64) -> Factors {
        match which {
            0 => self.matmul += change,
            1 => self.hbm += change,
            2 => self.network += change,
            _ => self.layer += change * LAYER_SCALE,
        }
        self
    }

    fn is_physical(&self) -> bool {
        let is_part = |x: f64| x > 0.0 && x < 1.0;
        is_part(self.matmul) && is_part(self.hbm) && is_part(self.network) && self.layer >= 0.0
    }
}

/// Seconds of overhead that one step of the descent of size 1 stands for.
const LAYER_SCALE: f64 = 1e-3;

/// The systems of Table D.2, in the paper's own layouts.
#[derive(Clone, Debug)]
pub struct TableD2 {
    rows: Vec<Systems>,
}

#[derive(Clone, Debug)]
struct Systems {
    palm_prefill: System,
    palm_generate: System,
    mt_nlg_prefill: System,
    mt_nlg_generate: System,
}

/// A figure of the table: its column, its batch, what was measured and what is predicted, in milliseconds.
pub type Point = (&'static str, u64, f64, f64);

impl TableD2 {
    /// Lowers all of them, or those of some batches.
    pub fn lower(wanted: impl Fn(u64) -> bool) -> TableD2 {
        let hardware = Factors::PEAK.hardware();
        let system = |file, batch: u64, length, positions| {
            let batch = batch.to_string();
            System::lower(file, &[("B", &batch), ("L", length), ("S", positions)], None, &hardware)
        };
        let (palm, mt_nlg) = ("examples/calibration/palm_540b_2d.shard", "examples/calibration/mt_nlg_530b_2d.shard");
        let rows = TABLE_D2.iter().map(|row| row.batch).filter(|batch| wanted(*batch));
        let systems = rows.map(|batch| Systems {
            palm_prefill: system(palm, batch, "20", "20"),
            palm_generate: system(palm, batch, "1", "28"),
            mt_nlg_prefill: system(mt_nlg, batch, "20", "20"),
            mt_nlg_generate: system(mt_nlg, batch, "1", "28"),
        });
        TableD2 { rows: systems.collect() }
    }

    /// The table's figures beside what a chip takes; of all batches.
    pub fn points(&self, hardware: &Hardware) -> Vec<Point> {
        let mut points = Vec::new();
        for (row, systems) in TABLE_D2.iter().zip(&self.rows) {
            let ms = |system: &System, steps: f64| system.step(hardware) * 1e3 * steps;
            let mt_nlg = ms(&systems.mt_nlg_prefill, 1.0) + ms(&systems.mt_nlg_generate, 8.0);
            points.push(("PaLM prefill", row.batch, row.palm_prefill, ms(&systems.palm_prefill, 1.0)));
            points.push(("PaLM generate", row.batch, row.palm_generate, ms(&systems.palm_generate, 8.0)));
            points.push(("MT-NLG total", row.batch, row.mt_nlg_total, mt_nlg));
        }
        points
    }

    fn error(&self, factors: &Factors) -> f64 {
        let relative = |(_, _, measured, predicted): &Point| (predicted / measured - 1.0) * (predicted / measured - 1.0);
        self.points(&factors.hardware()).iter().map(relative).sum()
    }
}

/// The factors with the least squares over the table, to the digits that the file has.
pub fn fit(table: &TableD2) -> Factors {
    let mut factors = Factors { matmul: 0.8, hbm: 0.8, network: 0.5, layer: 1e-4 };
    let mut error = table.error(&factors);
    let mut step = 0.1;
    while step > 2e-4 {
        let tried = (0..4).flat_map(|which| [(which, step), (which, -step)]);
        let candidates = tried.map(|(which, change)| factors.with(which, change)).filter(Factors::is_physical);
        let mut best: Option<(f64, Factors)> = None;
        for candidate in candidates {
            let its = table.error(&candidate);
            if its < best.map_or(error, |(error, _)| error) {
                best = Some((its, candidate));
            }
        }
        match best {
            Some((its, better)) => (error, factors) = (its, better),
            None => step /= 2.0,
        }
    }
    factors
}
