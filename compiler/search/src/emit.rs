//! Turns a solution of the search into a [`Plan`]: instructions in program order, each with the
//! rule that made it.

mod pieces;

use std::collections::BTreeMap;

use shard_ir::attention::softmax_over;
use shard_ir::catalogue::Move;
use shard_ir::reason::{Reason, Rewriting};
use shard_ir::{
    Collective, Def, FoldId, Fused, InstrId, InstrKind, Instruction, Layout, Number, Op, Operand,
    Origin, Plan, PlanFold, PlanOutput, Program, Rules, ValueId,
};

use crate::LowerError;
use crate::kernel::{Kernel, Kernels, Link};
use crate::reason::{Reader, Reasons};
use crate::rules::{self, Rule, rule_of_loop, rule_of_move, rules_of_strategy};
use crate::search::{SettledValue, Solution};
use crate::strict::may_move_to;
use crate::table::{LayoutId, Source, Tables};

/// A plan, with what its moves move.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Emitted {
    pub(crate) plan: Plan,
    pub(crate) moves: Vec<MoveSite>,
}

/// A move of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MoveSite {
    pub(crate) id: InstrId,
    pub(crate) value: ValueId,
    pub(crate) collective: Collective,
    pub(crate) from: Layout,
    /// The layout in which the value is made.
    pub(crate) made_in: Layout,
    /// The first reader that the move leads to.
    pub(crate) reader: Reader,
    /// Whether the value is a composite in pieces, and the move completes one of its statistics.
    pub(crate) in_pieces: bool,
}

/// The plan of a solution.
///
/// Parameters come first, then the ops in program order. A kernel of several ops stands at the
/// place of its last op, behind all that it reads. A move that completes or cuts a value stands
/// right behind the op that makes the value, so that memory is free the sooner. Any other move
/// stands right before its first reader, so that memory is taken the later. A move that a `reshard`
/// alone asks for stands where the `reshard` does, so that a strict layer keeps the order of its
/// lines.
pub(crate) fn emit(
    kernels: &Kernels,
    tables: &Tables,
    solution: &Solution,
) -> Result<Emitted, LowerError> {
    let program = kernels.program.as_ref();
    let reasons = Reasons::new(kernels, tables, solution);
    let plan = Plan {
        name: program.name.clone(),
        repeat: program.repeat,
        phase: program.phase.as_ref().map(|phase| phase.name.clone()),
        hardware: program.hardware.clone(),
        mesh: program.mesh.clone(),
        dims: program.dims.clone(),
        instructions: Vec::new(),
        outputs: Vec::new(),
        folds: Vec::new(),
    };
    let mut emitter = Emitter {
        kernels,
        program,
        tables,
        solution,
        reasons,
        plan,
        moves: Vec::new(),
        made: BTreeMap::new(),
    };
    for id in program.parameters() {
        emitter.value(id)?;
    }
    for id in program.value_ids() {
        if matches!(program.value(id).def, Def::Op { .. } | Def::Pin { .. }) {
            emitter.value(id)?;
        }
    }
    for (i, (output, layout)) in program.outputs.iter().zip(&solution.outputs).enumerate() {
        let id = emitter.need(output.value, *layout, Reader::Output(i))?;
        let dims = output.dims.clone();
        emitter.plan.outputs.push(PlanOutput {
            name: output.name.clone(),
            id,
            dims,
            state: output.state,
        });
    }
    emitter.folds()?;
    emitter.plan.drop_dims_behind(program.declared_dims());
    let mut emitted = Emitted { plan: emitter.plan, moves: emitter.moves };
    for fold in 0..program.folds.len() {
        stand_together(&mut emitted, FoldId(fold as u16));
    }
    Ok(emitted)
}

/// Moves the instructions that stand between those of a folded block and are not of it: in front of
/// the block what it reads, behind it the rest.
fn stand_together(emitted: &mut Emitted, fold: FoldId) {
    let plan = &emitted.plan;
    let Some((first, last)) = plan.fold_ranges()[fold.index()] else { return };
    let mut needed = vec![false; plan.instructions.len()];
    for id in plan.ids().rev() {
        if needed[id.index()] || plan.runs_in(id) == Some(fold) {
            plan.instruction(id).operands.iter().for_each(|o| needed[o.index()] = true);
        }
    }
    let place = |id: &InstrId| match plan.instruction(*id).fold {
        _ if *id < first => 0,
        _ if *id > last => 4,
        within if within == Some(fold) => 2,
        _ if needed[id.index()] => 1,
        _ => 3,
    };
    let mut order: Vec<InstrId> = plan.ids().collect();
    order.sort_by_key(|id| (place(id), *id));
    let mut now = vec![InstrId::default(); order.len()];
    order.iter().enumerate().for_each(|(at, old)| now[old.index()] = InstrId(at as u32));
    let moved = |id: &mut InstrId| *id = now[id.index()];
    let mut instructions: Vec<Instruction> =
        order.iter().map(|id| plan.instruction(*id).clone()).collect();
    instructions.iter_mut().flat_map(|instr| &mut instr.operands).for_each(moved);
    emitted.plan.instructions = instructions;
    emitted.plan.outputs.iter_mut().for_each(|output| moved(&mut output.id));
    emitted.moves.iter_mut().for_each(|site| moved(&mut site.id));
    for fold in &mut emitted.plan.folds {
        moved(&mut fold.from);
        moved(&mut fold.to);
    }
}

struct Emitter<'a> {
    kernels: &'a Kernels,
    program: &'a Program,
    tables: &'a Tables,
    solution: &'a Solution,
    reasons: Reasons<'a>,
    plan: Plan,
    moves: Vec<MoveSite>,
    made: BTreeMap<(ValueId, LayoutId), InstrId>,
}

impl Emitter<'_> {
    /// Makes a value, if the plan has it, with the moves that stand right behind.
    fn value(&mut self, id: ValueId) -> Result<(), LowerError> {
        let Some(settled) = self.solution.values[id.index()].clone() else { return Ok(()) };
        let table = self.tables.of(id);
        let layout = table.layouts[settled.made_in as usize];
        let producer = &table.producers[settled.made_in as usize][settled.producer];
        match producer.source {
            Source::Given => {
                let (kind, rule) = match &self.program.value(id).def {
                    Def::Parameter { kind, .. } => (InstrKind::Parameter(*kind), rules::PARAMETER),
                    Def::Constant(number) => {
                        (InstrKind::Constant(Number::Given(*number)), rules::CONSTANT)
                    }
                    Def::Op { .. } | Def::Pin { .. } => {
                        return Err(LowerError::Internal(format!(
                            "value {id:?} is made, not given"
                        )));
                    }
                };
                let instr = self.push(id, kind, Vec::new(), layout, &[rule], None);
                self.made.insert((id, settled.made_in), instr);
            }
            Source::Pin => {
                let (operand, layout) = producer.reads[0];
                let instr = self.need(operand, layout, Reader::Value(id))?;
                self.made.insert((id, settled.made_in), instr);
                self.follow_up(id, &settled)?;
            }
            Source::Kernel(number, fused) => {
                let kernel = &self.kernels.of[id.index()][number];
                let read: Vec<LayoutId> = producer.reads.iter().map(|(_, l)| *l).collect();
                let instr = self.kernel(id, kernel, fused, &read, layout)?;
                self.made.insert((id, settled.made_in), instr);
                self.follow_up(id, &settled)?;
            }
        }
        Ok(())
    }

    /// Notes what each folded block takes and hands on.
    fn folds(&mut self) -> Result<(), LowerError> {
        for (at, fold) in self.program.folds.iter().enumerate() {
            let id = FoldId(at as u16);
            let made = |border: Option<ValueId>| -> Option<InstrId> {
                let value = border?;
                let settled = self.solution.values[value.index()].as_ref()?;
                self.made.get(&(value, settled.made_in)).copied()
            };
            let borders = made(self.program.entry(id)).zip(made(self.program.exit(id)));
            let (from, to) = borders
                .ok_or_else(|| LowerError::Internal(format!("folded block {at} has no border")))?;
            self.plan.folds.push(PlanFold {
                layer: fold.layer.clone(),
                repeat: fold.repeat,
                from,
                to,
            });
        }
        Ok(())
    }

    /// Adds the instructions of a kernel, and returns the last.
    fn kernel(
        &mut self,
        id: ValueId,
        kernel: &Kernel,
        fused: Option<Fused>,
        read: &[LayoutId],
        wanted: Layout,
    ) -> Result<InstrId, LowerError> {
        let internal = || does_not_type(id);
        let layouts: Vec<Layout> = kernel
            .operands
            .iter()
            .zip(read)
            .map(|(operand, layout)| self.tables.of(*operand).layouts[*layout as usize])
            .collect();
        let links =
            self.kernels.links(kernel, fused.as_ref(), &layouts, wanted).ok_or_else(internal)?;
        let mut ready = self.what_a_kernel_reads(id, kernel, read)?.into_iter();
        let mut made: BTreeMap<ValueId, InstrId> = BTreeMap::new();
        let mut last: Option<InstrId> = None;
        for (at, (op_value, link)) in kernel.chain.iter().zip(&links).enumerate() {
            let mut ids = Vec::new();
            for operand in self.program.value(*op_value).def.operands() {
                ids.push(match made.get(&self.kernels.origin_of(*operand)) {
                    Some(instr) => *instr,
                    None => ready.next().ok_or_else(internal)?,
                });
            }
            let in_ring = fused.is_some() && at < kernel.attention;
            let instr = if self.kernels.is_in_pieces(kernel, at, &link.inside) {
                self.pieces(*op_value, ids[0], link.inside[0]).ok_or_else(internal)?
            } else {
                self.link(kernel, at, link, ids, in_ring)?
            };
            made.insert(*op_value, instr);
            last = Some(instr);
        }
        last.ok_or_else(internal)
    }

    /// What the ops of a kernel read from outside it, in the order of the ops. Since they run as
    /// one, all of it is there before the first op.
    fn what_a_kernel_reads(
        &mut self,
        id: ValueId,
        kernel: &Kernel,
        read: &[LayoutId],
    ) -> Result<Vec<InstrId>, LowerError> {
        let mut reads = kernel.operands.iter().copied().zip(read.iter().copied());
        let mut ready = Vec::with_capacity(kernel.operands.len());
        for (link, op_value) in kernel.chain.iter().enumerate() {
            let operands = self.program.value(*op_value).def.operands();
            for _ in operands.iter().filter(|o| !self.kernels.is_fed(kernel, link, **o)) {
                let (value, layout) = reads.next().ok_or_else(|| does_not_type(id))?;
                ready.push(self.need(value, layout, Reader::Value(*op_value))?);
            }
        }
        Ok(ready)
    }

    /// Adds the instruction of the op at a place of a kernel, on these operands.
    fn link(
        &mut self,
        kernel: &Kernel,
        at: usize,
        link: &Link,
        operands: Vec<InstrId>,
        in_ring: bool,
    ) -> Result<InstrId, LowerError> {
        let id = kernel.chain[at];
        let Def::Op { op, .. } = &self.program.value(id).def else {
            return Err(does_not_type(id));
        };
        let in_attention = at < kernel.attention;
        let joins = matches!(op, Op::Concat { .. });
        let mut rules = self.rules_of(id, op, link);
        if in_attention {
            rules.push(if joins { rules::JOINED } else { rules::ATTENTION });
        } else if at > 0 {
            rules.push(rules::FUSED);
        }
        if in_ring {
            rules.push(rules::RING);
        } else {
            rules.extend(link.fused.as_ref().map(rule_of_loop));
        }
        let rewritten = self.kernels.made.get(&id);
        rules.splice(0..0, rewritten.map(|r| r.rule));
        let rewriting = rewritten.and_then(|r| r.reason.clone());
        let instr = match link.fused {
            None => {
                let why = rewriting.map(Reason::Rewritten);
                self.push(id, InstrKind::Op(op.clone()), operands, link.made, &rules, why)
            }
            Some(fused) => self.collective_einsum(id, fused, link, operands, &rules, rewriting)?,
        };
        if in_attention && (joins || softmax_over(op).is_some()) {
            self.plan.instructions[instr.index()].origin.attention = true;
        }
        Ok(instr)
    }

    /// The rules by which an op makes its result in the layouts of a link.
    fn rules_of(&self, id: ValueId, op: &Op, link: &Link) -> Vec<Rule> {
        let site = self.kernels.site(id);
        let seen = site.operands_in(&link.inside);
        let value = self.program.value(id);
        let result = Operand { dims: &value.dims, dtype: value.dtype, layout: link.made };
        rules_of_strategy(op, &seen, result, &self.program.mesh)
    }

    /// Adds an einsum with a collective in its loop, on operands in the layouts of a link.
    fn collective_einsum(
        &mut self,
        value: ValueId,
        fused: Fused,
        link: &Link,
        operands: Vec<InstrId>,
        rules: &[Rule],
        rewritten: Option<Rewriting>,
    ) -> Result<InstrId, LowerError> {
        let internal = || LowerError::Internal(format!("the loop of {value:?} does not type"));
        let given = link.given.as_slice();
        let layouts = self.kernels.loop_layouts(value, &fused, given).ok_or_else(internal)?;
        let why = self.reasons.of_loop(value, &fused, given);
        let reason = Reason::Looped { rewritten, why };
        let kind = InstrKind::CollectiveEinsum(fused);
        let id = self.push(value, kind, operands, layouts.result, rules, Some(reason));
        let moved = fused.gathered().map(|place| self.program.value(value).def.operands()[place]);
        let made_in = moved.and_then(|moved| {
            let settled = self.solution.values[moved.index()].as_ref()?;
            Some(self.tables.of(moved).layouts[settled.made_in as usize])
        });
        self.moves.push(MoveSite {
            id,
            value: moved.unwrap_or(value),
            collective: fused.collective(),
            from: fused.gathered().map_or(link.made, |place| given[place]),
            made_in: made_in.unwrap_or(link.made),
            reader: moved.map_or(Reader::Maker, |_| Reader::Value(value)),
            in_pieces: false,
        });
        Ok(id)
    }

    /// Adds the moves that complete or cut a value, right behind the op that makes it.
    fn follow_up(&mut self, id: ValueId, settled: &SettledValue) -> Result<(), LowerError> {
        for (from, to) in &settled.moves {
            let cuts = self.tables.of(id).arc(*from, *to).is_some_and(|arc| {
                arc.collective.row().combines || arc.collective.code() == Move::Slice
            });
            if cuts && self.made.contains_key(&(id, *from)) && !self.is_written(id, *from, *to) {
                self.take_move(id, *from, *to, Reader::Maker)?;
            }
        }
        Ok(())
    }

    /// The instruction that has a value in a layout, made now if it is not there yet.
    fn need(
        &mut self,
        value: ValueId,
        layout: LayoutId,
        reader: Reader,
    ) -> Result<InstrId, LowerError> {
        if let Some(instr) = self.made.get(&(value, layout)) {
            return Ok(*instr);
        }
        let internal = || {
            LowerError::Internal(format!(
                "the plan lacks value {value:?} in a layout that it reads"
            ))
        };
        let settled = self.solution.values[value.index()].as_ref().ok_or_else(internal)?;
        if settled.made_in == layout {
            // A constant, or a parameter, is made at its first use.
            self.value(value)?;
            return self.made.get(&(value, layout)).copied().ok_or_else(internal);
        }
        let from = settled
            .moves
            .iter()
            .find(|(_, to)| *to == layout)
            .map(|(from, _)| *from)
            .ok_or_else(internal)?;
        self.need(value, from, reader)?;
        self.take_move(value, from, layout, reader)
    }

    fn take_move(
        &mut self,
        value: ValueId,
        from: LayoutId,
        to: LayoutId,
        reader: Reader,
    ) -> Result<InstrId, LowerError> {
        if let Some(instr) = self.made.get(&(value, to)) {
            return Ok(*instr);
        }
        let internal =
            || LowerError::Internal(format!("the plan moves value {value:?} as no rule allows"));
        let settled = self.solution.values[value.index()].as_ref().ok_or_else(internal)?;
        let table = self.tables.of(value);
        let arc = table.arc(from, to).ok_or_else(internal)?;
        let (before, after) = (table.layouts[from as usize], table.layouts[to as usize]);
        let source = *self.made.get(&(value, from)).ok_or_else(internal)?;
        let why = self.reasons.of_move(value, arc);
        let kind = InstrKind::Move(arc.collective);
        debug_assert_ne!(before, after, "a move moves");
        let instr = self.push(
            value,
            kind,
            vec![source],
            after,
            &[rule_of_move(&arc.collective)],
            Some(why),
        );
        let cause = match reader {
            Reader::Maker => None,
            Reader::Value(id) => {
                Some((self.program.value(id).span, self.program.value(id).in_layers.clone()))
            }
            Reader::Output(i) => Some((self.program.outputs[i].span, Vec::new())),
        };
        if let Some((span, in_layers)) = cause {
            let origin = &mut self.plan.instructions[instr.index()].origin;
            origin.span = Some(span);
            origin.in_layers = in_layers;
        }
        self.made.insert((value, to), instr);
        self.plan.instructions[instr.index()].origin.written = self.is_written(value, from, to);
        let through = self.reasons.through(value, from, to);
        self.moves.push(MoveSite {
            id: instr,
            value,
            collective: arc.collective,
            from: before,
            made_in: table.layouts[settled.made_in as usize],
            reader: through.first().copied().unwrap_or(Reader::Maker),
            in_pieces: false,
        });
        Ok(instr)
    }

    /// Whether a move from one layout to another leads to `reshard`s alone.
    fn is_written(&self, value: ValueId, from: LayoutId, to: LayoutId) -> bool {
        let is_written = |r: &Reader| match r {
            Reader::Value(id) => may_move_to(self.program, *id),
            Reader::Maker | Reader::Output(_) => false,
        };
        let through = self.reasons.through(value, from, to);
        !through.is_empty() && through.iter().all(is_written)
    }

    fn push(
        &mut self,
        value: ValueId,
        kind: InstrKind,
        operands: Vec<InstrId>,
        layout: Layout,
        rules: &[Rule],
        reason: Option<Reason>,
    ) -> InstrId {
        let v = self.program.value(value);
        let id = InstrId(self.plan.instructions.len() as u32);
        self.plan.instructions.push(Instruction {
            kind,
            operands,
            name: name_of(self.program, value).map(str::to_owned),
            dims: v.dims.clone(),
            dtype: v.dtype,
            layout,
            origin: Origin {
                rules: Rules::of(rules.iter().map(|r| r.name)),
                reason,
                span: Some(v.span),
                in_layers: v.in_layers.clone(),
                written: false,
                piece_of: None,
                attention: false,
            },
            fold: v.fold,
        });
        id
    }
}

fn does_not_type(kernel: ValueId) -> LowerError {
    LowerError::Internal(format!("the kernel of {kernel:?} does not type"))
}

/// The name of a value in the source. A value that a `let` pins has the name of the pin.
pub(crate) fn name_of(program: &Program, value: ValueId) -> Option<&str> {
    program.value(value).name.as_deref().or_else(|| {
        program.value_ids().find_map(|id| match &program.value(id).def {
            Def::Pin { operand, written: false, .. } if *operand == value => {
                program.value(id).name.as_deref()
            }
            Def::Pin { .. } | Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => None,
        })
    })
}
