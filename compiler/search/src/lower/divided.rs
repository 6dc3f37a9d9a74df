//! Plans within memory, divided by the layouts in which values are made.
//!
//! The plans of all forms are divided again and again, the piece of least bound first: by the
//! layout of the value that decides most, and where no value decides anything, by what is stored. A
//! piece whose weights and caches fit however they are stored is searched.
//!
//! Dividing by what is stored alone does not get far in a program of many like layers. Prices there
//! mix two ways of doing a layer in every layer, and pay little for the change from one to the
//! other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use shard_ir::{Picoseconds, Program, ValueId};

use super::branches::Explored;
use super::fitting::{bounded_by, faster};
use super::{Fitting, Lowering};
use crate::kernel::Kernels;
use crate::logical::Saturated;
use crate::relax::{Branch, Fork, Undecided};
use crate::{Limits, LowerError, Lowered, Optimality, SearchLimit, Status};

/// The first question is for plans that exceed the bound by at most this part of the gap between
/// the bound and the best plan.
const FIRST_PART: u64 = 8;

/// Where a question is not answered, the next one is for a smaller part of the gap, down to this
/// one.
const LAST_PART: u64 = 64;

/// Each question may take this part of the limits.
const PART_OF_LIMITS: usize = 8;

/// Searching an e-node, with all ways of filling the memory, takes about as long as pricing so many
/// strategies.
const STRATEGIES_OF_A_NODE: usize = 4;

/// How many values are tried at most to find the one whose layout decides most.
const MOST_TRIED: usize = 64;

/// How many values that decided most of a piece are tried first in the pieces that it is divided
/// into.
const DECISIVE: usize = 6;

/// A value decides something if its likeliest layout lifts the bound by more than this part of the
/// bound.
const DECIDES: u64 = 1024;

/// How many layouts of a value, the likeliest, make a piece each; all others together make one
/// more.
const MOST_LAYOUTS: usize = 8;

/// How many sweeps tell how much a layout decides.
const SWEEPS_OF_A_TRIAL: usize = 6;

/// How many sweeps each piece gets.
const SWEEPS_OF_A_PIECE: usize = 24;

/// Where no value decides anything, pieces are divided so many times by what is stored before
/// values are tried again.
const STORED_IN_A_ROW: usize = 8;

/// Some plans of a form, with prices.
struct Piece {
    branch: Branch,
    /// The form, by number.
    form: usize,
    /// The values that decided most of the piece that this one was divided from.
    decisive: Vec<ValueId>,
    /// How many times it is to be divided by what is stored before values are tried.
    by_stored: usize,
}

/// Pieces that are still to be looked at. The one of least bound comes first; among equals the one
/// that was added last.
#[derive(Default)]
struct OpenPieces {
    order: BinaryHeap<Reverse<(u64, Reverse<usize>)>>,
    pieces: Vec<Option<Piece>>,
}

impl OpenPieces {
    fn push(&mut self, bound: u64, piece: Piece) {
        self.order.push(Reverse((bound, Reverse(self.pieces.len()))));
        self.pieces.push(Some(piece));
    }

    fn pop(&mut self) -> Option<(u64, Piece)> {
        let Reverse((bound, Reverse(at))) = self.order.pop()?;
        Some((bound, self.pieces[at].take()?))
    }
}

impl Fitting<'_> {
    /// The best plan so far or a faster one, with a better bound. The first question is for plans
    /// that take hardly more than the bound, since there are few; as long as a question is
    /// answered, the next one is for more plans. `effort` is what all questions may take.
    pub(super) fn divided(&self, found: Lowered, effort: usize) -> Result<Lowered, LowerError> {
        let (mut best, mut left, mut part) = (found, effort, FIRST_PART);
        while left > 0 && part <= LAST_PART && best.optimality.status != Status::Proven {
            let Optimality { cost, lower_bound: Picoseconds(bound), .. } = best.optimality;
            let below = bound + (cost.0.saturating_sub(bound) / part).max(1);
            let (effort, has_ended);
            (best, effort, has_ended) = self.divided_below(best, below.min(cost.0), left / 2)?;
            left = left.saturating_sub(effort.max(1));
            part = if has_ended { (part / 2).max(1) } else { part * 4 };
        }
        Ok(best)
    }

    /// The same for the plans that take less than `below` picoseconds, with at most the effort
    /// `most`. Also returns the effort that it took, and whether the question was answered.
    fn divided_below(
        &self,
        found: Lowered,
        below: u64,
        most: usize,
    ) -> Result<(Lowered, usize, bool), LowerError> {
        let limits = self.options.limits.part(PART_OF_LIMITS);
        let lowering = Lowering::asked(self.program, self.hardware, self.options);
        let capacity = Some(self.hardware.hbm_bytes);
        let mut lowering = Lowering { capacity, below: Some(below), limits: &limits, ..lowering };
        match lowering.explore_divided(self.program, below, most) {
            Ok(true) => {}
            Ok(false) | Err(LowerError::Limit { .. } | LowerError::OutOfTime) => {
                return Ok((found, most, false));
            }
            Err(other) => return Err(other),
        }
        let (effort, known) = (lowering.effort(), lowering.known().unwrap_or(below));
        let left = lowering.least_left().filter(|left| *left < known);
        let shown = Picoseconds(left.unwrap_or(known)).max(found.optimality.lower_bound);
        let best = match lowering.lowered(Some(self.program)) {
            Ok(better) => faster(found, better),
            Err(
                LowerError::Unreachable { .. } | LowerError::Limit { .. } | LowerError::OutOfTime,
            ) => found,
            Err(other) => return Err(other),
        };
        Ok((bounded_by(best, shown), effort, left.is_none()))
    }
}

impl Lowering<'_> {
    /// The effort so far: the number of strategies that were priced, where an e-node counts as
    /// several.
    fn effort(&self) -> usize {
        self.best.priced + self.best.stats.nodes * STRATEGIES_OF_A_NODE
    }

    /// Searches the plans that take less than `below` picoseconds, with at most the effort `most`.
    /// Returns `false` where the forms are too many to be listed, so that nothing is shown of them.
    fn explore_divided(
        &mut self,
        program: &Program,
        below: u64,
        most: usize,
    ) -> Result<bool, LowerError> {
        let saturated = Saturated::new(program, self.strict, self.limits);
        if self.whole_space || saturated.choices(self.limits).is_some() {
            return Ok(false);
        }
        let listed = saturated.forms(self.limits);
        self.best.cut = listed.cut.map(|cut| (cut.limit, cut.first_bound(program, self.hardware)));
        let (mut forms, mut open) = (Vec::new(), OpenPieces::default());
        for form in listed.all {
            if form.first_bound(self.hardware) >= below {
                continue;
            }
            let kernels = Kernels::of_form(form, self.all_written, self.loops, self.hardware);
            let (branch, whole) = self.all_plans_of(&kernels, false)?;
            let form = Explored::new(Arc::new(kernels), whole);
            let mut branch = self.leaving_room(branch, &form)?;
            self.settle(&mut branch, &form.kernels, Some(below - 1));
            if let Some(bound) = branch.bound().filter(|bound| *bound < below) {
                let (form, decisive, by_stored) = (forms.len(), Vec::new(), 0);
                open.push(bound, Piece { branch, form, decisive, by_stored });
            }
            forms.push(form);
        }
        while let Some((bound, piece)) = open.pop() {
            let below = self.known().map_or(below, |known| known.min(below));
            if bound >= below {
                break;
            }
            self.limits.stop.check_asked()?;
            if self.limits.stop.is_time_up() {
                self.best.leave(bound, SearchLimit::Time);
                break;
            }
            if self.effort() > most || self.has_searched_long(bound) {
                self.best.leave(bound, SearchLimit::Branches);
                break;
            }
            match self.divide(piece, &mut forms, bound, below - 1) {
                Ok(pieces) => pieces.into_iter().for_each(|(bound, piece)| open.push(bound, piece)),
                Err(LowerError::Limit { limit, .. }) => self.best.leave(bound, limit),
                // A plan that was found is kept.
                Err(LowerError::OutOfTime) => {
                    self.best.leave(bound, SearchLimit::Time);
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(true)
    }

    /// The plans of a branch that leave room for the activations that any plan of the form has.
    fn leaving_room(&self, branch: Branch, form: &Explored) -> Result<Branch, LowerError> {
        let Some(capacity) = self.capacity else { return Ok(branch) };
        let least = self.least_activations(form, capacity)?;
        Ok(branch.keeping_at_most(capacity.saturating_sub(least)))
    }

    /// Searches a piece or divides it. Returns the pieces that are still to be looked at, with
    /// bounds. Only plans that take at most `most` picoseconds are wanted.
    fn divide(
        &mut self,
        Piece { branch, form, decisive, by_stored }: Piece,
        forms: &mut [Explored],
        bound: u64,
        most: u64,
    ) -> Result<Vec<(u64, Piece)>, LowerError> {
        let explored = &mut forms[form];
        let kernels = Arc::clone(&explored.kernels);
        let (parts, decisive, by_stored) = match branch.fork(Some(most), &mut explored.dived, 0) {
            Fork::Search(labels) => {
                let branch = branch.within_memory(Some(most));
                if self.may_fit(branch.clone(), &kernels, Some(most)) {
                    self.search_branch(&branch, &labels, false, explored)?;
                }
                return Ok(Vec::new());
            }
            Fork::Dive => return Err(LowerError::Internal("a dive where none may be".into())),
            Fork::Branches(parts) if by_stored > 0 => (parts, decisive, by_stored - 1),
            Fork::Branches(parts) => {
                match self.by_layouts(&branch, &kernels, bound, most, &decisive) {
                    Some((parts, decisive)) => (parts, decisive, 0),
                    None => (parts, Vec::new(), STORED_IN_A_ROW),
                }
            }
        };
        let few = Limits { sweeps: SWEEPS_OF_A_PIECE, ..self.limits.clone() };
        let mut left = Vec::new();
        for mut branch in parts {
            self.best.priced += branch.strategies();
            self.settle_in(&mut branch, &kernels, Some(most), &few);
            if let Some(own) = branch.bound().filter(|own| *own <= most) {
                let decisive = decisive.clone();
                left.push((own.max(bound), Piece { branch, form, decisive, by_stored }));
            }
        }
        Ok(left)
    }

    /// The parts of a branch by the layout of the value that decides most, and the values that
    /// decide most; `None` where no value decides anything. The values in `decisive` are tried
    /// first.
    fn by_layouts(
        &mut self,
        branch: &Branch,
        kernels: &Kernels,
        bound: u64,
        most: u64,
        decisive: &[ValueId],
    ) -> Option<(Vec<Branch>, Vec<ValueId>)> {
        let undecided = branch.undecided(most);
        let known = |id: &ValueId| undecided.iter().find(|undecided| undecided.value == *id);
        let known: Vec<&Undecided> = decisive.iter().filter_map(known).collect();
        let every = undecided.len().div_ceil(MOST_TRIED).max(1);
        let some: Vec<&Undecided> = undecided.iter().step_by(every).collect();
        let few = Limits { sweeps: SWEEPS_OF_A_TRIAL, ..self.limits.clone() };
        for tried in [known, some] {
            let mut gains: Vec<(u64, &Undecided)> = Vec::new();
            for undecided in tried {
                let mut likely = branch.making(undecided.value, &|l| l == undecided.layouts[0]);
                self.best.priced += likely.strategies() * SWEEPS_OF_A_TRIAL / SWEEPS_OF_A_PIECE;
                self.settle_in(&mut likely, kernels, Some(most), &few);
                let own = likely.bound().map_or(most, |own| own.min(most));
                gains.push((own.saturating_sub(bound), undecided));
            }
            gains.sort_by_key(|(gain, _)| Reverse(*gain));
            let Some((_, best)) = gains.first().filter(|(gain, _)| *gain > bound / DECIDES) else {
                continue;
            };
            let likeliest = &best.layouts[..best.layouts.len().min(MOST_LAYOUTS)];
            let one = |layout| branch.making(best.value, &|l| l == layout);
            let mut parts: Vec<Branch> = likeliest.iter().map(|layout| one(*layout)).collect();
            if likeliest.len() < best.layouts.len() {
                parts.push(branch.making(best.value, &|l| !likeliest.contains(&l)));
            }
            let decisive = gains.iter().take(DECISIVE).map(|(_, undecided)| undecided.value);
            return Some((parts, decisive.collect()));
        }
        None
    }
}
