//! What the search minimises: time, and then the tie rule of the cost model.

use shard_cost::{Hardware, KernelOp, LocalTensor, collective_cost, kernel_work, looped_time, roofline};
use shard_ir::{Collective, Def, Fused, Layout, MeshShape, Program, ValueId};

use crate::kernel::{Kernel, Kernels};

/// A cost, compared from left to right: time first, then the additive parts of the tie rule. (Live bytes at the peak are not
/// additive; what parameters occupy is the part of them that is.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cost {
    /// Picoseconds.
    pub time: u64,
    /// Flops where communication alone counts; else elements that local ops touch: operands and results of ops, results of slices and to-partials.
    pub elements: u64,
    /// Bytes of parameters on one device.
    pub resident: u64,
    /// Moves, an all-reduce counting as two.
    pub steps: u64,
    /// Bytes that the busiest device sends.
    pub moved: u64,
    /// The order in the text: for each layout used, its place among the value's layouts when they are sorted as text.
    pub order: u64,
}

impl Cost {
    /// No cost.
    pub const ZERO: Cost = Cost { time: 0, elements: 0, resident: 0, steps: 0, moved: 0, order: 0 };

    /// More than any plan costs.
    pub const MAX: Cost = Cost {
        time: u64::MAX,
        elements: u64::MAX,
        resident: u64::MAX,
        steps: u64::MAX,
        moved: u64::MAX,
        order: u64::MAX,
    };

    /// The cost of so many steps. What is resident, and the order in the text, are the same in all of them.
    #[must_use]
    pub fn times(self, steps: u64) -> Cost {
        Cost {
            time: self.time.saturating_mul(steps),
            elements: self.elements.saturating_mul(steps),
            steps: self.steps.saturating_mul(steps),
            moved: self.moved.saturating_mul(steps),
            ..self
        }
    }

    /// Each part divided, rounding down: `k` shares never exceed the whole.
    #[must_use]
    pub fn share(self, k: u64) -> Cost {
        let k = k.max(1);
        Cost {
            time: self.time / k,
            elements: self.elements / k,
            resident: self.resident / k,
            steps: self.steps / k,
            moved: self.moved / k,
            order: self.order / k,
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            time: self.time.saturating_add(other.time),
            elements: self.elements.saturating_add(other.elements),
            resident: self.resident.saturating_add(other.resident),
            steps: self.steps.saturating_add(other.steps),
            moved: self.moved.saturating_add(other.moved),
            order: self.order.saturating_add(other.order),
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::ZERO, |a, b| a + b)
    }
}

/// The cost of a move of a value.
pub(crate) fn move_cost(
    program: &Program,
    hardware: &Hardware,
    value: ValueId,
    collective: &Collective,
    from: Layout,
    to: Layout,
) -> Cost {
    let sizes = program.sizes(&program.value(value).dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let price = collective_cost(hardware, &program.mesh, collective, from, &sizes, program.value(value).dtype);
    let steps = if matches!(collective, Collective::AllReduce { .. }) { 2 } else { 1 };
    let elements = if collective.has_traffic() || hardware.has_free_ops() { 0 } else { shape.local_elements(to) };
    Cost { time: price.time.0, elements, steps, moved: price.wire_bytes.0, ..Cost::ZERO }
}

/// The cost of having a parameter in a layout.
pub(crate) fn parameter_cost(program: &Program, value: ValueId, layout: Layout) -> Cost {
    let sizes = program.sizes(&program.value(value).dims);
    let elements = MeshShape { mesh: &program.mesh, sizes: &sizes }.local_elements(layout);
    Cost { resident: program.value(value).dtype.bytes(elements), ..Cost::ZERO }
}

/// The cost of a kernel, with the collective in the loop of its first op, that reads its operands in these layouts; `None`
/// where the layouts do not fit together.
pub(crate) fn kernel_cost(
    kernels: &Kernels,
    hardware: &Hardware,
    kernel: &Kernel,
    fused: Option<&Fused>,
    read: &[Layout],
) -> Option<Cost> {
    let program = kernels.program.as_ref();
    let layouts = kernels.operand_layouts(kernel, fused, read)?;
    struct Local {
        tensors: Vec<(ValueId, Vec<u64>)>,
        result: Vec<u64>,
    }
    let mut locals = Vec::with_capacity(kernel.chain.len());
    let mut elements = 0u64;
    for (id, layouts) in kernel.chain.iter().zip(&layouts) {
        let local = |value: ValueId, layout: Layout| {
            let sizes = program.sizes(&program.value(value).dims);
            MeshShape { mesh: &program.mesh, sizes: &sizes }.local_sizes(layout)
        };
        let result = local(*id, kernels.site(*id).result_layout(layouts)?);
        let tensors: Vec<(ValueId, Vec<u64>)> = program
            .value(*id)
            .def
            .operands()
            .iter()
            .zip(layouts)
            .map(|(operand, layout)| (*operand, local(*operand, *layout)))
            .collect();
        let count = |sizes: &[u64]| sizes.iter().product::<u64>();
        elements = tensors.iter().fold(elements.saturating_add(count(&result)), |n, (_, s)| n.saturating_add(count(s)));
        locals.push(Local { tensors, result });
    }
    let tensor = |value: ValueId, sizes| {
        let v = program.value(value);
        // A pinned value is the value behind the pin.
        let mut origin = value;
        while let Def::Pin { operand, .. } = &program.value(origin).def {
            origin = *operand;
        }
        LocalTensor {
            value: origin.0,
            dims: &v.dims,
            sizes,
            dtype: v.dtype,
            constant: matches!(program.value(origin).def, Def::Constant(_)),
        }
    };
    let operands: Vec<Vec<LocalTensor<'_>>> = locals
        .iter()
        .map(|l| l.tensors.iter().map(|(value, sizes)| tensor(*value, sizes.as_slice())).collect())
        .collect();
    let chain: Vec<KernelOp<'_>> = kernel
        .chain
        .iter()
        .zip(&locals)
        .zip(&operands)
        .map(|((id, local), operands)| KernelOp {
            op: kernels.site(*id).op,
            operands,
            result: tensor(*id, &local.result),
        })
        .collect();
    let work = kernel_work(&chain);
    let (time, _) = roofline(hardware, &work);
    // Where communication alone counts, ties are broken by flops instead.
    let elements = if hardware.has_free_ops() { u64::try_from(work.flops.0).unwrap_or(u64::MAX) } else { elements };
    let Some(fused) = fused else { return Some(Cost { time: time.0, elements, ..Cost::ZERO }) };
    let first = kernel.chain[0];
    let (moved, from) = match fused.gathered() {
        Some(place) => (*program.value(first).def.operands().get(place)?, *read.get(place)?),
        None => (first, kernels.site(first).result_layout(&layouts[0])?),
    };
    let of = program.value(moved);
    let collective = fused.collective();
    let price = collective_cost(hardware, &program.mesh, &collective, from, &program.sizes(&of.dims), of.dtype);
    let time = looped_time(price.time, time, fused.chunks(&program.mesh));
    Some(Cost { time: time.0, elements, steps: 1, moved: price.wire_bytes.0, ..Cost::ZERO })
}
