//! What the tests of the checker share.

use shard_check::{CheckOptions, Checked, check_source};
use shard_grammar::SourceFile;
use shard_ir::{Def, MeshShape, Program, Value};

pub(crate) fn check(text: &str) -> Checked {
    check_with(text, &CheckOptions::default())
}

pub(crate) fn check_with(text: &str, options: &CheckOptions) -> Checked {
    check_source(&SourceFile::new("t.shard", text), options)
}

/// The one program of a file without errors.
pub(crate) fn program(text: &str) -> Program {
    let mut checked = check(text);
    assert!(!checked.has_errors(), "{:#?}", checked.diagnostics);
    checked.programs.pop().expect("a program")
}

pub(crate) fn codes(text: &str) -> Vec<&'static str> {
    check(text).diagnostics.iter().map(|d| d.code).collect()
}

pub(crate) fn messages(checked: &Checked) -> Vec<&str> {
    checked.diagnostics.iter().map(|d| d.message.as_str()).collect()
}

pub(crate) fn value<'p>(program: &'p Program, name: &str) -> &'p Value {
    program.values.iter().rfind(|v| v.name.as_deref() == Some(name)).expect("a value of that name")
}

pub(crate) fn dims_of(program: &Program, name: &str) -> String {
    program.dim_names(&value(program, name).dims).concat()
}

/// The exact layout that a parameter or pin demands, as text.
pub(crate) fn demand(program: &Program, value: &Value) -> String {
    let (Def::Parameter { pattern, .. } | Def::Pin { pattern, .. }) = &value.def else {
        return "free".to_string();
    };
    let sizes = program.sizes(&value.dims);
    match pattern.exact(MeshShape { mesh: &program.mesh, sizes: &sizes }) {
        Some(layout) => layout.text(&program.mesh, &program.dim_names(&value.dims)),
        None => "open".to_string(),
    }
}

/// The pins of a program, as name and demand.
pub(crate) fn pins(program: &Program) -> Vec<(String, String)> {
    let pins = program.values.iter().filter(|v| matches!(v.def, Def::Pin { .. }));
    pins.map(|v| (v.name.clone().unwrap_or_default(), demand(program, v))).collect()
}
