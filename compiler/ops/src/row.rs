//! The rows of the catalogue: what is known of an op.

/// One op.
#[derive(Debug)]
pub struct Row {
    /// What it does, in one line.
    pub says: &'static str,
    /// The `op` of JSON output, which all ops of one kind share: `map`.
    pub op: &'static str,
    /// The word of IR text: `gelu`.
    pub text: &'static str,
    /// The word of the language in front of the parenthesis; `None` for an op with a sign, or one
    /// that is never written.
    pub source: Option<&'static str>,
    /// The sign of the language, if it has one.
    pub sign: Option<&'static str>,
    /// The names of its operands; empty for an einsum, which has one or more.
    pub operands: &'static [&'static str],
    /// The slots that are written behind the operands.
    pub slots: &'static [Slot],
    /// How reports describe what fills the slots: `over {dim} at {position}[ of {extent}]`.
    pub phrase: &'static str,
    /// The conditions on the dims in its slots and their sizes, in the order in which they are
    /// checked.
    pub fits: &'static [Fit],
    /// Which operands may be partial sums.
    pub sums: Partial,
    /// Which operands may be partial maxima.
    pub maxima: Partial,
    /// What combines the entries along a dim that the result lacks.
    pub combines: Combined,
    /// What a device reads and writes.
    pub traffic: Traffic,
    /// What else holds of it.
    pub flags: &'static [Flag],
}

/// Which operands may be partial over an axis that splits nothing, so that the result is partial in
/// the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Partial {
    /// None of them.
    No,
    /// The first alone.
    First,
    /// Any single one.
    One,
    /// Any number of them.
    Any,
    /// Only all of them together: an operand that is not partial would count once for each device.
    Together,
}

impl Partial {
    /// Whether the operands `partial`, and no others of `operands`, may be partial.
    pub fn allows(self, partial: &[usize], operands: usize) -> bool {
        match self {
            Partial::No => false,
            Partial::First => partial == [0],
            Partial::One => partial.len() == 1,
            Partial::Any => true,
            Partial::Together => partial.len() == operands,
        }
    }
}

/// What combines the entries along a dim that the result lacks. Where axes split the dim, the
/// result is partial in this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combined {
    /// Nothing: each device must have such a dim whole.
    No,
    /// A sum.
    Sum,
    /// A maximum.
    Max,
}

/// What a device reads of the operands and writes of the result.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Of the first operand.
    pub first: Amount,
    /// Of each other operand.
    pub others: Amount,
    /// Of the result.
    pub written: Amount,
}

impl Traffic {
    /// All operands and the whole result.
    pub const ALL: Traffic =
        Traffic { first: Amount::Whole, others: Amount::Whole, written: Amount::Whole };
}

/// How many bytes are read of an operand, or written of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// None.
    None,
    /// All of it.
    Whole,
    /// As many as the result has.
    OfResult,
    /// As many as the second operand has.
    OfSecond,
}

/// A condition on the dims and numbers in an op's slots, which are given by the names of the slots.
/// A condition on an empty slot always holds.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // a field is a slot, named in the line above
pub enum Fit {
    /// The dims are different.
    Different(&'static str, &'static str),
    /// The first operand lacks the dim.
    New(&'static str),
    /// The first operand lacks the dim, or it is the second dim, which the op removes.
    NewOr(&'static str, &'static str),
    /// The second operand has these dims as well.
    InSecond(&'static str),
    /// The dims have the same size.
    SameSize(&'static str, &'static str),
    /// The whole is as large as the product of its parts, one slot of several dims.
    Product { parts: &'static str, whole: &'static str },
    /// The whole is as large as its two parts together.
    Sum { parts: [&'static str; 2], whole: &'static str },
    /// The small one is at most as large as the large one; `what` names the entries of the small
    /// one.
    AtMost { small: &'static str, large: &'static str, what: &'static str },
    /// The small one is a range of the large one, which starts at a position.
    CutOf { large: &'static str, small: &'static str, offset: &'static str },
    /// The small one is put into the large one from a position on.
    PutInto { small: &'static str, large: &'static str, offset: &'static str },
    /// It has two halves.
    Even(&'static str),
    /// Both have so many equal parts.
    InParts { dims: [&'static str; 2], parts: &'static str },
    /// `count` of the dim `of` are chosen, and each of them has `places`.
    Choices { count: &'static str, of: &'static str, places: &'static str },
}

impl Fit {
    /// The slots that the condition names.
    pub fn slots(&self) -> Vec<&'static str> {
        match *self {
            Fit::New(slot) | Fit::InSecond(slot) | Fit::Even(slot) => vec![slot],
            Fit::Different(a, b)
            | Fit::NewOr(a, b)
            | Fit::SameSize(a, b)
            | Fit::Product { parts: a, whole: b }
            | Fit::AtMost { small: a, large: b, what: _ } => vec![a, b],
            Fit::Sum { parts: [a, b], whole: c }
            | Fit::CutOf { large: a, small: b, offset: c }
            | Fit::PutInto { small: a, large: b, offset: c }
            | Fit::InParts { dims: [a, b], parts: c }
            | Fit::Choices { count: a, of: b, places: c } => vec![a, b, c],
        }
    }
}

/// A property of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// It works element by element, and may be fused into the op that makes its operand.
    Elementwise,
    /// The result is the same bytes under other names.
    View,
    /// It moves values to other positions and does not change them.
    KeepsValues,
    /// It maps whole numbers to whole numbers without rounding.
    Exact,
    /// An error in an operand becomes an error in the result that is no larger.
    KeepsErrors,
    /// Where its operand is minus infinity, as where a mask hides a key, the result is as well.
    KeepsHidden,
    /// Elementwise ops behind it may join its kernel, although it is not elementwise itself.
    LeadsKernel,
    /// Its operands may be swapped, if they have the same type.
    Commutes,
    /// The result has the operand's dims, in their order.
    SameDims,
    /// The result is a truth value, `bool`.
    Truth,
    /// It was added after programs had been written: its word may still name values and layers, and
    /// means the op only where it is written as one.
    Later,
}

/// A slot: something that is written behind the operands, with a sign or word in front of it.
#[derive(Debug)]
pub struct Slot {
    /// Its name.
    pub name: &'static str,
    /// What stands in front of it.
    pub lead: Lead,
    /// What fills it.
    pub takes: Takes,
    /// Where its dim is.
    pub of: Of,
    /// Its key in JSON output; `None` where the result shows it.
    pub field: Option<Field>,
}

crate::worded! {
    /// What stands in front of a slot, in the language as in IR text.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Lead {
        /// `, L`
        Comma = ", ",
        /// ` -> L`
        Arrow = " -> ",
        /// ` over L`
        Over = " over ",
        /// ` at L`
        At = " at ",
    }
    /// The text, with its blanks.
    fn text;
}

/// What fills a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// A dim.
    Dim,
    /// A dim, or nothing; only in the last slot.
    DimOrNothing,
    /// A dim that the language writes as a list of one: `over S`, `over [Seq]`.
    ListOfOne,
    /// Dims: `BL`, `[Batch, Seq]`.
    Dims,
    /// Two dims or more.
    SeveralDims,
    /// A number from 0; the text says what it means.
    Position(&'static str),
    /// A number from 1, with what it says.
    Count(&'static str),
    /// A number from 1, or nothing; only in the last slot. The text says what it means.
    CountOrNothing(&'static str),
    /// A dtype.
    Dtype,
}

impl Takes {
    /// Whether it may be left out.
    pub fn may_be_nothing(self) -> bool {
        match self {
            Takes::DimOrNothing | Takes::CountOrNothing(_) => true,
            Takes::Dim
            | Takes::ListOfOne
            | Takes::Dims
            | Takes::SeveralDims
            | Takes::Position(_)
            | Takes::Count(_)
            | Takes::Dtype => false,
        }
    }
}

/// Which tensors have the dim of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// A dim of this operand.
    Operand(usize),
    /// A dim of this operand, which each device must have whole.
    Whole(usize),
    /// A dim of the first operand, which each device must have whole of every operand.
    WholeInAll,
    /// A dim that the result alone has and axes may split: each device makes its own part of it.
    Result,
    /// No operand has to have it; or the slot holds no dim.
    None,
}

crate::worded! {
    /// The keys of the arguments of an op in JSON output, in their order there.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[allow(missing_docs)] // each is its own word
    pub enum Field {
        Over = "over",
        From = "from",
        To = "to",
        At = "at",
        Extent = "extent",
        Offset = "offset",
        Choices = "choices",
        Window = "window",
        By = "by",
        Parts = "parts",
    }
    /// The key.
    fn name;
}

impl Field {
    /// Whether its value is a list, even of one.
    pub fn is_list(self) -> bool {
        match self {
            Field::Over | Field::From | Field::To => true,
            Field::At
            | Field::Extent
            | Field::Offset
            | Field::Choices
            | Field::Window
            | Field::By
            | Field::Parts => false,
        }
    }
}

impl Row {
    /// Whether a flag is set.
    pub fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// How the op is written, with the names of its operands and slots: `rope(a over dim at
    /// position[, extent])`.
    pub fn signature(&self) -> String {
        let parts: String = self
            .parts()
            .iter()
            .map(|part| format!("{}{}{}", part.before, part.name, part.after))
            .collect();
        format!("{}({parts})", self.source.unwrap_or(self.text))
    }

    /// The operands and slots in its signature, in order.
    pub fn parts(&self) -> Vec<Part> {
        let operand = |(i, name): (usize, &&'static str)| {
            let before = if i == 0 { "" } else { Lead::Comma.text() };
            Part {
                before: before.to_string(),
                name,
                after: "",
                lead: (i > 0).then_some(Lead::Comma),
            }
        };
        let mut parts: Vec<Part> = self.operands.iter().enumerate().map(operand).collect();
        if self.operands.is_empty() {
            parts.push(Part { before: String::new(), name: "a, b, ...", after: "", lead: None });
            let lead = Lead::Arrow;
            parts.push(Part {
                before: lead.text().to_string(),
                name: "dims",
                after: "",
                lead: Some(lead),
            });
        }
        parts.extend(self.slots.iter().map(|slot| {
            let (open, after) = if slot.takes.may_be_nothing() { ("[", "]") } else { ("", "") };
            Part {
                before: format!("{open}{}", slot.lead.text()),
                name: slot.name,
                after,
                lead: Some(slot.lead),
            }
        }));
        parts
    }
}

/// An operand or a slot in a signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// What stands in front of it.
    pub before: String,
    /// Its name.
    pub name: &'static str,
    /// What stands behind it.
    pub after: &'static str,
    /// What leads to it from the part before; `None` for the first.
    pub lead: Option<Lead>,
}
