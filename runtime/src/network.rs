//! [`Network`]: the count of what each device sends.

/// Counts the messages of one collective, device by device, as its algorithm sends them. It carries
/// no data: a device that gets a message copies it from the block of the sender.
///
/// Bits are counted exactly, as multiples of `1 / denominator`: an all-reduce moves its buffer in K
/// equal chunks, which need not be whole elements ([`collectives`](crate::collectives)).
#[derive(Clone, Debug)]
pub struct Network {
    /// What each device has sent: bits, times the denominator.
    sent: Vec<u128>,
    element_bits: u128,
    denominator: u128,
    messages: u64,
}

impl Network {
    /// A network of so many devices for elements of so many bits.
    pub fn new(devices: usize, element_bits: u64, denominator: usize) -> Network {
        Network {
            sent: vec![0; devices],
            element_bits: u128::from(element_bits),
            denominator: denominator.max(1) as u128,
            messages: 0,
        }
    }

    /// A device sends a message of so many elements.
    pub fn send(&mut self, from: usize, elements: usize) {
        self.send_charged(from, elements as u128 * self.denominator);
    }

    /// A device sends a message, charged as so many elements, times the denominator.
    pub(crate) fn send_charged(&mut self, from: usize, charge: u128) {
        self.sent[from] += charge * self.element_bits;
        self.messages += 1;
    }

    /// Every device of a group sends so many messages of as many elements each.
    pub(crate) fn send_all(&mut self, group: &[usize], messages: usize, elements: usize) {
        for device in group {
            (0..messages).for_each(|_| self.send(*device, elements));
        }
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
