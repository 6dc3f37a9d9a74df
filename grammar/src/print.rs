//! Prints types and expressions in the canonical style, on one line.

use crate::ast::*;
use shard_ops::Slot;
use std::fmt::Write;

/// `bf16 BLF_yz(partialsum-x)`
pub fn print_type(ty: &Type) -> String {
    let mut out = String::new();
    if let Some(kind) = &ty.kind {
        out.push_str(kind.value.word());
        out.push(' ');
    }
    if let Some(dtype) = &ty.dtype {
        out.push_str(dtype.value.name());
        out.push(' ');
    }
    out.push_str(&print_layout_word(&ty.layout));
    out.push_str(&print_partial(&ty.partial));
    out
}

/// `B_xLE_{data,model}?l`, `[Batch_x, Seq]`: in the form in which it was written.
pub fn print_layout_word(word: &LayoutWord) -> String {
    let dims: Vec<String> = word.dims.iter().map(print_dim_word).collect();
    let mut out = match word.form {
        DimsForm::Compact
            if !dims.is_empty() && word.dims.iter().all(|dim| is_short_dim(&dim.name.value)) =>
        {
            dims.concat()
        }
        _ => format!("[{}]", dims.join(", ")),
    };
    if let Some(free) = &word.free {
        out.push('?');
        out.push_str(free.label.as_ref().map_or("", |label| label.value.as_str()));
    }
    out
}

fn print_dim_word(dim: &DimWord) -> String {
    match &dim.axes {
        None => dim.name.value.clone(),
        Some(axes) if axes.any_order => format!("{}_({})", dim.name.value, print_axes(axes)),
        Some(axes) => format!("{}_{}", dim.name.value, print_axes(axes)),
    }
}

/// `xy`, or `{data,model}` where a name is longer than one letter.
fn print_axes(axes: &AxesWord) -> String {
    let names: Vec<&str> = axes.axes.iter().map(|axis| axis.value.as_str()).collect();
    if names.iter().all(|name| name.len() == 1) {
        names.concat()
    } else {
        format!("{{{}}}", names.join(","))
    }
}

/// `(partialsum-x, partialmax-y)`; nothing where nothing is partial.
pub fn print_partial(groups: &[PartialGroup]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let print_group =
        |group: &PartialGroup| format!("{}-{}", group.op.value.word(), print_axes(&group.axes));
    format!("({})", groups.iter().map(print_group).collect::<Vec<_>>().join(", "))
}

/// `BLF`, `[Batch, Seq]` or `Seq`, in the form in which it was written.
pub fn print_dim_list(list: &DimList) -> String {
    let names: Vec<&str> = list.dims.iter().map(|dim| dim.value.as_str()).collect();
    match list.form {
        DimsForm::Compact if !names.is_empty() && names.iter().all(|name| is_short_dim(name)) => {
            names.concat()
        }
        DimsForm::Single if names.len() == 1 => names.concat(),
        _ => format!("[{}]", names.join(", ")),
    }
}

/// Whether a dim may stand in a compact word: one letter, perhaps with digits.
fn is_short_dim(name: &str) -> bool {
    name.chars().skip(1).all(|c| c.is_ascii_digit())
}

/// `comm of x <= 40us`
pub fn print_claim(claim: &Claim) -> String {
    let of = |of: &Option<Name>| {
        of.as_ref().map_or(String::new(), |value| format!(" of {}", value.value))
    };
    match claim {
        Claim::Strategy { name } => format!("strategy {}", name.value),
        Claim::None { measure, of: value } => format!("no {}{}", measure.value, of(value)),
        Claim::Measured { measure, of: value, comparison, amount } => {
            let unit = amount.unit.as_ref().map_or("", |unit| unit.value.as_str());
            format!(
                "{}{} {} {}{unit}",
                measure.value,
                of(value),
                comparison.value.sign(),
                amount.number
            )
        }
    }
}

/// `4 * (E + 1)`
pub fn print_int_expr(expr: &IntExpr) -> String {
    match &expr.kind {
        IntExprKind::Number(number) => number.to_string(),
        IntExprKind::Dim(name) => name.clone(),
        IntExprKind::Paren(inner) => format!("({})", print_int_expr(inner)),
        IntExprKind::Binary { op, left, right, .. } => {
            let looser = |side: &IntExpr, bound: u8| match &side.kind {
                IntExprKind::Binary { op, .. } => op.precedence() < bound,
                IntExprKind::Number(_) | IntExprKind::Dim(_) | IntExprKind::Paren(_) => false,
            };
            let left_text = wrapped(print_int_expr(left), looser(left, op.precedence()));
            let right_text = wrapped(print_int_expr(right), looser(right, op.precedence() + 1));
            format!("{left_text} {} {right_text}", op.sign())
        }
    }
}

fn wrapped(text: String, in_parens: bool) -> String {
    if in_parens { format!("({text})") } else { text }
}

/// The expression on one line. Parentheses that its tree needs are added where no
/// [`ExprKind::Paren`] stands.
pub fn print_expr(expr: &Expr) -> String {
    let mut out = String::new();
    write_expr(&mut out, expr);
    out
}

/// How tightly an expression's outermost operation binds; a call or a name binds tightest.
fn precedence(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::Binary { op, .. } => op.precedence(),
        ExprKind::Neg { .. } => 3,
        ExprKind::Number(_)
        | ExprKind::Name(_)
        | ExprKind::Paren(_)
        | ExprKind::Call { .. }
        | ExprKind::Named { .. }
        | ExprKind::Einsum { .. }
        | ExprKind::Form { .. }
        | ExprKind::Reshard { .. } => 4,
    }
}

fn write_operand(out: &mut String, expr: &Expr, at_least: u8) {
    if precedence(expr) < at_least {
        out.push('(');
        write_expr(out, expr);
        out.push(')');
    } else {
        write_expr(out, expr);
    }
}

fn write_expr(out: &mut String, expr: &Expr) {
    match &expr.kind {
        ExprKind::Number(number) => out.push_str(&number.text),
        ExprKind::Name(name) => out.push_str(name),
        ExprKind::Paren(inner) => {
            out.push('(');
            write_expr(out, inner);
            out.push(')');
        }
        ExprKind::Named { name, value } => {
            out.push_str(&name.value);
            out.push_str(": ");
            write_expr(out, value);
        }
        ExprKind::Neg { operand, .. } => {
            out.push('-');
            write_operand(out, operand, 3);
        }
        ExprKind::Binary { op, left, right, .. } => {
            write_operand(out, left, op.precedence());
            out.push(' ');
            out.push_str(op.sign());
            out.push(' ');
            write_operand(out, right, op.precedence() + 1);
        }
        ExprKind::Call { .. }
        | ExprKind::Einsum { .. }
        | ExprKind::Form { .. }
        | ExprKind::Reshard { .. } => {
            let (word, operands, tail) = call_parts(expr);
            out.push_str(word);
            out.push('(');
            for (index, operand) in operands.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_expr(out, operand);
            }
            out.push_str(&tail);
            out.push(')');
        }
    }
}

/// The parts of `word(operands...tail)`. The tail begins with its own blank or comma. Numbers,
/// names and signs have no such parts.
pub(crate) fn call_parts(expr: &Expr) -> (&str, Vec<&Expr>, String) {
    match &expr.kind {
        ExprKind::Number(_)
        | ExprKind::Name(_)
        | ExprKind::Paren(_)
        | ExprKind::Named { .. }
        | ExprKind::Neg { .. }
        | ExprKind::Binary { .. } => ("", vec![expr], String::new()),
        ExprKind::Call { callee, args } => (&callee.value, args.iter().collect(), String::new()),
        ExprKind::Einsum { operands, output, dtype, .. } => {
            let dtype = dtype.as_ref().map_or(String::new(), |dtype| format!(" : {}", dtype.value));
            ("einsum", operands.iter().collect(), format!(" -> {}{dtype}", print_dim_list(output)))
        }
        ExprKind::Form { op, operands, arguments } => {
            let row = op.value.row();
            let written = |(slot, argument): (&Slot, &Argument)| {
                slot.lead.text().to_string() + &print_argument(argument)
            };
            let tail = row.slots.iter().zip(arguments).map(written).collect();
            (row.source.unwrap_or_default(), operands.iter().collect(), tail)
        }
        ExprKind::Reshard { operand, layout, partial, .. } => {
            let mut tail = String::new();
            let _ = write!(tail, ", {}{}", print_layout_word(layout), print_partial(partial));
            ("reshard", vec![operand], tail)
        }
    }
}

fn print_argument(argument: &Argument) -> String {
    match argument {
        Argument::Dim(name) => name.value.clone(),
        Argument::Dims(list) => print_dim_list(list),
        Argument::Number(expr) => print_int_expr(expr),
        Argument::Dtype(dtype) => dtype.value.to_string(),
    }
}
