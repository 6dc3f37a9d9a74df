//! Whether a plan computes a program: it has the program's parameters, ops and results, and meets
//! every declared layout.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use shard_ir::composite::{Read, pieces};
use shard_ir::{
    Def, DimId, Dtype, Fold, FoldId, InstrId, InstrKind, LabelId, Layout, LayoutPattern, Number,
    Op, Output, ParameterKind, Plan, PlanFold, PlanOutput, Program, Value, ValueId,
};

use crate::actions::commutes;
use crate::forms::{as_written, form_of};
use crate::labels::label_layout;

/// Checks that a legal plan computes a program; the error says what it lacks.
///
/// Every instruction but a move must do what some value of the program is defined as, on operands
/// that stand for that value's operands. An instruction *stands for* a value if it does what the
/// value is defined as, or moves an instruction that does. For a pinned value, the value must also
/// be, at some point of these moves, in a layout that the pin allows. In a strict layer moves may
/// stand only where a `reshard` is written. The plan may compute any form of the program that the
/// logical rules give.
pub fn computes(plan: &Plan, program: &Program) -> Result<(), String> {
    if plan.name != program.name || plan.repeat != program.repeat {
        return Err("the plan is one of another layer".to_string());
    }
    if plan.phase.as_deref() != program.phase.as_ref().map(|phase| phase.name.as_str()) {
        return Err("the plan is one of another phase".to_string());
    }
    // A plan lacks the made dims behind the last one that it uses; it has all that the source
    // declares.
    let has_dims = plan.dims.len() >= program.declared_dims();
    if plan.mesh != program.mesh || !has_dims || !program.dims.starts_with(&plan.dims) {
        return Err("the plan has another mesh or other dims".to_string());
    }
    let same = |(plan, program): (&PlanFold, &Fold)| {
        plan.layer == program.layer && plan.repeat == program.repeat
    };
    if plan.folds.len() != program.folds.len() || !plan.folds.iter().zip(&program.folds).all(same) {
        return Err("the plan has other folded blocks".to_string());
    }
    // Where the plan computes no form, the error is about the program as it is written.
    let Err(why) = computes_form(plan, &as_written(program)) else { return Ok(()) };
    match form_of(plan, program) {
        Some(form) if computes_form(plan, &form).is_ok() => Ok(()),
        Some(_) | None => Err(why),
    }
}

fn computes_form(plan: &Plan, program: &Program) -> Result<(), String> {
    let written = program.values.len();
    let (program, composites) = with_pieces(program);
    let program = &program;
    let mut matched = Match {
        plan,
        program,
        written,
        layers: program
            .values
            .iter()
            .map(|value| value.in_layers.clone())
            .chain([Vec::new()])
            .collect(),
        composites,
        labels: vec![None; program.labels.len()],
        does: Vec::new(),
        known: RefCell::default(),
    };
    matched.fix_labels()?;
    // A check that fails with a label left open fails with every layout of the label.
    matched.check()?;
    let mut several: Vec<(usize, Vec<Layout>)> = Vec::new();
    let open = (0..matched.labels.len()).filter(|label| matched.labels[*label].is_none());
    for label in open.collect::<Vec<usize>>() {
        // A label of values that no result needs stays open.
        let Some(layouts) = matched.layouts_at_pins(LabelId(label as u16)) else { continue };
        match layouts.as_slice() {
            [] => return Err("a layout label stands for no layout in the plan".to_string()),
            [only] => matched.labels[label] = Some(*only),
            layouts => several.push((label, layouts.to_vec())),
        }
    }
    let mut tries = MAX_LABEL_CASES;
    matched.check_with(&several, &mut tries)
}

/// The program with the pieces of its composites as additional values behind all others, and for
/// each last piece the composite whose value it is. In a strict layer composites are whole.
fn with_pieces(program: &Program) -> (Program, HashMap<ValueId, ValueId>) {
    let (mut all, mut composites) = (program.clone(), HashMap::new());
    for id in program.value_ids().filter(|_| !program.strict) {
        let value = program.value(id);
        let Def::Op { op, operands } = &value.def else { continue };
        let Some(operand) = operands.first() else { continue };
        let from = program.value(*operand);
        let Some(pieces) = pieces(op, &from.dims, &value.dims) else { continue };
        let mut add = |def: Def, dims: Vec<DimId>| {
            all.values.push(Value { name: None, dims, dtype: from.dtype, def, ..value.clone() });
            ValueId(all.values.len() as u32 - 1)
        };
        let mut made: Vec<ValueId> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let operands = piece.reads.iter().map(|read| match read {
                Read::Operand => *operand,
                Read::Piece(at) => made[*at],
                Read::Number(Number::Given(number)) => add(Def::Constant(*number), Vec::new()),
                Read::Number(Number::SizeOf(dim)) => {
                    add(Def::Constant(program.dims[dim.index()].size as f64), Vec::new())
                }
            });
            let operands = operands.collect();
            made.push(add(Def::Op { op: piece.op, operands }, piece.dims));
        }
        composites.extend(made.last().map(|last| (*last, id)));
    }
    (all, composites)
}

/// The most layouts that are tried for labels at pins, over all labels together.
const MAX_LABEL_CASES: usize = 4096;

/// An op with the dims and the dtype of its result: what an instruction and a value must share to
/// do the same.
type OpAndType<'a> = (&'a Op, &'a [DimId], Dtype);

/// The values of a program by their definitions.
struct Defined<'a> {
    parameters: HashMap<InstrId, ValueId>,
    ops: HashMap<OpAndType<'a>, Vec<ValueId>>,
    constants: HashMap<(u64, Dtype), Vec<ValueId>>,
}

struct Match<'a> {
    plan: &'a Plan,
    program: &'a Program,
    /// How many values the program has; the pieces of its composites are numbered from here on.
    written: usize,
    /// The lists of inlined layers that values are in, and the empty list, for results.
    layers: HashSet<Vec<String>>,
    /// For each last piece the composite whose value it makes.
    composites: HashMap<ValueId, ValueId>,
    /// The layout of each label, where it is known.
    labels: Vec<Option<Layout>>,
    /// For each instruction the values whose definition it does; empty for a move.
    does: Vec<Vec<ValueId>>,
    /// The answers of [`Match::stands_for`] for pinned values so far.
    known: RefCell<HashMap<(InstrId, ValueId), bool>>,
}

impl<'a> Match<'a> {
    /// Gives labels the layouts that the plan's parameters and results have.
    fn fix_labels(&mut self) -> Result<(), String> {
        let parameters = self.parameters()?;
        let outputs = self.outputs()?;
        let program = self.program;
        let given =
            parameters.iter().filter_map(|(instr, value)| match &program.value(*value).def {
                Def::Parameter { pattern, .. } => Some((*instr, *value, pattern)),
                Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => None,
            });
        let made = outputs
            .iter()
            .zip(&program.outputs)
            .map(|(instr, output)| (*instr, output.value, &output.pattern));
        for (instr, value, pattern) in given.chain(made) {
            if let Some(LabelId(label)) = pattern.label {
                let layout =
                    label_layout(&program.value(value).dims, self.plan.instruction(instr).layout);
                let known = self
                    .labels
                    .get_mut(label as usize)
                    .ok_or("a label that the program does not have")?;
                if known.is_some_and(|l| l != layout) {
                    return Err("a layout label stands for two layouts".to_string());
                }
                *known = Some(layout);
            }
        }
        Ok(())
    }

    /// The parameters of the plan, each with the parameter of the program in the same place.
    fn parameters(&self) -> Result<Vec<(InstrId, ValueId)>, String> {
        let instrs = self
            .plan
            .ids()
            .filter(|id| matches!(self.plan.instruction(*id).kind, InstrKind::Parameter(_)));
        let instrs: Vec<InstrId> = instrs.collect();
        let values: Vec<ValueId> = self.program.parameters().collect();
        if instrs.len() != values.len() {
            return Err(format!("it has {} parameters, the layer {}", instrs.len(), values.len()));
        }
        Ok(instrs.into_iter().zip(values).collect())
    }

    /// The instructions that make the results, in the order of the program's results.
    fn outputs(&self) -> Result<Vec<InstrId>, String> {
        let (has, wants) = (&self.plan.outputs, &self.program.outputs);
        let differ =
            |h: &PlanOutput, w: &Output| h.name != w.name || h.dims != w.dims || h.state != w.state;
        if has.len() != wants.len() || has.iter().zip(wants).any(|(h, w)| differ(h, w)) {
            return Err("its results are not those of the layer".to_string());
        }
        for (has, wants) in has.iter().zip(wants) {
            if self.plan.instruction(has.id).dims != self.program.value(wants.value).dims {
                return Err(format!("the result `{}` has other dims", wants.name));
            }
        }
        Ok(has.iter().map(|output| output.id).collect())
    }

    /// The layouts, as a label sees them, in which the plan has every value that a pin with this
    /// label pins. Other labels may still be open. `None` where the plan has none of these values.
    fn layouts_at_pins(&self, label: LabelId) -> Option<Vec<Layout>> {
        let mut layouts: Option<BTreeSet<Layout>> = None;
        for value in self.program.live_values().into_iter().map(|id| self.program.value(id)) {
            let Def::Pin { operand, pattern, .. } = &value.def else { continue };
            if pattern.label != Some(label) {
                continue;
            }
            let is_it = |id: &InstrId| {
                let instr = self.plan.instruction(*id);
                let is_alike = instr.dims == value.dims && instr.dtype == value.dtype;
                let mut moved = self.along_moves(*id, true);
                is_alike
                    && pattern.admits(instr.layout)
                    && moved.any(|at| self.stands_for(at, *operand))
            };
            let seen = |id: InstrId| label_layout(&value.dims, self.plan.instruction(id).layout);
            let here: BTreeSet<Layout> = self.plan.ids().filter(is_it).map(seen).collect();
            // A value for which no instruction stands restricts nothing here; the check fails on it
            // later.
            if !here.is_empty() {
                layouts = Some(layouts.map_or(here.clone(), |before| &before & &here));
            }
        }
        layouts.map(|layouts| layouts.into_iter().collect())
    }

    /// Runs the whole check, with some layout of each of these labels. `tries` bounds how many
    /// layouts are tried.
    fn check_with(
        &mut self,
        labels: &[(usize, Vec<Layout>)],
        tries: &mut usize,
    ) -> Result<(), String> {
        self.check()?;
        let Some(((label, layouts), rest)) = labels.split_first() else { return Ok(()) };
        let mut found = Err(format!("no more than {MAX_LABEL_CASES} layouts of labels are tried"));
        for layout in layouts {
            let Some(left) = tries.checked_sub(1) else { break };
            *tries = left;
            self.labels[*label] = Some(*layout);
            found = self.check_with(rest, tries);
            if found.is_ok() {
                return found;
            }
        }
        self.labels[*label] = None;
        found
    }

    /// Runs the whole check, with the known layouts of labels; an open label admits any layout.
    fn check(&mut self) -> Result<(), String> {
        let defined = self.defined()?;
        self.known.borrow_mut().clear();
        self.does = Vec::with_capacity(self.plan.instructions.len());
        for id in self.plan.ids() {
            let plan = self.plan;
            let what = || format!("%{} ({})", id.0, plan.instruction(id).kind.name());
            let does = self.what_does(id, &defined)?;
            if does.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!("{} is nothing that the layer computes", what()));
            }
            self.does.push(does.unwrap_or_default());
            if !self.is_called_right(id) {
                return Err(format!("{} is called what it is not", what()));
            }
        }
        self.hands_on_its_folds()?;
        self.has_its_results()
    }

    /// Collects the values of the program by their definitions.
    fn defined(&self) -> Result<Defined<'a>, String> {
        let mut defined = Defined {
            parameters: self.parameters()?.into_iter().collect(),
            ops: HashMap::new(),
            constants: HashMap::new(),
        };
        for id in self.program.value_ids() {
            let value = self.program.value(id);
            match &value.def {
                Def::Op { op, .. } => {
                    defined.ops.entry((op, &value.dims, value.dtype)).or_default().push(id)
                }
                Def::Constant(number) => {
                    let key = (number.to_bits(), value.dtype);
                    defined.constants.entry(key).or_default().push(id)
                }
                Def::Parameter { .. } | Def::Pin { .. } => {}
            }
        }
        Ok(defined)
    }

    /// The values whose definition an instruction does; `None` for a move.
    fn what_does(
        &self,
        id: InstrId,
        defined: &Defined<'a>,
    ) -> Result<Option<Vec<ValueId>>, String> {
        let instr = self.plan.instruction(id);
        let does = match &instr.kind {
            InstrKind::Parameter(kind) => {
                let value = *defined.parameters.get(&id).ok_or("a parameter too many")?;
                self.is_parameter(id, *kind, value)?;
                vec![value]
            }
            InstrKind::Constant(number) => {
                let key = (self.plan.number(*number).to_bits(), instr.dtype);
                let alike = defined.constants.get(&key).into_iter().flatten().copied();
                alike.filter(|value| self.is_piece_alike(id, *value)).collect()
            }
            // A collective einsum does what the einsum does, on the same operands.
            kind @ (InstrKind::Op(_) | InstrKind::CollectiveEinsum(_)) => {
                let op = kind.op().ok_or("an op that does nothing")?;
                let alike = defined.ops.get(&(op, instr.dims.as_slice(), instr.dtype));
                let mut does: Vec<ValueId> = alike
                    .into_iter()
                    .flatten()
                    .copied()
                    .filter(|value| self.is_piece_alike(id, *value) && self.does_as(id, *value))
                    .collect();
                let whole: Vec<ValueId> =
                    does.iter().filter_map(|v| self.composites.get(v)).copied().collect();
                does.extend(whole);
                does
            }
            InstrKind::Move(_) => return Ok(None),
        };
        Ok(Some(does))
    }

    /// Checks that every folded block hands on the value that the next application takes, in a
    /// layout that the program allows there.
    fn hands_on_its_folds(&self) -> Result<(), String> {
        for (at, fold) in self.plan.folds.iter().enumerate() {
            let exit =
                self.program.exit(FoldId(at as u16)).ok_or("a folded block without an end")?;
            let Def::Pin { pattern, .. } = &self.program.value(exit).def else {
                return Err("no border".to_string());
            };
            let handed_on = self.plan.instruction(fold.to).layout;
            if !self.admits(pattern, exit, handed_on) || !self.stands_for(fold.to, exit) {
                return Err(format!("%{} is not what `{}` hands on", fold.to.0, fold.layer));
            }
        }
        Ok(())
    }

    /// Checks that every result is the value that the layer returns, in its declared layout.
    fn has_its_results(&self) -> Result<(), String> {
        for (instr, output) in self.outputs()?.into_iter().zip(&self.program.outputs) {
            if !self.admits(&output.pattern, output.value, self.plan.instruction(instr).layout) {
                return Err(format!("the result `{}` has not its declared layout", output.name));
            }
            if !self.stands_for(instr, output.value) {
                return Err(format!("the result `{}` is another value", output.name));
            }
        }
        Ok(())
    }

    fn is_parameter(&self, id: InstrId, kind: ParameterKind, value: ValueId) -> Result<(), String> {
        let (instr, value_id) = (self.plan.instruction(id), value);
        let value = self.program.value(value);
        let Def::Parameter { kind: declared, pattern } = &value.def else {
            return Err("no parameter".to_string());
        };
        let same =
            instr.name == value.name && instr.dims == value.dims && instr.dtype == value.dtype;
        if !same
            || instr.fold != value.fold
            || kind != *declared
            || !self.admits(pattern, value_id, instr.layout)
        {
            let name = value.name.as_deref().unwrap_or("?");
            return Err(format!("%{} is not the parameter `{name}` as declared", id.0));
        }
        Ok(())
    }

    /// Whether an instruction and a value are both pieces of a composite, or neither is. The
    /// difference matters for prices: a composite counts as one op in a chain of ops, but the same
    /// ops written out in the source do not.
    fn is_piece_alike(&self, instr: InstrId, value: ValueId) -> bool {
        self.plan.instruction(instr).origin.piece_of.is_some() == (value.index() >= self.written)
    }

    /// Whether the name and the layers of an instruction are those of a value that it stands for.
    /// It may lack the name. A move may be in the layers of any value, since it is in those of the
    /// op that reads it.
    fn is_called_right(&self, id: InstrId) -> bool {
        let instr = self.plan.instruction(id);
        let made = self.along_moves(id, true).last().unwrap_or(id);
        let stands_for = |mut value: ValueId| {
            while let Def::Pin { operand, .. } = &self.program.value(value).def {
                value = *operand;
            }
            self.does[made.index()].contains(&value)
        };
        self.program.value_ids().filter(|value| stands_for(*value)).any(|value| {
            let named = self.program.value(value);
            let is_name =
                instr.name.is_none() || instr.name.as_deref() == name_of(self.program, value);
            let in_layers = match &instr.kind {
                InstrKind::Move(_) => self.layers.contains(&instr.origin.in_layers),
                InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::CollectiveEinsum(_) => instr.origin.in_layers == named.in_layers,
            };
            is_name && in_layers
        })
    }

    fn does_as(&self, instr: InstrId, value: ValueId) -> bool {
        self.plan.instruction(instr).fold == self.program.value(value).fold
            && self.reads_operands_of(instr, value)
    }

    /// Whether an instruction is the one that a folded block takes, or a chain of moves of it in
    /// the block. Nothing else is replaced by what the previous application hands on.
    fn is_taken(&self, mut instr: InstrId, fold: FoldId) -> bool {
        let Some(from) = self.plan.folds.get(fold.index()).map(|fold| fold.from) else {
            return false;
        };
        while instr != from {
            let moved = self.plan.instruction(instr);
            match (&moved.kind, moved.operands.first()) {
                (InstrKind::Move(_), Some(operand)) if moved.fold == Some(fold) => instr = *operand,
                (
                    InstrKind::Move(_)
                    | InstrKind::Parameter(_)
                    | InstrKind::Constant(_)
                    | InstrKind::Op(_)
                    | InstrKind::CollectiveEinsum(_),
                    _,
                ) => return false,
            }
        }
        true
    }

    fn reads_operands_of(&self, instr: InstrId, value: ValueId) -> bool {
        let (has, wants) =
            (&self.plan.instruction(instr).operands, self.program.value(value).def.operands());
        let stand_for = |has: [InstrId; 2], wants: &[ValueId]| {
            (0..2).all(|i| self.stands_for(has[i], wants[i]))
        };
        match (has.as_slice(), wants) {
            (&[one, other], [_, _]) => {
                stand_for([one, other], wants)
                    || (self.commutes(value) && stand_for([other, one], wants))
            }
            (has, wants) => {
                has.len() == wants.len()
                    && has.iter().zip(wants).all(|(has, wants)| self.stands_for(*has, *wants))
            }
        }
    }

    /// Whether the operands of a value may stand in any order: a rule may write them in another
    /// order than the plan does.
    fn commutes(&self, value: ValueId) -> bool {
        let Def::Op { op, operands } = &self.program.value(value).def else { return false };
        let ty = |id: &ValueId| (&self.program.value(*id).dims, self.program.value(*id).dtype);
        let are_alike = || operands.windows(2).all(|two| ty(&two[0]) == ty(&two[1]));
        *op == Op::Einsum || commutes(op) && are_alike()
    }

    /// Whether an instruction stands for a value: it does what the value is defined as, or moves an
    /// instruction that does; for a pinned value also in a layout that the pin allows.
    fn stands_for(&self, instr: InstrId, value: ValueId) -> bool {
        match &self.program.value(value).def {
            Def::Pin { operand, pattern, written } => {
                if let Some(known) = self.known.borrow().get(&(instr, value)) {
                    return *known;
                }
                let mut moved = self.along_moves(instr, !self.program.strict);
                let pinned =
                    |at: InstrId| self.admits(pattern, value, self.plan.instruction(at).layout);
                let fold = self
                    .program
                    .value(value)
                    .fold
                    .filter(|fold| self.program.entry(*fold) == Some(value));
                let stands = if self.program.strict && *written {
                    // In a strict layer the moves that a `reshard` asks for end at this
                    // instruction.
                    pinned(instr)
                        && self.along_moves(instr, true).any(|at| self.stands_for(at, *operand))
                } else {
                    moved.any(|at| pinned(at) && self.stands_for(at, *operand))
                };
                let stands = stands && fold.is_none_or(|fold| self.is_taken(instr, fold));
                self.known.borrow_mut().insert((instr, value), stands);
                stands
            }
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => self
                .along_moves(instr, !self.program.strict)
                .any(|at| self.does[at.index()].contains(&value)),
        }
    }

    /// An instruction, then what it moves, then what that moves, and so on; only itself where
    /// `moves` is false.
    fn along_moves(&self, instr: InstrId, moves: bool) -> impl Iterator<Item = InstrId> + '_ {
        std::iter::successors(Some(instr), move |at| {
            let instr = self.plan.instruction(*at);
            match &instr.kind {
                InstrKind::Move(_) if moves => instr.operands.first().copied(),
                InstrKind::Move(_)
                | InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::CollectiveEinsum(_) => None,
            }
        })
    }

    fn admits(&self, pattern: &LayoutPattern, value: ValueId, layout: Layout) -> bool {
        let labelled = match pattern.label {
            Some(LabelId(label)) => {
                let seen = label_layout(&self.program.value(value).dims, layout);
                let known = self.labels.get(label as usize);
                known.is_some_and(|known| known.is_none_or(|known| known == seen))
            }
            None => true,
        };
        labelled && pattern.admits(layout)
    }
}

/// The name of a value in the source: its own, or that of a `let` that pins it.
fn name_of(program: &Program, value: ValueId) -> Option<&str> {
    let is_pin = |id: &ValueId| match &program.value(*id).def {
        Def::Pin { operand, written, .. } => !written && *operand == value,
        Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => false,
    };
    let own = program.value(value).name.as_deref();
    own.or_else(|| {
        program.value_ids().filter(is_pin).find_map(|id| program.value(id).name.as_deref())
    })
}
