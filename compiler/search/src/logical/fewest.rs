//! The fewest flops of each class, with all that it is made of.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;
use shard_ir::never;

use super::graph::{Logical, LogicalNode};

/// For each class the fewest flops of it and of all it is made of.
pub(super) struct FewestFlops {
    /// For each class, the flops that each of its readers is charged.
    shares: BTreeMap<Id, u128>,
}

impl FewestFlops {
    /// A lower bound for every form. A class that several read is computed once, so that each class
    /// that may read it is charged an equal share.
    pub(super) fn at_least(
        logical: &Logical<'_>,
        options: &BTreeMap<Id, Vec<&LogicalNode>>,
        roots: &[Id],
    ) -> FewestFlops {
        let mut readers: BTreeMap<Id, u128> = BTreeMap::new();
        for nodes in options.values() {
            let read: BTreeSet<Id> = nodes.iter().flat_map(|node| node.operands.clone()).collect();
            read.into_iter().for_each(|class| *readers.entry(class).or_default() += 1);
        }
        for root in roots.iter().collect::<BTreeSet<_>>() {
            *readers.entry(*root).or_default() += 1;
        }
        FewestFlops::new(logical, options, |class| readers.get(&class).copied().unwrap_or(1))
    }

    /// The flops where each reader of a class computes it for itself.
    pub(super) fn computed_anew(
        logical: &Logical<'_>,
        options: &BTreeMap<Id, Vec<&LogicalNode>>,
    ) -> FewestFlops {
        FewestFlops::new(logical, options, |_| 1)
    }

    fn new(
        logical: &Logical<'_>,
        options: &BTreeMap<Id, Vec<&LogicalNode>>,
        readers: impl Fn(Id) -> u128,
    ) -> FewestFlops {
        let mut fewest = FewestFlops { shares: BTreeMap::new() };
        // Each round gives a lower bound, and the number of classes is enough rounds.
        for _ in options {
            let mut any = false;
            for (class, nodes) in options {
                let flops = nodes.iter().map(|node| fewest.of(logical, node)).min();
                let flops = flops.unwrap_or_else(|| never!("a class without an e-node", 0));
                let share = flops / readers(*class);
                any |= fewest.shares.insert(*class, share).unwrap_or(0) != share;
            }
            if !any {
                break;
            }
        }
        fewest
    }

    /// The fewest flops of an e-node and of all that it is made of.
    pub(super) fn of(&self, logical: &Logical<'_>, node: &LogicalNode) -> u128 {
        let operands: BTreeSet<&Id> = node.operands.iter().collect();
        operands.into_iter().fold(logical.flops_of(node), |flops, operand| {
            flops.saturating_add(self.share(*operand))
        })
    }

    /// The fewest flops of a form with these roots.
    pub(super) fn of_all(&self, roots: &[Id]) -> u128 {
        let roots: BTreeSet<&Id> = roots.iter().collect();
        roots.into_iter().fold(0, |flops, root| flops.saturating_add(self.share(*root)))
    }

    fn share(&self, class: Id) -> u128 {
        self.shares.get(&class).copied().unwrap_or(0)
    }
}
