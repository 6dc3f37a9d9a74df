//! How large a dim may be so that a plan still fits in memory.

use shard_ir::tensor::MAX_DIM_SIZE;
use shard_ir::{Dim, DimId, Plan, gcd, verify};

use crate::hardware::Hardware;
use crate::memory::Memory;
use crate::units::Bytes;

/// The memory of a chip that a plan may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// For everything together.
    pub all: Bytes,
    /// For caches alone.
    pub caches: Bytes,
}

impl Capacity {
    /// The memory of a chip, of which caches may take the share `cache_share`, from 0 to 1.
    pub fn of(hardware: &Hardware, cache_share: f64) -> Capacity {
        let all = Bytes(hardware.hbm_bytes);
        Capacity { all, caches: Bytes((all.0 as f64 * cache_share.clamp(0.0, 1.0)) as u64) }
    }

    /// Whether a plan with this memory fits.
    pub fn holds(&self, memory: &Memory) -> bool {
        self.holds_peak(memory, memory.peak())
    }

    /// Whether a plan with this memory fits, if it holds `peak` bytes at the peak of its schedule.
    pub fn holds_peak(&self, memory: &Memory, peak: Bytes) -> bool {
        peak <= self.all && memory.all_caches() <= self.caches
    }
}

/// The largest size of a dim with which a plan fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Largest {
    /// This size; a larger one does not fit.
    Size(u64),
    /// This size; there is memory for a larger one, but the program would be wrong: a value would
    /// have too many elements, or a derived dim a size that it may not have.
    Legal(u64),
    /// Not even the smallest size fits.
    None,
    /// The plan fits with the largest size that the language allows.
    Unlimited,
}

/// The plan with other sizes of its dims and the same layouts; `None` if that is no legal plan.
pub fn resized(plan: &Plan, dims: Vec<Dim>) -> Option<Plan> {
    if dims.len() != plan.dims.len() {
        return None;
    }
    let plan = Plan { dims, ..plan.clone() };
    verify::verify(&plan).is_ok().then_some(plan)
}

/// The largest size of `dim`, among those that its axes divide, with which the plan fits with the
/// same layouts.
///
/// `dims_with` gives all dims of the program if `dim` has a size (other dims may be derived from
/// it), or `None` if the program is wrong then. Memory never shrinks as a dim grows, so that sizes
/// are found by bisection.
pub fn largest(
    plan: &Plan,
    dim: DimId,
    capacity: &Capacity,
    dims_with: &dyn Fn(u64) -> Option<Vec<Dim>>,
) -> Largest {
    let fits = |size: u64| {
        let resized = resized(plan, dims_with(size)?)?;
        Some(capacity.holds(&Memory::of(&resized)))
    };
    let now = plan.dims[dim.index()].size;
    let split = granularity(plan, dim);
    // A derived dim may have to be divisible too: the sizes that are tried are whole steps from the
    // present one, the smallest steps with which the plan is legal.
    let Some(step) = (1..=MAX_STEP_FACTOR)
        .map(|m| split.saturating_mul(m))
        .find(|s| fits(now.saturating_add(*s)).is_some())
    else {
        return if fits(now) == Some(true) { Largest::Size(now) } else { Largest::None };
    };
    if fits(now) != Some(true) {
        // Downwards. A size that is too small to be legal counts as one that fits, and is refused
        // at the end.
        let best = last_true(0, now / step, |steps_left| {
            fits(now - (now / step - steps_left) * step).unwrap_or(true)
        });
        let size = best.map(|steps| now - (now / step - steps) * step);
        return match size.filter(|size| *size > 0 && fits(*size) == Some(true)) {
            Some(size) => Largest::Size(size),
            None => Largest::None,
        };
    }
    let end = (MAX_DIM_SIZE.saturating_sub(now)) / step;
    match last_true(0, end, |steps| fits(now + steps * step) == Some(true)) {
        Some(steps) if steps < end => {
            let size = now + steps * step;
            match fits(size + step) {
                Some(_) => Largest::Size(size),
                None => Largest::Legal(size),
            }
        }
        _ => Largest::Unlimited,
    }
}

/// How many multiples of the granularity are tried as a step.
const MAX_STEP_FACTOR: u64 = 64;

/// The least number that every group of axes which splits the dim somewhere divides.
fn granularity(plan: &Plan, dim: DimId) -> u64 {
    let mut common = 1u64;
    for instr in &plan.instructions {
        for at in (0..instr.dims.len()).filter(|at| instr.dims[*at] == dim) {
            let group = plan.mesh.group_size(instr.layout.axes_of(at).iter());
            common = common / gcd(common, group) * group;
        }
    }
    common
}

/// The last of the numbers `from ..= to` for which a test holds, if it holds up to some number and
/// not beyond; `None` if it holds for none.
fn last_true(from: u64, to: u64, mut holds: impl FnMut(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (from, to);
    if !holds(low) {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}
