//! What to write into a file so that its plan is another one that was found: annotations, each of
//! which is needed and which together were lowered to a plan of that time. Where no annotations
//! give it, since the search goes around them, it is the layer as a strict one.

use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{
    Def, DimId, InstrKind, Layout, LayoutPattern, MeshShape, Output, Plan, Program, ValueId,
};
use shard_report::explicit::Overrides;
use shard_report::origins::origin;
use shard_search::LowerOptions;
use shard_search::demand::{annotated, label_of, value_named};

use super::force;
use super::request::Request;
use crate::explicit::strict_layer;
use crate::noted::ok_or_noted;

/// A value in a layout.
type Annotation = (ValueId, Layout);

/// At most so many annotations are tried: a file that states more is better written by `fmt
/// --explicit`.
const MOST: usize = 12;

/// What is asked for, of which program, and how the program is lowered.
pub(crate) struct Wanted<'a> {
    pub(crate) request: &'a Request,
    pub(crate) program: &'a Program,
    pub(crate) source: &'a SourceFile,
    pub(crate) hardware: &'a Hardware,
    pub(crate) options: &'a LowerOptions,
    pub(crate) overrides: &'a Overrides,
}

impl Wanted<'_> {
    /// The lines that give a plan with what was asked for, in the time of the other plan.
    pub(crate) fn lines(&self, chosen: &Plan, other: &Plan) -> Vec<String> {
        if let Request::Layout { value, text, .. } = self.request {
            return self.places(*value, text);
        }
        let all = self.differences(chosen, other);
        let Some(mut needed) = Some(all).filter(|all| self.gives(all, other)) else {
            let strict = strict_layer(self.source, other, self.hardware, self.overrides);
            return strict.iter().flat_map(|text| text.lines()).map(str::to_string).collect();
        };
        // An annotation that is not needed is left out.
        for at in (0..needed.len()).rev() {
            let mut fewer = needed.clone();
            fewer.remove(at);
            if self.gives(&fewer, other) {
                needed = fewer;
            }
        }
        let text = |(value, layout): &Annotation| {
            let dims = self.program.dim_names(&self.program.value(*value).dims);
            self.places(*value, &layout.text(&self.program.mesh, &dims))
        };
        needed.iter().flat_map(text).collect()
    }

    /// The lines of the source with a layout stated for a value, in all places that bear its label.
    fn places(&self, value: ValueId, text: &str) -> Vec<String> {
        let Some(label) = label_of(self.program, value) else {
            return vec![self.line(value, text)];
        };
        let program = self.program;
        let dims = &program.value(value).dims;
        // A layout that is stated in full is written with the dims in the order of each place.
        let over = |own: &[DimId]| {
            let order: Vec<usize> =
                own.iter().filter_map(|d| dims.iter().position(|of| of == d)).collect();
            match self.request {
                Request::Layout { pattern, .. } => {
                    let sizes = program.sizes(dims);
                    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
                    pattern.exact(shape).map_or(text.to_string(), |layout| {
                        layout.permuted(&order).text(&program.mesh, &program.dim_names(own))
                    })
                }
                Request::Collective { .. } | Request::Strategy(_) => text.to_string(),
            }
        };
        let bears_it = |id: &ValueId| {
            program.value(*id).def.pattern().is_some_and(|pattern| pattern.label == Some(label))
        };
        let values = program.value_ids().filter(bears_it);
        let results = program.outputs.iter().filter(|output| output.pattern.label == Some(label));
        let result = |output: &Output| {
            let dtype = program.value(output.value).dtype;
            format!("-> {dtype} {}    (the result `{}`)", over(&output.dims), output.name)
        };
        values
            .map(|id| self.line(id, &over(&program.value(id).dims)))
            .chain(results.map(result))
            .collect()
    }

    /// The values of the layer itself that the other plan makes in another layout, and its
    /// parameters that are moved to another, in program order.
    fn differences(&self, chosen: &Plan, other: &Plan) -> Vec<Annotation> {
        let mut found: Vec<Annotation> = Vec::new();
        let has = |id: shard_ir::InstrId| {
            let wanted = other.instruction(id);
            chosen.instructions.iter().any(|i| {
                (&i.name, &i.dims, i.layout, i.kind.name())
                    == (&wanted.name, &wanted.dims, wanted.layout, wanted.kind.name())
            })
        };
        for id in other.ids().filter(|id| !has(*id)) {
            let instr = other.instruction(id);
            let is_stored =
                || matches!(other.instruction(origin(other, id)).kind, InstrKind::Parameter(_));
            let counts = match &instr.kind {
                InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                    instr.origin.in_layers.is_empty()
                }
                InstrKind::Parameter(_) => true,
                InstrKind::Move(_) => is_stored(),
                InstrKind::Constant(_) => false,
            };
            let value = instr.name.as_ref().and_then(|name| value_named(self.program, name));
            let Some(value) = value.filter(|v| counts && self.program.value(*v).dims == instr.dims)
            else {
                continue;
            };
            // Only the end of a chain of moves is read by an op.
            found.retain(|(known, _)| *known != value);
            found.push((value, instr.layout));
        }
        found.sort_by_key(|(value, _)| *value);
        found.truncate(MOST);
        found
    }

    /// Whether the program with these annotations lowers to a plan that has what was asked for, in
    /// the time of the other plan.
    fn gives(&self, annotations: &[Annotation], other: &Plan) -> bool {
        let mut program = self.program.clone();
        // The last annotation is written first, since it shifts the values behind it.
        for (value, layout) in annotations.iter().rev() {
            let rank = self.program.value(*value).dims.len();
            program = annotated(&program, *value, &LayoutPattern::exactly(*layout, rank));
        }
        let Some(lowered) = ok_or_noted(shard_search::lower(&program, self.hardware, self.options))
        else {
            return false;
        };
        let time = |plan: &Plan| shard_cost::price(plan, self.hardware).totals.serial_time;
        force::has(self.request, self.program, &lowered.plan) && time(&lowered.plan) == time(other)
    }

    /// A line of the source with a layout stated.
    fn line(&self, value: ValueId, text: &str) -> String {
        let v = self.program.value(value);
        let name = v.name.clone().unwrap_or_default();
        // A value that a called layer declares has its own name there.
        let (layer, name) =
            name.rsplit_once('.').map_or(("", name.as_str()), |(l, name)| (l, name));
        let inside =
            if layer.is_empty() { String::new() } else { format!("    (in layer `{layer}`)") };
        // The layout of a weight that phases share is open in the source, and stated in the
        // program.
        let declared = self.source.text.get(v.span.start..v.span.end).unwrap_or_default();
        if let Def::Parameter { kind, pattern } = &v.def
            && (pattern.open || declared.contains('?'))
        {
            let kind = kind.word().map_or_else(String::new, |word| format!("{word} "));
            return format!("{name}: {kind}{} {text}{inside}", v.dtype);
        }
        let line =
            self.source.line(self.source.line_column(v.span.start).line).unwrap_or_default().trim();
        match line.split_once('=') {
            Some((_, right)) if line.starts_with("let ") => {
                format!("let {name}: {text} ={right}{inside}")
            }
            _ if line.starts_with("let ") => format!("let {name}: {text} = ...{inside}"),
            _ => format!(
                "let {name}1 = reshard({name}, {text})  // and read {name}1 for {name}{inside}"
            ),
        }
    }
}
