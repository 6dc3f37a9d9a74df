//! Expectations: what the plan of a layer should be like, stated in the layer's body.

use super::Name;
use shard_words::{Span, Spanned};

/// `expect comm <= 40us`, `expect no all-gather of w_in`, `expect strategy 2d-weight-stationary`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The whole statement.
    pub span: Span,
    /// What is claimed of the plan.
    pub claim: Claim,
}

/// What an `expect` claims. The checker decides which measures, units and strategies exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// `strategy NAME`
    Strategy {
        /// The strategy.
        name: Name,
    },
    /// `no MEASURE`, `no MEASURE of VALUE`
    None {
        /// What there is none of.
        measure: Name,
        /// The value that the claim is about; all values without one.
        of: Option<Name>,
    },
    /// `MEASURE <= AMOUNT`, `MEASURE of VALUE <= AMOUNT`
    Measured {
        /// What is measured.
        measure: Name,
        /// The value that the claim is about; all values without one.
        of: Option<Name>,
        /// How the measure must compare with the amount.
        comparison: Spanned<Comparison>,
        /// The amount.
        amount: Amount,
    },
}

shard_ops::worded! {
    /// The sign between a measure and an amount.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Comparison {
        /// `<`
        Less = "<",
        /// `<=`
        AtMost = "<=",
        /// `==`
        Equal = "==",
        /// `>=`
        AtLeast = ">=",
        /// `>`
        Greater = ">",
    }
    /// The sign.
    fn sign;
}

impl Comparison {
    /// Whether `left` and `right` compare in this way.
    pub fn holds(self, left: u128, right: u128) -> bool {
        match self {
            Comparison::Less => left < right,
            Comparison::AtMost => left <= right,
            Comparison::Equal => left == right,
            Comparison::AtLeast => left >= right,
            Comparison::Greater => left > right,
        }
    }
}

/// `40us`, `2`, `1.5 GiB`: a number as it was written, and its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    /// Both.
    pub span: Span,
    /// The number's text: digits, perhaps a point and more digits.
    pub number: String,
    /// The unit, where there is one.
    pub unit: Option<Name>,
}
