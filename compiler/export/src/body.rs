//! The body of a Python function: one line for each instruction, under the names of the source.

mod folded;

use std::collections::BTreeMap;

use shard_ir::{
    Collective, Dtype, InstrId, InstrKind, Layout, MeshShape, Op, Plan, PlanOutput, Reduction,
};

use crate::comments::comment;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::moved::PythonMove;
use crate::names::{Taken, identifier};
use crate::ops::numbers::number;
use crate::ops::{Named, PythonOps};
use crate::python::{Py, assignment, returned};
use crate::specs::{boundary_entries, terms};
use crate::words::Words;

/// How a function computes a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Each device computes on its own blocks.
    Devices,
    /// One program computes on whole tensors; each value that the plan moves is held to its layout.
    Constraints,
    /// One device computes on whole tensors, without layouts.
    Alone,
}

/// The body of a Python function while it is written.
pub(crate) struct PythonBody<'p> {
    plan: &'p Plan,
    ops: PythonOps<'p>,
    words: &'static dyn Words,
    form: Form,
    floats: Floats,
    /// For each instruction, whether a result or a folded block depends on its value.
    needed: Vec<bool>,
    /// For each instruction, the index of the last instruction that reads its value.
    last_read: Vec<usize>,
    /// For each instruction that is written, the expression that stands for its value.
    expressions: Vec<Option<Py>>,
    /// The instruction whose value a name holds at the line that is written.
    holds: BTreeMap<String, InstrId>,
    /// Names that no value may have: of functions, and of what is read from outside a function.
    taken: Taken,
    indent: usize,
    text: String,
}

/// The plan that the ops of a form are written from: with its layouts, or with all values whole.
pub(crate) fn seen_by(plan: &Plan, form: Form) -> Plan {
    let mut plan = plan.clone();
    match form {
        Form::Devices => {}
        Form::Constraints | Form::Alone => {
            for instr in &mut plan.instructions {
                instr.layout = Layout::REPLICATED;
            }
        }
    }
    plan
}

impl<'p> PythonBody<'p> {
    /// A body for a plan; `seen` is the same plan by [`seen_by`].
    pub(crate) fn new(
        words: &'static dyn Words,
        plan: &'p Plan,
        seen: &'p Plan,
        form: Form,
        floats: Floats,
    ) -> PythonBody<'p> {
        let needed = needed(plan);
        let mut body = PythonBody {
            plan,
            ops: PythonOps { plan: seen, words, floats, alone: form == Form::Alone },
            words,
            form,
            floats,
            last_read: Vec::new(),
            expressions: vec![None; plan.instructions.len()],
            needed,
            holds: BTreeMap::new(),
            taken: Taken::default(),
            indent: 4,
            text: String::new(),
        };
        body.last_read = body.last_reads();
        body
    }

    /// For each value the index of its last reader. A folded block reads a value from outside until
    /// the block ends; a result is read after everything else.
    fn last_reads(&self) -> Vec<usize> {
        let plan = self.plan;
        let ranges = plan.fold_ranges();
        let mut last: Vec<usize> = (0..plan.instructions.len()).collect();
        let mut read = |id: InstrId, at: usize| last[id.index()] = last[id.index()].max(at);
        for id in plan.ids().filter(|id| self.needed[id.index()]) {
            let block = plan.runs_in(id).and_then(|fold| Some((fold, ranges[fold.index()]?.1)));
            for operand in &plan.instruction(id).operands {
                read(*operand, id.index());
                if let Some((fold, end)) = block
                    && plan.runs_in(*operand) != Some(fold)
                {
                    read(*operand, end.index());
                }
            }
        }
        for (fold, range) in plan.folds.iter().zip(&ranges) {
            if let Some((_, end)) = range {
                read(fold.from, end.index());
                read(fold.to, end.index());
            }
        }
        plan.outputs.iter().for_each(|output| read(output.id, usize::MAX));
        for id in plan.ids().rev().filter(|id| self.is_alias(*id)) {
            let operand = plan.instruction(id).operands[0].index();
            last[operand] = last[operand].max(last[id.index()]);
        }
        last
    }

    /// Whether an instruction is a move that writes no line. On whole tensors a move only holds the
    /// value to a layout, and a partial layout holds it to none.
    fn is_alias(&self, id: InstrId) -> bool {
        let instr = self.plan.instruction(id);
        let is_move = matches!(instr.kind, InstrKind::Move(_));
        let is_idle = || match self.form {
            Form::Alone => true,
            // A value in host memory gets its layout when it is fetched.
            Form::Constraints => !instr.layout.is_complete() || self.plan.in_host_memory(id),
            Form::Devices => false,
        };
        is_move && is_idle()
    }

    /// Whether an op on whole tensors is held to its layout: an op that makes a dim of its own,
    /// split over axes. Neither a move nor the layouts of its operands would tell XLA of the split.
    fn is_held(&self, id: InstrId, op: &Op) -> bool {
        let instr = self.plan.instruction(id);
        let own = op.own_dim().and_then(|own| instr.dims.iter().position(|dim| *dim == own));
        let is_split = own.is_some_and(|at| !instr.layout.axes_of(at).is_empty());
        self.form == Form::Constraints && is_split && instr.layout.is_complete()
    }

    /// Writes the body and gives its text. `parameters` are the parameters with the names of the
    /// arguments.
    pub(crate) fn write(mut self, parameters: &[(InstrId, String)]) -> Result<String, ExportError> {
        for (id, name) in parameters {
            self.hold(*id, name);
        }
        for (id, _) in parameters {
            if self.plan.instruction(*id).fold.is_none() {
                self.open_parameter(*id);
            }
        }
        for id in self.plan.ids() {
            if let InstrKind::Constant(value) = self.plan.instruction(id).kind
                && self.needed[id.index()]
            {
                self.constant(id, self.plan.number(value));
            }
        }
        let ranges = self.plan.fold_ranges();
        let mut next = 0;
        while next < self.plan.instructions.len() {
            let id = InstrId(next as u32);
            next += 1;
            match self.plan.runs_in(id) {
                Some(fold) => {
                    let (_, last) =
                        ranges[fold.index()].ok_or(ExportError::Internal("an empty block"))?;
                    self.fold(fold, id, last)?;
                    next = last.index() + 1;
                }
                None => self.instruction(id)?,
            }
        }
        let results = self
            .plan
            .outputs
            .iter()
            .map(|output| self.result(output))
            .collect::<Result<Vec<_>, _>>()?;
        self.text.push_str(&returned(self.indent, &results));
        Ok(self.text)
    }

    fn hold(&mut self, id: InstrId, name: &str) {
        self.holds.insert(name.to_string(), id);
        self.expressions[id.index()] = Some(Py::atom(name));
    }

    /// The name for a value that is assigned at instruction `at`: its own name, with a number
    /// behind it while another value of that name is still read.
    fn name_for(&self, id: InstrId, at: usize) -> String {
        let instr = self.plan.instruction(id);
        let own = match (&instr.name, instr.fold) {
            (Some(name), Some(fold)) => {
                let block = format!("{}.", self.plan.folds[fold.index()].layer);
                identifier(self.words, name.strip_prefix(&block).unwrap_or(name))
            }
            (Some(name), None) => identifier(self.words, name),
            (None, _) => format!("t{}", id.0),
        };
        self.taken.free(&own, |name| {
            self.holds.get(name).is_some_and(|held| self.last_read[held.index()] > at)
        })
    }

    fn value(&self, id: InstrId) -> Result<Py, ExportError> {
        self.expressions[id.index()]
            .clone()
            .ok_or(ExportError::Internal("a value is read that was not made"))
    }

    fn named(&self, id: InstrId) -> Result<Vec<Named>, ExportError> {
        self.plan
            .instruction(id)
            .operands
            .iter()
            .map(|o| Ok(Named { id: *o, py: self.value(*o)? }))
            .collect()
    }

    /// The sizes of the dims of candidates and of terms that stand in front of a partial value at
    /// the boundary.
    fn terms_in_front(&self, layout: Layout) -> [Option<u64>; 2] {
        if self.words.terms_in_front() { terms(&self.plan.mesh, layout) } else { [None, None] }
    }

    /// Takes the term of this device out of a partial parameter, which has one dim of size 1 or two
    /// in front; in the other forms the terms are completed.
    fn open_parameter(&mut self, id: InstrId) {
        let Some(Py::Atom(name)) = self.expressions[id.index()].clone() else { return };
        let count = self.terms_in_front(self.plan.instruction(id).layout);
        let opened = match (self.form, count) {
            (_, [None, None]) | (Form::Alone, _) => return,
            (Form::Devices, [Some(_), Some(_)]) => Py::atom(format!("{name}[0, 0]")),
            (Form::Devices, _) => Py::atom(format!("{name}[0]")),
            (Form::Constraints, [None, Some(_)]) => {
                Py::call("jnp.sum", [Py::atom(&name)]).with("axis", Py::atom(0))
            }
            (Form::Constraints, [Some(_), None]) => {
                Py::call("jnp.max", [Py::atom(&name)]).with("axis", Py::atom(0))
            }
            (Form::Constraints, [Some(_), Some(_)]) => {
                let sums = Py::call("jnp.sum", [Py::atom(&name)]).with("axis", Py::atom(1));
                Py::call("jnp.max", [sums]).with("axis", Py::atom(0))
            }
        };
        let said = match self.form {
            Form::Devices => format!("this device's term: {}", self.plan.layout_text(id)),
            Form::Constraints | Form::Alone => "its terms, completed".to_string(),
        };
        self.text.push_str(&assignment(self.indent, &name, &opened, &said));
    }

    /// A number is written inline where only arithmetic with other values reads it; any other
    /// number gets a name.
    fn constant(&mut self, id: InstrId, value: f64) {
        let dtype = self.plan.instruction(id).dtype;
        let text = Py::atom(number(self.words, value, dtype));
        let readers = self.plan.ids().filter(|r| self.plan.instruction(*r).operands.contains(&id));
        let inline = readers.into_iter().all(|reader| {
            let instr = self.plan.instruction(reader);
            matches!(instr.kind, InstrKind::Op(Op::Binary(_)))
                && instr
                    .operands
                    .iter()
                    .any(|o| !matches!(self.plan.instruction(*o).kind, InstrKind::Constant(_)))
        }) && self.plan.outputs.iter().all(|output| output.id != id)
            && self.plan.folds.iter().all(|fold| fold.from != id);
        if inline {
            self.expressions[id.index()] = Some(text);
            return;
        }
        let name = self.name_for(id, 0);
        let made = self.words.scalar(text, self.ops.dtype(dtype));
        self.text.push_str(&assignment(self.indent, &name, &made, ""));
        // Its name is never given to another value, since any line may read the number.
        self.taken.take(&name);
        self.hold(id, &name);
    }

    fn instruction(&mut self, id: InstrId) -> Result<(), ExportError> {
        if !self.needed[id.index()] {
            return Ok(());
        }
        let instr = self.plan.instruction(id);
        if self.is_alias(id) {
            self.expressions[id.index()] = Some(self.value(instr.operands[0])?);
            return Ok(());
        }
        let operands = self.named(id)?;
        let name = self.name_for(id, id.index());
        let said = comment(self.plan, id, self.form);
        let (steps, instead) = match &instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => return Ok(()),
            InstrKind::Op(op) => {
                let made = self.ops.op(op, id, &operands)?;
                (vec![if self.is_held(id, op) { self.constrained(id, made) } else { made }], None)
            }
            InstrKind::CollectiveEinsum(fused) => match self.form {
                Form::Devices => (vec![self.ops.looped(fused, id, &operands)?], None),
                Form::Constraints | Form::Alone => {
                    let product = self.ops.op(&Op::Einsum, id, &operands)?;
                    let held = self.form == Form::Constraints && instr.layout.is_complete();
                    (vec![if held { self.constrained(id, product) } else { product }], None)
                }
            },
            InstrKind::Move(collective) => {
                let operand = operands.first().ok_or(ExportError::Internal("a move of nothing"))?;
                match self.form {
                    Form::Alone => return Err(ExportError::Internal("a move on one device")),
                    Form::Constraints => (vec![self.constrained(id, operand.py.clone())], None),
                    Form::Devices => {
                        self.sums(id, collective)?;
                        let moved = PythonMove {
                            shape: MeshShape {
                                mesh: &self.plan.mesh,
                                sizes: &self.plan.sizes(&instr.dims),
                            },
                            from: self.plan.instruction(operand.id).layout,
                            to: instr.layout,
                            dtype: instr.dtype,
                            floats: self.floats,
                        };
                        let written =
                            self.words.moved(&moved, collective, &operand.py, &Py::atom(&name))?;
                        (written.steps, written.instead)
                    }
                }
            }
        };
        let said = instead.map_or(said.clone(), |instead| format!("{said}; {instead}"));
        for (at, step) in steps.iter().enumerate() {
            // The value keeps its name, so there is nothing to assign.
            if matches!(step, Py::Atom(same) if *same == name) {
                continue;
            }
            let said = if at == 0 { said.as_str() } else { "" };
            self.text.push_str(&assignment(self.indent, &name, step, said));
        }
        self.hold(id, &name);
        Ok(())
    }

    /// Refuses a move that adds `f4` values where the system stores `f4` in another dtype: the sums
    /// would be no `f4`.
    fn sums(&self, id: InstrId, collective: &Collective) -> Result<(), ExportError> {
        let instr = self.plan.instruction(id);
        let adds = collective.row().combines && collective.terms().kind != Some(Reduction::Max);
        if !adds || instr.dtype != Dtype::F4 || self.words.computes(Dtype::F4, self.floats) {
            return Ok(());
        }
        Err(ExportError::Dtype {
            layer: self.plan.name.clone(),
            op: collective.name(),
            dtype: Dtype::F4,
            span: instr.origin.span,
        })
    }

    fn constrained(&self, id: InstrId, value: Py) -> Py {
        let instr = self.plan.instruction(id);
        let entries = boundary_entries(&self.plan.mesh, instr.layout, instr.dims.len(), false);
        Py::call("at", std::iter::once(value).chain(entries))
    }

    /// A value as it leaves the function: a partial value gets dims of size 1 in front of its term.
    fn shown(&self, id: InstrId, value: Py) -> Py {
        let layout = self.plan.instruction(id).layout;
        let partial = self.terms_in_front(layout).iter().flatten().count();
        match (self.form, partial, value) {
            (Form::Constraints | Form::Alone, _, value) | (Form::Devices, 0, value) => value,
            (Form::Devices, n, Py::Atom(name)) => {
                Py::atom(format!("{name}[{}]", vec!["None"; n].join(", ")))
            }
            (Form::Devices, n, value) => self.words.expanded(value, (0..n).collect()),
        }
    }

    fn result(&self, output: &PlanOutput) -> Result<Py, ExportError> {
        let instr = self.plan.instruction(output.id);
        let value = self.value(output.id)?;
        if output.state && instr.fold.is_some() {
            let stacked: Vec<usize> =
                output.dims.iter().filter_map(|d| instr.dims.iter().position(|i| i == d)).collect();
            return Ok(if stacked.iter().enumerate().all(|(at, place)| at == *place) {
                value
            } else {
                let partial = match self.form {
                    Form::Devices => self.terms_in_front(instr.layout).iter().flatten().count(),
                    Form::Constraints | Form::Alone => 0,
                };
                let places = (0..=partial).chain(stacked.iter().map(|place| place + partial + 1));
                self.words.transposed(value, places.collect())
            });
        }
        Ok(self.shown(output.id, self.ops.transposed(&instr.dims, &output.dims, value)?))
    }
}

/// For each instruction, whether a result or a folded block of the plan depends on its value.
pub(crate) fn needed(plan: &Plan) -> Vec<bool> {
    let mut needed = vec![false; plan.instructions.len()];
    plan.outputs.iter().for_each(|output| needed[output.id.index()] = true);
    plan.folds.iter().for_each(|fold| {
        needed[fold.from.index()] = true;
        needed[fold.to.index()] = true;
    });
    for id in plan.ids().rev() {
        if needed[id.index()] {
            plan.instruction(id).operands.iter().for_each(|operand| needed[operand.index()] = true);
        }
    }
    needed
}
