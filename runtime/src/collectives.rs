//! Executes moves: counts what each device sends, and copies each new block once from where its
//! parts are. A block that all devices of a group get is held once and shared by all of them.
//!
//! | move | algorithm | sent by the busiest device |
//! |---|---|---|
//! | all-gather | ring: K - 1 steps, each device passes on the block that it received last | D(K-1)/K |
//! | reduce-scatter | ring: K - 1 steps, each device adds its own term to the chunk that passes | D(K-1)/K |
//! | all-reduce | reduce-scatter, then all-gather, of the flat buffer in K chunks | 2D(K-1)/K |
//! | all-to-all | direct: each device sends every other one its part | D(K-1)/K |
//! | collective-permute | direct: a device that already holds its next block sends and receives nothing | D |
//! | exchange | direct: each device sends every other one what it has of its new block | D(1 - o) |
//! | softmax-merge | `merge.rs` | |
//! | slice, to-partial | each device by itself | 0 |
//!
//! D is the larger buffer of one device, K the number of devices in the group, o the least part of
//! its new block that any device has before an exchange. A gather or a scatter along several dims
//! sends what one along one dim does. An all-reduce cuts its buffer of n elements into K chunks and
//! pads them to one size; padding is not counted, each chunk counts as n / K elements exactly.

use std::sync::Arc;

use shard_ir::{AxisList, Collective, Dtype, InstrId, Layout, MeshShape, Reduction};

use crate::arithmetic::{Arithmetic, EXACT_LIMIT};
use crate::devices::{Grid, Groups, usizes};
use crate::error::RunError;
use crate::network::Network;
use crate::parallel;
use crate::scalar::maximum;
use crate::spare::Spare;
use crate::tensor::{Element, Section, Tensor};

/// How many elements of a sum are added up at a time: few enough that they stay in the nearest
/// cache while all terms are added.
const AT_ONCE: usize = 1024;

/// How many elements of a sum one core makes at a time.
const OF_ONE_CORE: usize = 1 << 18;

/// The block of each device. Devices with equal blocks may share one.
pub(crate) type Held<T> = Vec<Arc<Tensor<T>>>;

/// One move to execute.
pub(crate) struct Move<'a> {
    pub(crate) id: InstrId,
    pub(crate) collective: Collective,
    pub(crate) shape: MeshShape<'a>,
    pub(crate) from: Layout,
    pub(crate) to: Layout,
    pub(crate) dtype: Dtype,
    pub(crate) arithmetic: Arithmetic,
    /// Where the memory of new blocks may come from.
    pub(crate) spare: &'a Spare,
}

impl Move<'_> {
    /// The block of every device after the move, and the network that carried it.
    pub(crate) fn execute<T: Element>(
        &self,
        grid: &Grid<'_>,
        blocks: &[Arc<Tensor<T>>],
    ) -> Result<(Held<T>, Network), RunError> {
        // An all-reduce alone sends parts of a block.
        let denominator = if let Collective::AllReduce { axes, .. } = self.collective {
            grid.mesh.group_size(axes.iter()) as usize
        } else {
            1
        };
        let mut network = Network::new(grid.devices(), self.dtype.bits(), denominator);
        let out = match self.collective {
            Collective::AllGather { dim, axes } => {
                let groups = Groups::of(grid, &axes);
                let elements = blocks[0].data.len();
                groups.all().for_each(|g| network.send_all(g, g.len() - 1, elements));
                self.once_a_group(&groups, |group| {
                    let parts: Vec<&Tensor<T>> = group.iter().map(|d| &*blocks[*d]).collect();
                    Ok(Tensor::joined_in(&parts, dim, |elements| self.spare.room(elements)))
                })?
            }
            Collective::ReduceScatter { kind, dim, axes } => {
                let groups = Groups::of(grid, &axes);
                let chunk = blocks[0].data.len() / groups.size();
                groups.all().for_each(|g| network.send_all(g, g.len() - 1, chunk));
                self.reduced(grid, &groups, blocks, kind, |device| {
                    blocks[device].place_of_part(dim, groups.size(), groups.rank(device))
                })?
            }
            Collective::AllReduce { kind, axes } => {
                let groups = Groups::of(grid, &axes.iter().collect());
                self.all_reduce(&mut network, &groups, blocks, kind)?
            }
            Collective::AllToAll { from_dim, to_dim, axes } => {
                let groups = Groups::of(grid, &axes);
                let part = blocks[0].data.len() / groups.size();
                groups.all().for_each(|g| network.send_all(g, g.len() - 1, part));
                self.each(grid, |device| {
                    let (group, rank) = (groups.group(device), groups.rank(device));
                    Ok(all_to_all(group, rank, blocks, from_dim, to_dim))
                })?
            }
            Collective::Permute { to } => self.permute(&mut network, grid, blocks, to)?,
            Collective::Exchange { to } => self.exchange(&mut network, grid, blocks, to)?,
            Collective::AllGatherDims { to } => self.gather_dims(&mut network, grid, blocks, to)?,
            Collective::ReduceScatterDims { kind, to } => {
                self.scatter_dims(&mut network, grid, blocks, kind, to)?
            }
            Collective::Slice { dim, axes } => self.each(grid, |device| {
                let parts = grid.mesh.group_size(axes.iter()) as usize;
                Ok(blocks[device].part(dim, parts, grid.rank(device, &axes)))
            })?,
            Collective::SoftmaxMerge { .. } => {
                return Err(RunError::Internal("a merge needs the statistics of what it merges"));
            }
            Collective::ToPartial { kind, dim, axes } => {
                let term = |d| Ok(as_term(grid, d, &blocks[d], kind, dim, axes));
                parallel::map(grid.devices(), self.copied(grid.devices()), term)?
            }
        };
        let local = usizes(&self.shape.local_sizes(self.to));
        if out.iter().all(|t| t.sizes == local) {
            Ok((out, network))
        } else {
            Err(RunError::Internal("a collective gave blocks of the wrong size"))
        }
    }

    /// The block of every device, made on all cores.
    pub(crate) fn each<T: Element>(
        &self,
        grid: &Grid<'_>,
        make: impl Fn(usize) -> Result<Tensor<T>, RunError> + Sync,
    ) -> Result<Held<T>, RunError> {
        let devices = grid.devices();
        parallel::map(devices, self.copied(devices), |device| make(device).map(Arc::new))
    }

    /// A block for each group, made on all cores, which all devices of the group hold.
    pub(crate) fn once_a_group<T: Element>(
        &self,
        groups: &Groups,
        make: impl Fn(&[usize]) -> Result<Tensor<T>, RunError> + Sync,
    ) -> Result<Held<T>, RunError> {
        let count = groups.all().len();
        let made =
            parallel::map(count, self.copied(count), |at| make(groups.number(at)).map(Arc::new))?;
        Ok((0..groups.devices()).map(|device| made[groups.group_of(device)].clone()).collect())
    }

    /// How many elements so many new blocks have.
    pub(crate) fn copied(&self, blocks: usize) -> usize {
        let local: u64 = self.shape.local_sizes(self.to).iter().product();
        (local as usize).saturating_mul(blocks)
    }

    /// A reduce-scatter: each device gets its part of the sum of its group's terms. `section` says
    /// which part of a term that is, by device.
    pub(crate) fn reduced<T: Element>(
        &self,
        grid: &Grid<'_>,
        groups: &Groups,
        blocks: &[Arc<Tensor<T>>],
        kind: Reduction,
        section: impl Fn(usize) -> Section + Sync,
    ) -> Result<Held<T>, RunError> {
        let part = |term: &Tensor<T>, device: usize| {
            let Section { origin, sizes } = section(device);
            term.block_as(&origin, &sizes, self.spare)
        };
        if self.rounds_on_the_way() {
            return self.each(grid, |device| {
                let terms = groups.group(device).iter().map(|d| part(&blocks[*d], device));
                let terms: Vec<Tensor<T>> = terms.collect();
                let data: Vec<&[T]> = terms.iter().map(|term| &term.data[..]).collect();
                tensor(&terms[0].sizes, self.ring_sum(groups.rank(device), data, kind)?)
            });
        }
        let sums = self.sums(groups, blocks, kind)?;
        let parts = self.each(grid, |device| Ok(part(&sums[groups.group_of(device)], device)));
        T::give(self.spare, sums);
        parts
    }

    /// Whether a sum of terms depends on the order in which they meet.
    fn rounds_on_the_way(&self) -> bool {
        match self.arithmetic {
            Arithmetic::Emulated => true,
            Arithmetic::Exact | Arithmetic::F32 | Arithmetic::Single => false,
        }
    }

    /// For each group the sum of its devices' terms, added in the order of the ranks.
    fn sums<T: Element>(
        &self,
        groups: &Groups,
        blocks: &[Arc<Tensor<T>>],
        kind: Reduction,
    ) -> Result<Vec<Arc<Tensor<T>>>, RunError> {
        let (elements, count) = (blocks[0].data.len(), groups.all().len());
        let pieces = elements.div_ceil(OF_ONE_CORE).max(1);
        let work = elements.saturating_mul(blocks.len());
        let mut made = parallel::map(count * pieces, work, |at| {
            let from = at % pieces * OF_ONE_CORE;
            let to = (from + OF_ONE_CORE).min(elements);
            let group = groups.number(at / pieces);
            self.sum(group.iter().map(|d| &blocks[*d].data[from..to]).collect(), kind)
        })?
        .into_iter();
        let whole = |_| {
            let first = made.next().ok_or(RunError::Internal("fewer pieces of a sum than cut"))?;
            let data = (1..pieces).filter_map(|_| made.next()).fold(first, |mut all, more| {
                all.extend(more);
                all
            });
            tensor(&blocks[0].sizes, data).map(Arc::new)
        };
        (0..count).map(whole).collect()
    }

    /// The sum of a chunk that arrives at a rank of a ring. The chunk passes the devices from
    /// rank + 1 on, and each combines its term with it; the rank's own term is the last.
    fn ring_sum<T: Element>(
        &self,
        rank: usize,
        mut terms: Vec<&[T]>,
        kind: Reduction,
    ) -> Result<Vec<T>, RunError> {
        let k = terms.len().max(1);
        terms.rotate_left((rank + 1) % k);
        self.sum(terms, kind)
    }

    /// Terms of one length, combined in their order in `f64`.
    fn sum<T: Element>(&self, terms: Vec<&[T]>, kind: Reduction) -> Result<Vec<T>, RunError> {
        let Some((first, others)) = terms.split_first() else { return Ok(Vec::new()) };
        let mut out = self.spare.room(first.len());
        let mut sums = [0.0; AT_ONCE];
        for (number, terms) in first.chunks(AT_ONCE).enumerate() {
            let sums = &mut sums[..terms.len()];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = term.value());
            for term in others {
                let term = &term[number * AT_ONCE..][..sums.len()];
                combine(self.id, self.arithmetic, self.dtype, kind, sums, term)?;
            }
            self.finish(sums)?;
            out.extend(sums.iter().map(|sum| T::of(*sum)));
        }
        Ok(out)
    }

    /// Rounds a sum whose terms are all added.
    fn finish(&self, sum: &mut [f64]) -> Result<(), RunError> {
        let is_term = !self.to.partial(Reduction::Sum).is_empty();
        let rounded = self.arithmetic.round_all(self.dtype, is_term, sum);
        rounded.ok_or(RunError::Overflow { id: self.id })
    }

    /// Every device gets the whole sum. If a sum depends on the order of its terms, that order is
    /// the ring's: the flat buffer is cut into as many chunks as there are devices, and each chunk
    /// is summed at its own rank.
    fn all_reduce<T: Element>(
        &self,
        network: &mut Network,
        groups: &Groups,
        blocks: &[Arc<Tensor<T>>],
        kind: Reduction,
    ) -> Result<Held<T>, RunError> {
        let (k, elements) = (groups.size(), blocks[0].data.len());
        let chunk = elements.div_ceil(k);
        for device in groups.all().flatten() {
            (0..2 * (k - 1)).for_each(|_| network.send_charged(*device, elements as u128));
        }
        if !self.rounds_on_the_way() {
            let sums = self.sums(groups, blocks, kind)?;
            let of = |device| sums[groups.group_of(device)].clone();
            return Ok((0..groups.devices()).map(of).collect());
        }
        self.once_a_group(groups, |group| {
            let mut sum = Vec::with_capacity(elements);
            for rank in 0..k {
                let here = (rank * chunk).min(elements)..((rank + 1) * chunk).min(elements);
                let terms = group.iter().map(|d| &blocks[*d].data[here.clone()]).collect();
                sum.extend(self.ring_sum(rank, terms, kind)?);
            }
            tensor(&blocks[group[0]].sizes, sum)
        })
    }

    /// Each device gets its block of the new layout from a device that has terms of the same number
    /// (the same coordinates along the partial axes). As many devices hold a block as want it, so
    /// that each sends at most once.
    fn permute<T: Element>(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[Arc<Tensor<T>>],
        to: Layout,
    ) -> Result<Held<T>, RunError> {
        use std::collections::BTreeMap;
        let key = |device: usize, layout: Layout| {
            let terms = grid.projected(device, layout.partial_axes());
            (terms, grid.origin(device, self.shape, layout))
        };
        let mut spare: BTreeMap<(usize, Vec<usize>), Vec<usize>> = BTreeMap::new();
        for device in 0..grid.devices() {
            if key(device, self.from) != key(device, to) {
                spare.entry(key(device, self.from)).or_default().push(device);
            }
        }
        spare.values_mut().for_each(|devices| devices.reverse());
        let moves: Vec<bool> =
            (0..grid.devices()).map(|d| key(d, self.from) != key(d, to)).collect();
        let mut senders: Vec<usize> = (0..grid.devices()).collect();
        for (device, _) in moves.iter().enumerate().filter(|(_, moves)| **moves) {
            let sender = spare.get_mut(&key(device, to)).and_then(Vec::pop);
            senders[device] =
                sender.ok_or(RunError::Internal("no device holds the block that is wanted"))?;
            network.send(senders[device], blocks[senders[device]].data.len());
        }
        Ok(senders.into_iter().map(|sender| blocks[sender].clone()).collect())
    }
}

/// Adds a term to a sum, or takes the maximum with a candidate; `dtype` is that of the value that
/// instruction `id` makes.
pub(crate) fn combine<T: Element>(
    id: InstrId,
    arithmetic: Arithmetic,
    dtype: Dtype,
    kind: Reduction,
    into: &mut [f64],
    term: &[T],
) -> Result<(), RunError> {
    let pairs = into.iter_mut().zip(term);
    match (kind, arithmetic) {
        (Reduction::Sum, Arithmetic::Emulated) => {
            pairs.for_each(|(a, b)| *a = arithmetic.round_term(dtype, *a + b.value()));
        }
        (Reduction::Sum, Arithmetic::Exact | Arithmetic::F32 | Arithmetic::Single) => {
            pairs.for_each(|(a, b)| *a += b.value());
        }
        (Reduction::Max, _) => pairs.for_each(|(a, b)| *a = maximum(*a, b.value())),
    }
    let is_past = |a: &f64| a.is_finite() && a.abs() > EXACT_LIMIT;
    if arithmetic == Arithmetic::Exact && into.iter().any(is_past) {
        return Err(RunError::Overflow { id });
    }
    Ok(())
}

/// The number that a term or candidate combines with and stays as it is.
pub(crate) fn neutral(kind: Reduction) -> f64 {
    match kind {
        Reduction::Sum => 0.0,
        Reduction::Max => f64::NEG_INFINITY,
    }
}

pub(crate) fn tensor<T: Copy>(sizes: &[usize], data: Vec<T>) -> Result<Tensor<T>, RunError> {
    Tensor::new(sizes.to_vec(), data).ok_or(RunError::Internal("a message of the wrong length"))
}

/// The new block of one device of a group. Each device cuts its block along `to_dim`, keeps the
/// part of its own rank and sends the others to theirs; the parts are joined along `from_dim`.
fn all_to_all<T: Element>(
    group: &[usize],
    rank: usize,
    blocks: &[Arc<Tensor<T>>],
    from_dim: usize,
    to_dim: usize,
) -> Tensor<T> {
    let own = &blocks[group[rank]];
    let mut part = own.sizes.clone();
    part[to_dim] /= group.len();
    let mut sizes = part.clone();
    sizes[from_dim] *= group.len();
    let (mut from, mut to) = (vec![0; sizes.len()], vec![0; sizes.len()]);
    from[to_dim] = rank * part[to_dim];
    let mut out = Tensor::filled(sizes, T::of(0.0));
    for device in group {
        out.copy_box(&to, &blocks[*device], &from, &part);
        to[from_dim] += part[from_dim];
    }
    out
}

/// The term of a sum, or the candidate for a maximum, that a device makes of its block. Along `dim`
/// it is as large as the blocks of the group together, has the block at its place, and is neutral
/// elsewhere. Without a dim, it is the block on the first device, and neutral on the others.
fn as_term<T: Element>(
    grid: &Grid<'_>,
    device: usize,
    block: &Arc<Tensor<T>>,
    kind: Reduction,
    dim: Option<usize>,
    axes: AxisList,
) -> Arc<Tensor<T>> {
    let rank = grid.rank(device, &axes);
    let mut sizes = block.sizes.clone();
    let mut origin = vec![0; sizes.len()];
    let neutral = T::of(neutral(kind));
    match dim {
        Some(dim) => {
            origin[dim] = rank * sizes[dim];
            sizes[dim] *= grid.mesh.group_size(axes.iter()) as usize;
        }
        None if rank == 0 => return block.clone(),
        None => return Arc::new(Tensor::filled(sizes, neutral)),
    }
    let mut out = Tensor::filled(sizes, neutral);
    out.write_block(&origin, block);
    Arc::new(out)
}
