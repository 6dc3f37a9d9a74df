//! Collectives as messages between devices.
//!
//! | move | algorithm | sent by the busiest device |
//! |---|---|---|
//! | all-gather | ring: K - 1 steps, each device passes on the block that it received last | D(K-1)/K |
//! | reduce-scatter | ring: K - 1 steps, each device adds its own term to the chunk that passes | D(K-1)/K |
//! | all-reduce | reduce-scatter, then all-gather, of the flat buffer in K chunks | 2D(K-1)/K |
//! | all-to-all | direct: each device sends every other one its part | D(K-1)/K |
//! | collective-permute | direct: a device that already holds its next block sends and receives nothing | D |
//! | exchange | direct: each device sends every other one what it has of its new block | D(1 - o) |
//! | slice, to-partial | each device by itself | 0 |
//!
//! A gather or a scatter along several dims goes as one along one dim. o is the least part of its
//! new block that any device has before. D is the larger buffer of one device, K the devices in the
//! group. An all-reduce whose buffer of n elements is no multiple of K pads it: the padding travels
//! and is not charged, each chunk counts as n / K elements exactly.

use shard_ir::{AxisList, Collective, Dtype, InstrId, Layout, MeshShape, Reduction};

use crate::arithmetic::{Arithmetic, EXACT_LIMIT};
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::network::Network;
use crate::scalar::maximum;
use crate::tensor::Tensor;

/// One move to execute.
pub(crate) struct Move<'a> {
    pub(crate) id: InstrId,
    pub(crate) collective: Collective,
    pub(crate) shape: MeshShape<'a>,
    pub(crate) from: Layout,
    pub(crate) to: Layout,
    pub(crate) dtype: Dtype,
    pub(crate) arithmetic: Arithmetic,
}

impl Move<'_> {
    /// The block of every device after the move, and the network that carried it.
    pub(crate) fn execute(
        &self,
        grid: &Grid<'_>,
        blocks: &[&Tensor],
    ) -> Result<(Vec<Tensor>, Network), RunError> {
        let denominator = match self.collective {
            Collective::AllReduce { axes, .. } => grid.mesh.group_size(axes.iter()) as usize,
            Collective::AllGather { .. }
            | Collective::AllGatherDims { .. }
            | Collective::ReduceScatter { .. }
            | Collective::ReduceScatterDims { .. }
            | Collective::AllToAll { .. }
            | Collective::Permute { .. }
            | Collective::Exchange { .. }
            | Collective::Slice { .. }
            | Collective::ToPartial { .. } => 1,
        };
        let mut network = Network::new(grid.devices(), self.dtype.bits(), denominator);
        let out = match self.collective {
            Collective::AllGather { dim, axes } => in_groups(grid, &axes, |group| {
                let own: Vec<Vec<f64>> = group.iter().map(|d| blocks[*d].data.clone()).collect();
                let sizes = &blocks[group[0]].sizes;
                let gathered = ring_all_gather(&mut network, group, own, None)?;
                gathered
                    .into_iter()
                    .map(|pieces| Ok(Tensor::joined(&tensors(sizes, pieces)?, dim)))
                    .collect()
            })?,
            Collective::ReduceScatter { kind, dim, axes } => in_groups(grid, &axes, |group| {
                let parts: Vec<Vec<Tensor>> =
                    group.iter().map(|d| blocks[*d].cut(dim, group.len())).collect();
                let sizes = parts[0][0].sizes.clone();
                let chunks =
                    parts.into_iter().map(|p| p.into_iter().map(|t| t.data).collect()).collect();
                let sums = self.ring_reduce_scatter(&mut network, group, chunks, kind, None)?;
                tensors(&sizes, sums)
            })?,
            Collective::AllReduce { kind, axes } => {
                let axes: AxisList = axes.iter().collect();
                in_groups(grid, &axes, |group| self.all_reduce(&mut network, group, blocks, kind))?
            }
            Collective::AllToAll { from_dim, to_dim, axes } => in_groups(grid, &axes, |group| {
                all_to_all(&mut network, group, blocks, (from_dim, to_dim))
            })?,
            Collective::Permute { to } => self.permute(&mut network, grid, blocks, to)?,
            Collective::Exchange { to } => self.exchange(&mut network, grid, blocks, to)?,
            Collective::AllGatherDims { to } => {
                let axes = self.collective.axes(grid.mesh, self.from);
                self.gather_dims(&mut network, grid, blocks, (&axes, to))?
            }
            Collective::ReduceScatterDims { kind, to } => {
                let axes = self.collective.axes(grid.mesh, self.from);
                self.scatter_dims(&mut network, grid, blocks, (kind, &axes, to))?
            }
            Collective::Slice { dim, axes } => (0..grid.devices())
                .map(|d| {
                    let parts = grid.mesh.group_size(axes.iter()) as usize;
                    blocks[d].cut(dim, parts).swap_remove(grid.rank(d, &axes))
                })
                .collect(),
            Collective::ToPartial { kind, dim, axes } => {
                (0..grid.devices()).map(|d| as_term(grid, d, blocks[d], kind, dim, axes)).collect()
            }
        };
        if !network.is_quiet() {
            return Err(RunError::Internal("a message was sent that nobody took"));
        }
        let local = usizes(&self.shape.local_sizes(self.to));
        if out.iter().all(|t| t.sizes == local) {
            Ok((out, network))
        } else {
            Err(RunError::Internal("a collective gave blocks of the wrong size"))
        }
    }

    /// `chunks[r][c]` is what rank r has of chunk c; the result is, of each rank, its own chunk
    /// combined. Chunk c starts at rank c + 1 and goes round, each rank adding its term, until it
    /// arrives at rank c.
    pub(crate) fn ring_reduce_scatter(
        &self,
        network: &mut Network,
        group: &[usize],
        mut chunks: Vec<Vec<Vec<f64>>>,
        kind: Reduction,
        charge: Option<u128>,
    ) -> Result<Vec<Vec<f64>>, RunError> {
        let k = group.len();
        for step in 0..k - 1 {
            for rank in 0..k {
                let data = std::mem::take(&mut chunks[rank][(rank + 2 * k - 1 - step) % k]);
                send(network, group[rank], group[(rank + 1) % k], data, charge);
            }
            for rank in 0..k {
                let mut passing = network.receive(group[rank])?;
                let own = &mut chunks[rank][(rank + 2 * k - 2 - step) % k];
                combine(self.id, self.arithmetic, self.dtype, kind, &mut passing, own)?;
                *own = passing;
            }
        }
        Ok(chunks.into_iter().enumerate().map(|(rank, mut mine)| mine.swap_remove(rank)).collect())
    }

    fn all_reduce(
        &self,
        network: &mut Network,
        group: &[usize],
        blocks: &[&Tensor],
        kind: Reduction,
    ) -> Result<Vec<Tensor>, RunError> {
        let (k, elements) = (group.len(), blocks[group[0]].data.len());
        let chunk = elements.div_ceil(k);
        let charge = Some(elements as u128);
        let chunks = group
            .iter()
            .map(|d| {
                let mut flat = blocks[*d].data.clone();
                flat.resize(chunk * k, neutral(kind));
                flat.chunks(chunk.max(1)).map(<[f64]>::to_vec).collect()
            })
            .collect();
        let sums = self.ring_reduce_scatter(network, group, chunks, kind, charge)?;
        let gathered = ring_all_gather(network, group, sums, charge)?;
        gathered
            .into_iter()
            .map(|pieces| {
                let mut flat = pieces.concat();
                flat.truncate(elements);
                tensor(&blocks[group[0]].sizes, flat)
            })
            .collect()
    }

    /// Each device gets the block that it has in the new layout from a device with the same terms
    /// (the same coordinates on the partial axes). Devices that hold a block are as many as devices
    /// that want it, so each sends at most once.
    fn permute(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[&Tensor],
        to: Layout,
    ) -> Result<Vec<Tensor>, RunError> {
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
        for (device, _) in moves.iter().enumerate().filter(|(_, moves)| **moves) {
            let sender = spare.get_mut(&key(device, to)).and_then(Vec::pop);
            let sender =
                sender.ok_or(RunError::Internal("no device holds the block that is wanted"))?;
            network.send(sender, device, blocks[sender].data.clone());
        }
        moves
            .iter()
            .enumerate()
            .map(|(device, moves)| {
                if *moves {
                    tensor(&blocks[device].sizes, network.receive(device)?)
                } else {
                    Ok(blocks[device].clone())
                }
            })
            .collect()
    }
}

/// Combines a term into others, of a value of this dtype that the instruction makes.
pub(crate) fn combine(
    id: InstrId,
    arithmetic: Arithmetic,
    dtype: Dtype,
    kind: Reduction,
    into: &mut [f64],
    term: &[f64],
) -> Result<(), RunError> {
    for (a, b) in into.iter_mut().zip(term) {
        *a = match kind {
            Reduction::Sum => arithmetic.round(dtype, *a + *b),
            Reduction::Max => maximum(*a, *b),
        };
        if arithmetic == Arithmetic::Exact && a.is_finite() && a.abs() > EXACT_LIMIT {
            return Err(RunError::Overflow { id });
        }
    }
    Ok(())
}

/// What combines with any term and leaves it as it is.
pub(crate) fn neutral(kind: Reduction) -> f64 {
    match kind {
        Reduction::Sum => 0.0,
        Reduction::Max => f64::NEG_INFINITY,
    }
}

/// Runs something in each group, and puts its results where their devices are.
pub(crate) fn in_groups(
    grid: &Grid<'_>,
    axes: &AxisList,
    mut run: impl FnMut(&[usize]) -> Result<Vec<Tensor>, RunError>,
) -> Result<Vec<Tensor>, RunError> {
    let mut out: Vec<Option<Tensor>> = vec![None; grid.devices()];
    for group in grid.groups(axes) {
        for (device, tensor) in group.iter().zip(run(&group)?) {
            out[*device] = Some(tensor);
        }
    }
    out.into_iter().collect::<Option<Vec<_>>>().ok_or(RunError::Internal("a device is in no group"))
}

fn send(network: &mut Network, from: usize, to: usize, data: Vec<f64>, charge: Option<u128>) {
    match charge {
        Some(charge) => network.send_charged(from, to, data, charge),
        None => network.send(from, to, data),
    }
}

/// Each rank's own piece to every rank: the result is, of each rank, all pieces in order of rank.
pub(crate) fn ring_all_gather(
    network: &mut Network,
    group: &[usize],
    own: Vec<Vec<f64>>,
    charge: Option<u128>,
) -> Result<Vec<Vec<Vec<f64>>>, RunError> {
    let k = group.len();
    let mut have: Vec<Vec<Vec<f64>>> = own
        .into_iter()
        .enumerate()
        .map(|(rank, piece)| {
            let mut pieces = vec![Vec::new(); k];
            pieces[rank] = piece;
            pieces
        })
        .collect();
    for step in 0..k - 1 {
        for rank in 0..k {
            let data = have[rank][(rank + k - step) % k].clone();
            send(network, group[rank], group[(rank + 1) % k], data, charge);
        }
        for rank in 0..k {
            have[rank][(rank + 2 * k - 1 - step) % k] = network.receive(group[rank])?;
        }
    }
    Ok(have)
}

pub(crate) fn tensor(sizes: &[usize], data: Vec<f64>) -> Result<Tensor, RunError> {
    Tensor::new(sizes.to_vec(), data).ok_or(RunError::Internal("a message of the wrong length"))
}

pub(crate) fn tensors(sizes: &[usize], data: Vec<Vec<f64>>) -> Result<Vec<Tensor>, RunError> {
    data.into_iter().map(|d| tensor(sizes, d)).collect()
}

/// Each device of a group cuts its block along one dim, keeps one part, and joins those that the
/// others send along another.
fn all_to_all(
    network: &mut Network,
    group: &[usize],
    blocks: &[&Tensor],
    (from_dim, to_dim): (usize, usize),
) -> Result<Vec<Tensor>, RunError> {
    let mut kept = Vec::new();
    for (rank, device) in group.iter().enumerate() {
        for (other, part) in blocks[*device].cut(to_dim, group.len()).into_iter().enumerate() {
            if other == rank {
                kept.push(part)
            } else {
                network.send(*device, group[other], part.data)
            }
        }
    }
    let mut out = Vec::new();
    for (rank, own) in kept.into_iter().enumerate() {
        let mut pieces = Vec::new();
        for from in 0..group.len() {
            pieces.push(match from == rank {
                true => own.clone(),
                // Senders went in order of rank, so the messages wait in that order.
                false => tensor(&own.sizes, network.receive(group[rank])?)?,
            });
        }
        out.push(Tensor::joined(&pieces, from_dim));
    }
    Ok(out)
}

/// The term of a sum, or the candidate for a maximum, that a device makes of its block: the block
/// at its place along a dim; without a dim, the block on one device. The rest is neutral.
fn as_term(
    grid: &Grid<'_>,
    device: usize,
    block: &Tensor,
    kind: Reduction,
    dim: Option<usize>,
    axes: AxisList,
) -> Tensor {
    let rank = grid.rank(device, &axes);
    let mut sizes = block.sizes.clone();
    let mut origin = vec![0; sizes.len()];
    match dim {
        Some(dim) => {
            origin[dim] = rank * sizes[dim];
            sizes[dim] *= grid.mesh.group_size(axes.iter()) as usize;
        }
        None if rank == 0 => return block.clone(),
        None => return Tensor::filled(sizes, neutral(kind)),
    }
    let mut out = Tensor::filled(sizes, neutral(kind));
    out.write_block(&origin, block);
    out
}
