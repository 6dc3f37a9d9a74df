//! The strategies of an op as a part of an attention, which runs as one kernel.

use std::borrow::Cow;
use std::sync::Arc;

use shard_cost::{Hardware, RingShape, Work, loop_time};
use shard_ir::{AxisList, Fused, Layout, Picoseconds, ValueId, never};

use super::super::InKernel;
use super::{Candidate, KernelWork, Strategies};
use crate::in_pieces::{Held, HeldOp, work_of};
use crate::kernel::{Kernels, Link};
use crate::times::travel_cost;

/// The time of what travels in a ring, and the number of its steps; `None` for an attention that is
/// no ring.
pub(super) type Travel = Option<(Picoseconds, u64)>;

/// An attention run as one kernel in one way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AttentionWay {
    /// The layout of its result.
    made: Layout,
    /// The axes that split the keys.
    keys: AxisList,
    /// The axes of its ring; none where it is no ring.
    ring: AxisList,
    /// Whether the concats that join its keys and values are in the kernel.
    is_joined: bool,
}

impl Strategies<'_, '_, '_> {
    /// Adds what a concat of keys or values does only inside an attention: it joins its parts while
    /// each of them is split.
    pub(in super::super) fn joins_parts(&mut self) {
        let (kernels, id) = (self.kernels, self.id);
        let own = Arc::clone(&self.own);
        for (layout, out) in own.layouts.iter().zip(0..) {
            let is_wanted = self.within.contains_key(&(out, InKernel::JoinedAttention));
            if !is_wanted || !kernels.joins_parts(id, *layout) {
                continue;
            }
            let Some(read) = kernels.read_in_attention(id, *layout, AxisList::EMPTY) else {
                continue;
            };
            let nodes = self.graphs.iter().zip(&read).map(|(graph, l)| graph.node(*l));
            let Some(reads) = nodes.collect::<Option<Vec<_>>>() else { continue };
            let concat =
                Candidate { result: *layout, out, layouts: &read, reads: &reads, states: &[] };
            self.member(concat, AxisList::EMPTY, InKernel::JoinedAttention);
        }
    }

    /// Adds the strategies within an attention, or as its last op; those of a ring, too.
    pub(super) fn in_attention(&mut self, candidate: Candidate<'_>, keys: AxisList) {
        let Candidate { result: made, out, layouts, .. } = candidate;
        let (kernels, id) = (self.kernels, self.id);
        let ends = [self.members, self.joined_members].iter().any(|m| m.last() == Some(&id));
        let is_within = self.within.keys().any(|(node, _)| *node == out);
        if !(ends || is_within)
            || kernels.read_in_attention(id, made, keys).as_deref() != Some(layouts)
        {
            return;
        }
        if !self.members.is_empty() {
            self.member(candidate, keys, InKernel::Attention { ring: None });
        }
        if !self.joined_members.is_empty() && (keys.is_empty() || kernels.may_split_joined(id)) {
            self.member(candidate, keys, InKernel::JoinedAttention);
        }
        if !keys.is_empty() || !made.is_complete() {
            return;
        }
        for (number, ring) in self.rings.clone().into_iter().enumerate() {
            let place = InKernel::Attention { ring: Some(number) };
            let is_wanted = ends || self.within.contains_key(&(out, place));
            let given = kernels.in_ring(id, layouts, ring).filter(|_| is_wanted);
            let Some((_, given)) = given else { continue };
            let nodes = self.graphs.iter().zip(&given).map(|(graph, l)| graph.node(*l));
            if let Some(read) = nodes.collect::<Option<Vec<_>>>() {
                self.member(Candidate { reads: &read, ..candidate }, keys, place);
            }
        }
    }

    /// Adds a strategy at a place within an attention, or as the last op of that attention, which
    /// pays its time.
    pub(super) fn member(&mut self, candidate: Candidate<'_>, keys: AxisList, place: InKernel) {
        let Candidate { result: made, out, reads, states, .. } = candidate;
        let (kernels, hardware, id) = (self.kernels, self.hardware, self.id);
        let (members, ring, is_joined) = match place {
            InKernel::JoinedAttention => (self.joined_members, AxisList::EMPTY, true),
            InKernel::Attention { ring: Some(number) } => (self.members, self.rings[number], false),
            InKernel::Attention { ring: None } => (self.members, AxisList::EMPTY, false),
            InKernel::BytesToCome(_) => never!("a member of an attention outside of it", return),
        };
        let ends = members.last() == Some(&id);
        let work = ends.then(|| {
            let way = AttentionWay { made, keys, ring, is_joined };
            let work = self.attentions.entry(way);
            *work.or_insert_with(|| attention_work(kernels, hardware, members, way))
        });
        let state = self.within.get(&(out, place)).copied();
        if state.is_none() && work.flatten().is_none() {
            return;
        }
        let mut member = reads.to_vec();
        for (read, operand) in member.iter_mut().zip(self.operands) {
            if members.contains(&kernels.origin_of(*operand)) {
                *read = self.builder.state(*operand, *read, place);
            }
        }
        if let Some(state) = state {
            self.factor.push(state, member.iter().copied(), 0);
        }
        if let Some((work, travel)) = work.flatten() {
            let time = |more| {
                let alone = KernelWork { before: 0, work }.time(hardware, more);
                travel.map_or(alone, |(sent, steps)| loop_time(sent, &work, alone, steps))
            };
            self.push(out, &member, states, &time);
        }
    }
}

/// The axes that the rings may have of the attention that an op is part of.
pub(super) fn rings(kernels: &Kernels, id: ValueId) -> Vec<AxisList> {
    let product = kernels.attention(id).and_then(|members| members.last().copied());
    let may = kernels.loops && product.is_some_and(|id| kernels.may_split_keys_of(id));
    if may { AxisList::arrangements(kernels.program.mesh.all_axes()) } else { Vec::new() }
}

/// The work of these ops as one attention in one kernel, and what travels meanwhile if it is a
/// ring; `None` where they cannot run so.
pub(super) fn attention_work(
    kernels: &Kernels,
    hardware: &Hardware,
    members: &[ValueId],
    AttentionWay { made, keys, ring, is_joined: _ }: AttentionWay,
) -> Option<(Work, Travel)> {
    let of_product = &kernels.of[members.last()?.index()];
    let kernel = of_product.iter().find(|kernel| kernel.chain == members)?;
    let has = |_: ValueId, _: Layout, _: Option<Fused>, _: &[Layout]| true;
    let reads = kernels.attention_reads(members, made, keys, ring, &has, &|_, _| true)?;
    let first = *kernel.chain.first()?;
    let lead = kernels.travels(first).filter(|_| !ring.is_empty());
    let lead = lead.map(|(operand, dim)| Fused::AllGather { operand, dim, axes: ring });
    let links = kernels.links(kernel, lead.as_ref(), &reads, made)?;
    let program = kernels.program.as_ref();
    let travel = lead.map(|lead| {
        let all = kernels.travelling(kernel, &links);
        (travel_cost(program, hardware, &all).time, lead.chunks(&program.mesh))
    });
    let shape = lead.map(|lead| kernels.ring_shape(kernel, &lead, &links));
    let held = |(id, link): (&ValueId, &Link)| {
        let site = kernels.site(*id);
        let operands = kernels.program.value(*id).def.operands().iter().zip(&link.inside);
        HeldOp {
            result: Held::of(kernels, *id, link.made),
            operands: operands.map(|(o, layout)| Held::of(kernels, *o, *layout)).collect(),
            op: Cow::Owned(site.op.clone()),
        }
    };
    let chain: Vec<HeldOp<'_>> = kernel.chain.iter().zip(&links).map(held).collect();
    Some((work_of(&chain, &program.dims, shape.unwrap_or(RingShape::NONE)), travel))
}
