//! Plans of less and less memory that store most parameters as the smallest known plan does. Few
//! plans do so, and a search of these finds some that a search of all plans passes over.

use std::collections::BTreeMap;

use shard_ir::{Program, ValueId};

use super::Fitting;
use super::fitting::{MOST_PARTS, WithinMemory, part_of};
use crate::memory::needed;
use crate::stored::{open_parameters, stored_as_in};
use crate::{Limits, LowerError, Lowered, Status};

/// Each search asks for a plan that needs less than the smallest known one by this part of its
/// memory. Where it finds none, the next part is tried.
const SAVED: [u64; 2] = [16, 128];

/// How many searches there are at most.
const MOST_SEARCHES: usize = 96;

/// Each of these searches may take this part of the limits.
const PART_OF_LIMITS: usize = 40;

/// A plan that needs no more than the least memory and this part of it is small enough.
const NEAR_LEAST: u64 = 32;

impl Fitting<'_> {
    /// Searches for plans that need less memory than `found`, the smallest known plan; returns the
    /// smallest of these. `None`, as `found` and as the result, is the fastest plan. One part of
    /// the open parameters at a time is left open; once no part leads to a smaller plan, there are
    /// half as many parts. With `enough` the search ends at the first plan that needs no more bytes
    /// than that. No plan needs less than `least` bytes.
    pub(super) fn smaller_in_parts(
        &self,
        found: Option<Lowered>,
        least: u64,
        enough: Option<u64>,
    ) -> Result<Option<Lowered>, LowerError> {
        let enough = enough.unwrap_or(least.saturating_add(least / NEAR_LEAST));
        if enough < least {
            return Ok(found);
        }
        let mut best = found;
        let groups = self.open_groups(best.as_ref().unwrap_or(self.fastest));
        let (mut parts, mut left) = (groups.len().min(MOST_PARTS), MOST_SEARCHES);
        while parts > 0 {
            let before = self.peak(&best);
            for part in 0..parts {
                let is_kept = |at: usize| part_of(at, groups.len(), parts) != part;
                let kept = groups.iter().enumerate().filter(|(at, _)| is_kept(*at));
                let kept: Vec<ValueId> = kept.flat_map(|(_, group)| group).copied().collect();
                for saved in SAVED {
                    loop {
                        let peak = self.peak(&best);
                        let is_over = left == 0 || self.options.limits.stop.is_time_up();
                        if peak <= enough || is_over {
                            return Ok(best);
                        }
                        left -= 1;
                        let plan = &best.as_ref().unwrap_or(self.fastest).plan;
                        let program = stored_as_in(self.program, plan, &kept);
                        let bytes = peak.saturating_sub((peak / saved).max(1));
                        let Some(smaller) = self.found_in(&program, bytes)? else { break };
                        best = Some(smaller);
                    }
                }
            }
            if self.peak(&best) == before {
                parts /= 2;
            }
        }
        Ok(best)
    }

    /// The bytes that the smallest known plan needs: the fastest plan where `best` is `None`.
    pub(super) fn peak(&self, best: &Option<Lowered>) -> u64 {
        needed(&best.as_ref().unwrap_or(self.fastest).plan)
    }

    /// The open parameters of the program. Those with the same label are one group.
    fn open_groups(&self, best: &Lowered) -> Vec<Vec<ValueId>> {
        let mut open = open_parameters(self.program, &best.plan);
        open.sort_unstable();
        let (mut groups, mut of_label) = (Vec::<Vec<ValueId>>::new(), BTreeMap::new());
        for id in open {
            let label = self.program.value(id).def.pattern().and_then(|pattern| pattern.label);
            let new = groups.len();
            let at = label.map_or(new, |label| *of_label.entry(label).or_insert(new));
            groups.resize_with(groups.len().max(at + 1), Vec::new);
            groups[at].push(id);
        }
        groups
    }

    /// A plan of `program` that fits in so many bytes, if a short search finds one.
    fn found_in(&self, program: &Program, bytes: u64) -> Result<Option<Lowered>, LowerError> {
        let mut hardware = self.hardware.clone();
        hardware.hbm_bytes = bytes;
        let limits = Limits { time_alone: true, ..self.options.limits.part(PART_OF_LIMITS) };
        let asked = WithinMemory { may_steer: true, below: None };
        match (Fitting { program, ..*self }).within(&hardware, bytes, &limits, asked) {
            Ok(mut found) => {
                found.optimality.status = Status::Bounded;
                Ok(Some(found))
            }
            Err(
                LowerError::Unreachable { .. } | LowerError::Limit { .. } | LowerError::OutOfTime,
            ) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
