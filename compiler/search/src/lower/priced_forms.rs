//! Forms that several searches of one program within one memory price, each priced once.

use std::cell::RefCell;
use std::sync::Arc;

use shard_ir::Program;

use crate::LowerError;
use crate::relax::{Branch, Whole};

/// Forms with their prices within one memory. A search begins with the prices of the searches
/// before it; any prices bound all plans.
#[derive(Default)]
pub(crate) struct PricedForms(RefCell<Vec<PricedForm>>);

/// A form with its prices.
struct PricedForm {
    of: Priced,
    branch: Branch,
    whole: Arc<Whole>,
    /// See [`Lowering::least_activations`](super::Lowering::least_activations).
    least_activations: Option<u64>,
}

/// What the prices of a form were found for.
#[derive(Clone, PartialEq)]
pub(super) struct Priced {
    pub(super) program: Arc<Program>,
    /// The bytes of a device.
    pub(super) capacity: u64,
    /// Whether only plans below some time were wanted. Prices are then swept further: on the way
    /// to a time, the prices of searches for all plans gain nothing more.
    pub(super) below: bool,
}

impl PricedForms {
    /// What [`all_plans`](crate::relax::all_plans) says of a form; `price` asks it.
    pub(super) fn all_plans(
        &self,
        of: Priced,
        price: impl FnOnce() -> Result<(Branch, Arc<Whole>), LowerError>,
    ) -> Result<(Branch, Arc<Whole>), LowerError> {
        let mut forms = self.0.borrow_mut();
        if let Some(known) = forms.iter().find(|form| form.of == of) {
            return Ok((known.branch.clone(), Arc::clone(&known.whole)));
        }
        let (branch, whole) = price()?;
        // Searches within another memory have come to an end.
        forms.retain(|form| form.of.capacity == of.capacity);
        let same = forms.iter().find(|form| form.of.program == of.program);
        let least_activations = same.and_then(|form| form.least_activations);
        let kept = (branch.clone(), Arc::clone(&whole));
        forms.push(PricedForm { of, branch, whole, least_activations });
        Ok(kept)
    }

    /// What the activations of any plan of a form take at least, as `find` says where it is not
    /// known; `None` where `find` cannot tell.
    pub(super) fn least_activations(
        &self,
        whole: &Arc<Whole>,
        find: impl FnOnce() -> Result<Option<u64>, LowerError>,
    ) -> Result<Option<u64>, LowerError> {
        let mut forms = self.0.borrow_mut();
        let Some(form) = forms.iter_mut().find(|form| Arc::ptr_eq(&form.whole, whole)) else {
            return find();
        };
        if form.least_activations.is_none() {
            form.least_activations = find()?;
        }
        Ok(form.least_activations)
    }
}
