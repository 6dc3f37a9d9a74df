//! The syntax tree of a `.shard` file: names, spans and comments, as they were written. It never holds ids or sizes
//! that are not literally in the text; those are the checker's.

use crate::source::{Span, Spanned};
use std::fmt;

/// A name as it was written, with its place.
pub type Name = Spanned<String>;

/// One whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// The lines of the `//!` comments at the top, without the slashes.
    pub docs: Vec<String>,
    /// The items in file order.
    pub items: Vec<Item>,
    /// Every comment of the file in file order, docs included: the printer puts them back.
    pub comments: Vec<Comment>,
}

impl File {
    /// The layers in file order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.items.iter().filter_map(|item| if let Item::Layer(layer) = item { Some(layer) } else { None })
    }

    /// The dims in file order.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        self.items.iter().filter_map(|item| if let Item::Dim(dim) = item { Some(dim) } else { None })
    }

    /// The mesh lines in file order (more than one is the checker's error).
    pub fn meshes(&self) -> impl Iterator<Item = &Mesh> {
        self.items.iter().filter_map(|item| if let Item::Mesh(mesh) = item { Some(mesh) } else { None })
    }

    /// The hardware lines in file order (more than one is the checker's error).
    pub fn hardware(&self) -> impl Iterator<Item = &Hardware> {
        self.items.iter().filter_map(|item| if let Item::Hardware(hardware) = item { Some(hardware) } else { None })
    }
}

/// What a comment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentKind {
    /// `// ...`
    Plain,
    /// `/// ...`: documents the item, parameter or `let` below it.
    Doc,
    /// `//! ...`: documents the file.
    FileDoc,
}

/// One comment, from its slashes to the end of its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// From the first slash to the end of the text, trailing blanks not counted.
    pub span: Span,
    /// What is behind the slashes (and the `!`), trailing blanks cut off, leading ones kept.
    pub text: String,
    /// What it is for.
    pub kind: CommentKind,
    /// Whether nothing stands before it on its line.
    pub own_line: bool,
}

/// One item of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `hardware tpu-v4-flat`
    Hardware(Hardware),
    /// `mesh x=4, y=4`
    Mesh(Mesh),
    /// `dim F = 4 * E`
    Dim(Dim),
    /// `layer mlp(...) -> TYPE { ... }`
    Layer(Layer),
}

impl Item {
    /// The item from its first keyword to its last character, docs not included.
    pub fn span(&self) -> Span {
        match self {
            Item::Hardware(item) => item.span,
            Item::Mesh(item) => item.span,
            Item::Dim(item) => item.span,
            Item::Layer(item) => item.span,
        }
    }

    /// The lines of its `///` comments, without the slashes.
    pub fn docs(&self) -> &[String] {
        match self {
            Item::Hardware(item) => &item.docs,
            Item::Mesh(item) => &item.docs,
            Item::Dim(item) => &item.docs,
            Item::Layer(item) => &item.docs,
        }
    }
}

/// `hardware NAME` or `hardware "path.toml"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// The whole line.
    pub span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// The chip.
    pub chip: HardwareRef,
}

/// How a file names its hardware.
#[derive(Clone, Debug, PartialEq)]
pub enum HardwareRef {
    /// A built-in chip, such as `tpu-v4-flat`.
    BuiltIn(Name),
    /// A file, relative to the source file; the value is without the quotes, the span with them.
    Path(Spanned<String>),
}

/// `mesh x=4, y=4`, axes major to minor.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// The whole line.
    pub span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// The axes, major to minor.
    pub axes: Vec<MeshAxis>,
}

/// One `x=4` of a mesh line.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshAxis {
    /// Name, `=` and size.
    pub span: Span,
    /// The axis.
    pub name: Name,
    /// Its size as written; 0 is the checker's error.
    pub size: Spanned<u64>,
}

/// `dim NAME = EXPRESSION` with an optional `pad EXPRESSION`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dim {
    /// The whole line.
    pub span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// The dim.
    pub name: Name,
    /// Its size.
    pub value: IntExpr,
    /// The size to which it is padded, where `pad` is given.
    pub pad: Option<IntExpr>,
}

/// An integer expression over numbers and dims.
#[derive(Clone, Debug, PartialEq)]
pub struct IntExpr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: IntExprKind,
}

/// The forms of an integer expression. No tree is deeper than [`crate::limits::MAX_TREE_DEPTH`].
#[derive(Clone, Debug, PartialEq)]
pub enum IntExprKind {
    /// A number.
    Number(u64),
    /// Another dim, by name.
    Dim(String),
    /// `left op right`; `/` must come out exact.
    Binary {
        /// The operation.
        op: BinaryOp,
        /// Its sign's place.
        op_span: Span,
        /// The left operand.
        left: Box<IntExpr>,
        /// The right operand.
        right: Box<IntExpr>,
    },
    /// `(...)`, kept as the user wrote it.
    Paren(Box<IntExpr>),
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// From `layer` (or `strict`) to the closing brace.
    pub span: Span,
    /// From `layer` (or `strict`) up to the opening brace.
    pub header_span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// The place of the word `strict`, where it is given.
    pub strict: Option<Span>,
    /// Its name.
    pub name: Name,
    /// The parameter list with its parentheses.
    pub params_span: Span,
    /// The parameters.
    pub params: Vec<Param>,
    /// What it returns.
    pub results: Results,
    /// `repeat N`: the number of times the layer is stacked.
    pub repeat: Option<Repeat>,
    /// The body with its braces.
    pub body_span: Span,
    /// The statements.
    pub body: Vec<Statement>,
}

/// `repeat N` in a layer's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeat {
    /// Both words.
    pub span: Span,
    /// The number; 0 is the checker's error.
    pub count: Spanned<u64>,
}

/// One parameter `name: TYPE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name and type.
    pub span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// Its name.
    pub name: Name,
    /// Its type; the dtype is always there.
    pub ty: Type,
}

/// What a layer returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Results {
    /// `-> TYPE`
    One(Type),
    /// `-> (y: TYPE, k: TYPE)`; at least one.
    Named {
        /// The list with its parentheses.
        span: Span,
        /// The results in order.
        results: Vec<NamedResult>,
    },
}

impl Results {
    /// Where the result type or list stands.
    pub fn span(&self) -> Span {
        match self {
            Results::One(ty) => ty.span,
            Results::Named { span, .. } => *span,
        }
    }

    /// The result types in order.
    pub fn types(&self) -> Vec<&Type> {
        match self {
            Results::One(ty) => vec![ty],
            Results::Named { results, .. } => results.iter().map(|result| &result.ty).collect(),
        }
    }
}

/// One `y: TYPE` of a result list.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedResult {
    /// Name and type.
    pub span: Span,
    /// Its name.
    pub name: Name,
    /// Its type; the dtype is always there.
    pub ty: Type,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `let ...`
    Let(Let),
    /// `return ...`
    Return(Return),
}

impl Statement {
    /// The statement from its keyword to its last character.
    pub fn span(&self) -> Span {
        match self {
            Statement::Let(statement) => statement.span,
            Statement::Return(statement) => statement.span,
        }
    }
}

/// `let NAME = expr`, `let NAME: TYPE = expr` or `let (a, b) = expr`.
#[derive(Clone, Debug, PartialEq)]
pub struct Let {
    /// The whole statement.
    pub span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// What is bound.
    pub target: LetTarget,
    /// The right side.
    pub value: Expr,
}

/// The left side of a `let`.
#[derive(Clone, Debug, PartialEq)]
pub enum LetTarget {
    /// One name, perhaps with an annotation (whose dtype may be left out).
    One {
        /// The name.
        name: Name,
        /// The annotation.
        ty: Option<Type>,
    },
    /// `(a, b)`: the results of a call, in order.
    Many {
        /// The list with its parentheses.
        span: Span,
        /// The names; at least one.
        names: Vec<Name>,
    },
}

/// `return expr` or `return (a, b)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Return {
    /// The whole statement.
    pub span: Span,
    /// What is returned.
    pub value: ReturnValue,
}

/// What a `return` names.
#[derive(Clone, Debug, PartialEq)]
pub enum ReturnValue {
    /// One expression.
    One(Expr),
    /// `(a, b)`, two or more.
    Many {
        /// The list with its parentheses.
        span: Span,
        /// The expressions in order.
        values: Vec<Expr>,
    },
}

impl ReturnValue {
    /// The expressions in order.
    pub fn values(&self) -> Vec<&Expr> {
        match self {
            ReturnValue::One(value) => vec![value],
            ReturnValue::Many { values, .. } => values.iter().collect(),
        }
    }
}

/// `[kind] [dtype] LAYOUT [partial]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// All of it.
    pub span: Span,
    /// `weight` or `cache`; nothing is an activation.
    pub kind: Option<Spanned<Kind>>,
    /// The dtype; only a `let` annotation may leave it out.
    pub dtype: Option<Spanned<DType>>,
    /// The layout word.
    pub layout: LayoutWord,
    /// `(partialsum-x, partialmax-y)`; empty where nothing is partial.
    pub partial: Vec<PartialGroup>,
}

/// What kind of storage a parameter or result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A parameter that stays in memory from step to step.
    Weight,
    /// Per-sequence state that stays.
    Cache,
}

impl Kind {
    /// The word of the language.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Weight => "weight",
            Kind::Cache => "cache",
        }
    }
}

/// The element types, by their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // each is its own word
pub enum DType {
    F32,
    Bf16,
    F16,
    F8,
    Int8,
    Int4,
    Int32,
    Bool,
}

impl DType {
    /// All of them, in the order in which messages list them.
    pub const ALL: [DType; 8] =
        [DType::F32, DType::Bf16, DType::F16, DType::F8, DType::Int8, DType::Int4, DType::Int32, DType::Bool];

    /// The word of the language.
    pub fn word(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::F8 => "f8",
            DType::Int8 => "int8",
            DType::Int4 => "int4",
            DType::Int32 => "int32",
            DType::Bool => "bool",
        }
    }

    /// The dtype that a word means.
    pub fn from_word(word: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.word() == word)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// In which of the two forms dims were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimsForm {
    /// `BLE`: single letters, each perhaps with digits.
    Compact,
    /// `[Batch, Seq]`
    Bracketed,
    /// One longer name alone, `Seq` (in `over Seq` and the like; never in a layout word).
    Single,
}

/// A layout as it was written: `BLE_xyz`, `[Batch_{data}, Seq]`, `BLE?l`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutWord {
    /// All of it, a trailing `?label` included, partials not.
    pub span: Span,
    /// Compact or bracketed.
    pub form: DimsForm,
    /// The dims in memory order; empty for the scalar `[]`.
    pub dims: Vec<DimWord>,
    /// The trailing `?` or `?label`.
    pub free: Option<FreeMark>,
}

/// One dim of a layout word with the axes that split it.
#[derive(Clone, Debug, PartialEq)]
pub struct DimWord {
    /// The dim and its subscript.
    pub span: Span,
    /// The dim.
    pub name: Name,
    /// The axes behind `_`; `None` where the dim is not split.
    pub axes: Option<AxesWord>,
}

/// A list of mesh axes as it was written behind `_` or behind `partialsum-`.
#[derive(Clone, Debug, PartialEq)]
pub struct AxesWord {
    /// All of it, without the `_` or `-` before it.
    pub span: Span,
    /// Its text. `B_data` lexes as the axes d, a, t, a and has `data` here, so that a message can say `B_{data}`.
    pub raw: String,
    /// Whether it stands in parentheses, `E_(xy)`: in whichever order the compiler finds best. Never in a partial.
    pub any_order: bool,
    /// The axes in order, each with its own place; at least one.
    pub axes: Vec<Name>,
}

/// The `?` at the end of a layout word: the axes that are not named are left to the compiler.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeMark {
    /// `?` and the label.
    pub span: Span,
    /// The label, which ties layouts to one another.
    pub label: Option<Name>,
}

/// Of which operation a value holds unfinished terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartialOp {
    /// `partialsum`
    Sum,
    /// `partialmax`
    Max,
}

impl PartialOp {
    /// The word of the language.
    pub fn word(self) -> &'static str {
        match self {
            PartialOp::Sum => "partialsum",
            PartialOp::Max => "partialmax",
        }
    }
}

/// One `partialsum-xy` of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialGroup {
    /// Word, `-` and axes.
    pub span: Span,
    /// Sum or maximum, and where the word stands.
    pub op: Spanned<PartialOp>,
    /// The axes over which the reduction is still to be taken.
    pub axes: AxesWord,
}

/// A list of dims without axes: an einsum's output, `over BL`, `-> [Kv, Group]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DimList {
    /// All of it, brackets included.
    pub span: Span,
    /// Its text: `over BATCH` lexes as five dims, and a message can say `[BATCH]`.
    pub raw: String,
    /// In which form it was written.
    pub form: DimsForm,
    /// The dims in order, each with its own place. Empty only as `[]`.
    pub dims: Vec<Name>,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: ExprKind,
}

/// A number as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Its text, as printed back.
    pub text: String,
    /// Its value; always finite.
    pub value: f64,
}

/// The forms of an expression. No tree is deeper than [`crate::limits::MAX_TREE_DEPTH`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the fields bear the names that the variant's doc line uses
pub enum ExprKind {
    /// A number without a sign.
    Number(Number),
    /// A value, by name.
    Name(String),
    /// `(inner)`, kept as the user wrote it.
    Paren(Box<Expr>),
    /// `-operand`
    Neg { op_span: Span, operand: Box<Expr> },
    /// `left op right` for `+ - * /`
    Binary { op: BinaryOp, op_span: Span, left: Box<Expr>, right: Box<Expr> },
    /// `maximum(left, right)`, `minimum(left, right)`
    Extremum { op: Spanned<ExtremumOp>, left: Box<Expr>, right: Box<Expr> },
    /// `gelu(operand)` and the other elementwise maps
    Map { op: Spanned<MapOp>, operand: Box<Expr> },
    /// `callee(args...)`: another layer of the file
    Call { callee: Name, args: Vec<Expr> },
    /// `einsum(operands... -> output)`; `word_span` is the word `einsum`; at least one operand
    Einsum { word_span: Span, operands: Vec<Expr>, output: DimList },
    /// `sum(operand over dims)`, `mean`, `max`
    Reduce { op: Spanned<ReduceOp>, operand: Box<Expr>, over: DimList },
    /// `softmax(operand over dims)`, `rmsnorm`, `layernorm`
    Normalize { op: Spanned<NormalizeOp>, operand: Box<Expr>, over: DimList },
    /// `rename(operand, from -> to)`
    Rename { word_span: Span, operand: Box<Expr>, from: Name, to: Name },
    /// `split(operand, from -> to)`; `to` has exactly two dims, major first
    Split { word_span: Span, operand: Box<Expr>, from: Name, to: DimList },
    /// `merge(operand, from -> to)`; `from` has exactly two dims, major first
    Merge { word_span: Span, operand: Box<Expr>, from: DimList, to: Name },
    /// `concat(left, right, left_dim, right_dim -> to)`
    Concat { word_span: Span, left: Box<Expr>, right: Box<Expr>, left_dim: Name, right_dim: Name, to: Name },
    /// `slice(operand, from -> to, start)`
    Slice { word_span: Span, operand: Box<Expr>, from: Name, to: Name, start: IntExpr },
    /// `append(cache, new, from -> to)`: `from` is the dim of the new positions, `to` the cache's
    Append { word_span: Span, cache: Box<Expr>, new: Box<Expr>, from: Name, to: Name },
    /// `causal(operand over query, key)`
    Causal { word_span: Span, operand: Box<Expr>, query: Name, key: Name },
    /// `rope(operand over dim at position)`
    Rope { word_span: Span, operand: Box<Expr>, dim: Name, position: Name },
    /// `take(table, ids over dim)`
    Take { word_span: Span, table: Box<Expr>, ids: Box<Expr>, dim: Name },
    /// `cast(operand, dtype)`
    Cast { word_span: Span, operand: Box<Expr>, dtype: Spanned<DType> },
    /// `reshard(operand, LAYOUT partial)`
    Reshard { word_span: Span, operand: Box<Expr>, layout: LayoutWord, partial: Vec<PartialGroup> },
}

/// The four signs, of expressions and of dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
}

impl BinaryOp {
    /// The sign of the language.
    pub fn sign(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
        }
    }

    /// How tightly it binds: 1 for `+ -`, 2 for `* /`. Both are left-associative.
    pub fn precedence(self) -> u8 {
        match self {
            BinaryOp::Add | BinaryOp::Sub => 1,
            BinaryOp::Mul | BinaryOp::Div => 2,
        }
    }
}

/// Makes an enum of operations that are one word each, with the way from the word and back.
macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // each is its own word
        pub enum $name { $($variant),* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word of the language.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }

            /// The operation that a word means.
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }
    };
}

word_enum! {
    /// Elementwise maps of one operand.
    MapOp {
        Gelu = "gelu", Relu = "relu", Silu = "silu", Sigmoid = "sigmoid", Tanh = "tanh", Exp = "exp", Log = "log",
        Sqrt = "sqrt", Rsqrt = "rsqrt", Square = "square", Abs = "abs",
    }
}
word_enum! {
    /// Elementwise choice of the larger or smaller of two operands.
    ExtremumOp { Maximum = "maximum", Minimum = "minimum" }
}
word_enum! {
    /// Reductions over dims.
    ReduceOp { Sum = "sum", Mean = "mean", Max = "max" }
}
word_enum! {
    /// Composites over dims.
    NormalizeOp { Softmax = "softmax", RmsNorm = "rmsnorm", LayerNorm = "layernorm" }
}
