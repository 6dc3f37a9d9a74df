//! The axes over which values of a program may be `partialmax`.

use shard_ir::{AxisSet, Binary, Def, LayoutPattern, Op, Program, Reduce};

/// The axes over which values may be partial maxima: all axes where an op takes a maximum, where a
/// logical rule may make one that does, or where a type names a partial maximum; else none.
pub(crate) fn maxima(program: &Program) -> AxisSet {
    let named = |pattern: &LayoutPattern| !pattern.partial_max.is_empty();
    let makes_one = |def: &Def| match def {
        Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => named(pattern),
        Def::Op { op, .. } => is_maximum(op),
        Def::Constant(_) => false,
    };
    let any = program.outputs.iter().any(|o| named(&o.pattern))
        || program.values.iter().any(|v| makes_one(&v.def));
    if any { program.mesh.all_axes() } else { AxisSet::EMPTY }
}

/// Whether an op takes a maximum, or a logical rule rewrites it into one that does.
fn is_maximum(op: &Op) -> bool {
    match op {
        Op::Reduce { kind, .. } => match kind {
            Reduce::Max => true,
            Reduce::Sum | Reduce::Mean => false,
        },
        Op::Binary(binary) => match binary {
            Binary::Maximum => true,
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Minimum
            | Binary::Less
            | Binary::LessEqual
            | Binary::Equal => false,
        },
        Op::Argmax { .. } | Op::Locate { .. } => true,
        Op::Softmax { .. }
        | Op::SinkSoftmax { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Cumsum { .. }
        | Op::Shift { .. }
        | Op::Scan { .. }
        | Op::Route { .. }
        | Op::Conv { .. }
        | Op::Concat { .. }
        | Op::SliceDim { .. }
        | Op::Pad { .. }
        | Op::Append { .. }
        | Op::Rename { .. }
        | Op::TopK { .. }
        | Op::ArgTopK { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Einsum
        | Op::Take { .. }
        | Op::ScatterAdd { .. }
        | Op::Map(_)
        | Op::Where
        | Op::Iota { .. }
        | Op::Mask { .. }
        | Op::Fetch
        | Op::Cast(_) => false,
    }
}
