//! From pest's pairs to the syntax tree: expressions.

use crate::ast::*;
use crate::build::{Builder, PinnedLayout, binary_op, optional, parts};
use crate::error::{SyntaxError, SyntaxErrorKind, SyntaxWarning, SyntaxWarningKind};
use crate::grammar::Rule;
use crate::names::Namespace;
use pest::iterators::Pair;
use shard_ops::{Code, Flag, Slot, Takes};
use shard_words::parse_dim_list;
use shard_words::{Span, Spanned};

/// An expression, and the depth of its tree.
type Built = (Expr, usize);

impl Builder<'_> {
    /// `expr` or `product`: a chain of operands of one precedence, as a left-associative tree.
    pub(crate) fn expr(&mut self, pair: Pair<'_, Rule>) -> Option<Built> {
        let mut inner = parts(pair);
        let (mut left, mut depth) = self.operand(inner.next()?)?;
        while let Some(sign) = inner.next() {
            let (right, right_depth) = self.operand(inner.next()?)?;
            let span = left.span.to(right.span);
            depth = self.deeper(depth.max(right_depth), span)?;
            let (op, op_span) = (binary_op(&sign)?, self.span(&sign));
            let kind =
                ExprKind::Binary { op, op_span, left: Box::new(left), right: Box::new(right) };
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
            Ok(value) if value.is_finite() => {
                Some((Expr { span, kind: ExprKind::Number(Number { text, value }) }, 1))
            }
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

    /// Whether a line ends between two neighbouring pairs.
    fn has_line_end(&self, before: &Pair<'_, Rule>, behind: &Pair<'_, Rule>) -> bool {
        let between = before.get_input().get(before.as_span().end()..behind.as_span().start());
        between.is_some_and(|text| text.contains('\n'))
    }

    /// An op of the language: its word, its operands, and what fills its slots.
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
        let kind = match rule {
            Rule::einsum => {
                let output = self.dim_list(rest.first()?)?;
                let dtype = optional(rest.get(1), |word| self.dtype(word))?;
                ExprKind::Einsum { word_span, operands, output, dtype }
            }
            Rule::reshard => {
                let (operand, mut rest) = (Box::new(operands.pop()?), rest.into_iter());
                let PinnedLayout { word: layout, partial, .. } =
                    self.layout(rest.next()?, rest.next())?;
                ExprKind::Reshard { word_span, operand, layout, partial }
            }
            _ => {
                let code = Code::of_source(word.as_str())?;
                // A layer may have the name of an op that was added later: then this is a call of
                // it.
                if code.row().is(Flag::Later)
                    && code.row().slots.is_empty()
                    && self.layers.contains(word.as_str())
                {
                    let callee = Spanned::new(word.as_str().to_string(), word_span);
                    let kind = ExprKind::Call { callee, args: operands };
                    return Some((Expr { span, kind }, depth));
                }
                let slots = code.row().slots.iter().zip(rest);
                let arguments = slots
                    .map(|(slot, pair)| self.argument(code, slot, pair))
                    .collect::<Option<_>>()?;
                ExprKind::Form { op: Spanned::new(code, word_span), operands, arguments }
            }
        };
        Some((Expr { span, kind }, depth))
    }

    /// What fills a slot of an op.
    fn argument(&mut self, code: Code, slot: &Slot, pair: Pair<'_, Rule>) -> Option<Argument> {
        Some(match slot.takes {
            Takes::Dim | Takes::DimOrNothing => Argument::Dim(self.name(Namespace::Dim, &pair)),
            Takes::ListOfOne | Takes::Dims => Argument::Dims(self.dim_list(&pair)?),
            Takes::SeveralDims => Argument::Dims(self.several_dims(code.row().text, &pair)?),
            Takes::Position(_) | Takes::Count(_) | Takes::CountOrNothing(_) => {
                Argument::Number(self.int_expr(pair)?.0)
            }
            Takes::Dtype => Argument::Dtype(self.dtype(&pair)?),
        })
    }

    fn dim_list(&mut self, pair: &Pair<'_, Rule>) -> Option<DimList> {
        let span = self.span(pair);
        self.word(parse_dim_list(pair.as_str(), span.start))
    }

    /// Two dims or more; a split or merge of one would be a rename.
    fn several_dims(&mut self, word: &'static str, pair: &Pair<'_, Rule>) -> Option<DimList> {
        let list = self.dim_list(pair)?;
        let found = list.dims.len();
        if found > 1 {
            return Some(list);
        }
        self.fail(SyntaxError::new(SyntaxErrorKind::DimCount { word, found }, list.span))
    }
}
