//! The logical e-graph, without layouts: an e-class is a tensor, its e-nodes are the ways of
//! computing it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use egg::{Analysis, DidMerge, EClass, EGraph, Id, Language};
use rustc_hash::FxHashMap;
use shard_ir::op::Flag;
use shard_ir::tensor::{MAX_ELEMENTS, MAX_RANK};
use shard_ir::{
    Def, DimId, Dtype, Factor, FoldId, Op, ParameterKind, Program, TensorType, ValueId,
    is_scaled_product,
};

use super::laws::Term;
use super::written::chain;
use crate::rules::{self, Rule};
use crate::timeless::timeless;

/// An op with the type of its result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct TypedOp {
    pub(super) op: Op,
    pub(super) ty: TensorType,
    /// Where it is computed. Equal ops inside and outside of a folded block are two, and computed
    /// in both places.
    pub(super) place: OpPlace,
}

/// Where an op is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct OpPlace {
    /// The folded block that the op is in.
    pub(super) fold: Option<FoldId>,
    /// The value that the op makes, if a folded block takes it. Such a value is merged with no
    /// other, since the block hands another one on in its place.
    pub(super) taken: Option<ValueId>,
}

/// An e-node without its operands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Head {
    /// A parameter of the program.
    Given(ValueId),
    /// A number, by its bits.
    Constant(u64, Dtype),
    /// A pin of the program. No rule looks behind a pin, and no two pins are one.
    Pin(ValueId),
    /// An op, as an index into [`Types::made`].
    Op(u32),
}

/// An e-node as the library stores it. The operands of an op that commutes are sorted, so that
/// equal ops are one e-node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct StoredNode {
    head: Head,
    operands: Vec<Id>,
}

/// An e-node as the rules and the forms read it. Each operand is the first id of its class, since
/// the id by which the library knows a class depends on how classes were merged.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LogicalNode {
    pub(super) head: Head,
    pub(super) operands: Vec<Id>,
    /// The rule that made it; `None` for an e-node of the program itself.
    pub(super) rule: Option<Rule>,
}

impl LogicalNode {
    /// The key by which e-nodes are sorted: those of the program itself come first.
    fn order(&self) -> (bool, Head, &[Id]) {
        (self.rule.is_some(), self.head, &self.operands)
    }
}

impl Language for StoredNode {
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

/// The analysis, which knows the type of each class and its first id.
#[derive(Default)]
struct Types {
    /// The types of the program's values.
    values: Vec<TensorType>,
    /// The ops met so far.
    made: Vec<TypedOp>,
    numbers: FxHashMap<TypedOp, u32>,
    /// Whether two classes of different types were merged, which shows that a rule is wrong.
    clash: bool,
}

/// What is known of a class.
#[derive(Debug)]
struct Class {
    ty: TensorType,
    /// The first of its ids, by which it is known outside of the library.
    first: Id,
}

impl Analysis<StoredNode> for Types {
    type Data = Class;

    fn make(graph: &mut EGraph<StoredNode, Self>, node: &StoredNode, id: Id) -> Class {
        let ty = match node.head {
            Head::Given(value) | Head::Pin(value) => graph.analysis.values[value.index()].clone(),
            Head::Constant(_, dtype) => TensorType { dims: Vec::new(), dtype },
            Head::Op(number) => graph.analysis.made[number as usize].ty.clone(),
        };
        Class { ty, first: id }
    }

    fn merge(&mut self, a: &mut Class, b: Class) -> DidMerge {
        self.clash |= a.ty != b.ty;
        a.first = a.first.min(b.first);
        DidMerge(false, false)
    }
}

/// The values that folded blocks take, behind pins.
fn taken(program: &Program) -> BTreeSet<ValueId> {
    let folds = (0..program.folds.len()).map(|fold| FoldId(fold as u16));
    folds.filter_map(|fold| program.entry(fold)).map(|id| program.unpinned(id)).collect()
}

/// A way of computing a tensor that a rule has found.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Class(Id),
    Op(TypedOp, Vec<Expr>),
}

/// The logical e-graph of a program. Classes are known by their first ids, and e-nodes are read in
/// an order of our own, so that forms do not depend on how the library merges or stores them.
pub(super) struct Logical<'a> {
    pub(super) program: &'a Program,
    graph: EGraph<StoredNode, Types>,
    /// The class of each live value of the program.
    class_of: Vec<Option<Id>>,
    /// The first id of each e-node, and the rule that made it; `None` for e-nodes of the program
    /// itself.
    origins: FxHashMap<StoredNode, (Id, Option<Rule>)>,
    /// The e-nodes of each class, sorted, as they were when classes were last merged.
    nodes: BTreeMap<Id, Vec<LogicalNode>>,
    /// The sums that a class can be read as, for the classes that were asked about.
    pub(super) readings: RefCell<BTreeMap<Id, Rc<Vec<Vec<Term>>>>>,
    /// Whether classes are merged the other way round, so that a test can show that it does not
    /// matter.
    other_way: bool,
}

impl<'a> Logical<'a> {
    /// The e-graph of the program as it is written. An einsum of more than two operands is also
    /// there as a chain, left to right.
    pub(super) fn new(program: &'a Program) -> Logical<'a> {
        Logical::merged(program, false)
    }

    /// The same, where classes may be merged the other way round.
    pub(super) fn merged(program: &'a Program, other_way: bool) -> Logical<'a> {
        let values = program
            .values
            .iter()
            .map(|v| TensorType { dims: v.dims.clone(), dtype: v.dtype })
            .collect();
        let mut logical = Logical {
            program,
            graph: EGraph::new(Types { values, ..Types::default() }),
            class_of: vec![None; program.values.len()],
            origins: FxHashMap::default(),
            nodes: BTreeMap::new(),
            readings: RefCell::default(),
            other_way,
        };
        let taken: BTreeSet<ValueId> = taken(program);
        for id in program.live_values() {
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
                        OpPlace { fold: value.fold, taken: taken.contains(&id).then_some(id) };
                    let inner = OpPlace { taken: None, ..place };
                    let class = logical.add_op(
                        TypedOp { op: op.clone(), ty, place },
                        operands.clone(),
                        None,
                    );
                    if long {
                        let mut last = operands[0];
                        for (step, ty) in chain(program, id).into_iter().enumerate() {
                            let place = if step + 2 == operands.len() { place } else { inner };
                            let made = TypedOp { op: Op::Einsum, ty, place };
                            last = logical.add_op(made, vec![last, operands[step + 1]], None);
                        }
                        logical.union(class, last);
                    }
                    class
                }
            };
            logical.class_of[id.index()] = Some(class);
        }
        logical.rebuild();
        logical
    }

    /// Adds an expression that a rule has found to a class.
    pub(super) fn add(&mut self, class: Id, found: &Expr, rule: Rule) {
        let id = self.add_expr(found, self.place_of(class), rule);
        self.union(class, id);
    }

    /// Merges two classes. The library knows the new class by an id of the first, if as many
    /// e-nodes read the first as the second.
    fn union(&mut self, first: Id, second: Id) {
        let (first, second) = if self.other_way { (second, first) } else { (first, second) };
        self.graph.union(first, second);
    }

    /// Adds an expression in a place. Its operands are in the same folded block, and no block takes
    /// them.
    fn add_expr(&mut self, expr: &Expr, place: OpPlace, rule: Rule) -> Id {
        match expr {
            Expr::Class(id) => *id,
            Expr::Op(made, operands) => {
                let inner = OpPlace { taken: None, ..place };
                let operands = operands.iter().map(|o| self.add_expr(o, inner, rule)).collect();
                self.add_op(TypedOp { place, ..made.clone() }, operands, Some(rule))
            }
        }
    }

    /// Where a class is computed. All its e-nodes are in one place.
    pub(super) fn place_of(&self, class: Id) -> OpPlace {
        match self.nodes(class).first().map(|node| node.head) {
            Some(Head::Op(number)) => self.made(number).place,
            Some(Head::Given(value) | Head::Pin(value)) => {
                OpPlace { fold: self.program.value(value).fold, ..OpPlace::default() }
            }
            Some(Head::Constant(..)) | None => OpPlace::default(),
        }
    }

    fn add_op(&mut self, made: TypedOp, operands: Vec<Id>, rule: Option<Rule>) -> Id {
        let types = &mut self.graph.analysis;
        let number = *types.numbers.entry(made.clone()).or_insert_with(|| {
            types.made.push(made);
            types.made.len() as u32 - 1
        });
        self.add_node(Head::Op(number), operands, rule)
    }

    fn add_node(&mut self, head: Head, operands: Vec<Id>, rule: Option<Rule>) -> Id {
        let node = self.canonical(StoredNode { head, operands });
        let is_new = rule.is_none() || self.graph.lookup(node.clone()).is_none();
        let id = self.graph.add(node.clone());
        if is_new {
            self.origins.entry(node).or_insert((id, rule));
        }
        id
    }

    /// An e-node with the ids that its operands have in the library now, sorted where their order
    /// does not matter.
    fn canonical(&self, mut node: StoredNode) -> StoredNode {
        for operand in &mut node.operands {
            *operand = self.graph.find(*operand);
        }
        if self.commutes(node.head, &node.operands) {
            node.operands.sort_unstable_by_key(|operand| self.first(*operand));
        }
        node
    }

    fn commutes(&self, head: Head, operands: &[Id]) -> bool {
        match self.op_of(head) {
            None => false,
            Some(Op::Einsum) => true,
            Some(op) => op.row().is(Flag::Commutes) && self.ty(operands[0]) == self.ty(operands[1]),
        }
    }

    /// Restores congruence, and sorts operands again.
    pub(super) fn rebuild(&mut self) {
        self.readings.take();
        loop {
            timeless(|| self.graph.rebuild());
            let mut unsorted = Vec::new();
            for class in self.graph.classes() {
                for node in &class.nodes {
                    let canonical = self.canonical(node.clone());
                    if canonical != *node && self.graph.lookup(canonical.clone()) != Some(class.id)
                    {
                        unsorted.push((class.id, canonical));
                    }
                }
            }
            for (node, origin) in std::mem::take(&mut self.origins) {
                let node = self.canonical(node);
                let known = self.origins.entry(node).or_insert(origin);
                if origin.0 < known.0 {
                    *known = origin;
                }
            }
            if unsorted.is_empty() {
                self.read();
                return;
            }
            for (class, node) in unsorted {
                let id = self.graph.add(node);
                self.union(class, id);
            }
        }
    }

    /// Reads all e-nodes off the library.
    fn read(&mut self) {
        let node = |node: &StoredNode| {
            let canonical = self.canonical(node.clone());
            let rule = self.origins.get(&canonical).map_or(Some(rules::MERGED), |(_, rule)| *rule);
            let operands = canonical.operands.iter().map(|operand| self.first(*operand)).collect();
            LogicalNode { head: canonical.head, operands, rule }
        };
        let of_class = |class: &EClass<StoredNode, Class>| {
            let mut nodes: Vec<LogicalNode> = class.nodes.iter().map(node).collect();
            nodes.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
            // The library may still have an e-node with its operands in another order.
            nodes.dedup();
            (class.data.first, nodes)
        };
        self.nodes = self.graph.classes().map(of_class).collect();
    }

    /// The first id of a class.
    fn first(&self, id: Id) -> Id {
        self.graph[id].data.first
    }

    /// The class of a live value of the program.
    pub(super) fn class_of(&self, value: ValueId) -> Option<Id> {
        self.class_of[value.index()].map(|id| self.first(id))
    }

    /// All classes, in the order in which they were added.
    pub(super) fn classes(&self) -> Vec<Id> {
        self.nodes.keys().copied().collect()
    }

    /// The e-nodes of a class, those of the program itself first.
    pub(super) fn nodes(&self, class: Id) -> &[LogicalNode] {
        self.nodes.get(&self.first(class)).map_or(&[], Vec::as_slice)
    }

    /// The ids by which the library knows all classes, by their first ids.
    #[cfg(test)]
    pub(super) fn ids(&self) -> BTreeMap<Id, Id> {
        self.graph.classes().map(|class| (class.data.first, class.id)).collect()
    }

    /// The number of e-nodes, and the number of classes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.graph.total_number_of_nodes(), self.graph.number_of_classes())
    }

    /// Whether two classes of different types were merged, which shows that a rule is wrong.
    pub(super) fn has_clash(&self) -> bool {
        self.graph.analysis.clash
    }

    /// The operands of each einsum of a class.
    pub(super) fn einsums(&self, class: Id) -> impl Iterator<Item = &[Id]> {
        self.nodes(class)
            .iter()
            .filter(|n| self.op(n) == Some(&Op::Einsum))
            .map(|n| n.operands.as_slice())
    }

    /// Whether an einsum of these operands is a product with a weight in blocks and its scales,
    /// which is one op.
    pub(super) fn is_scaled_product(&self, operands: &[Id], result: Id) -> bool {
        let factor = |class: &Id| {
            let TensorType { dims, dtype } = self.ty(*class);
            Factor { dims, dtype: *dtype, is_weight: self.is_weight(*class) }
        };
        let factors: Vec<Factor<'_>> = operands.iter().map(factor).collect();
        is_scaled_product(&factors, &self.ty(result).dims)
    }

    /// Whether a class is a weight, behind pins and fetches.
    fn is_weight(&self, class: Id) -> bool {
        self.nodes(class).iter().any(|node| match node.head {
            Head::Given(id) => {
                self.program.value(id).def.parameter().is_some_and(ParameterKind::is_weight)
            }
            Head::Pin(_) => self.is_weight(node.operands[0]),
            Head::Op(number) if self.made(number).op == Op::Fetch => {
                self.is_weight(node.operands[0])
            }
            Head::Constant(..) | Head::Op(_) => false,
        })
    }

    /// The operands of each einsum of a class that has two.
    pub(super) fn products(&self, class: Id) -> impl Iterator<Item = [Id; 2]> {
        self.einsums(class).filter_map(|operands| <[Id; 2]>::try_from(operands).ok())
    }

    pub(super) fn made(&self, number: u32) -> &TypedOp {
        &self.graph.analysis.made[number as usize]
    }

    /// The op of an e-node; `None` for a parameter, a constant or a pin.
    pub(super) fn op(&self, node: &LogicalNode) -> Option<&Op> {
        self.op_of(node.head)
    }

    fn op_of(&self, head: Head) -> Option<&Op> {
        match head {
            Head::Op(number) => Some(&self.made(number).op),
            Head::Given(_) | Head::Constant(..) | Head::Pin(_) => None,
        }
    }

    pub(super) fn ty(&self, class: Id) -> &TensorType {
        &self.graph[class].data.ty
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

    /// The flops of an einsum, on all devices together, in the layouts that need fewest.
    ///
    /// An einsum of one operand sums over the dims that its result does not have. A device that
    /// holds a part of a sum leaves the rest of the additions to the move that follows. So each
    /// device may do as many additions less as the result has elements.
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
    pub(super) fn flops_of(&self, node: &LogicalNode) -> u128 {
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
