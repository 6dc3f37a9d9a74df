//! A program as text, for those who have to look into a mismatch.

use std::fmt::Write;

use shard_ir::{Def, DimId, LayoutPattern, Op, Program, ValueId};

pub(crate) fn program_text(program: &Program) -> String {
    let mut out = format!("mesh {}\n", program.mesh);
    for dim in &program.dims {
        let _ = writeln!(out, "dim {} = {}", dim.name, dim.size);
    }
    for id in program.value_ids() {
        let value = program.value(id);
        let (dtype, name) = (value.dtype, name(id));
        let _ = match &value.def {
            Def::Parameter { kind, pattern } => {
                let kind = kind.word().map_or(String::new(), |w| format!("{w} "));
                writeln!(
                    out,
                    "{name}: {kind}{dtype} {}",
                    pattern_text(program, &value.dims, pattern)
                )
            }
            Def::Constant(number) => writeln!(out, "{name} = {number}"),
            Def::Pin { operand, pattern, written } => {
                let word = if *written { "reshard" } else { "pin" };
                let pattern = pattern_text(program, &value.dims, pattern);
                writeln!(out, "let {name} = {word}({}, {pattern})", self::name(*operand))
            }
            Def::Op { op, operands } => {
                let operands: Vec<String> = operands.iter().map(|o| self::name(*o)).collect();
                let over = match op {
                    Op::Reduce { over, .. } => {
                        format!(" over {}", program.dim_names(over).concat())
                    }
                    Op::Einsum => " ->".to_string(),
                    _ => " :".to_string(),
                };
                let dims = program.dim_names(&value.dims).concat();
                writeln!(out, "let {name} = {}({}{over}) {dims}", op.word(), operands.join(", "))
            }
        };
    }
    for output in &program.outputs {
        let pattern = pattern_text(program, &program.value(output.value).dims, &output.pattern);
        let _ = writeln!(out, "return {}: {pattern}", name(output.value));
    }
    out
}

fn name(id: ValueId) -> String {
    format!("v{}", id.0)
}

fn pattern_text(program: &Program, dims: &[DimId], pattern: &LayoutPattern) -> String {
    let axes = |list: Vec<shard_ir::AxisId>| program.mesh.axes_text(list);
    let mut out = String::new();
    for (name, dim) in program.dim_names(dims).into_iter().zip(&pattern.dims) {
        let list = axes(dim.axes.iter().collect());
        let _ = match (dim.axes.is_empty(), dim.any_order) {
            (true, _) => write!(out, "{name}"),
            (false, false) => write!(out, "{name}_{list}"),
            (false, true) => write!(out, "{name}_({list})"),
        };
    }
    if pattern.open {
        out += "?";
    }
    if pattern.label.is_some() {
        out += "l";
    }
    for (word, set) in [("partialsum", pattern.partial_sum), ("partialmax", pattern.partial_max)] {
        if !set.is_empty() {
            let _ = write!(out, "({word}-{})", axes(set.iter().collect()));
        }
    }
    out
}
