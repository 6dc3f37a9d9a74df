//! Configurations of models from which programs are made.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// What can be wrong with the `config.json` of a model. Places are in its text.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigProblem {
    /// It is not JSON, or not an object.
    NotJson {
        /// What the reader says, one clause.
        message: String,
        /// Where.
        span: Span,
    },
    /// A `model_type` whose layers are not known.
    Unknown {
        /// The type.
        model_type: String,
        /// Where its key stands.
        span: Span,
        /// What its layers need that cannot be written.
        needs: Option<&'static str>,
        /// The types that are known.
        known: Vec<String>,
    },
    /// A key that is needed is not there.
    Missing {
        /// Its names, the usual one first.
        keys: Vec<String>,
        /// The start of the object.
        end: Span,
    },
    /// A key with a value of the wrong kind.
    Value {
        /// The key.
        key: String,
        /// What it should be.
        wanted: String,
        /// Where it stands.
        span: Span,
    },
    /// Two sizes that do not divide.
    Indivisible {
        /// The larger.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The key of the smaller.
        by: &'static str,
        /// Its size.
        parts: u64,
        /// Where the smaller stands.
        span: Span,
    },
}

impl From<ConfigProblem> for Diagnostic {
    fn from(problem: ConfigProblem) -> Diagnostic {
        let error = |message: String| Diagnostic::error("E0890", message);
        match problem {
            ConfigProblem::NotJson { message, span } => {
                error(format!("the configuration is not a JSON object: {message}"))
                    .at(span, "here")
                    .help("the `config.json` that lies beside the weights of a model")
            }
            ConfigProblem::Unknown { model_type, span, needs, known } => {
                let message = match needs {
                    Some(needs) => format!(
                        "the layers of a `{model_type}` model need {needs}, which `new` does not write"
                    ),
                    None => format!("nothing is known of the layers of a `{model_type}` model"),
                };
                error(message)
                    .at(span, "this type")
                    .note(format!("known are {}", known.join(", ")))
                    .help("--template llama-block    (and then the sizes, by hand)")
            }
            ConfigProblem::Missing { keys, end } => {
                let key = keys.first().map_or("", String::as_str);
                error(format!("the configuration has no `{}`", keys.join("` and no `")))
                    .at(end, "in this object")
                    .help(format!("\"{key}\": ..."))
            }
            ConfigProblem::Value { key, wanted, span } => {
                error(format!("`{key}` is not {wanted}")).at(span, "this key").help(wanted)
            }
            ConfigProblem::Indivisible { what, size, by, parts, span } => {
                error(format!("`{by}` = {parts} does not divide {what}, {size}"))
                    .at(span, "each head has the same share")
                    .help(format!("a divisor of {size}"))
            }
        }
    }
}
