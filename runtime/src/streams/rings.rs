//! Rings whose steps and transfers are tasks of their own.
//!
//! With K devices, on the device of rank r: chunk k runs the attention on block r - k of everything
//! that travels. Transfer k brings these blocks into slot (k - 1) mod 2, from where rank r - 1
//! holds them. A slot has room for one block of everything that travels, one behind the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::attention::Ring;
use shard_ir::{InstrId, Work};

use super::Devices;
use super::arena::Place;
use super::guard::{Access, Bytes};
use crate::collectives::Held;
use crate::devices::Groups;
use crate::error::RunError;
use crate::merge::PartialAttention;
use crate::network::Network;
use crate::ring::{RingRun, reads};
use crate::tensor::Tensor;

/// A ring that is under way.
pub(super) struct RingUnderWay {
    network: Network,
    /// What the steps so far have given, each on every device.
    parts: Vec<Vec<PartialAttention>>,
}

impl Devices<'_> {
    /// The ring that begins with an instruction.
    pub(super) fn ring(&self, first: InstrId) -> Option<Ring> {
        self.machine.rings.iter().find(|ring| ring.first() == first).cloned()
    }

    /// The places of what travels in a slot, and the bytes of the slot.
    fn ring_slot(&self, ring: &Ring, number: u64) -> Result<(Vec<Place>, Bytes), RunError> {
        let (plan, id) = (self.plan(), ring.first());
        let allocation = self.allocation(id, true)?;
        let each: Vec<u64> = ring.travels.iter().map(|(id, _)| plan.local_bytes(*id)).collect();
        let bytes: u64 = each.iter().sum();
        if (number + 1) * bytes > allocation.bytes {
            let problem = "its blocks do not fit into its buffer";
            return Err(RunError::Schedule { id, problem });
        }
        let from = allocation.address + number * bytes;
        let mut address = from;
        let mut places = Vec::with_capacity(each.len());
        for ((id, _), bytes) in ring.travels.iter().zip(each) {
            places.push(Place { address, element_bits: plan.instruction(*id).dtype.bits() });
            address += bytes;
        }
        Ok((places, Bytes { of: None, from, until: address }))
    }

    /// The bytes that one step, one transfer or the end of a ring touches, without the operands
    /// that all steps read and without the result.
    pub(super) fn touched_by_ring(&self, ring: &Ring, work: Work) -> Result<Vec<Access>, RunError> {
        let slot = |at: u64| Ok::<Bytes, RunError>(self.ring_slot(ring, (at - 1) % 2)?.1);
        let held = |at: u64| match at {
            0 => ring.travels.iter().map(|(id, _)| Ok(self.place(*id)?.1.read())).collect(),
            at => Ok(vec![slot(at)?.read()]),
        };
        match work {
            Work::Kernel | Work::Transfer | Work::End => Ok(Vec::new()),
            Work::Chunk(at) => held(at),
            Work::Send(at) => {
                let mut found: Vec<Access> = held(at - 1)?;
                found.push(slot(at)?.written());
                Ok(found)
            }
        }
    }

    /// For everything that travels the block that each device holds at a step.
    fn held_in_ring(&self, ring: &Ring, at: u64) -> Result<Vec<Vec<Tensor>>, RunError> {
        if at == 0 {
            let own = |id: InstrId| -> Result<Vec<Tensor>, RunError> {
                Ok(self.load(id)?.iter().map(|block| block.as_ref().clone()).collect())
            };
            return ring.travels.iter().map(|(id, _)| own(*id)).collect();
        }
        let (places, _) = self.ring_slot(ring, (at - 1) % 2)?;
        let of =
            |((id, _), place): (&(InstrId, _), Place)| self.arena.load(place, &self.sizes(*id));
        Ok(ring.travels.iter().zip(places).map(of).collect())
    }

    /// Executes a step or a transfer of a ring.
    pub(super) fn part_of_ring(&mut self, ring: &Ring, work: Work) -> Result<(), RunError> {
        let grid = self.machine.grid;
        match work {
            Work::Chunk(at) => {
                let held = self.held_in_ring(ring, at)?;
                let held: Vec<Vec<&Tensor>> = held.iter().map(|b| b.iter().collect()).collect();
                let parts = self.with_ring(ring, |run| run.step(grid, at as usize, &held))?;
                self.ring_under_way(ring).parts.push(parts);
                Ok(())
            }
            Work::Send(at) => {
                let groups = Groups::of(grid, &ring.axes);
                let held = self.held_in_ring(ring, at - 1)?;
                let (places, _) = self.ring_slot(ring, (at - 1) % 2)?;
                for (blocks, place) in held.into_iter().zip(places) {
                    self.arena.store(place, &groups.passed_on(blocks));
                }
                let plan = self.machine.plan;
                let arithmetic = self.machine.arithmetic;
                let run = RingRun { plan, ring, arithmetic, outside: BTreeMap::new() };
                run.sends(&groups, &mut self.ring_under_way(ring).network);
                Ok(())
            }
            Work::Kernel | Work::Transfer | Work::End => {
                Err(RunError::Internal("a part of a ring that is none"))
            }
        }
    }

    /// The result of a ring whose parts are all done.
    pub(super) fn end_ring(&mut self, ring: &Ring) -> Result<Held<f64>, RunError> {
        let id = ring.first();
        let not_begun = RunError::Schedule { id, problem: "its loop ends before it begins" };
        let under_way = self.rings.remove(&id).ok_or(not_begun)?;
        self.machine.sent(id, &under_way.network);
        if under_way.parts.len() as u64 != ring.steps(self.plan()) {
            let problem = "its loop has other chunks than it says";
            return Err(RunError::Schedule { id, problem });
        }
        let grid = self.machine.grid;
        let merged = self.with_ring(ring, |run| run.merged(grid, under_way.parts))?;
        Ok(merged.into_iter().map(Arc::new).collect())
    }

    /// Calls `does` with a ring and the values that the ring reads, as they are in memory now.
    fn with_ring<T>(
        &self,
        ring: &Ring,
        does: impl FnOnce(RingRun<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let (plan, arithmetic) = (self.machine.plan, self.machine.arithmetic);
        let held = reads(plan, ring).into_iter().map(|id| Ok((id, self.load(id)?)));
        let held = held.collect::<Result<Vec<_>, RunError>>()?;
        let outside = held.iter().map(|(id, blocks)| (*id, blocks.iter().map(|b| &**b).collect()));
        does(RingRun { plan, ring, arithmetic, outside: outside.collect() })
    }

    fn ring_under_way(&mut self, ring: &Ring) -> &mut RingUnderWay {
        let devices = self.machine.grid.devices();
        let begin = || RingUnderWay { network: Network::new(devices, 1, 1), parts: Vec::new() };
        self.rings.entry(ring.first()).or_insert_with(begin)
    }
}
