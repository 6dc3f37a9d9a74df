//! [`Op`]: the operations of the language, as data.

use crate::tensor::{DimId, Dtype};

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The word in the source and in IR text.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
            /// The variant of this word.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)+ _ => None }
            }
        }
    };
}

named_enum! {
    /// An elementwise map.
    Map {
        /// `-a`.
        Neg = "neg",
        /// Gaussian error linear unit, the tanh form.
        Gelu = "gelu",
        /// `max(a, 0)`.
        Relu = "relu",
        /// `a * sigmoid(a)`.
        Silu = "silu",
        /// `1 / (1 + exp(-a))`.
        Sigmoid = "sigmoid",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// `e^a`.
        Exp = "exp",
        /// Natural logarithm.
        Log = "log",
        /// Square root.
        Sqrt = "sqrt",
        /// `1 / sqrt(a)`.
        Rsqrt = "rsqrt",
        /// `a * a`.
        Square = "square",
        /// Absolute value.
        Abs = "abs",
    }
}

impl Map {
    /// Whether `f(a + b) = f(a) + f(b)`: only then may it act on the terms of a partial sum.
    pub fn is_linear(self) -> bool {
        matches!(self, Map::Neg)
    }
    /// Whether `a <= b` gives `f(a) <= f(b)`: only then may it act on the candidates of a partial maximum.
    pub fn is_increasing(self) -> bool {
        match self {
            Map::Relu | Map::Sigmoid | Map::Tanh | Map::Exp => true,
            // A candidate may be negative, even minus infinity, where the maximum is positive: log and sqrt would give NaN.
            Map::Log | Map::Sqrt => false,
            Map::Neg | Map::Gelu | Map::Silu | Map::Rsqrt | Map::Square | Map::Abs => false,
        }
    }
}

named_enum! {
    /// An elementwise combination of two operands, broadcast by dim name.
    Binary {
        /// `a + b`.
        Add = "add",
        /// `a - b`.
        Sub = "sub",
        /// `a * b`.
        Mul = "mul",
        /// `a / b`.
        Div = "div",
        /// The larger of the two.
        Maximum = "maximum",
        /// The smaller of the two.
        Minimum = "minimum",
    }
}

named_enum! {
    /// A reduction over dims.
    Reduce {
        /// The sum.
        Sum = "sum",
        /// The mean.
        Mean = "mean",
        /// The maximum.
        Max = "max",
    }
}

named_enum! {
    /// A normalisation over a dim, without learned scales.
    Norm {
        /// `a / sqrt(mean(a^2) + eps)`.
        Rms = "rmsnorm",
        /// `(a - mean(a)) / sqrt(var(a) + eps)`.
        Layer = "layernorm",
    }
}

/// Added to the mean square or the variance before the root in [`Norm`].
pub const NORM_EPSILON: f64 = 1e-6;

/// An operation on global tensors. Dims are matched by name; the result's dims are stated beside the op
/// ([`Value::dims`](crate::Value::dims)), in memory order.
///
/// The type rule is in [`typing`](crate::typing), the rule for layouts in [`layout_rule`](crate::layout_rule).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// The product of the operands, summed over every dim that the result does not name. The dtype of the result, too, is
    /// stated beside it: that of the operands' product, or another one that it is accumulated in
    /// ([`accumulates_in`](crate::typing::accumulates_in)).
    Einsum,
    /// An elementwise map.
    Map(Map),
    /// An elementwise combination of two operands.
    Binary(Binary),
    /// A reduction over these dims.
    Reduce {
        /// What combines the elements.
        kind: Reduce,
        /// The dims that disappear.
        over: Vec<DimId>,
    },
    /// `exp(a) / sum(exp(a))` over a dim.
    Softmax {
        /// The dim.
        over: DimId,
    },
    /// A normalisation over a dim.
    Norm {
        /// Which.
        kind: Norm,
        /// The dim.
        over: DimId,
    },
    /// The same data, a dim under another name of the same size.
    Rename {
        /// The dim of the operand.
        from: DimId,
        /// The dim of the result.
        to: DimId,
    },
    /// One dim as several, the first major.
    Split {
        /// The dim of the operand.
        from: DimId,
        /// The dims of the result, major to minor.
        to: Vec<DimId>,
    },
    /// Several dims as one, the first major.
    Merge {
        /// The dims of the operand, major to minor.
        from: Vec<DimId>,
        /// The dim of the result.
        to: DimId,
    },
    /// Two operands joined along one dim.
    Concat {
        /// The dim of the left operand.
        left: DimId,
        /// The dim of the right operand.
        right: DimId,
        /// The dim of the result, whose size is the sum.
        to: DimId,
    },
    /// The positions `offset .. offset + size of to` of a dim.
    SliceDim {
        /// The dim of the operand.
        from: DimId,
        /// The dim of the result.
        to: DimId,
        /// The first position taken.
        offset: u64,
    },
    /// Operands `cache, new`: the new positions written at the end of the cache.
    Append {
        /// The dim of the new positions.
        from: DimId,
        /// The dim of the cache.
        to: DimId,
    },
    /// Minus infinity where the key position is later than the query position.
    Mask {
        /// The dim of query positions, the last of the keys'.
        query: DimId,
        /// The dim of key positions.
        key: DimId,
    },
    /// Rotary embedding: elements i and i + n/2 of the n along `over` are turned by `position · 10000^(-2i/n)`.
    Rope {
        /// The dim that is rotated, in halves; even.
        over: DimId,
        /// The dim of positions.
        at: DimId,
        /// The dim of all positions, of which those of `at` are the last, as in [`Op::Mask`]; without it they are the
        /// first.
        extent: Option<DimId>,
    },
    /// Operands `table, ids`: the rows of the table that the ids name.
    Take {
        /// The dim of the table that the ids index.
        over: DimId,
    },
    /// Which tokens go to which experts: 1 at the place of an expert that a token is given, 0 elsewhere.
    ///
    /// Each token asks for the experts of its largest gates, the lower numbered where gates are equal; one that is no
    /// number counts as minus infinity. Places are given
    /// to first choices before second ones, and among them in the order of the tokens; where an expert has no place
    /// left, the token goes without. Every other dim is a group of tokens with places of its own.
    Route {
        /// The dim of the experts.
        over: DimId,
        /// The dim of the tokens.
        at: DimId,
        /// The dim of the places of an expert, which the result has beside.
        to: DimId,
        /// How many experts a token asks for.
        choices: u64,
    },
    /// A value in host memory, brought to the chip: each device fetches what it holds.
    Fetch,
    /// Another dtype.
    Cast(Dtype),
}

impl Op {
    /// The `op` of JSON output.
    pub fn json_name(&self) -> &'static str {
        match self {
            Op::Einsum => "einsum",
            Op::Map(_) => "map",
            Op::Binary(_) => "binary",
            Op::Reduce { .. } => "reduce",
            Op::Softmax { .. } => "softmax",
            Op::Norm { .. } => "norm",
            Op::Rename { .. } => "rename",
            Op::Split { .. } => "split",
            Op::Merge { .. } => "merge",
            Op::Concat { .. } => "concat",
            Op::SliceDim { .. } => "slice-dim",
            Op::Append { .. } => "append",
            Op::Mask { .. } => "mask",
            Op::Rope { .. } => "rope",
            Op::Take { .. } => "take",
            Op::Route { .. } => "route",
            Op::Fetch => "fetch",
            Op::Cast(_) => "cast",
        }
    }

    /// The word in the source and in IR text: `gelu`, `add`, `sum`; as [`Op::json_name`] for the rest.
    pub fn word(&self) -> &'static str {
        match self {
            Op::Map(map) => map.name(),
            Op::Binary(binary) => binary.name(),
            Op::Reduce { kind, .. } => kind.name(),
            Op::Norm { kind, .. } => kind.name(),
            Op::Mask { .. } => "causal",
            op => op.json_name(),
        }
    }

    /// Whether it may be fused into its producer: maps and binaries (and a cast, which is a map).
    pub fn is_elementwise(&self) -> bool {
        matches!(self, Op::Map(_) | Op::Binary(_) | Op::Cast(_))
    }

    /// The same op over other dims.
    #[must_use]
    pub fn with_dims(&self, dim: impl Fn(DimId) -> DimId) -> Op {
        let all = |list: &[DimId]| list.iter().map(|d| dim(*d)).collect();
        match self {
            Op::Einsum => Op::Einsum,
            Op::Map(map) => Op::Map(*map),
            Op::Binary(binary) => Op::Binary(*binary),
            Op::Reduce { kind, over } => Op::Reduce { kind: *kind, over: all(over) },
            Op::Softmax { over } => Op::Softmax { over: dim(*over) },
            Op::Norm { kind, over } => Op::Norm { kind: *kind, over: dim(*over) },
            Op::Rename { from, to } => Op::Rename { from: dim(*from), to: dim(*to) },
            Op::Split { from, to } => Op::Split { from: dim(*from), to: all(to) },
            Op::Merge { from, to } => Op::Merge { from: all(from), to: dim(*to) },
            Op::Concat { left, right, to } => Op::Concat { left: dim(*left), right: dim(*right), to: dim(*to) },
            Op::SliceDim { from, to, offset } => Op::SliceDim { from: dim(*from), to: dim(*to), offset: *offset },
            Op::Append { from, to } => Op::Append { from: dim(*from), to: dim(*to) },
            Op::Mask { query, key } => Op::Mask { query: dim(*query), key: dim(*key) },
            Op::Rope { over, at, extent } => Op::Rope { over: dim(*over), at: dim(*at), extent: extent.map(&dim) },
            Op::Take { over } => Op::Take { over: dim(*over) },
            Op::Route { over, at, to, choices } => {
                Op::Route { over: dim(*over), at: dim(*at), to: dim(*to), choices: *choices }
            }
            Op::Fetch => Op::Fetch,
            Op::Cast(dtype) => Op::Cast(*dtype),
        }
    }

    /// Every dim that the op itself names (not those of its operands).
    pub fn dims(&self) -> Vec<DimId> {
        match self {
            Op::Einsum | Op::Map(_) | Op::Binary(_) | Op::Fetch | Op::Cast(_) => Vec::new(),
            Op::Reduce { over, .. } => over.clone(),
            Op::Softmax { over } | Op::Norm { over, .. } | Op::Take { over } => vec![*over],
            Op::Rename { from, to } | Op::SliceDim { from, to, .. } | Op::Append { from, to } => vec![*from, *to],
            Op::Split { from, to } => std::iter::once(*from).chain(to.iter().copied()).collect(),
            Op::Merge { from, to } => from.iter().copied().chain([*to]).collect(),
            Op::Concat { left, right, to } => vec![*left, *right, *to],
            Op::Mask { query, key } => vec![*query, *key],
            Op::Rope { over, at, extent } => [*over, *at].into_iter().chain(*extent).collect(),
            Op::Route { over, at, to, .. } => vec![*over, *at, *to],
        }
    }
}
