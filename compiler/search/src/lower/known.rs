//! What is known of a program, for questions about programs that differ from it in layout patterns
//! alone.

use std::sync::Arc;

use shard_cost::Hardware;
use shard_ir::{Def, Program};

use super::{Lowering, Remembered, is_plain, lower_of};
use crate::kernel::Kernels;
use crate::logical::{Form, Saturated};
use crate::relax::{Better, Like, Whole};
use crate::space::maxima;
use crate::{LowerError, LowerOptions};

/// What is known of the forms of a program.
#[derive(Default)]
pub(crate) struct KnownForms(Vec<KnownForm>);

/// What is known of one form.
struct KnownForm {
    kernels: Arc<Kernels>,
    /// The relaxation of its plans, where it was priced.
    whole: Option<Arc<Whole>>,
    /// Whether its own plans are not wanted, but only those that a program with wider patterns has
    /// beside them.
    is_unwanted: bool,
    /// Whether prices show that it has no plan that is wanted.
    is_ruled_out: bool,
}

impl KnownForm {
    /// A form of which nothing is known yet.
    fn of(kernels: &Arc<Kernels>) -> KnownForm {
        let kernels = Arc::clone(kernels);
        KnownForm { kernels, whole: None, is_unwanted: false, is_ruled_out: false }
    }

    /// Whether a program differs from this form in layout patterns alone.
    fn is_like(&self, program: &Program) -> bool {
        let same = |a: &Def, b: &Def| match (a, b) {
            (Def::Parameter { kind: a, .. }, Def::Parameter { kind: b, .. }) => a == b,
            (Def::Pin { operand: a, .. }, Def::Pin { operand: b, .. }) => a == b,
            (a, b) => a == b,
        };
        let known = self.kernels.program.as_ref();
        let values = known.values.iter().zip(&program.values);
        known.values.len() == program.values.len()
            && values.into_iter().all(|(a, b)| {
                a.dims == b.dims && a.dtype == b.dtype && a.times == b.times && same(&a.def, &b.def)
            })
            && known.outputs.iter().map(|o| o.value).eq(program.outputs.iter().map(|o| o.value))
            && maxima(known) == maxima(program)
    }
}

impl KnownForms {
    pub(super) const NONE: &'static KnownForms = &KnownForms(Vec::new());

    /// What a search has left behind.
    pub(crate) fn of(lowered: &Remembered) -> KnownForms {
        let whole = lowered.whole.clone().filter(|_| lowered.complete);
        KnownForms(vec![KnownForm { whole, ..KnownForm::of(&lowered.kernels) }])
    }

    /// Whether a form of another program is known to have no plan that is wanted.
    pub(super) fn rules_out(&self, program: &Program) -> bool {
        self.0.iter().any(|form| form.is_ruled_out && form.is_like(program))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is known of a form of another program.
    pub(super) fn of_form(&self, program: &Program) -> Option<Like<'_>> {
        let form = self.0.iter().find(|form| form.is_like(program))?;
        let unwanted = form.is_unwanted.then(|| form.kernels.program.as_ref());
        Some(Like { whole: form.whole.as_deref()?, unwanted })
    }
}

/// What is known of the plans of `wider`, a program with wider layout patterns, that take less than
/// `best`, the time of the best plan of `program` in picoseconds. It serves searches for such plans
/// in any program whose patterns lie between the two. [`Better::Unknown`] where there are more
/// forms than are listed, labels, or plans that are not wanted.
pub(crate) fn better_than(
    program: &Program,
    wider: &Program,
    lowered: &Remembered,
    best: u64,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Better<KnownForms>, LowerError> {
    if !is_plain(program, options) {
        return Ok(Better::Unknown);
    }
    let limits = &options.limits;
    let lowering = Lowering { loops: options.fuse, ..Lowering::new(hardware, limits) };
    let Some(wider) = lowering.few_forms(wider) else { return Ok(Better::Unknown) };
    // Mostly no plan is better, and prices show that at once.
    let searched = KnownForms::of(lowered);
    let shows = |(least, kernels): &(u64, Arc<Kernels>)| {
        let form = kernels.program.as_ref();
        let shown = || searched.of_form(form)?.shows(form, maxima(form));
        *least >= best || shown().is_some_and(|shown| shown >= best)
    };
    if wider.iter().all(shows) {
        return Ok(Better::None);
    }
    let Some(forms) = lowering.few_forms(program) else { return Ok(Better::Unknown) };
    let mut all: Option<u64> = None;
    let mut known = KnownForms::default();
    for (_, kernels) in forms.into_iter().filter(|(bound, _)| *bound < best) {
        let form = kernels.program.as_ref();
        let mut own = KnownForm { is_unwanted: true, ..KnownForm::of(&kernels) };
        let is_lowered = KnownForm::of(&lowered.kernels).is_like(form) && lowered.complete;
        let (whole, settled) = match (&lowered.whole, &lowered.settled) {
            (Some(whole), Some(settled)) if is_lowered => (Arc::clone(whole), Arc::clone(settled)),
            _ => {
                let (branch, whole) = lowering.all_plans_of(&kernels, false)?;
                (whole, branch.whole())
            }
        };
        let Some((_, wider)) = wider.iter().find(|(_, wider)| own.is_like(&wider.program)) else {
            return Ok(Better::Unknown);
        };
        let maxima = maxima(form);
        match whole.for_better_plans(&settled, form, &wider.program, maxima, best, limits) {
            Better::Unknown => return Ok(Better::Unknown),
            Better::None => own.is_ruled_out = true,
            Better::Plans { least, known } => {
                all = lower_of(all, least);
                own.whole = Some(Arc::new(known));
            }
        }
        known.0.push(own);
        limits.stop.check()?;
    }
    // Nothing is known of a form of `wider` that is like no form of the program.
    let is_known = |form: &Program| known.0.iter().any(|known| known.is_like(form));
    if wider.iter().any(|(bound, form)| *bound < best && !is_known(&form.program)) {
        return Ok(Better::Unknown);
    }
    Ok(all.map_or(Better::None, |least| Better::Plans { least, known }))
}

impl<'a> Lowering<'a> {
    /// A search for plans that take less than `below` picoseconds.
    pub(super) fn of_less_than(
        below: u64,
        hardware: &'a Hardware,
        options: &'a LowerOptions,
        like: &'a KnownForms,
    ) -> Lowering<'a> {
        let below = Some(below);
        Lowering { loops: options.fuse, below, like, ..Lowering::new(hardware, &options.limits) }
    }

    /// The forms of a program, each with a lower bound on its plans in picoseconds; `None` where
    /// there are more than are listed.
    fn few_forms(&self, program: &Program) -> Option<Vec<(u64, Arc<Kernels>)>> {
        let saturated = Saturated::new(program, false, self.limits);
        if saturated.choices(self.limits).is_some() {
            return None;
        }
        let forms = saturated.forms(self.limits);
        let form = |form: Form| {
            let least = form.first_bound(self.hardware);
            let kernels = Kernels::of_form(form, self.all_written, self.loops, self.hardware);
            (least, Arc::new(kernels))
        };
        forms.cut.is_none().then(|| forms.all.into_iter().map(form).collect())
    }
}
