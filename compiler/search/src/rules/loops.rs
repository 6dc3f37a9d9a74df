//! Loops: an einsum makes a layout, with the all-gather of one operand or the reduce-scatter of its
//! result in its loop.
//!
//! Each strategy of an einsum gives rise to loops. An operand may be given split over axes over
//! which the einsum reads it whole, and the result may be split over axes over which the einsum
//! leaves it partial. An einsum has at most one collective in its loop. A test compares the loops
//! with [`Fused::layouts`] on all small layouts.

use shard_ir::{AxisList, Fused, Layout, MeshShape, Reduction};

use super::strategies::{OpProfile, OpSite};

/// A loop, and the layouts in which it is given its operands.
pub type Loop = (Fused, Vec<Layout>);

impl OpSite<'_> {
    /// Visits the loops that gather one operand of an einsum which reads its operands in the
    /// layouts `inside`: each with the layouts in which the operands are given.
    pub fn for_each_gather(&self, inside: &[Layout], visit: &mut dyn FnMut(Fused, &[Layout])) {
        let mut given = inside.to_vec();
        for (operand, (dims, _)) in self.operands.iter().enumerate() {
            let sizes: Vec<u64> = dims.iter().map(|d| self.dims[d.index()].size).collect();
            let shape = MeshShape { mesh: self.mesh, sizes: &sizes };
            for axes in AxisList::arrangements(inside[operand].replicated_axes(self.mesh)) {
                for dim in
                    (0..dims.len()).filter(|dim| shape.can_append(inside[operand], *dim, &axes))
                {
                    given[operand] =
                        inside[operand].with_dim(dim, inside[operand].axes_of(dim).concat(axes));
                    visit(Fused::AllGather { operand, dim, axes }, &given);
                }
            }
            given[operand] = inside[operand];
        }
    }

    /// Visits the loops that scatter a product in this layout, each with the layout of the result.
    pub fn for_each_scatter(&self, product: Layout, visit: &mut dyn FnMut(Fused, Layout)) {
        let sizes: Vec<u64> = self.result.iter().map(|d| self.dims[d.index()].size).collect();
        let shape = MeshShape { mesh: self.mesh, sizes: &sizes };
        for axes in AxisList::arrangements(product.partial(Reduction::Sum)) {
            for dim in 0..self.result.len() {
                let fused = Fused::ReduceScatter { dim, axes };
                if let Ok(result) = fused.collective().apply(shape, product) {
                    visit(fused, result);
                }
            }
        }
    }

    /// Every loop that makes the result in `target`.
    pub fn loops(&self, profile: &OpProfile, target: Layout) -> Vec<Loop> {
        let mut found = Vec::new();
        for inside in self.strategies(profile, target) {
            self.for_each_gather(&inside, &mut |fused, given| found.push((fused, given.to_vec())));
        }
        for dim in 0..self.result.len() {
            let split = target.axes_of(dim);
            for keep in 0..split.len() {
                let axes = split.suffix_from(keep);
                let whole = target.with_dim(dim, split.prefix(keep));
                let product = axes
                    .iter()
                    .fold(whole, |layout, axis| layout.with_partial(axis, Reduction::Sum));
                let given = self.strategies(profile, product);
                found.extend(
                    given.into_iter().map(|given| (Fused::ReduceScatter { dim, axes }, given)),
                );
            }
        }
        found
    }

    /// The loops that make the result in `target` from operands given in these layouts.
    pub fn loops_between(&self, given: &[Layout], target: Layout) -> Vec<Fused> {
        let all = Fused::all_on(&self.operands_in(given), self.result, self.mesh, self.dims);
        all.into_iter()
            .filter(|(_, inside)| inside.result == target)
            .map(|(fused, _)| fused)
            .collect()
    }
}
