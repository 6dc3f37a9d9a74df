//! The plan space of one program: for each value its readers, its moves, and the ways of having it,
//! which [`ways`](crate::ways) finds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use shard_cost::Hardware;
use shard_ir::{
    AxisSet, Def, Layout, LayoutPattern, MeshShape, Op, Output, ParameterKind, Program, ValueId,
    never,
};

use crate::attention::{self, Attention};
use crate::branches::Within;
use crate::carried::{self, PartialSoftmax};
use crate::format::CertificateError;
use crate::forms::Region;
use crate::kernel::{self, Joins, Kernels};
use crate::maxima::maxima;
use crate::moves::{Alike, Freedom, Moves, Node};
use crate::sides::{Kept, kept};
use crate::usable;
use crate::ways::Ways;

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// An op or a pin, by the value that it makes, and the place of the value among its operands.
    Operand(ValueId, usize),
    /// A result of the layer, by number.
    Result(usize),
}

/// The plan space of one program, or of a part of it.
pub struct Space<'a> {
    pub(crate) program: &'a Program,
    pub(crate) hardware: &'a Hardware,
    /// The values that results need, and all parameters, in program order.
    pub(crate) present: Vec<ValueId>,
    /// Those of the present values that are in this space: all, or those of the part.
    pub(crate) live: Vec<ValueId>,
    /// For each value whether it is in `live`.
    pub(crate) is_within: Vec<bool>,
    /// The axes over which values may be partial maxima.
    maxima: AxisSet,
    pub(crate) moves: Vec<Rc<Moves>>,
    pub(crate) ways: Vec<Ways>,
    /// For each value its readers: ops and pins in program order, then results.
    pub(crate) readers: Vec<Vec<Reader>>,
    /// For each value and each of its readers the layouts in which the reader may read it.
    pub(crate) wanted: Vec<Vec<Vec<Node>>>,
    /// For each value its operands, each with the number of this value among the operand's readers.
    pub(crate) reads: Vec<Vec<(usize, usize)>>,
    /// For each value how its op may join the kernel of an operand, and which op may join its own
    /// kernel.
    pub(crate) joins: Vec<Option<Joins>>,
    pub(crate) joined_by: Vec<Option<ValueId>>,
    /// For each value that ends an attention, the attention as one kernel.
    pub(crate) attentions: Vec<Option<Attention>>,
    /// For each value how it may be `partialsoftmax`, if it may.
    pub(crate) partial_softmaxes: Rc<Vec<Option<PartialSoftmax>>>,
    /// The layouts that each result's type allows.
    pub(crate) results: Vec<Vec<Node>>,
    /// All kernels in which the ways of ops and attentions run before any op joins them.
    pub(crate) kernels: Kernels,
    /// The time of each of these kernels, in picoseconds.
    pub(crate) times: Vec<u64>,
    /// For each phase the weights and caches that are in memory at once.
    pub(crate) memories: Vec<Kept>,
    /// The branch that is bounded: what all its plans have in common.
    pub(crate) within: Within,
}

/// A part of a program: the values of one region.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'r> {
    /// The region of each value.
    pub regions: &'r [Region],
    /// The region of the part.
    pub of: Region,
}

impl Extent<'_> {
    fn has(&self, id: &ValueId) -> bool {
        self.regions[id.index()] == self.of
    }

    /// Whether some of these values are in the part and some are not.
    fn cuts<'v>(&self, mut values: impl Iterator<Item = &'v ValueId>) -> bool {
        values.next().is_some_and(|first| values.any(|id| self.has(id) != self.has(first)))
    }

    /// Refuses a part that has some values of a kernel, and not all of them.
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

/// What the spaces of programs on one mesh and one chip share: the moves of values that are alike.
#[derive(Clone, Debug, Default)]
pub struct Common {
    moves: Rc<RefCell<KnownMoves>>,
}

/// Moves by what they depend on, and whether no value may be a partial maximum.
type KnownMoves = BTreeMap<(Alike, bool), Rc<Moves>>;

/// Layouts of one value, and of all values together, beyond which a space is refused.
const MOST_LAYOUTS: usize = 1 << 20;

impl<'a> Space<'a> {
    /// The plan space of a whole program. `loops` says whether einsums may do a collective in their
    /// loops, `present` which parameters are in memory in each phase
    /// ([`Joint::present`](crate::Joint)).
    pub fn new(
        program: &'a Program,
        hardware: &'a Hardware,
        loops: bool,
        present: &[Vec<usize>],
    ) -> Result<Space<'a>, CertificateError> {
        Space::of_part(program, hardware, loops, present, None, &Common::default())
    }

    /// The plan space of a part of a program. The part may read values from outside in any layout,
    /// and readers outside may read its values in any layout. So it has at least the plans that it
    /// has within any program of which it is a part.
    pub fn of_part(
        program: &'a Program,
        hardware: &'a Hardware,
        loops: bool,
        phases: &[Vec<usize>],
        extent: Option<Extent<'_>>,
        common: &Common,
    ) -> Result<Space<'a>, CertificateError> {
        let mut space = Space::without_ways(program, hardware, phases, extent, common)?;
        // Labels and memories are bounded in the part that every form has: it needs the layouts of
        // all places, also of those outside.
        let has_sides = extent.is_none_or(|extent| extent.of == Region::Rest);
        space.find_ways(loops && !program.strict, has_sides)?;
        usable::keep_usable(&mut space);
        Ok(space)
    }

    /// The values of a part with their readers, their moves and the kernels that they may share;
    /// the ways are still empty.
    fn without_ways(
        program: &'a Program,
        hardware: &'a Hardware,
        phases: &[Vec<usize>],
        extent: Option<Extent<'_>>,
        common: &Common,
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
        let partial_softmaxes = Rc::new(carried::partial_softmaxes(program, &present, &attentions));
        let in_memory = |present: &Vec<usize>| kept(program, present, hardware.hbm_bytes);
        let mut space = Space {
            program,
            hardware,
            is_within: program.value_ids().map(|id| live.binary_search(&id).is_ok()).collect(),
            present,
            live,
            maxima,
            moves: moves_of(program, hardware, maxima, common, &partial_softmaxes)?,
            ways: (0..count).map(|_| Ways::default()).collect(),
            readers,
            wanted: vec![Vec::new(); count],
            reads,
            joins,
            joined_by,
            attentions,
            partial_softmaxes,
            results: Vec::new(),
            kernels: Kernels::default(),
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

    /// Whether a value and its reader lie on different sides of the border of the part.
    pub(crate) fn is_border(&self, value: usize, reader: &Reader) -> bool {
        match reader {
            Reader::Operand(by, _) => self.is_within[value] != self.is_within[by.index()],
            Reader::Result(_) => false,
        }
    }

    /// The layouts of a value that a pattern allows.
    pub(crate) fn allowed(&self, value: ValueId, pattern: &LayoutPattern) -> Vec<Node> {
        let sizes = self.program.sizes(&self.program.value(value).dims);
        let shape = MeshShape { mesh: &self.program.mesh, sizes: &sizes };
        let layouts = pattern.candidates(shape, self.program.mesh.all_axes(), self.maxima);
        layouts.into_iter().filter_map(|layout| self.moves[value.index()].node(layout)).collect()
    }

    /// The program.
    pub fn program(&self) -> &'a Program {
        self.program
    }

    /// The readers of a value: ops and pins in program order, then results.
    pub fn readers(&self, value: ValueId) -> &[Reader] {
        &self.readers[value.index()]
    }

    /// The layouts in which a reader may read a value, in their order: those for which it has
    /// prices.
    pub fn wanted(&self, value: ValueId, reader: usize) -> impl Iterator<Item = Layout> + '_ {
        self.wanted[value.index()][reader]
            .iter()
            .map(move |node| self.moves[value.index()].layouts[*node as usize])
    }

    /// Whether a value is in the part and its reader is not, or the other way round.
    pub fn crosses(&self, value: ValueId, reader: &Reader) -> bool {
        self.is_border(value.index(), reader)
    }

    /// The values of the part: those that results need, and all parameters.
    pub fn live(&self) -> &[ValueId] {
        &self.live
    }
}

/// The moves of each value; values that are alike share them.
fn moves_of(
    program: &Program,
    hardware: &Hardware,
    maxima: AxisSet,
    common: &Common,
    partial_softmaxes: &[Option<PartialSoftmax>],
) -> Result<Vec<Rc<Moves>>, CertificateError> {
    let mut known = common.moves.borrow_mut();
    let mut moves: Vec<Rc<Moves>> = Vec::with_capacity(program.values.len());
    let mut layouts = 0;
    for id in program.value_ids() {
        let value = program.value(id);
        let (sizes, dtype) = (program.sizes(&value.dims), value.dtype);
        let statistics = partial_softmaxes[id.index()].map(|of| of.statistics);
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

/// The number of a reader among the readers of a value.
pub(crate) fn reader_number(readers: &[Reader], reader: Reader) -> usize {
    let place = readers.iter().position(|other| *other == reader);
    place.unwrap_or_else(|| never!("a reader that is not among the readers of what it reads", 0))
}

fn reads(program: &Program, live: &[ValueId], readers: &[Vec<Reader>]) -> Vec<Vec<(usize, usize)>> {
    let mut reads = vec![Vec::new(); program.values.len()];
    for id in live {
        for (place, operand) in program.value(*id).def.operands().iter().enumerate() {
            let reader = reader_number(&readers[operand.index()], Reader::Operand(*id, place));
            reads[id.index()].push((operand.index(), reader));
        }
    }
    reads
}

/// Which moves a value may have.
fn freedom(program: &Program, id: ValueId) -> Freedom {
    let Program { strict, .. } = program;
    if program.value(id).times == 0 || (*strict && !is_asked_to_move(program, id)) {
        return Freedom::Fixed;
    }
    match &program.value(program.unpinned(id)).def {
        Def::Parameter { kind: ParameterKind::HostWeight, .. } => Freedom::WithoutTraffic,
        Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => Freedom::Any,
    }
}

/// Whether a `reshard` of a strict layer asks a value to move. A `reshard` behind a fetch asks also
/// for moves before the fetch, where nothing can be written.
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
