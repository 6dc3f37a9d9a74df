//! The operations that name dims: einsum, reductions, composites, rename, split, merge and the
//! rest.

use shard_grammar::{Span, ast};
use shard_ir::op::{Argument, Code, Of, Slot, Takes};
use shard_ir::{DimId, Dtype, Op, TensorType, TypeError, ValueId};

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
        stated: Option<shard_grammar::Spanned<Dtype>>,
        span: Span,
    ) -> Option<ValueId> {
        if exprs.len() > MAX_EINSUM_OPERANDS {
            self.sink.report(LimitProblem::Operands {
                found: exprs.len(),
                limit: MAX_EINSUM_OPERANDS,
                span,
            });
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
            all.iter().try_fold(1u64, |n, d| {
                n.checked_mul(self.env.size(*d)).filter(|n| *n <= MAX_ITERATIONS)
            })
        };
        if iterations.is_none() {
            self.sink.report(LimitProblem::Iterations { limit: MAX_ITERATIONS, span });
            return None;
        }
        match shard_ir::result_type(&Op::Einsum, &types, &named, &self.env.dims) {
            Ok(mut ty) => {
                if let Some(stated) = stated {
                    let dtype = stated.value;
                    if !shard_ir::accumulates_in(ty.dtype, dtype) {
                        let product = ty.dtype;
                        self.sink.report(DtypeProblem::Accumulated {
                            product,
                            stated: (stated.span, dtype),
                            span,
                        });
                        return None;
                    }
                    ty.dtype = dtype;
                }
                let values = operands.iter().map(|(v, _)| *v).collect();
                self.builder.push_op(self.env, Op::Einsum, values, ty, span, self.sink)
            }
            Err(TypeError::NoOperandHas(_)) => {
                self.report_dims_of_no_operand(&operands, &types, &named, output);
                None
            }
            Err(error) => {
                self.report_type_error(&Op::Einsum, "einsum", &operands, span, error);
                None
            }
        }
    }

    /// Says of each dim of an einsum's output that no operand has it.
    fn report_dims_of_no_operand(
        &mut self,
        operands: &[Operand<'_>],
        types: &[TensorType],
        named: &[DimId],
        output: &ast::DimList,
    ) {
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
                    .zip(types)
                    .map(|((_, e), t)| (e.span, self.env.dims_text(&t.dims)))
                    .collect(),
                near: near.map(str::to_string),
                rest: (output.span, self.env.dims_text(&kept)),
            });
        }
    }

    /// An op of one form or another: its operands, what fills its slots, and then whether its sizes
    /// fit.
    pub(crate) fn form(
        &mut self,
        code: Code,
        exprs: &[ast::Expr],
        arguments: &[ast::Argument],
        span: Span,
    ) -> Option<ValueId> {
        let row = code.row();
        let word = row.source.unwrap_or(row.text);
        let values: Vec<Option<ValueId>> = exprs.iter().map(|expr| self.value(expr)).collect();
        let filled: Vec<Option<Argument>> = row
            .slots
            .iter()
            .zip(arguments)
            .map(|(slot, argument)| self.filling(slot, argument))
            .collect();
        let values = values.into_iter().collect::<Option<Vec<_>>>()?;
        let filled = filled.into_iter().collect::<Option<Vec<_>>>()?;
        let operands: Vec<Operand<'_>> = values.into_iter().zip(exprs).collect();
        let mut op_arguments = Vec::new();
        for ((slot, argument), written) in row.slots.iter().zip(filled).zip(arguments) {
            op_arguments.push(match (slot.takes, argument) {
                (Takes::ListOfOne, Argument::Dims(dims)) => match dims.as_slice() {
                    [dim] => Argument::Dim(*dim),
                    _ => {
                        let message =
                            format!("`{word}` goes over one dim, and {} are named", dims.len());
                        let help = Some("merge the dims into one first".to_string());
                        self.sizes(message, written.span(), "one dim belongs here", help)?;
                        return None;
                    }
                },
                (_, argument) => argument,
            });
        }
        // Operand by operand.
        for (at, operand) in operands.iter().enumerate() {
            for ((slot, argument), written) in row.slots.iter().zip(&op_arguments).zip(arguments) {
                let of = match slot.of {
                    Of::Operand(of) | Of::Whole(of) => Some(of),
                    Of::WholeInAll => Some(0),
                    Of::Result | Of::None => None,
                };
                if of != Some(at) {
                    continue;
                }
                for (place, dim) in argument.dims().iter().enumerate() {
                    let span = match (written, slot.takes) {
                        (ast::Argument::Dims(list), Takes::Dims | Takes::SeveralDims) => {
                            list.dims[place].span
                        }
                        _ => written.span(),
                    };
                    self.needs(word, *dim, span, *operand)?;
                }
            }
        }
        let op = Op::of(code, op_arguments)?;
        let spans: Vec<Span> = arguments.iter().map(ast::Argument::span).collect();
        self.sizes_fit(&op, word, &operands, &spans)?;
        self.op(op, word, &operands, span)
    }

    /// What fills a slot: dims that are declared, numbers that are in range.
    fn filling(&mut self, slot: &Slot, written: &ast::Argument) -> Option<Argument> {
        Some(match written {
            ast::Argument::Dim(name) => Argument::Dim(self.env.dim(name, None, self.sink)?),
            ast::Argument::Dims(list) => Argument::Dims(self.env.dim_list(list, self.sink)?),
            ast::Argument::Number(expr) => Argument::Number(match slot.takes {
                Takes::Count(_) => {
                    let what = format!("the number of {}", slot.name);
                    int_expr::count(self.env, expr, &what, self.sink)?
                }
                Takes::CountOrNothing(_) => {
                    int_expr::count(self.env, expr, &format!("the {}", slot.name), self.sink)?
                }
                _ => int_expr::offset(self.env, expr, self.sink)?,
            }),
            ast::Argument::Dtype(dtype) => Argument::Dtype(dtype.value),
        })
    }

    /// Whether the sizes of an op's dims fit, and its dims are different where they have to be;
    /// `spans` are those of its slots.
    fn sizes_fit(
        &mut self,
        op: &Op,
        word: &str,
        operands: &[Operand<'_>],
        spans: &[Span],
    ) -> Option<()> {
        match op {
            Op::Rename { from, to } => {
                if self.env.size(*from) != self.env.size(*to) {
                    let message = format!(
                        "`{word}` keeps the size, and {} while {}",
                        self.sized(*from),
                        self.sized(*to)
                    );
                    let help =
                        format!("dim {} = {}", self.env.dim_name(*to), self.env.dim_name(*from));
                    return self.sizes(
                        message,
                        spans[0].to(spans[1]),
                        "of different sizes",
                        Some(help),
                    );
                }
            }
            Op::Split { from: whole, to: parts } | Op::Merge { from: parts, to: whole } => {
                self.product_is(word, parts, *whole, spans[0].to(spans[1]))?;
            }
            Op::Concat { left, right, to } => {
                let sum = self.env.size(*left) + self.env.size(*right);
                if sum != self.env.size(*to) {
                    let parts =
                        format!("{} + {}", self.env.dim_name(*left), self.env.dim_name(*right));
                    let message = format!(
                        "`{word}` gives {parts} = {sum} positions, and {}",
                        self.sized(*to)
                    );
                    let help = format!("dim {} = {parts}", self.env.dim_name(*to));
                    return self.sizes(
                        message,
                        spans[0].to(spans[2]),
                        "sizes do not add up",
                        Some(help),
                    );
                }
            }
            Op::SliceDim { from, to, offset } => {
                let (all, kept) = (self.env.size(*from), self.env.size(*to));
                let end = offset.saturating_add(kept);
                if end > all {
                    let (from_name, to_name) = (self.env.dim_name(*from), self.env.dim_name(*to));
                    let message = format!(
                        "`{word}` takes positions {offset} to {end} of `{from_name}`, and {}",
                        self.sized(*from)
                    );
                    let help = match all.checked_sub(kept) {
                        Some(last) => format!(
                            "{word}(..., {from_name} -> {to_name}, {last})    (the last start)"
                        ),
                        None => format!("dim {to_name} = {all}    (or less)"),
                    };
                    return self.sizes(
                        message,
                        spans[0].to(spans[2]),
                        "reaches past the end",
                        Some(help),
                    );
                }
            }
            Op::Pad { from, to, offset } => {
                let (had, all) = (self.env.size(*from), self.env.size(*to));
                let end = offset.saturating_add(had);
                if end > all {
                    let (from_name, to_name) = (self.env.dim_name(*from), self.env.dim_name(*to));
                    let message = format!(
                        "`{word}` puts `{from_name}` at positions {offset} to {end}, and {}",
                        self.sized(*to)
                    );
                    let help = match all.checked_sub(had) {
                        Some(last) => format!(
                            "{word}(..., {from_name} -> {to_name}, {last})    (no zeros behind it)"
                        ),
                        None => format!("dim {to_name} = {end}    (or more)"),
                    };
                    let span = spans[0].to(spans[2]);
                    return self.sizes(message, span, "reaches past the end", Some(help));
                }
            }
            Op::TopK { over, to, parts } | Op::ArgTopK { over, to, parts } => {
                if over != to {
                    self.is_new(word, *to, operands[0], spans[1])?;
                }
                self.fits_in(word, *to, *over, spans[0].to(spans[1]), "places")?;
                let parts = parts.unwrap_or(1);
                for dim in [*over, *to] {
                    if !self.env.size(dim).is_multiple_of(parts) {
                        let message = format!(
                            "`{word}` chooses as many of each of {parts} parts, and {}",
                            self.sized(dim)
                        );
                        let next = self.env.size(dim).next_multiple_of(parts);
                        let help = format!("dim {} = {next}", self.env.dim_name(dim));
                        let span = spans.get(2).copied().unwrap_or(spans[1]);
                        return self.sizes(message, span, "parts of one size", Some(help));
                    }
                }
            }
            Op::ScatterAdd { over, to } => {
                self.is_new(word, *to, operands[0], spans[1])?;
                for dim in over {
                    self.needs(word, *dim, spans[0], operands[1])?;
                }
            }
            Op::Append { from, to } => {
                self.fits_in(word, *from, *to, spans[0].to(spans[1]), "new positions")?
            }
            Op::Mask { query, key, window: _ } => {
                self.different(word, *query, *key, spans[1])?;
                self.fits_in(word, *query, *key, spans[0].to(spans[1]), "queries")?;
            }
            Op::Rope { over, at, extent } => {
                self.different(word, *over, *at, spans[1])?;
                if !self.env.size(*over).is_multiple_of(2) {
                    let message =
                        format!("`{word}` turns a dim in halves, and {} is odd", self.sized(*over));
                    let help =
                        format!("dim {} = {}", self.env.dim_name(*over), self.env.size(*over) + 1);
                    return self.sizes(message, spans[0], "odd", Some(help));
                }
                if let Some(extent) = extent {
                    self.fits_in(word, *at, *extent, spans[1].to(spans[2]), "places")?;
                }
            }
            Op::Route { over, at, to, choices } => {
                self.different(word, *over, *at, spans[1])?;
                self.is_new(word, *to, operands[0], spans[2])?;
                if *choices > self.env.size(*over) {
                    let message = format!(
                        "`{word}` lets a token ask for {choices} experts, and {}",
                        self.sized(*over)
                    );
                    let (to, all) = (self.env.dim_name(*to), self.env.size(*over));
                    let help = format!("{word}(... -> {to}, {all})    (all experts)");
                    return self.sizes(message, spans[3], "more than there are", Some(help));
                }
            }
            Op::Einsum
            | Op::Map(_)
            | Op::Binary(_)
            | Op::Reduce { .. }
            | Op::Softmax { .. }
            | Op::Norm { .. }
            | Op::Take { .. }
            | Op::Cumsum { .. }
            | Op::SinkSoftmax { .. }
            | Op::Conv { .. }
            | Op::Shift { .. }
            | Op::Argmax { .. }
            | Op::Scan { .. }
            | Op::Locate { .. }
            | Op::Where
            | Op::Iota { .. }
            | Op::Fetch
            | Op::Cast(_) => {}
        }
        Some(())
    }

    fn sized(&self, dim: DimId) -> String {
        format!("`{}` = {}", self.env.dim_name(dim), self.env.size(dim))
    }

    fn sizes(
        &mut self,
        message: String,
        span: Span,
        here: &str,
        help: Option<String>,
    ) -> Option<()> {
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

    /// The result has a dim beside those of the operand.
    fn is_new(&mut self, op: &str, dim: DimId, operand: Operand<'_>, span: Span) -> Option<()> {
        if !self.builder.value(operand.0).dims.contains(&dim) {
            return Some(());
        }
        let dim = self.env.dim_name(dim).to_string();
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
        let message =
            format!("`{op}`: {} = {product}, and {}", names.join(" * "), self.sized(whole));
        let help = format!("dim {} = {}", self.env.dim_name(whole), names.join(" * "));
        self.sizes(message, span, "sizes do not multiply", Some(help))
    }

    fn fits_in(
        &mut self,
        op: &str,
        small: DimId,
        large: DimId,
        span: Span,
        what: &str,
    ) -> Option<()> {
        if self.env.size(small) <= self.env.size(large) {
            return Some(());
        }
        let message = format!(
            "`{op}`: more {what} than positions, {} and {}",
            self.sized(small),
            self.sized(large)
        );
        let help =
            format!("dim {} = {}    (or more)", self.env.dim_name(large), self.env.size(small));
        self.sizes(message, span, "does not fit", Some(help))
    }
}
