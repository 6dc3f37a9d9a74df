//! Inlay hints: what the compiler adds, beside the lines to which it adds it.

use lsp_types::{InlayHint, InlayHintKind, InlayHintLabel, InlayHintTooltip, Position, Range};
use shard_cost::InstrPrice;
use shard_grammar::SourceFile;
use shard_grammar::ast::{File, LetTarget, Statement};
use shard_ir::{InstrId, InstrKind, Plan};
use shard_report::notation::{phrase, value_name};
use shard_report::scale;
use shard_report::words::reason_of;

use super::background::Lowered;
use super::position::{offset_of, position_of};

/// The layouts of `let`s that bear none and of parameters that leave them open, and the collectives
/// at the end of the line that caused them.
pub(crate) fn hints(
    file: &SourceFile,
    tree: &File,
    lowered: &Lowered,
    within: Range,
) -> Vec<InlayHint> {
    let (start, end) = (offset_of(file, within.start), offset_of(file, within.end));
    let mut found = Vec::new();
    // Where a file has phases, the hints are those of the first.
    let mut named: Vec<&str> = Vec::new();
    for (plan, price) in &lowered.plans {
        if named.contains(&plan.name.as_str()) {
            continue;
        }
        named.push(&plan.name);
        let open = open_parameters(file, tree, plan).into_iter();
        found.extend(open.filter(|(at, _)| (start..=end).contains(at)));
        found.extend(
            layouts(file, tree, plan).into_iter().filter(|(at, _)| (start..=end).contains(at)),
        );
        for id in plan.ids() {
            let Some((at, hint)) = collective(file, plan, id, price.of(id)) else { continue };
            if (start..=end).contains(&at) {
                found.push((at, hint));
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, hint)| hint).collect()
}

fn layouts(file: &SourceFile, tree: &File, plan: &Plan) -> Vec<(usize, InlayHint)> {
    let lets = tree.layers().filter(|l| l.name.value == plan.name).flat_map(|l| &l.body);
    lets.filter_map(|statement| {
        let Statement::Let(statement) = statement else { return None };
        let LetTarget::One { name, ty: None } = &statement.target else { return None };
        let id = made_as(plan, &name.value)?;
        let at = name.span.end;
        let text = format!(": {}", plan.layout_text(id));
        Some((at, hint(position_of(file, at), text, InlayHintKind::TYPE, None)))
    })
    .collect()
}

/// The layouts that were chosen for parameters whose types leave them open: ` = EF_x` behind `EF?`.
fn open_parameters(file: &SourceFile, tree: &File, plan: &Plan) -> Vec<(usize, InlayHint)> {
    let layers = tree.layers().filter(|l| l.name.value == plan.name);
    let open = layers.flat_map(|l| &l.params).filter(|p| p.ty.layout.free.is_some());
    open.filter_map(|param| {
        let id = plan.ids().find(|id| {
            let instr = plan.instruction(*id);
            matches!(instr.kind, InstrKind::Parameter(_))
                && instr.name.as_deref() == Some(param.name.value.as_str())
        })?;
        let at = param.ty.span.end;
        let text = format!(" = {}", plan.layout_text(id));
        Some((at, hint(position_of(file, at), text, InlayHintKind::TYPE, None)))
    })
    .collect()
}

/// The instruction that makes a value of the layer itself.
pub(crate) fn made_as(plan: &Plan, name: &str) -> Option<InstrId> {
    plan.ids().find(|id| {
        let instr = plan.instruction(*id);
        instr.name.as_deref() == Some(name)
            && instr.origin.in_layers.is_empty()
            && !matches!(instr.kind, InstrKind::Move(_))
    })
}

fn collective(
    file: &SourceFile,
    plan: &Plan,
    id: InstrId,
    price: &InstrPrice,
) -> Option<(usize, InlayHint)> {
    let instr = plan.instruction(id);
    let (InstrKind::Move(_), InstrPrice::Move(cost)) = (&instr.kind, price) else { return None };
    let span = instr.origin.span?;
    let at = span.end + file.text.get(span.end..)?.split('\n').next().map_or(0, str::len);
    let source = plan.moved(id);
    let figures =
        if cost.time.0 == 0 { String::new() } else { format!(" {}", scale::time(cost.time)) };
    let text = format!("+ {} of {}{figures}", phrase(plan, id), value_name(plan, source));
    let mut why = format!("{} -> {}", plan.layout_text(source), plan.layout_text(id));
    if let Some(part) = reason_of(plan, id) {
        why.push_str("\n\n");
        why.push_str(&part);
    }
    Some((at, hint(position_of(file, at), text, InlayHintKind::PARAMETER, Some(why))))
}

fn hint(
    position: Position,
    text: String,
    kind: InlayHintKind,
    tooltip: Option<String>,
) -> InlayHint {
    InlayHint {
        position,
        label: InlayHintLabel::String(text),
        kind: Some(kind),
        text_edits: None,
        tooltip: tooltip.map(InlayHintTooltip::String),
        padding_left: Some(kind == InlayHintKind::PARAMETER),
        padding_right: None,
        data: None,
    }
}
