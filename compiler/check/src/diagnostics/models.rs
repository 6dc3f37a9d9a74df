//! Models: layers of layers.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// What can be wrong with a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelProblem {
    /// An argument with a name, in a layer that is no model.
    NamedOutside {
        /// The argument.
        span: Span,
        /// The layer in which it stands.
        layer: String,
    },
    /// A model that is called.
    Called {
        /// The model.
        name: String,
        /// The call.
        span: Span,
        /// Its word `model`.
        declared: Span,
    },
    /// A model that is stated to repeat.
    Repeated {
        /// `repeat N`.
        span: Span,
        /// The word `model`.
        model: Span,
    },
    /// A call in a model with arguments that the layer does not take.
    Arguments {
        /// The layer.
        callee: String,
        /// The activations that it takes: `x: bf16 BLE`.
        parameters: Vec<String>,
        /// Its weights and caches.
        own: Vec<String>,
        /// How many arguments without a name there are.
        given: usize,
        /// The name of an argument that is no weight or cache of the layer, or is given twice.
        unknown: Option<(String, Span)>,
        /// The call.
        span: Span,
        /// The parameters of the layer.
        declared: Span,
    },
    /// A repeated layer whose first parameter is a weight or a cache.
    HandsOnWeight {
        /// The layer.
        layer: String,
        /// The parameter.
        parameter: String,
        /// The call.
        span: Span,
        /// The parameter's place.
        declared: Span,
    },
    /// A repeated layer whose input or result has no part in what the model returns.
    Idle {
        /// The layer.
        layer: String,
        /// Whether the result of the call is what is not needed; else it is the input.
        result: bool,
        /// The call.
        span: Span,
    },
    /// A repeated layer with a result that is neither handed on nor a cache.
    OtherResult {
        /// The layer.
        layer: String,
        /// The result.
        result: String,
        /// How often the layer is repeated.
        repeat: u64,
        /// The cache from which the result is made, if the model passes that cache.
        given: Option<String>,
        /// The call.
        span: Span,
        /// Where the result is declared.
        declared: Span,
    },
}

impl From<ModelProblem> for Diagnostic {
    fn from(problem: ModelProblem) -> Diagnostic {
        use ModelProblem::*;
        match problem {
            NamedOutside { span, layer } => Diagnostic::error(
                "E0630",
                format!("an argument with a name, and `{layer}` is no model"),
            )
            .at(span, "named")
            .note(
                "in a model a name says which weight of the called layer is shared; a layer \
                passes all in order",
            )
            .help(format!(
                "model {layer}(...) -> ..., or the arguments in the order of the parameters"
            )),
            Called { name, span, declared } => Diagnostic::error(
                "E0631",
                format!("`{name}` is a model, and models are not called"),
            )
            .at(span, "called here")
            .also(declared, "a model")
            .help("write `layer` in place of `model`, and pass its weights"),
            Repeated { span, model } => Diagnostic::error("E0632", "a model is not repeated")
                .at(span, "repeated")
                .also(model, "a model")
                .note("it is the layers that it calls which are stacked")
                .mend("remove it", span, ""),
            Arguments { callee, parameters, own, given, unknown, span, declared } => {
                arguments(&callee, &parameters, &own, given, unknown, span, declared)
            }
            HandsOnWeight { layer, parameter, span, declared } => Diagnostic::error(
                "E0634",
                format!(
                    "`{layer}` is repeated, and its first parameter `{parameter}` is no activation"
                ),
            )
            .at(span, "each application takes what the one before gives")
            .also(declared, "the first parameter")
            .help("put the activation that is handed on first"),
            Idle { layer, result: true, span } => Diagnostic::error(
                "E0636",
                format!("nothing that the model returns is made of what `{layer}` hands on"),
            )
            .at(span, "its result is not needed")
            .help("remove the call, or return what comes of it"),
            Idle { layer, result: false, span } => Diagnostic::error(
                "E0636",
                format!("`{layer}` is repeated, and what it hands on has no part in its result"),
            )
            .at(span, "each application would compute the same as the one before")
            .help(format!("make the result of `{layer}` of its first parameter")),
            OtherResult { layer, result, given: Some(cache), span, declared, .. } => {
                Diagnostic::error(
                    "E0635",
                    format!(
                        "`{layer}` is repeated, and its result `{result}` is of a cache that is \
                    not its own"
                    ),
                )
                .at(span, format!("`{cache}` is passed here, one for all applications"))
                .also(declared, "this result")
                .help(format!(
                    "leave `{cache}` out of the call: each application then keeps one of its own"
                ))
            }
            OtherResult { layer, result, repeat, given: None, span, declared } => {
                Diagnostic::error(
                    "E0635",
                    format!(
                        "`{layer}` is repeated, and its result `{result}` is neither handed on \
                    nor a cache"
                    ),
                )
                .at(span, format!("there would be {repeat} of it"))
                .also(declared, "this result")
                .help(format!("return from `{layer}` what is handed on and its caches alone"))
            }
        }
    }
}

/// The error about arguments that a layer does not take from a model.
fn arguments(
    callee: &str,
    parameters: &[String],
    own: &[String],
    given: usize,
    unknown: Option<(String, Span)>,
    span: Span,
    declared: Span,
) -> Diagnostic {
    let count = parameters.len();
    let takes = if count == 1 { "1 argument".to_string() } else { format!("{count} arguments") };
    let (title, at) = match unknown {
        Some((name, at)) if own.contains(&name) => (format!("`{name}` is given twice"), at),
        Some((name, at)) => (format!("`{callee}` has no weight or cache `{name}`"), at),
        None => {
            let are = if given == 1 { "is" } else { "are" };
            (format!("`{callee}` takes {takes} in a model, and {given} {are} given"), span)
        }
    };
    let out = Diagnostic::error("E0633", title).at(at, "here").also(declared, "its parameters");
    let out = match own {
        [] => out,
        own => out.note(format!(
            "in a model the weights and caches of a layer are its own: {}; one that \
                is shared is passed by name",
            own.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        )),
    };
    out.help(format!("{callee}({})", parameters.join(", ")))
}
