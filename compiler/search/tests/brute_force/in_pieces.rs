//! Composites over a split dim in the brute force: each is written out as a small plan, which is
//! priced like any plan.

use shard_ir::op::NORM_EPSILON;
use shard_ir::{
    AxisSet, Binary, Collective, Def, DimId, Dtype, InstrId, InstrKind, Instruction, Layout, Map,
    MeshShape, Norm, Number, Op, Origin, ParameterKind, Plan, Reduce, Reduction,
};

use super::facts::Facts;

/// The dim of an op that may be computed in pieces where it is split.
pub(crate) fn composite_dim(op: &Op, dtype: Dtype) -> Option<DimId> {
    match op {
        Op::Softmax { over } | Op::Norm { over, .. } => {
            Some(*over).filter(|_| [Dtype::F32, Dtype::Bf16].contains(&dtype))
        }
        _ => None,
    }
}

/// Whether the first op of a chain is computed in pieces; `None` where it is no composite.
pub(crate) fn is_in_pieces(facts: &Facts<'_>, (id, fit): (usize, usize)) -> Option<bool> {
    let value = &facts.program.values[id];
    let Def::Op { op, .. } = &value.def else { return None };
    let over = composite_dim(op, value.dtype)?;
    let at = value.dims.iter().position(|d| *d == over)?;
    Some(!facts.spaces[id].layouts[facts.fits[id][fit].result].axes_of(at).is_empty())
}

/// The time of a composite in pieces, with the ops that join its last kernel: `(value, which of its
/// fits)`.
pub(crate) fn time(facts: &Facts<'_>, chain: &[(usize, usize)]) -> u64 {
    let program = facts.program;
    let mut written = Written {
        facts,
        plan: Plan {
            name: "pieces".into(),
            repeat: 1,
            phase: None,
            hardware: None,
            mesh: program.mesh.clone(),
            dims: program.dims.clone(),
            instructions: Vec::new(),
            outputs: Vec::new(),
            folds: Vec::new(),
        },
        dtype: program.values[chain[0].0].dtype,
        sources: Vec::new(),
    };
    let mut last: Option<(usize, InstrId)> = None;
    for (id, fit) in chain {
        let Def::Op { op, operands } = &program.values[*id].def else { continue };
        let fit = &facts.fits[*id][*fit];
        let reads: Vec<InstrId> = operands
            .iter()
            .zip(&fit.operands)
            .map(|(operand, place)| match last {
                Some((made, instr)) if facts.origin(operand.index()) == made => instr,
                _ => written.read(operand.index(), *place),
            })
            .collect();
        let layout = facts.spaces[*id].layouts[fit.result];
        let instr = match last {
            None => written.composite(op, reads[0], &program.values[*id].dims, layout),
            Some(_) => {
                written.dtype = program.values[*id].dtype;
                written.push(InstrKind::Op(op.clone()), &reads, &program.values[*id].dims, layout)
            }
        };
        last = Some((*id, instr));
    }
    shard_cost::price(&written.plan, facts.hardware).totals.serial_time.0
}

struct Written<'a> {
    facts: &'a Facts<'a>,
    plan: Plan,
    dtype: Dtype,
    /// Values that come from outside.
    sources: Vec<(usize, InstrId)>,
}

impl Written<'_> {
    fn push(
        &mut self,
        kind: InstrKind,
        operands: &[InstrId],
        dims: &[DimId],
        layout: Layout,
    ) -> InstrId {
        let (operands, dims, dtype) = (operands.to_vec(), dims.to_vec(), self.dtype);
        let instr = Instruction {
            kind,
            operands,
            name: None,
            dims,
            dtype,
            layout,
            origin: Origin::default(),
            fold: None,
        };
        self.plan.instructions.push(instr);
        InstrId(self.plan.instructions.len() as u32 - 1)
    }

    /// Adds a value from outside in a layout, at no cost: a parameter, with a new name where an op
    /// makes the value, and a move that takes no time.
    fn read(&mut self, id: usize, place: usize) -> InstrId {
        let (origin, own) = (self.facts.origin(id), self.dtype);
        let value = &self.facts.program.values[origin];
        self.dtype = value.dtype;
        let source = match self.sources.iter().find(|(known, _)| *known == origin) {
            Some((_, instr)) => *instr,
            None => {
                let given = match value.def {
                    Def::Constant(number) => InstrKind::Constant(Number::Given(number)),
                    _ => InstrKind::Parameter(ParameterKind::Activation),
                };
                let mut instr = self.push(given, &[], &value.dims, Layout::REPLICATED);
                if matches!(value.def, Def::Op { .. }) {
                    let dim = value.dims.first().copied().unwrap_or(DimId(0));
                    let view = InstrKind::Op(Op::Rename { from: dim, to: dim });
                    instr = self.push(view, &[instr], &value.dims, Layout::REPLICATED);
                }
                self.sources.push((origin, instr));
                instr
            }
        };
        let layout = self.facts.spaces[id].layouts[place];
        let free = Collective::Slice { dim: 0, axes: shard_ir::AxisList::EMPTY };
        let moved = self.push(InstrKind::Move(free), &[source], &value.dims, layout);
        self.dtype = own;
        moved
    }

    fn composite(&mut self, op: &Op, a: InstrId, dims: &[DimId], layout: Layout) -> InstrId {
        let (Op::Softmax { over } | Op::Norm { over, .. }) = op else {
            unreachable!("a composite")
        };
        let over = *over;
        let small: Vec<DimId> = dims.iter().copied().filter(|d| *d != over).collect();
        let of_dim = |d: &DimId| layout.axes_of(dims.iter().position(|o| o == d).unwrap_or(0));
        let split: AxisSet = of_dim(&over).set();
        let shape = (self.plan.mesh.clone(), self.plan.sizes(&small));
        let lay = |sums: AxisSet, maxima: AxisSet| {
            let lists: Vec<_> = small.iter().map(of_dim).collect();
            Layout::new(MeshShape { mesh: &shape.0, sizes: &shape.1 }, &lists, sums, maxima)
                .expect("a legal layout")
        };
        let whole = lay(AxisSet::EMPTY, AxisSet::EMPTY);
        let statistic = |w: &mut Self, op: Op, reads: &[InstrId], kind: Reduction| {
            let partial = match kind {
                Reduction::Sum => lay(split, AxisSet::EMPTY),
                Reduction::Max => lay(AxisSet::EMPTY, split),
            };
            let made = w.push(InstrKind::Op(op), reads, &small, partial);
            w.push(
                InstrKind::Move(Collective::AllReduce { kind, axes: split }),
                &[made],
                &small,
                whole,
            )
        };
        let over = || vec![over];
        let op_of = |w: &mut Self, op: Op, reads: &[InstrId]| {
            w.push(InstrKind::Op(op), reads, dims, layout)
        };
        match op {
            Op::Softmax { .. } => {
                let largest = statistic(
                    self,
                    Op::Reduce { kind: Reduce::Max, over: over() },
                    &[a],
                    Reduction::Max,
                );
                let below = op_of(self, Op::Binary(Binary::Sub), &[a, largest]);
                let weights = op_of(self, Op::Map(Map::Exp), &[below]);
                let sum = statistic(
                    self,
                    Op::Reduce { kind: Reduce::Sum, over: over() },
                    &[weights],
                    Reduction::Sum,
                );
                op_of(self, Op::Binary(Binary::Div), &[weights, sum])
            }
            _ => {
                let mut centred = a;
                if matches!(op, Op::Norm { kind: Norm::Layer, .. }) {
                    let mean = statistic(
                        self,
                        Op::Reduce { kind: Reduce::Mean, over: over() },
                        &[a],
                        Reduction::Sum,
                    );
                    centred = op_of(self, Op::Binary(Binary::Sub), &[a, mean]);
                }
                let squares = statistic(self, Op::Einsum, &[centred, centred], Reduction::Sum);
                let mut scale = squares;
                let numbers = [Number::SizeOf(over()[0]), Number::Given(NORM_EPSILON)];
                for (number, binary) in numbers.into_iter().zip([Binary::Div, Binary::Add]) {
                    let number =
                        self.push(InstrKind::Constant(number), &[], &[], Layout::REPLICATED);
                    scale = self.push(
                        InstrKind::Op(Op::Binary(binary)),
                        &[scale, number],
                        &small,
                        whole,
                    );
                }
                scale = self.push(InstrKind::Op(Op::Map(Map::Rsqrt)), &[scale], &small, whole);
                op_of(self, Op::Binary(Binary::Mul), &[centred, scale])
            }
        }
    }
}
