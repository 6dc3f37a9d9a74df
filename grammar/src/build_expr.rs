//! From pest's pairs to the syntax tree: expressions.

use crate::ast::*;
use crate::build::{Builder, PinnedLayout, binary_op, parts};
use crate::error::{SyntaxError, SyntaxErrorKind, SyntaxWarning, SyntaxWarningKind};
use crate::grammar::Rule;
use crate::names::Namespace;
use crate::source::{Span, Spanned};
use crate::subscript::parse_dim_list;
use pest::iterators::Pair;

/// An expression and its tree's depth.
type Built = (Expr, usize);

impl Builder<'_> {
    /// `expr` or `product`: operands of one precedence in a row, which make a tree to the left.
    pub(crate) fn expr(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        let mut inner = parts(pair);
        let (mut left, mut depth) = self.operand(inner.next()?)?;
        while let Some(sign) = inner.next() {
            let (right, right_depth) = self.operand(inner.next()?)?;
            let span = left.span.to(right.span);
            depth = self.deeper(depth.max(right_depth), span)?;
            let (op, op_span) = (binary_op(sign.as_rule())?, self.span(&sign));
            let kind = ExprKind::Binary { op, op_span, left: Box::new(left), right: Box::new(right) };
            left = Expr { span, kind };
        }
        Some((left, depth))
    }

    fn operand(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        match pair.as_rule() {
            Rule::product => self.expr(pair),
            _ => self.unary(pair),
        }
    }

    fn unary(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        let mut signs = Vec::new();
        for part in parts(pair) {
            if part.as_rule() == Rule::negate {
                signs.push(self.span(&part));
                continue;
            }
            let (mut expr, mut depth) = self.atom(part)?;
            for op_span in signs.into_iter().rev() {
                let span = op_span.to(expr.span);
                depth = self.deeper(depth, span)?;
                expr = Expr { span, kind: ExprKind::Neg { op_span, operand: Box::new(expr) } };
            }
            return Some((expr, depth));
        }
        None
    }

    fn atom(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        match pair.as_rule() {
            Rule::number => self.number(&pair),
            Rule::call => self.call(pair),
            Rule::paren => {
                let span = self.span(&pair);
                let (inner, depth) = self.expr(parts(pair).next()?)?;
                let depth = self.deeper(depth, span)?;
                Some((Expr { span, kind: ExprKind::Paren(Box::new(inner)) }, depth))
            }
            _ => self.form(pair),
        }
    }

    fn number(&mut self, pair: &Pair<'_, Rule>) -> Option<Built> {
        let (text, span) = (pair.as_str().to_string(), self.span(pair));
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Some((Expr { span, kind: ExprKind::Number(Number { text, value }) }, 1)),
            _ => self.fail(SyntaxError::new(SyntaxErrorKind::NumberTooLarge { text }, span)),
        }
    }

    /// A name, or a call of a layer.
    fn call(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        let mut inner = parts(pair);
        let word = inner.next()?;
        let Some(args_pair) = inner.next() else {
            let name = self.name(Namespace::Value, &word);
            return Some((Expr { span: name.span, kind: ExprKind::Name(name.value) }, 1));
        };
        let callee = self.name(Namespace::Layer, &word);
        let args_span = self.span(&args_pair);
        if self.has_line_end(&word, &args_pair) {
            let kind = SyntaxWarningKind::CallOverLines { callee: callee.value.clone() };
            let help = Some(format!("write `{}(` on one line", callee.value));
            self.warnings.push(SyntaxWarning {
                kind,
                span: callee.span.to(Span::new(args_span.start, args_span.start + 1)),
                help,
                fix: None,
            });
        }
        let (mut args, mut depth) = (Vec::new(), 0);
        for arg in parts(args_pair) {
            let (arg, arg_depth) = match arg.as_rule() {
                Rule::named => {
                    let mut inner = parts(arg);
                    let name = self.name(Namespace::Value, &inner.next()?);
                    let (value, depth) = self.expr(inner.next()?)?;
                    let span = name.span.to(value.span);
                    (Expr { span, kind: ExprKind::Named { name, value: Box::new(value) } }, depth)
                }
                _ => self.expr(arg)?,
            };
            args.push(arg);
            depth = depth.max(arg_depth);
        }
        let span = callee.span.to(args_span);
        let depth = self.deeper(depth, span)?;
        Some((Expr { span, kind: ExprKind::Call { callee, args } }, depth))
    }

    /// Whether a line ends between two neighbours.
    fn has_line_end(&self, before: &Pair<'_, Rule>, behind: &Pair<'_, Rule>) -> bool {
        let between = before.get_input().get(before.as_span().end()..behind.as_span().start());
        between.is_some_and(|text| text.contains('\n'))
    }

    /// A built-in form: its word, its operands, and what it is told about dims.
    fn form(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        let (rule, span) = (pair.as_rule(), self.span(&pair));
        let mut inner = parts(pair);
        let word = inner.next()?;
        let word_span = self.span(&word);
        let (mut operands, mut rest, mut depth) = (Vec::new(), Vec::new(), 0);
        for part in inner {
            if part.as_rule() == Rule::expr {
                let (operand, operand_depth) = self.expr(part)?;
                operands.push(operand);
                depth = depth.max(operand_depth);
            } else {
                rest.push(part);
            }
        }
        let depth = self.deeper(depth, span)?;
        let word = Spanned::new(word.as_str(), word_span);
        let kind = self.form_kind(rule, word, operands, rest)?;
        Some((Expr { span, kind }, depth))
    }

    fn form_kind(
        &mut self,
        rule: Rule,
        word: Spanned<&str>,
        operands: Vec<Expr>,
        rest: Vec<Pair<'_, Rule>>,
    ) -> Option<ExprKind> {
        let word_span = word.span;
        if rule == Rule::einsum {
            let output = self.dim_list(rest.first()?)?;
            let dtype = match rest.get(1) {
                Some(word) => Some(self.dtype(word)?),
                None => None,
            };
            return Some(ExprKind::Einsum { word_span, operands, output, dtype });
        }
        let mut operands = operands.into_iter();
        let mut operand = || operands.next().map(Box::new);
        let first = operand()?;
        let mut rest = rest.into_iter();
        Some(match rule {
            Rule::map => ExprKind::Map { op: Spanned::new(MapOp::from_word(word.value)?, word_span), operand: first },
            Rule::extremum => {
                let op = Spanned::new(ExtremumOp::from_word(word.value)?, word_span);
                ExprKind::Extremum { op, left: first, right: operand()? }
            }
            Rule::reduce => {
                let op = Spanned::new(ReduceOp::from_word(word.value)?, word_span);
                ExprKind::Reduce { op, operand: first, over: self.dim_list(&rest.next()?)? }
            }
            Rule::normalize => {
                let op = Spanned::new(NormalizeOp::from_word(word.value)?, word_span);
                ExprKind::Normalize { op, operand: first, over: self.dim_list(&rest.next()?)? }
            }
            Rule::rename => {
                let (from, to) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                ExprKind::Rename { word_span, operand: first, from, to }
            }
            Rule::split => {
                let from = self.dim_name(rest.next())?;
                let to = self.several_dims("split", &rest.next()?)?;
                ExprKind::Split { word_span, operand: first, from, to }
            }
            Rule::merge => {
                let from = self.several_dims("merge", &rest.next()?)?;
                ExprKind::Merge { word_span, operand: first, from, to: self.dim_name(rest.next())? }
            }
            Rule::concat => {
                let right = operand()?;
                let (left_dim, right_dim) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                ExprKind::Concat { word_span, left: first, right, left_dim, right_dim, to: self.dim_name(rest.next())? }
            }
            Rule::slice => {
                let (from, to) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                ExprKind::Slice { word_span, operand: first, from, to, start: self.int_expr(rest.next()?)?.0 }
            }
            Rule::append => {
                let new = operand()?;
                let (from, to) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                ExprKind::Append { word_span, cache: first, new, from, to }
            }
            Rule::causal => {
                let (query, key) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                ExprKind::Causal { word_span, operand: first, query, key }
            }
            Rule::rope => {
                let (dim, position) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                let extent = rest.next().map(|pair| self.name(Namespace::Dim, &pair));
                ExprKind::Rope { word_span, operand: first, dim, position, extent }
            }
            Rule::take => ExprKind::Take { word_span, table: first, ids: operand()?, dim: self.dim_name(rest.next())? },
            Rule::route => {
                let (experts, tokens) = (self.dim_name(rest.next())?, self.dim_name(rest.next())?);
                let (places, choices) = (self.dim_name(rest.next())?, self.int_expr(rest.next()?)?.0);
                ExprKind::Route { word_span, operand: first, experts, tokens, places, choices }
            }
            Rule::cast => ExprKind::Cast { word_span, operand: first, dtype: self.dtype(&rest.next()?)? },
            Rule::reshard => {
                let PinnedLayout { word: layout, partial, .. } = self.layout(rest.next()?, rest.next())?;
                ExprKind::Reshard { word_span, operand: first, layout, partial }
            }
            _ => return None,
        })
    }

    fn dim_name(&mut self, pair: Option<Pair<'_, Rule>>) -> Option<Name> {
        Some(self.name(Namespace::Dim, &pair?))
    }

    fn dim_list(&mut self, pair: &Pair<'_, Rule>) -> Option<DimList> {
        let span = self.span(pair);
        self.word(parse_dim_list(pair.as_str(), span.start))
    }

    /// The parts of a dim, two or more: as one it is renamed.
    fn several_dims(&mut self, word: &'static str, pair: &Pair<'_, Rule>) -> Option<DimList> {
        let list = self.dim_list(pair)?;
        match list.dims.len() {
            found @ (0 | 1) => self.fail(SyntaxError::new(SyntaxErrorKind::DimCount { word, found }, list.span)),
            _ => Some(list),
        }
    }
}
