//! Problems made from a problem at hand: other layout patterns, fixed labels, and some strategies
//! or nodes alone.

use std::cmp::Reverse;
use std::sync::Arc;

use shard_ir::{AxisSet, Def, LabelId, Layout, LayoutPattern, Program, ValueId};

use super::super::graph::NodeId;
use super::{Factor, Factors, Renamed, StrategyLayouts, ValueUse, allowed};
use crate::labels::label_layout;

impl Factors {
    /// The problem of a program that differs only in layout patterns; `None` where a pin lies
    /// within a kernel, or what a pin reads has no node for a layout of the new pattern.
    pub(crate) fn with_patterns(&self, program: &Program, maxima: AxisSet) -> Option<Factors> {
        let mut other = self.clone();
        for id in &self.live {
            let v = id.index();
            let factor = match &program.value(*id).def {
                Def::Parameter { pattern, .. } => {
                    Factor::given(&allowed(&self.graphs, program, *id, pattern, maxima))
                }
                Def::Pin { .. } if !self.states[v].of.is_empty() => return None,
                Def::Pin { pattern, .. } => {
                    let nodes = allowed(&self.graphs, program, *id, pattern, maxima);
                    // The operand has nodes for the layouts that the old pattern asked for, and
                    // perhaps no others.
                    let is_read = |node: &NodeId| {
                        let layout = self.layout(*id, *node);
                        self.operands[v].iter().all(|read| {
                            (*node as usize) < self.nodes(*read)
                                && self.layout(*read, *node) == layout
                        })
                    };
                    if !nodes.iter().all(is_read) {
                        return None;
                    }
                    Factor::passed(&nodes)
                }
                Def::Constant(_) | Def::Op { .. } => continue,
            };
            other.factors[v] = Arc::new(factor);
        }
        for (output, (value, nodes)) in program.outputs.iter().zip(&mut other.outputs) {
            *nodes = allowed(&self.graphs, program, *value, &output.pattern, maxima);
        }
        Some(other)
    }

    /// The problem, which is that of `program`, without the plans of `other`, a program that allows
    /// less. If the programs differ at one place, only the layouts stay there that `other` does not
    /// allow. If they differ at several places, everything stays: a plan that `other` lacks may
    /// still have, at any one of them, a layout that `other` allows.
    pub(crate) fn without_plans_of(self, other: &Program, program: &Program) -> Factors {
        let of_value = |id: &ValueId| {
            let less = other.value(*id).def.pattern()?;
            (Some(less) != program.value(*id).def.pattern()).then(|| (*id, less.clone()))
        };
        let values: Vec<(ValueId, LayoutPattern)> = self.live.iter().filter_map(of_value).collect();
        let results = other.outputs.iter().zip(&program.outputs).enumerate();
        let results: Vec<(usize, &LayoutPattern)> = results
            .filter(|(_, (less, more))| less.pattern != more.pattern)
            .map(|(i, (less, _))| (i, &less.pattern))
            .collect();
        match (values.as_slice(), results.as_slice()) {
            ([(id, less)], []) => self.allowing(*id, &|out, _| !less.admits(out)),
            ([], [(result, less)]) => {
                let mut wanted = self.clone();
                let (value, nodes) = &mut wanted.outputs[*result];
                nodes.retain(|node| self.layout(*value, *node).is_none_or(|l| !less.admits(l)));
                wanted
            }
            _ => self,
        }
    }

    /// Whether `other`, which differs in layout patterns ([`Factors::with_patterns`]), allows only
    /// layouts of pins and results that this problem allows, too.
    pub(crate) fn narrows(&self, other: &Factors) -> bool {
        let fewer = |few: &[NodeId], of: &[NodeId]| few.iter().all(|node| of.contains(node));
        let pins = self.live.iter().all(|id| {
            let (a, b) = (&self.factors[id.index()], &other.factors[id.index()]);
            a.arity == 0 || Arc::ptr_eq(a, b) || fewer(&b.out, &a.out)
        });
        let mut results = other.outputs.iter().zip(&self.outputs);
        pins && results.all(|((_, few), (_, of))| fewer(few, of))
    }

    /// The problem with labels fixed: each parameter, pin and result that bears a label has the
    /// layout of the label.
    pub(crate) fn with_labels(&self, program: &Program, labels: &[Layout]) -> Factors {
        let mut narrowed = self.clone();
        let wanted = |pattern: &LayoutPattern| pattern.label.map(|LabelId(l)| labels[l as usize]);
        for id in &self.live {
            let Some(wanted) = program.value(*id).def.pattern().and_then(wanted) else { continue };
            let factor = &self.factors[id.index()];
            let is_kept = |s: usize| self.has_label_layout(program, *id, factor.out[s], wanted);
            narrowed.factors[id.index()] = Arc::new(factor.keeping(&is_kept));
        }
        for (output, (value, allowed)) in program.outputs.iter().zip(&mut narrowed.outputs) {
            if let Some(wanted) = wanted(&output.pattern) {
                allowed.retain(|n| self.has_label_layout(program, *value, *n, wanted));
            }
        }
        narrowed
    }

    /// The problem without those strategies of a value for which `allowed` says no, given the
    /// layout of the result and the layouts of the operands.
    pub(crate) fn allowing(
        &self,
        value: ValueId,
        allowed: &dyn Fn(Layout, &[Layout]) -> bool,
    ) -> Factors {
        let mut narrowed = self.clone();
        narrowed.keep(value, &|s| {
            let layouts = self.layouts_of(value, s);
            layouts.is_some_and(|StrategyLayouts { made, read }| allowed(made, &read))
        });
        narrowed
    }

    /// Leaves to a value only the strategies for which `keep` says yes, given their numbers.
    pub(crate) fn keep(&mut self, value: ValueId, keep: &dyn Fn(usize) -> bool) {
        let factor = &mut self.factors[value.index()];
        if !(0..factor.out.len()).all(keep) {
            *factor = Arc::new(factor.keeping(keep));
        }
    }

    /// Leaves one reader to a value: its other readers have it in any layout and at no cost, so no
    /// plan takes more than before. The same holds of the results that are this value. The layout
    /// of such a result then has nothing to do with that of the value, so that no part may have a
    /// place there ([`Part::without_results`](super::super::parts::Part::without_results)).
    pub(crate) fn read_by_one(&mut self, value: ValueId, reader: ValueId) {
        let others = self.uses[value.index()].iter().filter_map(|of| match of {
            ValueUse::Operand(by, place) if *by != reader => Some((*by, *place)),
            ValueUse::Operand(..) | ValueUse::Output(_) => None,
        });
        let mut others: Vec<(ValueId, usize)> = others.collect();
        // The last places come first, so that the places before them keep their numbers.
        others.sort_unstable_by_key(|(by, place)| Reverse((*by, *place)));
        let mut uses = self.uses.as_ref().clone();
        let mut operands = self.operands.as_ref().clone();
        for (by, place) in others {
            let read = &mut operands[by.index()];
            uses[value.index()].retain(|of| *of != ValueUse::Operand(by, place));
            for (at, operand) in read.iter().enumerate().skip(place + 1) {
                let moved =
                    uses[operand.index()].iter_mut().find(|of| **of == ValueUse::Operand(by, at));
                moved.into_iter().for_each(|of| *of = ValueUse::Operand(by, at - 1));
            }
            read.remove(place);
            let factor = &self.factors[by.index()];
            let mut kept = Factor { arity: factor.arity - 1, ..Factor::default() };
            for s in 0..factor.out.len() {
                let reads = factor.reads_of(s).iter().enumerate();
                let reads = reads.filter(|(at, _)| *at != place).map(|(_, node)| *node);
                kept.push(factor.out[s], reads, factor.cost[s]);
            }
            self.factors[by.index()] = Arc::new(kept);
        }
        let mut groups = self.groups.as_ref().clone();
        groups[value.index()] = None;
        self.groups = Arc::new(groups);
        (self.uses, self.operands) = (Arc::new(uses), Arc::new(operands));
        let layouts = 0..self.graphs[value.index()].layouts.len() as NodeId;
        for (of, allowed) in &mut self.outputs {
            if *of == value {
                *allowed = layouts.clone().collect();
            }
        }
    }

    /// The problem with only the nodes and strategies that are to be kept, and the new numbers of
    /// the nodes.
    pub(crate) fn shrunk(
        &self,
        keep_nodes: &[Vec<bool>],
        keep_strategies: &[Vec<bool>],
    ) -> (Factors, Renamed) {
        let mut small = self.clone();
        let mut states = self.states.as_ref().clone();
        let mut renamed: Renamed = vec![Vec::new(); self.factors.len()];
        for id in &self.live {
            let v = id.index();
            let (graph, mut names) = self.graphs[v].restricted(&keep_nodes[v]);
            let base = graph.nodes() as NodeId;
            let old = std::mem::take(&mut states[v].of);
            for (i, (layout, place)) in old.into_iter().enumerate() {
                let kept = keep_nodes[v][self.graphs[v].nodes() + i];
                // A state keeps the number of its layout in the old graph, since the new graph may
                // not have that layout.
                names.push(kept.then_some(base + states[v].of.len() as NodeId));
                if kept {
                    states[v].of.push((layout, place));
                }
            }
            states[v].names =
                Some(states[v].names.clone().unwrap_or_else(|| Arc::clone(&self.graphs[v])));
            small.graphs[v] = Arc::new(graph);
            renamed[v] = names;
        }
        for id in &self.live {
            let v = id.index();
            let factor = &self.factors[v];
            let mut kept = Factor { arity: factor.arity, ..Factor::default() };
            for s in (0..factor.out.len()).filter(|s| keep_strategies[v][*s]) {
                let out = renamed[v][factor.out[s] as usize];
                let reads: Option<Vec<NodeId>> = factor
                    .reads_of(s)
                    .iter()
                    .zip(&self.operands[v])
                    .map(|(n, o)| renamed[o.index()][*n as usize])
                    .collect();
                if let (Some(out), Some(reads)) = (out, reads) {
                    kept.push(out, reads, factor.cost[s]);
                }
            }
            small.factors[v] = Arc::new(kept);
        }
        for (value, allowed) in &mut small.outputs {
            *allowed = allowed.iter().filter_map(|n| renamed[value.index()][*n as usize]).collect();
        }
        small.states = Arc::new(states);
        (small, renamed)
    }

    /// Whether a node of a value stands for the layout `wanted` of the label that the value bears.
    pub(crate) fn has_label_layout(
        &self,
        program: &Program,
        value: ValueId,
        node: NodeId,
        wanted: Layout,
    ) -> bool {
        self.layout(value, node)
            .is_some_and(|l| label_layout(&program.value(value).dims, l) == wanted)
    }
}
