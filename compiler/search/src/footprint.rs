//! What plans hold in memory at each step, as far as it is decided: never more than they will, so
//! that a plan in the making that has no room already is given up.
//!
//! A step is the place of an op in the program; the search settles values from the last step to the
//! first. A step has three [`Moment`]s: what its op reads is moved, the op runs, what it makes is
//! moved. Of a value that is not settled its readers are known, and so what is held of it for sure:
//! a layout from its first reader to its last, and before its first reader the smallest layout from
//! which moves lead there. Once it is settled, the moments are known at which each of its layouts
//! comes and goes ([`Lives`]). What a folded block reads from outside is held longer than that,
//! throughout the block, and what stands between its steps is moved out of it: never less is held
//! so.

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

/// A layout of a value that is not settled, and the first and the last moment that reads it, of
/// those settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LayoutUse {
    value: ValueId,
    layout: LayoutId,
    first: Moment,
    last: Moment,
}

// In two words: a search hashes the uses of each state that it looks at.
impl Hash for LayoutUse {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.value.0) << 32 | u64::from(self.layout));
        state.write_u64(u64::from(self.first) << 32 | u64::from(self.last));
    }
}

/// What is decided of the memory of a plan in the making, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// Weights and caches, beyond the least that they take.
    kept: u64,
    /// Activations given to the layer that are settled: they are there from its first step.
    standing: u64,
    /// Sorted by value and layout.
    uses: Vec<LayoutUse>,
    /// Moments at which more may turn out to be held; the last first.
    open: Vec<HeldAt>,
    /// The most that is held at a moment that is not open any more.
    closed: u64,
}

/// What is held at a moment, as far as that is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HeldAt {
    at: Moment,
    /// Throughout the moment.
    all: u64,
    /// More than that while one of the moves runs that run then.
    moved: u64,
    /// What is shown by a view that is moved then.
    shown: Option<Shown>,
}

/// A value that is not settled, held in a layout while a view of it is moved to what reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shown {
    value: ValueId,
    layout: LayoutId,
    /// What else is held than throughout the moment: the view as it becomes.
    beside: u64,
}

impl HeldAt {
    fn new(at: Moment, all: u64, moved: u64) -> HeldAt {
        HeldAt { at, all, moved, shown: None }
    }

    fn most(&self) -> u64 {
        self.all.saturating_add(self.moved)
    }

    /// Whether it is no more than another, of the same step, and will be no more.
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
    /// The readers of what is not settled: of two plans in the making that agree in these, one that
    /// holds no more anywhere will hold no more anywhere.
    pub(crate) fn uses(&self) -> &[LayoutUse] {
        &self.uses
    }

    /// Whether it holds no more than another of the same uses, at any moment and for good.
    pub(crate) fn is_within(&self, other: &Footprint) -> bool {
        let mut others = other.open.iter().peekable();
        self.kept <= other.kept
            && self.standing <= other.standing
            && self.closed <= other.closed
            && self.open.iter().all(|held| {
                while others.next_if(|other| other.at > held.at).is_some() {}
                // What else is held behind an op is held while it runs, too: that stands for a way
                // which moves nothing behind it.
                let is_comparable = |other: &&HeldAt| {
                    other.at == held.at || (is_behind(held.at) && held.at == other.at + 1)
                };
                let same = others.peek().copied().filter(is_comparable);
                same.is_some_and(|other| held.is_within(other))
            })
    }

    /// Figures that are no more than those of another footprint where this one is within it.
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

    /// The most that is held at once beside weights and caches.
    fn most(&self) -> u64 {
        self.open.iter().map(HeldAt::most).fold(self.closed, u64::max)
    }

    /// Becomes another one, in the memory that it has.
    pub(crate) fn copy_from(&mut self, other: &Footprint) {
        self.uses.clone_from(&other.uses);
        self.open.clone_from(&other.open);
        (self.kept, self.standing, self.closed) = (other.kept, other.standing, other.closed);
    }

    /// Where the uses of a value stand.
    fn uses_of(&self, value: ValueId) -> Range<usize> {
        let first = self.uses.partition_point(|u| u.value < value);
        let count = self.uses[first..].iter().take_while(|u| u.value == value).count();
        first..first + count
    }

    /// Notes that a layout of a value is read at a moment, the first so far, and up to another.
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

/// So many steps of a program have a figure of their own in a sketch: the most that is held at a
/// moment of them. What is held at a moment is compared with what is at another of the same step.
/// Three figures are of what is kept, standing, and closed.
const STEPS_OF_A_SKETCH: usize = 32;
const FIGURES: usize = STEPS_OF_A_SKETCH + 3;

/// Bytes as a figure that is no less for more of them: the upper half of their floating-point form.
fn roughly(bytes: u64) -> u32 {
    ((bytes as f64).to_bits() >> 32) as u32
}

/// A few figures of a [`Footprint`]: most that are not within another one are told by these alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketch([u32; FIGURES]);

impl Sketch {
    /// Whether a footprint of this sketch may be within one of another.
    pub(crate) fn may_be_within(&self, other: &Sketch) -> bool {
        // All of them at once are compared sooner than one after another.
        self.0.iter().zip(&other.0).fold(true, |all, (own, of)| all & (own <= of))
    }
}

/// What holding a value means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holding {
    /// It has memory of its own from when it is made: an op's.
    Made,
    /// It has memory of its own from the first step: an activation given to the layer.
    Given,
    /// It is there throughout in the layout in which it is stored, and counted apart: a weight, a
    /// cache.
    Kept,
    /// In the layout in which it is made it is its operand under another name.
    View,
    /// It is in no memory of the device, or a number.
    Nowhere,
}

/// What the values of a program take, and when.
pub(crate) struct Holdings<'a> {
    program: &'a Program,
    tables: &'a Tables,
    memory: &'a DeviceMemory<'a>,
    kinds: Vec<Holding>,
    /// For each value and layout what it takes.
    bytes: Vec<Vec<u64>>,
    /// For each value and layout what it takes beside what is counted apart; 0 where it may be
    /// that.
    copies: Vec<Vec<u64>>,
    /// For each value and layout what the value takes at least before it is in that layout.
    least: Vec<Vec<u64>>,
    /// For a composite, each kernel that it leads and each layout of its operand in which it is
    /// computed in pieces: what other pieces its last one reads, and what of the operand is held no
    /// more then, if nothing else reads it then or later.
    pieces: FxHashMap<(ValueId, usize, LayoutId), (u64, u64)>,
    /// For each value whether moves lead anywhere.
    moves: Vec<bool>,
    /// For each value whether a reader is a `reshard`: what moves to that alone stands there.
    resharded: Vec<bool>,
    /// For each value whether it stands among the values of a folded block that it is not of.
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
        // Where the last piece does without the operand, that may be gone.
        let gone = match self.kinds[operand.index()] {
            _ if last.reads_operand => 0,
            Holding::View => self.bytes(*operand, *layout),
            _ => self.copies[operand.index()][*layout as usize],
        };
        self.pieces.insert(key, (last.bytes, gone));
    }

    /// What is held while a value is made beyond what its kernel reads and makes.
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

    /// A result is wanted in a layout.
    pub(crate) fn add_output(&self, held: &mut Footprint, value: ValueId, layout: LayoutId) {
        let end = self.end();
        if held.open.is_empty() {
            held.open.push(HeldAt::new(before(end), 0, 0));
        }
        held.read(self, value, layout, op_at(end), op_at(end));
    }

    /// The step behind all ops, at which results are given back.
    fn end(&self) -> u32 {
        self.program.values.len() as u32
    }

    /// A value is settled; `None` where that leaves no room. Moves may pass through a layout
    /// `twice`, which is held for each then.
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

    /// What any plan needs that is decided so far as this one.
    pub(crate) fn needed(&self, held: &Footprint) -> u64 {
        let kept = self.memory.least().saturating_add(held.kept);
        kept.saturating_add(held.most().max(self.memory.activations()))
    }

    /// Notes what is held of a value that is settled, and what it is made from.
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
                // A view is held as long as what it shows.
                let shows = self.kinds[value.index()] == Holding::View && n == 0;
                let now = op_at(step);
                let last = if shows { lives.made().to.max(now) } else { now };
                held.read(self, *operand, *layout, now, last);
            }
        }
        held.close();
    }

    /// Notes at a moment what is held then of a value that is settled; of a view, what it shows is
    /// given.
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

    /// Whether a move of a value stays where its first reader is, at the step of this moment: what
    /// stands among the values of a folded block is moved out of it.
    fn stays(&self, value: ValueId, at: Moment) -> bool {
        let fold = |id: usize| self.program.values.get(id).and_then(|value| value.fold);
        let reader = (at / 3) as usize;
        let among = self.among_a_block.get(reader).copied().unwrap_or(false);
        fold(value.index()) == fold(reader) && !among
    }

    fn layout(&self, value: ValueId, layout: LayoutId) -> Layout {
        self.tables.of(value).layouts[layout as usize]
    }

    /// What a value takes in a layout beside what is counted apart.
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

    /// For each layout of a value, what the value takes at least in that layout or in one from
    /// which moves lead there.
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

    /// What is held for sure at a moment of a value that is not settled, all of whose readers from
    /// that moment on are known.
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

/// For each value whether it stands between the first and the last value of a folded block, and is
/// not of that block.
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

    /// What may be held at some moments of two steps, and at one that shares their figure.
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
