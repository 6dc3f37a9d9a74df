//! [`Summary`]: figures of a priced plan for the layer, the stack and the machine as a whole.

use shard_ir::{AxisId, AxisSet, InstrId, InstrKind, Op, Picoseconds, Plan};

use crate::hardware::Hardware;
use crate::inventory::Inventory;
use crate::plan::{InstrPrice, PlanPrice};
use crate::roles::{DimRoles, useful_product};
use crate::streams::Streams;
use crate::units::{Bytes, time_at_rate};
use crate::utilisation::Utilisation;

/// The figures of a whole layer, beyond the sums in [`Totals`](crate::Totals).
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The weights, the caches and the memory.
    pub inventory: Inventory,
    /// How many tokens a step works on: the product of the useful sizes of the dims that count
    /// them.
    pub tokens: u64,
    /// The time of a step of the whole stack, with the overhead of each layer.
    pub step_time: Picoseconds,
    /// A lower bound of the time of any schedule of one layer: the longest of the times of its
    /// arithmetic at the rate reached, of the HBM traffic of its kernels, of its traffic on the
    /// busiest stream of the network, and of its fetches from the host.
    pub lower_bound: Picoseconds,
    /// The moves over each set of mesh axes, in the order in which the sets are first used.
    pub communication: Vec<Communication>,
    /// How long each mesh axis is busy, in the order of the mesh, without those that nothing is
    /// sent over.
    pub busy: Vec<(AxisId, Picoseconds)>,
    /// How much of the chips' arithmetic is used, if the step takes time.
    pub utilisation: Option<Utilisation>,
    /// The efficiency, if the step takes time and works on tokens.
    pub efficiency: Option<Efficiency>,
}

/// The moves over one set of mesh axes, in one layer, including those inside loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Communication {
    /// The axes.
    pub axes: AxisSet,
    /// How many moves there are.
    pub moves: u64,
    /// The bytes that the busiest device sends.
    pub wire_bytes: Bytes,
    /// Their times, summed.
    pub time: Picoseconds,
}

/// How much of the machine a token takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Efficiency {
    /// `chips * time / tokens`, in seconds.
    pub chip_seconds_per_token: f64,
    /// `tokens / (time * chips)`.
    pub tokens_per_second_per_chip: f64,
    /// `tokens / time`, of the whole mesh.
    pub tokens_per_second: f64,
}

impl Summary {
    /// The summary of a plan with its price, of which one layer takes `layer_time`.
    pub fn of(
        plan: &Plan,
        price: &PlanPrice,
        hardware: &Hardware,
        roles: DimRoles,
        layer_time: Picoseconds,
    ) -> Summary {
        let inventory = Inventory::of(plan, roles);
        let tokens = match inventory.roles.tokens.as_slice() {
            [] => 0,
            dims => useful_product(plan, dims),
        };
        let communication = communication(plan, price);
        let busy: Vec<(AxisId, Picoseconds)> = plan
            .mesh
            .axis_ids()
            .map(|axis| {
                (axis, communication.iter().filter(|c| c.axes.contains(axis)).map(|c| c.time).sum())
            })
            .filter(|(_, time)| *time > Picoseconds(0))
            .collect();
        let network = busiest_stream(plan, hardware, &communication);
        let (host, written) = fetches(plan, price, hardware);
        let memory = Picoseconds(price.totals.memory_time.0.saturating_sub(written.0));
        let lower_bound = price.totals.compute_time.max(memory).max(network).max(host);
        let step_time = hardware.stack_time(layer_time, plan);
        let efficiency = (step_time > Picoseconds(0) && tokens > 0).then(|| {
            let chip_seconds = plan.mesh.devices() as f64 * step_time.seconds();
            Efficiency {
                chip_seconds_per_token: chip_seconds / tokens as f64,
                tokens_per_second_per_chip: tokens as f64 / chip_seconds,
                tokens_per_second: tokens as f64 / step_time.seconds(),
            }
        });
        let utilisation = Utilisation::of(plan, price, hardware, step_time);
        Summary {
            inventory,
            tokens,
            step_time,
            lower_bound,
            communication,
            busy,
            utilisation,
            efficiency,
        }
    }
}

/// How long the busiest stream of the network is busy: transfers on one stream go one after the
/// other.
fn busiest_stream(
    plan: &Plan,
    hardware: &Hardware,
    communication: &[Communication],
) -> Picoseconds {
    let streams = Streams::of(hardware, &plan.mesh);
    let on = |stream: usize| {
        let uses = |c: &&Communication| streams.of_axes(c.axes).contains(&stream);
        communication.iter().filter(uses).map(|c| c.time).sum()
    };
    streams.of_networks().map(on).max().unwrap_or_default()
}

/// How long fetches keep the link to the host busy, and how long memory is busy with writing what
/// they bring. A fetch runs beside kernels, and its writes do not hold them up.
fn fetches(plan: &Plan, price: &PlanPrice, hardware: &Hardware) -> (Picoseconds, Picoseconds) {
    let is_fetch = |id: &InstrId| plan.instruction(*id).kind == InstrKind::Op(Op::Fetch);
    let (mut fetching, mut writing) = (Picoseconds(0), Picoseconds(0));
    for id in plan.ids().filter(is_fetch) {
        let InstrPrice::Kernel { hbm_bytes, time, .. } = price.of(id) else { continue };
        let repeat = plan.repeat_of(id);
        let written = time_at_rate(u128::from(hbm_bytes.0), 1, hardware.hbm_rate);
        fetching = fetching + time.times(repeat);
        writing = writing + written.times(repeat);
    }
    (fetching, writing)
}

fn communication(plan: &Plan, price: &PlanPrice) -> Vec<Communication> {
    let mut groups: Vec<Communication> = Vec::new();
    for id in plan.ids() {
        let (Some(axes), Some(cost)) = (moved_over(plan, id), price.of(id).collective()) else {
            continue;
        };
        if cost.wire_bytes == Bytes(0) {
            continue;
        }
        let at = groups.iter().position(|g| g.axes == axes).unwrap_or_else(|| {
            groups.push(Communication {
                axes,
                moves: 0,
                wire_bytes: Bytes(0),
                time: Picoseconds(0),
            });
            groups.len() - 1
        });
        let group = &mut groups[at];
        let repeat = plan.repeat_of(id);
        group.moves += repeat;
        group.wire_bytes = group.wire_bytes + cost.wire_bytes.times(repeat);
        group.time = group.time + cost.time.times(repeat);
    }
    groups
}

/// The mesh axes that a move, or the collective inside a loop, sends over.
pub fn moved_over(plan: &Plan, id: InstrId) -> Option<AxisSet> {
    if let InstrKind::CollectiveEinsum(fused) = plan.instruction(id).kind {
        return Some(fused.axes().set());
    }
    let instr = plan.instruction(id);
    let (InstrKind::Move(collective), Some(from)) = (&instr.kind, instr.operands.first()) else {
        return None;
    };
    Some(collective.axes(&plan.mesh, plan.instruction(*from).layout).set())
}
