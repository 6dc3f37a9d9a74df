//! Independent choices (`spec/certificate.md`, *Forms bounded together*): clusters of classes such
//! that a form takes one alternative of each cluster, whatever it takes of the others.

use std::collections::{BTreeMap, BTreeSet};

use super::equal::{Class, ENode, Equal, Head};
use super::flops_of;
use super::neighbours::neighbours;
use super::read::{Choice, nodes_to_take, roots};
use shard_ir::{DimId, Groups, Op};

/// The choices that may change the same classes, taken together.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// The classes that may differ with what is chosen: in how they are computed, in who reads
    /// them, or in the kernel that they are in.
    pub(crate) classes: BTreeSet<Class>,
    /// The ways to choose nodes for these classes, those of fewest flops first.
    pub(super) alternatives: Vec<Choice>,
}

/// All clusters of a program.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    /// The classes that every form has, and can have in one way only.
    pub(super) fixed: Choice,
    pub(super) all: Vec<Cluster>,
}

/// The most alternatives of a cluster; beyond it forms are not bounded together.
pub(super) const MOST_ALTERNATIVES: usize = 64;

/// The clusters of a program; `None` where one has too many alternatives.
pub(super) fn clusters(equal: &Equal<'_>) -> Option<Clusters> {
    let nodes = nodes_to_take(equal);
    let roots = roots(equal);
    let reachable = reachable(&nodes, &roots);
    let nodes: Nodes<'_> =
        nodes.into_iter().filter(|(class, _)| reachable.contains(class)).collect();
    let needed = needed(&nodes, &roots);
    let only = |class: &Class| match nodes.get(class).map(Vec::as_slice) {
        Some([only]) => Some((*class, (*only).clone())),
        _ => None,
    };
    let fixed: Choice = needed.iter().filter_map(only).collect();
    let mut all = Vec::new();
    for classes in touched(equal, &nodes, &needed) {
        let choices =
            classes.iter().copied().filter(|c| needed.contains(c) && nodes[c].len() > 1).collect();
        let mut found = Vec::new();
        choose(&nodes, &needed, choices, Choice::new(), &mut found)?;
        found.retain(|choice| !needs_itself(&classes, choice, &fixed));
        found.sort_by_cached_key(|choice| {
            choice.values().map(|node| flops(equal, node)).fold(0, u128::saturating_add)
        });
        all.push(Cluster { classes, alternatives: found });
    }
    Some(Clusters { fixed, all })
}

/// The nodes that can be taken for each class.
pub(super) type Nodes<'e> = BTreeMap<Class, Vec<&'e ENode>>;

fn flops(equal: &Equal<'_>, node: &ENode) -> u128 {
    let (Some(Op::Einsum), Some(made)) = (equal.op(node), equal.made(node)) else { return 0 };
    let operands: Vec<&[DimId]> =
        node.operands.iter().map(|o| equal.ty(*o).dims.as_slice()).collect();
    flops_of(equal.program, &operands, &made.ty.dims)
}

fn reachable(nodes: &Nodes<'_>, roots: &[Class]) -> BTreeSet<Class> {
    let (mut all, mut open) = (BTreeSet::new(), roots.to_vec());
    while let Some(class) = open.pop() {
        if all.insert(class) {
            open.extend(nodes.get(&class).into_iter().flatten().flat_map(|node| &node.operands));
        }
    }
    all
}

/// The classes that every form has.
fn needed(nodes: &Nodes<'_>, roots: &[Class]) -> BTreeSet<Class> {
    let mut needed = BTreeSet::new();
    let mut open = roots.to_vec();
    let mut others = nodes.keys().copied();
    loop {
        // The operands of the only node of a needed class are needed.
        while let Some(class) = open.pop() {
            if needed.insert(class)
                && let Some([only]) = nodes.get(&class).map(Vec::as_slice)
            {
                open.extend(&only.operands);
            }
        }
        let Some(class) = others.next() else { return needed };
        if !needed.contains(&class) && !can_do_without(nodes, roots, class) {
            open.push(class);
        }
    }
}

/// Whether all roots can be computed without a class.
fn can_do_without(nodes: &Nodes<'_>, roots: &[Class], without: Class) -> bool {
    // For each node the number of operands that are not computed yet; for each class the nodes that
    // read it.
    let mut missing: Vec<(Class, usize)> = Vec::new();
    let mut readers: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
    let (mut had, mut open) = (BTreeSet::new(), Vec::new());
    for (class, nodes) in nodes.iter().filter(|(class, _)| **class != without) {
        for node in nodes {
            let operands: BTreeSet<Class> = node.operands.iter().copied().collect();
            operands
                .iter()
                .for_each(|operand| readers.entry(*operand).or_default().push(missing.len()));
            missing.push((*class, operands.len()));
            if operands.is_empty() {
                open.push(*class);
            }
        }
    }
    while let Some(class) = open.pop() {
        if !had.insert(class) {
            continue;
        }
        for node in readers.get(&class).into_iter().flatten() {
            missing[*node].1 -= 1;
            if missing[*node].1 == 0 {
                open.push(missing[*node].0);
            }
        }
    }
    roots.iter().all(|root| had.contains(root))
}

/// The classes that choices may change, in groups: two choices that may change one class are in
/// one.
fn touched(equal: &Equal<'_>, nodes: &Nodes<'_>, needed: &BTreeSet<Class>) -> Vec<BTreeSet<Class>> {
    let is_number =
        |class: &Class| nodes[class].iter().any(|node| matches!(node.head, Head::Constant(..)));
    let mut groups = Groups::default();
    let choices = nodes.iter().filter(|(_, nodes)| nodes.len() > 1).map(|(class, _)| *class);
    for choice in choices {
        // A choice decides who reads its operands, and whether operands exist that no form needs.
        let (mut open, mut seen) = (vec![choice], BTreeSet::from([choice]));
        groups.name(choice);
        while let Some(class) = open.pop() {
            for operand in
                nodes[&class].iter().flat_map(|node| &node.operands).filter(|o| !is_number(o))
            {
                groups.join(choice, *operand);
                if !needed.contains(operand) && seen.insert(*operand) {
                    open.push(*operand);
                }
            }
        }
    }
    // Whether ops run as one kernel depends on who reads the values between them.
    let neighbours = neighbours(equal, nodes);
    let mut open: Vec<Class> = groups.things().collect();
    let mut seen: BTreeSet<Class> = open.iter().copied().collect();
    while let Some(class) = open.pop() {
        for other in neighbours.get(&class).into_iter().flatten() {
            groups.join(class, *other);
            if seen.insert(*other) {
                open.push(*other);
            }
        }
    }
    groups.all()
}

/// Collects every choice of nodes for some classes and for what they need, without the fixed nodes
/// of needed classes. `None` where there are more than [`MOST_ALTERNATIVES`].
fn choose(
    nodes: &Nodes<'_>,
    needed: &BTreeSet<Class>,
    mut open: Vec<Class>,
    mut chosen: Choice,
    found: &mut Vec<Choice>,
) -> Option<()> {
    while let Some(class) = open.pop() {
        if chosen.contains_key(&class) {
            continue;
        }
        match nodes.get(&class).map_or(&[][..], Vec::as_slice) {
            [_] if needed.contains(&class) => {}
            [only] => {
                chosen.insert(class, (*only).clone());
                open.extend(&only.operands);
            }
            several => {
                for node in several {
                    let mut chosen = chosen.clone();
                    chosen.insert(class, (*node).clone());
                    choose(nodes, needed, [&open[..], &node.operands].concat(), chosen, found)?;
                }
                return Some(());
            }
        }
    }
    found.push(chosen);
    (found.len() <= MOST_ALTERNATIVES).then_some(())
}

/// Whether classes of a cluster would need each other in a circle.
fn needs_itself(classes: &BTreeSet<Class>, choice: &Choice, fixed: &Choice) -> bool {
    let node = |class: &Class| choice.get(class).or_else(|| fixed.get(class));
    // Classes that need none of those left are removed, until none is left, or all that are left
    // need one of them.
    let mut left: BTreeSet<Class> =
        classes.iter().copied().filter(|class| node(class).is_some()).collect();
    loop {
        let is_bound = |class: &Class| {
            node(class).is_some_and(|node| node.operands.iter().any(|o| left.contains(o)))
        };
        let bound: BTreeSet<Class> = left.iter().copied().filter(is_bound).collect();
        if bound.len() == left.len() {
            return !left.is_empty();
        }
        left = bound;
    }
}
