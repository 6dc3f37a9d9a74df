//! What a text holds: source, IR text or JSON.

use std::path::Path;

use shard_check::Diagnostic;
use shard_check::diagnostics::InputProblem;
use shard_grammar::SourceFile;
use shard_ir::Plan;

use crate::host::{Host, Outcome, Status};

/// A file of source, or one of IR text.
#[derive(Clone, Debug)]
pub enum Input {
    /// A `.shard` file.
    Source(SourceFile),
    /// A `.shir` file: its plans, verified.
    Ir(Vec<Plan>),
}

/// A text without the header that a snapshot file has in front of it.
fn behind_header(text: &str) -> &str {
    let header = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    header.map_or(text, |(_, body)| body)
}

/// Whether a text is JSON, such as `explain` writes: neither source nor IR begins with a brace.
pub fn is_json(file: &SourceFile) -> bool {
    file.text.trim_start().starts_with('{')
}

/// Whether the first line of a text that is not empty and no comment is that of IR text.
fn begins_as_ir(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with("//"));
    first.is_some_and(|line| line.starts_with("shir "))
}

/// Whether a text that was read from `path` is IR: `.shir` files, and any text whose first line is
/// `shir 1` behind comments and the header of a snapshot.
pub fn is_ir(path: &Path, file: &SourceFile) -> bool {
    path.extension().is_some_and(|e| e == "shir") || begins_as_ir(behind_header(&file.text))
}

/// The program in a text that was read.
pub fn program_of(path: &Path, file: SourceFile, host: &mut dyn Host) -> Outcome<Input> {
    if !is_ir(path, &file) {
        return Ok(Input::Source(file));
    }
    let file = SourceFile::new(file.name.clone(), behind_header(&file.text));
    let plans = match shard_ir::text::parse(&file.text) {
        Ok(plans) => plans,
        Err(error) => {
            let wrong = InputProblem::Unreadable { message: error.message, span: error.span };
            host.report(Some(&file), vec![wrong.into()]);
            return Err(Status::Wrong);
        }
    };
    let mut wrong: Vec<Diagnostic> = Vec::new();
    for plan in &plans {
        for error in shard_ir::verify::verify(plan).err().into_iter().flatten() {
            wrong.push(
                InputProblem::Illegal { layer: plan.name.clone(), error: error.to_string() }.into(),
            );
        }
    }
    for plan in plans.iter().filter(|plan| plan.outputs.is_empty()) {
        let error = "it gives no result: a line `return` is missing".to_string();
        wrong.push(InputProblem::Illegal { layer: plan.name.clone(), error }.into());
    }
    if plans.is_empty() {
        wrong.push(InputProblem::NoLayer { file: file.name.clone(), is_ir: true }.into());
    }
    if wrong.is_empty() {
        return Ok(Input::Ir(plans));
    }
    host.report(None, wrong);
    Err(Status::Wrong)
}
