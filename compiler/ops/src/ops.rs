//! The rows of the ops.

use crate::row::Flag::{
    Commutes, Elementwise, Exact, KeepsErrors, KeepsHidden, KeepsValues, Later, LeadsKernel,
    SameDims, Truth, View,
};
use crate::row::{Amount, Combined, Field, Fit, Lead, Of, Partial, Row, Slot, Takes, Traffic};
use crate::table::table;

/// An empty row, from which the kinds below start.
const NOTHING: Row = Row {
    says: "",
    op: "",
    text: "",
    source: None,
    sign: None,
    operands: &["a"],
    slots: &[],
    phrase: "",
    fits: &[],
    sums: Partial::No,
    maxima: Partial::No,
    combines: Combined::No,
    traffic: Traffic::ALL,
    flags: &[],
};

const MAP: Row = Row { op: "map", flags: &[Elementwise, SameDims], ..NOTHING };
const EXACT_MAP: Row = Row { flags: &[Elementwise, SameDims, Exact], ..MAP };
const SAFE_MAP: Row = Row { flags: &[Elementwise, SameDims, Exact, KeepsErrors], ..MAP };

table! {
    /// An elementwise map. A map is linear if `f(a + b) = f(a) + f(b)`, and increasing if `f(a) <=
    /// f(b)` where `a <= b`. An exact map also takes whole numbers, any other map only floats.
    Map: Row {
        /// `-a`.
        Neg { text: "neg", sign: Some("-"), sums: Partial::First, ..SAFE_MAP },
        /// Gaussian error linear unit, the tanh form.
        Gelu { text: "gelu", source: Some("gelu"), ..MAP },
        /// `max(a, 0)`.
        Relu { text: "relu", source: Some("relu"), maxima: Partial::First, ..SAFE_MAP },
        /// `a * sigmoid(a)`.
        Silu { text: "silu", source: Some("silu"), ..MAP },
        /// `1 / (1 + exp(-a))`.
        Sigmoid { text: "sigmoid", source: Some("sigmoid"), maxima: Partial::First, ..MAP },
        /// Hyperbolic tangent.
        Tanh { text: "tanh", source: Some("tanh"), maxima: Partial::First, ..MAP },
        /// `e^a`.
        Exp { text: "exp", source: Some("exp"), maxima: Partial::First, ..MAP },
        /// `log(1 + exp(a))`.
        Softplus {
            text: "softplus", source: Some("softplus"), maxima: Partial::First,
            flags: &[Elementwise, SameDims, Later], ..MAP
        },
        // A candidate for a maximum may be negative, or minus infinity, where the maximum is
        // positive: log and sqrt would give NaN.
        /// Natural logarithm.
        Log { text: "log", source: Some("log"), ..MAP },
        /// Square root.
        Sqrt { text: "sqrt", source: Some("sqrt"), ..MAP },
        /// `1 / sqrt(a)`.
        Rsqrt { text: "rsqrt", source: Some("rsqrt"), ..MAP },
        /// `a * a`.
        Square { text: "square", source: Some("square"), ..EXACT_MAP },
        /// Absolute value.
        Abs { text: "abs", source: Some("abs"), ..SAFE_MAP },
    }
}

const BINARY: Row =
    Row { op: "binary", operands: &["a", "b"], flags: &[Elementwise, Commutes, Exact], ..NOTHING };
/// One that keeps errors in its operands no larger.
const LEVEL: Row = Row { flags: &[Elementwise, Commutes, Exact, KeepsErrors], ..BINARY };
const COMPARISON: Row = Row { flags: &[Elementwise, Exact, Truth, Later], ..BINARY };

table! {
    /// An elementwise combination of two operands, broadcast by dim name.
    Binary: Row {
        /// `a + b`.
        Add { text: "add", sign: Some("+"), sums: Partial::Together, maxima: Partial::One, ..LEVEL },
        /// `a - b`.
        Sub {
            text: "sub", sign: Some("-"), sums: Partial::Together, maxima: Partial::First,
            flags: &[Elementwise, Exact, KeepsErrors], ..BINARY
        },
        /// `a * b`.
        Mul { text: "mul", sign: Some("*"), sums: Partial::One, ..BINARY },
        // Only floats may be partial: each term of a sum of whole numbers would drop a remainder of
        // its own.
        /// `a / b`.
        Div { text: "div", sign: Some("/"), sums: Partial::First, flags: &[Elementwise], ..BINARY },
        /// The larger of the two.
        Maximum { text: "maximum", source: Some("maximum"), maxima: Partial::Any, ..LEVEL },
        /// The smaller of the two.
        Minimum { text: "minimum", source: Some("minimum"), maxima: Partial::One, ..LEVEL },
        /// Whether `a < b`.
        Less { text: "less", source: Some("less"), ..COMPARISON },
        /// Whether `a <= b`.
        LessEqual { text: "less-equal", source: Some("less_equal"), ..COMPARISON },
        /// Whether `a = b`.
        Equal {
            text: "equal", source: Some("equal"),
            flags: &[Elementwise, Commutes, Exact, Truth, Later], ..COMPARISON
        },
    }
}

const REDUCE: Row = Row {
    op: "reduce",
    slots: &[Slot {
        name: "dims",
        lead: Lead::Over,
        takes: Takes::Dims,
        of: Of::Operand(0),
        field: Some(Field::Over),
    }],
    phrase: "over {dims}",
    combines: Combined::Sum,
    ..NOTHING
};

table! {
    /// A reduction over dims.
    Reduce: Row {
        /// The sum.
        Sum { text: "sum", source: Some("sum"), sums: Partial::First, flags: &[Exact], ..REDUCE },
        /// The mean.
        Mean { text: "mean", source: Some("mean"), sums: Partial::First, flags: &[KeepsErrors], ..REDUCE },
        /// The maximum.
        Max {
            text: "max", source: Some("max"), maxima: Partial::First, combines: Combined::Max,
            flags: &[Exact, KeepsErrors], ..REDUCE
        },
    }
}

/// The row of an op that is the only one of its kind and has the same word everywhere.
const fn form(word: &'static str) -> Row {
    Row { op: word, text: word, source: Some(word), ..NOTHING }
}

/// The row of a normalisation over a dim, which may be computed in pieces where axes split the dim.
const fn composite(word: &'static str) -> Row {
    const OVER: Slot =
        Slot { takes: Takes::ListOfOne, ..dim("dim", Lead::Over, Of::Whole(0), Field::Over) };
    Row { slots: &[OVER], phrase: "over {dim}", flags: &[SameDims], ..form(word) }
}

/// The row of a view: the same bytes, with one dim or more under other names.
const fn view(word: &'static str) -> Row {
    Row {
        phrase: "{from} -> {to}",
        sums: Partial::First,
        maxima: Partial::First,
        traffic: Traffic { first: Amount::None, others: Amount::None, written: Amount::None },
        flags: &[View, KeepsValues, Exact],
        ..form(word)
    }
}

const fn dim(name: &'static str, lead: Lead, of: Of, field: Field) -> Slot {
    Slot { name, lead, takes: Takes::Dim, of, field: Some(field) }
}

const FROM: Slot = dim("from", Lead::Comma, Of::Operand(0), Field::From);
const TO: Slot = dim("to", Lead::Arrow, Of::None, Field::To);

const TOPK: &[Slot] = &[
    dim("dim", Lead::Over, Of::Operand(0), Field::Over),
    TO,
    Slot {
        takes: Takes::CountOrNothing("how many equal parts of the dim give as many each"),
        ..dim("parts", Lead::Comma, Of::None, Field::Parts)
    },
];
const TOPK_PHRASE: &str = "over {dim} -> {to}[ in {parts} parts]";
const TOPK_FITS: &[Fit] = &[
    Fit::NewOr("to", "dim"),
    Fit::AtMost { small: "to", large: "dim", what: "places" },
    Fit::InParts { dims: ["dim", "to"], parts: "parts" },
];

table! {
    /// A normalisation over a dim, without learned scales.
    Norm: Row {
        /// `a / sqrt(mean(a^2) + eps)`.
        Rms { op: "norm", ..composite("rmsnorm") },
        /// `(a - mean(a)) / sqrt(var(a) + eps)`.
        Layer { op: "norm", ..composite("layernorm") },
    }
}

table! {
    /// An op that is the only one of its kind.
    Form: Row {
        /// The product of the operands, summed over every dim that the result does not name.
        Einsum {
            operands: &[], combines: Combined::Sum, sums: Partial::One, flags: &[Exact, LeadsKernel],
            ..form("einsum")
        },
        /// `exp(a) / sum(exp(a))` over a dim.
        Softmax { ..composite("softmax") },
        /// `exp(a) / (exp(sinks) + sum(exp(a)))` over a dim: a softmax of which a part goes
        /// nowhere.
        SinkSoftmax {
            op: "sink-softmax", text: "sink-softmax", source: Some("sink_softmax"),
            operands: &["a", "sinks"],
            flags: &[SameDims, Later],
            ..composite("sink_softmax")
        },
        /// The same data, a dim under another name of the same size.
        Rename {
            slots: &[FROM, TO], fits: &[Fit::SameSize("from", "to")], ..view("rename")
        },
        /// One dim as several, the first major.
        Split {
            slots: &[FROM, Slot { takes: Takes::SeveralDims, ..TO }],
            fits: &[Fit::Product { parts: "to", whole: "from" }],
            ..view("split")
        },
        /// Several dims as one, the first major.
        Merge {
            slots: &[Slot { takes: Takes::SeveralDims, ..FROM }, TO],
            fits: &[Fit::Product { parts: "from", whole: "to" }],
            ..view("merge")
        },
        /// Two operands joined along one dim, whose size is the sum.
        Concat {
            operands: &["a", "b"],
            slots: &[
                dim("left", Lead::Comma, Of::Whole(0), Field::From),
                dim("right", Lead::Comma, Of::Whole(1), Field::From),
                TO,
            ],
            fits: &[Fit::Sum { parts: ["left", "right"], whole: "to" }],
            phrase: "{left}, {right} -> {to}",
            sums: Partial::Together, maxima: Partial::Together, flags: &[KeepsValues, Exact], ..form("concat")
        },
        /// Some positions of a dim, from a first one on.
        SliceDim {
            op: "slice-dim", text: "slice-dim", source: Some("slice"),
            slots: &[
                dim("from", Lead::Comma, Of::Whole(0), Field::From),
                TO,
                Slot {
                    takes: Takes::Position("the first position"),
                    ..dim("offset", Lead::Comma, Of::None, Field::Offset)
                },
            ],
            fits: &[Fit::CutOf { large: "from", small: "to", offset: "offset" }],
            phrase: "{from} -> {to} from {offset}",
            traffic: Traffic { first: Amount::OfResult, ..Traffic::ALL },
            sums: Partial::First, maxima: Partial::First, flags: &[KeepsValues, Exact], ..NOTHING
        },
        /// The cache with the new positions written at its end.
        Append {
            operands: &["cache", "new"],
            slots: &[
                dim("from", Lead::Comma, Of::Whole(1), Field::From),
                dim("to", Lead::Arrow, Of::Operand(0), Field::To),
            ],
            fits: &[Fit::AtMost { small: "from", large: "to", what: "new positions" }],
            phrase: "{from} -> {to}",
            traffic: Traffic { first: Amount::None, written: Amount::OfSecond, ..Traffic::ALL },
            sums: Partial::Together, maxima: Partial::Together, flags: &[KeepsValues, Exact], ..form("append")
        },
        // It is not exact, since it makes minus infinity, which a product with 0 turns into NaN.
        /// Minus infinity where the key position is later than the query position, the queries
        /// being the last of the keys, or no more among the last ones that a window shows.
        Mask {
            op: "mask", text: "causal", source: Some("causal"),
            slots: &[
                dim("queries", Lead::Over, Of::Operand(0), Field::Over),
                dim("keys", Lead::Comma, Of::Operand(0), Field::Over),
                Slot {
                    takes: Takes::CountOrNothing("how many positions a query sees, its own the last"),
                    ..dim("window", Lead::Comma, Of::None, Field::Window)
                },
            ],
            fits: &[
                Fit::Different("queries", "keys"),
                Fit::AtMost { small: "queries", large: "keys", what: "queries" },
            ],
            phrase: "over {queries}, {keys}[, {window} each]",
            flags: &[SameDims, KeepsHidden], ..NOTHING
        },
        /// Rotary embedding of a dim by a position, which counts from 0 or to the end of the
        /// extent.
        Rope {
            slots: &[
                dim("dim", Lead::Over, Of::Whole(0), Field::Over),
                dim("position", Lead::At, Of::Operand(0), Field::At),
                Slot { takes: Takes::DimOrNothing, ..dim("extent", Lead::Comma, Of::None, Field::Extent) },
            ],
            fits: &[
                Fit::Different("dim", "position"),
                Fit::Even("dim"),
                Fit::AtMost { small: "position", large: "extent", what: "places" },
            ],
            phrase: "over {dim} at {position}[ of {extent}]",
            sums: Partial::First, flags: &[SameDims], ..form("rope")
        },
        // Only the rows that are taken are read, not the whole table. A device that holds a part of
        // the table may have to read all of these rows.
        /// The rows of a table that the ids name.
        Take {
            operands: &["table", "ids"],
            slots: &[dim("dim", Lead::Over, Of::Operand(0), Field::Over)],
            phrase: "over {dim}",
            combines: Combined::Sum,
            traffic: Traffic { first: Amount::OfResult, ..Traffic::ALL },
            sums: Partial::First, flags: &[Exact], ..form("take")
        },
        /// The rows added up that an id gives one place, for each place of a dim; zeros where no id
        /// names it.
        ScatterAdd {
            op: "scatter-add", text: "scatter-add", source: Some("scatter_add"),
            operands: &["a", "ids"],
            slots: &[
                Slot { takes: Takes::Dims, ..dim("dims", Lead::Over, Of::Operand(0), Field::Over) },
                Slot { of: Of::Result, ..TO },
            ],
            fits: &[Fit::New("to"), Fit::InSecond("dims")],
            phrase: "over {dims} -> {to}",
            combines: Combined::Sum,
            sums: Partial::First, flags: &[Exact, Later], ..NOTHING
        },
        /// Zeros around a dim, which then is longer.
        Pad {
            slots: &[
                dim("from", Lead::Comma, Of::Whole(0), Field::From),
                TO,
                Slot {
                    takes: Takes::Position("how many zeros stand before it"),
                    ..dim("offset", Lead::Comma, Of::None, Field::Offset)
                },
            ],
            fits: &[Fit::PutInto { small: "from", large: "to", offset: "offset" }],
            phrase: "{from} -> {to} at {offset}",
            sums: Partial::First, flags: &[Exact, Later, KeepsErrors], ..form("pad")
        },
        /// At each position its own value and what the position before it has, times a factor: a
        /// linear recurrence.
        Scan {
            operands: &["a", "factor"],
            slots: &[dim("dim", Lead::Over, Of::WholeInAll, Field::Over)],
            phrase: "over {dim}",
            sums: Partial::First, flags: &[SameDims, Exact, Later], ..form("scan")
        },
        /// At each position the sum up to it, its own with it.
        Cumsum {
            slots: &[Slot { takes: Takes::ListOfOne, ..dim("dim", Lead::Over, Of::Whole(0), Field::Over) }],
            phrase: "over {dim}",
            sums: Partial::First, flags: &[SameDims, Exact, Later], ..form("cumsum")
        },
        /// Each position has what stands some positions before it, and the first ones zeros.
        Shift {
            slots: &[
                dim("dim", Lead::Over, Of::Whole(0), Field::Over),
                Slot {
                    takes: Takes::Count("by how many positions"),
                    ..dim("positions", Lead::Comma, Of::None, Field::By)
                },
            ],
            phrase: "over {dim} by {positions}",
            sums: Partial::First, flags: &[SameDims, Exact, Later, KeepsErrors], ..form("shift")
        },
        /// At each position what stands there and at the positions before it, each times its tap: a
        /// causal convolution, channel by channel.
        Conv {
            operands: &["a", "weights"],
            slots: &[
                dim("dim", Lead::Over, Of::Whole(0), Field::Over),
                dim("taps", Lead::Comma, Of::Whole(1), Field::Over),
            ],
            phrase: "over {dim}, {taps}",
            sums: Partial::One, flags: &[SameDims, Exact, Later, LeadsKernel], ..form("conv")
        },
        /// The first position of the largest.
        Argmax {
            slots: &[Slot { takes: Takes::ListOfOne, ..dim("dim", Lead::Over, Of::Whole(0), Field::Over) }],
            phrase: "over {dim}",
            flags: &[Exact, Later], ..form("argmax")
        },
        /// The largest values along a dim, in falling order; or of each of several equal parts of
        /// the dim as many, part by part.
        TopK {
            slots: TOPK, phrase: TOPK_PHRASE, fits: TOPK_FITS,
            flags: &[Exact, Later, KeepsErrors], ..form("topk")
        },
        /// The positions of the largest values along a dim, in the order of `topk`; of equal values
        /// the first comes first.
        ArgTopK {
            slots: TOPK, phrase: TOPK_PHRASE, fits: TOPK_FITS, flags: &[Exact, Later], ..form("argtopk")
        },
        // It is minus the position, so that the first position among several devices is a maximum.
        /// Minus the first position at which the two are equal; the least int32 where they never
        /// are.
        Locate {
            operands: &["a", "value"],
            slots: &[Slot { takes: Takes::ListOfOne, ..dim("dim", Lead::Over, Of::Operand(0), Field::Over) }],
            phrase: "over {dim}",
            combines: Combined::Max,
            flags: &[Exact, Later], ..form("locate")
        },
        /// Of two values the first where a truth value holds, the second elsewhere; broadcast by
        /// dim name.
        Where {
            operands: &["holds", "a", "b"], flags: &[Elementwise, Exact, Later, KeepsErrors], ..form("where")
        },
        // An element of the result depends on its position only, so that the operand is not read.
        /// The position along a dim, at every element of a value, whatever that is there.
        Iota {
            slots: &[Slot { takes: Takes::ListOfOne, ..dim("dim", Lead::Over, Of::Operand(0), Field::Over) }],
            phrase: "over {dim}",
            traffic: Traffic { first: Amount::None, ..Traffic::ALL },
            flags: &[SameDims, Exact, Later], ..form("iota")
        },
        // Places are given by counting over all tokens, and choices are made among all experts, so
        // that both dims are whole.
        /// Which tokens go to which places of which experts: 1 where a token is given a place, 0
        /// elsewhere.
        Route {
            slots: &[
                dim("experts", Lead::Over, Of::Whole(0), Field::Over),
                dim("tokens", Lead::At, Of::Whole(0), Field::At),
                dim("places", Lead::Arrow, Of::None, Field::To),
                Slot {
                    takes: Takes::Count("how many experts a token asks for"),
                    ..dim("choices", Lead::Comma, Of::None, Field::Choices)
                },
            ],
            fits: &[
                Fit::Different("experts", "tokens"),
                Fit::New("places"),
                Fit::Choices { count: "choices", of: "experts", places: "places" },
            ],
            phrase: "{tokens} over {choices} of {experts} -> {places}",
            flags: &[Exact], ..form("route")
        },
        // No source writes it: using a weight in host memory fetches it. What comes from the host
        // is not read from the chip's own memory.
        /// A value in host memory, brought to the chip.
        Fetch {
            op: "fetch", text: "fetch",
            traffic: Traffic { first: Amount::None, ..Traffic::ALL },
            sums: Partial::First, maxima: Partial::First, flags: &[KeepsValues, Exact], ..NOTHING
        },
        // A partial sum is allowed only from float to float, and a partial maximum unless the
        // result is a truth value.
        /// Another dtype.
        Cast {
            slots: &[Slot { name: "dtype", lead: Lead::Comma, takes: Takes::Dtype, of: Of::None, field: None }],
            phrase: "to {dtype}",
            sums: Partial::First, maxima: Partial::First,
            flags: &[Elementwise, KeepsValues, KeepsHidden, Exact], ..form("cast")
        },
    }
}

/// Which op.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    /// An elementwise map.
    Map(Map),
    /// An elementwise combination of two operands.
    Binary(Binary),
    /// A reduction.
    Reduce(Reduce),
    /// A normalisation.
    Norm(Norm),
    /// An op that is the only one of its kind.
    Form(Form),
}

impl Code {
    /// Every op, in the order of the language's tables: einsum, maps, binaries, reductions, the
    /// rest.
    pub fn all() -> impl Iterator<Item = Code> {
        let forms = |forms: &'static [Form]| forms.iter().copied().map(Code::Form);
        let (einsum, softmax, rest) = (&Form::ALL[..1], &Form::ALL[1..2], &Form::ALL[2..]);
        forms(einsum)
            .chain(Map::ALL.iter().copied().map(Code::Map))
            .chain(Binary::ALL.iter().copied().map(Code::Binary))
            .chain(Reduce::ALL.iter().copied().map(Code::Reduce))
            .chain(forms(softmax))
            .chain(Norm::ALL.iter().copied().map(Code::Norm))
            .chain(forms(rest))
    }

    /// Its row of the catalogue.
    pub fn row(self) -> &'static Row {
        match self {
            Code::Map(map) => map.row(),
            Code::Binary(binary) => binary.row(),
            Code::Reduce(reduce) => reduce.row(),
            Code::Norm(norm) => norm.row(),
            Code::Form(form) => form.row(),
        }
    }

    /// The op with this word of the language.
    pub fn of_source(word: &str) -> Option<Code> {
        Code::all().find(|code| code.row().source == Some(word))
    }

    /// The op with this word of IR text.
    pub fn of_text(word: &str) -> Option<Code> {
        Code::all().find(|code| code.row().text == word)
    }

    /// The words of the language that are ops, and stand in front of a parenthesis.
    pub fn sources<'w>() -> impl Iterator<Item = &'w str> {
        Code::all().filter_map(|code| code.row().source)
    }
}
