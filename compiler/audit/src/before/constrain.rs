//! Constraints that the program does not have, with which XLA comes near a plan.

use super::edit::{NewConstraint, constraints};
use super::optimum::{Choice, Optimum, Pin};
use super::recompile::{Sent, Trier, is_near};
use super::translate::Layer;

/// Compilations for one plan: constraints are taken away again as long as some are left.
const MOST_COMPILATIONS: usize = 48;

/// Constraints that a person is asked to write.
const MOST_CONSTRAINTS: usize = 16;

/// A move that is less than this part of all is not tried alone.
const SMALL: u64 = 64;

/// Compilations up to which constraints are added one after another.
const MOST_ADDED: usize = 24;

/// What has been found to help so far.
struct Tries<'t, 'a> {
    trier: &'t mut Trier<'a>,
    choice: &'t Choice,
    plan: &'t Optimum,
    /// What the optimum sends.
    target: u64,
    /// Compilations before these.
    begun: usize,
    now: Sent,
    kept: Vec<NewConstraint>,
}

/// The fewest constraints found with which XLA comes near what the optimum sends, or as near as it
/// comes: those that a plan asks for. `without`: what it sends without any.
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
    // Every value as it lies in the plan: too much to write, and so kept only if most of it can be
    // left out again.
    if !tries.is_near() {
        let all = constraints(tries.trier.subject.layer, &plan.pins);
        tries.helps(all);
    }
    tries.leave_out();
    // Of two ways the one that can be written; that which brings next to nothing is not asked for.
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

    /// Keeps constraints if XLA sends less with them; a way that it refuses is one that is no
    /// better.
    fn helps(&mut self, new: Vec<NewConstraint>) -> bool {
        match self.trier.sent(self.choice, &new) {
            Ok(sent) if sent.bytes < self.now.bytes => {
                (self.now, self.kept) = (sent, new);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The same with what some pins ask for beside what is kept.
    fn more_helps(&mut self, pins: &[Pin]) -> bool {
        let layer = self.trier.subject.layer;
        with(layer, &self.kept, &constraints(layer, pins)).is_some_and(|more| self.helps(more))
    }

    /// What the plan sends something for, what is most first.
    fn moved(&self) -> Vec<Pin> {
        let mut moved: Vec<Pin> =
            self.plan.pins.iter().filter(|pin| pin.wire_bytes > 0).cloned().collect();
        moved.sort_by_key(|pin| std::cmp::Reverse(pin.wire_bytes));
        moved
    }

    /// A constraint reaches in both directions: what is before and behind a move is said as well.
    fn around(&self, pin: &Pin) -> Vec<Pin> {
        let all = &self.plan.pins;
        let made = |value: &str| {
            all.iter().find(|other| other.by.is_none() && other.value == value).cloned()
        };
        let mut pins = vec![pin.clone()];
        pins.extend(made(&pin.value));
        if let Some(by) = &pin.by {
            pins.extend(made(by));
            // The others that meet it there.
            for other in all.iter().filter(|other| other.by.as_ref() == Some(by)) {
                pins.push(other.clone());
                pins.extend(made(&other.value));
            }
        }
        pins
    }

    /// Wherever the plan moves something.
    fn where_it_moves(&mut self) {
        let every: Vec<Pin> = self.moved().iter().flat_map(|pin| self.around(pin)).collect();
        let every = constraints(self.trier.subject.layer, &every);
        self.helps(every);
    }

    /// Sums that stay terms.
    fn sums(&mut self) {
        for pins in sums(self.plan) {
            if self.is_near() {
                return;
            }
            self.more_helps(&pins);
        }
    }

    /// One move after another: all at once may undo each other.
    fn one_by_one(&mut self) {
        for pin in self.moved() {
            let is_small = pin.wire_bytes < self.target / SMALL;
            if is_small || self.is_near() || self.count() >= MOST_ADDED {
                return;
            }
            // First where it is taken alone: what is asked for before it may reach too far back.
            if !self.more_helps(std::slice::from_ref(&pin)) {
                let around = self.around(&pin);
                self.more_helps(&around);
            }
        }
    }

    /// Leaves out halves, quarters, .. as long as that is no worse.
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

/// Sums whose terms the plan adds up before it completes them, and behind the last of them the sum:
/// whole on every device, or as the plan has it. XLA completes it for each that takes it elsewise.
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

/// Constraints with more of them, where the program has none yet; `None` where there is no more.
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
