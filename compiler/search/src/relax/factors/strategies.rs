//! The strategies of one op with their times: alone, with a collective in its loop, as a part of an
//! attention, and as a member of a kernel.

mod attention;

use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_cost::{Bytes, Hardware, RingShape, Work, collective_cost, looped_time, roofline};
use shard_ir::{AxisList, Fused, Layout, MeshShape, Picoseconds, ValueId};

use super::super::graph::{FAR, Graph, NodeId};
use super::builder::Builder;
use super::works::Works;
use super::{Factor, InKernel};
use crate::in_pieces::{InPieces, work_of};
use crate::kernel::Kernels;
use crate::rules::strategies::OpSite;
use attention::{AttentionWay, Travel, rings};

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
    /// The kernel states of the op within an attention, by layout and place.
    within: FxHashMap<(NodeId, InKernel), NodeId>,
    /// All axes that a ring may have; states within rings have their numbers.
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

/// The work of an op: a kernel, and before it the other kernels of a composite in pieces.
#[derive(Clone, Copy)]
struct KernelWork {
    /// The time of the kernels before, in picoseconds.
    before: u64,
    work: Work,
}

impl KernelWork {
    /// The time if the kernel writes `more_bytes` more.
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
        for ((layout, place), state) in builder.states[id.index()].of.iter().zip(base..) {
            match *place {
                InKernel::BytesToCome(bytes) => {
                    states.entry(*layout).or_default().push((state, bytes));
                }
                InKernel::Attention { .. } | InKernel::JoinedAttention => {
                    within.insert((*layout, *place), state);
                }
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
                let to_come = InKernel::BytesToCome(added + to_come);
                member[*place] = self.builder.state(operand, reads[*place], to_come);
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
