//! `sweep` as text and as CSV: one row a point.

use shard_cost::{Bytes, Efficiency, Utilisation};
use shard_ir::Picoseconds;
use shard_search::Status;

use crate::paint::{Paint, Style};
use crate::scale;
pub use crate::sweep_plot::plot;
use crate::table::{Column, Row, table};

/// One layer at one point of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct SweepRow {
    /// The layer; `None` where the point is wrong before a layer is chosen.
    pub layer: Option<String>,
    /// The phase, in a file that has some.
    pub phase: Option<String>,
    /// The mesh of the point, where the sweep sets it.
    pub mesh: Option<Vec<(String, u64)>>,
    /// The dims that the sweep sets.
    pub dims: Vec<(String, String)>,
    /// What a device has, where the sweep sets several limits.
    pub memory_limit: Option<Bytes>,
    /// What was found.
    pub outcome: Outcome,
    /// Whether no other point of the layer and phase that fits beats it: is as good in the time of
    /// a step, in the chip time of a token and, where limits of memory are swept, in memory, and
    /// better in one of them.
    pub on_frontier: bool,
}

/// What came of a point.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// A plan with its price.
    Priced(Box<Figures>),
    /// No plan.
    Wrong {
        /// The code of the diagnostic.
        code: &'static str,
        /// Its sentence.
        reason: String,
    },
}

/// The figures of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    /// The mesh.
    pub mesh: Vec<(String, u64)>,
    /// Devices of the mesh.
    pub chips: u64,
    /// Tokens of a step; 0 where no dim counts them.
    pub tokens: u64,
    /// The time of a step of one layer.
    pub layer_time: Picoseconds,
    /// The time of a step of the stack.
    pub time: Picoseconds,
    /// How much of the chips' arithmetic is used.
    pub utilisation: Option<Utilisation>,
    /// What a token takes of the chips.
    pub efficiency: Option<Efficiency>,
    /// Bytes on a chip at the peak, all layers.
    pub memory: Bytes,
    /// Whether a chip has so much.
    pub fits: bool,
    /// The names of the plan's strategy.
    pub strategy: Vec<&'static str>,
    /// Whether no plan is better.
    pub proven: bool,
}

impl Figures {
    /// Whether the plan is proven best, or bounded.
    pub(crate) fn proof(&self) -> Status {
        if self.proven { Status::Proven } else { Status::Bounded }
    }
}

shard_ir::worded! {
    /// What became of a point.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum PointStatus {
        /// It has a plan that fits.
        Ok = "ok",
        /// It has none that fits.
        DoesNotFit = "does-not-fit",
        /// It has no plan for another reason.
        Wrong = "wrong",
    }
    /// The word in CSV and JSON.
    fn word;
}

/// The code of a point whose plan does not fit.
const DOES_NOT_FIT: &str = "E0704";

/// The mark before the time of a plan that is bounded and not proven.
const BOUNDED: &str = "? ";

impl SweepRow {
    /// The figures of a plan that a chip has the memory for.
    pub(crate) fn usable(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Priced(figures) if figures.fits => Some(figures),
            Outcome::Priced(_) | Outcome::Wrong { .. } => None,
        }
    }

    pub(crate) fn status(&self) -> PointStatus {
        match &self.outcome {
            Outcome::Priced(figures) if figures.fits => PointStatus::Ok,
            Outcome::Priced(_) | Outcome::Wrong { code: DOES_NOT_FIT, .. } => {
                PointStatus::DoesNotFit
            }
            Outcome::Wrong { .. } => PointStatus::Wrong,
        }
    }

    /// Whether the search for its plan ended without a proof.
    pub fn is_bounded(&self) -> bool {
        matches!(&self.outcome, Outcome::Priced(figures) if !figures.proven)
    }

    /// The code of what is wrong with the point.
    pub fn code(&self) -> Option<&'static str> {
        match &self.outcome {
            Outcome::Priced(figures) if figures.fits => None,
            Outcome::Priced(_) => Some(DOES_NOT_FIT),
            Outcome::Wrong { code, .. } => Some(code),
        }
    }

    /// What is wrong with the point, in a sentence.
    pub fn reason(&self) -> Option<String> {
        match &self.outcome {
            Outcome::Priced(figures) if figures.fits => None,
            Outcome::Priced(figures) => {
                Some(format!("a chip would have to hold {}", scale::bytes(figures.memory)))
            }
            Outcome::Wrong { reason, .. } => Some(reason.clone()),
        }
    }

    fn mesh_text(&self) -> String {
        let mesh = match (&self.outcome, &self.mesh) {
            (Outcome::Priced(figures), _) => &figures.mesh,
            (Outcome::Wrong { .. }, Some(mesh)) => mesh,
            (Outcome::Wrong { .. }, None) => return String::new(),
        };
        mesh.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(",")
    }

    fn words(&self) -> String {
        let mark = if self.on_frontier { "*" } else { " " };
        let dims = self.dims.iter().map(|(name, size)| format!("{name}={size}"));
        let limit = self.memory_limit.map(|bytes| format!("in {}", scale::bytes(bytes)));
        let parts: Vec<String> = self
            .layer
            .iter()
            .chain(&self.phase)
            .cloned()
            .chain([self.mesh_text()])
            .chain(dims)
            .chain(limit)
            .collect();
        format!(
            "{mark} {}",
            parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" ")
        )
    }
}

/// Marks the points that are not beaten: the Pareto frontier of the time of a step, the chip time
/// of a token and, where its limits are swept, the memory of a device, of each layer.
pub fn mark_frontier(rows: &mut [SweepRow]) {
    let place = |row: &SweepRow| {
        let figures = row.usable()?;
        // Memory counts where limits are swept, since that asks what more of it brings. A layer
        // without tokens has no chip time of a token.
        let memory = row.memory_limit.map(|_| figures.memory);
        let chip_time = match (figures.efficiency, memory) {
            (Some(efficiency), _) => efficiency.chip_seconds_per_token,
            (None, Some(_)) => 0.0,
            (None, None) => return None,
        };
        Some(((row.layer.clone(), row.phase.clone()), figures.time, chip_time, memory))
    };
    let places: Vec<_> = rows.iter().map(place).collect();
    for at in 0..rows.len() {
        let Some((layer, time, cost, memory)) = &places[at] else { continue };
        rows[at].on_frontier =
            !places.iter().flatten().any(|(other_layer, other_time, other_cost, other_memory)| {
                let as_good = other_time <= time && other_cost <= cost && other_memory <= memory;
                let beats =
                    as_good && (other_time < time || other_cost < cost || other_memory < memory);
                other_layer == layer && beats
            });
    }
}

/// The rows as a table; the points of the frontier bear a star.
pub fn text(rows: &[SweepRow], width: usize, paint: Paint) -> String {
    let columns = [
        Column { title: "time", yields: 0 },
        Column { title: "MFU", yields: 2 },
        Column { title: "hardware", yields: 5 },
        Column { title: "chip time/token", yields: 0 },
        Column { title: "memory", yields: 3 },
        Column { title: "strategy", yields: 4 },
    ];
    let lines: Vec<Row> = rows.iter().map(line).collect();
    let mut text = table("* best of the sweep", &columns, &lines, width, paint);
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for row in rows {
        if let (Some(code), Some(reason)) = (row.code(), row.reason()) {
            let known = reasons.iter().any(|(c, _)| *c == code);
            if !known {
                reasons.push((code, reason));
            }
        }
    }
    let bounded = rows.iter().filter(|row| row.is_bounded()).count();
    if !reasons.is_empty() || bounded > 0 {
        text.push('\n');
    }
    if bounded > 0 {
        let points =
            if bounded == 1 { "1 point is".to_string() } else { format!("{bounded} points are") };
        text.push_str(&format!(
            "{BOUNDED}{points} bounded, not proven: there may be a faster plan\n"
        ));
    }
    for (code, reason) in reasons {
        let count = rows.iter().filter(|r| r.code() == Some(code)).count();
        let points = if count == 1 { "1 point".to_string() } else { format!("{count} points, as") };
        text.push_str(&format!("{}: {points}: {reason}\n", paint.style(code, Style::Bad)));
    }
    text
}

fn line(row: &SweepRow) -> Row {
    let words = row.words();
    match &row.outcome {
        Outcome::Priced(figures) => {
            let efficiency = figures.efficiency;
            let percent = |share: Option<f64>| {
                share.map_or(String::new(), |share| format!("{:.1}%", share * 100.0))
            };
            let mfu = percent(figures.utilisation.and_then(|u| u.model));
            let hardware = percent(figures.utilisation.map(|u| u.hardware));
            // The mark says that the search ended without a proof, so that there may be a better
            // plan.
            let time = format!(
                "{}{}",
                if figures.proven { "" } else { BOUNDED },
                scale::time(figures.time)
            );
            let chip_time =
                efficiency.map_or(String::new(), |e| scale::seconds(e.chip_seconds_per_token));
            let memory = if figures.fits {
                scale::bytes(figures.memory)
            } else {
                format!("{} {DOES_NOT_FIT}", scale::bytes(figures.memory))
            };
            let figures = vec![time, mfu, hardware, chip_time, memory, figures.strategy.join(" ")];
            let style = match row.status() {
                PointStatus::Ok if row.on_frontier => Some(Style::Good),
                PointStatus::Ok => None,
                PointStatus::DoesNotFit | PointStatus::Wrong => Some(Style::Bad),
            };
            Row { words, figures, style, styled_column: None }
        }
        Outcome::Wrong { code, .. } => {
            let code = if code.is_empty() { "no plan" } else { code };
            Row {
                words,
                figures: vec![code.to_string()],
                style: Some(Style::Bad),
                styled_column: None,
            }
        }
    }
}

/// The rows as comma-separated values, a heading first; figures in seconds and bytes, to every
/// digit.
pub fn csv(rows: &[SweepRow]) -> String {
    let dims: Vec<&str> =
        rows.first().map_or(Vec::new(), |r| r.dims.iter().map(|(name, _)| name.as_str()).collect());
    let sweeps_memory = rows.iter().any(|row| row.memory_limit.is_some());
    let mut heading = vec!["layer", "phase", "mesh"];
    heading.extend(&dims);
    heading.extend(sweeps_memory.then_some("memory_limit_bytes"));
    heading.push(
        "status,code,chips,tokens,time_s,mfu,hardware_utilisation,chip_seconds_per_token,\
         tokens_per_second_per_chip,peak_hbm_bytes,proof,pareto,strategy,reason",
    );
    let mut text = heading.join(",");
    text.push('\n');
    for row in rows {
        let mut fields: Vec<String> = vec![
            row.layer.clone().unwrap_or_default(),
            row.phase.clone().unwrap_or_default(),
            row.mesh_text(),
        ];
        fields.extend(row.dims.iter().map(|(_, size)| size.clone()));
        fields.extend(row.memory_limit.map(|bytes| bytes.0.to_string()));
        fields
            .extend([row.status().word().to_string(), row.code().unwrap_or_default().to_string()]);
        let figures = match &row.outcome {
            Outcome::Priced(figures) => Some(figures),
            Outcome::Wrong { .. } => None,
        };
        let of = |figure: &dyn Fn(&Figures) -> String| figures.map_or(String::new(), |f| figure(f));
        let of_use = |figure: &dyn Fn(Efficiency) -> f64| {
            of(&|f| f.efficiency.map_or(String::new(), |e| figure(e).to_string()))
        };
        fields.extend([
            of(&|f| f.chips.to_string()),
            of(&|f| f.tokens.to_string()),
            of(&|f| f.time.seconds().to_string()),
            of(&|f| {
                f.utilisation.and_then(|u| u.model).map_or(String::new(), |mfu| mfu.to_string())
            }),
            of(&|f| f.utilisation.map_or(String::new(), |u| u.hardware.to_string())),
            of_use(&|e| e.chip_seconds_per_token),
            of_use(&|e| e.tokens_per_second_per_chip),
            of(&|f| f.memory.0.to_string()),
            of(&|f| f.proof().word().to_string()),
            row.on_frontier.to_string(),
            of(&|f| f.strategy.join(" ")),
            row.reason().unwrap_or_default(),
        ]);
        text.push_str(&fields.iter().map(|f| quoted(f)).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

/// A field as RFC 4180 has it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_string()
    }
}
