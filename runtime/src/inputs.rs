//! Data for the parameters, and their way onto the devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::{AxisSet, Dtype, InstrId, InstrKind, Map, MeshShape, Op, Plan, Random, Reduction};

use crate::arithmetic::{Arithmetic, EXACT_LIMIT};
use crate::blocks::Blocks;
use crate::collectives::Held;
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::parallel;
use crate::spare::Spare;
use crate::tensor::{Element, Tensor};

/// The whole tensor of each parameter, by instruction: as given, or drawn.
pub(crate) fn parameters(
    plan: &Plan,
    given: &BTreeMap<String, Arc<Tensor>>,
    arithmetic: Arithmetic,
    seed: u64,
) -> Result<BTreeMap<InstrId, Arc<Tensor>>, RunError> {
    let error = |name: &str, problem: String| RunError::Input { name: name.to_string(), problem };
    let is_parameter = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    for name in given.keys() {
        if !plan
            .ids()
            .filter(is_parameter)
            .any(|id| plan.instruction(id).name.as_ref() == Some(name))
        {
            return Err(error(name, "the layer has no such parameter".to_string()));
        }
    }
    let indices = shard_ir::index_ranges(plan);
    let positive = needs_positive(plan);
    let mut out = BTreeMap::new();
    for id in plan.ids().filter(is_parameter) {
        let instr = plan.instruction(id);
        let sizes = usizes(&plan.sizes(&instr.dims));
        let supplied = instr.name.as_ref().and_then(|n| Some((n, given.get(n)?)));
        let tensor = match supplied {
            Some((name, tensor)) => {
                if tensor.sizes != sizes || tensor.data.len() != sizes.iter().product::<usize>() {
                    return Err(error(
                        name,
                        format!("has shape {:?}, the parameter {sizes:?}", tensor.sizes),
                    ));
                }
                if !instr.dtype.is_float()
                    && tensor.data.iter().any(|v| v.fract() != 0.0 || v.abs() > EXACT_LIMIT)
                {
                    return Err(error(
                        name,
                        format!(
                            "the parameter is {} and an element is no whole number",
                            instr.dtype
                        ),
                    ));
                }
                let round = |v: &f64| arithmetic.round(instr.dtype, *v);
                let stays = |v: &f64| match arithmetic {
                    Arithmetic::Single if instr.dtype.is_float() => f64::from(*v as f32) == *v,
                    Arithmetic::Exact
                    | Arithmetic::F32
                    | Arithmetic::Single
                    | Arithmetic::Emulated => round(v).to_bits() == v.to_bits(),
                };
                if all(&tensor.data, stays) {
                    tensor.clone()
                } else {
                    let data = tensor.data.iter().map(round).collect();
                    Arc::new(Tensor { sizes, data })
                }
            }
            None => {
                let mut random = Random::for_part(seed, u64::from(id.0));
                let count = sizes.iter().product();
                let data = (0..count).map(|_| {
                    draw(&mut random, instr.dtype, arithmetic, indices[id.index()], positive)
                });
                let data = data.map(|v| arithmetic.round(instr.dtype, v)).collect();
                Arc::new(Tensor { sizes, data })
            }
        };
        out.insert(id, tensor);
    }
    Ok(out)
}

/// Whether a test holds for all elements. All cores test, each of them several elements at once.
fn all(data: &[f64], holds: impl Fn(&f64) -> bool + Sync) -> bool {
    let chunks: Vec<&[f64]> = data.chunks(1 << 16).collect();
    // Without a branch for each element, so that the compiler can use vector instructions.
    let holds_for = |some: &[f64]| some.iter().fold(true, |all, v| all & holds(v));
    let each = |at: usize| if chunks[at].chunks(64).all(holds_for) { Ok(()) } else { Err(()) };
    parallel::map(chunks.len(), data.len(), each).is_ok()
}

/// Whether given inputs are whole numbers small enough to start from in exact arithmetic.
pub(crate) fn all_whole(given: &BTreeMap<String, Arc<Tensor>>) -> bool {
    given.values().all(|t| t.data.iter().all(|v| v.fract() == 0.0 && v.abs() <= 1_048_576.0))
}

fn draw(
    random: &mut Random,
    dtype: Dtype,
    arithmetic: Arithmetic,
    index: Option<u64>,
    positive: bool,
) -> f64 {
    if let Some(range) = index {
        return random.below(range) as f64;
    }
    match (dtype, arithmetic) {
        (Dtype::Bool, _) => random.below(2) as f64,
        (d, _) if !d.is_float() => random.between(if positive { 1 } else { -3 }, 3) as f64,
        (_, Arithmetic::Exact) => random.between(-3, 3) as f64,
        // Away from 0 where a root, a logarithm or a quotient may come.
        (_, Arithmetic::F32 | Arithmetic::Single | Arithmetic::Emulated) if positive => {
            0.5 + random.unit()
        }
        (_, Arithmetic::F32 | Arithmetic::Single | Arithmetic::Emulated) => {
            2.0 * random.unit() - 1.0
        }
    }
}

/// Whether an op takes a root or a logarithm, or divides, so that random data should be positive.
/// The pieces of a composite are left out: they do so of what is positive whatever the data.
fn needs_positive(plan: &Plan) -> bool {
    plan.instructions.iter().filter(|i| i.origin.piece_of.is_none()).any(|i| match &i.kind {
        InstrKind::Op(Op::Map(map)) => matches!(map, Map::Log | Map::Sqrt | Map::Rsqrt),
        InstrKind::Op(Op::Binary(binary)) => *binary == shard_ir::Binary::Div,
        InstrKind::Op(_)
        | InstrKind::Parameter(_)
        | InstrKind::Constant(_)
        | InstrKind::Move(_)
        | InstrKind::CollectiveEinsum(_) => false,
    })
}

/// The block of each device of a parameter. Of a partial parameter each device gets a random term
/// or candidate; together they combine to the whole.
pub(crate) fn deal(
    plan: &Plan,
    id: InstrId,
    whole: &Tensor,
    grid: &Grid<'_>,
    arithmetic: Arithmetic,
    seed: u64,
    spare: &Spare,
) -> Result<Blocks, RunError> {
    let instr = plan.instruction(id);
    let sizes = plan.sizes(&instr.dims);
    let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
    let (sums, maxima) =
        (instr.layout.partial(Reduction::Sum), instr.layout.partial(Reduction::Max));
    let mut random = Random::for_part(seed ^ 0x7465_726d, u64::from(id.0));
    // Rounded to an emulated integer dtype, random terms would not add up to the whole.
    let simple = arithmetic == Arithmetic::Emulated && !instr.dtype.is_float();
    let local = usizes(&shape.local_sizes(instr.layout));
    let origin = |device: usize| grid.origin(device, shape, instr.layout);
    if sums.is_empty() && maxima.is_empty() {
        let split = instr.layout.split_axes();
        return if Blocks::are_narrow(arithmetic, instr.dtype) {
            dealt(whole, grid, split, spare, origin, &local).map(Blocks::Narrow)
        } else {
            dealt(whole, grid, split, spare, origin, &local).map(Blocks::Wide)
        };
    }
    let candidates = lower_but_one(whole, group_size(plan, maxima), simple, &mut random);
    let terms: Vec<Vec<Tensor>> = candidates
        .iter()
        .map(|c| sum_terms(c, group_size(plan, sums), simple, instr.dtype, arithmetic, &mut random))
        .collect();
    let (sums, maxima) = (sums.iter().collect(), maxima.iter().collect());
    let blocks = (0..grid.devices()).map(|device| {
        let term = &terms[grid.rank(device, &maxima)][grid.rank(device, &sums)];
        Arc::new(term.block(&origin(device), &local))
    });
    Ok(Blocks::of(arithmetic, instr.dtype, blocks.collect()))
}

/// The block of each device of a whole tensor that these axes split: blocks of `local` sizes that
/// start at `origin`. Devices that get the same elements hold one block.
fn dealt<T: Element>(
    whole: &Tensor,
    grid: &Grid<'_>,
    split: AxisSet,
    spare: &Spare,
    origin: impl Fn(usize) -> Vec<usize> + Sync,
    local: &[usize],
) -> Result<Held<T>, RunError> {
    let first: Vec<usize> = (0..grid.devices()).map(|d| grid.projected(d, split)).collect();
    let copied = local.iter().product::<usize>() * grid.devices();
    let blocks = parallel::map(grid.devices(), copied, |device| {
        let is_first = first[device] == device;
        Ok(is_first.then(|| Arc::new(whole.block_as(&origin(device), local, spare))))
    })?;
    let of = |at: &usize| blocks[*at].clone().ok_or(RunError::Internal("nobody has a block"));
    first.iter().map(of).collect()
}

fn group_size(plan: &Plan, axes: AxisSet) -> usize {
    plan.mesh.group_size(axes) as usize
}

/// Tensors whose maximum is `whole`. Each element of it is in one of them, taken at random; the
/// others have there a number that is no larger, and the same one if `simple`.
fn lower_but_one(whole: &Tensor, count: usize, simple: bool, random: &mut Random) -> Vec<Tensor> {
    let mut out = vec![whole.clone(); count];
    for at in 0..whole.data.len() {
        let winner = random.below(count as u64) as usize;
        for (_, tensor) in out.iter_mut().enumerate().filter(|(i, _)| *i != winner) {
            tensor.data[at] -= if simple { 0.0 } else { random.between(0, 3) as f64 };
        }
    }
    out
}

/// Tensors whose sum is `whole`; if `simple`, one of them is the whole and the others are 0.
fn sum_terms(
    whole: &Tensor,
    count: usize,
    simple: bool,
    dtype: Dtype,
    arithmetic: Arithmetic,
    random: &mut Random,
) -> Vec<Tensor> {
    if simple {
        let mut out = vec![Tensor::filled(whole.sizes.clone(), 0.0); count];
        let keeper = random.below(count as u64) as usize;
        out[keeper] = whole.clone();
        return out;
    }
    let mut out = vec![whole.clone(); count];
    for at in 0..whole.data.len() {
        let mut rest = whole.data[at];
        for tensor in out.iter_mut().skip(1) {
            let term = if arithmetic == Arithmetic::Exact || !dtype.is_float() {
                random.between(-3, 3) as f64
            } else {
                arithmetic.round(dtype, 2.0 * random.unit() - 1.0)
            };
            tensor.data[at] = term;
            rest -= term;
        }
        out[0].data[at] = arithmetic.round(dtype, rest);
    }
    out
}
