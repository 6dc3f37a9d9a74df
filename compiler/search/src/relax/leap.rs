//! Leaps of prices. If the gains of sweeps shrink by about the same factor each time, prices move
//! along a geometric series, and a leap sets them to where that series ends. Any prices bound every
//! plan, so that a leap can do no harm but to lower the bound; then it is taken back.

use super::graph::FAR;
use super::prices::Prices;

/// For each value that several read, each use and each node, the price of the reader: all that one
/// sweep hands to the next.
type Paid = Vec<Vec<Vec<i64>>>;

/// The last sweeps, as far as the next leap depends on them.
#[derive(Default)]
pub(super) struct Leaps {
    /// The prices after the sweep before, and how much that sweep gained.
    before: Option<(Paid, i64)>,
    /// The prices before the last leap, until a sweep has shown what it gained.
    origin: Option<Box<Prices>>,
    /// The number of leaps that were taken back.
    failed: u32,
}

/// The ratios of one sweep's gain to that of the sweep before, in 1024ths, at which a leap is made.
/// At smaller ratios sweeps end soon by themselves; at larger ones the end of the series is too
/// uncertain.
const WORTH_LEAPING: std::ops::RangeInclusive<i128> = 512..=1000;

/// No leap is made after this many were taken back.
const MAX_FAILED: u32 = 3;

impl Leaps {
    /// Takes the last leap back if the bound is now below `known`, the bound before it. Returns
    /// whether it did.
    pub(super) fn take_back(&mut self, prices: &mut Prices, known: i64) -> bool {
        let Some(origin) = self.origin.take() else { return false };
        if prices.bound() >= known {
            return false;
        }
        *prices = *origin;
        self.failed += 1;
        true
    }

    /// Leaps, if the gains of sweeps shrink evenly; called after a sweep down that gained `gain`.
    pub(super) fn leap(&mut self, prices: &mut Prices, gain: i64) {
        if self.failed >= MAX_FAILED {
            return;
        }
        let last = self.before.take();
        let shared = |paid: &Vec<Vec<i64>>| if paid.len() > 1 { paid.clone() } else { Vec::new() };
        if let Some((before, earlier)) = last
            && shrinks_evenly(gain, earlier)
        {
            self.origin = Some(Box::new(prices.clone()));
            let goes_on = |paid: &mut i64, before: i64| {
                if paid.abs() < FAR && before.abs() < FAR {
                    let way = i128::from(*paid - before) * i128::from(gain);
                    let more = i64::try_from(way / i128::from(earlier - gain)).unwrap_or(0);
                    *paid = (*paid + more).clamp(1 - FAR, FAR - 1);
                }
            };
            for (paid, before) in prices.paid.iter_mut().zip(&before) {
                for (paid, before) in paid.iter_mut().flatten().zip(before.iter().flatten()) {
                    goes_on(paid, *before);
                }
            }
            return;
        }
        self.before = Some((prices.paid.iter().map(shared).collect(), gain));
    }

    /// Forgets the last sweeps, after alternatives were dropped.
    pub(super) fn start_anew(&mut self) {
        (self.before, self.origin) = (None, None);
    }
}

/// Whether the ratio of a gain to the one before is worth a leap.
fn shrinks_evenly(gain: i64, earlier: i64) -> bool {
    let part = |gain: i64| i128::from(gain) * 1024 / i128::from(earlier);
    0 < gain && gain < earlier && WORTH_LEAPING.contains(&part(gain))
}
