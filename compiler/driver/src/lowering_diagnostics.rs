//! What lowering finds, as diagnostics.

use std::collections::BTreeSet;

use shard_check::Diagnostic;
use shard_check::diagnostics::limits::LimitProblem;
use shard_check::diagnostics::{HardwareProblem, InternalProblem, LoweringProblem};
use shard_cost::{Hardware, Objective};
use shard_grammar::{SourceFile, Span, ast};
use shard_ir::{
    Def, InstrId, InstrKind, Layout, MeshShape, Op, ParameterKind, Picoseconds, Plan, Program,
    ValueId, never,
};
use shard_report::explicit::fresh;
use shard_report::notation::{phrase, value_name};
use shard_search::demand::is_argument;
use shard_search::{LowerError, LowerOptions, Lowered, OrderSaving, OrderSavings, Status, Unasked};

use crate::noted::ok_or_noted;
use crate::pipeline::{CompileError, Compiled, compile_plan};

/// The diagnostics for a program that was not compiled. `header` is the place of the layer's name.
pub fn lower_error(
    about: Option<(&SourceFile, &Program)>,
    header: Option<Span>,
    error: CompileError,
) -> Vec<Diagnostic> {
    let internal = |message: String| {
        vec![InternalProblem { pass: "lowering".to_string(), message, span: header }.into()]
    };
    match (error, about) {
        (CompileError::Internal(problem), _) => vec![(*problem).into()],
        (CompileError::Lower(LowerError::Internal(message)), _) => internal(message),
        // Whoever stops a search wants no answer.
        (CompileError::Lower(LowerError::Stopped), _) => Vec::new(),
        (CompileError::Lower(LowerError::OutOfTime), about) => {
            let layer = about.map(|(_, program)| program.name.clone());
            vec![LoweringProblem::OutOfTime { layer, span: header }.into()]
        }
        (CompileError::Lower(LowerError::Unreachable { value, output }), Some((file, program))) => {
            vec![unreachable(file, program, header.unwrap_or_default(), value, output)]
        }
        (CompileError::Lower(LowerError::Strict { plan, inserted }), Some((_, program))) => {
            strict(&plan, &inserted, program, header.unwrap_or_default())
        }
        (CompileError::Lower(LowerError::Label(label)), Some((_, program))) => {
            let reason = format!("no layout fits every type that bears the label `{label}`");
            let span = header.unwrap_or_default();
            vec![LoweringProblem::NoPlan { layer: program.name.clone(), span, reason }.into()]
        }
        (CompileError::Lower(LowerError::Limit { limit, count }), Some((_, program))) => {
            let (layer, span) = (program.name.clone(), header.unwrap_or_default());
            let (limit, mesh) = (limit.to_string(), program.mesh.to_string());
            vec![LoweringProblem::SpaceTooLarge { layer, span, limit, count, mesh }.into()]
        }
        (CompileError::Lower(LowerError::TooLong(most)), Some((_, program))) => {
            let (layer, span) = (program.name.clone(), header.unwrap_or_default());
            vec![LimitProblem::Time { layer, seconds: most.seconds(), span }.into()]
        }
        (CompileError::Lower(error @ LowerError::NoPlanFits { .. }), Some(_))
        | (CompileError::Lower(error), None) => internal(error.to_string()),
    }
}

/// An error for a weight in host memory, where the hardware states no rate of the link to it.
pub fn no_host(program: &Program, hardware: &Hardware) -> Option<Diagnostic> {
    let is_there = |v: &&shard_ir::Value| v.def.parameter() == Some(ParameterKind::HostWeight);
    let value = program.values.iter().find(is_there).filter(|_| hardware.host_rate.is_none())?;
    let (weight, chip) = (
        value.name.clone().unwrap_or_else(|| never!("a weight without a name", String::new())),
        hardware.name.clone(),
    );
    Some(HardwareProblem::NoHost { weight, span: Some(value.span), chip }.into())
}

/// The same for a plan that was given as IR text, whose fetches may read any value.
pub fn no_host_of_plan(plan: &Plan, hardware: &Hardware) -> Option<Diagnostic> {
    if hardware.host_rate.is_some() {
        return None;
    }
    let there = |id: InstrId| match &plan.instruction(id).kind {
        InstrKind::Parameter(ParameterKind::HostWeight) => Some(id),
        kind if kind.op() == Some(&Op::Fetch) => plan.instruction(id).operands.first().copied(),
        InstrKind::Parameter(_)
        | InstrKind::Constant(_)
        | InstrKind::Op(_)
        | InstrKind::CollectiveEinsum(_)
        | InstrKind::Move(_) => None,
    };
    let id = plan.ids().find_map(there)?;
    let (weight, chip) = (value_name(plan, id), hardware.name.clone());
    Some(HardwareProblem::NoHost { weight, span: None, chip }.into())
}

/// Warnings for values that exceed the memory of a chip by themselves. A value that passes inside a
/// kernel, as scores do in an attention, is never in memory.
pub fn too_large(layer: &Compiled, hardware: &Hardware) -> Vec<Diagnostic> {
    let plan = &layer.schedule.plan;
    let buffers = shard_cost::buffers(plan);
    let mut said = BTreeSet::new();
    plan.ids()
        .filter(|id| buffers[id.index()].is_some())
        .filter(|id| plan.instruction(*id).kind != InstrKind::Parameter(ParameterKind::HostWeight))
        .filter(|id| plan.local_bytes(*id) > hardware.hbm_bytes)
        .filter_map(|id| {
            let instr = plan.instruction(id);
            let span = instr.origin.span?;
            said.insert(span).then(|| {
                HardwareProblem::ValueTooLarge {
                    name: value_name(plan, id),
                    span,
                    layout: plan.layout_text(id),
                    needed: plan.local_bytes(id),
                    chip: hardware.name.clone(),
                    capacity: hardware.hbm_bytes,
                    limited: shard_report::memory::limit(hardware),
                }
                .into()
            })
        })
        .collect()
}

/// Warnings for layouts whose axes in another order would save a transfer.
pub fn axis_orders(
    tree: &ast::File,
    program: &Program,
    layer: &Compiled,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Vec<Diagnostic> {
    // A search for a warning that fails is no error: the layer was compiled.
    let savings = match (&layer.lowered, options.objective) {
        (Some(lowered), _) => shard_search::order_savings(program, lowered, hardware, options),
        (None, Objective::Overlap) => orders_done_sooner(program, layer, hardware, options),
        (None, Objective::Serial | Objective::Comm | Objective::Memory) => {
            Ok(OrderSavings::default())
        }
    };
    let OrderSavings { found: savings, unasked } = ok_or_noted(savings).unwrap_or_default();
    let words = layout_words(tree, &program.name);
    let word_of = |value: ValueId, output: Option<usize>| {
        let place = output.map_or(program.value(value).span, |output| program.outputs[output].span);
        words.iter().find(|w| place.start <= w.span.start && w.span.end <= place.end)
    };
    let mut found = Vec::new();
    for saving in savings {
        let Some(word) = word_of(saving.value, saving.output) else { continue };
        let dims = match saving.output {
            Some(output) => &program.outputs[output].dims,
            None => &program.value(saving.value).dims,
        };
        // A layout that is left open and that phases share was chosen by the compiler, for all of
        // them.
        let left_open = word.free.is_some()
            || word.dims.iter().any(|d| d.axes.as_ref().is_some_and(|a| a.any_order));
        if program.phase.is_some() && left_open {
            continue;
        }
        let value = program.value(saving.value);
        let order: Vec<usize> =
            dims.iter().filter_map(|d| value.dims.iter().position(|v| v == d)).collect();
        let names = program.dim_names(dims);
        let better = saving.better.permuted(&order).text(&program.mesh, &names);
        let problem = LoweringProblem::AxisOrderCosts {
            span: word.span,
            written: shard_grammar::print_layout_word(word),
            any_order: any_order_text(word),
            better: better
                .split('(')
                .next()
                .unwrap_or_else(|| never!("a text split into no piece", ""))
                .to_string(),
            seconds: saving.saved.seconds(),
        };
        found.push(problem.into());
    }
    if let Some(Unasked { value, output, count, at_most }) = unasked
        && let Some(word) = word_of(value, output)
    {
        let problem = LoweringProblem::AxisOrdersUnasked {
            span: word.span,
            count,
            any_order: any_order_text(word),
            at_most: at_most.seconds(),
        };
        found.push(problem.into());
    }
    found
}

/// For a plan that was chosen for its overlapped schedule: the orders that save serial time and
/// whose plans are also done sooner. What they save is the time until all layers are done, divided
/// by the number of layers.
fn orders_done_sooner(
    program: &Program,
    layer: &Compiled,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<OrderSavings, LowerError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let lowered = shard_search::lower(program, hardware, &serial)?;
    let savings = shard_search::order_savings(program, &lowered, hardware, &serial)?;
    let all = layer.timeline.of_all_layers(&layer.schedule.plan);
    let sooner = savings.found.into_iter().filter_map(|saving| {
        let plan = compile_plan(saving.plan.clone(), hardware, None, Objective::Overlap).ok()?;
        let other = plan.timeline.of_all_layers(&plan.schedule.plan);
        let saved = Picoseconds(all.0.checked_sub(other.0)? / program.repeat.max(1));
        (saved > Picoseconds(0)).then_some(OrderSaving { saved, ..saving })
    });
    Ok(OrderSavings { found: sooner.collect(), unasked: savings.unasked })
}

/// A layout word with the order of its axes left to the compiler.
fn any_order_text(word: &ast::LayoutWord) -> String {
    let mut word = word.clone();
    for axes in word.dims.iter_mut().filter_map(|d| d.axes.as_mut()) {
        axes.any_order |= axes.axes.len() > 1;
    }
    shard_grammar::print_layout_word(&word)
}

/// The layout words of a layer's parameters, results and annotations.
fn layout_words<'t>(tree: &'t ast::File, layer: &str) -> Vec<&'t ast::LayoutWord> {
    let Some(layer) = tree.layers().find(|l| l.name.value == layer) else { return Vec::new() };
    let lets = layer.body.iter().filter_map(|statement| match statement {
        ast::Statement::Let(ast::Let {
            target: ast::LetTarget::One { ty: Some(ty), .. }, ..
        }) => Some(ty),
        ast::Statement::Let(_) | ast::Statement::Expect(_) | ast::Statement::Return(_) => None,
    });
    let types = layer.params.iter().map(|p| &p.ty).chain(layer.results.types()).chain(lets);
    types.map(|ty| &ty.layout).collect()
}

/// Warnings for annotations of a `let` that name no mesh axis and cost collectives: without them a
/// plan takes less, where that is known. Where the plan was chosen for its overlapped schedule,
/// only collectives on the critical path count: one beside something longer costs no time.
pub fn replication_costs(
    file: &SourceFile,
    program: &Program,
    layer: &Compiled,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Vec<Diagnostic> {
    let plan = &layer.schedule.plan;
    // Each annotation in a layer that is called twice pins several values.
    let mut sites: Vec<(Vec<ValueId>, Vec<InstrId>)> = Vec::new();
    for id in program.value_ids() {
        let value = program.value(id);
        let Def::Pin { pattern, written: false, .. } = &value.def else { continue };
        let shape = MeshShape { mesh: &program.mesh, sizes: &program.sizes(&value.dims) };
        if pattern.exact(shape) != Some(Layout::REPLICATED) {
            continue;
        }
        let known = sites.iter_mut().find(|(pins, _)| program.value(pins[0]).span == value.span);
        if let Some((pins, _)) = known {
            pins.push(id);
            continue;
        }
        // Moves to and from a pinned layout have its span; only those to it can have traffic.
        let moves: Vec<InstrId> = plan
            .ids()
            .filter(
                |id| matches!(&plan.instruction(*id).kind, InstrKind::Move(c) if c.has_traffic()),
            )
            .filter(|id| plan.instruction(*id).origin.span == Some(value.span))
            .collect();
        let moves: Vec<InstrId> = match options.objective {
            Objective::Overlap => {
                let waited_for = &layer.timeline.whole().critical_path;
                moves.into_iter().filter(|id| waited_for.contains(id)).collect()
            }
            Objective::Serial | Objective::Comm | Objective::Memory => moves,
        };
        sites.push((vec![id], moves));
    }
    sites.retain(|(_, moves)| !moves.is_empty());
    if let Some(lowered) = layer.lowered.as_ref().filter(|lowered| is_proven(lowered)) {
        let pins: Vec<Vec<ValueId>> = sites.iter().map(|(pins, _)| pins.clone()).collect();
        let cost = shard_search::pins_that_cost(program, lowered, hardware, options, &pins);
        if let Some(cost) = ok_or_noted(cost) {
            sites = cost.into_iter().map(|place| sites[place].clone()).collect();
        }
    }
    let warning = |(pins, moves): &(Vec<ValueId>, Vec<InstrId>)| {
        replication(file, program, layer, pins[0], moves)
    };
    sites.iter().map(warning).collect()
}

fn is_proven(lowered: &Lowered) -> bool {
    lowered.optimality.status == Status::Proven
}

/// The warning for the annotation that pins a value, and needs these moves.
fn replication(
    file: &SourceFile,
    program: &Program,
    layer: &Compiled,
    id: ValueId,
    moves: &[InstrId],
) -> Diagnostic {
    let value = program.value(id);
    let time: Picoseconds = moves.iter().map(|id| layer.price.of(*id).time()).sum();
    let name = program.value(program.unpinned(id)).name.clone().or_else(|| value.name.clone());
    let is_argument = is_argument(program, id);
    let layout = if is_argument {
        Layout::REPLICATED.text(&program.mesh, &program.dim_names(&value.dims))
    } else {
        let words = file.slice(value.span).split_whitespace();
        words.last().unwrap_or_else(|| never!("a layout stated by no word", "")).to_string()
    };
    let phrases: Vec<String> = moves.iter().map(|id| phrase(&layer.schedule.plan, *id)).collect();
    LoweringProblem::ReplicationCosts {
        name: name.unwrap_or_else(|| "this value".to_string()),
        span: value.span,
        is_argument,
        layout,
        collective: phrases.join(", then "),
        seconds: time.seconds(),
    }
    .into()
}

fn unreachable(
    file: &SourceFile,
    program: &Program,
    header: Span,
    value: Option<ValueId>,
    output: Option<usize>,
) -> Diagnostic {
    let made = value.map(|id| program.value(program.unpinned(id)));
    let wanted = match (output.and_then(|o| program.outputs.get(o)), value, made) {
        (Some(output), _, _) => Some((output.span, output.name.clone())),
        (None, Some(value), Some(made)) => Some((
            program.value(value).span,
            made.name.clone().unwrap_or_else(|| "this value".to_string()),
        )),
        (None, None, _) | (None, Some(_), None) => None,
    };
    let Some((span, name)) = wanted else {
        let reason =
            "no chain of ops and collectives gives the layouts that its types ask for".to_string();
        return LoweringProblem::NoPlan { layer: program.name.clone(), span: header, reason }
            .into();
    };
    let source = made.filter(|made| made.span != span).map(|made| (made.span, "made".to_string()));
    LoweringProblem::Unreachable {
        name,
        span,
        wanted: file.slice(span).split_whitespace().collect::<Vec<_>>().join(" "),
        reason: "no chain of ops and collectives gives this layout".to_string(),
        source,
    }
    .into()
}

/// One diagnostic for each chain of moves that a strict layer does not write: a `reshard` to where
/// the chain leads.
fn strict(plan: &Plan, inserted: &[InstrId], program: &Program, header: Span) -> Vec<Diagnostic> {
    let uses = plan.uses();
    let mut taken: BTreeSet<String> =
        program.values.iter().filter_map(|v| v.name.clone()).collect();
    let ends: Vec<InstrId> = inserted
        .iter()
        .copied()
        .filter(|id| !uses[id.index()].iter().any(|user| inserted.contains(user)))
        .collect();
    let mut found = Vec::new();
    for end in ends {
        let mut phrases = vec![phrase(plan, end)];
        let mut start = plan.moved(end);
        while inserted.contains(&start) {
            phrases.insert(0, phrase(plan, start));
            start = plan.moved(start);
        }
        // A value without a name in the source is named after the result that it becomes.
        let named = |name: &String| program.values.iter().any(|v| v.name.as_ref() == Some(name));
        let name = plan.instruction(start).name.clone().filter(named);
        let to = plan.layout_text(end);
        let line = match &name {
            Some(name) => format!("let {} = reshard({name}, {to})", fresh(name, &mut taken)),
            None => format!("reshard(..., {to})"),
        };
        found.push(
            LoweringProblem::StrictCollective {
                collective: phrases.join(", then "),
                name: name.unwrap_or_else(|| "an unnamed value".to_string()),
                span: plan.instruction(end).origin.span.unwrap_or(header),
                from: plan.layout_text(start),
                to,
                line,
                edits: Vec::new(),
            }
            .into(),
        );
    }
    debug_assert!(
        inserted.iter().all(|id| matches!(plan.instruction(*id).kind, InstrKind::Move(_)))
    );
    found
}
