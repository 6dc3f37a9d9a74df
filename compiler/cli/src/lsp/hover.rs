//! Hovers: what is known of a name: type, local shape, bytes, the layout in words.

use shard_cost::Bytes;
use shard_grammar::{Span, print_type};
use shard_ir::catalogue::Code;
use shard_ir::{Def, Layout, Mesh, MeshShape, Plan, Program, Reduction};
use shard_report::scale;

use super::background::Lowered;
use super::document::Document;
use super::hints::made_as;
use super::symbols::{Kind, Occurrence};

/// Markdown about a name.
pub(crate) fn hover(
    document: &Document,
    lowered: Option<&Lowered>,
    name: &Occurrence,
) -> Option<String> {
    match name.kind {
        Kind::Axis => axis(document, &name.name),
        Kind::Dim => dim(document, &name.name),
        Kind::Phase => Some(format!("phase `{}`", name.name)),
        Kind::Label(_) => Some(format!(
            "layout label `{}`: every type that bears it has the same layout",
            name.name
        )),
        Kind::Layer => {
            let layer = document.tree.layers().find(|l| l.name.value == name.name)?;
            Some(with_docs(code(document.file.slice(layer.header_span).trim_end()), &layer.docs))
        }
        Kind::Value(layer) => {
            let layer = document.tree.layers().nth(layer)?;
            let plan = lowered
                .and_then(|l| l.plans.iter().find(|(plan, _)| plan.name == layer.name.value));
            let program = document.checked.programs.iter().find(|p| p.name == layer.name.value);
            let text = program
                .and_then(|program| declared(program, &name.name))
                .or_else(|| plan.and_then(|(plan, _)| chosen(plan, &name.name)))
                .or_else(|| program.and_then(|program| free(program, &name.name)))
                .or_else(|| {
                    let param = layer.params.iter().find(|p| p.name.value == name.name)?;
                    Some(code(&format!("{}: {}", name.name, print_type(&param.ty))))
                })?;
            let docs = layer
                .params
                .iter()
                .find(|p| p.name.value == name.name)
                .map_or(&[][..], |p| &p.docs);
            Some(with_docs(text, docs))
        }
    }
}

/// Markdown about the op whose word stands at a byte, and the word's place.
pub(crate) fn op(document: &Document, at: usize) -> Option<(String, Span)> {
    let text = &document.file.text;
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let start = text.get(..at)?.trim_end_matches(in_word).len();
    let end = text.len() - text[start..].trim_start_matches(in_word).len();
    let row = Code::of_source(&text[start..end])?.row();
    text[end..]
        .starts_with('(')
        .then(|| (format!("{}\n\n{}", code(&row.signature()), row.says), Span::new(start, end)))
}

fn axis(document: &Document, name: &str) -> Option<String> {
    let mesh = document.tree.meshes().next()?;
    let axis = mesh.axes.iter().find(|a| a.name.value == name)?;
    let devices = mesh.axes.iter().fold(1u64, |n, a| n.saturating_mul(a.size.value));
    Some(format!("mesh axis `{name}` of {} ({devices} devices in all)", axis.size.value))
}

fn dim(document: &Document, name: &str) -> Option<String> {
    let line = document.tree.dims().find(|dim| dim.name.value == name);
    let docs = line.map(|dim| dim.docs.as_slice()).unwrap_or_default();
    let mut sizes: Vec<String> = Vec::new();
    for program in &document.checked.programs {
        let Some(dim) = program.dims.iter().find(|d| d.name == name) else { continue };
        let padded = if dim.useful < dim.size {
            format!(" ({} of it useful)", dim.useful)
        } else {
            String::new()
        };
        let phase =
            program.phase.as_ref().map_or_else(String::new, |phase| format!(" in {}", phase.name));
        let text = format!("{}{padded}{phase}", dim.size);
        if !sizes.contains(&text) {
            sizes.push(text);
        }
    }
    if sizes.is_empty() {
        // Where the file has errors, the line itself is shown.
        return Some(with_docs(code(document.file.slice(line?.span).trim_end()), docs));
    }
    Some(with_docs(format!("dim `{name}` = {}", sizes.join(", ")), docs))
}

/// A parameter, or a value that an annotation pins: its layout is exact.
fn declared(program: &Program, name: &str) -> Option<String> {
    let value = program
        .values
        .iter()
        .rev()
        .find(|v| v.name.as_deref() == Some(name) && v.in_layers.is_empty())?;
    let (kind, pattern) = match &value.def {
        Def::Parameter { kind, pattern } => (kind.word(), pattern),
        Def::Pin { pattern, .. } => (None, pattern),
        Def::Constant(_) | Def::Op { .. } => return None,
    };
    let sizes = program.sizes(&value.dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let layout = pattern.exact(shape)?;
    let names = program.dim_names(&value.dims);
    let kind = kind.map_or_else(String::new, |kind| format!("{kind} "));
    let head =
        format!("{name}: {kind}{} {}", value.dtype.name(), layout.text(&program.mesh, &names));
    Some(page(&head, shape, layout, &names, value.dtype.bytes(shape.local_elements(layout)), ""))
}

/// A value whose layout the compiler chose.
fn chosen(plan: &Plan, name: &str) -> Option<String> {
    let id = made_as(plan, name)?;
    let instr = plan.instruction(id);
    let sizes = plan.sizes(&instr.dims);
    let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
    let head = format!("{name}: {} {}", instr.dtype.name(), plan.layout_text(id));
    let names = plan.dim_names(&instr.dims);
    Some(page(&head, shape, instr.layout, &names, plan.local_bytes(id), "chosen by the compiler; "))
}

/// A value of which only the shape is known so far.
fn free(program: &Program, name: &str) -> Option<String> {
    let value = program
        .values
        .iter()
        .rev()
        .find(|v| v.name.as_deref() == Some(name) && v.in_layers.is_empty())?;
    let dims = program.dim_names(&value.dims).join(", ");
    let head = code(&format!("{name}: {} [{dims}]", value.dtype.name()));
    Some(format!(
        "{head}\n\nglobal {:?}; the compiler chooses the layout",
        program.sizes(&value.dims)
    ))
}

fn page(
    head: &str,
    shape: MeshShape<'_>,
    layout: Layout,
    names: &[&str],
    bytes: u64,
    by: &str,
) -> String {
    let words = in_words(shape.mesh, layout, names);
    let (global, local) = (shape.sizes, shape.local_sizes(layout));
    format!(
        "{}\n\n{by}{words}\n\nglobal {global:?}, local {local:?}, {} a device",
        code(head),
        scale::bytes(Bytes(bytes))
    )
}

/// `E split over x then y (16 ways); replicated over z; partial sums over ...`
fn in_words(mesh: &Mesh, layout: Layout, names: &[&str]) -> String {
    let mut parts = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let axes = layout.axes_of(at);
        if !axes.is_empty() {
            let list: Vec<&str> = axes.iter().map(|a| mesh.name(a)).collect();
            parts.push(format!(
                "{name} split over {} ({} ways)",
                list.join(" then "),
                mesh.group_size(axes.iter())
            ));
        }
    }
    for (kind, word) in [(Reduction::Sum, "sums"), (Reduction::Max, "maxima")] {
        let axes = layout.partial(kind);
        if !axes.is_empty() {
            parts.push(format!("partial {word} over {}", mesh.axes_text(axes.iter())));
        }
    }
    if !layout.softmax_axes().is_empty() {
        let axes = mesh.axes_text(layout.softmax_axes().iter());
        parts.push(format!("attention over a part of the keys, over {axes}"));
    }
    let rest = layout.replicated_axes(mesh);
    if !rest.is_empty() {
        parts.push(format!("replicated over {}", mesh.axes_text(rest.iter())));
    }
    parts.join("; ")
}

fn code(text: &str) -> String {
    format!("```shard\n{text}\n```")
}

fn with_docs(text: String, docs: &[String]) -> String {
    if docs.is_empty() {
        text
    } else {
        format!("{text}\n\n{}", docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n"))
    }
}
