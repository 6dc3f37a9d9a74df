//! Attention as one kernel (`spec/cost.md`, *Attention*): which ops it is, and in which layouts it
//! can be had.
//!
//! The layout of what it makes says all: an axis that splits a dim there splits it wherever it is,
//! one that is partial by a softmax there splits the keys, in any order, and no other one splits
//! anything. Nothing else is partial.
//!
//! With loops it can be a ring, too (`spec/cost.md`, *Rings*): then what its products read that has
//! the keys is given split by some axes that split nothing else of it.
//!
//! Where concats join its keys and values it can be had with them in it, too: then a concat lies as
//! what reads it does, and axes that split the keys split each part of what is joined.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, KernelOp, LocalTensor, RingShape, collective_cost, ring_work};
use shard_ir::attention::{
    Ops, attention_of, local_statistics, may_split_keys, softmax_over, statistics_of, with_joined,
};
use shard_ir::{
    AxisList, Collective, Def, DimId, DimSet, Layout, MeshShape, Op, Program, ValueId, never,
};

use crate::kernel::{self, Kernel, Key, is_constant, local_sizes, unpinned};
use crate::moves::Node;
use crate::space::Space;

/// An attention as one kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attention {
    /// Its ops, first to last.
    pub(crate) members: Vec<ValueId>,
    /// The pins through which values within the kernel pass.
    pub(crate) pins: Vec<ValueId>,
    /// What it reads from outside: by which op, as which operand.
    pub(crate) reads: Vec<(ValueId, usize)>,
    /// Of each of these whether it travels in a ring: a product reads it, and it has the keys.
    travels: Vec<Option<usize>>,
    /// The dim that the softmax is over.
    keys: DimId,
    /// The places of the dims of its statistics in what it makes, if axes may split the keys.
    pub(crate) statistics: Option<DimSet>,
    /// The ways of having it.
    pub(crate) ways: Vec<Way>,
    /// The same attention with the concats of its keys and values in it.
    joined: Option<Box<Attention>>,
}

impl Attention {
    /// It, and the same with the concats of its keys and values in it.
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Attention> {
        std::iter::once(self).chain(self.joined.as_deref())
    }

    /// That of these with most in it.
    pub(crate) fn widest(&self) -> &Attention {
        self.joined.as_deref().unwrap_or(self)
    }

    /// What it reads from outside, past pins.
    pub(crate) fn origins(&self, program: &Program) -> Vec<ValueId> {
        let operand = |(by, place): &(ValueId, usize)| program.value(*by).def.operands()[*place];
        self.reads.iter().map(|read| unpinned(program, operand(read))).collect()
    }

    /// Whether a value passes within it, or is what it ends with.
    pub(crate) fn has(&self, id: ValueId) -> bool {
        self.members.contains(&id) || self.pins.contains(&id)
    }
}

/// A way of having it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Way {
    /// The layout that is made.
    pub(crate) out: Node,
    /// Those that are read, in the order of [`Attention::reads`].
    pub(crate) reads: Vec<Node>,
    /// Those that pins let through, in the order of [`Attention::pins`].
    pub(crate) pinned: Vec<Node>,
    /// The kernel.
    pub(crate) kernel: u32,
}

/// The attentions of a program, by what they end with: none where the chip has no such kernel.
pub(crate) fn attentions(
    program: &Program,
    hardware: &Hardware,
    live: &[ValueId],
    readers: &[usize],
) -> Vec<Option<Attention>> {
    let mut all: Vec<Option<Attention>> = vec![None; program.values.len()];
    if hardware.has_attention() {
        let graph = InProgram { program, readers };
        for id in live {
            let Some(members) = attention_of(&graph, *id) else { continue };
            let joined = with_joined(&graph, &members).and_then(|all| attention(program, all));
            let found = attention(program, members);
            let joined = joined.map(|all| {
                let splits = keys_in_any_order(program, &all);
                Box::new(Attention { statistics: all.statistics.filter(|_| splits), ..all })
            });
            all[id.index()] = found.map(|found| Attention { joined, ..found });
        }
    }
    all
}

fn attention(program: &Program, members: Vec<ValueId>) -> Option<Attention> {
    let (keys, op, softmax) = members.iter().find_map(|id| {
        let value = program.value(*id);
        value.def.op().and_then(|op| Some((softmax_over(op)?, op, value)))
    })?;
    let by = statistics_of(&program.value(*members.last()?).dims, &softmax.dims, keys);
    // In a strict layer no merge could be written.
    let statistics = (may_split_keys(op, softmax.dtype) && !program.strict).then_some(by);
    let (mut pins, mut reads, mut travels) = (Vec::new(), Vec::new(), Vec::new());
    for id in &members {
        let is_product = matches!(program.value(*id).def, Def::Op { op: Op::Einsum, .. });
        for (place, operand) in program.value(*id).def.operands().iter().enumerate() {
            if members.contains(&unpinned(program, *operand)) {
                pins.extend(pins_of(program, *operand));
            } else {
                let of_keys = program.value(*operand).dims.iter().position(|dim| *dim == keys);
                reads.push((*id, place));
                travels.push(of_keys.filter(|_| is_product));
            }
        }
    }
    pins.sort_unstable();
    pins.dedup();
    let (ways, joined) = (Vec::new(), None);
    Some(Attention { members, pins, reads, travels, keys, statistics, ways, joined })
}

/// Whether a device may have a block of each part of what is joined, which is no block of all: no
/// mask asks for the places of keys, nothing that is read has them as a dim, and no pin says where
/// what is joined lies.
fn keys_in_any_order(program: &Program, found: &Attention) -> bool {
    let op = |id: ValueId| program.value(id).def.op();
    let has_keys = |(reader, place): &(ValueId, usize)| {
        let operand = program.value(*reader).def.operands()[*place];
        program.value(operand).dims.contains(&found.keys)
    };
    let is_concat = |id: ValueId| matches!(op(id), Some(Op::Concat { .. }));
    !found.members.iter().any(|id| matches!(op(*id), Some(Op::Mask { .. })))
        && !found.reads.iter().any(has_keys)
        && !found.pins.iter().any(|pin| is_concat(unpinned(program, *pin)))
}

/// The pins from a value back to what is pinned.
pub(crate) fn pins_of(program: &Program, mut id: ValueId) -> Vec<ValueId> {
    let mut pins = Vec::new();
    while let Def::Pin { operand, .. } = &program.value(id).def {
        pins.push(id);
        id = *operand;
    }
    pins
}

struct InProgram<'a> {
    program: &'a Program,
    readers: &'a [usize],
}

impl<'a> Ops<'a> for InProgram<'a> {
    type Id = ValueId;

    fn op(&self, id: ValueId) -> Option<&'a Op> {
        self.program.value(id).def.op()
    }

    fn operands(&self, id: ValueId) -> Vec<ValueId> {
        let operands = self.program.value(id).def.operands();
        operands.iter().map(|operand| unpinned(self.program, *operand)).collect()
    }

    fn dims(&self, id: ValueId) -> &'a [DimId] {
        &self.program.value(id).dims
    }

    fn passes_to_all(&self, from: ValueId, to: &[ValueId]) -> bool {
        let program = self.program;
        let fed = to.iter().flat_map(|to| program.value(*to).def.operands());
        let fed: Vec<ValueId> =
            fed.copied().filter(|operand| unpinned(program, *operand) == from).collect();
        let mut passed: Vec<ValueId> =
            fed.iter().flat_map(|operand| pins_of(program, *operand)).collect();
        passed.sort_unstable();
        passed.dedup();
        let all: usize = passed.iter().chain([&from]).map(|id| self.readers[id.index()]).sum();
        let fold = program.value(from).fold;
        to.iter().all(|to| program.value(*to).fold == fold) && all == fed.len() + passed.len()
    }

    fn may_join(&self, _: ValueId) -> bool {
        true
    }
}

/// Enters the ways of having each attention that is looked at; with `loops` as a ring, too.
pub(crate) fn find_ways(space: &mut Space<'_>, loops: bool, known: &mut FxHashMap<Key, u32>) {
    let of_mesh =
        if loops { AxisList::arrangements(space.program.mesh.all_axes()) } else { Vec::new() };
    for product in space.live.clone() {
        let Some(mut found) = space.attentions[product.index()].take() else { continue };
        let mut outs = space.ways[product.index()].out.clone();
        // By itself the last op leaves a sum where the attention leaves a softmax.
        let layouts = space.moves[product.index()].layouts.iter().zip(0..);
        outs.extend(layouts.filter(|(l, _)| !l.softmax_axes().is_empty()).map(|(_, node)| node));
        outs.sort_unstable();
        outs.dedup();
        let layouts = space.moves[product.index()].layouts.clone();
        for out in outs {
            let axes = layouts[out as usize].softmax_axes();
            let orders =
                if axes.is_empty() { vec![AxisList::EMPTY] } else { AxisList::arrangements(axes) };
            for keys in orders.into_iter().filter(|keys| keys.len() == axes.len()) {
                let given = (keys, AxisList::EMPTY);
                found.ways.extend(way(space, &found, product, (out, given), known));
                if let Some(joined) = &mut found.joined
                    && (keys.is_empty() || joined.statistics.is_some())
                {
                    joined.ways.extend(way(space, joined, product, (out, given), known));
                }
            }
            for ring in of_mesh.iter().filter(|_| axes.is_empty() && found.statistics.is_some()) {
                let given = (AxisList::EMPTY, *ring);
                found.ways.extend(way(space, &found, product, (out, given), known));
            }
        }
        space.attentions[product.index()] = Some(found);
    }
}

/// The way that makes one layout, the keys split by these axes, or travelling over those, if there
/// is one.
fn way(
    space: &mut Space<'_>,
    found: &Attention,
    product: ValueId,
    (out, (keys, ring)): (Node, (AxisList, AxisList)),
    known: &mut FxHashMap<Key, u32>,
) -> Option<Way> {
    let program = space.program;
    let made = *space.moves[product.index()].layouts.get(out as usize)?;
    if made.partial_axes() != made.softmax_axes() {
        return None;
    }
    let by_key = (found.keys, keys);
    let lies = lies(program, found, (product, made), by_key)?;
    let own = |id: ValueId| {
        let lies = lies.get(&id).copied();
        lies.unwrap_or_else(|| never!("a member of an attention lies nowhere", Layout::REPLICATED))
    };
    let node = |value: ValueId, layout: Layout| space.moves[value.index()].node(layout);
    let mut layouts = Vec::with_capacity(found.reads.len());
    for (reader, place) in &found.reads {
        let operand = program.value(*reader).def.operands()[*place];
        let layout = restricted(program, operand, *reader, own(*reader), by_key);
        layouts.push((operand, layout));
    }
    let sent = sent_round(program, space.hardware, &found.travels, &mut layouts, ring)?;
    let reads = layouts.iter().map(|(operand, layout)| node(*operand, *layout));
    let reads = reads.collect::<Option<Vec<Node>>>()?;
    let steps = program.mesh.group_size(ring.iter());
    let pinned: Option<Vec<Node>> =
        found.pins.iter().map(|pin| node(*pin, own(unpinned(program, *pin)))).collect();
    let looped = (!ring.is_empty()).then_some((sent, steps));
    let shape = if ring.is_empty() {
        RingShape::NONE
    } else {
        let mut dims = program.value(product).dims.iter().enumerate();
        let along = dims.find(|(at, _)| made.axes_of(*at) == ring).map(|(_, dim)| *dim);
        RingShape { steps, along }
    };
    let kernel = Kernel { work: work(program, found, (by_key, shape), &own), before: 0, looped };
    let kernels = &mut space.kernels;
    let kernel = *known.entry(kernel.key()).or_insert_with(|| {
        kernels.push(kernel);
        kernels.len() as u32 - 1
    });
    Some(Way { out, reads, pinned: pinned?, kernel })
}

/// The layout of each member where the last makes this one: as it is read, and what it ends with as
/// it is made; `None` where two members want a concat otherwise.
fn lies(
    program: &Program,
    found: &Attention,
    (product, made): (ValueId, Layout),
    by_key: (DimId, AxisList),
) -> Option<BTreeMap<ValueId, Layout>> {
    let mut lies = BTreeMap::from([(product, made)]);
    for id in found.members.iter().rev().filter(|id| **id != product) {
        let layout = if joins(program, *id).is_some() {
            // What is joined has dims that a product sums over: it lies as that reads it.
            let mut read = lies.iter().filter(|(by, _)| reads(program, **by, *id));
            let as_read =
                |(by, own): (&ValueId, &Layout)| restricted(program, *id, *by, *own, by_key);
            let first = read.next().map(as_read)?;
            if read.map(as_read).any(|other| other != first) {
                return None;
            }
            first
        } else {
            restricted(program, *id, product, made, by_key)
        };
        lies.insert(*id, layout);
    }
    Some(lies)
}

/// The dims that a concat joins, and that of what it makes.
fn joins(program: &Program, id: ValueId) -> Option<([DimId; 2], DimId)> {
    let Def::Op { op: Op::Concat { left, right, to }, .. } = &program.value(id).def else {
        return None;
    };
    Some(([*left, *right], *to))
}

/// Whether an op reads what another makes, pinned or not.
fn reads(program: &Program, by: ValueId, made: ValueId) -> bool {
    program.value(by).def.operands().iter().any(|operand| unpinned(program, *operand) == made)
}

/// What all that travels over the axes of a ring takes by itself, in picoseconds, each value once;
/// it is then given split by them. `None` where they split another dim of it.
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
        let moved = (unpinned(program, *operand), *layout);
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

/// The layout of an operand whose dims are split as those of what is made of it, and its keys by
/// their axes; what a concat joins is split as what it makes of it.
fn restricted(
    program: &Program,
    operand: ValueId,
    reader: ValueId,
    made: Layout,
    (key, keys): (DimId, AxisList),
) -> Layout {
    let made_dims = &program.value(reader).dims;
    let of_parts = joins(program, reader)
        .and_then(|(parts, to)| made_dims.iter().position(|dim| *dim == to).map(|at| (parts, at)));
    let mut layout = Layout::REPLICATED;
    for (at, dim) in program.value(operand).dims.iter().enumerate() {
        if let Some((_, to)) = of_parts.filter(|(parts, _)| parts.contains(dim)) {
            layout = layout.with_dim(at, made.axes_of(to));
        } else if *dim == key {
            layout = layout.with_dim(at, keys);
        } else if let Some(from) = made_dims.iter().position(|d| d == dim) {
            layout = layout.with_dim(at, made.axes_of(from));
        }
    }
    layout
}

fn work(
    program: &Program,
    found: &Attention,
    (by_key, shape): ((DimId, AxisList), RingShape),
    own: &dyn Fn(ValueId) -> Layout,
) -> shard_cost::Work {
    let statistics = |id: ValueId| {
        if found.members.last() != Some(&id) || own(id).softmax_axes().is_empty() {
            return 0;
        }
        let sizes = program.sizes(&program.value(id).dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        found.statistics.map_or(0, |of| local_statistics(shape, own(id), of))
    };
    let sizes: Vec<Vec<Vec<u64>>> = found
        .members
        .iter()
        .map(|id| {
            let operands = program.value(*id).def.operands().iter();
            let as_read = |o: &ValueId| restricted(program, *o, *id, own(*id), by_key);
            let read = operands.map(|o| local_sizes(program, *o, as_read(o)));
            read.chain([local_sizes(program, *id, own(*id))]).collect()
        })
        .collect();
    let tensors: Vec<Vec<LocalTensor<'_>>> = found
        .members
        .iter()
        .zip(&sizes)
        .map(|(id, sizes)| {
            let values = program.value(*id).def.operands().iter().chain([id]);
            values
                .zip(sizes)
                .map(|(value, sizes)| LocalTensor {
                    value: unpinned(program, *value).0,
                    dims: &program.value(*value).dims,
                    sizes,
                    dtype: program.value(*value).dtype,
                    constant: is_constant(program, *value),
                    statistics: statistics(*value),
                })
                .collect()
        })
        .collect();
    let chain: Vec<KernelOp<'_>> = found
        .members
        .iter()
        .zip(&tensors)
        .filter_map(|(id, tensors)| {
            let (result, operands) = tensors.split_last()?;
            Some(KernelOp { op: kernel::site(program, *id)?.op, operands, result: *result })
        })
        .collect();
    ring_work(&chain, &program.dims, shape)
}
