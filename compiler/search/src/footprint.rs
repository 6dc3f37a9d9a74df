//! What a plan in the making holds in memory at each step, as far as that is decided. The figures
//! are never more than the whole plan will hold, so that a plan in the making which has no room
//! already can be given up.
//!
//! A step is the place of an op in the program; the search settles values from the last step to the
//! first. A step has three [`Moment`]s: what its op reads is moved, the op runs, what it makes is
//! moved. The readers of a value that is not settled are known, and tell what is surely held of it:
//! each layout from its first reader to its last, and before its first reader the smallest layout
//! from which moves lead there. Once a value is settled, the moments are known at which each of its
//! layouts comes and goes ([`Lives`]). A plan may hold more than that: what a folded block reads
//! from outside is held throughout the block, and what stands between the steps of a block is moved
//! out of it.

mod lives;

use std::hash::{Hash, Hasher};
use std::ops::Range;

use rustc_hash::FxHashMap;
use shard_ir::{Def, Layout, ParameterKind, Program, ValueId};

use crate::in_pieces::held_by_the_last;
use crate::kernel::Kernels;
use crate::memory::DeviceMemory;
use crate::strict::may_move_to;
use crate::table::{LayoutId, Producer, Source, Tables};
use lives::{Lives, Moment, before, behind, is_behind, op_at, step_of};

/// A layout of a value that is not settled, with the first and the last moment at which a settled
/// reader reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LayoutUse {
    value: ValueId,
    layout: LayoutId,
    first: Moment,
    last: Moment,
}

// Two words are hashed, since a search hashes the uses of each state that it looks at.
impl Hash for LayoutUse {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.value.0) << 32 | u64::from(self.layout));
        state.write_u64(u64::from(self.first) << 32 | u64::from(self.last));
    }
}

/// What a plan in the making holds, as far as that is decided, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// What settled weights and caches take beyond the least that they may take.
    kept: u64,
    /// What settled activations take that are given to the layer: they are there from its first
    /// step.
    standing: u64,
    /// The uses of values that are not settled, sorted by value and layout.
    uses: Vec<LayoutUse>,
    /// The moments at which more may turn out to be held; the last first.
    open: Vec<HeldAt>,
    /// The most that is held at any moment that is not open any more.
    closed: u64,
}

/// What is held at a moment, as far as that is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HeldAt {
    at: Moment,
    /// The bytes held throughout the moment.
    all: u64,
    /// The most bytes held beside these while one of the moves of the moment runs.
    moved: u64,
    /// The value that is shown by a view which is moved at the moment.
    shown: Option<Shown>,
}

/// A value that is not settled, held in a layout while a view of it is moved to what reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shown {
    value: ValueId,
    layout: LayoutId,
    /// The bytes of the layout to which the view is moved, beyond what is held throughout the
    /// moment.
    beside: u64,
}

impl HeldAt {
    fn new(at: Moment, all: u64, moved: u64) -> HeldAt {
        HeldAt { at, all, moved, shown: None }
    }

    fn most(&self) -> u64 {
        self.all.saturating_add(self.moved)
    }

    /// Whether it is no more than another of the same step, whatever is settled next.
    fn is_within(&self, other: &HeldAt) -> bool {
        let shown = match (self.shown, other.shown) {
            (None, _) => true,
            (Some(own), Some(of)) => {
                Shown { beside: 0, ..own } == Shown { beside: 0, ..of } && own.beside <= of.beside
            }
            (Some(_), None) => false,
        };
        shown && self.all <= other.all && self.most() <= other.most()
    }
}

impl Footprint {
    /// The uses of values that are not settled. Of two footprints with the same uses, one that is
    /// within the other stays within it, whatever is settled next.
    pub(crate) fn uses(&self) -> &[LayoutUse] {
        &self.uses
    }

    /// Whether it holds no more at any moment than another with the same uses, and never will.
    pub(crate) fn is_within(&self, other: &Footprint) -> bool {
        let mut others = other.open.iter().peekable();
        self.kept <= other.kept
            && self.standing <= other.standing
            && self.closed <= other.closed
            && self.open.iter().all(|held| {
                while others.next_if(|other| other.at > held.at).is_some() {}
                // What is held behind an op is compared with what the other holds while the op
                // runs, if the other has no moves behind the op.
                let is_comparable = |other: &&HeldAt| {
                    other.at == held.at || (is_behind(held.at) && held.at == other.at + 1)
                };
                let same = others.peek().copied().filter(is_comparable);
                same.is_some_and(|other| held.is_within(other))
            })
    }

    /// Its sketch: where one footprint is within another, no figure of its sketch is greater.
    pub(crate) fn sketch(&self) -> Sketch {
        let mut figures = [0u32; FIGURES];
        let mut note = |figure: usize, bytes: u64| {
            figures[figure] = roughly(bytes).max(figures[figure]);
        };
        note(FIGURES - 3, self.kept);
        note(FIGURES - 2, self.standing);
        note(FIGURES - 1, self.closed);
        for held in &self.open {
            note(step_of(held.at) as usize % STEPS_OF_A_SKETCH, held.most());
        }
        Sketch(figures)
    }

    /// The most that is held at one moment beside weights and caches.
    fn most(&self) -> u64 {
        self.open.iter().map(HeldAt::most).fold(self.closed, u64::max)
    }

    /// Becomes a copy of another one, and keeps its own allocations.
    pub(crate) fn copy_from(&mut self, other: &Footprint) {
        self.uses.clone_from(&other.uses);
        self.open.clone_from(&other.open);
        (self.kept, self.standing, self.closed) = (other.kept, other.standing, other.closed);
    }

    /// The range of the uses of a value.
    fn uses_of(&self, value: ValueId) -> Range<usize> {
        let first = self.uses.partition_point(|u| u.value < value);
        let count = self.uses[first..].iter().take_while(|u| u.value == value).count();
        first..first + count
    }

    /// Notes that a layout of a value is read at the moment `first`, before all known uses of it,
    /// and is needed up to the moment `last`.
    fn read(
        &mut self,
        of: &Holdings<'_>,
        value: ValueId,
        layout: LayoutId,
        first: Moment,
        last: Moment,
    ) {
        let known = self.uses_of(value);
        for HeldAt { at, all, .. } in &mut self.open {
            *all = all.saturating_sub(of.surely_held(&self.uses[known.clone()], *at));
        }
        let of_value = &mut self.uses[known.clone()];
        let mut end = known.end;
        match of_value.binary_search_by_key(&layout, |u| u.layout) {
            Ok(at) => {
                let same = &mut of_value[at];
                (same.first, same.last) = (first.min(same.first), last.max(same.last));
            }
            Err(at) => {
                self.uses.insert(known.start + at, LayoutUse { value, layout, first, last });
                end += 1;
            }
        }
        for HeldAt { at, all, .. } in &mut self.open {
            *all = all.saturating_add(of.surely_held(&self.uses[known.start..end], *at));
        }
    }

    /// Closes the moments at which nothing more can turn out to be held.
    fn close(&mut self) {
        let last = self.uses.iter().map(|u| u.last).max().unwrap_or(0);
        let is_closed = |held: &&HeldAt| held.at > last && held.shown.is_none();
        let closed = self.open.iter().take_while(is_closed).count();
        self.closed = self.open.drain(..closed).map(|held| held.most()).fold(self.closed, u64::max);
    }
}

/// How many steps of a program have a figure of their own in a sketch: the most that is held at a
/// moment of the step. Steps whose numbers differ by a multiple of this share a figure.
const STEPS_OF_A_SKETCH: usize = 32;

/// The figures of a sketch: those of steps, and one each for what is kept, standing, and closed.
const FIGURES: usize = STEPS_OF_A_SKETCH + 3;

/// Bytes as a figure that grows with them: the upper half of their floating-point form.
fn roughly(bytes: u64) -> u32 {
    ((bytes as f64).to_bits() >> 32) as u32
}

/// A few figures of a [`Footprint`], which mostly tell that it is not within another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketch([u32; FIGURES]);

impl Sketch {
    /// Whether a footprint of this sketch may be within one of another.
    pub(crate) fn may_be_within(&self, other: &Sketch) -> bool {
        // Without a branch for each figure the comparison is vectorised, and faster.
        self.0.iter().zip(&other.0).fold(true, |all, (own, of)| all & (own <= of))
    }
}

/// How a value occupies memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holding {
    /// The result of an op: it has memory of its own from when it is made.
    Made,
    /// An activation given to the layer: it has memory of its own from the first step.
    Given,
    /// A weight or a cache: it is there throughout in the layout in which it is stored, and counted
    /// apart.
    Kept,
    /// In the layout in which it is made it is its operand under another name.
    View,
    /// A number, or what is not in the memory of the device.
    Nowhere,
}

/// What the values of a program take in memory, and when.
pub(crate) struct Holdings<'a> {
    program: &'a Program,
    tables: &'a Tables,
    memory: &'a DeviceMemory<'a>,
    kinds: Vec<Holding>,
    /// For each value and layout its bytes.
    bytes: Vec<Vec<u64>>,
    /// For each value and layout its bytes as a copy; 0 where the layout may be memory that is
    /// counted apart.
    copies: Vec<Vec<u64>>,
    /// For each value and layout the least bytes that the value takes before it is in that layout.
    least: Vec<Vec<u64>>,
    /// By composite, kernel that it leads and layout of its operand, where it is computed in
    /// pieces: the bytes of other pieces that its last one reads, and the bytes of the operand that
    /// are gone by then, unless something else reads it.
    pieces: FxHashMap<(ValueId, usize, LayoutId), (u64, u64)>,
    /// For each value whether it has any moves.
    moves: Vec<bool>,
    /// For each value whether a reader is a `reshard`. A move that leads to the `reshard` alone
    /// stands where the `reshard` does.
    resharded: Vec<bool>,
    /// For each value whether it stands between the values of a folded block and is not of it.
    among_a_block: Vec<bool>,
}

impl<'a> Holdings<'a> {
    pub(crate) fn new(
        kernels: &'a Kernels,
        tables: &'a Tables,
        memory: &'a DeviceMemory<'a>,
    ) -> Holdings<'a> {
        let program = kernels.program.as_ref();
        let kinds: Vec<Holding> = program.value_ids().map(|id| kind(program, memory, id)).collect();
        let of_layouts = |id| {
            let layouts = tables.of(id).layouts.iter();
            layouts.map(|layout| memory.bytes(id, *layout)).collect()
        };
        let bytes = program.value_ids().map(of_layouts).collect();
        let (copies, least) = (Vec::new(), Vec::new());
        let pieces = FxHashMap::default();
        let mut resharded = vec![false; program.values.len()];
        for id in program.value_ids().filter(|id| may_move_to(program, *id)) {
            program.value(id).def.operands().iter().for_each(|o| resharded[o.index()] = true);
        }
        let among_a_block = among_a_block(program);
        let moves = |id| tables.of(id).arcs_from.iter().any(|arcs| !arcs.is_empty());
        let moves = program.value_ids().map(moves).collect();
        let mut holdings = Holdings {
            program,
            tables,
            memory,
            kinds,
            bytes,
            copies,
            least,
            pieces,
            moves,
            resharded,
            among_a_block,
        };
        for id in program.value_ids() {
            let layouts = 0..tables.of(id).layouts.len() as LayoutId;
            holdings.copies.push(layouts.map(|layout| holdings.copy(id, layout)).collect());
            holdings.least.push(holdings.least_before(id));
        }
        for id in program.value_ids() {
            for producer in tables.of(id).producers.iter().flatten() {
                holdings.add_pieces(kernels, id, producer);
            }
        }
        holdings
    }

    fn add_pieces(&mut self, kernels: &Kernels, id: ValueId, producer: &Producer) {
        let (Source::Kernel(number, _), Some((operand, layout))) =
            (&producer.source, producer.reads.first())
        else {
            return;
        };
        let key = (id, *number, *layout);
        let Some(first) = kernels.of[id.index()][*number].chain.first() else { return };
        if kernels.site(*first).dim_in_pieces().is_none() || self.pieces.contains_key(&key) {
            return;
        }
        let Some(last) = held_by_the_last(kernels, *first, self.layout(*operand, *layout)) else {
            return;
        };
        // The operand may be gone where the last piece does not read it.
        let gone = match self.kinds[operand.index()] {
            _ if last.reads_operand => 0,
            Holding::View => self.bytes(*operand, *layout),
            _ => self.copies[operand.index()][*layout as usize],
        };
        self.pieces.insert(key, (last.bytes, gone));
    }

    /// What is held while a kernel makes a value, beyond what the kernel reads and makes.
    fn of_pieces(&self, held: &Footprint, value: ValueId, producer: &Producer) -> u64 {
        let (Source::Kernel(number, _), Some((operand, layout))) =
            (&producer.source, producer.reads.first())
        else {
            return 0;
        };
        let Some((bytes, gone)) = self.pieces.get(&(value, *number, *layout)) else { return 0 };
        let uses = &held.uses[held.uses_of(*operand)];
        let stays = producer.reads[1..].contains(&producer.reads[0])
            || uses.iter().any(|u| u.layout == *layout && u.last > op_at(value.0));
        bytes.saturating_sub(if stays { 0 } else { *gone })
    }

    /// Notes that a result is wanted in a layout.
    pub(crate) fn add_output(&self, held: &mut Footprint, value: ValueId, layout: LayoutId) {
        let end = self.end();
        if held.open.is_empty() {
            held.open.push(HeldAt::new(before(end), 0, 0));
        }
        held.read(self, value, layout, op_at(end), op_at(end));
    }

    /// The step behind all ops, which reads the results.
    fn end(&self) -> u32 {
        self.program.values.len() as u32
    }

    /// Notes that a value is settled; `None` where the plan does not fit then. With `twice`, moves
    /// may pass through a layout several times, which is then held for each of them.
    pub(crate) fn settle(
        &self,
        held: &mut Footprint,
        value: ValueId,
        made_in: LayoutId,
        producer: &Producer,
        moves: &[(LayoutId, LayoutId)],
        twice: bool,
    ) -> Option<()> {
        if producer.source == Source::Given {
            held.kept = held
                .kept
                .saturating_add(self.memory.beyond_least(value, self.layout(value, made_in)));
        }
        self.note(held, value, made_in, producer, moves, twice);
        self.memory.holds(self.needed(held)).then_some(())
    }

    /// What any plan needs that has this footprint, in bytes.
    pub(crate) fn needed(&self, held: &Footprint) -> u64 {
        let kept = self.memory.least().saturating_add(held.kept);
        kept.saturating_add(held.most().max(self.memory.activations()))
    }

    /// Notes what is held of a value that is settled, and of what it is made from.
    fn note(
        &self,
        held: &mut Footprint,
        value: ValueId,
        made_in: LayoutId,
        producer: &Producer,
        moves: &[(LayoutId, LayoutId)],
        twice: bool,
    ) {
        let step = value.0;
        let own = held.uses_of(value);
        let uses = &held.uses[own.clone()];
        let lives = self.lives(value, made_in, moves, twice, uses);
        let of_view = producer.reads.first().filter(|_| self.kinds[value.index()] == Holding::View);
        for open in &mut held.open {
            self.note_at(open, value, &lives, uses, of_view.copied());
        }
        held.uses.drain(own);
        let in_place = !self.resharded[value.index()];
        held.closed = held.closed.max(lives.most_of_a_move());
        if producer.source == Source::Given {
            if self.kinds[value.index()] == Holding::Given {
                held.standing = held.standing.saturating_add(lives.made().bytes);
            }
        } else {
            let others = |held: &Footprint, at: Moment| {
                let of_each = held.uses.chunk_by(|a, b| a.value == b.value);
                of_each.map(|of| self.surely_held(of, at)).fold(held.standing, u64::saturating_add)
            };
            if let Some(moved) = lives.while_completed(step, |_| true).filter(|_| in_place) {
                let all = others(held, behind(step));
                let of_made = lives.while_completed(step, |source| source == 0);
                let shown = of_view.zip(of_made);
                let shown = shown.map(|(&(value, layout), beside)| Shown { value, layout, beside });
                held.open.push(HeldAt { shown, ..HeldAt::new(behind(step), all, moved) });
            }
            let own = lives.at(op_at(step)).saturating_add(self.of_pieces(held, value, producer));
            let all = others(held, op_at(step)).saturating_add(own);
            held.open.push(HeldAt::new(op_at(step), all, 0));
            if producer.reads.iter().any(|(operand, _)| self.moves[operand.index()]) {
                let all = others(held, before(step));
                held.open.push(HeldAt::new(before(step), all, 0));
            }
            for (n, (operand, layout)) in producer.reads.iter().enumerate() {
                // What a view shows is held as long as the view.
                let shows = self.kinds[value.index()] == Holding::View && n == 0;
                let now = op_at(step);
                let last = if shows { lives.made().to.max(now) } else { now };
                held.read(self, *operand, *layout, now, last);
            }
        }
        held.close();
    }

    /// Notes what is held at a moment of a value that is settled. `of_view` is what the value
    /// shows, where it is a view.
    fn note_at(
        &self,
        held: &mut HeldAt,
        value: ValueId,
        lives: &Lives,
        uses: &[LayoutUse],
        of_view: Option<(ValueId, LayoutId)>,
    ) {
        let known = self.surely_held(uses, held.at);
        let throughout = lives.throughout(held.at, known);
        held.all = held.all.saturating_add(throughout).saturating_sub(known);
        let more = |most: u64| most.saturating_sub(throughout);
        if let Some(shown) = held.shown.filter(|shown| shown.value == value) {
            let read = lives.while_shown(shown.layout, held.at).map(more);
            let moved = read.map_or(0, |read| read.saturating_add(shown.beside));
            held.moved = held.moved.max(moved);
            let of_view = of_view.filter(|_| shown.layout == lives.made().layout);
            held.shown = of_view.map(|(value, layout)| Shown { value, layout, ..shown });
        }
        if self.stays(value, held.at) {
            let moved = lives.while_moved(held.at).map_or(0, more);
            held.moved = held.moved.max(moved);
            if let (Some((value, layout)), None) = (of_view, held.shown) {
                let beside = lives.while_view_moved(held.at).map(more);
                held.shown = beside.map(|beside| Shown { value, layout, beside });
            }
        }
    }

    /// Whether a move of a value stands where its first reader does, at the step of this moment. It
    /// does not if it is moved out of a folded block, or into one.
    fn stays(&self, value: ValueId, at: Moment) -> bool {
        let fold = |id: usize| self.program.values.get(id).and_then(|value| value.fold);
        let reader = (at / 3) as usize;
        let among = self.among_a_block.get(reader).copied().unwrap_or(false);
        fold(value.index()) == fold(reader) && !among
    }

    fn layout(&self, value: ValueId, layout: LayoutId) -> Layout {
        self.tables.of(value).layouts[layout as usize]
    }

    /// The bytes of a copy of a value in a layout; 0 where the layout may be memory that is counted
    /// apart.
    fn copy(&self, value: ValueId, layout: LayoutId) -> u64 {
        let producers = &self.tables.of(value).producers[layout as usize];
        let apart = match self.kinds[value.index()] {
            Holding::Made | Holding::Given => false,
            Holding::Kept => producers.iter().any(|p| p.source == Source::Given),
            Holding::View => !producers.is_empty(),
            Holding::Nowhere => true,
        };
        if apart { 0 } else { self.bytes(value, layout) }
    }

    /// For each layout of a value, the bytes of the smallest among this layout and those from which
    /// moves lead there.
    fn least_before(&self, value: ValueId) -> Vec<u64> {
        let (table, copies) = (self.tables.of(value), &self.copies[value.index()]);
        let mut least: Vec<Option<u64>> = vec![None; copies.len()];
        let mut smallest_first: Vec<LayoutId> = (0..copies.len() as LayoutId).collect();
        smallest_first.sort_by_key(|layout| copies[*layout as usize]);
        for from in smallest_first {
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                if least[at as usize].is_none() {
                    least[at as usize] = Some(copies[from as usize]);
                    open.extend(table.arcs_from[at as usize].iter().map(|(to, _)| *to));
                }
            }
        }
        least.into_iter().zip(copies).map(|(least, copy)| least.unwrap_or(*copy)).collect()
    }

    /// What is surely held at a moment of a value that is not settled. All readers of the value
    /// from that moment on must be known.
    fn surely_held(&self, uses: &[LayoutUse], at: Moment) -> u64 {
        let there = |u: &&LayoutUse| u.first <= at && at <= u.last;
        if uses.iter().any(|u| there(&u)) {
            let copies =
                uses.iter().filter(there).map(|u| self.copies[u.value.index()][u.layout as usize]);
            return copies.fold(0, u64::saturating_add);
        }
        let later = uses.iter().filter(|u| u.first > at);
        later.map(|u| self.least[u.value.index()][u.layout as usize]).max().unwrap_or(0)
    }
}

fn kind(program: &Program, memory: &DeviceMemory<'_>, value: ValueId) -> Holding {
    match &program.value(value).def {
        _ if program.in_host_memory(value) => Holding::Nowhere,
        Def::Parameter { kind: ParameterKind::Activation, .. } => Holding::Given,
        Def::Parameter { .. } => Holding::Kept,
        Def::Constant(_) => Holding::Nowhere,
        Def::Pin { .. } => Holding::View,
        Def::Op { .. } if memory.shares_memory(value) => Holding::View,
        Def::Op { .. } => Holding::Made,
    }
}

/// For each value whether it stands between the first and the last value of a folded block that it
/// is not of.
fn among_a_block(program: &Program) -> Vec<bool> {
    let mut among = vec![false; program.values.len()];
    for fold in 0..program.folds.len() {
        let is_of = |id: &ValueId| program.value(*id).fold.is_some_and(|of| of.index() == fold);
        let (first, last) = (program.value_ids().find(is_of), program.value_ids().rfind(is_of));
        for id in program.value_ids().filter(|id| first <= Some(*id) && Some(*id) <= last) {
            among[id.index()] |= !is_of(&id);
        }
    }
    among
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Footprints that hold something at some moments of two steps, and at a moment of a third step
    /// that shares a figure with one of them.
    fn footprints() -> Vec<Footprint> {
        let moments = [behind(2), op_at(2), before(2), behind(1), op_at(1)];
        let far = op_at(2 + STEPS_OF_A_SKETCH as u32);
        let mut all = Vec::new();
        for held in 0..1 << moments.len() {
            for bytes in [0, 1, 2, 1 << 53] {
                let is_held = |n: &usize| held & (1 << n) != 0;
                let at = |n: usize| HeldAt::new(moments[n], bytes, n as u64);
                let first = HeldAt::new(far, bytes, 0);
                let open = std::iter::once(first).filter(|_| held % 2 == 0);
                let open = open.chain((0..moments.len()).filter(is_held).map(at)).collect();
                all.push(Footprint { kept: bytes / 2, closed: 2, open, ..Footprint::default() });
            }
        }
        all
    }

    #[test]
    fn a_footprint_within_another_has_a_sketch_that_may_be() {
        let all = footprints();
        let (mut within, mut told_apart) = (0, 0);
        for one in &all {
            for other in &all {
                let may_be = one.sketch().may_be_within(&other.sketch());
                assert!(may_be || !one.is_within(other), "{one:?}\n{other:?}");
                within += usize::from(one.is_within(other));
                told_apart += usize::from(!may_be);
            }
        }
        assert!(within > all.len() && told_apart > all.len(), "{within}, {told_apart}");
    }
}
