//! `fmt --explicit`: chosen plans written back as a strict source file, each move a `reshard`.
//!
//! What the source says of the file, the mesh and the dims stays, comments too. Of each layer the
//! header stays but for what it leaves to the compiler (`?`, `E_(xy)`), which becomes the layout
//! chosen; the body becomes the instructions of the plan in their order. Calls are inlined, so
//! layers that others call are left out.

mod body;
mod comments;
mod expression;

pub use body::fresh;

use std::collections::BTreeMap;

use shard_grammar::ast::{self, HardwareRef, Item};
use shard_grammar::{SourceFile, Span, SyntaxError};
use shard_ir::{
    Dim, DimId, Dtype, InstrId, InstrKind, Instruction, Layout, Plan, PlanOutput, never,
};
use shard_search::rules::pieces::IN_PIECES;
use shard_search::rules::{Family, RULES};

use crate::notation::phrase;
use comments::Comments;

/// What the command line changes of a file, and so what is written into it.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// New right sides of dims.
    pub dims: Vec<(String, String)>,
    /// The axes of the mesh: `x=8, y=8`.
    pub mesh: Option<String>,
    /// A built-in chip.
    pub hardware: Option<String>,
    /// The phase whose sizes the file gets; phases are left out then.
    pub phase: Option<String>,
}

/// A file with its layers as these plans, in canonical form; layers without a plan are left out.
///
/// A text that the formatter refuses (past the limits of a file) comes back as its errors.
pub fn explicit(
    source: &SourceFile,
    plans: &[&Plan],
    overrides: &Overrides,
) -> Result<String, Vec<SyntaxError>> {
    let parsed = shard_grammar::parse(source);
    if !parsed.errors.is_empty() {
        return Err(parsed.errors);
    }
    let tree = parsed.file;
    let mut edits: Vec<(Span, String)> = Vec::new();
    override_lines(source, &tree, overrides, &mut edits);
    for item in &tree.items {
        let layer = match item {
            Item::Layer(layer) => layer,
            Item::Phase(phase) if overrides.phase.is_some() => {
                edits.push((with_docs(source, &tree, phase.span), String::new()));
                continue;
            }
            Item::Phase(_) | Item::Hardware(_) | Item::Mesh(_) | Item::Dim(_) => continue,
        };
        match plans.iter().find(|p| p.name == layer.name.value) {
            Some(plan) => layer_edits(source, &tree, layer, plan, &mut edits),
            None => edits.push((with_docs(source, &tree, layer.span), String::new())),
        }
    }
    if let Some(layer) = tree.layers().next() {
        let above = Span::at(with_docs(source, &tree, layer.span).start);
        edits.insert(0, (above, made_dims(&tree, plans)));
    }
    edits.sort_by_key(|(span, _)| span.start);
    let mut text = String::new();
    let mut at = 0;
    for (span, new) in edits {
        text.push_str(
            source.text.get(at..span.start).unwrap_or_else(|| never!("edits that overlap", "")),
        );
        text.push_str(&new);
        at = at.max(span.end);
    }
    text.push_str(
        source.text.get(at..).unwrap_or_else(|| never!("an edit behind the end of the file", "")),
    );
    shard_grammar::format(&SourceFile::new(source.name.clone(), text))
}

/// `dim` lines for the dims that plans use and a file does not declare: the parts into which the
/// plans cut dims of the file.
pub fn made_dims(tree: &ast::File, plans: &[&Plan]) -> String {
    let is_declared = |name: &str| tree.dims().any(|dim| dim.name.value == name);
    let used = plans
        .iter()
        .flat_map(|plan| plan.dims_in_use().into_iter().map(|dim| (dim, &plan.dims[dim.index()])));
    let made: BTreeMap<DimId, &Dim> = used.filter(|(_, dim)| !is_declared(&dim.name)).collect();
    made.values().map(|dim| format!("dim {} = {}\n", dim.name, dim.size)).collect()
}

fn override_lines(
    source: &SourceFile,
    tree: &ast::File,
    overrides: &Overrides,
    edits: &mut Vec<(Span, String)>,
) {
    let top = tree.items.first().map_or(Span::at(0), |item| Span::at(item.span().start));
    if let Some(chip) = &overrides.hardware {
        match tree.hardware().next().map(|line| &line.chip) {
            Some(HardwareRef::BuiltIn(name)) => edits.push((name.span, chip.clone())),
            Some(HardwareRef::Path(path)) => edits.push((path.span, chip.clone())),
            None => edits.push((top, format!("hardware {chip}\n"))),
        }
    }
    if let Some(axes) = &overrides.mesh {
        match tree.meshes().next() {
            Some(mesh) => edits.push((mesh.span, format!("mesh {axes}"))),
            None => edits.push((top, format!("mesh {axes}\n"))),
        }
    }
    let phases = tree.items.iter().filter_map(|item| match item {
        Item::Phase(phase) if overrides.phase.as_ref() == Some(&phase.name.value) => Some(phase),
        Item::Phase(_) | Item::Hardware(_) | Item::Mesh(_) | Item::Dim(_) | Item::Layer(_) => None,
    });
    for size in phases.flat_map(|phase| &phase.sizes) {
        let right = size.value.span.to(size.pad.as_ref().map_or(size.value.span, |pad| pad.span));
        for dim in tree.dims().filter(|d| d.name.value == size.name.value) {
            let end = dim.pad.as_ref().map_or(dim.value.span, |pad| pad.span);
            edits.push((dim.value.span.to(end), source.slice(right).to_string()));
        }
    }
    for (name, right) in &overrides.dims {
        for dim in tree.dims().filter(|d| d.name.value == *name) {
            let end = dim.pad.as_ref().map_or(dim.value.span, |pad| pad.span);
            edits.push((dim.value.span.to(end), right.clone()));
        }
    }
}

/// A layer with the doc comments above it.
fn with_docs(source: &SourceFile, tree: &ast::File, layer: Span) -> Span {
    let mut start = layer.start;
    for comment in tree.comments.iter().rev().filter(|c| c.own_line && c.span.end <= layer.start) {
        let between = source
            .text
            .get(comment.span.end..start)
            .unwrap_or_else(|| never!("comments out of order", ""));
        if between.trim().is_empty() && between.matches('\n').count() == 1 {
            start = comment.span.start;
        }
    }
    Span::new(start, layer.end)
}

fn layer_edits(
    source: &SourceFile,
    tree: &ast::File,
    layer: &ast::Layer,
    plan: &Plan,
    edits: &mut Vec<(Span, String)>,
) {
    if layer.strict.is_none() {
        edits.push((Span::at(layer.span.start), "strict ".to_string()));
    }
    let given =
        |id: &shard_ir::InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    for param in layer.params.iter().filter(|p| is_free(&p.ty)) {
        let id = plan
            .ids()
            .filter(given)
            .find(|id| plan.instruction(*id).name.as_ref() == Some(&param.name.value));
        // A parameter that nothing reads is not in the plan, and any layout does.
        edits.extend(id.map(|id| (layout_span(&param.ty), plan.layout_text(id))));
    }
    for (ty, output) in
        layer.results.types().into_iter().zip(&plan.outputs).filter(|(ty, _)| is_free(ty))
    {
        edits.push((layout_span(ty), plan.output_layout_text(output)));
    }
    let mut comments = Comments::new(source, tree, &layer.name.value);
    // A strict file has no word for what is done inside a loop: it is written as a step of its own.
    let (lines, returned) = body::statements(&plan.unfused(), &mut comments);
    // A result that is not named in the header is called as what is returned, if that is a name,
    // and else `result`.
    if let (ast::Results::One(ty), [one], [output]) =
        (&layer.results, returned.as_slice(), plan.outputs.as_slice())
    {
        let is_name = one.chars().all(|c| c.is_alphanumeric() || c == '_');
        if output.name != if is_name { one.as_str() } else { "result" } {
            edits.push((Span::at(ty.span.start), format!("({}: ", output.name)));
            edits.push((Span::at(ty.span.end), ")".to_string()));
        }
    }
    edits.push((layer.body_span, format!("{{\n{}\n}}", lines.join("\n"))));
}

/// Whether a type leaves anything to the compiler.
fn is_free(ty: &ast::Type) -> bool {
    ty.layout.free.is_some()
        || ty.layout.dims.iter().any(|d| d.axes.as_ref().is_some_and(|a| a.any_order))
}

/// The layout of a type with its partials.
fn layout_span(ty: &ast::Type) -> Span {
    Span::new(ty.layout.span.start, ty.span.end)
}

/// What tells two plans apart; `None` where only words differ. Compared are the mesh, dims,
/// instructions (what each does, on which operands, in which dims, dtype and layout, by which rule)
/// and results. Names, places, reasons, the layers that calls came from, and whether a move was
/// written or inserted are words; so are the composite that an op is a piece of, and the place of a
/// constant.
pub fn difference(a: &Plan, b: &Plan) -> Option<String> {
    let same_dims = b.in_dims_of(a).filter(|_| a.mesh == b.mesh && a.repeat == b.repeat);
    let Some(b) = &same_dims else {
        return Some("the mesh, the dims or the repetition differ".to_string());
    };
    let (steps, others) = (steps(a), steps(b));
    if steps.len() != others.len() {
        return Some(format!("{} instructions, and {}", steps.len(), others.len()));
    }
    let (places, other_places) = (places(a, &steps), places(b, &others));
    for (id, other) in steps.iter().zip(&others) {
        let (x, y) = (a.instruction(*id), b.instruction(*other));
        let same_operand = |(p, q): (&InstrId, &InstrId)| {
            places[p.index()] == other_places[q.index()] && number(a, *p) == number(b, *q)
        };
        let same = x.kind == y.kind
            && x.operands.len() == y.operands.len()
            && x.operands.iter().zip(&y.operands).all(same_operand)
            && x.dims == y.dims
            && x.dtype == y.dtype
            && x.layout == y.layout
            && rules(x).eq(rules(y));
        if !same {
            let text = |plan: &Plan, id: InstrId| {
                let instr = plan.instruction(id);
                let operands: Vec<String> =
                    instr.operands.iter().map(|operand| format!("%{}", operand.0)).collect();
                let rules: Vec<&str> = rules(instr).collect();
                format!(
                    "{} of {} : {} {} by {}",
                    phrase(plan, id),
                    operands.join(", "),
                    instr.dtype,
                    plan.layout_text(id),
                    rules.join("+")
                )
            };
            return Some(format!("%{} is {}, and {}", id.0, text(a, *id), text(b, *other)));
        }
    }
    let results = |plan: &Plan, places: &[Option<usize>]| {
        let result = |o: &PlanOutput| (places[o.id.index()], number(plan, o.id), o.dims.clone());
        plan.outputs.iter().map(result).collect::<Vec<_>>()
    };
    (results(a, &places) != results(b, &other_places)).then(|| "the results differ".to_string())
}

/// The instructions of a plan but for constants: a text has constants in its expressions, which
/// keeps neither their places nor how often each stands there.
fn steps(plan: &Plan) -> Vec<InstrId> {
    plan.ids().filter(|id| number(plan, *id).is_none()).collect()
}

/// The place of each instruction among the steps of its plan; none of a number.
fn places(plan: &Plan, steps: &[InstrId]) -> Vec<Option<usize>> {
    let mut places = vec![None; plan.instructions.len()];
    for (place, step) in steps.iter().enumerate() {
        places[step.index()] = Some(place);
    }
    places
}

/// The bits, dtype and layout of a constant. The size of a dim counts as its number, since a file
/// states it as one.
fn number(plan: &Plan, id: InstrId) -> Option<(u64, Dtype, Layout)> {
    let instr = plan.instruction(id);
    match instr.kind {
        InstrKind::Constant(of) => Some((plan.number(of).to_bits(), instr.dtype, instr.layout)),
        InstrKind::Parameter(_)
        | InstrKind::Op(_)
        | InstrKind::Move(_)
        | InstrKind::CollectiveEinsum(_) => None,
    }
}

/// The rules that made an instruction, without logical rules and those that take composites apart:
/// a strict file has the results of these as its source.
fn rules(instr: &Instruction) -> impl Iterator<Item = &str> {
    let is_logical =
        |name: &str| RULES.iter().any(|rule| rule.family == Family::Logical && rule.name == name);
    instr.origin.rules.names().filter(move |name| {
        (instr.origin.piece_of.is_none() || !IN_PIECES.iter().any(|rule| rule.name == *name))
            && !is_logical(name)
    })
}
