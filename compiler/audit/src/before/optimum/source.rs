//! Writes a layer as `.shard` text.

use std::fmt::Write;

use super::Choice;
use crate::axes::NamedMesh;
use crate::before::sharding::Spec;
use crate::before::translate::{Class, Expression, Layer};

/// The `.shard` text of a layer with the layouts of a choice.
pub fn text(layer: &Layer, mesh: &NamedMesh, choice: &Choice) -> String {
    let mut out = String::new();
    let axes: Vec<String> =
        mesh.iter().enumerate().map(|(at, (_, size))| format!("m{at}={size}")).collect();
    let _ = writeln!(out, "mesh {}", axes.join(", "));
    let writer = Writer { layer, mesh, choice };
    for (class, size) in layer.classes() {
        match choice.parted.filter(|(parted, _)| layer.root(*parted) == class) {
            Some((_, parts)) => {
                let _ =
                    writeln!(out, "dim T = {parts}\ndim D{class} = {}\ndim U = 1", size / parts);
            }
            None => {
                let _ = writeln!(out, "dim D{class} = {size}");
            }
        }
    }
    let _ = writeln!(out, "layer main(");
    for (at, parameter) in layer.parameters.iter().enumerate() {
        let layout = writer.layout(&parameter.positions, choice.parameters[at].as_ref());
        let _ = writeln!(out, "  p{at}: {} {layout},", parameter.dtype);
    }
    let types: Vec<String> = layer
        .outputs
        .iter()
        .zip(&choice.outputs)
        .map(|(output, spec)| {
            format!("{} {}", output.dtype, writer.layout(&output.positions, spec.as_ref()))
        })
        .collect();
    let repeat = if layer.repeat > 1 { format!(" repeat {}", layer.repeat) } else { String::new() };
    let values: Vec<&str> = layer.outputs.iter().map(|output| output.value.as_str()).collect();
    match &types[..] {
        [only] => {
            let _ = writeln!(out, ") -> {only}{repeat} {{");
        }
        several => {
            let named: Vec<String> =
                several.iter().enumerate().map(|(at, text)| format!("r{at}: {text}")).collect();
            let _ = writeln!(out, ") -> ({}){repeat} {{", named.join(", "));
        }
    }
    for statement in &layer.statements {
        let _ = writeln!(
            out,
            "  let {} = {}",
            statement.value,
            writer.expression(&statement.expression)
        );
    }
    match &values[..] {
        [only] => {
            let _ = writeln!(out, "  return {only}\n}}");
        }
        several => {
            let _ = writeln!(out, "  return ({})\n}}", several.join(", "));
        }
    }
    out
}

struct Writer<'l> {
    layer: &'l Layer,
    mesh: &'l NamedMesh,
    choice: &'l Choice,
}

impl Writer<'_> {
    /// The name of a dim, or both names of a dim that is written as two.
    fn dim(&self, class: Class) -> String {
        let root = self.layer.root(class);
        if self.is_parted(class) { format!("T, D{root}") } else { format!("D{root}") }
    }

    fn is_parted(&self, class: Class) -> bool {
        self.choice
            .parted
            .is_some_and(|(parted, _)| self.layer.root(parted) == self.layer.root(class))
    }

    fn dims(&self, classes: &[Class]) -> String {
        let dims: Vec<String> = classes.iter().map(|class| self.dim(*class)).collect();
        format!("[{}]", dims.join(", "))
    }

    /// A layout word; without a spec the layout is free.
    fn layout(&self, positions: &[Option<Class>], spec: Option<&Spec>) -> String {
        let mut dims = Vec::new();
        for (at, class) in positions.iter().enumerate() {
            let Some(class) = class else { continue };
            let axes: Vec<String> = spec
                .and_then(|spec| spec.get(at))
                .into_iter()
                .flatten()
                .filter_map(|axis| self.mesh.iter().position(|(name, _)| name == axis))
                .map(|axis| format!("m{axis}"))
                .collect();
            let dim = self.dim(*class);
            dims.push(match axes.len() {
                0 => dim,
                _ => format!("{dim}_{{{}}}", axes.join(",")),
            });
        }
        let free = if spec.is_none() && !dims.is_empty() { "?" } else { "" };
        format!("[{}]{free}", dims.join(", "))
    }

    fn expression(&self, expression: &Expression) -> String {
        match expression {
            Expression::Einsum(operands, dims, dtype) => {
                let stated = dtype.map_or(String::new(), |dtype| format!(" : {dtype}"));
                format!("einsum({} -> {}{stated})", operands.join(", "), self.dims(dims))
            }
            Expression::Binary(binary, a, b) => match binary.row().sign {
                Some(sign) => format!("{a} {sign} {b}"),
                None => format!("{}({a}, {b})", binary.row().text),
            },
            Expression::Map(map, a) => format!("{}({a})", map.row().text),
            Expression::Reduce(reduce, a, dims) => {
                format!("{}({a} over {})", reduce.row().text, self.dims(dims))
            }
            Expression::Rename(a, from, to) => {
                format!("rename({a}, {} -> {})", self.dim(*from), self.dim(*to))
            }
            Expression::Split(a, from, to) => {
                format!("split({a}, {} -> {})", self.dim(*from), self.dims(to))
            }
            Expression::Merge(a, from, to) => {
                format!("merge({a}, {} -> {})", self.dims(from), self.dim(*to))
            }
            Expression::Slice(a, from, to, start) if self.is_parted(*from) => {
                let (part, whole) = (self.layer.root(*from), self.dim(*to));
                let at = start / self.layer.size(*to);
                format!("rename(sum(slice({a}, T -> U, {at}) over U), D{part} -> {whole})")
            }
            Expression::Slice(a, from, to, start) => {
                format!("slice({a}, {} -> {}, {start})", self.dim(*from), self.dim(*to))
            }
            Expression::Concat(a, b, one, other, whole) => {
                let [one, other, whole] = [one, other, whole].map(|class| self.dim(*class));
                format!("concat({a}, {b}, {one}, {other} -> {whole})")
            }
            Expression::Take(table, ids, over) => {
                format!("take({table}, {ids} over {})", self.dim(*over))
            }
            Expression::Cast(a, dtype) => format!("cast({a}, {dtype})"),
            Expression::Constrain(a, number) => {
                let constraint = &self.layer.constraints[*number];
                match &self.choice.constraints[*number] {
                    Some(spec) => {
                        format!("reshard({a}, {})", self.layout(&constraint.positions, Some(spec)))
                    }
                    None => format!("{a} * 1.0"),
                }
            }
        }
    }
}
