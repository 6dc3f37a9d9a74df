//! The work of an op on one device, and the time that it takes.

use std::collections::BTreeMap;

use shard_ir::attention::softmax_over;
use shard_ir::op::Amount;
use shard_ir::{Binary, Def, Dim, DimId, Dtype, Op, Picoseconds, Program, Value, never};

use crate::hardware::Hardware;
use crate::sight::{Seen, Sight, pairs_in_sight};
use crate::units::{Bytes, Flops, time_at_rate};

/// A tensor as one device holds it.
#[derive(Clone, Copy, Debug)]
pub struct LocalTensor<'a> {
    /// Which value it is, in the caller's own numbering and whatever its layout: a value that a
    /// kernel reads twice in one local shape is read once.
    pub value: u32,
    /// Its dims, in memory order.
    pub dims: &'a [DimId],
    /// The local size of each dim.
    pub sizes: &'a [u64],
    /// Its dtype.
    pub dtype: Dtype,
    /// A number in the program, moved or not: reading it costs nothing.
    pub constant: bool,
    /// The f32 statistics beside it, where it is the attention over a part of the keys; else 0.
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
    /// The matrix product, where the operations are those of a single one.
    pub matmul: Option<Matmul>,
    /// Whether this is an attention that runs as one kernel, which has an efficiency of its own.
    pub attention: bool,
    /// Of a ring the pairs of the fullest step, and of all steps together.
    pub step: Option<[u128; 2]>,
    /// Bytes read from HBM.
    pub read: Bytes,
    /// Bytes written to HBM.
    pub write: Bytes,
    /// Bytes fetched from the memory of the host.
    pub fetched: Bytes,
}

/// An einsum of two operands, or of two and scales of one, that contracts, as a batch of products
/// of matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matmul {
    /// Products: the dims that both operands and the result have.
    pub batch: u64,
    /// Rows and columns of the result, and what is summed over.
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

shard_ir::worded! {
    /// Which side of the roofline a kernel hits.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Bound {
        /// Arithmetic takes at least as long as memory.
        Compute = "compute",
        /// Memory takes longer.
        Memory = "memory",
        /// Fetching from the host takes longest.
        Pcie = "pcie",
    }
    /// The word in reports.
    fn name;
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

/// The work of a chain of fused ops, first to last: flops are summed; what is made inside the chain
/// touches no HBM, so it reads what comes from outside, each value once, and writes what its last
/// op makes. A chain of one is that op.
///
/// A chain with a softmax between other ops is attention: of what masks hide nothing is multiplied,
/// its arithmetic is that of the scores, and keys that no query sees are not read. `dims` are those
/// of the program, whose sizes say where the blocks of a device may lie; others need none.
pub fn kernel_work(chain: &[KernelOp<'_>], dims: &[Dim]) -> Work {
    ring_work(chain, dims, RingShape::NONE)
}

/// The shape of the ring that an attention is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingShape {
    /// The steps: how many devices there are.
    pub steps: u64,
    /// The dim of the result that the axes of the ring split, and no others.
    pub along: Option<DimId>,
}

impl RingShape {
    /// Of what is no ring.
    pub const NONE: RingShape = RingShape { steps: 1, along: None };
}

/// The work of a chain that is an attention whose blocks of keys travel round a ring: that of
/// [`kernel_work`], but that each step counts what the device has that has most in it, since the
/// ring is as slow as its busiest device in each. In the first step each has its own block of keys;
/// where the ring runs over what splits the queries, that is no more than lies about the diagonal
/// of the mask. Every other step counts as the fullest.
pub fn ring_work(chain: &[KernelOp<'_>], dims: &[Dim], ring: RingShape) -> Work {
    let attention = chain.len() > 1 && chain.iter().any(|member| softmax_over(member.op).is_some());
    let seen = if attention { visible_pairs(chain, dims, ring) } else { None };
    let (visible, pairs) = seen.map_or((1, 1), |seen| (seen.pairs, seen.of.pairs));
    // Of an attention the first product says in what it multiplies, not what joins its keys.
    let is_product = |member: &KernelOp<'_>| matches!(member.op, Op::Einsum);
    let leads = chain.iter().position(is_product).filter(|_| attention).unwrap_or(0);
    let steps = u128::from(ring.steps);
    let step = (ring != RingShape::NONE).then(|| seen.map_or([1, steps], |s| [s.fullest, s.pairs]));
    let mut work = Work {
        flops: Flops(0),
        arithmetic: Dtype::Bf16,
        matmul: None,
        attention,
        step,
        read: Bytes(0),
        write: Bytes(0),
        fetched: Bytes(0),
    };
    for (i, member) in chain.iter().enumerate() {
        // Every product of an attention goes over all pairs, so that it divides.
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

/// What the mask of an attention shows on the busiest device where blocks are contiguous, and what
/// they would where they are striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    /// The dims of queries and of keys.
    pub dims: [DimId; 2],
    /// Pairs of the busiest device, in contiguous blocks and in striped ones.
    pub pairs: [u128; 2],
    /// Pairs in sight of all devices together.
    pub all: u128,
    /// The blocks of queries and of keys.
    pub blocks: [u64; 2],
    /// How many devices share all pairs: one for each block of queries and of keys, of a ring one
    /// for each block of queries, which meets all blocks of keys.
    pub devices: u64,
}

/// What striped blocks would leave the busiest device of an attention, of a ring that of each step,
/// where axes split its queries or its keys and the mask that hides most has no window.
pub fn stripes(chain: &[KernelOp<'_>], dims: &[Dim], ring: RingShape) -> Option<Stripes> {
    if chain.len() < 2 || !chain.iter().any(|member| softmax_over(member.op).is_some()) {
        return None;
    }
    let masks = chain.iter().filter(|member| reaches_the_softmax(chain, member));
    let found = masks.filter_map(|member| {
        let Op::Mask { query, key, window } = member.op else { return None };
        let local = |dim: &DimId| {
            let at = member.result.dims.iter().position(|d| d == dim)?;
            member.result.sizes.get(at).copied().filter(|size| *size > 0)
        };
        let whole = |dim: &DimId| dims.get(dim.index()).map(|dim| dim.size);
        let sight = Sight { queries: whole(query)?, keys: whole(key)?, window: *window };
        let (queries, keys) = (local(query)?, local(key)?);
        let steps = ring.steps.max(1);
        let keys = keys / steps;
        let block = sight.busiest(queries, keys).pairs;
        let own =
            if steps > 1 && ring.along == Some(*query) { sight.busiest_own(steps) } else { block };
        let contiguous = own.saturating_add(block.saturating_mul(u128::from(steps - 1)));
        let striped = sight.busiest_striped(queries, keys);
        let striped = striped.map(|pairs| pairs.saturating_mul(u128::from(steps)));
        let blocks = [sight.queries / queries, sight.keys / keys.max(1)];
        Some(Stripes {
            dims: [*query, *key],
            pairs: [contiguous, striped.unwrap_or(contiguous)],
            all: sight.all_pairs(),
            blocks,
            devices: blocks[0].saturating_mul(blocks[1]) / steps,
        })
    });
    found.min_by_key(|found| found.pairs[0])
}

/// What a mask of an attention shows on the busiest device.
#[derive(Clone, Copy)]
struct InSight {
    /// The dim of its keys.
    key: DimId,
    /// The pairs that it shows, of a ring in all steps, and in the fullest one.
    pairs: u128,
    fullest: u128,
    /// The keys that are read.
    keys: u64,
    /// The pairs that there are, and the keys.
    of: Seen,
}

/// What the masks of an attention show on the busiest device; of a ring on the one that is busiest
/// in each step. `dims` are those of the program.
fn in_sight<'c>(
    chain: &'c [KernelOp<'_>],
    dims: &'c [Dim],
    ring: RingShape,
) -> impl Iterator<Item = InSight> + 'c {
    chain.iter().filter_map(move |member| {
        let Op::Mask { query, key, window } = member.op else { return None };
        if !reaches_the_softmax(chain, member) {
            return None;
        }
        let local = |dim: &DimId| {
            let at = member.result.dims.iter().position(|d| d == dim)?;
            member.result.sizes.get(at).copied()
        };
        let whole = |dim: &DimId| dims.get(dim.index()).map(|dim| dim.size);
        let sight = Sight { queries: whole(query)?, keys: whole(key)?, window: *window };
        let (queries, keys) = (local(query)?, local(key)?);
        let of = Seen { pairs: u128::from(queries).saturating_mul(u128::from(keys)), keys };
        let steps = ring.steps.max(1);
        let block = sight.busiest(queries, keys / steps);
        let fullest = block.pairs;
        let first = if steps > 1 && ring.along == Some(*query) {
            sight.busiest_own(steps)
        } else {
            fullest
        };
        let others = fullest.saturating_mul(u128::from(steps - 1));
        let (pairs, keys) = (first.saturating_add(others), block.keys.saturating_mul(steps));
        (of.pairs > 0).then_some(InSight { key: *key, pairs, fullest, keys, of })
    })
}

/// Whether what a mask hides is hidden from the softmax: all that is done with it on the way there
/// leaves minus infinity as it is, which a map (a softcap behind the mask) need not.
fn reaches_the_softmax(chain: &[KernelOp<'_>], mask: &KernelOp<'_>) -> bool {
    let mut at = mask.result.value;
    loop {
        let reads = |of: &&KernelOp<'_>| of.operands.iter().any(|operand| operand.value == at);
        let Some(reader) = chain.iter().find(reads) else { return false };
        if softmax_over(reader.op).is_some() {
            return true;
        }
        let is_first = reader.operands.first().is_some_and(|operand| operand.value == at);
        let by_number = reader.operands.last().is_some_and(|operand| operand.constant);
        let stays = match reader.op {
            Op::Binary(Binary::Add | Binary::Minimum) => true,
            Op::Binary(Binary::Sub) => is_first,
            Op::Binary(Binary::Mul | Binary::Div) => is_first && by_number,
            Op::Binary(Binary::Maximum) => false,
            op => matches!(op, Op::Mask { .. } | Op::Cast(_)),
        };
        if !stays {
            return false;
        }
        at = reader.result.value;
    }
}

/// What the mask of an attention shows that shows least.
fn visible_pairs(chain: &[KernelOp<'_>], dims: &[Dim], ring: RingShape) -> Option<InSight> {
    in_sight(chain, dims, ring).min_by_key(|seen| seen.pairs)
}

/// The keys of an attention, how many of them the device reads that reads most, and how many a
/// device has; `None` where no mask hides any of them from all its queries.
fn keys_read(chain: &[KernelOp<'_>], dims: &[Dim], steps: u64) -> Option<(DimId, u64, u64)> {
    let over = chain.iter().find_map(|member| softmax_over(member.op))?;
    let ring = RingShape { steps, along: None };
    let keys = in_sight(chain, dims, ring).filter(|seen| seen.key == over);
    let seen = keys.min_by_key(|seen| seen.keys)?;
    (chain.len() > 1 && seen.keys < seen.of.keys).then_some((over, seen.keys, seen.of.keys))
}

/// An attention counts no less than one in so many of all pairs, whatever its masks hide and
/// however it is split: the busiest device sees as large a part of its pairs as there is in sight
/// of all.
pub fn one_pair_in(program: &Program) -> u128 {
    let of_mask = |value: &Value| {
        let Def::Op { op: Op::Mask { query, key, window }, .. } = &value.def else { return 1 };
        let [queries, keys] = [query, key].map(|dim| program.dims[dim.index()].size);
        let all = u128::from(queries).saturating_mul(u128::from(keys));
        all.div_ceil(pairs_in_sight(queries, keys, *window).max(1))
    };
    program.values.iter().map(of_mask).max().unwrap_or(1)
}

/// Each value that a chain of fused ops reads from HBM, as the member and the place among its
/// operands where it is read first, with the bytes. `dims` are those of the program: what has the
/// keys of an attention is read as far as its masks show them to a query of the device; `steps` are
/// those of its ring, 1 where it is none.
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
            if operand.constant || made_or_read.contains(&(operand.value, operand.sizes)) {
                continue;
            }
            made_or_read.push((operand.value, operand.sizes));
            let seen = keys.filter(|(keys, _, _)| operand.dims.contains(keys));
            read(
                i,
                at,
                match seen {
                    // It has the keys as a dim, so that the number of them divides it.
                    Some((_, seen, of)) => {
                        Bytes(operand.dtype.bytes((operand.elements() / of).saturating_mul(seen)))
                    }
                    None => read_bytes(member, at),
                },
            );
        }
        made_or_read.push((member.result.value, member.result.sizes));
    }
}

/// The time of some work, weighted as the chip is: the longer of arithmetic at peak and HBM traffic
/// at full bandwidth, and which of the two it is.
pub fn roofline(hw: &Hardware, work: &Work) -> (Picoseconds, Bound) {
    let (compute, memory, host) =
        (compute_time(hw, work), memory_time(hw, work), host_time(hw, work));
    if host > compute.max(memory) {
        return (hw.weighted_kernel(host), Bound::Pcie);
    }
    if compute >= memory && work.flops > Flops(0) {
        (hw.weighted_kernel(compute), Bound::Compute)
    } else {
        (hw.weighted_kernel(memory), Bound::Memory)
    }
}

/// The time of the arithmetic alone; on hardware that multiplies tiles, as if every tile were full.
pub fn compute_time(hw: &Hardware, work: &Work) -> Picoseconds {
    let on_tiles =
        work.matmul.zip(hw.matmul_tile).map(|(matmul, tile)| matmul.flops_on_tiles(tile));
    match on_tiles.unwrap_or(work.flops) {
        Flops(0) => Picoseconds(0),
        Flops(flops) if work.attention => {
            time_at_rate(flops, 1, hw.attention_rate(work.arithmetic))
        }
        Flops(flops) => time_at_rate(flops, 1, hw.flops_rate(work.arithmetic)),
    }
}

/// The time of the HBM traffic alone.
pub fn memory_time(hw: &Hardware, work: &Work) -> Picoseconds {
    time_at_rate(u128::from(work.hbm_bytes().0), 1, hw.hbm_rate)
}

/// The time of fetching from the host alone: each device has a link of its own to it.
///
/// Hardware that states no `[host]` cannot run such a program, which is said before; a byte a
/// second keeps it finite.
pub fn host_time(hw: &Hardware, work: &Work) -> Picoseconds {
    match work.fetched {
        Bytes(0) => Picoseconds(0),
        Bytes(bytes) => time_at_rate(u128::from(bytes), 1, hw.host_rate.unwrap_or(1)),
    }
}

/// What is multiplied and added up; nothing but products counts.
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
        // Nothing is multiplied: K numbers are summed by K - 1 additions, and a transposition only
        // moves.
        [_] => points.saturating_sub(u128::from(result.elements())),
        _ if contracts => points.saturating_mul(2),
        _ => points,
    })
}

/// The two operands that are multiplied: of three the others, where one alone has some dims of
/// another and no others, as scales have.
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

/// The matrix product that an op is, if it is one: `einsum(a, a -> B)`, where neither operand has a
/// dim of its own, is none.
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

/// The arithmetic of a product: a narrow operand is multiplied in the other's, int8 with int8 in
/// int8; scales bring to their size what is read or added up.
fn arithmetic(member: &KernelOp<'_>) -> Dtype {
    let product = without_scales(member.operands).filter(|_| *member.op == Op::Einsum);
    let multiplied = product.map_or_else(|| member.operands.iter().collect(), |two| two.to_vec());
    let mut dtypes = multiplied.into_iter().filter(|o| !o.constant).map(|o| o.dtype);
    let Some(first) = dtypes.next() else { return member.result.dtype };
    dtypes.fold(first, |a, b| match (a, b) {
        (Dtype::Int8, Dtype::Int8) => Dtype::Int8,
        // Of two that do not meet, as a bool beside a float, the first is what is counted.
        _ => a.product(b).unwrap_or(a),
    })
}

/// How many bytes of a tensor of an op are read or written.
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
