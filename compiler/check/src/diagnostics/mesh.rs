//! Mesh lines.

use shard_grammar::Span;
use shard_ir::mesh::{MAX_AXES, MAX_DEVICES, MAX_NAMED_AXES};

use crate::diagnostic::Diagnostic;

/// What can be wrong with a mesh. Spans are `None` where `--mesh` gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum MeshProblem {
    /// An axis of size 0.
    ZeroAxis {
        /// The axis.
        axis: String,
        /// Its size in the file.
        span: Option<Span>,
    },
    /// An axis named twice.
    DuplicateAxis {
        /// The axis.
        axis: String,
        /// The second mention.
        span: Option<Span>,
        /// The first one.
        first: Option<Span>,
        /// A name that no axis has.
        free: String,
    },
    /// A second `mesh` line.
    SecondLine {
        /// The second line.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// Too many axes.
    TooManyAxes {
        /// How many there are.
        found: usize,
        /// The line.
        span: Option<Span>,
    },
    /// Too many devices.
    TooManyDevices {
        /// The line.
        span: Option<Span>,
    },
}

const COMMAND_LINE: &str = "the mesh is the command line's (`--mesh`)";

impl From<MeshProblem> for Diagnostic {
    fn from(problem: MeshProblem) -> Diagnostic {
        use MeshProblem::*;
        let given = |out: Diagnostic, span: Option<Span>| {
            if span.is_none() { out.note(COMMAND_LINE) } else { out }
        };
        match problem {
            ZeroAxis { axis, span } => {
                let out = Diagnostic::error("E0206", format!("mesh axis `{axis}` has size 0"))
                    .at_if(span, "a mesh has at least one device");
                match span {
                    Some(span) => out.mend(format!("{axis}=1"), span, "1"),
                    None => given(out.help(format!("{axis}=1")), None),
                }
            }
            DuplicateAxis { axis, span, first, free } => given(
                Diagnostic::error("E0207", format!("mesh axis `{axis}` is named twice"))
                    .at_if(span, "the second time")
                    .also_if(first, "the first time")
                    .mend_if(free.clone(), span, free),
                span,
            ),
            SecondLine { span, first } => {
                Diagnostic::error("E0208", "the file has a second `mesh` line")
                    .at(span, "the second")
                    .also(first, "the first")
                    .mend("remove one of them: all layers share one mesh", span, "")
            }
            TooManyAxes { found, span } => given(
                Diagnostic::error(
                    "E0209",
                    format!("the mesh has {found} axes, more than the compiler takes"),
                )
                .at_if(span, "this mesh")
                .note(format!(
                    "the limits are {MAX_AXES} axes of size greater than 1, and \
                        {MAX_NAMED_AXES} in all"
                ))
                .help("merge axes that always stand together into one"),
                span,
            ),
            TooManyDevices { span } => given(
                Diagnostic::error("E0209", format!("the mesh has more than {MAX_DEVICES} devices"))
                    .at_if(span, "the product of these sizes")
                    .help("fewer or smaller axes"),
                span,
            ),
        }
    }
}
