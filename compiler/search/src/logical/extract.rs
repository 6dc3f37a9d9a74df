//! Reads forms off the logical e-graph: a form takes one e-node of each class that a result or a
//! pin needs.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;
use shard_ir::{Def, Op, ValueId};

use super::Form;
use super::fewest::FewestFlops;
use super::graph::{Logical, LogicalNode};
use super::writer::FormReader;

/// The e-node taken of each class.
pub(super) type Selection<'a> = BTreeMap<Id, &'a LogicalNode>;

/// The forms that were read off.
pub(super) struct Read {
    /// Forms other than the one written, those of fewest flops, sorted by flops.
    pub(super) forms: Vec<Form>,
    /// The fewest flops of the forms that were found and left out, if any were.
    pub(super) beyond: Option<u128>,
    /// A lower bound on the flops of forms that were not found, if there may be any.
    pub(super) cut: Option<u128>,
}

/// Finds at most `limit` forms, and writes at most `most` of them down as programs.
pub(super) fn read_off(logical: &Logical<'_>, strict: bool, limit: usize, most: usize) -> Read {
    let classes = logical.classes();
    let mut options = options(logical, &classes);
    let live = logical.program.live();
    let merged = is_merged(logical, &live);
    if (!merged || strict) && options.values().all(|nodes| nodes.len() == 1) {
        return Read { forms: Vec::new(), beyond: None, cut: None };
    }
    let roots = roots(logical, &live);
    let mut found = Vec::new();
    let mut cut = None;
    if !choose(&options, roots.clone(), BTreeMap::new(), limit, &mut found) {
        // E-nodes of few flops come first, so that forms of few flops are found.
        cut = Some(FewestFlops::at_least(logical, &options, &roots).of_all(&roots));
        let fewest = FewestFlops::computed_anew(logical, &options);
        for nodes in options.values_mut() {
            nodes.sort_by_cached_key(|node| fewest.of(logical, node));
        }
        found.clear();
        choose(&options, roots, BTreeMap::new(), limit, &mut found);
    }
    let flops =
        |choice: &Selection<'_>| choice.values().map(|node| logical.flops_of(node)).sum::<u128>();
    found.sort_by_cached_key(flops);
    let reader = FormReader::new(logical, live);
    let mut forms = found.iter().filter_map(|choice| reader.form(choice, merged));
    let first: Vec<Form> = forms.by_ref().take(most).collect();
    let beyond = forms.next().map(|form| form.flops);
    Read { forms: first, beyond, cut }
}

/// Whether the source computes something twice. A class is one value in every form, so that the
/// form written is then none of those that are read off.
pub(super) fn is_merged(logical: &Logical<'_>, live: &[bool]) -> bool {
    let is_constant = |id: &ValueId| matches!(logical.program.value(*id).def, Def::Constant(_));
    let counts = |id: &ValueId| live[id.index()] && !is_constant(id);
    let written: Vec<Id> =
        logical.program.value_ids().filter(counts).filter_map(|id| logical.class_of(id)).collect();
    written.len() > written.iter().collect::<BTreeSet<_>>().len()
}

/// The classes that every form must have: results, pins, and parameters.
pub(super) fn roots(logical: &Logical<'_>, live: &[bool]) -> Vec<Id> {
    let program = logical.program;
    let stays =
        |id: &ValueId| matches!(program.value(*id).def, Def::Pin { .. } | Def::Parameter { .. });
    let stays = program.value_ids().filter(|id| live[id.index()] && stays(id));
    program
        .outputs
        .iter()
        .map(|o| o.value)
        .chain(stays)
        .filter_map(|id| logical.class_of(id))
        .collect()
}

/// The e-nodes that a form may take of each class: all but einsums of more than two operands that
/// are also there as chains, and e-nodes that read their own class.
pub(super) fn options<'a>(
    logical: &'a Logical<'_>,
    classes: &[Id],
) -> BTreeMap<Id, Vec<&'a LogicalNode>> {
    let is_long = |n: &LogicalNode, class: Id| {
        logical.op(n) == Some(&Op::Einsum)
            && n.operands.len() > 2
            && !logical.is_scaled_product(&n.operands, class)
    };
    let mut all: BTreeMap<Id, Vec<&LogicalNode>> = classes
        .iter()
        .map(|class| {
            let of_itself = |n: &LogicalNode| n.operands.contains(class);
            let nodes = logical.nodes(*class).iter();
            (*class, nodes.filter(|n| !is_long(n, *class) && !of_itself(n)).collect())
        })
        .collect();
    // A limit may have left a class without any e-node. E-nodes that read such a class go, too.
    while let Some(empty) = all.iter().find(|(_, nodes)| nodes.is_empty()).map(|(class, _)| *class)
    {
        all.remove(&empty);
        all.values_mut().for_each(|nodes| nodes.retain(|n| !n.operands.contains(&empty)));
    }
    all
}

/// Finds every selection of e-nodes for the classes that the `open` ones need; `false` once there
/// are more than `limit`.
fn choose<'a>(
    options: &BTreeMap<Id, Vec<&'a LogicalNode>>,
    mut open: Vec<Id>,
    mut chosen: Selection<'a>,
    limit: usize,
    found: &mut Vec<Selection<'a>>,
) -> bool {
    while let Some(class) = open.pop() {
        if chosen.contains_key(&class) {
            continue;
        }
        match options.get(&class).map(Vec::as_slice) {
            None | Some([]) => return true,
            Some([only]) => {
                chosen.insert(class, only);
                open.extend(&only.operands);
            }
            Some(several) => {
                return several.iter().all(|node| {
                    let mut chosen = chosen.clone();
                    chosen.insert(class, node);
                    let open = open.iter().chain(&node.operands).copied().collect();
                    choose(options, open, chosen, limit, found)
                });
            }
        }
    }
    if found.len() == limit {
        return false;
    }
    found.push(chosen);
    true
}
