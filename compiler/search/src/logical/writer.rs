//! Writes forms down as programs, given the e-node that is taken of each class.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;
use shard_ir::reason::{Formula, Rewriting};
use shard_ir::{Def, DimId, LayoutPattern, Op, ParameterKind, Program, Value, ValueId};

use super::extract::Selection;
use super::graph::{Head, Logical, LogicalNode};
use super::{Form, Rewritten};
use crate::rules;

/// Makes programs of selections of e-nodes.
pub(super) struct FormReader<'a> {
    pub(super) logical: &'a Logical<'a>,
    live: Vec<bool>,
    /// For each class the live values of the source that it stands for.
    values: BTreeMap<Id, Vec<ValueId>>,
}

impl<'a> FormReader<'a> {
    pub(super) fn new(logical: &'a Logical<'a>, live: Vec<bool>) -> FormReader<'a> {
        let mut values: BTreeMap<Id, Vec<ValueId>> = BTreeMap::new();
        for id in logical.program.value_ids().filter(|id| live[id.index()]) {
            if let Some(class) = logical.class_of(id) {
                values.entry(class).or_default().push(id);
            }
        }
        FormReader { logical, live, values }
    }

    /// The form of a selection; `None` for the form that is written, and where classes need each
    /// other.
    pub(super) fn form(&self, choice: &Selection<'_>, merged: bool) -> Option<Form> {
        let as_written = choice.values().all(|node| node.rule.is_none());
        if as_written && !merged {
            return None;
        }
        self.form_with_classes(choice, merged).map(|(form, _)| form)
    }

    /// The fragment of a form with some classes and their surroundings.
    pub(super) fn part(
        &self,
        choice: &Selection<'_>,
        wanted: &Surroundings,
        empty: &Program,
    ) -> Option<Fragment> {
        let source = self.logical.program;
        let mut writer = Writer {
            reader: self,
            choice,
            wanted: Some(wanted),
            program: empty.clone(),
            made: BTreeMap::new(),
            now: BTreeMap::new(),
            classes: Vec::new(),
            open: BTreeSet::new(),
        };
        let cause = wanted.of.iter().find_map(|class| self.values.get(class)?.first().copied())?;
        for class in
            wanted.of.iter().chain(&wanted.readers).filter(|class| choice.contains_key(class))
        {
            writer.write(*class, cause)?;
        }
        let mut outputs = Vec::new();
        for (i, output) in source.outputs.iter().enumerate() {
            let class =
                self.logical.class_of(output.value).filter(|class| wanted.of.contains(class));
            if let Some(value) = class.and_then(|class| writer.now.get(&class)) {
                writer.program.outputs.push(shard_ir::Output { value: *value, ..output.clone() });
                outputs.push(i);
            }
        }
        // The values that read the classes are results of the fragment, so that none is left out.
        let program = &mut writer.program;
        for value in wanted.readers.iter().filter_map(|class| writer.now.get(class).copied()) {
            let Value { dims, span, .. } = program.value(value).clone();
            let pattern = LayoutPattern::any(dims.len(), true);
            program.outputs.push(shard_ir::Output {
                name: String::new(),
                value,
                dims,
                pattern,
                span,
                state: false,
            });
        }
        Some(Fragment { program: writer.program, classes: writer.classes, outputs })
    }

    /// The form of a selection and the class of each of its values; `None` where classes need each
    /// other.
    pub(super) fn form_with_classes(
        &self,
        choice: &Selection<'_>,
        merged: bool,
    ) -> Option<(Form, Vec<Id>)> {
        let source = self.logical.program;
        let mut writer = Writer {
            reader: self,
            choice,
            wanted: None,
            program: source.without_values(),
            made: BTreeMap::new(),
            now: BTreeMap::new(),
            classes: Vec::new(),
            open: BTreeSet::new(),
        };
        let is_given = |id: &ValueId| matches!(source.value(*id).def, Def::Parameter { .. });
        for id in
            source.value_ids().filter(is_given).chain(source.value_ids().filter(|id| !is_given(id)))
        {
            let class = self
                .logical
                .class_of(id)
                .filter(|class| self.live[id.index()] && choice.contains_key(class));
            if let Some(class) = class {
                writer.write(class, id)?;
            }
        }
        for output in &source.outputs {
            let value = *writer.now.get(&self.logical.class_of(output.value)?)?;
            writer.program.outputs.push(shard_ir::Output { value, ..output.clone() });
        }
        let is_order = |node: &LogicalNode| node.rule.is_none_or(|rule| rule == rules::LONG_EINSUM);
        let form = Form {
            program: writer.program,
            rewritten: merged || !choice.values().all(|node| is_order(node)),
            made: writer.made,
            flops: choice.values().map(|node| self.logical.flops_of(node)).sum(),
        };
        Some((form, writer.classes))
    }
}

/// The classes of a fragment.
pub(super) struct Surroundings {
    /// The classes that it is about.
    pub(super) of: BTreeSet<Id>,
    /// The classes of what they read, pins and what is behind the pins: kernels depend on these.
    pub(super) makers: BTreeSet<Id>,
    /// The classes that read them.
    pub(super) readers: BTreeSet<Id>,
}

impl Surroundings {
    fn has(&self, class: Id) -> bool {
        [&self.of, &self.makers, &self.readers].iter().any(|classes| classes.contains(&class))
    }
}

/// Some classes of a form and their surroundings as a program of its own, in which all else that
/// these read is given.
pub(crate) struct Fragment {
    pub(crate) program: Program,
    /// The class of each value.
    pub(crate) classes: Vec<Id>,
    /// The first results of the fragment as numbers of results of the source. Its other results are
    /// values that are read outside of it.
    pub(crate) outputs: Vec<usize>,
}

/// A form being written down.
struct Writer<'a, 'c> {
    reader: &'a FormReader<'a>,
    choice: &'c Selection<'c>,
    /// The classes that are written; all for `None`.
    wanted: Option<&'c Surroundings>,
    program: Program,
    made: BTreeMap<ValueId, Rewritten>,
    now: BTreeMap<Id, ValueId>,
    /// The class of each value of the program.
    classes: Vec<Id>,
    /// Classes whose operands are being written.
    open: BTreeSet<Id>,
}

impl Writer<'_, '_> {
    /// The value of a class, which is written now if it is not there yet. `cause` is the value of
    /// the source that needs it. `None` where classes need each other.
    fn write(&mut self, class: Id, cause: ValueId) -> Option<ValueId> {
        if let Some(known) = self.now.get(&class) {
            return Some(*known);
        }
        if !self.open.insert(class) {
            return None;
        }
        let (logical, node) = (self.reader.logical, *self.choice.get(&class)?);
        if self.wanted.is_some_and(|wanted| !wanted.has(class)) {
            return Some(self.give(class, cause));
        }
        let here = self.reader.values.get(&class).map_or(&[][..], Vec::as_slice);
        let cause = here.first().copied().unwrap_or(cause);
        let operands = self.in_order(node, here);
        let operands =
            operands.iter().map(|o| self.write(*o, cause)).collect::<Option<Vec<_>>>()?;
        let source = logical.program.value(cause);
        let def = match node.head {
            Head::Given(id) => logical.program.value(id).def.clone(),
            Head::Constant(bits, _) => Def::Constant(f64::from_bits(bits)),
            Head::Pin(id) => match &logical.program.value(id).def {
                Def::Pin { pattern, written, .. } => Def::Pin {
                    operand: *operands.first()?,
                    pattern: pattern.clone(),
                    written: *written,
                },
                Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => return None,
            },
            Head::Op(number) => Def::Op { op: logical.made(number).op.clone(), operands },
        };
        let name = here.iter().find_map(|id| logical.program.value(*id).name.clone());
        let ty = logical.ty(class).clone();
        let (span, in_layers) = (source.span, source.in_layers.clone());
        // An op is in the folded block of its class. Its cause may be in another one, and read it
        // from outside.
        let (fold, times) = match node.head {
            Head::Op(number) => {
                let (fold, outside) = (
                    logical.made(number).place.fold,
                    source.times / logical.program.copies(cause).max(1),
                );
                let copies =
                    fold.and_then(|f| logical.program.folds.get(f.index())).map_or(1, |f| f.repeat);
                (fold, outside.saturating_mul(copies))
            }
            Head::Given(_) | Head::Constant(..) | Head::Pin(_) => (source.fold, source.times),
        };
        let id = ValueId(self.program.values.len() as u32);
        let is_op = matches!(def, Def::Op { .. });
        let is_mask = |id: ValueId| {
            matches!(logical.program.value(id).def, Def::Op { op: Op::Mask { .. }, .. })
        };
        self.program.values.push(Value {
            name,
            dims: ty.dims,
            dtype: ty.dtype,
            def,
            span,
            in_layers,
            times,
            fold,
        });
        let rule = match node.rule {
            Some(rule) => Some(rule),
            None if is_op && here.len() > 1 => Some(if here.iter().any(|id| is_mask(*id)) {
                rules::UNMASKED
            } else {
                rules::MERGED
            }),
            None => None,
        };
        if let Some(rule) = rule.filter(|_| self.wanted.is_none()) {
            self.made.insert(id, Rewritten { rule, reason: self.reason(rule, class, node, here) });
        }
        self.now.insert(class, id);
        self.classes.push(class);
        Some(id)
    }

    /// The operands of an e-node, in the order in which the source writes them if it does not
    /// matter.
    fn in_order(&self, node: &LogicalNode, here: &[ValueId]) -> Vec<Id> {
        let logical = self.reader.logical;
        let as_written = |id: &ValueId| match &logical.program.value(*id).def {
            Def::Op { op, operands } if logical.op(node) == Some(op) => {
                operands.iter().map(|o| logical.class_of(*o)).collect::<Option<Vec<Id>>>()
            }
            Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => None,
        };
        let sorted = |operands: &[Id]| {
            let mut operands = operands.to_vec();
            operands.sort_unstable();
            operands
        };
        let is_same = |operands: &Vec<Id>| sorted(operands) == sorted(&node.operands);
        here.iter().filter_map(as_written).find(is_same).unwrap_or_else(|| node.operands.clone())
    }

    /// A parameter that stands for a class, of which only the type is known.
    fn give(&mut self, class: Id, cause: ValueId) -> ValueId {
        let (id, ty) =
            (ValueId(self.program.values.len() as u32), self.reader.logical.ty(class).clone());
        let source = self.reader.logical.program.value(cause);
        let pattern = LayoutPattern::any(ty.dims.len(), true);
        let def = Def::Parameter { kind: ParameterKind::Activation, pattern };
        let (span, in_layers) = (source.span, Vec::new());
        let given = Value {
            name: None,
            dims: ty.dims,
            dtype: ty.dtype,
            def,
            span,
            in_layers,
            times: 1,
            fold: None,
        };
        self.program.values.push(given);
        self.now.insert(class, id);
        self.classes.push(class);
        id
    }

    fn reason(
        &self,
        rule: rules::Rule,
        class: Id,
        node: &LogicalNode,
        here: &[ValueId],
    ) -> Option<Rewriting> {
        let logical = self.reader.logical;
        if rule == rules::LONG_EINSUM || rule == rules::UNMASKED {
            return None;
        }
        let in_parts = [
            rules::CUMSUM_IN_PARTS,
            rules::SCAN_IN_PARTS,
            rules::SHIFT_IN_PARTS,
            rules::CONV_IN_PARTS,
            rules::LARGEST_OF_PARTS,
        ];
        if in_parts.contains(&rule) {
            return self.in_parts(node, here);
        }
        if rule == rules::MERGED {
            let names = here
                .iter()
                .filter_map(|id| crate::emit::name_of(logical.program, *id))
                .map(str::to_string);
            return Some(Rewriting::Merged { times: here.len(), names: names.collect() });
        }
        // The flops are compared with those of the value as it is written, if it is in the source.
        here.first()?;
        let (before, after) = (self.flops(class, true), self.flops(class, false));
        let flops = (before != after).then_some((after, before));
        Some(Rewriting::Computed { formula: self.formula(class, node), flops })
    }

    /// How a value of the source is computed by an e-node that puts it together from parts of a
    /// dim.
    fn in_parts(&self, node: &LogicalNode, here: &[ValueId]) -> Option<Rewriting> {
        let program = self.reader.logical.program;
        let Def::Op { op, .. } = &program.value(*here.first()?).def else { return None };
        let parts_of = |all: DimId| {
            let choice = program.cuts.choices.iter().find(|choice| choice.all == all)?;
            Some((choice.of, choice.parts))
        };
        let made_by = self.reader.logical.op(node)?;
        let (over, parts) = if let Op::Merge { from, to } = made_by {
            (*to, *program.sizes(from).first()?)
        } else if let Op::TopK { over, .. } | Op::Take { over } = made_by {
            parts_of(*over)?
        } else {
            return None;
        };
        Some(Rewriting::InParts { op: op.clone(), over, parts })
    }

    /// An e-node as a formula over values that have names.
    fn formula(&self, class: Id, node: &LogicalNode) -> Formula {
        let logical = self.reader.logical;
        let operand = |id: &Id| {
            let here = self.reader.values.get(id).into_iter().flatten();
            let name = here.filter_map(|v| crate::emit::name_of(logical.program, *v)).next();
            match (name, self.choice.get(id)) {
                (Some(name), _) => Formula::Named(name.to_string()),
                (None, Some(node)) => self.formula(*id, node),
                (None, None) => Formula::Unknown,
            }
        };
        match logical.op(node) {
            Some(op) => Formula::Op {
                op: op.clone(),
                operands: node.operands.iter().map(operand).collect(),
            },
            None => Formula::Other(usize::from(class)),
        }
    }

    /// The flops of a class and of all that it is made from, in the form or as written.
    fn flops(&self, class: Id, as_written: bool) -> f64 {
        let logical = self.reader.logical;
        let (mut seen, mut open, mut sum) = (BTreeSet::new(), vec![class], 0u128);
        while let Some(class) = open.pop() {
            if !seen.insert(class) {
                continue;
            }
            let node = if as_written {
                logical.nodes(class).iter().find(|n| {
                    n.rule.is_none()
                        && !(logical.op(n) == Some(&Op::Einsum)
                            && n.operands.len() > 2
                            && !logical.is_scaled_product(&n.operands, class))
                })
            } else {
                self.choice.get(&class).copied()
            };
            if let Some(node) = node {
                sum += logical.flops_of(node);
                open.extend(&node.operands);
            }
        }
        sum as f64
    }
}
