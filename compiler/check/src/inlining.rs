//! A call: the values of the callee's program are copied in, its parameters replaced by the
//! arguments.

use shard_grammar::{Span, ast};
use shard_ir::op::Code;
use shard_ir::{
    Def, DimId, LabelId, LayoutPattern, ParameterKind, Program, Value, ValueId, never,
    typing::same_dims,
};

use crate::builder::PinRequest;
use crate::diagnostic::Edit;
use crate::diagnostics::{DtypeProblem, LayerProblem, ModelProblem, Quote, ShapeProblem};
use crate::expr::Term;
use crate::layer::{LayerChecker, kind_words};
use crate::names::nearest;

/// A call as it stands.
#[derive(Clone, Copy)]
pub(crate) struct CallSite<'c> {
    pub(crate) name: &'c ast::Name,
    pub(crate) args: &'c [ast::Expr],
    pub(crate) span: Span,
    /// The values from this index on are made for its arguments.
    pub(crate) fresh_from: usize,
}

impl LayerChecker<'_, '_> {
    /// A call: the values of the callee's program are copied in, its parameters replaced by the
    /// arguments.
    pub(crate) fn call(
        &mut self,
        name: &ast::Name,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<Term> {
        let fresh_from = self.builder.values.len();
        let index = self.layers.index(&name.value);
        // In `psum(a, x)`, `x` is an axis: the error about the call is enough, and none about a
        // value `x` is reported.
        let is_axis = |arg: &ast::Expr| {
            let ast::ExprKind::Name(axis) = &arg.kind else { return false };
            index.is_none()
                && crate::foreign::moves(&name.value)
                && self.env.mesh.declared().iter().any(|(known, _)| known == axis)
        };
        let axes: Vec<bool> = args.iter().map(is_axis).collect();
        let values: Vec<Option<ValueId>> = args
            .iter()
            .zip(axes)
            .map(|(arg, is_axis)| if is_axis { None } else { self.value(arg) })
            .collect();
        let named = args.iter().find(|arg| matches!(arg.kind, ast::ExprKind::Named { .. }));
        if let Some(named) = named.filter(|_| self.layer.model.is_none()) {
            let model = self.layer.name.value.clone();
            self.sink.report(ModelProblem::NamedOutside { span: named.span, layer: model });
            return None;
        }
        let Some(index) = index else {
            self.unknown_layer(name, args, &values);
            return None;
        };
        let callee = self.layers.all[index];
        if let Some(model) = callee.model {
            self.sink.report(ModelProblem::Called {
                name: name.value.clone(),
                span: name.span,
                declared: model,
            });
            return None;
        }
        if self.layer.model.is_some() {
            return self.call_in_model(CallSite { name, args, span, fresh_from }, index, &values);
        }
        self.has_all_arguments(name, callee, args, span)?;
        let program = self.layers.programs[index].as_ref()?;
        if let Some(repeat) = callee.repeat.as_ref().filter(|r| r.count.value > 1) {
            self.sink.report(LayerProblem::RepeatedCallee {
                callee: name.value.clone(),
                times: repeat.count.value,
                span,
                declared: repeat.span,
            });
        }
        let mut right = true;
        for ((value, arg), (param, declared)) in
            values.iter().zip(args).zip(program.values.iter().zip(&callee.params))
        {
            right &= value.is_some_and(|value| {
                self.argument(&name.value, value, arg, param, declared).is_some()
            });
        }
        if !right {
            return None;
        }
        let values: Vec<ValueId> = values.into_iter().flatten().collect();
        self.builder.inlining = Some(span);
        let given: Vec<Option<&ast::Expr>> = args.iter().map(Some).collect();
        let labels = self.fresh_labels(program);
        let results = self.inline(program, &values, &given, &labels, fresh_from);
        self.builder.inlining = None;
        Some(results_term(results?, name))
    }

    /// Reports a call of a layer that does not exist, with what may have been meant.
    fn unknown_layer(&mut self, name: &ast::Name, args: &[ast::Expr], values: &[Option<ValueId>]) {
        if self.env.lenient || !self.sink.has_room() {
            return;
        }
        let known: Vec<String> = self.layers.all.iter().map(|l| l.name.value.clone()).collect();
        let words = known.iter().map(String::as_str).chain(Code::sources()).chain(["reshard"]);
        let near = nearest(&name.value, words).map(str::to_string);
        let here = self.written_here(&name.value, args, values);
        let (name, span) = (name.value.clone(), name.span);
        self.sink.report(LayerProblem::UnknownLayer { name, span, near, here, known });
    }

    /// Reports a call that has not one argument for each parameter.
    fn has_all_arguments(
        &mut self,
        name: &ast::Name,
        callee: &ast::Layer,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<()> {
        if args.len() == callee.params.len() {
            return Some(());
        }
        let written =
            |p: &ast::Param| format!("{}: {}", p.name.value, shard_grammar::print_type(&p.ty));
        self.sink.report(LayerProblem::ArgumentCount {
            callee: name.value.clone(),
            parameters: callee.params.iter().map(written).collect(),
            found: args.len(),
            span,
            declared: callee.params_span,
        });
        None
    }

    /// Checks the dims, dtype and kind of an argument against its parameter.
    pub(crate) fn argument(
        &mut self,
        callee: &str,
        value: ValueId,
        arg: &ast::Expr,
        param: &Value,
        declared: &ast::Param,
    ) -> Option<()> {
        let found = self.builder.value(value).clone();
        let what = format!("parameter `{}` of `{callee}`", declared.name.value);
        if !same_dims(&found.dims, &param.dims) {
            let names = |dims: &[DimId], less: &[DimId]| -> Vec<String> {
                dims.iter()
                    .filter(|d| !less.contains(d))
                    .map(|d| self.env.dim_name(*d).to_string())
                    .collect()
            };
            let (missing, extra) =
                (names(&param.dims, &found.dims), names(&found.dims, &param.dims));
            let renamed = match (missing.as_slice(), extra.as_slice()) {
                ([to], [from]) if self.sizes_agree(from, to) => Some(Edit {
                    span: arg.span,
                    replacement: format!(
                        "rename({}, {from} -> {to})",
                        shard_grammar::print_expr(arg)
                    ),
                }),
                _ => None,
            };
            self.sink.report(ShapeProblem::DimsDiffer {
                what,
                wanted: self.env.dims_text(&param.dims),
                found: self.env.dims_text(&found.dims),
                span: arg.span,
                other: declared.span,
                stated_at_span: false,
                missing,
                extra,
                mend: renamed,
            });
            return None;
        }
        if found.dtype != param.dtype {
            self.sink.report(DtypeProblem::Stated {
                what,
                wanted: param.dtype,
                stated: declared.ty.dtype.map_or(declared.span, |d| d.span),
                found: found.dtype,
                value: Quote::of_expr(arg),
            });
            return None;
        }
        self.compare_kinds(callee, value, arg, param, declared);
        Some(())
    }

    fn sizes_agree(&mut self, a: &str, b: &str) -> bool {
        let size = |name: &str| self.env.dims.iter().find(|d| d.name == name).map(|d| d.size);
        size(a) == size(b)
    }

    fn compare_kinds(
        &mut self,
        callee: &str,
        value: ValueId,
        arg: &ast::Expr,
        param: &Value,
        declared: &ast::Param,
    ) {
        let Some(wanted) = param.def.parameter() else { return };
        let given = self.builder.unpinned(value);
        let Some(kind) = self.builder.value(given).def.parameter() else { return };
        if wanted == ParameterKind::Activation || kind == wanted {
            return;
        }
        self.sink.report(LayerProblem::ArgumentKind {
            argument: shard_grammar::print_expr(arg),
            found: kind_words(kind),
            span: arg.span,
            callee: callee.to_string(),
            parameter: declared.name.value.clone(),
            wanted: kind_words(wanted),
            declared: declared.ty.kind.map_or(declared.span, |k| k.span),
        });
    }

    /// New labels for those of a callee: at each call they may have other layouts.
    pub(crate) fn fresh_labels(&mut self, callee: &Program) -> Vec<LabelId> {
        callee.labels.iter().map(|name| self.builder.labels.fresh(name)).collect()
    }

    /// Copies the values of a callee into the program, and gives its results. For each parameter
    /// `args` has a value and `exprs` the expression that gives it; such a value is pinned to the
    /// type of the parameter. Without an expression the value is a parameter of the caller's own,
    /// which has that type. In a folded block the first parameter is the value that applications
    /// hand on.
    pub(crate) fn inline(
        &mut self,
        callee: &Program,
        args: &[ValueId],
        exprs: &[Option<&ast::Expr>],
        labels: &[LabelId],
        fresh_from: usize,
    ) -> Option<Vec<ValueId>> {
        let relabelled = |pattern: &LayoutPattern| relabelled(pattern, labels);
        let mut map: Vec<ValueId> = Vec::with_capacity(callee.values.len());
        for value in &callee.values {
            let path = || -> Vec<String> {
                [&callee.name].into_iter().chain(&value.in_layers).cloned().collect()
            };
            let new = match &value.def {
                Def::Parameter { pattern, .. } => {
                    let (arg, Some(expr)) = (args[map.len()], exprs[map.len()]) else {
                        map.push(args[map.len()]);
                        continue;
                    };
                    let is_first = map.is_empty();
                    let pattern = relabelled(pattern);
                    self.pin_argument(value, pattern, arg, expr.span, is_first, fresh_from)?
                }
                Def::Constant(_) => self.builder.push(
                    self.env,
                    Value { in_layers: path(), ..value.clone() },
                    self.sink,
                )?,
                Def::Op { op, operands } => {
                    let operands = operands.iter().map(|o| map[o.index()]).collect();
                    let def = Def::Op { op: op.clone(), operands };
                    self.builder.push(
                        self.env,
                        Value { def, in_layers: path(), ..value.clone() },
                        self.sink,
                    )?
                }
                Def::Pin { operand, pattern, written } => {
                    let (operand, dims) = (map[operand.index()], value.dims.clone());
                    let request = PinRequest {
                        written: *written,
                        name: value.name.clone(),
                        in_layers: path(),
                        ..PinRequest::of(operand, dims, relabelled(pattern), value.span)
                    };
                    self.builder.pin(self.env, request, self.sink)?
                }
            };
            map.push(new);
        }
        let mut results = Vec::new();
        for output in &callee.outputs {
            let (value, dims) =
                (map[output.value.index()], callee.value(output.value).dims.clone());
            let request = PinRequest {
                name: Some(output.name.clone()),
                in_layers: vec![callee.name.clone()],
                ..PinRequest::of(value, dims, relabelled(&output.pattern), output.span)
            };
            results.push(self.builder.pin(self.env, request, self.sink)?);
        }
        Some(results)
    }

    /// Pins the value `arg`, which an expression at `span` gives for a parameter of a callee, to
    /// the parameter's type. The first parameter of a folded block is what applications hand on.
    fn pin_argument(
        &mut self,
        parameter: &Value,
        pattern: LayoutPattern,
        mut arg: ValueId,
        span: Span,
        is_first: bool,
        fresh_from: usize,
    ) -> Option<ValueId> {
        // A value from outside a folded block that is not handed on is pinned outside, so that it
        // is moved once.
        let fold = self.builder.fold;
        let border = is_first && fold.is_some();
        // The callee fetches a weight in host memory itself.
        if let (
            Def::Parameter { kind: ParameterKind::HostWeight, .. },
            Def::Op { op: shard_ir::Op::Fetch, operands },
        ) = (&parameter.def, &self.builder.value(arg).def)
        {
            arg = operands[0];
        }
        let request = PinRequest {
            fresh_from,
            border,
            ..PinRequest::of(arg, parameter.dims.clone(), pattern, span)
        };
        self.builder.fold = fold.filter(|_| border);
        let pinned = self.builder.pin(self.env, request, self.sink);
        self.builder.fold = fold;
        pinned
    }
}

/// A pattern of a callee with the labels that stand for the callee's at a call.
pub(crate) fn relabelled(pattern: &LayoutPattern, labels: &[LabelId]) -> LayoutPattern {
    let label = pattern.label.map(|label| {
        let known = labels.get(usize::from(label.0)).copied();
        known.unwrap_or_else(|| never!("a label that its layer does not have", label))
    });
    LayoutPattern { label, ..pattern.clone() }
}

/// The term for the results of a call: one value, or a list.
pub(crate) fn results_term(mut results: Vec<ValueId>, callee: &ast::Name) -> Term {
    match (results.len(), results.pop()) {
        (1, Some(one)) => Term::Value(one),
        (_, last) => {
            results.extend(last);
            Term::Many(results, callee.value.clone())
        }
    }
}
