//! What one device holds in memory while each instruction of a plan runs.

use crate::plan::{InstrId, InstrKind, Plan};
use crate::program::ParameterKind;

/// The memory of one device along a plan run in program order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// For each instruction, the bytes held while it runs: weights and caches, its operands, its result, and every other
    /// value made before and still to be read.
    pub live_bytes: Vec<u64>,
    /// For each instruction, the values read for the last time by it (never weights, caches or results of the layer).
    pub frees: Vec<Vec<InstrId>>,
}

impl Liveness {
    /// Walks a plan in program order. Activations given as parameters are held from the start.
    pub fn of(plan: &Plan) -> Liveness {
        let count = plan.instructions.len();
        let mut last_use: Vec<usize> = (0..count).collect();
        for id in plan.ids() {
            for operand in &plan.instruction(id).operands {
                last_use[operand.index()] = id.index();
            }
        }
        let kept = |id: InstrId| {
            plan.outputs.iter().any(|o| o.id == id)
                || matches!(
                    plan.instruction(id).kind,
                    InstrKind::Parameter(ParameterKind::Weight | ParameterKind::Cache)
                )
        };
        let is_parameter = |id: InstrId| matches!(plan.instruction(id).kind, InstrKind::Parameter(_));
        // In 128 bits: each value fits in 64, the sum of thousands of absurd ones need not.
        let bytes = |id: InstrId| u128::from(plan.local_bytes(id));
        let mut held: u128 = plan.ids().filter(|id| is_parameter(*id)).map(bytes).sum();
        let mut live_bytes = Vec::with_capacity(count);
        let mut frees = vec![Vec::new(); count];
        for id in plan.ids() {
            if last_use[id.index()] >= id.index() && !kept(id) {
                frees[last_use[id.index()]].push(id);
            }
        }
        for id in plan.ids() {
            if !is_parameter(id) {
                held += bytes(id);
            }
            live_bytes.push(u64::try_from(held).unwrap_or(u64::MAX));
            held -= frees[id.index()].iter().map(|f| bytes(*f)).sum::<u128>();
        }
        Liveness { live_bytes, frees }
    }

    /// The largest number of bytes held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.live_bytes.iter().copied().max().unwrap_or(0)
    }
}
