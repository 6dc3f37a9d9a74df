//! Independent choices (`spec/certificate.md`, *Forms bounded together*): clusters of classes such
//! that a form takes one alternative of each cluster, whatever it takes of the others.

use std::collections::{BTreeMap, BTreeSet};

use super::equal::{Class, ENode, Equal, Head};
use super::flops_of;
use super::read::{Choice, nodes_to_take, roots};
use shard_ir::attention::softmax_over;
use shard_ir::{DimId, Groups, Op};

use crate::carried::after;

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
type Nodes<'e> = BTreeMap<Class, Vec<&'e ENode>>;

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
    let beside = beside_in_a_kernel(equal, nodes);
    let mut open: Vec<Class> = groups.things().collect();
    let mut seen: BTreeSet<Class> = open.iter().copied().collect();
    while let Some(class) = open.pop() {
        for other in beside.get(&class).into_iter().flatten() {
            groups.join(class, *other);
            if seen.insert(*other) {
                open.push(*other);
            }
        }
    }
    groups.all()
}

/// For each class its possible neighbours in a kernel: of an elementwise op, the one op that makes
/// all of its operands that ops make, and the pins between.
fn beside_in_a_kernel(equal: &Equal<'_>, nodes: &Nodes<'_>) -> BTreeMap<Class, BTreeSet<Class>> {
    let mut beside: BTreeMap<Class, BTreeSet<Class>> = BTreeMap::new();
    for (class, node) in
        nodes.iter().flat_map(|(class, nodes)| nodes.iter().map(move |node| (*class, *node)))
    {
        if !equal.op(node).is_some_and(Op::is_elementwise) {
            continue;
        }
        let ways: Vec<Vec<Class>> =
            node.operands.iter().map(|operand| to_the_maker(nodes, *operand)).collect();
        let is_made = |way: &&Vec<Class>| {
            way.last().is_some_and(|maker| {
                nodes[maker].iter().any(|node| matches!(node.head, Head::Op(_)))
            })
        };
        let made: Vec<&Vec<Class>> = ways.iter().filter(is_made).collect();
        if made.windows(2).any(|two| two[0].last() != two[1].last()) {
            continue;
        }
        for way in made {
            let chain: Vec<Class> = std::iter::once(class).chain(way.iter().copied()).collect();
            for pair in chain.windows(2) {
                beside.entry(pair[0]).or_default().insert(pair[1]);
                beside.entry(pair[1]).or_default().insert(pair[0]);
            }
        }
    }
    beside_in_an_attention(equal, nodes, &mut beside);
    beside
}

/// Adds the neighbours in an attention as one kernel: from a softmax down to the products of its
/// scores, and up to the product that reads it, cast or not.
fn beside_in_an_attention(
    equal: &Equal<'_>,
    nodes: &Nodes<'_>,
    beside: &mut BTreeMap<Class, BTreeSet<Class>>,
) {
    let has = |class: Class, is: &dyn Fn(&Op) -> bool| {
        nodes[&class].iter().any(|node| equal.op(node).is_some_and(is))
    };
    let mut link = |class: Class, way: &[Class]| {
        let chain: Vec<Class> = [&[class], way].concat();
        for pair in chain.windows(2) {
            beside.entry(pair[0]).or_default().insert(pair[1]);
            beside.entry(pair[1]).or_default().insert(pair[0]);
        }
    };
    let is_softmax = |op: &Op| softmax_over(op).is_some();
    let is_inner = |op: &Op| op.is_elementwise() || matches!(op, Op::Mask { .. }) || is_softmax(op);
    let mut open: Vec<Class> =
        nodes.keys().copied().filter(|class| has(*class, &is_softmax)).collect();
    let mut seen: BTreeSet<Class> = open.iter().copied().collect();
    // The operands of the products of attentions, each with the product.
    let mut read: Vec<(Class, Class)> = Vec::new();
    while let Some(class) = open.pop() {
        let products = nodes[&class].iter().filter(|node| equal.op(node) == Some(&Op::Einsum));
        read.extend(products.flat_map(|node| &node.operands).map(|operand| (class, *operand)));
        if !has(class, &is_inner) {
            continue;
        }
        for operand in nodes[&class].iter().flat_map(|node| &node.operands) {
            let is_number =
                nodes[operand].iter().any(|node| matches!(node.head, Head::Constant(..)));
            if is_number || equal.ty(*operand).dims.len() != equal.ty(class).dims.len() {
                continue;
            }
            let way = to_the_maker(nodes, *operand);
            link(class, &way);
            open.extend(way.last().filter(|maker| seen.insert(**maker)));
        }
    }
    for (class, node) in
        nodes.iter().flat_map(|(class, nodes)| nodes.iter().map(move |node| (*class, *node)))
    {
        for operand in node.operands.iter().filter(|_| equal.op(node) == Some(&Op::Einsum)) {
            let way = to_the_maker(nodes, *operand);
            let is_read = |op: &Op| is_softmax(op) || matches!(op, Op::Cast(_));
            if way.last().is_some_and(|maker| has(*maker, &is_read)) {
                link(class, &way);
                read.extend(node.operands.iter().map(|operand| (class, *operand)));
            }
        }
    }
    // Concats of keys or values may be members of the attention.
    let mut seen: BTreeSet<(Class, Class)> = BTreeSet::new();
    while let Some((class, operand)) = read.pop() {
        let way = to_the_maker(nodes, operand);
        let is_concat = |op: &Op| matches!(op, Op::Concat { .. });
        let Some(maker) = way.last().filter(|maker| has(**maker, &is_concat)) else { continue };
        if seen.insert((class, operand)) {
            link(class, &way);
            let joined = nodes[maker].iter().flat_map(|node| &node.operands);
            read.extend(joined.map(|operand| (*maker, *operand)));
        }
    }
    beside_a_part(equal, nodes, beside);
}

/// Adds the neighbours among ops on `partialsoftmax` values: whether such an op may act depends on
/// whether the attention is one kernel.
fn beside_a_part(
    equal: &Equal<'_>,
    nodes: &Nodes<'_>,
    beside: &mut BTreeMap<Class, BTreeSet<Class>>,
) {
    let ops = || nodes.iter().flat_map(|(class, all)| all.iter().map(move |node| (*class, *node)));
    // Classes that may be `partialsoftmax`, each with dims that its statistics may have.
    let mut open: Vec<(Class, Vec<DimId>)> = Vec::new();
    for (class, node) in ops().filter(|(_, node)| equal.op(node) == Some(&Op::Einsum)) {
        for operand in &node.operands {
            let makers = to_the_maker(nodes, *operand);
            let Some(maker) = makers.last() else { continue };
            let is_read = |op: &Op| softmax_over(op).is_some() || matches!(op, Op::Cast(_));
            if nodes[maker].iter().any(|node| equal.op(node).is_some_and(is_read)) {
                let dims = equal.ty(*maker).dims.iter().copied();
                open.push((class, dims.filter(|d| equal.ty(class).dims.contains(d)).collect()));
            }
        }
    }
    let mut readers: BTreeMap<Class, Vec<(Class, &ENode, usize)>> = BTreeMap::new();
    for (class, node) in ops() {
        for (place, operand) in node.operands.iter().enumerate() {
            readers.entry(*operand).or_default().push((class, node, place));
        }
    }
    let mut seen: BTreeSet<(Class, Vec<DimId>)> = open.iter().cloned().collect();
    while let Some((class, by)) = open.pop() {
        for (reader, node, place) in readers.get(&class).into_iter().flatten() {
            let Some(site) = equal.site(node, *reader) else { continue };
            let Some(mut left) = after(&site, *place, &by) else { continue };
            beside.entry(class).or_default().insert(*reader);
            beside.entry(*reader).or_default().insert(class);
            left.sort_unstable();
            if seen.insert((*reader, left.clone())) {
                open.push((*reader, left));
            }
        }
    }
}

/// A class, then the classes behind it along pins, and last the one that is not pinned.
fn to_the_maker(nodes: &Nodes<'_>, class: Class) -> Vec<Class> {
    let mut way = vec![class];
    while let Some([ENode { head: Head::Pin(_), operands }]) =
        way.last().map(|class| nodes[class].as_slice())
    {
        way.extend(operands);
    }
    way
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
