//! Reasons, values, and how a plan does without a collective, in words. Nothing else makes
//! sentences of them.

use shard_ir::reason::{
    CannotTake, Cause, Combining, Demand, Formula, LoopWhy, MoveWhy, Reason, Rewriting, Role,
    Statistic,
};
use shard_ir::{AxisList, AxisSet, Binary, DimId, Layout, Made, Op, Plan, Told};
use shard_search::Avoided;

/// Why an instruction of a plan is there, in one clause that names dims and axes; none where the
/// plan does not say.
pub fn reason_of(plan: &Plan, id: shard_ir::InstrId) -> Option<String> {
    plan.instruction(id).origin.reason.as_ref().map(|why| reason(plan, why))
}

/// A reason in a plan.
pub fn reason(plan: &Plan, reason: &Reason) -> String {
    match reason {
        Reason::Moved { value, axes, why, wants } => {
            let wants = wants
                .as_ref()
                .map_or_else(String::new, |wants| format!("; {}", demand(plan, value, wants)));
            format!("{}{wants}", moved(plan, value, *axes, why))
        }
        Reason::Statistic { composite, of, dim, axes, statistic } => {
            let of = of.as_ref().map_or_else(String::new, |of| format!(" of {}", called(of)));
            let statistic = match statistic {
                Statistic::Largest => "the largest",
                Statistic::PartOfMean => "a part of the mean",
                Statistic::SumOfSquares => "the sum of squares",
                Statistic::Sum => "the sum",
            };
            format!(
                "{}{of} is over {}, which {} splits: each device has {statistic} of its block; \
                    all need that of the whole",
                maker(composite),
                dim_name(plan, *dim),
                list(plan, *axes)
            )
        }
        Reason::Rewritten(how) => rewriting(plan, how),
        Reason::Looped { rewritten, why } => {
            let rewritten = rewritten
                .as_ref()
                .map_or_else(String::new, |how| format!("{}; ", rewriting(plan, how)));
            format!("{rewritten}{}", looped(plan, why))
        }
    }
}

fn moved(plan: &Plan, value: &Told, axes: AxisList, why: &MoveWhy) -> String {
    let (name, axes) = (called(value), list(plan, axes));
    let dim = |dim: &DimId| dim_name(plan, *dim);
    match why {
        MoveWhy::Scattered { cause: why, dim: d } => {
            format!("{}; each device keeps its block of {}", cause(plan, why), dim(d))
        }
        MoveWhy::ScatteredAlong { cause: why, dims } => {
            let dims = plan.dim_names(dims).join(" and ");
            format!("{}; each device keeps its block of {dims}", cause(plan, why))
        }
        MoveWhy::Reduced { cause: why } => {
            format!("{}; every device needs the whole", cause(plan, why))
        }
        MoveWhy::Merged { keys, dim: along } => {
            let keys = keys.map_or("the keys", |keys| dim(&keys));
            let kept = along.map_or("every device needs the whole".to_string(), |d| {
                format!("each device keeps its block of {}", dim(&d))
            });
            format!("{axes} splits {keys}: {name} is over the keys of each device; {kept}")
        }
        MoveWhy::Gathered { dim: d } => format!("{axes} splits {} of {name}", dim(d)),
        MoveWhy::GatheredAlong { parts } => {
            let part =
                |(d, axes): &(DimId, AxisList)| format!("{} splits {}", list(plan, *axes), dim(d));
            format!("{} of {name}", parts.iter().map(part).collect::<Vec<_>>().join(" and "))
        }
        MoveWhy::Exchanged { from, to } => {
            format!("{axes} splits {} of {name} and is wanted on {}", dim(from), dim(to))
        }
        MoveWhy::Permuted { from, to } => {
            let (from, to) = (layout(plan, value, *from), layout(plan, value, *to));
            format!("the blocks of {name} lie as {from} and are wanted as {to}")
        }
        MoveWhy::Regrouped { from, to } => {
            let (from, to) = (layout(plan, value, *from), layout(plan, value, *to));
            format!(
                "{name} is split as {from} and is wanted as {to}; over {axes} each device gets \
                    what it lacks at once"
            )
        }
        MoveWhy::Sliced { dim: d } => {
            format!("{name} is replicated over {axes}, so its blocks of {} cost nothing", dim(d))
        }
        MoveWhy::MadePartial { dim: Some(d) } => {
            format!("{axes} splits {} of {name}; zeros elsewhere make it a term of a sum", dim(d))
        }
        MoveWhy::MadePartial { dim: None } => {
            format!("{name} is held by one device of each group over {axes}")
        }
    }
}

fn looped(plan: &Plan, why: &LoopWhy) -> String {
    match why {
        LoopWhy::Gathered { value, axes, dim, reader, roles } => {
            let roles: Vec<String> = roles.iter().map(|r| role(plan, r)).collect();
            format!(
                "{} splits {} of {}; {} {}, and multiplies each block while the next one travels",
                list(plan, *axes),
                dim_name(plan, *dim),
                called(value),
                maker(reader),
                roles.join(" and ")
            )
        }
        LoopWhy::Scattered { cause: why, dim } => format!(
            "{}; each block of {} is sent round while the next one is made",
            cause(plan, why),
            dim_name(plan, *dim)
        ),
    }
}

/// Why a value is partial.
fn cause(plan: &Plan, why: &Cause) -> String {
    let all =
        |causes: &[Cause]| causes.iter().map(|c| cause(plan, c)).collect::<Vec<_>>().join(", and ");
    match why {
        Cause::Given { value, axes } => {
            format!("{} is partial over {}", called(value), set(plan, *axes))
        }
        Cause::Terms { value, axes, dims } => {
            let (name, axes) = (called(value), set(plan, *axes));
            match dims.as_slice() {
                [] => format!(
                    "{name} counts on one device of each group over {axes}, with zeros on the \
                        others"
                ),
                dims => format!(
                    "{axes} splits {} of {name}, whose blocks with zeros elsewhere add up to the \
                        whole over {axes}",
                    plan.dim_names(dims).join(" and ")
                ),
            }
        }
        Cause::Combined { value, axes, how, over } => {
            let how = match how {
                Combining::Contraction => "contraction",
                Combining::Sum => "the sum",
                Combining::Maximum => "the maximum",
                Combining::Lookup => "the lookup",
                Combining::Search => "the search",
            };
            let split = |(dim, axes): &(DimId, AxisList)| {
                format!("{how} over {}, which {} splits", dim_name(plan, *dim), list(plan, *axes))
            };
            let verb = if over.len() == 1 { "leaves" } else { "leave" };
            let over: Vec<String> = over.iter().map(split).collect();
            format!(
                "{}, {verb} {} partial over {}",
                over.join(", and "),
                called(value),
                set(plan, *axes)
            )
        }
        Cause::All(causes) => all(causes),
        Cause::Follows { causes, value } => format!("{}, and so {}", all(causes), called(value)),
    }
}

/// What a reader asks for of a moved value.
fn demand(plan: &Plan, value: &Told, wants: &Demand) -> String {
    match wants {
        Demand::Result { name, open, layout: l } => {
            let word = if *open { "taken as" } else { "declared" };
            format!("the result `{name}` is {word} {}", layout(plan, value, *l))
        }
        Demand::Asks { reader, layout: l } => {
            format!("{} asks for {}", maker(reader), layout(plan, value, *l))
        }
        Demand::CannotTake { reader, why: CannotTake::NotLinear } => {
            format!("{} is not linear", maker(reader))
        }
        Demand::CannotTake { reader, why: CannotTake::Whole(dim) } => {
            format!("{} needs {} whole", maker(reader), dim_name(plan, *dim))
        }
        Demand::Reads { reader, layout: l, roles } => match roles.as_slice() {
            [] => format!("{} reads {}", maker(reader), layout(plan, value, *l)),
            roles => {
                let roles: Vec<String> = roles.iter().map(|r| role(plan, r)).collect();
                format!("{} {}", maker(reader), roles.join(" and "))
            }
        },
    }
}

fn role(plan: &Plan, role: &Role) -> String {
    match role {
        Role::Splits { dim, axes } => {
            format!("works with {} split over {}", dim_name(plan, *dim), list(plan, *axes))
        }
        Role::Whole { axes, beside } => {
            let beside: Vec<String> = beside
                .iter()
                .map(|(name, splits)| {
                    let words = splits.iter().map(|(dim, axes)| {
                        format!("{} splits {} of `{name}`", list(plan, *axes), dim_name(plan, *dim))
                    });
                    words.collect::<Vec<_>>().join(" and ")
                })
                .collect();
            let text = format!("reads it whole over {}", set(plan, *axes));
            if beside.is_empty() { text } else { format!("{text} (where {})", beside.join(", ")) }
        }
    }
}

fn rewriting(plan: &Plan, how: &Rewriting) -> String {
    match how {
        Rewriting::Merged { times, names } => match names.as_slice() {
            [] | [_] => format!("written {times} times, computed once"),
            names => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("computed once for {}", names.join(" and "))
            }
        },
        Rewriting::Computed { formula: f, flops } => {
            let flops = flops.map_or_else(String::new, |(after, before)| {
                format!(": {after:.3e} flops on all devices together, {before:.3e} as written")
            });
            format!("computed as {}{flops}", formula(f))
        }
        Rewriting::InParts { op, over, parts } => {
            let (op, over) = (op.word(), dim_name(plan, *over));
            format!("{op} over {over} in {parts} parts, each by itself")
        }
    }
}

fn formula(of: &Formula) -> String {
    match of {
        Formula::Named(name) => format!("`{name}`"),
        Formula::Unknown => "?".to_string(),
        Formula::Other(number) => format!("%{number}"),
        Formula::Op { op, operands } => {
            let part = |operand: &Formula| match operand {
                Formula::Named(_) | Formula::Unknown => formula(operand),
                Formula::Op { .. } | Formula::Other(_) => format!("({})", formula(operand)),
            };
            let operands: Vec<String> = operands.iter().map(part).collect();
            match op {
                Op::Einsum => operands.join(" · "),
                Op::Binary(Binary::Add) => operands.join(" + "),
                Op::Binary(Binary::Sub) => operands.join(" - "),
                op => format!("{} {}", op.word(), operands.join(", ")),
            }
        }
    }
}

fn dim_name(plan: &Plan, dim: DimId) -> &str {
    plan.dims[dim.index()].name.as_str()
}

fn list(plan: &Plan, axes: AxisList) -> String {
    plan.mesh.axes_text(axes.iter())
}

fn set(plan: &Plan, axes: AxisSet) -> String {
    plan.mesh.axes_text(axes.iter())
}

fn layout(plan: &Plan, value: &Told, layout: Layout) -> String {
    layout.text(&plan.mesh, &plan.dim_names(&value.dims))
}

/// A value by its name, or by the op that makes it: "the einsum of `x` and `w`". If no name is
/// near, the next one that it is made from is said: "the sum of the scan (made from `x`)".
pub fn called(value: &Told) -> String {
    let short = called_to(value, 1);
    if short.contains('`') {
        return short;
    }
    let text = called_to(value, 2);
    match source(value) {
        Some(name) if !text.contains('`') => format!("{text} (made from `{name}`)"),
        Some(_) | None => text,
    }
}

/// The first name of a value that it is made from.
fn source(value: &Told) -> Option<&str> {
    match (&value.name, &value.made) {
        (Some(name), _) => Some(name),
        (None, Made::Op { operands, .. }) => operands.iter().find_map(source),
        (None, Made::Pin { operand, .. }) => operand.as_deref().and_then(source),
        (None, Made::Parameter | Made::Constant(_)) => None,
    }
}

/// The same with so many ops without a name told one inside the other.
fn called_to(value: &Told, depth: u32) -> String {
    if let Some(name) = &value.name {
        return format!("`{name}`");
    }
    match &value.made {
        Made::Constant(number) => format!("{number:?}"),
        Made::Pin { operand, .. } => {
            operand.as_ref().map_or_else(String::new, |operand| called_to(operand, depth))
        }
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
            format!(
                "{} not made as {}",
                called(value),
                layout.text(&plan.mesh, &plan.dim_names(&value.dims))
            )
        }
    }
}
