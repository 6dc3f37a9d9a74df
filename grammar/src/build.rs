//! From pest's pairs to the syntax tree: items, types and statements. Reports what pest cannot:
//! names that break the rules of their namespace, errors inside layout words, numbers that are too
//! long.
//!
//! A function returns `None` if it cannot make its node; the reason is then in `errors`.

use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::ast::*;
use crate::elsewhere::other_dtype_word;
use crate::error::{SyntaxError, SyntaxErrorKind, SyntaxWarning};
use crate::grammar::Rule;
use crate::limits::{MAX_INTEGER_DIGITS, MAX_TREE_DEPTH};
use crate::names::{Namespace, name_error};
use crate::outline::nearest;
use pest::iterators::Pair;
use shard_ops::{Dtype, never};
use shard_words::{Span, Spanned, WordError, parse_layout_word, parse_partial};

/// Makes nodes of the tree from the pairs of one piece.
pub(crate) struct Builder<'e> {
    /// Where the piece starts in the file.
    pub(crate) offset: usize,
    /// The names of the layers and models of the file.
    pub(crate) layers: &'e BTreeSet<&'e str>,
    pub(crate) errors: &'e mut Vec<SyntaxError>,
    pub(crate) warnings: &'e mut Vec<SyntaxWarning>,
}

/// The children of a pair, without signs and keywords.
pub(crate) fn parts<'i>(pair: Pair<'i, Rule>) -> impl Iterator<Item = Pair<'i, Rule>> {
    use Rule::*;
    pair.into_inner().filter(|part| {
        !matches!(
            part.as_rule(),
            EOI | open_paren
                | close_paren
                | comma
                | colon
                | equals
                | arrow
                | over_word
                | at_word
                | hardware_word
                | mesh_word
                | dim_word
                | phase_word
                | body_open
                | body_close
                | pad_word
                | let_word
                | expect_word
                | strategy_word
                | no_word
                | return_word
                | layer_word
                | repeat_word
        )
    })
}

/// The next part, if it is of this rule.
fn next_of<'i>(
    parts: &mut Peekable<impl Iterator<Item = Pair<'i, Rule>>>,
    rule: Rule,
) -> Option<Pair<'i, Rule>> {
    parts.next_if(|part| part.as_rule() == rule)
}

/// Makes a part that may be missing: `Some(None)` where it is missing, `None` where it is there and
/// could not be made.
pub(crate) fn optional<P, T>(
    part: Option<P>,
    make: impl FnOnce(P) -> Option<T>,
) -> Option<Option<T>> {
    part.map_or(Some(None), |part| make(part).map(Some))
}

/// A layer's header.
pub(crate) struct Header {
    pub(crate) strict: Option<Span>,
    pub(crate) model: Option<Span>,
    pub(crate) name: Name,
    pub(crate) params_span: Span,
    pub(crate) params: Vec<Param>,
    pub(crate) results: Results,
    pub(crate) repeat: Option<Repeat>,
}

/// A layout word with the partials behind it.
pub(crate) struct PinnedLayout {
    pub(crate) word: LayoutWord,
    pub(crate) partial: Vec<PartialGroup>,
    /// The last of the two in the text.
    pub(crate) end: Span,
}

impl Builder<'_> {
    /// The span of a pair in the file. It is exact for atomic rules; the spans of others may
    /// include blanks behind them.
    pub(crate) fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        let span = pair.as_span();
        Span::new(span.start(), span.end()).shifted(self.offset)
    }

    /// The span from the first to the last token under a pair.
    fn tight_span(&self, pair: &Pair<'_, Rule>) -> Span {
        let start = pair.as_span().start();
        let last = pair
            .clone()
            .into_inner()
            .last()
            .map_or(pair.as_span().end(), |last| last.as_span().end());
        Span::new(start, last).shifted(self.offset)
    }

    pub(crate) fn fail<T>(&mut self, error: SyntaxError) -> Option<T> {
        self.errors.push(error);
        None
    }

    pub(crate) fn word<T>(&mut self, result: Result<T, WordError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error.into())).ok()
    }

    pub(crate) fn name(&mut self, namespace: Namespace, pair: &Pair<'_, Rule>) -> Name {
        let name = Spanned::new(pair.as_str().to_string(), self.span(pair));
        self.errors.extend(name_error(namespace, &name.value, name.span));
        name
    }

    pub(crate) fn whole(&mut self, pair: &Pair<'_, Rule>) -> Option<Spanned<u64>> {
        let (text, span) = (pair.as_str(), self.span(pair));
        let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
        let kind = match text.parse() {
            Ok(value) if is_whole && text.len() <= MAX_INTEGER_DIGITS => {
                return Some(Spanned::new(value, span));
            }
            _ if is_whole => SyntaxErrorKind::TooManyDigits { limit: MAX_INTEGER_DIGITS },
            _ => SyntaxErrorKind::NotWhole { text: text.to_string() },
        };
        self.fail(SyntaxError::new(kind, span))
    }

    // --- lines ---

    pub(crate) fn hardware(&mut self, piece: Pair<'_, Rule>) -> Option<HardwareRef> {
        let chip = parts(piece).next()?;
        let (text, span) = (chip.as_str(), self.span(&chip));
        Some(match chip.as_rule() {
            Rule::hardware_path => {
                HardwareRef::Path(Spanned::new(text.trim_matches('"').to_string(), span))
            }
            _ => HardwareRef::BuiltIn(Spanned::new(text.to_string(), span)),
        })
    }

    pub(crate) fn mesh(&mut self, piece: Pair<'_, Rule>) -> Option<Vec<MeshAxis>> {
        let axis = |axis| {
            let mut inner = parts(axis);
            let name = self.name(Namespace::Axis, &inner.next()?);
            let size = self.whole(&inner.next()?)?;
            Some(MeshAxis { span: name.span.to(size.span), name, size })
        };
        parts(parts(piece).next()?).map(axis).collect()
    }

    pub(crate) fn dim(&mut self, piece: Pair<'_, Rule>) -> Option<Dim> {
        self.dim_definition(parts(piece).next()?)
    }

    /// A dim without docs, whose span starts at its name.
    fn dim_definition(&mut self, definition: Pair<'_, Rule>) -> Option<Dim> {
        let mut inner = parts(definition);
        let name = self.name(Namespace::Dim, &inner.next()?);
        let value = self.int_expr(inner.next()?)?.0;
        let pad = optional(inner.next(), |pad| Some(self.int_expr(pad)?.0))?;
        let span = name.span.to(pad.as_ref().map_or(value.span, |pad| pad.span));
        Some(Dim { span, docs: Vec::new(), name, value, pad })
    }

    /// Name, repetition and sizes of a phase.
    pub(crate) fn phase(
        &mut self,
        piece: Pair<'_, Rule>,
    ) -> Option<(Name, Option<Repeat>, Vec<Dim>)> {
        let mut inner = parts(piece).peekable();
        let name = self.name(Namespace::Phase, &inner.next()?);
        let repeat = optional(next_of(&mut inner, Rule::repeat), |pair| self.repeat(pair))?;
        let sizes = inner.map(|definition| self.dim_definition(definition));
        Some((name, repeat, sizes.collect::<Option<_>>()?))
    }

    fn repeat(&mut self, pair: Pair<'_, Rule>) -> Option<Repeat> {
        let start = self.span(&pair);
        let numbers = parts(pair).filter(|part| part.as_rule() == Rule::number);
        let kinds = numbers.map(|part| self.whole(&part)).collect::<Option<Vec<_>>>()?;
        let span = kinds.first()?.span.to(kinds.last()?.span);
        let sum = kinds.iter().fold(0, |sum: u64, count| sum.saturating_add(count.value));
        let count = Spanned::new(sum, span);
        Some(Repeat { span: Span::new(start.start, span.end), count, kinds })
    }

    /// An integer expression, and the depth of its tree.
    pub(crate) fn int_expr(&mut self, pair: Pair<'_, Rule>) -> Option<(IntExpr, usize)> {
        let mut inner = parts(pair);
        let (mut left, mut depth) = self.int_operand(inner.next()?)?;
        while let Some(sign) = inner.next() {
            let (right, right_depth) = self.int_operand(inner.next()?)?;
            let span = left.span.to(right.span);
            depth = self.deeper(depth.max(right_depth), span)?;
            let (op, op_span) = (binary_op(&sign)?, self.span(&sign));
            let kind =
                IntExprKind::Binary { op, op_span, left: Box::new(left), right: Box::new(right) };
            left = IntExpr { span, kind };
        }
        Some((left, depth))
    }

    fn int_operand(&mut self, pair: Pair<'_, Rule>) -> Option<(IntExpr, usize)> {
        if pair.as_rule() == Rule::int_product {
            return self.int_expr(pair);
        }
        let atom = parts(pair).next()?;
        let span = self.tight_span(&atom);
        let (kind, depth) = match atom.as_rule() {
            Rule::number => (IntExprKind::Number(self.whole(&atom)?.value), 1),
            Rule::dim_name => (IntExprKind::Dim(self.name(Namespace::Dim, &atom).value), 1),
            _ => {
                let (inner, depth) = self.int_expr(parts(atom).next()?)?;
                (IntExprKind::Paren(Box::new(inner)), self.deeper(depth, span)?)
            }
        };
        Some((IntExpr { span, kind }, depth))
    }

    /// One more than `depth`, or an error where that is too deep.
    pub(crate) fn deeper(&mut self, depth: usize, span: Span) -> Option<usize> {
        // A name has the depth 1, and each operation above it adds one.
        if depth <= MAX_TREE_DEPTH {
            return Some(depth + 1);
        }
        self.fail(
            SyntaxError::new(SyntaxErrorKind::ExpressionTooLong, span)
                .with_help("name a part of it first"),
        )
    }

    // --- layers ---

    pub(crate) fn header(&mut self, piece: Pair<'_, Rule>) -> Option<Header> {
        let mut inner = parts(piece).peekable();
        let strict = next_of(&mut inner, Rule::strict_word).map(|word| self.span(&word));
        let model = next_of(&mut inner, Rule::model_word).map(|word| self.span(&word));
        let name = self.name(Namespace::Layer, &inner.next()?);
        let params_pair = inner.next()?;
        let params_span = self.tight_span(&params_pair);
        let mut params = Vec::new();
        for param in parts(params_pair) {
            if let Some((name, ty)) = self.named_type(param) {
                params.push(Param { span: name.span.to(ty.span), docs: Vec::new(), name, ty });
            }
        }
        let results = self.results(inner.next()?)?;
        let repeat = optional(next_of(&mut inner, Rule::stack), |pair| self.repeat(pair))?;
        Some(Header { strict, model, name, params_span, params, results, repeat })
    }

    fn results(&mut self, pair: Pair<'_, Rule>) -> Option<Results> {
        let inner = parts(pair).next()?;
        if inner.as_rule() == Rule::type_ {
            return self.full_type(inner).map(Results::One);
        }
        let span = self.tight_span(&inner);
        let result = |result| {
            let (name, ty) = self.named_type(result)?;
            Some(NamedResult { span: name.span.to(ty.span), name, ty })
        };
        Some(Results::Named { span, results: parts(inner).map(result).collect::<Option<_>>()? })
    }

    fn named_type(&mut self, pair: Pair<'_, Rule>) -> Option<(Name, Type)> {
        let mut inner = parts(pair);
        let name = self.name(Namespace::Value, &inner.next()?);
        let ty = self.full_type(inner.next()?)?;
        Some((name, ty))
    }

    /// A type that must have its dtype.
    fn full_type(&mut self, pair: Pair<'_, Rule>) -> Option<Type> {
        let ty = self.ty(pair)?;
        if ty.dtype.is_none() {
            let layout = crate::print_layout_word(&ty.layout);
            let error = SyntaxError::new(SyntaxErrorKind::MissingDtype, ty.layout.span);
            let error = error.with_help(format!("bf16 {layout}"));
            self.errors.push(error.with_fix(Span::at(ty.layout.span.start), "bf16 "));
        }
        Some(ty)
    }

    fn ty(&mut self, pair: Pair<'_, Rule>) -> Option<Type> {
        let mut inner = parts(pair).peekable();
        let start = inner.peek().map(|first| self.span(first))?;
        let kind = next_of(&mut inner, Rule::kind).map(|word| {
            let kind = match word.as_str() {
                "weight" => Kind::Weight,
                "cache" => Kind::Cache,
                // Blanks and comments may stand between `weight` and `host`.
                text if text.starts_with("weight") => Kind::HostWeight,
                _ => never!("a kind that is neither a weight nor a cache", Kind::Weight),
            };
            Spanned::new(kind, self.span(&word))
        });
        let dtype = optional(next_of(&mut inner, Rule::dtype), |word| self.dtype(&word));
        let PinnedLayout { word: layout, partial, end } =
            self.layout(inner.next()?, inner.next())?;
        Some(Type { span: start.to(end), kind, dtype: dtype?, layout, partial })
    }

    /// A layout word and its partials.
    pub(crate) fn layout(
        &mut self,
        layout: Pair<'_, Rule>,
        partial: Option<Pair<'_, Rule>>,
    ) -> Option<PinnedLayout> {
        let span = self.span(&layout);
        let word = self.word(parse_layout_word(layout.as_str(), span.start));
        let (partial, end) = match partial {
            Some(pair) => {
                let span = self.span(&pair);
                (self.word(parse_partial(pair.as_str(), span.start))?, span)
            }
            None => (Vec::new(), span),
        };
        Some(PinnedLayout { word: word?, partial, end })
    }

    pub(crate) fn dtype(&mut self, pair: &Pair<'_, Rule>) -> Option<Spanned<Dtype>> {
        let (text, span) = (pair.as_str(), self.span(pair));
        if let Some(dtype) = Dtype::from_name(text) {
            return Some(Spanned::new(dtype, span));
        }
        let error =
            SyntaxError::new(SyntaxErrorKind::UnknownDtype { word: text.to_string() }, span);
        let words = Dtype::ALL.map(Dtype::name);
        self.fail(match other_dtype_word(text).or_else(|| nearest(text, &words)) {
            Some(meant) => error.with_help(meant).with_fix(span, meant),
            None => error.with_help(format!(
                "the dtypes are {}",
                words.map(|word| format!("`{word}`")).join(", ")
            )),
        })
    }

    // --- statements ---

    pub(crate) fn let_statement(&mut self, piece: Pair<'_, Rule>) -> Option<(LetTarget, Expr)> {
        let mut inner = parts(piece);
        let target = inner.next()?;
        let value = inner.next()?;
        let target = match target.as_rule() {
            Rule::let_many => {
                let span = self.tight_span(&target);
                let names = parts(target).map(|name| self.name(Namespace::Value, &name)).collect();
                Some(LetTarget::Many { span, names })
            }
            _ => self.let_one(target),
        };
        let value = self.expr(value);
        Some((target?, value?.0))
    }

    fn let_one(&mut self, pair: Pair<'_, Rule>) -> Option<LetTarget> {
        let mut inner = parts(pair);
        let name = self.name(Namespace::Value, &inner.next()?);
        let ty = optional(inner.next(), |ty| self.ty(ty))?;
        Some(LetTarget::One { name, ty })
    }

    pub(crate) fn expect_statement(&mut self, piece: Pair<'_, Rule>) -> Option<Claim> {
        let claim = parts(piece).next()?;
        let rule = claim.as_rule();
        let mut inner = parts(claim);
        let first = inner.next()?;
        let subject = Spanned::new(first.as_str().to_string(), self.span(&first));
        if rule == Rule::claim_strategy {
            return Some(Claim::Strategy { name: subject });
        }
        let mut next = inner.next();
        let of = match next.as_ref().map(Pair::as_rule) {
            Some(Rule::of_word) => {
                let value = self.name(Namespace::Value, &inner.next()?);
                next = inner.next();
                Some(value)
            }
            _ => None,
        };
        if rule == Rule::claim_none {
            return Some(Claim::None { measure: subject, of });
        }
        let sign = next?;
        let comparison = Comparison::ALL.into_iter().find(|known| known.sign() == sign.as_str())?;
        let comparison = Spanned::new(comparison, self.span(&sign));
        let mut amount = parts(inner.next()?);
        let number = amount.next()?;
        let unit =
            amount.next().map(|unit| Spanned::new(unit.as_str().to_string(), self.span(&unit)));
        let start = self.span(&number);
        let span = unit.as_ref().map_or(start, |unit| start.to(unit.span));
        let amount = Amount { span, number: number.as_str().to_string(), unit };
        Some(Claim::Measured { measure: subject, of, comparison, amount })
    }

    pub(crate) fn return_statement(&mut self, piece: Pair<'_, Rule>) -> Option<ReturnValue> {
        let value = parts(piece).next()?;
        if value.as_rule() != Rule::return_many {
            return Some(ReturnValue::One(self.expr(value)?.0));
        }
        let span = self.tight_span(&value);
        let values = parts(value).map(|value| Some(self.expr(value)?.0)).collect::<Option<_>>()?;
        Some(ReturnValue::Many { span, values })
    }
}

/// The operation of a sign.
pub(crate) fn binary_op(sign: &Pair<'_, Rule>) -> Option<BinaryOp> {
    BinaryOp::ALL.into_iter().find(|op| op.sign() == sign.as_str())
}
