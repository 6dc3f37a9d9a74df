//! [`Spare`]: memory of blocks that are freed, for blocks that are made.
//!
//! To touch a page of memory for the first time takes longer than to sum what is in it. So the
//! memory of large blocks is used again. What lies in it is overwritten and never read.

use std::sync::{Arc, Mutex, PoisonError};

use crate::blocks::Blocks;
use crate::collectives::Held;
use crate::tensor::Element;

/// Elements below which the memory of a block is not kept.
const LEAST: usize = 1 << 14;

/// How many elements are kept at most: a quarter of a gigabyte.
const MOST: usize = 1 << 26;

/// Memory that no block holds, for the blocks of this execution and of others with the same
/// `Spare`. Only blocks of `f32` use it.
#[derive(Debug, Default)]
pub struct Spare {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<f32>>,
    elements: usize,
}

impl Spare {
    /// An empty vector with room for so many elements.
    pub(crate) fn room<T: Element>(&self, elements: usize) -> Vec<T> {
        T::room(self, elements)
    }

    /// As [`Self::room`], for elements held as `f32`.
    pub(crate) fn narrow_room(&self, elements: usize) -> Vec<f32> {
        let mut buffer = self.found(elements);
        buffer.clear();
        buffer
    }

    /// A vector of so many elements of any value: all are to be overwritten.
    pub(crate) fn narrow(&self, elements: usize) -> Vec<f32> {
        let mut buffer = self.found(elements);
        buffer.resize(elements, 0.0);
        buffer
    }

    /// The smallest vector with room for so many elements, whatever is in it.
    fn found(&self, elements: usize) -> Vec<f32> {
        if elements < LEAST {
            return Vec::with_capacity(elements);
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = free.buffers.iter().enumerate().filter(|(_, b)| b.capacity() >= elements);
        let Some((at, _)) = fitting.min_by_key(|(_, buffer)| buffer.capacity()) else {
            // Rounded up, so that blocks of nearly this size can use the memory later.
            return Vec::with_capacity(elements.next_power_of_two());
        };
        let buffer = free.buffers.swap_remove(at);
        free.elements -= buffer.capacity();
        buffer
    }

    /// Takes the memory of blocks that are not needed any more, unless other values hold them too.
    pub(crate) fn take(&self, blocks: Blocks) {
        match blocks {
            Blocks::Narrow(blocks) => self.take_narrow(blocks),
            Blocks::Wide(_) => {}
        }
    }

    /// As [`Self::take`], for elements held as `f32`.
    pub(crate) fn take_narrow(&self, blocks: Held<f32>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for block in blocks {
            let Ok(block) = Arc::try_unwrap(block) else { continue };
            let capacity = block.data.capacity();
            if capacity >= LEAST && free.elements + capacity <= MOST {
                free.elements += capacity;
                free.buffers.push(block.data);
            }
        }
    }
}
