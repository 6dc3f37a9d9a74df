//! `repeat N`: the first result of a stacked layer has to be what its first parameter is, and a
//! cache stays in its layout.

use std::collections::BTreeSet;

use shard_grammar::ast;
use shard_ir::op::Flag;
use shard_ir::{
    Def, DimId, LayoutPattern, Op, ParameterKind, Program, ValueId, never, typing::same_dims,
};

use crate::diagnostics::{LayerProblem, Quote};
use crate::environment::Environment;
use crate::sink::Sink;
use crate::types::Labels;

/// Checks a layer that repeats more than once, and ties the layouts of its caches.
pub(crate) fn check(
    env: &Environment<'_>,
    layer: &ast::Layer,
    program: &mut Program,
    labels: &mut Labels,
    sink: &mut Sink,
) {
    let is_stack = |repeat: &&ast::Repeat| repeat.count.value > 1 && layer.model.is_none();
    let Some(repeat) = layer.repeat.as_ref().filter(is_stack) else { return };
    carry(env, layer, repeat, program, labels, sink);
    for index in 0..program.outputs.len() {
        let declared = layer.results.types().get(index).copied();
        if let Some(declared) =
            declared.filter(|ty| ty.kind.map(|k| k.value) == Some(ast::Kind::Cache))
        {
            tie_cache(layer, declared, index, program, labels, sink);
        }
    }
}

/// Reports a first result that has not the dims, dtype and layout of the first parameter.
fn carry(
    env: &Environment<'_>,
    layer: &ast::Layer,
    repeat: &ast::Repeat,
    program: &mut Program,
    labels: &mut Labels,
    sink: &mut Sink,
) {
    let result_type = layer.results.types()[0];
    let result_text = shard_grammar::print_type(result_type);
    let mut refuse = |parameter: Option<&ast::Param>, why: String, help: Option<String>| {
        sink.report(LayerProblem::RepeatCarry {
            layer: layer.name.value.clone(),
            span: repeat.span,
            parameter: parameter.map(|p| Quote::of_type(&p.ty)),
            result: Quote::of_type(result_type),
            why,
            help,
        });
    };
    let Some(param) = layer.params.first() else {
        let help = Some(format!("layer {}(x: {result_text}) -> {result_text}", layer.name.value));
        return refuse(None, "it takes nothing that it could hand on".to_string(), help);
    };
    let (value, output) = (&program.values[0], &program.outputs[0]);
    let Def::Parameter { pattern, .. } = &value.def else {
        return never!("a first value that is no parameter", ());
    };
    let (dims, dtype) = (value.dims.clone(), value.dtype);
    let result_dtype = program.value(output.value).dtype;
    if !same_dims(&dims, &output.dims) {
        let why = format!(
            "`{}` has the dims {}, and the result has {}",
            param.name.value,
            env.dims_text(&dims),
            env.dims_text(&output.dims)
        );
        return refuse(
            Some(param),
            why,
            Some("a result of the same dims as the first parameter".to_string()),
        );
    }
    if dtype != result_dtype {
        let why = format!("`{}` is {dtype}, and the result is {result_dtype}", param.name.value);
        return refuse(Some(param), why, Some(format!("cast the result to {dtype}")));
    }
    let result_dims = program.value(output.value).dims.clone();
    let result_pattern = output.pattern.permuted(&result_dims, &dims);
    if pattern.label.is_some() && pattern.label == result_pattern.label {
        return;
    }
    let same = same_demand(pattern, &result_pattern)
        && pattern.label.is_none()
        && result_pattern.label.is_none();
    if same && !pattern.open {
        if pattern.dims.iter().any(|d| d.any_order) {
            // With `E_(xy)` on both, the compiler chooses one order for both.
            tie(program, ValueId(0), 0, labels, &param.name.value);
        }
        return;
    }
    let word = &param.ty.layout;
    let labelled = |label: &str| {
        let free = Some(ast::FreeMark {
            span: word.span,
            label: Some(shard_grammar::Spanned::new(label.to_string(), word.span)),
        });
        shard_grammar::print_layout_word(&ast::LayoutWord { free, ..word.clone() })
    };
    let help = match (pattern.open, result_pattern.open) {
        (false, _) => format!("{dtype} {}    (as the result type)", exact_text(param)),
        (true, _) => format!("{dtype} {}    (for both: one label, one layout)", labelled("l")),
    };
    refuse(
        Some(param),
        "its first parameter and its result may be laid out differently".to_string(),
        Some(help),
    );
}

fn exact_text(param: &ast::Param) -> String {
    format!(
        "{}{}",
        shard_grammar::print_layout_word(&param.ty.layout),
        shard_grammar::print_partial(&param.ty.partial)
    )
}

fn same_demand(a: &LayoutPattern, b: &LayoutPattern) -> bool {
    a.dims == b.dims
        && a.partial_sum == b.partial_sum
        && a.partial_max == b.partial_max
        && a.open == b.open
}

/// Gives a parameter and an output one fresh label.
fn tie(program: &mut Program, param: ValueId, output: usize, labels: &mut Labels, name: &str) {
    if program.value(param).dims != program.value(program.outputs[output].value).dims {
        // A label compares layouts dim by dim, and so cannot tie a value whose dims are in another
        // order.
        return;
    }
    let label = labels.fresh(name);
    if let Def::Parameter { pattern, .. } = &mut program.values[param.index()].def {
        pattern.label = Some(label);
    }
    program.outputs[output].pattern.label = Some(label);
}

/// Gives a cache result the layout of the cache parameter that it is made from, and reports it if
/// the two types state other layouts.
fn tie_cache(
    layer: &ast::Layer,
    declared: &ast::Type,
    index: usize,
    program: &mut Program,
    labels: &mut Labels,
    sink: &mut Sink,
) {
    let Some(origin) = cache_origin(program, program.outputs[index].value) else { return };
    let Def::Parameter { pattern, .. } = program.value(origin).def.clone() else {
        return never!("a cache that is no parameter", ());
    };
    let dims: Vec<DimId> = program.value(origin).dims.clone();
    let output = &program.outputs[index];
    let output_dims = program.value(output.value).dims.clone();
    if !same_dims(&dims, &output_dims) {
        return;
    }
    let result = output.pattern.permuted(&output_dims, &dims);
    if pattern.label.is_some() && pattern.label == result.label {
        return;
    }
    let Some(param) = layer.params.get(origin.index()) else {
        return never!("a cache that no parameter of the layer declares", ());
    };
    let labelled = pattern.label.is_some() || result.label.is_some();
    match (pattern.open, result.open) {
        _ if labelled => {}
        (false, false) if same_demand(&pattern, &result) => {
            if pattern.dims.iter().any(|d| d.any_order) {
                tie(program, origin, index, labels, &param.name.value);
            }
            return;
        }
        (true, true) if same_demand(&pattern, &result) => {
            return tie(program, origin, index, labels, &param.name.value);
        }
        // A side that leaves its layout to the compiler takes the layout that the other states.
        (false, true) if crate::builder::is_free(&result) => {
            program.outputs[index].pattern = pattern.permuted(&dims, &output_dims);
            return;
        }
        (true, false) if crate::builder::is_free(&pattern) => {
            if let Def::Parameter { pattern, .. } = &mut program.values[origin.index()].def {
                *pattern = result;
            }
            return;
        }
        _ => {}
    }
    // A value that replaces a cache, and is not appended to it, may have another layout, if both
    // state one.
    if appended_to(program, program.outputs[index].value).is_none() {
        return;
    }
    sink.report(LayerProblem::CacheTie {
        result: program.outputs[index].name.clone(),
        result_type: Quote::of_type(declared),
        parameter: param.name.value.clone(),
        parameter_type: Quote::of_type(&param.ty),
    });
}

/// The cache parameter whose place a value takes after the step: the value is the cache with
/// something appended, or was put in its place.
pub(crate) fn cache_origin(program: &Program, value: ValueId) -> Option<ValueId> {
    appended_to(program, value).or_else(|| put_in_place_of(program, value))
}

/// The cache parameter of the value's own type from which the value is made element by element or
/// by moving positions: a state times its decay, or the last positions of a window. `None` if there
/// are several such parameters.
fn put_in_place_of(program: &Program, value: ValueId) -> Option<ValueId> {
    let made = program.value(value);
    let mut found = BTreeSet::new();
    let (mut seen, mut rest) = (BTreeSet::new(), vec![value]);
    while let Some(at) = rest.pop() {
        if !seen.insert(at) {
            continue;
        }
        match &program.value(at).def {
            Def::Parameter { kind: ParameterKind::Cache, .. } => {
                let cache = program.value(at);
                if cache.dtype == made.dtype && same_dims(&cache.dims, &made.dims) {
                    found.insert(at);
                }
            }
            Def::Pin { operand, .. } => rest.push(*operand),
            Def::Op { op, operands } if moves_or_maps(op) => rest.extend(operands),
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => {}
        }
    }
    found.pop_first().filter(|_| found.is_empty())
}

/// Whether an op works element by element, or moves values to other positions and puts at most
/// zeros between them.
fn moves_or_maps(op: &Op) -> bool {
    op.row().is(Flag::Elementwise)
        || op.row().is(Flag::KeepsValues)
        || matches!(op, Op::Pad { .. } | Op::Shift { .. })
}

/// The cache parameter that a value is with appended positions, pins and casts.
fn appended_to(program: &Program, value: ValueId) -> Option<ValueId> {
    let mut at = value;
    loop {
        match &program.value(at).def {
            Def::Parameter { kind: ParameterKind::Cache, .. } => return Some(at),
            Def::Pin { operand, .. } => at = *operand,
            Def::Op { op: Op::Append { .. } | Op::Cast(_), operands } => at = *operands.first()?,
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => return None,
        }
    }
}
