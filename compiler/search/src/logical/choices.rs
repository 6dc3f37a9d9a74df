//! The forms of a program with many forms, as clusters of choices that are independent of each
//! other.
//!
//! Each class of several e-nodes is a choice. A choice touches all classes that may differ with
//! what is chosen. Most choices of a large program touch no class in common. So the touched classes
//! fall into *clusters*, and every form takes one alternative of each cluster, whatever it takes of
//! the others.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;
use shard_ir::attention::{carried, softmax_over};
use shard_ir::{DimId, Groups, Op, Program};

use super::Form;
use super::extract::{Selection, is_merged, options, roots};
use super::graph::{Head, Logical, LogicalNode};
use super::writer::{FormReader, Fragment, Surroundings};

/// The choices of a program.
pub(crate) struct Choices<'a> {
    reader: FormReader<'a>,
    /// The source without its values.
    empty: Program,
    /// Whether the source computes something twice. Every form computes it once, so that none of
    /// them is the form written.
    pub(crate) merged: bool,
    /// The classes that every form has and that have one e-node, with it.
    fixed: Selection<'a>,
    /// The clusters, which are independent of each other.
    pub(crate) clusters: Vec<Cluster<'a>>,
}

/// Choices that may touch the same classes.
pub(crate) struct Cluster<'a> {
    /// The classes that may differ with what is chosen: in how they are computed, in who reads
    /// them, or in what kernel they are in.
    pub(crate) classes: BTreeSet<Id>,
    /// These classes and their surroundings.
    wanted: Surroundings,
    /// The alternatives, by flops.
    alternatives: Vec<Selection<'a>>,
    /// The alternative that the source writes, if it is one.
    written: Option<usize>,
}

impl Cluster<'_> {
    /// The number of alternatives.
    pub(crate) fn alternatives(&self) -> usize {
        self.alternatives.len()
    }
}

/// How many alternatives a cluster may have.
const MOST_ALTERNATIVES: usize = 64;

impl<'a> Choices<'a> {
    /// The choices of a saturated program; `None` where it has none, or where a cluster has too
    /// many alternatives.
    pub(super) fn of(logical: &'a Logical<'a>) -> Option<Choices<'a>> {
        let source = logical.program;
        let live = source.live();
        let options = options(logical, &logical.classes());
        if options.values().all(|nodes| nodes.len() == 1) {
            return None;
        }
        let ways = WaysToCompute::new(logical, options, roots(logical, &live));
        let touched = ways.touched();
        let mut clusters = Vec::new();
        let readers = ways.readers();
        for classes in touched.all() {
            let entries: Vec<Id> = classes
                .iter()
                .copied()
                .filter(|c| ways.is_choice(*c) && ways.is_needed(*c))
                .collect();
            let mut alternatives = Vec::new();
            if !ways.choose(entries, BTreeMap::new(), &mut alternatives) || alternatives.is_empty()
            {
                return None;
            }
            let flops = |choice: &Selection<'_>| {
                choice.values().map(|node| logical.flops_of(node)).sum::<u128>()
            };
            alternatives.sort_by_cached_key(flops);
            let as_written =
                |choice: &Selection<'_>| choice.values().all(|node| node.rule.is_none());
            let written = alternatives.iter().position(as_written);
            let outside = |class: &Id| !classes.contains(class);
            let read_by = classes.iter().filter_map(|class| readers.get(class)).flatten();
            let nodes = classes.iter().flat_map(|class| ways.options(*class));
            let makers = nodes
                .flat_map(|node| &node.operands)
                .flat_map(|operand| ways.way_to_maker(*operand));
            let wanted = Surroundings {
                readers: read_by.copied().filter(outside).collect(),
                makers: makers.filter(outside).collect(),
                of: classes.clone(),
            };
            clusters.push(Cluster { classes, wanted, alternatives, written });
        }
        let empty = source.without_values();
        let (fixed, merged) = (ways.fixed(), is_merged(logical, &live));
        Some(Choices { reader: FormReader::new(logical, live), empty, merged, fixed, clusters })
    }

    /// The number of forms.
    pub(crate) fn count(&self) -> usize {
        self.clusters
            .iter()
            .fold(1, |count: usize, cluster| count.saturating_mul(cluster.alternatives.len()))
    }

    /// The form that takes an alternative of each cluster, by number, and the class of each of its
    /// values; `None` where classes need each other.
    pub(crate) fn form(&self, picks: &[usize]) -> Option<(Form, Vec<Id>)> {
        let choice = self.chosen(picks)?;
        self.reader.form_with_classes(&choice, self.merged)
    }

    /// The fragment of such a form that has one cluster; `None` where classes need each other.
    pub(crate) fn part(&self, picks: &[usize], cluster: usize) -> Option<Fragment> {
        self.reader.part(&self.chosen(picks)?, &self.clusters.get(cluster)?.wanted, &self.empty)
    }

    fn chosen(&self, picks: &[usize]) -> Option<Selection<'a>> {
        let mut choice = self.fixed.clone();
        for (cluster, pick) in self.clusters.iter().zip(picks) {
            choice.extend(
                cluster.alternatives.get(*pick)?.iter().map(|(class, node)| (*class, *node)),
            );
        }
        Some(choice)
    }

    /// The alternatives that the source writes; `None` where it writes none of some cluster.
    pub(crate) fn written(&self) -> Option<Vec<usize>> {
        self.clusters.iter().map(|cluster| cluster.written).filter(|_| !self.merged).collect()
    }

    /// The source.
    pub(crate) fn program(&self) -> &Program {
        self.reader.logical.program
    }
}

/// The ways of computing each class.
struct WaysToCompute<'a> {
    logical: &'a Logical<'a>,
    options: BTreeMap<Id, Vec<&'a LogicalNode>>,
    roots: Vec<Id>,
    /// The classes that some form has.
    reachable: Vec<Id>,
    /// The classes that every form has.
    needed: BTreeSet<Id>,
}

impl<'a> WaysToCompute<'a> {
    fn new(
        logical: &'a Logical<'a>,
        options: BTreeMap<Id, Vec<&'a LogicalNode>>,
        roots: Vec<Id>,
    ) -> WaysToCompute<'a> {
        let mut reachable = BTreeSet::new();
        let mut open = roots.clone();
        while let Some(class) = open.pop() {
            if reachable.insert(class) {
                open.extend(
                    options.get(&class).into_iter().flatten().flat_map(|node| &node.operands),
                );
            }
        }
        let mut ways = WaysToCompute {
            logical,
            options,
            roots,
            reachable: reachable.into_iter().collect(),
            needed: BTreeSet::new(),
        };
        ways.needed = ways.all_needed();
        ways
    }

    fn options(&self, class: Id) -> &[&'a LogicalNode] {
        self.options.get(&class).map_or(&[], Vec::as_slice)
    }

    fn is_choice(&self, class: Id) -> bool {
        self.options(class).len() > 1
    }

    fn is_needed(&self, class: Id) -> bool {
        self.needed.contains(&class)
    }

    /// Whether a class is a number, which is on every device and costs nothing, whoever reads it.
    fn is_number(&self, class: Id) -> bool {
        self.options(class).iter().any(|node| matches!(node.head, Head::Constant(..)))
    }

    /// The classes that every form has.
    fn all_needed(&self) -> BTreeSet<Id> {
        let index: BTreeMap<Id, usize> =
            self.reachable.iter().enumerate().map(|(i, class)| (*class, i)).collect();
        let ways: Vec<Vec<Vec<usize>>> = self
            .reachable
            .iter()
            .map(|class| {
                let operands = |node: &&LogicalNode| {
                    node.operands.iter().filter_map(|o| index.get(o).copied()).collect()
                };
                self.options(*class).iter().map(operands).collect()
            })
            .collect();
        let roots: Vec<usize> =
            self.roots.iter().filter_map(|root| index.get(root).copied()).collect();
        // What a needed class reads is needed if the class has one e-node. For each other class it
        // is asked whether the roots can be had without it.
        let mut needed = vec![false; ways.len()];
        let mut open = roots.clone();
        for class in 0..=ways.len() {
            while let Some(class) = open.pop() {
                if !std::mem::replace(&mut needed[class], true)
                    && let [only] = ways[class].as_slice()
                {
                    open.extend(only);
                }
            }
            if class < ways.len() && !needed[class] && !can_do_without(class, &ways, &roots) {
                open.push(class);
            }
        }
        self.reachable
            .iter()
            .zip(needed)
            .filter(|(_, needed)| *needed)
            .map(|(class, _)| *class)
            .collect()
    }

    /// The needed classes that have one e-node, with it.
    fn fixed(&self) -> Selection<'a> {
        let of = |class: &Id| match self.options(*class) {
            [only] => Some((*class, *only)),
            _ => None,
        };
        self.needed.iter().filter_map(of).collect()
    }

    /// Finds every selection of e-nodes for the `open` classes and for what they need, without what
    /// is fixed; `false` where there are too many.
    fn choose(
        &self,
        mut open: Vec<Id>,
        mut chosen: Selection<'a>,
        found: &mut Vec<Selection<'a>>,
    ) -> bool {
        while let Some(class) = open.pop() {
            if chosen.contains_key(&class) {
                continue;
            }
            match self.options(class) {
                [] => return true,
                [_] if self.is_needed(class) => {}
                [only] => {
                    chosen.insert(class, only);
                    open.extend(&only.operands);
                }
                several => {
                    return several.iter().all(|node| {
                        let mut chosen = chosen.clone();
                        chosen.insert(class, node);
                        let open = open.iter().chain(&node.operands).copied().collect();
                        self.choose(open, chosen, found)
                    });
                }
            }
        }
        if found.len() == MOST_ALTERNATIVES {
            return false;
        }
        found.push(chosen);
        true
    }

    /// For each class the classes that may read it.
    fn readers(&self) -> BTreeMap<Id, BTreeSet<Id>> {
        let mut readers: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
        for class in &self.reachable {
            for operand in self.options(*class).iter().flat_map(|node| &node.operands) {
                readers.entry(*operand).or_default().insert(*class);
            }
        }
        readers
    }

    /// The classes that choices touch, in groups: choices that touch a class in common are in one
    /// group.
    fn touched(&self) -> Groups<Id> {
        let mut touched = Groups::default();
        for choice in self.reachable.iter().copied().filter(|class| self.is_choice(*class)) {
            touched.name(choice);
            let (mut open, mut seen) = (vec![choice], BTreeSet::from([choice]));
            while let Some(class) = open.pop() {
                for operand in self.options(class).iter().flat_map(|node| &node.operands).copied() {
                    if self.is_number(operand) {
                        continue;
                    }
                    // Who reads the operand depends on the choice.
                    touched.join(choice, operand);
                    if !self.is_needed(operand) && seen.insert(operand) {
                        open.push(operand);
                    }
                }
            }
        }
        // Classes that may be in one kernel are touched together, since whether they are depends on
        // who reads the values between.
        let links = self.links();
        let mut open: Vec<Id> = touched.things().collect();
        while let Some(class) = open.pop() {
            for other in links.get(&class).into_iter().flatten() {
                if !touched.has(*other) {
                    open.push(*other);
                }
                touched.join(class, *other);
            }
        }
        touched
    }

    /// For each class the classes that may stand next to it in its kernel: an elementwise op, the
    /// only maker of its operands, and the pins between.
    fn links(&self) -> BTreeMap<Id, Vec<Id>> {
        let mut links: BTreeMap<Id, Vec<Id>> = BTreeMap::new();
        for class in &self.reachable {
            for node in self.options(*class) {
                if !self.logical.op(node).is_some_and(|op| op.is_elementwise()) {
                    continue;
                }
                let ways: Vec<Vec<Id>> =
                    node.operands.iter().map(|operand| self.way_to_maker(*operand)).collect();
                let made: Vec<&Vec<Id>> = ways
                    .iter()
                    .filter(|way| way.last().is_some_and(|maker| self.is_made(*maker)))
                    .collect();
                if made
                    .first()
                    .is_some_and(|first| made.iter().all(|way| way.last() == first.last()))
                {
                    made.into_iter().for_each(|way| link_way(&mut links, *class, way));
                }
            }
        }
        self.link_attentions(&mut links);
        self.link_parts(&mut links);
        links
    }

    /// Links the classes that may be one attention: a softmax, what it is computed from, down to
    /// the products, and the product that reads it.
    fn link_attentions(&self, links: &mut BTreeMap<Id, Vec<Id>>) {
        let is = |class: Id, of: fn(&Op) -> bool| {
            self.options(class).iter().any(|node| self.logical.op(node).is_some_and(of))
        };
        let mut link = |class: Id, operand: Id| link_way(links, class, &self.way_to_maker(operand));
        let is_softmax = |op: &Op| softmax_over(op).is_some();
        let goes_on = |op: &Op| {
            op.is_elementwise() || matches!(op, Op::Mask { .. }) || softmax_over(op).is_some()
        };
        let mut open: Vec<Id> =
            self.reachable.iter().copied().filter(|class| is(*class, is_softmax)).collect();
        let mut seen: BTreeSet<Id> = open.iter().copied().collect();
        // The products of attentions, each with an operand.
        let mut joined: Vec<(Id, Id)> = Vec::new();
        while let Some(class) = open.pop() {
            for operand in self.options(class).iter().flat_map(|node| &node.operands).copied() {
                let is_alike =
                    self.logical.ty(operand).dims.len() == self.logical.ty(class).dims.len();
                if is(class, |op| *op == Op::Einsum) {
                    joined.push((class, operand));
                }
                if is(class, goes_on) && is_alike && !self.is_number(operand) {
                    link(class, operand);
                    let maker = self.maker(operand);
                    if seen.insert(maker) {
                        open.push(maker);
                    }
                }
            }
        }
        for class in &self.reachable {
            for node in self.options(*class) {
                for operand in &node.operands {
                    let maker = self.maker(*operand);
                    let is_read =
                        is(maker, |op| softmax_over(op).is_some() || matches!(op, Op::Cast(_)));
                    if self.logical.op(node) == Some(&Op::Einsum) && is_read {
                        link(*class, *operand);
                        joined.extend(node.operands.iter().map(|operand| (*class, *operand)));
                    }
                }
            }
        }
        // A concat that joins their keys or values may be part of them.
        let mut seen: BTreeSet<(Id, Id)> = BTreeSet::new();
        while let Some((class, operand)) = joined.pop() {
            let maker = self.maker(operand);
            if !seen.insert((class, operand)) || !is(maker, |op| matches!(op, Op::Concat { .. })) {
                continue;
            }
            link(class, operand);
            let nodes = self.options(maker).iter();
            joined.extend(nodes.flat_map(|node| &node.operands).map(|operand| (maker, *operand)));
        }
    }

    /// Links an attention with the ops that may act on it where it is over a part of the keys.
    /// Whether they may depends on whether the attention is one kernel.
    fn link_parts(&self, links: &mut BTreeMap<Id, Vec<Id>>) {
        let is_read = |node: &LogicalNode| {
            let op = self.logical.op(node);
            op.is_some_and(|op| softmax_over(op).is_some() || matches!(op, Op::Cast(_)))
        };
        // The classes that may be the attention over a part of the keys, each with the dims that
        // its statistics may have.
        let mut open: Vec<(Id, Vec<DimId>)> = Vec::new();
        let mut readers: BTreeMap<Id, Vec<(Id, usize, &Op)>> = BTreeMap::new();
        for class in &self.reachable {
            let own = &self.logical.ty(*class).dims;
            for node in self.options(*class) {
                let Some(op) = self.logical.op(node) else { continue };
                for (place, operand) in node.operands.iter().enumerate() {
                    readers.entry(*operand).or_default().push((*class, place, op));
                    let maker = self.maker(*operand);
                    if *op == Op::Einsum && self.options(maker).iter().any(|node| is_read(node)) {
                        let mut by = self.logical.ty(maker).dims.clone();
                        by.retain(|dim| own.contains(dim));
                        open.push((*class, by));
                    }
                }
            }
        }
        let mut seen: BTreeSet<(Id, Vec<DimId>)> = open.iter().cloned().collect();
        while let Some((class, by)) = open.pop() {
            for (reader, place, op) in readers.get(&class).into_iter().flatten() {
                let ty = self.logical.ty(*reader);
                let Some(left) = carried(op, *place, &by, &ty.dims, ty.dtype) else {
                    continue;
                };
                links.entry(class).or_default().push(*reader);
                links.entry(*reader).or_default().push(class);
                if seen.insert((*reader, left.clone())) {
                    open.push((*reader, left));
                }
            }
        }
    }

    /// A class, the pins behind it, and what they pin.
    fn way_to_maker(&self, class: Id) -> Vec<Id> {
        let mut way = vec![class];
        while let Some([LogicalNode { head: Head::Pin(_), operands, .. }]) =
            way.last().map(|class| self.options(*class))
        {
            way.extend(operands);
        }
        way
    }

    /// The class behind pins.
    fn maker(&self, mut class: Id) -> Id {
        while let [LogicalNode { head: Head::Pin(_), operands, .. }] = self.options(class) {
            class = operands[0];
        }
        class
    }

    fn is_made(&self, class: Id) -> bool {
        self.options(class).iter().any(|node| matches!(node.head, Head::Op(_)))
    }
}

/// Links a class to the first of a way, and each of the way to the next.
fn link_way(links: &mut BTreeMap<Id, Vec<Id>>, class: Id, way: &[Id]) {
    for (one, next) in std::iter::once(&class).chain(way).zip(way) {
        links.entry(*one).or_default().push(*next);
        links.entry(*next).or_default().push(*one);
    }
}

/// Whether the roots can be had without a class.
fn can_do_without(class: usize, ways: &[Vec<Vec<usize>>], roots: &[usize]) -> bool {
    let mut had = vec![false; ways.len()];
    loop {
        let mut more = false;
        for (other, ways) in ways.iter().enumerate() {
            if !had[other]
                && other != class
                && ways.iter().any(|operands| operands.iter().all(|o| had[*o]))
            {
                had[other] = true;
                more = true;
            }
        }
        if !more {
            return roots.iter().all(|root| had[*root]);
        }
    }
}
