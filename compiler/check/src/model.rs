//! Calls in a `model`. Each call has weights and caches of its own, and a call of a layer with
//! `repeat N` stands for a folded block of N applications.

use std::collections::BTreeMap;

use shard_grammar::{Span, ast};
use shard_ir::{
    Def, Fold, FoldId, LabelId, Op, Output, ParameterKind, Program, Value, ValueId, never,
};

use crate::builder::{DimOrder, PinRequest};
use crate::diagnostics::ModelProblem;
use crate::expr::Term;
use crate::inlining::{CallSite, relabelled, results_term};
use crate::kinds::kinds;
use crate::layer::LayerChecker;
use crate::repeat::cache_origin;
use crate::sink::Sink;

/// The calls of a model, and what they own.
#[derive(Default)]
pub(crate) struct ModelCalls {
    /// The calls by the place of the layer's name. A stack of several kinds (`repeat M + N`) is
    /// several calls at one place, each of which takes the result of the one before.
    all: BTreeMap<usize, Vec<ModelCall>>,
    /// The caches after the step, in the order of the calls.
    pub(crate) states: Vec<Output>,
}

/// One call in a model.
#[derive(Clone)]
struct ModelCall {
    /// The prefix of the names of its own parameters: `block`, or `block_2` for the second call of
    /// `block`.
    prefix: String,
    labels: Vec<LabelId>,
    fold: Option<FoldId>,
    /// For each parameter of the layer the model's parameter that the call owns, if it owns one.
    own: Vec<Option<ValueId>>,
}

impl ModelCall {
    /// Whether the call owns a weight or cache of the layer; else the model passes one by name.
    fn owns(&self, parameter: ValueId) -> bool {
        self.own.get(parameter.index()).is_some_and(Option::is_some)
    }
}

/// Reports folded blocks whose input or result has no part in what the model returns.
pub(crate) fn check(program: &Program, sink: &mut Sink) {
    let mut needed = vec![false; program.values.len()];
    program
        .outputs
        .iter()
        .filter(|output| !output.state)
        .for_each(|output| needed[output.value.index()] = true);
    for id in program.value_ids().rev().filter(|_| !program.folds.is_empty()) {
        if needed[id.index()] {
            program
                .value(id)
                .def
                .operands()
                .iter()
                .for_each(|operand| needed[operand.index()] = true);
        }
    }
    for (at, fold) in program.folds.iter().enumerate() {
        let id = FoldId(at as u16);
        let borders = [(program.exit(id), true), (program.entry(id), false)];
        let idle = borders.into_iter().find_map(|(border, result)| {
            let border = border.filter(|border| !needed[border.index()])?;
            Some((program.value(border).span, result))
        });
        if let Some((span, result)) = idle {
            sink.report(ModelProblem::Idle { layer: fold.layer.clone(), result, span });
        }
    }
}

/// The calls in an expression, innermost first: the order in which they are checked.
fn calls_in<'e>(expr: &'e ast::Expr, found: &mut Vec<(&'e ast::Name, &'e [ast::Expr])>) {
    expr.operands().into_iter().for_each(|operand| calls_in(operand, found));
    if let ast::ExprKind::Call { callee, args } = &expr.kind {
        found.push((callee, args));
    }
}

impl LayerChecker<'_, '_> {
    /// Adds the parameters that the calls of a model own, before any other value, since all
    /// parameters of a program come first.
    pub(crate) fn own_parameters(&mut self) {
        if self.layer.model.is_none() {
            return;
        }
        let mut calls = Vec::new();
        let values = self.layer.body.iter().flat_map(ast::Statement::values);
        values.for_each(|expr| calls_in(expr, &mut calls));
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, args) in calls {
            let Some(index) = self.layers.index(&name.value) else { continue };
            let Some(program) = self.layers.programs[index].as_ref() else { continue };
            let callee = self.layers.all[index];
            let of_kind = |repeat: u64| {
                let number = count.entry(&name.value).and_modify(|n| *n += 1).or_insert(1);
                let prefix = match number {
                    1 => name.value.clone(),
                    n => format!("{}_{n}", name.value),
                };
                self.model_call(prefix, repeat, callee, program, name, args)
            };
            let calls = kinds(callee).into_iter().map(of_kind).collect();
            self.calls.all.insert(name.span.start, calls);
        }
    }

    /// One kind of a call: `repeat` applications of a layer, with the parameters that they own.
    fn model_call(
        &mut self,
        prefix: String,
        repeat: u64,
        callee: &ast::Layer,
        program: &Program,
        name: &ast::Name,
        args: &[ast::Expr],
    ) -> ModelCall {
        let labels = self.fresh_labels(program);
        let fold = (repeat > 1).then(|| {
            self.builder.folds.push(Fold { layer: name.value.clone(), repeat });
            FoldId(self.builder.folds.len() as u16 - 1)
        });
        let mut own = Vec::new();
        self.builder.inlining = Some(name.span);
        self.builder.fold = fold;
        for (param, value) in callee.params.iter().zip(&program.values) {
            let is_own = param.ty.kind.is_some() && named(args, &param.name.value).is_none();
            own.push(
                is_own
                    .then(|| self.own_parameter(&prefix, &callee.name.value, &labels, value))
                    .flatten(),
            );
        }
        (self.builder.inlining, self.builder.fold) = (None, None);
        ModelCall { prefix, labels, fold, own }
    }

    fn own_parameter(
        &mut self,
        prefix: &str,
        layer: &str,
        labels: &[LabelId],
        value: &Value,
    ) -> Option<ValueId> {
        // A parameter whose type is wrong is no value of the program, which is reported there.
        let Def::Parameter { kind, pattern } = &value.def else { return None };
        let def = Def::Parameter { kind: *kind, pattern: relabelled(pattern, labels) };
        let name = value.name.as_ref().map(|name| format!("{prefix}.{name}"));
        let own = Value { name, def, in_layers: vec![layer.to_string()], ..value.clone() };
        self.builder.push(self.env, own, self.sink)
    }

    /// A call in a model. `values` are the values of the arguments, in the order in which they are
    /// written.
    pub(crate) fn call_in_model(
        &mut self,
        CallSite { name, args, span, fresh_from }: CallSite<'_>,
        index: usize,
        values: &[Option<ValueId>],
    ) -> Option<Term> {
        let (layers, callee) = (self.layers, self.layers.all[index]);
        let program = layers.programs[index].as_ref()?;
        let calls = self.calls.all.get(&name.span.start)?.clone();
        let given = self.arguments(callee, args, span)?;
        let mut right = true;
        for ((place, declared), param) in given.iter().zip(&callee.params).zip(&program.values) {
            if let Some((value, at)) = place.and_then(|at| values[at].zip(Some(at))) {
                right &= self.argument(&name.value, value, &args[at], param, declared).is_some();
            }
        }
        let exprs: Vec<Option<&ast::Expr>> =
            given.iter().map(|place| place.map(|at| &args[at])).collect();
        let mut results: Option<Vec<ValueId>> = None;
        for call in &calls {
            let chosen = given.iter().zip(&call.own);
            let chosen = chosen.map(|(place, own)| place.map_or(*own, |at| values[at]));
            let mut values: Vec<ValueId> = chosen.collect::<Option<_>>()?;
            if !right {
                return None;
            }
            if calls.len() > 1 || call.fold.is_some() {
                self.handed_on_alone(callee, program, call, span)?;
            }
            let fresh_from = match results.as_ref().and_then(|results| results.first()) {
                None => fresh_from,
                Some(handed_on) => {
                    values[0] = *handed_on;
                    usize::MAX
                }
            };
            if call.fold.is_some() {
                self.prepare(&mut values, &exprs, program, fresh_from, span)?;
            }
            self.builder.inlining = Some(span);
            self.builder.fold = call.fold;
            let inlined = self.inline(program, &values, &exprs, &call.labels, fresh_from);
            results = inlined.and_then(|results| self.give(call, program, &values, results, span));
            (self.builder.inlining, self.builder.fold) = (None, None);
            results.as_ref()?;
        }
        Some(results_term(results?, name))
    }

    /// For each parameter of a layer the index of the argument that is given for it.
    fn arguments(
        &mut self,
        callee: &ast::Layer,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<Vec<Option<usize>>> {
        let is_activation = |param: &&ast::Param| param.ty.kind.is_none();
        let wanted: Vec<&ast::Param> = callee.params.iter().filter(is_activation).collect();
        let mut in_order =
            (0..args.len()).filter(|at| !matches!(args[*at].kind, ast::ExprKind::Named { .. }));
        let given =
            args.iter().filter(|arg| !matches!(arg.kind, ast::ExprKind::Named { .. })).count();
        let unknown = args.iter().enumerate().find_map(|(at, arg)| match &arg.kind {
            ast::ExprKind::Named { name, .. } => {
                let known =
                    callee.params.iter().any(|p| p.ty.kind.is_some() && p.name.value == name.value);
                let again = args[..at].iter().any(|before| named_as(before, &name.value));
                (!known || again).then_some(name)
            }
            _ => None,
        });
        let text =
            |p: &&ast::Param| format!("{}: {}", p.name.value, shard_grammar::print_type(&p.ty));
        if unknown.is_some() || given != wanted.len() {
            let own: Vec<String> = callee
                .params
                .iter()
                .filter(|p| !is_activation(p))
                .map(|p| p.name.value.clone())
                .collect();
            self.sink.report(ModelProblem::Arguments {
                callee: callee.name.value.clone(),
                parameters: wanted.iter().map(text).collect(),
                own,
                given,
                unknown: unknown.map(|name| (name.value.clone(), name.span)),
                span,
                declared: callee.params_span,
            });
            return None;
        }
        let place = |param: &ast::Param| match param.ty.kind {
            None => in_order.next(),
            Some(_) => named(args, &param.name.value),
        };
        Some(callee.params.iter().map(place).collect())
    }

    /// Reports a call of a folded block that cannot be applied again and again: its first parameter
    /// is no activation, or a result after the first is no cache that the call owns.
    fn handed_on_alone(
        &mut self,
        callee: &ast::Layer,
        program: &Program,
        call: &ModelCall,
        span: Span,
    ) -> Option<()> {
        let first = callee.params.first()?;
        if first.ty.kind.is_some() {
            let (layer, parameter) = (callee.name.value.clone(), first.name.value.clone());
            self.sink.report(ModelProblem::HandsOnWeight {
                layer,
                parameter,
                span,
                declared: first.span,
            });
            return None;
        }
        for other in program.outputs.iter().skip(1) {
            let cache = cache_origin(program, other.value);
            if cache.is_some_and(|cache| call.owns(cache)) {
                continue;
            }
            let given = cache
                .and_then(|cache| callee.params.get(cache.index()))
                .map(|param| param.name.value.clone());
            let (layer, result) = (callee.name.value.clone(), other.name.clone());
            self.sink.report(ModelProblem::OtherResult {
                layer,
                result,
                repeat: callee.repeat.as_ref().map_or(1, |repeat| repeat.count.value),
                given,
                span,
                declared: other.span,
            });
            return None;
        }
        Some(())
    }

    /// Brings the value that a folded block takes first into the order of dims in which it is
    /// handed on. If the same value is given for another parameter too, that one gets a copy, so
    /// that the two can be told apart.
    fn prepare(
        &mut self,
        values: &mut [ValueId],
        exprs: &[Option<&ast::Expr>],
        program: &Program,
        fresh_from: usize,
        span: Span,
    ) -> Option<()> {
        let dims = &program.values.first()?.dims;
        let order = DimOrder { dims, fresh_from, labelled: true, span };
        let carried = self.builder.in_order(self.env, values[0], order, self.sink)?;
        values[0] = carried;
        for at in (1..values.len()).filter(|at| exprs[*at].is_some()) {
            if self.builder.unpinned(values[at]) == self.builder.unpinned(carried) {
                values[at] = self.copy(values[at], span)?;
            }
        }
        Some(())
    }

    /// The results of a call that the model sees: the value that the last application hands on, and
    /// no caches that the call owns.
    fn give(
        &mut self,
        call: &ModelCall,
        program: &Program,
        args: &[ValueId],
        mut results: Vec<ValueId>,
        span: Span,
    ) -> Option<Vec<ValueId>> {
        if let (Some(fold), Some(first)) = (call.fold, results.first_mut()) {
            let origin = self.builder.unpinned(*first);
            let made_here = self.builder.value(origin).fold == Some(fold);
            if !made_here || !matches!(self.builder.value(origin).def, Def::Op { .. }) {
                *first = self.copy(*first, span)?;
            }
            let (param, output) = (program.values.first()?, program.outputs.first()?);
            let dims = program.value(output.value).dims.clone();
            let pattern = relabelled(&output.pattern, &call.labels).permuted(&dims, &param.dims);
            let env = &*self.env;
            let order =
                DimOrder { dims: &param.dims, fresh_from: usize::MAX, labelled: true, span };
            let value = self.builder.in_order(env, *first, order, self.sink)?;
            self.builder.fold = None;
            let request = PinRequest {
                border: true,
                ..PinRequest::of(value, param.dims.clone(), pattern, span)
            };
            *first = self.builder.pin(env, request, self.sink)?;
        }
        let mut returned = Vec::new();
        for (at, (output, value)) in program.outputs.iter().zip(results).enumerate() {
            let origin = cache_origin(program, output.value).filter(|origin| call.owns(*origin));
            match origin.filter(|_| at > 0 || call.fold.is_none()) {
                None => returned.push(value),
                Some(origin) => self.keep(call, output, args[origin.index()], value),
            }
        }
        Some(returned)
    }

    /// Keeps a cache of the call after the step: as a state of the program, in the layout that it
    /// had before.
    fn keep(&mut self, call: &ModelCall, output: &Output, cache: ValueId, value: ValueId) {
        let Def::Parameter { kind: ParameterKind::Cache, pattern } =
            self.builder.value(cache).def.clone()
        else {
            return never!("a cache of a call that is no cache of the model", ());
        };
        let (dims, own) =
            (self.builder.value(cache).dims.clone(), self.builder.value(value).dims.clone());
        let pattern = match (pattern.open, pattern.label) {
            (true, None) => {
                let label = self.builder.labels.fresh(&output.name);
                let tied = shard_ir::LayoutPattern { label: Some(label), ..pattern };
                if let Def::Parameter { pattern, .. } = &mut self.builder.values[cache.index()].def
                {
                    *pattern = tied.clone();
                }
                tied
            }
            _ => pattern,
        };
        self.calls.states.push(Output {
            name: format!("{}.{}", call.prefix, output.name),
            value,
            dims: own.clone(),
            pattern: pattern.permuted(&dims, &own),
            span: output.span,
            state: true,
        });
    }

    /// A copy of a value.
    fn copy(&mut self, value: ValueId, span: Span) -> Option<ValueId> {
        let ty = self.builder.type_of(value);
        let copy =
            self.builder.push_op(self.env, Op::Cast(ty.dtype), vec![value], ty, span, self.sink)?;
        self.builder.values[copy.index()].name = self.builder.value(value).name.clone();
        Some(copy)
    }
}

fn named_as(arg: &ast::Expr, name: &str) -> bool {
    matches!(&arg.kind, ast::ExprKind::Named { name: given, .. } if given.value == name)
}

fn named(args: &[ast::Expr], name: &str) -> Option<usize> {
    args.iter().position(|arg| named_as(arg, name))
}
