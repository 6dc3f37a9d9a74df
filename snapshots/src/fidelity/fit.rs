//! The factors of the calibrated chip: least squares of the relative errors over Table D.2.
//!
//! A step's time is piecewise linear in the inverses of the three factors and in the overhead (a
//! kernel takes the longer of two times). So the fit is the Gauss-Newton method: it solves the
//! linear problem at the current point, and goes to the solution or half of the way. It uses only
//! sums, products and quotients of doubles in a fixed order, so that it ends at the same factors on
//! every machine.

use shard_cost::Hardware;

use super::System;
use super::paper::TABLE_D2;

/// The fractions of its peaks that a chip reaches, and the time of a layer beside its kernels and
/// moves.
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

    /// The hardware file with these factors, to three digits.
    pub fn file(&self) -> String {
        self.text(3)
    }

    fn text(&self, digits: usize) -> String {
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
matmul = {:.digits$}
hbm = {:.digits$}
network = {:.digits$}

[overhead]
layer = {:.digits$}e-6 # launches, small operations, waiting: about half of a decode step of few sequences
"#,
            self.matmul,
            self.hbm,
            self.network,
            self.layer * 1e6
        )
    }

    /// The chip with these factors.
    pub fn hardware(&self) -> Hardware {
        Hardware::parse(&self.text(12)).expect("a hardware file of our own")
    }

    /// The parameters in which the times are piecewise linear; each is about 1.
    fn parameters(&self) -> [f64; 4] {
        [1.0 / self.matmul, 1.0 / self.hbm, 1.0 / self.network, self.layer / LAYER_SCALE]
    }

    /// The physical factors nearest to these parameters: every one is at most `MOST` of a peak.
    fn of(parameters: [f64; 4]) -> Factors {
        let [matmul, hbm, network, layer] = parameters;
        let part = |inverse: f64| 1.0 / inverse.max(1.0 / MOST);
        Factors {
            matmul: part(matmul),
            hbm: part(hbm),
            network: part(network),
            layer: layer.max(0.0) * LAYER_SCALE,
        }
    }
}

/// The overhead that is a parameter of 1, in seconds.
const LAYER_SCALE: f64 = 1e-4;

/// The largest fraction of a peak that a factor may be.
const MOST: f64 = 0.99;

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

/// A figure of the table: its column, its batch, what was measured and what is predicted, in
/// milliseconds.
pub type Point = (&'static str, u64, f64, f64);

impl TableD2 {
    /// Lowers all of them, or those of some batches.
    pub fn lower(wanted: impl Fn(u64) -> bool) -> TableD2 {
        let hardware = Factors::PEAK.hardware();
        let system = |file, batch: u64, length, positions| {
            let batch = batch.to_string();
            System::lower(file, &[("B", &batch), ("L", length), ("S", positions)], None, &hardware)
        };
        let (palm, mt_nlg) = (
            "examples/calibration/palm_540b_2d.shard",
            "examples/calibration/mt_nlg_530b_2d.shard",
        );
        let rows = TABLE_D2.iter().map(|row| row.batch).filter(|batch| wanted(*batch));
        let systems = rows.map(|batch| Systems {
            palm_prefill: system(palm, batch, "20", "20"),
            palm_generate: system(palm, batch, "1", "28"),
            mt_nlg_prefill: system(mt_nlg, batch, "20", "20"),
            mt_nlg_generate: system(mt_nlg, batch, "1", "28"),
        });
        TableD2 { rows: systems.collect() }
    }

    /// The table's figures of all batches, with the times on a chip.
    pub fn points(&self, hardware: &Hardware) -> Vec<Point> {
        let mut points = Vec::new();
        for (row, systems) in TABLE_D2.iter().zip(&self.rows) {
            let ms = |system: &System, steps: f64| system.step(hardware) * 1e3 * steps;
            let mt_nlg = ms(&systems.mt_nlg_prefill, 1.0) + ms(&systems.mt_nlg_generate, 8.0);
            points.push((
                "PaLM prefill",
                row.batch,
                row.palm_prefill,
                ms(&systems.palm_prefill, 1.0),
            ));
            points.push((
                "PaLM generate",
                row.batch,
                row.palm_generate,
                ms(&systems.palm_generate, 8.0),
            ));
            points.push(("MT-NLG total", row.batch, row.mt_nlg_total, mt_nlg));
        }
        points
    }

    /// The relative errors.
    fn errors(&self, parameters: [f64; 4]) -> Vec<f64> {
        let points = self.points(&Factors::of(parameters).hardware());
        points.iter().map(|(_, _, measured, predicted)| predicted / measured - 1.0).collect()
    }
}

/// The factors with the least squares over the table.
pub fn fit(table: &TableD2) -> Factors {
    let mut at = Factors { matmul: 0.8, hbm: 0.8, network: 0.5, layer: 1e-4 }.parameters();
    let mut errors = table.errors(at);
    for _ in 0..MOST_STEPS {
        let slopes: Vec<Vec<f64>> = (0..4)
            .map(|which| {
                let mut beside = at;
                beside[which] += DIFFERENCE;
                table
                    .errors(beside)
                    .iter()
                    .zip(&errors)
                    .map(|(there, here)| (there - here) / DIFFERENCE)
                    .collect()
            })
            .collect();
        let step = least_squares(&slopes, &errors);
        let better = [1.0, 0.5, 0.25, 0.125].into_iter().find_map(|share| {
            let there: [f64; 4] = std::array::from_fn(|i| at[i] + share * step[i]);
            let there = Factors::of(there).parameters();
            let its = table.errors(there);
            (squares(&its) < squares(&errors) * (1.0 - 1e-9)).then_some((there, its))
        });
        match better {
            Some((there, its)) => (at, errors) = (there, its),
            None => break,
        }
    }
    Factors::of(at)
}

/// A limit on steps; the fit ends long before it.
const MOST_STEPS: usize = 50;

/// The difference of a parameter over which a slope is taken.
const DIFFERENCE: f64 = 1e-3;

fn squares(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e * e).sum()
}

/// The change `d` of the parameters for which `errors + sum of d[i] * slopes[i]` has the least
/// squares: the normal equations, by elimination. A parameter that nothing depends on stays.
fn least_squares(slopes: &[Vec<f64>], errors: &[f64]) -> [f64; 4] {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = (0..4)
        .map(|i| {
            (0..4)
                .map(|j| product(&slopes[i], &slopes[j]))
                .chain([-product(&slopes[i], errors)])
                .collect()
        })
        .collect();
    for pivot in 0..4 {
        rows[pivot][pivot] += 1e-12;
        let row = rows[pivot].clone();
        for (_, other) in rows.iter_mut().enumerate().filter(|(i, _)| *i != pivot) {
            let factor = other[pivot] / row[pivot];
            other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
        }
    }
    std::array::from_fn(|i| rows[i][4] / rows[i][i])
}
