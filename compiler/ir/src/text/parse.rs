//! Text to plans: the lines around the instructions.

use std::collections::BTreeMap;

use shard_words::{SourceFile, Span};

use super::instruction::{Scope, instruction, layout_word};
use super::line::{Cursor, LineError, Parsed};
use crate::mesh::Mesh;
use crate::plan::{InstrId, Plan, PlanFold, PlanOutput};
use crate::tensor::{Dim, MAX_DIM_SIZE, MAX_DIMS};

/// The most bytes of one text.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// The most instructions of one plan.
pub const MAX_INSTRUCTIONS: usize = 1 << 16;

/// The most folded blocks of one plan.
const MAX_FOLDS: usize = 1 << 10;

/// The most plans in one text.
pub const MAX_LAYERS: usize = 1 << 10;

/// What is wrong with a text, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The bytes.
    pub span: Span,
    /// The sentence.
    pub message: String,
}

/// Reads the plans of a text. They are well-formed, but not yet checked:
/// [`verify`](crate::verify::verify) them.
pub fn parse(text: &str) -> Result<Vec<Plan>, ParseError> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("the text has {} bytes; the limit is {MAX_TEXT_BYTES}", text.len());
        return Err(ParseError { line: 1, column: 1, span: Span::at(0), message });
    }
    parse_lines(text).map_err(|error| {
        let place = SourceFile::new("", text).line_column(error.span.start);
        ParseError {
            line: place.line,
            column: place.column,
            span: error.span,
            message: error.message,
        }
    })
}

fn parse_lines(text: &str) -> Parsed<Vec<Plan>> {
    let mut plans: Vec<Reader> = Vec::new();
    let mut header = false;
    let mut offset = 0;
    for line in text.split('\n') {
        let mut cursor = Cursor::new(line, offset);
        offset += line.len() + 1;
        cursor.skip_blanks();
        if cursor.rest().is_empty() || cursor.rest().starts_with("//") {
            continue;
        }
        if !header {
            cursor.expect_word("shir")?;
            let before = cursor;
            if cursor.number("the version")? != 1 {
                return before.unexpected("version 1");
            }
            cursor.end()?;
            header = true;
            continue;
        }
        if cursor.take_word("layer") {
            if plans.len() >= MAX_LAYERS {
                return cursor.unexpected(&format!("at most {MAX_LAYERS} layers"));
            }
            plans.push(Reader::layer(&mut cursor)?);
            cursor.end()?;
            continue;
        }
        let Some(reader) = plans.last_mut() else { return cursor.unexpected("`layer`") };
        reader.line(&mut cursor)?;
        cursor.end()?;
    }
    if header {
        Ok(plans.into_iter().map(|r| r.plan).collect())
    } else {
        Err(LineError { span: Span::at(text.len()), message: "expected `shir 1`".to_string() })
    }
}

/// A layer that is being read. Its lines stand in this order: hardware, mesh, dims, folded blocks,
/// instructions, results.
struct Reader {
    plan: Plan,
    dim_ids: BTreeMap<String, u16>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Layer,
    Hardware,
    Mesh,
    Dims,
    Folds,
    Instructions,
    Results,
}

impl Reader {
    fn layer(cursor: &mut Cursor<'_>) -> Parsed<Reader> {
        let name = cursor.name("the layer's name")?;
        let repeat = if cursor.take_word("repeat") {
            cursor.number("how often it is repeated")?
        } else {
            1
        };
        let phase =
            if cursor.take_word("phase") { Some(cursor.name("the phase's name")?) } else { None };
        let plan = Plan {
            name,
            repeat,
            phase,
            hardware: None,
            mesh: Mesh::default(),
            dims: Vec::new(),
            instructions: Vec::new(),
            outputs: Vec::new(),
            folds: Vec::new(),
        };
        Ok(Reader { plan, dim_ids: BTreeMap::new(), stage: Stage::Layer })
    }

    fn line(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let before = *cursor;
        if cursor.take("%") {
            self.reach(&before, Stage::Instructions)?;
            return self.instruction(cursor);
        }
        for (word, state) in [("return", false), ("keep", true)] {
            if cursor.take_word(word) {
                self.reach(&before, Stage::Results)?;
                return self.output(cursor, state);
            }
        }
        if cursor.take_word("hardware") {
            self.reach(&before, Stage::Hardware)?;
            self.plan.hardware = Some(cursor.name("the hardware's name")?);
            return Ok(());
        }
        if cursor.take_word("mesh") {
            self.reach(&before, Stage::Mesh)?;
            return self.mesh(cursor);
        }
        if cursor.take_word("dims") {
            self.reach(&before, Stage::Dims)?;
            return self.dims(cursor);
        }
        if cursor.take_word("fold") {
            self.reach(&before, Stage::Folds)?;
            return self.fold(cursor);
        }
        cursor.unexpected("an instruction, `return` or `layer`")
    }

    /// Checks the order of lines: lines of one kind stand together, and hardware, mesh and dims
    /// once.
    fn reach(&mut self, cursor: &Cursor<'_>, stage: Stage) -> Parsed<()> {
        let repeats = matches!(stage, Stage::Folds | Stage::Instructions | Stage::Results);
        if self.stage < stage || (self.stage == stage && repeats) {
            self.stage = stage;
            return Ok(());
        }
        cursor.unexpected("the order hardware, mesh, dims, fold, instructions, return")
    }

    fn mesh(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let start = cursor.position();
        let mut axes: Vec<(String, u64)> = Vec::new();
        loop {
            let before = *cursor;
            let name = cursor.word("a mesh axis")?;
            if !name.starts_with(|c: char| c.is_ascii_lowercase())
                || !name.chars().all(|c| c.is_ascii_alphanumeric())
            {
                return before
                    .unexpected("a mesh axis (a lower-case letter, then letters and digits)");
            }
            cursor.expect("=")?;
            axes.push((name.to_string(), cursor.number("the size of the axis")?));
            if !cursor.take(",") {
                break;
            }
        }
        match Mesh::new(axes) {
            Ok(mesh) => self.plan.mesh = mesh,
            Err(error) => return cursor.error_since(start, error.to_string()),
        }
        Ok(())
    }

    fn dims(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        loop {
            let before = *cursor;
            let name = cursor.word("a dim")?;
            if !name.starts_with(|c: char| c.is_ascii_uppercase())
                || !name.chars().all(|c| c.is_ascii_alphanumeric())
            {
                return before.unexpected("a dim (an upper-case letter, then letters and digits)");
            }
            if self.plan.dims.len() >= MAX_DIMS {
                return before.unexpected(&format!("at most {MAX_DIMS} dims"));
            }
            if self.dim_ids.insert(name.to_string(), self.plan.dims.len() as u16).is_some() {
                return before.unexpected("a dim that is not declared yet");
            }
            cursor.expect("=")?;
            let size = dim_size(cursor)?;
            let useful = if cursor.take_word("useful") { dim_size(cursor)? } else { size };
            self.plan.dims.push(Dim { name: name.to_string(), size, useful });
            if !cursor.take(",") {
                return Ok(());
            }
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope { plan: &self.plan, dim_ids: &self.dim_ids }
    }

    fn instruction(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let before = *cursor;
        let expected = self.plan.instructions.len();
        if expected >= MAX_INSTRUCTIONS {
            return before.unexpected(&format!("at most {MAX_INSTRUCTIONS} instructions"));
        }
        if cursor.number("the instruction's number")? != expected as u64 {
            return before.unexpected(&format!("the number {expected}"));
        }
        cursor.expect("=")?;
        let instr = instruction(self.scope(), cursor)?;
        self.plan.instructions.push(instr);
        Ok(())
    }

    /// Reads `fold 0 = block repeat 80 from %3 to %40`. The instructions come below, so the
    /// verifier checks what is named.
    fn fold(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let before = *cursor;
        let expected = self.plan.folds.len();
        if expected >= MAX_FOLDS {
            return before.unexpected(&format!("at most {MAX_FOLDS} folded blocks"));
        }
        if cursor.number("the block's number")? != expected as u64 {
            return before.unexpected(&format!("the number {expected}"));
        }
        cursor.expect("=")?;
        let layer = cursor.name("the layer's name")?;
        cursor.expect_word("repeat")?;
        let repeat = cursor.number("how often it is repeated")?;
        let named = |cursor: &mut Cursor<'_>, word: &str| -> Parsed<InstrId> {
            cursor.expect_word(word)?;
            cursor.expect("%")?;
            let before = *cursor;
            match u32::try_from(cursor.number("an instruction's number")?) {
                Ok(number) => Ok(InstrId(number)),
                Err(_) => before.unexpected("an instruction's number"),
            }
        };
        let (from, to) = (named(cursor, "from")?, named(cursor, "to")?);
        self.plan.folds.push(PlanFold { layer, repeat, from, to });
        Ok(())
    }

    fn output(&mut self, cursor: &mut Cursor<'_>, state: bool) -> Parsed<()> {
        let name = cursor.name("the result's name")?;
        cursor.expect("=")?;
        let id: InstrId = self.scope().operand(cursor)?;
        cursor.expect(":")?;
        cursor.skip_blanks();
        let start = cursor.position();
        let (dims, layout) = layout_word(self.scope(), cursor)?;
        let output = PlanOutput { name, id, dims, state };
        if !crate::typing::same_dims(&output.dims, &self.plan.instruction(id).dims) {
            return cursor.error_since(start, format!("these are not the dims of %{}", id.0));
        }
        if self.plan.output_layout(&output) != layout {
            let has = self.plan.output_layout_text(&output);
            return cursor.error_since(start, format!("%{} is {has}", id.0));
        }
        self.plan.outputs.push(output);
        Ok(())
    }
}

fn dim_size(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    let before = *cursor;
    match cursor.number("the size of the dim")? {
        size if (1..=MAX_DIM_SIZE).contains(&size) => Ok(size),
        _ => before.unexpected(&format!("a size from 1 to {MAX_DIM_SIZE}")),
    }
}
