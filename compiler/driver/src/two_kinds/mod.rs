//! `--two-kinds`: the split of each stack into two kinds of layers that takes least time. What is
//! found is written into the source, as `repeat M + N`, and compiled as if it had stood there.

mod frontier;
mod stack;

use shard_check::diagnostics::words::seconds;
use shard_check::{Diagnostic, Edit, Help, Severity};
use shard_cost::{Hardware, Objective};
use shard_grammar::{SourceFile, Span, ast};
use shard_ir::{Picoseconds, Program, never};
use shard_search::{LowerOptions, Stop};

use crate::compile::CompileOptions;
use crate::host::{Host, Outcome, Share, problem};
use stack::{Found, Stack};

/// The source with the stacks among some programs split, where that takes less time. What was found
/// is reported.
pub(crate) fn split_stacks(
    file: &SourceFile,
    programs: &[Program],
    hardware: &Hardware,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<SourceFile> {
    if asked.objective != Objective::Serial {
        let help = "--objective serial".to_string();
        return Err(host.usage("two kinds of layers are chosen by their serial time", Some(help)));
    }
    let tree = shard_grammar::parse(file).file;
    let stacks: Vec<&ast::Layer> = tree
        .layers()
        .filter(|layer| layer.repeat.as_ref().is_some_and(|repeat| repeat.kinds.len() == 1))
        .filter(|layer| programs.iter().any(|p| p.name == layer.name.value && p.repeat > 1))
        .collect();
    if stacks.is_empty() {
        let is_stack = |r: &ast::Repeat| r.count.value > 1 && r.kinds.len() == 1;
        let called = tree.layers().find(|layer| layer.repeat.as_ref().is_some_and(is_stack));
        let Some(name) = called.map(|layer| &layer.name.value) else {
            return Err(host.usage("there is no stack (`repeat N`) to split in two kinds", None));
        };
        let message = format!("`{name}` is a stack of a model: a stack by itself is split in two");
        return Err(host.usage(&message, Some(format!("--layer {name} --two-kinds"))));
    }
    let mut split = file.clone();
    // Stacks are split from the last to the first, so that the places of the others stay.
    for layer in stacks.iter().rev() {
        let Some(repeat) = &layer.repeat else { continue };
        let name = &layer.name.value;
        let of_layer: Vec<&Program> = programs.iter().filter(|p| p.name == *name).collect();
        let share = Share { part: 1, whole: 2 };
        let pass = host.begin("search", format!("two kinds of `{name}`"), share);
        let options = LowerOptions {
            strict: asked.check.strict,
            fuse: asked.fuse,
            ..LowerOptions::default()
        };
        let stack = Stack {
            file,
            at: repeat.count.span,
            layers: repeat.count.value,
            programs: &of_layer,
            check: &asked.check,
            hardware,
            options: with_stop(options, pass.stop()),
        };
        let found = stack.split();
        drop(pass);
        let Some(found) = found else { continue };
        host.report(Some(file), vec![told(name, repeat.count.span, repeat.count.value, &found)]);
        if let Some(first) = found.first {
            let text = kinds(first, repeat.count.value);
            split = SourceFile::new(
                split.name.clone(),
                replaced(&split.text, repeat.count.span, &text),
            );
        }
    }
    Ok(split)
}

fn with_stop(mut options: LowerOptions, stop: Stop) -> LowerOptions {
    options.limits.stop = stop;
    options
}

/// `24 + 56`
fn kinds(first: u64, layers: u64) -> String {
    format!("{first} + {}", layers - first)
}

/// A text with a part of it replaced.
fn replaced(text: &str, at: Span, by: &str) -> String {
    let (Some(before), Some(behind)) = (text.get(..at.start), text.get(at.end..)) else {
        return never!("a place outside of its text", text.to_string());
    };
    [before, by, behind].concat()
}

/// The note about a stack that was searched for two kinds.
fn told(name: &str, span: Span, layers: u64, found: &Found) -> Diagnostic {
    let text = |time: u64| seconds(Picoseconds(time).seconds());
    let less = |part: u64, whole: u64| {
        format!("{:.2} %", 100.0 * (whole.saturating_sub(part)) as f64 / whole.max(1) as f64)
    };
    let one = text(found.one_kind);
    let is_proven = found.bound.is_some_and(|bound| bound >= found.cost);
    let (message, helps) = match found.first {
        None if is_proven => {
            (format!("`{name}`: no two kinds of layers take less than one, {one}"), Vec::new())
        }
        None => (
            format!("`{name}`: no two kinds of layers were found that take less than one, {one}"),
            Vec::new(),
        ),
        Some(first) => {
            let kinds = kinds(first, layers);
            let message = format!(
                "`{name}`: two kinds of layers, `repeat {kinds}`, take {}, {} less than one kind \
                 ({one})",
                text(found.cost),
                less(found.cost, found.one_kind),
            );
            let help = Help {
                text: format!("repeat {kinds}"),
                edits: vec![Edit { span, replacement: kinds }],
            };
            (message, vec![help])
        }
    };
    let bound = match (found.bound, found.first) {
        (None, _) => "how much less the best split takes is not known".to_string(),
        (Some(_), Some(_)) if is_proven => "no split takes less, as is proven".to_string(),
        (Some(_), None) if is_proven => "as is proven of every split".to_string(),
        (Some(bound), _) => format!(
            "no split takes less than {}, so that the best may take {} less",
            text(bound),
            less(bound, found.cost),
        ),
    };
    Diagnostic { severity: Severity::Note, notes: vec![bound], ..problem(&message, helps) }
}
