//! What `explain --why-not` is asked for: a layout of a value, a collective, or a strategy.

use shard_check::diagnostics::QuestionProblem;
use shard_check::names::nearest;
use shard_grammar::ast::{AxesWord, PartialOp};
use shard_ir::catalogue::{Move, Sends};
use shard_ir::{
    AxisList, DimPattern, Layout, LayoutError, LayoutPattern, MeshShape, Program, ValueId, never,
};
use shard_report::strategy::Strategy;
use shard_search::demand::value_named;

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Request {
    /// A value in a layout.
    Layout { value: ValueId, pattern: LayoutPattern, text: String },
    /// A collective, of one value or of any.
    Collective { of: Move, value: Option<ValueId> },
    /// A strategy.
    Strategy(Strategy),
}

/// The collectives that can be asked for. A move along several dims bears the name of that along
/// one, which stands for both.
fn collectives() -> impl Iterator<Item = Move> {
    let can_be_asked = |of: &Move| of.row().sends != Sends::Nothing && !of.row().several;
    Move::ALL.iter().copied().filter(can_be_asked)
}

/// The name of a value that a request found by its name.
pub(crate) fn name_of(value: ValueId, program: &Program) -> &str {
    let name = program.value(value).name.as_deref();
    name.unwrap_or_else(|| never!("a value found by a name that it lacks", ""))
}

/// Reads a request about a program.
pub(crate) fn read(text: &str, program: &Program) -> Result<Request, QuestionProblem> {
    let text = text.trim();
    if let Some(strategy) = Strategy::named().find(|s| s.name() == text) {
        return Ok(Request::Strategy(strategy));
    }
    let (head, tail) = match text.split_once(':') {
        Some((head, tail)) => (head.trim(), Some(tail.trim())),
        None => (text, None),
    };
    if let Some(of) = collectives().find(|of| of.row().name == head) {
        let value = tail.map(|name| named(name, program)).transpose()?;
        return Ok(Request::Collective { of, value });
    }
    match tail {
        Some(layout) => {
            let value = named(head, program)?;
            Ok(Request::Layout {
                value,
                pattern: pattern(layout, value, program)?,
                text: layout.to_string(),
            })
        }
        None => Err(unreadable(text)),
    }
}

fn unreadable(text: &str) -> QuestionProblem {
    let names: Vec<&str> = Strategy::named().map(|s| s.name()).collect();
    let moves: Vec<&str> = collectives().map(|of| of.row().name).collect();
    let known = moves.iter().chain(&names).copied();
    let help = nearest(text, known).map_or_else(
        || {
            let (all, forms) = (moves.join(", "), names.join(", "));
            format!(
                "a layout ('h: BLF_x'), a collective ({all}; 'all-gather:x') or a strategy \
                ({forms})"
            )
        },
        str::to_string,
    );
    let reason = "it is no value with a layout, no collective and no strategy".to_string();
    QuestionProblem::Unreadable { asked: text.to_string(), reason, help: Some(help) }
}

/// The value of a name.
pub(crate) fn named(name: &str, program: &Program) -> Result<ValueId, QuestionProblem> {
    value_named(program, name).ok_or_else(|| {
        let names: Vec<&str> = program.values.iter().filter_map(|v| v.name.as_deref()).collect();
        let mut all: Vec<&str> = Vec::new();
        names.iter().for_each(|n| {
            if !all.contains(n) {
                all.push(n)
            }
        });
        let help = match nearest(name, names.iter().copied()) {
            Some(near) => near.to_string(),
            None => format!("its values are {}", all.join(", ")),
        };
        QuestionProblem::NoSuch {
            asked: format!("value `{name}`"),
            layer: program.name.clone(),
            help: Some(help),
        }
    })
}

/// Reads a layout as a pattern over a value's dims, or says why no plan can have the value so.
fn pattern(
    text: &str,
    value: ValueId,
    program: &Program,
) -> Result<LayoutPattern, QuestionProblem> {
    let unreadable = |reason: String, help: Option<String>| QuestionProblem::Unreadable {
        asked: text.to_string(),
        reason,
        help,
    };
    let (word, partial) = shard_grammar::parse_layout_with_partial(text, 0)
        .map_err(|error| unreadable(error.message.clone(), error.help.clone()))?;
    let v = program.value(value);
    let name = name_of(value, program);
    let own = program.dim_names(&v.dims);
    let dims_text = Layout::REPLICATED.text(&program.mesh, &own);
    let mut out = LayoutPattern::any(own.len(), true);
    out.open = word.free.is_some();
    let mut seen = vec![false; own.len()];
    for dim in &word.dims {
        let at = own.iter().position(|d| *d == dim.name.value).filter(|at| !seen[*at]);
        let Some(at) = at else {
            let reason = format!("`{name}` has the dims {dims_text}, each once");
            return Err(unreadable(reason, Some(format!("'{name}: {dims_text}'"))));
        };
        seen[at] = true;
        if let Some(axes) = &dim.axes {
            out.dims[at] = DimPattern {
                axes: list(axes, program)?,
                any_order: axes.any_order && axes.axes.len() > 1,
            };
        }
    }
    if seen.contains(&false) {
        let reason = format!("`{name}` has the dims {dims_text}, and all have to be named");
        return Err(unreadable(reason, Some(format!("'{name}: {dims_text}'"))));
    }
    for group in &partial {
        let axes = list(&group.axes, program)?.set();
        match group.op.value {
            PartialOp::Sum => out.partial_sum = out.partial_sum.union(axes),
            PartialOp::Max => out.partial_max = out.partial_max.union(axes),
            PartialOp::Softmax => {
                let reason = "a question states no `partialsoftmax`: a plan makes such values and \
                              merges them";
                return Err(unreadable(reason.to_string(), None));
            }
        }
    }
    check(&out, value, program, text)?;
    Ok(out)
}

fn list(word: &AxesWord, program: &Program) -> Result<AxisList, QuestionProblem> {
    let mut out = AxisList::EMPTY;
    for axis in &word.axes {
        match program.mesh.axis(&axis.value) {
            Some(id) => out = out.then(id),
            None if program.mesh.is_unit_axis(&axis.value) => {}
            None => {
                let names: Vec<&str> =
                    program.mesh.declared().iter().map(|(n, _)| n.as_str()).collect();
                return Err(QuestionProblem::Unreadable {
                    asked: word.raw.clone(),
                    reason: format!("there is no mesh axis `{}`", axis.value),
                    help: Some(format!("the axes are {}", names.join(", "))),
                });
            }
        }
    }
    Ok(out)
}

/// Checks that some layout meets a pattern; the problem says why none does.
fn check(
    pattern: &LayoutPattern,
    value: ValueId,
    program: &Program,
    text: &str,
) -> Result<(), QuestionProblem> {
    let v = program.value(value);
    let (sizes, names) = (program.sizes(&v.dims), program.dim_names(&v.dims));
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let asked = format!("`{}` as {text}", name_of(value, program));
    let lists: Vec<AxisList> = pattern.dims.iter().map(|d| d.axes).collect();
    let Err(error) = Layout::new(shape, &lists, pattern.partial_sum, pattern.partial_max) else {
        return Ok(());
    };
    let axis = |a: shard_ir::AxisId| program.mesh.name(a);
    let (reason, help) = match error {
        LayoutError::AxisSplitsTwice { axis: a, first, second } if first == second => {
            (format!("mesh axis {} is named twice on {}", axis(a), names[first]), None)
        }
        LayoutError::AxisSplitsTwice { axis: a, first, second } => {
            let (first, second) = (names[first], names[second]);
            (
                format!(
                    "mesh axis {} is used twice, on {first} and on {second}: it splits one dim at \
                        most",
                    axis(a)
                ),
                None,
            )
        }
        LayoutError::AxisSplitsAndPartial { axis: a, dim } => (
            format!(
                "mesh axis {} splits {} and is partial: it is one or the other",
                axis(a),
                names[dim]
            ),
            None,
        ),
        LayoutError::AxisPartialTwice { axis: a } => {
            (format!("mesh axis {} is both partialsum and partialmax", axis(a)), None)
        }
        LayoutError::NotDivisible { dim, size, devices } => {
            let over = program.mesh.axes_text(lists[dim].iter());
            let up = size.div_ceil(devices.max(1)).saturating_mul(devices);
            let reason =
                format!("{} = {size} does not divide over {over} ({devices} devices)", names[dim]);
            (reason, Some(format!("-D '{}={size} pad {up}'", names[dim])))
        }
        LayoutError::RankTooLarge(rank) => (format!("{rank} dims are too many"), None),
    };
    Err(QuestionProblem::Impossible { asked, reason, help })
}
