//! [`Arena`]: the memory of each device, in which buffers lie at their addresses.

use std::borrow::Borrow;

use shard_ir::{Execution, gcd};

use crate::error::RunError;
use crate::limits::MAX_BYTES;
use crate::tensor::Tensor;

/// The memory of each device, but for weights, caches and numbers, which lie apart.
///
/// The memory of a device is a list of cells, each of them one number. A cell stands for the
/// largest number of bits that divides all addresses and all sizes of elements. An element of
/// several cells is written into each of them, so that a read finds out if part of the element was
/// overwritten.
pub(super) struct Arena {
    cell_bits: u64,
    devices: Vec<Vec<f64>>,
}

/// Where a value lies: its first byte, and the bits of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) element_bits: u64,
}

impl Arena {
    pub(super) fn of(execution: &Execution, devices: usize) -> Result<Arena, RunError> {
        let plan = &execution.plan;
        let elements = plan.ids().map(|id| plan.instruction(id).dtype.bits());
        let edges = execution.buffers.iter().flat_map(|b| [b.address, b.bytes]);
        let bits = edges.map(|bytes| bytes.saturating_mul(8)).chain(elements).fold(0, gcd);
        let cell_bits = bits.max(1);
        let cells = u128::from(execution.extent()) * 8 / u128::from(cell_bits);
        let needed = cells * 8 * devices as u128;
        if needed > MAX_BYTES {
            return Err(RunError::TooLarge { needed, cap: MAX_BYTES });
        }
        Ok(Arena { cell_bits, devices: vec![vec![f64::NAN; cells as usize]; devices] })
    }

    fn cell(&self, address: u64) -> usize {
        (u128::from(address) * 8 / u128::from(self.cell_bits)) as usize
    }

    /// Overwrites some bytes on every device with NaN, so that a later read of them is seen.
    pub(super) fn poison(&mut self, address: u64, bytes: u64) {
        let cells = self.cell(address)..self.cell(address.saturating_add(bytes));
        for device in &mut self.devices {
            device[cells.clone()].fill(f64::NAN);
        }
    }

    /// What lies at a place on each device, as blocks of these sizes.
    pub(super) fn load(&self, place: Place, sizes: &[usize]) -> Vec<Tensor> {
        let (first, each) = (self.cell(place.address), self.cells_of(place));
        let count: usize = sizes.iter().product();
        let of_device = |device: &Vec<f64>| {
            let cells = device[first..first + count * each].chunks_exact(each);
            Tensor { sizes: sizes.to_vec(), data: cells.map(read).collect() }
        };
        self.devices.iter().map(of_device).collect()
    }

    /// Writes a block on each device.
    pub(super) fn store<B: Borrow<Tensor>>(&mut self, place: Place, blocks: &[B]) {
        let (first, each) = (self.cell(place.address), self.cells_of(place));
        for (device, block) in self.devices.iter_mut().zip(blocks.iter().map(B::borrow)) {
            let cells = device[first..first + block.data.len() * each].chunks_exact_mut(each);
            cells.zip(&block.data).for_each(|(cells, value)| cells.fill(*value));
        }
    }

    fn cells_of(&self, place: Place) -> usize {
        (place.element_bits / self.cell_bits).max(1) as usize
    }
}

/// The element that lies in some cells; NaN where they do not all hold the same.
fn read(cells: &[f64]) -> f64 {
    let first = cells[0];
    let is_same = |cell: &f64| cell.to_bits() == first.to_bits();
    if cells.iter().all(is_same) { first } else { f64::NAN }
}
