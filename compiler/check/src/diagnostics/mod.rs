//! The wording of every diagnostic, by topic: each topic has an enum of typed payloads that becomes
//! a [`Diagnostic`](crate::Diagnostic). [`ALL`] lists every code; each has a page in
//! `spec/diagnostics/`.

pub mod audits;
pub mod configs;
pub mod dims;
pub mod dtypes;
pub mod expectations;
pub mod export;
pub mod hardware;
pub mod inputs;
pub mod internal;
pub mod layers;
pub mod layouts;
pub mod limits;
pub mod lowering;
pub mod mesh;
pub mod models;
pub mod partials;
pub mod phases;
pub mod questions;
pub mod shapes;
pub mod snapshots;
pub mod straddles;
pub mod syntax;
pub mod words;

use shard_grammar::{Span, ast, print_expr, print_type};

pub use audits::AuditProblem;
pub use configs::ConfigProblem;
pub use dims::DimProblem;
pub use dtypes::DtypeProblem;
pub use expectations::ExpectationProblem;
pub use export::ExportProblem;
pub use hardware::{HardwareProblem, NoPlanFits};
pub use inputs::InputProblem;
pub use internal::InternalProblem;
pub use layers::LayerProblem;
pub use layouts::{LayoutProblem, NotDivisible};
pub use limits::LimitProblem;
pub use lowering::LoweringProblem;
pub use mesh::MeshProblem;
pub use models::ModelProblem;
pub use partials::{PartialProblem, WayOut};
pub use phases::PhaseProblem;
pub use questions::QuestionProblem;
pub use shapes::{SecondOperand, ShapeProblem};
pub use snapshots::SnapshotProblem;
pub use straddles::Straddle;

/// An expression, type or word of the source, as a message quotes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Quote {
    /// Its place.
    pub span: Span,
    /// Its text, as messages show it.
    pub text: String,
}

impl Quote {
    /// Quotes an expression.
    pub(crate) fn of_expr(expr: &ast::Expr) -> Quote {
        Quote { span: expr.span, text: print_expr(expr) }
    }

    /// Quotes a type.
    pub(crate) fn of_type(ty: &ast::Type) -> Quote {
        Quote { span: ty.span, text: print_type(ty) }
    }
}

/// What a diagnostic comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A source file alone, checked without options: there are cases in `examples/errors/CODE/`.
    File,
    /// The command line.
    CommandLine,
    /// A pass behind the checker.
    LaterPass,
}

/// The code of every diagnostic, what it is about, and what it comes from.
pub const ALL: &[(&str, &str, Source)] = &[
    ("E0101", "syntax: something else was expected", Source::File),
    ("E0102", "a bracket or string without its other end", Source::File),
    ("E0103", "a name that breaks the rule of its kind, or is reserved", Source::File),
    ("E0104", "a word that is no dtype, or a missing dtype", Source::File),
    ("E0105", "a layout word, partial or list of dims that cannot be read", Source::File),
    ("E0106", "a number that is not whole, or too large", Source::File),
    ("E0107", "a statement outside a layer", Source::File),
    ("E0108", "text beyond the limits of the language", Source::File),
    ("W0101", "a doc comment that documents nothing", Source::File),
    ("W0102", "a call whose parenthesis stands on a later line", Source::File),
    ("E0201", "a mesh axis that does not exist", Source::File),
    ("E0202", "a mesh axis used twice in one type", Source::File),
    ("E0203", "a mesh axis that both splits and is partial", Source::File),
    ("E0204", "a mesh axis that is partial twice", Source::File),
    ("E0205", "a dim that does not divide over its axes", Source::File),
    ("E0206", "a mesh axis of size 0", Source::File),
    ("E0207", "a mesh axis named twice", Source::File),
    ("E0208", "a second mesh line", Source::File),
    ("E0209", "a mesh of too many axes or devices", Source::File),
    ("E0210", "one label on types of different dims", Source::File),
    ("E0301", "a dim that does not exist", Source::File),
    ("E0302", "a dim declared twice", Source::File),
    ("E0303", "a division that is not exact", Source::File),
    ("E0304", "a size that is zero, negative or too large", Source::File),
    ("E0305", "a pad smaller than the size", Source::File),
    ("E0306", "a dim twice in one tensor", Source::File),
    ("E0307", "stated dims that are not those of the value", Source::File),
    ("E0308", "an einsum output dim that is in no operand", Source::File),
    ("E0309", "a dim that the operand does not have", Source::File),
    ("E0310", "sizes that do not fit the operation", Source::File),
    ("E0311", "operands whose dims do not go together", Source::File),
    ("E0312", "-D or --vary of a dim that does not exist", Source::CommandLine),
    ("E0313", "-D with a right side that cannot be read", Source::CommandLine),
    ("E0314", "one dim in two roles of an operation", Source::File),
    ("W0301", "a dim that is never used", Source::File),
    ("E0401", "dtypes that do not meet", Source::File),
    ("E0402", "a dtype that the operation does not take", Source::File),
    ("E0403", "a stated dtype that is not the value's", Source::File),
    ("E0404", "a number that the dtype does not hold", Source::File),
    ("E0405", "an einsum that is not accumulated in that dtype", Source::File),
    ("E0501", "a non-linear operation on a partial sum", Source::File),
    ("E0502", "a product of two partial sums", Source::File),
    ("E0503", "a type that is partial by a softmax", Source::File),
    ("W0501", "a value added to a partial sum on one device of a group", Source::File),
    ("E0601", "a value that does not exist", Source::File),
    ("E0602", "a value named twice", Source::File),
    ("E0603", "a layer or operation that does not exist", Source::File),
    ("E0604", "a layer declared twice", Source::File),
    ("E0605", "a call with the wrong number of arguments", Source::File),
    ("E0606", "layers that call each other in a ring", Source::File),
    ("E0607", "the wrong number of results", Source::File),
    ("E0608", "a layer without return", Source::File),
    ("E0609", "a statement behind the return", Source::File),
    ("E0610", "repeat 0", Source::File),
    ("E0611", "a repeated layer whose result is not what it takes", Source::File),
    ("E0612", "a cache result laid out otherwise than its parameter", Source::File),
    ("E0613", "a file without a layer", Source::LaterPass),
    ("E0620", "a phase declared twice", Source::File),
    ("E0621", "a phase's size for a dim that does not exist", Source::File),
    ("E0622", "a dim twice in one phase", Source::File),
    ("E0623", "a phase of no step", Source::File),
    ("E0624", "a weight whose size differs between phases", Source::File),
    ("E0630", "an argument with a name outside a model", Source::File),
    ("E0631", "a call of a model", Source::File),
    ("E0632", "a model that is repeated", Source::File),
    ("E0633", "a call in a model with arguments that the layer does not take", Source::File),
    ("E0634", "a repeated layer in a model that would hand on a weight", Source::File),
    (
        "E0635",
        "a repeated layer in a model with a result that is neither handed on nor a cache",
        Source::File,
    ),
    (
        "E0636",
        "a repeated layer in a model that has no part in what the model returns",
        Source::File,
    ),
    ("W0601", "a let that is never used", Source::File),
    ("W0602", "a parameter that is never used", Source::File),
    ("W0603", "an argument of another kind than the parameter", Source::File),
    ("W0604", "a call of a repeated layer", Source::File),
    ("W0605", "a kind on a let", Source::File),
    ("W0620", "a split or merge whose parts the mesh cuts across", Source::File),
    ("E0701", "hardware that does not exist", Source::LaterPass),
    ("E0702", "a hardware file that cannot be used", Source::LaterPass),
    ("E0703", "a second hardware line", Source::File),
    ("E0704", "no plan that fits in memory", Source::LaterPass),
    ("E0705", "the hardware is not given", Source::LaterPass),
    ("E0650", "weights in host memory, and hardware that states no way there", Source::LaterPass),
    ("W0701", "a value larger than the memory of a chip", Source::LaterPass),
    ("W0702", "a dtype for which the hardware states no peak", Source::LaterPass),
    ("E0801", "an annotation that cannot be reached", Source::LaterPass),
    ("E0802", "a collective that a strict layer does not write", Source::LaterPass),
    ("E0803", "too many values", Source::File),
    ("E0804", "a program beyond the limits", Source::File),
    ("E0805", "no plan", Source::LaterPass),
    ("E0806", "a plan space larger than the search may look at", Source::LaterPass),
    ("E0807", "no plan before the time was up", Source::LaterPass),
    ("E0830", "no snapshot", Source::LaterPass),
    ("E0831", "a plan that differs from its snapshot", Source::LaterPass),
    ("E0832", "a snapshot taken with other options", Source::LaterPass),
    ("E0833", "an expectation of something that is not measured", Source::File),
    ("E0834", "an expectation in the wrong unit", Source::File),
    ("E0835", "an expectation of one value about a figure of the layer", Source::File),
    ("E0836", "an expectation of a strategy that does not exist", Source::File),
    ("E0837", "an expectation that the plan does not meet", Source::LaterPass),
    ("E0820", "a plan that no strict layer states", Source::LaterPass),
    ("E0821", "a question about a value that the layer does not have", Source::LaterPass),
    ("E0822", "a request that no plan can meet", Source::LaterPass),
    ("E0823", "a question that cannot be read", Source::LaterPass),
    ("W0801", "a replicated annotation that costs a collective", Source::LaterPass),
    ("W0802", "an axis order that costs a transfer", Source::LaterPass),
    ("W0803", "a search that stopped at a limit", Source::LaterPass),
    ("W0804", "more is wrong than is shown", Source::File),
    ("E0850", "a mesh axis of another size than its torus axes", Source::LaterPass),
    ("W0850", "a mesh that no slice of the chip can have", Source::LaterPass),
    ("W0851", "a mesh that is a face of a slice, and no slice", Source::LaterPass),
    ("E0860", "IR text that cannot be read", Source::LaterPass),
    ("E0861", "IR text that is no legal plan", Source::LaterPass),
    ("E0862", "IR text that has no room in the memory that was asked for", Source::LaterPass),
    ("E0870", "an einsum that JAX and PyTorch have no letters for", Source::LaterPass),
    ("E0871", "an op on a dtype that PyTorch does not compute with", Source::LaterPass),
    ("E0880", "a compiled program, or the one before it, that cannot be read", Source::CommandLine),
    ("E0881", "a compiled program that sends more than it may", Source::CommandLine),
    ("E0890", "a model configuration from which no layer can be made", Source::CommandLine),
    ("E0901", "an internal error", Source::LaterPass),
];
