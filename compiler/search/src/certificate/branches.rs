//! The tree of branches of a form (`spec/certificate.md`, *Branches*), each with prices that show
//! the time of the plan.

use shard_certificate::{
    Branch as Entry, Branches, CertificateError, PriceSet, Space, Unshown, Within,
};

use super::certify::scale_of;
use super::prices::price_set;
use crate::relax::Branch;
use crate::relax::split::{Goal, Split};
use crate::stop::Stop;

/// The most branches of a tree, prices in the file, and strategies of all branches. If there are
/// more, the certificate has no branches.
const MOST_BRANCHES: usize = 4_000;
const MOST_PRICES: usize = 700_000;
const MOST_STRATEGIES: usize = 40_000_000;

/// A branch that is still to be shown.
struct UnshownBranch {
    branch: Branch,
    within: Within,
    /// The number of the prices of the branch that was divided.
    prices_of_parent: Option<usize>,
    fresh: bool,
}

/// The branches of form number `form`, whose prices show the goal; or the reason why there are
/// none.
pub(super) fn branches(
    form: usize,
    root: Branch,
    space: &mut Space<'_>,
    goal: Goal,
    stop: &Stop,
) -> Result<Result<Branches, Unshown>, CertificateError> {
    let mut found = Branches { form: form as u32, prices: Vec::new(), tree: Vec::new() };
    let (mut price_count, mut strategy_count) = (0, 0);
    let mut open = vec![UnshownBranch {
        branch: root,
        within: Within::default(),
        prices_of_parent: None,
        fresh: true,
    }];
    while let Some(UnshownBranch { mut branch, within, prices_of_parent, fresh }) = open.pop() {
        if stop.is_time_up() {
            return Ok(Err(Unshown::Time));
        }
        strategy_count += branch.strategies();
        if found.tree.len() + open.len() > MOST_BRANCHES
            || price_count > MOST_PRICES
            || strategy_count > MOST_STRATEGIES
        {
            return Ok(Err(Unshown::Branches));
        }
        // The prices of a branch often do for a part of it.
        if let Some(number) = prices_of_parent
            && bound_within(space, &found.prices[number], &within)? >= goal.target
        {
            found.tree.push(Entry::Leaf { prices: number as u32 });
            continue;
        }
        branch.sweep(goal, fresh);
        let (problem, prices) = branch.problem_and_prices();
        let scale = scale_of(problem);
        let set = PriceSet { scale, ..price_set(space, problem, prices, false) };
        let is_shown = bound_within(space, &set, &within)? >= goal.target;
        price_count += set
            .readers
            .iter()
            .map(|of| of.paid.len())
            .chain(set.sides.iter().map(|of| of.paid.len()))
            .sum::<usize>();
        found.prices.push(set);
        let number = found.prices.len() - 1;
        if is_shown {
            found.tree.push(Entry::Leaf { prices: number as u32 });
            continue;
        }
        let Some((split, those, others)) = branch.divided(goal.target) else {
            return Ok(Err(Unshown::Searched));
        };
        let (entry, if_so, if_not) = entry_of(split, &within, space);
        found.tree.push(entry);
        open.push(UnshownBranch {
            branch: others,
            within: if_not,
            prices_of_parent: Some(number),
            fresh: false,
        });
        open.push(UnshownBranch {
            branch: those,
            within: if_so,
            prices_of_parent: Some(number),
            fresh: false,
        });
    }
    drop_unused(&mut found);
    Ok(Ok(found))
}

/// The bound that prices show on the plans within some restrictions, in picoseconds.
fn bound_within(
    space: &mut Space<'_>,
    set: &PriceSet,
    within: &Within,
) -> Result<u64, CertificateError> {
    space.narrow(within.clone());
    let bound = space.bound(set)?;
    let shown = space.bound_under(&bound, &[]).unwrap_or(u64::MAX);
    space.narrow(Within::default());
    Ok(shown)
}

/// The entry of the question that divides a branch, and the restrictions of the plans for which the
/// answer is yes, and of the others.
fn entry_of(split: Split, within: &Within, space: &mut Space<'_>) -> (Entry, Within, Within) {
    match split {
        Split::Stored(value, up_to) => {
            let entry = Entry::Stored { stored: value.0, up_to };
            (entry, within.stored(value, up_to, true), within.stored(value, up_to, false))
        }
        Split::Label(label, layout) => {
            let label = label as u16;
            let all = space.layouts_of_label(label);
            let at = all.iter().position(|l| *l == layout).map(|at| at as u32);
            let entry = Entry::Label { label, layouts: at.into_iter().collect() };
            let so = |is_so| within.label(label, &all, &[layout], is_so);
            (entry, so(true), so(false))
        }
    }
}

/// Leaves out prices that no branch uses.
fn drop_unused(branches: &mut Branches) {
    let mut now: Vec<Option<u32>> = vec![None; branches.prices.len()];
    let mut kept = Vec::new();
    for entry in &mut branches.tree {
        let Entry::Leaf { prices } = entry else { continue };
        let number = *now[*prices as usize].get_or_insert_with(|| {
            kept.push(branches.prices[*prices as usize].clone());
            kept.len() as u32 - 1
        });
        *prices = number;
    }
    branches.prices = kept;
}
