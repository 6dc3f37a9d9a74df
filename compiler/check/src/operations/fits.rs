//! Checks what the row of an op states of the dims in its slots and of their sizes.

use shard_grammar::Span;
use shard_ir::op::{Argument, Fit};
use shard_ir::{DimId, Op, never};

use super::Operand;
use crate::diagnostics::ShapeProblem;
use crate::layer::LayerChecker;

/// An op with the places where it is written.
pub(super) struct Written<'x> {
    pub(super) op: &'x Op,
    pub(super) word: &'x str,
    pub(super) operands: &'x [Operand<'x>],
    /// Where its slots are filled.
    pub(super) spans: &'x [Span],
}

impl Written<'_> {
    /// From the first of these slots that is filled to the last.
    fn span(&self, slots: &[&str]) -> Span {
        let row = self.op.row().slots.iter().zip(self.spans);
        let spans = row.filter(|(slot, _)| slots.contains(&slot.name)).map(|(_, span)| *span);
        spans.reduce(Span::to).unwrap_or_else(|| never!("an op without its slots", Span::default()))
    }

    fn dims(&self, slot: &str) -> Vec<DimId> {
        self.op.filling(slot).as_ref().map_or(Vec::new(), |of| Argument::dims(of).to_vec())
    }
}

impl LayerChecker<'_, '_> {
    /// Reports an op that does not meet one of the conditions of its row.
    pub(super) fn fits(&mut self, fit: &Fit, of: &Written<'_>) -> Option<()> {
        let (op, word) = (of.op, of.word);
        if fit.slots().iter().any(|slot| op.filling(slot).is_none()) {
            return Some(());
        }
        let span = of.span(&fit.slots());
        match *fit {
            Fit::Different(a, b) => {
                if op.dim_in(a)? != op.dim_in(b)? {
                    return Some(());
                }
                self.same_dim(of, b)
            }
            Fit::New(slot) => self.is_new(of, slot),
            Fit::NewOr(slot, other) => {
                if op.dim_in(slot)? == op.dim_in(other)? {
                    Some(())
                } else {
                    self.is_new(of, slot)
                }
            }
            Fit::InSecond(slot) => {
                let second = *of.operands.get(1)?;
                of.dims(slot).iter().try_for_each(|dim| self.needs(word, *dim, span, second))
            }
            Fit::SameSize(from, to) => self.same_size(word, op.dim_in(from)?, op.dim_in(to)?, span),
            Fit::Product { parts, whole } => {
                self.product_is(word, &of.dims(parts), op.dim_in(whole)?, span)
            }
            Fit::Sum { parts: [left, right], whole } => {
                self.sum_is(word, [op.dim_in(left)?, op.dim_in(right)?], op.dim_in(whole)?, span)
            }
            Fit::AtMost { small, large, what } => {
                self.is_at_most(word, op.dim_in(small)?, op.dim_in(large)?, span, what)
            }
            Fit::CutOf { large, small, offset } | Fit::PutInto { small, large, offset } => {
                let (dims, offset) =
                    ([op.dim_in(small)?, op.dim_in(large)?], op.number_in(offset)?);
                let is_cut = matches!(fit, Fit::CutOf { .. });
                self.is_within(word, dims, offset, is_cut, span)
            }
            Fit::Even(slot) => self.is_even(word, op.dim_in(slot)?, span),
            Fit::InParts { dims, parts } => {
                let (count, span) = (op.number_in(parts)?, of.span(&[parts]));
                dims.iter().try_for_each(|dim| self.is_in_parts(word, op.dim_in(dim)?, count, span))
            }
            Fit::Choices { count, of: all, places } => {
                let (choices, dims) = (op.number_in(count)?, [op.dim_in(all)?, op.dim_in(places)?]);
                self.has_as_many(word, choices, dims, of.span(&[count]))
            }
        }
    }

    /// Reports that the dim of a slot stands in another role of the op too.
    fn same_dim(&mut self, of: &Written<'_>, slot: &str) -> Option<()> {
        let dim = self.env.dim_name(of.op.dim_in(slot)?).to_string();
        let span = of.span(&[slot]);
        self.sink.report(ShapeProblem::SameDim { op: of.word.to_string(), dim, span });
        None
    }

    /// Reports that the dim of a slot, which is to be new, is a dim of the operand.
    fn is_new(&mut self, of: &Written<'_>, slot: &str) -> Option<()> {
        let (dim, operand) = (of.op.dim_in(slot)?, of.operands.first()?.0);
        if self.builder.value(operand).dims.contains(&dim) {
            return self.same_dim(of, slot);
        }
        Some(())
    }

    fn same_size(&mut self, op: &str, from: DimId, to: DimId, span: Span) -> Option<()> {
        if self.env.size(from) == self.env.size(to) {
            return Some(());
        }
        let (has, wants) = (self.sized(from), self.sized(to));
        let message = format!("`{op}` keeps the size, and {has} while {wants}");
        // The line of a dim can only name dims above it.
        let (name, size) = (self.env.dim_name(from), self.env.size(from).to_string());
        let size = if from < to { name } else { size.as_str() };
        let help = format!("dim {} = {size}", self.env.dim_name(to));
        self.sizes(message, span, "of different sizes", Some(help))
    }

    fn is_even(&mut self, op: &str, dim: DimId, span: Span) -> Option<()> {
        let size = self.env.size(dim);
        if size.is_multiple_of(2) {
            return Some(());
        }
        let message = format!("`{op}` turns a dim in halves, and {} is odd", self.sized(dim));
        let help = format!("dim {} = {}", self.env.dim_name(dim), size + 1);
        self.sizes(message, span, "odd", Some(help))
    }

    /// Reports that a token asks for more experts than there are.
    fn has_as_many(
        &mut self,
        op: &str,
        choices: u64,
        [experts, places]: [DimId; 2],
        span: Span,
    ) -> Option<()> {
        let size = self.env.size(experts);
        if choices <= size {
            return Some(());
        }
        let experts = self.sized(experts);
        let message = format!("`{op}` lets a token ask for {choices} experts, and {experts}");
        let help = format!("{op}(... -> {}, {size})    (all experts)", self.env.dim_name(places));
        self.sizes(message, span, "more than there are", Some(help))
    }

    fn product_is(&mut self, op: &str, parts: &[DimId], whole: DimId, span: Span) -> Option<()> {
        let product = parts.iter().try_fold(1u64, |n, d| n.checked_mul(self.env.size(*d)));
        if product == Some(self.env.size(whole)) {
            return Some(());
        }
        let names: Vec<&str> = parts.iter().map(|d| self.env.dim_name(*d)).collect();
        let names = names.join(" * ");
        let is_above = parts.iter().all(|part| *part < whole);
        let size = match product {
            Some(product) if !is_above => product.to_string(),
            Some(_) | None => names.clone(),
        };
        let product = product.map_or("a number beyond all limits".to_string(), |n| n.to_string());
        let message = format!("`{op}`: {names} = {product}, and {}", self.sized(whole));
        let help = format!("dim {} = {size}", self.env.dim_name(whole));
        self.sizes(message, span, "sizes do not multiply", Some(help))
    }

    fn sum_is(&mut self, op: &str, parts: [DimId; 2], whole: DimId, span: Span) -> Option<()> {
        let sum = parts.map(|dim| self.env.size(dim)).iter().sum::<u64>();
        if sum == self.env.size(whole) {
            return Some(());
        }
        let is_part = parts.contains(&whole);
        let is_above = parts.iter().all(|part| *part < whole);
        let parts = parts.map(|dim| self.env.dim_name(dim)).join(" + ");
        let message = format!("`{op}` gives {parts} = {sum} positions, and {}", self.sized(whole));
        let name = self.env.dim_name(whole);
        let help = if is_part {
            let dims = self.env.dim_names();
            let free = (2..).map(|n| format!("{name}{n}")).find(|free| !dims.contains(free));
            let free =
                free.unwrap_or_else(|| never!("no dim with a number is free", String::new()));
            format!("dim {free} = {parts}    (a line of its own, and `-> {free}` in `{op}`)")
        } else {
            format!("dim {name} = {}", if is_above { parts } else { sum.to_string() })
        };
        self.sizes(message, span, "sizes do not add up", Some(help))
    }

    fn is_at_most(
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

    /// Reports that the positions of a dim do not fit in a larger dim from an offset on. `is_cut`
    /// says whether they are cut out of the larger dim; else they are put there.
    fn is_within(
        &mut self,
        op: &str,
        [small, large]: [DimId; 2],
        offset: u64,
        is_cut: bool,
        span: Span,
    ) -> Option<()> {
        let (some, all) = (self.env.size(small), self.env.size(large));
        let end = offset.saturating_add(some);
        if end <= all {
            return Some(());
        }
        let [less, more] = [small, large].map(|dim| self.env.dim_name(dim));
        let (does, call, note) = if is_cut {
            (
                format!("takes positions {offset} to {end} of `{more}`"),
                [more, less],
                "the last start",
            )
        } else {
            let does = format!("puts `{less}` at positions {offset} to {end}");
            (does, [less, more], "no zeros behind it")
        };
        let message = format!("`{op}` {does}, and {}", self.sized(large));
        let help = match (all.checked_sub(some), is_cut) {
            (Some(last), _) => format!("{op}(..., {}, {last})    ({note})", call.join(" -> ")),
            (None, true) => format!("dim {less} = {all}    (or less)"),
            (None, false) => format!("dim {more} = {end}    (or more)"),
        };
        self.sizes(message, span, "reaches past the end", Some(help))
    }

    fn is_in_parts(&mut self, op: &str, dim: DimId, parts: u64, span: Span) -> Option<()> {
        let size = self.env.size(dim);
        if size.is_multiple_of(parts) {
            return Some(());
        }
        let message =
            format!("`{op}` chooses as many of each of {parts} parts, and {}", self.sized(dim));
        let help = format!("dim {} = {}", self.env.dim_name(dim), size.next_multiple_of(parts));
        self.sizes(message, span, "parts of one size", Some(help))
    }
}
