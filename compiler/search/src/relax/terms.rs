//! Terms of a sum, and the sum: it is asked for once a term, and adding them up anew would take as
//! long as all the rest.

use super::graph::FAR;

/// Terms by number. One that is at least [`FAR`] makes the sum so.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    terms: Vec<i64>,
    /// The sum of those below [`FAR`], and how many are not.
    near: i128,
    far: usize,
}

impl Terms {
    pub(crate) fn zero(count: usize) -> Terms {
        Terms { terms: vec![0; count], near: 0, far: 0 }
    }

    pub(crate) fn of(&self, i: usize) -> i64 {
        self.terms[i]
    }

    pub(crate) fn set(&mut self, i: usize, term: i64) {
        let old = std::mem::replace(&mut self.terms[i], term);
        for (term, sign) in [(old, -1), (term, 1)] {
            if term >= FAR {
                self.far = self.far.wrapping_add_signed(sign)
            } else {
                self.near += i128::from(term) * sign as i128
            }
        }
    }

    pub(crate) fn sum(&self) -> i64 {
        match self.far {
            0 => self.near.clamp(i128::from(-FAR), i128::from(FAR)) as i64,
            _ => FAR,
        }
    }
}
