//! Phases: the whole file is checked once for each, with other sizes of dims and the same weights.

use std::collections::BTreeMap;

use shard_grammar::{Span, ast};
use shard_ir::{Def, Phase, Program, never};

use crate::Checked;
use crate::diagnostics::limits::MAX_PHASES;
use crate::diagnostics::{LimitProblem, PhaseProblem};
use crate::names::nearest;
use crate::sink::Sink;

/// The phases of a file, `[None]` if it has none. Errors of the phase lines themselves are
/// reported.
pub(crate) fn read<'a>(
    tree: &'a ast::File,
    lenient: bool,
    sink: &mut Sink,
) -> Vec<Option<&'a ast::Phase>> {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    let mut phases = Vec::new();
    for phase in tree.phases() {
        let name = &phase.name;
        if let Some(first) = seen.get(name.value.as_str()) {
            sink.report(PhaseProblem::Duplicate {
                name: name.value.clone(),
                span: name.span,
                first: *first,
            });
            continue;
        }
        if phases.len() >= MAX_PHASES {
            sink.report(LimitProblem::Phases { limit: MAX_PHASES, span: phase.span });
            break;
        }
        seen.insert(&name.value, name.span);
        sizes(tree, phase, lenient, sink);
        if let Some(count) =
            phase.repeat.as_ref().map(|repeat| repeat.count).filter(|count| count.value == 0)
        {
            sink.report(PhaseProblem::RepeatZero { span: count.span });
        }
        phases.push(Some(phase));
    }
    if phases.is_empty() { vec![None] } else { phases }
}

/// Reports sizes of unknown dims, and dims whose size a phase states twice.
fn sizes(tree: &ast::File, phase: &ast::Phase, lenient: bool, sink: &mut Sink) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for size in &phase.sizes {
        let (name, span) = (size.name.value.clone(), size.name.span);
        if let Some(first) = seen.insert(&size.name.value, span) {
            sink.report(PhaseProblem::SizeTwice {
                dim: name,
                phase: phase.name.value.clone(),
                span,
                first,
            });
        } else if !lenient && tree.dims().all(|dim| dim.name.value != name) {
            let near =
                nearest(&name, tree.dims().map(|dim| dim.name.value.as_str())).map(str::to_string);
            let first_phase = tree.phases().map(|phase| phase.span.start).min();
            let first_phase =
                first_phase.unwrap_or_else(|| never!("a phase of a file without one", span.start));
            let value = shard_grammar::print_int_expr(&size.value);
            sink.report(PhaseProblem::UnknownDim {
                dim: name,
                span,
                near,
                value,
                insert_at: first_phase,
            });
        }
    }
}

/// A phase as programs have it.
pub(crate) fn phase(tree: &ast::Phase) -> Phase {
    Phase {
        name: tree.name.value.clone(),
        repeat: tree.repeat.as_ref().map_or(1, |repeat| repeat.count.value.max(1)),
    }
}

/// Reports weights whose size differs between phases: a weight is stored once for all.
pub(crate) fn weights_keep_their_sizes(checked: &Checked, sink: &mut Sink) {
    for (at, program) in checked.programs.iter().enumerate() {
        let Some(first) = checked.programs[..at].iter().find(|p| p.name == program.name) else {
            continue;
        };
        for (a, b) in first.values.iter().zip(&program.values) {
            if !matches!(b.def, Def::Parameter { kind, .. } if kind.is_weight()) {
                continue;
            }
            let size = |p: &Program, dim: shard_ir::DimId| p.dims[dim.index()].size;
            let differs =
                a.dims.iter().zip(&b.dims).find(|(i, j)| size(first, **i) != size(program, **j));
            let (Some((i, j)), Some(p), Some(q)) = (differs, &first.phase, &program.phase) else {
                continue;
            };
            sink.report(PhaseProblem::WeightChangesSize {
                weight: b
                    .name
                    .clone()
                    .unwrap_or_else(|| never!("a weight without a name", String::new())),
                span: b.span,
                dim: program.dims[j.index()].name.clone(),
                sizes: [(p.name.clone(), size(first, *i)), (q.name.clone(), size(program, *j))],
            });
        }
    }
}
