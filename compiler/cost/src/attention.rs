//! Attentions as kernels: what their masks show of queries and keys that lie in blocks on devices,
//! and rings.

use shard_ir::attention::softmax_over;
use shard_ir::op::Flag;
use shard_ir::{Binary, Def, Dim, DimId, Op, Program, Value};

use crate::op::KernelOp;
use crate::sight::{Seen, Sight, pairs_in_sight};

/// The shape of the ring in which an attention runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingShape {
    /// The steps: how many devices there are.
    pub steps: u64,
    /// The dim of the result that exactly the axes of the ring split, if there is one.
    pub along: Option<DimId>,
}

impl RingShape {
    /// The shape of an attention that is no ring.
    pub const NONE: RingShape = RingShape { steps: 1, along: None };
}

/// The pairs of a query and a key that count in a ring: in each step those of the device that has
/// most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingPairs {
    /// In the fullest step.
    pub fullest: u128,
    /// In all steps together.
    pub all: u128,
}

/// A mask of an attention, and the blocks of a device.
struct LocalMask {
    query: DimId,
    key: DimId,
    /// What the mask shows of all queries and keys.
    sight: Sight,
    /// The queries that the device has.
    queries: u64,
    /// The keys that the device has; of a ring all that it meets.
    keys: u64,
}

impl LocalMask {
    /// What the mask shows on the busiest device; of a ring on the one that is busiest in each
    /// step.
    fn in_sight(&self, ring: RingShape) -> InSight {
        let steps = ring.steps.max(1);
        let block = self.sight.busiest(self.queries, self.keys / steps);
        let is_own = steps > 1 && ring.along == Some(self.query);
        let first = if is_own { self.sight.busiest_own(steps) } else { block.pairs };
        let others = block.pairs.saturating_mul(u128::from(steps - 1));
        InSight {
            key: self.key,
            pairs: RingPairs { fullest: block.pairs, all: first.saturating_add(others) },
            keys: block.keys.saturating_mul(steps),
            of: Seen {
                pairs: u128::from(self.queries).saturating_mul(u128::from(self.keys)),
                keys: self.keys,
            },
        }
    }
}

/// The masks of an attention that hide keys from its softmax, where a device has queries and keys.
/// `dims` are those of the program.
fn masks<'c>(chain: &'c [KernelOp<'_>], dims: &'c [Dim]) -> impl Iterator<Item = LocalMask> + 'c {
    chain.iter().filter_map(move |member| {
        let Op::Mask { query, key, window } = member.op else { return None };
        if !reaches_the_softmax(chain, member) {
            return None;
        }
        let local = |dim: &DimId| {
            let at = member.result.dims.iter().position(|d| d == dim)?;
            member.result.sizes.get(at).copied().filter(|size| *size > 0)
        };
        let whole = |dim: &DimId| dims.get(dim.index()).map(|dim| dim.size);
        let sight = Sight { queries: whole(query)?, keys: whole(key)?, window: *window };
        let (queries, keys) = (local(query)?, local(key)?);
        Some(LocalMask { query: *query, key: *key, sight, queries, keys })
    })
}

/// What the mask of an attention shows on the busiest device if blocks are contiguous, as they are,
/// and if they were striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    /// The dims of queries and of keys.
    pub dims: [DimId; 2],
    /// Pairs on the busiest device: in contiguous blocks, and in striped ones.
    pub pairs: [u128; 2],
    /// Pairs that the mask shows on all devices together.
    pub all: u128,
    /// How many blocks of queries and of keys there are.
    pub blocks: [u64; 2],
    /// How many devices share all pairs: one for each block of queries and of keys, of a ring one
    /// for each block of queries, which meets all blocks of keys.
    pub devices: u64,
}

/// What the mask of an attention that shows the fewest pairs shows on the busiest device, in
/// contiguous and in striped blocks; of a ring on the busiest device of each step. With a window
/// the two are equal. `None` if no mask hides keys.
pub(crate) fn stripes(chain: &[KernelOp<'_>], dims: &[Dim], ring: RingShape) -> Option<Stripes> {
    if chain.len() < 2 || !chain.iter().any(|member| softmax_over(member.op).is_some()) {
        return None;
    }
    let found = masks(chain, dims).map(|mask| {
        let steps = ring.steps.max(1);
        let keys = mask.keys / steps;
        let contiguous = mask.in_sight(ring).pairs.all;
        let striped = mask.sight.busiest_striped(mask.queries, keys);
        let striped = striped.map(|pairs| pairs.saturating_mul(u128::from(steps)));
        let blocks = [mask.sight.queries / mask.queries, mask.sight.keys / keys.max(1)];
        Stripes {
            dims: [mask.query, mask.key],
            pairs: [contiguous, striped.unwrap_or(contiguous)],
            all: mask.sight.all_pairs(),
            blocks,
            devices: blocks[0].saturating_mul(blocks[1]) / steps,
        }
    });
    found.min_by_key(|found| found.pairs[0])
}

/// What a mask of an attention shows on the busiest device.
#[derive(Clone, Copy)]
pub(crate) struct InSight {
    /// The dim of its keys.
    key: DimId,
    /// The pairs that it shows.
    pub(crate) pairs: RingPairs,
    /// The keys that it shows to some query.
    keys: u64,
    /// All pairs and keys of a device, hidden or not.
    pub(crate) of: Seen,
}

/// Whether the scores that a mask hides, which it makes minus infinity, are minus infinity at the
/// softmax: every op on the way there has to leave them so, which a map (a softcap behind the mask)
/// or a negative factor need not.
fn reaches_the_softmax(chain: &[KernelOp<'_>], mask: &KernelOp<'_>) -> bool {
    let mut at = mask.result.value;
    loop {
        let reads = |of: &&KernelOp<'_>| of.operands.iter().any(|operand| operand.value == at);
        let Some(reader) = chain.iter().find(reads) else { return false };
        if softmax_over(reader.op).is_some() {
            return true;
        }
        let is_first = reader.operands.first().is_some_and(|operand| operand.value == at);
        // A factor that is not positive turns minus infinity into plus infinity or NaN.
        let number = reader.operands.last().and_then(|operand| operand.constant);
        let by_positive = number.is_some_and(|number| number > 0.0);
        let stays = match reader.op {
            Op::Binary(Binary::Add | Binary::Minimum) => true,
            Op::Binary(Binary::Sub) => is_first,
            Op::Binary(Binary::Mul | Binary::Div) => is_first && by_positive,
            Op::Binary(Binary::Maximum | Binary::Less | Binary::LessEqual | Binary::Equal) => false,
            op => op.row().is(Flag::KeepsHidden),
        };
        if !stays {
            return false;
        }
        at = reader.result.value;
    }
}

/// What the mask of an attention shows that shows the fewest pairs; `None` if no mask hides any.
pub(crate) fn visible_pairs(
    chain: &[KernelOp<'_>],
    dims: &[Dim],
    ring: RingShape,
) -> Option<InSight> {
    masks(chain, dims).map(|mask| mask.in_sight(ring)).min_by_key(|seen| seen.pairs.all)
}

/// How many keys of an attention are read from HBM.
#[derive(Clone, Copy)]
pub(crate) struct KeysRead {
    /// The dim of the keys.
    pub(crate) dim: DimId,
    /// How many the device reads that reads most.
    pub(crate) read: u64,
    /// How many each device has.
    pub(crate) held: u64,
}

/// How many keys of an attention are read, in a ring of so many steps; `None` if no mask hides any
/// of them from all queries of a device.
pub(crate) fn keys_read(chain: &[KernelOp<'_>], dims: &[Dim], steps: u64) -> Option<KeysRead> {
    let over = chain.iter().find_map(|member| softmax_over(member.op))?;
    let ring = RingShape { steps, along: None };
    let seen = masks(chain, dims).map(|mask| mask.in_sight(ring));
    let keys = seen.filter(|seen| seen.key == over);
    let seen = keys.min_by_key(|seen| seen.keys)?;
    let found = KeysRead { dim: over, read: seen.keys, held: seen.of.keys };
    (chain.len() > 1 && found.read < found.held).then_some(found)
}

/// A lower bound of the work of any attention of a program: it counts no less than one in so many
/// of all its pairs, whatever its masks hide and however it is split. For the part of its pairs
/// that the busiest device sees is no smaller than the part of all pairs that is in sight.
pub fn one_pair_in(program: &Program) -> u128 {
    let of_mask = |value: &Value| {
        let Def::Op { op: Op::Mask { query, key, window }, .. } = &value.def else { return 1 };
        let [queries, keys] = [query, key].map(|dim| program.dims[dim.index()].size);
        let all = u128::from(queries).saturating_mul(u128::from(keys));
        all.div_ceil(pairs_in_sight(queries, keys, *window).max(1))
    };
    program.values.iter().map(of_mask).max().unwrap_or(1)
}
