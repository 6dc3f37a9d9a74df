//! Rings (`spec/cost.md`, *Rings*): attentions whose blocks of keys and of values travel, as ways
//! of having the value that the attention ends with.
//!
//! The kernel of a ring is that of the attention, with the gather in the loop of its first einsum.
//! The gathers of its other einsums follow from that one.

use shard_cost::RingShape;
use shard_ir::{AxisList, Collective, Def, Fused, Layout, MeshShape, Op, ValueId};

use crate::kernel::{Kernel, Kernels, Link};

impl Kernels {
    /// The operand of an einsum of an attention that travels where the attention is a ring, and the
    /// place of its keys among its dims. It is the operand that has the keys and comes from outside
    /// the attention.
    pub(crate) fn travels(&self, id: ValueId) -> Option<(usize, usize)> {
        let program = self.program.as_ref();
        let Def::Op { op: Op::Einsum, operands } = &program.value(id).def else { return None };
        let key = self.keys_of(id)?;
        let members = self.attention(id)?;
        let comes_in = |operand: &ValueId| !members.contains(&self.origin_of(*operand));
        operands.iter().enumerate().filter(|(_, operand)| comes_in(operand)).find_map(
            |(place, operand)| {
                let dims = &program.value(*operand).dims;
                dims.iter().position(|dim| *dim == key).map(|at| (place, at))
            },
        )
    }

    /// The gather in the loop of an op of a ring over these axes, and the layouts in which the op
    /// is given its operands, if it reads them in the layouts `inside`. There is no gather where no
    /// operand travels. `None` where the axes cannot split the keys.
    pub(crate) fn in_ring(
        &self,
        id: ValueId,
        inside: &[Layout],
        axes: AxisList,
    ) -> Option<(Option<Fused>, Vec<Layout>)> {
        let mut given = inside.to_vec();
        let Some((operand, dim)) = self.travels(id).filter(|_| !axes.is_empty()) else {
            return Some((None, given));
        };
        let program = self.program.as_ref();
        let dims = &program.value(*program.value(id).def.operands().get(operand)?).dims;
        let shape = MeshShape { mesh: &program.mesh, sizes: &program.sizes(dims) };
        let layout = *inside.get(operand)?;
        let is_free =
            axes.set().difference(layout.replicated_axes(&program.mesh)).iter().next().is_none();
        if !is_free || !shape.can_append(layout, dim, &axes) {
            return None;
        }
        given[operand] = layout.with_dim(dim, layout.axes_of(dim).concat(axes));
        Some((Some(Fused::AllGather { operand, dim, axes }), given))
    }

    /// The axes over which the blocks of an operand of a member of an attention may travel, each
    /// list of axes in order.
    pub(crate) fn ring_axes(&self, id: ValueId, inside: &[Layout]) -> Vec<AxisList> {
        let may = self.loops && self.may_split_keys_of(id);
        let Some((operand, _)) = self.travels(id).filter(|_| may) else { return Vec::new() };
        let free = inside[operand].replicated_axes(&self.program.mesh);
        let mut all = AxisList::arrangements(free);
        all.retain(|axes| self.in_ring(id, inside, *axes).is_some());
        all
    }

    /// The values that travel in a ring, each once, with the layout in which it is given and the
    /// all-gather that the ring stands for.
    pub(crate) fn travelling(
        &self,
        kernel: &Kernel,
        links: &[Link],
    ) -> Vec<(ValueId, Layout, Collective)> {
        let mut found: Vec<(ValueId, Layout, Collective)> = Vec::new();
        for (id, link) in kernel.chain[..kernel.attention].iter().zip(links) {
            let Some(fused) = link.fused else { continue };
            let operands = self.program.value(*id).def.operands();
            let moved = fused.gathered().map(|place| (operands[place], link.given[place]));
            let is_known = |(value, layout): (ValueId, Layout)| {
                let same = |of: &(ValueId, Layout, Collective)| {
                    self.origin_of(of.0) == self.origin_of(value) && of.1 == layout
                };
                found.iter().any(same)
            };
            if let Some((value, layout)) = moved.filter(|moved| !is_known(*moved)) {
                found.push((value, layout, fused.collective()));
            }
        }
        found
    }

    /// The shape of the ring that a kernel is, whose first einsum has this gather in its loop.
    pub(crate) fn ring_shape(&self, kernel: &Kernel, lead: &Fused, links: &[Link]) -> RingShape {
        let steps = lead.chunks(&self.program.mesh);
        let last = kernel.attention.saturating_sub(1);
        let made = links.get(last).map(|link| link.made);
        let dims = &self.program.value(kernel.chain[last]).dims;
        let along = made.and_then(|made| made.split_by(lead.axes()));
        RingShape { steps, along: along.and_then(|at| dims.get(at).copied()) }
    }

    /// The rings that may make the value that an attention ends with in a layout: for each the
    /// gather in the loop of its first einsum, and the axes.
    pub(crate) fn rings(&self, id: ValueId, target: Layout) -> Vec<(Fused, AxisList)> {
        let members = self.attention(id).filter(|members| members.last() == Some(&id));
        let Some(first) = members.and_then(|members| members.first()) else { return Vec::new() };
        let Some((operand, dim)) = self.travels(*first).filter(|_| target.is_complete()) else {
            return Vec::new();
        };
        let read = self.read_in_attention(id, target, AxisList::EMPTY);
        let all = read.map_or_else(Vec::new, |read| self.ring_axes(id, &read));
        all.into_iter().map(|axes| (Fused::AllGather { operand, dim, axes }, axes)).collect()
    }
}
