//! Prices of the relaxation as numbers in a file.

use shard_certificate::{Place, PriceSet, Reader, ReaderPrices, Run, SidePrices, Space};
use shard_ir::{ValueId, never};

use crate::relax::factors::{Factors, ValueUse};
use crate::relax::prices::{Prices, Seat, use_index};

/// The number that stands for an infinite price: more than the time of any plan that a certificate
/// is written for.
pub(super) const PROHIBITIVE: i64 = 1 << 58;

/// The prices of a relaxation, without those that can be left out.
///
/// The prices of the only reader of a value follow from the others. With `keep_all` they are
/// written all the same: where single terms of the bound are amended for labels, an amendment then
/// does not spread.
pub(super) fn price_set(
    space: &Space<'_>,
    factors: &Factors,
    prices: &Prices,
    keep_all: bool,
) -> PriceSet {
    let mut set = PriceSet::default();
    for id in space.live() {
        let readers = space.readers(*id);
        if readers.len() == 1 && !keep_all {
            continue;
        }
        for (reader, of) in readers.iter().enumerate() {
            let of = match *of {
                Reader::Operand(by, place) => ValueUse::Operand(by, place),
                Reader::Result(i) => ValueUse::Output(i),
            };
            let paid = &prices.paid[id.index()][use_index(factors, *id, of)];
            // The search never reads a value in a layout that its graph does not have.
            let price = |layout| {
                factors.graphs[id.index()]
                    .node(layout)
                    .map_or(PROHIBITIVE, |node| paid[node as usize])
            };
            let paid = levelled(space.wanted(*id, reader).map(price).collect());
            if readers.len() == 1 || paid.iter().any(|price| *price != 0) {
                set.readers.push(ReaderPrices {
                    value: id.0,
                    reader: reader as u32,
                    paid: runs(&paid),
                });
            }
        }
    }
    set.sides = side_prices(space, prices);
    set
}

/// The side prices of labels and memories.
pub(super) fn side_prices(space: &Space<'_>, prices: &Prices) -> Vec<SidePrices> {
    let mut all = Vec::new();
    let parts = || space.parts().into_iter().enumerate().take(prices.sides.parts.len());
    // A place pays its side price and the part is paid it, so that a constant added to all prices
    // of a place cancels, too.
    for (number, to) in parts() {
        for place in space.places_of(to) {
            let seat = match place {
                Place::Value(value) => Seat::Value(ValueId(value)),
                Place::Result(i) => Seat::Output(i),
            };
            let nodes = space.allowed_at(place);
            let nodes = nodes.unwrap_or_else(|| never!("a place without layouts", &[]));
            let price =
                |node: &u32| prices.sides.price(number, seat, space.layout_at(place, *node)?);
            if let Some(paid) = nodes.iter().map(price).collect::<Option<Vec<i64>>>() {
                let paid = levelled(paid);
                if paid.iter().any(|price| *price != 0) {
                    all.push(SidePrices { to, place, paid: runs(&paid) });
                }
            }
        }
    }
    all
}

fn is_finite(price: &i64) -> bool {
    -PROHIBITIVE < *price && *price < PROHIBITIVE
}

/// The same prices less a constant, which changes no bound: every way of serving a reader is paid
/// exactly one of them.
pub(super) fn levelled(mut paid: Vec<i64>) -> Vec<i64> {
    let least = paid.iter().copied().filter(is_finite).min().unwrap_or(0);
    for price in &mut paid {
        *price = if is_finite(price) { *price - least } else { PROHIBITIVE * price.signum() };
    }
    paid
}

pub(super) fn runs(paid: &[i64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for price in paid {
        match runs.last_mut() {
            Some(Run::Many(last, times)) if last == price => *times += 1,
            Some(last @ Run::One(_)) if *last == Run::One(*price) => *last = Run::Many(*price, 2),
            _ => runs.push(Run::One(*price)),
        }
    }
    runs
}
