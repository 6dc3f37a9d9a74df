//! Sharded types: an AST type as dims, dtype and a [`LayoutPattern`].

use std::collections::BTreeMap;

use shard_grammar::{Span, ast};
use shard_ir::tensor::{MAX_ELEMENTS, MAX_RANK};
use shard_ir::{
    AxisId, AxisList, AxisSet, DimId, DimPattern, Dtype, LabelId, Layout, LayoutError,
    LayoutPattern, MeshShape, ParameterKind, Reduction,
};

use crate::diagnostic::Edit;
use crate::diagnostics::{DimProblem, LayoutProblem, LimitProblem, NotDivisible, PartialProblem};
use crate::environment::Environment;
use crate::factored::factored;
use crate::names::nearest;
use crate::sink::Sink;

/// A type that is right.
#[derive(Clone, Debug)]
pub(crate) struct CheckedType {
    pub(crate) kind: ParameterKind,
    pub(crate) dtype: Option<Dtype>,
    pub(crate) dims: Vec<DimId>,
    pub(crate) pattern: LayoutPattern,
}

/// A label that source text names.
#[derive(Clone, Debug)]
struct DeclaredLabel {
    id: LabelId,
    dims: Vec<DimId>,
    /// The layout word where it stands first.
    span: Span,
}

/// The labels of a layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) names: Vec<String>,
    declared: BTreeMap<String, DeclaredLabel>,
    /// What was proposed for types that bear a label of other dims, by its dims.
    proposed: BTreeMap<String, Vec<DimId>>,
}

impl Labels {
    /// A label that no source text names: of an inlined call, or of a tie.
    pub(crate) fn fresh(&mut self, name: &str) -> LabelId {
        let id = LabelId(self.names.len() as u16);
        self.names.push(name.to_string());
        id
    }

    /// A name like this one for a type of these dims, that no type of other dims has.
    fn propose(&mut self, name: &str, dims: &[DimId]) -> String {
        let is_free = |name: &String| {
            let declared = self.declared.get(name).is_none_or(|other| other.dims == dims);
            declared && self.proposed.get(name).is_none_or(|other| other == dims)
        };
        let free = (2u32..).map(|n| format!("{name}{n}")).find(is_free).unwrap_or_default();
        self.proposed.insert(free.clone(), dims.to_vec());
        free
    }
}

/// What a type uses an axis for: to split the dim at this place, or to be partial over it.
#[derive(Clone, Copy)]
enum AxisUse {
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

/// Checks a type. `free_partial`: whether a `?` leaves partials free too (inside a layer) or not
/// (at its boundary).
pub(crate) fn check_type(
    env: &mut Environment<'_>,
    labels: &mut Labels,
    ty: &ast::Type,
    free_partial: bool,
    sink: &mut Sink,
) -> Option<CheckedType> {
    let (dims, pattern) = check_layout(env, labels, &ty.layout, &ty.partial, free_partial, sink)?;
    let kind = match ty.kind.map(|k| k.value) {
        None => ParameterKind::Activation,
        Some(ast::Kind::Weight) => ParameterKind::Weight,
        Some(ast::Kind::HostWeight) => ParameterKind::HostWeight,
        Some(ast::Kind::Cache) => ParameterKind::Cache,
    };
    Some(CheckedType { kind, dtype: ty.dtype.map(|d| d.value), dims, pattern })
}

/// Checks a layout word with its partials.
pub(crate) fn check_layout(
    env: &mut Environment<'_>,
    labels: &mut Labels,
    word: &ast::LayoutWord,
    partial: &[ast::PartialGroup],
    free_partial: bool,
    sink: &mut Sink,
) -> Option<(Vec<DimId>, LayoutPattern)> {
    let dims = check_dims(env, word, sink);
    let axes = check_axes(env, word, partial, sink);
    let (dims, axes) = (dims?, axes?);
    if dims.len() > MAX_RANK {
        sink.report(LimitProblem::Rank { found: dims.len(), limit: MAX_RANK, span: word.span });
        return None;
    }
    if elements(env, &dims).is_none() {
        sink.report(LimitProblem::Elements {
            dims: env.dims_text(&dims),
            limit: MAX_ELEMENTS,
            span: word.span,
        });
        return None;
    }
    let mut pattern = LayoutPattern::any(dims.len(), free_partial && word.free.is_some());
    pattern.open = word.free.is_some();
    for (i, dim) in word.dims.iter().enumerate() {
        let any_order = dim.axes.as_ref().is_some_and(|a| a.any_order);
        pattern.dims[i] = DimPattern { axes: AxisList::EMPTY, any_order };
    }
    for (axis, used) in axes {
        match used {
            AxisUse::Split(dim) => pattern.dims[dim].axes = pattern.dims[dim].axes.then(axis),
            AxisUse::Partial(Reduction::Sum) => {
                pattern.partial_sum = pattern.partial_sum.with(axis)
            }
            AxisUse::Partial(Reduction::Max) => {
                pattern.partial_max = pattern.partial_max.with(axis)
            }
        }
    }
    for dim in &mut pattern.dims {
        dim.any_order &= dim.axes.len() > 1;
    }
    check_legal(env, word, &dims, &pattern, sink)?;
    if let Some(label) = word.free.as_ref().and_then(|free| free.label.as_ref()) {
        pattern.label = Some(check_label(env, labels, label, &dims, word.span, sink)?);
    }
    Some((dims, pattern))
}

/// How many elements a tensor of these dims has, within the limit.
pub(crate) fn elements(env: &Environment<'_>, dims: &[DimId]) -> Option<u64> {
    let mut product = 1u64;
    for dim in dims {
        product = product.checked_mul(env.size(*dim)).filter(|n| *n <= MAX_ELEMENTS)?;
    }
    Some(product)
}

fn check_dims(
    env: &mut Environment<'_>,
    word: &ast::LayoutWord,
    sink: &mut Sink,
) -> Option<Vec<DimId>> {
    let mut out: Vec<(DimId, Span)> = Vec::new();
    let mut whole = true;
    // `BATCH` is five dims; where no letter bears a subscript, one dim may be meant.
    let text = env.file.slice(word.span).to_string();
    let letters = text.strip_suffix('?').unwrap_or(&text).to_string();
    let span = Span::new(word.span.start, word.span.start + letters.len());
    let together = (word.form == ast::DimsForm::Compact && word.dims.len() > 1)
        .then_some((span, letters.as_str()));
    for dim in &word.dims {
        match env.dim(&dim.name, together, sink) {
            Some(id) => match out.iter().find(|(seen, _)| *seen == id) {
                Some((_, first)) => {
                    let name = dim.name.value.clone();
                    sink.report(DimProblem::Repeated {
                        dim: name,
                        span: dim.name.span,
                        first: *first,
                    });
                    whole = false;
                }
                None => out.push((id, dim.name.span)),
            },
            None => whole = false,
        }
    }
    whole.then(|| out.into_iter().map(|(id, _)| id).collect())
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

/// The axes of a type and what it uses each for, once; axes of size 1 are left out.
fn check_axes(
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

/// `B_dta` where an axis `data` exists: one error of the whole word, if some letter of it is no
/// axis.
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

/// The axes whose names, one behind the other, are a name: `x`, `y` and `z` of `xyz`. None comes
/// twice. Names of which too many would have to be tried have none.
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
    // Among letters, a longer name puts all of them in braces: `B_dt` is `B_{d,t2}` then.
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

/// Divisibility: what is written must be legal whatever `?` and `(..)` leave open.
fn check_legal(
    env: &Environment<'_>,
    word: &ast::LayoutWord,
    dims: &[DimId],
    pattern: &LayoutPattern,
    sink: &mut Sink,
) -> Option<()> {
    let sizes: Vec<u64> = dims.iter().map(|d| env.size(*d)).collect();
    let shape = MeshShape { mesh: &env.mesh, sizes: &sizes };
    let lists: Vec<AxisList> = pattern.dims.iter().map(|d| d.axes).collect();
    for (dim, list) in dims.iter().zip(&lists) {
        sink.divides(env.dim_name(*dim), env.mesh.group_size(list.iter()));
    }
    match Layout::new(shape, &lists, pattern.partial_sum, pattern.partial_max) {
        Ok(_) => Some(()),
        Err(LayoutError::NotDivisible { .. }) => {
            for (i, list) in lists.iter().enumerate() {
                let devices = env.mesh.group_size(list.iter());
                if !sizes[i].is_multiple_of(devices) {
                    let free = env.mesh.all_axes().difference(used_elsewhere(pattern, i));
                    let problem = not_divisible(env, dims[i], *list, free, word.dims[i].span);
                    sink.report_undivided(problem);
                }
            }
            None
        }
        // Each axis is named once and the rank is checked: what is left cannot be.
        Err(
            LayoutError::AxisSplitsTwice { .. }
            | LayoutError::AxisSplitsAndPartial { .. }
            | LayoutError::AxisPartialTwice { .. }
            | LayoutError::RankTooLarge(_),
        ) => None,
    }
}

fn used_elsewhere(pattern: &LayoutPattern, dim: usize) -> AxisSet {
    pattern
        .dims
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != dim)
        .fold(pattern.partial_sum.union(pattern.partial_max), |set, (_, d)| set.union(d.axes.set()))
}

fn not_divisible(
    env: &Environment<'_>,
    dim: DimId,
    axes: AxisList,
    free: AxisSet,
    span: Span,
) -> NotDivisible {
    const SHOWN: usize = 3;
    let (info, line) = (&env.dims[dim.index()], &env.dim_lines[dim.index()]);
    let devices = env.mesh.group_size(axes.iter());
    let mut fits: Vec<AxisSet> = free
        .nonempty_subsets()
        .filter(|set| info.size.is_multiple_of(env.mesh.group_size(set.iter())))
        .collect();
    fits.sort_by_key(|set| {
        (
            !set.is_subset(axes.set()),
            std::cmp::Reverse(env.mesh.group_size(set.iter())),
            set.len(),
            *set,
        )
    });
    let pad = info.size - info.size % devices + devices;
    let edit = match &line.stated.pad {
        _ if line.overridden => None,
        Some(old) => Some(Edit { span: old.span, replacement: pad.to_string() }),
        None => Some(Edit {
            span: Span::at(line.stated.value.span.end),
            replacement: format!(" pad {pad}"),
        }),
    };
    let value = if line.overridden {
        info.useful.to_string()
    } else {
        shard_grammar::print_int_expr(&line.stated.value)
    };
    NotDivisible {
        dim: info.name.clone(),
        size: info.size,
        useful: info.useful,
        value,
        phase: env
            .phase
            .filter(|_| !std::ptr::eq(line.line, line.stated))
            .map(|phase| phase.name.value.clone()),
        axes: axes
            .iter()
            .map(|a| format!("{}={}", env.mesh.name(a), env.mesh.size(a)))
            .collect::<Vec<_>>()
            .join(" "),
        devices,
        span,
        declared: Some(line.stated.span),
        fits: fits
            .iter()
            .take(SHOWN)
            .map(|set| format!("{}_{}", info.name, env.mesh.axes_text(set.iter())))
            .collect(),
        factored: factored(&env.mesh, axes, info.size).map(|other| {
            (other.mesh, format!("{}_{}", info.name, env.mesh.axes_text(other.fits)), other.minor)
        }),
        next: pad,
        pad,
        edit,
    }
}

fn check_label(
    env: &Environment<'_>,
    labels: &mut Labels,
    label: &ast::Name,
    dims: &[DimId],
    span: Span,
    sink: &mut Sink,
) -> Option<LabelId> {
    match labels.declared.get(&label.value) {
        None => {
            let id = labels.fresh(&label.value);
            let declared = DeclaredLabel { id, dims: dims.to_vec(), span };
            labels.declared.insert(label.value.clone(), declared);
            Some(id)
        }
        Some(known) if known.dims == dims => Some(known.id),
        Some(known) => {
            let (first_dims, first) = (env.dims_text(&known.dims), known.span);
            sink.report(LayoutProblem::LabelDims {
                label: label.value.clone(),
                dims: env.dims_text(dims),
                span,
                first_dims,
                first,
                proposed: labels.propose(&label.value, dims),
            });
            None
        }
    }
}
