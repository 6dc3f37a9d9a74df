//! The body of a function of StableHLO: what each device does, instruction by instruction, under
//! the names of the source.

use shard_ir::{Collective, FoldId, InstrId, InstrKind, MeshShape, Plan, PlanOutput};

use super::builder::{Builder, Value, names, types};
use super::merge::softmax_merge;
use super::moves::HloMove;
use super::ops::{HloOps, Operand};
use crate::body::needed;
use crate::comments::comment_on_devices;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::layer::plain;
use crate::specs::terms;

/// The body of a function of StableHLO while it is written.
pub(crate) struct HloBody<'p> {
    plan: &'p Plan,
    ops: HloOps<'p>,
    /// For each instruction, whether a result or a folded block depends on its value.
    needed: Vec<bool>,
    /// For each instruction the value of the text that holds its block, as long as that may be
    /// read.
    values: Vec<Option<Value>>,
    /// For each attention over a device's own keys the value of the text that holds its statistics.
    statistics: Vec<Option<Value>>,
}

impl<'p> HloBody<'p> {
    pub(crate) fn new(plan: &'p Plan, floats: Floats) -> HloBody<'p> {
        HloBody {
            plan,
            ops: HloOps { plan, floats },
            needed: needed(plan),
            values: vec![None; plan.instructions.len()],
            statistics: vec![None; plan.instructions.len()],
        }
    }

    /// Writes all instructions and the return. `parameters` are the parameters with the values of
    /// the arguments.
    pub(crate) fn write(
        mut self,
        b: &mut Builder,
        parameters: &[(InstrId, Value)],
    ) -> Result<(), ExportError> {
        for (id, value) in parameters {
            // A parameter of a folded block is a stack, of which each application opens its slice.
            let whole = self.plan.instruction(*id).fold.is_some();
            let value = if whole { value.clone() } else { self.opened(b, *id, value) };
            self.values[id.index()] = Some(value);
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
                    self.fold(b, fold, id, last)?;
                    next = last.index() + 1;
                }
                None => self.instruction(b, id)?,
            }
        }
        let results = self.plan.outputs.iter().map(|output| self.result(b, output));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        b.line(&format!("sdy.return {} : {}", names(&results), types(&results)));
        Ok(())
    }

    /// The value of the text for an instruction; a constant is written anew at each reader.
    fn value(&self, b: &mut Builder, id: InstrId) -> Result<Value, ExportError> {
        if let InstrKind::Constant(number) = self.plan.instruction(id).kind {
            return Ok(b.splat(self.plan.number(number), &[], self.ops.element(id)));
        }
        self.values[id.index()]
            .clone()
            .ok_or(ExportError::Internal("a value is read that was not made"))
    }

    /// The name of an instruction in the source, without the name of the folded block that it is
    /// in.
    fn called(&self, id: InstrId) -> String {
        let instr = self.plan.instruction(id);
        match (&instr.name, instr.fold) {
            (Some(name), Some(fold)) => {
                let block = format!("{}.", self.plan.folds[fold.index()].layer);
                name.strip_prefix(&block).unwrap_or(name).to_string()
            }
            (Some(name), None) => name.clone(),
            (None, _) => format!("t{}", id.0),
        }
    }

    fn instruction(&mut self, b: &mut Builder, id: InstrId) -> Result<(), ExportError> {
        let instr = self.plan.instruction(id);
        if !self.needed[id.index()] {
            return Ok(());
        }
        match instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => return Ok(()),
            InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => {}
        }
        let said = format!("{}: {}", self.called(id), comment_on_devices(self.plan, id));
        let instead = match (&instr.kind, instr.operands.first()) {
            (InstrKind::Move(collective), Some(from)) => {
                self.moved(id, *from, &self.sizes(id)).instead(collective)?
            }
            (InstrKind::Move(_), None) => return Err(ExportError::Internal("a move of nothing")),
            (
                InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::CollectiveEinsum(_),
                _,
            ) => None,
        };
        let said = instead.map_or(said.clone(), |instead| format!("{said}; {instead}"));
        b.line(&format!("// {}", plain(&said)));
        let since = b.place();
        let operands = instr
            .operands
            .iter()
            .map(|o| {
                let statistics = self.statistics[o.index()].clone();
                Ok(Operand { id: *o, value: self.value(b, *o)?, statistics })
            })
            .collect::<Result<Vec<_>, ExportError>>()?;
        let (value, statistics) = self.made(b, id, &operands)?;
        if value.shape != self.plan.local_sizes(id) || value.element != self.ops.element(id) {
            return Err(ExportError::Internal("an op gave a block of the wrong type"));
        }
        let value = b.named(value, &self.called(id), since);
        self.values[id.index()] = Some(value);
        self.statistics[id.index()] = statistics;
        Ok(())
    }

    /// The value that an instruction makes, and the statistics of an attention over a device's own
    /// keys.
    fn made(
        &self,
        b: &mut Builder,
        id: InstrId,
        operands: &[Operand],
    ) -> Result<(Value, Option<Value>), ExportError> {
        match &self.plan.instruction(id).kind {
            InstrKind::Op(op) => {
                if let Some([value, statistics]) = self.ops.op_of_part(b, op, id, operands)? {
                    return Ok((value, Some(statistics)));
                }
                Ok((self.ops.op(b, op, id, operands)?, None))
            }
            InstrKind::CollectiveEinsum(fused) => {
                Ok((self.ops.looped(b, fused, id, operands)?, None))
            }
            InstrKind::Move(collective) => {
                let operand = operands.first().ok_or(ExportError::Internal("a move of nothing"))?;
                let sizes = self.sizes(id);
                let moved = self.moved(id, operand.id, &sizes);
                if let (Collective::SoftmaxMerge { dim, axes, statistics }, Some(known)) =
                    (collective, &operand.statistics)
                {
                    return Ok(softmax_merge(
                        b,
                        &moved,
                        &operand.value,
                        known,
                        *dim,
                        axes,
                        *statistics,
                    ));
                }
                Ok((moved.write(b, collective, &operand.value)?, None))
            }
            InstrKind::Parameter(_) | InstrKind::Constant(_) => {
                Err(ExportError::Internal("a parameter that is made"))
            }
        }
    }

    fn sizes(&self, id: InstrId) -> Vec<u64> {
        self.plan.sizes(&self.plan.instruction(id).dims)
    }

    fn moved<'a>(&'a self, id: InstrId, from: InstrId, sizes: &'a [u64]) -> HloMove<'a> {
        HloMove {
            shape: MeshShape { mesh: &self.plan.mesh, sizes },
            from: self.plan.instruction(from).layout,
            to: self.plan.instruction(id).layout,
        }
    }

    /// The term of this device of a partial parameter, which has one dim of size 1 or two in front.
    fn opened(&self, b: &mut Builder, id: InstrId, value: &Value) -> Value {
        let shape = self.plan.local_sizes(id);
        if value.shape == shape {
            return value.clone();
        }
        let term = self.plan.layout_text(id);
        b.line(&format!("// {}: this device's term of {}", plain(&self.called(id)), plain(&term)));
        b.reshape(value, &shape)
    }

    /// A value as it leaves the function: a partial value gets dims of size 1 in front of its term.
    fn shown(&self, b: &mut Builder, id: InstrId, value: &Value) -> Value {
        let layout = self.plan.instruction(id).layout;
        let partial = terms(&self.plan.mesh, layout).iter().flatten().count();
        let shape: Vec<u64> = vec![1; partial].into_iter().chain(value.shape.clone()).collect();
        b.reshape(value, &shape)
    }

    /// What a folded block reads from outside: its own weights and caches, which are stacks, and
    /// values that are the same for all applications.
    fn read_from_outside(&self, fold: FoldId, first: InstrId, last: InstrId) -> [Vec<InstrId>; 2] {
        let plan = self.plan;
        let inside = |id: InstrId| plan.runs_in(id) == Some(fold);
        let [mut stacks, mut same] = [Vec::new(), Vec::new()];
        let runs = (first.0..=last.0).map(InstrId);
        let runs = runs.filter(|id| inside(*id) && self.needed[id.index()]);
        for id in runs.flat_map(|id| plan.instruction(id).operands.clone()) {
            let instr = plan.instruction(id);
            if inside(id) || id == plan.folds[fold.index()].from {
                continue;
            }
            let list = match instr.kind {
                InstrKind::Constant(_) => continue,
                InstrKind::Parameter(_) if instr.fold == Some(fold) => &mut stacks,
                InstrKind::Parameter(_)
                | InstrKind::Op(_)
                | InstrKind::Move(_)
                | InstrKind::CollectiveEinsum(_) => &mut same,
            };
            if !list.contains(&id) {
                list.push(id);
            }
        }
        [stacks, same]
    }

    /// Writes a folded block as a loop over its applications. Each turn takes the value that the
    /// one before hands on, reads its slice of the stacks of weights and caches, and writes its
    /// slice of the stacks of states.
    fn fold(
        &mut self,
        b: &mut Builder,
        fold: FoldId,
        first: InstrId,
        last: InstrId,
    ) -> Result<(), ExportError> {
        let plan = self.plan;
        let block = &plan.folds[fold.index()];
        let inside = |id: &InstrId| plan.runs_in(*id) == Some(fold);
        let all = || (first.0..=last.0).map(InstrId).filter(inside);
        let [stacks, same] = self.read_from_outside(fold, first, last);
        let kept: Vec<InstrId> =
            plan.outputs.iter().filter(|o| o.state && inside(&o.id)).map(|o| o.id).collect();

        b.line(&format!("// {}: {} applications", plain(&block.layer), block.repeat));
        let mut outside: Vec<(String, Value)> =
            vec![(self.called(block.from), self.value(b, block.from)?)];
        for id in stacks.iter().chain(&same) {
            outside.push((self.called(*id), self.value(b, *id)?));
        }
        for id in &kept {
            let layout = plan.instruction(*id).layout;
            let partial = terms(&plan.mesh, layout).iter().flatten().count();
            let local = plan.local_sizes(*id);
            let shape = [&[block.repeat][..], &vec![1; partial], &local].concat();
            outside.push((self.called(*id), b.splat(0.0, &shape, self.ops.element(*id))));
        }
        let carried: Vec<(&str, Value)> =
            outside.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let before = self.values.clone();
        let after = b.turns(0..block.repeat, &carried, |b, turn, values| {
            let (carry, rest) = values.split_first().ok_or(NO_CARRY)?;
            let (of_stacks, rest) = rest.split_at(stacks.len());
            let (of_same, of_kept) = rest.split_at(same.len());
            self.values[block.from.index()] = Some(carry.clone());
            for (id, value) in same.iter().zip(of_same) {
                self.values[id.index()] = Some(value.clone());
            }
            for (id, stack) in stacks.iter().zip(of_stacks) {
                let one = b.dynamic_slice(stack, 0, turn, 1);
                let one = b.reshape(&one, &stack.shape[1..]);
                self.values[id.index()] = Some(self.opened(b, *id, &one));
            }
            for id in all() {
                self.instruction(b, id)?;
            }
            let mut given = vec![self.value(b, block.to)?];
            given.extend_from_slice(of_stacks);
            given.extend_from_slice(of_same);
            for (id, stack) in kept.iter().zip(of_kept) {
                let state = self.value(b, *id)?;
                let state = self.shown(b, *id, &state);
                let shape = [&[1][..], &state.shape].concat();
                let state = b.reshape(&state, &shape);
                given.push(b.update(stack, &state, 0, turn));
            }
            Ok(given)
        })?;
        self.values = before;
        let states = &after[1 + stacks.len() + same.len()..];
        for (id, state) in kept.iter().zip(states) {
            self.values[id.index()] = Some(state.clone());
        }
        self.values[block.to.index()] = after.first().cloned();
        Ok(())
    }

    /// A result as the function returns it. The dims of terms stand in front of a partial result,
    /// and in front of these the dim of the applications of a folded block.
    fn result(&self, b: &mut Builder, output: &PlanOutput) -> Result<Value, ExportError> {
        let instr = self.plan.instruction(output.id);
        let value = self.value(b, output.id)?;
        let places: Option<Vec<usize>> =
            output.dims.iter().map(|d| instr.dims.iter().position(|i| i == d)).collect();
        let places =
            places.ok_or(ExportError::Internal("a result has a dim that its value lacks"))?;
        let is_stack = output.state && self.plan.runs_in(output.id).is_some();
        if !is_stack {
            let ordered = b.transpose(&value, &places);
            return Ok(self.shown(b, output.id, &ordered));
        }
        let front = value.shape.len() - places.len();
        let order: Vec<usize> =
            (0..front).chain(places.iter().map(|place| place + front)).collect();
        Ok(b.transpose(&value, &order))
    }
}

const NO_CARRY: ExportError = ExportError::Internal("a folded block that takes nothing");
