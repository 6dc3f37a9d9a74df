//! Programs with more forms than can be looked at one by one, whose clusters of choices are
//! independent of each other.
//!
//! One form is solved, that is, priced. At its prices each alternative of each cluster is bounded
//! ([`Apart`]). Where an alternative is cheaper than the one in the form, it takes its place, and
//! the new form is solved, until no alternative is cheaper. The bounds of the alternatives then
//! bound every form, and few forms are left that may be as good as the best plan of the last one.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use shard_ir::Program;

use crate::LowerError;
use crate::kernel::Kernels;
use crate::logical::{Choices, Form};
use crate::relax::apart::{Apart, Classed};
use crate::relax::graph::FAR;
use crate::relax::serving::add;
use crate::relax::{Branch, Setting};

/// What is known of all forms at once.
pub(crate) struct Narrowed {
    /// The alternative of each cluster in the solved form that gave the best bound.
    pub(crate) picks: Vec<usize>,
    /// No plan of any form takes less, in picoseconds.
    pub(crate) bound: u64,
    /// For each cluster and alternative, by how much it lifts the bound above that of the cheapest
    /// alternative, in picoseconds, rounded down; `None` where it has no plan.
    beyond: Vec<Vec<Option<u64>>>,
}

/// How many forms are solved at most.
const MOST_SOLVED: usize = 12;

/// Bounds all forms. `kernels_of` gives the kernels of a form and `kernels_of_part` those of a part
/// of one; `solve` prices a form. `None` where no form could be solved, or where an alternative
/// cannot be bounded at the prices of the solved form.
pub(crate) fn narrowed(
    choices: &Choices<'_>,
    ground: Setting<'_>,
    kernels_of: &dyn Fn(Form) -> Kernels,
    kernels_of_part: &dyn Fn(Program) -> Kernels,
    solve: &dyn Fn(&Kernels) -> Result<Option<Branch>, LowerError>,
) -> Result<Option<Narrowed>, LowerError> {
    let mut picks = vec![0; choices.clusters.len()];
    let mut best: Option<Narrowed> = None;
    let mut seen = BTreeSet::new();
    while seen.len() < MOST_SOLVED && seen.insert(picks.clone()) {
        let Some((form, classes)) = choices.form(&picks) else { break };
        let kernels = kernels_of(form);
        let Some(branch) = solve(&kernels)? else { break };
        let Some(mut apart) = Apart::new(Classed::new(&kernels, &classes), &branch, ground) else {
            break;
        };
        let Some(known) = at_prices(choices, &picks, &mut apart, kernels_of_part)? else { break };
        let least: Vec<i64> =
            known.iter().map(|known| known.iter().copied().min().unwrap_or(FAR)).collect();
        let Some(bound) = apart.picoseconds(least.iter().copied().fold(apart.bound(), add)) else {
            break;
        };
        // Where no alternative is cheaper the picks stay, which ends the loop.
        let cheapest = |((known, least), pick): ((&Vec<i64>, &i64), &usize)| {
            if known[*pick] == *least {
                *pick
            } else {
                known.iter().position(|k| k == least).unwrap_or(*pick)
            }
        };
        let better = known.iter().zip(&least).zip(&picks).map(cheapest).collect();
        if best.as_ref().is_none_or(|best| best.bound < bound) {
            let beyond = |(known, least): (&Vec<i64>, &i64)| {
                known
                    .iter()
                    .map(|k| (*k < FAR).then(|| apart.whole_picoseconds(k - least)))
                    .collect()
            };
            let beyond = known.iter().zip(&least).map(beyond).collect();
            best = Some(Narrowed { picks: picks.clone(), bound, beyond });
        }
        picks = better;
    }
    Ok(best)
}

/// For each cluster and alternative, by how much it lifts the bound of the solved form, in ticks.
fn at_prices(
    choices: &Choices<'_>,
    picks: &[usize],
    apart: &mut Apart<'_, '_>,
    kernels_of_part: &dyn Fn(Program) -> Kernels,
) -> Result<Option<Vec<Vec<i64>>>, LowerError> {
    let mut all = Vec::new();
    for (at, cluster) in choices.clusters.iter().enumerate() {
        let own = apart.own(&cluster.classes);
        let mut known = Vec::new();
        for alternative in 0..cluster.alternatives() {
            if alternative == picks[at] {
                known.push(0);
                continue;
            }
            let mut other = picks.to_vec();
            other[at] = alternative;
            // An alternative in which classes need each other is in no form.
            let Some(part) = choices.part(&other, at) else {
                known.push(FAR);
                continue;
            };
            let kernels = kernels_of_part(part.program);
            let part = Classed::new(&kernels, &part.classes).with_outputs(&part.outputs);
            let Some(least) = apart.least(&cluster.classes, &part)? else { return Ok(None) };
            known.push(if least >= FAR { FAR } else { least - own });
        }
        all.push(known);
    }
    Ok(Some(all))
}

impl Narrowed {
    /// The forms that may have a plan of at most `most` picoseconds, `limit` of them at most, each
    /// as its alternatives and a bound; and a bound on the forms that are left out, if any are.
    pub(crate) fn forms(&self, most: u64, limit: usize) -> (Vec<(Vec<usize>, u64)>, Option<u64>) {
        let mut found = Vec::new();
        let mut left_out: Option<u64> = None;
        let mut open = BinaryHeap::from([Reverse((self.bound, Vec::new()))]);
        while let Some(Reverse((bound, picks))) = open.pop() {
            if bound > most || found.len() == limit {
                left_out = Some(bound);
                break;
            }
            let Some(beyond) = self.beyond.get(picks.len()) else {
                found.push((picks, bound));
                continue;
            };
            for (alternative, beyond) in beyond.iter().enumerate() {
                if let Some(beyond) = beyond {
                    let picks = picks.iter().copied().chain([alternative]).collect();
                    open.push(Reverse((bound.saturating_add(*beyond), picks)));
                }
            }
        }
        (found, left_out)
    }
}
