//! Forms as choices of nodes: one node for each class that a result or a pin needs.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::{Def, Op, Output, Program, Value, ValueId};

use super::equal::{Class, ENode, Equal, Head};

/// The node that is taken for each class that is needed.
pub(super) type Choice = BTreeMap<Class, ENode>;

/// All forms except the one that is written; `None` where there are more than `most` choices.
pub(super) fn forms(equal: &Equal<'_>, most: usize) -> Option<Vec<Program>> {
    let merges = merges(equal);
    let nodes = nodes_to_take(equal);
    if (!merges || equal.program.strict) && nodes.values().all(|nodes| nodes.len() == 1) {
        return Some(Vec::new());
    }
    let mut choices = Vec::new();
    choose(&nodes, roots(equal), Choice::new(), most, &mut choices)?;
    let is_written = |choice: &Choice| choice.values().all(|node| equal.is_written(node));
    let others = choices.iter().filter(|choice| merges || !is_written(choice));
    Some(others.filter_map(|choice| write(equal, choice)).map(|form| form.program).collect())
}

/// Whether the source computes the same value twice. Every form but the written one computes it
/// once.
pub(super) fn merges(equal: &Equal<'_>) -> bool {
    let live = equal.program.live_values();
    let is_constant = |id: &ValueId| matches!(equal.program.value(*id).def, Def::Constant(_));
    let classes: Vec<Class> = live
        .into_iter()
        .filter(|id| !is_constant(id))
        .filter_map(|id| equal.class_of_value(id))
        .collect();
    classes.iter().collect::<BTreeSet<_>>().len() < classes.len()
}

/// The classes of the results, and of the pins and parameters, which every form keeps.
pub(super) fn roots(equal: &Equal<'_>) -> Vec<Class> {
    let program = equal.program;
    let stays =
        |id: &ValueId| matches!(program.value(*id).def, Def::Pin { .. } | Def::Parameter { .. });
    let live = program.live_values().into_iter().filter(stays);
    program
        .outputs
        .iter()
        .map(|output| output.value)
        .chain(live)
        .filter_map(|id| equal.class_of_value(id))
        .collect()
}

/// The nodes that can be taken for each class. An einsum of more than two operands is not taken,
/// since its class also has products of two, unless it is a product with a weight in blocks; nor is
/// a node that reads its own class.
pub(super) fn nodes_to_take<'e>(equal: &'e Equal<'_>) -> BTreeMap<Class, Vec<&'e ENode>> {
    let of = |class: Class| {
        let is_long = |node: &ENode| {
            equal.op(node) == Some(&Op::Einsum)
                && node.operands.len() > 2
                && !equal.is_scaled_product(&node.operands, class)
        };
        let is_taken = |node: &&ENode| !is_long(node) && !node.operands.contains(&class);
        (class, equal.nodes(class).iter().filter(is_taken).collect())
    };
    let mut nodes: BTreeMap<Class, Vec<&ENode>> = equal.classes().into_iter().map(of).collect();
    // A class without a node cannot be computed: it is removed, with every node that reads it.
    while let Some(empty) =
        nodes.iter().find(|(_, nodes)| nodes.is_empty()).map(|(class, _)| *class)
    {
        nodes.remove(&empty);
        nodes.values_mut().for_each(|nodes| nodes.retain(|node| !node.operands.contains(&empty)));
    }
    nodes
}

/// Collects every choice of nodes for the classes that are needed; `None` where there are more than
/// `most`.
fn choose(
    nodes: &BTreeMap<Class, Vec<&ENode>>,
    mut needed: Vec<Class>,
    mut chosen: Choice,
    most: usize,
    found: &mut Vec<Choice>,
) -> Option<()> {
    while let Some(class) = needed.pop() {
        if chosen.contains_key(&class) {
            continue;
        }
        let all = nodes.get(&class).map_or(&[][..], Vec::as_slice);
        let [only] = all else {
            for node in all {
                let mut chosen = chosen.clone();
                chosen.insert(class, (*node).clone());
                choose(nodes, [&needed[..], &node.operands].concat(), chosen, most, found)?;
            }
            return Some(());
        };
        chosen.insert(class, (*only).clone());
        needed.extend(&only.operands);
    }
    found.push(chosen);
    (found.len() <= most).then_some(())
}

/// A form, with the class of each of its values.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) program: Program,
    pub(crate) classes: Vec<Class>,
}

/// The program of a choice; `None` where classes of the choice would need each other in a circle.
pub(super) fn write(equal: &Equal<'_>, choice: &Choice) -> Option<Written> {
    let program = equal.program;
    let live = program.live_values();
    let mut source: BTreeMap<Class, Vec<ValueId>> = BTreeMap::new();
    for id in &live {
        source.entry(equal.class_of_value(*id)?).or_default().push(*id);
    }
    let (values, done, open) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    let mut writer = Writer { equal, choice, source, values, classes: Vec::new(), done, open };
    let is_given = |id: &ValueId| matches!(program.value(*id).def, Def::Parameter { .. });
    let (given, others): (Vec<ValueId>, Vec<ValueId>) = live.iter().partition(|id| is_given(id));
    for id in given.into_iter().chain(others) {
        let class = equal.class_of_value(id)?;
        if choice.contains_key(&class) {
            writer.write(class, id)?;
        }
    }
    let output = |output: &Output| {
        let value = *writer.done.get(&equal.class_of_value(output.value)?)?;
        Some(Output { value, ..output.clone() })
    };
    let outputs = program.outputs.iter().map(output).collect::<Option<Vec<_>>>()?;
    let written = Program { values: Vec::new(), outputs, ..program.without_values() };
    Some(Written { program: Program { values: writer.values, ..written }, classes: writer.classes })
}

/// Writes the program of a choice, operands before the values that read them.
struct Writer<'e, 'c> {
    equal: &'e Equal<'e>,
    choice: &'c Choice,
    /// For each class the live values of the source that are in it.
    source: BTreeMap<Class, Vec<ValueId>>,
    values: Vec<Value>,
    classes: Vec<Class>,
    done: BTreeMap<Class, ValueId>,
    /// The classes whose operands are being written; a class that needs one of these needs itself.
    open: BTreeSet<Class>,
}

impl Writer<'_, '_> {
    /// Writes a class and returns its value. `cause` is the value of the source that needs it.
    fn write(&mut self, class: Class, cause: ValueId) -> Option<ValueId> {
        if let Some(known) = self.done.get(&class) {
            return Some(*known);
        }
        if !self.open.insert(class) {
            return None;
        }
        let (program, node) = (self.equal.program, self.choice.get(&class)?);
        let here = self.source.get(&class).cloned().unwrap_or_default();
        let cause = here.first().copied().unwrap_or(cause);
        let operands = node
            .operands
            .iter()
            .map(|operand| self.write(*operand, cause))
            .collect::<Option<Vec<_>>>()?;
        let source = program.value(cause);
        let (mut fold, mut times) = (source.fold, source.times);
        let def = match node.head {
            Head::Given(id) => program.value(id).def.clone(),
            Head::Constant(bits, _) => Def::Constant(f64::from_bits(bits)),
            Head::Pin(id) => match &program.value(id).def {
                Def::Pin { pattern, written, .. } => Def::Pin {
                    operand: *operands.first()?,
                    pattern: pattern.clone(),
                    written: *written,
                },
                Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => return None,
            },
            Head::Op(_) => {
                let made = self.equal.made(node)?;
                // An op is in the folded block of its class; its cause may be in another, and read
                // it from outside.
                fold = made.place.fold;
                let copies = fold
                    .and_then(|fold| program.folds.get(fold.index()))
                    .map_or(1, |fold| fold.repeat);
                times = (source.times / program.copies(cause).max(1)).saturating_mul(copies);
                Def::Op { op: made.op.clone(), operands }
            }
        };
        let name = here.iter().find_map(|id| program.value(*id).name.clone());
        let ty = self.equal.ty(class).clone();
        let (span, in_layers) = (source.span, source.in_layers.clone());
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value {
            name,
            dims: ty.dims,
            dtype: ty.dtype,
            def,
            span,
            in_layers,
            times,
            fold,
        });
        self.classes.push(class);
        self.open.remove(&class);
        self.done.insert(class, id);
        Some(id)
    }
}
