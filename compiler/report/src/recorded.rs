//! Plans as `explain --emit json` wrote them, by this binary or another one: what a comparison
//! needs of them.
//!
//! Fields that are not known here are passed over, so that a later `shardc.explain/N` reads as well
//! as an earlier one.

use serde::Deserialize;
use serde_json::Value;

use crate::printable::escaped_name;

/// What the `schema` of such a document begins with.
const SCHEMA: &str = "shardc.explain/";

/// A document.
#[derive(Clone, Debug, Deserialize)]
struct Document {
    schema: String,
    layers: Vec<Recorded>,
}

/// A layer with its plan.
#[derive(Clone, Debug, Deserialize)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Its phase, in a file that has some.
    pub phase: Option<String>,
    pub(crate) hardware: String,
    pub(crate) mesh_axes: Vec<(String, u64)>,
    #[serde(default)]
    pub(crate) dims: Vec<Dim>,
    #[serde(default)]
    pub(crate) outputs: Vec<Output>,
    pub(crate) objective: Option<String>,
    pub(crate) strategy: Vec<String>,
    pub(crate) instructions: Vec<RecordedStep>,
    pub(crate) totals: Totals,
    model_totals: Option<ModelTotals>,
    pub(crate) optimality: Option<Optimality>,
}

/// A dim, and the size that useful work is counted with.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dim {
    pub(crate) name: String,
    pub(crate) size: u64,
    useful: Option<u64>,
}

impl Dim {
    /// As a command line gives it: its size, or the size that is useful and what it is padded to.
    pub(crate) fn sized(&self) -> String {
        let Dim { name, size, useful } = self;
        match useful {
            Some(useful) if useful != size => format!("{name}={useful} pad {size}"),
            Some(_) | None => format!("{name}={size}"),
        }
    }
}

/// A result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Output {
    pub(crate) name: String,
}

/// Sums over a layer; times in seconds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Totals {
    pub(crate) serial_time_s: f64,
    pub(crate) comm_time_s: f64,
    pub(crate) comm_bytes: u64,
    peak_hbm_bytes: u64,
}

/// Sums over the stack.
#[derive(Clone, Debug, Deserialize)]
struct ModelTotals {
    peak_hbm_bytes: Option<u64>,
}

/// How far the plan is from the best.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Optimality {
    pub(crate) status: String,
    pub(crate) stopped_by: Option<String>,
    pub(crate) cost_s: f64,
    pub(crate) lower_bound_s: f64,
}

/// An instruction of a recorded plan. Which of the fields there are depends on the op.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedStep {
    pub(crate) id: u32,
    pub(crate) op: String,
    pub(crate) name: Option<String>,
    /// What it does; absent in documents of earlier versions.
    pub(crate) phrase: Option<String>,
    pub(crate) operands: Vec<u32>,
    pub(crate) layout: String,
    pub(crate) dtype: String,
    /// Elements of each dim on one device.
    #[serde(default)]
    pub(crate) local_shape: Vec<u64>,
    #[serde(default, rename = "in")]
    pub(crate) within: Vec<String>,
    pub(crate) piece_of: Option<String>,
    /// How often it is run in a step of the layer.
    repeat: Option<u64>,
    #[serde(default)]
    time_s: f64,
    #[serde(default)]
    bytes: u64,
    wire_bytes: Option<u64>,
    /// Why a collective is there.
    pub(crate) reason: Option<String>,
    /// What bounds an op: compute or memory.
    pub(crate) bound: Option<String>,
    span: Option<SourceLine>,
    equation: Option<String>,
    function: Option<String>,
    #[serde(default)]
    over: Vec<String>,
    #[serde(default)]
    from: Vec<String>,
    #[serde(default)]
    to: Vec<String>,
    at: Option<String>,
    #[serde(default)]
    axes: Vec<String>,
    dim: Option<String>,
    from_dim: Option<String>,
    to_dim: Option<String>,
    reduction: Option<String>,
    pub(crate) fused: Option<String>,
}

/// The part of a place in the source that comparisons show.
#[derive(Clone, Debug, Deserialize)]
struct SourceLine {
    line: usize,
}

/// The layers of a document, or why it is none.
pub fn read(text: &str) -> Result<Vec<Recorded>, String> {
    layers(serde_json::from_str(text))
}

/// The same for a terminal: hidden characters of names and other strings are escaped.
pub fn read_escaped(text: &str) -> Result<Vec<Recorded>, String> {
    let read = serde_json::from_str(text).and_then(|mut document: Value| {
        escape(&mut document);
        serde_json::from_value(document)
    });
    layers(read)
}

/// Escapes the hidden characters of all strings of a document. Its keys are not shown.
fn escape(document: &mut Value) {
    match document {
        Value::String(text) => *text = escaped_name(text).into_owned(),
        Value::Array(all) => all.iter_mut().for_each(escape),
        Value::Object(fields) => fields.values_mut().for_each(escape),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn layers(read: serde_json::Result<Document>) -> Result<Vec<Recorded>, String> {
    let document = read.map_err(|error| format!("it is no JSON of `explain`: {error}"))?;
    if !document.schema.starts_with(SCHEMA) {
        return Err(format!(
            "its schema is `{}`, and plans are compared of `{SCHEMA}1`",
            document.schema
        ));
    }
    match document.layers.iter().find(|layer| !layer.is_sound()) {
        None => Ok(document.layers),
        Some(layer) => Err(format!(
            "the instructions of its layer `{}` are not numbered as they stand",
            layer.name
        )),
    }
}

impl Recorded {
    /// Whether each instruction has its place as its number, and operands come before their uses.
    fn is_sound(&self) -> bool {
        let mut steps = self.instructions.iter().enumerate();
        steps.all(|(at, step)| {
            step.id as usize == at && step.operands.iter().all(|operand| (*operand as usize) < at)
        })
    }

    /// What a device holds at the peak: over the whole stack, where the document says that.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let of_stack = self.model_totals.as_ref().and_then(|totals| totals.peak_hbm_bytes);
        of_stack.unwrap_or(self.totals.peak_hbm_bytes)
    }

    /// Whether each step says what it does: documents of earlier versions do not.
    pub(crate) fn has_phrases(&self) -> bool {
        self.instructions.iter().all(|step| step.phrase.is_some())
    }

    /// The first operand of a step, where it has any.
    pub(crate) fn source(&self, step: &RecordedStep) -> Option<&RecordedStep> {
        self.instructions.get(*step.operands.first()? as usize)
    }

    /// How it is spoken of: by its name, and its phase where it has one.
    pub fn title(&self) -> String {
        match &self.phase {
            Some(phase) => format!("{}, phase {phase}", self.name),
            None => self.name.clone(),
        }
    }
}

impl RecordedStep {
    /// Picoseconds of a step of the layer.
    pub(crate) fn time(&self) -> u64 {
        picoseconds(self.time_s).saturating_mul(self.repeat.unwrap_or(1))
    }

    /// Bytes that it moves in a step of the layer.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.repeat.unwrap_or(1))
    }

    /// Whether it is a move, with traffic or without.
    pub(crate) fn is_move(&self) -> bool {
        self.wire_bytes.is_some() && self.fused.is_none()
    }

    pub(crate) fn line(&self) -> Option<usize> {
        self.span.as_ref().map(|place| place.line)
    }

    /// What it does: `all-gather yz along E`, `einsum BLE,EF->BLF`.
    pub(crate) fn phrase(&self) -> String {
        match (&self.phrase, &self.fused) {
            (Some(phrase), _) => phrase.clone(),
            (None, Some(fused)) => format!("{} with {fused}", self.phrase_of_fields()),
            (None, None) => self.phrase_of_fields(),
        }
    }

    /// The same, made of the other fields; of an einsum with a collective in its loop, the einsum
    /// alone.
    pub(crate) fn phrase_of_fields(&self) -> String {
        let mut out = match &self.fused {
            Some(_) => "einsum".to_string(),
            None => self.function.clone().unwrap_or_else(|| self.op.clone()),
        };
        let mut say = |words: String| out += &format!(" {words}");
        if self.reduction.as_deref() == Some("max") {
            say("of the maximum".to_string());
        }
        self.equation.iter().for_each(|equation| say(equation.clone()));
        if self.fused.is_some() {
            return out;
        }
        if !self.axes.is_empty() {
            let is_short = self.axes.iter().all(|axis| axis.chars().count() == 1);
            say(self.axes.join(if is_short { "" } else { "," }));
        }
        self.dim.iter().for_each(|dim| say(format!("along {dim}")));
        if let (Some(from), Some(to)) = (&self.from_dim, &self.to_dim) {
            say(format!("from {from} to {to}"));
        }
        if !self.over.is_empty() {
            say(format!("over {}", self.over.join(" ")));
        }
        if !(self.from.is_empty() && self.to.is_empty()) {
            say(format!("{} -> {}", self.from.join(" "), self.to.join(" ")).trim().to_string());
        }
        self.at.iter().for_each(|at| say(format!("at {at}")));
        if self.op == "cast" {
            say(format!("to {}", self.dtype));
        }
        out
    }
}

/// Seconds of a document, which are rounded to whole picoseconds there.
pub(crate) fn picoseconds(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(instructions: &str) -> String {
        format!(
            "{{\"schema\": \"shardc.explain/1\", \"layers\": [{{\"name\": \"f\", \"hardware\": \"h\", \"mesh_axes\": [[\"x\", 4]],
            \"strategy\": [\"unnamed\"], \"totals\": {{\"serial_time_s\": 1e-6, \"comm_time_s\": 0, \"comm_bytes\": 0,
            \"peak_hbm_bytes\": 7}}, \"instructions\": [{instructions}]}}]}}"
        )
    }

    const X: &str = r#"{"id": 0, "op": "parameter", "name": "x", "operands": [], "layout": "B_x", "dtype": "f32"}"#;

    #[test]
    fn a_document_of_another_binary_is_read_whatever_else_it_says() {
        let later = X.replace("\"id\"", "\"colour\": \"red\", \"id\"");
        let text = layer(&later).replace("explain/1", "explain/7");
        let layers = read(&text).expect("a document");
        assert_eq!((layers[0].title().as_str(), layers[0].peak_bytes()), ("f", 7));
    }

    #[test]
    fn what_is_no_plan_is_refused_and_never_looked_into() {
        for text in [
            "{".to_string(),
            "[]".to_string(),
            layer(X).replace("shardc.explain/1", "shardc.cost/1"),
            layer(&X.replace("\"id\": 0", "\"id\": 1")),
            layer(&X.replace("[]", "[0]")),
        ] {
            assert!(read(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_whole_picoseconds_again() {
        for time in [1u64, 219_078_400, 9_999_999_999_999] {
            assert_eq!(picoseconds(time as f64 / 1e12), time);
        }
    }
}
