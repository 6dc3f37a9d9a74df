//! The folded blocks of a plan: the conditions that they must meet, and the plan with all
//! applications written out.

use crate::never;
use crate::plan::{InstrId, InstrKind, Instruction, Plan, PlanOutput};
use crate::program::FoldId;

/// The ways in which a folded block can be wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FoldError {
    /// An instruction is in a block that the plan does not declare.
    #[error("%{} is in folded block {}, which is not declared", .0.0, .1.0)]
    Undeclared(InstrId, FoldId),
    /// A block has fewer than two applications.
    #[error("folded block {} has {} applications: at least 2", .0.0, .1)]
    Repeat(FoldId, u64),
    /// A block has no instruction that runs.
    #[error("folded block {} is empty", .0.0)]
    Empty(FoldId),
    /// The instructions of a block do not stand together.
    #[error("%{} stands between the instructions of folded block {}", .0.0, .1.0)]
    Between(InstrId, FoldId),
    /// The value that the first application takes is not made before the block.
    #[error("%{}, which folded block {} takes, is not made before it", .0.0, .1.0)]
    From(InstrId, FoldId),
    /// The value that is handed on is not made in the block.
    #[error("%{}, which folded block {} hands on, is not made in it", .0.0, .1.0)]
    To(InstrId, FoldId),
    /// The value that is handed on has another type or layout than the one that is taken.
    #[error(
        "%{} cannot be handed on in place of %{}: dims, dtype and layout have to be the same",
        to.0, from.0
    )]
    Carried {
        /// What the first application takes.
        from: InstrId,
        /// What each application hands on.
        to: InstrId,
    },
    /// A value of a block is read outside of it. Only the value that the last application gives may
    /// be read there, and only behind the block.
    #[error("%{} reads %{}, which is inside folded block {}", reader.0, value.0, fold.0)]
    ReadOutside {
        /// What reads it.
        reader: InstrId,
        /// What is read.
        value: InstrId,
        /// The block.
        fold: FoldId,
    },
    /// A result of the layer is a value of a block, but not the one that the last application
    /// gives.
    #[error("result {0} is a value inside a folded block")]
    Result(String),
}

/// Checks the folded blocks of a plan whose operands all exist.
pub(crate) fn verify_folds(plan: &Plan) -> Result<(), FoldError> {
    let undeclared =
        |id: &InstrId| plan.instruction(*id).fold.filter(|fold| fold.index() >= plan.folds.len());
    if let Some((id, fold)) = plan.ids().find_map(|id| Some((id, undeclared(&id)?))) {
        return Err(FoldError::Undeclared(id, fold));
    }
    let ranges = plan.fold_ranges();
    for (at, (fold, range)) in plan.folds.iter().zip(&ranges).enumerate() {
        let id = FoldId(at as u16);
        if fold.repeat < 2 {
            return Err(FoldError::Repeat(id, fold.repeat));
        }
        let (first, last) = range.ok_or(FoldError::Empty(id))?;
        verify_fold(plan, id, first, last)?;
    }
    for id in plan.ids() {
        for operand in &plan.instruction(id).operands {
            let Some(fold) = plan
                .instruction(*operand)
                .fold
                .filter(|fold| plan.instruction(id).fold != Some(*fold))
            else {
                continue;
            };
            let behind = ranges[fold.index()].is_some_and(|(_, last)| id > last);
            if plan.folds[fold.index()].to != *operand || !behind {
                return Err(FoldError::ReadOutside { reader: id, value: *operand, fold });
            }
        }
    }
    let inside = |output: &&PlanOutput| {
        let fold = plan.instructions.get(output.id.index()).and_then(|instr| instr.fold);
        !output.state && fold.is_some_and(|fold| plan.folds[fold.index()].to != output.id)
    };
    match plan.outputs.iter().find(inside) {
        Some(output) => Err(FoldError::Result(output.name.clone())),
        None => Ok(()),
    }
}

/// Checks a folded block, of which `first` is the first instruction that runs and `last` the last.
fn verify_fold(plan: &Plan, id: FoldId, first: InstrId, last: InstrId) -> Result<(), FoldError> {
    let fold = &plan.folds[id.index()];
    let is_free = |at: &InstrId| {
        matches!(plan.instruction(*at).kind, InstrKind::Constant(_) | InstrKind::Parameter(_))
    };
    let between =
        (first.0..=last.0).map(InstrId).find(|at| plan.runs_in(*at) != Some(id) && !is_free(at));
    if let Some(at) = between {
        return Err(FoldError::Between(at, id));
    }
    let from = plan
        .instructions
        .get(fold.from.index())
        .filter(|from| fold.from < first && from.fold != Some(id));
    let from = from.ok_or(FoldError::From(fold.from, id))?;
    let to =
        plan.instructions.get(fold.to.index()).filter(|to| fold.to <= last && to.fold == Some(id));
    let to = to.ok_or(FoldError::To(fold.to, id))?;
    if (&from.dims, from.dtype, from.layout) == (&to.dims, to.dtype, to.layout) {
        Ok(())
    } else {
        Err(FoldError::Carried { from: fold.from, to: fold.to })
    }
}

/// A plan with every application of its folded blocks written out.
#[derive(Clone, PartialEq, Debug)]
pub struct Unrolled {
    /// The plan without folded blocks. An instruction that is there once for each application has
    /// the number of the application in its name: `block.w_q.0`.
    pub plan: Plan,
    /// For each instruction the instruction of the folded plan that it comes from.
    pub of: Vec<InstrId>,
}

impl Plan {
    /// The plan with its folded blocks written out, with at most `most` applications each. The
    /// blocks must be legal ([`verify`](crate::verify::verify)).
    pub fn unrolled(&self, most: u64) -> Unrolled {
        let mut writer = Writer {
            source: self,
            out: Unrolled {
                plan: Plan {
                    instructions: Vec::new(),
                    outputs: Vec::new(),
                    folds: Vec::new(),
                    ..self.clone()
                },
                of: Vec::new(),
            },
            made: vec![Vec::new(); self.instructions.len()],
        };
        let ranges = self.fold_ranges();
        let counts: Vec<usize> =
            self.folds.iter().map(|f| f.repeat.min(most.max(1)) as usize).collect();
        let mut next = 0;
        while next < self.instructions.len() {
            let id = InstrId(next as u32);
            let Some(fold) = self.runs_in(id) else {
                let of_block = self.instruction(id).fold.filter(|_| self.copies_of(id) > 1);
                let copies = of_block.map_or(1, |fold| counts[fold.index()]);
                (0..copies).for_each(|copy| writer.write(id, copy, copies));
                next += 1;
                continue;
            };
            let last = ranges[fold.index()].map_or(id, |(_, last)| last);
            for copy in 0..counts[fold.index()] {
                (id.0..=last.0).map(InstrId).for_each(|inner| {
                    // A number that stands between the instructions and is in no block is written
                    // once.
                    if copy == 0 || self.instruction(inner).fold.is_some() {
                        writer.write(inner, copy, 1);
                    }
                });
            }
            next = last.index() + 1;
        }
        for output in &self.outputs {
            let made = &writer.made[output.id.index()];
            let several = output.state && made.len() > 1;
            let wanted = if several {
                made.as_slice()
            } else {
                made.last().map_or(&[][..], std::slice::from_ref)
            };
            for (copy, id) in wanted.iter().enumerate() {
                let name = if several { numbered(&output.name, copy) } else { output.name.clone() };
                writer.out.plan.outputs.push(PlanOutput { name, id: *id, ..output.clone() });
            }
        }
        writer.out
    }
}

fn numbered(name: &str, copy: usize) -> String {
    format!("{name}.{copy}")
}

struct Writer<'a> {
    source: &'a Plan,
    out: Unrolled,
    /// For each instruction of the source the applications that are written so far.
    made: Vec<Vec<InstrId>>,
}

impl Writer<'_> {
    /// Writes one application of an instruction. Where `copies` is more than 1, its name gets its
    /// number.
    fn write(&mut self, id: InstrId, copy: usize, copies: usize) {
        let instr = self.source.instruction(id);
        let operands = instr.operands.iter().map(|o| self.operand(instr, *o, copy)).collect();
        let name = match copies {
            1 => instr.name.clone(),
            _ => instr.name.as_ref().map(|name| numbered(name, copy)),
        };
        self.made[id.index()].push(InstrId(self.out.plan.instructions.len() as u32));
        self.out.plan.instructions.push(Instruction {
            operands,
            name,
            fold: None,
            ..instr.clone()
        });
        self.out.of.push(id);
    }

    /// What an application reads for an operand: from its own block the value of the same
    /// application, from outside the last one.
    fn operand(&self, reader: &Instruction, operand: InstrId, copy: usize) -> InstrId {
        let carried = reader
            .fold
            .map(|fold| &self.source.folds[fold.index()])
            .filter(|fold| fold.from == operand);
        let (made, at) = match carried {
            Some(fold) if copy > 0 => (&self.made[fold.to.index()], Some(copy - 1)),
            _ => {
                let same =
                    reader.fold.is_some() && self.source.instruction(operand).fold == reader.fold;
                (&self.made[operand.index()], same.then_some(copy))
            }
        };
        // A number of the block that stands in front of the block is written once, and read by all
        // applications.
        at.and_then(|at| made.get(at)).or(made.last()).copied().unwrap_or_else(|| {
            never!("an operand that is not written before its reader", InstrId(0))
        })
    }
}
