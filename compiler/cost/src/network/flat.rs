//! [`Flat`]: a network that connects any two devices alike.

use shard_ir::Picoseconds;

use super::kind::{Figure, Gathered, Kind, Moved, SlicesOf, part, unequal};
use super::{Slice, Wire, WireKind};
use crate::collective::{ExchangeLoad, Fraction, How, PermuteLoad, Term};
use crate::hardware::{SliceProblem, Table, latency, rate};

/// Every device sends and receives at one bandwidth, whichever the mesh axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flat {
    /// Bytes per second that a device sends.
    pub bandwidth: u64,
    /// The time that a collective takes at least; an all-reduce takes twice this.
    pub latency: Picoseconds,
}

impl Kind for Flat {
    fn name(&self) -> &'static str {
        "flat network"
    }

    fn read(table: &mut Table<'_, '_>, efficiency: f64) -> Option<Flat> {
        let bandwidth = rate(table, "bandwidth", efficiency, "add `bandwidth = 270e9`");
        let latency = latency(table, "latency");
        Some(Flat { bandwidth: bandwidth?, latency })
    }

    fn figures(&self) -> Vec<(&'static str, Figure)> {
        vec![
            ("bandwidth", Figure::Count(self.bandwidth)),
            ("latency_s", Figure::Seconds(self.latency.seconds())),
        ]
    }

    fn rates(&mut self) -> Vec<&mut u64> {
        vec![&mut self.bandwidth]
    }

    fn latency(&self) -> Picoseconds {
        self.latency
    }

    fn wires(&self, axes: &[Vec<u64>]) -> Vec<Vec<Wire>> {
        axes.iter()
            .map(|sizes| vec![Wire { kind: WireKind::Flat, size: sizes.iter().product() }])
            .collect()
    }

    fn is_uniform(&self) -> bool {
        true
    }

    fn has_links(&self) -> bool {
        false
    }

    fn slice_problem(&self, _: &Slice) -> Option<SliceProblem> {
        None
    }

    fn gather(&self, members: u64, _: &[Wire]) -> Vec<Gathered> {
        vec![Gathered { members, rate: self.bandwidth, counts_own: false }]
    }

    fn gather_steps(&self, _: u64, _: &[Wire]) -> u64 {
        1
    }

    fn all_to_all(&self, members: u64, _: &[Wire], bits: u128) -> Moved {
        let terms = vec![How::AllButOwn { members, parts: 1 }.at(bits, self.bandwidth)];
        Moved { terms, at_once: false, steps: 1 }
    }

    fn permute_rate(&self, _: &PermuteLoad) -> u64 {
        self.bandwidth
    }

    /// If each device keeps one of K parts, the exchange takes as long as an all-to-all.
    fn exchange(&self, load: &ExchangeLoad, bits: u128) -> Vec<Term> {
        vec![match load.most {
            Fraction { num, den } if num + 1 == den => {
                How::AllButOwn { members: den, parts: 1 }.at(bits, self.bandwidth)
            }
            most => part(most, bits, self.bandwidth),
        }]
    }

    fn fastest(&self) -> u64 {
        self.bandwidth
    }

    /// As near to a square as can be.
    fn mesh(&self, chips: u64, last: &[u64], problem: &SlicesOf<'_>) -> Option<Vec<u64>> {
        let two = last.iter().map(|y| vec![chips / y, *y]);
        two.filter(|shape| problem(shape) == Some(None)).min_by_key(|shape| unequal(shape))
    }
}
