//! The moves of values inside a region.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, RegroupTimes};
use shard_ir::{AxisSet, Collective, Dtype, Layout, Program, Reduction, ValueId};

use super::moves::Movable;
use crate::relax::Region;
use crate::space::MovesByLayout;
use crate::times::{MoveKey, move_cost};

/// Works out the moves of the values of a program inside a region, as they are asked for.
pub(crate) struct MovesInside<'p> {
    program: &'p Program,
    maxima: AxisSet,
    times: RegroupTimes<'p>,
    known: &'p mut KnownMoves,
}

/// Moves and their times, by all that the moves of a value depend on. They are the same in every
/// region, and in every program with the same mesh, chip and maxima.
#[derive(Default)]
pub(crate) struct KnownMoves(FxHashMap<(Movable, Dtype), AlikeMoves>);

impl KnownMoves {
    /// The number of moves.
    pub(crate) fn len(&self) -> usize {
        let of = |known: &AlikeMoves| {
            known.from.values().map(Vec::len).sum::<usize>() + known.exchanges.len()
        };
        self.0.values().map(of).sum()
    }
}

/// The moves of values whose moves are alike. Of such values a region may have different layouts,
/// and allow moves of different times.
#[derive(Default)]
struct AlikeMoves {
    from: FxHashMap<Layout, Vec<(Layout, Timed)>>,
    exchanges: FxHashMap<(Layout, Layout), Option<Timed>>,
}

/// A move, and the time of doing it once, in picoseconds, which is worked out when it is first
/// asked for.
#[derive(Clone)]
struct Timed {
    collective: Collective,
    time: OnceCell<u64>,
}

impl Timed {
    fn new(collective: Collective) -> Timed {
        Timed { collective, time: OnceCell::new() }
    }
}

impl<'p> MovesInside<'p> {
    pub(crate) fn new(
        program: &'p Program,
        hardware: &'p Hardware,
        maxima: AxisSet,
        known: &'p mut KnownMoves,
    ) -> MovesInside<'p> {
        let times = RegroupTimes::new(hardware, &program.mesh);
        MovesInside { program, maxima, times, known }
    }

    /// The moves of a value inside a region; `None` where they are more than `most`.
    pub(crate) fn of(
        &mut self,
        id: ValueId,
        movable: Movable,
        region: &Region,
        most: usize,
    ) -> Option<MovesByLayout> {
        let MovesInside { program, maxima, times, known } = self;
        let (mesh, sums) = (&program.mesh, program.mesh.all_axes());
        let value = program.value(id);
        let AlikeMoves { from: known, exchanges: exchanged } =
            known.0.entry((movable.clone(), value.dtype)).or_default();
        let mut time_of = |from: Layout, to: Layout, Timed { collective, time }: &Timed| {
            *time.get_or_init(|| {
                let moved = MoveKey {
                    dims: &value.dims,
                    dtype: value.dtype,
                    collective: *collective,
                    from_layout: from,
                    to_layout: to,
                };
                move_cost(program, times, &moved).time
            })
        };
        let mut sorted: Vec<Layout> = region.layouts[id.index()].iter().copied().collect();
        sorted.sort_unstable();
        // Exchanges lead to layouts that the same axes split.
        let split_by = |l: &Layout| {
            let partials = [Reduction::Sum, Reduction::Max].map(|kind| l.partial(kind));
            (l.split_axes(), partials, l.softmax_axes())
        };
        let mut groups: FxHashMap<_, Vec<Layout>> = FxHashMap::default();
        for layout in &sorted {
            groups.entry(split_by(layout)).or_default().push(*layout);
        }
        let is_exchanged = |group: &&mut Vec<Layout>| movable.is_exchanged(mesh, group[0]);
        groups.values_mut().filter(|group| !is_exchanged(group)).for_each(Vec::clear);
        let is_worth = |longest: u64, once: &mut dyn FnMut() -> u64| {
            longest == u64::MAX || once().saturating_mul(value.times) <= longest
        };
        let mut of_layout = |from: Layout| {
            let longest = region.longest_move(id, from);
            let mut within = Vec::new();
            if !sorted.iter().any(|to| *to != from && longest(*to).is_some()) {
                return (from, within);
            }
            let all = known.entry(from).or_insert_with(|| {
                let all = movable.moves_but_exchanges_from(mesh, from, sums, *maxima).into_iter();
                all.map(|(collective, to)| (to, Timed::new(collective))).collect()
            });
            for (to, made) in all {
                let is_worth = |longest| is_worth(longest, &mut || time_of(from, *to, made));
                if longest(*to).is_some_and(is_worth) {
                    within.push((made.collective, *to));
                }
            }
            for to in &groups[&split_by(&from)] {
                let Some(longest) = longest(*to) else { continue };
                let made = exchanged.entry((from, *to)).or_insert_with(|| {
                    let made = movable.exchanges_to(mesh, from, std::iter::once(*to)).pop();
                    made.map(|(collective, _)| Timed::new(collective))
                });
                let Some(made) = made else { continue };
                if is_worth(longest, &mut || time_of(from, *to, made)) {
                    within.push((made.collective, *to));
                }
            }
            (from, within)
        };
        let (mut found, mut left) = (MovesByLayout::default(), most);
        for layout in &sorted {
            let (from, within) = of_layout(*layout);
            left = left.checked_sub(within.len())?;
            found.insert(from, within);
        }
        Some(found)
    }
}
