//! The search for two kinds of layers of one stack.

use std::collections::{BTreeMap, BTreeSet};

use shard_check::CheckOptions;
use shard_cost::{Hardware, Memory};
use shard_grammar::{SourceFile, Span};
use shard_ir::{Def, ParameterKind, Picoseconds, Program, Value};
use shard_search::{LowerError, LowerOptions, Optimality, least_kept};

use super::frontier::{Frontier, Need, Point};
use super::{kinds, replaced};
use crate::noted::ok_or_noted;
use crate::pipeline::{self, CompileError};

/// How many searches a stack may take; phases take longer, since they are searched together.
struct MostSearches {
    of_one_program: usize,
    of_phases: usize,
}

/// Searches for stacks of one kind, each under another limit of memory.
const LIMITS: MostSearches = MostSearches { of_one_program: 12, of_phases: 6 };
/// Searches for plans of a split.
const SPLITS: MostSearches = MostSearches { of_one_program: 5, of_phases: 1 };
/// How many more limits stacks of one kind are bounded under.
const BOUNDS: usize = 64;
/// No split is searched for where none takes less than one kind by more than one part in so many.
const WORTH: u64 = 1000;
/// In a stack of more layers the splits are not bounded one by one.
const MOST_LAYERS: u64 = 4096;

/// A stack whose layers may be of two kinds.
pub(super) struct Stack<'a> {
    pub(super) file: &'a SourceFile,
    /// The place of the number of layers in the source.
    pub(super) at: Span,
    pub(super) layers: u64,
    /// The layer in each phase.
    pub(super) programs: &'a [&'a Program],
    pub(super) check: &'a CheckOptions,
    pub(super) hardware: &'a Hardware,
    pub(super) options: LowerOptions,
}

/// What was found of a stack.
pub(super) struct Found {
    /// The number of layers of the first kind; `None` where one kind takes no longer.
    pub(super) first: Option<u64>,
    /// The time of the stack so, and with one kind, in picoseconds; with phases, that of a request.
    pub(super) cost: u64,
    pub(super) one_kind: u64,
    /// A lower bound on all splits; `None` where none is known.
    pub(super) bound: Option<u64>,
}

impl Stack<'_> {
    /// The best split that was found. `None` where no plan of one kind was found: then no plan of
    /// two kinds fits either, since one of the kinds would fit as a whole stack.
    pub(super) fn split(&self) -> Option<Found> {
        let memory = self.hardware.hbm_bytes;
        let fastest = ok_or_noted(self.of_one_kind(None))?;
        let one = ok_or_noted(self.of_one_kind(Some(memory)))?;
        let one_kind = one.cost;
        let floor = if self.is_bounded() { fastest.bound } else { 0 };
        if floor >= one_kind {
            return Some(Found { first: None, cost: one_kind, one_kind, bound: Some(one_kind) });
        }
        let bound_of_one = one.bound;
        let least = self.programs.iter().map(|p| least_kept(p)).max().unwrap_or(0);
        let mut frontier = Frontier::new(self.layers, memory, one, fastest, least);
        for _ in 0..self.most(LIMITS) {
            let Some(bytes) = frontier.next_limit() else { break };
            match self.of_one_kind(Some(bytes)) {
                Ok(point) => frontier.found(bytes, point),
                Err(LowerError::NoPlanFits { proven: true, .. }) => frontier.none_under(bytes),
                Err(_) => break,
            }
        }
        self.bound(&mut frontier);
        let mut bounds = self.bounds(&frontier, floor);
        let least = |bounds: &BTreeMap<u64, u64>| bounds.values().min().copied().unwrap_or(floor);
        let mut best = (None, one_kind);
        let mut suggested = frontier.suggested().into_iter();
        let mut tried = BTreeSet::new();
        for _ in 0..self.most(SPLITS) {
            if one_kind - one_kind.min(least(&bounds)) <= one_kind / WORTH {
                break;
            }
            let is_open = |first: u64| {
                !tried.contains(&first) && bounds.get(&first).is_none_or(|bound| *bound < best.1)
            };
            let suggestion = suggested.by_ref().find(|first| is_open(*first));
            let open = bounds.iter().filter(|(first, _)| is_open(**first));
            let Some(first) =
                suggestion.or_else(|| Some(*open.min_by_key(|(_, bound)| **bound)?.0))
            else {
                break;
            };
            let Some(point) = ok_or_noted(self.of_split(first)) else { break };
            if point.cost < best.1 {
                best = (Some(first), point.cost);
            }
            tried.insert(first);
            if let Some(known) = bounds.get_mut(&first) {
                *known = point.bound.max(*known);
            }
        }
        let bound = Some(least(&bounds).min(bound_of_one).min(best.1)).filter(|least| *least > 0);
        Some(Found { first: best.0, cost: best.1, one_kind, bound })
    }

    /// Whether bounds on stacks of one kind bound stacks of two kinds. A kind is a folded block,
    /// whose layers take what those of a stack take, with two exceptions: what a block is given
    /// beside the activation that layers hand on is moved once for all its layers; and two kinds of
    /// one layer each are no blocks, so that the end of one and the beginning of the other may be
    /// one kernel.
    fn is_bounded(&self) -> bool {
        let activation = |value: &&Value| {
            matches!(value.def, Def::Parameter { kind: ParameterKind::Activation, .. })
        };
        self.layers > 2
            && self.programs.iter().all(|p| p.values.iter().filter(activation).count() == 1)
    }

    /// A lower bound on the time of each split; empty where there are too many splits.
    fn bounds(&self, frontier: &Frontier, floor: u64) -> BTreeMap<u64, u64> {
        if self.layers > MOST_LAYERS {
            return BTreeMap::new();
        }
        let bound_of = |first: u64| match self.programs {
            [_] if self.is_bounded() => {
                frontier.bound_of_split(first).unwrap_or(u64::MAX).max(floor)
            }
            // Phases need different memory in turn: limits on one figure bound no mixture.
            _ => floor,
        };
        (1..self.layers).map(|first| (first, bound_of(first))).collect()
    }

    /// Bounds stacks of one program under more limits, which is faster than searching for plans.
    fn bound(&self, frontier: &mut Frontier) {
        let [program] = self.programs else { return };
        if !self.is_bounded() {
            return;
        }
        for _ in 0..BOUNDS {
            let Some(bytes) = frontier.next_limit() else { break };
            let mut hardware = self.hardware.clone();
            hardware.hbm_bytes = bytes;
            match shard_search::lower_bound(program, &hardware, &self.options) {
                Ok(found) if found.none_fits => frontier.none_under(bytes),
                Ok(found) => frontier.bounded(bytes, found.time.0.saturating_mul(self.layers)),
                Err(_) => break,
            }
        }
    }

    fn most(&self, searches: MostSearches) -> usize {
        if self.programs.len() > 1 { searches.of_phases } else { searches.of_one_program }
    }

    /// The best plans of one kind within a limit, or of any size.
    fn of_one_kind(&self, limit: Option<u64>) -> Result<Point, LowerError> {
        let mut hardware = self.hardware.clone();
        hardware.hbm_bytes = limit.unwrap_or(hardware.hbm_bytes);
        let options = LowerOptions { any_size: limit.is_none(), ..self.options.clone() };
        point(self.programs, &hardware, &options)
    }

    /// The best plans with so many layers of the first kind.
    fn of_split(&self, first: u64) -> Result<Point, LowerError> {
        let text = replaced(&self.file.text, self.at, &kinds(first, self.layers));
        let checked = pipeline::check(&SourceFile::new(self.file.name.clone(), text), self.check);
        let of_layer = |program: &&Program| self.programs.iter().any(|p| p.name == program.name);
        let programs: Vec<&Program> = checked.programs.iter().filter(of_layer).collect();
        if programs.is_empty() {
            return Err(LowerError::Unreachable { value: None, output: None });
        }
        point(&programs, self.hardware, &self.options)
    }
}

/// The best plans of a layer in all its phases.
fn point(
    programs: &[&Program],
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Point, LowerError> {
    let shared = match pipeline::share_weights(programs, hardware, options) {
        Ok(shared) => shared,
        Err(CompileError::Lower(error)) => return Err(error),
        Err(CompileError::Internal(problem)) => return Err(LowerError::Internal(problem.message)),
    };
    let stored: Vec<&Program> = match &shared {
        Some(shared) => shared.programs.iter().collect(),
        None => programs.to_vec(),
    };
    let (mut cost, mut bound, mut needs) = (0_u64, 0_u64, Vec::new());
    for program in stored {
        let lowered = shard_search::lower(program, hardware, options)?;
        let steps = program.phase.as_ref().map_or(1, |phase| phase.repeat);
        let times = |time: Picoseconds| time.0.saturating_mul(steps).saturating_mul(program.repeat);
        cost = cost.saturating_add(times(lowered.optimality.cost));
        bound = bound.saturating_add(times(lowered.optimality.lower_bound));
        let memory = Memory::of(&lowered.plan);
        let activations = memory.activations.0;
        needs.push(Need { kept: memory.peak().0.saturating_sub(activations), activations });
    }
    // The stored layouts were chosen together: the bound is that of this choice, on the request.
    if let Some(Optimality { lower_bound, .. }) = shared.as_ref().map(|shared| &shared.request) {
        let repeat = programs.first().map_or(1, |program| program.repeat);
        bound = lower_bound.0.saturating_mul(repeat);
    }
    Ok(Point { cost, bound, needs })
}
