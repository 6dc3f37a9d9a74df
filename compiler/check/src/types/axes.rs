//! The axes that a type names: each has to be an axis of the mesh, and to stand once.

use shard_grammar::{Span, ast};
use shard_ir::{AxisId, Reduction};

use crate::diagnostics::{LayoutProblem, PartialProblem};
use crate::environment::Environment;
use crate::names::nearest;
use crate::sink::Sink;

/// What a type uses an axis for: to split the dim at this place, or to be partial over it.
#[derive(Clone, Copy)]
pub(super) enum AxisUse {
    Split(usize),
    Partial(Reduction),
}

/// One mention of an axis in a type.
#[derive(Clone, Copy)]
struct Mention<'t> {
    axis: &'t str,
    span: Span,
    used: AxisUse,
}

/// The axes behind one dim or one word of a partial.
struct AxesGroup<'t> {
    word: &'t ast::AxesWord,
    used: AxisUse,
    /// What stands before them: the dim, or the word of the partial.
    before: &'t str,
    /// The sign between the two: `_`, or `-`.
    sign: char,
}

impl AxesGroup<'_> {
    fn is_braced(&self) -> bool {
        self.word.raw.contains('{')
    }
}

/// The axes of a type as they are written.
fn groups_of_axes<'t>(
    word: &'t ast::LayoutWord,
    partial: &'t [ast::PartialGroup],
) -> impl Iterator<Item = AxesGroup<'t>> {
    let split = word.dims.iter().enumerate().filter_map(|(i, d)| {
        let word = d.axes.as_ref()?;
        Some(AxesGroup { word, used: AxisUse::Split(i), before: &d.name.value, sign: '_' })
    });
    let partial = partial.iter().filter_map(|group| {
        let kind = match group.op.value {
            ast::PartialOp::Sum => Reduction::Sum,
            ast::PartialOp::Max => Reduction::Max,
            ast::PartialOp::Softmax => return None,
        };
        Some(AxesGroup {
            word: &group.axes,
            used: AxisUse::Partial(kind),
            before: group.op.value.word(),
            sign: '-',
        })
    });
    split.chain(partial)
}

/// The axes of a type with what it uses each for, without axes of size 1. `None` after an error: an
/// unknown axis, or one that stands twice.
pub(super) fn check_axes(
    env: &mut Environment<'_>,
    word: &ast::LayoutWord,
    partial: &[ast::PartialGroup],
    sink: &mut Sink,
) -> Option<Vec<(AxisId, AxisUse)>> {
    let softmax = |group: &&ast::PartialGroup| group.op.value == ast::PartialOp::Softmax;
    if let Some(group) = partial.iter().find(softmax) {
        sink.report(PartialProblem::Softmax { axes: group.axes.raw.clone(), span: group.span });
        return None;
    }
    let mut mentions: Vec<Mention<'_>> = Vec::new();
    let mut uses = Vec::new();
    let mut whole = true;
    for group in groups_of_axes(word, partial) {
        let axes = group.word;
        if !group.is_braced()
            && axes.axes.len() > 1
            && env.mesh.declared().iter().any(|(name, _)| *name == axes.raw)
        {
            sink.report(LayoutProblem::UnbracedAxis {
                raw: axes.raw.clone(),
                span: axes.span,
                before: group.before.to_string(),
                sign: group.sign,
                axis: axes.raw.clone(),
                letters: axes.axes.iter().map(|a| a.value.clone()).collect(),
            });
            whole = false;
            continue;
        }
        if !group.is_braced() && report_unbraced_misspelling(env, axes, sink) {
            whole = false;
            continue;
        }
        for axis in &axes.axes {
            let mention = Mention { axis: &axis.value, span: axis.span, used: group.used };
            if let Some(first) = mentions.iter().find(|known| known.axis == mention.axis) {
                report_twice(word, partial, *first, mention, sink);
                whole = false;
                continue;
            }
            mentions.push(mention);
            if env.mesh.is_unit_axis(&axis.value) {
                continue;
            }
            match env.mesh.axis(&axis.value) {
                Some(id) => uses.push((id, group.used)),
                None => {
                    report_unknown_axis(env, axis, &group, sink);
                    whole = false;
                }
            }
        }
    }
    whole.then_some(uses)
}

/// Reports `B_dta` where an axis `data` exists as one error about the whole word, if some letter of
/// the word is no axis.
fn report_unbraced_misspelling(
    env: &Environment<'_>,
    axes: &ast::AxesWord,
    sink: &mut Sink,
) -> bool {
    let declared = || env.mesh.declared().iter().map(|(name, _)| name.as_str());
    if axes.axes.len() < 2
        || env.mesh_is_broken
        || axes.axes.iter().all(|a| declared().any(|name| name == a.value))
    {
        return false;
    }
    let Some(near) = nearest(&axes.raw, declared()).filter(|near| near.len() > 1) else {
        return false;
    };
    let text = format!("{{{near}}}");
    if !sink.is_told("E0201", &axes.raw, axes.span, Some(text.clone())) {
        let problem = LayoutProblem::UnknownAxis {
            axis: axes.raw.clone(),
            span: axes.span,
            near: Some((text.clone(), text)),
            known: declared().map(str::to_string).collect(),
            mesh: env.mesh_line.map(|line| line.span),
            append_at: None,
        };
        sink.report_name(&axes.raw, problem);
    }
    true
}

/// The axes whose names make up a name, one behind the other: `x`, `y` and `z` for `xyz`. No axis
/// comes twice. `None` if there are no such axes, or too many combinations would have to be tried.
fn axes_in<'a>(name: &str, known: &'a [String]) -> Option<Vec<&'a str>> {
    fn rest<'a>(
        name: &str,
        known: &'a [String],
        before: &mut Vec<&'a str>,
        tries: &mut usize,
    ) -> bool {
        if name.is_empty() {
            return true;
        }
        let Some(left) = tries.checked_sub(1) else { return false };
        *tries = left;
        for axis in known {
            let Some(behind) = name.strip_prefix(axis.as_str()) else { continue };
            if axis.is_empty() || before.contains(&axis.as_str()) {
                continue;
            }
            before.push(axis);
            if rest(behind, known, before, tries) {
                return true;
            }
            before.pop();
        }
        false
    }
    let (mut found, mut tries) = (Vec::new(), 1000);
    rest(name, known, &mut found, &mut tries).then_some(found).filter(|axes| axes.len() > 1)
}

fn report_unknown_axis(
    env: &mut Environment<'_>,
    axis: &ast::Name,
    group: &AxesGroup<'_>,
    sink: &mut Sink,
) {
    if env.mesh_is_broken {
        return;
    }
    let (name, axes, braced) = (axis.value.clone(), group.word, group.is_braced());
    // Beside single letters a longer name needs braces around all axes: `B_dt` becomes `B_{d,t2}`.
    let is_letter = axis.value.len() == 1 && axes.axes.len() > 1 && !braced;
    let text = |near: &String| match (braced || near.len() == 1, is_letter) {
        (true, _) => near.clone(),
        (false, false) => format!("{{{near}}}"),
        (false, true) => {
            let name =
                |a: &ast::Name| if a.span == axis.span { near.clone() } else { a.value.clone() };
            let all = axes.axes.iter().map(name).collect::<Vec<_>>().join(",");
            if axes.any_order { format!("({{{all}}})") } else { format!("{{{all}}}") }
        }
    };
    let known: Vec<String> = env.mesh.declared().iter().map(|(name, _)| name.clone()).collect();
    let apart = axes_in(&name, &known).map(|axes| axes.join(","));
    let near = apart
        .clone()
        .or_else(|| nearest(&name, known.iter().map(String::as_str)).map(str::to_string));
    let is_long = near.as_ref().is_some_and(|near| near.len() > 1);
    let span = if is_letter && is_long { axes.span } else { axis.span };
    if let Some(near) = env.unknown_axes.get(&name)
        && sink.is_told("E0201", &name, span, near.as_ref().map(text))
    {
        return;
    }
    if !sink.has_room() {
        return;
    }
    if let Some((replaced, mesh)) = &env.replaced_mesh {
        let declared = replaced
            .and_then(|line| line.axes.iter().find(|a| a.name.value == name))
            .map(|a| a.span);
        if declared.is_some() {
            let problem = LayoutProblem::AxisNotInOverride {
                axis: name.clone(),
                span: axis.span,
                declared,
                mesh: mesh.clone(),
            };
            sink.report_name(&name, problem);
            env.unknown_axes.insert(name, None);
            return;
        }
    }
    env.unknown_axes.insert(name.clone(), near.clone());
    let near = near.as_ref().map(text).map(|edit| match &apart {
        Some(axes) => (format!("{}{}{{{axes}}}", group.before, group.sign), edit),
        None => (edit.clone(), edit),
    });
    let (mesh, append_at) = (
        env.mesh_line.map(|m| m.span),
        env.mesh_line.and_then(|m| m.axes.last()).map(|a| a.span.end),
    );
    let problem =
        LayoutProblem::UnknownAxis { axis: name.clone(), span, near, known, mesh, append_at };
    sink.report_name(&name, problem);
}

fn report_twice(
    word: &ast::LayoutWord,
    partial: &[ast::PartialGroup],
    first: Mention<'_>,
    second: Mention<'_>,
    sink: &mut Sink,
) {
    let dim = |place: usize| word.dims[place].name.value.clone();
    let without = |span: Span| {
        let mut word = word.clone();
        for dim in &mut word.dims {
            if let Some(axes) = &mut dim.axes {
                axes.axes.retain(|a| a.span != span);
                axes.any_order &= axes.axes.len() > 1;
                if axes.axes.is_empty() {
                    dim.axes = None;
                }
            }
        }
        let mut partial = partial.to_vec();
        for group in &mut partial {
            group.axes.axes.retain(|a| a.span != span);
        }
        partial.retain(|group| !group.axes.axes.is_empty());
        format!(
            "{}{}",
            shard_grammar::print_layout_word(&word),
            shard_grammar::print_partial(&partial)
        )
    };
    let axis = second.axis;
    sink.report(match ((first.span, first.used), (second.span, second.used)) {
        ((a, AxisUse::Split(i)), (b, AxisUse::Split(j))) => LayoutProblem::AxisTwice {
            axis: axis.to_string(),
            first: (dim(i), a),
            second: (dim(j), b),
            keep_first: without(b),
            keep_second: without(a),
        },
        ((a, AxisUse::Split(i)), (b, AxisUse::Partial(_)))
        | ((b, AxisUse::Partial(_)), (a, AxisUse::Split(i))) => {
            LayoutProblem::AxisSplitsAndPartial {
                axis: axis.to_string(),
                dim: dim(i),
                split: a,
                partial: b,
                keep: [without(b), without(a)],
            }
        }
        ((a, AxisUse::Partial(first)), (b, AxisUse::Partial(second))) => {
            LayoutProblem::AxisPartialTwice {
                axis: axis.to_string(),
                mentions: [(first.word(), a), (second.word(), b)],
                keep: [without(b), without(a)],
            }
        }
    });
}
