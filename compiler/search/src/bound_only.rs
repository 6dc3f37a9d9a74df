//! The lower bound alone: prices bound every form of a program, and no plan is searched for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shard_cost::Hardware;
use shard_ir::{Picoseconds, Program};

use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::{Choices, Form, Saturated};
use crate::lower::within_limits;
use crate::many_forms::narrowed;
use crate::memory::DeviceMemory;
use crate::relax::{Setting, Wanted, all_plans};
use crate::{LowerError, LowerOptions, SearchLimit};

/// A lower bound on all plans of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LowerBound {
    /// No plan takes less.
    pub time: Picoseconds,
    /// The least that the weights and caches of any plan take on a device, over the whole stack, in
    /// bytes.
    pub least_kept: u64,
    /// Whether it is proven that no plan fits in the memory of a device. `time` then bounds the
    /// plans of any size.
    pub none_fits: bool,
    /// The limit that ended the search for the bound, where a higher limit might have given a
    /// better one.
    pub stopped_by: Option<SearchLimit>,
}

/// Bounds all plans of a program that fit in the memory of the hardware, or all plans with
/// `any_size`. Of the options only those that define the plan space count.
pub fn lower_bound(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<LowerBound, LowerError> {
    let least_kept = crate::least_kept(program);
    let of_any_size = LowerOptions { any_size: true, ..options.clone() };
    let (found, none_fits) = if options.any_size {
        (of_all_forms(program, hardware, options), false)
    } else if least_kept > hardware.hbm_bytes {
        (of_all_forms(program, hardware, &of_any_size), true)
    } else {
        match of_all_forms(program, hardware, options) {
            // What was left out of the plan space is in no plan that fits.
            Err(LowerError::Unreachable { .. }) => {
                (of_all_forms(program, hardware, &of_any_size), true)
            }
            found => (found, false),
        }
    };
    let (time, limit) = found?;
    Ok(LowerBound { time: Picoseconds(time), least_kept, none_fits, stopped_by: limit })
}

/// A bound on the plans of all forms, in picoseconds, and the limit that ended it.
fn of_all_forms(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<(u64, Option<SearchLimit>), LowerError> {
    let (priced, limits) = (&*options.priced_by(hardware), &options.limits);
    let saturated = Saturated::new(program, options.strict || program.strict, limits);
    if let Some(choices) = saturated.choices(limits)
        && let Some(bound) = of_choices(&choices, priced, options)?
        && saturated.cut().is_none()
    {
        // Where the source computes something twice, the form written is none of the choices.
        let written =
            if choices.merged { of_form(saturated.written(), priced, options)? } else { None };
        return Ok((written.map_or(bound, |written| written.min(bound)), None));
    }
    let forms = saturated.forms(limits);
    let cut = forms.cut.map(|cut| (cut.first_bound(program, priced), cut.limit));
    // The form of least bound comes first, with a bound from flops alone. It gets a bound by prices
    // and is put back. Once a form comes up with a bound by prices, no other has a lower one.
    let mut forms_left: Vec<Option<Form>> = Vec::new();
    let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (at, form) in forms.all.into_iter().enumerate() {
        open.push(Reverse((form.first_bound(priced), at)));
        forms_left.push(Some(form));
    }
    while let Some(Reverse((least, at))) = open.pop() {
        let Some(form) = forms_left[at].take() else {
            return Ok(match cut {
                // Of the forms that were left out flops alone are known.
                Some((of_cut, limit)) if of_cut < least => (of_cut, Some(limit)),
                _ => (least, None),
            });
        };
        match of_form(form, priced, options) {
            Ok(Some(own)) => open.push(Reverse((own.max(least), at))),
            Ok(None) => {}
            Err(LowerError::OutOfTime) => {
                let of_cut = cut.map_or(least, |(of_cut, _)| of_cut);
                return Ok((of_cut.min(least), Some(SearchLimit::Time)));
            }
            Err(other) => return Err(other),
        }
    }
    Err(LowerError::Unreachable { value: None, output: None })
}

/// The bound by prices on the plans of forms that are too many to list, in picoseconds; `None`
/// where prices do not bound all forms at once.
fn of_choices(
    choices: &Choices<'_>,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Option<u64>, LowerError> {
    let limits = &options.limits;
    let strict = options.strict || choices.program().strict;
    let setting = Setting::of(choices.program(), hardware, strict, limits);
    let kernels_of = |form| Kernels::of_form(form, strict, options.fuse && !strict, hardware);
    let of_part = |part| Kernels::of_program(part, strict, options.fuse && !strict, hardware);
    let bound = |fits: bool| {
        let solve = |kernels: &Kernels| {
            let program = kernels.program.as_ref();
            within_limits(program, limits)?;
            check_labels(program)?;
            let memory = fits.then(|| DeviceMemory::new(program, hardware.hbm_bytes));
            let wanted = Wanted { memory, apart: true, ..Wanted::default() };
            Ok(Some(all_plans(kernels, setting, wanted)?.0))
        };
        let found = narrowed(choices, setting, &kernels_of, &of_part, &solve)?;
        Ok(found.map(|found| found.bound))
    };
    let of_any_size = bound(false)?;
    if options.any_size || of_any_size.is_none() {
        return Ok(of_any_size);
    }
    Ok(of_any_size.max(bound(true)?))
}

/// The bound by prices on the plans of a form, in picoseconds; `None` where it has no plan.
fn of_form(
    form: Form,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Option<u64>, LowerError> {
    let limits = &options.limits;
    let strict = options.strict || form.program.strict;
    let kernels = Kernels::of_form(form, strict, options.fuse && !strict, hardware);
    let program = &kernels.program;
    within_limits(program, limits)?;
    check_labels(program)?;
    limits.stop.check()?;
    let setting = Setting::of(program, hardware, strict, limits);
    let bound = |memory| {
        let wanted = Wanted { memory, ..Wanted::default() };
        Ok(all_plans(&kernels, setting, wanted)?.0.bound())
    };
    let of_any_size = bound(None)?;
    if options.any_size {
        return Ok(of_any_size);
    }
    // Both bounds hold for the plans that fit. Where memory does not bind, sweeps without it may
    // lift the bound further.
    let of_those_that_fit = bound(Some(DeviceMemory::new(program, hardware.hbm_bytes)))?;
    Ok(of_those_that_fit.and_then(|bound| Some(bound.max(of_any_size?))))
}
