//! The collectives in the document of `export specs`: their groups, pairs and dtypes, the order of
//! chunks, and which collectives may be sent as one.

use serde::Serialize;
use shard_ir::{Collective, Fused, InstrId, InstrKind, Mesh, MeshShape, Plan, Reduction};

use crate::devices::{permute_pairs, ring_pairs};
use crate::error::ExportError;

/// The largest mesh, in devices, for which lists of devices are written.
pub(crate) const MOST_DEVICES: u64 = 1 << 16;

/// The most collectives that are compared pairwise; of more, `together` stays empty.
const MOST_COMPARED: usize = 2_000;

/// A collective of a plan, as the document has it.
#[derive(Serialize)]
pub(crate) struct SendSheet {
    /// The number of its instruction, as `lower` prints it.
    id: u32,
    op: &'static str,
    /// The name of the collective einsum that does it in its loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<&'static str>,
    /// The number of the instruction whose value it moves.
    operand: u32,
    /// The axes of its groups, major to minor; the devices of a group are numbered in this order.
    axes: Vec<String>,
    /// How many devices a group has.
    group_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reduction: Option<&'static str>,
    /// The dtype of the elements that are sent.
    wire_dtype: &'static str,
    /// The dtype in which terms are combined, of a collective that combines terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    combined_in: Option<&'static str>,
    /// Of a permute and of a loop: the pairs of sender and receiver, by their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<Vec<[u64; 2]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<ChunksSheet>,
    /// The number of the first collective of the set in which this one may be sent as one. The
    /// collectives of a set have the same kind, axes and dtype, and none depends on another.
    #[serde(skip_serializing_if = "Option::is_none")]
    together: Option<u32>,
}

/// The order in which a loop takes its chunks: at turn t, counted from 0, the device of rank r has
/// chunk `(r + first - t) mod count`.
#[derive(Serialize)]
struct ChunksSheet {
    count: u64,
    first: i64,
}

/// All collectives of a plan that send something.
pub(crate) fn sends(plan: &Plan) -> Result<Vec<SendSheet>, ExportError> {
    let found: Vec<(InstrId, Collective)> = plan
        .ids()
        .filter_map(|id| Some((id, plan.instruction(id).kind.collective()?)))
        .filter(|(_, collective)| collective.has_traffic())
        .collect();
    let together = together(plan, &found);
    found
        .iter()
        .zip(together)
        .map(|((id, collective), together)| send(plan, *id, collective, together))
        .collect()
}

fn send(
    plan: &Plan,
    id: InstrId,
    collective: &Collective,
    together: Option<u32>,
) -> Result<SendSheet, ExportError> {
    let (mesh, instr) = (&plan.mesh, plan.instruction(id));
    let fused = instr.kind.fused();
    let operand = match fused {
        None => plan.moved(id),
        Some(fused) => fused.gathered().map_or(id, |place| instr.operands[place]),
    };
    let moved = plan.instruction(operand);
    let axes = collective.axes(mesh, moved.layout);
    let reduction = collective.terms().kind;
    Ok(SendSheet {
        id: id.0,
        op: collective.name(),
        inside: fused.map(|_| instr.kind.name()),
        operand: operand.0,
        axes: axes.iter().map(|axis| mesh.name(axis).to_string()).collect(),
        group_size: mesh.group_size(axes.iter()),
        reduction: reduction.map(Reduction::short),
        wire_dtype: moved.dtype.name(),
        combined_in: reduction.map(|_| moved.dtype.name()),
        pairs: pairs(plan, id, collective, fused)?,
        chunks: fused.map(|fused| chunks(mesh, &fused)),
        together,
    })
}

fn pairs(
    plan: &Plan,
    id: InstrId,
    collective: &Collective,
    fused: Option<Fused>,
) -> Result<Option<Vec<[u64; 2]>>, ExportError> {
    let (mesh, instr) = (&plan.mesh, plan.instruction(id));
    if mesh.devices() > MOST_DEVICES {
        return Ok(None);
    }
    if let Some(fused) = fused {
        return Ok(Some(ring_pairs(mesh, &fused.axes())));
    }
    let Collective::Permute { to } = *collective else { return Ok(None) };
    let shape = MeshShape { mesh, sizes: &plan.sizes(&instr.dims) };
    let pairs = permute_pairs(shape, plan.instruction(plan.moved(id)).layout, to)?;
    Ok(Some(pairs.into_iter().filter(|[from, to]| from != to).collect()))
}

/// The order of chunks. A gather begins with the device's own chunk, a scatter with the chunk that
/// has the longest way to its owner.
fn chunks(mesh: &Mesh, fused: &Fused) -> ChunksSheet {
    let first = match fused {
        Fused::AllGather { .. } => 0,
        Fused::ReduceScatter { .. } => -1,
    };
    ChunksSheet { count: fused.chunks(mesh), first }
}

/// For each collective the number of the first collective of its set; `None` where it is alone.
fn together(plan: &Plan, found: &[(InstrId, Collective)]) -> Vec<Option<u32>> {
    if found.len() > MOST_COMPARED {
        return vec![None; found.len()];
    }
    // For each instruction a bit for each collective that its value depends on.
    let words = found.len().div_ceil(64);
    let mut needs: Vec<Vec<u64>> = vec![vec![0; words]; plan.instructions.len()];
    for id in plan.ids() {
        let mut own = vec![0; words];
        for operand in &plan.instruction(id).operands {
            own.iter_mut().zip(&needs[operand.index()]).for_each(|(a, b)| *a |= b);
        }
        if let Ok(place) = found.binary_search_by_key(&id, |(id, _)| *id) {
            own[place / 64] |= 1 << (place % 64);
        }
        needs[id.index()] = own;
    }
    let needs_of = |a: usize, b: usize| needs[found[a].0.index()][b / 64] >> (b % 64) & 1 == 1;
    let alike = |a: usize, b: usize| {
        let key = |(id, collective): &(InstrId, Collective)| {
            let (instr, from) = (plan.instruction(*id), plan.moved(*id));
            let axes = collective.axes(&plan.mesh, plan.instruction(from).layout);
            let is_move = matches!(instr.kind, InstrKind::Move(_));
            (is_move, collective.code(), collective.terms().kind, axes, instr.dtype, instr.fold)
        };
        key(&found[a]) == key(&found[b]) && key(&found[a]).0
    };
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for at in 0..found.len() {
        let fits = |set: &&mut Vec<usize>| {
            set.iter().all(|other| alike(at, *other) && !needs_of(at, *other))
        };
        match sets.iter_mut().find(fits) {
            Some(set) => set.push(at),
            None => sets.push(vec![at]),
        }
    }
    let mut first = vec![None; found.len()];
    for set in sets.iter().filter(|set| set.len() > 1) {
        set.iter().for_each(|at| first[*at] = Some(found[set[0]].0.0));
    }
    first
}
