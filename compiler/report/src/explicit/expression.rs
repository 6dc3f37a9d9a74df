//! Ops of a plan as expressions of the language.

use shard_ir::op::{Argument, Flag, Slot, Takes};
use shard_ir::{Binary, DimId, InstrId, InstrKind, Map, Op, Plan};

/// How tightly an expression binds: a looser one inside a tighter one needs parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Binds {
    /// `a + b`, `a - b`.
    Sum,
    /// `a * b`, `a / b`.
    Product,
    /// `-a`.
    Sign,
    /// A name, a number, a call.
    Atom,
}

/// An expression that is written already.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) binds: Binds,
}

impl Written {
    pub(crate) fn atom(text: impl Into<String>) -> Written {
        Written { text: text.into(), binds: Binds::Atom }
    }

    /// The text as an operand of what binds `least`, in parentheses where it binds looser.
    fn within(&self, least: Binds) -> String {
        if self.binds >= least { self.text.clone() } else { format!("({})", self.text) }
    }
}

/// An op on operands that are written already.
pub(crate) fn op_text(plan: &Plan, id: InstrId, op: &Op, operands: &[Written]) -> Written {
    let all: Vec<&str> = operands.iter().map(|operand| operand.text.as_str()).collect();
    let args = all.join(", ");
    let call = |tail: String| Written::atom(format!("{}({args}{tail})", word(op)));
    match op {
        Op::Einsum => {
            let stated = plan.stated_dtype(id).map_or(String::new(), |dtype| format!(" : {dtype}"));
            call(format!(" -> {}{stated}", plan.dims_text(&plan.instruction(id).dims)))
        }
        Op::Map(Map::Neg) => {
            let operand = operands.first().map_or_else(String::new, |o| o.within(Binds::Sign));
            Written { text: format!("-{operand}"), binds: Binds::Sign }
        }
        Op::Binary(binary) => match (sign(*binary), operands) {
            (Some((sign, binds)), [left, right]) => {
                // Signs group to the left: a right operand that binds as tightly keeps its
                // parentheses.
                let tighter = if binds == Binds::Sum { Binds::Product } else { Binds::Sign };
                let text = format!("{} {sign} {}", left.within(binds), right.within(tighter));
                Written { text, binds }
            }
            _ => call(String::new()),
        },
        // A fetch is not written: a weight in host memory is fetched where it is used.
        Op::Fetch => operands.first().cloned().unwrap_or_else(|| Written::atom(args.clone())),
        op => {
            let tail = |(slot, argument): (&Slot, Argument)| {
                let text = match (&argument, slot.takes) {
                    (Argument::Dim(dim), Takes::ListOfOne) => plan.dims_text(&[*dim]),
                    _ => plan.argument_text(&argument),
                };
                format!("{}{text}", slot.lead.text())
            };
            call(op.slots().map(tail).collect())
        }
    }
}

/// The word of the language in front of the parenthesis.
pub(crate) fn word(op: &Op) -> &'static str {
    op.row().source.unwrap_or(op.word())
}

fn sign(op: Binary) -> Option<(&'static str, Binds)> {
    let binds = match op {
        Binary::Add | Binary::Sub => Binds::Sum,
        Binary::Mul | Binary::Div => Binds::Product,
        Binary::Maximum | Binary::Minimum | Binary::Less | Binary::LessEqual | Binary::Equal => {
            Binds::Atom
        }
    };
    op.row().sign.map(|sign| (sign, binds))
}

/// A number as the language writes it.
pub(crate) fn number(value: f64) -> Written {
    let text = format!("{value:?}");
    let text = text.strip_suffix(".0").map_or(text.clone(), str::to_string);
    Written { text, binds: if value.is_sign_negative() { Binds::Sign } else { Binds::Atom } }
}

/// Whether an op without an annotation gives its result in the plan's order of dims.
pub(crate) fn has_natural_order(plan: &Plan, id: InstrId) -> bool {
    let instr = plan.instruction(id);
    let InstrKind::Op(op) = &instr.kind else { return false };
    let operand = |at: usize| instr.operands.get(at).map(|o| plan.instruction(*o));
    match op {
        // An einsum states the order of its dims.
        Op::Einsum => true,
        // A cast to the same dtype is there for the order of dims alone.
        Op::Cast(dtype) => operand(0).is_some_and(|o| o.dtype != *dtype && o.dims == instr.dims),
        Op::Binary(_) | Op::Where => {
            let mut dims: Vec<DimId> = Vec::new();
            for dim in instr.operands.iter().flat_map(|o| &plan.instruction(*o).dims) {
                if !dims.contains(dim) {
                    dims.push(*dim);
                }
            }
            dims == instr.dims
        }
        Op::Reduce { over, .. } => operand(0)
            .is_some_and(|o| o.dims.iter().filter(|d| !over.contains(d)).eq(instr.dims.iter())),
        op => op.row().is(Flag::SameDims) && operand(0).is_some_and(|o| o.dims == instr.dims),
    }
}
