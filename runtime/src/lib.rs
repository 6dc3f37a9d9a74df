//! The reference interpreter: simulated devices, real data, bytes counted.
//!
//! [`run`] executes a [`Schedule`](shard_ir::Schedule) on simulated devices, each of which holds
//! its own blocks alone, and compares what comes out with an unsharded evaluation that was written
//! apart ([`reference`](mod@reference)). [`shrink`] makes the dims of a plan small enough for that.
//!
//! The crate sees the IR and nothing else: neither the rewrite rules nor the cost model, since it
//! is the judge of both.
//!
//! * **Data.** Every element is held as an `f64`, but for those of large plans. If all ops of a
//!   plan allow it ([`Arithmetic::Exact`]), the data are small whole numbers, on which `f64` is
//!   exact up to 2^53; a result past that is an error, never a wrong number. Else
//!   ([`Arithmetic::F32`]) every value is rounded to `f32` once its sum, taken in `f64`, is
//!   complete. In a plan with much to multiply ([`Arithmetic::Single`]), floats are held as `f32`
//!   and sums taken in `f32` block by block. With [`RunOptions::emulate_dtypes`] each result, and
//!   every partial sum on its way, is rounded to its own dtype ([`Arithmetic::Emulated`]).
//! * **Speed.** Einsums of two operands are products of matrices by packed kernels (`product`).
//!   Equal blocks of several devices are held once, and the memory of large blocks is used again
//!   ([`Spare`]).
//!   All cores work, each on one device at a time, so that results are the same on any number of
//!   cores.
//! * **Bytes.** A [`Network`] counts what each device sends; see [`collectives`] for the
//!   algorithms. Reports give the bytes of the busiest device, rounded up to whole bytes. What is
//!   sent is copied once, from the block of the sender to that of the receiver.

mod applications;
pub mod arithmetic;
mod blocks;
pub mod collectives;
pub mod compare;
mod devices;
mod engine;
pub mod error;
mod execute;
mod inputs;
mod judge;
mod limits;
mod local;
mod local_shape;
mod looped;
mod merge;
mod narrow;
pub mod network;
mod parallel;
mod positions;
mod product;
mod progress;
pub mod reference;
mod regroup;
mod ring;
mod route;
mod scalar;
mod shrink;
mod spare;
mod step;
mod streams;
mod tensor;

pub use applications::{FEW_APPLICATIONS, folded, written_out};
pub use arithmetic::Arithmetic;
pub use compare::{Comparison, compare};
pub use engine::Engine;
pub use error::RunError;
pub use execute::{CollectiveTrace, NamedTensor, RunOptions, Trace, execute, in_program_order};
pub use judge::{Report, Worst, run, run_against, run_on_streams, run_plan};
pub use limits::{MAX_APPLIED, MAX_BYTES, MAX_SECONDS, bytes_needed, seconds_needed, work_needed};
pub use network::Network;
pub use progress::Progress;
pub use shard_ir::Random;
pub use shrink::{resized_as, shrink};
pub use spare::Spare;
pub use tensor::Tensor;
