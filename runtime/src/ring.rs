//! Rings: attentions whose blocks of keys and of values travel round, step by step.
//!
//! At step s the device of rank r in a group of K holds block r - s of everything that travels. It
//! runs the attention on these blocks while it passes them on to rank r + 1. Each step gives a
//! [`PartialAttention`] over the keys of its block. When all K blocks have come by, these are
//! merged as those of several devices are ([`merge`](crate::merge)). Each device sends K - 1
//! messages for everything that travels.
//!
//! Nothing is ever gathered: beside its operands and its result a device holds the blocks that it
//! works on and the blocks that arrive.

use std::collections::BTreeMap;

use shard_ir::attention::{Ring, softmax_over, statistics_of};
use shard_ir::{DimId, Fused, InstrId, InstrKind, MeshShape, Plan};

use crate::arithmetic::Arithmetic;
use crate::devices::{Grid, Groups, usizes};
use crate::error::RunError;
use crate::local::{Target, View, evaluate};
use crate::merge::{PartialAttention, merged_parts, statistics};
use crate::network::Network;
use crate::parallel;
use crate::tensor::{Section, Tensor};

/// A ring to execute.
pub(crate) struct RingRun<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) ring: &'a Ring,
    pub(crate) arithmetic: Arithmetic,
    /// For each value that comes from outside of the ring the block of every device.
    pub(crate) outside: BTreeMap<InstrId, Vec<&'a Tensor>>,
}

/// What a member of a ring reads or makes at one step, on one device.
#[derive(Clone)]
struct Made {
    block: Tensor,
    /// Where the block starts in the whole value.
    origin: Vec<usize>,
}

impl RingRun<'_> {
    /// The block of every device, and the network that carried what travels.
    pub(crate) fn execute(&self, grid: &Grid<'_>) -> Result<(Vec<Tensor>, Network), RunError> {
        let groups = Groups::of(grid, &self.ring.axes);
        let mut network = Network::new(grid.devices(), 1, 1);
        let mut held = self.own()?;
        let mut parts = Vec::with_capacity(groups.size());
        for step in 0..groups.size() {
            if step > 0 {
                held = held.into_iter().map(|blocks| groups.passed_on(blocks)).collect();
                self.sends(&groups, &mut network);
            }
            parts.push(self.step(grid, step, &held)?);
        }
        Ok((self.merged(grid, parts)?, network))
    }

    /// For everything that travels the block that each device has at step 0.
    pub(crate) fn own(&self) -> Result<Vec<Vec<&Tensor>>, RunError> {
        let own = |(id, _): &(InstrId, _)| self.blocks(*id).cloned();
        self.ring.travels.iter().map(own).collect()
    }

    /// One message from each device for everything that travels.
    pub(crate) fn sends(&self, groups: &Groups, network: &mut Network) {
        for (id, _) in &self.ring.travels {
            let bits = self.plan.instruction(*id).dtype.bits();
            let elements = self.plan.local_elements(*id);
            for device in groups.all().flatten() {
                network.send_charged(*device, u128::from(bits) * u128::from(elements));
            }
        }
    }

    fn blocks(&self, id: InstrId) -> Result<&Vec<&Tensor>, RunError> {
        self.outside.get(&id).ok_or(RunError::Internal("a ring reads what is not in memory"))
    }

    fn keys(&self) -> Result<(InstrId, DimId), RunError> {
        let over = |id: &InstrId| {
            let op = self.plan.instruction(*id).kind.op()?;
            Some((*id, softmax_over(op)?))
        };
        let found = self.ring.members.iter().find_map(over);
        found.ok_or(RunError::Internal("a ring without a softmax"))
    }

    /// What each device makes of the blocks that it holds at a step.
    pub(crate) fn step(
        &self,
        grid: &Grid<'_>,
        step: usize,
        held: &[Vec<&Tensor>],
    ) -> Result<Vec<PartialAttention>, RunError> {
        let groups = Groups::of(grid, &self.ring.axes);
        let members = self.ring.members.iter();
        let work = members.map(|id| crate::limits::work_of(self.plan, *id)).sum::<u128>();
        let work = (work / groups.size() as u128).min(usize::MAX as u128) as usize;
        parallel::map(grid.devices(), work, |device| {
            let k = groups.size();
            let number = (groups.rank(device) + k - step % k) % k;
            let blocks: Vec<&Tensor> = held.iter().map(|blocks| blocks[device]).collect();
            self.part(grid, device, number, &blocks)
        })
    }

    /// The attention of a device's queries over one block of keys, the one of this number; `held`
    /// has the blocks of everything that travels that the device holds.
    fn part(
        &self,
        grid: &Grid<'_>,
        device: usize,
        number: usize,
        held: &[&Tensor],
    ) -> Result<PartialAttention, RunError> {
        let (plan, (softmax, keys)) = (self.plan, self.keys()?);
        let mut made: BTreeMap<InstrId, Made> = BTreeMap::new();
        let mut beside = None;
        for id in &self.ring.members {
            let instr = plan.instruction(*id);
            let op = instr.kind.op().ok_or(RunError::Internal("a member that is no op"))?;
            let mut parts: Vec<Made> = Vec::new();
            for (at, operand) in instr.operands.iter().enumerate() {
                parts.push(match made.get(operand) {
                    Some(inner) => inner.clone(),
                    None => {
                        let travels = matches!(
                            instr.kind,
                            InstrKind::CollectiveEinsum(Fused::AllGather { operand, .. })
                                if operand == at
                        );
                        let travelling =
                            if travels { self.ring.travels_as(plan, *operand) } else { None };
                        let whole = match travelling {
                            Some(place) => held[place],
                            None => self.blocks(*operand)?[device],
                        };
                        let arrived = travelling.is_some();
                        self.block_of(grid, device, *operand, number, whole, arrived)?
                    }
                });
            }
            if *id == softmax {
                let along = plan.instruction(instr.operands[0]).dims.iter();
                let at = along.clone().position(|dim| *dim == keys);
                let at = at.ok_or(RunError::Internal("scores without keys"))?;
                let left: Vec<DimId> = along.copied().filter(|dim| *dim != keys).collect();
                beside = Some((statistics(&parts[0].block, at, self.arithmetic), left));
            }
            let views: Vec<View<'_>> = instr
                .operands
                .iter()
                .zip(&parts)
                .map(|(operand, part)| View {
                    dims: &plan.instruction(*operand).dims,
                    block: &part.block,
                    origin: &part.origin,
                })
                .collect();
            let Section { origin, sizes } = self.place(grid, device, *id, number);
            let arithmetic = self.arithmetic;
            let target = Target {
                plan,
                id: *id,
                sizes: &sizes,
                origin: &origin,
                is_term: false,
                arithmetic,
            };
            let block = evaluate(op, &views, &target)?;
            made.insert(*id, Made { block, origin });
        }
        let last = made.remove(&self.ring.last());
        let last = last.ok_or(RunError::Internal("a ring that makes nothing"))?;
        let (found, has) = beside.ok_or(RunError::Internal("a ring without statistics"))?;
        // In the order of the result's own dims.
        let own = plan.instruction(self.ring.last()).dims.iter();
        let order: Vec<usize> =
            own.filter_map(|dim| has.iter().position(|other| other == dim)).collect();
        Ok(PartialAttention { result: last.block, statistics: found.transposed(&order) })
    }

    /// The part of a value that a device has or makes for one block of keys, the one of this
    /// number: along the keys that block, along all other dims the device's.
    fn place(&self, grid: &Grid<'_>, device: usize, id: InstrId, number: usize) -> Section {
        let (plan, instr) = (self.plan, self.plan.instruction(id));
        let global = plan.sizes(&instr.dims);
        let shape = MeshShape { mesh: &plan.mesh, sizes: &global };
        let mut origin = grid.origin(device, shape, instr.layout);
        let mut sizes = usizes(&plan.local_sizes(id));
        let keys = self.keys().ok().map(|(_, keys)| keys);
        if let Some(at) = instr.dims.iter().position(|dim| Some(*dim) == keys) {
            sizes[at] = global[at] as usize / self.ring.steps(plan) as usize;
            origin[at] = number * sizes[at];
        }
        Section { origin, sizes }
    }

    /// The part of a value from outside of the ring that belongs to one block of keys, the one of
    /// this number: all of `held` if it travels, else of a value that has all keys a part.
    fn block_of(
        &self,
        grid: &Grid<'_>,
        device: usize,
        id: InstrId,
        number: usize,
        held: &Tensor,
        arrived: bool,
    ) -> Result<Made, RunError> {
        let Section { origin, sizes } = self.place(grid, device, id, number);
        let keys = self.keys()?.1;
        let at = self.plan.instruction(id).dims.iter().position(|dim| *dim == keys);
        let block = match at.filter(|_| !arrived) {
            Some(at) if held.sizes[at] != sizes[at] => {
                let mut from = vec![0; held.sizes.len()];
                from[at] = origin[at];
                held.block(&from, &sizes)
            }
            _ => held.clone(),
        };
        Ok(Made { block, origin })
    }

    /// The results, from what every step has given.
    pub(crate) fn merged(
        &self,
        grid: &Grid<'_>,
        steps: Vec<Vec<PartialAttention>>,
    ) -> Result<Vec<Tensor>, RunError> {
        let groups = Groups::of(grid, &self.ring.axes);
        let (softmax, keys) = self.keys()?;
        let last = self.plan.instruction(self.ring.last());
        let by = statistics_of(&last.dims, &self.plan.instruction(softmax).dims, keys);
        (0..grid.devices())
            .map(|device| {
                let (k, rank) = (groups.size(), groups.rank(device));
                // In the order of the blocks, and not as they came: devices that are to hold the
                // same then hold the same bits. (Hardware merges them as they come.)
                let all: Vec<&PartialAttention> =
                    (0..k).map(|number| &steps[(rank + k - number) % k][device]).collect();
                Ok(merged_parts(&all, by, self.arithmetic, last.dtype)?.result)
            })
            .collect()
    }
}

/// Whether the value of an instruction is made step by step inside a ring and never whole: that of
/// every member but the last.
pub(crate) fn passes_in(rings: &[Ring], id: InstrId) -> bool {
    rings.iter().any(|ring| ring.members.contains(&id) && ring.last() != id)
}

/// The ring that ends with an instruction.
pub(crate) fn ring_of(rings: &[Ring], id: InstrId) -> Option<&Ring> {
    rings.iter().find(|ring| ring.last() == id)
}

/// What a ring reads from outside, each value once.
pub(crate) fn reads(plan: &Plan, ring: &Ring) -> Vec<InstrId> {
    let all = ring.members.iter().flat_map(|id| &plan.instruction(*id).operands).copied();
    let mut found: Vec<InstrId> = all.filter(|id| !ring.members.contains(id)).collect();
    found.sort_unstable();
    found.dedup();
    found
}
