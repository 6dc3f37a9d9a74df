//! What no schedule of any plan falls below where computing and communicating overlap.
//!
//! Three bounds, of which the largest stands: what keeps one resource busy (the cores, the links),
//! over all plans; the critical path over all plans ([`path`]); and both together: steps of which
//! no two can be done at the same time take their sum ([`exclusive`]).

mod climb;
mod costs;
mod exclusive;
mod path;
mod weighed;

use shard_cost::{Hardware, Streams};
use shard_ir::{Picoseconds, Program};

use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::{Form, Saturated};
use crate::lower::within_limits;
use crate::memory::DeviceMemory;
use crate::relax::factors::{Extent, Factors, Shared};
use crate::relax::{Weighted, all_fits, least_weighted};
use crate::space::maxima;
use crate::{LowerError, LowerOptions};
use costs::Costs;
use exclusive::Steps;

/// How soon the results can be there in any plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OverlapBound {
    /// The results of one layer, or of a model.
    pub layer: Picoseconds,
    /// Of a stack, what each layer adds to it at least.
    pub period: Picoseconds,
}

/// What no schedule of any plan of a program falls below, of those that fit in memory; `None` where
/// its forms are too many to look at. `known` is what some schedule takes: a bound that meets it is
/// good enough.
pub fn overlap_bound(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    known: OverlapBound,
) -> Result<Option<OverlapBound>, LowerError> {
    let strict = options.strict || program.strict;
    let saturated = Saturated::new(program, strict, &options.limits);
    let forms = saturated.forms(&options.limits);
    if forms.cut.is_some() {
        return Ok(None);
    }
    let mut least: Option<OverlapBound> = None;
    let mut shared = Shared::new(1);
    for form in forms.all {
        options.limits.stop.check()?;
        // No more is asked of a form than that it is no better than those before.
        let known = least.map_or(known, |least: OverlapBound| OverlapBound {
            layer: known.layer.min(least.layer),
            period: known.period.min(least.period),
        });
        let Some(of_form) = of_form(form, hardware, options, (known, &mut shared))? else {
            continue;
        };
        least = Some(least.map_or(of_form, |least| OverlapBound {
            layer: least.layer.min(of_form.layer),
            period: least.period.min(of_form.period),
        }));
    }
    Ok(least)
}

/// The bound of one form; `None` where it has no plan.
fn of_form(
    form: Form,
    hardware: &Hardware,
    options: &LowerOptions,
    (known, shared): (OverlapBound, &mut Shared),
) -> Result<Option<OverlapBound>, LowerError> {
    let strict = options.strict || form.program.strict;
    let kernels = Kernels::of_form(form, strict, options.fuse && !strict, hardware);
    let (program, limits) = (kernels.program.as_ref(), &options.limits);
    within_limits(program, limits)?;
    check_labels(program)?;
    let extent = Extent { of: kernels.live.clone(), shared };
    let problem = Factors::of_part(&kernels, hardware, maxima(program), (strict, limits), extent)?;
    let costs = Costs::of(&kernels, hardware, options, &problem)?;
    let Some((mut bound, path)) = path::critical_path(&kernels, &problem, &costs) else {
        return Ok(None);
    };
    let memory = || {
        let memory = DeviceMemory::new(program, hardware.hbm_bytes);
        (!options.any_size && !all_fits(&kernels, &memory)).then_some(memory)
    };
    let streams = Streams::of(hardware, &program.mesh);
    let steps = |stack| Steps::of(&kernels, (&problem, &costs), &streams, stack);
    let (mut none, own) = (false, &problem);
    let mut least = |weights: &weighed::Weighed| {
        let problem = weights.applied((&program.mesh, &streams), own, &costs);
        let of = Weighted { problem, read_by_one: weights.read_by_one() };
        match least_weighted(&kernels, of, memory(), limits) {
            Some(least) => Picoseconds(least.div_ceil(weights.unit)),
            // There is no plan, or all count for more than can be counted.
            None => {
                let of = Weighted { problem: own.clone(), read_by_one: Vec::new() };
                none |= least_weighted(&kernels, of, memory(), limits).is_none();
                Picoseconds(0)
            }
        }
    };
    if bound.layer < known.layer {
        bound.layer = bound.layer.max(steps(None).largest(&path, known.layer, &mut least));
    }
    let taken = path::taken(program).filter(|_| bound.period < known.period);
    if let Some(taken) = taken {
        let found = steps(Some(taken)).largest(&path, known.period, &mut least);
        bound.period = bound.period.max(found);
    }
    limits.stop.check()?;
    Ok((!none).then_some(bound))
}
