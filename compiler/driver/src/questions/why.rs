//! Why a value or an instruction of a plan is as it is: its derivation, the alternative to it, and
//! what would do away with it.

use std::collections::BTreeSet;

use shard_check::Label;
use shard_check::diagnostics::QuestionProblem;
use shard_check::names::nearest;
use shard_cost::Hardware;
use shard_ir::{
    Def, InstrId, InstrKind, Instruction, Layout, LayoutPattern, Op, Operand, Picoseconds, Plan,
    Program, Reduction, Value, ValueId,
};
use shard_report::Layer;
use shard_report::notation::value_name;
use shard_report::origins::{axes, op_behind, origin, reader};
use shard_report::why::{DerivationStep, Removal, Why};
use shard_search::demand::{annotated, value_named, with_demand};
use shard_search::rules::rule_of_axis;
use shard_search::{Alternative, LowerOptions, lower};

use crate::compile::Compilation;
use crate::noted::ok_or_noted;

/// At most so many removals are shown.
const MOST_REMOVALS: usize = 3;

/// The answers for all instructions that a question names: in each layer the op and the moves of a
/// value, or one instruction by its number.
pub fn why<'c>(asked: &str, compilation: &'c Compilation) -> Result<Vec<Why<'c>>, QuestionProblem> {
    let layers = compilation.layers();
    let mut answers: Vec<Why<'c>> = Vec::new();
    for (i, layer) in layers.iter().enumerate() {
        let about = compilation.programs.get(i).map(|program| About {
            program,
            plan: layer.plan(),
            hardware: &compilation.compiled[i].0,
            options: &compilation.options,
        });
        answers.extend(
            targets(layer.plan(), asked).into_iter().map(|id| answer(*layer, about.as_ref(), id)),
        );
    }
    if answers.is_empty() {
        let plan = layers.first().map(Layer::plan);
        return Err(QuestionProblem::NoSuch {
            asked: format!("value or instruction `{asked}`"),
            layer: plan.map(|p| p.name.clone()).unwrap_or_default(),
            help: plan.map(|p| help(p, asked)),
        });
    }
    Ok(answers)
}

fn help(plan: &Plan, asked: &str) -> String {
    let names: BTreeSet<&str> =
        plan.instructions.iter().filter_map(|i| i.name.as_deref()).collect();
    match nearest(asked, names.iter().copied()) {
        Some(near) => near.to_string(),
        None => {
            let names: Vec<&str> = names.into_iter().collect();
            let last = plan.instructions.len().saturating_sub(1);
            format!("its values are {}; its instructions %0 to %{last}", names.join(", "))
        }
    }
}

/// The instructions that are asked about: one by its number, or those with a name. Of these the op
/// and the moves are taken, and the parameter or constant only where there is neither.
fn targets(plan: &Plan, asked: &str) -> Vec<InstrId> {
    let number = asked.trim().trim_start_matches('%').parse::<u32>().ok();
    if let Some(id) = number.map(InstrId) {
        return if id.index() < plan.instructions.len() { vec![id] } else { Vec::new() };
    }
    let named: Vec<InstrId> = plan
        .ids()
        .filter(|id| plan.instruction(*id).name.as_deref() == Some(asked.trim()))
        .collect();
    let made = |id: &InstrId| {
        !matches!(plan.instruction(*id).kind, InstrKind::Parameter(_) | InstrKind::Constant(_))
    };
    let of_interest: Vec<InstrId> = named.iter().copied().filter(made).collect();
    if of_interest.is_empty() { named } else { of_interest }
}

/// The program and the plan that a question is about, and how they were lowered.
struct About<'a> {
    program: &'a Program,
    plan: &'a Plan,
    hardware: &'a Hardware,
    options: &'a LowerOptions,
}

fn answer<'a>(layer: Layer<'a>, about: Option<&About<'_>>, id: InstrId) -> Why<'a> {
    let plan = layer.plan();
    let alternative = layer.alternatives.iter().find(|a| a.id == id).cloned();
    let steps = about.map_or_else(Vec::new, |about| about.steps(op_behind(plan, id)));
    let removals = about.map_or_else(Vec::new, |about| about.removals(id, alternative.as_ref()));
    Why { layer, id, places: places(plan, id), steps, alternative, removals }
}

/// The places of the source from which an instruction follows.
fn places(plan: &Plan, id: InstrId) -> Vec<Label> {
    let mut places: Vec<Label> = Vec::new();
    let mut add = |id: InstrId, text: String, primary: bool| {
        if let Some(span) = plan.instruction(id).origin.span
            && !places.iter().any(|p| p.span == span)
        {
            places.push(Label { span, text, primary });
        }
    };
    let op = op_behind(plan, id);
    let source = origin(plan, id);
    if let InstrKind::Move(_) = plan.instruction(id).kind {
        let name = value_name(plan, source);
        match reader(plan, id) {
            Some(reader) => {
                let text = format!(
                    "`{}` reads `{name}` as {}",
                    value_name(plan, reader),
                    plan.layout_text(id)
                );
                add(reader, text, true);
            }
            None => add(id, format!("`{name}` leaves as {}", plan.layout_text(id)), true),
        }
    }
    for op in [Some(id), op].into_iter().flatten() {
        if plan.instruction(op).kind.op().is_some() {
            add(
                op,
                format!("`{}` is made as {}", value_name(plan, op), plan.layout_text(op)),
                op == id,
            );
        }
        for operand in &plan.instruction(op).operands {
            let given = origin(plan, *operand);
            if matches!(plan.instruction(given).kind, InstrKind::Parameter(_)) {
                add(
                    given,
                    format!("`{}` is {}", value_name(plan, given), plan.layout_text(given)),
                    given == id,
                );
            }
        }
    }
    places
}

/// The dim of a concat in an attention that joins parts which are split.
fn dim_of_parts(instr: &Instruction) -> Option<usize> {
    let InstrKind::Op(Op::Concat { to, .. }) = &instr.kind else { return None };
    let at = instr.dims.iter().position(|dim| dim == to)?;
    (instr.origin.attention && !instr.layout.axes_of(at).is_empty()).then_some(at)
}

impl About<'_> {
    /// The time of the best plan of a program, and the plan.
    fn time(&self, program: &Program) -> Option<(Picoseconds, Plan)> {
        let lowered = ok_or_noted(lower(program, self.hardware, self.options))?;
        Some((lowered.optimality.cost, lowered.plan))
    }

    /// The value of the program that an op of the plan makes.
    fn value(&self, id: InstrId) -> Option<ValueId> {
        let instr = self.plan.instruction(id);
        self.program.value_ids().find(|v| {
            let v = self.program.value(*v);
            let same_op = matches!(&v.def, Def::Op { op, .. } if Some(op) == instr.kind.op());
            same_op
                && Some(v.span) == instr.origin.span
                && v.in_layers == instr.origin.in_layers
                && v.dims == instr.dims
        })
    }

    /// The steps from a value that is whole on every device to the layout in which it is made: dim
    /// by dim, then the axes over which it is partial.
    fn steps(&self, op: Option<InstrId>) -> Vec<DerivationStep> {
        let Some((id, value)) = op.and_then(|id| Some((id, self.value(id)?))) else {
            return Vec::new();
        };
        let (plan, instr) = (self.plan, self.plan.instruction(id));
        let rank = instr.dims.len();
        let mut layout = Layout::REPLICATED;
        let name = value_name(plan, id);
        let mut stages = vec![(format!("`{name}` whole on every device"), None, layout)];
        // A demand states blocks of the joined keys, and a device does not have those where each
        // joined part is split: this dim comes last, and its time is that of the plan as it is.
        let in_parts = dim_of_parts(instr);
        let names = plan.dim_names(&instr.dims);
        let others = (0..rank).filter(|dim| Some(*dim) != in_parts);
        for dim in others.chain(in_parts) {
            let (axes, name) = (instr.layout.axes_of(dim), names[dim]);
            let Some(first) = axes.get(0) else { continue };
            layout = layout.with_dim(dim, axes);
            let what = format!("{} on {name}", plan.mesh.axes_text(axes.iter()));
            stages.push((what, self.rule(id, first), layout));
        }
        for kind in [Reduction::Sum, Reduction::Max] {
            let axes = instr.layout.partial(kind);
            let Some(first) = axes.iter().next() else { continue };
            layout = axes.iter().fold(layout, |l, axis| l.with_partial(axis, kind));
            let over: BTreeSet<&str> =
                axes.iter().flat_map(|axis| self.dims_split_by(id, axis)).collect();
            let over: Vec<&str> = over.into_iter().collect();
            let on =
                if over.is_empty() { String::new() } else { format!(" on {}", over.join(", ")) };
            let what =
                format!("{}{on}, the reduction left for later", plan.mesh.axes_text(axes.iter()));
            stages.push((what, self.rule(id, first), layout));
        }
        stages
            .into_iter()
            .filter_map(|(what, rule, layout)| {
                let (time, _) = if in_parts.is_some() && layout == instr.layout {
                    self.time(self.program)?
                } else {
                    let pattern = LayoutPattern::exactly(layout, rank);
                    self.time(&with_demand(self.program, value, &[pattern], None))?
                };
                let layout = layout.text(&plan.mesh, &plan.dim_names(&instr.dims));
                Some(DerivationStep { what, rule, layout, time })
            })
            .collect()
    }

    fn rule(&self, id: InstrId, axis: shard_ir::AxisId) -> Option<String> {
        let instr = self.plan.instruction(id);
        let op = instr.kind.op()?;
        let mut operands: Vec<Operand<'_>> =
            instr.operands.iter().map(|o| self.plan.operand(*o)).collect();
        let mut result = self.plan.operand(id);
        if let Some((_, inside)) = self.plan.loop_layouts(id) {
            operands
                .iter_mut()
                .zip(&inside.operands)
                .for_each(|(operand, layout)| operand.layout = *layout);
            result.layout = inside.product;
        }
        rule_of_axis(op, &operands, result, axis).map(|rule| rule.name.to_string())
    }

    /// The dims of an op's operands that an axis splits.
    fn dims_split_by(&self, id: InstrId, axis: shard_ir::AxisId) -> Vec<&str> {
        let plan = self.plan;
        let operands = plan.instruction(id).operands.iter().map(|o| plan.instruction(*o));
        operands
            .flat_map(|o| {
                let on = o
                    .dims
                    .iter()
                    .enumerate()
                    .filter(move |(i, _)| o.layout.axes_of(*i).set().contains(axis));
                on.map(|(_, d)| plan.dims[d.index()].name.as_str())
            })
            .collect()
    }

    /// Lines of the source with which a move is gone. Each was lowered; the cheapest come first.
    fn removals(&self, id: InstrId, alternative: Option<&Alternative>) -> Vec<Removal> {
        let (plan, program) = (self.plan, self.program);
        let InstrKind::Move(collective) = &plan.instruction(id).kind else { return Vec::new() };
        if !collective.has_traffic() || program.strict {
            return Vec::new();
        }
        let border = self.parameter_as_moved(id).into_iter().chain(self.results_unmoved(id));
        let mut tries: Vec<(Program, String, bool)> =
            border.map(|(other, text)| (other, text, true)).collect();
        if let Some((without, alternative)) = alternative.and_then(|a| Some((a.plan.as_ref()?, a)))
        {
            let inside = self.annotations(id, without).into_iter();
            let inside = inside.chain(self.reshards(without, &alternative.instead));
            tries.extend(inside.map(|(other, text)| (other, text, false)));
        }
        let mut found: Vec<Removal> = tries
            .into_iter()
            .filter_map(|(other, text, moves_the_border)| {
                let (time, lowered) = self.time(&other)?;
                let is_gone = !still_there(plan, id, &lowered);
                is_gone.then_some(Removal { text, time, moves_the_border })
            })
            .collect();
        found.sort_by_key(|r| r.time);
        found.truncate(MOST_REMOVALS);
        found
    }

    /// The program in which the moved parameter is given as the move makes it.
    fn parameter_as_moved(&self, id: InstrId) -> Option<(Program, String)> {
        let (plan, program) = (self.plan, self.program);
        let given = plan.instruction(origin(plan, id));
        let (InstrKind::Parameter(_), Some(name)) = (&given.kind, &given.name) else {
            return None;
        };
        let value = program.value_ids().find(|v| {
            matches!(program.value(*v).def, Def::Parameter { .. })
                && program.value(*v).name.as_ref() == Some(name)
        })?;
        self.with_border(Border::Parameter(value), plan.instruction(id).layout)
    }

    /// The programs in which a result that the move makes is given as it was before the move.
    fn results_unmoved(&self, id: InstrId) -> Vec<(Program, String)> {
        let plan = self.plan;
        let Some(before) = plan.instruction(id).operands.first() else { return Vec::new() };
        let layout = plan.instruction(*before).layout;
        let results = plan.outputs.iter().enumerate().filter(|(_, output)| output.id == id);
        results.filter_map(|(i, _)| self.with_border(Border::Result(i), layout)).collect()
    }

    /// The program with a layout stated at a place of the layer's type, and at every place that
    /// must have the same layout; and how that is written. `None` where a value within the layer
    /// must have it too.
    fn with_border(&self, border: Border, layout: Layout) -> Option<(Program, String)> {
        let (program, plan) = (self.program, self.plan);
        let mut other = program.clone();
        let mut texts = Vec::new();
        for place in alike(program, border)? {
            let value = match place {
                Border::Parameter(id) => id,
                Border::Result(i) => program.outputs[i].value,
            };
            let value = program.value(value);
            let stated = LayoutPattern::exactly(layout, value.dims.len());
            let layout = layout.text(&plan.mesh, &plan.dim_names(&value.dims));
            texts.push(match place {
                Border::Parameter(id) => {
                    let Def::Parameter { kind, pattern } = &mut other.values[id.index()].def else {
                        return None;
                    };
                    *pattern = stated;
                    let kind = kind.word().map_or(String::new(), |word| format!("{word} "));
                    format!("{}: {kind}{} {layout}", value.name.as_ref()?, value.dtype)
                }
                Border::Result(i) => {
                    let output = &mut other.outputs[i];
                    output.pattern = stated;
                    format!("-> {} {layout}    (the result `{}`)", value.dtype, output.name)
                }
            });
        }
        Some((other, texts.join(", and ")))
    }

    /// Programs in which a value around the move is annotated as the best plan without the move has
    /// it.
    fn annotations(&self, id: InstrId, without: &Plan) -> Vec<(Program, String)> {
        let (plan, program) = (self.plan, self.program);
        let around = [Some(origin(plan, id)), reader(plan, id)].into_iter().flatten();
        let names: BTreeSet<&str> =
            around.filter_map(|i| plan.instruction(i).name.as_deref()).collect();
        let annotation = |name: &str| {
            let value = value_named(program, name)?;
            let v = program.value(value);
            if matches!(v.def, Def::Parameter { .. }) {
                return None;
            }
            let mut instructions = without.instructions.iter();
            let made =
                instructions.find(|i| i.name.as_deref() == Some(name) && i.dims == v.dims)?;
            let text = made.layout.text(&plan.mesh, &plan.dim_names(&v.dims));
            let pattern = LayoutPattern::exactly(made.layout, v.dims.len());
            Some((annotated(program, value, &pattern), format!("let {name}: {text} = ...")))
        };
        names.into_iter().filter_map(annotation).collect()
    }

    /// Programs with one of the moves that the best plan has in place of this one.
    fn reshards(&self, without: &Plan, instead: &[InstrId]) -> Vec<(Program, String)> {
        let (plan, program) = (self.plan, self.program);
        let reshard = |there: &InstrId| {
            let instr = without.instruction(*there);
            let name = instr.name.as_deref()?;
            let value = value_named(program, name)?;
            if program.value(value).dims != instr.dims {
                return None;
            }
            let text = instr.layout.text(&plan.mesh, &plan.dim_names(&instr.dims));
            let pattern = LayoutPattern::exactly(instr.layout, instr.dims.len());
            let other = with_demand(program, value, &[pattern], None);
            Some((other, format!("let {name}1 = reshard({name}, {text})")))
        };
        instead.iter().filter_map(reshard).collect()
    }
}

/// A place in the type of a layer: a parameter by its value, or a result by its index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Border {
    Parameter(ValueId),
    Result(usize),
}

/// The places that must have the same layout as this one, itself among them: those with its label,
/// and what one application of a repeated layer hands to the next. `None` where a value within the
/// layer has the label, or where dims are in another order elsewhere.
fn alike(program: &Program, border: Border) -> Option<Vec<Border>> {
    let parameters = program.parameters().map(Border::Parameter);
    let results = (0..program.outputs.len()).map(Border::Result);
    let places: Vec<Border> = parameters.chain(results).collect();
    let seen = |place: Border| match place {
        Border::Parameter(id) => (program.value(id).def.pattern(), &program.value(id).dims),
        Border::Result(i) => {
            let output = &program.outputs[i];
            (Some(&output.pattern), &program.value(output.value).dims)
        }
    };
    let label = |place: Border| seen(place).0.and_then(|pattern| pattern.label);
    let first = |of: fn(&Border) -> bool| places.iter().copied().find(of);
    let handed_on = [
        first(|place| matches!(place, Border::Parameter(_))),
        first(|place| matches!(place, Border::Result(_))),
    ];
    let is_handed_on = |place: Border| program.repeat > 1 && handed_on.contains(&Some(place));
    let is_within = |value: &Value| {
        let Def::Pin { pattern, .. } = &value.def else { return false };
        pattern.label.is_some() && pattern.label == label(border)
    };
    let is_alike = |place: &Border| {
        *place == border
            || label(*place).is_some() && label(*place) == label(border)
            || is_handed_on(*place) && is_handed_on(border)
    };
    let found: Vec<Border> = places.iter().copied().filter(is_alike).collect();
    let may = !program.values.iter().any(is_within)
        && found.iter().all(|place| seen(*place).1 == seen(border).1);
    may.then_some(found)
}

/// Whether another plan has a move of the same kind, of the same value, over any of the same axes.
fn still_there(plan: &Plan, id: InstrId, other: &Plan) -> bool {
    let instr = plan.instruction(id);
    other.ids().any(|o| {
        let there = other.instruction(o);
        there.kind.name() == instr.kind.name()
            && there.name == instr.name
            && axes(other, o)
                .zip(axes(plan, id))
                .is_some_and(|(a, b)| !a.intersection(b).is_empty())
    })
}
