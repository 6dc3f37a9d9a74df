//! Which sets of steps are tried.

use std::cmp::Reverse;

use shard_ir::{Picoseconds, ValueId};

use super::super::climb::{Climb, Climbed, SetBounder, Through};
use super::super::weighed::Weighed;
use super::{FirstOrLast, MovesToReaders, Step, Steps};
use crate::relax::factors::ValueUse;

/// Cases are not looked at if the bound falls short of `enough` by at most one part in this many.
const NEAR: u64 = 50;

/// A way of completing a set, given the steps that it begins with.
type Completion<'b> = &'b dyn Fn(&[Step]) -> Vec<Step>;

/// At most this many new sets are added to a mean; the first that raises the bound by less than one
/// part in [`FINE_CUT`] is the last.
const CUTS: usize = 6;
const FINE_CUT: u64 = 1000;

/// This many moves are tried that may be done beside some kernel.
const MOVES: usize = 16;

impl Steps<'_> {
    /// The largest bound of some sets and their means, and the cases that were looked at. A bound
    /// of `enough` ends the climb.
    pub(in crate::overlapped) fn largest<'l>(
        &self,
        path: &[ValueId],
        enough: Picoseconds,
        bounder: &'l mut SetBounder<'l>,
    ) -> (Climbed, Vec<Vec<FirstOrLast>>) {
        let mut climb = Climb::new(enough, bounder);
        let trunk = self.trunk();
        let sets = self.sets(path, &trunk);
        climb.add(sets.into_iter().map(|set| vec![set]));
        self.add_moves_one_by_one(path, &trunk, &mut climb);
        let mut cases = Vec::new();
        let mut at = climb.climb();
        let is_near = climb.best + Picoseconds(enough.0 / NEAR) >= enough;
        if !is_near {
            cases = self.choices(&trunk);
            let chosen = cases.iter().map(|chosen| {
                let steps = Steps { case: chosen.clone(), ..self.clone() };
                steps.weighed(&steps.around(&trunk))
            });
            climb.add(std::iter::once(chosen.collect()));
            at = climb.climb();
        }
        let (at, of_mean) = self.add_cuts(&mut climb, at, &cases);
        (climb.ended(at, of_mean), cases)
    }

    /// Adds sets that take longer than the bound in the plan that the mean favours, as long as
    /// means with them are better. Returns the best mean, and the bounds that it gives for
    /// strategies.
    pub(in crate::overlapped) fn add_cuts(
        &self,
        climb: &mut Climb<'_>,
        mut at: Vec<Weighed>,
        cases: &[Vec<FirstOrLast>],
    ) -> (Vec<Weighed>, Through) {
        let mut of_mean = climb.finish(&at);
        for _ in 0..CUTS {
            if climb.best >= climb.enough {
                break;
            }
            let before = climb.best;
            let Some(set) = self.cut(&of_mean, cases, before.0) else { break };
            if !climb.add_one(set) {
                break;
            }
            at = climb.with_more_of(at, climb.sets.len() - 1);
            of_mean = climb.finish(&at);
            if climb.best.0 - before.0 <= before.0 / FINE_CUT {
                break;
            }
        }
        (at, of_mean)
    }

    /// Tries sets with moves that may be done beside some kernels, and without these kernels: such
    /// a move may take longer than the kernels that it replaces. Each move that raises the bound of
    /// the set stays.
    fn add_moves_one_by_one(&self, path: &[ValueId], trunk: &[ValueId], climb: &mut Climb<'_>) {
        let of_cores = |first: &[Step]| self.of_cores(first, path, trunk);
        let along = |first: &[Step]| self.along(first, path);
        let completions: [Completion<'_>; 2] = [&of_cores, &along];
        for completed in completions {
            let mut kept: Vec<Step> = Vec::new();
            let mut set = completed(&kept);
            let mut best = climb.of(&self.weighed(&set));
            for step in self.left_out(&set) {
                if climb.best >= climb.enough {
                    return;
                }
                if set.contains(&step) || !self.fits(&kept, step) {
                    continue;
                }
                let with: Vec<Step> = kept.iter().copied().chain([step]).collect();
                let other = completed(&with);
                let found = climb.of(&self.weighed(&other));
                if found > best {
                    (best, kept, set) = (found, with, other);
                }
            }
        }
    }

    /// The moves of values to one reader that do not fit in a set, since they may be done beside
    /// some kernel. Only those of the largest values, the largest first.
    fn left_out(&self, set: &[Step]) -> Vec<Step> {
        let program = self.kernels.program.as_ref();
        let bytes = |id: ValueId| {
            let value = program.value(id);
            value.dtype.bytes(program.sizes(&value.dims).into_iter().fold(1, u64::saturating_mul))
        };
        let moves = self.problem.live.iter().flat_map(|id| self.moves_of(*id));
        let mut moves: Vec<(u64, Step)> = moves
            .filter(|step| !set.contains(step) && self.are_exclusive(*step, *step))
            .filter_map(|step| match step {
                Step::Moving(MovesToReaders { value, only: Some(_) }) => Some((bytes(value), step)),
                Step::Moving(..)
                | Step::Streaming(..)
                | Step::Computing(_)
                | Step::Making(_)
                | Step::Sending(_) => None,
            })
            .collect();
        moves.sort_by_key(|(bytes, _)| Reverse(*bytes));
        moves.truncate(MOVES);
        moves.into_iter().map(|(_, step)| step).collect()
    }

    /// A set that begins with `first`: then all kernels that fit, then all moves that fit.
    fn of_cores(&self, first: &[Step], path: &[ValueId], trunk: &[ValueId]) -> Vec<Step> {
        let mut set: Vec<Step> = first.to_vec();
        self.add(&mut set, self.computing());
        self.add(&mut set, path.iter().map(|id| Step::Moving(MovesToReaders::to_all(*id))));
        self.add(&mut set, self.moves_along(path));
        self.add(&mut set, self.moves_along(trunk));
        self.add(&mut set, self.problem.live.iter().rev().flat_map(|id| self.moves_of(*id)));
        set
    }

    /// The moves of a value to all of its readers, and to each one.
    pub(super) fn moves_of(&self, value: ValueId) -> impl Iterator<Item = Step> {
        let readers = self.problem.uses[value.index()].iter().filter_map(|of| match of {
            ValueUse::Operand(reader, _) => Some(*reader),
            ValueUse::Output(_) => None,
        });
        let readers = std::iter::once(None).chain(readers.map(Some));
        readers.map(move |only| Step::Moving(MovesToReaders { value, only }))
    }

    /// A set that begins with the moves of the case: then all kernels that fit, then all moves that
    /// fit.
    fn around(&self, trunk: &[ValueId]) -> Vec<Step> {
        let mut set = Vec::new();
        self.add(&mut set, self.case.iter().map(|of| Step::Moving(of.moved)));
        self.add(&mut set, self.computing());
        self.add(&mut set, self.moves_along(trunk));
        self.add(&mut set, self.problem.live.iter().rev().flat_map(|id| self.moves_of(*id)));
        set
    }

    /// A set that begins with `first`: then the steps along a path that fit, each value moved to
    /// the next one and made, then all kernels and moves that fit.
    fn along(&self, first: &[Step], path: &[ValueId]) -> Vec<Step> {
        let mut of_path = first.to_vec();
        self.add(&mut of_path, self.moves_along(path));
        let made = path.iter().filter(|id| self.is_op(**id));
        self.add(&mut of_path, made.map(|id| Step::Making(*id)));
        self.with_all_else(of_path)
    }

    /// The moves of each value of a path to the next value: only to that one, if the value has
    /// other readers.
    fn moves_along(&self, path: &[ValueId]) -> impl Iterator<Item = Step> {
        let readers = std::iter::once(None).chain(path.iter().copied().map(Some));
        path.iter().zip(readers).map(|(id, to)| {
            let is_read_by_one = self.problem.uses[id.index()].len() == 1;
            Step::Moving(MovesToReaders { value: *id, only: to.filter(|_| !is_read_by_one) })
        })
    }

    /// The sets without cases with which a climb begins.
    fn sets(&self, path: &[ValueId], trunk: &[ValueId]) -> Vec<Weighed> {
        let live = || self.problem.live.iter().copied();
        let sends = |id: &ValueId| self.costs.sending[id.index()].iter().any(|cost| *cost > 0);
        let to_all = || live().rev().map(MovesToReaders::to_all).map(Step::Moving);
        // One set along the critical path, and one along the longest way through ops.
        let along = [path, trunk].map(|path| self.weighed(&self.along(&[], path)));
        let mut sets = vec![self.weighed(&self.of_cores(&[], path, trunk))];
        sets.extend(along);
        // One set of everything that is sent. If only one move is done at a time, the kernels that
        // fit are added.
        if self.moves_at_once == 1 {
            let mut of_links: Vec<Step> = Vec::new();
            self.add(&mut of_links, to_all().chain(live().filter(sends).map(Step::Sending)));
            self.add(&mut of_links, self.computing());
            sets.push(self.weighed(&of_links));
        } else {
            let mut links = self.nothing_weighed();
            for id in live() {
                links.moving[id.index()] = self.unit() / self.moves_at_once;
                links.sending[id.index()] = self.unit() / self.moves_at_once;
            }
            sets.push(links);
        }
        // One set for each stream of the network, and one for the mean of all streams.
        let streams = self.streams.of_networks().len();
        if streams > 1 {
            for stream in 0..streams {
                let mut links = self.nothing_weighed();
                links.on_stream.iter_mut().for_each(|of| of[stream] = self.unit());
                sets.push(links);
            }
            let mut links = self.nothing_weighed();
            let share = self.unit() / streams as u64;
            links.on_stream.iter_mut().for_each(|of| of.fill(share));
            sets.push(links);
        }
        sets
    }
}
