//! Paths of moves of a value: what each costs, what it holds, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use crate::cost::Cost;
use crate::footprint::Holdings;
use crate::table::{LayoutId, ValueTable};

/// How many paths are looked at for one list of trees, the cheapest first.
pub(super) const MAX_PATHS: usize = 2_000;

/// A value that is moved, with its table and with what its moves hold.
#[derive(Clone, Copy)]
pub(super) struct Moving<'p> {
    pub(super) holdings: &'p Holdings<'p>,
    pub(super) value: ValueId,
    pub(super) table: &'p ValueTable,
}

impl Moving<'_> {
    pub(super) fn bytes(&self, layout: LayoutId) -> u64 {
        self.holdings.bytes(self.value, layout)
    }

    /// The bytes that a move holds: the layouts before and after it.
    pub(super) fn held(&self, from: LayoutId, to: LayoutId) -> u64 {
        self.bytes(from).saturating_add(self.bytes(to))
    }
}

/// How far paths are looked for.
pub(super) enum Until<'u> {
    /// To this layout.
    Reached(LayoutId),
    /// To all layouts, and not on from these.
    Past(&'u [LayoutId]),
}

/// For each layout what a tree costs at least beside a path of it that has come there; `None` where
/// there is no such tree.
pub(super) type Rest<'r> = &'r [Option<Cost>];

/// What may still be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathBudget {
    /// The number of paths.
    pub(super) paths: usize,
    /// The longest time of a tree, in picoseconds.
    pub(super) upto: u64,
}

/// A path to some layout. The bytes are what it holds beside the wanted layouts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) cost: Cost,
    pub(super) at: LayoutId,
    /// The number of the path without the last move.
    before: Option<usize>,
    /// All its moves are done as soon as the value is made, and the next move may be, too.
    pub(super) is_early: bool,
    /// How many of its first moves are done as soon as the value is made.
    pub(super) early: usize,
    /// The bytes that the first move makes, where the path begins where the value is made. The move
    /// also holds the value as it is made, which may be counted apart.
    first: u64,
    /// The most bytes that one of the other moves holds that are done as soon as the value is made.
    at_once: u64,
    /// The bytes held from then to the first reader; 0 where these are of the layout in which the
    /// path begins.
    between: u64,
    /// The most bytes that one of the other moves holds, which are done before the first reader.
    late: u64,
}

impl Path {
    /// The bytes that it holds, in the order of time.
    pub(super) fn held(&self) -> [u64; 4] {
        [self.first, self.at_once, self.between, self.late]
    }

    /// Whether it holds no more at any time than another path.
    fn is_within(&self, other: &Path) -> bool {
        let is_less = self.held().into_iter().zip(other.held()).all(|(own, other)| own <= other);
        (self.early > 0) == (other.early > 0) && is_less
    }

    /// Whether it holds no more at any time than another path, however the other goes on.
    fn stays_within(&self, other: &Path) -> bool {
        match (other.is_early, other.early) {
            (true, 0) => false,
            (true, _) => self.is_within(&Path { between: 0, ..*other }),
            (false, _) => self.is_within(other),
        }
    }
}

/// The paths of a value from one layout, without those that cost and hold no less than another path
/// to the same layout.
pub(super) struct Paths<'p> {
    of: Moving<'p>,
    all: Vec<Path>,
    /// The paths that are not left out, the cheapest first, by the layout to which they lead and by
    /// whether the next move may be early.
    kept: FxHashMap<(LayoutId, bool), Vec<usize>>,
    /// What a tree costs at least that has a path which was not looked at.
    pub(super) unlisted: Option<Cost>,
    /// The layout in which the value is made, if the paths do not begin there.
    made_in: Option<LayoutId>,
}

impl<'p> Paths<'p> {
    /// The paths from the layout in which the value is made.
    pub(super) fn from_made(
        of: Moving<'p>,
        from: LayoutId,
        until: &Until<'_>,
        rest: Rest<'_>,
        left: &mut PathBudget,
    ) -> Paths<'p> {
        let is_early = of.holdings.may_move_early(of.value);
        Paths::empty(of, None).spread(from, is_early, until, rest, left)
    }

    /// The paths from another layout, which is there as soon as the value is made. No path passes
    /// through the layout in which the value is made.
    pub(super) fn on_from(
        of: Moving<'p>,
        from: LayoutId,
        made_in: LayoutId,
        until: &Until<'_>,
        rest: Rest<'_>,
        left: &mut PathBudget,
    ) -> Paths<'p> {
        Paths::empty(of, Some(made_in)).spread(from, true, until, rest, left)
    }

    fn empty(of: Moving<'p>, made_in: Option<LayoutId>) -> Paths<'p> {
        let (all, kept) = (Vec::new(), FxHashMap::default());
        Paths { of, all, kept, unlisted: None, made_in }
    }

    fn spread(
        mut self,
        from: LayoutId,
        is_early: bool,
        until: &Until<'_>,
        rest: Rest<'_>,
        left: &mut PathBudget,
    ) -> Paths<'p> {
        let mut queue = BinaryHeap::from([Reverse((Cost::ZERO, 0))]);
        let (cost, before) = (Cost::ZERO, None);
        let [first, at_once, between, late] = [0; 4];
        let start =
            Path { cost, at: from, before, is_early, early: 0, first, at_once, between, late };
        self.all.push(start);
        while let Some(Reverse((cost, number))) = queue.pop() {
            let path = self.all[number];
            let is_left_out = match until {
                Until::Reached(to) => {
                    self.numbers(*to).any(|end| self.all[end].stays_within(&path))
                }
                Until::Past(_) => false,
            };
            if is_left_out || self.is_known(number) {
                continue;
            }
            if left.paths == 0 {
                self.leaves_out(cost);
                break;
            }
            left.paths -= 1;
            self.kept.entry((path.at, path.is_early)).or_default().push(number);
            let is_end = match until {
                Until::Reached(to) => *to == path.at,
                Until::Past(ends) => path.at != from && ends.contains(&path.at),
            };
            if is_end {
                continue;
            }
            let table = self.of.table;
            for (to, cost) in &table.arcs_from[path.at as usize] {
                let Some(rest) = rest[*to as usize] else { continue };
                let least = path.cost + *cost + rest;
                if least.time > left.upto {
                    self.leaves_out(least);
                    continue;
                }
                let is_passed = self.way(number).any(|known| self.all[known].at == *to);
                if is_passed || self.made_in == Some(*to) {
                    continue;
                }
                let longer = self.longer(number, *to, *cost);
                let next = self.all.len();
                self.all.push(longer);
                // Most paths are left out at once, and need not wait for their turn.
                if self.is_known(next) {
                    self.all.pop();
                } else {
                    queue.push(Reverse((least, next)));
                }
            }
        }
        self
    }

    fn leaves_out(&mut self, least: Cost) {
        self.unlisted = self.unlisted.into_iter().chain([least]).min();
    }

    /// A path made longer by a move.
    fn longer(&self, number: usize, to: LayoutId, cost: Cost) -> Path {
        let path = self.all[number];
        let (held, made) = (self.of.held(path.at, to), self.of.bytes(to));
        let is_early = path.is_early && self.of.holdings.is_early(self.of.value, path.at, to);
        let mut longer =
            Path { cost: path.cost + cost, at: to, before: Some(number), is_early, ..path };
        if self.made_in.is_none() && path.before.is_none() {
            longer.first = made;
        } else if is_early {
            longer.at_once = path.at_once.max(held);
        } else {
            longer.late = path.late.max(held);
        }
        if is_early {
            (longer.early, longer.between) = (path.early + 1, made);
        }
        longer
    }

    /// Whether a path is left out for one that is kept and leads to the same layout.
    fn is_known(&self, number: usize) -> bool {
        let path = &self.all[number];
        let known = self.kept.get(&(path.at, path.is_early)).into_iter().flatten();
        known.copied().any(|known| {
            // This path must pass through all early layouts of the other: it could otherwise go on
            // through one of them, which the other could not.
            let is_passed =
                |known: usize| self.way(number).any(|own| self.all[own].at == self.all[known].at);
            let is_early = |known: &usize| self.all[*known].is_early;
            self.all[known].is_within(path)
                && (self.all[known].early <= 1 || self.way(known).filter(is_early).all(is_passed))
        })
    }

    /// A path, the path without its last move, and so on to the first layout.
    fn way(&self, number: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(number), |number| self.all[*number].before)
    }

    /// All layouts to which paths lead.
    pub(super) fn reached(&self) -> impl Iterator<Item = LayoutId> {
        let mut layouts: Vec<LayoutId> = self.kept.keys().map(|(layout, _)| *layout).collect();
        layouts.sort_unstable();
        layouts.dedup();
        layouts.into_iter()
    }

    /// The paths to a layout, by number.
    pub(super) fn numbers(&self, to: LayoutId) -> impl Iterator<Item = usize> {
        let of = move |is_early| self.kept.get(&(to, is_early)).into_iter().flatten().copied();
        of(true).chain(of(false))
    }

    pub(super) fn path(&self, number: usize) -> &Path {
        &self.all[number]
    }

    /// The layouts that a path passes through, from the first to the last.
    pub(super) fn through(&self, number: usize) -> Vec<LayoutId> {
        let mut through: Vec<LayoutId> = self.way(number).map(|path| self.all[path].at).collect();
        through.reverse();
        through
    }
}
