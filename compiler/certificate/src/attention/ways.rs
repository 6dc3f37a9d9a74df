//! The ways of having an attention as one kernel: for each layout of its result, and each order of
//! the axes that split the keys, the layouts of all that it reads and the kernel.

use std::collections::BTreeMap;

use shard_cost::{Hardware, KernelOp, LocalTensor, RingShape, Work, collective_cost, ring_work};
use shard_ir::attention::local_statistics;
use shard_ir::{AxisList, Collective, Def, DimId, Layout, MeshShape, Op, Program, ValueId, never};

use super::{Attention, AttentionWay};
use crate::kernel::{self, InLoop, Kernel, constant, local_sizes};
use crate::moves::Node;
use crate::space::Space;

/// Enters the ways of having each attention of the space; with `loops` also those as a ring.
pub(crate) fn find_ways(space: &mut Space<'_>, loops: bool) {
    let rings =
        if loops { AxisList::arrangements(space.program.mesh.all_axes()) } else { Vec::new() };
    for product in space.live.clone() {
        let Some(mut found) = space.attentions[product.index()].take() else { continue };
        let mut outs = space.ways[product.index()].out.clone();
        // The last op alone leaves a sum where the attention leaves a `partialsoftmax`.
        let layouts = space.moves[product.index()].layouts.iter().zip(0..);
        outs.extend(layouts.filter(|(l, _)| !l.softmax_axes().is_empty()).map(|(_, node)| node));
        outs.sort_unstable();
        outs.dedup();
        let layouts = space.moves[product.index()].layouts.clone();
        let none = AxisList::EMPTY;
        for out in outs {
            let axes = layouts[out as usize].softmax_axes();
            let orders = if axes.is_empty() { vec![none] } else { AxisList::arrangements(axes) };
            for keys in orders.into_iter().filter(|keys| keys.len() == axes.len()) {
                found.ways.extend(way(space, &found, product, out, keys, none));
                if let Some(joined) = &mut found.joined
                    && (keys.is_empty() || joined.statistics.is_some())
                {
                    joined.ways.extend(way(space, joined, product, out, keys, none));
                }
            }
            for ring in rings.iter().filter(|_| axes.is_empty() && found.statistics.is_some()) {
                found.ways.extend(way(space, &found, product, out, none, *ring));
            }
        }
        space.attentions[product.index()] = Some(found);
    }
}

/// The way that makes its result, the value `product`, in the layout `out`. The axes `keys` split
/// the keys, or blocks of keys travel over the axes `ring`; one of the two is empty. `None` where
/// there is no such way.
fn way(
    space: &mut Space<'_>,
    attention: &Attention,
    product: ValueId,
    out: Node,
    keys: AxisList,
    ring: AxisList,
) -> Option<AttentionWay> {
    let program = space.program;
    let made = *space.moves[product.index()].layouts.get(out as usize)?;
    if made.partial_axes() != made.softmax_axes() {
        return None;
    }
    let members = MemberLayouts::of(program, attention, product, made, keys)?;
    let node = |value: ValueId, layout: Layout| space.moves[value.index()].node(layout);
    let mut layouts = Vec::with_capacity(attention.reads.len());
    for (reader, place) in &attention.reads {
        let operand = program.value(*reader).def.operands()[*place];
        layouts.push((operand, members.as_read(operand, *reader, members.get(*reader))));
    }
    let sent = sent_round(program, space.hardware, &attention.travels, &mut layouts, ring)?;
    let reads = layouts.iter().map(|(operand, layout)| node(*operand, *layout));
    let reads = reads.collect::<Option<Vec<Node>>>()?;
    let pins = attention.pins.iter();
    let pinned = pins.map(|pin| node(*pin, members.get(program.unpinned(*pin))));
    let pinned = pinned.collect::<Option<Vec<Node>>>()?;
    let steps = program.mesh.group_size(ring.iter());
    let in_loop = (!ring.is_empty()).then_some(InLoop { time: sent, chunks: steps });
    let shape = if ring.is_empty() {
        RingShape::NONE
    } else {
        let mut dims = program.value(product).dims.iter().enumerate();
        let along = dims.find(|(at, _)| made.axes_of(*at) == ring).map(|(_, dim)| *dim);
        RingShape { steps, along }
    };
    let kernel = Kernel { work: members.work(shape), before: 0, in_loop };
    Some(AttentionWay { out, reads, pinned, kernel: space.kernels.number(kernel) })
}

/// The layouts of the members of an attention in one of its ways.
struct MemberLayouts<'a> {
    program: &'a Program,
    attention: &'a Attention,
    /// The axes that split the keys, major to minor.
    keys: AxisList,
    /// The layout of each member: of the last as it is made, of the others as they are read.
    layouts: BTreeMap<ValueId, Layout>,
}

impl<'a> MemberLayouts<'a> {
    /// The layouts where the last member, `product`, is made in the layout `made`; `None` where two
    /// members read one concat in different layouts.
    fn of(
        program: &'a Program,
        attention: &'a Attention,
        product: ValueId,
        made: Layout,
        keys: AxisList,
    ) -> Option<MemberLayouts<'a>> {
        let layouts = BTreeMap::from([(product, made)]);
        let mut all = MemberLayouts { program, attention, keys, layouts };
        for id in attention.members.iter().rev().filter(|id| **id != product) {
            let layout = if concat_dims(program, *id).is_some() {
                // A concat has dims that a product sums over: its layout is that in which the
                // product reads it.
                let mut readers = all.layouts.iter().filter(|(by, _)| reads(program, **by, *id));
                let as_read = |(by, own): (&ValueId, &Layout)| all.as_read(*id, *by, *own);
                let first = readers.next().map(as_read)?;
                if readers.map(as_read).any(|other| other != first) {
                    return None;
                }
                first
            } else {
                all.as_read(*id, product, made)
            };
            all.layouts.insert(*id, layout);
        }
        Some(all)
    }

    /// The layout of a member.
    fn get(&self, id: ValueId) -> Layout {
        let layout = self.layouts.get(&id).copied();
        layout.unwrap_or_else(|| {
            never!("a member of an attention without a layout", Layout::REPLICATED)
        })
    }

    /// The layout in which `reader`, itself in the layout `made`, reads an operand: each dim is
    /// split as the same dim of the reader, and the keys by their axes. What a concat joins is
    /// split as the joined dim.
    fn as_read(&self, operand: ValueId, reader: ValueId, made: Layout) -> Layout {
        let made_dims = &self.program.value(reader).dims;
        let joined = concat_dims(self.program, reader).and_then(|(parts, to)| {
            made_dims.iter().position(|dim| *dim == to).map(|at| (parts, at))
        });
        let mut layout = Layout::REPLICATED;
        for (at, dim) in self.program.value(operand).dims.iter().enumerate() {
            if let Some((_, to)) = joined.filter(|(parts, _)| parts.contains(dim)) {
                layout = layout.with_dim(at, made.axes_of(to));
            } else if *dim == self.attention.keys {
                layout = layout.with_dim(at, self.keys);
            } else if let Some(from) = made_dims.iter().position(|d| d == dim) {
                layout = layout.with_dim(at, made.axes_of(from));
            }
        }
        layout
    }

    /// The elements of the statistics beside a value: beside the last member alone.
    fn statistics(&self, id: ValueId) -> u64 {
        let is_last = self.attention.members.last() == Some(&id);
        if !is_last || self.get(id).softmax_axes().is_empty() {
            return 0;
        }
        let sizes = self.program.sizes(&self.program.value(id).dims);
        let shape = MeshShape { mesh: &self.program.mesh, sizes: &sizes };
        self.attention.statistics.map_or(0, |dims| local_statistics(shape, self.get(id), dims))
    }

    /// The work of the kernel on a device.
    fn work(&self, ring: RingShape) -> Work {
        let (program, members) = (self.program, &self.attention.members);
        let operands = |id: &ValueId| program.value(*id).def.operands();
        let sizes_of_member = |id: &ValueId| -> Vec<Vec<u64>> {
            let own = self.get(*id);
            let as_read = |o: &ValueId| local_sizes(program, *o, self.as_read(*o, *id, own));
            operands(id).iter().map(as_read).chain([local_sizes(program, *id, own)]).collect()
        };
        let sizes: Vec<Vec<Vec<u64>>> = members.iter().map(sizes_of_member).collect();
        let mut tensors: Vec<Vec<LocalTensor<'_>>> = Vec::with_capacity(members.len());
        for (id, sizes) in members.iter().zip(&sizes) {
            let values = operands(id).iter().chain([id]).zip(sizes);
            let of_member = values.map(|(value, sizes)| LocalTensor {
                value: program.unpinned(*value).0,
                dims: &program.value(*value).dims,
                sizes,
                dtype: program.value(*value).dtype,
                constant: constant(program, *value),
                statistics: self.statistics(*value),
            });
            tensors.push(of_member.collect());
        }
        let chain = members.iter().zip(&tensors).filter_map(|(id, tensors)| {
            let (result, operands) = tensors.split_last()?;
            Some(KernelOp { op: kernel::site(program, *id)?.op, operands, result: *result })
        });
        let chain: Vec<KernelOp<'_>> = chain.collect();
        ring_work(&chain, &program.dims, ring)
    }
}

/// The two dims that a concat joins, and the joined dim; `None` of another op.
fn concat_dims(program: &Program, id: ValueId) -> Option<([DimId; 2], DimId)> {
    let Def::Op { op: Op::Concat { left, right, to }, .. } = &program.value(id).def else {
        return None;
    };
    Some(([*left, *right], *to))
}

/// Whether an op reads what another makes, pinned or not.
fn reads(program: &Program, by: ValueId, made: ValueId) -> bool {
    program.value(by).def.operands().iter().any(|operand| program.unpinned(*operand) == made)
}

/// The time that the moves over the axes of a ring take without the kernel, in picoseconds, each
/// value counted once. What travels is then read split by these axes. `None` where they split
/// another dim of it.
fn sent_round(
    program: &Program,
    hardware: &Hardware,
    travels: &[Option<usize>],
    read: &mut [(ValueId, Layout)],
    ring: AxisList,
) -> Option<u64> {
    let mut known: Vec<(ValueId, Layout)> = Vec::new();
    let mut sent = 0u64;
    for (travelling, (operand, layout)) in travels.iter().zip(read) {
        let Some(dim) = travelling.filter(|_| !ring.is_empty()) else { continue };
        if ring.iter().any(|axis| layout.split_axes().contains(axis)) {
            return None;
        }
        *layout = layout.with_dim(dim, ring);
        let moved = (program.unpinned(*operand), *layout);
        if known.contains(&moved) {
            continue;
        }
        known.push(moved);
        let value = program.value(*operand);
        let (sizes, does) = (program.sizes(&value.dims), Collective::AllGather { dim, axes: ring });
        let cost = collective_cost(hardware, &program.mesh, &does, *layout, &sizes, value.dtype);
        sent = sent.saturating_add(cost.time.0);
    }
    Some(sent)
}
