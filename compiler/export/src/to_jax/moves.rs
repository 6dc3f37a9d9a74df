//! Each move as an expression of JAX on what one device holds.

use shard_ir::{AxisId, AxisList, Collective, Layout, MeshShape, Reduction};

use super::dtypes::Floats;
use super::exchange::steps_of;
use super::ops::neutral;
use crate::error::ExportError;
use crate::python::Py;
use crate::specs::axes_tuple;

/// A move to write.
#[derive(Clone, Copy)]
pub(crate) struct Moved<'a> {
    pub(crate) shape: MeshShape<'a>,
    pub(crate) from: Layout,
    pub(crate) to: Layout,
    pub(crate) dtype: shard_ir::Dtype,
    pub(crate) floats: Floats,
}

/// A move as it is written.
pub(crate) struct Written {
    /// One expression after another, each of the one before.
    pub(crate) steps: Vec<Py>,
    /// What stands in for it, where JAX has no such collective.
    pub(crate) instead: Option<String>,
}

impl Moved<'_> {
    /// The expressions of a move of `value`, all but the last of which are assigned to `between`.
    pub(crate) fn write(
        &self,
        collective: &Collective,
        value: &Py,
        between: &Py,
    ) -> Result<Written, ExportError> {
        let one = |step: Py| Ok(Written { steps: vec![step], instead: None });
        let instead = |step: Py, said: &str| {
            Ok(Written { steps: vec![step], instead: Some(said.to_string()) })
        };
        let value = value.clone();
        let mesh = self.shape.mesh;
        let tuple = |axes: &AxisList| axes_tuple(mesh, axes.iter());
        match *collective {
            Collective::AllGather { dim, axes } => {
                one(Py::call("lax.all_gather", [value, tuple(&axes)])
                    .with("axis", Py::atom(dim))
                    .with("tiled", Py::atom("True")))
            }
            Collective::Slice { dim, axes } => {
                let size = self.shape.local_sizes(self.to)[dim];
                let at =
                    Py::binary(Py::call("lax.axis_index", [tuple(&axes)]), "*", Py::atom(size));
                one(Py::call("lax.dynamic_slice_in_dim", [value, at, Py::atom(size)])
                    .with("axis", Py::atom(dim)))
            }
            Collective::ReduceScatter { kind: Reduction::Sum, dim, axes } => {
                one(Py::call("lax.psum_scatter", [value, tuple(&axes)])
                    .with("scatter_dimension", Py::atom(dim))
                    .with("tiled", Py::atom("True")))
            }
            Collective::ReduceScatter { kind: Reduction::Max, dim, axes } => instead(
                Py::call("max_scatter", [value, tuple(&axes)]).with("axis", Py::atom(dim)),
                "as all-to-all and a maximum",
            ),
            Collective::AllReduce { kind, axes } => {
                let function = match kind {
                    Reduction::Sum => "lax.psum",
                    Reduction::Max => "lax.pmax",
                };
                one(Py::call(function, [value, axes_tuple(mesh, axes.iter())]))
            }
            Collective::AllToAll { from_dim, to_dim, axes } => {
                one(Py::call("lax.all_to_all", [value, tuple(&axes)])
                    .with("split_axis", Py::atom(to_dim))
                    .with("concat_axis", Py::atom(from_dim))
                    .with("tiled", Py::atom("True")))
            }
            Collective::Permute { to } => one(self.permute(to, value)?),
            Collective::Exchange { to } => {
                let chain = steps_of(self.shape, self.from, to)?;
                let mut steps = Vec::new();
                let (mut from, mut value) = (self.from, value);
                for (step, after) in &chain {
                    let moved = Moved { from, to: *after, ..*self };
                    steps.extend(moved.write(step, &value, between)?.steps);
                    (from, value) = (*after, between.clone());
                }
                let names: Vec<&str> = chain.iter().map(|(step, _)| step.name()).collect();
                Ok(Written { steps, instead: Some(format!("as {}", names.join(", "))) })
            }
            Collective::AllGatherDims { .. } => {
                let (axes, parts) = self.parts(collective);
                one(Py::call("gather_dims", [value, axes, parts]))
            }
            Collective::ReduceScatterDims { kind: Reduction::Sum, .. } => {
                let (axes, parts) = self.parts(collective);
                one(Py::call("scatter_dims", [value, axes, parts]))
            }
            Collective::ReduceScatterDims { kind: Reduction::Max, .. } => {
                let (axes, parts) = self.parts(collective);
                instead(
                    Py::call("max_scatter_dims", [value, axes, parts]),
                    "as all-to-all and a maximum",
                )
            }
            Collective::ToPartial { kind, dim, axes } => {
                let rest = neutral(kind, self.dtype, self.floats);
                one(match dim {
                    None => Py::call("to_partial", [value, tuple(&axes), rest]),
                    Some(dim) => {
                        Py::call("split_to_partial", [value, tuple(&axes), Py::atom(dim), rest])
                    }
                })
            }
        }
    }

    /// The axes of a move along several dims, dim by dim, and into how many parts each dim is cut.
    fn parts(&self, collective: &Collective) -> (Py, Py) {
        let mesh = self.shape.mesh;
        let parts = collective.parts(self.from);
        let axes = parts.iter().flat_map(|(_, axes)| axes.iter());
        let cut = parts
            .iter()
            .map(|(dim, axes)| (dim.to_string(), Py::atom(mesh.group_size(axes.iter()))));
        (axes_tuple(mesh, axes), Py::Dict(cut.collect()))
    }

    fn permute(&self, to: Layout, value: Py) -> Result<Py, ExportError> {
        let mesh = self.shape.mesh;
        let changed: AxisList = Collective::Permute { to }.axes(mesh, self.from);
        let all: AxisList =
            mesh.axis_ids().filter(|a| !self.from.partial_axes().contains(*a)).collect();
        // Over the axes that change their places, unless those that keep theirs number blocks
        // differently after it.
        let axes = [changed, all].into_iter().find(|axes| self.arrives(axes, to));
        let axes = axes.ok_or(ExportError::Internal("no device holds the block that is wanted"))?;
        let dims = |layout: Layout| {
            let of_dim = |dim: usize| {
                layout.axes_of(dim).iter().filter(|a| axes.set().contains(*a)).collect::<Vec<_>>()
            };
            let split: Vec<Vec<AxisId>> = (0..self.shape.rank()).map(of_dim).collect();
            split
        };
        let (before, after) = (dims(self.from), dims(to));
        let split = |layout: &[Vec<AxisId>]| {
            let named = |axes: &Vec<AxisId>| {
                Py::Tuple(axes.iter().map(|a| Py::string(mesh.name(*a))).collect())
            };
            let kept = layout
                .iter()
                .enumerate()
                .filter(|(dim, _)| !(before[*dim].is_empty() && after[*dim].is_empty()));
            Py::Tuple(kept.map(|(_, axes)| named(axes)).collect())
        };
        let names = Py::Tuple(axes.iter().map(|a| Py::string(mesh.name(a))).collect());
        let pairs = Py::call("moved_blocks", [names])
            .with("before", split(&before))
            .with("after", split(&after));
        Ok(Py::call("lax.ppermute", [value, axes_tuple(mesh, axes.iter())]).with("perm", pairs))
    }

    /// Whether blocks that change places within groups over these axes (in mesh order) end where
    /// the layout wants them.
    fn arrives(&self, axes: &AxisList, to: Layout) -> bool {
        let mesh = self.shape.mesh;
        let block = |at: &[u64], layout: Layout| -> Vec<u64> {
            let number = |dim: usize| {
                layout.axes_of(dim).iter().fold(0, |n, a| n * mesh.size(a) + at[a.index()])
            };
            (0..self.shape.rank()).map(number).collect()
        };
        let within = |at: &[u64], layout: Layout| -> Vec<u64> {
            let own = |dim: usize| {
                let axes = layout
                    .axes_of(dim)
                    .iter()
                    .filter(|a| axes.set().contains(*a))
                    .collect::<Vec<_>>();
                axes.into_iter().fold(0, |n, a| n * mesh.size(a) + at[a.index()])
            };
            (0..self.shape.rank()).map(own).collect()
        };
        // What a device is given is what it wants, whichever sender of the group has a block of
        // that number.
        let outside: Vec<AxisId> = mesh.axis_ids().filter(|a| !axes.set().contains(*a)).collect();
        let all: Vec<Vec<u64>> = (0..mesh.devices()).map(|d| mesh.coordinates(d)).collect();
        let mut senders = std::collections::BTreeMap::new();
        for at in &all {
            let group: Vec<u64> = outside.iter().map(|a| at[a.index()]).collect();
            let held = senders
                .entry((group, within(at, self.from)))
                .or_insert_with(|| block(at, self.from));
            if *held != block(at, self.from) {
                return false;
            }
        }
        all.iter().all(|at| {
            let group: Vec<u64> = outside.iter().map(|a| at[a.index()]).collect();
            senders.get(&(group, within(at, to))) == Some(&block(at, to))
        })
    }
}
