//! How large the plan space of a program is, counted from the rules: what a search that bounds
//! nothing would build.

use std::collections::HashMap;
use std::ops::ControlFlow;

use shard_ir::{AxisSet, Def, DimId, Layout, MeshShape, Op, Program};
use shard_search::rules::moves::{Freedom, Movable};
use shard_search::rules::strategies::OpSite;

/// Counts over all values of a program; kernels of more than one op are left out.
#[derive(Default)]
pub(crate) struct PlanSpace {
    /// E-classes: values in layouts.
    pub(crate) layouts: u64,
    /// E-nodes of ops.
    pub(crate) strategies: u64,
    /// E-nodes of moves, each to any layout that one collective reaches.
    pub(crate) moves: u64,
}

impl PlanSpace {
    pub(crate) fn of(program: &Program) -> PlanSpace {
        let mut shapes: HashMap<Vec<u64>, (Vec<Layout>, u64)> = HashMap::new();
        let mut ops: HashMap<(Op, Vec<Vec<DimId>>), u64> = HashMap::new();
        let mut space = PlanSpace::default();
        for value in &program.values {
            let sizes = program.sizes(&value.dims);
            let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
            let (sums, maxima) = (program.mesh.all_axes(), AxisSet::EMPTY);
            let (layouts, moves) = shapes.entry(sizes.clone()).or_insert_with(|| {
                let layouts = shape.layouts(sums, maxima);
                let (sizes, freedom) = (sizes.clone(), Freedom::Any);
                let of = Movable { sizes, freedom, statistics: None };
                let moves = layouts
                    .iter()
                    .map(|l| of.moves_from(&program.mesh, *l, sums, maxima).len() as u64)
                    .sum();
                (layouts, moves)
            });
            space.layouts += layouts.len() as u64;
            space.moves += *moves;
            let Def::Op { op, operands } = &value.def else { continue };
            let operands: Vec<_> = operands.iter().map(|o| program.value(*o)).collect();
            let dims = operands.iter().map(|o| &o.dims).chain([&value.dims]).cloned().collect();
            space.strategies += *ops.entry((op.clone(), dims)).or_insert_with(|| {
                let operands = operands.iter().map(|o| (o.dims.as_slice(), o.dtype)).collect();
                let site = OpSite {
                    op,
                    operands,
                    result: &value.dims,
                    mesh: &program.mesh,
                    dims: &program.dims,
                    in_pieces: true,
                };
                let mut count = 0;
                let _ = site.for_each_strategy(&site.profile(), layouts, &mut |_, _| {
                    count += 1;
                    ControlFlow::Continue(())
                });
                count
            });
        }
        space
    }
}
