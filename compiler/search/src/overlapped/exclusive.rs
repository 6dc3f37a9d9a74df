//! Sets of steps of which no two can be done at the same time, in any schedule of any plan:
//! together they take at least the sum of their times.
//!
//! Two kernels keep the same cores busy. A kernel and the moves of a value cannot be done at once
//! if one waits for the other. The moves of two values, or of one value to several readers, cannot
//! be done at once unless there are links enough for both. For a set of such steps, prices bound
//! the sum of their times over all plans; steps outside of the set count nothing. A mean of several
//! sets gives a bound, too: a step that counts half in the mean counts for half of its time.
//!
//! Why no schedule is done before the bound of a set; let T be the time at which it is done:
//!
//! * Each two steps in a set are exclusive ([`Steps::are_exclusive`]), in all applications of a
//!   block and all layers of a stack. So the times of the steps of the schedule's own plan sum to
//!   at most T. The same holds of the moves that keep one stream busy.
//! * A mean counts a part of one set and the remaining part of another, so the plan counts for at
//!   most T there, too. Where the mean counts less than that, the sum is only lower: weights are
//!   rounded down, and moves to a reader that only one of the sets counts are left out.
//! * The plan is a solution of the problem of the set ([`Weighed::applied`]), and counts there for
//!   no more than its steps take. A strategy counts for at least the time of its step, and a move
//!   for its time. Where only the moves to one reader count, the other readers ask for nothing; nor
//!   do results that are this value, with or without a label
//!   ([`Factors::read_by_one`](crate::relax::factors::Factors::read_by_one)). A move counts on the
//!   streams that it surely keeps busy. A move that is left out of a graph, since others take no
//!   longer, is over all of the axes of those others.
//! * Where cases are told apart, one of them holds in each layer, so each layer takes at least the
//!   least bound of all cases. The layers of a stack may be of different cases; so the sets of
//!   cases have only steps that are in line there ([`Steps::fits`]). The applications of a block
//!   may be of different cases, too; so no value of a block is in a case ([`Steps::choices`]).

mod cases;
mod cuts;
mod sets;

use shard_cost::Streams;
use shard_ir::{Def, Op, ValueId};

use super::costs::{Costs, TimedProblem};
use super::weighed::{PARTS, Weighed};
use crate::kernel::Kernels;
use crate::relax::factors::{Factors, ValueUse};

/// A step as the sets count it: making a value, by the time on the cores or by the whole time; the
/// collectives in its loop or pieces; or moving it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Computing(ValueId),
    Making(ValueId),
    Sending(ValueId),
    /// The moves of a value.
    Moving(MovesToReaders),
    /// The same, as long as they keep a stream of the network busy; the streams of the network are
    /// counted from 0.
    Streaming(MovesToReaders, usize),
}

/// The moves of a value to all of its readers, or to one of them alone: those to one reader are
/// over when that reader is made, whatever the other readers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MovesToReaders {
    value: ValueId,
    /// The one reader; `None` for all of them.
    only: Option<ValueId>,
}

impl MovesToReaders {
    fn to_all(value: ValueId) -> MovesToReaders {
        MovesToReaders { value, only: None }
    }
}

/// What one case says of several long ops: which one is the first to begin, or which one is the
/// last to be done.
///
/// The first op begins after what it reads was moved to it; so everything that waits for any of the
/// ops comes after that move. The last op is moved after everything that any of the ops waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FirstOrLast {
    is_first: bool,
    /// The move to the op that is first, or from the op that is last, to its one reader.
    moved: MovesToReaders,
    /// The ops among which it is the first or the last.
    of: Vec<ValueId>,
}

/// The steps of all plans of a form, and which of them wait for which.
#[derive(Clone)]
pub(super) struct Steps<'a> {
    kernels: &'a Kernels,
    problem: &'a Factors,
    costs: &'a Costs,
    /// The most moves that are done at the same time.
    moves_at_once: u64,
    streams: &'a Streams,
    /// For each value, whether it is made from each other value; each value is made from itself.
    made_from: Vec<Vec<bool>>,
    /// For each value, whether it is made from what its folded block takes, and goes into what the
    /// block hands on: everything of one application then comes before everything of the next.
    /// Outside of blocks, where the layers of a stack are asked about, the same of the layer;
    /// otherwise true.
    in_line: Vec<bool>,
    /// Whether the question is about the layers of a stack.
    is_stack: bool,
    /// The case that is looked at; empty for none.
    case: Vec<FirstOrLast>,
}

impl<'a> Steps<'a> {
    /// The steps of one layer. `stack` is what a layer of a stack takes from the one before, where
    /// the layers of a stack are asked about.
    pub(super) fn of(
        kernels: &'a Kernels,
        TimedProblem { problem, costs }: &'a TimedProblem,
        streams: &'a Streams,
        stack: Option<ValueId>,
    ) -> Steps<'a> {
        let program = kernels.program.as_ref();
        let count = program.values.len();
        let mut from: Vec<Vec<bool>> = Vec::with_capacity(count);
        for id in program.value_ids() {
            let mut own = vec![false; count];
            own[id.index()] = true;
            for operand in program.value(id).def.operands() {
                own.iter_mut().zip(&from[operand.index()]).for_each(|(own, of)| *own |= of);
            }
            from.push(own);
        }
        let result = program.outputs.first().map(|output| output.value);
        let in_line = |id: ValueId| match program.value(id).fold {
            None => stack.zip(result).is_none_or(|(taken, given)| {
                from[id.index()][taken.index()] && from[given.index()][id.index()]
            }),
            Some(fold) => {
                program.entry(fold).zip(program.exit(fold)).is_some_and(|(entry, exit)| {
                    from[id.index()][entry.index()] && from[exit.index()][id.index()]
                })
            }
        };
        let in_line = program.value_ids().map(in_line).collect();
        Steps {
            kernels,
            problem,
            costs,
            moves_at_once: u64::from(streams.transfers_at_once()),
            streams,
            made_from: from,
            in_line,
            is_stack: stack.is_some(),
            case: Vec::new(),
        }
    }

    fn is_before(&self, one: ValueId, other: ValueId) -> bool {
        self.made_from[other.index()][one.index()]
    }

    /// The values that are made after these moves: the readers that they serve; `None` where a
    /// result is among them.
    fn readers(&self, MovesToReaders { value, only }: MovesToReaders) -> Option<Vec<ValueId>> {
        if let Some(reader) = only {
            return Some(vec![reader]);
        }
        let readers = self.problem.uses[value.index()].iter().map(|of| match of {
            ValueUse::Operand(reader, _) => Some(*reader),
            ValueUse::Output(_) => None,
        });
        readers.collect()
    }

    /// Whether the making of the moved value and these moves of it are over when `made` is made.
    fn moves_end_before(&self, moves: MovesToReaders, made: ValueId) -> bool {
        let begins_behind =
            |of: &FirstOrLast| of.of.iter().any(|first| self.is_before(*first, made));
        self.readers(moves).is_some_and(|all| all.iter().all(|by| self.is_before(*by, made)))
            || self.case_of(moves).any(|of| of.is_first && begins_behind(of))
    }

    /// Whether a value is made when these moves begin.
    fn is_made_before(&self, made: ValueId, moves: MovesToReaders) -> bool {
        let is_done = |of: &FirstOrLast| of.of.iter().any(|last| self.is_before(made, *last));
        self.is_before(made, moves.value)
            || self.case_of(moves).any(|of| !of.is_first && is_done(of))
    }

    /// Whether one value's moves are over when those of another begin.
    fn is_moved_before(&self, one: MovesToReaders, other: MovesToReaders) -> bool {
        let are_made = |all: Vec<ValueId>| all.iter().all(|by| self.is_made_before(*by, other));
        self.moves_end_before(one, other.value) || self.readers(one).is_some_and(are_made)
    }

    /// What the case says of these moves.
    fn case_of(&self, moves: MovesToReaders) -> impl Iterator<Item = &FirstOrLast> {
        self.case.iter().filter(move |of| of.moved == moves)
    }

    /// Whether the instances of a step, in the applications of a block or the layers of a stack,
    /// are never done at the same time, nor beside an instance of a step that waits for this one or
    /// for which this one waits.
    fn is_in_line(&self, step: Step) -> bool {
        match step {
            Step::Computing(value) | Step::Making(value) | Step::Sending(value) => {
                self.in_line[value.index()]
            }
            Step::Moving(moves) | Step::Streaming(moves, _) => {
                let value = moves.value;
                let program = self.kernels.program.as_ref();
                let of_block = |by: &ValueId| program.value(*by).fold == program.value(value).fold;
                let in_line = |of: &ValueUse| match of {
                    ValueUse::Operand(by, _) => !of_block(by) || self.in_line[by.index()],
                    // The next layer takes only the first result. No application of a block waits
                    // for what is a result of the layer.
                    ValueUse::Output(0) => program.value(value).fold.is_none(),
                    ValueUse::Output(_) => program.value(value).fold.is_none() && !self.is_stack,
                };
                self.in_line[value.index()] && self.uses_behind(moves).all(in_line)
            }
        }
    }

    fn is_fetch(&self, value: ValueId) -> bool {
        let def = &self.kernels.program.value(value).def;
        matches!(def, Def::Op { op: Op::Fetch, .. })
    }

    /// Whether two steps are never done at the same time. For a step and itself: whether no two
    /// moves that it consists of in a plan are done at the same time.
    fn are_exclusive(&self, one: Step, other: Step) -> bool {
        let waits = self.is_in_line(one) && self.is_in_line(other);
        match (one, other) {
            (Step::Computing(_), Step::Computing(_)) => true,
            // Moves that keep one stream busy come one after the other.
            (Step::Streaming(a, on), Step::Streaming(b, other)) => {
                on == other && (a.value != b.value || a == b)
            }
            (Step::Streaming(a, _), Step::Moving(b)) | (Step::Moving(a), Step::Streaming(b, _)) => {
                let ends = self.is_moved_before(a, b) || self.is_moved_before(b, a);
                a.value != b.value && waits && ends
            }
            // Moves to one reader come one after the other, unless the reader reads the value
            // twice.
            (Step::Moving(a), Step::Moving(b)) if a.value == b.value => {
                a == b && (self.moves_at_once == 1 || (waits && self.is_read_once(a)))
            }
            (Step::Moving(a), Step::Moving(b)) => {
                let ends = self.is_moved_before(a, b) || self.is_moved_before(b, a);
                self.moves_at_once == 1 || (waits && ends)
            }
            (Step::Moving(..) | Step::Streaming(..) | Step::Sending(_), Step::Sending(_))
            | (Step::Sending(_), Step::Moving(..) | Step::Streaming(..)) => self.moves_at_once == 1,
            (
                Step::Moving(moves) | Step::Streaming(moves, _),
                Step::Computing(made) | Step::Making(made),
            )
            | (
                Step::Computing(made) | Step::Making(made),
                Step::Moving(moves) | Step::Streaming(moves, _),
            ) => waits && (self.is_made_before(made, moves) || self.moves_end_before(moves, made)),
            // A value may be made and sent piece by piece.
            (Step::Sending(a), Step::Computing(b) | Step::Making(b))
            | (Step::Computing(a) | Step::Making(a), Step::Sending(b))
                if a == b =>
            {
                false
            }
            (Step::Making(a) | Step::Sending(a), Step::Computing(b) | Step::Making(b))
            | (Step::Computing(a), Step::Making(b) | Step::Sending(b))
            | (Step::Making(a), Step::Sending(b)) => {
                waits && (self.is_before(a, b) || self.is_before(b, a))
            }
        }
    }

    /// Whether these moves serve one use of the value.
    fn is_read_once(&self, moves: MovesToReaders) -> bool {
        self.uses_behind(moves).count() == 1
    }

    /// The uses of a value that these moves serve.
    fn uses_behind(
        &self,
        MovesToReaders { value, only }: MovesToReaders,
    ) -> impl Iterator<Item = &ValueUse> {
        self.problem.uses[value.index()].iter().filter(move |of| match (only, of) {
            (Some(reader), ValueUse::Operand(by, _)) => *by == reader,
            (Some(_), ValueUse::Output(_)) => false,
            (None, ValueUse::Operand(..) | ValueUse::Output(_)) => true,
        })
    }

    /// Whether a step may be added to a set. With a case, only steps in line are added: another
    /// layer may be of another case, but what is in line is over before the next layer begins,
    /// whatever its case.
    fn fits(&self, set: &[Step], step: Step) -> bool {
        !set.contains(&step)
            && (self.case.is_empty() || self.is_in_line(step))
            && self.are_exclusive(step, step)
            && set.iter().all(|other| self.are_exclusive(*other, step))
    }

    /// Adds the steps that fit, one after the other.
    fn add(&self, set: &mut Vec<Step>, steps: impl Iterator<Item = Step>) {
        for step in steps {
            if self.fits(set, step) {
                set.push(step);
            }
        }
    }

    /// The weighting in which no step counts.
    fn nothing_weighed(&self) -> Weighed {
        let streams = self.streams.of_networks().len();
        Weighed::nothing(self.problem.factors.len(), streams, self.unit())
    }

    /// The weighting in which the steps of a set count fully, and no others.
    fn weighed(&self, set: &[Step]) -> Weighed {
        let unit = self.unit();
        let mut weighed = self.nothing_weighed();
        for step in set {
            match step {
                Step::Computing(value) => weighed.computing[value.index()] = unit,
                Step::Making(value) => weighed.making[value.index()] = unit,
                Step::Sending(value) => weighed.sending[value.index()] = unit,
                Step::Moving(MovesToReaders { value, only }) => {
                    weighed.moving[value.index()] = unit;
                    weighed.only_to[value.index()] = *only;
                }
                Step::Streaming(MovesToReaders { value, only }, stream) => {
                    weighed.on_stream[value.index()][*stream] = unit;
                    weighed.only_to[value.index()] = *only;
                }
            }
        }
        weighed
    }

    /// The weight of a step that counts fully: large enough for the parts of means, and for shares
    /// of all moves that are done at once.
    fn unit(&self) -> u64 {
        16 * PARTS * self.moves_at_once
    }

    fn is_op(&self, id: ValueId) -> bool {
        matches!(self.kernels.program.value(id).def, Def::Op { .. })
    }

    /// The kernels, by their time on the cores.
    fn computing(&self) -> impl Iterator<Item = Step> {
        let ops = self.problem.live.iter().copied().filter(|id| self.is_op(*id));
        ops.filter(|id| !self.is_fetch(*id)).map(Step::Computing)
    }
}
