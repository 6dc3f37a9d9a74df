//! Steps of which no two can be done at the same time, in any schedule of any plan: together they
//! take no less than their sum.
//!
//! Two kernels keep the same cores busy. A kernel and the moves of a value cannot go on at once
//! where one waits for the other; nor can the moves of two values, or of one for several readers,
//! unless there are links enough for both. So a set of steps is found, and the least that they
//! take over all plans is a matter of prices, where a step outside of the set is free. Any mean of
//! such sets is as good: what counts half takes half of its time.
//!
//! Why no schedule is done before the least of a set, T being when it is done:
//!
//! * Each pair of steps in a set is exclusive ([`Steps::are_exclusive`]), in all applications of a
//!   block and all layers of a stack. So the times of the steps of the schedule's own plan sum to T
//!   at most. The same holds of the moves that keep one stream busy.
//! * Of a mean, part p of one set and 1 - p of another, the plan takes p T + (1 - p) T at most.
//!   What the mean counts less than that (weights are rounded down, moves to a reader that only one
//!   of the two counts are left out) makes it less still.
//! * The problem of a set ([`Weighed::applied`]) has the plan among its solutions, at no more than
//!   what its steps take: a strategy counts what the step takes at least, a move counts its time,
//!   and where the moves to one reader alone count, the other readers ask for nothing, nor do
//!   results of the value, with or without a label
//!   ([`Factors::read_by_one`](crate::relax::factors::Factors::read_by_one)). A move is counted on
//!   the streams that it is known to keep busy, and a move that is left out of a graph for others
//!   that take no longer is over all of their axes.
//! * Of cases one holds in each layer, and the least of all cases is what each layer takes at
//!   least. In a stack each layer may be another case: so only steps that are in line are in the
//!   sets of cases there ([`Steps::fits`]). A block's applications may be of different cases, too:
//!   so no value of a block is in a case ([`Steps::choices`]).

mod cases;
mod cuts;
mod sets;

use shard_cost::Streams;
use shard_ir::{Def, Op, ValueId};

use super::costs::{Costs, TimedProblem};
use super::weighed::{PARTS, Weighed};
use crate::kernel::Kernels;
use crate::relax::factors::{Factors, ValueUse};

/// What a step is: making a value, on the cores alone or until it is there; the collectives in its
/// loop or its pieces; or moving it.
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

/// One case of a distinction over all schedules: which of several long ops is begun first, or done
/// last.
///
/// What begins first begins when what it reads has been moved there, so that everything that waits
/// for one of them is behind that move. What is done last is moved when everything that one of them
/// waits for is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FirstOrLast {
    is_first: bool,
    /// The moves of a value to one reader.
    moved: MovesToReaders,
    /// The ops of which it is the first or the last.
    of: Vec<ValueId>,
}

/// The steps of all plans of a form, and which wait for which.
#[derive(Clone)]
pub(super) struct Steps<'a> {
    kernels: &'a Kernels,
    problem: &'a Factors,
    costs: &'a Costs,
    /// How many moves go on at the same time, at most.
    streams: u64,
    /// The streams of the network.
    links: usize,
    /// For each value the values that it is made from, itself among them.
    from: Vec<Vec<bool>>,
    /// Whether a value of a folded block is made from what the block takes, and goes into what it
    /// hands on: then everything of one application is before all of the next. So of each layer of
    /// a stack, where that is what is asked about; else true outside of blocks.
    in_line: Vec<bool>,
    /// Whether the question is about the layers of a stack, one after the other.
    is_stack: bool,
    /// The case that is looked at.
    chosen: Vec<FirstOrLast>,
}

impl<'a> Steps<'a> {
    /// Those of one layer; with what a layer of a stack takes from the one before, those that no
    /// two layers do at the same time either.
    pub(super) fn of(
        kernels: &'a Kernels,
        TimedProblem { problem, costs }: &'a TimedProblem,
        streams: &Streams,
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
        let (links, is_stack) = (streams.of_networks().len(), stack.is_some());
        let streams = u64::from(streams.transfers_at_once());
        Steps {
            kernels,
            problem,
            costs,
            streams,
            links,
            from,
            in_line,
            is_stack,
            chosen: Vec::new(),
        }
    }

    fn is_before(&self, one: ValueId, other: ValueId) -> bool {
        self.from[other.index()][one.index()]
    }

    /// The values whose making waits for moves of a value, to one reader or all; `None` where a
    /// result is one of its readers.
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

    /// Whether everything that is done to make one value or to move it, to one reader or all, is
    /// over when another is made.
    fn moves_end_before(&self, moves: MovesToReaders, made: ValueId) -> bool {
        let begins_behind =
            |of: &FirstOrLast| of.of.iter().any(|first| self.is_before(*first, made));
        self.readers(moves).is_some_and(|all| all.iter().all(|by| self.is_before(*by, made)))
            || self.case_of(moves).any(|of| of.is_first && begins_behind(of))
    }

    /// Whether a value is made when another one begins to be moved.
    fn is_made_before(&self, made: ValueId, moves: MovesToReaders) -> bool {
        let is_done = |of: &FirstOrLast| of.of.iter().any(|last| self.is_before(made, *last));
        self.is_before(made, moves.value)
            || self.case_of(moves).any(|of| !of.is_first && is_done(of))
    }

    /// Whether one value has been moved when another one begins to be moved.
    fn is_moved_before(&self, one: MovesToReaders, other: MovesToReaders) -> bool {
        let are_made = |all: Vec<ValueId>| all.iter().all(|by| self.is_made_before(*by, other));
        self.moves_end_before(one, other.value) || self.readers(one).is_some_and(are_made)
    }

    /// What the case says of moves of a value to a reader.
    fn case_of(&self, moves: MovesToReaders) -> impl Iterator<Item = &FirstOrLast> {
        self.chosen.iter().filter(move |of| of.moved == moves)
    }

    /// Whether no two instances of a step, in several applications of a block, are at once, nor one
    /// of them beside one of another step that waits for it or for which it waits.
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
                    // The next layer takes the first result alone; no application waits for what
                    // is a result of the layer.
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

    /// Whether two steps are never done at the same time. The same step twice: whether what it is
    /// made of is not, in a plan.
    fn are_exclusive(&self, one: Step, other: Step) -> bool {
        let waits = self.is_in_line(one) && self.is_in_line(other);
        match (one, other) {
            (Step::Computing(_), Step::Computing(_)) => true,
            // What keeps one stream busy comes one after the other.
            (Step::Streaming(a, on), Step::Streaming(b, other)) => {
                on == other && (a.value != b.value || a == b)
            }
            (Step::Streaming(a, _), Step::Moving(b)) | (Step::Moving(a), Step::Streaming(b, _)) => {
                let ends = self.is_moved_before(a, b) || self.is_moved_before(b, a);
                a.value != b.value && waits && ends
            }
            // Moves to one reader come one after the other, unless it reads the value twice.
            (Step::Moving(a), Step::Moving(b)) if a.value == b.value => {
                a == b && (self.streams == 1 || (waits && self.is_read_once(a)))
            }
            (Step::Moving(a), Step::Moving(b)) => {
                let ends = self.is_moved_before(a, b) || self.is_moved_before(b, a);
                self.streams == 1 || (waits && ends)
            }
            (Step::Moving(..) | Step::Streaming(..) | Step::Sending(_), Step::Sending(_))
            | (Step::Sending(_), Step::Moving(..) | Step::Streaming(..)) => self.streams == 1,
            (
                Step::Moving(moves) | Step::Streaming(moves, _),
                Step::Computing(made) | Step::Making(made),
            )
            | (
                Step::Computing(made) | Step::Making(made),
                Step::Moving(moves) | Step::Streaming(moves, _),
            ) => waits && (self.is_made_before(made, moves) || self.moves_end_before(moves, made)),
            // The same value is made and sent piece by piece.
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

    /// Whether a value has one reader that reads it once, or the reader asked about does.
    fn is_read_once(&self, moves: MovesToReaders) -> bool {
        self.uses_behind(moves).count() == 1
    }

    /// The uses of a value that its moves serve.
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

    /// Whether a step goes with a set. Where cases are looked at, another layer may be another
    /// case: what is in line is over in each layer before the next begins, whichever case that is.
    fn fits(&self, set: &[Step], step: Step) -> bool {
        !set.contains(&step)
            && (self.chosen.is_empty() || self.is_in_line(step))
            && self.are_exclusive(step, step)
            && set.iter().all(|other| self.are_exclusive(*other, step))
    }

    fn add(&self, set: &mut Vec<Step>, steps: impl Iterator<Item = Step>) {
        for step in steps {
            if self.fits(set, step) {
                set.push(step);
            }
        }
    }

    fn weighed(&self, set: &[Step]) -> Weighed {
        let unit = self.unit();
        let mut weighed = Weighed::nothing(self.problem.factors.len(), self.links, unit);
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

    fn unit(&self) -> u64 {
        16 * PARTS * self.streams
    }

    fn is_op(&self, id: ValueId) -> bool {
        matches!(self.kernels.program.value(id).def, Def::Op { .. })
    }

    /// What the cores do.
    fn computing(&self) -> impl Iterator<Item = Step> {
        let ops = self.problem.live.iter().copied().filter(|id| self.is_op(*id));
        ops.filter(|id| !self.is_fetch(*id)).map(Step::Computing)
    }
}
