//! [`Network`]: messages between devices, and the count of what each device sends.

use std::collections::VecDeque;

use crate::error::RunError;

/// Carries the messages of one collective.
///
/// Bits are counted exactly, as multiples of `1 / denominator`: an all-reduce moves its buffer in K
/// equal chunks, which need not be whole elements ([`collectives`](crate::collectives)).
#[derive(Clone, Debug)]
pub struct Network {
    inboxes: Vec<VecDeque<Vec<f64>>>,
    /// Of each device, in bits, times the denominator.
    sent: Vec<u128>,
    element_bits: u128,
    denominator: u128,
    messages: u64,
}

impl Network {
    /// A network of so many devices for elements of so many bits.
    pub fn new(devices: usize, element_bits: u64, denominator: usize) -> Network {
        Network {
            inboxes: vec![VecDeque::new(); devices],
            sent: vec![0; devices],
            element_bits: u128::from(element_bits),
            denominator: denominator.max(1) as u128,
            messages: 0,
        }
    }

    /// Sends data, charged in full.
    pub fn send(&mut self, from: usize, to: usize, data: Vec<f64>) {
        let charge = data.len() as u128 * self.denominator;
        self.send_charged(from, to, data, charge);
    }

    /// Sends data, charged as so many elements, times the denominator.
    pub(crate) fn send_charged(&mut self, from: usize, to: usize, data: Vec<f64>, charge: u128) {
        self.sent[from] += charge * self.element_bits;
        self.messages += 1;
        self.inboxes[to].push_back(data);
    }

    /// Takes the oldest message to a device.
    pub fn receive(&mut self, to: usize) -> Result<Vec<f64>, RunError> {
        self.inboxes[to]
            .pop_front()
            .ok_or(RunError::Internal("a device waits for a message that nobody sent"))
    }

    /// Whether every message has been taken.
    pub fn is_quiet(&self) -> bool {
        self.inboxes.iter().all(VecDeque::is_empty)
    }

    /// Bytes that one device has sent, rounded up.
    pub fn sent_bytes(&self, device: usize) -> u64 {
        self.sent[device].div_ceil(8 * self.denominator) as u64
    }

    /// Bytes that the busiest device has sent, rounded up.
    pub fn wire_bytes(&self) -> u64 {
        (0..self.sent.len()).map(|d| self.sent_bytes(d)).max().unwrap_or(0)
    }

    /// How many messages there were.
    pub fn messages(&self) -> u64 {
        self.messages
    }
}
