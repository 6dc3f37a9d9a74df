//! [`Fused`]: the collective that a collective einsum runs inside its loop.
//!
//! A collective einsum is an einsum together with a collective of one of its operands, or of its
//! result, cut into as many chunks as the group has devices: one chunk is multiplied while the next
//! one travels (ESTI section 3.5, "Looped CollectiveEinsum"; the book's collective matmul). It
//! computes the same as the two one after the other, and its layouts are derived from them.

use crate::collective::{Collective, CollectiveError};
use crate::layout::{Layout, MeshShape, Reduction};
use crate::layout_rule::{Operand, RuleError, result_layout};
use crate::mesh::{AxisList, Mesh};
use crate::op::Op;
use crate::plan::{InstrId, InstrKind, Instruction, Plan};
use crate::tensor::{Dim, DimId};

/// The collective of a collective einsum.
///
/// | loop | operands | result |
/// |---|---|---|
/// | all-gather of `BE_y` over y along E | `BE_y`, `EF_y` | `BF_y`, as the einsum of `BE` and `EF_y` |
/// | reduce-scatter over y along E | `BF_y`, `F_yE` | `BE_y`, as the reduce-scatter of `BE(partialsum-y)` |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fused {
    /// An operand, given split, is gathered chunk by chunk as it is multiplied, and never held
    /// whole.
    AllGather {
        /// The place of the operand.
        operand: usize,
        /// Index of the dim in the operand.
        dim: usize,
        /// The axes gathered, major to minor.
        axes: AxisList,
    },
    /// The partial sum is reduced and scattered chunk by chunk as it is made, and never held whole.
    ReduceScatter {
        /// Index of the dim in the result.
        dim: usize,
        /// The axes, major to minor.
        axes: AxisList,
    },
}

/// The layouts inside the loop of a collective einsum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopLayouts {
    /// The layout of each operand as it is multiplied; the gathered operand is whole over the axes.
    pub operands: Vec<Layout>,
    /// The layout of the product, before it is scattered.
    pub product: Layout,
    /// The layout of the result.
    pub result: Layout,
}

/// Why an einsum and a collective make no loop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoopError {
    /// An operand to gather that the einsum does not have.
    #[error("the einsum has no operand {0} to gather")]
    NoSuchOperand(usize),
    /// The einsum must not act on operands in these layouts, after the gather.
    #[error("{0}")]
    Rule(#[from] RuleError),
    /// The collective does not apply to the operand, or to the product.
    #[error("{0}")]
    Collective(#[from] CollectiveError),
}

impl Fused {
    /// The collective that the loop does chunk by chunk.
    pub fn collective(&self) -> Collective {
        match *self {
            Fused::AllGather { dim, axes, .. } => Collective::AllGather { dim, axes },
            Fused::ReduceScatter { dim, axes } => {
                Collective::ReduceScatter { kind: Reduction::Sum, dim, axes }
            }
        }
    }

    /// The axes of the ring, major to minor.
    pub fn axes(&self) -> AxisList {
        match *self {
            Fused::AllGather { axes, .. } | Fused::ReduceScatter { axes, .. } => axes,
        }
    }

    /// The place of the operand that is gathered.
    pub fn gathered(&self) -> Option<usize> {
        match *self {
            Fused::AllGather { operand, .. } => Some(operand),
            Fused::ReduceScatter { .. } => None,
        }
    }

    /// How many chunks the loop works on: the devices of the group.
    pub fn chunks(&self, mesh: &Mesh) -> u64 {
        mesh.group_size(self.axes().iter())
    }

    /// The layouts inside the loop: those of the all-gather followed by the einsum, or of the
    /// einsum followed by the reduce-scatter.
    pub fn layouts(
        &self,
        operands: &[Operand<'_>],
        result: &[DimId],
        mesh: &Mesh,
        dims: &[Dim],
    ) -> Result<LoopLayouts, LoopError> {
        let sizes =
            |of: &[DimId]| -> Vec<u64> { of.iter().map(|d| dims[d.index()].size).collect() };
        let mut inside = operands.to_vec();
        // No loop reads a `partialsoftmax` operand.
        for (operand, of) in operands.iter().enumerate() {
            if let Some(axis) = of.layout.softmax_axes().iter().next() {
                return Err(RuleError::NotMerged { operand, axis }.into());
            }
        }
        if let Some(place) = self.gathered() {
            let operand = inside.get_mut(place).ok_or(LoopError::NoSuchOperand(place))?;
            let shape = MeshShape { mesh, sizes: &sizes(operand.dims) };
            operand.layout = self.collective().apply(shape, operand.layout)?;
        }
        let product = result_layout(&Op::Einsum, &inside, result, mesh, dims)?;
        let scattered = match self {
            Fused::AllGather { .. } => product,
            Fused::ReduceScatter { .. } => {
                self.collective().apply(MeshShape { mesh, sizes: &sizes(result) }, product)?
            }
        };
        Ok(LoopLayouts {
            operands: inside.iter().map(|o| o.layout).collect(),
            product,
            result: scattered,
        })
    }

    /// Every loop of an einsum on these operands, with the layouts inside it, in a fixed order.
    pub fn all_on(
        operands: &[Operand<'_>],
        result: &[DimId],
        mesh: &Mesh,
        dims: &[Dim],
    ) -> Vec<(Fused, LoopLayouts)> {
        let mut found = Vec::new();
        let mut offer = |fused: Fused| {
            if let Ok(layouts) = fused.layouts(operands, result, mesh, dims) {
                found.push((fused, layouts));
            }
        };
        for (place, operand) in operands.iter().enumerate() {
            for dim in 0..operand.dims.len() {
                let split = operand.layout.axes_of(dim);
                for keep in 0..split.len() {
                    offer(Fused::AllGather { operand: place, dim, axes: split.suffix_from(keep) });
                }
            }
        }
        if let Ok(product) = result_layout(&Op::Einsum, operands, result, mesh, dims) {
            for axes in AxisList::arrangements(product.partial(Reduction::Sum)) {
                for dim in 0..result.len() {
                    offer(Fused::ReduceScatter { dim, axes });
                }
            }
        }
        found
    }
}

impl Plan {
    /// The plan with every collective einsum replaced by its two steps: the all-gather and then the
    /// einsum, or the einsum and then the reduce-scatter. It computes the same, from and to the
    /// same layouts. A loop whose layouts are not legal stays as it is.
    pub fn unfused(&self) -> Plan {
        let mut plan =
            Plan { instructions: Vec::with_capacity(self.instructions.len()), ..self.clone() };
        let mut now: Vec<InstrId> = Vec::with_capacity(self.instructions.len());
        for id in self.ids() {
            let mut instr = self.instruction(id).clone();
            instr.operands.iter_mut().for_each(|operand| *operand = now[operand.index()]);
            let mut push = |instr: Instruction| {
                plan.instructions.push(instr);
                InstrId(plan.instructions.len() as u32 - 1)
            };
            now.push(match self.loop_layouts(id) {
                None => push(instr),
                Some((fused, inside)) => match fused.gathered() {
                    Some(place) => {
                        let split = self.instruction(self.instruction(id).operands[place]);
                        let (operands, fold) = (vec![instr.operands[place]], instr.fold);
                        let kind = InstrKind::Move(fused.collective());
                        let origin = instr.origin.clone();
                        let gathered = Instruction {
                            kind,
                            operands,
                            layout: inside.operands[place],
                            origin,
                            fold,
                            ..split.clone()
                        };
                        instr.operands[place] = push(gathered);
                        push(Instruction { kind: InstrKind::Op(Op::Einsum), ..instr })
                    }
                    None => {
                        let kind = InstrKind::Op(Op::Einsum);
                        let product =
                            push(Instruction { kind, layout: inside.product, ..instr.clone() });
                        let kind = InstrKind::Move(fused.collective());
                        push(Instruction { kind, operands: vec![product], ..instr })
                    }
                },
            });
        }
        plan.outputs.iter_mut().for_each(|output| output.id = now[output.id.index()]);
        for fold in &mut plan.folds {
            (fold.from, fold.to) = (now[fold.from.index()], now[fold.to.index()]);
        }
        plan
    }
}
