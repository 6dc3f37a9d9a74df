//! Where values lie while an execution runs: in the arena at the address of a buffer, or apart if
//! they stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::{Allocation, InstrId, InstrKind, ParameterKind};

use super::arena::Place;
use super::guard::Bytes;
use super::{Devices, State};
use crate::blocks::Blocks;
use crate::collectives::Held;
use crate::error::RunError;
use crate::tensor::Tensor;

impl Devices<'_> {
    /// The buffer of a value, or of the chunks of a loop, while it is in memory.
    pub(super) fn allocation(&self, id: InstrId, of_loop: bool) -> Result<Allocation, RunError> {
        let problem = |problem| RunError::Schedule { id, problem };
        let at = self.allocations.get(&(id, of_loop)).ok_or(problem("it has no buffer"))?;
        match self.states[*at] {
            State::Held => Ok(self.execution.buffers[*at]),
            State::NotYet => Err(problem("its buffer is touched before it is held")),
            State::Freed => Err(problem("its buffer is touched after it is freed")),
        }
    }

    /// The value in whose memory a value lies: itself, or another of which it is a view or which it
    /// overwrites.
    fn holder(&self, id: InstrId) -> Result<InstrId, RunError> {
        let problem = "a value that passes inside a kernel is read outside of it";
        self.execution.held_by[id.index()].ok_or(RunError::Schedule { id, problem })
    }

    /// Where a value lies, and its bytes. It has no place in the arena if it stays
    /// ([`Execution::stays`]).
    pub(super) fn place(&self, id: InstrId) -> Result<(Option<Place>, Bytes), RunError> {
        let holder = self.holder(id)?;
        let bytes = self.plan().local_bytes(id);
        if self.execution.stays(holder) {
            return Ok((None, Bytes { of: Some(holder), from: 0, until: bytes }));
        }
        let allocation = self.allocation(holder, false)?;
        if bytes > allocation.bytes {
            return Err(RunError::Schedule { id, problem: "it does not fit into its buffer" });
        }
        let element_bits = self.plan().instruction(id).dtype.bits();
        let of = Bytes { of: None, from: allocation.address, until: allocation.address + bytes };
        Ok((Some(Place { address: allocation.address, element_bits }), of))
    }

    /// The block of each device of a value, as it lies in memory now.
    pub(super) fn load(&self, id: InstrId) -> Result<Held<f64>, RunError> {
        let sizes = self.sizes(id);
        match self.place(id)? {
            (Some(place), _) => {
                Ok(self.arena.load(place, &sizes).into_iter().map(Arc::new).collect())
            }
            (None, _) => {
                let problem = "it reads a value that is not in memory";
                let blocks = self.kept.get(&self.holder(id)?);
                let blocks = blocks.ok_or(RunError::Schedule { id, problem })?;
                let shaped = |block: &Arc<Tensor>| {
                    if block.sizes == sizes {
                        Some(block.clone())
                    } else {
                        Tensor::new(sizes.clone(), block.data.clone()).map(Arc::new)
                    }
                };
                let shaped = blocks.iter().map(shaped).collect::<Option<Vec<_>>>();
                shaped.ok_or(RunError::Internal("values in one memory have different sizes"))
            }
        }
    }

    /// A value as it lies in memory now, in the form in which the machine holds its dtype.
    pub(super) fn held(&self, id: InstrId) -> Result<Blocks, RunError> {
        let dtype = self.plan().instruction(id).dtype;
        Ok(Blocks::of(self.machine.arithmetic, dtype, self.load(id)?))
    }

    /// Writes the block of each device of a value to its memory.
    pub(super) fn store(&mut self, id: InstrId, blocks: Held<f64>) -> Result<(), RunError> {
        match self.place(id)? {
            (Some(place), _) => self.arena.store(place, &blocks),
            (None, bytes) => {
                bytes.of.map(|holder| self.kept.insert(holder, blocks));
            }
        }
        Ok(())
    }

    /// Holds a buffer from now on. An activation that is a parameter is written to its buffer.
    pub(super) fn hold(
        &mut self,
        at: usize,
        given: &mut BTreeMap<InstrId, Held<f64>>,
    ) -> Result<(), RunError> {
        let allocation = self.execution.buffers[at];
        self.states[at] = State::Held;
        self.arena.poison(allocation.address, allocation.bytes);
        let kind = &self.plan().instruction(allocation.id).kind;
        let is_given = matches!(kind, InstrKind::Parameter(ParameterKind::Activation));
        match given.remove(&allocation.id).filter(|_| is_given) {
            Some(blocks) => self.store(allocation.id, blocks),
            None => Ok(()),
        }
    }
}
