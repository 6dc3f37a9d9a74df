//! Pins on partial values that no op could meet by itself.
//!
//! A lowering may reshard between any two pins, so that few pins are wrong for certain. This module
//! reports an op whose operand and whose result are both stated to be partial over an axis,
//! although the op cannot act on the terms. A plan could reduce the operand and make the result
//! partial again, but nobody means that.

use std::collections::BTreeMap;

use shard_grammar::Span;
use shard_ir::{
    AxisId, AxisList, AxisSet, Binary, Def, Layout, LayoutPattern, MeshShape, Op, Operand, Program,
    Reduction, RuleError, Value, ValueId, result_layout,
};

use crate::diagnostics::{PartialProblem, Quote, WayOut};
use crate::environment::Environment;
use crate::sink::Sink;

/// Reports every such pin of the layer's own body. Pins of callees are reported when the callees
/// are checked.
pub(crate) fn check(env: &Environment<'_>, program: &Program, sink: &mut Sink) {
    for value in program.values.iter().filter(|v| v.in_layers.is_empty()) {
        if let Def::Pin { operand, pattern, written: false } = &value.def {
            check_pin(env, program, *operand, pattern, value.span, sink);
        }
    }
    for output in &program.outputs {
        check_pin(env, program, output.value, &output.pattern, output.span, sink);
    }
}

fn check_pin(
    env: &Environment<'_>,
    program: &Program,
    value: ValueId,
    pattern: &LayoutPattern,
    pin: Span,
    sink: &mut Sink,
) {
    let made = program.value(value);
    let Def::Op { op, operands } = &made.def else { return };
    if !made.in_layers.is_empty() {
        return;
    }
    let mut not_linear: BTreeMap<(usize, Reduction), AxisSet> = BTreeMap::new();
    let mut added: BTreeMap<usize, AxisSet> = BTreeMap::new();
    for (kind, axes) in
        [(Reduction::Sum, pattern.partial_sum), (Reduction::Max, pattern.partial_max)]
    {
        for axis in axes.iter() {
            match rule_over(program, op, operands, &made.dims, axis) {
                Err(RuleError::NotLinear { operand, .. }) if kind == Reduction::Sum => {
                    let axes = not_linear.entry((operand, kind)).or_default();
                    *axes = axes.with(axis);
                }
                Err(RuleError::NotIncreasing { operand, .. }) if kind == Reduction::Max => {
                    let axes = not_linear.entry((operand, kind)).or_default();
                    *axes = axes.with(axis);
                }
                Err(RuleError::PartialTimesPartial { .. }) => {
                    let problem = product_of_partials(env, program, value, pin, axis);
                    return problem.into_iter().for_each(|problem| sink.report(problem));
                }
                Err(RuleError::AddedOncePerDevice { operand, .. })
                    if kind == Reduction::Sum
                        && is_sum(op)
                        && is_whole(program, operands[operand], axis) =>
                {
                    let axes = added.entry(operand).or_default();
                    *axes = axes.with(axis);
                }
                _ => {}
            }
        }
    }
    for ((operand, kind), axes) in not_linear {
        let id = operands[operand];
        sink.report(PartialProblem::NotLinear {
            op: word(op).to_string(),
            operand: text(env, program, id),
            span: made.span,
            stated: stated_span(program, id),
            result: pin,
            kind,
            axes: program.mesh.axes_text(axes.iter()),
            ways: ways_out(program, id),
        });
    }
    for (operand, axes) in added {
        let (id, other) = (operands[operand], operands[1 - operand.min(1)]);
        sink.report(PartialProblem::AddedOnOneDevice {
            value: text(env, program, id),
            span: program.value(id).span,
            sum: made.span,
            partial: text(env, program, other),
            partial_span: stated_span(program, other),
            axes: axes
                .iter()
                .map(|a| format!("{}={}", program.mesh.name(a), program.mesh.size(a)))
                .collect::<Vec<_>>()
                .join(" * "),
            times: program.mesh.group_size(axes.iter()),
        });
    }
}

fn is_sum(op: &Op) -> bool {
    matches!(op, Op::Binary(Binary::Add | Binary::Sub))
}

/// The op as the source writes it.
fn word(op: &Op) -> &'static str {
    let sign = if let Op::Binary(binary) = op { binary.row().sign } else { None };
    sign.unwrap_or(op.word())
}

/// The layout rule of an op along one axis, where operands that are stated to be partial over the
/// axis are partial and all others are replicated.
fn rule_over(
    program: &Program,
    op: &Op,
    operands: &[ValueId],
    result: &[shard_ir::DimId],
    axis: AxisId,
) -> Result<Layout, RuleError> {
    let operands: Vec<Operand<'_>> = operands
        .iter()
        .map(|id| {
            let value = program.value(*id);
            let layout = match value.def.pattern() {
                Some(p) if p.partial_sum.contains(axis) => {
                    Layout::REPLICATED.with_partial(axis, Reduction::Sum)
                }
                Some(p) if p.partial_max.contains(axis) => {
                    Layout::REPLICATED.with_partial(axis, Reduction::Max)
                }
                _ => Layout::REPLICATED,
            };
            Operand { dims: &value.dims, dtype: value.dtype, layout }
        })
        .collect();
    result_layout(op, &operands, result, &program.mesh, &program.dims)
}

/// Whether the value is certainly not partial over an axis.
fn is_whole(program: &Program, id: ValueId, axis: AxisId) -> bool {
    match program.value(id).def.pattern() {
        Some(p) => {
            let stated = p.partial_sum.union(p.partial_max);
            !(stated.contains(axis) || (p.open && p.free_partial))
        }
        None => matches!(program.value(id).def, Def::Constant(_)),
    }
}

fn stated_span(program: &Program, id: ValueId) -> Span {
    program.value(id).span
}

/// The name of a value, or else its text in the source.
fn text(env: &Environment<'_>, program: &Program, id: ValueId) -> String {
    let value = program.value(id);
    value.name.clone().unwrap_or_else(|| {
        env.file.slice(value.span).split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

/// Layouts in which a value of a stated partial layout is complete: scattered along its last dim
/// that divides, and complete on every device.
fn ways_out(program: &Program, id: ValueId) -> Vec<WayOut> {
    let value = program.value(id);
    let sizes = program.sizes(&value.dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let Some(layout) = value.def.pattern().and_then(|p| p.exact(shape)) else { return Vec::new() };
    let partial = layout.partial_axes();
    let whole = partial.iter().fold(layout, Layout::with_replicated);
    let list: AxisList = partial.iter().collect();
    let bytes = value.dtype.bytes(shape.local_elements(layout));
    let names = program.dim_names(&value.dims);
    let mut ways = Vec::new();
    if let Some(dim) = (0..sizes.len()).rev().find(|dim| shape.can_append(whole, *dim, &list)) {
        let scattered = whole.with_dim(dim, whole.axes_of(dim).concat(list));
        ways.push(WayOut {
            layout: scattered.text(&program.mesh, &names),
            collective: "reduce-scatter",
            bytes,
        });
    }
    ways.push(WayOut {
        layout: whole.text(&program.mesh, &names),
        collective: "all-reduce",
        bytes,
    });
    ways
}

/// The problem of a product whose operands are both stated to be partial sums over an axis.
fn product_of_partials(
    env: &Environment<'_>,
    program: &Program,
    product: ValueId,
    pin: Span,
    axis: AxisId,
) -> Option<PartialProblem> {
    let Value { def: Def::Op { op, operands }, span, .. } = program.value(product) else {
        return None;
    };
    let is_partial = |id: &&ValueId| {
        program.value(**id).def.pattern().is_some_and(|p| p.partial_sum.contains(axis))
    };
    let mut partial = operands.iter().filter(is_partial);
    let (left, right) = (*partial.next()?, *partial.next()?);
    let quote =
        |id: ValueId| Quote { span: stated_span(program, id), text: text(env, program, id) };
    Some(PartialProblem::PartialTimesPartial {
        op: word(op).to_string(),
        left: quote(left),
        right: quote(right),
        span: *span,
        result: pin,
        axis: program.mesh.name(axis).to_string(),
        ways: ways_out(program, left),
    })
}
