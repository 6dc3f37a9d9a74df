//! The logical e-graph: one e-class is one tensor, its e-nodes are the ways of computing it. No
//! layouts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use egg::{Analysis, DidMerge, EGraph, Id, Language};
use rustc_hash::FxHashMap;
use shard_ir::op::Flag;
use shard_ir::tensor::{MAX_ELEMENTS, MAX_RANK};
use shard_ir::{
    Def, DimId, Dtype, Factor, FoldId, Op, Program, TensorType, ValueId, is_scaled_product,
};

use super::laws::Term;
use super::written::{chain, live_values};
use crate::rules::{self, Rule};
use crate::timeless::timeless;

/// An op with the type of its result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Made {
    pub(super) op: Op,
    pub(super) ty: TensorType,
    /// Where it is computed: what is equal inside and outside of a folded block is computed in
    /// both.
    pub(super) place: Place,
}

/// Where an op is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Place {
    /// The folded block that it is in.
    pub(super) fold: Option<FoldId>,
    /// The value that it makes, where a folded block takes it and hands another on in its place: it
    /// is no other one, equal or not.
    pub(super) taken: Option<ValueId>,
}

/// What an e-node is, its operands aside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Head {
    /// A parameter of the program.
    Given(ValueId),
    /// A number, by its bits.
    Constant(u64, Dtype),
    /// A pin of the program. No rule looks behind it, and no two are one.
    Pin(ValueId),
    /// An op, as an index into [`Types::made`].
    Op(u32),
}

/// An e-node. The operands of an op that commutes are sorted, so that equal ops are one e-node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ENode {
    pub(super) head: Head,
    pub(super) operands: Vec<Id>,
}

impl Language for ENode {
    type Discriminant = Head;

    fn discriminant(&self) -> Head {
        self.head
    }

    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.operands.len() == other.operands.len()
    }

    fn children(&self) -> &[Id] {
        &self.operands
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.operands
    }
}

/// The analysis: the type of each class.
#[derive(Default)]
pub(super) struct Types {
    /// The types of the program's values.
    values: Vec<TensorType>,
    /// The ops met so far.
    made: Vec<Made>,
    numbers: FxHashMap<Made, u32>,
    /// Two classes of different types were merged: a wrong rule.
    pub(super) clash: bool,
}

impl Analysis<ENode> for Types {
    type Data = TensorType;

    fn make(graph: &mut EGraph<ENode, Self>, node: &ENode, _: Id) -> TensorType {
        match node.head {
            Head::Given(value) | Head::Pin(value) => graph.analysis.values[value.index()].clone(),
            Head::Constant(_, dtype) => TensorType { dims: Vec::new(), dtype },
            Head::Op(number) => graph.analysis.made[number as usize].ty.clone(),
        }
    }

    fn merge(&mut self, a: &mut TensorType, b: TensorType) -> DidMerge {
        self.clash |= *a != b;
        DidMerge(false, false)
    }
}

/// The ops whose values folded blocks take.
fn taken(program: &Program) -> BTreeSet<ValueId> {
    let unpinned = |mut id: ValueId| {
        while let Def::Pin { operand, .. } = &program.value(id).def {
            id = *operand;
        }
        id
    };
    let folds = (0..program.folds.len()).map(|fold| FoldId(fold as u16));
    folds.filter_map(|fold| program.entry(fold)).map(unpinned).collect()
}

/// A way of computing a tensor that a rule has found.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Class(Id),
    Op(Made, Vec<Expr>),
}

/// The logical e-graph of a program.
pub(super) struct Logical<'a> {
    pub(super) program: &'a Program,
    pub(super) graph: EGraph<ENode, Types>,
    /// The class of each live value of the program.
    pub(super) class_of: Vec<Option<Id>>,
    /// The e-nodes that the program itself has.
    written: BTreeSet<ENode>,
    /// The rule that made each other e-node.
    made_by: BTreeMap<ENode, Rule>,
    /// The sums that classes are, as far as was asked.
    pub(super) readings: RefCell<BTreeMap<Id, Rc<Vec<Vec<Term>>>>>,
}

impl<'a> Logical<'a> {
    /// The program as it is written; einsums of more than two operands also as chains, left to
    /// right.
    pub(super) fn new(program: &'a Program) -> Logical<'a> {
        let values = program
            .values
            .iter()
            .map(|v| TensorType { dims: v.dims.clone(), dtype: v.dtype })
            .collect();
        let mut logical = Logical {
            program,
            graph: EGraph::new(Types { values, ..Types::default() }),
            class_of: vec![None; program.values.len()],
            written: BTreeSet::new(),
            made_by: BTreeMap::new(),
            readings: RefCell::default(),
        };
        let live = live_values(program);
        let taken: BTreeSet<ValueId> = taken(program);
        for id in program.value_ids().filter(|id| live[id.index()]) {
            let value = program.value(id);
            let operands: Vec<Id> =
                value.def.operands().iter().filter_map(|o| logical.class_of[o.index()]).collect();
            let class = match &value.def {
                Def::Parameter { .. } => logical.add_node(Head::Given(id), operands, None),
                Def::Constant(number) => {
                    logical.add_node(Head::Constant(number.to_bits(), value.dtype), operands, None)
                }
                Def::Pin { .. } => logical.add_node(Head::Pin(id), operands, None),
                Def::Op { op, .. } => {
                    let ty = TensorType { dims: value.dims.clone(), dtype: value.dtype };
                    let long =
                        *op == Op::Einsum && operands.len() > 2 && !program.is_scaled_product(id);
                    let place =
                        Place { fold: value.fold, taken: taken.contains(&id).then_some(id) };
                    let inner = Place { taken: None, ..place };
                    let class =
                        logical.add_op(Made { op: op.clone(), ty, place }, operands.clone(), None);
                    if long {
                        let mut last = operands[0];
                        for (step, ty) in chain(program, id).into_iter().enumerate() {
                            let place = if step + 2 == operands.len() { place } else { inner };
                            let made = Made { op: Op::Einsum, ty, place };
                            last = logical.add_op(made, vec![last, operands[step + 1]], None);
                        }
                        logical.graph.union(class, last);
                    }
                    class
                }
            };
            logical.class_of[id.index()] = Some(class);
        }
        logical.rebuild();
        logical
    }

    /// Adds what a rule has found to a class.
    pub(super) fn add(&mut self, class: Id, found: &Expr, rule: Rule) {
        let id = self.add_expr(found, self.place_of(class), rule);
        self.graph.union(class, id);
    }

    /// An expression in a place; what it is made of is in the same folded block, and nothing in
    /// particular.
    fn add_expr(&mut self, expr: &Expr, place: Place, rule: Rule) -> Id {
        match expr {
            Expr::Class(id) => *id,
            Expr::Op(made, operands) => {
                let inner = Place { taken: None, ..place };
                let operands = operands.iter().map(|o| self.add_expr(o, inner, rule)).collect();
                self.add_op(Made { place, ..made.clone() }, operands, Some(rule))
            }
        }
    }

    /// Where a class is computed: all its e-nodes are in one place.
    pub(super) fn place_of(&self, class: Id) -> Place {
        match self.graph[class].nodes.first().map(|node| node.head) {
            Some(Head::Op(number)) => self.made(number).place,
            Some(Head::Given(value) | Head::Pin(value)) => {
                Place { fold: self.program.value(value).fold, ..Place::default() }
            }
            Some(Head::Constant(..)) | None => Place::default(),
        }
    }

    fn add_op(&mut self, made: Made, operands: Vec<Id>, rule: Option<Rule>) -> Id {
        let types = &mut self.graph.analysis;
        let number = *types.numbers.entry(made.clone()).or_insert_with(|| {
            types.made.push(made);
            types.made.len() as u32 - 1
        });
        self.add_node(Head::Op(number), operands, rule)
    }

    fn add_node(&mut self, head: Head, operands: Vec<Id>, rule: Option<Rule>) -> Id {
        let node = self.canonical(ENode { head, operands });
        match rule {
            None => {
                self.written.insert(node.clone());
            }
            Some(rule) if self.graph.lookup(node.clone()).is_none() => {
                self.made_by.insert(node.clone(), rule);
            }
            Some(_) => {}
        }
        self.graph.add(node)
    }

    /// With the classes of its operands as they are called now, and sorted where their order does
    /// not matter.
    fn canonical(&self, mut node: ENode) -> ENode {
        for operand in &mut node.operands {
            *operand = self.graph.find(*operand);
        }
        if self.commutes(&node) {
            node.operands.sort_unstable();
        }
        node
    }

    fn commutes(&self, node: &ENode) -> bool {
        match self.op(node) {
            None => false,
            Some(Op::Einsum) => true,
            Some(op) => {
                op.row().is(Flag::Commutes)
                    && self.ty(node.operands[0]) == self.ty(node.operands[1])
            }
        }
    }

    /// Restores congruence, with operands sorted again.
    pub(super) fn rebuild(&mut self) {
        self.readings.take();
        loop {
            timeless(|| self.graph.rebuild());
            let mut unsorted = Vec::new();
            for class in self.classes() {
                for node in &self.graph[class].nodes {
                    let canonical = self.canonical(node.clone());
                    if canonical != *node && self.graph.lookup(canonical.clone()) != Some(class) {
                        unsorted.push((class, canonical));
                    }
                }
            }
            self.written =
                std::mem::take(&mut self.written).into_iter().map(|n| self.canonical(n)).collect();
            let old = std::mem::take(&mut self.made_by);
            for (node, rule) in old {
                let node = self.canonical(node);
                self.made_by.entry(node).or_insert(rule);
            }
            if unsorted.is_empty() {
                return;
            }
            for (class, node) in unsorted {
                let id = self.graph.add(node);
                self.graph.union(class, id);
            }
        }
    }

    /// All classes, in the order in which they came.
    pub(super) fn classes(&self) -> Vec<Id> {
        let mut all: Vec<Id> = self.graph.classes().map(|c| c.id).collect();
        all.sort_unstable();
        all
    }

    /// The e-nodes of a class, those that are written first; not the doubles that are left behind
    /// where classes merged.
    pub(super) fn nodes(&self, class: Id) -> Vec<&ENode> {
        let sorted = |n: &&ENode| n.operands.is_sorted() || !self.commutes(n);
        let mut nodes: Vec<&ENode> = self.graph[class].nodes.iter().filter(sorted).collect();
        if nodes.len() > 1 {
            nodes.sort_by_key(|n| (!self.written.contains(*n), n.head, &n.operands));
        }
        nodes
    }

    /// The einsums of a class, and their operands.
    pub(super) fn einsums(&self, class: Id) -> impl Iterator<Item = &[Id]> {
        self.nodes(class)
            .into_iter()
            .filter(|n| self.op(n) == Some(&Op::Einsum))
            .map(|n| n.operands.as_slice())
    }

    /// Whether operands with this result are a product with a weight in blocks, which is one op.
    pub(super) fn is_scaled_product(&self, operands: &[Id], result: Id) -> bool {
        let factor = |class: &Id| {
            let TensorType { dims, dtype } = self.ty(*class);
            Factor { dims, dtype: *dtype, is_weight: self.is_weight(*class) }
        };
        let factors: Vec<Factor<'_>> = operands.iter().map(factor).collect();
        is_scaled_product(&factors, &self.ty(result).dims)
    }

    /// Whether a class is a weight, pinned, fetched or neither.
    fn is_weight(&self, class: Id) -> bool {
        self.graph[class].nodes.iter().any(|node| match node.head {
            Head::Given(id) => match self.program.value(id).def {
                Def::Parameter { kind, .. } => kind.is_weight(),
                Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => false,
            },
            Head::Pin(_) => self.is_weight(node.operands[0]),
            Head::Op(number) if self.made(number).op == Op::Fetch => {
                self.is_weight(node.operands[0])
            }
            Head::Constant(..) | Head::Op(_) => false,
        })
    }

    /// Its einsums of two operands.
    pub(super) fn products(&self, class: Id) -> impl Iterator<Item = [Id; 2]> {
        self.einsums(class).filter_map(|operands| <[Id; 2]>::try_from(operands).ok())
    }

    pub(super) fn made(&self, number: u32) -> &Made {
        &self.graph.analysis.made[number as usize]
    }

    /// The op of an e-node, if it is one.
    pub(super) fn op(&self, node: &ENode) -> Option<&Op> {
        match node.head {
            Head::Op(number) => Some(&self.made(number).op),
            Head::Given(_) | Head::Constant(..) | Head::Pin(_) => None,
        }
    }

    pub(super) fn ty(&self, class: Id) -> &TensorType {
        &self.graph[class].data
    }

    /// The rule that made an e-node; none for what the program says itself.
    pub(super) fn rule_of(&self, node: &ENode) -> Option<Rule> {
        if self.written.contains(node) {
            None
        } else {
            Some(self.made_by.get(node).copied().unwrap_or(rules::MERGED))
        }
    }

    /// Whether a tensor with these dims may be made at all.
    pub(super) fn fits(&self, dims: &[DimId]) -> bool {
        dims.len() <= MAX_RANK
            && self
                .program
                .sizes(dims)
                .iter()
                .try_fold(1u64, |n, s| n.checked_mul(*s))
                .is_some_and(|n| n <= MAX_ELEMENTS)
    }

    /// The flops of an einsum, on all devices together: as few as any layout asks for.
    ///
    /// An einsum of one operand adds up what its result has not. A device that holds a part of what
    /// is summed leaves the rest of the additions to the move that follows, so a result's worth of
    /// them may be missing on every device.
    pub(super) fn flops(&self, operands: &[&[DimId]], result: &[DimId]) -> u128 {
        let mut space: Vec<DimId> = operands.concat();
        space.sort_unstable();
        space.dedup();
        let contracts = space.iter().any(|d| !result.contains(d));
        let product = |dims: &[DimId]| {
            self.program.sizes(dims).into_iter().fold(1u128, |n, s| n.saturating_mul(u128::from(s)))
        };
        let points = product(&space);
        match operands {
            [_] => points.saturating_sub(
                product(result).saturating_mul(u128::from(self.program.mesh.devices())),
            ),
            _ if contracts => points.saturating_mul(2),
            _ => points,
        }
    }

    /// The flops of an e-node.
    pub(super) fn flops_of(&self, node: &ENode) -> u128 {
        match node.head {
            Head::Op(number) if self.made(number).op == Op::Einsum => {
                let operands: Vec<&[DimId]> =
                    node.operands.iter().map(|o| self.ty(*o).dims.as_slice()).collect();
                self.flops(&operands, &self.made(number).ty.dims)
            }
            Head::Op(_) | Head::Given(_) | Head::Constant(..) | Head::Pin(_) => 0,
        }
    }
}
