//! Making factors: the strategies of each op with their times, alone and as members of kernels.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_cost::{
    Bytes, Hardware, LocalTensor, Work, collective_cost, looped_time, op_work, roofline,
};
use shard_ir::composite::composite_dim;
use shard_ir::{
    AxisList, Def, DimId, Dtype, Fused, Layout, MeshShape, Op, Picoseconds, Program, ValueId,
};

use super::super::graph::{FAR, Graph, Node};
use super::{Factor, KernelStates};
use crate::in_pieces::{Held, HeldOp, InPieces, work_of};
use crate::kernel::Kernels;

/// What two ops must have in common to have the same strategies at the same times: the op, dims and
/// dtypes of operands and result, which operands are the same value or a number, and the kernel
/// states of the result with the first of their numbers (two values of one type differ in the nodes
/// below, where one of them never moves).
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Site {
    op: Op,
    operands: Vec<(Vec<DimId>, Dtype, usize, bool)>,
    /// Whether an op makes the operand of a composite: its pieces are other kernels then.
    by_op: bool,
    result: (Vec<DimId>, Dtype),
    states: Vec<(Node, i64)>,
    first_state: usize,
    times: u64,
}

/// The factors of a program, as they are made: readers before what they read.
pub(super) struct Builder<'s> {
    pub(super) graphs: Vec<Arc<Graph>>,
    pub(super) states: Vec<KernelStates>,
    pub(super) factors: Vec<Arc<Factor>>,
    pub(super) known: &'s mut FxHashMap<Site, Arc<Factor>>,
    pub(super) exact: bool,
    /// How many strategies there may still be.
    pub(super) strategies_left: usize,
}

impl Builder<'_> {
    pub(super) fn node(&self, value: ValueId, layout: Layout) -> Option<Node> {
        self.graphs[value.index()].node(layout)
    }

    fn state(&mut self, value: ValueId, layout: Node, extra: i64) -> Node {
        let base = self.graphs[value.index()].nodes() as Node;
        let states = &mut self.states[value.index()];
        *states.index.entry((layout, extra)).or_insert_with(|| {
            states.of.push((layout, extra));
            base + states.of.len() as Node - 1
        })
    }

    pub(super) fn pin(&mut self, id: ValueId, operand: ValueId, allowed: &[Node]) -> Factor {
        let mut factor = Factor::passed(allowed);
        let base = self.graphs[id.index()].nodes() as Node;
        for i in 0..self.states[id.index()].of.len() {
            let (layout, extra) = self.states[id.index()].of[i];
            if allowed.contains(&layout) {
                let read = self.state(operand, layout, extra);
                factor.push(base + i as Node, [read], 0);
            }
        }
        factor
    }

    /// The factor of an op, which the same op elsewhere may share. One that joins a kernel also
    /// makes kernel states of what it reads, so it is its own.
    pub(super) fn op_shared(
        &mut self,
        kernels: &Kernels,
        hardware: &Hardware,
        id: ValueId,
        op: &Op,
    ) -> Option<Arc<Factor>> {
        let program = kernels.program.as_ref();
        let value = program.value(id);
        let operands = value.def.operands();
        let arity = operands.len();
        if kernels.fusible_operand(id).is_some() || kernels.attention(id).is_some() {
            return Some(Arc::new(Factor { arity, ..self.op(kernels, hardware, id, op)? }));
        }
        let origins: Vec<ValueId> = operands.iter().map(|o| kernels.origin_of(*o)).collect();
        let site = Site {
            op: op.clone(),
            operands: operands
                .iter()
                .zip(&origins)
                .map(|(operand, origin)| {
                    let same = origins.iter().position(|o| o == origin).unwrap_or(0);
                    let constant = matches!(program.value(*origin).def, Def::Constant(_));
                    (
                        program.value(*operand).dims.clone(),
                        program.value(*operand).dtype,
                        same,
                        constant,
                    )
                })
                .collect(),
            by_op: composite_dim(op).is_some()
                && origins.iter().any(|o| matches!(program.value(*o).def, Def::Op { .. })),
            result: (value.dims.clone(), value.dtype),
            states: self.states[id.index()].of.clone(),
            first_state: self.graphs[id.index()].nodes(),
            times: value.times,
        };
        if let Some(known) = self.known.get(&site) {
            return Some(Arc::clone(known));
        }
        let factor = Arc::new(Factor { arity, ..self.op(kernels, hardware, id, op)? });
        self.known.insert(site, Arc::clone(&factor));
        Some(factor)
    }

    /// The strategies of an op: alone, as the head of a kernel, and as a later member of one;
    /// `None` where there are too many.
    fn op(
        &mut self,
        kernels: &Kernels,
        hardware: &Hardware,
        id: ValueId,
        op: &Op,
    ) -> Option<Factor> {
        let program = kernels.program.as_ref();
        let site = kernels.site(id);
        let Some(profile) = kernels.profile(id) else { return Some(Factor::default()) };
        let operands = program.value(id).def.operands();
        let steps = program.value(id).times;
        let mut works = Works::new(kernels, id, op);
        let fused = kernels.fusible_operand(id);
        let skipped: Vec<bool> = match &fused {
            // What an earlier member of the kernel reads already, or an earlier operand is, is not
            // read again; to count it as free keeps a bound.
            Some((places, producer, _)) => {
                let longest =
                    kernels.of[producer.index()].last().map_or(&[][..], |k| k.operands.as_slice());
                let origins: Vec<ValueId> = longest.iter().map(|v| kernels.origin_of(*v)).collect();
                let own: Vec<ValueId> = operands.iter().map(|o| kernels.origin_of(*o)).collect();
                (0..operands.len())
                    .map(|i| {
                        places.contains(&i)
                            || origins.contains(&own[i])
                            || own[..i].contains(&own[i])
                    })
                    .collect()
            }
            None => Vec::new(),
        };
        if let Some((places, ..)) = &fused {
            self.exact &= (0..operands.len()).all(|i| places.contains(&i) || !skipped[i]);
        }
        let mut by_layout: FxHashMap<Node, Vec<(Node, i64)>> = FxHashMap::default();
        let base = self.graphs[id.index()].nodes() as Node;
        // The states within an attention, whose time is paid where it ends.
        let mut within: FxHashMap<Node, Node> = FxHashMap::default();
        for (i, (layout, extra)) in self.states[id.index()].of.iter().enumerate() {
            if *extra == WITHIN_ATTENTION {
                within.insert(*layout, base + i as Node);
            } else {
                by_layout.entry(*layout).or_default().push((base + i as Node, *extra))
            }
        }
        let members = kernels.attention(id).unwrap_or_default();
        let ends_attention = members.last() == Some(&id);
        let keys_at = kernels.statistics(id).and_then(|_| kernels.keys_read_by(id));
        let mut attentions: FxHashMap<(Layout, AxisList), Option<Work>> = FxHashMap::default();
        let result_layouts = match op {
            Op::Split { .. } | Op::Merge { .. } => self.graphs[id.index()].layouts.clone(),
            _ => Vec::new(),
        };
        let graphs: Vec<Arc<Graph>> =
            operands.iter().map(|o| Arc::clone(&self.graphs[o.index()])).collect();
        let own = Arc::clone(&self.graphs[id.index()]);
        let mut factor = Factor::default();
        let mut reads: Vec<Node> = Vec::with_capacity(operands.len());
        let mut loops = kernels.may_loop(id).then(|| Loops {
            kernels,
            hardware,
            id,
            known: FxHashMap::default(),
        });
        let strategies_left = self.strategies_left;
        let whole = site.for_each_strategy(profile, &result_layouts, &mut |result, layouts| {
            let next = ControlFlow::Continue(());
            if factor.out.len() > strategies_left {
                return ControlFlow::Break(());
            }
            let Some(out) = own.node(result) else { return next };
            reads.clear();
            for (graph, layout) in graphs.iter().zip(layouts) {
                match graph.node(*layout) {
                    Some(node) => reads.push(node),
                    None => return next,
                }
            }
            // Of a composite in pieces the last kernel is the one that others join.
            let pieces = if site.is_in_pieces(layouts) {
                in_pieces(kernels, hardware, id, layouts[0])
            } else {
                None
            };
            let (before, work) = pieces.unwrap_or_else(|| (0, works.of(layouts, result)));
            let kernel_time = |extra: i64| {
                let write = (work.write.0 as i64).saturating_add(extra).max(0) as u64;
                let (time, _) = roofline(hardware, &Work { write: Bytes(write), ..work });
                Picoseconds(before.saturating_add(time.0))
            };
            let in_steps = |time: Picoseconds| {
                i64::try_from(time.0.saturating_mul(steps)).unwrap_or(FAR).min(FAR)
            };
            let time = |extra: i64| in_steps(kernel_time(extra));
            factor.push(out, reads.iter().copied(), time(0));
            let states = by_layout.get(&out).map_or(&[][..], |v| v.as_slice());
            for (state, extra) in states {
                factor.push(*state, reads.iter().copied(), time(*extra));
            }
            if let Some(loops) = &mut loops {
                site.for_each_gather(layouts, &mut |fused, given| {
                    let Some(read) = graphs
                        .iter()
                        .zip(given)
                        .map(|(g, l)| g.node(*l))
                        .collect::<Option<Vec<_>>>()
                    else {
                        return;
                    };
                    let (collective, chunks) = loops.collective(&fused, given, result);
                    let looped =
                        |extra: i64| in_steps(looped_time(collective, kernel_time(extra), chunks));
                    factor.push(out, read.iter().copied(), looped(0));
                    for (state, extra) in by_layout.get(&out).map_or(&[][..], |v| v.as_slice()) {
                        factor.push(*state, read.iter().copied(), looped(*extra));
                    }
                });
                site.for_each_scatter(result, &mut |fused, scattered| {
                    let Some(out) = own.node(scattered) else { return };
                    let (collective, chunks) = loops.collective(&fused, layouts, result);
                    factor.push(
                        out,
                        reads.iter().copied(),
                        in_steps(looped_time(collective, kernel_time(0), chunks)),
                    );
                });
            }
            // The axes that split the keys leave what the attention ends with partial by a softmax.
            let (made, keys) = match keys_at {
                Some((operand, at)) if !result.is_complete() => {
                    (result.sums_as_softmax(), layouts[operand].axes_of(at))
                }
                _ => (result, AxisList::EMPTY),
            };
            let out = own.node(made).unwrap_or(out);
            if !members.is_empty()
                && (ends_attention || within.contains_key(&out))
                && kernels.read_in_attention(id, made, keys).as_deref() == Some(layouts)
            {
                let member: Vec<Node> = (0..operands.len())
                    .map(|i| {
                        if members.contains(&kernels.origin_of(operands[i])) {
                            self.state(operands[i], reads[i], WITHIN_ATTENTION)
                        } else {
                            reads[i]
                        }
                    })
                    .collect();
                if let Some(state) = within.get(&out) {
                    factor.push(*state, member.iter().copied(), 0);
                }
                let work = *attentions
                    .entry((made, keys))
                    .or_insert_with(|| attention_work(kernels, id, (made, keys)));
                let states = if keys.is_empty() { states } else { &[] };
                if let Some(work) = work.filter(|_| ends_attention) {
                    for (out, extra) in std::iter::once((out, 0)).chain(states.iter().copied()) {
                        let write = (work.write.0 as i64).saturating_add(extra).max(0) as u64;
                        let work = Work { write: Bytes(write), ..work };
                        let time = in_steps(roofline(hardware, &work).0);
                        factor.push(out, member.iter().copied(), time);
                    }
                }
            }
            let Some((places, producer, _)) = &fused else { return next };
            let between = layouts[places[0]];
            if !kernels.may_be_joined(*producer, between)
                || places.iter().any(|p| layouts[*p] != between)
            {
                return next;
            }
            // As a later member: its own reads and the larger result are the kernel's to pay, at
            // its head.
            let added = works.added(layouts, result, &skipped, places[0]);
            for (out, to_come) in std::iter::once((out, 0)).chain(states.iter().copied()) {
                let mut member = reads.clone();
                for place in places {
                    member[*place] = self.state(operands[*place], reads[*place], added + to_come);
                }
                factor.push(out, member, 0);
            }
            next
        });
        self.strategies_left = self.strategies_left.saturating_sub(factor.out.len());
        whole.is_continue().then_some(factor)
    }
}

/// In place of the bytes to come of a kernel state: the value is within an attention, whose time
/// its last op pays.
const WITHIN_ATTENTION: i64 = i64::MIN;

/// The work of the attention that ends with a value in a layout, as one kernel.
fn attention_work(kernels: &Kernels, product: ValueId, made: (Layout, AxisList)) -> Option<Work> {
    let kernel = kernels.of[product.index()].iter().find(|kernel| kernel.attention > 0)?;
    let reads = kernels.attention_reads(product, made, &|_, _, _| true, &|_, _| true)?;
    let layouts = kernels.operand_layouts(kernel, None, &reads)?;
    let held = |(link, (id, read)): (usize, (&ValueId, &Vec<Layout>))| {
        let site = kernels.site(*id);
        let operands = kernels.program.value(*id).def.operands().iter().zip(read);
        Some(HeldOp {
            result: Held::of(kernels, *id, kernels.made_in(kernel, link, read)?),
            operands: operands.map(|(o, layout)| Held::of(kernels, *o, *layout)).collect(),
            op: Cow::Owned(site.op.clone()),
        })
    };
    let chain: Vec<HeldOp<'_>> =
        kernel.chain.iter().zip(&layouts).enumerate().map(held).collect::<Option<_>>()?;
    Some(work_of(&chain, &kernels.program.dims))
}

/// The collectives in the loops of one einsum. Their times depend on little, and few of them
/// differ.
struct Loops<'a> {
    kernels: &'a Kernels,
    hardware: &'a Hardware,
    id: ValueId,
    /// By the operand that is gathered (none for the product), the local elements of the larger
    /// buffer, and the axes.
    known: FxHashMap<(Option<usize>, u64, AxisList), Picoseconds>,
}

impl Loops<'_> {
    /// The time of a collective by itself and the chunks of its loop, given the operands and the
    /// layout of the product.
    fn collective(
        &mut self,
        fused: &Fused,
        given: &[Layout],
        product: Layout,
    ) -> (Picoseconds, u64) {
        let program = self.kernels.program.as_ref();
        let (moved, from) = match fused.gathered() {
            Some(place) => (program.value(self.id).def.operands()[place], given[place]),
            None => (self.id, product),
        };
        let value = program.value(moved);
        let sizes = program.sizes(&value.dims);
        let elements = MeshShape { mesh: &program.mesh, sizes: &sizes }.local_elements(from);
        let chunks = fused.chunks(&program.mesh);
        let time =
            self.known.entry((fused.gathered(), elements, fused.axes())).or_insert_with(|| {
                collective_cost(
                    self.hardware,
                    &program.mesh,
                    &fused.collective(),
                    from,
                    &sizes,
                    value.dtype,
                )
                .time
            });
        (*time, chunks)
    }
}

/// Of a composite in pieces: the time of all but the last kernel, and the work of that.
fn in_pieces(
    kernels: &Kernels,
    hardware: &Hardware,
    id: ValueId,
    operand: Layout,
) -> Option<(u64, Work)> {
    let pieces = InPieces::new(kernels, hardware, id, operand)?;
    Some((
        pieces.before_the_last(hardware).time,
        work_of(&pieces.last_kernel(), &kernels.program.dims),
    ))
}

/// The work of one op in all its strategies. It depends on the local sizes alone, and few of them
/// differ.
struct Works<'a> {
    program: &'a Program,
    op: &'a Op,
    operands: Vec<(u32, ValueId, bool)>,
    result: ValueId,
    known: FxHashMap<Vec<u64>, Work>,
    key: Vec<u64>,
}

impl<'a> Works<'a> {
    fn new(kernels: &'a Kernels, id: ValueId, op: &'a Op) -> Works<'a> {
        let program = kernels.program.as_ref();
        let operands = program.value(id).def.operands();
        Works {
            program,
            op,
            operands: operands
                .iter()
                .map(|o| {
                    let origin = kernels.origin_of(*o);
                    (origin.0, *o, matches!(program.value(origin).def, Def::Constant(_)))
                })
                .collect(),
            result: id,
            known: FxHashMap::default(),
            key: Vec::new(),
        }
    }

    fn local(&self, value: ValueId, layout: Layout, into: &mut Vec<u64>) {
        let mesh = &self.program.mesh;
        let start = into.len();
        into.extend(
            self.program.value(value).dims.iter().map(|d| self.program.dims[d.index()].size),
        );
        for axis in mesh.axis_ids() {
            if let shard_ir::Place::Split { dim, .. } = layout.place(axis) {
                into[start + dim] /= mesh.size(axis);
            }
        }
    }

    fn of(&mut self, layouts: &[Layout], result: Layout) -> Work {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for ((_, value, _), layout) in self.operands.iter().zip(layouts) {
            self.local(*value, *layout, &mut key);
        }
        self.local(self.result, result, &mut key);
        let work = match self.known.get(&key) {
            Some(work) => *work,
            None => {
                let mut at = 0;
                let mut tensor = |value: ValueId, name: u32, constant: bool| {
                    let v = self.program.value(value);
                    let sizes = &key[at..at + v.dims.len()];
                    at += v.dims.len();
                    {
                        let (dims, dtype) = (&v.dims, v.dtype);
                        LocalTensor { value: name, dims, sizes, dtype, constant, statistics: 0 }
                    }
                };
                let operands: Vec<LocalTensor<'_>> = self
                    .operands
                    .iter()
                    .map(|(name, value, constant)| tensor(*value, *name, *constant))
                    .collect();
                let result = tensor(self.result, self.result.0, false);
                let work = op_work(self.op, &operands, result);
                self.known.insert(key.clone(), work);
                work
            }
        };
        self.key = key;
        work
    }

    /// The bytes that an elementwise op adds to the kernel that makes the operand at `fed`: what it
    /// reads beside it, and how much larger its result is.
    fn added(&self, layouts: &[Layout], result: Layout, skipped: &[bool], fed: usize) -> i64 {
        let bytes = |value: ValueId, layout: Layout| {
            let mut sizes = Vec::new();
            self.local(value, layout, &mut sizes);
            self.program.value(value).dtype.bytes(sizes.iter().product()) as i64
        };
        let read: i64 = self
            .operands
            .iter()
            .enumerate()
            .filter(|(i, (_, _, constant))| !constant && !skipped[*i])
            .map(|(i, (_, value, _))| bytes(*value, layouts[i]))
            .sum();
        read + bytes(self.result, result) - bytes(self.operands[fed].1, layouts[fed])
    }
}
