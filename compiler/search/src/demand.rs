//! Programs with one demand more than their source has, which questions about a plan lower.

use shard_ir::{Def, DimId, LabelId, LayoutPattern, Output, Program, Value, ValueId};

/// The program in which a value passes one pin for each pattern, and `reader` alone reads it behind
/// them (every reader does for `None`). A pin does what `let v: LAYOUT = ...` does. In a strict
/// program the moves to the pins count as written.
///
/// The patterns are over the value's dims in memory order. The values behind the value get ids that
/// are greater by the number of patterns.
pub fn with_demand(
    program: &Program,
    value: ValueId,
    patterns: &[LayoutPattern],
    reader: Option<ValueId>,
) -> Program {
    let more = patterns.len() as u32;
    let moved = |id: ValueId| if id > value { ValueId(id.0 + more) } else { id };
    let read = |id: ValueId, by: Option<ValueId>| {
        if id == value && (reader.is_none() || reader == by) {
            ValueId(value.0 + more)
        } else {
            moved(id)
        }
    };
    let mut out = Program {
        values: Vec::with_capacity(program.values.len() + patterns.len()),
        ..program.clone()
    };
    for id in program.value_ids() {
        let mut copy = program.value(id).clone();
        match &mut copy.def {
            Def::Parameter { .. } | Def::Constant(_) => {}
            Def::Op { operands, .. } => operands.iter_mut().for_each(|o| *o = read(*o, Some(id))),
            Def::Pin { operand, .. } => *operand = read(*operand, Some(id)),
        }
        out.values.push(copy);
        if id == value {
            let v = program.value(value);
            for (i, pattern) in patterns.iter().enumerate() {
                let operand = ValueId(value.0 + i as u32);
                let def = Def::Pin { operand, pattern: pattern.clone(), written: program.strict };
                out.values.push(Value { def, ..v.clone() });
            }
        }
    }
    let output = |o: &Output| Output { value: read(o.value, None), ..o.clone() };
    out.outputs = program.outputs.iter().map(output).collect();
    out
}

/// The program whose source states a layout for a value. A parameter that leaves its layout open is
/// stored in this one, and with it all that bears its label; an annotation of the value is
/// replaced; any other value is pinned where it is made.
pub fn annotated(program: &Program, value: ValueId, pattern: &LayoutPattern) -> Program {
    let stated = |id: ValueId| -> Program {
        let mut out = program.clone();
        if let Def::Parameter { pattern: known, .. } | Def::Pin { pattern: known, .. } =
            &mut out.values[id.index()].def
        {
            *known = pattern.clone();
        }
        out
    };
    if let Some(label) = label_of(program, value) {
        return with_label(program, label, &program.value(value).dims, pattern);
    }
    match &program.value(value).def {
        Def::Parameter { pattern: known, .. } if known.open => stated(value),
        Def::Pin { written: false, .. } => stated(value),
        Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => {
            with_demand(program, value, std::slice::from_ref(pattern), None)
        }
    }
}

/// The label of a parameter that leaves its layout open.
pub fn label_of(program: &Program, value: ValueId) -> Option<LabelId> {
    match &program.value(value).def {
        Def::Parameter { pattern, .. } if pattern.open => pattern.label,
        Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => None,
    }
}

/// The program in which a pattern stands wherever a label stood. `dims` are those of the pattern.
fn with_label(
    program: &Program,
    label: LabelId,
    dims: &[DimId],
    pattern: &LayoutPattern,
) -> Program {
    let mut out = program.clone();
    for value in &mut out.values {
        if let Def::Parameter { pattern: known, .. } | Def::Pin { pattern: known, .. } =
            &mut value.def
            && known.label == Some(label)
        {
            *known = pattern.permuted(dims, &value.dims);
        }
    }
    for output in out.outputs.iter_mut().filter(|o| o.pattern.label == Some(label)) {
        output.pattern = pattern.permuted(dims, &program.value(output.value).dims);
    }
    out
}

/// The value that a name means: the last pin of it where the value is annotated, and the value of
/// an inlined layer only where the layer itself has none of that name.
pub fn value_named(program: &Program, name: &str) -> Option<ValueId> {
    let all = || program.value_ids().filter(|id| program.value(*id).name.as_deref() == Some(name));
    let is_own =
        |id: &ValueId| program.value(*id).in_layers.is_empty() && !is_argument(program, *id);
    all().rfind(is_own).or_else(|| all().next())
}

/// Whether a value is the argument of a call: another value, pinned to the type that the callee
/// states for its parameter, at the place of the call.
pub fn is_argument(program: &Program, value: ValueId) -> bool {
    let pin = program.value(value);
    let Def::Pin { operand, written: false, .. } = &pin.def else { return false };
    let made = program.value(*operand);
    // The type of a `let` stands in the statement that makes the value, before the expression.
    let is_named = made.name.is_some() && made.name == pin.name;
    (is_named && pin.span.start >= made.span.end) || pin.span == made.span
}
