//! Classes of equal expressions, each with the ways of computing it. Two ops that are alike, on
//! equal operands, are equal, and so are the two sides of a rule (a congruence closure).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use shard_ir::tensor::{MAX_ELEMENTS, MAX_RANK};
use shard_ir::{
    Def, DimId, Factor, FoldId, Groups, Op, ParameterKind, Program, TensorType, ValueId,
    is_scaled_product,
};

use super::written::{chain, is_long};
use crate::actions::{Site, commutes};

/// A class of equal expressions, by number.
pub(crate) type Class = usize;

/// An op with the type of its result and the place where it is computed. Two nodes of the same op,
/// type, place and operands are one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Made {
    pub(super) op: Op,
    pub(super) ty: TensorType,
    pub(super) place: FoldPlace,
}

/// Where an op is computed: its folded block, and, for the very value that a folded block takes,
/// that value. Such a value is equal to no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct FoldPlace {
    pub(super) fold: Option<FoldId>,
    pub(super) taken: Option<ValueId>,
}

/// What an expression is, apart from its operands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Head {
    /// A parameter of the program.
    Given(ValueId),
    /// A constant: the bits of its number, and its dtype.
    Constant(u64, shard_ir::Dtype),
    /// A pin of the program: no rule looks behind it, and no two pins are equal.
    Pin(ValueId),
    /// An op, by its place in [`Equal::made`].
    Op(usize),
}

/// A way of computing a class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ENode {
    pub(super) head: Head,
    pub(super) operands: Vec<Class>,
}

/// A way of computing a class that a rule finds.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expr {
    Class(Class),
    Op(Op, TensorType, Vec<Expr>),
}

/// All classes.
pub(super) struct Equal<'a> {
    pub(super) program: &'a Program,
    /// The class of each live value of the program.
    pub(super) class_of: Vec<Option<Class>>,
    /// Classes that were found to be equal, each group known by its least.
    merged: Groups<Class>,
    /// The type of each class.
    types: Vec<TensorType>,
    /// For each node its class, and whether the source has the node.
    nodes: BTreeMap<ENode, (Class, bool)>,
    /// The nodes of each class at the last [`Equal::close`], those of the source first.
    by_class: BTreeMap<Class, Vec<ENode>>,
    made: Vec<Made>,
    numbers: FxHashMap<Made, usize>,
}

impl<'a> Equal<'a> {
    /// The classes of the program as it is written. Einsums of more than two operands are there
    /// also as chains, left to right.
    pub(super) fn of(program: &'a Program) -> Equal<'a> {
        let mut equal = Equal {
            program,
            class_of: vec![None; program.values.len()],
            merged: Groups::default(),
            types: Vec::new(),
            nodes: BTreeMap::new(),
            by_class: BTreeMap::new(),
            made: Vec::new(),
            numbers: FxHashMap::default(),
        };
        let taken: Vec<ValueId> = (0..program.folds.len() as u16)
            .filter_map(|fold| program.entry(FoldId(fold)))
            .map(|entry| program.unpinned(entry))
            .collect();
        for id in program.live_values() {
            let value = program.value(id);
            let ty = TensorType { dims: value.dims.clone(), dtype: value.dtype };
            let operands: Vec<Class> =
                value.def.operands().iter().filter_map(|o| equal.class_of[o.index()]).collect();
            let class = match &value.def {
                Def::Parameter { .. } => {
                    equal.add(ENode { head: Head::Given(id), operands }, ty, true)
                }
                Def::Constant(number) => equal.add(
                    ENode { head: Head::Constant(number.to_bits(), value.dtype), operands },
                    ty,
                    true,
                ),
                Def::Pin { .. } => equal.add(ENode { head: Head::Pin(id), operands }, ty, true),
                Def::Op { op, .. } => {
                    let place =
                        FoldPlace { fold: value.fold, taken: taken.contains(&id).then_some(id) };
                    let class =
                        equal.add_op(Made { op: op.clone(), ty, place }, operands.clone(), true);
                    if is_long(program, id) {
                        let mut last = operands[0];
                        for (step, ty) in chain(program, id).into_iter().enumerate() {
                            let is_last = step + 2 == operands.len();
                            let place =
                                FoldPlace { taken: place.taken.filter(|_| is_last), ..place };
                            last = equal.add_op(
                                Made { op: Op::Einsum, ty, place },
                                vec![last, operands[step + 1]],
                                true,
                            );
                        }
                        equal.merge(class, last);
                    }
                    class
                }
            };
            equal.class_of[id.index()] = Some(class);
        }
        equal.close();
        equal
    }

    /// The class that a class has become part of.
    pub(super) fn current(&self, class: Class) -> Class {
        self.merged.first_of(class)
    }

    /// The class of a live value of the program.
    pub(super) fn class_of_value(&self, id: ValueId) -> Option<Class> {
        self.class_of[id.index()].map(|class| self.current(class))
    }

    /// The class that an op on these operands computes, and the node; `None` where no node does so.
    pub(super) fn find(&self, made: &Made, operands: Vec<Class>) -> Option<(Class, ENode)> {
        self.find_node(ENode { head: Head::Op(*self.numbers.get(made)?), operands })
    }

    /// The class of a node, if there is one.
    pub(super) fn find_node(&self, node: ENode) -> Option<(Class, ENode)> {
        let node = self.canonical(node);
        let (class, _) = self.nodes.get(&node)?;
        Some((self.current(*class), node))
    }

    /// Makes two classes one. [`Equal::close`] then derives what follows.
    fn merge(&mut self, one: Class, other: Class) {
        debug_assert_eq!(self.types[one], self.types[other], "a rule made one class of two types");
        self.merged.join(one, other);
    }

    /// Adds what a rule has found to a class.
    pub(super) fn add_found(&mut self, class: Class, found: &Expr) {
        let place = self.fold_place_of(class);
        let new = self.add_expr(found, place);
        self.merge(class, new);
    }

    /// Adds an expression. Its inner ops are in the same folded block, and none is what a block
    /// takes.
    fn add_expr(&mut self, expr: &Expr, place: FoldPlace) -> Class {
        match expr {
            Expr::Class(class) => *class,
            Expr::Op(op, ty, operands) => {
                let inner = FoldPlace { taken: None, ..place };
                let operands =
                    operands.iter().map(|operand| self.add_expr(operand, inner)).collect();
                self.add_op(Made { op: op.clone(), ty: ty.clone(), place }, operands, false)
            }
        }
    }

    fn add_op(&mut self, made: Made, operands: Vec<Class>, written: bool) -> Class {
        let ty = made.ty.clone();
        let number = *self.numbers.entry(made.clone()).or_insert_with(|| {
            self.made.push(made);
            self.made.len() - 1
        });
        self.add(ENode { head: Head::Op(number), operands }, ty, written)
    }

    fn add(&mut self, node: ENode, ty: TensorType, written: bool) -> Class {
        let node = self.canonical(node);
        if let Some((class, is_written)) = self.nodes.get_mut(&node) {
            *is_written |= written;
            return *class;
        }
        let class = self.types.len();
        self.types.push(ty);
        self.nodes.insert(node, (class, written));
        class
    }

    /// A node with its operands as current classes, sorted where their order does not matter.
    fn canonical(&self, mut node: ENode) -> ENode {
        node.operands.iter_mut().for_each(|operand| *operand = self.current(*operand));
        let commutes = match self.op(&node) {
            Some(Op::Einsum) => true,
            Some(op) => commutes(op) && self.ty(node.operands[0]) == self.ty(node.operands[1]),
            None => false,
        };
        if commutes {
            node.operands.sort_unstable();
        }
        node
    }

    /// Derives what follows from merged classes: nodes that have become the same are in one class.
    pub(super) fn close(&mut self) {
        loop {
            let mut nodes: BTreeMap<ENode, (Class, bool)> = BTreeMap::new();
            let mut alike = Vec::new();
            for (node, (class, written)) in &self.nodes {
                let known = nodes
                    .entry(self.canonical(node.clone()))
                    .or_insert((self.current(*class), false));
                known.1 |= written;
                if known.0 != self.current(*class) {
                    alike.push((known.0, *class));
                }
            }
            self.nodes = nodes;
            if alike.is_empty() {
                break;
            }
            alike.into_iter().for_each(|(one, other)| self.merge(one, other));
        }
        self.by_class.clear();
        for first in [true, false] {
            for (node, (class, _)) in
                self.nodes.iter().filter(|(_, (_, written))| *written == first)
            {
                self.by_class.entry(*class).or_default().push(node.clone());
            }
        }
    }

    /// How many nodes there are.
    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// All classes.
    pub(super) fn classes(&self) -> Vec<Class> {
        self.by_class.keys().copied().collect()
    }

    /// The nodes of a class, those that the source has first.
    pub(super) fn nodes(&self, class: Class) -> &[ENode] {
        self.by_class.get(&class).map_or(&[], Vec::as_slice)
    }

    /// Whether the source has a node itself.
    pub(super) fn is_written(&self, node: &ENode) -> bool {
        self.nodes.get(node).is_some_and(|(_, written)| *written)
    }

    /// The operands of the einsums of a class.
    pub(super) fn einsums(&self, class: Class) -> impl Iterator<Item = &[Class]> {
        self.nodes(class)
            .iter()
            .filter(|n| self.op(n) == Some(&Op::Einsum))
            .map(|n| n.operands.as_slice())
    }

    /// Whether operands with this result are a product with a weight in blocks, which is one op.
    pub(super) fn is_scaled_product(&self, operands: &[Class], result: Class) -> bool {
        let factor = |class: &Class| {
            let TensorType { dims, dtype } = self.ty(*class);
            Factor { dims, dtype: *dtype, is_weight: self.is_weight(*class) }
        };
        let factors: Vec<Factor<'_>> = operands.iter().map(factor).collect();
        is_scaled_product(&factors, &self.ty(result).dims)
    }

    /// Whether a class is a weight, also behind pins and fetches.
    fn is_weight(&self, class: Class) -> bool {
        self.nodes(self.current(class)).iter().any(|node| match node.head {
            Head::Given(id) => {
                self.program.value(id).def.parameter().is_some_and(ParameterKind::is_weight)
            }
            Head::Pin(_) => self.is_weight(node.operands[0]),
            Head::Op(_) if self.op(node) == Some(&Op::Fetch) => self.is_weight(node.operands[0]),
            Head::Constant(..) | Head::Op(_) => false,
        })
    }

    /// The operands of the einsums of a class that have two.
    pub(super) fn products(&self, class: Class) -> impl Iterator<Item = [Class; 2]> {
        self.einsums(class).filter_map(|operands| <[Class; 2]>::try_from(operands).ok())
    }

    pub(super) fn ty(&self, class: Class) -> &TensorType {
        &self.types[self.current(class)]
    }

    pub(super) fn op(&self, node: &ENode) -> Option<&Op> {
        self.made(node).map(|made| &made.op)
    }

    /// The op of a node, with the types of its operands and its result; `None` for a node without
    /// an op.
    pub(super) fn site(&self, node: &ENode, class: Class) -> Option<Site<'_>> {
        let operands = node.operands.iter().map(|operand| self.ty(*operand));
        Some(Site {
            op: self.op(node)?,
            operands: operands.map(|ty| (ty.dims.as_slice(), ty.dtype)).collect(),
            result: &self.ty(class).dims,
            mesh: &self.program.mesh,
            dims: &self.program.dims,
            in_pieces: !self.program.strict,
            carries: None,
        })
    }

    pub(super) fn made(&self, node: &ENode) -> Option<&Made> {
        match node.head {
            Head::Op(number) => self.made.get(number),
            Head::Given(_) | Head::Constant(..) | Head::Pin(_) => None,
        }
    }

    /// Where a class is computed, which is the same for all its nodes.
    pub(super) fn fold_place_of(&self, class: Class) -> FoldPlace {
        match self.nodes(self.current(class)).first() {
            Some(node) => match node.head {
                Head::Op(number) => self.made[number].place,
                Head::Given(value) | Head::Pin(value) => {
                    FoldPlace { fold: self.program.value(value).fold, ..FoldPlace::default() }
                }
                Head::Constant(..) => FoldPlace::default(),
            },
            None => FoldPlace::default(),
        }
    }

    /// Whether a tensor with these dims is within the limits of rank and size.
    pub(super) fn fits(&self, dims: &[DimId]) -> bool {
        let elements =
            self.program.sizes(dims).iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        dims.len() <= MAX_RANK && elements.is_some_and(|n| n <= MAX_ELEMENTS)
    }
}
