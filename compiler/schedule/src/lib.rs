//! Plan to Schedule: order, times, buffers.
