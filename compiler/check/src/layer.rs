//! Checks one layer: its parameters, statements and results become a [`Program`].

use std::collections::{BTreeMap, BTreeSet};

use shard_grammar::{Span, ast};
use shard_ir::{
    Cuts, Def, DimId, Op, Output, ParameterKind, Program, Value, ValueId, typing::same_dims,
};

use crate::builder::{Binding, Builder, DimOrder, PinRequest};
use crate::calls::Layers;
use crate::diagnostic::Edit;
use crate::diagnostics::limits::MAX_KINDS;
use crate::diagnostics::{
    DtypeProblem, LayerProblem, LimitProblem, ModelProblem, Quote, ShapeProblem,
};
use crate::environment::Environment;
use crate::expr::Term;
use crate::model::ModelCalls;
use crate::sink::Sink;
use crate::types::{CheckedType, check_type};

/// Checks one layer.
pub(crate) struct LayerChecker<'a, 'e> {
    pub(crate) env: &'e mut Environment<'a>,
    pub(crate) sink: &'e mut Sink,
    pub(crate) layers: &'e Layers<'a>,
    pub(crate) layer: &'a ast::Layer,
    /// Whether parts of the layer could not be read, so that an unknown value is not reported.
    pub(crate) lenient: bool,
    pub(crate) builder: Builder,
    /// The places of names that statements further down make.
    pub(crate) later_names: BTreeMap<String, Span>,
    /// Unknown values that are reported already.
    pub(crate) unknown_values: BTreeSet<String>,
    /// In a model, the parameters and states that its calls own.
    pub(crate) calls: ModelCalls,
}

/// A layer, and how it is to be checked.
pub(crate) struct LayerToCheck<'a> {
    pub(crate) layer: &'a ast::Layer,
    /// Whether it is strict without saying so.
    pub(crate) strict: bool,
    /// Whether parts of it could not be read.
    pub(crate) lenient: bool,
    /// How many values it may have.
    pub(crate) values_left: usize,
}

/// The program of a layer; `None` after an error.
pub(crate) fn check_layer<'a>(
    env: &mut Environment<'a>,
    layers: &Layers<'a>,
    LayerToCheck { layer, strict, lenient, values_left }: LayerToCheck<'a>,
    sink: &mut Sink,
) -> Option<Program> {
    let errors = sink.errors();
    let builder = Builder::new(&layer.name.value, values_left);
    let (later_names, unknown_values) = (BTreeMap::new(), BTreeSet::new());
    let mut checker = LayerChecker {
        env,
        sink,
        layers,
        layer,
        lenient,
        builder,
        later_names,
        unknown_values,
        calls: ModelCalls::default(),
    };
    let outputs = checker.run();
    if checker.sink.errors() > errors || checker.builder.stopped {
        return None;
    }
    let states = std::mem::take(&mut checker.calls.states);
    let (outputs, mut builder) = (outputs?.into_iter().chain(states).collect(), checker.builder);
    let mut program = Program {
        name: layer.name.value.clone(),
        repeat: layer.repeat.as_ref().map_or(1, |repeat| repeat.count.value),
        phase: env.phase.map(crate::phases::phase),
        strict: strict || layer.strict.is_some(),
        hardware: env.hardware.clone(),
        mesh: env.mesh.clone(),
        dims: env.dims.clone(),
        cuts: Cuts::default(),
        values: std::mem::take(&mut builder.values),
        outputs,
        labels: Vec::new(),
        folds: std::mem::take(&mut builder.folds),
    };
    crate::repeat::check(env, layer, &mut program, &mut builder.labels, sink);
    program.labels = builder.labels.names;
    crate::partial_pins::check(env, &program, sink);
    crate::straddles::check(env, &program, sink);
    crate::model::check(&program, sink);
    if sink.errors() > errors {
        return None;
    }
    if !lenient {
        report_unused(&builder.scope, sink);
    }
    Some(program)
}

fn report_unused(scope: &BTreeMap<String, Binding>, sink: &mut Sink) {
    for (name, binding) in scope {
        if binding.used || name.starts_with('_') {
            continue;
        }
        let (name, span) = (name.clone(), binding.span);
        sink.report(if binding.is_parameter {
            LayerProblem::UnusedParameter { name, span }
        } else {
            LayerProblem::UnusedLet { name, span }
        });
    }
}

impl<'a> LayerChecker<'a, '_> {
    fn run(&mut self) -> Option<Vec<Output>> {
        if let (Some(model), Some(repeat)) = (self.layer.model, &self.layer.repeat) {
            self.sink.report(ModelProblem::Repeated { span: repeat.span, model });
        }
        if let Some(repeat) = &self.layer.repeat
            && let Some(zero) = repeat.kinds.iter().find(|count| count.value == 0)
        {
            self.sink.report(LayerProblem::RepeatZero { span: zero.span });
        }
        if let Some(one_more) = self.layer.repeat.as_ref().and_then(|r| r.kinds.get(MAX_KINDS)) {
            self.sink.report(LimitProblem::Kinds { limit: MAX_KINDS, span: one_more.span });
        }
        self.parameters();
        let results = self.result_types();
        for statement in &self.layer.body {
            if let ast::Statement::Let(statement) = statement {
                for name in target_names(&statement.target) {
                    self.later_names.entry(name.value.clone()).or_insert(name.span);
                }
            }
        }
        let mut returned: Option<(Span, Option<Vec<Output>>)> = None;
        for statement in &self.layer.body {
            if self.builder.stopped {
                return None;
            }
            if let Some((first, _)) = &returned {
                self.sink
                    .report(LayerProblem::AfterReturn { span: statement.span(), first: *first });
                break;
            }
            match statement {
                ast::Statement::Let(statement) => self.statement(statement),
                // Module `expectations` reads these, even in a layer with errors.
                ast::Statement::Expect(_) => {}
                ast::Statement::Return(statement) => {
                    returned = Some((statement.span, self.results(statement, &results)));
                }
            }
        }
        match returned {
            Some((_, outputs)) => outputs,
            None => {
                if !self.lenient {
                    let end = self.layer.body_span.end;
                    let last = self.layer.body.iter().rev().find_map(|s| match s {
                        ast::Statement::Let(s) => {
                            target_names(&s.target).last().map(|n| n.value.clone())
                        }
                        ast::Statement::Expect(_) | ast::Statement::Return(_) => None,
                    });
                    self.sink.report(LayerProblem::NoReturn {
                        layer: self.layer.name.value.clone(),
                        results: self.layer.results.span(),
                        end: Span::new(end.saturating_sub(1), end),
                        last,
                    });
                }
                None
            }
        }
    }

    fn parameters(&mut self) {
        for param in &self.layer.params {
            let checked =
                check_type(self.env, &mut self.builder.labels, &param.ty, false, self.sink);
            let value = checked.and_then(|ty| self.parameter(param, ty));
            self.bind(&param.name, value, true);
        }
        self.own_parameters();
        // All parameters of a program come first; uses of a weight in host memory are uses of the
        // fetched value.
        for param in &self.layer.params {
            self.fetch(param);
        }
    }

    fn fetch(&mut self, param: &ast::Param) -> Option<()> {
        let id = self.builder.scope.get(&param.name.value)?.value?;
        let value = self.builder.value(id);
        if !matches!(value.def, Def::Parameter { kind: ParameterKind::HostWeight, .. }) {
            return None;
        }
        let (name, span) = (value.name.clone(), value.span);
        let fetched = self.builder.push_op(
            self.env,
            Op::Fetch,
            vec![id],
            self.builder.type_of(id),
            span,
            self.sink,
        )?;
        self.builder.values[fetched.index()].name = name;
        self.builder.scope.get_mut(&param.name.value)?.value = Some(fetched);
        Some(())
    }

    fn parameter(&mut self, param: &ast::Param, ty: CheckedType) -> Option<ValueId> {
        let value = Value {
            name: Some(param.name.value.clone()),
            dims: ty.dims,
            // The grammar demands a dtype of a parameter; a tree without one gives no program.
            dtype: ty.dtype?,
            def: Def::Parameter { kind: ty.kind, pattern: ty.pattern },
            span: param.span,
            in_layers: Vec::new(),
            times: 1,
            fold: None,
        };
        self.builder.push(self.env, value, self.sink)
    }

    fn result_types(&mut self) -> Vec<Option<CheckedType>> {
        if let ast::Results::Named { results, .. } = &self.layer.results {
            let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
            for result in results {
                if let Some(first) = seen.insert(&result.name.value, result.name.span) {
                    let (name, span) = (result.name.value.clone(), result.name.span);
                    self.sink.report(LayerProblem::DuplicateValue { name, span, first });
                }
            }
        }
        let types = self.layer.results.types();
        types
            .into_iter()
            .map(|ty| check_type(self.env, &mut self.builder.labels, ty, false, self.sink))
            .collect()
    }

    fn bind(&mut self, name: &ast::Name, value: Option<ValueId>, is_parameter: bool) {
        if let Some(first) = self.builder.scope.get(&name.value) {
            let (name, span, first) = (name.value.clone(), name.span, first.span);
            self.sink.report(LayerProblem::DuplicateValue { name, span, first });
            return;
        }
        self.later_names.remove(&name.value);
        self.builder.scope.insert(
            name.value.clone(),
            Binding { value, span: name.span, is_parameter, used: false },
        );
    }

    fn statement(&mut self, statement: &ast::Let) {
        match &statement.target {
            ast::LetTarget::One { name, ty } => {
                let value = self.let_one(name, ty.as_ref(), &statement.value);
                self.bind(name, value, false);
            }
            ast::LetTarget::Many { names, .. } => {
                let values = self.let_many(names, &statement.value);
                for (i, name) in names.iter().enumerate() {
                    self.bind(name, values.as_ref().and_then(|v| v.get(i).copied()), false);
                }
            }
        }
    }

    fn let_one(
        &mut self,
        name: &ast::Name,
        ty: Option<&ast::Type>,
        expr: &ast::Expr,
    ) -> Option<ValueId> {
        let fresh_from = self.builder.values.len();
        let value = self.value(expr);
        let checked =
            ty.map(|ty| (ty, check_type(self.env, &mut self.builder.labels, ty, true, self.sink)));
        if let Some(kind) = ty.and_then(|ty| ty.kind) {
            self.sink.report(LayerProblem::KindOnLet { word: kind.value.word(), span: kind.span });
        }
        let value = value?;
        if value.index() >= fresh_from && self.builder.value(value).in_layers.is_empty() {
            self.builder.values[value.index()].name.get_or_insert_with(|| name.value.clone());
            if matches!(self.builder.value(value).def, Def::Pin { .. }) {
                self.builder.values[value.index()].name = Some(name.value.clone());
            }
        }
        let Some((ty, checked)) = checked else { return Some(value) };
        let checked = checked?;
        let what = format!("the annotation of `{}`", name.value);
        let dims = self.match_dims(&what, &ty.layout, &checked.dims, value, expr.span);
        let dtype = self.match_dtype(&what, ty, &checked, value, expr);
        dims.and(dtype)?;
        let request = PinRequest {
            name: Some(name.value.clone()),
            fresh_from,
            ..PinRequest::of(value, checked.dims, checked.pattern, ty.span)
        };
        self.builder.pin(self.env, request, self.sink)
    }

    fn let_many(&mut self, names: &[ast::Name], expr: &ast::Expr) -> Option<Vec<ValueId>> {
        let (values, what, declared) = match self.term(expr)? {
            Term::Many(values, callee) => {
                let declared = self.layers.result_span(&callee);
                (values, format!("a call of `{callee}`"), declared)
            }
            term => (vec![self.one(term, expr)?], "the expression".to_string(), None),
        };
        if values.len() == names.len() {
            return Some(values);
        }
        let shown: Vec<String> = (0..values.len())
            .map(|i| names.get(i).map_or_else(|| format!("r{}", i + 1), |name| name.value.clone()))
            .collect();
        let target = if let [one] = shown.as_slice() {
            one.clone()
        } else {
            format!("({})", shown.join(", "))
        };
        self.sink.report(LayerProblem::ResultCount {
            what,
            given: values.len(),
            wanted: names.len(),
            span: expr.span,
            declared,
            help: Some(format!("let {target} = {}", shard_grammar::print_expr(expr))),
        });
        None
    }

    /// Reports stated dims that are not those of a value, in any order.
    pub(crate) fn match_dims(
        &mut self,
        what: &str,
        word: &ast::LayoutWord,
        dims: &[DimId],
        value: ValueId,
        value_span: Span,
    ) -> Option<()> {
        let found = self.builder.value(value).dims.clone();
        if same_dims(&found, dims) {
            return Some(());
        }
        let mended = self.layout_of_dims(word, &found);
        let names = |dims: &[DimId], less: &[DimId]| -> Vec<String> {
            dims.iter()
                .filter(|d| !less.contains(d))
                .map(|d| self.env.dim_name(*d).to_string())
                .collect()
        };
        self.sink.report(ShapeProblem::DimsDiffer {
            what: what.to_string(),
            wanted: self.env.dims_text(dims),
            found: self.env.dims_text(&found),
            span: word.span,
            other: value_span,
            stated_at_span: true,
            missing: names(dims, &found),
            extra: names(&found, dims),
            mend: Some(Edit { span: word.span, replacement: mended }),
        });
        None
    }

    /// A layout word with other dims; a dim that the word has keeps its axes.
    fn layout_of_dims(&self, word: &ast::LayoutWord, dims: &[DimId]) -> String {
        let dims: Vec<ast::DimWord> = dims
            .iter()
            .map(|dim| {
                let name = self.env.dim_name(*dim);
                word.dims.iter().find(|d| d.name.value == name).cloned().unwrap_or_else(|| {
                    ast::DimWord {
                        span: word.span,
                        name: shard_grammar::Spanned::new(name.to_string(), word.span),
                        axes: None,
                    }
                })
            })
            .collect();
        let compact = !dims.is_empty()
            && dims.iter().all(|d| d.name.value.chars().skip(1).all(|c| c.is_ascii_digit()));
        let form = if compact { ast::DimsForm::Compact } else { ast::DimsForm::Bracketed };
        shard_grammar::print_layout_word(&ast::LayoutWord {
            span: word.span,
            form,
            dims,
            free: word.free.clone(),
        })
    }

    fn match_dtype(
        &mut self,
        what: &str,
        ty: &ast::Type,
        checked: &CheckedType,
        value: ValueId,
        expr: &ast::Expr,
    ) -> Option<()> {
        let found = self.builder.value(value).dtype;
        let Some(wanted) = checked.dtype.filter(|wanted| *wanted != found) else { return Some(()) };
        self.sink.report(DtypeProblem::Stated {
            what: what.to_string(),
            wanted,
            stated: ty.dtype.map_or(ty.span, |d| d.span),
            found,
            value: Quote::of_expr(expr),
        });
        None
    }

    fn results(
        &mut self,
        statement: &ast::Return,
        types: &[Option<CheckedType>],
    ) -> Option<Vec<Output>> {
        let exprs = statement.value.values();
        let mut values: Vec<(Option<ValueId>, &ast::Expr, usize)> = Vec::new();
        if let [expr] = exprs.as_slice() {
            let fresh_from = self.builder.values.len();
            match self.term(expr) {
                Some(Term::Many(many, _)) => {
                    values.extend(many.into_iter().map(|v| (Some(v), *expr, fresh_from)))
                }
                Some(term) => values.push((self.one(term, expr), expr, fresh_from)),
                None => values.push((None, expr, fresh_from)),
            }
        } else {
            for expr in exprs {
                let fresh_from = self.builder.values.len();
                values.push((self.value(expr), expr, fresh_from));
            }
        }
        if values.len() != types.len() {
            self.sink.report(LayerProblem::ResultCount {
                what: "the `return`".to_string(),
                given: values.len(),
                wanted: types.len(),
                span: statement.span,
                declared: Some(self.layer.results.span()),
                help: Some(match &self.layer.results {
                    ast::Results::One(_) => "return one value".to_string(),
                    ast::Results::Named { results, .. } => {
                        let names: Vec<&str> =
                            results.iter().map(|r| r.name.value.as_str()).collect();
                        if let [one] = names.as_slice() {
                            format!("return {one}")
                        } else {
                            format!("return ({})", names.join(", "))
                        }
                    }
                }),
            });
            return None;
        }
        let declared = self.layer.results.types();
        let mut outputs = Vec::new();
        for (i, (value, expr, fresh_from)) in values.into_iter().enumerate() {
            outputs.push(value.and_then(|value| {
                self.result(i, declared[i], types[i].as_ref()?, value, expr, fresh_from)
            }));
        }
        outputs.into_iter().collect()
    }

    fn result(
        &mut self,
        index: usize,
        ty: &ast::Type,
        checked: &CheckedType,
        value: ValueId,
        expr: &ast::Expr,
        fresh_from: usize,
    ) -> Option<Output> {
        let (what, declared_name) = match &self.layer.results {
            ast::Results::One(_) => (format!("the result of `{}`", self.layer.name.value), None),
            ast::Results::Named { results, .. } => {
                let name = &results[index].name.value;
                (format!("the result `{name}`"), Some(name.clone()))
            }
        };
        let dims = self.match_dims(&what, &ty.layout, &checked.dims, value, expr.span);
        let dtype = self.match_dtype(&what, ty, checked, value, expr);
        dims.and(dtype)?;
        let order = DimOrder {
            dims: &checked.dims,
            fresh_from,
            labelled: checked.pattern.label.is_some(),
            span: expr.span,
        };
        let value = self.builder.in_order(self.env, value, order, self.sink)?;
        let returned_name = match &expr.kind {
            ast::ExprKind::Name(name) => Some(name.clone()),
            _ => None,
        };
        Some(Output {
            name: declared_name.or(returned_name).unwrap_or_else(|| "result".to_string()),
            value,
            dims: checked.dims.clone(),
            pattern: checked.pattern.permuted(&checked.dims, &self.builder.value(value).dims),
            span: ty.span,
            state: false,
        })
    }
}

fn target_names(target: &ast::LetTarget) -> &[ast::Name] {
    match target {
        ast::LetTarget::One { name, .. } => std::slice::from_ref(name),
        ast::LetTarget::Many { names, .. } => names,
    }
}

/// The words for a kind.
pub(crate) fn kind_words(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::Activation => "an activation",
        ParameterKind::Weight => "a weight",
        ParameterKind::HostWeight => "a weight with the host",
        ParameterKind::Cache => "a cache",
    }
}
