//! Text to plans: one instruction.

use std::collections::BTreeMap;

use shard_words::{AxesWord, PartialOp, WordError, parse_dim_list, parse_layout_with_partial};

use super::line::{Cursor, LineError, Parsed};
use super::moves::collective;
use crate::collective::Collective;
use crate::collective_einsum::Fused;
use crate::layout::{Layout, MeshShape, Place};
use crate::mesh::{AxisId, AxisList, AxisSet, MAX_AXES};
use crate::op::{Argument, Code, Lead, Op, Takes};
use crate::plan::{InstrId, InstrKind, Instruction, Number, Origin, Plan};
use crate::program::{FoldId, ParameterKind};
use crate::rules::Rules;
use crate::tensor::{DimId, Dtype};
use crate::verify::words;

/// What an instruction may name: the mesh and the dims of the plan, and the instructions above.
#[derive(Clone, Copy)]
pub(super) struct Scope<'p> {
    pub(super) plan: &'p Plan,
    pub(super) dim_ids: &'p BTreeMap<String, u16>,
}

impl From<WordError> for LineError {
    fn from(error: WordError) -> LineError {
        LineError { span: error.span, message: error.message }
    }
}

impl Scope<'_> {
    /// Reads `%3`, an instruction above.
    pub(super) fn operand(&self, cursor: &mut Cursor<'_>) -> Parsed<InstrId> {
        let before = *cursor;
        cursor.expect("%")?;
        let number = cursor.number("an instruction's number")?;
        if number >= self.plan.instructions.len() as u64 {
            return before.unexpected("an instruction above");
        }
        Ok(InstrId(number as u32))
    }

    fn operands(&self, cursor: &mut Cursor<'_>, count: usize) -> Parsed<Vec<InstrId>> {
        let mut out = vec![self.operand(cursor)?];
        while out.len() < count {
            cursor.expect(",")?;
            out.push(self.operand(cursor)?);
        }
        Ok(out)
    }

    pub(super) fn dim(&self, cursor: &mut Cursor<'_>) -> Parsed<DimId> {
        let before = *cursor;
        let name = cursor.word("a dim")?;
        match self.dim_ids.get(name) {
            Some(id) => Ok(DimId(*id)),
            None => before.unexpected("a declared dim"),
        }
    }

    pub(super) fn dim_list(&self, cursor: &mut Cursor<'_>) -> Parsed<Vec<DimId>> {
        cursor.skip_blanks();
        let start = cursor.position();
        let word = cursor.bracketed_word("dims", true)?;
        let list = parse_dim_list(word, start)?;
        list.dims.iter().map(|d| self.dim_named(&d.value, d.span)).collect()
    }

    fn dim_named(&self, name: &str, span: shard_words::Span) -> Parsed<DimId> {
        match self.dim_ids.get(name) {
            Some(id) => Ok(DimId(*id)),
            None => Err(LineError { span, message: format!("dim `{name}` is not declared") }),
        }
    }

    fn axis_named(&self, name: &str, span: shard_words::Span) -> Parsed<AxisId> {
        match self.plan.mesh.axis(name) {
            Some(axis) => Ok(axis),
            None => Err(LineError {
                span,
                message: format!("the mesh has no axis `{name}` of size greater than 1"),
            }),
        }
    }

    /// Reads `xy` or `{data,model}`: distinct axes.
    pub(super) fn axes(&self, cursor: &mut Cursor<'_>) -> Parsed<AxisList> {
        cursor.skip_blanks();
        let start = cursor.position();
        let word = cursor.bracketed_word("mesh axes", true)?;
        let span = shard_words::Span::new(start, cursor.position());
        let letters: Vec<String> = word.chars().map(String::from).collect();
        let names: Vec<&str> = match word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
            Some(inside) => inside.split(',').map(str::trim).collect(),
            None => letters.iter().map(String::as_str).collect(),
        };
        let mut list = AxisList::EMPTY;
        for name in names {
            let axis = self.axis_named(name, span)?;
            if list.set().contains(axis) {
                return cursor.error_since(start, format!("mesh axis `{name}` stands twice"));
            }
            list = list.then(axis);
        }
        Ok(list)
    }

    fn axes_word(&self, word: &AxesWord) -> Parsed<AxisList> {
        if word.any_order {
            let message = "a plan's axes have an order: no parentheses".to_string();
            return Err(LineError { span: word.span, message });
        }
        let ids: Vec<AxisId> =
            word.axes.iter().map(|a| self.axis_named(&a.value, a.span)).collect::<Parsed<_>>()?;
        if ids.len() > MAX_AXES {
            Err(LineError { span: word.span, message: "an axis stands twice".to_string() })
        } else {
            Ok(ids.into_iter().collect())
        }
    }
}

/// Reads dims and a layout, and checks it against the sizes of the dims.
pub(super) fn layout_word(
    scope: Scope<'_>,
    cursor: &mut Cursor<'_>,
) -> Parsed<(Vec<DimId>, Layout)> {
    cursor.skip_blanks();
    let start = cursor.position();
    let text = cursor.bracketed_word("a layout", false)?;
    let (word, partial) = parse_layout_with_partial(text, start)?;
    if let Some(free) = &word.free {
        return Err(LineError {
            span: free.span,
            message: "a plan leaves no axis free: no `?`".to_string(),
        });
    }
    let (mut dims, mut lists) = (Vec::new(), Vec::new());
    for dim in &word.dims {
        let id = scope.dim_named(&dim.name.value, dim.name.span)?;
        if dims.contains(&id) {
            let message = format!("dim `{}` stands twice", dim.name.value);
            return Err(LineError { span: dim.name.span, message });
        }
        dims.push(id);
        lists.push(dim.axes.as_ref().map_or(Ok(AxisList::EMPTY), |axes| scope.axes_word(axes))?);
    }
    let mut sets = [AxisSet::EMPTY; 3];
    for group in &partial {
        let set = &mut sets[match group.op.value {
            PartialOp::Sum => 0,
            PartialOp::Max => 1,
            PartialOp::Softmax => 2,
        }];
        *set = set.union(scope.axes_word(&group.axes)?.set());
    }
    let shape = MeshShape { mesh: &scope.plan.mesh, sizes: &scope.plan.sizes(&dims) };
    match Layout::new(shape, &lists, sets[0], sets[1]) {
        Ok(layout) => {
            let is_free = |axis: &AxisId| layout.place(*axis) == Place::Replicated;
            if !sets[2].iter().all(|axis| is_free(&axis)) {
                return cursor.error_since(start, "a mesh axis stands twice".to_string());
            }
            Ok((dims, sets[2].iter().fold(layout, Layout::with_softmax)))
        }
        Err(error) => {
            let names = scope.plan.dim_names(&dims);
            cursor.error_since(start, words::of_layout(&scope.plan.mesh, &names, &error))
        }
    }
}

/// Reads the instruction behind `%n =`.
pub(super) fn instruction(scope: Scope<'_>, cursor: &mut Cursor<'_>) -> Parsed<Instruction> {
    let start = *cursor;
    let Head { mut kind, operands, mut name, along } = head(scope, cursor)?;
    cursor.expect(":")?;
    if let InstrKind::Parameter(of) = &mut kind {
        *of = parameter_kind(cursor);
    }
    let dtype = dtype(cursor)?;
    let (dims, layout) = layout_word(scope, cursor)?;
    if let InstrKind::Move(move_) = &mut kind {
        if dims != scope.plan.instruction(operands[0]).dims {
            return start.unexpected("a move that keeps the dims and their order");
        }
        if let Collective::Permute { to } | Collective::Exchange { to } = move_ {
            *to = layout;
        }
    }
    if let (InstrKind::CollectiveEinsum(Fused::ReduceScatter { dim, .. }), Some((before, named))) =
        (&mut kind, along)
    {
        match dims.iter().position(|d| *d == named) {
            Some(place) => *dim = place,
            None => return before.unexpected("a dim of the result"),
        }
    }
    if name.is_none() && !matches!(kind, InstrKind::Parameter(_)) && cursor.take("@") {
        name = Some(cursor.name("the value's name")?);
    }
    let (origin, fold) = tail(scope, cursor)?;
    let instr = Instruction { kind, operands, name, dims, dtype, layout, origin, fold };
    equation_matches(scope.plan, &instr, start)?;
    Ok(instr)
}

/// What stands before the `:` of an instruction.
struct Head<'t> {
    kind: InstrKind,
    operands: Vec<InstrId>,
    /// The name of a parameter.
    name: Option<String>,
    /// The dim along which a loop scatters, and its place in the text. Its place in the result is
    /// known once the result's dims are read.
    along: Option<(Cursor<'t>, DimId)>,
}

fn head<'t>(scope: Scope<'_>, cursor: &mut Cursor<'t>) -> Parsed<Head<'t>> {
    let start = *cursor;
    let word = cursor.word("an operation")?;
    let mut name = None;
    let mut along = None;
    let (kind, operands) = match word {
        "parameter" => {
            cursor.skip_blanks();
            if !cursor.rest().starts_with(':') {
                name = Some(cursor.name("the parameter's name")?);
            }
            (InstrKind::Parameter(ParameterKind::Activation), Vec::new())
        }
        "constant" => {
            let number = if cursor.take_word("size") {
                Number::SizeOf(scope.dim(cursor)?)
            } else {
                Number::Given(cursor.float()?)
            };
            (InstrKind::Constant(number), Vec::new())
        }
        "collective-einsum" => {
            let operands = einsum_operands(scope, cursor)?;
            let fused = if cursor.take_word("all-gather") {
                gathering(scope, cursor, &operands)?
            } else {
                cursor.expect_word("reduce-scatter")?;
                cursor.expect_word("over")?;
                let axes = scope.axes(cursor)?;
                cursor.expect_word("along")?;
                along = Some((*cursor, scope.dim(cursor)?));
                Fused::ReduceScatter { dim: 0, axes }
            };
            (InstrKind::CollectiveEinsum(fused), operands)
        }
        _ => match collective(scope, word, cursor)? {
            Some((operand, collective)) => (InstrKind::Move(collective), vec![operand]),
            None => match op(scope, word, cursor)? {
                Some((operands, op)) => (InstrKind::Op(op), operands),
                None => return start.unexpected("an operation"),
            },
        },
    };
    Ok(Head { kind, operands, name, along })
}

fn parameter_kind(cursor: &mut Cursor<'_>) -> ParameterKind {
    if cursor.take_word("weight") {
        return if cursor.take_word("host") {
            ParameterKind::HostWeight
        } else {
            ParameterKind::Weight
        };
    }
    if cursor.take_word("cache") { ParameterKind::Cache } else { ParameterKind::Activation }
}

/// Reads what stands behind the type: where the instruction comes from, and its folded block.
fn tail(scope: Scope<'_>, cursor: &mut Cursor<'_>) -> Parsed<(Origin, Option<FoldId>)> {
    let mut origin = Origin::default();
    if cursor.take_word("in") {
        origin.in_layers.push(cursor.name("a layer's name")?);
        while cursor.take("/") {
            origin.in_layers.push(cursor.name("a layer's name")?);
        }
    }
    let mut fold = None;
    if cursor.take_word("fold") {
        let before = *cursor;
        let number = cursor.number("a folded block's number")?;
        match u16::try_from(number).ok().filter(|n| usize::from(*n) < scope.plan.folds.len()) {
            Some(number) => fold = Some(FoldId(number)),
            None => return before.unexpected("a folded block that is declared above"),
        }
    }
    if cursor.take_word("of") {
        origin.piece_of = Some(cursor.name("a value's name")?);
    }
    if cursor.take_word("as") {
        cursor.expect_word("attention")?;
        origin.attention = true;
    }
    if cursor.take(";") {
        origin.rules = Rules::named(&cursor.name("the rule's name")?);
    }
    Ok((origin, fold))
}

/// Checks that an einsum's equation agrees with its operands and its result.
fn equation_matches(plan: &Plan, instr: &Instruction, start: Cursor<'_>) -> Parsed<()> {
    if instr.kind.op() != Some(&Op::Einsum) {
        return Ok(());
    }
    let mut cursor = start;
    cursor.expect_word(instr.kind.name())?;
    cursor.skip_blanks();
    let before = cursor;
    let written = cursor.bracketed_word("an equation", false)?;
    let equation = plan.equation_of(&instr.operands, &instr.dims);
    if written == equation { Ok(()) } else { before.unexpected(&format!("`{equation}`")) }
}

fn dtype(cursor: &mut Cursor<'_>) -> Parsed<Dtype> {
    let before = *cursor;
    match Dtype::from_name(cursor.word("a dtype")?) {
        Some(dtype) => Ok(dtype),
        None => before.unexpected("a dtype"),
    }
}

/// Reads an equation, which is checked later, and the operands behind it.
fn einsum_operands(scope: Scope<'_>, cursor: &mut Cursor<'_>) -> Parsed<Vec<InstrId>> {
    cursor.bracketed_word("an equation", false)?;
    let mut operands = vec![scope.operand(cursor)?];
    while cursor.take(",") {
        operands.push(scope.operand(cursor)?);
    }
    Ok(operands)
}

/// Reads `0 over yz along E`: the operand that a loop gathers, by its place.
fn gathering(scope: Scope<'_>, cursor: &mut Cursor<'_>, operands: &[InstrId]) -> Parsed<Fused> {
    let before = *cursor;
    let operand = cursor.number("the place of the operand that is gathered")? as usize;
    let Some(gathered) = operands.get(operand) else {
        return before.unexpected("the place of an operand");
    };
    cursor.expect_word("over")?;
    let axes = scope.axes(cursor)?;
    cursor.expect_word("along")?;
    let before = *cursor;
    let dim = scope.dim(cursor)?;
    match scope.plan.instruction(*gathered).dims.iter().position(|d| *d == dim) {
        Some(dim) => Ok(Fused::AllGather { operand, dim, axes }),
        None => before.unexpected("a dim of the operand"),
    }
}

fn op(scope: Scope<'_>, word: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<(Vec<InstrId>, Op)>> {
    let Some(code) = Code::of_text(word) else { return Ok(None) };
    let row = code.row();
    let operands = match row.operands.len() {
        0 => einsum_operands(scope, cursor)?,
        count => scope.operands(cursor, count)?,
    };
    let mut arguments = Vec::new();
    for slot in row.slots {
        let lead = slot.lead.text().trim();
        match slot.lead {
            _ if slot.takes.may_be_nothing() => {
                if !cursor.take(lead) {
                    break;
                }
            }
            Lead::Over | Lead::At => cursor.expect_word(lead)?,
            Lead::Comma | Lead::Arrow => cursor.expect(lead)?,
        }
        arguments.push(match slot.takes {
            Takes::Dim | Takes::DimOrNothing | Takes::ListOfOne => {
                Argument::Dim(scope.dim(cursor)?)
            }
            Takes::Dims | Takes::SeveralDims => Argument::Dims(scope.dim_list(cursor)?),
            Takes::Position(what) | Takes::Count(what) | Takes::CountOrNothing(what) => {
                Argument::Number(cursor.number(what)?)
            }
            Takes::Dtype => Argument::Dtype(dtype(cursor)?),
        });
    }
    Ok(Op::of(code, arguments).map(|op| (operands, op)))
}
