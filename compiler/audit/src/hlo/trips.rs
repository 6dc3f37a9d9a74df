//! Finds how often a loop turns.
//!
//! XLA for CPU and GPU prints the number (`known_trip_count`), XLA for TPU does not. Then the
//! number follows from the comparison in the condition, the start in the tuple that goes in, and
//! the step of the body. Each of these may be inside a fusion, or a constant that the loop carries
//! unchanged.

use super::module::{Instruction, InstructionId, Module};

shard_ir::worded! {
    /// How the number of turns of a loop is known.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Known {
        /// XLA prints it.
        Printed = "known_trip_count",
        /// It follows from condition, start and step.
        Condition = "condition",
        /// It is not known, and the loop is counted once.
        No = "unknown",
    }
    /// The word in JSON.
    fn word;
}

/// The constants among the elements of the tuple that a loop carries; `None` for other elements.
pub type Carried = Vec<Option<i64>>;

/// How often a loop turns, and the constants that it carries unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turns {
    /// How often its body runs; 1 where that is not known.
    pub trips: u64,
    /// How that is known.
    pub known: Known,
    /// The constants that it carries.
    pub carried: Carried,
}

/// The most steps to find one value; a longer way is not followed.
const FUEL: u32 = 256;

/// A scalar of a body or condition: a constant, or an element of the tuple that comes in plus a
/// constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Affine {
    element: Option<usize>,
    plus: i64,
}

/// A computation, and the frame and instruction that called it, if it is inside a fusion or call.
#[derive(Clone, Copy)]
struct Frame<'f> {
    computation: usize,
    caller: Option<(&'f Frame<'f>, u32)>,
}

struct Evaluation<'m, 'a> {
    module: &'m Module<'a>,
    /// Elements of the tuple that are constant.
    carried: &'m [Option<i64>],
    fuel: u32,
}

impl<'m, 'a> Evaluation<'m, 'a> {
    fn new(module: &'m Module<'a>, carried: &'m [Option<i64>]) -> Evaluation<'m, 'a> {
        Evaluation { module, carried, fuel: FUEL }
    }

    /// A scalar, if it is a constant or an element of the tuple plus a constant.
    fn value(&mut self, frame: &Frame<'_>, at: u32) -> Option<Affine> {
        self.fuel = self.fuel.checked_sub(1)?;
        let module = self.module;
        let instruction = &module.computations[frame.computation].instructions[at as usize];
        let operand = |n: usize| instruction.operands.get(n).copied();
        match instruction.opcode {
            "constant" => {
                let plus = instruction.operand_text.trim().parse().ok()?;
                Some(Affine { element: None, plus })
            }
            "copy" | "copy-start" | "copy-done" | "bitcast" | "convert" | "reshape" => {
                self.value(frame, operand(0)?)
            }
            "add" | "subtract" => {
                let (left, right) =
                    (self.value(frame, operand(0)?)?, self.value(frame, operand(1)?)?);
                if instruction.opcode == "add" {
                    let element = match (left.element, right.element) {
                        (one, None) | (None, one) => one,
                        (Some(_), Some(_)) => return None,
                    };
                    Some(Affine { element, plus: left.plus.checked_add(right.plus)? })
                } else if right.element.is_none() {
                    let plus = left.plus.checked_sub(right.plus)?;
                    Some(Affine { element: left.element, plus })
                } else {
                    None
                }
            }
            "parameter" => {
                let (caller, call) = frame.caller?;
                let call = &module.computations[caller.computation].instructions[call as usize];
                let operand = *call.operands.get(instruction.index()?)?;
                self.value(caller, operand)
            }
            "get-tuple-element" => self.element(frame, operand(0)?, instruction.index()?),
            "fusion" | "call" => {
                let (computation, root) = self.callee(instruction)?;
                self.value(&Frame { computation, caller: Some((frame, at)) }, root)
            }
            _ => None,
        }
    }

    /// An element of a tuple, as `value` gives a scalar.
    fn element(&mut self, frame: &Frame<'_>, at: u32, index: usize) -> Option<Affine> {
        self.fuel = self.fuel.checked_sub(1)?;
        let module = self.module;
        let instruction = &module.computations[frame.computation].instructions[at as usize];
        match instruction.opcode {
            "tuple" => self.value(frame, *instruction.operands.get(index)?),
            "parameter" => match frame.caller {
                // The tuple that a loop carries is the one parameter of its body.
                None => Some(match self.carried.get(index).copied().flatten() {
                    Some(plus) => Affine { element: None, plus },
                    None => Affine { element: Some(index), plus: 0 },
                }),
                Some((caller, call)) => {
                    let call = &module.computations[caller.computation].instructions[call as usize];
                    let operand = *call.operands.get(instruction.index()?)?;
                    self.element(caller, operand, index)
                }
            },
            "copy" | "copy-done" | "copy-start" | "bitcast" | "opt-barrier" => {
                self.element(frame, *instruction.operands.first()?, index)
            }
            "fusion" | "call" => {
                let (computation, root) = self.callee(instruction)?;
                self.element(&Frame { computation, caller: Some((frame, at)) }, root, index)
            }
            _ => None,
        }
    }

    /// The two sides and the direction of a comparison.
    fn comparison(&mut self, frame: &Frame<'_>, at: u32) -> Option<(Affine, Affine, &'a str)> {
        self.fuel = self.fuel.checked_sub(1)?;
        let module = self.module;
        let instruction = &module.computations[frame.computation].instructions[at as usize];
        match instruction.opcode {
            "compare" => {
                let direction = instruction.attribute("direction")?;
                let (left, right) = (*instruction.operands.first()?, *instruction.operands.get(1)?);
                Some((self.value(frame, left)?, self.value(frame, right)?, direction))
            }
            "copy" | "bitcast" | "convert" => {
                self.comparison(frame, *instruction.operands.first()?)
            }
            "fusion" | "call" => {
                let (computation, root) = self.callee(instruction)?;
                self.comparison(&Frame { computation, caller: Some((frame, at)) }, root)
            }
            _ => None,
        }
    }

    /// The computation that a fusion or call runs, and its result.
    fn callee(&self, instruction: &Instruction<'_>) -> Option<(usize, u32)> {
        let name = instruction.attribute("calls").or_else(|| instruction.attribute("to_apply"))?;
        let computation = self.module.computation_named(name)?;
        Some((computation, self.module.computations[computation].root))
    }
}

/// How often a `while` of a computation turns. `around` are the constants that the loop around it
/// carries.
pub fn turns(module: &Module<'_>, at: InstructionId, around: &Carried) -> Turns {
    let instruction = module.instruction(at);
    let of = |name: &str| instruction.attribute(name).and_then(|c| module.computation_named(c));
    let (condition, body) = (of("condition"), of("body"));
    let start = initial(module, at, around);
    let carried = body.map_or_else(Vec::new, |body| carried(module, body, &start));
    if let Some(trips) = printed(instruction) {
        return Turns { trips, known: Known::Printed, carried };
    }
    let counted = condition
        .zip(body)
        .and_then(|(condition, body)| from_condition(module, condition, body, &start, &carried));
    match counted {
        Some(trips) => Turns { trips, known: Known::Condition, carried },
        None => Turns { trips: 1, known: Known::No, carried },
    }
}

/// The number that XLA prints: `"known_trip_count":{"n":"8"}`, with or without escaped quotes.
fn printed(instruction: &Instruction<'_>) -> Option<u64> {
    let (_, behind) = instruction.attributes.split_once("known_trip_count")?;
    let from = behind.find(|c: char| c.is_ascii_digit())?;
    let between = &behind[..from];
    if !between.chars().all(|c| matches!(c, '"' | '\\' | ':' | '{' | 'n' | ' ')) {
        return None;
    }
    let long = behind[from..].bytes().take_while(u8::is_ascii_digit).count();
    behind[from..from + long].parse().ok()
}

/// The constants in the tuple that goes into a loop.
fn initial(module: &Module<'_>, at: InstructionId, around: &Carried) -> Carried {
    let Some(&tuple) = module.instruction(at).operands.first() else { return Vec::new() };
    let tuple = module.instruction(at.beside(tuple));
    if tuple.opcode != "tuple" {
        return Vec::new();
    }
    let frame = Frame { computation: at.computation, caller: None };
    let value = |operand: &u32| constant(Evaluation::new(module, around).value(&frame, *operand)?);
    tuple.operands.iter().map(value).collect()
}

fn constant(value: Affine) -> Option<i64> {
    value.element.is_none().then_some(value.plus)
}

/// The constants of the tuple that a body hands on unchanged.
fn carried(module: &Module<'_>, body: usize, start: &Carried) -> Carried {
    let root = module.computations[body].root();
    if root.opcode != "tuple" {
        return Vec::new();
    }
    let frame = Frame { computation: body, caller: None };
    let unchanged = |(element, operand): (usize, &u32)| {
        let known = start.get(element).copied().flatten()?;
        let found = Evaluation::new(module, &[]).value(&frame, *operand)?;
        (found == Affine { element: Some(element), plus: 0 }).then_some(known)
    };
    root.operands.iter().enumerate().map(unchanged).collect()
}

fn from_condition(
    module: &Module<'_>,
    condition: usize,
    body: usize,
    start: &Carried,
    carried: &Carried,
) -> Option<u64> {
    let frame = Frame { computation: condition, caller: None };
    let root = module.computations[condition].root;
    let (left, right, direction) = Evaluation::new(module, carried).comparison(&frame, root)?;
    // The counter is the side that is not constant; `7 > i` is `i < 7`.
    let (counter, limit, direction) = match (constant(left), constant(right)) {
        (None, Some(limit)) => (left, limit, direction),
        (Some(limit), None) => (right, limit, swapped(direction)),
        _ => return None,
    };
    let element = counter.element?;
    let limit = limit.checked_sub(counter.plus)?;
    let from = start.get(element).copied().flatten()?;
    let step = step(module, body, element, carried)?;
    let distance = match direction {
        "LT" if step > 0 => limit.checked_sub(from)?,
        "LE" if step > 0 => limit.checked_sub(from)?.checked_add(1)?,
        "GT" if step < 0 => from.checked_sub(limit)?,
        "GE" if step < 0 => from.checked_sub(limit)?.checked_add(1)?,
        "NE" if limit.checked_sub(from)?.checked_rem(step) == Some(0) => {
            return u64::try_from(limit.checked_sub(from)? / step).ok();
        }
        _ => return None,
    };
    Some(u64::try_from(distance.max(0)).ok()?.div_ceil(step.unsigned_abs()))
}

fn swapped(direction: &str) -> &str {
    match direction {
        "LT" => "GT",
        "LE" => "GE",
        "GT" => "LT",
        "GE" => "LE",
        other => other,
    }
}

/// By how much a turn changes an element.
fn step(module: &Module<'_>, body: usize, element: usize, carried: &Carried) -> Option<i64> {
    let frame = Frame { computation: body, caller: None };
    let operand = *module.computations[body].root().operands.get(element)?;
    let value = Evaluation::new(module, carried).value(&frame, operand)?;
    (value.element == Some(element) && value.plus != 0).then_some(value.plus)
}
