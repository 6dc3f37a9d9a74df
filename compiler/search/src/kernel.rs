//! Kernels: which ops of a program may run as one, since an elementwise op joins the kernel of its
//! only producer, and an attention is one kernel where the chip has one.

mod attention;

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_cost::{Hardware, begins_a_kernel, fuses_with, may_lead_a_kernel, place_in_chain};
use shard_ir::attention::carried;
use shard_ir::composite::composite_dim;
use shard_ir::{
    AxisList, Def, DimId, DimSet, Fused, Layout, LoopLayouts, Op, Program, ValueId, never,
};

use crate::logical::{Form, Rewritten};
use crate::rules::strategies::{OpProfile, OpSite};

/// A chain of ops that runs as one kernel. The last op makes the value of the kernel. Each other op
/// feeds one later op alone, which is the next one unless an attention adds scores up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kernel {
    /// The values made, producers first; the last is the value of the kernel.
    pub(crate) chain: Vec<ValueId>,
    /// How many ops at the front of the chain are an attention; 0 where there is none.
    pub(crate) attention: usize,
    /// For each op of the chain but the last, the pins between its value and the op that reads it.
    pub(crate) pins: Vec<Vec<ValueId>>,
    /// What the kernel reads: first the operands of the first op, then for each later op its
    /// operands but the one that the chain feeds.
    pub(crate) operands: Vec<ValueId>,
}

/// A program with what the search has to know of it: its kernels, and what ops may do.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) program: Arc<Program>,
    /// The values that are not computed as the source says.
    pub(crate) made: BTreeMap<ValueId, Rewritten>,
    /// Whether a result depends on the value.
    pub(crate) live: Vec<bool>,
    /// In how many operand places of live values, and as how many results, a value is used.
    pub(crate) uses: Vec<usize>,
    /// The kernels that make each value: itself alone first, then with one more producer at a time.
    pub(crate) of: Vec<Vec<Kernel>>,
    /// For each op, its place in its chain of ops ([`place_in_chain`]).
    places: Vec<usize>,
    profiles: Vec<Option<OpProfile>>,
    /// For each op that is part of an attention, the ops of the attention, first to last. An
    /// attention that runs as one kernel has no scores in memory.
    attention: Vec<Option<Arc<Vec<ValueId>>>>,
    /// For each op that is part of an attention with the concats that join its keys or values, the
    /// ops of that, first to last; and whether axes may split each part of what is joined.
    joined: Vec<Option<(Arc<Vec<ValueId>>, bool)>>,
    /// For each value that ends an attention whose keys axes may split, the dims of its statistics.
    statistics: Vec<Option<DimSet>>,
    /// For each op that may act on the attention over a part of the keys, the place of that
    /// operand, and the dims of the statistics of its result.
    carried: Vec<Option<(usize, DimSet)>>,
    /// Whether einsums may do a collective in their loops.
    pub(crate) loops: bool,
    /// Whether composites over a split dim are computed in pieces.
    pub(crate) in_pieces: bool,
}

/// A way of making a value: the number of its kernel, the collective in the loop of the einsum that
/// leads the kernel, and the layout of each value that the kernel reads. Where the einsum leads an
/// attention and has a collective, the kernel is a ring: every other einsum of the attention
/// gathers its operand with the keys over the same axes.
pub(crate) type KernelStrategy = (usize, Option<Fused>, Vec<Layout>);

/// Whether an op has a strategy: called with its value, the layout that it makes, the collective in
/// its loop, and the layouts that it reads.
pub(crate) type Has<'a> = &'a dyn Fn(ValueId, Layout, Option<Fused>, &[Layout]) -> bool;

/// The layouts of an op of a kernel.
pub(crate) struct Link {
    /// The collective in its loop.
    pub(crate) fused: Option<Fused>,
    /// The layouts in which it is given its operands.
    pub(crate) given: Vec<Layout>,
    /// The layouts of its operands inside the loop; without a loop, the same.
    pub(crate) inside: Vec<Layout>,
    /// The layout that it makes of the operands inside the loop.
    pub(crate) made: Layout,
}

impl Kernels {
    /// The kernels of a form. In a `strict` layer no composite is computed in pieces, and no einsum
    /// does a collective in its loop, since the moves in these cannot be written.
    pub(crate) fn of_form(form: Form, strict: bool, loops: bool, hardware: &Hardware) -> Kernels {
        Kernels { made: form.made, ..Kernels::of_program(form.program, strict, loops, hardware) }
    }

    /// The kernels of a program as it is.
    pub(crate) fn of_program(
        program: Program,
        strict: bool,
        loops: bool,
        hardware: &Hardware,
    ) -> Kernels {
        let program = Arc::new(program);
        let count = program.values.len();
        let (live, uses) = used(&program);
        let mut kernels = Kernels {
            program: Arc::clone(&program),
            made: BTreeMap::new(),
            live,
            uses,
            of: vec![Vec::new(); count],
            places: vec![0; count],
            profiles: vec![None; count],
            attention: vec![None; count],
            joined: vec![None; count],
            statistics: vec![None; count],
            carried: vec![None; count],
            loops: false,
            in_pieces: !strict,
        };
        for id in program.value_ids() {
            if let Def::Op { op, operands } = &program.value(id).def {
                let makers = kernels.makers(operands);
                kernels.places[id.index()] =
                    place_in_chain(op, makers, |maker| kernels.places[maker.index()]);
                kernels.profiles[id.index()] = Some(kernels.site(id).profile());
                let alone = Kernel {
                    chain: vec![id],
                    attention: 0,
                    pins: Vec::new(),
                    operands: operands.clone(),
                };
                let mut all = vec![alone];
                if hardware.has_attention() && kernels.live[id.index()] {
                    all.extend(kernels.enter_attention(id));
                }
                kernels.carry(id, op, operands);
                all.extend(kernels.joining(id, operands));
                kernels.of[id.index()] = all;
            }
        }
        Kernels { loops: loops && !strict, ..kernels }
    }

    /// The kernels that an elementwise op makes by joining those of its producer.
    fn joining(&self, id: ValueId, operands: &[ValueId]) -> Vec<Kernel> {
        let Some((places, producer, pins)) = self.fusible_operand(id) else { return Vec::new() };
        let others = operands.iter().enumerate().filter(|(i, _)| !places.contains(i));
        let others: Vec<ValueId> = others.map(|(_, o)| *o).collect();
        let joined = |inner: &Kernel| Kernel {
            chain: [&inner.chain[..], &[id]].concat(),
            attention: inner.attention,
            pins: [&inner.pins[..], std::slice::from_ref(&pins)].concat(),
            operands: [&inner.operands[..], &others].concat(),
        };
        self.of[producer.index()].iter().map(joined).collect()
    }

    /// Enters whether an op may act on the attention over a part of the keys, as the first operand
    /// for which it may. An op that ends an attention does not: its result is a part by its own
    /// keys.
    fn carry(&mut self, id: ValueId, op: &Op, operands: &[ValueId]) {
        if self.statistics[id.index()].is_some() {
            return;
        }
        let program = Arc::clone(&self.program);
        let value = program.value(id);
        let acts_on = |(place, operand): (usize, &ValueId)| {
            let dims = &program.value(*operand).dims;
            let by: Vec<DimId> = self.statistics(*operand)?.iter().map(|at| dims[at]).collect();
            let left = carried(op, place, &by, &value.dims, value.dtype)?;
            let at = (0..value.dims.len()).filter(|at| left.contains(&value.dims[*at]));
            Some((place, at.collect()))
        };
        let found: Option<(usize, DimSet)> = operands.iter().enumerate().find_map(acts_on);
        self.carried[id.index()] = found;
        if let Some(profile) = &mut self.profiles[id.index()] {
            profile.carries = found.map(|(place, _)| place);
        }
    }

    /// The places of the dims of the statistics in a value that may be the attention over a part of
    /// the keys, since it ends an attention whose keys axes may split, or is made of such a value.
    /// `None` for other values.
    pub(crate) fn statistics(&self, id: ValueId) -> Option<DimSet> {
        self.statistics[id.index()].or(self.carried[id.index()].map(|(_, by)| by))
    }

    /// The place of the operand of an op that may be the attention over a part of the keys.
    pub(crate) fn carries(&self, id: ValueId) -> Option<usize> {
        self.carried[id.index()].map(|(place, _)| place)
    }

    /// The layout that an op of a kernel makes of operands in these layouts. The value of the
    /// kernel is split as in `wanted` along a dim that no operand has.
    fn made_in(
        &self,
        kernel: &Kernel,
        link: usize,
        operands: &[Layout],
        wanted: Layout,
    ) -> Option<Layout> {
        let id = kernel.chain[link];
        let ends = link + 1 == kernel.chain.len();
        let wanted = if ends { wanted } else { Layout::REPLICATED };
        let made = if link < kernel.attention {
            self.result_in_attention(id, operands)?
        } else {
            self.site(id).result_layout_as(operands, wanted)?
        };
        Some(if link + 1 == kernel.attention { made.sums_as_softmax() } else { made })
    }

    /// Whether an op of a kernel is computed in pieces: a composite on its own is, and a softmax of
    /// an attention is not.
    pub(crate) fn is_in_pieces(&self, kernel: &Kernel, link: usize, operands: &[Layout]) -> bool {
        link >= kernel.attention && self.site(kernel.chain[link]).is_in_pieces(operands)
    }

    /// The op that makes a value, with the types around it. The value must be the result of an op.
    pub(crate) fn site(&self, id: ValueId) -> OpSite<'_> {
        let value = self.program.value(id);
        let (op, operands) = match &value.def {
            Def::Op { op, operands } => (op, operands.as_slice()),
            Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => {
                never!("a site of a value that no op makes", (&Op::Einsum, &[][..]))
            }
        };
        OpSite {
            op,
            operands: operands
                .iter()
                .map(|o| (self.program.value(*o).dims.as_slice(), self.program.value(*o).dtype))
                .collect(),
            result: &value.dims,
            mesh: &self.program.mesh,
            dims: &self.program.dims,
            in_pieces: self.in_pieces,
        }
    }

    /// Whether other ops may join the kernel of a value that is made in a layout. They may join a
    /// composite only where it is computed in pieces, which end with an elementwise op. For values
    /// that no composite makes the layout does not matter.
    pub(crate) fn may_be_joined(&self, id: ValueId, layout: Layout) -> bool {
        let value = self.program.value(id);
        let Def::Op { op, .. } = &value.def else { return true };
        let Some(over) = composite_dim(op) else { return true };
        value.dims.iter().position(|d| *d == over).is_some_and(|at| !layout.axes_of(at).is_empty())
    }

    /// The operand through which an elementwise op may join a kernel: its places among the
    /// operands, the value whose kernel is joined, and the pins between.
    ///
    /// That value is the only producer of the op: every other operand is a parameter or a constant,
    /// moved or not. Nothing else reads the value.
    pub(crate) fn fusible_operand(
        &self,
        id: ValueId,
    ) -> Option<(Vec<usize>, ValueId, Vec<ValueId>)> {
        let Def::Op { op, operands } = &self.program.value(id).def else { return None };
        if begins_a_kernel(self.places[id.index()]) {
            return None;
        }
        // A value that reaches the op both through a pin and without it is one producer.
        let producer = fuses_with(op, self.makers(operands), |producer| {
            let Def::Op { op: producing, .. } = &self.program.value(producer).def else {
                return false;
            };
            let (places, pins) = self.ways_from(producer, operands);
            let uses: usize = pins.iter().chain([&producer]).map(|v| self.uses[v.index()]).sum();
            // In pieces a composite ends with an elementwise op.
            let leads =
                may_lead_a_kernel(producing) || self.site(producer).dim_in_pieces().is_some();
            let same_block = self.program.value(producer).fold == self.program.value(id).fold;
            leads && same_block && uses == places.len() + pins.len()
        })?;
        let (places, pins) = self.ways_from(producer, operands);
        Some((places, producer, pins))
    }

    /// The ops that make some operands, behind pins.
    fn makers(&self, operands: &[ValueId]) -> impl Iterator<Item = ValueId> {
        let origins = operands.iter().map(|o| self.origin_of(*o));
        origins.filter(|v| matches!(self.program.value(*v).def, Def::Op { .. }))
    }

    /// The places of some operands that a value reaches, and the pins on the ways there.
    fn ways_from(&self, producer: ValueId, operands: &[ValueId]) -> (Vec<usize>, Vec<ValueId>) {
        let places: Vec<usize> =
            (0..operands.len()).filter(|i| self.origin(operands[*i]).0 == producer).collect();
        let mut pins: Vec<ValueId> =
            places.iter().flat_map(|i| self.origin(operands[*i]).1).collect();
        pins.sort_unstable();
        pins.dedup();
        (places, pins)
    }

    /// The [`OpSite::profile`] of the op that makes a value.
    pub(crate) fn profile(&self, id: ValueId) -> Option<&OpProfile> {
        self.profiles[id.index()].as_ref()
    }

    /// The value behind pins.
    pub(crate) fn origin_of(&self, id: ValueId) -> ValueId {
        self.program.unpinned(id)
    }

    /// The value behind pins, and the pins, nearest to it first.
    fn origin(&self, mut id: ValueId) -> (ValueId, Vec<ValueId>) {
        let mut pins = Vec::new();
        while let Def::Pin { operand, .. } = &self.program.value(id).def {
            pins.push(id);
            id = *operand;
        }
        pins.reverse();
        (id, pins)
    }

    /// Whether an operand of the op at `link` of a chain is what an op before it makes.
    pub(crate) fn is_fed(&self, kernel: &Kernel, link: usize, operand: ValueId) -> bool {
        kernel.chain[..link].contains(&self.origin(operand).0)
    }

    /// Whether a value is made by an einsum that may do a collective in its loop.
    pub(crate) fn may_loop(&self, id: ValueId) -> bool {
        self.loops && matches!(self.program.value(id).def, Def::Op { op: Op::Einsum, .. })
    }

    /// The layouts inside the loop of an einsum that is given its operands in these.
    pub(crate) fn loop_layouts(
        &self,
        id: ValueId,
        fused: &Fused,
        given: &[Layout],
    ) -> Option<LoopLayouts> {
        let site = self.site(id);
        let operands = site.operands_in(given);
        fused.layouts(&operands, site.result, site.mesh, site.dims).ok()
    }

    /// The layouts of every op of a kernel, in chain order, given the layouts that the kernel
    /// reads, the one in which it is to make its value, and the collective in the loop of the first
    /// op. `None` where they do not fit together.
    pub(crate) fn links(
        &self,
        kernel: &Kernel,
        fused: Option<&Fused>,
        read: &[Layout],
        wanted: Layout,
    ) -> Option<Vec<Link>> {
        let mut rest = read.iter().copied();
        let mut all: Vec<Link> = Vec::new();
        for (i, id) in kernel.chain.iter().enumerate() {
            let operands = self.program.value(*id).def.operands();
            let mut given = Vec::with_capacity(operands.len());
            for operand in operands {
                let origin = self.origin(*operand).0;
                given.push(match kernel.chain[..i].iter().position(|op| *op == origin) {
                    Some(link) => all[link].made,
                    None => rest.next()?,
                });
            }
            let fused = match fused {
                Some(fused) if i < kernel.attention => {
                    let of = |(operand, dim)| Fused::AllGather { operand, dim, axes: fused.axes() };
                    self.travels(*id).map(of)
                }
                Some(fused) if i == 0 => Some(*fused),
                _ => None,
            };
            let inside = match &fused {
                Some(fused) => self.loop_layouts(*id, fused, &given)?.operands,
                None => given.clone(),
            };
            let made = self.made_in(kernel, i, &inside, wanted)?;
            all.push(Link { fused, given, inside, made });
        }
        Some(all)
    }

    /// The ways of making a value in a layout. `alone` gives the strategies of one op, each with
    /// the collective in its loop; `passes` tells whether a pin allows a layout.
    pub(crate) fn strategies(
        &self,
        id: ValueId,
        target: Layout,
        alone: &dyn Fn(ValueId, Layout) -> Vec<(Option<Fused>, Vec<Layout>)>,
        passes: &dyn Fn(ValueId, Layout) -> bool,
    ) -> Vec<KernelStrategy> {
        let single = alone(id, target);
        let is_plain = (target.softmax_axes().is_empty() || self.carries(id).is_some())
            && !self.joins_parts(id, target);
        let mut found: Vec<KernelStrategy> = single
            .iter()
            .filter(|_| is_plain)
            .map(|(fused, layouts)| (0, *fused, layouts.clone()))
            .collect();
        let has = |of: ValueId, made: Layout, in_loop: Option<Fused>, read: &[Layout]| {
            let is_it = |(fused, layouts): &(Option<Fused>, Vec<Layout>)| {
                *fused == in_loop && layouts.as_slice() == read
            };
            alone(of, made).iter().any(is_it)
        };
        let ends = |members: &&[ValueId]| members.last() == Some(&id);
        let members = self.attention(id).filter(ends);
        // The attention is kernel 1, the attention with the concats of its keys and values kernel
        // 2; the op alone is kernel 0.
        let variants = [members, self.joined(id).filter(ends)];
        for (kernel, members) in (1..).zip(variants.into_iter().flatten()) {
            let may = |keys: &AxisList| kernel == 1 || keys.is_empty() || self.may_split_joined(id);
            for keys in key_orders(target).into_iter().filter(may) {
                let ring = AxisList::EMPTY;
                let read = self.attention_reads(members, target, keys, ring, &has, passes);
                found.extend(read.map(|read| (kernel, None, read)));
            }
        }
        for (fused, axes) in self.rings(id, target) {
            let keys = AxisList::EMPTY;
            let read =
                members.and_then(|m| self.attention_reads(m, target, keys, axes, &has, passes));
            found.extend(read.map(|read| (1, Some(fused), read)));
        }
        if let Some((places, producer, pins)) = self.fusible_operand(id) {
            for (_, layouts) in &single {
                let between = layouts[places[0]];
                if !self.may_be_joined(producer, between)
                    || places.iter().any(|p| layouts[*p] != between)
                    || !pins.iter().all(|pin| passes(*pin, between))
                {
                    continue;
                }
                let others: Vec<Layout> = layouts
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| !places.contains(i))
                    .map(|(_, l)| *l)
                    .collect();
                for (inner, fused, mut read) in self.strategies(producer, between, alone, passes) {
                    // A loop that scatters is a kernel alone.
                    if matches!(fused, Some(Fused::ReduceScatter { .. })) {
                        continue;
                    }
                    read.extend(&others);
                    found.push((inner + 1, fused, read));
                }
            }
        }
        found
    }
}

/// For each value whether a result depends on it, and in how many places it is used.
fn used(program: &Program) -> (Vec<bool>, Vec<usize>) {
    let live = program.live();
    let operands =
        program.live_values().into_iter().flat_map(|id| program.value(id).def.operands());
    let mut uses = vec![0; program.values.len()];
    for used in program.outputs.iter().map(|output| &output.value).chain(operands) {
        uses[used.index()] += 1;
    }
    (live, uses)
}

/// The orders in which axes may split the keys of an attention whose result has a layout: all
/// orders of the axes over which the result is a partial softmax.
pub(crate) fn key_orders(made: Layout) -> Vec<AxisList> {
    let axes = made.softmax_axes();
    if axes.is_empty() {
        return vec![AxisList::EMPTY];
    }
    AxisList::arrangements(axes).into_iter().filter(|list| list.len() == axes.len()).collect()
}
