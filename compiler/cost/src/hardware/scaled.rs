//! The same chip with a faster or slower network.

use super::{AxisNetwork, Hardware};

impl Hardware {
    /// The chip with every bandwidth of its networks multiplied by `times / of`; latencies stay.
    #[must_use]
    pub fn with_network_scaled(&self, times: u64, of: u64) -> Hardware {
        let scaled = |rate: &mut u64| {
            let new = u128::from(*rate) * u128::from(times) / u128::from(of.max(1));
            *rate = u64::try_from(new).unwrap_or(u64::MAX).max(1);
        };
        let mut hardware = self.clone();
        let network = &mut hardware.network;
        let own = network.axes.iter_mut().filter_map(|(_, axis)| match axis {
            AxisNetwork::Own(fabric) => Some(fabric),
            AxisNetwork::TorusAxes(_) => None,
        });
        for fabric in own.chain([&mut network.fabric]) {
            fabric.rates().into_iter().for_each(scaled);
        }
        hardware
    }
}
