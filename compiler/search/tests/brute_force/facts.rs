//! What the brute force knows of a program before it looks for plans: the spaces of its values, the
//! layouts that fit each op, and which ops may share a kernel.

use std::collections::HashMap;
use std::rc::Rc;

use shard_cost::{
    Hardware, KernelOp, LocalTensor, RingShape, Work, collective_cost, ring_work, roofline,
};
use shard_ir::{
    AxisId, AxisList, Binary, Collective, Def, DimId, DimSet, Dtype, Layout, MeshShape, Op,
    Operand, ParameterKind, Place, Program, Reduce, Reduction, ValueId, result_layout,
};

use super::attention::{part, statistics};
use super::in_pieces::{composite_dim, is_in_pieces, time};
use super::layouts::{Written, meets};
use super::moves::{Lies, Space, collectives_between};
use super::trees::MAX_LAYOUTS;

/// A fit: layouts of an op that fit together, as indices into the spaces of the values.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) result: usize,
    pub(crate) operands: Vec<usize>,
    /// The loop of an einsum that does a collective in its loop.
    pub(crate) looped: Option<Looped>,
}

/// A loop: an einsum and a collective at once.
#[derive(Clone, Debug)]
pub(crate) struct Looped {
    /// The layouts of the einsum by itself.
    inside: Box<Fit>,
    /// The time of the collective by itself.
    collective: u64,
    /// Devices in a group.
    devices: u64,
    /// Whether the partial sum is scattered; else an operand is gathered.
    pub(crate) scatters: bool,
    /// The operand that is gathered, along which of its dims, over which axes.
    pub(crate) gathers: Option<(usize, usize, AxisList)>,
}

/// An elementwise op whose operands that come from ops are all one value (behind pins or not).
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    /// The places of these operands.
    pub(crate) places: Vec<usize>,
    /// The value, before any pin.
    pub(crate) origin: usize,
}

pub(crate) struct Facts<'a> {
    pub(crate) program: &'a Program,
    pub(crate) hardware: &'a Hardware,
    pub(crate) live: Vec<bool>,
    pub(crate) spaces: Vec<Rc<Space>>,
    /// For each parameter and pin, the layouts that its type allows.
    pub(crate) allowed: Vec<Vec<usize>>,
    pub(crate) fits: Vec<Vec<Fit>>,
    /// For each op, how many of its fits it has alone. The others are those of a concat in an
    /// attention, which joins parts that are split.
    pub(crate) by_itself: Vec<usize>,
    /// For each op, what it may share a kernel with.
    pub(crate) feeds: Vec<Option<Feed>>,
}

/// The most tuples of operand layouts that are tried for one op.
const MAX_TUPLES: usize = 40_000;

impl<'a> Facts<'a> {
    /// The facts of a program, or the limit that makes the program too large.
    pub(crate) fn new(
        program: &'a Program,
        hardware: &'a Hardware,
        fuse: bool,
    ) -> Result<Facts<'a>, &'static str> {
        let with_maxima = names_a_maximum(program);
        type Key = (Vec<u64>, Dtype, Lies, Option<DimSet>);
        let mut known: HashMap<Key, Rc<Space>> = HashMap::new();
        let mut spaces = Vec::new();
        for (id, value) in program.values.iter().enumerate() {
            let sizes = program.sizes(&value.dims);
            let lies = lies(program, id);
            let may = hardware.has_attention() && !program.strict;
            let statistics = part(program, id).filter(|_| may).map(|(_, by)| by);
            let key = (sizes.clone(), value.dtype, lies, statistics);
            let space = known.entry(key).or_insert_with(|| {
                Rc::new(Space::new(
                    (&program.mesh, &sizes, value.dtype),
                    lies,
                    hardware,
                    (with_maxima, statistics),
                ))
            });
            if space.layouts.len() > MAX_LAYOUTS {
                return Err("layouts of a value");
            }
            spaces.push(Rc::clone(space));
        }
        let live = live(program);
        let none = || vec![Vec::new(); program.values.len()];
        let mut facts = Facts {
            program,
            hardware,
            live,
            spaces,
            allowed: none(),
            fits: vec![Vec::new(); program.values.len()],
            by_itself: vec![0; program.values.len()],
            feeds: Vec::new(),
        };
        for (id, value) in program.values.iter().enumerate() {
            match &value.def {
                Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => {
                    let space = &facts.spaces[id];
                    facts.allowed[id] = (0..space.layouts.len())
                        .filter(|l| meets(pattern, &space.written[*l]))
                        .collect();
                }
                Def::Constant(_) => {}
                Def::Op { op, operands } if facts.live[id] => {
                    let mut fits = facts.all_fits(id, op, operands)?;
                    if fuse && *op == Op::Einsum {
                        fits.extend(
                            fits.iter()
                                .flat_map(|fit| facts.loops(id, fit, operands))
                                .collect::<Vec<_>>(),
                        );
                    }
                    facts.by_itself[id] = fits.len();
                    if let (Op::Concat { left, right, to }, true) =
                        (op, hardware.has_attention() && !program.strict)
                    {
                        fits.extend(facts.in_parts(id, operands, [*left, *right, *to]));
                    }
                    facts.fits[id] = fits;
                }
                Def::Op { .. } => {}
            }
        }
        facts.feeds = (0..program.values.len()).map(|id| facts.feed(id)).collect();
        Ok(facts)
    }

    /// Every tuple of operand layouts that the layout rule accepts.
    fn all_fits(&self, id: usize, op: &Op, operands: &[ValueId]) -> Result<Vec<Fit>, &'static str> {
        let program = self.program;
        let counts: Vec<usize> =
            operands.iter().map(|o| self.spaces[o.index()].layouts.len()).collect();
        let tuples: usize = counts.iter().product();
        if tuples > MAX_TUPLES {
            return Err("tuples of operand layouts");
        }
        let place_of: HashMap<Layout, usize> =
            self.spaces[id].layouts.iter().enumerate().map(|(i, l)| (*l, i)).collect();
        let mut fits = Vec::new();
        for tuple in 0..tuples {
            let mut rest = tuple;
            let places: Vec<usize> = counts
                .iter()
                .map(|count| {
                    let place = rest % count;
                    rest /= count;
                    place
                })
                .collect();
            let seen: Vec<Operand<'_>> = operands
                .iter()
                .zip(&places)
                .map(|(o, place)| {
                    let value = program.value(*o);
                    let layout = self.spaces[o.index()].layouts[*place];
                    Operand { dims: &value.dims, dtype: value.dtype, layout }
                })
                .collect();
            let dims = &program.values[id].dims;
            let by_rule = result_layout(op, &seen, dims, &program.mesh, &program.dims).ok();
            let Some(layout) = by_rule.or_else(|| in_pieces(op, &seen[0], dims)) else { continue };
            // Of the operands only the first that may be the attention over a part of the keys is
            // one.
            let is_part = |operand: &Operand<'_>| !operand.layout.softmax_axes().is_empty();
            let carries = part(program, id).and_then(|(place, _)| place);
            if seen.iter().position(is_part).is_some_and(|place| carries != Some(place)) {
                continue;
            }
            let whole = place_of.get(&layout).copied();
            for result in whole.into_iter().chain(self.own_places(id, op, layout, &seen)) {
                fits.push(Fit { result, operands: places.clone(), looped: None });
            }
        }
        Ok(fits)
    }

    /// Layouts of a concat that joins parts which are split alike: each other dim is split in what
    /// it makes as in what has it, and nothing is partial.
    fn in_parts(&self, id: usize, operands: &[ValueId], [left, right, to]: [DimId; 3]) -> Vec<Fit> {
        let program = self.program;
        let made_dims = &program.values[id].dims;
        let as_made = |operand: ValueId, made: Layout| {
            let dims = &program.value(operand).dims;
            let axes = dims.iter().map(|dim| {
                let name = if *dim == left || *dim == right { to } else { *dim };
                let at = made_dims.iter().position(|d| *d == name);
                at.map_or(AxisList::EMPTY, |at| made.axes_of(at))
            });
            let wanted: Vec<AxisList> = axes.collect();
            self.spaces[operand.index()].layouts.iter().position(|layout| {
                layout.is_complete() && (0..wanted.len()).all(|at| layout.axes_of(at) == wanted[at])
            })
        };
        let made = self.spaces[id].layouts.iter().enumerate();
        let is_split = |layout: &Layout| {
            let at = made_dims.iter().position(|dim| *dim == to);
            layout.is_complete() && at.is_some_and(|at| !layout.axes_of(at).is_empty())
        };
        made.filter(|(_, layout)| is_split(layout))
            .filter_map(|(result, layout)| {
                let operands = operands.iter().map(|operand| as_made(*operand, *layout));
                let operands = operands.collect::<Option<Vec<usize>>>()?;
                Some(Fit { result, operands, looped: None })
            })
            .collect()
    }

    /// The layouts of a scatter-add in which axes split its places, given the one in which they are
    /// whole. These are axes that do nothing else in the result or in an operand.
    fn own_places(&self, id: usize, op: &Op, whole: Layout, read: &[Operand<'_>]) -> Vec<usize> {
        let Op::ScatterAdd { to, .. } = op else { return Vec::new() };
        let dims = &self.program.values[id].dims;
        let at = dims.iter().position(|dim| dim == to).expect("the result has the places");
        let rest = Written::of(whole, dims.len());
        let is_free = |axis: &AxisId| {
            read.iter().all(|operand| operand.layout.place(*axis) == Place::Replicated)
        };
        let may = |written: &Written| {
            let split = &written.dims[at];
            let mut others = written.clone();
            others.dims[at].clear();
            !split.is_empty() && others == rest && split.iter().all(is_free)
        };
        let all = &self.spaces[id].written;
        (0..all.len()).filter(|place| may(&all[*place])).collect()
    }

    /// The loops around an einsum: with each all-gather that leads to a layout of an operand, and
    /// each reduce-scatter that leads from the layout of the result.
    fn loops(&self, id: usize, plain: &Fit, operands: &[ValueId]) -> Vec<Fit> {
        let program = self.program;
        let mut found = Vec::new();
        let between = |value: usize, from: usize, to: usize| {
            let (space, sizes) = (&self.spaces[value], program.sizes(&program.values[value].dims));
            let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
            let ends = [from, to].map(|place| (space.layouts[place], &space.written[place]));
            let price = |c: &Collective| {
                let dtype = program.values[value].dtype;
                collective_cost(self.hardware, &program.mesh, c, ends[0].0, &sizes, dtype).time.0
            };
            let all = collectives_between(shape, ends[0], ends[1]);
            all.into_iter().map(|c| (c, price(&c))).collect::<Vec<_>>()
        };
        let inside = || Box::new(plain.clone());
        for (place, operand) in operands.iter().enumerate() {
            for given in 0..self.spaces[operand.index()].layouts.len() {
                for (collective, time) in between(operand.index(), given, plain.operands[place]) {
                    let Collective::AllGather { dim, axes } = collective else { continue };
                    let devices = axes.iter().map(|a| program.mesh.size(a)).product();
                    let (scatters, gathers) = (false, Some((place, dim, axes)));
                    let looped =
                        Looped { inside: inside(), collective: time, devices, scatters, gathers };
                    let mut fit = Fit { looped: Some(looped), ..plain.clone() };
                    fit.operands[place] = given;
                    found.push(fit);
                }
            }
        }
        for result in 0..self.spaces[id].layouts.len() {
            for (collective, time) in between(id, plain.result, result) {
                let Collective::ReduceScatter { axes, kind: Reduction::Sum, .. } = collective
                else {
                    continue;
                };
                let devices = axes.iter().map(|a| program.mesh.size(a)).product();
                let (scatters, gathers) = (true, None);
                let looped =
                    Looped { inside: inside(), collective: time, devices, scatters, gathers };
                found.push(Fit { looped: Some(looped), result, ..plain.clone() });
            }
        }
        found
    }

    /// The time of a kernel whose ops take `time`, led by this fit: `spec/cost.md`, section
    /// "Collective einsums".
    fn in_loop(&self, id: usize, fit: usize, time: u64) -> u64 {
        match &self.fits[id][fit].looped {
            Some(looped) => {
                let chunk = time.div_ceil(looped.devices);
                looped.collective.max(time - chunk) + chunk
            }
            None => time,
        }
    }

    /// The value behind pins.
    pub(crate) fn origin(&self, mut id: usize) -> usize {
        while let Def::Pin { operand, .. } = &self.program.values[id].def {
            id = operand.index();
        }
        id
    }

    /// What an op may share a kernel with. (A kernel of 16 ops is full; the programs here have
    /// fewer.)
    fn feed(&self, id: usize) -> Option<Feed> {
        let Def::Op { op, operands } = &self.program.values[id].def else { return None };
        let is_elementwise =
            |op: &Op| matches!(op, Op::Map(_) | Op::Binary(_) | Op::Cast(_) | Op::Where);
        if !self.live[id] || !is_elementwise(op) {
            return None;
        }
        let made = |place: &usize| self.op_of(self.origin(operands[*place].index())).is_some();
        let places: Vec<usize> = (0..operands.len()).filter(made).collect();
        let origin = self.origin(operands[*places.first()?].index());
        let one_value = places.iter().all(|p| self.origin(operands[*p].index()) == origin);
        let leads = match self.op_of(origin)? {
            Op::Einsum | Op::Conv { .. } => true,
            op if is_elementwise(op) => true,
            // In pieces.
            op => composite_dim(op, self.program.values[origin].dtype).is_some(),
        };
        (one_value && leads && self.only_reader(origin, id)).then_some(Feed { places, origin })
    }

    pub(super) fn op_of(&self, id: usize) -> Option<&Op> {
        match &self.program.values[id].def {
            Def::Op { op, .. } => Some(op),
            Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => None,
        }
    }

    /// Whether one op alone reads a value, itself or pinned, and no result is it.
    pub(super) fn only_reader(&self, id: usize, reader: usize) -> bool {
        let is_result = self.program.outputs.iter().any(|o| o.value.index() == id);
        !is_result
            && (0..self.program.values.len()).filter(|r| self.live[*r]).all(|r| {
                match &self.program.values[r].def {
                    Def::Op { operands, .. } => {
                        r == reader || !operands.iter().any(|o| o.index() == id)
                    }
                    Def::Pin { operand, .. } => {
                        operand.index() != id || self.only_reader(r, reader)
                    }
                    Def::Parameter { .. } | Def::Constant(_) => true,
                }
            })
    }

    /// The live ops that read a value, itself or pinned.
    pub(super) fn readers(&self, id: usize) -> Vec<usize> {
        let values = &self.program.values;
        let reads = |r: &usize| match &values[*r].def {
            Def::Op { operands, .. } => operands.iter().any(|o| self.origin(o.index()) == id),
            Def::Pin { .. } | Def::Parameter { .. } | Def::Constant(_) => false,
        };
        (0..values.len()).filter(|r| self.live[*r]).filter(reads).collect()
    }

    /// The work of ops that run as one kernel, first to last.
    fn work(&self, chain: &[(usize, usize)]) -> Work {
        let program = self.program;
        let local = |id: usize, place: usize| {
            let sizes = program.sizes(&program.values[id].dims);
            let layout = self.spaces[id].layouts[place];
            let local = MeshShape { mesh: &program.mesh, sizes: &sizes }.local_sizes(layout);
            let by = part(program, id).filter(|_| !layout.softmax_axes().is_empty());
            let beside = by.map_or(0, |(_, by)| by.iter().map(|dim| local[dim]).product());
            (local, beside)
        };
        // A value that an op reads or makes: its local sizes, and the number of its statistics.
        type Local = (usize, (Vec<u64>, u64));
        let sizes: Vec<Vec<Local>> = chain
            .iter()
            .map(|(id, fit)| {
                let fit = &self.fits[*id][*fit];
                let fit = fit.looped.as_ref().map_or(fit, |looped| &looped.inside);
                let operands = program.values[*id].def.operands().iter().map(|o| o.index());
                let read = operands.zip(&fit.operands).map(|(o, place)| (o, local(o, *place)));
                read.chain([(*id, local(*id, fit.result))]).collect()
            })
            .collect();
        let tensors: Vec<Vec<LocalTensor<'_>>> = sizes
            .iter()
            .map(|all| {
                all.iter()
                    .enumerate()
                    .map(|(at, (id, (sizes, beside)))| LocalTensor {
                        value: self.origin(*id) as u32,
                        dims: &program.values[*id].dims,
                        sizes,
                        dtype: program.values[*id].dtype,
                        constant: program.values[self.origin(*id)].def.constant(),
                        statistics: match *beside {
                            0 if at + 1 == all.len() => self.statistics(chain, *id),
                            beside => beside,
                        },
                    })
                    .collect()
            })
            .collect();
        let kernel: Vec<KernelOp<'_>> = chain
            .iter()
            .zip(&tensors)
            .filter_map(|((id, _), tensors)| {
                let (result, operands) = tensors.split_last()?;
                Some(KernelOp { op: self.op_of(*id)?, operands, result: *result })
            })
            .collect();
        let shape = self.ring(chain).map_or(RingShape::NONE, |(_, shape)| shape);
        ring_work(&kernel, &program.dims, shape)
    }

    /// For a ring, the time of all that travels, each value once, and the shape of the ring.
    fn ring(&self, chain: &[(usize, usize)]) -> Option<(u64, RingShape)> {
        chain.iter().find(|(id, _)| {
            matches!(self.op_of(*id), Some(Op::Softmax { .. } | Op::SinkSoftmax { .. }))
        })?;
        let (mut sent, mut devices, mut known) = (0, None, Vec::new());
        for (id, fit) in chain {
            let fit = &self.fits[*id][*fit];
            let Some((looped, (place, _, axes))) =
                fit.looped.as_ref().and_then(|l| Some((l, l.gathers?)))
            else {
                continue;
            };
            let operand = self.program.values[*id].def.operands()[place].index();
            let moved = (self.origin(operand), self.spaces[operand].layouts[fit.operands[place]]);
            if !known.contains(&moved) {
                known.push(moved);
                sent += looped.collective;
            }
            devices = Some((looped.devices, axes));
        }
        let (steps, axes) = devices?;
        let product = chain.iter().rfind(|(id, _)| self.op_of(*id) == Some(&Op::Einsum))?;
        let (dims, fit) = (&self.program.values[product.0].dims, &self.fits[product.0][product.1]);
        let made = self.spaces[product.0].layouts[fit.result];
        let along = (0..dims.len()).find(|at| made.axes_of(*at) == axes).map(|at| dims[at]);
        Some((sent, RingShape { steps, along }))
    }

    /// The statistics beside what an op of a chain makes: there are some where the chain has a
    /// softmax before it, and the op sums over keys that are split.
    fn statistics(&self, chain: &[(usize, usize)], id: usize) -> u64 {
        let at = chain.iter().position(|(member, _)| *member == id).unwrap_or(0);
        let is_softmax = |id: usize| matches!(self.op_of(id), Some(Op::Softmax { .. }));
        let dims = statistics(self.program, id);
        let behind = chain[..at].iter().any(|(member, _)| is_softmax(*member));
        let Some(dims) = dims.filter(|_| behind && self.op_of(id) == Some(&Op::Einsum)) else {
            return 0;
        };
        let layout = self.spaces[id].layouts[self.fits[id][chain[at].1].result];
        if layout.is_complete() {
            return 0;
        }
        let sizes = self.program.sizes(&self.program.values[id].dims);
        let local = MeshShape { mesh: &self.program.mesh, sizes: &sizes }.local_sizes(layout);
        dims.iter().map(|dim| local[dim]).product()
    }

    /// The time of ops that run as one kernel, first to last: `(value, which of its fits)`.
    pub(crate) fn kernel_time(&self, chain: &[(usize, usize)]) -> u64 {
        if is_in_pieces(self, chain[0]) == Some(true) {
            return time(self, chain);
        }
        let (first, fit) = chain[0];
        let time = roofline(self.hardware, &self.work(chain)).0.0;
        if let Some((sent, RingShape { steps, .. })) = self.ring(chain) {
            // Section "Rings": the transfers and the steps one by one.
            let shard_cost::RingPairs { fullest, all } =
                self.work(chain).ring.expect("it is a ring");
            let full = (u128::from(time) * fullest / all) as u64;
            let beside = steps - 1;
            let transfer = |at: u64| sent * (at + 1) / beside - sent * at / beside;
            let step = |at: u64| if at == 0 { time - beside * full } else { full };
            return (0..beside).map(|at| transfer(at).max(step(at))).sum::<u64>() + full;
        }
        self.in_loop(first, fit, time)
    }

    /// The part of the time of an op that it takes in any kernel that it leads.
    pub(crate) fn time_as_a_leader(&self, id: usize, fit: usize) -> u64 {
        match is_in_pieces(self, (id, fit)) {
            Some(true) => return 0,
            Some(false) => return self.kernel_time(&[(id, fit)]),
            None => {}
        }
        let work = self.work(&[(id, fit)]);
        self.in_loop(
            id,
            fit,
            roofline(self.hardware, &Work { write: shard_cost::Bytes(0), ..work }).0.0,
        )
    }
}

/// The layout of a composite whose dim is split: its operand's, where that is not partial.
fn in_pieces(op: &Op, operand: &Operand<'_>, result: &[DimId]) -> Option<Layout> {
    let over = composite_dim(op, operand.dtype)?;
    let at = operand.dims.iter().position(|d| *d == over)?;
    let layout = operand.layout;
    let partial = layout.partial_axes();
    assert_eq!(operand.dims, result, "a composite keeps the order of dims");
    (!layout.axes_of(at).is_empty() && partial.is_empty()).then_some(layout)
}

/// Whether a partial maximum can be of use: something takes a maximum, or a type names one.
fn names_a_maximum(program: &Program) -> bool {
    let outputs = program.outputs.iter().any(|o| !o.pattern.partial_max.is_empty());
    outputs
        || program.values.iter().any(|v| match &v.def {
            Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => {
                !pattern.partial_max.is_empty()
            }
            Def::Op { op, .. } => {
                matches!(op, Op::Reduce { kind: Reduce::Max, .. } | Op::Binary(Binary::Maximum))
            }
            Def::Constant(_) => false,
        })
}

/// Where a value lies: weights of the host, and pins of them, lie with the host.
fn lies(program: &Program, id: usize) -> Lies {
    match &program.values[id].def {
        Def::Parameter { kind: ParameterKind::HostWeight, .. } => Lies::Host,
        Def::Pin { operand, .. } => lies(program, operand.index()),
        Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => Lies::Chip,
    }
}

/// Which values a result depends on.
pub(super) fn live(program: &Program) -> Vec<bool> {
    let mut live = vec![false; program.values.len()];
    let mut open: Vec<usize> = program.outputs.iter().map(|o| o.value.index()).collect();
    while let Some(id) = open.pop() {
        if !std::mem::replace(&mut live[id], true) {
            open.extend(program.values[id].def.operands().iter().map(|o| o.index()));
        }
    }
    live
}
