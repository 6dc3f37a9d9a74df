//! At which size of a dim one way overtakes the best plan: doubled and halved from where it is, then halved in between, a
//! search for each of the two at each size.

use shard_check::CheckOptions;
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{Def, ParameterKind, Picoseconds, Program};
use shard_report::why_not::{Crossing, Turn};
use shard_rewrite::LowerOptions;

use super::{force, request};
use crate::pipeline;

/// So many times a size is doubled, and halved.
const STEPS: u32 = 12;

/// So many sizes between the last that loses and the first that wins are tried.
const REFINEMENTS: u32 = 4;

/// What stays the same from size to size.
pub(crate) struct Question<'a> {
    pub(crate) source: &'a SourceFile,
    pub(crate) options: &'a CheckOptions,
    pub(crate) hardware: &'a Hardware,
    pub(crate) lower: &'a LowerOptions,
    /// The layer and its phase.
    pub(crate) layer: &'a str,
    pub(crate) phase: Option<&'a str>,
    /// What was asked for.
    pub(crate) asked: &'a str,
    /// Which of the ways of having it.
    pub(crate) way: usize,
}

/// The dim whose size is the batch: the first one of the activations that no weight has.
pub(crate) fn batch_dim(program: &Program) -> Option<String> {
    let of = |wanted: ParameterKind| {
        program.values.iter().filter(move |v| matches!(v.def, Def::Parameter { kind, .. } if kind == wanted))
    };
    let of_weights: Vec<_> = of(ParameterKind::Weight).flat_map(|v| &v.dims).collect();
    let mut dims = of(ParameterKind::Activation).flat_map(|v| &v.dims);
    dims.find(|d| !of_weights.contains(d)).map(|d| program.dims[d.index()].name.clone())
}

impl Question<'_> {
    /// What becomes of the answer as a dim grows and shrinks.
    pub(crate) fn crossing(&self, dim: &str, now: u64, behind: Picoseconds) -> Crossing {
        Crossing {
            dim: dim.to_string(),
            now,
            up: self.turn(dim, now, behind, |size| size.checked_mul(2)),
            down: self.turn(dim, now, behind, |size| size.is_multiple_of(2).then_some(size / 2).filter(|s| *s > 0)),
        }
    }

    fn turn(&self, dim: &str, now: u64, behind: Picoseconds, next: impl Fn(u64) -> Option<u64>) -> Turn {
        let (mut loses_at, mut behind, mut searched) = (now, behind, false);
        for _ in 0..STEPS {
            let Some(size) = next(loses_at) else { break };
            match self.behind_at(dim, size) {
                Some(Picoseconds(0)) => return self.refined(dim, loses_at, size, behind),
                Some(more) => (loses_at, behind, searched) = (size, more, true),
                // Not a size of the program, or no plan has it there.
                None => break,
            }
        }
        if searched { Turn::Never { to: loses_at, behind } } else { Turn::Unknown }
    }

    fn refined(&self, dim: &str, mut loses_at: u64, mut at: u64, mut behind: Picoseconds) -> Turn {
        for _ in 0..REFINEMENTS {
            let sum = loses_at + at;
            if !sum.is_multiple_of(2) || sum / 2 == loses_at || sum / 2 == at {
                break;
            }
            match self.behind_at(dim, sum / 2) {
                Some(Picoseconds(0)) => at = sum / 2,
                Some(more) => (loses_at, behind) = (sum / 2, more),
                None => break,
            }
        }
        Turn::Wins { at, loses_at, behind }
    }

    /// How much longer than the best plan the way takes at a size; `None` where that cannot be said.
    fn behind_at(&self, dim: &str, size: u64) -> Option<Picoseconds> {
        let mut options = self.options.clone();
        options.dim_overrides.retain(|(name, _)| name != dim);
        options.dim_overrides.push((dim.to_string(), size.to_string()));
        let checked = pipeline::check(self.source, &options);
        let phase = |p: &Program| p.phase.as_ref().map(|phase| phase.name.clone());
        let asked = |p: &&Program| p.name == self.layer && phase(p).as_deref() == self.phase;
        let program = checked.programs.iter().find(asked).filter(|_| !checked.has_errors())?;
        let request = request::read(self.asked, program).ok()?;
        let (ways, _) = force::ways(&request, program);
        let way = ways.get(self.way)?;
        let cost = |p: &Program, options: &LowerOptions| shard_rewrite::lower(p, self.hardware, options).ok();
        let (best, other) = (cost(program, self.lower)?, cost(&way.program, &way.options(self.lower))?);
        if !force::has(&request, program, &other.plan) {
            return None;
        }
        Some(Picoseconds(other.optimality.cost.0.saturating_sub(best.optimality.cost.0)))
    }
}
