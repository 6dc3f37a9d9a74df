//! Strategies as restrictions on ops: the layouts in which an einsum may read a weight, and those
//! that the scores of an attention may have. They ask of a program what `shard_report::strategy`
//! recognises in a plan.

use std::ops::RangeInclusive;

use shard_ir::{AxisSet, Def, DimId, Layout, Op, Plan, Program, ValueId};
use shard_report::strategy::{Attention, Strategy, attentions};
use shard_search::Forced;

use super::force::Way;

/// One operand of an einsum that is a weight.
#[derive(Clone, Debug)]
struct WeightUse {
    einsum: ValueId,
    weight: ValueId,
    /// Whether the type of the weight leaves its layout open.
    is_open: bool,
    /// The bytes of the weight in all the layers that have it.
    bytes: u128,
    /// Which operand.
    place: usize,
    /// The axes that split it where it is stored, as far as its type says.
    stored: AxisSet,
    /// The dims of each operand; empty for the scales of this weight or, where this operand is
    /// scales, for the weight that they scale.
    dims: Vec<Vec<DimId>>,
    /// The dims of the result.
    result: Vec<DimId>,
}

/// Every use of a weight in an einsum; `None` where an einsum has more than two operands and their
/// order is not settled yet.
fn weight_uses(program: &Program) -> Option<Vec<WeightUse>> {
    let mut found = Vec::new();
    for id in program.value_ids() {
        let Def::Op { op: Op::Einsum, operands } = &program.value(id).def else { continue };
        let is_scaled = program.is_scaled_product(id);
        if operands.len() > 2 && !is_scaled {
            return None;
        }
        for (place, operand) in operands.iter().enumerate() {
            let Some(weight) = stored_weight(program, *operand) else { continue };
            let Def::Parameter { pattern, .. } = &program.value(weight).def else { continue };
            if program.value(*operand).dims.len() < 2 {
                continue;
            }
            found.push(WeightUse {
                einsum: id,
                weight,
                is_open: pattern.open,
                bytes: bytes_of(program, weight),
                place,
                stored: pattern.dims.iter().fold(AxisSet::EMPTY, |s, d| s.union(d.axes.set())),
                dims: operands
                    .iter()
                    .enumerate()
                    .map(|(at, o)| {
                        // Scales tell nothing of the dims of their weight, nor the weight of the
                        // dims of its scales.
                        let says_nothing =
                            is_scaled && at != place && stored_weight(program, *o).is_some();
                        if says_nothing { Vec::new() } else { program.value(*o).dims.clone() }
                    })
                    .collect(),
                result: program.value(id).dims.clone(),
            });
        }
    }
    Some(found)
}

fn bytes_of(program: &Program, weight: ValueId) -> u128 {
    let value = program.value(weight);
    let elements = program.sizes(&value.dims).iter().product();
    u128::from(value.dtype.bytes(elements)).saturating_mul(u128::from(program.copies(weight)))
}

/// The weight behind pins, casts and new names.
fn stored_weight(program: &Program, mut id: ValueId) -> Option<ValueId> {
    loop {
        match &program.value(id).def {
            Def::Parameter { kind, .. } if kind.is_weight() => return Some(id),
            Def::Pin { operand, .. } => id = *operand,
            Def::Op { op: Op::Fetch | Op::Cast(_) | Op::Rename { .. }, operands }
            | Def::Op { op: Op::Split { .. } | Op::Merge { .. }, operands } => {
                id = *operands.first()?;
            }
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => return None,
        }
    }
}

impl WeightUse {
    /// Whether the weight is whole over some axes and split over all others that it is stored over,
    /// and each of these axes splits a dim of the other operand that the weight lacks.
    fn is_gathered(&self, axes: AxisSet, read: &[Layout]) -> bool {
        let weight = read[self.place];
        weight.split_axes().union(weight.partial_axes()).intersection(axes).is_empty()
            && self.stored.difference(axes).is_subset(weight.split_axes())
            && axes.is_subset(self.tokens(read))
    }

    /// The axes that split dims of the other operand which the weight lacks.
    fn tokens(&self, read: &[Layout]) -> AxisSet {
        let others = self.dims.iter().enumerate().filter(|(at, _)| *at != self.place);
        let lacked = others.flat_map(|(at, dims)| {
            let lacked =
                dims.iter().enumerate().filter(|(_, d)| !self.dims[self.place].contains(d));
            lacked.map(move |(i, _)| read[at].axes_of(i).set())
        });
        lacked.fold(AxisSet::EMPTY, AxisSet::union)
    }

    /// Whether some axes split the tokens, and the weight is whole over them.
    fn is_data_parallel(&self, axes: AxisSet, read: &[Layout]) -> bool {
        let weight = read[self.place];
        axes.is_subset(self.tokens(read))
            && weight.split_axes().union(weight.partial_axes()).intersection(axes).is_empty()
    }

    /// The dims of the weight, by index, that stand for experts: the other operand and the result
    /// have them too.
    fn experts(&self, heads: &[DimId]) -> Vec<usize> {
        let others = |d: &DimId| {
            self.dims.iter().enumerate().any(|(at, dims)| at != self.place && dims.contains(d))
        };
        let is_expert = |d: &DimId| self.result.contains(d) && others(d) && !heads.contains(d);
        self.dims[self.place]
            .iter()
            .enumerate()
            .filter(|(_, d)| is_expert(d))
            .map(|(i, _)| i)
            .collect()
    }

    /// Whether a weight with experts has one of their dims split; true for a weight without
    /// experts.
    fn is_expert_parallel(&self, heads: &[DimId], read: &[Layout]) -> bool {
        let experts = self.experts(heads);
        experts.is_empty() || experts.iter().any(|dim| !read[self.place].axes_of(*dim).is_empty())
    }

    /// Whether the weight is split over every axis that it is stored over, on so many sides of the
    /// product.
    fn is_stationary(&self, sides: usize, read: &[Layout]) -> bool {
        let weight = read[self.place];
        let split = |summed: bool| {
            let dims = self.dims[self.place].iter().enumerate();
            dims.filter(|(_, d)| self.result.contains(d) != summed)
                .any(|(i, _)| !weight.axes_of(i).is_empty())
        };
        let both = usize::from(split(true)) + usize::from(split(false));
        self.stored.is_subset(weight.split_axes()) && both == sides
    }
}

/// Whether a use of a weight may read its operands in these layouts.
type AllowedUse = Box<dyn Fn(&WeightUse, &[Layout]) -> bool + Send + Sync>;

/// The ways of having a strategy; empty where the program has nothing that the strategy is about.
pub(super) fn ways(program: &Program, chosen: &Plan, wanted: Strategy) -> Vec<Way> {
    match wanted {
        Strategy::HeadShardedAttention => attention_ways(program, chosen, |a| a.heads.clone()),
        Strategy::BatchShardedAttention => attention_ways(program, chosen, |a| a.batch.clone()),
        Strategy::SequenceShardedAttention => {
            attention_ways(program, chosen, |a| a.queries.iter().copied().chain([a.keys]).collect())
        }
        Strategy::OneDWeightStationary
        | Strategy::TwoDWeightStationary
        | Strategy::XWeightGathered
        | Strategy::XyWeightGathered
        | Strategy::XyzWeightGathered
        | Strategy::Fsdp
        | Strategy::DataParallel
        | Strategy::ExpertParallel
        | Strategy::Unnamed => weight_ways(program, chosen, wanted),
    }
}

/// The way in which the scores of every attention have one of the given dims split.
fn attention_ways(
    program: &Program,
    chosen: &Plan,
    dims: impl Fn(&Attention) -> Vec<DimId>,
) -> Vec<Way> {
    let mut scores: Vec<(ValueId, Vec<usize>)> = Vec::new();
    for attention in attentions(chosen) {
        let instr = chosen.instruction(attention.scores);
        // The einsum of the program that the plan has there.
        let same = |id: &ValueId| {
            let v = program.value(*id);
            matches!(v.def, Def::Op { op: Op::Einsum, .. })
                && (Some(v.span), &v.dims, &v.in_layers)
                    == (instr.origin.span, &instr.dims, &instr.origin.in_layers)
        };
        let Some(value) = program.value_ids().find(same) else { return Vec::new() };
        let wanted = dims(&attention);
        let places =
            instr.dims.iter().enumerate().filter(|(_, d)| wanted.contains(d)).map(|(i, _)| i);
        scores.push((value, places.collect()));
    }
    if scores.is_empty() || scores.iter().any(|(_, places)| places.is_empty()) {
        return Vec::new();
    }
    let forced = move |value: ValueId, result: Layout, _: &[Layout]| {
        let mut asked = scores.iter().filter(|(scores, _)| *scores == value);
        asked.all(|(_, places)| places.iter().any(|dim| !result.axes_of(*dim).is_empty()))
    };
    vec![Way { program: program.clone(), value: None, forced: Some(Forced::ops(forced)) }]
}

fn weight_ways(program: &Program, chosen: &Plan, wanted: Strategy) -> Vec<Way> {
    let Some(uses) = WeightUses::of(program) else { return Vec::new() };
    match wanted {
        Strategy::XWeightGathered => uses.gathered(1..=1),
        Strategy::XyWeightGathered => uses.gathered(2..=2),
        Strategy::XyzWeightGathered => uses.gathered(3..=3),
        Strategy::Fsdp => uses.gathered(1..=3),
        Strategy::OneDWeightStationary => uses.stationary(1),
        Strategy::TwoDWeightStationary => uses.stationary(2),
        Strategy::DataParallel => uses.data_parallel(),
        Strategy::ExpertParallel => uses.expert_parallel(chosen),
        Strategy::HeadShardedAttention
        | Strategy::BatchShardedAttention
        | Strategy::SequenceShardedAttention
        | Strategy::Unnamed => Vec::new(),
    }
}

/// The uses of weights in a program, and ways that restrict some of them.
struct WeightUses<'p> {
    program: &'p Program,
    uses: Vec<WeightUse>,
    /// The indices of the uses, those of the largest weights first.
    largest: Vec<usize>,
    /// All sets of axes of the mesh that are not empty.
    axes: Vec<AxisSet>,
}

impl<'p> WeightUses<'p> {
    /// `None` where there is no use, or the order of an einsum's operands is not settled.
    fn of(program: &'p Program) -> Option<WeightUses<'p>> {
        let uses = weight_uses(program).filter(|uses| !uses.is_empty())?;
        let axes = program.mesh.all_axes().nonempty_subsets().collect();
        let mut largest: Vec<usize> = (0..uses.len()).collect();
        largest.sort_by_key(|i| std::cmp::Reverse(uses[*i].bytes));
        Some(WeightUses { program, uses, largest, axes })
    }

    /// The indices of all uses.
    fn all(&self) -> Vec<usize> {
        (0..self.uses.len()).collect()
    }

    fn way(&self, forced: Forced) -> Way {
        Way { program: self.program.clone(), value: None, forced: Some(forced) }
    }

    /// The restriction of the uses with these indices by `so`, and of all others by `others`.
    fn forced(&self, of: &[usize], so: AllowedUse, others: AllowedUse) -> Forced {
        let (uses, of) = (self.uses.clone(), of.to_vec());
        Forced::ops(move |value, _, read| {
            let mut here = uses.iter().enumerate().filter(|(_, u)| u.einsum == value);
            here.all(|(i, u)| if of.contains(&i) { so(u, read) } else { others(u, read) })
        })
    }

    /// Ways with stationary weights: all uses are; or one is, and the others are so or whole; or
    /// one is, and the others are free.
    fn stationary(&self, sides: usize) -> Vec<Way> {
        let so = move || -> AllowedUse { Box::new(move |u, read| u.is_stationary(sides, read)) };
        let so_or_whole = move || -> AllowedUse {
            Box::new(move |u, read| u.is_stationary(sides, read) || u.is_stationary(0, read))
        };
        let one = self.largest.iter().take(MOST_ALONE).flat_map(|use_| {
            let of = [*use_];
            [self.forced(&of, so(), so_or_whole()), self.forced(&of, so(), in_any_way())]
        });
        let all = self.forced(&self.all(), so(), in_any_way());
        std::iter::once(all).chain(one).map(|forced| self.way(forced)).collect()
    }

    /// Ways with gathered weights: all uses are gathered over a set of so many axes, or those that
    /// read most bytes are.
    fn gathered(&self, counts: RangeInclusive<usize>) -> Vec<Way> {
        let sets = self.axes.iter().copied().filter(|set| counts.contains(&set.len()));
        let sets: Vec<AxisSet> = sets.collect();
        let parts = std::iter::once(self.all()).chain(most_bytes(&self.uses, &self.largest));
        let ways = parts.flat_map(|of| {
            let of_set = |set: &AxisSet| self.gathered_over(*set, &of);
            sets.iter().flat_map(of_set).collect::<Vec<Way>>()
        });
        ways.collect()
    }

    /// Ways in which the uses with these indices are gathered over a set of axes. A weight whose
    /// layout is open may be stored whole, so that nothing is gathered: in a second way such
    /// weights are stored split.
    fn gathered_over(&self, set: AxisSet, of: &[usize]) -> Vec<Way> {
        let so: AllowedUse = Box::new(move |u, read| u.is_gathered(set, read));
        let gathered = self.forced(of, so, in_any_way());
        let uses = of.iter().map(|i| &self.uses[*i]);
        let open: Vec<ValueId> = uses.filter(|u| u.is_open).map(|u| u.weight).collect();
        let split = (!open.is_empty()).then(|| {
            gathered.clone().stored(move |value, layout: Layout| {
                !open.contains(&value) || set.is_subset(layout.split_axes())
            })
        });
        std::iter::once(gathered).chain(split).map(|forced| self.way(forced)).collect()
    }

    /// Ways with all uses data-parallel over one axis. An axis over which a weight is stored
    /// gathers the weight, which is another strategy.
    fn data_parallel(&self) -> Vec<Way> {
        let stored = self.uses.iter().fold(AxisSet::EMPTY, |all, u| all.union(u.stored));
        let free = self.program.mesh.all_axes().difference(stored);
        let single = self.axes.iter().copied().filter(|s| s.len() == 1 && s.is_subset(free));
        let over = |axis: AxisSet| {
            let so: AllowedUse = Box::new(move |u, read| u.is_data_parallel(axis, read));
            self.way(self.forced(&self.all(), so, in_any_way()))
        };
        single.map(over).collect()
    }

    /// Ways with the experts split of all uses that have experts, or of one of the largest: one
    /// weight with split experts is enough.
    fn expert_parallel(&self, chosen: &Plan) -> Vec<Way> {
        let heads: Vec<DimId> = attentions(chosen).into_iter().flat_map(|a| a.heads).collect();
        let has_experts = |i: &usize| !self.uses[*i].experts(&heads).is_empty();
        let experts: Vec<usize> = self.largest.iter().copied().filter(has_experts).collect();
        let so = || -> AllowedUse {
            let heads = heads.clone();
            Box::new(move |u, read| u.is_expert_parallel(&heads, read))
        };
        let one = experts.iter().take(MOST_ALONE);
        let one = one.map(|use_| self.forced(&[*use_], so(), in_any_way()));
        let together = (!experts.is_empty()).then(|| self.forced(&experts, so(), in_any_way()));
        together.into_iter().chain(one).map(|forced| self.way(forced)).collect()
    }
}

/// No restriction on a use.
fn in_any_way() -> AllowedUse {
    Box::new(|_, _| true)
}

/// At most so many uses are restricted one by one, the largest.
const MOST_ALONE: usize = 6;

/// At most so many sets of uses that read most of the bytes of weights are restricted.
const MOST_SETS: usize = 6;

/// Minimal sets of uses, by index, that read more than half of the bytes of weights: without any
/// one of its uses a set reads no more than half. At most [`MOST_SETS`], those with the largest
/// weights first; the set of all uses is left out.
fn most_bytes(uses: &[WeightUse], largest: &[usize]) -> Vec<Vec<usize>> {
    let total = uses.iter().map(|u| u.bytes).fold(0, u128::saturating_add);
    let mut found = Vec::new();
    // The chosen uses, their bytes, and how many of the uses were decided on.
    let mut open: Vec<(Vec<usize>, u128, usize)> = vec![(Vec::new(), 0, 0)];
    while let Some((chosen, held, next)) = open.pop() {
        if held > total / 2 {
            if chosen.len() < uses.len() {
                found.push(chosen);
            }
            if found.len() == MOST_SETS {
                break;
            }
            continue;
        }
        let rest = largest[next..].iter().map(|i| uses[*i].bytes);
        if held.saturating_add(rest.fold(0, u128::saturating_add)) <= total / 2 {
            continue;
        }
        let Some(use_) = largest.get(next) else { continue };
        open.push((chosen.clone(), held, next + 1));
        let with = [chosen, vec![*use_]].concat();
        open.push((with, held.saturating_add(uses[*use_].bytes), next + 1));
    }
    found
}
