//! Each move as ops of StableHLO on the block of one device.

use shard_ir::{AxisList, Collective, Layout, MeshShape, Reduction};

use super::builder::{Builder, Value, tensor};
use super::ranks::{rank, table};
use crate::devices::{groups, permute_pairs};
use crate::error::ExportError;
use crate::exchange::steps_of;

/// A move that is to be written, with the layouts before and after it.
#[derive(Clone, Copy)]
pub(crate) struct HloMove<'a> {
    pub(crate) shape: MeshShape<'a>,
    pub(crate) from: Layout,
    pub(crate) to: Layout,
}

impl HloMove<'_> {
    /// For the comment on a move: what is done instead, where StableHLO has no such collective.
    pub(crate) fn instead(&self, collective: &Collective) -> Result<Option<String>, ExportError> {
        if let Collective::Exchange { to } = *collective {
            let chain = steps_of(self.shape, self.from, to)?;
            let names: Vec<&str> = chain.iter().map(|(step, _)| step.name()).collect();
            return Ok(Some(format!("as {}", names.join(", "))));
        }
        let is_merge = matches!(collective, Collective::SoftmaxMerge { .. });
        Ok(is_merge.then(|| "as a maximum of the statistics, and sums".to_string()))
    }

    /// The value after a move.
    pub(crate) fn write(
        &self,
        b: &mut Builder,
        collective: &Collective,
        value: &Value,
    ) -> Result<Value, ExportError> {
        let mesh = self.shape.mesh;
        Ok(match *collective {
            Collective::AllGather { dim, axes } => self.all_gather(b, value, dim, &axes),
            Collective::Slice { dim, axes } => {
                let size = self.shape.local_sizes(self.to)[dim];
                let rank = rank(b, mesh, &axes);
                let start = b.with_number("multiply", &rank, size as f64);
                b.dynamic_slice(value, dim, &start, size)
            }
            Collective::ReduceScatter { kind, dim, axes } => {
                self.reduce_scatter(b, value, kind, dim, &axes)
            }
            Collective::AllReduce { kind, axes } => {
                self.all_reduce(b, value, kind, &axes.iter().collect())
            }
            Collective::AllToAll { from_dim, to_dim, axes } => {
                let k = mesh.group_size(axes.iter());
                let mut shape = value.shape.clone();
                shape[from_dim] *= k;
                shape[to_dim] /= k;
                let attributes = format!(
                    "<{{{}, concat_dimension = {from_dim} : i64, replica_groups = {}, \
                     split_count = {k} : i64, split_dimension = {to_dim} : i64}}>",
                    b.channel(),
                    table(&groups(mesh, &axes)),
                );
                called(b, "all_to_all", &attributes, value, shape)
            }
            Collective::Permute { to } => {
                permuted(b, value, &permute_pairs(self.shape, self.from, to)?)
            }
            Collective::Exchange { to } => {
                let (mut from, mut value) = (self.from, value.clone());
                for (step, after) in steps_of(self.shape, self.from, to)? {
                    value = HloMove { from, to: after, ..*self }.write(b, &step, &value)?;
                    from = after;
                }
                value
            }
            Collective::AllGatherDims { .. } => self.gather_dims(b, collective, value),
            Collective::ReduceScatterDims { kind, .. } => {
                self.scatter_dims(b, collective, kind, value)
            }
            Collective::SoftmaxMerge { .. } => {
                return Err(ExportError::Internal("a merge of a value without statistics"));
            }
            Collective::ToPartial { kind, dim, axes } => self.partial(b, value, kind, dim, &axes),
        })
    }

    pub(super) fn all_reduce(
        &self,
        b: &mut Builder,
        value: &Value,
        kind: Reduction,
        axes: &AxisList,
    ) -> Value {
        let groups = table(&groups(self.shape.mesh, axes));
        let (channel, combiner) = (b.channel(), b.combiner(kind, value.element));
        let attributes =
            format!("<{{{channel}, replica_groups = {groups}, use_global_device_ids}}> {combiner}");
        called(b, "all_reduce", &attributes, value, value.shape.clone())
    }

    fn all_gather(&self, b: &mut Builder, value: &Value, dim: usize, axes: &AxisList) -> Value {
        let mesh = self.shape.mesh;
        let mut shape = value.shape.clone();
        shape[dim] *= mesh.group_size(axes.iter());
        let attributes = format!(
            "<{{all_gather_dim = {dim} : i64, {}, replica_groups = {}, use_global_device_ids}}>",
            b.channel(),
            table(&groups(mesh, axes)),
        );
        called(b, "all_gather", &attributes, value, shape)
    }

    pub(super) fn reduce_scatter(
        &self,
        b: &mut Builder,
        value: &Value,
        kind: Reduction,
        dim: usize,
        axes: &AxisList,
    ) -> Value {
        let mesh = self.shape.mesh;
        let mut shape = value.shape.clone();
        shape[dim] /= mesh.group_size(axes.iter());
        let (channel, combiner) = (b.channel(), b.combiner(kind, value.element));
        let attributes = format!(
            "<{{{channel}, replica_groups = {}, scatter_dimension = {dim} : i64, \
             use_global_device_ids}}> {combiner}",
            table(&groups(mesh, axes)),
        );
        called(b, "reduce_scatter", &attributes, value, shape)
    }

    /// The axes of a move along several dims, dim by dim, and for each dim its number of parts.
    fn parts(&self, collective: &Collective) -> (AxisList, Vec<(usize, u64)>) {
        let parts = collective.parts(self.from);
        let axes = parts.iter().flat_map(|(_, axes)| axes.iter()).collect();
        let count = |axes: &AxisList| self.shape.mesh.group_size(axes.iter());
        (axes, parts.iter().map(|(dim, axes)| (*dim, count(axes))).collect())
    }

    /// A gather along several dims: all blocks are gathered along a new dim, and each is moved to
    /// its place.
    fn gather_dims(&self, b: &mut Builder, collective: &Collective, value: &Value) -> Value {
        let (axes, parts) = self.parts(collective);
        let in_front: Vec<u64> = std::iter::once(1).chain(value.shape.iter().copied()).collect();
        let opened = b.reshape(value, &in_front);
        let blocks = self.all_gather(b, &opened, 0, &axes);
        let counts = parts.iter().map(|(_, count)| *count);
        let cut: Vec<u64> = counts.chain(value.shape.iter().copied()).collect();
        let blocks = b.reshape(&blocks, &cut);
        let (mut order, mut shape) = (Vec::new(), value.shape.clone());
        for dim in 0..value.shape.len() {
            if let Some(part) = parts.iter().position(|(of, _)| *of == dim) {
                order.push(part);
                shape[dim] *= parts[part].1;
            }
            order.push(parts.len() + dim);
        }
        let blocks = b.transpose(&blocks, &order);
        b.reshape(&blocks, &shape)
    }

    /// A reduce-scatter along several dims: every dim is cut in parts, the parts are put along a
    /// new dim in front, and that dim is scattered.
    fn scatter_dims(
        &self,
        b: &mut Builder,
        collective: &Collective,
        kind: Reduction,
        value: &Value,
    ) -> Value {
        let (axes, parts) = self.parts(collective);
        let (mut cut, mut rest) = (Vec::new(), Vec::new());
        let mut front = vec![0; parts.len()];
        let mut local = value.shape.clone();
        for (dim, size) in local.iter_mut().enumerate() {
            if let Some(part) = parts.iter().position(|(of, _)| *of == dim) {
                front[part] = cut.len();
                cut.push(parts[part].1);
                *size /= parts[part].1;
            }
            rest.push(cut.len());
            cut.push(*size);
        }
        let blocks = b.reshape(value, &cut);
        let order: Vec<usize> = front.into_iter().chain(rest).collect();
        let blocks = b.transpose(&blocks, &order);
        let count = parts.iter().map(|(_, count)| count).product();
        let shape: Vec<u64> = std::iter::once(count).chain(local.iter().copied()).collect();
        let blocks = b.reshape(&blocks, &shape);
        let scattered = self.reduce_scatter(b, &blocks, kind, 0, &axes);
        b.reshape(&scattered, &local)
    }

    /// The value as a partial one. Without `dim` the first device of a group keeps the value and
    /// all others hold the neutral number; with `dim` each device puts its block in its place and
    /// has the neutral number everywhere else.
    fn partial(
        &self,
        b: &mut Builder,
        value: &Value,
        kind: Reduction,
        dim: Option<usize>,
        axes: &AxisList,
    ) -> Value {
        let mesh = self.shape.mesh;
        let neutral = value.element.neutral(kind);
        let rank = rank(b, mesh, axes);
        match dim {
            None => {
                let begins = b.compare_number("EQ", &rank, 0.0);
                let rest = b.splat(neutral, &value.shape, value.element);
                b.select(&begins, value, &rest)
            }
            Some(dim) => {
                let start = b.with_number("multiply", &rank, value.shape[dim] as f64);
                let mut shape = value.shape.clone();
                shape[dim] *= mesh.group_size(axes.iter());
                let rest = b.splat(neutral, &shape, value.element);
                b.update(&rest, value, dim, &start)
            }
        }
    }
}

/// A permute of blocks; each pair is the device that sends and the device that receives.
pub(crate) fn permuted(b: &mut Builder, value: &Value, pairs: &[[u64; 2]]) -> Value {
    let attributes = format!("<{{{}, source_target_pairs = {}}}>", b.channel(), table(pairs));
    called(b, "collective_permute", &attributes, value, value.shape.clone())
}

/// Writes the collective of this name on a value; `shape` is the shape of its result.
fn called(b: &mut Builder, name: &str, attributes: &str, value: &Value, shape: Vec<u64>) -> Value {
    let (ty, after) = (value.ty(), tensor(&shape, value.element));
    let text = format!("\"stablehlo.{name}\"({}) {attributes} : ({ty}) -> {after}", value.name);
    b.op(shape, value.element, &text)
}
