//! Dims that no source declares, by which a program cuts a dim into equal parts, so that each
//! device can compute its own part.
//!
//! A logical rule rewrites ops and cannot make dims, so these dims are made before the rules apply:
//! for every dim that a `cumsum`, a `scan`, a `shift`, a `conv` or a choice of the largest runs
//! over, in as many parts as all mesh axes together can cut it into, or one axis alone. A program
//! without these ops has no such dims.

use std::collections::{BTreeMap, BTreeSet};

use crate::mesh::Mesh;
use crate::numbers::gcd;
use crate::op::Op;
use crate::plan::{InstrKind, Number, Plan};
use crate::program::Program;
use crate::tensor::{Dim, DimId, MAX_DIMS};

/// The dims of a program that no source declares. They follow the declared dims.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cuts {
    /// For ops that run along a dim, block by block.
    pub lines: Vec<Blocks>,
    /// For ops that look a few positions back along a dim, block by block.
    pub halos: Vec<Halo>,
    /// For choices of the largest entries along a dim, part by part.
    pub choices: Vec<Candidates>,
}

/// A dim as blocks of positions: the size of `blocks` times that of `within` is its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The dim.
    pub of: DimId,
    /// Its blocks, the major part.
    pub blocks: DimId,
    /// The positions of a block.
    pub within: DimId,
    /// How many positions a block has.
    pub positions: u64,
    /// One position of a block, a dim of size 1; only where a `scan` runs over the dim.
    pub one: Option<DimId>,
}

/// A dim as blocks of positions, each of which sees the last few of the block before it: its
/// *halo*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halo {
    /// The dim.
    pub of: DimId,
    /// Its blocks, the major part.
    pub blocks: DimId,
    /// The positions of a block.
    pub within: DimId,
    /// How many positions a block has: more than `back`.
    pub positions: u64,
    /// How many positions of the block before are seen.
    pub back: u64,
    /// Those positions, a dim of the size `back`.
    pub seen: DimId,
    /// The other positions of a block, a dim of the size `positions - back`; only where a `shift`
    /// looks back by `back` along the dim.
    pub others: Option<DimId>,
    /// A dim of the size `2 * back`; only where a `conv` looks back by `back` along the dim.
    pub around: Option<DimId>,
}

/// The candidates for the largest entries along a dim: each part of the dim gives as many as are
/// chosen in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// The dim.
    pub of: DimId,
    /// The dim of those chosen.
    pub chosen: DimId,
    /// How many parts.
    pub parts: u64,
    /// The dim of those chosen of all parts.
    pub all: DimId,
}

impl Cuts {
    /// All dims that were made for the cuts.
    fn dims(&self) -> impl Iterator<Item = DimId> {
        let of_lines = self.lines.iter().flat_map(|line| [line.blocks, line.within]);
        let ones = self.lines.iter().filter_map(|line| line.one);
        let of_halos = self.halos.iter().flat_map(|halo| [halo.blocks, halo.within, halo.seen]);
        let beside = self.halos.iter().flat_map(|halo| [halo.others, halo.around]).flatten();
        let chosen = self.choices.iter().map(|choice| choice.all);
        of_lines.chain(ones).chain(of_halos).chain(beside).chain(chosen)
    }

    /// Adds the cuts of another program; `dim` gives the dim here for each dim there.
    pub fn extend(&mut self, other: &Cuts, dim: impl Fn(DimId) -> DimId) {
        for mut line in other.lines.iter().copied() {
            let dims = [&mut line.of, &mut line.blocks, &mut line.within].into_iter();
            dims.chain(&mut line.one).for_each(|of| *of = dim(*of));
            add(&mut self.lines, line);
        }
        for mut halo in other.halos.iter().copied() {
            let own = [&mut halo.of, &mut halo.blocks, &mut halo.within, &mut halo.seen];
            let dims = own.into_iter().chain(&mut halo.others).chain(&mut halo.around);
            dims.for_each(|of| *of = dim(*of));
            add(&mut self.halos, halo);
        }
        for mut choice in other.choices.iter().copied() {
            let dims = [&mut choice.of, &mut choice.chosen, &mut choice.all];
            dims.into_iter().for_each(|of| *of = dim(*of));
            add(&mut self.choices, choice);
        }
    }
}

fn add<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}

impl Program {
    /// How many dims the source declares; they stand before all dims that were made.
    pub fn declared_dims(&self) -> usize {
        self.cuts.dims().map(DimId::index).min().unwrap_or(self.dims.len())
    }
}

impl Plan {
    /// The dims that a value, an op or a result of the plan has.
    pub fn dims_in_use(&self) -> BTreeSet<DimId> {
        let mut used: BTreeSet<DimId> =
            self.outputs.iter().flat_map(|output| &output.dims).copied().collect();
        for instr in &self.instructions {
            used.extend(&instr.dims);
            if let InstrKind::Constant(Number::SizeOf(dim)) = instr.kind {
                used.insert(dim);
            }
            used.extend(instr.kind.op().into_iter().flat_map(Op::dims));
        }
        used
    }

    /// The same plan with the table of dims of another plan; `None` where that table lacks a dim in
    /// use, or has it in another size.
    pub fn in_dims_of(&self, other: &Plan) -> Option<Plan> {
        let known = |dim: DimId| other.dims.iter().position(|o| *o == self.dims[dim.index()]);
        let used = self.dims_in_use();
        let now: BTreeMap<DimId, DimId> = used
            .iter()
            .map(|dim| Some((*dim, DimId(known(*dim)? as u16))))
            .collect::<Option<_>>()?;
        let renamed = |dims: &mut Vec<DimId>| dims.iter_mut().for_each(|dim| *dim = now[dim]);
        let mut plan = Plan { dims: other.dims.clone(), ..self.clone() };
        plan.outputs.iter_mut().for_each(|output| renamed(&mut output.dims));
        for instr in &mut plan.instructions {
            renamed(&mut instr.dims);
            match &mut instr.kind {
                InstrKind::Op(op) => *op = op.with_dims(|dim| now[&dim]),
                InstrKind::Constant(Number::SizeOf(dim)) => *dim = now[dim],
                InstrKind::Constant(Number::Given(_))
                | InstrKind::Parameter(_)
                | InstrKind::Move(_)
                | InstrKind::CollectiveEinsum(_) => {}
            }
        }
        Some(plan)
    }

    /// Drops the dims behind the last one in use; the first `declared` dims stay.
    pub fn drop_dims_behind(&mut self, declared: usize) {
        let last = self.dims_in_use().last().map_or(0, |dim| dim.index() + 1);
        self.dims.truncate(last.max(declared));
    }
}

/// A layer with more shifts and convolutions than this cannot cut them: each one that may be cut
/// doubles the forms of the layer, and prices separate these forms badly.
const MOST_LOOKING_BACK: usize = 2;

/// Gives all layers of a file, in one phase, the dims by which their ops may be cut. All layers get
/// the same dims, so that a name has one size in a file.
pub fn cut_dims(programs: &mut [Program]) {
    let Some(first) = programs.first() else { return };
    let mut making = Making { dims: first.dims.clone(), cuts: Cuts::default() };
    let ops = || programs.iter().flat_map(ops_of);
    let scanned: BTreeSet<DimId> = ops().filter_map(scanned).collect();
    let along: BTreeSet<DimId> = ops().filter_map(along).collect();
    let chosen: BTreeSet<(DimId, DimId)> = ops().filter_map(choice).collect();
    let size = |dim: DimId| first.dims[dim.index()].size;
    let mut seen: BTreeMap<(DimId, u64), Looks> = BTreeMap::new();
    let looks = |program| ops_of(program).filter_map(|op| looks_back(op, size)).count();
    if programs.iter().all(|program| looks(program) <= MOST_LOOKING_BACK) {
        for (of, back, looks) in ops().filter_map(|op| looks_back(op, size)) {
            seen.entry((of, back)).or_default().add(looks);
        }
    }
    // Each part passes on one position, so more parts cost little: the most parts serve fewer
    // devices as well.
    for of in along {
        if let Some(parts) = parts_of(&first.mesh, size(of)).last() {
            making.blocks(of, *parts, scanned.contains(&of));
        }
    }
    // Each part passes on a halo, whether its border lies within a device or between two. The most
    // parts serve any axes that split the dim, and are taken where their halos are at most half of
    // the dim. Otherwise the most parts whose halos together are no larger than a part, and else
    // the fewest.
    for ((of, back), looks) in seen {
        let all = parts_of(&first.mesh, size(of));
        let fits = |parts: &u64| back < size(of) / parts;
        let little = all.iter().rfind(|parts| is_little(**parts, size(of), back));
        let most = all.last().filter(|most| back.saturating_mul(**most) <= size(of) / 2);
        if let Some(parts) = most.or(little).or(all.first()).copied().filter(fits) {
            making.halo(of, parts, back, looks);
        }
    }
    // Each part passes on as many candidates as are chosen in all. Where the candidates of the most
    // parts are more than one part has, cuts into fewer parts are made, too.
    for (of, to) in chosen {
        let all = parts_of(&first.mesh, size(of));
        let few = all.last().is_some_and(|most| is_little(*most, size(of), size(to)));
        for parts in all.iter().filter(|parts| !few || all.last() == Some(*parts)) {
            making.candidates(of, to, *parts);
        }
    }
    for program in programs {
        program.dims.clone_from(&making.dims);
        program.cuts.clone_from(&making.cuts);
    }
}

fn ops_of(program: &Program) -> impl Iterator<Item = &Op> {
    program.values.iter().filter_map(|value| value.def.op())
}

fn scanned(op: &Op) -> Option<DimId> {
    if let Op::Scan { over } = op { Some(*over) } else { None }
}

fn along(op: &Op) -> Option<DimId> {
    if let Op::Cumsum { over } = op { Some(*over) } else { scanned(op) }
}

/// The ops that look back along a dim by the same number of positions.
#[derive(Clone, Copy, Default)]
struct Looks {
    in_shift: bool,
    in_conv: bool,
}

impl Looks {
    fn add(&mut self, other: Looks) {
        self.in_shift |= other.in_shift;
        self.in_conv |= other.in_conv;
    }
}

/// The dim along which an op looks back, the number of positions, and which op it is.
fn looks_back(op: &Op, size: impl Fn(DimId) -> u64) -> Option<(DimId, u64, Looks)> {
    if let Op::Shift { over, by } = op {
        return Some((*over, *by, Looks { in_shift: true, in_conv: false }));
    }
    let Op::Conv { over, taps } = op else { return None };
    // The last tap is for the position itself; with a single tap no position before it is seen.
    let back = size(*taps).checked_sub(1).filter(|back| *back > 0)?;
    Some((*over, back, Looks { in_shift: false, in_conv: true }))
}

/// Whether all parts together pass on no more positions, `told` each, than one part has.
fn is_little(parts: u64, size: u64, told: u64) -> bool {
    parts.saturating_mul(parts).saturating_mul(told) <= size
}

/// For a choice of the largest entries of a whole dim: the dim, and the dim of the chosen entries.
fn choice(op: &Op) -> Option<(DimId, DimId)> {
    if let Op::TopK { over, to, parts: None } | Op::ArgTopK { over, to, parts: None } = op {
        Some((*over, *to))
    } else {
        None
    }
}

/// The numbers of parts into which a dim of a size may be cut, more than one and fewer than its
/// size: the most that the axes of the mesh may split it into together, which is the greatest
/// common divisor of the size and the number of devices, and the size of each axis that divides it.
fn parts_of(mesh: &Mesh, size: u64) -> BTreeSet<u64> {
    let of_all = gcd(size, mesh.devices());
    let of_one = mesh.axis_ids().map(|axis| mesh.size(axis)).filter(|n| size.is_multiple_of(*n));
    of_one.chain([of_all]).filter(|parts| 1 < *parts && *parts < size).collect()
}

/// The dims and cuts that are being made.
struct Making {
    dims: Vec<Dim>,
    cuts: Cuts,
}

impl Making {
    /// Makes a dim of a size, with the name of the dim `of` and the first number that is free.
    fn dim(&mut self, of: DimId, size: u64) -> DimId {
        let stem = self.dims[of.index()].name.clone();
        let free = (1u64..)
            .map(|number| format!("{stem}{number}"))
            .find(|name| self.dims.iter().all(|dim| dim.name != *name));
        let name = free.unwrap_or(stem);
        self.dims.push(Dim { name, size, useful: size });
        DimId(self.dims.len() as u16 - 1)
    }

    /// Whether `more` dims fit below the limit, which the declared dims may reach already.
    fn has_room_for(&self, more: usize) -> bool {
        self.dims.len() + more <= MAX_DIMS
    }

    fn blocks(&mut self, of: DimId, parts: u64, is_scanned: bool) {
        if self.has_room_for(3) {
            let positions = self.dims[of.index()].size / parts;
            let (blocks, within) = (self.dim(of, parts), self.dim(of, positions));
            let one = is_scanned.then(|| self.dim(of, 1));
            self.cuts.lines.push(Blocks { of, blocks, within, positions, one });
        }
    }

    /// The dims of the blocks of a dim and of the positions in a block: existing ones where the dim
    /// is already cut into such blocks, else new ones.
    fn blocks_and_within(&mut self, of: DimId, parts: u64, positions: u64) -> (DimId, DimId) {
        let of_lines = self.cuts.lines.iter().map(|l| (l.of, l.positions, l.blocks, l.within));
        let of_halos = self.cuts.halos.iter().map(|h| (h.of, h.positions, h.blocks, h.within));
        match of_lines.chain(of_halos).find(|known| (known.0, known.1) == (of, positions)) {
            Some((.., blocks, within)) => (blocks, within),
            None => (self.dim(of, parts), self.dim(of, positions)),
        }
    }

    fn halo(&mut self, of: DimId, parts: u64, back: u64, looks: Looks) {
        if self.has_room_for(5) {
            let positions = self.dims[of.index()].size / parts;
            let (blocks, within) = self.blocks_and_within(of, parts, positions);
            let seen = self.dim(of, back);
            let others = looks.in_shift.then(|| self.dim(of, positions - back));
            let around = looks.in_conv.then(|| self.dim(of, 2 * back));
            let halo = Halo { of, blocks, within, positions, back, seen, others, around };
            self.cuts.halos.push(halo);
        }
    }

    /// Makes candidates where each part has more entries than are chosen; else a part would pass on
    /// all of them.
    fn candidates(&mut self, of: DimId, chosen: DimId, parts: u64) {
        let (of_all, size) = (self.dims[of.index()].size, self.dims[chosen.index()].size);
        if size < of_all / parts && self.has_room_for(1) {
            let all = self.dim(of, size * parts);
            self.cuts.choices.push(Candidates { of, chosen, parts, all });
        }
    }
}
