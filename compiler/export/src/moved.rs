//! Moves as Python writes them: what JAX and PyTorch have in common.

use shard_ir::{AxisId, AxisList, Collective, DimSet, Layout, MeshShape, Reduction};

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::exchange::steps_of;
use crate::ops::numbers::neutral;
use crate::python::Py;
use crate::specs::axes_tuple;
use crate::words::Words;

/// A move that is to be written, with the layouts before and after it.
#[derive(Clone, Copy)]
pub(crate) struct PythonMove<'a> {
    pub(crate) shape: MeshShape<'a>,
    pub(crate) from: Layout,
    pub(crate) to: Layout,
    pub(crate) dtype: shard_ir::Dtype,
    pub(crate) floats: Floats,
}

/// The expressions of a move.
pub(crate) struct Written {
    /// The expressions in order; each but the first takes the value of the one before.
    pub(crate) steps: Vec<Py>,
    /// For the comment on the move: what the system does instead, where it has no such collective.
    pub(crate) instead: Option<String>,
}

impl PythonMove<'_> {
    /// The axes of a move along several dims, dim by dim, and a dictionary of the number of parts
    /// of each dim.
    pub(crate) fn parts(&self, collective: &Collective) -> (Py, Py) {
        let mesh = self.shape.mesh;
        let parts = collective.parts(self.from);
        let axes = parts.iter().flat_map(|(_, axes)| axes.iter());
        let cut = parts
            .iter()
            .map(|(dim, axes)| (dim.to_string(), Py::atom(mesh.group_size(axes.iter()))));
        (axes_tuple(mesh, axes), Py::Dict(cut.collect()))
    }

    /// The call that merges attentions over parts of the keys; `value` is a pair of a result and
    /// its statistics.
    pub(crate) fn softmax_merge(
        &self,
        value: Py,
        dim: Option<usize>,
        axes: AxisList,
        statistics: DimSet,
    ) -> Py {
        let call = Py::call("softmax_merge", [value, axes_tuple(self.shape.mesh, axes.iter())]);
        let call = call.with("by", Py::numbers(statistics.iter()));
        let call = match dim {
            Some(dim) => call.with("axis", Py::atom(dim)),
            None => call,
        };
        if self.to.softmax_axes().is_empty() { call } else { call.with("left", Py::atom("True")) }
    }

    /// The call that makes the value partial. Without `dim` one device of a group keeps the value,
    /// and the terms of all others change nothing; with `dim` the term of each device is its own
    /// block.
    pub(crate) fn as_terms(
        &self,
        words: &dyn Words,
        value: Py,
        kind: Reduction,
        dim: Option<usize>,
        axes: AxisList,
    ) -> Py {
        let rest = neutral(words, kind, self.dtype, self.floats);
        let axes = axes_tuple(self.shape.mesh, axes.iter());
        match dim {
            None => Py::call("to_partial", [value, axes, rest]),
            Some(dim) => Py::call("split_to_partial", [value, axes, Py::atom(dim), rest]),
        }
    }

    /// An exchange, written as a chain of other moves.
    pub(crate) fn exchange(
        &self,
        words: &dyn Words,
        to: Layout,
        value: &Py,
        between: &Py,
    ) -> Result<Written, ExportError> {
        let chain = steps_of(self.shape, self.from, to)?;
        let mut steps = Vec::new();
        let (mut from, mut value) = (self.from, value.clone());
        for (step, after) in &chain {
            let moved = PythonMove { from, to: *after, ..*self };
            steps.extend(words.moved(&moved, step, &value, between)?.steps);
            (from, value) = (*after, between.clone());
        }
        let names: Vec<&str> = chain.iter().map(|(step, _)| step.name()).collect();
        Ok(Written { steps, instead: Some(format!("as {}", names.join(", "))) })
    }

    /// The axes over which a permute runs, in the order of the mesh: the axes that change their
    /// places where a permute within their groups gives every device its block, else all axes that
    /// are not partial.
    pub(crate) fn permuted(&self, to: Layout) -> Result<AxisList, ExportError> {
        let mesh = self.shape.mesh;
        let changed: AxisList = Collective::Permute { to }.axes(mesh, self.from);
        let all: AxisList =
            mesh.axis_ids().filter(|a| !self.from.partial_axes().contains(*a)).collect();
        let axes = [changed, all].into_iter().find(|axes| self.arrives(axes, to));
        axes.ok_or(ExportError::Internal("no device holds the block that is wanted"))
    }

    /// The axes of a permute, and the call of the helper that lists which device sends to which.
    pub(crate) fn permute(&self, to: Layout) -> Result<(Py, Py), ExportError> {
        let mesh = self.shape.mesh;
        let axes = self.permuted(to)?;
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
        Ok((axes_tuple(mesh, axes.iter()), pairs))
    }

    /// Whether a permute within the groups over these axes, in the order of the mesh, gives every
    /// device the block that the layout `to` wants there.
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
        // Senders of one group whose blocks have one number within the group must hold the same
        // block: the permute may take the block from any of them.
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
