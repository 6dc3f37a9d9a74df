//! The reason of each move: who asks for which layout, as values that reports put into words.

use shard_ir::composite::composite_dim;
use shard_ir::op::{Combined, Partial};
use shard_ir::reason::{
    CannotTake, Cause, Combining, Demand, LoopWhy, MoveWhy, Reason, Role, Statistic,
};
use shard_ir::{
    AxisList, AxisSet, Collective, Def, DimId, Fused, Layout, Op, Place, Program, Reduce,
    Reduction, ValueId, never,
};

use crate::emit::name_of;
use crate::kernel::{Kernel, Kernels};
use crate::search::{SettledValue, Solution};
use crate::table::{LayoutId, MoveArc, Producer, Source, Tables};
use crate::told::told;

/// Who wants a value in a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// Nobody yet: the move follows the op that makes the value.
    Maker,
    /// An op or a pin.
    Value(ValueId),
    /// A result of the layer.
    Output(usize),
}

/// What the reasons of the moves of a plan are read off: its solution, and who reads what.
pub(crate) struct Reasons<'p> {
    kernels: &'p Kernels,
    program: &'p Program,
    tables: &'p Tables,
    solution: &'p Solution,
    /// For each value, who reads it in which layout.
    readers: Vec<Vec<(Reader, LayoutId)>>,
}

impl<'p> Reasons<'p> {
    pub(crate) fn new(
        kernels: &'p Kernels,
        tables: &'p Tables,
        solution: &'p Solution,
    ) -> Reasons<'p> {
        let program = kernels.program.as_ref();
        let mut readers = vec![Vec::new(); program.values.len()];
        for (id, settled) in program.value_ids().zip(&solution.values) {
            let Some(settled) = settled else { continue };
            let producer = &tables.of(id).producers[settled.made_in as usize][settled.producer];
            for (i, (operand, layout)) in producer.reads.iter().enumerate() {
                let reader = match producer.source {
                    Source::Kernel(number, _) => {
                        let kernel = &kernels.of[id.index()][number];
                        // The reads are those of the first op of the chain, then of each later one.
                        let first = program.value(kernel.chain[0]).def.operands().len();
                        let at = if i < first { 0 } else { op_of_read(kernels, kernel, i) };
                        kernel.chain[at]
                    }
                    Source::Given | Source::Pin => id,
                };
                readers[operand.index()].push((Reader::Value(reader), *layout));
            }
        }
        for (i, (output, layout)) in program.outputs.iter().zip(&solution.outputs).enumerate() {
            readers[output.value.index()].push((Reader::Output(i), *layout));
        }
        Reasons { kernels, program, tables, solution, readers }
    }

    /// The readers of a value that a move from one layout to another leads to, each with the layout
    /// that it reads.
    fn wants_through(
        &self,
        value: ValueId,
        from: LayoutId,
        to: LayoutId,
    ) -> impl Iterator<Item = (Reader, LayoutId)> {
        let all = self.readers[value.index()].iter().copied();
        all.filter(move |(_, wanted)| self.leads_to(value, from, to, *wanted))
    }

    /// Every reader of a value that a move from one layout to another leads to.
    pub(crate) fn through(&self, value: ValueId, from: LayoutId, to: LayoutId) -> Vec<Reader> {
        self.wants_through(value, from, to).map(|(reader, _)| reader).collect()
    }

    /// Whether a move from one layout to another lies on the way of a value to a wanted layout.
    fn leads_to(&self, value: ValueId, from: LayoutId, to: LayoutId, wanted: LayoutId) -> bool {
        let Some(settled) = &self.solution.values[value.index()] else { return false };
        let mut at = wanted;
        while at != settled.made_in {
            let Some(step) = settled.moves.iter().find(|(_, to)| *to == at) else { return false };
            if *step == (from, to) {
                return true;
            }
            at = step.0;
        }
        false
    }
}

impl Reasons<'_> {
    /// The reason of a move of a value.
    pub(crate) fn of_move(&self, value: ValueId, arc: &MoveArc) -> Reason {
        let table = self.tables.of(value);
        let (from, to) = (table.layouts[arc.from as usize], table.layouts[arc.to as usize]);
        let axes = arc.collective.axes(&self.program.mesh, from);
        let dim = |i: usize| self.program.value(value).dims[i];
        let wants = self.wants_through(value, arc.from, arc.to).next();
        let wants = wants.and_then(|(reader, layout)| {
            let moved = MovedValue { value, collective: &arc.collective, axes: axes.set() };
            self.demand(&moved, reader, table.layouts[layout as usize])
        });
        let cause = |kind| self.partial_cause(value, axes.set(), kind);
        let why = match arc.collective {
            Collective::ReduceScatter { kind, dim: d, .. } => {
                MoveWhy::Scattered { cause: cause(kind), dim: dim(d) }
            }
            Collective::ReduceScatterDims { kind, .. } => MoveWhy::ScatteredAlong {
                cause: cause(kind),
                dims: arc.collective.parts(from).into_iter().map(|(d, _)| dim(d)).collect(),
            },
            Collective::AllGatherDims { .. } => MoveWhy::GatheredAlong {
                parts: arc
                    .collective
                    .parts(from)
                    .into_iter()
                    .map(|(d, axes)| (dim(d), axes))
                    .collect(),
            },
            Collective::Exchange { .. } => MoveWhy::Regrouped { from, to },
            Collective::AllReduce { kind, .. } => MoveWhy::Reduced { cause: cause(kind) },
            Collective::AllGather { dim: d, .. } => MoveWhy::Gathered { dim: dim(d) },
            Collective::AllToAll { from_dim, to_dim, .. } => {
                MoveWhy::Exchanged { from: dim(from_dim), to: dim(to_dim) }
            }
            Collective::Permute { .. } => MoveWhy::Permuted { from, to },
            Collective::Slice { dim: d, .. } => MoveWhy::Sliced { dim: dim(d) },
            Collective::SoftmaxMerge { dim: d, .. } => {
                MoveWhy::Merged { keys: self.kernels.keys_of(value), dim: d.map(dim) }
            }
            Collective::ToPartial { dim: d, .. } => MoveWhy::MadePartial { dim: d.map(dim) },
        };
        Reason::Moved { value: told(self.program, value), axes, why, wants }
    }

    /// The reason of the collective in the loop of an einsum that is given its operands in these
    /// layouts.
    pub(crate) fn of_loop(&self, value: ValueId, fused: &Fused, given: &[Layout]) -> LoopWhy {
        let axes = fused.axes();
        let dim = |of: ValueId, i: usize| self.program.value(of).dims[i];
        match *fused {
            Fused::AllGather { operand, dim: d, .. } => {
                let moved = self.program.value(value).def.operands()[operand];
                let whole = given[operand].with_dim(
                    d,
                    given[operand].axes_of(d).prefix(given[operand].axes_of(d).len() - axes.len()),
                );
                let of =
                    MovedValue { value: moved, collective: &fused.collective(), axes: axes.set() };
                let roles = self.roles(&of, value, whole);
                let (reader, value) = (told(self.program, value), told(self.program, moved));
                LoopWhy::Gathered { value, axes, dim: dim(moved, d), reader, roles }
            }
            Fused::ReduceScatter { dim: d, .. } => {
                let cause = self.partial_cause(value, axes.set(), Reduction::Sum);
                LoopWhy::Scattered { cause, dim: dim(value, d) }
            }
        }
    }

    /// What a reader asks for, and what the axes of the move do there; `None` where nobody asks
    /// yet.
    fn demand(&self, moved: &MovedValue<'_>, reader: Reader, layout: Layout) -> Option<Demand> {
        Some(match reader {
            Reader::Maker => return None,
            Reader::Output(i) => {
                let output = &self.program.outputs[i];
                Demand::Result { name: output.name.clone(), open: output.pattern.open, layout }
            }
            Reader::Value(id) => {
                let reader = told(self.program, id);
                let Def::Op { op, .. } = &self.program.value(id).def else {
                    return Some(Demand::Asks { reader, layout });
                };
                match cannot_take(self.program, op, moved) {
                    Some(why) => Demand::CannotTake { reader, why },
                    None => {
                        let roles = self.roles(moved, id, layout);
                        Demand::Reads { reader, layout, roles }
                    }
                }
            }
        })
    }

    /// What the axes of a move do in the op that reads the moved value: in the value itself, and in
    /// what it is read with.
    fn roles(&self, moved: &MovedValue<'_>, reader: ValueId, layout: Layout) -> Vec<Role> {
        let named = |value: ValueId, splits: Vec<(usize, AxisList)>| -> Vec<(DimId, AxisList)> {
            splits
                .into_iter()
                .map(|(dim, axes)| (self.program.value(value).dims[dim], axes))
                .collect()
        };
        let mut out: Vec<Role> = named(moved.value, split_by(layout, moved.axes))
            .into_iter()
            .map(|(dim, axes)| Role::Splits { dim, axes })
            .collect();
        let whole: AxisSet =
            moved.axes.iter().filter(|a| layout.place(*a) == Place::Replicated).collect();
        if whole.is_empty() {
            return out;
        }
        let others =
            self.program.value(reader).def.operands().iter().filter(|o| **o != moved.value);
        let beside: Vec<(String, Vec<(DimId, AxisList)>)> = others
            .filter_map(|other| {
                let read = self.readers[other.index()]
                    .iter()
                    .find(|(r, _)| *r == Reader::Value(reader))?;
                let other_layout = self.tables.of(*other).layouts[read.1 as usize];
                let name = name_of(self.program, *other)?.to_string();
                Some((name, named(*other, split_by(other_layout, whole))))
            })
            .filter(|(_, splits)| !splits.is_empty())
            .collect();
        out.push(Role::Whole { axes: whole, beside });
        out
    }

    /// Why a value is partial over some axes.
    fn partial_cause(&self, value: ValueId, axes: AxisSet, kind: Reduction) -> Cause {
        let given = || Cause::Given { value: told(self.program, value), axes };
        let Some(settled) = &self.solution.values[value.index()] else { return given() };
        let table = self.tables.of(value);
        // The axes over which the value is not made partial come from a move that cut it into
        // terms.
        let producer = &table.producers[settled.made_in as usize][settled.producer];
        let mut partial = table.layouts[settled.made_in as usize].partial(kind);
        if let (Source::Kernel(_, Some(Fused::ReduceScatter { axes, .. })), Reduction::Sum) =
            (producer.source, kind)
        {
            // The value is partial over these axes before its loop has scattered it.
            partial = partial.union(axes.set());
        }
        let made = axes.intersection(partial);
        let cut = axes.difference(made);
        if !cut.is_empty() {
            let terms = self.cut_into_terms(settled, value, cut);
            return if made.is_empty() {
                terms
            } else {
                Cause::All(vec![self.partial_cause(value, made, kind), terms])
            };
        }
        match (producer.source, &self.program.value(value).def) {
            (Source::Pin, Def::Pin { operand, .. }) => self.partial_cause(*operand, axes, kind),
            (Source::Kernel(..), _) => self.cause_in_kernel(value, producer, axes, kind),
            (Source::Given, _) => given(),
            (Source::Pin, Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. }) => {
                never!("a value that is no pin is passed on by one", given())
            }
        }
    }

    /// Why a value that a kernel makes is partial: the kernel combines what lies split, or reads
    /// terms.
    fn cause_in_kernel(
        &self,
        value: ValueId,
        producer: &Producer,
        axes: AxisSet,
        kind: Reduction,
    ) -> Cause {
        let mut over: Vec<(DimId, AxisList)> = Vec::new();
        let mut explained = AxisSet::EMPTY;
        let chain = settled_chain(self.kernels, producer.source, value);
        for (operand, layout) in &producer.reads {
            let layout = self.tables.of(*operand).layouts[*layout as usize];
            for axis in axes.difference(explained).iter() {
                if let Place::Split { dim, .. } = layout.place(axis) {
                    let on: AxisList =
                        layout.axes_of(dim).iter().filter(|a| axes.contains(*a)).collect();
                    explained = explained.union(on.set());
                    over.push((self.program.value(*operand).dims[dim], on));
                    break;
                }
            }
        }
        let mut causes: Vec<Cause> = Vec::new();
        let mut named = value;
        if !over.is_empty() {
            let (reducing, how) = reduces(self.program, chain, kind).unwrap_or_else(|| {
                never!("a kernel that combines nothing of what lies split", (value, Combining::Sum))
            });
            named = reducing;
            causes.push(Cause::Combined { value: told(self.program, named), axes, how, over });
        }
        // The kernel may sum terms that were there before. A term that is made partial tells more
        // than one that was cut into terms.
        let is_made_partial = |v: &ValueId| {
            let made = self.solution.values[v.index()]
                .as_ref()
                .map(|s| self.tables.of(*v).layouts[s.made_in as usize]);
            made.is_some_and(|layout| axes.is_subset(layout.partial(kind)))
        };
        let terms: Vec<ValueId> = producer
            .reads
            .iter()
            .filter(|(v, layout)| {
                axes.is_subset(self.tables.of(*v).layouts[*layout as usize].partial(kind))
            })
            .map(|(v, _)| *v)
            .collect();
        let mut shown: Vec<ValueId> = terms.iter().copied().filter(is_made_partial).collect();
        if causes.is_empty() && shown.is_empty() {
            shown.extend(terms.first());
        }
        shown.truncate(2 - causes.len());
        if let Some(term) = shown.first() {
            named = *term;
        }
        causes.extend(shown.iter().map(|term| self.partial_cause(*term, axes, kind)));
        match (causes.is_empty(), name_of(self.program, value)) {
            (true, _) => Cause::Given { value: told(self.program, value), axes },
            (false, Some(own)) if name_of(self.program, named) != Some(own) => {
                Cause::Follows { causes, value: told(self.program, value) }
            }
            (false, _) => Cause::All(causes),
        }
    }

    /// How a move cut a complete value into terms: into its blocks, or into one copy that counts,
    /// with zeros elsewhere.
    fn cut_into_terms(&self, settled: &SettledValue, value: ValueId, cut: AxisSet) -> Cause {
        let table = self.tables.of(value);
        let dims = settled.moves.iter().filter_map(|(from, to)| {
            let Collective::ToPartial { dim: Some(dim), axes, .. } =
                table.arc(*from, *to)?.collective
            else {
                return None;
            };
            axes.iter().any(|a| cut.contains(a)).then(|| self.program.value(value).dims[dim])
        });
        Cause::Terms { value: told(self.program, value), axes: cut, dims: dims.collect() }
    }
}

/// Which op of a kernel's chain makes its `read`-th read.
fn op_of_read(kernels: &Kernels, kernel: &Kernel, read: usize) -> usize {
    let mut count = 0;
    for (link, id) in kernel.chain.iter().enumerate() {
        let operands = kernels.program.value(*id).def.operands();
        count += operands.iter().filter(|o| !kernels.is_fed(kernel, link, **o)).count();
        if read < count {
            return link;
        }
    }
    kernel.chain.len() - 1
}

/// The reason of an all-reduce between the pieces of a composite that reads its operand in a
/// layout; `piece` makes the statistic.
pub(crate) fn reason_in_pieces(
    program: &Program,
    composite: ValueId,
    operand: Layout,
    piece: &Op,
) -> Option<Reason> {
    let Def::Op { op, operands } = &program.value(composite).def else { return None };
    let (dim, from) = (composite_dim(op)?, *operands.first()?);
    let at = program.value(from).dims.iter().position(|d| *d == dim)?;
    let statistic = match piece {
        Op::Reduce { kind: Reduce::Max, .. } => Statistic::Largest,
        Op::Reduce { kind: Reduce::Mean, .. } => Statistic::PartOfMean,
        Op::Einsum => Statistic::SumOfSquares,
        Op::Reduce { kind: Reduce::Sum, .. } => Statistic::Sum,
        _ => never!("a piece that combines nothing is completed", Statistic::Sum),
    };
    // A composite without a name is told by its operand.
    let of = name_of(program, composite).is_none().then(|| told(program, from));
    Some(Reason::Statistic {
        composite: told(program, composite),
        of,
        dim,
        axes: operand.axes_of(at),
        statistic,
    })
}

/// A move of a value whose reason is asked for.
struct MovedValue<'a> {
    value: ValueId,
    collective: &'a Collective,
    axes: AxisSet,
}

/// Why an op could not read the value as it was before the move; `None` where the layouts of other
/// values play a part.
fn cannot_take(program: &Program, op: &Op, moved: &MovedValue<'_>) -> Option<CannotTake> {
    let combines = moved.collective.row().combines;
    let dims = &program.value(moved.value).dims;
    let gathered = if let Collective::AllGather { dim, .. }
    | Collective::AllToAll { from_dim: dim, .. } = moved.collective
    {
        dims.get(*dim)
    } else {
        None
    };
    let whole = |over: &DimId| (gathered == Some(over)).then_some(CannotTake::Whole(*over));
    match op {
        Op::Map(map) => {
            (combines && map.row().sums == Partial::No).then_some(CannotTake::NotLinear)
        }
        Op::Softmax { .. } | Op::SinkSoftmax { .. } | Op::Norm { .. } if combines => {
            Some(CannotTake::NotLinear)
        }
        Op::Softmax { over }
        | Op::SinkSoftmax { over }
        | Op::Norm { over, .. }
        | Op::Rope { over, .. }
        | Op::Cumsum { over }
        | Op::Shift { over, .. }
        | Op::Conv { over, .. }
        | Op::Argmax { over } => whole(over),
        Op::Einsum
        | Op::Binary(_)
        | Op::Where
        | Op::Reduce { .. }
        | Op::Cast(_)
        | Op::Rename { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Concat { .. }
        | Op::SliceDim { .. }
        | Op::Pad { .. }
        | Op::Append { .. }
        | Op::Mask { .. }
        | Op::Scan { .. }
        | Op::TopK { .. }
        | Op::ArgTopK { .. }
        | Op::Locate { .. }
        | Op::ScatterAdd { .. }
        | Op::Take { .. }
        | Op::Iota { .. }
        | Op::Route { .. }
        | Op::Fetch => None,
    }
}

/// The dims that some of the axes split, each with those axes.
fn split_by(layout: Layout, axes: AxisSet) -> Vec<(usize, AxisList)> {
    let mut found: Vec<(usize, AxisList)> = Vec::new();
    for axis in axes.iter() {
        if let Place::Split { dim, .. } = layout.place(axis) {
            match found.iter_mut().find(|(d, _)| *d == dim) {
                Some((_, list)) => *list = list.then(axis),
                None => found.push((dim, AxisList::EMPTY.then(axis))),
            }
        }
    }
    found
}

/// The ops of the kernel that makes a value.
fn settled_chain(kernels: &Kernels, source: Source, value: ValueId) -> &[ValueId] {
    match source {
        Source::Kernel(number, _) => {
            kernels.of[value.index()].get(number).map_or(&[][..], |kernel| &kernel.chain)
        }
        Source::Given | Source::Pin => &[],
    }
}

/// The op of a kernel that combines terms over a dim, and how; `None` where no op does.
fn reduces(program: &Program, chain: &[ValueId], kind: Reduction) -> Option<(ValueId, Combining)> {
    let how = |id: &ValueId| {
        let Def::Op { op, .. } = &program.value(*id).def else { return None };
        let how = match op {
            Op::Reduce { .. } if kind == Reduction::Max => Combining::Maximum,
            Op::Locate { .. } => Combining::Search,
            Op::Einsum => Combining::Contraction,
            Op::Reduce { .. } => Combining::Sum,
            Op::Take { .. } => Combining::Lookup,
            op => match op.row().combines {
                Combined::No => return None,
                Combined::Sum => Combining::Sum,
                Combined::Max => Combining::Maximum,
            },
        };
        Some((*id, how))
    };
    chain.iter().rev().find_map(how)
}
