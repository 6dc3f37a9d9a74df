//! `expect` statements: claims about a layer's plan. This module reads them; the report crate
//! compares them with a plan.

use shard_ir::catalogue;
use std::collections::BTreeMap;

use shard_grammar::ast::{self, Claim, Comparison};
use shard_grammar::{Span, Spanned, print_claim};

use crate::diagnostics::{ExpectationProblem, LayerProblem};
use crate::names::nearest;
use crate::sink::Sink;

/// An `expect` statement without an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The whole statement.
    pub span: Span,
    /// The claim as it was written.
    pub written: Claim,
    /// What it means.
    pub meaning: Meaning,
}

/// What an expectation means.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// The plan has this strategy.
    Strategy(String),
    /// A figure of the plan compares in this way with an amount.
    Measured {
        /// The figure.
        measure: Measure,
        /// The one value that the figure is about; `None` for the whole layer.
        of: Option<String>,
        /// The comparison.
        comparison: Comparison,
        /// The amount, in the base unit of the measure: picoseconds, bytes, or a number of
        /// instructions.
        amount: u128,
    },
}

/// A figure of a plan: of one layer, on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The time of all moves.
    Comm,
    /// The time of all steps one after another.
    SerialTime,
    /// The largest number of bytes held at once.
    PeakMemory,
    /// The bytes that the busiest device sends.
    WireBytes,
    /// How many moves have traffic.
    Collectives,
    /// How many instructions there are of an `op`, by its name in JSON.
    Count(&'static str),
}

/// What a measure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Picoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Instructions.
    Count,
}

impl Unit {
    /// The words for its units, each with its number of base units. The first is the one that helps
    /// suggest.
    pub fn words(self) -> &'static [(&'static str, u64)] {
        match self {
            Unit::Time => &[
                ("us", 1_000_000),
                ("ps", 1),
                ("ns", 1000),
                ("ms", 1_000_000_000),
                ("s", 1_000_000_000_000),
            ],
            Unit::Bytes => &[
                ("MB", 1_000_000),
                ("B", 1),
                ("kB", 1000),
                ("GB", 1_000_000_000),
                ("TB", 1_000_000_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
                ("TiB", 1 << 40),
            ],
            Unit::Count => &[("", 1)],
        }
    }
}

impl Measure {
    /// What it is counted in.
    pub fn unit(self) -> Unit {
        match self {
            Measure::Comm | Measure::SerialTime => Unit::Time,
            Measure::PeakMemory | Measure::WireBytes => Unit::Bytes,
            Measure::Collectives | Measure::Count(_) => Unit::Count,
        }
    }

    /// Whether it is a figure of the whole layer only, so that it has no `of`.
    pub fn is_of_the_layer(self) -> bool {
        match self {
            Measure::SerialTime | Measure::PeakMemory => true,
            Measure::Comm | Measure::WireBytes | Measure::Collectives | Measure::Count(_) => false,
        }
    }

    /// The measure of a word: `comm`, `all-gathers`, `all-gather`.
    pub fn from_word(word: &str) -> Option<Measure> {
        Some(match word {
            "comm" => Measure::Comm,
            "serial-time" => Measure::SerialTime,
            "peak-memory" => Measure::PeakMemory,
            "wire-bytes" => Measure::WireBytes,
            "collectives" | "collective" => Measure::Collectives,
            word => Measure::Count(OPS.iter().find(|(one, many)| word == *one || word == many)?.0),
        })
    }
}

/// The measures that are not the number of some op.
const FIGURES: [&str; 5] = ["comm", "serial-time", "peak-memory", "wire-bytes", "collectives"];

/// The `op` of every instruction, in the singular and in the plural.
pub static OPS: std::sync::LazyLock<Vec<(&'static str, String)>> = std::sync::LazyLock::new(|| {
    let ops = catalogue::op_names().into_iter();
    let names = catalogue::Move::names().into_iter().chain(["parameter", "constant"]).chain(ops);
    names.map(|name| (name, catalogue::plural(name))).collect()
});

/// The names of strategies, with `unnamed` for plans that have none.
pub const STRATEGIES: &[&str] = &[
    "1d-weight-stationary",
    "2d-weight-stationary",
    "x-weight-gathered",
    "xy-weight-gathered",
    "xyz-weight-gathered",
    "fsdp",
    "data-parallel",
    "head-sharded-attention",
    "batch-sharded-attention",
    "sequence-sharded-attention",
    "expert-parallel",
    "unnamed",
];

/// The expectations of a layer. Statements with an error are reported and left out.
pub(crate) fn of_layer(layer: &ast::Layer, lenient: bool, sink: &mut Sink) -> Vec<Expectation> {
    let names = named_values(layer);
    let mut found = Vec::new();
    for statement in &layer.body {
        let ast::Statement::Expect(expect) = statement else { continue };
        match meaning(&expect.claim, &names) {
            Ok(meaning) => {
                found.push(Expectation {
                    span: expect.span,
                    written: expect.claim.clone(),
                    meaning,
                });
            }
            // The value may be declared where the file could not be read.
            Err(Problem::Value(_)) if lenient => {}
            Err(Problem::Value(problem)) => sink.report(*problem),
            Err(Problem::Claim(problem)) => sink.report(*problem),
        }
    }
    found
}

/// The values of a layer by name, each with its name in the plan: after `let a = b` that is `b` for
/// both.
fn named_values(layer: &ast::Layer) -> BTreeMap<&str, &str> {
    let mut names: BTreeMap<&str, &str> =
        layer.params.iter().map(|p| (&*p.name.value, &*p.name.value)).collect();
    for statement in &layer.body {
        let ast::Statement::Let(statement) = statement else { continue };
        match &statement.target {
            ast::LetTarget::One { name, .. } => {
                let mut value = &statement.value;
                while let ast::ExprKind::Paren(inner) = &value.kind {
                    value = inner;
                }
                let known = match &value.kind {
                    ast::ExprKind::Name(other) => names.get(other.as_str()).copied(),
                    _ => None,
                };
                names.insert(&name.value, known.unwrap_or(&name.value));
            }
            ast::LetTarget::Many { names: many, .. } => {
                names.extend(many.iter().map(|name| (&*name.value, &*name.value)));
            }
        }
    }
    names
}

enum Problem {
    Value(Box<LayerProblem>),
    Claim(Box<ExpectationProblem>),
}

impl Problem {
    fn value(problem: LayerProblem) -> Problem {
        Problem::Value(Box::new(problem))
    }

    fn claim(problem: ExpectationProblem) -> Problem {
        Problem::Claim(Box::new(problem))
    }
}

fn meaning(claim: &Claim, names: &BTreeMap<&str, &str>) -> Result<Meaning, Problem> {
    match claim {
        Claim::Strategy { name } => {
            if STRATEGIES.contains(&name.value.as_str()) {
                return Ok(Meaning::Strategy(name.value.clone()));
            }
            let near = nearest(&name.value, STRATEGIES.iter().copied()).map(str::to_string);
            let (name, span) = (name.value.clone(), name.span);
            Err(Problem::claim(ExpectationProblem::UnknownStrategy { name, span, near }))
        }
        Claim::None { measure: word, of } => {
            let (measure, of) = subject(claim, word, of, names)?;
            Ok(Meaning::Measured { measure, of, comparison: Comparison::Equal, amount: 0 })
        }
        Claim::Measured { measure: word, of, comparison, amount: written } => {
            let (measure, of) = subject(claim, word, of, names)?;
            let amount = amount(measure, written).ok_or_else(|| {
                let mended = ast::Amount {
                    number: whole(measure, &written.number),
                    unit: near_unit(measure, written),
                    ..written.clone()
                };
                Problem::claim(ExpectationProblem::WrongUnit {
                    measure: word.value.clone(),
                    unit: measure.unit(),
                    span: written.span,
                    mended: format!(
                        "{}{}",
                        mended.number,
                        mended.unit.as_ref().map_or("", |u| u.value.as_str())
                    ),
                    line: print_claim(&with_amount(claim, mended)),
                })
            })?;
            Ok(Meaning::Measured { measure, of, comparison: comparison.value, amount })
        }
    }
}

/// The measure that is likely meant by a word of another tool.
fn meant(word: &str) -> Option<&'static str> {
    match word {
        "memory" | "mem" | "hbm" | "peak" | "max-memory" | "memory-peak" => Some("peak-memory"),
        "time" | "latency" | "step-time" | "serial" | "total-time" => Some("serial-time"),
        "communication" | "comms" | "comm-time" => Some("comm"),
        "bytes" | "traffic" | "wire" | "comm-bytes" => Some("wire-bytes"),
        _ => None,
    }
}

/// The measure of a claim, and the name in the plan of the value that it is about.
fn subject(
    claim: &Claim,
    word: &ast::Name,
    of: &Option<ast::Name>,
    names: &BTreeMap<&str, &str>,
) -> Result<(Measure, Option<String>), Problem> {
    let Some(measure) = Measure::from_word(&word.value) else {
        let known =
            FIGURES.into_iter().chain(OPS.iter().flat_map(|(one, many)| [many.as_str(), *one]));
        let near = meant(&word.value).or_else(|| nearest(&word.value, known)).map(str::to_string);
        let (name, span) = (word.value.clone(), word.span);
        return Err(Problem::claim(ExpectationProblem::UnknownMeasure { name, span, near }));
    };
    let Some(value) = of else { return Ok((measure, None)) };
    if measure.is_of_the_layer() {
        let without = match claim.clone() {
            Claim::Strategy { name } => Claim::Strategy { name },
            Claim::None { measure, .. } => Claim::None { measure, of: None },
            Claim::Measured { measure, comparison, amount, .. } => {
                Claim::Measured { measure, of: None, comparison, amount }
            }
        };
        return Err(Problem::claim(ExpectationProblem::OfTheLayer {
            measure: word.value.clone(),
            value: value.value.clone(),
            span: Span::new(word.span.end, value.span.end),
            line: print_claim(&without),
        }));
    }
    match names.get(value.value.as_str()) {
        Some(known) => Ok((measure, Some((*known).to_string()))),
        None => {
            let near = nearest(&value.value, names.keys().copied()).map(str::to_string);
            let (name, span) = (value.value.clone(), value.span);
            Err(Problem::value(LayerProblem::UnknownValue {
                name,
                span,
                near,
                later: None,
                is_layer: false,
            }))
        }
    }
}

/// An amount in base units, if its unit is one of the measure's.
fn amount(measure: Measure, written: &ast::Amount) -> Option<u128> {
    let unit = written.unit.as_ref().map_or("", |unit| unit.value.as_str());
    let (_, scale) = measure.unit().words().iter().find(|(word, _)| *word == unit)?;
    if *scale == 1 {
        // There is no half byte, picosecond or instruction.
        return written.number.parse::<u64>().ok().map(u128::from);
    }
    let number: f64 = written.number.parse().ok()?;
    Some((number * *scale as f64).round() as u128)
}

/// The text of a number without a fraction, if the measure is a count.
fn whole(measure: Measure, number: &str) -> String {
    match measure.unit() {
        Unit::Count => number.split('.').next().unwrap_or("0").chars().take(18).collect(),
        Unit::Time | Unit::Bytes => number.to_string(),
    }
}

/// The unit that was most likely meant: the same word in other letters, or the usual unit.
fn near_unit(measure: Measure, written: &ast::Amount) -> Option<ast::Name> {
    let words = measure.unit().words();
    let usual = words.first().map_or("", |(word, _)| *word);
    let unit = written.unit.as_ref().map_or("", |unit| unit.value.as_str());
    let meant = words
        .iter()
        .map(|(word, _)| *word)
        .find(|word| word.eq_ignore_ascii_case(unit))
        .unwrap_or(usual);
    // The unit was right, so the number has a fraction that the unit does not allow.
    let meant = if meant == unit { usual } else { meant };
    (!meant.is_empty()).then(|| Spanned::new(meant.to_string(), written.span))
}

/// The same claim with another amount.
pub fn with_amount(claim: &Claim, amount: ast::Amount) -> Claim {
    match claim.clone() {
        Claim::Strategy { name } => Claim::Strategy { name },
        Claim::None { measure, of } => {
            let comparison = Spanned::new(Comparison::AtMost, measure.span);
            Claim::Measured { measure, of, comparison, amount }
        }
        Claim::Measured { measure, of, comparison, .. } => {
            Claim::Measured { measure, of, comparison, amount }
        }
    }
}
