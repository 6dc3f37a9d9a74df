//! Values, layers, calls, returns and repetition.

use shard_grammar::Span;
use shard_ir::never;
use shard_ir::op::Code;

use super::Quote;
use super::words::{count, name_list};
use crate::diagnostic::Diagnostic;

/// What can be wrong with values, layers and calls.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerProblem {
    /// A value that is not in scope.
    UnknownValue {
        /// The name.
        name: String,
        /// Its place.
        span: Span,
        /// The nearest value in scope.
        near: Option<String>,
        /// Where a value of that name is made further down.
        later: Option<Span>,
        /// Whether a layer has that name.
        is_layer: bool,
    },
    /// A value named twice in a layer.
    DuplicateValue {
        /// The name.
        name: String,
        /// The second place.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// A call of a layer that the file does not have.
    UnknownLayer {
        /// The name.
        name: String,
        /// Its place.
        span: Span,
        /// The nearest layer or operation.
        near: Option<String>,
        /// How the call is written in this language, if it is an operation of this or another
        /// language.
        here: Option<String>,
        /// The layers that there are.
        known: Vec<String>,
    },
    /// A layer named twice.
    DuplicateLayer {
        /// The name.
        name: String,
        /// The second place.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// A call with another number of arguments.
    ArgumentCount {
        /// The callee.
        callee: String,
        /// The parameters: `x: bf16 BLE`.
        parameters: Vec<String>,
        /// How many arguments there are.
        found: usize,
        /// The call.
        span: Span,
        /// The parameter list.
        declared: Span,
    },
    /// Layers that call each other in a ring.
    Recursion {
        /// The ring, the first layer at both ends.
        ring: Vec<String>,
        /// The call that closes it.
        span: Span,
        /// The layer that it calls.
        declared: Span,
    },
    /// An expression that gives another number of values than are wanted.
    ResultCount {
        /// What gives them: ``a call of `f` ``, `` `return` ``.
        what: String,
        /// How many it gives.
        given: usize,
        /// How many are wanted.
        wanted: usize,
        /// Where.
        span: Span,
        /// Where the number is declared.
        declared: Option<Span>,
        /// Text that can be typed.
        help: Option<String>,
    },
    /// A layer without `return`.
    NoReturn {
        /// The layer.
        layer: String,
        /// Its result type.
        results: Span,
        /// The closing brace.
        end: Span,
        /// The value made last.
        last: Option<String>,
    },
    /// A statement behind the `return`.
    AfterReturn {
        /// The statement.
        span: Span,
        /// The return.
        first: Span,
    },
    /// `repeat 0`.
    RepeatZero {
        /// The number.
        span: Span,
    },
    /// A repeated layer whose first parameter and result do not carry the same layout.
    RepeatCarry {
        /// The layer.
        layer: String,
        /// `repeat N`.
        span: Span,
        /// The parameter's type.
        parameter: Option<Quote>,
        /// The result's type.
        result: Quote,
        /// What differs.
        why: String,
        /// Text that can be typed.
        help: Option<String>,
    },
    /// A cache result that is not laid out as the cache parameter that it was made from.
    CacheTie {
        /// The result.
        result: String,
        /// Its type.
        result_type: Quote,
        /// The parameter.
        parameter: String,
        /// Its type.
        parameter_type: Quote,
    },
    /// A `let` that nothing uses.
    UnusedLet {
        /// The name.
        name: String,
        /// Its place.
        span: Span,
    },
    /// A parameter that nothing uses.
    UnusedParameter {
        /// The name.
        name: String,
        /// Its place.
        span: Span,
    },
    /// An argument of another kind than the parameter.
    ArgumentKind {
        /// The argument's text.
        argument: String,
        /// Its kind: `an activation`.
        found: &'static str,
        /// Its place.
        span: Span,
        /// The callee.
        callee: String,
        /// The parameter.
        parameter: String,
        /// The parameter's kind.
        wanted: &'static str,
        /// Where the kind is stated.
        declared: Span,
    },
    /// A call of a repeated layer, which inlines it once.
    RepeatedCallee {
        /// The callee.
        callee: String,
        /// How often it is stated to repeat.
        times: u64,
        /// The call.
        span: Span,
        /// Where that is stated.
        declared: Span,
    },
    /// A kind on a `let` annotation.
    KindOnLet {
        /// The word.
        word: &'static str,
        /// Its place.
        span: Span,
    },
}

impl From<LayerProblem> for Diagnostic {
    fn from(problem: LayerProblem) -> Diagnostic {
        use LayerProblem::*;
        match problem {
            UnknownValue { name, span, near, later, is_layer } => {
                unknown_value(&name, span, near, later, is_layer)
            }
            DuplicateValue { name, span, first } => {
                Diagnostic::error("E0602", format!("`{name}` is named twice in one layer"))
                    .at(span, "again")
                    .also(first, "first")
                    .mend(format!("{name}2"), span, format!("{name}2"))
            }
            UnknownLayer { name, span, near, here, known } => {
                unknown_layer(&name, span, near, here, &known)
            }
            DuplicateLayer { name, span, first } => {
                Diagnostic::error("E0604", format!("layer `{name}` is declared twice"))
                    .at(span, "again")
                    .also(first, "first")
                    .mend(format!("{name}2"), span, format!("{name}2"))
            }
            ArgumentCount { callee, parameters, found, span, declared } => {
                argument_count(&callee, &parameters, found, span, declared)
            }
            Recursion { ring, span, declared } => recursion(&ring, span, declared),
            ResultCount { what, given, wanted, span, declared, help } => Diagnostic::error(
                "E0607",
                format!(
                    "{what} gives {}, and {wanted} {} wanted",
                    count(given, "value"),
                    is_are(wanted)
                ),
            )
            .at(span, format!("gives {given}"))
            .also_if(declared, "declared here")
            .help_if(help),
            NoReturn { layer, results, end, last } => no_return(&layer, results, end, last),
            AfterReturn { span, first } => {
                Diagnostic::error("E0609", "a statement stands behind the `return`")
                    .at(span, "never reached")
                    .also(first, "the layer ends here")
                    .mend("remove it, or move it up", span, "")
            }
            RepeatZero { span } => Diagnostic::error("E0610", "a layer repeats at least once")
                .at(span, "zero times")
                .mend("repeat 1", span, "1"),
            RepeatCarry { layer, span, parameter, result, why, help } => {
                repeat_carry(&layer, &why, parameter, span, result).help_if(help)
            }
            CacheTie { result, result_type, parameter, parameter_type } => {
                cache_tie(&result, result_type, &parameter, parameter_type)
            }
            UnusedLet { name, span } => {
                Diagnostic::warning("W0601", format!("`{name}` is never used"))
                    .at(span, "not used")
                    .mend(format!("_{name}    (says that this is meant)"), span, format!("_{name}"))
            }
            UnusedParameter { name, span } => {
                Diagnostic::warning("W0602", format!("parameter `{name}` is never used"))
                    .at(span, "not used")
                    .mend(format!("_{name}    (says that this is meant)"), span, format!("_{name}"))
            }
            ArgumentKind { argument, found, span, callee, parameter, wanted, declared } => {
                argument_kind(&argument, found, span, &callee, &parameter, wanted, declared)
            }
            RepeatedCallee { callee, times, span, declared } => {
                repeated_callee(&callee, times, span, declared)
            }
            KindOnLet { word, span } => Diagnostic::warning(
                "W0605",
                format!("`{word}` says nothing about a `let`: it is a kind of parameter"),
            )
            .at(span, "without effect")
            .mend("remove the word", span, ""),
        }
    }
}

fn cache_tie(
    result: &str,
    result_type: Quote,
    parameter: &str,
    parameter_type: Quote,
) -> Diagnostic {
    Diagnostic::error(
        "E0612",
        format!("cache `{result}` is made from `{parameter}`, and is laid out otherwise"),
    )
    .at(result_type.span, result_type.text)
    .also(parameter_type.span, parameter_type.text.clone())
    .note("the next step takes the cache where this one leaves it")
    .mend(parameter_type.text.clone(), result_type.span, parameter_type.text)
}

fn argument_kind(
    argument: &str,
    found: &'static str,
    span: Span,
    callee: &str,
    parameter: &str,
    wanted: &'static str,
    declared: Span,
) -> Diagnostic {
    Diagnostic::warning(
        "W0603",
        format!("`{argument}` is {found}, and `{callee}` takes {wanted} for `{parameter}`"),
    )
    .at(span, format!("{found}; the caller's kind counts"))
    .also(declared, wanted)
    .help(format!(
        "make `{argument}` a parameter of that kind, or take the kind away from `{parameter}`"
    ))
}

fn repeated_callee(callee: &str, times: u64, span: Span, declared: Span) -> Diagnostic {
    Diagnostic::warning(
        "W0604",
        format!("`{callee}` is stated to repeat {times} times, and this call inlines it once"),
    )
    .at(span, "once")
    .also(declared, format!("{times} times"))
    .help(format!("the totals of all {times} are those of `{callee}` itself: --layer {callee}"))
}

fn unknown_value(
    name: &str,
    span: Span,
    near: Option<String>,
    later: Option<Span>,
    is_layer: bool,
) -> Diagnostic {
    let out = Diagnostic::error("E0601", format!("there is no value `{name}` here"))
        .at(span, "unknown value")
        .also_if(later, "made only here");
    match (near, later) {
        (_, Some(_)) => out.help(format!("move the `let` of `{name}` up")),
        (Some(near), None) => out.mend(near.clone(), span, near),
        (None, None) if is_layer => out.help(format!("{name}(...)    (`{name}` is a layer)")),
        (None, None) => {
            out.help(format!("let {name} = ...    (above, or a parameter of the layer)"))
        }
    }
}

fn unknown_layer(
    name: &str,
    span: Span,
    near: Option<String>,
    here: Option<String>,
    known: &[String],
) -> Diagnostic {
    let called = |message: String| Diagnostic::error("E0603", message).at(span, "called here");
    if Code::of_source(name).is_some() {
        let out = called(format!("the operation `{name}` is not called like a layer"));
        return out.help(
            here.unwrap_or_else(|| never!("an operation that is not written", String::new())),
        );
    }
    let out = called(format!("there is no layer or operation `{name}`"))
        .note(format!("layers of the file: {}", name_list(known)));
    match (here, near) {
        (Some(here), _) => out.help(here),
        (None, Some(near)) => out.mend(near.clone(), span, near),
        (None, None) => out
            .note(format!("operations: {}", *shard_grammar::OPERATIONS))
            .help(format!("layer {name}(...) -> ... {{ ... }}")),
    }
}

fn no_return(layer: &str, results: Span, end: Span, last: Option<String>) -> Diagnostic {
    let out = Diagnostic::error("E0608", format!("layer `{layer}` has no `return`"))
        .at(end, "ends here")
        .also(results, "it states what it returns");
    match last {
        Some(last) => {
            out.mend(format!("return {last}"), Span::at(end.start), format!("  return {last}\n"))
        }
        None => out.help("return ..."),
    }
}

fn recursion(ring: &[String], span: Span, declared: Span) -> Diagnostic {
    let path: Vec<String> = ring.iter().map(|name| format!("`{name}`")).collect();
    Diagnostic::error("E0606", format!("a layer calls itself: {}", path.join(" calls ")))
        .at(span, "this call closes the ring")
        .also(declared, "declared here")
        .note("calls are inlined, so a ring would never end")
        .help("to stack a layer, write `repeat N` behind its result type")
}

fn repeat_carry(
    layer: &str,
    why: &str,
    parameter: Option<Quote>,
    span: Span,
    result: Quote,
) -> Diagnostic {
    let out = Diagnostic::error("E0611", format!("`{layer}` cannot be stacked: {why}"))
        .at(span, "each copy takes the result of the one before")
        .also(result.span, format!("the result: {}", result.text));
    match parameter {
        Some(Quote { span, text }) => out.also(span, format!("the first parameter: {text}")),
        None => out,
    }
}

fn argument_count(
    callee: &str,
    parameters: &[String],
    found: usize,
    span: Span,
    declared: Span,
) -> Diagnostic {
    Diagnostic::error(
        "E0605",
        format!(
            "`{callee}` takes {}, and {found} {} given",
            count(parameters.len(), "argument"),
            is_are(found)
        ),
    )
    .at(span, format!("{found} given"))
    .also(declared, format!("takes {}", parameters.len()))
    .help(format!("{callee}({})", parameters.join(", ")))
}

fn is_are(n: usize) -> &'static str {
    if n == 1 { "is" } else { "are" }
}
