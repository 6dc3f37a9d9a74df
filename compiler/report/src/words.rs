//! Values, and how a plan does without a collective, in words.

use shard_ir::{Made, Op, Plan, Told};
use shard_rewrite::Avoided;

/// A value by its name, or by the op that makes it: "the einsum of `x` and `w`".
pub fn called(value: &Told) -> String {
    let short = called_to(value, 1);
    if short.contains('`') { short } else { called_to(value, 2) }
}

/// The same with so many ops without a name told one inside the other.
fn called_to(value: &Told, depth: u32) -> String {
    if let Some(name) = &value.name {
        return format!("`{name}`");
    }
    match &value.made {
        Made::Constant(number) => format!("{number:?}"),
        Made::Pin { operand, .. } => operand.as_ref().map_or_else(String::new, |operand| called_to(operand, depth)),
        Made::Parameter => "a parameter".to_string(),
        Made::Op { op, operands } if depth > 0 => {
            let mut names: Vec<String> = Vec::new();
            for name in operands.iter().map(|operand| called_to(operand, depth - 1)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            format!("the {} of {}", op.word(), names.join(" and "))
        }
        Made::Op { op, .. } => format!("the {}", op.word()),
    }
}

/// What makes a value: "einsum `h`", "softmax (`p`)", "gelu".
pub fn maker(value: &Told) -> String {
    let word = match &value.made {
        Made::Op { op, .. } => op.word(),
        Made::Pin { written: true, .. } => "reshard",
        Made::Pin { written: false, .. } => "the annotation",
        Made::Parameter => "parameter",
        Made::Constant(_) => "constant",
    };
    match (&value.name, &value.made) {
        (Some(name), Made::Op { op: Op::Einsum, .. }) => format!("{word} `{name}`"),
        (Some(name), _) => format!("{word} (`{name}`)"),
        (None, _) => word.to_string(),
    }
}

/// How an alternative to a plan does without a collective.
pub fn without(plan: &Plan, avoided: &Avoided) -> String {
    match avoided {
        Avoided::Unmoved { reader, value, .. } => {
            format!("{} with {} left where it lies", maker(reader), called(value))
        }
        Avoided::Complete { value, axes } => {
            format!("{} never partial over {}", called(value), plan.mesh.axes_text(axes.iter()))
        }
        Avoided::Whole { composite, dim } => {
            format!("{} with {} whole", maker(composite), plan.dims[dim.index()].name)
        }
        Avoided::MadeElsewhere { value, layout } => {
            format!("{} not made as {}", called(value), layout.text(&plan.mesh, &plan.dim_names(&value.dims)))
        }
    }
}
