//! Splits and merges of dims whose blocks do not fall on whole parts, so that every plan has to
//! move the data.

use shard_ir::layout_rule::deal;
use shard_ir::{AxisList, Def, DimId, Mesh, MeshShape, Op, Program, ValueId};

use crate::diagnostics::Straddle;
use crate::environment::Environment;
use crate::factored::factored;
use crate::sink::Sink;

/// Reports every `split` and `merge` of the layer's own body that cannot keep the layout that its
/// operand is stated to have.
pub(crate) fn check(env: &Environment<'_>, program: &Program, sink: &mut Sink) {
    for value in program.values.iter().filter(|v| v.in_layers.is_empty()) {
        let Def::Op { op, operands } = &value.def else { continue };
        let (Op::Split { from: whole, to: parts } | Op::Merge { from: parts, to: whole }) = op
        else {
            continue;
        };
        let Some(axes) = stated(program, operands[0]) else { continue };
        let sizes = program.sizes(parts);
        let of_part = |d: &DimId| {
            axes.iter().find(|(dim, _)| dim == d).map_or(AxisList::EMPTY, |(_, list)| *list)
        };
        let (list, fits) = if matches!(op, Op::Split { .. }) {
            (of_part(whole), deal(of_part(whole), &sizes, &program.mesh).is_some())
        } else {
            let lists: Vec<AxisList> = parts.iter().map(of_part).collect();
            let all = lists.iter().fold(AxisList::EMPTY, |all, list| all.concat(*list));
            (all, deal(all, &sizes, &program.mesh).as_ref() == Some(&lists))
        };
        if fits {
            continue;
        }
        let name = |d: &DimId| env.dim_name(*d).to_string();
        let kept = (0..list.len())
            .rev()
            .map(|n| list.prefix(n))
            .find(|l| deal(*l, &sizes, &program.mesh).is_some());
        sink.report(Straddle {
            op: op.word(),
            span: value.span,
            whole: name(whole),
            parts: parts.iter().map(|d| (name(d), env.size(*d))).collect(),
            axes: list
                .iter()
                .map(|a| (program.mesh.name(a).to_string(), program.mesh.size(a)))
                .collect(),
            kept: kept
                .map(|list| program.mesh.axes_text(list.iter()))
                .filter(|text| !text.is_empty()),
            mesh: other_mesh(&program.mesh, list, &sizes),
            factored: in_two(&program.mesh, list, &sizes)
                .map(|(mesh, axes)| (mesh, format!("{}_{axes}", name(whole)))),
        });
    }
}

/// The axes of each dim of a value whose layout the source states.
fn stated(program: &Program, id: ValueId) -> Option<Vec<(DimId, AxisList)>> {
    let value = program.value(id);
    let shape = MeshShape { mesh: &program.mesh, sizes: &program.sizes(&value.dims) };
    let layout = value.def.pattern()?.exact(shape)?;
    Some(value.dims.iter().enumerate().map(|(at, dim)| (*dim, layout.axes_of(at))).collect())
}

/// A mesh with one axis in two, on which blocks over the axes and the new one fall on whole parts;
/// and the text of all these axes.
fn in_two(mesh: &Mesh, axes: AxisList, parts: &[u64]) -> Option<(String, String)> {
    let (major, rest) = parts.split_first()?;
    let devices = mesh.group_size(axes.iter());
    let other = factored(mesh, axes, *major)?;
    // Only the last axis can be cut: axes behind it would come between its two parts.
    let is_last = axes.iter().last() == Some(other.major);
    // The new axis is one axis: it splits the next part of a size above 1, and no other.
    let next = rest.iter().find(|part| **part > 1)?;
    let fits = devices.is_multiple_of(*major) && next.is_multiple_of(devices / major);
    let names = axes.iter().map(|axis| mesh.name(axis)).chain([other.minor.as_str()]);
    let names: Vec<&str> = names.collect();
    let text = if names.iter().all(|n| n.chars().count() == 1) {
        names.concat()
    } else {
        format!("{{{}}}", names.join(","))
    };
    (is_last && fits).then_some((other.mesh, text))
}

/// A mesh of as many devices on which blocks over the axes, in this order, fall on whole parts.
/// Each axis in turn is as large as possible.
fn other_mesh(mesh: &Mesh, axes: AxisList, parts: &[u64]) -> Option<String> {
    let order: Vec<_> = axes.iter().collect();
    let devices = mesh.group_size(order.iter().copied());
    let mut rest = devices;
    let mut sizes = Vec::new();
    // Each part gets the largest number of devices that divides the part and the devices left.
    for part in parts {
        let most = (1..=rest).rev().find(|n| part.is_multiple_of(*n) && rest.is_multiple_of(*n))?;
        sizes.push(most);
        rest /= most;
        if most < *part {
            break;
        }
    }
    sizes.resize(order.len().max(sizes.len()), 1);
    if rest > 1 || sizes.len() > order.len() {
        return None;
    }
    let size = |name: &str, old: u64| {
        let place = order.iter().position(|axis| mesh.name(*axis) == name);
        place.map_or(old, |at| sizes[at])
    };
    Some(
        mesh.declared()
            .iter()
            .map(|(name, old)| format!("{name}={}", size(name, *old)))
            .collect::<Vec<_>>()
            .join(","),
    )
}
