//! Prices that go on as they went: sweeps whose gains shrink by a like factor each time end where a
//! geometric series does, and prices may begin there. Any prices bound every plan, so a leap can
//! only be of no use; then it is taken back.

use super::graph::FAR;
use super::prices::Prices;

/// What each use of a value pays at each node, of the values that several read: all that a sweep
/// hands on to the next.
type Paid = Vec<Vec<Vec<i64>>>;

/// How the bound rose of late.
#[derive(Default)]
pub(super) struct Leaps {
    /// The prices after the sweep before, and what that sweep gained.
    before: Option<(Paid, i64)>,
    /// The prices before a leap that was not looked at yet.
    origin: Option<Box<Prices>>,
    /// Leaps that were taken back.
    failed: u32,
}

/// Factors of one sweep's gain to the next, in 1024ths, in which a leap is worth it: below, sweeps
/// end soon by themselves; above, the end is too far to be guessed.
const WORTH_LEAPING: std::ops::RangeInclusive<i128> = 512..=1000;

/// After so many leaps that were taken back none is tried any more.
const MAX_FAILED: u32 = 3;

impl Leaps {
    /// Looks at what the last leap came to: takes it back where the bound fell below `known`.
    /// Returns whether it did.
    pub(super) fn take_back(&mut self, prices: &mut Prices, known: i64) -> bool {
        let Some(origin) = self.origin.take() else { return false };
        if prices.bound() >= known {
            return false;
        }
        *prices = *origin;
        self.failed += 1;
        true
    }

    /// Leaps, after a sweep down that gained so much, if sweeps shrink evenly.
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

    /// Forgets how the bound rose: alternatives were dropped.
    pub(super) fn start_anew(&mut self) {
        (self.before, self.origin) = (None, None);
    }
}

/// Whether a gain is so much of the one before that a leap is worth it.
fn shrinks_evenly(gain: i64, earlier: i64) -> bool {
    let part = |gain: i64| i128::from(gain) * 1024 / i128::from(earlier);
    0 < gain && gain < earlier && WORTH_LEAPING.contains(&part(gain))
}
