//! `shardc explain FILE --why-not WHAT`.

use shard_check::Diagnostic;
use shard_check::diagnostics::QuestionProblem;
use shard_cost::Hardware;
use shard_ir::{Picoseconds, Program};
use shard_report::why_not::{Crossing, WhyNot, json, why_not};

use crate::args::{ExplainArgs, Format};
use crate::commands::compile::{Compilation, check_options};
use crate::console::{Console, Outcome, Status};
use crate::pipeline::{self, Compiled};
use crate::questions::crossing::{Question, batch_dim};
use crate::questions::force;
use crate::questions::request::{self, Request};

/// The best plan that has what was asked for.
struct Best {
    compiled: Compiled,
    way: usize,
    ways: usize,
    cut: bool,
}

pub(crate) fn run(args: &ExplainArgs, asked: &str, compilation: &Compilation, console: &mut Console) -> Outcome {
    let Some(source) = &compilation.source else {
        return Err(console.usage("IR text is one plan: `--why-not` takes a source file, which has others", None));
    };
    let options = check_options(&args.program, console)?;
    let mut found: Vec<(usize, Request, Option<Best>, Vec<Crossing>)> = Vec::new();
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
        if force::has(&request, program, &compiled.schedule.plan) {
            found.push((i, request, None, Vec::new()));
            continue;
        }
        match best(&request, asked, program, hardware, compilation) {
            Ok(best) => {
                let question = Question {
                    source,
                    options: &options,
                    hardware,
                    lower: &compilation.options,
                    layer: &program.name,
                    phase: program.phase.as_ref().map(|phase| phase.name.as_str()),
                    asked,
                    way: best.way,
                };
                let crossings = crossings(args, program, &question, compiled, &best);
                found.push((i, request, Some(best), crossings));
            }
            Err(problem) => problems.push(problem),
        }
    }
    // With several layers, those that the question is not about are passed over.
    if found.is_empty() {
        console.report(None, problems.into_iter().take(1).map(Diagnostic::from).collect());
        return Err(Status::Usage);
    }
    let answers: Vec<WhyNot<'_>> = found
        .iter()
        .map(|(i, request, best, crossings)| {
            let (hardware, chosen) = &compilation.compiled[*i];
            let program = &compilation.programs[*i];
            let other = best.as_ref().map_or(chosen, |b| &b.compiled);
            WhyNot {
                asked: words(request, program),
                chosen: compilation.layer_of(hardware, chosen),
                other: compilation.layer_of(hardware, other),
                is_chosen: best.is_none(),
                stated: best.as_ref().map_or_else(Vec::new, |_| stated(request, program, source)),
                ways: best.as_ref().map_or(0, |b| b.ways),
                cut: best.as_ref().is_some_and(|b| b.cut),
                crossings: crossings.clone(),
            }
        })
        .collect();
    console.result(&match console.format {
        Format::Text => why_not(&answers, args.width),
        Format::Json => json(&answers),
    })
}

fn best(
    request: &Request,
    asked: &str,
    program: &Program,
    hardware: &Hardware,
    compilation: &Compilation,
) -> Result<Best, QuestionProblem> {
    let (ways, cut) = force::ways(request, program);
    let mut best: Option<Best> = None;
    // Between the layouts of a way the search may take other moves than the one that was asked for.
    let mut is_beaten = false;
    for (way, forced) in ways.iter().enumerate() {
        let options = forced.options(&compilation.options);
        let Ok(compiled) = pipeline::compile(&forced.program, hardware, &options) else { continue };
        let time = |c: &Compiled| c.price.totals.serial_time;
        let is_better = best.as_ref().is_none_or(|b| time(&compiled) < time(&b.compiled));
        let has = force::has(request, program, &compiled.schedule.plan);
        is_beaten |= !has;
        if is_better && has {
            best = Some(Best { compiled, way, ways: ways.len(), cut });
        }
    }
    best.ok_or_else(|| {
        let reason = match ways.len() {
            0 => "nothing of this layer can be so, as its types are declared".to_string(),
            1 => "the layer's own types forbid it".to_string(),
            n => format!("none of {n} ways of having it is a plan, as the layer's types are declared"),
        };
        let help = Some("a `?` behind a declared layout leaves it to the compiler".to_string());
        let asked = match request {
            Request::Layout { .. } | Request::Collective { .. } => words(request, program),
            Request::Strategy(_) => asked.to_string(),
        };
        match is_beaten {
            true => QuestionProblem::Beaten { asked, ways: ways.len() },
            false => QuestionProblem::Impossible { asked, reason, help },
        }
    })
}

fn crossings(
    args: &ExplainArgs,
    program: &Program,
    question: &Question<'_>,
    chosen: &Compiled,
    best: &Best,
) -> Vec<Crossing> {
    let time = |c: &Compiled| c.price.totals.serial_time.0;
    let behind = Picoseconds(time(&best.compiled).saturating_sub(time(chosen)));
    let Some(dim) = args.vary.clone().or_else(|| batch_dim(program)) else { return Vec::new() };
    let size = program.dims.iter().find(|d| d.name == dim).map(|d| d.size);
    size.map(|now| question.crossing(&dim, now, behind)).into_iter().collect()
}

fn words(request: &Request, program: &Program) -> String {
    let name = |v| program.value(v).name.clone().unwrap_or_default();
    match request {
        Request::Layout { value, text, .. } => format!("`{}` as {text}", name(*value)),
        Request::Collective { op, value: Some(value) } => {
            format!("an {op} of `{}`", name(*value)).replace("an r", "a r")
        }
        Request::Collective { op, value: None } => format!("an {op}").replace("an r", "a r"),
        Request::Strategy(strategy) => strategy.name().to_string(),
    }
}

/// What the source would say.
fn stated(request: &Request, program: &Program, source: &shard_grammar::SourceFile) -> Vec<String> {
    let Request::Layout { value, text, .. } = request else { return Vec::new() };
    let v = program.value(*value);
    let name = v.name.clone().unwrap_or_default();
    let line = source.line(source.line_column(v.span.start).line).unwrap_or_default().trim();
    match line.split_once('=') {
        Some((_, right)) if line.starts_with("let ") => vec![format!("let {name}: {text} ={right}")],
        _ if line.starts_with("let ") => vec![format!("let {name}: {text} = ...")],
        _ => vec![format!("let {name}1 = reshard({name}, {text})")],
    }
}
