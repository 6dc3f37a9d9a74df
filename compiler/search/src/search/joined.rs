//! Ops that join the kernel of the op whose value they read.
//!
//! A plan in which no move comes between the two has both as one kernel. The way that makes them as
//! two kernels is then counted with less memory than the plan takes, so that the search leaves it
//! out where memory is a constraint.

use rustc_hash::FxHashMap;
use shard_ir::{Fused, ValueId};

use super::Search;
use super::states::Want;
use crate::kernel::Kernels;
use crate::table::{LayoutId, Source};

/// For each op that joins the kernel of the maker of its operands unless a move comes between:
/// those operands.
pub(super) fn joins(kernels: &Kernels) -> FxHashMap<ValueId, Vec<ValueId>> {
    let program = kernels.program.as_ref();
    let joins = program.value_ids().filter_map(|id| {
        let (places, ..) = kernels.fusible_operand(id)?;
        let operands = program.value(id).def.operands();
        Some((id, places.iter().map(|place| operands[*place]).collect()))
    });
    joins.collect()
}

impl Search<'_> {
    /// Whether a value that is made by this source and not moved is one kernel with the op that
    /// reads it. The plan has the two as one kernel, in less time and with more memory; that is
    /// another way of making the reader, which is counted by itself.
    pub(super) fn is_joined(
        &self,
        wants: &[Want],
        value: ValueId,
        made_in: LayoutId,
        source: Source,
    ) -> bool {
        let layout = self.tables.of(value).layouts[made_in as usize];
        let kernel = match source {
            // A loop that scatters is a kernel alone.
            Source::Given | Source::Pin | Source::Kernel(_, Some(Fused::ReduceScatter { .. })) => {
                false
            }
            Source::Kernel(_, Some(Fused::AllGather { .. }) | None) => true,
        };
        kernel && self.kernels.may_be_joined(value, layout) && all_join(wants, value)
    }

    /// The operands whose maker's kernel the source of a value would join, if no move came between.
    /// `unmoved` says whether the value itself is read in the layout in which it is made.
    pub(super) fn joined_by(
        &self,
        value: ValueId,
        source: Source,
        wants: &[Want],
        unmoved: bool,
    ) -> &[ValueId] {
        let program = self.program;
        match source {
            Source::Kernel(kernel, _) => {
                let head = self.kernels.of[value.index()][kernel].chain[0];
                self.joins.get(&head).map_or(&[], Vec::as_slice)
            }
            Source::Pin if unmoved && all_join(wants, value) => program.value(value).def.operands(),
            Source::Pin | Source::Given => &[],
        }
    }
}

/// Whether every reader of a value joins the kernel that makes it, if no move comes between.
fn all_join(wants: &[Want], value: ValueId) -> bool {
    wants.iter().filter(|want| want.value == value).all(|want| want.joins)
}
