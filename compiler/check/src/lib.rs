//! The type checker: AST to [`Program`], and every diagnostic.
//!
//! [`check_source`] parses and checks a file; [`check_parsed`] checks a tree that was parsed
//! already.
//!
//! The steps for a file, once for each of its `phases`: `environment` reads the mesh, the dims
//! (`int_expr`) and the hardware line; `calls` puts callees before callers; `layer` takes each
//! layer's parameters, statements and results, with `types` for sharded types, `expr` and
//! `operations` for expressions, `inlining` for calls, and `builder` for the program that comes of
//! them; `repeat` and `partial_pins` look at the finished program.

mod builder;
mod calls;
pub mod diagnostic;
pub mod diagnostics;
mod environment;
pub mod expectations;
mod expr;
mod factored;
mod foreign;
mod inlining;
mod int_expr;
mod kinds;
mod layer;
mod model;
pub mod names;
mod op_types;
mod operations;
mod partial_pins;
mod phases;
mod repeat;
mod sink;
mod straddles;
mod types;
mod unread;

pub use diagnostic::{Diagnostic, Edit, Help, Label, Severity};

use std::collections::BTreeMap;

use calls::Layers;
use diagnostics::limits::MAX_FILE_VALUES;
use environment::Environment;
use shard_grammar::{Parsed, SourceFile, ast};
use shard_ir::Program;
use sink::Sink;
use unread::Unread;

/// Options of the command line that change what is checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckOptions {
    /// `-D NAME=RIGHT SIDE`: the dim and the text of its new right side, such as `32 pad 64`.
    pub dim_overrides: Vec<(String, String)>,
    /// `--mesh x=8,y=8`: replaces the mesh line, if there is one.
    pub mesh_override: Option<Vec<(String, u64)>>,
    /// `--strict`: every layer is strict.
    pub strict: bool,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// One program for every layer without an error, in file order, its calls inlined; all layers
    /// of the first phase, then all of the next.
    pub programs: Vec<Program>,
    /// The indices in `programs` of the layers that no other layer calls, in file order.
    pub roots: Vec<usize>,
    /// For each layer of `programs`, its expectations of its plan.
    pub expectations: Vec<Vec<expectations::Expectation>>,
    /// Everything that is wrong or doubtful, in file order.
    pub diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Whether any diagnostic is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Parses and checks a file; the syntax errors are among the diagnostics.
///
/// A file with wrong syntax is checked as far as it can be read. Unknown names that may be declared
/// in the part that could not be read are not reported: values of the layer with the error, or any
/// name if the error is outside the bodies of layers.
///
/// ```
/// use shard_check::{CheckOptions, check_source};
/// use shard_grammar::SourceFile;
/// let file = SourceFile::new("t", "mesh x=4\ndim B = 8\nlayer id(a: f32 B_x) -> f32 B { return a }");
/// let checked = check_source(&file, &CheckOptions::default());
/// assert!(checked.diagnostics.is_empty());
/// assert_eq!(checked.programs[0].name, "id");
/// ```
pub fn check_source(file: &SourceFile, options: &CheckOptions) -> Checked {
    check_parsed(file, &shard_grammar::parse(file), options)
}

/// Checks a file that is parsed already; see [`check_source`].
pub fn check_parsed(file: &SourceFile, parsed: &Parsed, options: &CheckOptions) -> Checked {
    let mut sink = Sink::default();
    for error in &parsed.errors {
        let mut diagnostic = Diagnostic::from(error);
        let said = foreign::product_of_names(&parsed.file, error)
            .or_else(|| foreign::over_a_dim(&parsed.file, error));
        if let Some(said) = said {
            diagnostic.helps.clear();
            diagnostic = diagnostic.help(said);
        }
        sink.report(diagnostic);
    }
    parsed.warnings.iter().for_each(|warning| sink.report(warning));
    let tree = &parsed.file;
    let unread = Unread::of(tree, &parsed.errors);
    let phases = phases::read(tree, unread.elsewhere, &mut sink);
    let mut checked = Checked::default();
    let mut found = Vec::new();
    for phase in &phases {
        let mut own = Sink::default();
        check_phase(file, tree, options, *phase, &unread, &mut checked, &mut own);
        found.push((phase.map(|phase| phase.name.value.clone()).unwrap_or_default(), own));
    }
    sink.take_phases(found);
    phases::weights_keep_their_sizes(&checked, &mut sink);
    checked.diagnostics = sink.finish();
    checked
}

/// Checks the whole file with the sizes that one phase gives it.
fn check_phase(
    file: &SourceFile,
    tree: &ast::File,
    options: &CheckOptions,
    phase: Option<&ast::Phase>,
    unread: &Unread,
    checked: &mut Checked,
    sink: &mut Sink,
) {
    let models: BTreeMap<&str, ast::Layer> = tree
        .layers()
        .filter_map(|layer| Some((layer.name.value.as_str(), kinds::model_of(layer)?)))
        .collect();
    let mut env = Environment::new(file, tree, options, phase, unread.elsewhere, sink);
    let mut layers = Layers::new(tree, sink);
    let mut values_left = MAX_FILE_VALUES;
    let mut expected: Vec<Vec<_>> = layers
        .all
        .iter()
        .map(|l| expectations::of_layer(l, unread.hides_values_of(l), sink))
        .collect();
    for index in layers.order(sink) {
        let hidden = unread.hides_values_of(layers.all[index]);
        let layer = layer::LayerToCheck {
            layer: layers.all[index],
            strict: options.strict,
            lenient: hidden,
            values_left,
        };
        let program = layer::check_layer(&mut env, &layers, layer, sink);
        values_left -= program.as_ref().map_or(0, |p| p.values.len());
        layers.programs[index] = program;
    }
    for (name, model) in &models {
        let Some(index) = layers.index(name).filter(|at| layers.programs[*at].is_some()) else {
            continue;
        };
        let layer = layer::LayerToCheck {
            layer: model,
            strict: options.strict,
            lenient: unread.hides_values_of(layers.all[index]),
            values_left,
        };
        let program = layer::check_layer(&mut env, &layers, layer, sink);
        values_left = values_left.saturating_sub(program.as_ref().map_or(0, |p| p.values.len()));
        layers.programs[index] = program;
    }
    if sink.errors() == 0 && unread.is_empty() {
        env.report_unused(tree, sink);
    }
    let roots: Vec<bool> = (0..layers.all.len()).map(|i| layers.is_root(i)).collect();
    let of_phase = checked.programs.len();
    for (at, (program, is_root)) in layers.programs.into_iter().zip(roots).enumerate() {
        let Some(program) = program else { continue };
        checked.expectations.push(std::mem::take(&mut expected[at]));
        if is_root {
            checked.roots.push(checked.programs.len());
        }
        checked.programs.push(program);
    }
    shard_ir::cuts::cut_dims(&mut checked.programs[of_phase..]);
}
