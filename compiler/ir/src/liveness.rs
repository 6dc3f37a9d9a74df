//! What one device holds in memory while each instruction of a plan runs.

use crate::attention::rings;
use crate::never;
use crate::plan::{InstrId, InstrKind, Plan};
use crate::program::{FoldId, ParameterKind};

/// The memory of one device along a plan run in program order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// For each instruction the bytes held while it runs: weights and caches, its operands, its
    /// result, every other value that was made before and is read later, and the chunks under way
    /// in loops.
    pub live_bytes: Vec<u64>,
    /// For each instruction the values that it reads for the last time; never weights, caches or
    /// results of the layer.
    pub frees: Vec<Vec<InstrId>>,
}

impl Liveness {
    /// The memory of a plan in program order, where each value has memory of its own. Activations
    /// that are parameters are held from the start. Values that pass within a ring are not in
    /// memory: only a block of them exists at a time.
    pub fn of(plan: &Plan) -> Liveness {
        let mut own: Vec<Option<InstrId>> = plan.ids().map(Some).collect();
        for ring in rings(plan) {
            let passing = ring.members.iter().filter(|id| **id != ring.last());
            passing.for_each(|id| own[id.index()] = None);
        }
        Liveness::beside_homes(plan, &own, &[])
    }

    /// As [`Liveness::of`], where values share memory. `buffer_of` names for each instruction the
    /// one whose buffer holds its value: itself, or an earlier one that has a buffer of its own;
    /// `None` for a value that is never in memory. A buffer is as large as the largest value in it,
    /// and is held until none of them is read again. A value without memory passes between two
    /// members of a kernel, which runs as one: what the members read is held until the last of them
    /// ends. The [homes of states](state_homes) are held throughout, one for each application.
    pub fn in_buffers(plan: &Plan, buffer_of: &[Option<InstrId>]) -> Liveness {
        Liveness::beside_homes(plan, buffer_of, &state_homes(plan, buffer_of))
    }

    fn beside_homes(plan: &Plan, buffer_of: &[Option<InstrId>], homes: &[InstrId]) -> Liveness {
        let count = plan.instructions.len();
        let ranges = plan.fold_ranges();
        let end_of = |fold: FoldId| match ranges[fold.index()] {
            Some((_, last)) => last.index(),
            None => never!("a folded block without an instruction", 0),
        };
        let mut last_use: Vec<usize> = (0..count).collect();
        let ends = ends_of_kernels(plan, buffer_of);
        for id in plan.ids() {
            for operand in &plan.instruction(id).operands {
                let read = match plan.runs_in(id) {
                    // Every application of a folded block reads the values from outside, except the
                    // one that is handed on.
                    Some(fold)
                        if plan.instruction(*operand).fold != Some(fold)
                            && plan.folds[fold.index()].from != *operand =>
                    {
                        end_of(fold)
                    }
                    Some(_) | None => ends[id.index()].index(),
                };
                last_use[operand.index()] = last_use[operand.index()].max(read);
            }
        }
        for (at, fold) in plan.folds.iter().enumerate() {
            let to = &mut last_use[fold.to.index()];
            *to = (*to).max(end_of(FoldId(at as u16)));
        }
        let kept = |id: InstrId| {
            plan.outputs.iter().any(|o| o.id == id)
                || plan.instruction(id).kind.parameter().is_some_and(ParameterKind::is_kept)
        };
        let mut frees = vec![Vec::new(); count];
        for id in plan.ids() {
            if !kept(id) {
                frees[last_use[id.index()]].push(id);
            }
        }
        let until = |id: InstrId| if kept(id) { count } else { last_use[id.index()] };
        let mut live_bytes = live_bytes(plan, buffer_of, homes, until);
        for (fold, range) in plan.folds.iter().zip(&ranges) {
            // A block whose input is still read behind it holds the input beside the value that is
            // handed on, in all but the first application.
            let Some((first, last)) = range.map(|(first, last)| (first.index(), last.index()))
            else {
                continue;
            };
            let in_block = |id: &InstrId| (first..=last).contains(&id.index());
            let read = plan
                .ids()
                .rfind(|id| in_block(id) && plan.instruction(*id).operands.contains(&fold.from));
            let beside = kept(fold.from) || last_use[fold.from.index()] > last;
            if let Some(read) = read.filter(|_| beside && !plan.in_host_memory(fold.from)) {
                for held in &mut live_bytes[first..=read.index()] {
                    *held = held.saturating_add(plan.local_bytes(fold.from));
                }
            }
        }
        Liveness { live_bytes, frees }
    }

    /// The largest number of bytes held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.live_bytes.iter().copied().max().unwrap_or(0)
    }
}

/// The values of folded blocks whose memory holds states: a state stands for a cache after the
/// step, where it is not written into the cache itself.
///
/// Every application leaves a state of its own, and all states exist at the end. So each needs a
/// home, like the cache that the application began with.
pub fn state_homes(plan: &Plan, buffer_of: &[Option<InstrId>]) -> Vec<InstrId> {
    let mut homes: Vec<InstrId> = plan
        .outputs
        .iter()
        .filter(|output| output.state)
        .filter_map(|output| state_home(plan, buffer_of, output.id))
        .filter(|home| !plan.in_host_memory(*home))
        .collect();
    homes.sort_unstable();
    homes.dedup();
    homes
}

fn state_home(plan: &Plan, buffer_of: &[Option<InstrId>], state: InstrId) -> Option<InstrId> {
    let fold_id = plan.runs_in(state)?;
    let fold = plan.folds.get(fold_id.index())?;
    let (mut id, mut is_handed_on) = (state, false);
    while buffer_of[id.index()]? != id {
        // A value that shares memory shares it with its first operand.
        id = *plan.instruction(id).operands.first()?;
        if id == fold.from {
            // A block that hands on what it takes makes no state.
            if is_handed_on {
                return None;
            }
            (id, is_handed_on) = (fold.to, true);
        }
    }
    (plan.runs_in(id) == Some(fold_id)).then_some(id)
}

/// For each instruction the last instruction of the kernel that it runs in; itself where its value
/// is in memory.
fn ends_of_kernels(plan: &Plan, buffer_of: &[Option<InstrId>]) -> Vec<InstrId> {
    let mut ends: Vec<InstrId> = plan.ids().collect();
    for id in plan.ids().rev() {
        for operand in plan
            .instruction(id)
            .operands
            .iter()
            .filter(|operand| buffer_of[operand.index()].is_none())
        {
            ends[operand.index()] = ends[operand.index()].max(ends[id.index()]);
        }
    }
    ends
}

/// For each instruction the bytes held while it runs. A value is held up to the instruction
/// `until`, or to the end where that is behind the last one. Homes are held throughout, once for
/// each application.
fn live_bytes(
    plan: &Plan,
    buffer_of: &[Option<InstrId>],
    homes: &[InstrId],
    until: impl Fn(InstrId) -> usize,
) -> Vec<u64> {
    let count = plan.instructions.len();
    let mut size = vec![0u64; count];
    let mut end = vec![0usize; count];
    for id in plan.ids() {
        let Some(buffer) = buffer_of[id.index()] else { continue };
        if plan.in_host_memory(id) {
            continue;
        }
        size[buffer.index()] =
            size[buffer.index()].max(plan.local_bytes(id).saturating_mul(plan.copies_of(id)));
        end[buffer.index()] = end[buffer.index()].max(until(id));
    }
    // Each value fits in 64 bits; the sum of thousands of them may not.
    let mut change = vec![0i128; count + 1];
    for home in homes {
        size[home.index()] = size[home.index()].saturating_mul(plan.repeat_of(*home));
        end[home.index()] = count;
    }
    for id in plan.ids().filter(|id| buffer_of[id.index()] == Some(*id)) {
        let from_the_start =
            matches!(plan.instruction(id).kind, InstrKind::Parameter(_)) || homes.contains(&id);
        change[if from_the_start { 0 } else { id.index() }] += i128::from(size[id.index()]);
        change[(end[id.index()] + 1).min(count)] -= i128::from(size[id.index()]);
    }
    for held in plan.loops_held() {
        change[held.first.index()] += i128::from(held.bytes);
        change[held.last.index() + 1] -= i128::from(held.bytes);
    }
    let held = change.iter().scan(0i128, |held, change| {
        *held += change;
        // More bytes than 64 bits hold count as the largest number; fewer than 0 would mean that a
        // buffer is freed twice.
        Some(match u64::try_from(*held) {
            Ok(held) => held,
            Err(_) if *held > 0 => u64::MAX,
            Err(_) => never!("more bytes freed than held", 0),
        })
    });
    held.take(count).collect()
}
