//! Strategies as restrictions on how ops may be done: which layouts a use of a weight may read, and
//! how the scores of an attention may lie. What `shard_report::strategy` recognises in a plan,
//! asked of a program.

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
    /// Which operand.
    place: usize,
    /// The axes that split it where it is stored, as far as its type says.
    stored: AxisSet,
    /// For each operand, its dims; none for another weight that has scales, or is these.
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
                place,
                stored: pattern.dims.iter().fold(AxisSet::EMPTY, |s, d| s.union(d.axes.set())),
                dims: operands
                    .iter()
                    .enumerate()
                    .map(|(at, o)| {
                        // Scales say nothing of a weight's dims, nor the weight of theirs.
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
    /// The weight is whole over some axes, split over all others that it is stored over, and each
    /// of these axes splits a dim of the other operand that the weight lacks.
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

    /// Some axes split the tokens, and the weight is whole over them.
    fn is_data_parallel(&self, axes: AxisSet, read: &[Layout]) -> bool {
        let weight = read[self.place];
        axes.is_subset(self.tokens(read))
            && weight.split_axes().union(weight.partial_axes()).intersection(axes).is_empty()
    }

    /// The dims of the weight that stand for experts: the other operand and the result have them
    /// too.
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

    /// A weight with experts has them split.
    fn is_expert_parallel(&self, heads: &[DimId], read: &[Layout]) -> bool {
        let experts = self.experts(heads);
        experts.is_empty() || experts.iter().any(|dim| !read[self.place].axes_of(*dim).is_empty())
    }

    /// The weight is split over every axis that it is stored over, on one side of the product or on
    /// both.
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

/// The ways of having a strategy; none where the program has nothing that it is about.
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

/// The scores of every attention lie with one of those dims split.
fn attention_ways(
    program: &Program,
    chosen: &Plan,
    dims: impl Fn(&Attention) -> Vec<DimId>,
) -> Vec<Way> {
    let mut scores: Vec<(ValueId, Vec<usize>)> = Vec::new();
    for attention in attentions(chosen) {
        let instr = chosen.instruction(attention.scores);
        // The same einsum in the program, as it is written.
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
    let Some(uses) = weight_uses(program).filter(|uses| !uses.is_empty()) else {
        return Vec::new();
    };
    let axes: Vec<AxisSet> = program.mesh.all_axes().nonempty_subsets().collect();
    let forced = |allowed: AllowedUse| {
        let uses = uses.clone();
        Forced::ops(move |value, _, read| {
            uses.iter().filter(|u| u.einsum == value).all(|u| allowed(u, read))
        })
    };
    let as_way = |forced| Way { program: program.clone(), value: None, forced: Some(forced) };
    let way = |allowed: AllowedUse| as_way(forced(allowed));
    let gathered = |least: usize, most: usize| -> Vec<Way> {
        let sets = axes.iter().copied().filter(|s| (least..=most).contains(&s.len()));
        let gathered = |set: AxisSet| forced(Box::new(move |u, read| u.is_gathered(set, read)));
        // What is left open may be stored whole, and then nothing is gathered: it is asked for split
        // as well.
        let split = |set: AxisSet| {
            let uses = uses.clone();
            gathered(set).stored(move |value, layout: Layout| {
                let mut open = uses.iter().filter(|u| u.weight == value && u.is_open);
                open.all(|_| set.is_subset(layout.split_axes()))
            })
        };
        let has_open = uses.iter().any(|u| u.is_open);
        sets.flat_map(|set| {
            let split = has_open.then(|| split(set));
            std::iter::once(gathered(set)).chain(split).map(as_way).collect::<Vec<_>>()
        })
        .collect()
    };
    match wanted {
        Strategy::XWeightGathered => gathered(1, 1),
        Strategy::XyWeightGathered => gathered(2, 2),
        Strategy::XyzWeightGathered => gathered(3, 3),
        Strategy::Fsdp => gathered(1, 3),
        Strategy::OneDWeightStationary => vec![way(Box::new(|u, read| u.is_stationary(1, read)))],
        Strategy::TwoDWeightStationary => vec![way(Box::new(|u, read| u.is_stationary(2, read)))],
        Strategy::DataParallel => {
            // An axis that a weight is stored over gathers it, and that has another name.
            let stored = uses.iter().fold(AxisSet::EMPTY, |all, u| all.union(u.stored));
            let single = axes.iter().copied().filter(|s| {
                s.len() == 1 && s.is_subset(program.mesh.all_axes().difference(stored))
            });
            single
                .map(|axis| way(Box::new(move |u, read| u.is_data_parallel(axis, read))))
                .collect()
        }
        Strategy::ExpertParallel => {
            let heads: Vec<DimId> = attentions(chosen).into_iter().flat_map(|a| a.heads).collect();
            if uses.iter().all(|u| u.experts(&heads).is_empty()) {
                return Vec::new();
            }
            vec![way(Box::new(move |u, read| u.is_expert_parallel(&heads, read)))]
        }
        Strategy::HeadShardedAttention
        | Strategy::BatchShardedAttention
        | Strategy::SequenceShardedAttention
        | Strategy::Unnamed => Vec::new(),
    }
}
