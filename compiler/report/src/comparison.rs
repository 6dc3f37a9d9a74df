//! Two plans side by side: which moves came and which went, which ops changed.

use std::collections::BTreeSet;

use shard_cost::{Bytes, InstrPrice, PlanPrice};
use shard_grammar::SourceFile;
use shard_ir::{InstrId, InstrKind, Picoseconds, Plan};

use crate::notation::{phrase, value_name};
use crate::origins::origin;
use crate::same::{Kind, Known, same};

/// A plan as comparisons read it: one that was lowered now ([`Side`]), or one that was read from
/// JSON ([`Recorded`](crate::recorded::Recorded)). Bytes and times are of all applications of a
/// step.
pub(crate) trait ComparedPlan: Copy {
    /// One step of the plan.
    type Step: Copy;

    /// All steps, in program order.
    fn steps(self) -> Vec<Self::Step>;
    /// What each step is recognised by in a comparison with another plan, in program order.
    fn known(self, other: Self) -> Vec<Known>;
    /// Whether a move costs as much as the same move of the other plan.
    fn costs_alike(self, step: Self::Step, other: Self, of_other: Self::Step) -> bool;
    /// The number of the step in its plan.
    fn id(self, step: Self::Step) -> u32;
    /// Its `op` in JSON.
    fn op(self, step: Self::Step) -> String;
    /// The name of its value in the source.
    fn name(self, step: Self::Step) -> Option<String>;
    /// What it does, in one phrase.
    fn phrase(self, step: Self::Step) -> String;
    /// How its value is spoken of.
    fn told(self, step: Self::Step) -> String;
    /// What it reads first.
    fn source(self, step: Self::Step) -> Option<Self::Step>;
    /// The layout of its value.
    fn layout(self, step: Self::Step) -> String;
    /// The bytes of its buffer where it is a move, else 0.
    fn bytes(self, step: Self::Step) -> Bytes;
    /// Its time.
    fn time(self, step: Self::Step) -> Picoseconds;
    /// The line of the source that it comes from.
    fn line(self, step: Self::Step) -> Option<usize>;
}

/// A plan that was lowered now, as comparisons read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    /// The plan.
    pub(crate) plan: &'a Plan,
    /// What it costs.
    pub(crate) price: &'a PlanPrice,
    /// The source that its spans point into.
    pub(crate) source: Option<&'a SourceFile>,
}

impl Side<'_> {
    fn kind(self, id: InstrId) -> Kind {
        match self.plan.instruction(id).kind {
            InstrKind::Parameter(_) => Kind::Parameter,
            InstrKind::Constant(_) => Kind::Constant,
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => Kind::Op,
            InstrKind::Move(_) => match self.price.of(id) {
                InstrPrice::Move(cost) if cost.time > Picoseconds(0) => Kind::Move,
                InstrPrice::Move(_) | InstrPrice::Free | InstrPrice::Kernel { .. } => {
                    Kind::LocalMove
                }
            },
        }
    }
}

impl ComparedPlan for Side<'_> {
    type Step = InstrId;

    fn steps(self) -> Vec<InstrId> {
        self.plan.ids().collect()
    }

    fn known(self, _: Self) -> Vec<Known> {
        let plan = self.plan;
        let of = |id: InstrId| {
            let instr = plan.instruction(id);
            Known {
                kind: self.kind(id),
                name: instr.name.clone().unwrap_or_default(),
                within: instr.origin.in_layers.join("/"),
                // An einsum with a collective in its loop is recognised as the einsum alone.
                what: match instr.kind.fused() {
                    Some(_) => format!("einsum {}", plan.equation(id)),
                    None => phrase(plan, id),
                },
                piece_of: instr.origin.piece_of.clone().unwrap_or_default(),
                layout: plan.layout_text(id),
                operands: instr.operands.iter().map(|operand| operand.index()).collect(),
            }
        };
        plan.ids().map(of).collect()
    }

    fn costs_alike(self, id: InstrId, other: Self, of_other: InstrId) -> bool {
        self.price.of(id) == other.price.of(of_other)
            && self.plan.repeat_of(id) == other.plan.repeat_of(of_other)
    }

    fn id(self, id: InstrId) -> u32 {
        id.0
    }

    fn op(self, id: InstrId) -> String {
        self.plan.instruction(id).kind.name().to_string()
    }

    fn name(self, id: InstrId) -> Option<String> {
        self.plan.instruction(id).name.clone()
    }

    fn phrase(self, id: InstrId) -> String {
        phrase(self.plan, id)
    }

    fn told(self, id: InstrId) -> String {
        told(self.plan, id)
    }

    fn source(self, id: InstrId) -> Option<InstrId> {
        self.plan.instruction(id).operands.first().copied()
    }

    fn layout(self, id: InstrId) -> String {
        self.plan.layout_text(id)
    }

    fn bytes(self, id: InstrId) -> Bytes {
        match self.price.of(id) {
            InstrPrice::Move(cost) => cost.bytes.times(self.plan.repeat_of(id)),
            InstrPrice::Free | InstrPrice::Kernel { .. } => Bytes(0),
        }
    }

    fn time(self, id: InstrId) -> Picoseconds {
        self.price.of(id).time().times(self.plan.repeat_of(id))
    }

    fn line(self, id: InstrId) -> Option<usize> {
        let span = self.plan.instruction(id).origin.span?;
        Some(self.source?.line_column(span.start).line)
    }
}

/// The steps of two plans, each with the step of the other plan that is the same one.
pub(crate) struct Matched<S> {
    /// Moves with traffic of both plans, in the order of the first.
    pub(crate) moves: Vec<(S, S)>,
    /// Parameters and ops of both plans, in the order of the first.
    pub(crate) values: Vec<(S, S)>,
    /// Moves with traffic of the first plan alone, in its order.
    pub(crate) moves_went: Vec<S>,
    /// Moves with traffic of the second plan alone, in its order.
    pub(crate) moves_came: Vec<S>,
    /// Parameters and ops of the first plan alone, in its order.
    pub(crate) values_went: Vec<S>,
    /// Parameters and ops of the second plan alone, in its order.
    pub(crate) values_came: Vec<S>,
}

impl<S: Copy> Matched<S> {
    pub(crate) fn of<P: ComparedPlan<Step = S>>(a: P, b: P) -> Matched<S> {
        let (first, second) = (a.known(b), b.known(a));
        let (steps, others) = (a.steps(), b.steps());
        let found = same(&first, &second);
        let both = |pairs: &[(usize, usize)]| {
            pairs.iter().map(|(x, y)| (steps[*x], others[*y])).collect::<Vec<_>>()
        };
        let alone = |steps: &[S], known: &[Known], paired: BTreeSet<usize>, kinds: &[Kind]| {
            let is_left = |at: &usize| !paired.contains(at) && kinds.contains(&known[*at].kind);
            (0..known.len()).filter(is_left).map(|at| steps[at]).collect::<Vec<_>>()
        };
        let in_first = |pairs: &[(usize, usize)]| pairs.iter().map(|(at, _)| *at).collect();
        let in_second = |pairs: &[(usize, usize)]| pairs.iter().map(|(_, at)| *at).collect();
        let of_values = [Kind::Parameter, Kind::Op];
        Matched {
            moves: both(&found.moves),
            values: both(&found.values),
            moves_went: alone(&steps, &first, in_first(&found.moves), &[Kind::Move]),
            moves_came: alone(&others, &second, in_second(&found.moves), &[Kind::Move]),
            values_went: alone(&steps, &first, in_first(&found.values), &of_values),
            values_came: alone(&others, &second, in_second(&found.values), &of_values),
        }
    }
}

/// What tells two plans apart. The same value in both is one of the same name, or made in the same
/// way of the same values.
pub(crate) struct Comparison<S> {
    /// Moves with traffic of the first plan alone.
    pub(crate) went: Vec<S>,
    /// Moves with traffic of the second plan alone.
    pub(crate) came: Vec<S>,
    /// Moves of both plans whose bytes or time differ.
    pub(crate) resized: Vec<(S, S)>,
    /// Parameters and ops of both plans whose layouts differ.
    pub(crate) relaid: Vec<(S, S)>,
    /// Ops of both plans that have the same layout and take another time.
    pub(crate) retimed: Vec<(S, S)>,
    /// Parameters and ops of the first plan alone.
    pub(crate) values_went: Vec<S>,
    /// Parameters and ops of the second plan alone.
    pub(crate) values_came: Vec<S>,
}

impl<S: Copy> Comparison<S> {
    pub(crate) fn of<P: ComparedPlan<Step = S>>(a: P, b: P) -> Comparison<S> {
        let matched = Matched::of(a, b);
        let resized = matched.moves.into_iter().filter(|(x, y)| !a.costs_alike(*x, b, *y));
        let (relaid, stayed): (Vec<_>, Vec<_>) =
            matched.values.into_iter().partition(|(x, y)| a.layout(*x) != b.layout(*y));
        Comparison {
            went: matched.moves_went,
            came: matched.moves_came,
            resized: resized.collect(),
            relaid,
            retimed: stayed.into_iter().filter(|(x, y)| a.time(*x) != b.time(*y)).collect(),
            values_went: matched.values_went,
            values_came: matched.values_came,
        }
    }

    /// Whether nothing differs.
    pub(crate) fn is_empty(&self) -> bool {
        let alone = [&self.went, &self.came, &self.values_went, &self.values_came];
        let both = [&self.resized, &self.relaid, &self.retimed];
        alone.iter().all(|steps| steps.is_empty()) && both.iter().all(|pairs| pairs.is_empty())
    }
}

impl<S> Default for Comparison<S> {
    fn default() -> Comparison<S> {
        Comparison {
            went: Vec::new(),
            came: Vec::new(),
            resized: Vec::new(),
            relaid: Vec::new(),
            retimed: Vec::new(),
            values_went: Vec::new(),
            values_came: Vec::new(),
        }
    }
}

/// How a value is spoken of in a plan that is not the one on the page: by name, or by what makes
/// it.
pub(crate) fn told(plan: &Plan, id: InstrId) -> String {
    if plan.instruction(id).name.is_some() {
        return value_name(plan, id);
    }
    let at = origin(plan, id);
    match (&plan.instruction(at).kind, &plan.instruction(at).name) {
        (_, Some(name)) => name.clone(),
        (InstrKind::Op(_) | InstrKind::CollectiveEinsum(_), None) => {
            format!("the {}", phrase(plan, at))
        }
        (InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Move(_), None) => {
            "a constant".to_string()
        }
    }
}
