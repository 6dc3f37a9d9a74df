//! The trees of moves of a value to two wanted layouts: a path to the layout in which they part
//! (the trunk), and from there one path to each.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::paths::{Moving, PathBudget, Paths, Until};
use super::trees::{FoundTrees, ListedTree, MoveTree};
use crate::cost::Cost;
use crate::steiner::Steiner;
use crate::table::LayoutId;

/// How many trees are compared at most.
const MAX_TREES: usize = 20_000;

/// Where the paths of a tree part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PartAt {
    /// Where the value is made.
    Made,
    /// At the first wanted layout.
    First,
    /// At the second.
    Second,
    /// At a layout that is not wanted.
    Elsewhere,
}

/// The bytes that a tree holds at each time, in an order that trees of one shape share.
type HeldBytes = Vec<u64>;

/// The trees of one shape hold the same at the same time: where the paths part, whether that layout
/// is there as soon as the value is made, and which paths begin with moves that are done then.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Shape {
    part_at: PartAt,
    is_early: bool,
    begin_early: [bool; 3],
}

/// A path from the layout in which two paths part to one of the wanted layouts. All its moves are
/// done right before the first reader. It has no moves where the paths part at the wanted layout.
#[derive(Clone, Copy)]
struct Late {
    cost: Cost,
    at: LayoutId,
    next: Option<usize>,
    held: u64,
}

/// The paths to a wanted layout from all other layouts, without those that cost and hold no less
/// than another.
struct LatePaths {
    all: Vec<Late>,
    kept: BTreeMap<LayoutId, Vec<usize>>,
    /// What a tree costs at least that has a path which was not looked at.
    unlisted: Option<Cost>,
}

impl LatePaths {
    /// The paths to the layout `to` that may be in trees of at most `upto` picoseconds. `from_made`
    /// has for each layout the least cost of coming there. No path passes through the `other`
    /// wanted layout, nor through the layout in which the value is made.
    fn to(
        of: Moving<'_>,
        to: LayoutId,
        other: LayoutId,
        made_in: LayoutId,
        from_made: &[Option<Cost>],
        upto: u64,
    ) -> LatePaths {
        let mut paths = LatePaths { all: Vec::new(), kept: BTreeMap::new(), unlisted: None };
        paths.all.push(Late { cost: Cost::ZERO, at: to, next: None, held: 0 });
        let mut queue = BinaryHeap::from([Reverse((Cost::ZERO, 0usize))]);
        while let Some(Reverse((_, number))) = queue.pop() {
            let path = paths.all[number];
            // A path that passes a layout twice costs and holds no less than one that does not, so
            // that it is left out here.
            if paths.is_known(path) {
                continue;
            }
            paths.kept.entry(path.at).or_default().push(number);
            if path.at == other {
                continue;
            }
            let arcs = &of.table.arcs_into[path.at as usize];
            for arc in arcs.iter().filter(|arc| arc.from != made_in) {
                let held = path.held.max(of.held(arc.from, path.at));
                let cost = path.cost + arc.cost;
                let longer = Late { cost, at: arc.from, next: Some(number), held };
                let Some(before) = from_made[arc.from as usize] else { continue };
                let least = before + cost;
                if least.time > upto {
                    paths.unlisted = paths.unlisted.into_iter().chain([least]).min();
                } else if !paths.is_known(longer) {
                    queue.push(Reverse((cost, paths.all.len())));
                    paths.all.push(longer);
                }
            }
        }
        paths
    }

    /// Whether a path is left out since a known one from the same layout holds no more.
    fn is_known(&self, path: Late) -> bool {
        self.from(path.at).iter().any(|known| self.all[*known].held <= path.held)
    }

    fn from(&self, from: LayoutId) -> &[usize] {
        self.kept.get(&from).map_or(&[], Vec::as_slice)
    }

    fn through(&self, number: usize) -> Vec<LayoutId> {
        let way = std::iter::successors(Some(number), |number| self.all[*number].next);
        way.map(|number| self.all[number].at).collect()
    }
}

/// One of the paths that a tree consists of.
struct TreePart {
    cost: Cost,
    /// Its first moves are done as soon as the value is made.
    begins_early: bool,
    /// The bytes that it holds, as [`Path::held`](super::paths::Path::held) orders them.
    held: [u64; 4],
    /// The layouts that it passes through, the first and the last too.
    through: Vec<LayoutId>,
}

impl TreePart {
    fn of(paths: &Paths<'_>, number: usize) -> TreePart {
        let path = paths.path(number);
        let begins_early = path.early > 0;
        TreePart {
            cost: path.cost,
            begins_early,
            held: path.held(),
            through: paths.through(number),
        }
    }

    fn late(paths: &LatePaths, number: usize) -> TreePart {
        let Late { cost, held, .. } = paths.all[number];
        let through = paths.through(number);
        TreePart { cost, begins_early: false, held: [0, 0, 0, held], through }
    }
}

/// The moves of the tree that these parts make, and the layout in which two of them meet again, if
/// they do.
fn joined(parts: [&TreePart; 3]) -> (Vec<(LayoutId, LayoutId)>, Option<LayoutId>) {
    let (mut moves, mut meet): (Vec<(LayoutId, LayoutId)>, _) = (Vec::new(), None);
    for pair in parts.iter().flat_map(|part| part.through.windows(2)) {
        if moves.iter().any(|(_, to)| *to == pair[1]) {
            meet = Some(pair[1]);
        }
        moves.push((pair[0], pair[1]));
    }
    (moves, meet)
}

/// For each layout the least cost of moving there from one layout, `None` where that takes longer
/// than `upto` picoseconds; and the least cost of those that take longer.
fn least_from(of: Moving<'_>, from: LayoutId, upto: u64) -> (Vec<Option<Cost>>, Option<Cost>) {
    let mut least = vec![None; of.table.layouts.len()];
    let mut behind: Option<Cost> = None;
    least[from as usize] = Some(Cost::ZERO);
    let mut queue = BinaryHeap::from([Reverse((Cost::ZERO, from))]);
    while let Some(Reverse((cost, at))) = queue.pop() {
        if least[at as usize].is_some_and(|known| known < cost) {
            continue;
        }
        for (to, own) in &of.table.arcs_from[at as usize] {
            let through = cost + *own;
            if through.time > upto {
                behind = behind.into_iter().chain([through]).min();
            } else if least[*to as usize].is_none_or(|known| through < known) {
                least[*to as usize] = Some(through);
                queue.push(Reverse((through, *to)));
            }
        }
    }
    (least, behind)
}

/// The least costs of moving to two layouts.
pub(super) struct LeastToTwo<'l> {
    pub(super) of: &'l Steiner,
    /// Each of the two layouts as a set of one.
    pub(super) sets: [usize; 2],
}

impl LeastToTwo<'_> {
    fn to(&self, target: usize, from: LayoutId) -> Option<Cost> {
        self.of.cost_of(self.sets[target], from)
    }

    fn both(&self, from: LayoutId) -> Option<Cost> {
        self.of.cost_of(self.sets[0] | self.sets[1], from)
    }

    /// What a tree costs at least beside a path of it that begins at one layout and has come to the
    /// layout `at`. The path leads on to one of the two layouts, and another path leads from where
    /// it begins to the other. If the path is the trunk, it may lead on to both.
    fn beside(&self, begins: LayoutId, is_trunk: bool, at: LayoutId) -> Option<Cost> {
        let apart = |own, other| Some(self.to(own, at)? + self.to(other, begins)?);
        let both = if is_trunk { self.both(at) } else { None };
        [apart(0, 1), apart(1, 0), both].into_iter().flatten().min()
    }
}

/// A tree that was found.
struct ForkedTree {
    cost: Cost,
    shape: Shape,
    held: HeldBytes,
    moves: Vec<(LayoutId, LayoutId)>,
    /// Two of its paths meet again, so that it is no tree. It stands for the trees that have
    /// another path in the place of one of the two, which costs and holds no less.
    meets: bool,
}

/// The trees that were found so far.
pub(super) struct ForkedTrees {
    found: Vec<ForkedTree>,
    /// What any tree costs at least that was not looked at.
    unlisted: Option<Cost>,
    /// Trees that take longer than this, in picoseconds, are not looked for.
    upto: u64,
}

impl ForkedTrees {
    /// The trees from the layout in which a value is made to two others, without those that cost
    /// and hold no less than another.
    pub(super) fn of(
        of: Moving<'_>,
        made_in: LayoutId,
        wanted: [LayoutId; 2],
        least: &LeastToTwo<'_>,
        mut left: PathBudget,
    ) -> FoundTrees {
        let layouts = 0..of.table.layouts.len() as LayoutId;
        let rest: Vec<_> = layouts.clone().map(|at| least.beside(made_in, true, at)).collect();
        let until = Until::Past(&wanted);
        let trunks = Paths::from_made(of, made_in, &until, &rest, &mut left);
        let mut forks =
            ForkedTrees { found: Vec::new(), unlisted: trunks.unlisted, upto: left.upto };
        let [first, second] = wanted;
        let (from_made, behind) = least_from(of, made_in, left.upto);
        forks.leaves_out(behind);
        let late = [(first, second), (second, first)]
            .map(|(to, other)| LatePaths::to(of, to, other, made_in, &from_made, left.upto));
        late.iter().for_each(|paths| forks.leaves_out(paths.unlisted));
        let at_once = wanted.map(|to| -> Vec<TreePart> {
            trunks.numbers(to).map(|number| TreePart::of(&trunks, number)).collect()
        });
        let none = TreePart {
            cost: Cost::ZERO,
            begins_early: false,
            held: [0; 4],
            through: vec![made_in],
        };
        forks.add_from(of, &none, PartAt::Made, true, [&at_once[0], &at_once[1]]);
        // The layouts in which paths may part, that of the cheapest tree first: not all may be
        // looked at.
        let mut parting: Vec<(Cost, LayoutId)> = trunks
            .reached()
            .filter(|at| *at != made_in)
            .filter_map(|at| {
                let trunk = trunks.numbers(at).map(|number| trunks.path(number).cost).min()?;
                Some((trunk + least.both(at)?, at))
            })
            .collect();
        parting.sort_unstable();
        for (cost, at) in parting {
            if cost.time > left.upto {
                forks.leaves_out(Some(cost));
                break;
            }
            let part_at = match at {
                at if at == first => PartAt::First,
                at if at == second => PartAt::Second,
                _ => PartAt::Elsewhere,
            };
            let behind = |paths: &LatePaths| -> Vec<TreePart> {
                paths.from(at).iter().map(|number| TreePart::late(paths, *number)).collect()
            };
            let later = late.each_ref().map(behind);
            let mut early: Option<[Vec<TreePart>; 2]> = None;
            for number in trunks.numbers(at) {
                let trunk = TreePart::of(&trunks, number);
                let is_early = trunks.path(number).is_early;
                let [a, b] = if is_early {
                    &*early.get_or_insert_with(|| {
                        let behind = layouts.clone().map(|on| least.beside(at, false, on));
                        let rest: Vec<_> = behind.collect();
                        let upto = left.upto.saturating_sub(trunk.cost.time);
                        let mut behind = PathBudget { upto, ..left };
                        let on = Paths::on_from(of, at, made_in, &until, &rest, &mut behind);
                        left.paths = behind.paths;
                        forks.leaves_out(on.unlisted.map(|cost| cost + trunk.cost));
                        wanted.map(|to| on.numbers(to).map(|n| TreePart::of(&on, n)).collect())
                    })
                } else {
                    &later
                };
                forks.add_from(of, &trunk, part_at, is_early, [a, b]);
            }
        }
        forks.listed()
    }

    fn leaves_out(&mut self, cost: Option<Cost>) {
        self.unlisted = self.unlisted.into_iter().chain(cost).min();
    }

    /// Notes the trees that a trunk makes with each pair of paths behind it.
    fn add_from(
        &mut self,
        of: Moving<'_>,
        trunk: &TreePart,
        part_at: PartAt,
        is_early: bool,
        [to_first, to_second]: [&[TreePart]; 2],
    ) {
        for first in to_first {
            for second in to_second {
                let cost = trunk.cost + first.cost + second.cost;
                if cost.time > self.upto || self.found.len() >= MAX_TREES {
                    self.leaves_out(Some(cost));
                    continue;
                }
                let parts = [trunk, first, second];
                let at = trunk.through.last().map_or(0, |at| of.bytes(*at));
                let (moves, meet) = joined(parts);
                // The tree that parts in the layout where the two paths meet costs no more. It also
                // holds no more where these paths part late, in a layout that is not wanted and
                // that is no smaller: then the layout where they meet is held in its place.
                let is_within =
                    |meet| part_at == PartAt::Elsewhere && !is_early && of.bytes(meet) <= at;
                if meet.is_some_and(is_within) {
                    continue;
                }
                let begin_early = parts.map(|part| part.begins_early);
                let held = parts.iter().flat_map(|part| part.held).chain([at]).collect();
                let shape = Shape { part_at, is_early, begin_early };
                let meets = meet.is_some();
                self.found.push(ForkedTree { cost, shape, held, moves, meets });
            }
        }
    }

    fn listed(mut self) -> FoundTrees {
        let place = |fork: &ForkedTree| (fork.cost, fork.meets, fork.shape);
        self.found.sort_by(|a, b| (place(a), &a.moves).cmp(&(place(b), &b.moves)));
        let mut kept: BTreeMap<Shape, Vec<(bool, HeldBytes)>> = BTreeMap::new();
        let mut trees = Vec::new();
        for ForkedTree { cost, shape, held, moves, meets } in self.found {
            let known = kept.entry(shape).or_default();
            // A fork whose paths meet is no tree, so that it leaves no tree out.
            let is_within = |(known_meets, known): &(bool, HeldBytes)| {
                (meets || !known_meets) && known.iter().zip(&held).all(|(known, own)| known <= own)
            };
            if known.iter().any(is_within) {
                continue;
            }
            known.push((meets, held));
            let tree = MoveTree { cost, moves: moves.into() };
            trees.push(if meets { ListedTree::Vague(tree) } else { ListedTree::Exact(tree) });
        }
        FoundTrees { trees, unlisted: self.unlisted }
    }
}
