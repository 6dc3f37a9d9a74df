//! A plan as a Graphviz graph: ops are boxes, moves ellipses, parameters and results plain.

use std::fmt::Write;

use shard_ir::InstrKind;

use crate::Layer;
use crate::notation::{layer_name, phrase, value_name};

/// The layers as one directed graph, a cluster each.
pub fn dot(layers: &[Layer<'_>]) -> String {
    let mut out =
        String::from("digraph shardc {\n  rankdir=TB;\n  node [fontname=\"monospace\"];\n");
    for (at, layer) in layers.iter().enumerate() {
        let plan = layer.plan();
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "  subgraph cluster_{at} {{\n    label={};", quoted(&layer_name(plan)));
        for id in plan.ids() {
            let shape = match plan.instruction(id).kind {
                InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => "box",
                InstrKind::Move(_) => "ellipse",
                InstrKind::Parameter(_) | InstrKind::Constant(_) => "plain",
            };
            let label = match plan.instruction(id).name {
                Some(_) => format!(
                    "{}: {}\n{}",
                    value_name(plan, id),
                    phrase(plan, id),
                    layer.layout_text(id)
                ),
                None => format!("{}\n{}", phrase(plan, id), layer.layout_text(id)),
            };
            let _ = writeln!(out, "    l{at}_{} [shape={shape}, label={}];", id.0, quoted(&label));
            for operand in &plan.instruction(id).operands {
                let _ = writeln!(out, "    l{at}_{} -> l{at}_{};", operand.0, id.0);
            }
        }
        for (n, output) in plan.outputs.iter().enumerate() {
            let label = format!("return {}\n{}", output.name, layer.output_layout_text(output));
            let _ = writeln!(out, "    l{at}_out{n} [shape=plain, label={}];", quoted(&label));
            let _ = writeln!(out, "    l{at}_{} -> l{at}_out{n};", output.id.0);
        }
        out.push_str("  }\n");
    }
    out.push_str("}\n");
    out
}

/// A Graphviz string: quotes and backslashes escaped, line ends as `\n`.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
