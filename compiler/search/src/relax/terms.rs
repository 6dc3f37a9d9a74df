//! The terms of a sum with their sum, which is asked for once for each term: adding up anew would
//! take as long as all other work of a sweep.

use super::graph::FAR;

/// Terms by number. If one is [`FAR`] or more, so is the sum.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    terms: Vec<i64>,
    /// The sum of the terms below [`FAR`], and the number of the other terms.
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
