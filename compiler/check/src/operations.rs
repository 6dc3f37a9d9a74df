//! The operations that name dims: einsum, reductions, composites, rename, split, merge and the rest.

use shard_grammar::{Span, ast};
use shard_ir::{DimId, Norm, Op, Reduce, TypeError, ValueId};

use crate::diagnostics::limits::{MAX_EINSUM_OPERANDS, MAX_ITERATIONS};
use crate::diagnostics::{DtypeProblem, LimitProblem, ShapeProblem};
use crate::expr::Term;
use crate::int_expr;
use crate::layer::LayerChecker;
use crate::names::nearest;

type Operand<'x> = (ValueId, &'x ast::Expr);

impl LayerChecker<'_, '_> {
    pub(crate) fn einsum(
        &mut self,
        exprs: &[ast::Expr],
        output: &ast::DimList,
        stated: Option<shard_grammar::Spanned<ast::DType>>,
        span: Span,
    ) -> Option<ValueId> {
        if exprs.len() > MAX_EINSUM_OPERANDS {
            self.sink.report(LimitProblem::Operands { found: exprs.len(), limit: MAX_EINSUM_OPERANDS, span });
            return None;
        }
        let terms: Vec<Option<Term>> = exprs.iter().map(|expr| self.term(expr)).collect();
        let named = self.env.dim_list(output, self.sink);
        let mut operands: Vec<Operand<'_>> = Vec::new();
        // Values first: a number takes the dtype of the first of them.
        let first = terms.iter().zip(exprs).find_map(|(t, e)| match t {
            Some(Term::Value(v)) => Some((*v, e)),
            _ => None,
        });
        for (term, expr) in terms.into_iter().zip(exprs) {
            let value = match (term?, first) {
                (Term::Number { value, text, span }, Some((other, other_expr))) => {
                    self.number(value, &text, span, other, other_expr)
                }
                (term, _) => self.one(term, expr),
            };
            operands.push((value?, expr));
        }
        let named = named?;
        let types: Vec<_> = operands.iter().map(|(v, _)| self.builder.type_of(*v)).collect();
        let iterations = {
            let mut all: Vec<DimId> = types.iter().flat_map(|t| t.dims.iter().copied()).collect();
            all.sort();
            all.dedup();
            all.iter().try_fold(1u64, |n, d| n.checked_mul(self.env.size(*d)).filter(|n| *n <= MAX_ITERATIONS))
        };
        if iterations.is_none() {
            self.sink.report(LimitProblem::Iterations { limit: MAX_ITERATIONS, span });
            return None;
        }
        match shard_ir::result_type(&Op::Einsum, &types, &named, &self.env.dims) {
            Ok(mut ty) => {
                if let Some(stated) = stated {
                    let dtype = crate::types::dtype(stated.value);
                    if !shard_ir::accumulates_in(ty.dtype, dtype) {
                        let product = ty.dtype;
                        self.sink.report(DtypeProblem::Accumulated { product, stated: (stated.span, dtype), span });
                        return None;
                    }
                    ty.dtype = dtype;
                }
                let values = operands.iter().map(|(v, _)| *v).collect();
                self.builder.push_op(self.env, Op::Einsum, values, ty, span, self.sink)
            }
            Err(TypeError::NoOperandHas(_)) => {
                let kept: Vec<DimId> =
                    named.iter().copied().filter(|d| types.iter().any(|t| t.dims.contains(d))).collect();
                let has = |dim: &DimId| types.iter().any(|t| t.dims.contains(dim));
                for (dim, name) in named.iter().zip(&output.dims).filter(|(dim, _)| !has(dim)) {
                    let all = types.iter().flat_map(|t| &t.dims).filter(|d| !named.contains(d));
                    let near = nearest(self.env.dim_name(*dim), all.map(|d| self.env.dim_name(*d)));
                    self.sink.report(ShapeProblem::OutputDim {
                        dim: name.value.clone(),
                        span: name.span,
                        operands: operands
                            .iter()
                            .zip(&types)
                            .map(|((_, e), t)| (e.span, self.env.dims_text(&t.dims)))
                            .collect(),
                        near: near.map(str::to_string),
                        rest: (output.span, self.env.dims_text(&kept)),
                    });
                }
                None
            }
            Err(error) => {
                self.report_type_error(&Op::Einsum, "einsum", &operands, span, error);
                None
            }
        }
    }

    /// An operation that names dims of its operands.
    pub(crate) fn dim_op(&mut self, expr: &ast::Expr) -> Option<ValueId> {
        let span = expr.span;
        match &expr.kind {
            ast::ExprKind::Reduce { op, operand, over } => {
                let (a, dims) = (self.value(operand), self.env.dim_list(over, self.sink));
                let (a, over_dims) = ((a?, &**operand), dims?);
                let kind = match op.value {
                    ast::ReduceOp::Sum => Reduce::Sum,
                    ast::ReduceOp::Mean => Reduce::Mean,
                    ast::ReduceOp::Max => Reduce::Max,
                };
                for (dim, name) in over_dims.iter().zip(&over.dims) {
                    self.needs(op.value.word(), *dim, name.span, a)?;
                }
                self.op(Op::Reduce { kind, over: over_dims }, op.value.word(), &[a], span)
            }
            ast::ExprKind::Normalize { op, operand, over } => {
                let (a, dims) = (self.value(operand), self.env.dim_list(over, self.sink));
                let (a, dims) = ((a?, &**operand), dims?);
                let word = op.value.word();
                let &[dim] = dims.as_slice() else {
                    return self.sizes(
                        format!("`{word}` goes over one dim, and {} are named", dims.len()),
                        over.span,
                        "one dim belongs here",
                        Some("merge the dims into one first".to_string()),
                    );
                };
                self.needs(word, dim, over.span, a)?;
                let op = match op.value {
                    ast::NormalizeOp::Softmax => Op::Softmax { over: dim },
                    ast::NormalizeOp::RmsNorm => Op::Norm { kind: Norm::Rms, over: dim },
                    ast::NormalizeOp::LayerNorm => Op::Norm { kind: Norm::Layer, over: dim },
                };
                self.op(op, word, &[a], span)
            }
            ast::ExprKind::Rename { operand, from, to, .. } => {
                let (a, dims) = (self.value(operand), self.dims([from, to]));
                let (a, [f, t]) = ((a?, &**operand), dims?);
                self.needs("rename", f, from.span, a)?;
                if self.env.size(f) != self.env.size(t) {
                    let message = format!("`rename` keeps the size, and {} while {}", self.sized(f), self.sized(t));
                    let help = format!("dim {} = {}", to.value, from.value);
                    return self.sizes(message, from.span.to(to.span), "of different sizes", Some(help));
                }
                self.op(Op::Rename { from: f, to: t }, "rename", &[a], span)
            }
            ast::ExprKind::Split { operand, from, to, .. } => {
                let (a, f, parts) = (self.value(operand), self.dims([from]), self.env.dim_list(to, self.sink));
                let (a, [f], parts) = ((a?, &**operand), f?, parts?);
                self.needs("split", f, from.span, a)?;
                self.product_is("split", &parts, f, from.span.to(to.span))?;
                self.op(Op::Split { from: f, to: parts }, "split", &[a], span)
            }
            ast::ExprKind::Merge { operand, from, to, .. } => {
                let (a, parts, t) = (self.value(operand), self.env.dim_list(from, self.sink), self.dims([to]));
                let (a, parts, [t]) = ((a?, &**operand), parts?, t?);
                for (dim, name) in parts.iter().zip(&from.dims) {
                    self.needs("merge", *dim, name.span, a)?;
                }
                self.product_is("merge", &parts, t, from.span.to(to.span))?;
                self.op(Op::Merge { from: parts, to: t }, "merge", &[a], span)
            }
            ast::ExprKind::Concat { left, right, left_dim, right_dim, to, .. } => {
                let (a, b) = (self.value(left), self.value(right));
                let dims = self.dims([left_dim, right_dim, to]);
                let (a, b, [l, r, t]) = ((a?, &**left), (b?, &**right), dims?);
                self.needs("concat", l, left_dim.span, a)?;
                self.needs("concat", r, right_dim.span, b)?;
                let sum = self.env.size(l) + self.env.size(r);
                if sum != self.env.size(t) {
                    let message = format!(
                        "`concat` gives {} + {} = {sum} positions, and {}",
                        left_dim.value,
                        right_dim.value,
                        self.sized(t)
                    );
                    let help = format!("dim {} = {} + {}", to.value, left_dim.value, right_dim.value);
                    return self.sizes(message, left_dim.span.to(to.span), "sizes do not add up", Some(help));
                }
                self.op(Op::Concat { left: l, right: r, to: t }, "concat", &[a, b], span)
            }
            ast::ExprKind::Slice { operand, from, to, start, .. } => {
                let (a, dims) = (self.value(operand), self.dims([from, to]));
                let offset = int_expr::offset(self.env, start, self.sink);
                let (a, [f, t], offset) = ((a?, &**operand), dims?, offset?);
                self.needs("slice", f, from.span, a)?;
                let end = offset.saturating_add(self.env.size(t));
                if end > self.env.size(f) {
                    let message =
                        format!("`slice` takes positions {offset} to {end} of `{}`, and {}", from.value, self.sized(f));
                    let help = match self.env.size(f).checked_sub(self.env.size(t)) {
                        Some(last) => format!("slice(..., {} -> {}, {last})    (the last start)", from.value, to.value),
                        None => format!("dim {} = {}    (or less)", to.value, self.env.size(f)),
                    };
                    return self.sizes(message, from.span.to(start.span), "reaches past the end", Some(help));
                }
                self.op(Op::SliceDim { from: f, to: t, offset }, "slice", &[a], span)
            }
            ast::ExprKind::Append { cache, new, from, to, .. } => {
                let (a, b) = (self.value(cache), self.value(new));
                let dims = self.dims([from, to]);
                let (a, b, [f, t]) = ((a?, &**cache), (b?, &**new), dims?);
                self.needs("append", t, to.span, a)?;
                self.needs("append", f, from.span, b)?;
                self.fits_in("append", f, t, from.span.to(to.span), "new positions")?;
                self.op(Op::Append { from: f, to: t }, "append", &[a, b], span)
            }
            ast::ExprKind::Causal { operand, query, key, .. } => {
                let (a, dims) = (self.value(operand), self.dims([query, key]));
                let (a, [q, k]) = ((a?, &**operand), dims?);
                self.needs("causal", q, query.span, a)?;
                self.needs("causal", k, key.span, a)?;
                self.different("causal", q, k, key.span)?;
                self.fits_in("causal", q, k, query.span.to(key.span), "queries")?;
                self.op(Op::Mask { query: q, key: k }, "causal", &[a], span)
            }
            ast::ExprKind::Rope { operand, dim, position, extent, .. } => {
                let (a, dims) = (self.value(operand), self.dims([dim, position]));
                let all = extent.as_ref().map(|extent| self.dims([extent]));
                let (a, [d, p]) = ((a?, &**operand), dims?);
                self.needs("rope", d, dim.span, a)?;
                self.needs("rope", p, position.span, a)?;
                self.different("rope", d, p, position.span)?;
                if !self.env.size(d).is_multiple_of(2) {
                    let message = format!("`rope` turns a dim in halves, and {} is odd", self.sized(d));
                    let help = format!("dim {} = {}", dim.value, self.env.size(d) + 1);
                    return self.sizes(message, dim.span, "odd", Some(help));
                }
                let all = match (all, extent) {
                    (Some(all), Some(extent)) => {
                        let [s] = all?;
                        self.fits_in("rope", p, s, position.span.to(extent.span), "places")?;
                        Some(s)
                    }
                    _ => None,
                };
                self.op(Op::Rope { over: d, at: p, extent: all }, "rope", &[a], span)
            }
            ast::ExprKind::Take { table, ids, dim, .. } => {
                let (a, b, d) = (self.value(table), self.value(ids), self.dims([dim]));
                let (a, b, [d]) = ((a?, &**table), (b?, &**ids), d?);
                self.needs("take", d, dim.span, a)?;
                self.op(Op::Take { over: d }, "take", &[a, b], span)
            }
            ast::ExprKind::Route { operand, experts, tokens, places, choices, .. } => {
                let (a, dims) = (self.value(operand), self.dims([experts, tokens, places]));
                let count = int_expr::count(self.env, choices, self.sink);
                let (a, [x, t, c], count) = ((a?, &**operand), dims?, count?);
                self.needs("route", x, experts.span, a)?;
                self.needs("route", t, tokens.span, a)?;
                self.different("route", x, t, tokens.span)?;
                if self.builder.value(a.0).dims.contains(&c) {
                    let dim = self.env.dim_name(c).to_string();
                    self.sink.report(ShapeProblem::SameDim { op: "route".to_string(), dim, span: places.span });
                    return None;
                }
                if count > self.env.size(x) {
                    let message = format!("`route` lets a token ask for {count} experts, and {}", self.sized(x));
                    let help = format!("route(... -> {}, {})    (all experts)", places.value, self.env.size(x));
                    return self.sizes(message, choices.span, "more than there are", Some(help));
                }
                self.op(Op::Route { over: x, at: t, to: c, choices: count }, "route", &[a], span)
            }
            // `term` sends here only what names dims.
            _ => None,
        }
    }

    fn dims<const N: usize>(&mut self, names: [&ast::Name; N]) -> Option<[DimId; N]> {
        let dims = names.map(|name| self.env.dim(name, None, self.sink));
        dims.iter().all(Option::is_some).then(|| dims.map(|d| d.unwrap_or(DimId(0))))
    }

    fn sized(&self, dim: DimId) -> String {
        format!("`{}` = {}", self.env.dim_name(dim), self.env.size(dim))
    }

    fn sizes(&mut self, message: String, span: Span, here: &str, help: Option<String>) -> Option<ValueId> {
        self.sink.report(ShapeProblem::Sizes { message, span, here: here.to_string(), help });
        None
    }

    fn needs(&mut self, op: &str, dim: DimId, span: Span, operand: Operand<'_>) -> Option<()> {
        let dims = &self.builder.value(operand.0).dims;
        if dims.contains(&dim) {
            return Some(());
        }
        let near = nearest(self.env.dim_name(dim), dims.iter().map(|d| self.env.dim_name(*d)));
        self.sink.report(ShapeProblem::MissingDim {
            op: op.to_string(),
            dim: self.env.dim_name(dim).to_string(),
            span,
            operand: operand.1.span,
            dims: self.env.dims_text(dims),
            near: near.map(str::to_string),
        });
        None
    }

    fn different(&mut self, op: &str, a: DimId, b: DimId, span: Span) -> Option<()> {
        if a != b {
            return Some(());
        }
        let dim = self.env.dim_name(a).to_string();
        self.sink.report(ShapeProblem::SameDim { op: op.to_string(), dim, span });
        None
    }

    fn product_is(&mut self, op: &str, parts: &[DimId], whole: DimId, span: Span) -> Option<()> {
        let product = parts.iter().try_fold(1u64, |n, d| n.checked_mul(self.env.size(*d)));
        if product == Some(self.env.size(whole)) {
            return Some(());
        }
        let names: Vec<&str> = parts.iter().map(|d| self.env.dim_name(*d)).collect();
        let product = product.map_or("a number beyond all limits".to_string(), |n| n.to_string());
        let message = format!("`{op}`: {} = {product}, and {}", names.join(" * "), self.sized(whole));
        let help = format!("dim {} = {}", self.env.dim_name(whole), names.join(" * "));
        self.sizes(message, span, "sizes do not multiply", Some(help));
        None
    }

    fn fits_in(&mut self, op: &str, small: DimId, large: DimId, span: Span, what: &str) -> Option<()> {
        if self.env.size(small) <= self.env.size(large) {
            return Some(());
        }
        let message = format!("`{op}`: more {what} than positions, {} and {}", self.sized(small), self.sized(large));
        let help = format!("dim {} = {}    (or more)", self.env.dim_name(large), self.env.size(small));
        self.sizes(message, span, "does not fit", Some(help));
        None
    }
}
