//! Finds which computations run, in which order, and how often.

use super::module::{Called, InstructionId, Module, called};
use super::scan::{ReadError, shortened};
use super::trips::{Carried, Known, turns};

/// How one computation runs.
#[derive(Clone, Debug, Default)]
pub struct Visit {
    /// How often it runs in one run of the program.
    pub executions: u128,
    /// The loops around it, outermost first, as indices of [`Visits::loops`].
    pub loops: Vec<usize>,
    /// Its first caller; `None` for the program.
    pub caller: Option<InstructionId>,
    /// Whether it is in a branch of a conditional, so that the data decide whether it runs.
    pub in_branch: bool,
    /// The constants that a loop carries, if it is the body or condition of one.
    carried: Carried,
}

/// A loop of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The computation that is its body.
    pub body: usize,
    /// How often its body runs each time that the loop runs; 1 if that is not known.
    pub trips: u64,
    /// How that is known.
    pub known: Known,
    /// How often its body runs in one run of the program.
    pub executions: u128,
    /// Its `while`.
    pub at: InstructionId,
}

/// How every computation of a module runs.
#[derive(Clone, Debug)]
pub struct Visits {
    /// For each computation how it runs; `None` for those that are not called as part of the
    /// program, such as reducers.
    pub of: Vec<Option<Visit>>,
    /// The computations that run, in the order in which they are met first.
    pub order: Vec<usize>,
    /// The loops, outer ones before inner ones.
    pub loops: Vec<Loop>,
}

/// The depth to which loops may be nested.
const DEEPEST: usize = 64;

/// Follows the calls of a module from its entry. Each computation is looked at once, however often
/// it is called.
pub fn visits(module: &Module<'_>) -> Result<Visits, ReadError> {
    let calls = calls(module)?;
    let order = callers_first(module, &calls)?;
    let mut of: Vec<Option<Visit>> = vec![None; module.computations.len()];
    of[module.entry] = Some(Visit { executions: 1, ..Visit::default() });
    let mut loops = Vec::new();
    for computation in order {
        let Some(visit) = of[computation].clone() else { continue };
        for &(index, role, callee) in &calls[computation] {
            let at = InstructionId { computation, index };
            let mut inner = Visit {
                executions: visit.executions,
                loops: visit.loops.clone(),
                caller: Some(at),
                in_branch: visit.in_branch || role == Called::Branch,
                carried: Vec::new(),
            };
            if matches!(role, Called::Body | Called::Condition) {
                let turns = turns(module, at, &visit.carried);
                // A condition runs once more than the body.
                let times = u128::from(turns.trips) + u128::from(role == Called::Condition);
                inner.executions = inner.executions.saturating_mul(times);
                inner.carried = turns.carried;
                if role == Called::Body {
                    inner.loops.push(loops.len());
                    loops.push(Loop {
                        body: callee,
                        trips: turns.trips,
                        known: turns.known,
                        executions: inner.executions,
                        at,
                    });
                }
                if inner.loops.len() > DEEPEST {
                    let span = module.instruction(at).span;
                    let message = format!("loops stand more than {DEEPEST} deep in one another");
                    return Err(ReadError { message, span });
                }
            }
            match &mut of[callee] {
                Some(known) => {
                    known.executions = known.executions.saturating_add(inner.executions);
                }
                none @ None => *none = Some(inner),
            }
        }
    }
    let order = as_met(module, &calls);
    Ok(Visits { of, order, loops })
}

/// A call: the instruction, what it calls the computation for, and the computation.
type Call = (u32, Called, usize);

fn calls(module: &Module<'_>) -> Result<Vec<Vec<Call>>, ReadError> {
    let mut all = Vec::with_capacity(module.computations.len());
    for computation in &module.computations {
        let mut found = Vec::new();
        for (at, instruction) in computation.instructions.iter().enumerate() {
            for (role, name) in called(instruction) {
                let Some(callee) = module.computation_named(name) else {
                    let name = shortened(name);
                    let message = format!("the dump has no computation `%{name}`");
                    return Err(ReadError { message, span: instruction.span });
                };
                found.push((at as u32, role, callee));
            }
        }
        all.push(found);
    }
    Ok(all)
}

/// Every computation that runs, callers before those that they call.
fn callers_first(module: &Module<'_>, calls: &[Vec<Call>]) -> Result<Vec<usize>, ReadError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; calls.len()];
    let mut order = Vec::new();
    let mut open = vec![(module.entry, 0)];
    marks[module.entry] = Mark::Open;
    while let Some((computation, next)) = open.last_mut() {
        let computation = *computation;
        match calls[computation].get(*next) {
            Some(&(index, _, callee)) => {
                *next += 1;
                match marks[callee] {
                    Mark::New => {
                        marks[callee] = Mark::Open;
                        open.push((callee, 0));
                    }
                    Mark::Open => {
                        let span = module.instruction(InstructionId { computation, index }).span;
                        let message = format!(
                            "`{}` calls `{}`, which runs it: the calls go round in a ring",
                            module.computations[computation].name, module.computations[callee].name
                        );
                        return Err(ReadError { message, span });
                    }
                    Mark::Done => {}
                }
            }
            None => {
                marks[computation] = Mark::Done;
                order.push(computation);
                open.pop();
            }
        }
    }
    order.reverse();
    Ok(order)
}

/// Every computation that runs, in the order in which the program gets to them.
fn as_met(module: &Module<'_>, calls: &[Vec<Call>]) -> Vec<usize> {
    let mut seen = vec![false; calls.len()];
    let mut order = Vec::new();
    let mut left = vec![module.entry];
    while let Some(computation) = left.pop() {
        if std::mem::replace(&mut seen[computation], true) {
            continue;
        }
        order.push(computation);
        left.extend(calls[computation].iter().rev().map(|(_, _, callee)| *callee));
    }
    order
}
