//! Which classes may be neighbours in a kernel. Whether ops run as one kernel depends on who reads
//! the values between them, so that a choice for one class may change the kernel of its neighbours.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::attention::softmax_over;
use shard_ir::{DimId, Op};

use super::clusters::Nodes;
use super::equal::{Class, ENode, Equal, Head};
use crate::carried::after;

/// For each class the classes that may be next to it in a kernel.
type Neighbours = BTreeMap<Class, BTreeSet<Class>>;

/// The neighbours in all kernels: of elementwise ops, of attentions, and of ops on `partialsoftmax`
/// values.
pub(super) fn neighbours(equal: &Equal<'_>, nodes: &Nodes<'_>) -> Neighbours {
    let mut finder = Finder { equal, nodes, found: Neighbours::new() };
    finder.of_elementwise_ops();
    finder.in_attentions();
    finder.of_partial_softmaxes();
    finder.found
}

struct Finder<'f> {
    equal: &'f Equal<'f>,
    nodes: &'f Nodes<'f>,
    found: Neighbours,
}

impl<'f> Finder<'f> {
    /// Makes each class of a chain, which starts with `class`, a neighbour of the next one.
    fn link(&mut self, class: Class, rest: &[Class]) {
        for pair in [&[class], rest].concat().windows(2) {
            self.found.entry(pair[0]).or_default().insert(pair[1]);
            self.found.entry(pair[1]).or_default().insert(pair[0]);
        }
    }

    /// Every node, with its class.
    fn all_nodes(&self) -> impl Iterator<Item = (Class, &'f ENode)> + use<'f> {
        self.nodes.iter().flat_map(|(class, nodes)| nodes.iter().map(move |node| (*class, *node)))
    }

    /// Whether a class can be computed by an op with a property.
    fn has(&self, class: Class, is: impl Fn(&Op) -> bool) -> bool {
        self.nodes[&class].iter().any(|node| self.equal.op(node).is_some_and(&is))
    }

    /// A class, then the classes behind it along pins; the last one is not pinned.
    fn to_maker(&self, class: Class) -> Vec<Class> {
        let mut chain = vec![class];
        while let Some([ENode { head: Head::Pin(_), operands }]) =
            chain.last().map(|class| self.nodes[class].as_slice())
        {
            chain.extend(operands);
        }
        chain
    }

    /// An elementwise op is next to the one op that makes all of its operands that ops make, with
    /// the pins between.
    fn of_elementwise_ops(&mut self) {
        for (class, node) in self.all_nodes() {
            if !self.equal.op(node).is_some_and(Op::is_elementwise) {
                continue;
            }
            let chains = node.operands.iter().map(|operand| self.to_maker(*operand));
            let is_op = |node: &&ENode| matches!(node.head, Head::Op(_));
            let is_made = |chain: &Vec<Class>| {
                chain.last().is_some_and(|maker| self.nodes[maker].iter().any(is_op))
            };
            let made: Vec<Vec<Class>> = chains.filter(is_made).collect();
            if made.windows(2).all(|two| two[0].last() == two[1].last()) {
                made.iter().for_each(|chain| self.link(class, chain));
            }
        }
    }

    /// The members of an attention are neighbours: from its softmax down to the products of its
    /// scores, up to the product that reads the softmax, cast or not, and down to concats.
    fn in_attentions(&mut self) {
        let (equal, nodes) = (self.equal, self.nodes);
        let is_softmax = |op: &Op| softmax_over(op).is_some();
        let is_inner =
            |op: &Op| op.is_elementwise() || matches!(op, Op::Mask { .. }) || is_softmax(op);
        let mut open: Vec<Class> =
            nodes.keys().copied().filter(|class| self.has(*class, is_softmax)).collect();
        let mut seen: BTreeSet<Class> = open.iter().copied().collect();
        // The operands of the products of attentions, each with the product.
        let mut read: Vec<(Class, Class)> = Vec::new();
        while let Some(class) = open.pop() {
            let products = nodes[&class].iter().filter(|node| equal.op(node) == Some(&Op::Einsum));
            read.extend(products.flat_map(|node| &node.operands).map(|operand| (class, *operand)));
            if !self.has(class, is_inner) {
                continue;
            }
            for operand in nodes[&class].iter().flat_map(|node| &node.operands) {
                let is_number =
                    nodes[operand].iter().any(|node| matches!(node.head, Head::Constant(..)));
                if is_number || equal.ty(*operand).dims.len() != equal.ty(class).dims.len() {
                    continue;
                }
                let chain = self.to_maker(*operand);
                self.link(class, &chain);
                open.extend(chain.last().filter(|maker| seen.insert(**maker)));
            }
        }
        for (class, node) in self.all_nodes() {
            for operand in node.operands.iter().filter(|_| equal.op(node) == Some(&Op::Einsum)) {
                let chain = self.to_maker(*operand);
                if chain.last().is_some_and(|maker| self.has(*maker, is_softmax_or_cast)) {
                    self.link(class, &chain);
                    read.extend(node.operands.iter().map(|operand| (class, *operand)));
                }
            }
        }
        // Concats of keys or values may be members of the attention.
        let mut seen: BTreeSet<(Class, Class)> = BTreeSet::new();
        while let Some((class, operand)) = read.pop() {
            let chain = self.to_maker(operand);
            let is_concat = |op: &Op| matches!(op, Op::Concat { .. });
            let Some(maker) = chain.last().filter(|maker| self.has(**maker, is_concat)) else {
                continue;
            };
            if seen.insert((class, operand)) {
                self.link(class, &chain);
                let joined = nodes[maker].iter().flat_map(|node| &node.operands);
                read.extend(joined.map(|operand| (*maker, *operand)));
            }
        }
    }

    /// An op on a `partialsoftmax` value is next to the value: whether it may act on the value
    /// depends on whether the attention is one kernel.
    fn of_partial_softmaxes(&mut self) {
        let equal = self.equal;
        // Classes that may be `partialsoftmax`, each with dims that its statistics may have.
        let mut open: Vec<(Class, Vec<DimId>)> = Vec::new();
        for (class, node) in self.all_nodes() {
            for operand in node.operands.iter().filter(|_| equal.op(node) == Some(&Op::Einsum)) {
                let chain = self.to_maker(*operand);
                let Some(maker) = chain.last() else { continue };
                if self.has(*maker, is_softmax_or_cast) {
                    let dims = equal.ty(*maker).dims.iter().copied();
                    open.push((class, dims.filter(|d| equal.ty(class).dims.contains(d)).collect()));
                }
            }
        }
        let mut readers: BTreeMap<Class, Vec<(Class, &ENode, usize)>> = BTreeMap::new();
        for (class, node) in self.all_nodes() {
            for (place, operand) in node.operands.iter().enumerate() {
                readers.entry(*operand).or_default().push((class, node, place));
            }
        }
        let mut seen: BTreeSet<(Class, Vec<DimId>)> = open.iter().cloned().collect();
        while let Some((class, by)) = open.pop() {
            for (reader, node, place) in readers.get(&class).into_iter().flatten() {
                let Some(site) = equal.site(node, *reader) else { continue };
                let Some(mut left) = after(&site, *place, &by) else { continue };
                self.link(class, &[*reader]);
                left.sort_unstable();
                if seen.insert((*reader, left.clone())) {
                    open.push((*reader, left));
                }
            }
        }
    }
}

fn is_softmax_or_cast(op: &Op) -> bool {
    softmax_over(op).is_some() || matches!(op, Op::Cast(_))
}
