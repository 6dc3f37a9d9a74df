//! What a row of the catalogue says.

/// One op.
#[derive(Debug)]
pub struct Row {
    /// What it does, in one line.
    pub says: &'static str,
    /// The `op` of JSON output, which the ops of one kind share: `map`.
    pub op: &'static str,
    /// The word of IR text: `gelu`.
    pub text: &'static str,
    /// The word of the language in front of the parenthesis; none of what has a sign, or is never
    /// written.
    pub source: Option<&'static str>,
    /// The sign of the language.
    pub sign: Option<&'static str>,
    /// What its operands are called; an einsum, which has one or more, names none.
    pub operands: &'static [&'static str],
    /// What is written behind the operands.
    pub slots: &'static [Slot],
    /// How reports put what fills the slots: `over {dim} at {position}[ of {extent}]`.
    pub phrase: &'static str,
    /// What holds of the dims in its slots and of their sizes, in the order in which it is asked.
    pub fits: &'static [Fit],
    /// Which operands may be partial sums.
    pub sums: Partial,
    /// Which operands may be partial maxima.
    pub maxima: Partial,
    /// What combines the entries along a dim that the result has not.
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
    /// Any one, and no other with it.
    One,
    /// Any of them, and all together.
    Any,
    /// Only all together: another one would count once for each device.
    Together,
}

impl Partial {
    /// Whether these operands, of so many, may be partial, and the others not.
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

/// What combines the entries along a dim that the result has not: where the dim is split, the
/// result is partial in that way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combined {
    /// Nothing: such a dim is whole.
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

/// What holds of the dims and numbers in an op's slots, each by the name of its slot. Of a slot in
/// which nothing stands nothing is asked.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // a field is a slot, named in the line above
pub enum Fit {
    /// They are two dims.
    Different(&'static str, &'static str),
    /// The first operand has not this dim.
    New(&'static str),
    /// The first operand has not this dim, or it is the other, which goes away.
    NewOr(&'static str, &'static str),
    /// The second operand has these dims as well.
    InSecond(&'static str),
    /// They have one size.
    SameSize(&'static str, &'static str),
    /// The whole is as large as the product of its parts, one slot of several dims.
    Product { parts: &'static str, whole: &'static str },
    /// The whole is as large as its two parts together.
    Sum { parts: [&'static str; 2], whole: &'static str },
    /// One is at most as large as the other; `what` stands along the small one.
    AtMost { small: &'static str, large: &'static str, what: &'static str },
    /// The small one is what lies in the large one from a position on.
    CutOf { large: &'static str, small: &'static str, offset: &'static str },
    /// The small one is put into the large one from a position on.
    PutInto { small: &'static str, large: &'static str, offset: &'static str },
    /// It has two halves.
    Even(&'static str),
    /// Both have so many equal parts.
    InParts { dims: [&'static str; 2], parts: &'static str },
    /// So many of a dim are chosen for each of the places.
    Choices { count: &'static str, of: &'static str, places: &'static str },
}

impl Fit {
    /// The slots that it names.
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

/// What holds of an op, or does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// It works element by element, and may be fused into what makes its operand.
    Elementwise,
    /// The result is the same bytes under other names.
    View,
    /// It puts values elsewhere and leaves them as they are.
    KeepsValues,
    /// It maps whole numbers to whole numbers without rounding.
    Exact,
    /// An error of an operand is one of the result, and no larger.
    KeepsErrors,
    /// Where its operand is minus infinity, as where a mask hides a key, the result is as well.
    KeepsHidden,
    /// Elementwise ops behind it may join its kernel, though it is none of them.
    LeadsKernel,
    /// Its operands may change places where they are of one type.
    Commutes,
    /// The result has the operand's dims, in their order.
    SameDims,
    /// The result is a truth value, `bool`.
    Truth,
    /// It came after programs were written: its word names values and layers still, and is an op
    /// where it is written as one.
    Later,
}

/// Something written behind the operands, with the sign or word in front of it.
#[derive(Debug)]
pub struct Slot {
    /// What it is called.
    pub name: &'static str,
    /// What stands in front of it.
    pub lead: Lead,
    /// What fills it.
    pub takes: Takes,
    /// Where its dim is.
    pub of: Of,
    /// Where JSON output has it; nowhere where the result says it.
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
    /// With its blanks.
    fn text;
}

/// What fills a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// A dim.
    Dim,
    /// A dim, or nothing; only in the last slot.
    DimOrNothing,
    /// A dim, which the language writes as a list of one: `over S`, `over [Seq]`.
    ListOfOne,
    /// Dims: `BL`, `[Batch, Seq]`.
    Dims,
    /// Two dims or more.
    SeveralDims,
    /// A number from 0, with what it says.
    Position(&'static str),
    /// A number from 1, with what it says.
    Count(&'static str),
    /// A number from 1, with what it says, or nothing; only in the last slot.
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

/// Where the dim of a slot is.
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
    /// No operand need have it; or it is no dim.
    None,
}

crate::worded! {
    /// The arguments of an op in JSON output, in their order there.
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

    /// How it is written: `rope(a over dim at position[, extent])`, each operand and slot by its
    /// name.
    pub fn signature(&self) -> String {
        let parts: String = self
            .parts()
            .iter()
            .map(|part| format!("{}{}{}", part.before, part.name, part.after))
            .collect();
        format!("{}({parts})", self.source.unwrap_or(self.text))
    }

    /// What stands between the parentheses of its signature, in order.
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
    /// What it is called.
    pub name: &'static str,
    /// What stands behind it.
    pub after: &'static str,
    /// What leads to it from the part before; nothing leads to the first.
    pub lead: Option<Lead>,
}
