//! Paths of moves of a value: what each costs, and what is held on it and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use crate::cost::Cost;
use crate::footprint::Holdings;
use crate::table::{LayoutId, ValueTable};

/// For one list of trees so many paths are looked at, the cheapest first.
pub(super) const MAX_PATHS: usize = 2_000;

/// A value, its moves and what they hold.
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

    /// What a move holds.
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

/// For each layout what a tree costs at least whose path has come there, beside that path; `None`
/// where there is no such tree.
pub(super) type Rest<'r> = &'r [Option<Cost>];

/// What may still be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathBudget {
    /// So many paths.
    pub(super) paths: usize,
    /// Trees that take no longer, in picoseconds.
    pub(super) upto: u64,
}

/// A path to some layout. All that is held is so beside the layouts that others read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) cost: Cost,
    pub(super) at: LayoutId,
    /// The path that this one is longer than by one move.
    before: Option<usize>,
    /// All its moves are done as soon as the value is made, and so may be the next.
    pub(super) is_early: bool,
    /// How many of its moves, the first, are.
    pub(super) early: usize,
    /// What the first move makes, where the path begins where the value is made: it holds that and
    /// the value as it is made, which may be counted apart.
    first: u64,
    /// What any other move holds that is done as soon as the value is made.
    at_once: u64,
    /// What is held from then to the first reader; 0 where it is what the path begins with.
    between: u64,
    /// What any other move holds that is done before the first reader.
    late: u64,
}

impl Path {
    /// What it holds, in the order of time.
    pub(super) fn held(&self) -> [u64; 4] {
        [self.first, self.at_once, self.between, self.late]
    }

    /// Whether it holds no more at any time than another path.
    fn is_within(&self, other: &Path) -> bool {
        let is_less = self.held().into_iter().zip(other.held()).all(|(own, other)| own <= other);
        (self.early > 0) == (other.early > 0) && is_less
    }

    /// The same, however the other goes on.
    fn stays_within(&self, other: &Path) -> bool {
        match (other.is_early, other.early) {
            (true, 0) => false,
            (true, _) => self.is_within(&Path { between: 0, ..*other }),
            (false, _) => self.is_within(other),
        }
    }
}

/// The paths of a value from one layout, but those that cost and hold no less than another to the
/// same layout.
pub(super) struct Paths<'p> {
    of: Moving<'p>,
    all: Vec<Path>,
    /// Those that are not left out, by the layout and whether the next move may be early; the
    /// cheapest first.
    kept: FxHashMap<(LayoutId, bool), Vec<usize>>,
    /// What any path costs that was not looked at.
    pub(super) unlisted: Option<Cost>,
    /// Where the value is made, if that is not where the paths begin.
    made_in: Option<LayoutId>,
}

impl<'p> Paths<'p> {
    /// Those from where the value is made.
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

    /// Those from another layout, which is there as soon as the value is made. None passes through
    /// the layout in which the value is made.
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
                // Most are: they do not wait for their turn.
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

    /// Whether a path is left out for one that leads as far.
    fn is_known(&self, number: usize) -> bool {
        let path = &self.all[number];
        let known = self.kept.get(&(path.at, path.is_early)).into_iter().flatten();
        known.copied().any(|known| {
            // What the other passes through early this one must pass through too: else it may be
            // what this one goes on by.
            let is_passed =
                |known: usize| self.way(number).any(|own| self.all[own].at == self.all[known].at);
            let is_early = |known: &usize| self.all[*known].is_early;
            self.all[known].is_within(path)
                && (self.all[known].early <= 1 || self.way(known).filter(is_early).all(is_passed))
        })
    }

    /// A path and all that it is longer than.
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
