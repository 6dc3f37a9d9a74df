//! Finds the form that a plan computes: the classes that each instruction may stand for, from the
//! parameters on.
//!
//! No proof depends on this search: the plan is checked against the form that is found, as against
//! any other.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::composite::composite_dim;
use shard_ir::{FoldId, InstrId, InstrKind, Op, Plan, TensorType, ValueId};

use super::equal::{Class, ENode, Equal, FoldPlace, Head, Made};
use super::read::Choice;

/// The most lists of classes that are tried as the operands of one instruction.
const MOST_READINGS: usize = 256;

/// The node that the plan takes for each class that it computes; `None` where a result of the plan
/// is no result of the program.
pub(super) fn choice_of(equal: &Equal<'_>, plan: &Plan) -> Option<Choice> {
    let mut matched = Matched::new(equal, plan)?;
    for id in plan.ids() {
        let stands = matched.stands_for(id);
        matched.stands.push(stands);
    }
    matched.read_back()
}

struct Matched<'m> {
    equal: &'m Equal<'m>,
    plan: &'m Plan,
    parameters: BTreeMap<InstrId, Class>,
    /// For each class the pins, and the softmaxes and norms, that read it.
    pins: BTreeMap<Class, Vec<(Class, ENode)>>,
    composites: BTreeMap<Class, Vec<(Class, ENode)>>,
    /// The values that folded blocks take, and `None` for an op that is no such value.
    taken: Vec<Option<ValueId>>,
    /// For each instruction so far the classes that it may stand for, each with the node and the
    /// instructions that it reads for it.
    stands: Vec<BTreeMap<Class, Derivation>>,
}

/// How an instruction comes to stand for a class: a node, and the instructions that stand for its
/// operands.
#[derive(Clone, Debug)]
struct Derivation {
    node: ENode,
    reads: Vec<InstrId>,
}

impl<'m> Matched<'m> {
    fn new(equal: &'m Equal<'m>, plan: &'m Plan) -> Option<Matched<'m>> {
        let program = equal.program;
        let given =
            plan.ids().filter(|id| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_)));
        let parameters = given
            .zip(program.parameters())
            .map(|(id, value)| Some((id, equal.class_of_value(value)?)));
        let (mut pins, mut composites) = (BTreeMap::new(), BTreeMap::new());
        for class in equal.classes() {
            for node in equal.nodes(class) {
                let by_operand: &mut BTreeMap<Class, Vec<(Class, ENode)>> =
                    match (node.head, equal.op(node)) {
                        (Head::Pin(_), _) => &mut pins,
                        (_, Some(op)) if composite_dim(op).is_some() => &mut composites,
                        (Head::Given(_) | Head::Constant(..) | Head::Op(_), _) => continue,
                    };
                by_operand.entry(*node.operands.first()?).or_default().push((class, node.clone()));
            }
        }
        let entry = |fold| program.entry(FoldId(fold)).map(|entry| program.unpinned(entry));
        Some(Matched {
            equal,
            plan,
            parameters: parameters.collect::<Option<_>>()?,
            pins,
            composites,
            taken: std::iter::once(None)
                .chain((0..program.folds.len() as u16).map(entry))
                .collect(),
            stands: Vec::new(),
        })
    }

    /// The classes that an instruction may stand for, given those of the instructions before it.
    fn stands_for(&self, id: InstrId) -> BTreeMap<Class, Derivation> {
        let instr = self.plan.instruction(id);
        let mut all = BTreeMap::new();
        match &instr.kind {
            InstrKind::Parameter(_) => {
                let class = self
                    .parameters
                    .get(&id)
                    .and_then(|class| Some((*class, self.equal.nodes(*class).first()?)));
                all.extend(class.map(|(class, node)| {
                    (class, Derivation { node: node.clone(), reads: Vec::new() })
                }));
            }
            InstrKind::Constant(number) => {
                let bits = self.plan.number(*number).to_bits();
                let node = ENode { head: Head::Constant(bits, instr.dtype), operands: Vec::new() };
                let known = self.equal.find_node(node);
                all.extend(
                    known.map(|(class, node)| (class, Derivation { node, reads: Vec::new() })),
                );
            }
            InstrKind::Move(_) => {
                if let Some(moved) = instr.operands.first() {
                    all.clone_from(&self.stands[moved.index()]);
                }
            }
            InstrKind::Op(_) if instr.origin.piece_of.is_some() => {
                self.ends_a_composite(id, &mut all)
            }
            kind @ (InstrKind::Op(_) | InstrKind::CollectiveEinsum(_)) => {
                if let Some(op) = kind.op() {
                    self.computes(id, op, &mut all);
                }
            }
        }
        // An instruction that stands for a value also stands for the pins of the value.
        let mut open: Vec<Class> = all.keys().copied().collect();
        while let Some(class) = open.pop() {
            for (pin, node) in self.pins.get(&class).into_iter().flatten() {
                if !all.contains_key(pin) {
                    all.insert(*pin, Derivation { node: node.clone(), reads: vec![id] });
                    open.push(*pin);
                }
            }
        }
        all
    }

    /// The classes that an op on these operands computes.
    fn computes(&self, id: InstrId, op: &Op, all: &mut BTreeMap<Class, Derivation>) {
        let instr = self.plan.instruction(id);
        let mut readings: Vec<Vec<Class>> = vec![Vec::new()];
        for operand in &instr.operands {
            let classes = &self.stands[operand.index()];
            let more = |reading: &Vec<Class>| {
                let reading = reading.clone();
                classes.keys().map(move |class| [&reading[..], &[*class]].concat())
            };
            readings = readings.iter().flat_map(more).take(MOST_READINGS).collect();
        }
        let ty = TensorType { dims: instr.dims.clone(), dtype: instr.dtype };
        for taken in &self.taken {
            let place = FoldPlace { fold: instr.fold, taken: *taken };
            let made = Made { op: op.clone(), ty: ty.clone(), place };
            for reading in &readings {
                if let Some((class, node)) = self.equal.find(&made, reading.clone()) {
                    all.entry(class).or_insert(Derivation { node, reads: instr.operands.clone() });
                }
            }
        }
    }

    /// Adds the softmaxes and norms whose last piece an instruction may be: their operand is read
    /// by it or by a piece before it.
    fn ends_a_composite(&self, id: InstrId, all: &mut BTreeMap<Class, Derivation>) {
        let last = self.plan.instruction(id);
        let (mut open, mut seen) = (last.operands.clone(), BTreeSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            for class in self.stands[id.index()].keys() {
                for (composite, node) in self.composites.get(class).into_iter().flatten() {
                    let ty = self.equal.ty(*composite);
                    if ty.dims == last.dims && ty.dtype == last.dtype {
                        all.entry(*composite)
                            .or_insert(Derivation { node: node.clone(), reads: vec![id] });
                    }
                }
            }
            let instr = self.plan.instruction(id);
            if instr.origin.piece_of.is_some() || matches!(instr.kind, InstrKind::Move(_)) {
                open.extend(&instr.operands);
            }
        }
    }

    /// The nodes that the results are made of, from the results back.
    fn read_back(&self) -> Option<Choice> {
        let mut choice = Choice::new();
        let mut open: Vec<(Class, InstrId)> = Vec::new();
        for (output, made) in self.equal.program.outputs.iter().zip(&self.plan.outputs) {
            open.push((self.equal.class_of_value(output.value)?, made.id));
        }
        let mut seen = BTreeSet::new();
        while let Some((class, id)) = open.pop() {
            if !seen.insert((class, id)) {
                continue;
            }
            let instr = self.plan.instruction(id);
            if let (InstrKind::Move(_), Some(moved)) = (&instr.kind, instr.operands.first()) {
                let derivation = self.stands[id.index()].get(&class)?;
                // A move stands for what its operand stands for, so the operand is looked at
                // instead; but a pin is looked at here where the operand does not meet it yet.
                if !matches!(derivation.node.head, Head::Pin(_))
                    || self.stands[moved.index()].contains_key(&class)
                {
                    open.push((class, *moved));
                    continue;
                }
            }
            let derivation = self.stands[id.index()].get(&class)?;
            choice.entry(class).or_insert_with(|| derivation.node.clone());
            let operands = &derivation.node.operands;
            if let (Head::Pin(_), Some(operand)) = (derivation.node.head, operands.first()) {
                open.push((*operand, id));
                continue;
            }
            // A node has its operands in its own order: each is matched with a remaining
            // instruction that stands for it.
            let mut left: Vec<InstrId> = derivation.reads.clone();
            for operand in operands {
                let at =
                    left.iter().position(|read| self.stands[read.index()].contains_key(operand))?;
                open.push((*operand, if left.len() > 1 { left.remove(at) } else { left[at] }));
            }
        }
        // Parameters and live pins that no result needs are chosen in their only way.
        for class in super::read::roots(self.equal) {
            self.fill(class, &mut choice);
        }
        Some(choice)
    }

    /// Takes the first node of a class, and of what it needs, where none is chosen yet.
    fn fill(&self, class: Class, choice: &mut Choice) {
        let mut open = vec![class];
        while let Some(class) = open.pop() {
            if !choice.contains_key(&class)
                && let Some(node) = self.equal.nodes(class).first()
            {
                choice.insert(class, node.clone());
            }
            if let Some(node) = choice.get(&class).cloned() {
                open.extend(node.operands.iter().filter(|o| !choice.contains_key(o)));
            }
        }
    }
}
