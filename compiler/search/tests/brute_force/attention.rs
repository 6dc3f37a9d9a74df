//! Attention as one kernel, as the brute force sees it; and programs that have one.

use std::collections::BTreeSet;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{AxisList, Binary, Def, DimId, DimSet, Dtype, Layout, Map, Op, Program, Reduce};

use super::facts::Facts;
use super::generate::Case;

/// A way of running an attention as one kernel.
#[derive(Clone, Debug)]
pub(crate) struct AttentionWay {
    /// The layout that is made.
    pub(crate) made: usize,
    /// The values that are read, each in a layout.
    pub(crate) reads: Vec<(usize, usize)>,
    /// Its ops, first to last, each with the number of one of its fits.
    pub(crate) chain: Vec<(usize, usize)>,
}

/// The ways of running the attention that ends with a value: every combination of fits of its ops
/// that agree on the layouts between them.
pub(crate) fn attention_ways(facts: &Facts<'_>, product: usize) -> Vec<AttentionWay> {
    let program = facts.program;
    let Some(Op::Einsum) = facts.op_of(product).filter(|_| facts.hardware.has_attention()) else {
        return Vec::new();
    };
    let operands = program.values[product].def.operands();
    let dims = |id: usize| program.values[id].dims.as_slice();
    let result = dims(product);
    let is_end = |weights: usize, values: usize| {
        let (softmax, reader) = behind_casts(facts, facts.origin(weights), product);
        let Some(Op::Softmax { over } | Op::SinkSoftmax { over }) = facts.op_of(softmax) else {
            return false;
        };
        operands.len() == 2
            && facts.only_reader(softmax, reader)
            && dims(values).contains(over)
            && !result.contains(over)
            && dims(softmax).iter().all(|dim| dim == over || result.contains(dim))
            && has_scores(
                facts,
                facts.origin(program.values[softmax].def.operands()[0].index()),
                softmax,
                *over,
            )
    };
    let [a, b] = operands else { return Vec::new() };
    if !is_end(a.index(), b.index()) && !is_end(b.index(), a.index()) {
        return Vec::new();
    }
    let layouts = || 0..facts.spaces[product].layouts.len();
    let none = BTreeSet::new();
    let all = layouts().flat_map(|made| ways(facts, product, made, (None, &none)));
    let mut all: Vec<AttentionWay> = all.filter(|way| is_ring_or_none(facts, way)).collect();
    // Once more with all concats of keys and of values that nothing else reads.
    let members = all.iter().flat_map(|way| way.chain.iter().map(|(id, _)| *id)).collect();
    let joined = joined(facts, &members);
    if !joined.is_empty() {
        let ways = layouts().flat_map(|made| ways(facts, product, made, (None, &joined)));
        let looped = |(id, fit): &(usize, usize)| facts.fits[*id][*fit].looped.is_some();
        let ways = ways.filter_map(agreeing).filter(|way| !way.chain.iter().any(looped));
        let in_parts = |(id, fit): &(usize, usize)| *fit >= facts.by_itself[*id];
        let ways: Vec<AttentionWay> = ways
            .filter(|way| {
                !way.chain.iter().any(in_parts) || keys_in_any_order(facts, &members, &joined)
            })
            .collect();
        all.extend(ways);
    }
    all
}

/// The concats that join keys or values of an attention of these ops, and are read in it alone.
fn joined(facts: &Facts<'_>, members: &BTreeSet<usize>) -> BTreeSet<usize> {
    let values = &facts.program.values;
    let over = members.iter().find_map(|id| match facts.op_of(*id) {
        Some(Op::Softmax { over } | Op::SinkSoftmax { over }) => Some(*over),
        _ => None,
    });
    let mut along: BTreeSet<DimId> = over.into_iter().collect();
    let mut found = BTreeSet::new();
    // Readers have higher numbers than what they read.
    for id in (0..values.len()).rev() {
        let Some(Op::Concat { left, right, to }) = facts.op_of(id) else { continue };
        let is_within = |reader: &usize| {
            found.contains(reader)
                || members.contains(reader) && facts.op_of(*reader) == Some(&Op::Einsum)
        };
        let readers = facts.readers(id);
        if along.contains(to)
            && !facts.program.outputs.iter().any(|o| facts.origin(o.value.index()) == id)
            && !readers.is_empty()
            && readers.iter().all(is_within)
        {
            along.extend([*left, *right]);
            found.insert(id);
        }
    }
    found
}

/// Whether an attention may have its keys in any order: it has no mask, nothing but joined values
/// has the keys, and no concat is pinned.
fn keys_in_any_order(
    facts: &Facts<'_>,
    members: &BTreeSet<usize>,
    joined: &BTreeSet<usize>,
) -> bool {
    let values = &facts.program.values;
    let over = members.iter().find_map(|id| match facts.op_of(*id) {
        Some(Op::Softmax { over }) => Some(*over),
        _ => None,
    });
    let is_within = |id: usize| members.contains(&id) || joined.contains(&id);
    let has_keys = |operand: &shard_ir::ValueId| {
        let comes_in = !is_within(facts.origin(operand.index()));
        comes_in && over.is_some_and(|over| values[operand.index()].dims.contains(&over))
    };
    let is_pin = |value: &shard_ir::Value| match &value.def {
        Def::Pin { operand, .. } => joined.contains(&facts.origin(operand.index())),
        Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) => false,
    };
    members.iter().all(|id| {
        !matches!(facts.op_of(*id), Some(Op::Mask { .. }))
            && !values[*id].def.operands().iter().any(has_keys)
    }) && !values.iter().any(is_pin)
}

/// A way with each op once; `None` where an op is read in two layouts.
fn agreeing(mut way: AttentionWay) -> Option<AttentionWay> {
    way.chain.dedup();
    (way.chain.windows(2).all(|two| two[0].0 != two[1].0)).then_some(way)
}

/// Whether a way is a ring or has no loops: no product gathers anything, or each gathers the
/// operand that has the keys, along the keys, all over the same axes, and the result is not
/// partial.
fn is_ring_or_none(facts: &Facts<'_>, way: &AttentionWay) -> bool {
    let over = way.chain.iter().find_map(|(id, _)| match facts.op_of(*id) {
        Some(Op::Softmax { over } | Op::SinkSoftmax { over }) => Some(*over),
        _ => None,
    });
    let products = way.chain.iter().filter(|(id, _)| facts.op_of(*id) == Some(&Op::Einsum));
    let gathered: Vec<Option<AxisList>> = products
        .map(|(id, fit)| {
            let (place, dim, axes) = facts.fits[*id][*fit].looped.as_ref()?.gathers?;
            let operand = facts.program.values[*id].def.operands()[place].index();
            (over == Some(facts.program.values[operand].dims[dim])).then_some(axes)
        })
        .collect();
    let loops = way.chain.iter().any(|(id, fit)| facts.fits[*id][*fit].looped.is_some());
    let sinks =
        way.chain.iter().any(|(id, _)| matches!(facts.op_of(*id), Some(Op::SinkSoftmax { .. })));
    let complete = way
        .chain
        .last()
        .is_some_and(|(id, _)| facts.spaces[*id].layouts[way.made].softmax_axes().is_empty());
    !loops
        || (complete
            && !sinks
            && gathered[0].is_some()
            && gathered.iter().all(|g| *g == gathered[0]))
}

/// The places of the dims of the statistics in the product of an attention whose keys are split:
/// the dims of the softmax without the keys.
pub(crate) fn statistics(program: &Program, id: usize) -> Option<DimSet> {
    let values = &program.values;
    let Def::Op { op: Op::Einsum, operands } = &values[id].def else { return None };
    if operands.len() != 2 {
        return None;
    }
    operands.iter().find_map(|operand| {
        let mut at = operand.index();
        loop {
            match &values[at].def {
                Def::Pin { operand, .. } => at = operand.index(),
                Def::Op { op: Op::Cast(_), operands } => at = operands[0].index(),
                Def::Op { op: Op::Softmax { over }, .. } => {
                    let (has, own) = (&values[at].dims, &values[id].dims);
                    let is_one = |d: &usize| own[*d] != *over && has.contains(&own[*d]);
                    return (!own.contains(over)).then(|| (0..own.len()).filter(is_one).collect());
                }
                Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) => return None,
            }
        }
    })
}

/// The places of the dims of the statistics of a value that may be the attention over a part of the
/// keys; and the operand from which it has that, where it does not end an attention itself.
pub(crate) fn part(program: &Program, id: usize) -> Option<(Option<usize>, DimSet)> {
    let value = &program.values[id];
    let Def::Op { op, operands } = &value.def else { return None };
    if let Some(found) = statistics(program, id) {
        return Some((None, found));
    }
    // Of how many operands it may act on one, and the dims that it works along.
    let linear = match op {
        Op::Einsum | Op::Binary(Binary::Mul) | Op::Conv { .. } => operands.len(),
        Op::Rope { .. }
        | Op::Cumsum { .. }
        | Op::Shift { .. }
        | Op::Scan { .. }
        | Op::Pad { .. }
        | Op::Take { .. }
        | Op::ScatterAdd { .. }
        | Op::Binary(Binary::Div)
        | Op::Map(Map::Neg)
        | Op::Cast(Dtype::F32 | Dtype::Bf16)
        | Op::Reduce { kind: Reduce::Sum | Reduce::Mean, .. }
        | Op::Rename { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::SliceDim { .. } => 1,
        _ => 0,
    };
    let along = match op {
        Op::Rope { over, .. }
        | Op::Cumsum { over }
        | Op::Shift { over, .. }
        | Op::Conv { over, .. }
        | Op::Scan { over } => Some(*over),
        _ => None,
    };
    (0..linear).find_map(|place| {
        let operand = operands[place].index();
        let (_, by) = part(program, operand)?;
        let dims = &program.values[operand].dims;
        if by.iter().any(|at| Some(dims[at]) == along) {
            return None;
        }
        let to = by.iter().map(|at| {
            let dim = program.values[operand].dims[at];
            let name = match op {
                Op::Rename { from, to } if dim == *from => *to,
                _ => dim,
            };
            value.dims.iter().position(|own| *own == name)
        });
        Some((Some(place), to.collect::<Option<DimSet>>()?))
    })
}

/// The value behind casts, each of which is read by the next alone, and its reader.
fn behind_casts(facts: &Facts<'_>, mut id: usize, mut reader: usize) -> (usize, usize) {
    while let Some(Op::Cast(_)) = facts.op_of(id).filter(|_| facts.only_reader(id, reader)) {
        let operand = facts.program.values[id].def.operands()[0].index();
        (id, reader) = (facts.origin(operand), id);
    }
    (id, reader)
}

/// Whether a value is scores over these keys that one reader alone reads.
fn has_scores(facts: &Facts<'_>, id: usize, reader: usize, key: DimId) -> bool {
    let values = &facts.program.values;
    let (value, behind) = (&values[id], &values[reader]);
    let same = value.dims.len() == behind.dims.len()
        && value.dims.iter().all(|dim| behind.dims.contains(dim));
    if !same || !facts.only_reader(id, reader) {
        return false;
    }
    let operands = value.def.operands();
    match facts.op_of(id) {
        Some(Op::Einsum) => {
            let keys = operands.iter().filter(|o| values[o.index()].dims.contains(&key)).count();
            let sums = |o: &shard_ir::ValueId| {
                values[o.index()].dims.iter().any(|dim| !value.dims.contains(dim))
            };
            operands.len() == 2 && keys == 1 && operands.iter().all(sums)
        }
        Some(Op::Map(_) | Op::Cast(_) | Op::Binary(_) | Op::Mask { .. } | Op::Where) => {
            operands.iter().any(|o| has_scores(facts, facts.origin(o.index()), id, key))
        }
        _ => false,
    }
}

fn is_whole(layout: Layout) -> bool {
    layout.is_complete()
}

/// The ways in which an op of an attention makes its value in a layout, with these concats in it;
/// `key` is known behind the softmax.
fn ways(
    facts: &Facts<'_>,
    id: usize,
    made: usize,
    (key, joined): (Option<DimId>, &BTreeSet<usize>),
) -> Vec<AttentionWay> {
    let program = facts.program;
    let mut found = Vec::new();
    for (fit, layouts) in facts.fits[id].iter().enumerate() {
        let wanted = facts.spaces[id].layouts[made];
        let result = facts.spaces[id].layouts[layouts.result];
        // Before the softmax is met it is what the attention ends with: where keys are split, it
        // sums over them, each operand whole.
        let fits = if wanted.is_complete() {
            layouts.result == made
        } else {
            let operands = program.values[id].def.operands().iter().zip(&layouts.operands);
            key.is_none()
                && facts.op_of(id) == Some(&Op::Einsum)
                && wanted == result.sums_as_softmax()
                && wanted.partial_axes() == wanted.softmax_axes()
                && operands.map(|(o, l)| facts.spaces[o.index()].layouts[*l]).all(is_whole)
        };
        let scatters = layouts.looped.as_ref().is_some_and(|looped| looped.scatters);
        if !fits || scatters {
            continue;
        }
        let key = match facts.op_of(id) {
            Some(Op::Softmax { over } | Op::SinkSoftmax { over }) => Some(*over),
            _ => key,
        };
        let mut all = vec![AttentionWay { made, reads: Vec::new(), chain: vec![(id, fit)] }];
        for (operand, layout) in program.values[id].def.operands().iter().zip(&layouts.operands) {
            let origin = facts.origin(operand.index());
            let inner = match key {
                _ if joined.contains(&origin) => true,
                Some(key) => {
                    facts.op_of(id) != Some(&Op::Einsum) && has_scores(facts, origin, id, key)
                }
                // Before the softmax is met, what leads to it.
                None => matches!(
                    facts.op_of(behind_casts(facts, origin, id).0),
                    Some(Op::Softmax { .. } | Op::SinkSoftmax { .. })
                ),
            };
            let mut pin = operand.index();
            let mut passes = true;
            while let Def::Pin { operand, .. } = &program.values[pin].def {
                passes &= facts.allowed[pin].contains(layout);
                pin = operand.index();
            }
            let parts = if !inner {
                vec![AttentionWay {
                    made: *layout,
                    reads: vec![(operand.index(), *layout)],
                    chain: Vec::new(),
                }]
            } else if passes {
                ways(facts, origin, *layout, (key, joined))
            } else {
                Vec::new()
            };
            all = all
                .iter()
                .flat_map(|way| {
                    parts.iter().map(|part| AttentionWay {
                        made,
                        reads: [&way.reads[..], &part.reads].concat(),
                        chain: [&part.chain[..], &way.chain].concat(),
                    })
                })
                .collect();
        }
        found.extend(all);
    }
    found.iter_mut().for_each(|way| way.chain.sort_unstable());
    found
}

const CHIP: &str = "name = \"kernels\"
[chip]
flops = { f32 = 1e9, bf16 = 1e9 }
hbm_bytes = 1e9
hbm_bandwidth = 1e9
[network]
kind = \"flat\"
bandwidth = 3e8
latency = 1e-9
[kernels]
attention = 0.5
";

/// Parameters, result and body of each layer.
const BODIES: &[&str] = &[
    // One head, a mask, a scale.
    "q: f32 LQ, k: f32 SQ, v: f32 SD) -> f32 LD {
 let s = einsum(q, k -> LS) * 0.5\n return einsum(softmax(causal(s over L, S) over S), v -> LD)\n}",
    // A window, keys split or not.
    "q: f32 LQ, k: f32 SQ, v: f32 SD) -> f32 LD {
 return einsum(softmax(causal(einsum(q, k -> LS) over L, S, 2) over S), v -> LD)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 LD {
 return einsum(softmax(causal(einsum(q, k -> LS) over L, S, 3) over S), v -> LD)\n}",
    // A window over split queries; one that hides whole blocks of keys from all queries.
    "q: f32 L_xQ, k: f32 SQ_x, v: f32 SD) -> f32 L_xD {
 return einsum(softmax(causal(einsum(q, k -> LS) over L, S, 1) over S), v -> LD)\n}",
    "q: f32 OQ, k: f32 S_xQ, v: f32 S_xD) -> f32 OD_x {
 return einsum(softmax(causal(einsum(q, k -> OS) over O, S, 3) over S), v -> OD)\n}",
    // A sink for each head, keys split or not.
    "q: f32 HL_xQ, k: f32 HSQ, v: f32 HSD_x, s: f32 H_x) -> f32 HLD {
 return einsum(sink_softmax(einsum(q, k -> HLS), s over S), v -> HLD)\n}",
    "q: f32 HLQ, k: f32 HS_xQ, v: f32 HS_xD, s: f32 H) -> f32 HLD {
 return einsum(sink_softmax(causal(einsum(q, k -> HLS) over L, S, 2), s over S), v -> HLD)\n}",
    // Several heads, of which queries are split.
    "q: f32 HL_xQ, k: f32 HS_xQ, v: f32 HS_xD) -> f32 HL_xD {
 return einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n}",
    "q: f32 HL_xQ, k: f32 HS_xQ, v: f32 HS_xD) -> f32 HL_xD {
 return relu(einsum(softmax(causal(einsum(q, k -> HLS) over L, S) over S), v -> HLD))\n}",
    // Keys that are values, and scores of two products: what is there twice travels once.
    "q: f32 L_xQ, p: f32 L_xR, k: f32 S_xQ, r: f32 S_xR) -> f32 L_xQ {
 let s = einsum(q, k -> LS) + einsum(p, r -> LS)\n return einsum(softmax(s over S), k -> LQ)\n}",
    // Multiquery; something joins the kernel.
    "q: f32 H_xLQ, k: f32 SQ_x, v: f32 SD) -> f32 H_xLD {
 return relu(einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD))\n}",
    // Scores of two products, and a bias.
    "q: f32 LQ, k: f32 SQ, p: f32 L_xR, r: f32 SR, b: f32 LS_x, v: f32 SD_x) -> f32 LD_x {
 let s = einsum(q, k -> LS) + einsum(p, r -> LS)\n return einsum(softmax(tanh(s) + b over S), v -> LD)\n}",
    // Values are keys.
    "q: f32 LQ_x, k: f32 SQ_x) -> f32 LQ {
 return einsum(softmax(einsum(q, k -> LS) over S), k -> LQ)\n}",
    // Scores that another reads, and a pin between.
    "q: f32 LQ, k: f32 SQ, v: f32 SD) -> (y: f32 LD, s: f32 LS) {
 let s = einsum(q, k -> LS)\n return (einsum(softmax(s over S), v -> LD), s)\n}",
    "q: f32 LQ, k: f32 SQ, v: f32 SD) -> f32 LD_x {
 let s: f32 L_xS = einsum(q, k -> LS)\n return einsum(softmax(s over S), v -> LD)\n}",
    // A long row of keys, split.
    "q: f32 OQ, k: f32 S_xQ, v: f32 S_xD) -> f32 OD {
 return einsum(softmax(causal(einsum(q, k -> OS) over O, S) over S), v -> OD)\n}",
    // One query and few heads, keys split: the parts are merged, or scattered along the values.
    "q: f32 HOQ, k: f32 HS_xQ, v: f32 HS_xD) -> f32 HOD {
 return einsum(softmax(einsum(q, k -> HOS) over S), v -> HOD)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 LD_x {
 return einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 L_xD {
 return relu(einsum(softmax(einsum(q, k -> LS) over S), v -> LD))\n}",
    // A result that is pinned.
    "q: f32 HOQ, k: f32 HS_xQ, v: f32 HS_xD) -> f32 HOD {
 let o: f32 HOD? = einsum(softmax(einsum(q, k -> HOS) over S), v -> HOD)\n return tanh(o)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 LD {
 let o: f32 LD_x = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n return o\n}",
    // Parts of an attention that pass through linear ops: fewer values than before, another name,
    // a scale of any sign, a cast, a sum; and one that sums over what has statistics.
    "q: f32 HLQ, k: f32 HS_xQ, v: f32 HS_xD, w: f32 HDR) -> f32 HLR {
 let o = einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n return -einsum(o, w -> HLR)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, c: f32 L) -> bf16 L {
 let o = einsum(softmax(causal(einsum(q, k -> LS) over L, S) over S), v -> LD)
 return cast(sum(o * c over D), bf16)\n}",
    "q: f32 HLQ, k: f32 HS_xQ, v: f32 HS_xD, w: f32 HDR) -> f32 LR {
 let o = einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n return einsum(o, w -> LR)\n}",
    // Keys and values that are joined: of a prefix that all heads share, of two, with a mask, read
    // by the scores and the product alike, pinned, and read by something else.
    "q: f32 HLQ, k: f32 TQ, v: f32 TD, k2: f32 HTQ, v2: f32 HTD) -> f32 HLD {
 let s = einsum(q, concat(k, rename(k2, T -> U), T, U -> V) -> HLV)
 return einsum(softmax(s over V), concat(v, rename(v2, T -> U), T, U -> V) -> HLD)\n}",
    "q: f32 LQ, k: f32 T_xQ, k2: f32 UQ, v: f32 VD_x) -> f32 LD {
 return einsum(softmax(causal(einsum(q, concat(k, k2, T, U -> V) -> LV) over L, V) over V), v -> LD)\n}",
    "q: f32 H_xLQ, k: f32 TQ, k2: f32 HUQ_x) -> f32 HLQ {
 let k3 = concat(k, k2, T, U -> V)\n return einsum(softmax(einsum(q, k3 -> HLV) over V), k3 -> HLQ)\n}",
    "q: f32 HLQ, k: f32 TQ, k2: f32 HUQ, v: f32 HVD) -> f32 HLD_x {
 let k3: f32 H_xVQ = concat(k, k2, T, U -> V)\n return einsum(softmax(einsum(q, k3 -> HLV) over V), v -> HLD)\n}",
    "q: f32 LQ, k: f32 TQ, k2: f32 UQ, v: f32 VD) -> (y: f32 LD, k3: f32 VQ) {
 let k3 = concat(k, k2, T, U -> V)\n return (einsum(softmax(einsum(q, k3 -> LV) over V), v -> LD), k3)\n}",
    // Both parts split, by one axis, or wanted split; one of the values; a bias that has the keys.
    "q: f32 OQ, k: f32 T_xQ, k2: f32 U_xQ) -> f32 OQ {
 let k3 = concat(k, k2, T, U -> V)\n return einsum(softmax(einsum(q, k3 -> OV) over V), k3 -> OQ)\n}",
    "q: f32 HOQ, k: f32 T_xQ, k2: f32 HUQ, v: f32 TD?, v2: f32 HU_xD) -> f32 HOD {
 let s = einsum(q, concat(k, k2, T, U -> V) -> HOV)
 return einsum(softmax(s * 0.5 over V), concat(v, v2, T, U -> V) -> HOD)\n}",
    "q: f32 OQ, k: f32 T_xQ, k2: f32 U_xQ, v: f32 V_xD) -> f32 OD {
 return einsum(softmax(einsum(q, concat(k, k2, T, U -> V) -> OV) over V), v -> OD)\n}",
    "q: f32 OQ, k: f32 T_xQ, k2: f32 U_xQ) -> f32 OQ {
 let k3: f32 VQ? = concat(k, k2, T, U -> V)\n return einsum(softmax(einsum(q, k3 -> OV) over V), k3 -> OQ)\n}",
    // A cast on the way.
    "q: f32 LQ, k: f32 SQ, v: bf16 SD) -> bf16 L_xD {
 return einsum(cast(softmax(einsum(q, k -> LS) over S), bf16), v -> LD)\n}",
    // What runs along the values or looks among them acts on the parts; along the queries nothing
    // does.
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(cumsum(o over D), D -> O, 1)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, w: f32 R) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(conv(o, w over D, R), D -> O, 1)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, f: f32 LD) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(scan(o, f over D), D -> O, 1)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(rope(o over D at L), D -> O, 1)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, i: int32 O) -> f32 OL {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n return take(o, i over D)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, i: int32 D) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n return scatter_add(o, i over D -> O)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(cumsum(o over L), D -> O, 1)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, f: f32 LD) -> f32 LO {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(scan(o, f over L), D -> O, 1)\n}",
    "q: f32 LQ, k: f32 S_xQ, v: f32 S_xD, i: int32 L) -> f32 OD {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n return scatter_add(o, i over L -> O)\n}",
];

/// How many cases there are.
pub(crate) const ATTENTIONS: u64 = BODIES.len() as u64 * 3;

/// Attentions on two axes.
const ON_TWO_AXES: &[&str] = &[
    "q: f32 L_xyQ, k: f32 S_xyQ, v: f32 S_xyD) -> f32 L_xyD {
 return einsum(softmax(causal(einsum(q, k -> LS) over L, S) over S), v -> LD)\n}",
    "q: f32 L_xQ, k: f32 S_yxQ, v: f32 S_xD) -> f32 L_xyD {
 return einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n}",
    "q: f32 L_yQ, k: f32 S_xQ, v: f32 S_xD_y) -> f32 L_yD {
 return einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n}",
];

/// How many cases there are on two axes.
pub(crate) const RINGS: u64 = ON_TWO_AXES.len() as u64 * 3;

/// A case on two axes by number.
pub(crate) fn ring_case(_: u64, number: u64) -> Case {
    let body = ON_TWO_AXES[number as usize % ON_TWO_AXES.len()];
    let sizes = [(4, 8, 2), (8, 8, 32), (16, 16, 2)][number as usize / ON_TWO_AXES.len() % 3];
    case_on("x=2, y=2", body, sizes)
}

/// A case by number.
pub(crate) fn attention_case(_: u64, number: u64) -> Case {
    let body = BODIES[number as usize % BODIES.len()];
    let sizes = [(4, 4, 4), (4, 16, 2), (8, 8, 32)][number as usize / BODIES.len() % 3];
    case_on("x=2", body, sizes)
}

fn case_on(mesh: &str, body: &str, (queries, keys, width): (u64, u64, u64)) -> Case {
    let source = format!(
        "mesh {mesh}\ndim L = {queries}\ndim S = {keys}\ndim Q = {width}\ndim D = {width}\ndim H = 2\n\
         dim R = 2\ndim O = 1\ndim T = {}\ndim U = T\ndim V = {keys}\nlayer f({}",
        keys / 2,
        body
    );
    let checked =
        check_source(&SourceFile::new("attention", source.as_str()), &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}");
    let program = checked.programs.into_iter().next().expect("a layer");
    let hardware = Hardware::parse(CHIP).expect("a chip");
    Case { program, hardware, hardware_text: CHIP.to_string() }
}
