//! [`Op`]: the operations of the language, as data. Their common properties are in the catalogue,
//! [`shard_ops`].

pub use shard_ops::{
    Amount, Binary, Code, Combined, Field, Fit, Flag, Form, Lead, Map, Norm, Of, Partial, Reduce,
    Row, Slot, Takes, filled,
};

use crate::tensor::{DimId, Dtype};

/// Added to the mean square or the variance before the root in [`Norm`].
pub const NORM_EPSILON: f64 = 1e-6;

/// What fills a slot of an op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Argument {
    /// A dim.
    Dim(DimId),
    /// Dims.
    Dims(Vec<DimId>),
    /// A number.
    Number(u64),
    /// A dtype.
    Dtype(Dtype),
}

/// A field of an op, which fills one slot of the op's row.
trait Filling: Sized {
    /// The field as an argument; `None` for an empty field.
    fn argument(&self) -> Option<Argument>;
    /// The field from an argument, if the argument is of this kind.
    fn from_argument(argument: Option<Argument>) -> Option<Self>;
    /// The same with other dims.
    fn with_dims(&self, dim: &dyn Fn(DimId) -> DimId) -> Self;
}

macro_rules! filling {
    ($ty:ty, $variant:ident, $with:expr) => {
        impl Filling for $ty {
            fn argument(&self) -> Option<Argument> {
                Some(Argument::$variant(self.clone()))
            }
            fn from_argument(argument: Option<Argument>) -> Option<Self> {
                if let Some(Argument::$variant(value)) = argument { Some(value) } else { None }
            }
            fn with_dims(&self, dim: &dyn Fn(DimId) -> DimId) -> Self {
                let with: fn(&Self, &dyn Fn(DimId) -> DimId) -> Self = $with;
                with(self, dim)
            }
        }
    };
}
filling!(DimId, Dim, |of, dim| dim(*of));
filling!(Vec<DimId>, Dims, |of, dim| of.iter().map(|d| dim(*d)).collect());
filling!(u64, Number, |of, _| *of);
filling!(Dtype, Dtype, |of, _| *of);

/// A field that may be left out.
impl<T: Filling> Filling for Option<T> {
    fn argument(&self) -> Option<Argument> {
        self.as_ref().and_then(T::argument)
    }
    fn from_argument(argument: Option<Argument>) -> Option<Self> {
        match argument {
            None => Some(None),
            some => T::from_argument(some).map(Some),
        }
    }
    fn with_dims(&self, dim: &dyn Fn(DimId) -> DimId) -> Self {
        self.as_ref().map(|of| of.with_dims(dim))
    }
}

/// Declares [`Op`], and the functions that take it apart and put it together. The fields of a
/// variant are in the order of the slots of its row. The kinds that have several rows are written
/// out below.
macro_rules! ops {
    (
        $(#[$doc:meta])*
        pub enum Op {
            $($(#[$vdoc:meta])* $variant:ident $({ $($(#[$fdoc:meta])* $field:ident: $ty:ty),+ $(,)? })?),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Op {
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
            /// A normalisation over a dim.
            Norm {
                /// Which.
                kind: Norm,
                /// The dim.
                over: DimId,
            },
            /// Another dtype.
            Cast(Dtype),
            $($(#[$vdoc])* $variant $({ $($(#[$fdoc])* $field: $ty),+ })?),+
        }

        impl Op {
            /// Which op of the catalogue it is.
            pub fn code(&self) -> Code {
                match self {
                    Op::Map(map) => Code::Map(*map),
                    Op::Binary(binary) => Code::Binary(*binary),
                    Op::Reduce { kind, .. } => Code::Reduce(*kind),
                    Op::Norm { kind, .. } => Code::Norm(*kind),
                    Op::Cast(_) => Code::Form(Form::Cast),
                    $(Op::$variant { .. } => Code::Form(Form::$variant)),+
                }
            }

            /// What fills each slot of its row; `None` for an empty slot.
            pub fn arguments(&self) -> Vec<Option<Argument>> {
                match self {
                    Op::Map(_) | Op::Binary(_) => Vec::new(),
                    Op::Reduce { over, .. } => vec![over.argument()],
                    Op::Norm { over, .. } => vec![over.argument()],
                    Op::Cast(dtype) => vec![dtype.argument()],
                    $(Op::$variant $({ $($field),+ })? => vec![$($($field.argument()),+)?]),+
                }
            }

            /// The op with these arguments, slot by slot; `None` where an argument is not of the
            /// kind that its slot takes.
            pub fn of(code: Code, arguments: Vec<Argument>) -> Option<Op> {
                let mut arguments = arguments.into_iter();
                let op = match code {
                    Code::Map(map) => Op::Map(map),
                    Code::Binary(binary) => Op::Binary(binary),
                    Code::Reduce(kind) => Op::Reduce { kind, over: Filling::from_argument(arguments.next())? },
                    Code::Norm(kind) => Op::Norm { kind, over: Filling::from_argument(arguments.next())? },
                    Code::Form(Form::Cast) => Op::Cast(Filling::from_argument(arguments.next())?),
                    $(Code::Form(Form::$variant) => {
                        Op::$variant $({ $($field: Filling::from_argument(arguments.next())?),+ })?
                    })+
                };
                arguments.next().is_none().then_some(op)
            }

            /// The same op over other dims.
            #[must_use]
            pub fn with_dims(&self, dim: impl Fn(DimId) -> DimId) -> Op {
                match self {
                    Op::Map(map) => Op::Map(*map),
                    Op::Binary(binary) => Op::Binary(*binary),
                    Op::Reduce { kind, over } => Op::Reduce { kind: *kind, over: over.with_dims(&dim) },
                    Op::Norm { kind, over } => Op::Norm { kind: *kind, over: dim(*over) },
                    Op::Cast(dtype) => Op::Cast(*dtype),
                    $(Op::$variant $({ $($field),+ })? => {
                        Op::$variant $({ $($field: $field.with_dims(&dim)),+ })?
                    })+
                }
            }
        }
    };
}

ops! {
    /// An operation on global tensors. Dims are matched by name; the result's dims are stated
    /// beside the op ([`Value::dims`](crate::Value::dims)), in memory order.
    ///
    /// The type rule is in [`typing`](crate::typing), the rule for layouts in
    /// [`layout_rule`](crate::layout_rule).
    pub enum Op {
        /// The product of the operands, summed over every dim that the result does not name. The
        /// dtype of the result is stated beside the op, like its dims: the dtype of the operands'
        /// product, or another one in which it is accumulated
        /// ([`accumulates_in`](crate::typing::accumulates_in)).
        Einsum,
        /// `exp(a) / sum(exp(a))` over a dim.
        Softmax {
            /// The dim.
            over: DimId,
        },
        /// Operands `a, sinks`: `exp(a) / (exp(sinks) + sum(exp(a)))` over a dim that the sinks
        /// lack.
        SinkSoftmax {
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
        /// Minus infinity where the key position is later than the query position, or before the
        /// window of the query.
        Mask {
            /// The dim of query positions, which are the last of the key positions.
            query: DimId,
            /// The dim of key positions.
            key: DimId,
            /// How many positions a query sees, the last of which is its own; all up to its own
            /// without a window.
            window: Option<u64>,
        },
        /// Rotary embedding: elements i and i + n/2 of the n along `over` are turned by `position ·
        /// 10000^(-2i/n)`.
        Rope {
            /// The dim that is rotated; its size is even.
            over: DimId,
            /// The dim of positions.
            at: DimId,
            /// The dim of all positions, of which those of `at` are the last, as in [`Op::Mask`];
            /// without it they are the first.
            extent: Option<DimId>,
        },
        /// Operands `a, ids`: for each place of `to` the sum of the elements of `a` whose id is
        /// this place, over all of `over`. An id that is no place adds to none.
        ScatterAdd {
            /// The dims of both operands that are summed.
            over: Vec<DimId>,
            /// The dim of the places.
            to: DimId,
        },
        /// The operand with zeros around a dim: its positions start at `offset`.
        Pad {
            /// The dim of the operand.
            from: DimId,
            /// The dim of the result.
            to: DimId,
            /// The place of the first position.
            offset: u64,
        },
        /// Operands `a, factor`: at each position `a + factor · (the result one position before)`,
        /// where the result before the first position counts as 0. All dims of the factor are dims
        /// of `a`.
        Scan {
            /// The dim of the positions.
            over: DimId,
        },
        /// At each position the sum of all elements up to it, its own included.
        Cumsum {
            /// The dim of the positions.
            over: DimId,
        },
        /// Each position has the element `by` positions before it, and the first positions have
        /// zeros.
        Shift {
            /// The dim of the positions.
            over: DimId,
            /// By how many.
            by: u64,
        },
        /// Operands `a, weights`: at each position the sum of its own element and of those before
        /// it, each times its tap; the last tap is for the position's own element. Zeros stand
        /// before the first position. All other dims of the weights are dims of `a`.
        Conv {
            /// The dim of the positions.
            over: DimId,
            /// The dim of the taps, which only the weights have.
            taps: DimId,
        },
        /// The first position of the largest element; a NaN counts as larger than any number.
        Argmax {
            /// The dim of the positions.
            over: DimId,
        },
        /// The largest elements along a dim, in falling order; a NaN counts as larger than any
        /// number. With parts, the dim is cut into this many equal parts, and as many are chosen of
        /// each, part by part. Then axes may split the dim between parts, and split the result
        /// alike.
        TopK {
            /// The dim.
            over: DimId,
            /// The dim of those chosen.
            to: DimId,
            /// How many parts; one where it is not given.
            parts: Option<u64>,
        },
        /// The positions of the elements that [`Op::TopK`] chooses, counted over the whole dim; of
        /// equal elements those with lower positions, in rising order.
        ArgTopK {
            /// The dim.
            over: DimId,
            /// The dim of those chosen.
            to: DimId,
            /// How many parts; one where it is not given.
            parts: Option<u64>,
        },
        /// Operands `a, value`: minus the first position at which the two are equal, or both NaN;
        /// the smallest int32 where they never are. Over a split dim the result is a partial
        /// maximum.
        Locate {
            /// The dim of the positions.
            over: DimId,
        },
        /// Operands `table, ids`: the rows of the table that the ids name.
        Take {
            /// The dim of the table that the ids index.
            over: DimId,
        },
        /// Operands `holds, a, b`: `a` where `holds` is true, `b` elsewhere.
        Where,
        /// The position along a dim, counted over the whole tensor, at every element.
        Iota {
            /// The dim.
            over: DimId,
        },
        /// Which tokens go to which places of which experts: 1 at a place that is given to a token,
        /// 0 elsewhere.
        ///
        /// Each token asks for the experts of its largest gates; of equal gates the lower expert
        /// comes first, and a NaN counts as minus infinity. First choices get places before second
        /// choices, and among equal choices in the order of the tokens. A token whose expert has no
        /// place left goes without. Every other dim is a group of tokens with places of its own.
        Route {
            /// The dim of the experts.
            over: DimId,
            /// The dim of the tokens.
            at: DimId,
            /// The dim of the places of an expert, which the result has in addition.
            to: DimId,
            /// How many experts a token asks for.
            choices: u64,
        },
        /// A value in host memory, brought to the chip: each device fetches what it holds.
        Fetch,
    }
}

impl Op {
    /// Its row of the catalogue.
    pub fn row(&self) -> &'static Row {
        self.code().row()
    }

    /// The word in IR text and in reports: `gelu`, `add`, `sum`, `slice-dim`.
    pub fn word(&self) -> &'static str {
        self.row().text
    }

    /// Whether it works element by element, so that it may be fused into the op that makes its
    /// operand.
    pub fn is_elementwise(&self) -> bool {
        self.row().is(Flag::Elementwise)
    }

    /// Each slot of its row that is not empty, with what fills it.
    pub fn slots(&self) -> impl Iterator<Item = (&'static Slot, Argument)> {
        self.row()
            .slots
            .iter()
            .zip(self.arguments())
            .filter_map(|(slot, argument)| Some((slot, argument?)))
    }

    /// What fills the slot of this name, if anything does.
    pub fn filling(&self, name: &str) -> Option<Argument> {
        self.slots().find(|(slot, _)| slot.name == name).map(|(_, argument)| argument)
    }

    /// The dim in the slot of this name, if there is one.
    pub fn dim_in(&self, name: &str) -> Option<DimId> {
        self.filling(name).and_then(|argument| argument.dims().first().copied())
    }

    /// The number in the slot of this name, if there is one.
    pub fn number_in(&self, name: &str) -> Option<u64> {
        match self.filling(name)? {
            Argument::Number(number) => Some(number),
            Argument::Dim(_) | Argument::Dims(_) | Argument::Dtype(_) => None,
        }
    }

    /// For a view: the dims of the operand that it replaces, and the dims of the result that
    /// replace them.
    pub fn renames(&self) -> Option<[Vec<DimId>; 2]> {
        let dims = |slot| self.filling(slot).map_or(Vec::new(), |of| of.dims().to_vec());
        self.row().is(Flag::View).then(|| ["from", "to"].map(dims))
    }

    /// Whether it splits a dim into several or merges several into one.
    pub fn regroups(&self) -> bool {
        self.row().fits.iter().any(|fit| matches!(fit, Fit::Product { .. }))
    }

    /// The dims that must divide into a number of equal parts, each with the number.
    pub fn parts(&self) -> Vec<(DimId, u64)> {
        let parts = |fit: &Fit| match *fit {
            Fit::Even(slot) => Some((vec![slot], 2)),
            Fit::InParts { dims, parts } => Some((dims.to_vec(), self.number_in(parts)?)),
            Fit::Different(..)
            | Fit::New(_)
            | Fit::NewOr(..)
            | Fit::InSecond(_)
            | Fit::SameSize(..)
            | Fit::Product { .. }
            | Fit::Sum { .. }
            | Fit::AtMost { .. }
            | Fit::CutOf { .. }
            | Fit::PutInto { .. }
            | Fit::Choices { .. } => None,
        };
        let fits = self.row().fits.iter().filter_map(parts);
        fits.flat_map(|(slots, parts)| slots.into_iter().map(move |slot| (slot, parts)))
            .filter_map(|(slot, parts)| Some((self.dim_in(slot)?, parts)))
            .collect()
    }

    /// Every dim that the op itself names; dims of its operands are not included.
    pub fn dims(&self) -> Vec<DimId> {
        self.slots().flat_map(|(_, argument)| argument.dims().to_vec()).collect()
    }

    /// Whether each device must have a dim of an operand whole.
    pub fn needs_whole(&self, operand: usize, dim: DimId) -> bool {
        let is_whole = |slot: &Slot| match slot.of {
            Of::Whole(of) => of == operand,
            Of::WholeInAll => true,
            Of::Operand(_) | Of::Result | Of::None => false,
        };
        self.row().slots.iter().any(is_whole)
            && self.slots().any(|(slot, argument)| is_whole(slot) && argument.dims().contains(&dim))
    }

    /// The dim that the result alone has and that axes may split: each device makes its own part of
    /// it.
    pub fn own_dim(&self) -> Option<DimId> {
        let is_own = |slot: &Slot| match slot.of {
            Of::Result => true,
            Of::Operand(_) | Of::Whole(_) | Of::WholeInAll | Of::None => false,
        };
        self.slots()
            .filter(|(slot, _)| is_own(slot))
            .find_map(|(_, argument)| argument.dims().first().copied())
    }

    /// The number of blocks into which axes may cut a dim of the op's iteration space: the parts of
    /// a choice of the largest. `None` where axes may cut between any two elements.
    pub fn blocks_of(&self, dim: DimId) -> Option<u64> {
        let (Op::TopK { to, parts, .. } | Op::ArgTopK { to, parts, .. }) = self else {
            return None;
        };
        (*to == dim).then_some(parts.unwrap_or(1))
    }
}

impl Argument {
    /// The dims that it names.
    pub fn dims(&self) -> &[DimId] {
        match self {
            Argument::Dim(dim) => std::slice::from_ref(dim),
            Argument::Dims(dims) => dims,
            Argument::Number(_) | Argument::Dtype(_) => &[],
        }
    }
}
