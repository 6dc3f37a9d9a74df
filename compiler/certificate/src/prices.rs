//! Reads the prices of a file.

use std::collections::BTreeSet;

use shard_ir::Def;

use crate::format::{CertificateError, PriceSet, ReaderPrices, Run};
use crate::space::Space;
use crate::sums::{NEVER, Sum};

/// What the readers of each value pay: for each value and reader the price in each node, [`NEVER`]
/// where the reader does not read the value. `None` for the only reader of a value, whose price
/// follows from the other prices.
pub(crate) type Paid = Vec<Vec<Option<Vec<Sum>>>>;

/// The prices of a set. A reader without an entry pays what follows if it is the value's only
/// reader, and nothing otherwise. Prices that do not fit the program are refused.
pub(crate) fn read(space: &Space<'_>, set: &PriceSet) -> Result<Paid, CertificateError> {
    let mut paid: Paid = vec![Vec::new(); space.readers.len()];
    for id in &space.present {
        let (v, readers) = (id.index(), &space.readers[id.index()]);
        let is_number =
            matches!(space.program.value(*id).def, Def::Constant(_)) && !space.is_within[v];
        paid[v] = (0..readers.len())
            .map(|reader| match space.is_border(v, &readers[reader]) {
                // A constant is on every device, so that all its readers have it for nothing.
                true if is_number => Some(vec![0; space.moves[v].nodes()]),
                border => {
                    (border || readers.len() > 1).then(|| spread_out(space, v, reader, |_| 0))
                }
            })
            .collect();
    }
    let mut seen = BTreeSet::new();
    for ReaderPrices { value, reader, paid: listed } in &set.readers {
        let (v, r) = (*value as usize, *reader as usize);
        let known = space.wanted.get(v).and_then(|readers| readers.get(r));
        let known =
            known.filter(|_| space.is_within[v] || space.is_border(v, &space.readers[v][r]));
        let Some(wanted) = known else {
            let what = format!(
                "there are prices for reader {r} of value {v}, which the program does not have"
            );
            return Err(CertificateError::new(what));
        };
        if !seen.insert((v, r)) {
            return Err(CertificateError::new(format!("reader {r} of value {v} has prices twice")));
        }
        let prices = one_by_one(listed, wanted.len()).ok_or_else(|| {
            let n = wanted.len();
            CertificateError::new(format!(
                "reader {r} of value {v} has {n} layouts, and another number of prices"
            ))
        })?;
        paid[v][r] = Some(spread_out(space, v, r, |i| prices[i]));
    }
    Ok(paid)
}

/// A price for each node of a value, from those of the layouts that a reader may read.
fn spread_out(
    space: &Space<'_>,
    value: usize,
    reader: usize,
    price: impl Fn(usize) -> i64,
) -> Vec<Sum> {
    let mut all = vec![NEVER; space.moves[value].nodes()];
    for (i, node) in space.wanted[value][reader].iter().enumerate() {
        all[*node as usize] = Sum::from(price(i));
    }
    all
}

/// The prices one by one; `None` where their number is not `count`.
pub(crate) fn one_by_one(runs: &[Run], count: usize) -> Option<Vec<i64>> {
    let mut prices = Vec::with_capacity(count);
    for run in runs {
        let (price, times) = match run {
            Run::One(price) => (*price, 1),
            Run::Many(price, times) => (*price, *times as usize),
        };
        if times > count - prices.len() {
            return None;
        }
        prices.extend(std::iter::repeat_n(price, times));
    }
    (prices.len() == count).then_some(prices)
}
