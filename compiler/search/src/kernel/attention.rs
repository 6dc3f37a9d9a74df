//! Attentions as kernels: their ops, with or without the concats of their keys and values, and the
//! layouts that they read and make.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::attention::{
    Ops, attention_of, joined_layout, keys_in_any_order, may_split_keys, read_for, softmax_over,
    statistics_of, with_joined,
};
use shard_ir::{AxisList, Def, DimId, Layout, Op, ValueId};

use super::{Has, Kernel, Kernels};

impl Kernels {
    /// Enters the attention that ends with a value, if one does, and returns the kernels that it
    /// may be: the one without the concats of its keys and values comes first.
    pub(super) fn enter_attention(&mut self, id: ValueId) -> Vec<Kernel> {
        let Some(members) = attention_of(&Values(self), id).map(Arc::new) else {
            return Vec::new();
        };
        for member in members.iter() {
            self.attention[member.index()] = Some(Arc::clone(&members));
        }
        let program = Arc::clone(&self.program);
        // Axes do not split the keys in a strict layer, where no merge could be written.
        self.statistics[id.index()] =
            self.keys(id).filter(|_| self.in_pieces).and_then(|(keys, softmax)| {
                let softmax = program.value(softmax);
                let by = statistics_of(&program.value(id).dims, &softmax.dims, keys);
                let Def::Op { op, .. } = &softmax.def else { return None };
                may_split_keys(op, softmax.dtype).then_some(by)
            });
        let mut all = vec![self.of_attention(&members)];
        if let Some(joined) = with_joined(&Values(self), &members).map(Arc::new) {
            all.push(self.of_attention(&joined));
            // Axes do not split the parts of a joined value that is pinned: the pin says which
            // block of the whole value each device has.
            let is_pinned = |of: &ValueId| !members.contains(of) && self.is_pinned(*of);
            let splits = self.statistics[id.index()].is_some()
                && keys_in_any_order(&Values(self), &joined)
                && !joined.iter().any(is_pinned);
            for member in joined.iter() {
                self.joined[member.index()] = Some((Arc::clone(&joined), splits));
            }
        }
        all
    }

    /// The kernel of an attention.
    fn of_attention(&self, members: &[ValueId]) -> Kernel {
        let mut kernel = Kernel {
            chain: members.to_vec(),
            attention: members.len(),
            pins: vec![Vec::new(); members.len().saturating_sub(1)],
            operands: Vec::new(),
        };
        for id in members {
            for operand in self.program.value(*id).def.operands() {
                let (origin, pins) = self.origin(*operand);
                match members.iter().position(|member| *member == origin) {
                    Some(link) => {
                        kernel.pins[link].extend(pins);
                        kernel.pins[link].sort_unstable();
                        kernel.pins[link].dedup();
                    }
                    None => kernel.operands.push(*operand),
                }
            }
        }
        kernel
    }

    /// The ops of the attention that an op is part of, first to last.
    pub(crate) fn attention(&self, id: ValueId) -> Option<&[ValueId]> {
        self.attention[id.index()].as_deref().map(Vec::as_slice)
    }

    /// The ops of the attention that an op is part of with the concats of its keys and values,
    /// first to last; `None` where there are none, or the concats are not part of it.
    pub(crate) fn joined(&self, id: ValueId) -> Option<&[ValueId]> {
        self.joined[id.index()].as_ref().map(|(members, _)| members.as_slice())
    }

    /// Whether axes may split each part of the joined keys of [`Kernels::joined`].
    pub(crate) fn may_split_joined(&self, id: ValueId) -> bool {
        self.joined[id.index()].as_ref().is_some_and(|(_, splits)| *splits)
    }

    fn is_pinned(&self, id: ValueId) -> bool {
        self.program.values.iter().any(|value| match &value.def {
            Def::Pin { operand, .. } => *operand == id,
            Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) => false,
        })
    }

    /// Whether a concat makes a layout in which the joined dim is split. It can do so only as part
    /// of an attention, where each part of what it joins is split.
    pub(crate) fn joins_parts(&self, id: ValueId, made: Layout) -> bool {
        let value = self.program.value(id);
        let Def::Op { op: Op::Concat { to, .. }, .. } = &value.def else { return false };
        let at = value.dims.iter().position(|dim| dim == to);
        at.is_some_and(|at| !made.axes_of(at).is_empty())
    }

    /// Whether a value ends an attention whose keys axes may split.
    pub(crate) fn may_split_keys_of(&self, id: ValueId) -> bool {
        self.statistics[id.index()].is_some()
    }

    /// The keys of the attention that an op is part of.
    pub(crate) fn keys_of(&self, id: ValueId) -> Option<DimId> {
        self.keys(id).map(|(keys, _)| keys)
    }

    /// The keys of the attention that an op is part of, and its softmax.
    fn keys(&self, id: ValueId) -> Option<(DimId, ValueId)> {
        let over = |member: &ValueId| softmax_over(self.program.value(*member).def.op()?);
        self.attention(id)?.iter().find_map(|member| Some((over(member)?, *member)))
    }

    /// The operand of the op that ends an attention which has the keys, and the place of the keys
    /// among its dims.
    pub(crate) fn keys_read_by(&self, product: ValueId) -> Option<(usize, usize)> {
        let (key, _) = self.keys(product)?;
        self.site(product).operands.iter().enumerate().find_map(|(place, (dims, _))| {
            dims.iter().position(|dim| *dim == key).map(|at| (place, at))
        })
    }

    /// The layouts in which a member of an attention reads its operands where it makes the layout
    /// `made`; `None` where the attention does not make its value in that layout. Only the op that
    /// ends the attention makes a partial value, over the axes `keys` that split the keys, in this
    /// order.
    pub(crate) fn read_in_attention(
        &self,
        id: ValueId,
        made: Layout,
        keys: AxisList,
    ) -> Option<Vec<Layout>> {
        let program = self.program.as_ref();
        let (site, dims) = (self.site(id), &program.value(id).dims);
        let ends = self.may_split_keys_of(id);
        if made.partial_axes() != made.softmax_axes()
            || made.softmax_axes() != keys.set()
            || !(ends || keys.is_empty())
        {
            return None;
        }
        // The dims of the operands that the result does not have, and the axes that split them.
        let (mut split, mut axes) = (self.keys_of(id).into_iter().collect::<Vec<_>>(), keys);
        if self.joins_parts(id, made)
            && let Op::Concat { left, right, to } = site.op
        {
            split = vec![*left, *right];
            axes = made.axes_of(dims.iter().position(|dim| dim == to)?);
        }
        let reads = |operand: &[DimId]| {
            let read = read_for(made, dims, operand);
            let at = operand.iter().position(|dim| split.contains(dim));
            at.filter(|_| !axes.is_empty()).map_or(read, |at| read.with_dim(at, axes))
        };
        let read: Vec<Layout> = site.operands.iter().map(|(operand, _)| reads(operand)).collect();
        let result = self.result_in_attention(id, &read)?;
        let result = if ends { result.sums_as_softmax() } else { result };
        (result == made).then_some(read)
    }

    /// The layout that a member of an attention makes of operands in these layouts. It is that of
    /// the op alone, except that a concat may join parts that are split.
    pub(super) fn result_in_attention(&self, id: ValueId, operands: &[Layout]) -> Option<Layout> {
        let site = self.site(id);
        let Op::Concat { left, right, to } = site.op else { return site.result_layout(operands) };
        let operands = site.operands_in(operands);
        let (result, mesh, dims) = (site.result, site.mesh, site.dims);
        joined_layout(*left, *right, *to, &operands, result, mesh, dims).ok()
    }

    /// The layouts that the kernel of an attention of these ops reads, where it makes its value in
    /// the layout `made` and the axes `keys` split the keys, in this order. With axes in `ring`,
    /// keys and values travel over them. `None` where an op has no strategy for it.
    pub(crate) fn attention_reads(
        &self,
        members: &[ValueId],
        made: Layout,
        keys: AxisList,
        ring: AxisList,
        has: Has<'_>,
        passes: &dyn Fn(ValueId, Layout) -> bool,
    ) -> Option<Vec<Layout>> {
        let product = *members.last()?;
        let mut layouts: BTreeMap<ValueId, Layout> = BTreeMap::from([(product, made)]);
        let mut reads: BTreeMap<ValueId, Vec<Layout>> = BTreeMap::new();
        // Readers come before what they read.
        for id in members.iter().rev() {
            let split = if *id == product { keys } else { AxisList::EMPTY };
            let read = self.read_in_attention(*id, *layouts.get(id)?, split)?;
            let (fused, read) = self.in_ring(*id, &read, ring)?;
            if !self.joins_parts(*id, layouts[id]) && !has(*id, layouts[id], fused, &read) {
                return None;
            }
            for (operand, layout) in self.program.value(*id).def.operands().iter().zip(read) {
                let (origin, pins) = self.origin(*operand);
                if !members.contains(&origin) {
                    reads.entry(*id).or_default().push(layout);
                    continue;
                }
                if !pins.iter().all(|pin| passes(*pin, layout))
                    || *layouts.entry(origin).or_insert(layout) != layout
                {
                    return None;
                }
            }
        }
        Some(members.iter().flat_map(|id| reads.remove(id).unwrap_or_default()).collect())
    }
}

/// The ops of a program, with pins passed over.
struct Values<'a>(&'a Kernels);

impl<'a> Ops<'a> for Values<'a> {
    type Id = ValueId;

    fn op(&self, id: ValueId) -> Option<&'a Op> {
        self.0.program.value(id).def.op()
    }

    fn operands(&self, id: ValueId) -> Vec<ValueId> {
        let operands = self.0.program.value(id).def.operands();
        operands.iter().map(|operand| self.0.program.unpinned(*operand)).collect()
    }

    fn dims(&self, id: ValueId) -> &'a [DimId] {
        &self.0.program.value(id).dims
    }

    fn passes_to_all(&self, from: ValueId, to: &[ValueId]) -> bool {
        let Values(kernels) = self;
        let program = &kernels.program;
        let read = to.iter().flat_map(|to| program.value(*to).def.operands());
        let read: Vec<ValueId> = read.copied().collect();
        let (places, pins) = kernels.ways_from(from, &read);
        let uses: usize = pins.iter().chain([&from]).map(|v| kernels.uses[v.index()]).sum();
        let fold = program.value(from).fold;
        to.iter().all(|to| program.value(*to).fold == fold) && uses == places.len() + pins.len()
    }

    fn may_join(&self, _: ValueId) -> bool {
        true
    }
}
