//! Branches (`spec/certificate.md`): the plans of a form, divided by the bytes of a stored weight
//! or by the layout of a label. Every plan answers the question of each division with yes or no, so
//! that the branches together cover all plans.

use std::collections::BTreeMap;

use shard_ir::{LabelId, Layout, ParameterKind, ValueId};

use crate::format::{Branch, Branches, CertificateError};
use crate::labels::layouts_of;
use crate::space::Space;

/// What all plans of a branch have in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Within {
    /// For weights and caches the limits on their bytes: more than the first, if there is one, and
    /// at most the second.
    stored: BTreeMap<ValueId, (Option<u64>, u64)>,
    /// For labels the layouts that are left.
    labels: BTreeMap<u16, Vec<Layout>>,
}

impl Within {
    /// This branch restricted to the plans that store at most `up_to` bytes of a value; or, where
    /// `holds` is false, more.
    #[must_use]
    pub fn stored(&self, value: ValueId, up_to: u64, holds: bool) -> Within {
        let mut within = self.clone();
        let (over, most) = within.stored.get(&value).copied().unwrap_or((None, u64::MAX));
        let now = if holds {
            (over, most.min(up_to))
        } else {
            (Some(over.map_or(up_to, |o| o.max(up_to))), most)
        };
        within.stored.insert(value, now);
        within
    }

    /// This branch with a label restricted to `layouts`, or, where `holds` is false, to all other
    /// layouts. `all` are the layouts that the label may have at first.
    #[must_use]
    pub fn label(&self, label: u16, all: &[Layout], layouts: &[Layout], holds: bool) -> Within {
        let mut within = self.clone();
        let left = within.labels.entry(label).or_insert_with(|| all.to_vec());
        left.retain(|layout| layouts.contains(layout) == holds);
        within
    }

    /// Whether plans of the branch may store so many bytes of a value.
    pub(crate) fn may_store(&self, value: ValueId, bytes: impl FnOnce() -> u64) -> bool {
        let Some((over, most)) = self.stored.get(&value) else { return true };
        let bytes = bytes();
        bytes <= *most && over.is_none_or(|over| bytes > over)
    }

    /// The layouts that are left of a label; `None` for all.
    pub(crate) fn layouts(&self, label: LabelId) -> Option<&[Layout]> {
        self.labels.get(&label.0).map(Vec::as_slice)
    }
}

impl Space<'_> {
    /// The layouts that all places of a label allow, in their order.
    pub fn layouts_of_label(&self, label: u16) -> Vec<Layout> {
        layouts_of(self.program, LabelId(label))
    }

    /// Makes this the space of a branch. Readers keep the layouts that they have in the whole
    /// space, so that prices fit both.
    pub fn narrow(&mut self, within: Within) {
        self.within = within;
    }

    /// The least bound of the branches of a tree, in picoseconds, and the number of alternatives
    /// that it rests on.
    pub(crate) fn bound_of_branches(
        &mut self,
        branches: &Branches,
    ) -> Result<(u64, u64), CertificateError> {
        let refused = |what: String| Err(CertificateError::new(what));
        let mut open = vec![Within::default()];
        let (mut least, mut alternatives) = (u64::MAX, 0);
        for branch in &branches.tree {
            let Some(within) = open.pop() else {
                return refused("there is more behind the tree of branches".to_string());
            };
            match branch {
                Branch::Stored { stored, up_to } => {
                    let value = ValueId(*stored);
                    if !self.is_kept(value) {
                        return refused(format!("value {stored} is no weight or cache"));
                    }
                    open.push(within.stored(value, *up_to, false));
                    open.push(within.stored(value, *up_to, true));
                }
                Branch::Label { label, layouts } => {
                    if usize::from(*label) >= self.program.labels.len() {
                        return refused(format!("there is no label {label}"));
                    }
                    let all = self.layouts_of_label(*label);
                    let named: Option<Vec<Layout>> =
                        layouts.iter().map(|at| all.get(*at as usize).copied()).collect();
                    let Some(named) = named else {
                        return refused(format!(
                            "label {label} has {} layouts, and another is named",
                            all.len()
                        ));
                    };
                    open.push(within.label(*label, &all, &named, false));
                    open.push(within.label(*label, &all, &named, true));
                }
                Branch::Leaf { prices } => {
                    let Some(set) = branches.prices.get(*prices as usize) else {
                        return refused(format!(
                            "a branch has the prices {prices}, which there are not"
                        ));
                    };
                    self.narrow(within);
                    let bound = self.bound(set)?;
                    alternatives += bound.alternatives;
                    // What has no plan takes for ever.
                    least = least.min(self.bound_under(&bound, &[]).unwrap_or(u64::MAX));
                }
            }
        }
        self.narrow(Within::default());
        if open.is_empty() {
            Ok((least, alternatives))
        } else {
            refused("the branches do not cover all plans".to_string())
        }
    }

    fn is_kept(&self, value: ValueId) -> bool {
        let value = self.program.values.get(value.index());
        value.and_then(|value| value.def.parameter()).is_some_and(ParameterKind::is_kept)
    }
}
