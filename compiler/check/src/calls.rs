//! Which layer calls which, and the order in which callees come before callers.

use std::collections::BTreeMap;

use shard_grammar::{Span, ast};
use shard_ir::{Program, never};

use crate::diagnostics::limits::{MAX_CALL_DEPTH, MAX_LAYERS};
use crate::diagnostics::{LayerProblem, LimitProblem};
use crate::sink::Sink;

/// The layers of a file, which calls which, and the programs made so far.
pub(crate) struct Layers<'a> {
    pub(crate) all: Vec<&'a ast::Layer>,
    by_name: BTreeMap<&'a str, usize>,
    /// For each layer the layers that it calls, each with the place of its first call.
    callees: Vec<Vec<(usize, Span)>>,
    pub(crate) programs: Vec<Option<Program>>,
}

impl<'a> Layers<'a> {
    pub(crate) fn new(tree: &'a ast::File, sink: &mut Sink) -> Layers<'a> {
        let mut layers = Layers {
            all: Vec::new(),
            by_name: BTreeMap::new(),
            callees: Vec::new(),
            programs: Vec::new(),
        };
        for layer in tree.layers() {
            let name = layer.name.value.as_str();
            if let Some(first) = layers.by_name.get(name) {
                let (first, span) = (layers.all[*first].name.span, layer.name.span);
                sink.report(LayerProblem::DuplicateLayer { name: name.to_string(), span, first });
                continue;
            }
            if layers.all.len() >= MAX_LAYERS {
                sink.report(LimitProblem::Layers { limit: MAX_LAYERS, span: layer.name.span });
                break;
            }
            layers.by_name.insert(name, layers.all.len());
            layers.all.push(layer);
        }
        layers.callees = layers.all.iter().map(|layer| layers.calls_of(layer)).collect();
        layers.programs = vec![None; layers.all.len()];
        layers
    }

    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Where the result types of a layer are stated.
    pub(crate) fn result_span(&self, name: &str) -> Option<Span> {
        self.index(name).map(|i| self.all[i].results.span())
    }

    fn calls_of(&self, layer: &ast::Layer) -> Vec<(usize, Span)> {
        let mut calls = Vec::new();
        let mut found = |callee: &ast::Name| {
            if let Some(index) = self.index(&callee.value)
                && !calls.iter().any(|(seen, _)| *seen == index)
            {
                calls.push((index, callee.span));
            }
        };
        let values = layer.body.iter().flat_map(ast::Statement::values);
        values.for_each(|expr| walk_calls(expr, &mut found));
        calls
    }

    /// Whether no other layer calls this one.
    pub(crate) fn is_root(&self, layer: usize) -> bool {
        !self
            .callees
            .iter()
            .enumerate()
            .any(|(caller, c)| caller != layer && c.iter().any(|(i, _)| *i == layer))
    }

    /// The layers, callees before callers. Layers in a ring of calls, and layers whose calls are
    /// nested too deep, are reported and left out.
    pub(crate) fn order(&self, sink: &mut Sink) -> Vec<usize> {
        let mut order = Vec::new();
        let mut state = vec![Visit::New; self.all.len()];
        for start in 0..self.all.len() {
            self.visit(start, &mut state, &mut Vec::new(), &mut order, sink);
        }
        order
    }

    /// The depth of calls in a layer; `None` if the layer is in a ring or leads to one, or if its
    /// calls are nested too deep. The recursion is no deeper than the number of layers.
    fn visit(
        &self,
        layer: usize,
        state: &mut [Visit],
        path: &mut Vec<usize>,
        order: &mut Vec<usize>,
        sink: &mut Sink,
    ) -> Option<usize> {
        match state[layer] {
            Visit::Done(depth) => return depth,
            Visit::Open | Visit::New => {}
        }
        state[layer] = Visit::Open;
        path.push(layer);
        let mut depth = Some(0);
        for (callee, span) in &self.callees[layer] {
            if let Visit::Open = state[*callee] {
                let from = path.iter().position(|p| p == callee);
                let from = from
                    .unwrap_or_else(|| never!("an open layer that is not on the path to here", 0));
                let ring: Vec<usize> = path[from..].iter().copied().chain([*callee]).collect();
                sink.report(LayerProblem::Recursion {
                    ring: ring.into_iter().map(|i| self.all[i].name.value.clone()).collect(),
                    span: *span,
                    declared: self.all[*callee].name.span,
                });
                depth = None;
                continue;
            }
            let inner = self.visit(*callee, state, path, order, sink);
            depth = depth.zip(inner).map(|(d, i)| d.max(i + 1));
            if depth.is_some_and(|d| d > MAX_CALL_DEPTH) {
                sink.report(LimitProblem::CallDepth { limit: MAX_CALL_DEPTH, span: *span });
                depth = None;
            }
        }
        path.pop();
        state[layer] = Visit::Done(depth);
        if depth.is_some() {
            order.push(layer);
        }
        depth
    }
}

#[derive(Clone, Copy)]
enum Visit {
    New,
    Open,
    Done(Option<usize>),
}

/// Runs `found` on the callee of every call in an expression. The recursion is no deeper than the
/// grammar allows expressions to be.
fn walk_calls(expr: &ast::Expr, found: &mut impl FnMut(&ast::Name)) {
    if let ast::ExprKind::Call { callee, .. } = &expr.kind {
        found(callee);
    }
    expr.operands().into_iter().for_each(|operand| walk_calls(operand, found));
}
