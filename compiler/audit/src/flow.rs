//! Where the operand of a collective comes from and what becomes of its result, from which a report
//! says why the collective is there.

use crate::collectives::Kind;
use crate::hlo::attributes::Metadata;
use crate::hlo::shape::{Array, arrays, single};
use crate::hlo::visits::Visits;
use crate::hlo::{Instruction, InstructionId, Module};

/// What is known of the operand and the result of a collective.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// The name of the parameter of the program that it takes, if nothing is computed from the
    /// parameter on the way.
    pub parameter: Option<String>,
    /// Whether it takes one slice of that parameter in each turn of a loop.
    pub is_a_slice: bool,
    /// Whether its result is a result of the program as it is.
    pub is_a_result: bool,
    /// Whether it is an all-reduce of which every device only uses its own part, so that a
    /// reduce-scatter would send half.
    pub is_only_sliced: bool,
    /// Whether it is such an all-reduce with the slice in the same fusion, which XLA runs as a
    /// reduce-scatter.
    pub scattered_in_its_fusion: bool,
    /// Whether it is an all-reduce of zeros into which each device has written its part, so that an
    /// all-gather would send half.
    pub is_a_gather_of_parts: bool,
}

/// The most values that one question about a collective follows; beyond them the answer is no.
const MOST_STEPS: usize = 2000;

/// Follows the values around a collective.
pub fn of(module: &Module<'_>, visits: &Visits, at: InstructionId, kind: Kind, group: u64) -> Flow {
    let flow = Tracer { module, visits };
    let parameter = flow.parameter(at);
    let reduces = kind == Kind::AllReduce && group > 1;
    let sliced = reduces && flow.only_sliced(at, group, true);
    Flow {
        is_a_slice: parameter.as_ref().is_some_and(|(_, slice)| *slice),
        parameter: parameter.map(|(name, _)| name),
        is_a_result: flow.is_a_result(at),
        scattered_in_its_fusion: reduces
            && flow.is_in_a_fusion(at.computation)
            && flow.only_sliced(at, group, false),
        is_only_sliced: sliced,
        is_a_gather_of_parts: reduces && flow.adds_to_zeros(at),
    }
}

/// Whether an operation gives its operand in another form.
fn hands_on(opcode: &str) -> bool {
    matches!(
        opcode,
        "copy"
            | "copy-start"
            | "copy-done"
            | "bitcast"
            | "bitcast-convert"
            | "convert"
            | "reshape"
            | "transpose"
            | "opt-barrier"
    )
}

struct Tracer<'m, 'a> {
    module: &'m Module<'a>,
    visits: &'m Visits,
}

impl<'m, 'a> Tracer<'m, 'a> {
    fn instruction(&self, at: InstructionId) -> &'m Instruction<'a> {
        self.module.instruction(at)
    }

    /// The computation that a fusion or call runs.
    fn callee(&self, instruction: &Instruction<'_>) -> Option<usize> {
        if !matches!(instruction.opcode, "fusion" | "call" | "async-start") {
            return None;
        }
        let name = instruction.attribute("calls").or_else(|| instruction.attribute("to_apply"))?;
        self.module.computation_named(name)
    }

    fn caller(&self, computation: usize) -> Option<InstructionId> {
        self.visits.of[computation].as_ref()?.caller
    }

    fn is_in_a_fusion(&self, computation: usize) -> bool {
        self.caller(computation).is_some_and(|at| self.instruction(at).opcode == "fusion")
    }

    /// The name of the parameter of the program that the first operand of a collective is, and
    /// whether the operand is a slice of it in a loop.
    fn parameter(&self, at: InstructionId) -> Option<(String, bool)> {
        let mut at = at.beside(*self.instruction(at).operands.first()?);
        // The elements of nested tuples that are followed, the outermost first.
        let mut elements: Vec<usize> = Vec::new();
        let mut is_slice = false;
        for _ in 0..MOST_STEPS {
            let instruction = self.instruction(at);
            let operand = |n: usize| instruction.operands.get(n).map(|o| at.beside(*o));
            at = match instruction.opcode {
                "parameter" => match self.caller(at.computation) {
                    None => {
                        let name = Metadata::of(instruction.attributes).op_name;
                        let name = name.unwrap_or_else(|| instruction.name.to_string());
                        return elements.is_empty().then_some((name, is_slice));
                    }
                    Some(caller) => {
                        let call = self.instruction(caller);
                        if call.opcode == "while" && !self.stays(call, *elements.last()?)? {
                            return None;
                        }
                        caller.beside(*call.operands.get(instruction.index()?)?)
                    }
                },
                "get-tuple-element" => {
                    elements.push(instruction.index()?);
                    operand(0)?
                }
                "tuple" => operand(elements.pop()?)?,
                "dynamic-slice" => {
                    is_slice |= self.visits.of[at.computation]
                        .as_ref()
                        .is_some_and(|v| !v.loops.is_empty());
                    operand(0)?
                }
                // The elements of what `copy-start` gives stand for one value, so that none is
                // popped.
                opcode if hands_on(opcode) => operand(0)?,
                _ => {
                    let callee = self.callee(instruction)?;
                    self.module.root_of(callee)
                }
            };
        }
        None
    }

    /// Whether every turn of a loop hands on an element of its tuple unchanged; `None` if that is
    /// not known.
    fn stays(&self, call: &Instruction<'_>, element: usize) -> Option<bool> {
        let body = self.module.computation_named(call.attribute("body")?)?;
        let root = self.module.root_of(body);
        if self.instruction(root).opcode != "tuple" {
            return None;
        }
        let mut at = *self.instruction(root).operands.get(element)?;
        for _ in 0..MOST_STEPS {
            let instruction = self.instruction(root.beside(at));
            at = *instruction.operands.first()?;
            if instruction.opcode == "get-tuple-element" {
                let is_given = self.instruction(root.beside(at)).opcode == "parameter";
                return Some(is_given && instruction.index() == Some(element));
            }
            if !hands_on(instruction.opcode) {
                return Some(false);
            }
        }
        None
    }

    /// Whether every reader of a value only takes a slice of one device's size. With `outside` the
    /// result of a fusion around the value is followed too.
    fn only_sliced(&self, at: InstructionId, group: u64, outside: bool) -> bool {
        let Some(given) = arrays(self.instruction(at).shape) else { return false };
        let mut left: Vec<(InstructionId, Option<Array>)> =
            vec![(at, if given.len() == 1 { given.into_iter().next() } else { None })];
        let mut slices = 0;
        let mut steps = 0;
        while let Some((at, whole)) = left.pop() {
            steps += 1;
            if steps > MOST_STEPS {
                return false;
            }
            let computation = &self.module.computations[at.computation];
            if computation.root == at.index {
                let caller = self
                    .caller(at.computation)
                    .filter(|_| outside && self.is_in_a_fusion(at.computation));
                let Some(caller) = caller else { return false };
                left.push((caller, whole.clone()));
            }
            for &user in &computation.users[at.index as usize] {
                let user_at = at.beside(user);
                let instruction = self.instruction(user_at);
                match instruction.opcode {
                    "get-tuple-element" => left.push((user_at, single(instruction.shape))),
                    "dynamic-slice" => {
                        let is_first = instruction.operands.first() == Some(&at.index)
                            && instruction.operands[1..].iter().all(|o| *o != at.index);
                        let part = single(instruction.shape).and_then(|a| a.elements());
                        let whole = whole.as_ref().and_then(Array::elements);
                        let is_part = part.and_then(|part| part.checked_mul(group)) == whole;
                        if !(is_first && is_part && whole.is_some()) {
                            return false;
                        }
                        slices += 1;
                    }
                    opcode if hands_on(opcode) => left.push((user_at, whole.clone())),
                    "fusion" => {
                        let Some(callee) = self.callee(instruction) else { return false };
                        let places = instruction.operands.iter().enumerate();
                        for (number, _) in places.filter(|(_, o)| **o == at.index) {
                            match self.module.computations[callee].parameter(number) {
                                Some(parameter) => left.push((
                                    InstructionId { computation: callee, index: parameter },
                                    whole.clone(),
                                )),
                                None => return false,
                            }
                        }
                    }
                    _ => return false,
                }
            }
        }
        slices > 0
    }

    /// Whether the result of a collective is a result of the program as it is.
    fn is_a_result(&self, at: InstructionId) -> bool {
        let mut left = vec![at];
        let mut steps = 0;
        while let Some(at) = left.pop() {
            steps += 1;
            if steps > MOST_STEPS {
                return false;
            }
            let computation = &self.module.computations[at.computation];
            if computation.root == at.index {
                match self.caller(at.computation) {
                    None => return true,
                    Some(caller) if self.callee(self.instruction(caller)).is_some() => {
                        left.push(caller);
                    }
                    Some(_) => {}
                }
            }
            for &user in &computation.users[at.index as usize] {
                let instruction = self.instruction(at.beside(user));
                let opcode = instruction.opcode;
                let is_last = opcode == "tuple" && computation.root == user;
                let ends = opcode.ends_with("-done") || opcode == "get-tuple-element";
                if hands_on(opcode) || is_last || ends {
                    left.push(at.beside(user));
                } else if let Some(callee) = self.callee(instruction) {
                    let computation = &self.module.computations[callee];
                    let number = instruction.operands.iter().position(|o| *o == at.index);
                    if let Some(parameter) = number.and_then(|n| computation.parameter(n)) {
                        left.push(InstructionId { computation: callee, index: parameter });
                    }
                }
            }
        }
        false
    }

    /// Whether an all-reduce takes zeros into which a part is written.
    fn adds_to_zeros(&self, at: InstructionId) -> bool {
        let Some(&operand) = self.instruction(at).operands.first() else { return false };
        let mut at = at.beside(operand);
        let mut written = false;
        for _ in 0..MOST_STEPS {
            let instruction = self.instruction(at);
            let first = instruction.operands.first().map(|o| at.beside(*o));
            let next = match instruction.opcode {
                "dynamic-update-slice" => {
                    written = true;
                    first
                }
                "constant" => {
                    let value = instruction.operand_text.trim().parse::<f64>();
                    return written && value == Ok(0.0);
                }
                "broadcast" if written => first,
                "parameter" => self.caller(at.computation).and_then(|caller| {
                    let operand = *self.instruction(caller).operands.get(instruction.index()?)?;
                    let is_loop = self.instruction(caller).opcode == "while";
                    (!is_loop).then_some(caller.beside(operand))
                }),
                opcode if hands_on(opcode) => first,
                _ => self.callee(instruction).map(|callee| self.module.root_of(callee)),
            };
            let Some(next) = next else { return false };
            at = next;
        }
        false
    }
}
