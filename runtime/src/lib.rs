//! The reference interpreter: simulated devices, real data, bytes counted.
