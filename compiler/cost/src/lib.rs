//! What things cost: hardware files, collective times, rooflines, and the price of a whole plan.
//!
//! * [`Hardware`]: a chip and its network, read from TOML; rates are rounded to whole units per
//!   second once, here.
//! * [`collective_cost`]: bytes, bytes on the wire and time of one move.
//! * [`op_work`], [`kernel_work`]: flops and HBM traffic of an op, or of a kernel of several; for
//!   an attention, of the pairs that its masks show.
//! * [`roofline`]: the time that work takes.
//! * [`looped_time`], [`ring_time`]: the time of a loop whose transfers run beside its kernel.
//! * [`fuses_with`], [`kernels`]: which op joins which kernel.
//! * [`Memory`], [`Inventory`]: what a chip holds, and [`largest`]: with which size of a dim it is
//!   full.
//! * [`price`]: all of it, for every instruction of a [`Plan`](shard_ir::Plan).
//!
//! Every time is a whole number of [`Picoseconds`](shard_ir::Picoseconds), computed in integers,
//! rounded up and saturating. So a price never depends on the order of summation or on the machine.

mod attention;
pub mod collective;
pub mod fit;
pub mod fusion;
pub mod hardware;
pub mod inventory;
pub mod looped;
pub mod memory;
mod network;
pub mod objective;
pub mod op;
pub mod plan;
pub mod roles;
mod roofline;
pub mod sight;
pub mod streams;
pub mod summary;
pub mod units;
pub mod utilisation;

pub use attention::{RingPairs, RingShape, Stripes, one_pair_in};
pub use collective::{
    CollectiveCost, CollectiveTime, How, NetworkTime, PermuteTimes, RegroupTimes, Regroupings,
    Term, Weighted, axes_key, collective_cost, collective_time, least_permute_time,
};
pub use fit::{Capacity, Largest, largest};
pub use fusion::{
    LONGEST_KERNEL, begins_a_kernel, elementwise_joins, fuses_with, fusion_producers, kernels,
    may_lead_a_kernel, place_in_chain,
};
pub use hardware::{Fabric, Hardware, HardwareError, Network, Weights};
pub use inventory::{Inventory, Kept};
pub use looped::{LoopPrice, full_step, loop_time, looped_time, ring_time};
pub use memory::{Memory, buffers};
pub use objective::Objective;
pub use op::{KernelOp, LocalTensor, Matmul, Work, kernel_work, op_work, ring_work};
pub use plan::{InstrPrice, PlanPrice, Totals, kernel_prices, kernel_traffic, price, striped};
pub use roles::DimRoles;
pub use roofline::{Bound, compute_time, host_time, memory_time, roofline};
pub use streams::Streams;
pub use summary::{Communication, Efficiency, Summary, moved_over};
pub use units::{Bytes, Flops};
pub use utilisation::{Utilisation, model_flops};
