//! The work of an op, or of a kernel, on one device: its flops, and what it reads and writes.

use std::collections::BTreeMap;

use shard_ir::attention::softmax_over;
use shard_ir::op::Amount;
use shard_ir::{Dim, DimId, Dtype, Op, never};

use crate::attention::{RingPairs, RingShape, keys_read, visible_pairs};
use crate::units::{Bytes, Flops};

/// A tensor as one device holds it.
#[derive(Clone, Copy, Debug)]
pub struct LocalTensor<'a> {
    /// Which value it is, whatever its layout, in a numbering of the caller. A value that a kernel
    /// reads twice in one local shape is read once.
    pub value: u32,
    /// Its dims, in memory order.
    pub dims: &'a [DimId],
    /// The local size of each dim.
    pub sizes: &'a [u64],
    /// Its dtype.
    pub dtype: Dtype,
    /// Which number of the program it is, moved or not: to read it costs nothing. `None` of any
    /// other value.
    pub constant: Option<f64>,
    /// How many f32 statistics lie beside it if it is the attention over a part of the keys; else
    /// 0.
    pub statistics: u64,
}

impl LocalTensor<'_> {
    /// How many elements the device holds.
    pub fn elements(&self) -> u64 {
        self.sizes.iter().fold(1, |n, s| n.saturating_mul(*s))
    }
    /// How many bytes the device holds.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.dtype.bytes(self.elements())) + Bytes(Dtype::F32.bytes(self.statistics))
    }
}

/// An op with what it reads and makes, on one device.
#[derive(Clone, Copy, Debug)]
pub struct KernelOp<'a> {
    /// The op.
    pub op: &'a Op,
    /// Its operands, in order.
    pub operands: &'a [LocalTensor<'a>],
    /// Its result.
    pub result: LocalTensor<'a>,
}

/// What an op, or a kernel of several, does on one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Floating-point operations.
    pub flops: Flops,
    /// The arithmetic that they are done in.
    pub arithmetic: Dtype,
    /// The matrix product, if all flops are those of a single one.
    pub matmul: Option<Matmul>,
    /// Whether it is an attention that runs as one kernel, which has a flops rate of its own.
    pub attention: bool,
    /// The pairs of a ring, if it is one; without a mask, steps count as equal.
    pub ring: Option<RingPairs>,
    /// Bytes read from HBM.
    pub read: Bytes,
    /// Bytes written to HBM.
    pub write: Bytes,
    /// Bytes fetched from the memory of the host.
    pub fetched: Bytes,
}

/// An einsum of two operands that contracts a dim, as a batch of products of matrices. One of three
/// operands is one too if one of them has scales of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matmul {
    /// How many products: the size of the dims that both operands and the result have.
    pub batch: u64,
    /// The rows and the columns of the result, and the terms of each sum.
    pub sides: [u64; 3],
}

impl Matmul {
    /// The flops of an einsum on hardware that multiplies tiles of this side: each side of the
    /// matrices counts as the next multiple.
    pub fn flops_on_tiles(&self, tile: u64) -> Flops {
        let filled = self.sides.iter().map(|side| u128::from(side.next_multiple_of(tile.max(1))));
        Flops(filled.fold(2 * u128::from(self.batch), u128::saturating_mul))
    }
}

impl Work {
    /// Bytes read and written.
    pub fn hbm_bytes(&self) -> Bytes {
        self.read + self.write
    }
}

/// The work of one op.
///
/// | op | flops | read | written |
/// |---|---|---|---|
/// | einsum of two or more | 2 * the product of all its local dims (1 * where nothing is contracted) | operands | result |
/// | einsum of one | what it adds up: the elements of its operand less those of its result | operand | result |
/// | rename, split, merge | 0 | 0 | 0: the same data under other names |
/// | take | 0 | the rows taken, the ids | result |
/// | append | 0 | the new positions | the new positions |
/// | fetch | 0 | 0, and its bytes from the host | result |
/// | slice-dim | 0 | as much as it keeps | result |
/// | all others | 0 | operands | result |
///
/// An operand that stands twice is read once, a constant is free.
pub fn op_work(op: &Op, operands: &[LocalTensor<'_>], result: LocalTensor<'_>) -> Work {
    kernel_work(&[KernelOp { op, operands, result }], &[])
}

/// The work of a chain of fused ops, first to last. Flops are summed. Values that are made inside
/// the chain touch no HBM: the chain reads the values that come from outside, each once, and writes
/// what its last op makes. A chain may be one op.
///
/// A chain of a softmax and other ops is an attention. Its arithmetic is that of the scores; pairs
/// that masks hide are not multiplied, and keys that no query sees are not read. `dims` are those
/// of the program, whose sizes say where the blocks of a device may lie; for other chains they may
/// be empty.
pub fn kernel_work(chain: &[KernelOp<'_>], dims: &[Dim]) -> Work {
    ring_work(chain, dims, RingShape::NONE)
}

/// [`kernel_work`] of a chain that may be an attention whose blocks of keys travel round a ring.
/// Each step of a ring counts the pairs of the device that has most in it, since the ring is as
/// slow as its busiest device in each step. In the first step a device has its own block of keys;
/// if the ring runs over the axes that split the queries, these are the keys about the diagonal of
/// the mask. Every other step counts as the fullest.
pub fn ring_work(chain: &[KernelOp<'_>], dims: &[Dim], ring: RingShape) -> Work {
    let attention = chain.len() > 1 && chain.iter().any(|member| softmax_over(member.op).is_some());
    let seen = if attention { visible_pairs(chain, dims, ring) } else { None };
    let (visible, pairs) = seen.map_or((1, 1), |seen| (seen.pairs.all, seen.of.pairs));
    // The arithmetic of an attention is that of its first product, not of ops that join its keys.
    let is_product = |member: &KernelOp<'_>| matches!(member.op, Op::Einsum);
    let leads = chain.iter().position(is_product).filter(|_| attention).unwrap_or(0);
    let equal_steps = RingPairs { fullest: 1, all: u128::from(ring.steps) };
    let ring_pairs = (ring != RingShape::NONE).then(|| seen.map_or(equal_steps, |seen| seen.pairs));
    let mut work = Work {
        flops: Flops(0),
        arithmetic: Dtype::Bf16,
        matmul: None,
        attention,
        ring: ring_pairs,
        read: Bytes(0),
        write: Bytes(0),
        fetched: Bytes(0),
    };
    for (i, member) in chain.iter().enumerate() {
        // Every product of an attention goes over all pairs, so that their number divides its
        // flops.
        let Flops(flops) = op_flops(member.op, member.operands, &member.result);
        let flops = Flops((flops / pairs).saturating_mul(visible));
        if i == leads || (flops > Flops(0) && !attention) {
            work.arithmetic = arithmetic(member);
            work.matmul = if attention { None } else { matmul(member) };
        }
        work.flops = work.flops + flops;
        if matches!(member.op, Op::Fetch) {
            work.fetched = work.fetched + member.result.bytes();
        }
    }
    kernel_reads(chain, dims, ring.steps, |_, _, bytes| work.read = work.read + bytes);
    if let Some(last) = chain.last() {
        work.write = written_bytes(last);
    }
    work
}

/// Calls `read` with each value that a chain of fused ops reads from HBM: the member that reads it
/// first, the place among the operands of that member, and the bytes. Keys of an attention that
/// masks hide from all queries of a device are not read. `dims` are those of the program, `steps`
/// those of the ring of an attention, 1 if it is none.
pub fn kernel_reads(
    chain: &[KernelOp<'_>],
    dims: &[Dim],
    steps: u64,
    mut read: impl FnMut(usize, usize, Bytes),
) {
    let keys = keys_read(chain, dims, steps);
    let mut made_or_read: Vec<(u32, &[u64])> = Vec::new();
    for (i, member) in chain.iter().enumerate() {
        for (at, operand) in member.operands.iter().enumerate() {
            if operand.constant.is_some() || made_or_read.contains(&(operand.value, operand.sizes))
            {
                continue;
            }
            made_or_read.push((operand.value, operand.sizes));
            let bytes = match keys.filter(|keys| operand.dims.contains(&keys.dim)) {
                // The operand has the keys as a dim, so that their number divides its elements.
                Some(keys) => {
                    let of_a_key = operand.elements() / keys.held;
                    Bytes(operand.dtype.bytes(of_a_key.saturating_mul(keys.read)))
                }
                None => read_bytes(member, at),
            };
            read(i, at, bytes);
        }
        made_or_read.push((member.result.value, member.result.sizes));
    }
}

/// The multiplications and additions of an einsum; those of other ops are not counted.
fn op_flops(op: &Op, operands: &[LocalTensor<'_>], result: &LocalTensor<'_>) -> Flops {
    if *op != Op::Einsum {
        return Flops(0);
    }
    let mut space: BTreeMap<DimId, u64> = BTreeMap::new();
    for operand in operands {
        space.extend(operand.dims.iter().copied().zip(operand.sizes.iter().copied()));
    }
    let contracts = space.keys().any(|d| !result.dims.contains(d));
    let points = space.values().fold(1u128, |n, s| n.saturating_mul(u128::from(*s)));
    Flops(match operands {
        // Nothing is multiplied. K numbers are summed by K - 1 additions, and a transposition has
        // none.
        [_] => points.saturating_sub(u128::from(result.elements())),
        _ if contracts => points.saturating_mul(2),
        _ => points,
    })
}

/// The two operands of a product. Of three operands one may be scales: it has some of the dims of
/// another and no others. If exactly one is, the other two are multiplied.
fn without_scales<'a, 't>(operands: &'a [LocalTensor<'t>]) -> Option<[&'a LocalTensor<'t>; 2]> {
    let [a, b, c] = operands else {
        let [a, b] = operands else { return None };
        return Some([a, b]);
    };
    let is_within = |scales: &LocalTensor<'_>, of: &LocalTensor<'_>| {
        of.dims.len() > scales.dims.len() && scales.dims.iter().all(|d| of.dims.contains(d))
    };
    let all = [(a, [b, c]), (b, [a, c]), (c, [a, b])];
    let mut found =
        all.into_iter().filter(|(one, others)| others.iter().any(|of| is_within(one, of)));
    found.next().map(|(_, others)| others).filter(|_| found.next().is_none())
}

/// The matrix product that an op is, if it is one. `einsum(a, a -> B)`, where neither operand has a
/// dim of the result alone, is none.
fn matmul(member: &KernelOp<'_>) -> Option<Matmul> {
    let (Op::Einsum, [a, b]) = (member.op, without_scales(member.operands)?) else { return None };
    let mut found = Matmul { batch: 1, sides: [1; 3] };
    let (mut contracts, mut has_sides) = (false, false);
    let both = a
        .dims
        .iter()
        .zip(a.sizes)
        .chain(b.dims.iter().zip(b.sizes).filter(|(dim, _)| !a.dims.contains(dim)));
    for (dim, size) in both {
        let into =
            match (a.dims.contains(dim), b.dims.contains(dim), member.result.dims.contains(dim)) {
                (true, true, true) => &mut found.batch,
                (true, false, true) => {
                    has_sides = true;
                    &mut found.sides[0]
                }
                (false, _, true) => {
                    has_sides = true;
                    &mut found.sides[1]
                }
                (_, _, false) => {
                    contracts = true;
                    &mut found.sides[2]
                }
            };
        *into = into.saturating_mul(*size);
    }
    (contracts && has_sides).then_some(found)
}

/// The arithmetic of an op. A product of a narrow dtype and a wider one is taken in the wider one,
/// of int8 and int8 in int8. Scales of a product do not count.
fn arithmetic(member: &KernelOp<'_>) -> Dtype {
    let product = without_scales(member.operands).filter(|_| *member.op == Op::Einsum);
    let multiplied = product.map_or_else(|| member.operands.iter().collect(), |two| two.to_vec());
    let mut dtypes = multiplied.into_iter().filter(|o| o.constant.is_none()).map(|o| o.dtype);
    let Some(first) = dtypes.next() else { return member.result.dtype };
    dtypes.fold(first, |a, b| match (a, b) {
        (Dtype::Int8, Dtype::Int8) => Dtype::Int8,
        // Dtypes that have no product, as a bool and a float, count as the first.
        _ => a.product(b).unwrap_or(a),
    })
}

/// The bytes of a tensor of an op that are read or written, by the amount of the op's row.
fn bytes_of(amount: Amount, tensor: &LocalTensor<'_>, member: &KernelOp<'_>) -> Bytes {
    match amount {
        Amount::None => Bytes(0),
        Amount::Whole => tensor.bytes(),
        Amount::OfResult => member.result.bytes(),
        Amount::OfSecond => match member.operands.get(1) {
            Some(second) => second.bytes(),
            None => never!("an op without the operand that its row names", Bytes(0)),
        },
    }
}

fn read_bytes(member: &KernelOp<'_>, at: usize) -> Bytes {
    let traffic = member.op.row().traffic;
    let amount = if at == 0 { traffic.first } else { traffic.others };
    bytes_of(amount, &member.operands[at], member)
}

fn written_bytes(member: &KernelOp<'_>) -> Bytes {
    bytes_of(member.op.row().traffic.written, &member.result, member)
}
