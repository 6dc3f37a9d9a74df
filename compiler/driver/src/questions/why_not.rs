//! Why not another plan: the best one that has what was asked for, and where it would win.

use std::collections::BTreeSet;

use shard_check::diagnostics::QuestionProblem;
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::{Picoseconds, Plan, Program, ValueId};
use shard_report::strategy::{Strategy, strategy};
use shard_report::why_not::{Crossing, WhyNot};
use shard_search::{LowerError, LowerOptions};

use crate::compile::{Compilation, CompileOptions};
use crate::explicit::overrides;
use crate::noted::compiled_or_noted;
use crate::pipeline::{self, CompileError, Compiled};
use crate::questions::crossing::{NumberedWay, Question, WAYS_AT_A_FIGURE, batch_dim};
use crate::questions::force::{self, Way};
use crate::questions::request::{self, Request, name_of};
use crate::questions::written::Wanted;

/// The best plan that has what was asked for.
struct Best {
    compiled: Compiled,
    /// The best ways of having it, the best first.
    near: Vec<NumberedWay>,
    ways: usize,
    cut: bool,
    /// Whether the chosen plan has it for some of the readers, so that it is asked for all of them.
    for_all: bool,
    /// What could be written to have it.
    stated: Vec<String>,
}

/// For each layer that a question is about, the best plan that has what was asked for; `vary` is
/// the dim whose sizes are tried. With several layers, those that the question is not about are
/// passed over.
pub fn why_not<'c>(
    compilation: &'c Compilation,
    source: &'c SourceFile,
    wanted: &CompileOptions,
    asked: &str,
    vary: Option<&str>,
) -> Result<Answers<'c>, QuestionProblem> {
    let overrides = overrides(wanted);
    let mut found: Vec<Answer> = Vec::new();
    let mut problems: Vec<QuestionProblem> = Vec::new();
    for (i, program) in compilation.programs.iter().enumerate() {
        let (hardware, compiled) = &compilation.compiled[i];
        let request = match request::read(asked, program) {
            Ok(request) => request,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let chosen = &compiled.schedule.plan;
        let is_had = force::has(&request, program, chosen);
        let is_layout = matches!(request, Request::Layout { .. });
        let is_chosen =
            || Answer { layer: i, request: request.clone(), best: None, crossings: Vec::new() };
        if is_had && !is_layout {
            found.push(is_chosen());
            continue;
        }
        match best(&request, asked, program, hardware, chosen, compilation) {
            // That some readers read a value so does not mean that all do.
            Ok(best) if is_had && serial(&best.compiled) <= serial(compiled) => {
                found.push(is_chosen());
            }
            Err(_) if is_had => found.push(is_chosen()),
            Ok(mut best) => {
                best.for_all = is_had;
                let lower = &compilation.options;
                let wish = Wanted {
                    request: &request,
                    program,
                    source,
                    hardware,
                    options: lower,
                    overrides: &overrides,
                };
                best.stated = wish.lines(chosen, &best.compiled.schedule.plan);
                let question = Question {
                    source,
                    options: &wanted.check,
                    hardware,
                    lower,
                    layer: &program.name,
                    phase: program.phase.as_ref().map(|phase| phase.name.as_str()),
                    asked,
                    ways: &best.near,
                    at_most: !is_layout,
                };
                let crossings = crossings(vary, program, &question, compiled, &best);
                found.push(Answer { layer: i, request, best: Some(best), crossings });
            }
            Err(problem) => problems.push(problem),
        }
    }
    match problems.into_iter().next() {
        Some(problem) if found.is_empty() => Err(problem),
        _ => Ok(Answers { compilation, found }),
    }
}

/// The answers to a question, one for each layer that it is about.
pub struct Answers<'c> {
    compilation: &'c Compilation,
    found: Vec<Answer>,
}

/// The answer for one layer.
struct Answer {
    layer: usize,
    request: Request,
    best: Option<Best>,
    crossings: Vec<Crossing>,
}

impl Answers<'_> {
    /// The answers as reports take them.
    pub fn reported(&self) -> Vec<WhyNot<'_>> {
        self.found.iter().map(|answer| self.report(answer)).collect()
    }

    fn report<'a>(&'a self, answer: &'a Answer) -> WhyNot<'a> {
        let compilation = self.compilation;
        let (hardware, chosen) = &compilation.compiled[answer.layer];
        let program = &compilation.programs[answer.layer];
        let best = &answer.best;
        let other = best.as_ref().map_or(chosen, |b| &b.compiled);
        WhyNot {
            asked: match best {
                Some(best) if best.for_all => {
                    format!("{} for all that read it", words(&answer.request, program))
                }
                _ => words(&answer.request, program),
            },
            chosen: compilation.layer_of(hardware, chosen),
            other: compilation.layer_of(hardware, other),
            is_chosen: best.is_none(),
            stated: best.as_ref().map_or_else(Vec::new, |best| best.stated.clone()),
            ways: best.as_ref().map_or(0, |b| b.ways),
            cut: best.as_ref().is_some_and(|b| b.cut),
            crossings: answer.crossings.clone(),
        }
    }
}

fn best(
    request: &Request,
    asked: &str,
    program: &Program,
    hardware: &Hardware,
    chosen: &Plan,
    compilation: &Compilation,
) -> Result<Best, QuestionProblem> {
    let mut best: Option<Best> = None;
    let mut near: Vec<((bool, Picoseconds), NumberedWay)> = Vec::new();
    // Between the layouts that a way demands, the search may take other moves than the one that was
    // asked for.
    let (mut is_beaten, mut tried, mut others) = (false, 0, BTreeSet::new());
    // A collective whose result nothing can read is also had by a plan that undoes it.
    let unused = matches!(request, Request::Collective { .. }).then_some(false);
    // Values for which a plan was found that uses what was asked for.
    let mut are_used: BTreeSet<ValueId> = BTreeSet::new();
    for used in [true].into_iter().chain(unused) {
        let (ways, cut) = force::ways(request, program, chosen, used);
        let is_open = |way: &Way| way.value.is_none_or(|value| !are_used.contains(&value));
        let left: Vec<(usize, &Way)> =
            ways.iter().enumerate().filter(|(_, way)| is_open(way)).collect();
        tried = tried.max(ways.len());
        for (number, forced) in left {
            let compiled = compiled_as(forced, best.as_ref(), hardware, compilation);
            let Some(compiled) = compiled_or_noted(compiled) else { continue };
            // A plan that fits comes before one that does not.
            let rank = |c: &Compiled| (!has_room(c, hardware), serial(c));
            let is_better = best.as_ref().is_none_or(|b| rank(&compiled) < rank(&b.compiled));
            // An annotated value has the layout, though no instruction may bear its name: equal ops
            // are done once.
            let is_stated = matches!(request, Request::Layout { .. });
            let has = is_stated || force::has(request, program, &compiled.schedule.plan);
            if !has {
                is_beaten = true;
                others.extend(strategy(&compiled.schedule.plan).into_iter().map(Strategy::name));
            }
            are_used.extend(forced.value.filter(|_| has && used));
            near.extend(has.then(|| (rank(&compiled), NumberedWay { number, used })));
            if is_better && has {
                best = Some(Best {
                    compiled,
                    near: Vec::new(),
                    ways: ways.len(),
                    cut,
                    for_all: false,
                    stated: Vec::new(),
                });
            }
        }
    }
    near.sort_by_key(|(rank, _)| *rank);
    near.truncate(WAYS_AT_A_FIGURE);
    if let Some(best) = &mut best {
        best.near = near.into_iter().map(|(_, way)| way).collect();
    }
    best.ok_or_else(|| unfound(request, asked, program, is_beaten.then_some(others), tried))
}

/// The best plan that has what was asked for in one way, of any size where none fits. A plan much
/// slower than the best one known, if that fits, is not searched for.
fn compiled_as(
    way: &Way,
    best: Option<&Best>,
    hardware: &Hardware,
    compilation: &Compilation,
) -> Result<Compiled, CompileError> {
    let known = best.filter(|b| has_room(&b.compiled, hardware));
    let far = known.map(|b| Picoseconds(serial(&b.compiled).0 / 4 * 5 + 1));
    let options = match far {
        Some(far) => way.options_below(&compilation.options, far),
        None => way.options(&compilation.options),
    };
    match pipeline::compile(&way.program, hardware, &options) {
        // The answer then tells the memory that it needs.
        Err(CompileError::Lower(LowerError::NoPlanFits { .. })) => {
            let options = LowerOptions { any_size: true, ..options };
            pipeline::compile(&way.program, hardware, &options)
        }
        compiled => compiled,
    }
}

/// Why no plan has what was asked for, though so many ways were tried. `beaten_by` are the
/// strategies of plans that were best in some way and do not have it.
fn unfound(
    request: &Request,
    asked: &str,
    program: &Program,
    beaten_by: Option<BTreeSet<&'static str>>,
    tried: usize,
) -> QuestionProblem {
    let reason = match tried {
        // In a phase the weights are stored as for all phases.
        0 if program.phase.is_some() => {
            "nothing of this phase can be so, as its types are declared and with the weights \
             stored as for all phases"
                .to_string()
        }
        0 => "nothing of this layer can be so, as its types are declared".to_string(),
        1 => "the layer's own types forbid it".to_string(),
        n => format!("none of {n} ways of having it is a plan, as the layer's types are declared"),
    };
    let help = Some(match program.phase {
        Some(_) => "a layout stated for a weight holds in all phases".to_string(),
        None => "a `?` behind a declared layout leaves it to the compiler".to_string(),
    });
    let asked = match request {
        Request::Layout { .. } | Request::Collective { .. } => words(request, program),
        Request::Strategy(_) => asked.to_string(),
    };
    match (beaten_by, request) {
        (Some(others), Request::Strategy(_)) => {
            let others: Vec<&str> = others.into_iter().collect();
            let stored = match program.phase {
                Some(_) => ", the weights stored as for all phases",
                None => "",
            };
            let reason = format!(
                "with its ops done as the name means{stored}, the best plan is {}",
                others.join(", ")
            );
            QuestionProblem::Unfound { asked, reason, help }
        }
        (Some(_), _) => QuestionProblem::Beaten { asked, ways: tried },
        (None, _) => QuestionProblem::Impossible { asked, reason, help },
    }
}

fn crossings(
    vary: Option<&str>,
    program: &Program,
    question: &Question<'_>,
    chosen: &Compiled,
    best: &Best,
) -> Vec<Crossing> {
    let behind = Picoseconds(serial(&best.compiled).0.saturating_sub(serial(chosen).0));
    if behind == Picoseconds(0) || !has_room(&best.compiled, question.hardware) {
        // The plan wins already, or does not fit.
        return Vec::new();
    }
    let dim = vary.map(str::to_string).or_else(|| batch_dim(program));
    let size = dim.and_then(|dim| program.dims.iter().find(|d| d.name == dim));
    let of_dim = size.map(|dim| question.crossing(&dim.name, dim.size, behind));
    // On one device nothing is sent over a network.
    let of_network = (program.mesh.devices() > 1).then(|| question.network_crossing(behind));
    of_dim.into_iter().chain(of_network).collect()
}

fn serial(compiled: &Compiled) -> Picoseconds {
    compiled.price.totals.serial_time
}

fn has_room(compiled: &Compiled, hardware: &Hardware) -> bool {
    Memory::of(&compiled.schedule.plan).peak().0 <= hardware.hbm_bytes
}

fn words(request: &Request, program: &Program) -> String {
    match request {
        Request::Layout { value, text, .. } => format!("`{}` as {text}", name_of(*value, program)),
        Request::Collective { of, value: Some(value) } => {
            format!("{} of `{}`", with_article(of.row().name), name_of(*value, program))
        }
        Request::Collective { of, value: None } => with_article(of.row().name),
        Request::Strategy(strategy) => strategy.name().to_string(),
    }
}

/// `an all-gather`, `an exchange`, `a reduce-scatter`.
fn with_article(op: &str) -> String {
    format!("{} {op}", if op.starts_with(['a', 'e']) { "an" } else { "a" })
}
