//! Kernels: what one op does on a device, and which ops run as one (`spec/cost.md`, *Kernels*).

use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;
use shard_cost::{
    Hardware, LocalTensor, Matmul, Work, begins_a_kernel, fuses_with, loop_time, may_lead_a_kernel,
    op_work, place_in_chain, roofline,
};
use shard_ir::composite::composite_dim;
use shard_ir::{Def, Layout, MeshShape, Op, Picoseconds, Program, ValueId};

use crate::actions::Site;
use crate::attention::{Attention, pins_of};
use crate::carried::{PartialSoftmax, beside};

/// What some ops, in some layouts, take as one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kernel {
    /// What its ops do on a device.
    pub(crate) work: Work,
    /// For a composite in pieces the time of everything before its last kernel, all other pieces
    /// and their moves, in picoseconds; else 0.
    pub(crate) before: u64,
    /// The collective in its loop, for a collective einsum and for a ring.
    pub(crate) in_loop: Option<InLoop>,
}

/// A collective that runs in the loop of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct InLoop {
    /// The time of the collective alone, in picoseconds.
    pub(crate) time: u64,
    /// The number of chunks of the loop.
    pub(crate) chunks: u64,
}

/// The kernels of a space, each with a number.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    all: Vec<Kernel>,
    numbers: FxHashMap<Kernel, u32>,
}

impl Kernels {
    /// The number of a kernel, which is a new one for a new kernel.
    pub(crate) fn number(&mut self, kernel: Kernel) -> u32 {
        *self.numbers.entry(kernel).or_insert_with(|| {
            self.all.push(kernel);
            self.all.len() as u32 - 1
        })
    }

    /// The kernel with a number.
    pub(crate) fn get(&self, number: u32) -> Kernel {
        self.all[number as usize]
    }

    /// The time of each kernel, in picoseconds, by number.
    pub(crate) fn times(&self, hardware: &Hardware) -> Vec<u64> {
        self.all.iter().map(|kernel| kernel.time(hardware)).collect()
    }
}

impl Hash for Kernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Kernel { work, before, in_loop } = self;
        let Work { flops, arithmetic, matmul, attention, ring, read, write, fetched } = work;
        let matmul = matmul.map(|Matmul { batch, sides }| (batch, sides));
        (flops, arithmetic, matmul, [read, write, fetched]).hash(state);
        let ring = ring.map(|pairs| [pairs.fullest, pairs.all]);
        (before, attention, ring, in_loop).hash(state);
    }
}

impl Kernel {
    /// The time of one run, in picoseconds.
    pub(crate) fn time(&self, hardware: &Hardware) -> u64 {
        let (time, _) = roofline(hardware, &self.work);
        let time = match self.in_loop {
            Some(collective) => {
                loop_time(Picoseconds(collective.time), &self.work, time, collective.chunks)
            }
            None => time,
        };
        self.before.saturating_add(time.0)
    }

    /// The kernel with one more elementwise op, which reads `reads` bytes besides what the kernel
    /// made, and makes `makes` bytes.
    pub(crate) fn joined(&self, reads: u64, makes: u64) -> Kernel {
        let mut joined = *self;
        joined.work.read.0 = joined.work.read.0.saturating_add(reads);
        joined.work.write.0 = makes;
        joined
    }
}

/// How an elementwise op joins the kernel that makes what it reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Joins {
    /// The op whose kernel it joins.
    pub(crate) maker: ValueId,
    /// The pins between the maker and the op.
    pub(crate) pins: Vec<ValueId>,
    /// The places of the operands that come from the maker.
    pub(crate) from_maker: Vec<usize>,
    /// For each operand whether the joined kernel reads it anew. It does not read what comes from
    /// the maker. What another op of the kernel may have read already, and what stands twice, is
    /// counted as not read, so that the result is a lower bound.
    pub(crate) reads: Vec<bool>,
    /// The same where the maker's kernel is an attention, whose members read more.
    pub(crate) reads_beside_attention: Vec<bool>,
}

/// The bytes that an op adds to what a kernel reads, if it joins the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Adds {
    pub(crate) alone: u64,
    /// The bytes where the kernel is an attention.
    pub(crate) beside_attention: u64,
}

impl Adds {
    /// The bytes that are added to this kernel.
    pub(crate) fn bytes_in(self, kernel: &Kernel) -> u64 {
        if kernel.work.attention { self.beside_attention } else { self.alone }
    }
}

/// Whether a value is a constant, pinned or not.
pub(crate) fn is_constant(program: &Program, id: ValueId) -> bool {
    constant(program, id).is_some()
}

/// The number that a value is, pinned or not; `None` of any other value.
pub(crate) fn constant(program: &Program, id: ValueId) -> Option<f64> {
    program.value(program.unpinned(id)).def.constant()
}

/// The op of a value, with the types of its operands and its result; `None` for a value that is not
/// made by an op.
pub(crate) fn site(program: &Program, id: ValueId) -> Option<Site<'_>> {
    let value = program.value(id);
    let Def::Op { op, operands } = &value.def else { return None };
    let operands =
        operands.iter().map(|o| program.value(*o)).map(|o| (o.dims.as_slice(), o.dtype)).collect();
    let in_pieces = !program.strict;
    Some(Site {
        op,
        operands,
        result: &value.dims,
        mesh: &program.mesh,
        dims: &program.dims,
        in_pieces,
        carries: None,
    })
}

/// For each live value how its op may join a kernel. `readers` counts the operands and results that
/// read each value.
pub(crate) fn joins(
    program: &Program,
    live: &[ValueId],
    readers: &[usize],
    attentions: &[Option<Attention>],
) -> Vec<Option<Joins>> {
    let mut all: Vec<Option<Joins>> = vec![None; program.values.len()];
    // For each value what the ops of the longest kernel that makes it read; and the same where that
    // kernel is an attention.
    let mut read: Vec<Vec<ValueId>> = vec![Vec::new(); program.values.len()];
    let mut read_by_attention = read.clone();
    let mut places = vec![0; program.values.len()];
    for id in live.iter().copied() {
        let Def::Op { op, operands } = &program.value(id).def else { continue };
        let origins: Vec<ValueId> = operands.iter().map(|o| program.unpinned(*o)).collect();
        let is_op = |v: &&ValueId| matches!(program.value(**v).def, Def::Op { .. });
        let makers = || origins.iter().filter(is_op).copied();
        places[id.index()] = place_in_chain(op, makers(), |maker| places[maker.index()]);
        read[id.index()] = origins.clone();
        let attention = attentions[id.index()].as_ref();
        read_by_attention[id.index()] =
            attention.map_or_else(|| origins.clone(), |found| found.widest().origins(program));
        if begins_a_kernel(places[id.index()]) {
            continue;
        }
        let joins = fuses_with(op, makers(), |maker| may_lead(program, maker, id)).map(|maker| {
            let from_maker: Vec<usize> =
                (0..operands.len()).filter(|i| origins[*i] == maker).collect();
            let mut pins: Vec<ValueId> =
                from_maker.iter().flat_map(|i| pins_of(program, operands[*i])).collect();
            pins.sort_unstable();
            pins.dedup();
            let reads_beside = |known: &[ValueId]| {
                let is_read = |i: usize| {
                    !from_maker.contains(&i)
                        && !known.contains(&origins[i])
                        && !origins[..i].contains(&origins[i])
                        && !is_constant(program, origins[i])
                };
                (0..operands.len()).map(is_read).collect()
            };
            let reads = reads_beside(&read[maker.index()]);
            let reads_beside_attention = reads_beside(&read_by_attention[maker.index()]);
            Joins { maker, pins, from_maker, reads, reads_beside_attention }
        });
        // An op may join only where nobody else reads what the maker makes.
        let joins = joins.filter(|j| {
            let all: usize = j.pins.iter().chain([&j.maker]).map(|v| readers[v.index()]).sum();
            all == j.from_maker.len() + j.pins.len()
        });
        if let Some(joins) = &joins {
            for read in [&mut read, &mut read_by_attention] {
                let more = read[joins.maker.index()].clone();
                read[id.index()].extend(more);
            }
        }
        all[id.index()] = joins;
    }
    all
}

/// Whether an op may join the kernel that makes another value. A composite in pieces ends with an
/// elementwise op, so that its last kernel may be joined.
fn may_lead(program: &Program, maker: ValueId, op: ValueId) -> bool {
    let Some(site) = site(program, maker) else { return false };
    let may = may_lead_a_kernel(site.op) || site.pieces_over().is_some();
    may && program.value(maker).fold == program.value(op).fold
}

/// Whether the kernel that makes a value in a layout may be joined. The one of a composite may be
/// joined only if the layout splits the composite's dim, so that it is done in pieces.
pub(crate) fn may_be_joined(program: &Program, maker: ValueId, layout: Layout) -> bool {
    let value = program.value(maker);
    let Def::Op { op, .. } = &value.def else { return false };
    match composite_dim(op) {
        Some(over) => value
            .dims
            .iter()
            .position(|d| *d == over)
            .is_some_and(|at| !layout.axes_of(at).is_empty()),
        None => true,
    }
}

/// The sizes of a value in a layout on one device.
pub(crate) fn local_sizes(program: &Program, id: ValueId, layout: Layout) -> Vec<u64> {
    let sizes = program.sizes(&program.value(id).dims);
    MeshShape { mesh: &program.mesh, sizes: &sizes }.local_sizes(layout)
}

/// The bytes of a value in a layout on a device.
pub(crate) fn local_bytes(program: &Program, id: ValueId, layout: Layout) -> u64 {
    let value = program.value(id);
    let sizes = program.sizes(&value.dims);
    value.dtype.bytes(MeshShape { mesh: &program.mesh, sizes: &sizes }.local_elements(layout))
}

/// The work of one op in each of its strategies. Work depends only on the local sizes and
/// statistics, so it is kept by these.
pub(crate) struct Works<'a> {
    program: &'a Program,
    id: ValueId,
    op: &'a Op,
    partial_softmaxes: &'a [Option<PartialSoftmax>],
    known: FxHashMap<Vec<u64>, Work>,
}

impl<'a> Works<'a> {
    pub(crate) fn new(
        program: &'a Program,
        id: ValueId,
        op: &'a Op,
        partial_softmaxes: &'a [Option<PartialSoftmax>],
    ) -> Works<'a> {
        Works { program, id, op, partial_softmaxes, known: FxHashMap::default() }
    }

    pub(crate) fn of(&mut self, layouts: &[Layout], result: Layout) -> Work {
        let Works { program, id, op, partial_softmaxes, known } = self;
        let operands = program.value(*id).def.operands();
        let tensors = || operands.iter().zip(layouts).chain([(&*id, &result)]);
        let sizes: Vec<Vec<u64>> =
            tensors().map(|(value, layout)| local_sizes(program, *value, *layout)).collect();
        let statistics: Vec<u64> = tensors()
            .map(|(value, layout)| {
                beside(program, *value, *layout, partial_softmaxes[value.index()])
            })
            .collect();
        *known.entry([sizes.concat(), statistics.clone()].concat()).or_insert_with(|| {
            let local = |at: usize, value: ValueId| LocalTensor {
                value: program.unpinned(value).0,
                dims: &program.value(value).dims,
                sizes: &sizes[at],
                dtype: program.value(value).dtype,
                constant: constant(program, value),
                statistics: statistics[at],
            };
            let read: Vec<LocalTensor<'_>> =
                operands.iter().enumerate().map(|(at, o)| local(at, *o)).collect();
            op_work(op, &read, local(operands.len(), *id))
        })
    }
}
