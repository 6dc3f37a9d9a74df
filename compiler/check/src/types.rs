//! Sharded types: an AST type as dims, dtype and a [`LayoutPattern`].

mod axes;

use std::collections::BTreeMap;

use shard_grammar::{Span, ast};
use shard_ir::tensor::{MAX_ELEMENTS, MAX_RANK};
use shard_ir::{
    AxisList, AxisSet, DimId, DimPattern, Dtype, LabelId, Layout, LayoutError, LayoutPattern,
    MeshShape, ParameterKind, Reduction, never,
};

use crate::diagnostic::Edit;
use crate::diagnostics::{DimProblem, LayoutProblem, LimitProblem, NotDivisible};
use crate::environment::Environment;
use crate::factored::factored;
use crate::sink::Sink;
use axes::{AxisUse, check_axes};

/// A type without an error.
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
    /// Labels that helps have proposed, with the dims that they are for.
    proposed: BTreeMap<String, Vec<DimId>>,
}

impl Labels {
    /// A new label that the source does not name: for an inlined call, or for a tie.
    pub(crate) fn fresh(&mut self, name: &str) -> LabelId {
        let id = LabelId(self.names.len() as u16);
        self.names.push(name.to_string());
        id
    }

    /// Proposes a label for a type of these dims: this name with a number, such that no type of
    /// other dims has it.
    fn propose(&mut self, name: &str, dims: &[DimId]) -> String {
        let is_free = |name: &String| {
            let declared = self.declared.get(name).is_none_or(|other| other.dims == dims);
            declared && self.proposed.get(name).is_none_or(|other| other == dims)
        };
        let free = (2u32..).map(|n| format!("{name}{n}")).find(is_free);
        let free =
            free.unwrap_or_else(|| never!("no label with a number is free", name.to_string()));
        self.proposed.insert(free.clone(), dims.to_vec());
        free
    }
}

/// Checks a type. `free_partial` says whether a `?` leaves partials free too, as it does inside a
/// layer and not at its boundary.
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

/// The number of elements of a tensor of these dims; `None` past the limit.
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
    // `BATCH` is read as five dims; if no letter has a subscript, one dim may be meant.
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

/// Reports dims that do not divide over their axes: what is written has to be legal, whatever `?`
/// and `(..)` leave open.
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
        // Cannot be: `check_axes` has each axis once, and the rank is checked above.
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
