//! The syntax tree of a `.shard` file: names, spans and comments, as they were written. It holds no
//! ids, and no sizes that are not literally in the text: those are the checker's.

mod expect;
mod expr;
mod types;

pub use expect::*;
pub use expr::*;
pub use types::*;

use shard_words::{Span, Spanned};

/// One whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// The lines of the `//!` comments at the top, without the slashes.
    pub docs: Vec<String>,
    /// The items in file order.
    pub items: Vec<Item>,
    /// Every comment of the file in file order, docs included: the printer prints them again.
    pub comments: Vec<Comment>,
}

/// Declares a method of [`File`] for the items of each kind.
macro_rules! items {
    ($($(#[$doc:meta])* $name:ident: $kind:ident;)*) => {
        impl File {
            $($(#[$doc])*
            pub fn $name(&self) -> impl Iterator<Item = &$kind> {
                self.items
                    .iter()
                    .filter_map(|item| if let Item::$kind(item) = item { Some(item) } else { None })
            })*
        }
    };
}

items! {
    /// The layers in file order.
    layers: Layer;
    /// The dims in file order.
    dims: Dim;
    /// The phases in file order.
    phases: Phase;
    /// The mesh lines in file order (more than one is the checker's error).
    meshes: Mesh;
    /// The hardware lines in file order (more than one is the checker's error).
    hardware: Hardware;
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
    /// The text behind the slashes (and the `!`), without trailing blanks.
    pub text: String,
    /// What it is for.
    pub kind: CommentKind,
    /// Whether nothing stands before it on its line.
    pub own_line: bool,
}

/// One item of a file.
#[derive(Clone, Debug, PartialEq)]
// There are few of them, and a box would be in the way of every match.
#[allow(clippy::large_enum_variant)]
pub enum Item {
    /// `hardware tpu-v4-flat`
    Hardware(Hardware),
    /// `mesh x=4, y=4`
    Mesh(Mesh),
    /// `dim F = 4 * E`
    Dim(Dim),
    /// `phase decode { L = 1, B = 64 }`
    Phase(Phase),
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
            Item::Phase(item) => item.span,
            Item::Layer(item) => item.span,
        }
    }

    /// The lines of its `///` comments, without the slashes.
    pub fn docs(&self) -> &[String] {
        match self {
            Item::Hardware(item) => &item.docs,
            Item::Mesh(item) => &item.docs,
            Item::Dim(item) => &item.docs,
            Item::Phase(item) => &item.docs,
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

/// `phase NAME { DIM = EXPRESSION, ... }` with an optional `repeat N`: sizes that dims have in this
/// phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// From `phase` to the closing brace.
    pub span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// Its name.
    pub name: Name,
    /// `repeat N`: how many of its steps a request takes.
    pub repeat: Option<Repeat>,
    /// The sizes with their braces.
    pub body_span: Span,
    /// The dims that have another right side in this phase, in the order in which they stand.
    pub sizes: Vec<Dim>,
}

/// One layer, or a `model`: a layer of layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// From `layer` or `model` (or `strict`) to the closing brace.
    pub span: Span,
    /// From `layer` or `model` (or `strict`) up to the opening brace.
    pub header_span: Span,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// The place of the word `strict`, where it is given.
    pub strict: Option<Span>,
    /// The place of the word `model`, where it stands instead of `layer`. A model has the weights
    /// and caches of the layers that it calls, and a call of a layer with `repeat N` stands for N
    /// applications.
    pub model: Option<Span>,
    /// Its name.
    pub name: Name,
    /// The parameter list with its parentheses.
    pub params_span: Span,
    /// The parameters.
    pub params: Vec<Param>,
    /// What it returns.
    pub results: Results,
    /// `repeat N` or `repeat M + N`: the number of times the layer is stacked.
    pub repeat: Option<Repeat>,
    /// The body with its braces.
    pub body_span: Span,
    /// The statements.
    pub body: Vec<Statement>,
}

/// `repeat N` in the header of a layer or a phase, or `repeat M + N` of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// From the word to the last number.
    pub span: Span,
    /// The number, or the sum of all; 0 is the checker's error.
    pub count: Spanned<u64>,
    /// The numbers, one for each kind of layers. Layers of one kind are all laid out alike, and
    /// layers of different kinds may be laid out differently. A single number if nothing is added.
    pub kinds: Vec<Spanned<u64>>,
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
// There are few of them, and a box would be in the way of every match.
#[allow(clippy::large_enum_variant)]
pub enum Statement {
    /// `let ...`
    Let(Let),
    /// `expect ...`
    Expect(Expect),
    /// `return ...`
    Return(Return),
}

impl Statement {
    /// The statement from its keyword to its last character.
    pub fn span(&self) -> Span {
        match self {
            Statement::Let(statement) => statement.span,
            Statement::Expect(statement) => statement.span,
            Statement::Return(statement) => statement.span,
        }
    }

    /// The expressions in it, in order.
    pub fn values(&self) -> Vec<&Expr> {
        match self {
            Statement::Let(statement) => vec![&statement.value],
            Statement::Expect(_) => Vec::new(),
            Statement::Return(statement) => statement.value.values(),
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

/// What a `return` returns.
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
