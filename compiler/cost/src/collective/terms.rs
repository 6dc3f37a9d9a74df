//! The terms that the time of a collective is made of. Each formula stands here once: as the time
//! that it gives, and as the text that a report shows.

use shard_ir::Picoseconds;

use crate::units::time_at_rate;

/// The time of a collective: its networks one after the other, `times` over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveTime {
    /// D of the formulas: the larger buffer, in bits on one device.
    pub bits: u128,
    /// The networks that it runs over.
    pub networks: Vec<NetworkTime>,
    /// How often the time counts: the weight of moves, twice that for an all-reduce, which is a
    /// reduce-scatter and an all-gather of the same time.
    pub times: u64,
}

/// The time of a collective on one network: that of what it moves, and no less than its steps take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkTime {
    /// `flat network`, `torus`, `switches`.
    pub kind: &'static str,
    /// The data that is moved.
    pub terms: Vec<Term>,
    /// Whether the terms are moved at the same time, so that the longest counts; else they are
    /// moved one after the other.
    pub at_once: bool,
    /// How many steps or hops there are from end to end.
    pub steps: u64,
    /// What each step or hop takes at least.
    pub step_time: Picoseconds,
}

/// Some bytes at some rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// The formula.
    pub how: How,
    /// The rate, in bytes per second.
    pub rate: u64,
    /// The time.
    pub time: Picoseconds,
}

/// A formula for the bytes of a term; D is the buffer, W the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// `D/parts (K-1)/K / W`: K members of a group gather a part of D, or send one to each other.
    AllButOwn {
        /// K.
        members: u64,
        /// The number of members that D is divided over when this term begins.
        parts: u64,
    },
    /// `D/parts / W`: the same on some two-way rings at once, W = 2 links of each (book part 3).
    Rings {
        /// As in [`How::AllButOwn`].
        parts: u64,
    },
    /// `K D / (8 n W)`: an all-to-all on a ring, a part in n of the data (book part 3, question
    /// 10).
    ExchangeOnRing {
        /// K.
        members: u64,
        /// n, the axes that the data is divided over.
        axes: u64,
    },
    /// `floor(K/2) ceil(K/2) / K D / (n W)`: an all-to-all on a line.
    ExchangeOnLine {
        /// K.
        members: u64,
        /// n, the axes that the data is divided over.
        axes: u64,
    },
    /// `D m/K / W`: a device sends what it has for m of the K members.
    For {
        /// m.
        others: u64,
        /// K.
        members: u64,
    },
    /// `n/m D / W`: n of m parts of D over the busiest link, or from the busiest device.
    Parts {
        /// n.
        parts: u64,
        /// m.
        of: u64,
    },
    /// `n D / W`: the busiest link carries n blocks.
    Blocks {
        /// n.
        blocks: u64,
    },
}

impl How {
    /// The term for a buffer of `bits` at a rate.
    pub(crate) fn at(self, bits: u128, rate: u64) -> Term {
        let scaled = |n: u64| bits.saturating_mul(u128::from(n));
        let time = match self {
            // The time of the whole less that of a device's own share, each in whole picoseconds.
            // So the times of a chain of all-gathers over neighbouring axes add up to exactly that
            // of one all-gather over them all, and plans that are equal in bytes are equal in time.
            How::AllButOwn { members, parts } => {
                let all = time_at_rate(bits, parts.saturating_mul(8), rate);
                let own = time_at_rate(bits, parts.saturating_mul(members).saturating_mul(8), rate);
                Picoseconds(all.0.saturating_sub(own.0))
            }
            How::Rings { parts } => time_at_rate(bits, parts.saturating_mul(8), rate),
            How::ExchangeOnRing { members, axes } => time_at_rate(scaled(members), 64 * axes, rate),
            How::ExchangeOnLine { members, axes } => time_at_rate(
                scaled(members / 2).saturating_mul(u128::from(members.div_ceil(2))),
                8 * members * axes,
                rate,
            ),
            How::For { others, members } => {
                time_at_rate(scaled(others), members.saturating_mul(8), rate)
            }
            How::Parts { parts, of } => time_at_rate(scaled(parts), of.saturating_mul(8), rate),
            How::Blocks { blocks } => time_at_rate(scaled(blocks), 8, rate),
        };
        Term { how: self, rate, time }
    }

    /// The formula as text; if `with_numbers`, with numbers for all letters but D and W.
    pub fn formula(self, with_numbers: bool) -> String {
        let of = |parts: u64| match parts {
            1 => "D".to_string(),
            parts => format!("D/{parts}"),
        };
        match (self, with_numbers) {
            (How::AllButOwn { parts, .. }, false) => format!("{} (K-1)/K / W", of(parts)),
            (How::AllButOwn { members, parts }, true) => {
                format!("{} {}/{members} / W", of(parts), members - 1)
            }
            (How::Rings { parts }, _) => format!("{} / W", of(parts)),
            (How::ExchangeOnRing { .. }, false) => "K D / (8 n W)".to_string(),
            (How::ExchangeOnRing { members, axes }, true) => format!("{members} D / (8 {axes} W)"),
            (How::ExchangeOnLine { .. }, false) => "floor(K/2) ceil(K/2)/K D / (n W)".to_string(),
            (How::ExchangeOnLine { members, axes }, true) => {
                format!("{} {}/{members} D / ({axes} W)", members / 2, members.div_ceil(2))
            }
            (How::For { .. }, false) => "D m/K / W".to_string(),
            (How::For { others, members }, true) => format!("D {others}/{members} / W"),
            (How::Parts { .. }, false) => "n/m D / W".to_string(),
            (How::Parts { parts, of: 1 }, true) => format!("{parts} D / W"),
            (How::Parts { parts, of }, true) => format!("{parts}/{of} D / W"),
            (How::Blocks { .. }, false) => "n D / W".to_string(),
            (How::Blocks { blocks: 1 }, true) => "D / W".to_string(),
            (How::Blocks { blocks }, true) => format!("{blocks} D / W"),
        }
    }
}

impl NetworkTime {
    /// How long the terms take.
    pub fn moved(&self) -> Picoseconds {
        let times = self.terms.iter().map(|term| term.time);
        if self.at_once { times.max().unwrap_or_default() } else { times.sum() }
    }

    /// How long the steps take at least.
    pub fn latency(&self) -> Picoseconds {
        Picoseconds(self.step_time.0.saturating_mul(self.steps))
    }

    /// The longer of the two.
    pub fn time(&self) -> Picoseconds {
        self.moved().max(self.latency())
    }
}

impl CollectiveTime {
    /// The time of the collective.
    pub fn total(&self) -> Picoseconds {
        let once: Picoseconds = self.networks.iter().map(NetworkTime::time).sum();
        Picoseconds(once.0.saturating_mul(self.times))
    }
}
