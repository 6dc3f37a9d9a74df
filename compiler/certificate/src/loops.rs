//! Loops (`spec/search.md`): an einsum that does an all-gather of one operand, or the
//! reduce-scatter of its result, chunk by chunk.

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, collective_cost};
use shard_ir::{AxisList, Collective, Layout, MeshShape, Program, Reduction, ValueId};

use crate::kernel::InLoop;

/// A collective in the loop of an einsum.
pub(crate) struct Looped {
    /// The operand that is gathered, and its layout before the gather; `None` where the result is
    /// scattered.
    pub(crate) given: Option<(usize, Layout)>,
    /// The layout of the result.
    pub(crate) result: Layout,
    /// Its time and its chunks.
    pub(crate) collective: InLoop,
}

/// The loops of one einsum.
pub(crate) struct Loops<'a> {
    program: &'a Program,
    hardware: &'a Hardware,
    id: ValueId,
    /// Times of collectives in picoseconds, by operand (`None` for the result), local elements and
    /// axes.
    known: FxHashMap<(Option<usize>, u64, AxisList), u64>,
}

impl<'a> Loops<'a> {
    pub(crate) fn new(program: &'a Program, hardware: &'a Hardware, id: ValueId) -> Loops<'a> {
        Loops { program, hardware, id, known: FxHashMap::default() }
    }

    /// The loops of one strategy: of an einsum that reads its operands and makes its result in
    /// these layouts.
    pub(crate) fn of(&mut self, operands: &[Layout], result: Layout) -> Vec<Looped> {
        let mut all = Vec::new();
        let program = self.program;
        let mesh = &program.mesh;
        // A loop gathers an operand over axes over which the einsum reads it whole.
        for (i, operand) in program.value(self.id).def.operands().iter().enumerate() {
            let dims = &program.value(*operand).dims;
            let sizes = program.sizes(dims);
            for axes in AxisList::arrangements(operands[i].replicated_axes(mesh)) {
                for dim in
                    (0..dims.len()).filter(|dim| divides(&sizes, mesh, operands[i], *dim, axes))
                {
                    let given = operands[i].with_dim(dim, operands[i].axes_of(dim).concat(axes));
                    let time = self.time(
                        Some(i),
                        *operand,
                        Collective::AllGather { dim, axes },
                        given,
                        axes,
                    );
                    let collective = InLoop { time, chunks: mesh.group_size(axes.iter()) };
                    all.push(Looped { given: Some((i, given)), result, collective });
                }
            }
        }
        // A loop scatters the result over axes over which the einsum leaves it partial.
        let dims = &program.value(self.id).dims;
        let sizes = program.sizes(dims);
        for axes in AxisList::arrangements(result.partial(Reduction::Sum)) {
            let whole = axes.iter().fold(result, Layout::with_replicated);
            for dim in (0..dims.len()).filter(|dim| divides(&sizes, mesh, result, *dim, axes)) {
                let kind = Reduction::Sum;
                let time = self.time(
                    None,
                    self.id,
                    Collective::ReduceScatter { kind, dim, axes },
                    result,
                    axes,
                );
                let collective = InLoop { time, chunks: mesh.group_size(axes.iter()) };
                let result = whole.with_dim(dim, whole.axes_of(dim).concat(axes));
                all.push(Looped { given: None, result, collective });
            }
        }
        all
    }

    fn time(
        &mut self,
        of: Option<usize>,
        value: ValueId,
        does: Collective,
        from: Layout,
        axes: AxisList,
    ) -> u64 {
        let Loops { program, hardware, known, .. } = self;
        let value = program.value(value);
        let sizes = program.sizes(&value.dims);
        let elements = MeshShape { mesh: &program.mesh, sizes: &sizes }.local_elements(from);
        *known.entry((of, elements, axes)).or_insert_with(|| {
            collective_cost(hardware, &program.mesh, &does, from, &sizes, value.dtype).time.0
        })
    }
}

/// Whether the size of a dim divides over its axes and over `more` axes.
fn divides(
    sizes: &[u64],
    mesh: &shard_ir::Mesh,
    layout: Layout,
    dim: usize,
    more: AxisList,
) -> bool {
    sizes[dim]
        .is_multiple_of(mesh.group_size(layout.axes_of(dim).iter()) * mesh.group_size(more.iter()))
}
