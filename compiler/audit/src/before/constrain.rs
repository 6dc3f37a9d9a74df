//! Finds new constraints with which XLA sends about as little as a plan.

use super::edit::{NewConstraint, constraints};
use super::optimum::{Choice, Optimum, Pin};
use super::recompile::{Sent, Trier, is_near};
use super::translate::Layer;

/// The most compilations for one plan; after that no more constraints are left out.
const MOST_COMPILATIONS: usize = 48;

/// The most constraints that a person is asked to write.
const MOST_CONSTRAINTS: usize = 16;

/// A move that sends less than one part in so many of the optimum is not tried by itself.
const SMALL: u64 = 64;

/// The most compilations before constraints are no longer added one by one.
const MOST_ADDED: usize = 24;

/// The constraints that have helped so far, and what XLA sends with them.
struct Tries<'t, 'a> {
    trier: &'t mut Trier<'a>,
    choice: &'t Choice,
    plan: &'t Optimum,
    /// The bytes that the optimum sends.
    target: u64,
    /// The number of compilations before this search.
    begun: usize,
    now: Sent,
    kept: Vec<NewConstraint>,
}

/// The fewest constraints found, of those that a plan asks for, with which XLA sends about as
/// little as the optimum, or as little as possible; and what XLA sends then. `without` is what XLA
/// sends without new constraints.
pub(super) fn constrain(
    trier: &mut Trier<'_>,
    choice: &Choice,
    plan: &Optimum,
    target: u64,
    without: &Sent,
) -> (Sent, Vec<NewConstraint>) {
    let begun = trier.count;
    let (now, kept) = (without.clone(), Vec::new());
    let mut tries = Tries { trier, choice, plan, target, begun, now, kept };
    tries.where_it_moves();
    tries.sums();
    tries.one_by_one();
    let before = (tries.now.clone(), tries.kept.clone());
    // Constraints on every value of the plan are too many to write, and are kept only if most can
    // be left out again.
    if !tries.is_near() {
        let all = constraints(tries.trier.subject.layer, &plan.pins);
        tries.helps(all);
    }
    tries.leave_out();
    // A way is kept if its constraints are few enough to write, and XLA comes near the optimum or
    // sends at least a fiftieth less.
    let worth = |(sent, kept): &(Sent, Vec<NewConstraint>)| {
        kept.len() <= MOST_CONSTRAINTS
            && (is_near(sent.bytes, target)
                || u128::from(sent.bytes) * 50 <= u128::from(without.bytes) * 49)
    };
    let ways = [(tries.now, tries.kept), before];
    ways.into_iter().find(worth).unwrap_or_else(|| (without.clone(), Vec::new()))
}

impl Tries<'_, '_> {
    fn is_near(&self) -> bool {
        is_near(self.now.bytes, self.target)
    }

    fn count(&self) -> usize {
        self.trier.count - self.begun
    }

    /// Keeps constraints if XLA sends less with them. Constraints that XLA refuses do not help.
    fn helps(&mut self, new: Vec<NewConstraint>) -> bool {
        match self.trier.sent(self.choice, &new) {
            Ok(sent) if sent.bytes < self.now.bytes => {
                (self.now, self.kept) = (sent, new);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Keeps the constraints of some pins beside those that are kept, if XLA sends less with both.
    fn more_helps(&mut self, pins: &[Pin]) -> bool {
        let layer = self.trier.subject.layer;
        with(layer, &self.kept, &constraints(layer, pins)).is_some_and(|more| self.helps(more))
    }

    /// The pins for which the plan sends something, those that send most first.
    fn moved(&self) -> Vec<Pin> {
        let mut moved: Vec<Pin> =
            self.plan.pins.iter().filter(|pin| pin.wire_bytes > 0).cloned().collect();
        moved.sort_by_key(|pin| std::cmp::Reverse(pin.wire_bytes));
        moved
    }

    /// A pin with the pins before and behind its move: XLA carries a constraint in both directions,
    /// so that both sides need one.
    fn around(&self, pin: &Pin) -> Vec<Pin> {
        let all = &self.plan.pins;
        let made = |value: &str| {
            all.iter().find(|other| other.by.is_none() && other.value == value).cloned()
        };
        let mut pins = vec![pin.clone()];
        pins.extend(made(&pin.value));
        if let Some(by) = &pin.by {
            pins.extend(made(by));
            // The other operands of the op that takes the value.
            for other in all.iter().filter(|other| other.by.as_ref() == Some(by)) {
                pins.push(other.clone());
                pins.extend(made(&other.value));
            }
        }
        pins
    }

    /// Tries constraints wherever the plan moves something, all at once.
    fn where_it_moves(&mut self) {
        let every: Vec<Pin> = self.moved().iter().flat_map(|pin| self.around(pin)).collect();
        let every = constraints(self.trier.subject.layer, &every);
        self.helps(every);
    }

    /// Tries constraints that keep terms of sums.
    fn sums(&mut self) {
        for pins in sums(self.plan) {
            if self.is_near() {
                return;
            }
            self.more_helps(&pins);
        }
    }

    /// Tries the moves one after another, since constraints of all at once may undo each other.
    fn one_by_one(&mut self) {
        for pin in self.moved() {
            let is_small = pin.wire_bytes < self.target / SMALL;
            if is_small || self.is_near() || self.count() >= MOST_ADDED {
                return;
            }
            // A constraint on the taken value alone comes first: one before the move may reach too
            // far back.
            if !self.more_helps(std::slice::from_ref(&pin)) {
                let around = self.around(&pin);
                self.more_helps(&around);
            }
        }
    }

    /// Leaves out a half, a quarter, .. of the constraints, as long as XLA sends no more.
    fn leave_out(&mut self) {
        let mut size = self.kept.len().div_ceil(2);
        while size > 0 && !self.kept.is_empty() {
            let mut at = 0;
            while at < self.kept.len() && self.count() < MOST_COMPILATIONS {
                let end = (at + size).min(self.kept.len());
                let mut fewer = self.kept.clone();
                fewer.drain(at..end);
                match self.trier.sent(self.choice, &fewer) {
                    Ok(sent)
                        if is_near(sent.bytes, self.target) || sent.bytes <= self.now.bytes =>
                    {
                        (self.now, self.kept) = (sent, fewer);
                    }
                    Ok(_) | Err(_) => at = end,
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

/// Two ways to ask for the sums whose terms the plan adds up before it completes them. Both ask for
/// the terms, and behind the last of them for the completed sum: replicated, or in the layout of
/// the plan. Without the latter XLA completes the sum once for each op that takes it in another
/// layout.
fn sums(best: &Optimum) -> [Vec<Pin>; 2] {
    let is_sum =
        |pin: &&Pin| pin.by.is_none() && best.sums.iter().any(|sum| sum.value == pin.value);
    let complete = || best.pins.iter().filter(is_sum).cloned();
    let whole = complete().map(|mut pin| {
        pin.axes.values_mut().for_each(Vec::clear);
        pin
    });
    let with = |complete: Vec<Pin>| best.sums.iter().cloned().chain(complete).collect();
    [with(whole.collect()), with(complete().collect())]
}

/// Constraints with those of `new` that are on other values; `None` if there are none.
fn with(
    layer: &Layer,
    kept: &[NewConstraint],
    new: &[NewConstraint],
) -> Option<Vec<NewConstraint>> {
    let mut more = kept.to_vec();
    for one in new {
        if !more.iter().any(|known| known.is_at(one, layer)) {
            more.push(one.clone());
        }
    }
    (more.len() > kept.len()).then_some(more)
}
