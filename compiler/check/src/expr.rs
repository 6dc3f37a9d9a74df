//! Expressions: each becomes values of the program under construction.

use shard_grammar::{Span, ast};
use shard_ir::op::{Code, Form};
use shard_ir::{Binary, Dtype, Map, Op, ValueId};

use crate::builder::PinRequest;
use crate::diagnostics::{DtypeProblem, LayerProblem, Quote};
use crate::layer::LayerChecker;
use crate::names::nearest;

/// What an expression stands for.
pub(crate) enum Term {
    /// One value.
    Value(ValueId),
    /// A number, which takes the dtype of what it is combined with.
    Number { value: f64, text: String, span: Span },
    /// The results of a call of a layer with another number of results than one.
    Many(Vec<ValueId>, String),
}

impl LayerChecker<'_, '_> {
    /// Checks an expression; `None` after an error, which is reported.
    pub(crate) fn term(&mut self, expr: &ast::Expr) -> Option<Term> {
        let value = match &expr.kind {
            ast::ExprKind::Number(number) => {
                return Some(Term::Number {
                    value: number.value,
                    text: number.text.clone(),
                    span: expr.span,
                });
            }
            ast::ExprKind::Name(name) => self.name(name, expr.span)?,
            ast::ExprKind::Paren(inner) => return self.term(inner),
            // The call has checked the name of its argument.
            ast::ExprKind::Named { value, .. } => return self.term(value),
            ast::ExprKind::Neg { operand, .. } => match self.term(operand)? {
                Term::Number { value, text, .. } => {
                    let text = match text.strip_prefix('-') {
                        Some(positive) => positive.to_string(),
                        None => format!("-{text}"),
                    };
                    return Some(Term::Number { value: -value, text, span: expr.span });
                }
                term => {
                    let value = self.one(term, operand)?;
                    self.op(Op::Map(Map::Neg), "-", &[(value, operand)], expr.span)?
                }
            },
            ast::ExprKind::Binary { op, left, right, .. } => {
                let binary = match op {
                    ast::BinaryOp::Add => Binary::Add,
                    ast::BinaryOp::Sub => Binary::Sub,
                    ast::BinaryOp::Mul => Binary::Mul,
                    ast::BinaryOp::Div => Binary::Div,
                };
                self.binary(binary, op.sign(), left, right, expr.span)?
            }
            ast::ExprKind::Call { callee, args } => return self.call(callee, args, expr.span),
            ast::ExprKind::Reshard { operand, layout, partial, .. } => {
                self.reshard(operand, layout, partial, expr.span)?
            }
            ast::ExprKind::Einsum { operands, output, dtype, .. } => {
                self.einsum(operands, output, *dtype, expr.span)?
            }
            ast::ExprKind::Form { op, operands, arguments } => match (op.value, &operands[..]) {
                (Code::Binary(binary), [left, right]) => {
                    self.binary(binary, binary.row().text, left, right, expr.span)?
                }
                (Code::Form(Form::Where), [holds, a, b]) => {
                    self.either(holds, [a, b], expr.span)?
                }
                (code, operands) => self.form(code, operands, arguments, expr.span)?,
            },
        };
        Some(Term::Value(value))
    }

    /// Checks an expression that has to be one value; a number by itself is f32.
    pub(crate) fn value(&mut self, expr: &ast::Expr) -> Option<ValueId> {
        let term = self.term(expr)?;
        self.one(term, expr)
    }

    pub(crate) fn one(&mut self, term: Term, expr: &ast::Expr) -> Option<ValueId> {
        match term {
            Term::Value(value) => Some(value),
            Term::Number { value, text, span } => {
                if !Dtype::F32.reaches(value) {
                    let (dtype, other) = (Dtype::F32, None);
                    self.sink.report(DtypeProblem::OutOfRange { text, span, dtype, other });
                    return None;
                }
                self.builder.push_constant(self.env, value, Dtype::F32, span, self.sink)
            }
            Term::Many(values, callee) => {
                let names: Vec<String> = (1..=values.len()).map(|i| format!("r{i}")).collect();
                self.sink.report(LayerProblem::ResultCount {
                    what: format!("a call of `{callee}`"),
                    given: values.len(),
                    wanted: 1,
                    span: expr.span,
                    declared: self.layers.result_span(&callee),
                    help: Some(format!(
                        "let ({}) = {}",
                        names.join(", "),
                        shard_grammar::print_expr(expr)
                    )),
                });
                None
            }
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Option<ValueId> {
        if let Some(binding) = self.builder.scope.get_mut(name) {
            binding.used = true;
            return binding.value;
        }
        if !self.lenient && self.sink.has_room() && self.unknown_values.insert(name.to_string()) {
            let later = self.later_names.get(name).copied();
            let is_layer = self.layers.index(name).is_some();
            let near =
                nearest(name, self.builder.scope.keys().map(String::as_str)).map(str::to_string);
            self.sink.report(LayerProblem::UnknownValue {
                name: name.to_string(),
                span,
                near,
                later,
                is_layer,
            });
        }
        None
    }

    fn binary(
        &mut self,
        op: Binary,
        word: &str,
        left: &ast::Expr,
        right: &ast::Expr,
        span: Span,
    ) -> Option<ValueId> {
        let (a, b) = (self.term(left), self.term(right));
        let (a, b) = self.numbers_take_dtype(a?, left, b?, right)?;
        self.op(Op::Binary(op), word, &[(a, left), (b, right)], span)
    }

    /// A `where`: one of two values, a number among them in the dtype of the other.
    fn either(
        &mut self,
        holds: &ast::Expr,
        [left, right]: [&ast::Expr; 2],
        span: Span,
    ) -> Option<ValueId> {
        let (which, a, b) = (self.value(holds), self.term(left), self.term(right));
        let (a, b) = self.numbers_take_dtype(a?, left, b?, right)?;
        self.op(Op::Where, "where", &[(which?, holds), (a, left), (b, right)], span)
    }

    /// The two operands as values, a number in the dtype of the other.
    fn numbers_take_dtype(
        &mut self,
        a: Term,
        left: &ast::Expr,
        b: Term,
        right: &ast::Expr,
    ) -> Option<(ValueId, ValueId)> {
        match (a, b) {
            (Term::Number { value, text, span }, b @ (Term::Value(_) | Term::Many(..))) => {
                let b = self.one(b, right)?;
                Some((self.number(value, &text, span, b, right)?, b))
            }
            (a @ (Term::Value(_) | Term::Many(..)), Term::Number { value, text, span }) => {
                let a = self.one(a, left)?;
                Some((a, self.number(value, &text, span, a, left)?))
            }
            (a, b) => {
                let (a, b) = (self.one(a, left), self.one(b, right));
                Some((a?, b?))
            }
        }
    }

    /// A number in the dtype of another operand.
    pub(crate) fn number(
        &mut self,
        number: f64,
        text: &str,
        span: Span,
        other: ValueId,
        other_expr: &ast::Expr,
    ) -> Option<ValueId> {
        let dtype = self.builder.value(other).dtype;
        if !dtype.is_float() && dtype != Dtype::Bool && number.fract() != 0.0 {
            let other = Quote::of_expr(other_expr);
            self.sink.report(DtypeProblem::Fraction { text: text.to_string(), span, dtype, other });
            return None;
        }
        // Whether an op takes truth values is an error of its typing.
        if dtype != Dtype::Bool && !dtype.reaches(number) {
            let other = Some(Quote::of_expr(other_expr));
            let text = text.to_string();
            self.sink.report(DtypeProblem::OutOfRange { text, span, dtype, other });
            return None;
        }
        self.builder.push_constant(self.env, number, dtype, span, self.sink)
    }

    fn reshard(
        &mut self,
        operand: &ast::Expr,
        layout: &ast::LayoutWord,
        partial: &[ast::PartialGroup],
        span: Span,
    ) -> Option<ValueId> {
        let fresh_from = self.builder.values.len();
        let value = self.value(operand);
        let checked = crate::types::check_layout(
            self.env,
            &mut self.builder.labels,
            layout,
            partial,
            true,
            self.sink,
        );
        let (value, (dims, pattern)) = (value?, checked?);
        self.match_dims("the layout of `reshard`", layout, &dims, value, operand.span)?;
        self.builder.pin(
            self.env,
            PinRequest { written: true, fresh_from, ..PinRequest::of(value, dims, pattern, span) },
            self.sink,
        )
    }
}
