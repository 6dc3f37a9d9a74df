//! The strategies of one op with their times: alone, with a collective in its loop, as a part of an
//! attention, and as a member of a kernel.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_cost::{
    Bytes, Hardware, RingShape, Work, collective_cost, loop_time, looped_time, roofline,
};
use shard_ir::{AxisList, Fused, Layout, MeshShape, Picoseconds, ValueId};

use super::super::graph::{FAR, Graph, NodeId};
use super::Factor;
use super::builder::Builder;
use super::works::Works;
use crate::in_pieces::{Held, HeldOp, InPieces, work_of};
use crate::kernel::{Kernels, Link};
use crate::rules::strategies::OpSite;
use crate::times::travel_cost;

/// The strategies of an op, found one by one.
pub(super) struct Strategies<'b, 's, 'k> {
    builder: &'b mut Builder<'s>,
    kernels: &'k Kernels,
    hardware: &'k Hardware,
    id: ValueId,
    site: Rc<OpSite<'k>>,
    /// How often the step of the op is executed.
    steps: u64,
    operands: &'k [ValueId],
    graphs: Vec<Arc<Graph>>,
    pub(super) own: Arc<Graph>,
    works: Works<'k>,
    /// The kernel states of the op by their layouts, each with the bytes to come.
    states: States,
    /// The states of the op within an attention, whose last op pays its time; by layout, and by the
    /// number that stands for the bytes to come ([`WITHIN_ATTENTION`] and above).
    within: FxHashMap<(NodeId, i64), NodeId>,
    /// All axes that a ring may have; their places number the states within rings.
    rings: Vec<AxisList>,
    /// The ops of the attention that the op is part of; empty where it is part of none.
    members: &'k [ValueId],
    /// The same with the concats that join the keys and values, where these may be in the
    /// attention.
    joined_members: &'k [ValueId],
    /// The work of each way of running the attention, and what travels where it is a ring; `None`
    /// where the attention cannot run so.
    attentions: FxHashMap<AttentionWay, Option<(Work, Travel)>>,
    /// The operand with the keys of the attention, and the place of the dim of the keys there.
    keys_at: Option<(usize, usize)>,
    loops: Option<Loops<'k>>,
    /// Where the op joins the kernel of an operand: the places of that operand, and the op that
    /// makes it.
    joins: Option<(Vec<usize>, ValueId)>,
    /// For each operand, whether the kernel that the op joins reads it already.
    skipped: Vec<bool>,
    /// The nodes that the strategy at hand reads; kept to reuse the memory.
    reads: Vec<NodeId>,
    pub(super) factor: Factor,
}

/// The time of what travels in a ring, and the number of its steps; `None` for an attention that is
/// no ring.
type Travel = Option<(Picoseconds, u64)>;

/// An attention run as one kernel in one way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct AttentionWay {
    /// The layout of its result.
    made: Layout,
    /// The axes that split the keys.
    keys: AxisList,
    /// The axes of its ring; none where it is no ring.
    ring: AxisList,
    /// Whether the concats that join its keys and values are in the kernel.
    is_joined: bool,
}

/// The work of an op: a kernel, and before it the other kernels of a composite in pieces.
#[derive(Clone, Copy)]
struct KernelWork {
    /// The time of the kernels before, in picoseconds.
    before: u64,
    work: Work,
}

impl KernelWork {
    /// The time where the kernel writes so many bytes more.
    fn time(&self, hardware: &Hardware, more_bytes: i64) -> Picoseconds {
        let write = (self.work.write.0 as i64).saturating_add(more_bytes).max(0) as u64;
        let (time, _) = roofline(hardware, &Work { write: Bytes(write), ..self.work });
        Picoseconds(self.before.saturating_add(time.0))
    }
}

/// A strategy by layouts, and by their nodes in the graphs of the values.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// The layout of the result, and its node.
    result: Layout,
    out: NodeId,
    /// The layouts of the operands, and their nodes.
    layouts: &'a [Layout],
    reads: &'a [NodeId],
    /// The kernel states that the strategy may begin, each with the bytes to come.
    states: &'a [(NodeId, i64)],
}

/// For each layout in which a value is made, its kernel states: each with the bytes to come.
type States = FxHashMap<NodeId, Vec<(NodeId, i64)>>;

impl<'b, 's, 'k> Strategies<'b, 's, 'k> {
    /// The strategies of an op, none found yet.
    pub(super) fn new(
        builder: &'b mut Builder<'s>,
        kernels: &'k Kernels,
        hardware: &'k Hardware,
        id: ValueId,
    ) -> Strategies<'b, 's, 'k> {
        let operands = kernels.program.value(id).def.operands();
        let joins = kernels.fusible_operand(id).map(|(places, producer, _)| (places, producer));
        let skipped = joins.as_ref().map_or_else(Vec::new, |(places, producer)| {
            skipped(kernels, operands, places, *producer)
        });
        if let Some((places, _)) = &joins {
            builder.exact &= (0..operands.len()).all(|i| places.contains(&i) || !skipped[i]);
        }
        let own = Arc::clone(&builder.graphs[id.index()]);
        let base = own.nodes() as NodeId;
        let mut states = States::default();
        let mut within = FxHashMap::default();
        for ((layout, extra), state) in builder.states[id.index()].of.iter().zip(base..) {
            if *extra < OUTSIDE {
                within.insert((*layout, *extra), state);
            } else {
                states.entry(*layout).or_default().push((state, *extra));
            }
        }
        let site = kernels.site(id);
        let loops = kernels.may_loop(id).then(|| Loops {
            kernels,
            hardware,
            id,
            known: FxHashMap::default(),
        });
        Strategies {
            graphs: operands.iter().map(|o| Arc::clone(&builder.graphs[o.index()])).collect(),
            builder,
            kernels,
            hardware,
            id,
            operands,
            own,
            works: Works::new(kernels, id, site.op),
            site: Rc::new(site),
            steps: kernels.program.value(id).times,
            states,
            within,
            rings: rings(kernels, id),
            members: kernels.attention(id).unwrap_or_default(),
            joined_members: kernels.joined(id).unwrap_or_default(),
            attentions: FxHashMap::default(),
            keys_at: kernels.keys_read_by(id).filter(|_| kernels.may_split_keys_of(id)),
            loops,
            joins,
            skipped,
            reads: Vec::with_capacity(operands.len()),
            factor: Factor::default(),
        }
    }

    /// Adds all that follows from one strategy of the op by layouts; nothing where a graph lacks
    /// one of the layouts.
    pub(super) fn strategy(&mut self, result: Layout, layouts: &[Layout]) {
        let Some(out) = self.own.node(result) else { return };
        let mut reads = std::mem::take(&mut self.reads);
        reads.clear();
        let nodes = self.graphs.iter().zip(layouts).map_while(|(graph, l)| graph.node(*l));
        reads.extend(nodes);
        if reads.len() == layouts.len() {
            let all = std::mem::take(&mut self.states);
            self.of_layouts(result, out, layouts, &reads, &all);
            self.states = all;
        }
        self.reads = reads;
    }

    /// Adds what a concat of keys or values does only inside an attention: it joins its parts while
    /// each of them is split.
    pub(super) fn joins_parts(&mut self) {
        let (kernels, id) = (self.kernels, self.id);
        let own = Arc::clone(&self.own);
        for (layout, out) in own.layouts.iter().zip(0..) {
            let is_wanted = self.within.contains_key(&(out, WITHIN_JOINED));
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
            self.member(concat, AxisList::EMPTY, AxisList::EMPTY, WITHIN_JOINED);
        }
    }

    fn of_layouts(
        &mut self,
        result: Layout,
        out: NodeId,
        layouts: &[Layout],
        reads: &[NodeId],
        all_states: &States,
    ) {
        let states = |node: NodeId| all_states.get(&node).map_or(&[][..], Vec::as_slice);
        let candidate = Candidate { result, out, layouts, reads, states: states(out) };
        // Of a composite in pieces, later ops join the last kernel.
        let pieces = if self.site.is_in_pieces(layouts) {
            in_pieces(self.kernels, self.hardware, self.id, layouts[0])
        } else {
            None
        };
        let work = pieces
            .unwrap_or_else(|| KernelWork { before: 0, work: self.works.of(layouts, result) });
        let hardware = self.hardware;
        self.push(out, reads, candidate.states, &|extra| work.time(hardware, extra));
        self.looped(candidate, work);
        // Where axes split the keys, the attention makes a result that is partial by a softmax.
        let (made, keys) = match self.keys_at {
            Some((operand, at)) if !result.is_complete() => {
                (result.sums_as_softmax(), layouts[operand].axes_of(at))
            }
            _ => (result, AxisList::EMPTY),
        };
        let made_out = self.own.node(made).unwrap_or(out);
        let merged =
            Candidate { result: made, out: made_out, states: states(made_out), ..candidate };
        self.in_attention(merged, keys);
        self.joined(candidate);
    }

    /// Adds a strategy as the head of a kernel: by itself, and with each kernel state that it may
    /// begin. `time` is given the bytes that the rest of the kernel adds.
    fn push(
        &mut self,
        out: NodeId,
        reads: &[NodeId],
        states: &[(NodeId, i64)],
        time: &dyn Fn(i64) -> Picoseconds,
    ) {
        for (out, extra) in std::iter::once((out, 0)).chain(states.iter().copied()) {
            let time = time(extra).0.saturating_mul(self.steps);
            let time = i64::try_from(time).unwrap_or(FAR).min(FAR);
            self.factor.push(out, reads.iter().copied(), time);
        }
    }

    /// Adds the strategies with a gather of an operand or the scatter of the result in the loop of
    /// the op.
    fn looped(&mut self, candidate: Candidate<'_>, work: KernelWork) {
        let Candidate { result, out, layouts, reads, states } = candidate;
        // A loop does not act on an attention over a part of the keys.
        if !result.softmax_axes().is_empty() {
            return;
        }
        let Some(mut loops) = self.loops.take() else { return };
        let (site, hardware) = (Rc::clone(&self.site), self.hardware);
        site.for_each_gather(layouts, &mut |fused, given| {
            let nodes = self.graphs.iter().zip(given).map(|(g, l)| g.node(*l));
            let Some(read) = nodes.collect::<Option<Vec<_>>>() else { return };
            let (collective, chunks) = loops.collective(&fused, given, result);
            let time = |extra| looped_time(collective, work.time(hardware, extra), chunks);
            self.push(out, &read, states, &time);
        });
        site.for_each_scatter(result, &mut |fused, scattered| {
            let Some(out) = self.own.node(scattered) else { return };
            let (collective, chunks) = loops.collective(&fused, layouts, result);
            let time = |extra| looped_time(collective, work.time(hardware, extra), chunks);
            self.push(out, reads, &[], &time);
        });
        self.loops = Some(loops);
    }

    /// Adds the strategies within an attention, or as its last op; those of a ring, too.
    fn in_attention(&mut self, candidate: Candidate<'_>, keys: AxisList) {
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
            self.member(candidate, keys, AxisList::EMPTY, WITHIN_ATTENTION);
        }
        if !self.joined_members.is_empty() && (keys.is_empty() || kernels.may_split_joined(id)) {
            self.member(candidate, keys, AxisList::EMPTY, WITHIN_JOINED);
        }
        if !keys.is_empty() || !made.is_complete() {
            return;
        }
        for (ring, extra) in self.rings.clone().into_iter().zip(WITHIN_ATTENTION + 1..) {
            let is_wanted = ends || self.within.contains_key(&(out, extra));
            let given = kernels.in_ring(id, layouts, ring).filter(|_| is_wanted);
            let Some((_, given)) = given else { continue };
            let nodes = self.graphs.iter().zip(&given).map(|(graph, l)| graph.node(*l));
            if let Some(read) = nodes.collect::<Option<Vec<_>>>() {
                self.member(Candidate { reads: &read, ..candidate }, keys, ring, extra);
            }
        }
    }

    /// Adds a strategy within the attention that `extra` stands for, or as its last op, which pays
    /// its time. `ring` has the axes of its ring, if it is a ring.
    fn member(&mut self, candidate: Candidate<'_>, keys: AxisList, ring: AxisList, extra: i64) {
        let Candidate { result: made, out, reads, states, .. } = candidate;
        let (kernels, hardware, id) = (self.kernels, self.hardware, self.id);
        let is_joined = extra == WITHIN_JOINED;
        let members = if is_joined { self.joined_members } else { self.members };
        let ends = members.last() == Some(&id);
        let work = ends.then(|| {
            let way = AttentionWay { made, keys, ring, is_joined };
            let work = self.attentions.entry(way);
            *work.or_insert_with(|| attention_work(kernels, hardware, members, way))
        });
        let state = self.within.get(&(out, extra)).copied();
        if state.is_none() && work.flatten().is_none() {
            return;
        }
        let mut member = reads.to_vec();
        for (read, operand) in member.iter_mut().zip(self.operands) {
            if members.contains(&kernels.origin_of(*operand)) {
                *read = self.builder.state(*operand, *read, extra);
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

    /// Adds a strategy as a later member of a kernel. The head of the kernel pays for what the op
    /// reads beside the kernel, and for the larger result.
    fn joined(&mut self, candidate: Candidate<'_>) {
        let Candidate { result, out, layouts, reads, states } = candidate;
        let Some((places, producer)) = &self.joins else { return };
        let between = layouts[places[0]];
        if !self.kernels.may_be_joined(*producer, between)
            || places.iter().any(|p| layouts[*p] != between)
        {
            return;
        }
        let added = self.works.added(layouts, result, &self.skipped, places[0]);
        for (out, to_come) in std::iter::once((out, 0)).chain(states.iter().copied()) {
            let mut member = reads.to_vec();
            for place in places {
                let operand = self.operands[*place];
                member[*place] = self.builder.state(operand, reads[*place], added + to_come);
            }
            self.factor.push(out, member, 0);
        }
    }
}

/// For each operand of an op that joins a kernel, whether it is not read again: an earlier member
/// of the kernel or an earlier operand may be the same value. To count such a read as free keeps
/// times lower bounds.
fn skipped(
    kernels: &Kernels,
    operands: &[ValueId],
    places: &[usize],
    producer: ValueId,
) -> Vec<bool> {
    let longest = kernels.of[producer.index()].last().map_or(&[][..], |k| k.operands.as_slice());
    let origins: Vec<ValueId> = longest.iter().map(|v| kernels.origin_of(*v)).collect();
    let own: Vec<ValueId> = operands.iter().map(|o| kernels.origin_of(*o)).collect();
    (0..operands.len())
        .map(|i| places.contains(&i) || origins.contains(&own[i]) || own[..i].contains(&own[i]))
        .collect()
}

/// Stands in place of the bytes to come of a kernel state for a value within an attention, whose
/// last op pays its time. The numbers above it stand for rings, one for each arrangement of axes.
const WITHIN_ATTENTION: i64 = i64::MIN;

/// The same for a value within an attention that has the concats of its keys and values in it;
/// above the numbers of all rings.
const WITHIN_JOINED: i64 = WITHIN_ATTENTION + (1 << 32);

/// No bytes to come are below this number.
const OUTSIDE: i64 = i64::MIN / 2;

/// The axes that the rings may have of the attention that an op is part of.
fn rings(kernels: &Kernels, id: ValueId) -> Vec<AxisList> {
    let product = kernels.attention(id).and_then(|members| members.last().copied());
    let may = kernels.loops && product.is_some_and(|id| kernels.may_split_keys_of(id));
    if may { AxisList::arrangements(kernels.program.mesh.all_axes()) } else { Vec::new() }
}

/// The work of these ops as one attention in one kernel, and what travels meanwhile if it is a
/// ring; `None` where they cannot run so.
fn attention_work(
    kernels: &Kernels,
    hardware: &Hardware,
    members: &[ValueId],
    AttentionWay { made, keys, ring, is_joined: _ }: AttentionWay,
) -> Option<(Work, Travel)> {
    let of_product = &kernels.of[members.last()?.index()];
    let kernel = of_product.iter().find(|kernel| kernel.chain == members)?;
    let ends = (made, keys, ring);
    let reads = kernels.attention_reads(members, ends, &|_, _, _, _| true, &|_, _| true)?;
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

/// The times of the collectives in the loops of one einsum, by the little that they depend on.
struct Loops<'a> {
    kernels: &'a Kernels,
    hardware: &'a Hardware,
    id: ValueId,
    /// The key is the operand that is gathered (`None` for the scatter of the product), the local
    /// elements of the larger buffer, and the axes.
    known: FxHashMap<(Option<usize>, u64, AxisList), Picoseconds>,
}

impl Loops<'_> {
    /// The time of a collective by itself and the chunks of its loop; `given` has the layouts of
    /// the operands.
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

/// The work of a composite in pieces: the time of all kernels but the last, and the work of the
/// last.
fn in_pieces(
    kernels: &Kernels,
    hardware: &Hardware,
    id: ValueId,
    operand: Layout,
) -> Option<KernelWork> {
    let pieces = InPieces::new(kernels, hardware, id, operand)?;
    Some(KernelWork {
        before: pieces.before_the_last(hardware).time,
        work: work_of(&pieces.last_kernel(), &kernels.program.dims, RingShape::NONE),
    })
}
