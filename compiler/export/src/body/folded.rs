//! Folded blocks: a function of one application, and a loop that calls it for each application.

use shard_ir::{FoldId, InstrId, InstrKind, Plan, PlanFold};

use super::PythonBody;
use crate::error::ExportError;
use crate::names::identifier;
use crate::python::{Py, call_line, returned, unpacked};
use crate::words::Repeated;

impl PythonBody<'_> {
    /// Writes a folded block: the function of one application, and the loop that applies it to the
    /// stacked weights.
    pub(super) fn fold(
        &mut self,
        fold: FoldId,
        first: InstrId,
        last: InstrId,
    ) -> Result<(), ExportError> {
        let block = Block::new(self.plan, &self.needed, fold, first, last);
        let weights = block.weights.iter();
        let stacks = weights.map(|id| self.value(*id)).collect::<Result<Vec<_>, _>>()?;
        let carried = self.value(block.of.from)?;
        let function = self.one_application(&block)?;
        let name = self.name_for(block.of.to, last.index());
        let kept = (!block.states.is_empty()).then(|| self.taken.fresh("kept"));
        let free = ["stack", "state"]
            .map(|name| self.taken.free(name, |name| self.holds.contains_key(name)));
        self.text.push_str(&self.words.repeated(Repeated {
            indent: self.indent,
            function: &function,
            carried,
            stacks,
            times: block.of.repeat,
            name: &name,
            states: kept.as_deref(),
            free: [&free[0], &free[1]],
        }));
        for (at, id) in block.states.iter().enumerate() {
            self.expressions[id.index()] =
                kept.as_ref().map(|kept| Py::atom(format!("{kept}[{at}]")));
        }
        self.hold(block.of.to, &name);
        Ok(())
    }

    /// Writes the function of one application of a block, and gives the name of the function.
    fn one_application(&mut self, block: &Block<'_>) -> Result<String, ExportError> {
        let outer_text = std::mem::take(&mut self.text);
        let outer_names = (std::mem::take(&mut self.holds), self.taken.clone());
        // A value from outside has the same name inside, so no value of the block may take it.
        for id in &block.outside {
            if let Some(Py::Atom(name)) = &self.expressions[id.index()] {
                self.taken.take(name);
            }
        }
        let function = self.taken.fresh(&identifier(self.words, &block.of.layer));
        self.indent += 4;
        let takes = self.body_of_one(block)?;
        self.indent -= 4;
        let inner = std::mem::replace(&mut self.text, outer_text);
        (self.holds, self.taken) = outer_names;
        self.taken.take(&function);
        let pad = " ".repeat(self.indent);
        let head = call_line(self.indent, &format!("def {function}"), &takes, ":");
        let times = block.of.repeat;
        self.text.push_str(&format!(
            "\n{head}{pad}    \"\"\"One of {times} applications.\"\"\"\n{inner}\n"
        ));
        Ok(function)
    }

    /// Writes the body of that function, and gives the names of its two parameters: the value that
    /// is handed on, and the application's own weights.
    fn body_of_one(&mut self, block: &Block<'_>) -> Result<[String; 2], ExportError> {
        let carry = self.name_for(block.of.from, block.first.index());
        self.hold(block.of.from, &carry);
        let mut names = Vec::new();
        for weight in &block.weights {
            let name = self.name_for(*weight, 0);
            self.hold(*weight, &name);
            names.push(name);
        }
        let stack = self.taken.free("stack", |name| self.holds.contains_key(name));
        self.text.push_str(&unpacked(self.indent, &names, &stack));
        block.weights.iter().for_each(|weight| self.open_parameter(*weight));
        for id in &block.inside {
            self.instruction(*id)?;
        }
        let state = |id: &InstrId| Ok(self.shown(*id, self.value(*id)?));
        let states = block.states.iter().map(state).collect::<Result<Vec<_>, ExportError>>()?;
        let states = if states.is_empty() { Py::atom("None") } else { Py::Tuple(states) };
        let handed_on = self.value(block.of.to)?;
        self.text.push_str(&returned(self.indent, &[handed_on, states]));
        Ok([carry, if block.weights.is_empty() { "_".to_string() } else { stack }])
    }
}

/// A folded block, and what its function reads and gives.
struct Block<'p> {
    of: &'p PlanFold,
    first: InstrId,
    /// The instructions that run in it, in order.
    inside: Vec<InstrId>,
    /// Its own parameters that an instruction inside reads.
    weights: Vec<InstrId>,
    /// What instructions inside read from outside, less its parameters and the value that the
    /// application before hands on.
    outside: Vec<InstrId>,
    /// Instructions inside whose values are states of the plan.
    states: Vec<InstrId>,
}

impl<'p> Block<'p> {
    fn new(
        plan: &'p Plan,
        needed: &[bool],
        fold: FoldId,
        first: InstrId,
        last: InstrId,
    ) -> Block<'p> {
        let of = &plan.folds[fold.index()];
        let is_inside = |id: &InstrId| plan.runs_in(*id) == Some(fold);
        let inside: Vec<InstrId> = (first.0..=last.0).map(InstrId).filter(is_inside).collect();
        let read: Vec<InstrId> = inside
            .iter()
            .filter(|id| needed[id.index()])
            .flat_map(|id| plan.instruction(*id).operands.clone())
            .collect();
        let is_weight = |id: &InstrId| {
            let instr = plan.instruction(*id);
            matches!(instr.kind, InstrKind::Parameter(_)) && instr.fold == Some(fold)
        };
        let is_outside = |id: &InstrId| !is_inside(id) && *id != of.from && !is_weight(id);
        let states = plan.outputs.iter().filter(|output| output.state).map(|output| output.id);
        Block {
            of,
            first,
            inside,
            weights: plan.ids().filter(|id| is_weight(id) && read.contains(id)).collect(),
            outside: read.iter().copied().filter(is_outside).collect(),
            states: states.filter(is_inside).collect(),
        }
    }
}
