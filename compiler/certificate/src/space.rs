//! The plan space of one program: for each value the ways of having it and the moves of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_cost::Hardware;
use shard_ir::composite::composite_dim;
use shard_ir::{
    AxisSet, Binary, Def, Layout, LayoutPattern, MeshShape, Op, Output, ParameterKind, Program,
    Reduce, ValueId, never,
};

use crate::attention::{self, Attention};
use crate::branches::Within;
use crate::carried::{self, Part, bytes};
use crate::format::CertificateError;
use crate::forms::Region;
use crate::kernel::{self, Adds, Joins, Kernel, Key, Works, may_be_joined};
use crate::loops::Loops;
use crate::moves::{Alike, Freedom, Moves, Node};
use crate::pieces::last_kernel;
use crate::sides::{Kept, kept};
use crate::usable;

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// An op or a pin: the value that it makes, and the place among its operands.
    Operand(ValueId, usize),
    /// A result of the layer.
    Result(usize),
}

/// The plan space of one program, or of a part of it.
pub struct Space<'a> {
    pub(crate) program: &'a Program,
    pub(crate) hardware: &'a Hardware,
    /// The values that results need, and all parameters, in program order.
    pub(crate) present: Vec<ValueId>,
    /// Those of them that are looked at: all, or those of the part.
    pub(crate) live: Vec<ValueId>,
    /// Of each value whether it is one of these.
    pub(crate) is_within: Vec<bool>,
    /// The axes over which values may be partial maxima.
    maxima: AxisSet,
    pub(crate) moves: Vec<Rc<Moves>>,
    pub(crate) ways: Vec<Ways>,
    /// Of each value its readers: operands in program order, then results.
    pub(crate) readers: Vec<Vec<Reader>>,
    /// Of each value the layouts in which each reader may read it.
    pub(crate) wanted: Vec<Vec<Vec<Node>>>,
    /// Of each value the operands, and which reader of the operand it is.
    pub(crate) reads: Vec<Vec<(usize, usize)>>,
    /// How an elementwise op may join the kernel of its operand, and which op may join that of a
    /// value.
    pub(crate) joins: Vec<Option<Joins>>,
    pub(crate) joined_by: Vec<Option<ValueId>>,
    /// Of each value that an attention ends with, the attention as one kernel.
    pub(crate) attentions: Vec<Option<Attention>>,
    /// Of each value whether it may be the attention over a part of the keys.
    pub(crate) parts: Rc<Vec<Option<Part>>>,
    /// The layouts that each result's type allows.
    pub(crate) results: Vec<Vec<Node>>,
    /// All kernels that ops run as by themselves.
    pub(crate) kernels: Vec<Kernel>,
    /// The time of each.
    pub(crate) times: Vec<u64>,
    /// For each phase the weights and caches that are in memory.
    pub(crate) memories: Vec<Kept>,
    /// What all plans that are bounded have in common, where they are a branch.
    pub(crate) within: Within,
}

/// The ways of having a value before any move of it, in flat arrays. A parameter or a constant has
/// one for each layout in which it may be given, a pin one for each that it lets through, an op one
/// for each strategy (and loop).
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// The layout that is made, for each way.
    pub(crate) out: Vec<Node>,
    /// The layouts that are read, `arity` for each way.
    pub(crate) reads: Vec<Node>,
    pub(crate) arity: usize,
    /// Of an op, the kernel that it runs as by itself.
    pub(crate) kernel: Vec<u32>,
    /// Whether elementwise ops may join that kernel.
    pub(crate) leads: Vec<bool>,
    /// The bytes that the op adds to what the kernel reads that makes its operand, if it joins it
    /// in this way.
    pub(crate) adds: Vec<Option<Adds>>,
    /// Whether a plan may have it so, in a kernel that it begins, and joined to the kernel of its
    /// operand.
    pub(crate) begins: Vec<bool>,
    pub(crate) goes_on: Vec<bool>,
}

impl Ways {
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn reads_of(&self, way: usize) -> &[Node] {
        &self.reads[way * self.arity..(way + 1) * self.arity]
    }

    fn simple(nodes: Vec<Node>, arity: usize) -> Ways {
        let count = nodes.len();
        let reads = if arity == 0 { Vec::new() } else { nodes.clone() };
        Ways {
            out: nodes,
            reads,
            arity,
            begins: vec![true; count],
            goes_on: vec![false; count],
            ..Ways::default()
        }
    }
}

/// A part of a program: the values of one region, with those that they read and that read them
/// around.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'r> {
    /// Where each value is.
    pub regions: &'r [Region],
    /// The region.
    pub of: Region,
}

impl Extent<'_> {
    fn has(&self, id: &ValueId) -> bool {
        self.regions[id.index()] == self.of
    }

    /// Whether some of these values are of the part, and some are not.
    fn cuts<'v>(&self, mut values: impl Iterator<Item = &'v ValueId>) -> bool {
        values.next().is_some_and(|first| values.any(|id| self.has(id) != self.has(first)))
    }

    /// Refuses a part that has some values of a kernel and not all.
    fn has_whole_kernels(
        &self,
        joins: &[Option<Joins>],
        attentions: &[Option<Attention>],
    ) -> Result<(), CertificateError> {
        for (id, joins) in (0..).map(ValueId).zip(joins) {
            let Some(joins) = joins else { continue };
            if self.cuts([&id, &joins.maker].into_iter().chain(&joins.pins)) {
                return Err(CertificateError::new(
                    "a kernel reaches from one cluster into another",
                ));
            }
        }
        let mut found = attentions.iter().flatten().map(Attention::widest);
        if found.any(|found| self.cuts(found.members.iter().chain(&found.pins))) {
            return Err(CertificateError::new(
                "an attention reaches from one cluster into another",
            ));
        }
        Ok(())
    }
}

/// What spaces of programs on one mesh and one chip have in common: the moves of values that are
/// alike.
#[derive(Clone, Debug, Default)]
pub struct Common {
    moves: Rc<RefCell<KnownMoves>>,
}

/// Moves by what they hang on, and whether values may be partial maxima.
type KnownMoves = BTreeMap<(Alike, bool), Rc<Moves>>;

/// Layouts of one value, and strategies of all ops together, beyond which a space is refused.
const MOST_LAYOUTS: usize = 1 << 20;
const MOST_WAYS: usize = 1 << 24;

impl<'a> Space<'a> {
    /// The plan space of a program; `loops` says whether einsums may do a collective in their
    /// loops, `present` which parameters are there in each phase
    /// ([`Joint::present`](crate::Joint)).
    pub fn new(
        program: &'a Program,
        hardware: &'a Hardware,
        loops: bool,
        present: &[Vec<usize>],
    ) -> Result<Space<'a>, CertificateError> {
        Space::of_part(program, hardware, loops, present, (None, &Common::default()))
    }

    /// The plan space of a part of a program. What it reads from outside it may read in any layout,
    /// and what is read of it from outside may be read in any: so it has all that it has in any
    /// program of which it is a part.
    pub fn of_part(
        program: &'a Program,
        hardware: &'a Hardware,
        loops: bool,
        phases: &[Vec<usize>],
        (extent, common): (Option<Extent<'_>>, &Common),
    ) -> Result<Space<'a>, CertificateError> {
        let mut space = Space::without_ways(program, hardware, phases, (extent, common))?;
        // What all places of labels and of memories may have is asked of the part that every form
        // has.
        let has_sides = extent.is_none_or(|extent| extent.of == Region::Rest);
        space.find_ways(loops && !program.strict, has_sides)?;
        usable::keep_usable(&mut space);
        Ok(space)
    }

    /// The values of a part, with who reads them, how they may move and what may be one kernel.
    fn without_ways(
        program: &'a Program,
        hardware: &'a Hardware,
        phases: &[Vec<usize>],
        (extent, common): (Option<Extent<'_>>, &Common),
    ) -> Result<Space<'a>, CertificateError> {
        let count = program.values.len();
        let present = program.live_values();
        let readers = readers(program, &present);
        let reads = reads(program, &present, &readers);
        let numbers: Vec<usize> = readers.iter().map(Vec::len).collect();
        let attentions = attention::attentions(program, hardware, &present, &numbers);
        let joins = kernel::joins(program, &present, &numbers, &attentions);
        if let Some(extent) = extent {
            extent.has_whole_kernels(&joins, &attentions)?;
        }
        let mut joined_by = vec![None; count];
        for id in &present {
            if let Some(joins) = &joins[id.index()] {
                joined_by[joins.maker.index()] = Some(*id);
            }
        }
        let is_within = |id: &ValueId| extent.is_none_or(|extent| extent.has(id));
        let live: Vec<ValueId> = present.iter().copied().filter(is_within).collect();
        let maxima = maxima(program);
        let parts = Rc::new(carried::parts(program, &present, &attentions));
        let in_memory = |present: &Vec<usize>| kept(program, present, hardware.hbm_bytes);
        let mut space = Space {
            program,
            hardware,
            is_within: program.value_ids().map(|id| live.binary_search(&id).is_ok()).collect(),
            present,
            live,
            maxima,
            moves: moves_of(program, hardware, maxima, (common, &parts))?,
            ways: (0..count).map(|_| Ways::default()).collect(),
            readers,
            wanted: vec![Vec::new(); count],
            reads,
            joins,
            joined_by,
            attentions,
            parts,
            results: Vec::new(),
            kernels: Vec::new(),
            times: Vec::new(),
            memories: phases.iter().map(in_memory).collect(),
            within: Within::default(),
        };
        let allowed = |output: &Output| {
            if space.is_within[output.value.index()] {
                space.allowed(output.value, &output.pattern)
            } else {
                Vec::new()
            }
        };
        space.results = program.outputs.iter().map(allowed).collect();
        Ok(space)
    }

    /// Finds the ways of having each value, and how long each kernel takes. Declared layouts of
    /// values that are not looked at are found with `has_sides`.
    fn find_ways(&mut self, loops: bool, has_sides: bool) -> Result<(), CertificateError> {
        let program = self.program;
        let mut known: FxHashMap<Key, u32> = FxHashMap::default();
        let mut all = 0;
        for id in self.present.clone() {
            let is_within = self.is_within[id.index()];
            let ways = match &program.value(id).def {
                Def::Parameter { pattern, .. } if is_within || has_sides => {
                    Ways::simple(self.allowed(id, pattern), 0)
                }
                Def::Pin { pattern, .. } if is_within || has_sides => {
                    Ways::simple(self.allowed(id, pattern), 1)
                }
                Def::Parameter { .. } | Def::Pin { .. } => continue,
                Def::Constant(_) | Def::Op { .. } if !is_within => continue,
                Def::Constant(_) => {
                    let whole = self.moves[id.index()].node(Layout::REPLICATED);
                    Ways::simple(whole.into_iter().collect(), 0)
                }
                Def::Op { op, .. } => self.ways_of_op(id, op, loops, &mut known),
            };
            all += ways.len();
            if all > MOST_WAYS {
                return Err(CertificateError::new(
                    "the program has too many strategies to be checked",
                ));
            }
            self.ways[id.index()] = ways;
        }
        attention::find_ways(self, loops, &mut known);
        self.times = self.kernels.iter().map(|kernel| kernel.time(self.hardware)).collect();
        Ok(())
    }

    /// Whether a reader is outside of the part that is looked at, or the value that it reads is.
    pub(crate) fn is_border(&self, value: usize, reader: &Reader) -> bool {
        match reader {
            Reader::Operand(by, _) => self.is_within[value] != self.is_within[by.index()],
            Reader::Result(_) => false,
        }
    }

    /// The layouts of a value that a pattern on it allows.
    fn allowed(&self, value: ValueId, pattern: &LayoutPattern) -> Vec<Node> {
        let sizes = self.program.sizes(&self.program.value(value).dims);
        let shape = MeshShape { mesh: &self.program.mesh, sizes: &sizes };
        let layouts = pattern.candidates(shape, self.program.mesh.all_axes(), self.maxima);
        layouts.into_iter().filter_map(|layout| self.moves[value.index()].node(layout)).collect()
    }

    /// The strategies of an op, and its loops.
    fn ways_of_op(
        &mut self,
        id: ValueId,
        op: &Op,
        loops: bool,
        known: &mut FxHashMap<Key, u32>,
    ) -> Ways {
        let (program, hardware) = (self.program, self.hardware);
        let Some(mut site) = kernel::site(program, id) else { return Ways::default() };
        let parts = Rc::clone(&self.parts);
        site.carries = parts[id.index()].and_then(|part| part.carries);
        let operands = program.value(id).def.operands();
        let mut ways = Ways { arity: operands.len(), ..Ways::default() };
        let mut works = Works::new(program, id, op, &parts);
        let mut loops =
            (loops && matches!(op, Op::Einsum)).then(|| Loops::new(program, hardware, id));
        let joins = self.joins[id.index()].clone();
        let mut in_pieces: FxHashMap<Layout, Option<Kernel>> = FxHashMap::default();
        let kernels = &mut self.kernels;
        let mut numbered = |kernel: Kernel| {
            *known.entry(kernel.key()).or_insert_with(|| {
                kernels.push(kernel);
                kernels.len() as u32 - 1
            })
        };
        let moves = &self.moves;
        let mut push =
            |read: &[Layout], out: Layout, kernel: Kernel, leads: bool, adds: Option<Adds>| {
                let nodes =
                    operands.iter().zip(read).map(|(o, layout)| moves[o.index()].node(*layout));
                let (Some(nodes), Some(out)) =
                    (nodes.collect::<Option<Vec<Node>>>(), moves[id.index()].node(out))
                else {
                    return;
                };
                ways.reads.extend(nodes);
                ways.out.push(out);
                ways.kernel.push(numbered(kernel));
                ways.leads.push(leads);
                ways.adds.push(adds);
            };
        site.for_each_strategy(&mut |read, out| {
            let pieces = match (composite_dim(op), read.first()) {
                (Some(_), Some(layout)) => *in_pieces
                    .entry(*layout)
                    .or_insert_with(|| last_kernel(program, hardware, id, *layout)),
                _ => None,
            };
            let alone = || Kernel { work: works.of(read, out), before: 0, looped: None };
            let kernel = pieces.unwrap_or_else(alone);
            let adds = joins.as_ref().and_then(|joins| {
                let between = read[joins.fed[0]];
                let fits = joins.fed.iter().all(|i| read[*i] == between)
                    && may_be_joined(program, joins.maker, between);
                let size =
                    |i: usize| bytes(program, operands[i], read[i], parts[operands[i].index()]);
                let of = |reads: &[bool]| (0..read.len()).filter(|i| reads[*i]).map(size).sum();
                fits.then(|| Adds {
                    alone: of(&joins.reads),
                    beside_attention: of(&joins.reads_beside_attention),
                })
            });
            push(read, out, kernel, may_be_joined(program, id, out), adds);
            // No loop acts on the attention over a part of the keys.
            if !out.softmax_axes().is_empty() {
                return;
            }
            for looped in loops.iter_mut().flat_map(|loops| loops.of(read, out)) {
                let mut given = read.to_vec();
                if let Some((operand, layout)) = looped.given {
                    given[operand] = layout;
                }
                let kernel = Kernel { looped: Some(looped.looped), ..kernel };
                push(&given, looped.result, kernel, looped.given.is_some(), None);
            }
        });
        ways.begins = vec![true; ways.len()];
        ways.goes_on = ways.adds.iter().map(Option::is_some).collect();
        ways
    }

    /// The program.
    pub fn program(&self) -> &'a Program {
        self.program
    }

    /// Who reads a value: operands in program order, then results.
    pub fn readers(&self, value: ValueId) -> &[Reader] {
        &self.readers[value.index()]
    }

    /// The layouts in which a reader of a value may read it, in their order: those at which it has
    /// prices.
    pub fn wanted(&self, value: ValueId, reader: usize) -> impl Iterator<Item = Layout> + '_ {
        self.wanted[value.index()][reader]
            .iter()
            .map(move |node| self.moves[value.index()].layouts[*node as usize])
    }

    /// Whether a value is in the part that is looked at, and one who reads it is not, or the other
    /// way round.
    pub fn crosses(&self, value: ValueId, reader: &Reader) -> bool {
        self.is_border(value.index(), reader)
    }

    /// The values that results need, and all parameters; those of the part that is looked at.
    pub fn live(&self) -> &[ValueId] {
        &self.live
    }
}

/// The moves of each value.
fn moves_of(
    program: &Program,
    hardware: &Hardware,
    maxima: AxisSet,
    (common, parts): (&Common, &[Option<Part>]),
) -> Result<Vec<Rc<Moves>>, CertificateError> {
    let mut known = common.moves.borrow_mut();
    let mut moves: Vec<Rc<Moves>> = Vec::with_capacity(program.values.len());
    let mut layouts = 0;
    for id in program.value_ids() {
        let value = program.value(id);
        let (sizes, dtype) = (program.sizes(&value.dims), value.dtype);
        let statistics = parts[id.index()].map(|part| part.statistics);
        let (freedom, times) = (freedom(program, id), value.times);
        let of = Alike { sizes, dtype, freedom, times, statistics };
        let key = (of, maxima == AxisSet::EMPTY);
        if !known.contains_key(&key) {
            let shape = MeshShape { mesh: &program.mesh, sizes: &key.0.sizes };
            let within = shape.layouts_within(program.mesh.all_axes(), maxima, MOST_LAYOUTS);
            within.ok_or_else(|| {
                CertificateError::new("a value has too many layouts to be checked")
            })?;
        }
        let of_alike =
            |(of, _): &(Alike, bool)| Rc::new(Moves::new(&program.mesh, of, maxima, hardware));
        let of_value = known.entry(key).or_insert_with_key(of_alike);
        layouts += of_value.layouts.len();
        if layouts > MOST_LAYOUTS {
            return Err(CertificateError::new("the program has too many layouts to be checked"));
        }
        moves.push(Rc::clone(of_value));
    }
    Ok(moves)
}

fn readers(program: &Program, live: &[ValueId]) -> Vec<Vec<Reader>> {
    let mut readers = vec![Vec::new(); program.values.len()];
    for id in live {
        for (place, operand) in program.value(*id).def.operands().iter().enumerate() {
            readers[operand.index()].push(Reader::Operand(*id, place));
        }
    }
    for (i, output) in program.outputs.iter().enumerate() {
        readers[output.value.index()].push(Reader::Result(i));
    }
    readers
}

/// The place of a reader among those of what it reads.
pub(crate) fn place_of(readers: &[Reader], reader: Reader) -> usize {
    let place = readers.iter().position(|other| *other == reader);
    place.unwrap_or_else(|| never!("a reader that is not among the readers of what it reads", 0))
}

fn reads(program: &Program, live: &[ValueId], readers: &[Vec<Reader>]) -> Vec<Vec<(usize, usize)>> {
    let mut reads = vec![Vec::new(); program.values.len()];
    for id in live {
        for (place, operand) in program.value(*id).def.operands().iter().enumerate() {
            let reader = place_of(&readers[operand.index()], Reader::Operand(*id, place));
            reads[id.index()].push((operand.index(), reader));
        }
    }
    reads
}

/// The axes over which values may be partial maxima: all where something takes a maximum, where a
/// logical rule may make it take one, or where a type names one; else none.
pub(crate) fn maxima(program: &Program) -> AxisSet {
    let named = |pattern: &LayoutPattern| !pattern.partial_max.is_empty();
    let makes_one = |def: &Def| match def {
        Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => named(pattern),
        Def::Op { op, .. } => is_maximum(op),
        Def::Constant(_) => false,
    };
    let any = program.outputs.iter().any(|o| named(&o.pattern))
        || program.values.iter().any(|v| makes_one(&v.def));
    if any { program.mesh.all_axes() } else { AxisSet::EMPTY }
}

/// Whether an op takes a maximum, or a logical rule makes it take one.
fn is_maximum(op: &Op) -> bool {
    match op {
        Op::Reduce { kind, .. } => match kind {
            Reduce::Max => true,
            Reduce::Sum | Reduce::Mean => false,
        },
        Op::Binary(binary) => match binary {
            Binary::Maximum => true,
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Minimum
            | Binary::Less
            | Binary::LessEqual
            | Binary::Equal => false,
        },
        Op::Argmax { .. } | Op::Locate { .. } => true,
        Op::Softmax { .. }
        | Op::SinkSoftmax { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Cumsum { .. }
        | Op::Shift { .. }
        | Op::Scan { .. }
        | Op::Route { .. }
        | Op::Conv { .. }
        | Op::Concat { .. }
        | Op::SliceDim { .. }
        | Op::Pad { .. }
        | Op::Append { .. }
        | Op::Rename { .. }
        | Op::TopK { .. }
        | Op::ArgTopK { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Einsum
        | Op::Take { .. }
        | Op::ScatterAdd { .. }
        | Op::Map(_)
        | Op::Where
        | Op::Iota { .. }
        | Op::Mask { .. }
        | Op::Fetch
        | Op::Cast(_) => false,
    }
}

/// Which moves a value has.
fn freedom(program: &Program, id: ValueId) -> Freedom {
    let Program { strict, .. } = program;
    if program.value(id).times == 0 || (*strict && !is_asked_to_move(program, id)) {
        return Freedom::Fixed;
    }
    match &program.value(kernel::unpinned(program, id)).def {
        Def::Parameter { kind: ParameterKind::HostWeight, .. } => Freedom::WithoutTraffic,
        Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => Freedom::Any,
    }
}

/// In a strict layer, whether a `reshard` asks a value to move. One of a weight in host memory asks
/// also for the cut before the fetch, where no line can stand.
fn is_asked_to_move(program: &Program, id: ValueId) -> bool {
    let readers = |of: ValueId| {
        program.value_ids().filter(move |v| program.value(*v).def.operands().contains(&of))
    };
    let is_reshard = |v: ValueId| matches!(program.value(v).def, Def::Pin { written: true, .. });
    let is_resharded_fetch = |v: ValueId| {
        matches!(program.value(v).def, Def::Op { op: Op::Fetch, .. })
            && readers(v).next().is_some()
            && readers(v).all(is_reshard)
            && program.outputs.iter().all(|output| output.value != v)
    };
    readers(id).any(|reader| is_reshard(reader) || is_resharded_fetch(reader))
}
