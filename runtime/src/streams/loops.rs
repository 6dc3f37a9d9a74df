//! Collective einsums whose chunks and transfers are tasks of their own.
//!
//! With K devices, on the device of rank r, chunk k and transfer k are:
//!
//! | loop | chunk k | transfer k |
//! |---|---|---|
//! | all-gather | multiplies chunk r - k | brings chunk r - k into slot k - 1 |
//! | reduce-scatter | makes its term of chunk r - 1 - k | sends on the sum of chunk k - 1 |
//!
//! An all-gather multiplies the device's own chunk first, and then what lies in slot k - 1. Its
//! transfers copy a chunk from where rank r - 1 holds it. Transfer k of a reduce-scatter adds what
//! has arrived to the term of chunk k - 1, and sends the sum.
//!
//! There are two slots, of one chunk each, used by turns: slot k is the second one if k is odd. The
//! terms that a reduce-scatter makes lie by turns in the first slot and in the result, the last one
//! in the result. What arrives lies in the second slot; in a loop of two chunks it lies in the
//! first slot, in place of what is sent.

use std::sync::Arc;

use shard_ir::{Fused, InstrId, Work};

use super::Devices;
use super::arena::Place;
use super::guard::{Access, Bytes};
use crate::collectives::Held;
use crate::devices::Groups;
use crate::error::RunError;
use crate::looped::Loop;
use crate::network::Network;
use crate::tensor::Tensor;

/// The block of each device, borrowed.
fn references(blocks: &Held<f64>) -> Vec<&Tensor> {
    blocks.iter().map(|block| &**block).collect()
}

/// A loop that is under way.
pub(super) struct UnderWay {
    network: Network,
    /// Of an all-gather, the terms that the chunks so far have given, each on every device.
    terms: Vec<Vec<Tensor>>,
}

impl Devices<'_> {
    /// The collective in the loop of an einsum, and how many chunks the loop has.
    fn fused(&self, id: InstrId) -> Result<(Fused, u64), RunError> {
        let problem = RunError::Internal("chunks of what is no collective einsum");
        let (fused, _) = self.plan().loop_layouts(id).ok_or(problem)?;
        Ok((fused, fused.chunks(&self.plan().mesh)))
    }

    /// The place of a slot of a loop, and its bytes.
    fn slot(&self, id: InstrId, number: u64) -> Result<(Place, Bytes), RunError> {
        let (fused, _) = self.fused(id)?;
        let instr = self.plan().instruction(id);
        let chunk_of = fused.gathered().map_or(id, |place| instr.operands[place]);
        let bytes = self.plan().local_bytes(chunk_of);
        let allocation = self.allocation(id, true)?;
        let address = allocation.address + number * bytes;
        let problem = "its chunks do not fit into its buffer";
        if (number + 1) * bytes > allocation.bytes {
            return Err(RunError::Schedule { id, problem });
        }
        let element_bits = self.plan().instruction(chunk_of).dtype.bits();
        let of = Bytes { of: None, from: address, until: address + bytes };
        Ok((Place { address, element_bits }, of))
    }

    /// Where a reduce-scatter puts the term of a chunk.
    fn term(&self, id: InstrId, chunk: u64, chunks: u64) -> Result<(Place, Bytes), RunError> {
        if (chunks - 1 - chunk).is_multiple_of(2) {
            let (place, bytes) = self.place(id)?;
            let place = place.ok_or(RunError::Internal("the result of a loop stays in memory"))?;
            return Ok((place, bytes));
        }
        self.slot(id, 0)
    }

    /// Where a reduce-scatter puts the sum that a transfer brings.
    fn arrived(&self, id: InstrId, chunks: u64) -> Result<(Place, Bytes), RunError> {
        self.slot(id, u64::from(chunks > 2))
    }

    /// The bytes that one chunk, one transfer or the end of a loop touches, without the operands
    /// that all chunks read and without the result.
    pub(super) fn touched_by_part(&self, id: InstrId, work: Work) -> Result<Vec<Access>, RunError> {
        if let Some(ring) = self.ring(id) {
            return self.touched_by_ring(&ring, work);
        }
        let (fused, chunks) = self.fused(id)?;
        let gathered = fused.gathered().map(|place| self.plan().instruction(id).operands[place]);
        let slot = |at: u64| Ok::<Bytes, RunError>(self.slot(id, (at - 1) % 2)?.1);
        let held = |at: u64| match (at, gathered) {
            (0, Some(operand)) => Ok(self.place(operand)?.1),
            (at, _) => slot(at),
        };
        let term = |at: u64| Ok::<Bytes, RunError>(self.term(id, at, chunks)?.1);
        let arrived = || Ok::<Bytes, RunError>(self.arrived(id, chunks)?.1);
        Ok(match (work, gathered) {
            (Work::Kernel | Work::Transfer, _) => Vec::new(),
            (Work::Chunk(at), Some(_)) => vec![held(at)?.read()],
            (Work::Send(at), Some(_)) => vec![held(at - 1)?.read(), slot(at)?.written()],
            (Work::End, Some(_)) => Vec::new(),
            (Work::Chunk(at), None) => vec![term(at)?.written()],
            (Work::Send(at), None) => vec![term(at - 1)?.written(), arrived()?.written()],
            (Work::End, None) => vec![arrived()?.read()],
        })
    }

    /// Executes a chunk or a transfer of a loop.
    pub(super) fn part(&mut self, id: InstrId, work: Work) -> Result<(), RunError> {
        if let Some(ring) = self.ring(id) {
            return self.part_of_ring(&ring, work);
        }
        let (fused, chunks) = self.fused(id)?;
        let operands = self.operands_of(id)?;
        let plan = self.machine.plan;
        let of = Loop {
            plan,
            id,
            arithmetic: self.machine.arithmetic,
            operands: operands.iter().map(references).collect(),
        };
        let groups = Groups::of(self.machine.grid, &fused.axes());
        let (moved, terms_of) = match fused.gathered() {
            Some(place) => (plan.instruction(id).operands[place], Some(place)),
            None => (id, None),
        };
        let sizes = self.sizes(moved);
        match (work, terms_of) {
            (Work::Chunk(at), Some(place)) => {
                let slot;
                let held = match at {
                    0 => references(&operands[place]),
                    at => {
                        slot = self.arena.load(self.slot(id, (at - 1) % 2)?.0, &sizes);
                        slot.iter().collect()
                    }
                };
                let terms = of.gathered_terms(self.machine.grid, at as usize, &held)?;
                self.under_way(id, moved).terms.push(terms);
            }
            (Work::Send(at), Some(place)) => {
                let slot;
                let held = match at {
                    1 => references(&operands[place]),
                    at => {
                        slot = self.arena.load(self.slot(id, at % 2)?.0, &sizes);
                        slot.iter().collect()
                    }
                };
                let elements = held[0].data.len();
                let into = self.slot(id, (at - 1) % 2)?.0;
                self.arena.store(into, &groups.passed_on(held));
                self.sent_by_loop(id, moved, &groups, elements);
            }
            (Work::Chunk(at), None) => {
                let terms = of.scattered_terms(self.machine.grid, at as usize)?;
                let into = self.term(id, at, chunks)?.0;
                self.arena.store(into, &terms);
            }
            (Work::Send(at), None) => {
                let from = self.term(id, at - 1, chunks)?.0;
                let mut sums = self.arena.load(from, &sizes);
                if at > 1 {
                    let arrived = self.arena.load(self.arrived(id, chunks)?.0, &sizes);
                    of.add_all(&mut sums, &arrived)?;
                }
                self.arena.store(from, &sums);
                let elements = sums[0].data.len();
                let into = self.arrived(id, chunks)?.0;
                self.arena.store(into, &groups.passed_on(sums));
                self.sent_by_loop(id, moved, &groups, elements);
            }
            (Work::Kernel | Work::Transfer | Work::End, _) => {
                return Err(RunError::Internal("a part of a loop that is none"));
            }
        }
        Ok(())
    }

    /// The result of a loop whose parts are all done.
    pub(super) fn end_loop(&mut self, id: InstrId) -> Result<Held<f64>, RunError> {
        if let Some(ring) = self.ring(id) {
            return self.end_ring(&ring);
        }
        let (fused, chunks) = self.fused(id)?;
        let operands = self.operands_of(id)?;
        let of = Loop {
            plan: self.machine.plan,
            id,
            arithmetic: self.machine.arithmetic,
            operands: operands.iter().map(references).collect(),
        };
        let not_begun = RunError::Schedule { id, problem: "its loop ends before it begins" };
        let under_way = self.loops.remove(&id).ok_or(not_begun)?;
        self.machine.sent(id, &under_way.network);
        if fused.gathered().is_some() {
            if under_way.terms.len() as u64 != chunks {
                let problem = "its loop has other chunks than it says";
                return Err(RunError::Schedule { id, problem });
            }
            let joined = of.joined_terms(self.machine.grid, under_way.terms)?;
            return Ok(joined.into_iter().map(Arc::new).collect());
        }
        let sizes = self.sizes(id);
        let mut sums = self.arena.load(self.term(id, chunks - 1, chunks)?.0, &sizes);
        let arrived = self.arena.load(self.arrived(id, chunks)?.0, &sizes);
        of.add_all(&mut sums, &arrived)?;
        sums.into_iter().map(|sum| of.finish(sum).map(Arc::new)).collect()
    }

    fn under_way(&mut self, id: InstrId, moved: InstrId) -> &mut UnderWay {
        let bits = self.machine.plan.instruction(moved).dtype.bits();
        let devices = self.machine.grid.devices();
        let begin = || UnderWay { network: Network::new(devices, bits, 1), terms: Vec::new() };
        self.loops.entry(id).or_insert_with(begin)
    }

    fn sent_by_loop(&mut self, id: InstrId, moved: InstrId, groups: &Groups, elements: usize) {
        let network = &mut self.under_way(id, moved).network;
        groups.all().for_each(|group| network.send_all(group, 1, elements));
    }
}
