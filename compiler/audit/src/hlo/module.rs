//! A module: its computations, and which of them is the program.

use rustc_hash::FxHashMap;
use shard_words::Span;

use super::attributes::{attribute, attributes};
use super::scan::{Cursor, ReadError, parts, shortened};
use super::shape::without_comment;
use super::tables::Tables;

/// One instruction of a computation.
#[derive(Clone, Debug)]
pub struct Instruction<'a> {
    /// Its name, without `%`.
    pub name: &'a str,
    /// Its shape, as it is written.
    pub shape: &'a str,
    /// What it does: `all-gather-start`.
    pub opcode: &'a str,
    /// The text between its parentheses: operands, or the value of a constant.
    pub operand_text: &'a str,
    /// Its operands, as indices of the computation.
    pub operands: Vec<u32>,
    /// The text behind its operands.
    pub attributes: &'a str,
    /// Where it stands.
    pub span: Span,
}

impl<'a> Instruction<'a> {
    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        attribute(self.attributes, name)
    }

    /// The number of a parameter, or the index of a `get-tuple-element`.
    pub fn index(&self) -> Option<usize> {
        match self.opcode {
            "parameter" => self.operand_text.trim().parse().ok(),
            "get-tuple-element" => self.attribute("index")?.parse().ok(),
            _ => None,
        }
    }
}

/// A computation.
#[derive(Clone, Debug)]
pub struct Computation<'a> {
    /// Its name, without `%`.
    pub name: &'a str,
    /// Its instructions, in order.
    pub instructions: Vec<Instruction<'a>>,
    /// The index of the instruction that is its result.
    pub root: u32,
    /// For each instruction those that use it.
    pub users: Vec<Vec<u32>>,
}

impl<'a> Computation<'a> {
    /// The instruction that is its result.
    pub fn root(&self) -> &Instruction<'a> {
        &self.instructions[self.root as usize]
    }

    /// The index of the instruction that is a parameter.
    pub fn parameter(&self, number: usize) -> Option<u32> {
        let is = |i: &Instruction<'_>| i.opcode == "parameter" && i.index() == Some(number);
        self.instructions.iter().position(is).map(|at| at as u32)
    }
}

/// Where an instruction stands in a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstructionId {
    /// The index of its computation.
    pub computation: usize,
    /// Its index in the computation.
    pub index: u32,
}

impl InstructionId {
    /// Another instruction of its computation.
    pub(crate) fn beside(self, index: u32) -> InstructionId {
        InstructionId { index, ..self }
    }
}

/// A program that XLA compiled.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    /// Its name.
    pub name: &'a str,
    /// The number of partitions of each replica of the program.
    pub partitions: u64,
    /// The number of replicas of the program.
    pub replicas: u64,
    /// The tables that say where instructions come from.
    pub tables: Tables<'a>,
    /// Its computations, in the order of the text.
    pub computations: Vec<Computation<'a>>,
    /// The index of the computation that is the program.
    pub entry: usize,
    /// The number of bytes that were looked at to read it: at most a fixed multiple of the text.
    pub work: u64,
    by_name: FxHashMap<&'a str, usize>,
}

/// A name, and its offset in the text.
type Use<'a> = (&'a str, usize);

impl<'a> Module<'a> {
    /// Reads a module.
    pub fn read(text: &'a str) -> Result<Module<'a>, ReadError> {
        let mut cursor = Cursor::new(text);
        cursor.skip_space();
        if !cursor.take("HloModule ") {
            return Err(cursor.expected("`HloModule`, with which the text of HLO begins"));
        }
        let name = cursor.name("the name of the module")?;
        let start = cursor.at();
        let header = cursor.balanced(|_| false)?;
        let count = |key: &str| match attribute(header, key) {
            None => Ok(1),
            Some(text) => text.trim().parse::<u64>().ok().filter(|n| *n > 0).ok_or(ReadError {
                message: format!("`{key}={}` is no number of devices", shortened(text)),
                span: Span::new(start, start + header.len()),
            }),
        };
        let mut module = Module {
            name,
            partitions: count("num_partitions")?,
            replicas: count("replica_count")?,
            tables: Tables::default(),
            computations: Vec::new(),
            entry: usize::MAX,
            work: 0,
            by_name: FxHashMap::default(),
        };
        loop {
            cursor.skip_space();
            if cursor.at_end() {
                break;
            }
            if !module.tables.read(&mut cursor)? {
                module.computation(&mut cursor)?;
            }
        }
        if module.entry == usize::MAX {
            return Err(cursor.expected("`ENTRY`, the computation that is the program"));
        }
        module.work = cursor.work;
        Ok(module)
    }

    /// The index of the computation of a name.
    pub fn computation_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name.trim_start_matches('%')).copied()
    }

    /// The instruction of an id.
    pub fn instruction(&self, id: InstructionId) -> &Instruction<'a> {
        &self.computations[id.computation].instructions[id.index as usize]
    }

    /// The result of a computation.
    pub(crate) fn root_of(&self, computation: usize) -> InstructionId {
        InstructionId { computation, index: self.computations[computation].root }
    }

    /// How many devices run the program.
    pub fn devices(&self) -> u64 {
        self.partitions.saturating_mul(self.replicas)
    }

    /// Reads one computation.
    fn computation(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ReadError> {
        let at = cursor.at();
        let is_entry = cursor.take("ENTRY ");
        cursor.skip_blanks();
        let name = cursor.name("a computation, or the end of the text")?;
        self.body_begins(cursor)?;
        let mut instructions = Vec::new();
        let mut operands: Vec<Vec<Use<'a>>> = Vec::new();
        let mut root = None;
        loop {
            cursor.skip_space();
            if cursor.take("}") {
                break;
            }
            let is_root = cursor.take("ROOT ");
            let (instruction, uses) = instruction(cursor)?;
            if is_root {
                root = Some(instructions.len() as u32);
            }
            instructions.push(instruction);
            operands.push(uses);
        }
        // Attributes may stand behind the brace: `, execution_thread="host"`.
        cursor.balanced(|_| false)?;
        let users = resolve(&mut instructions, &operands, name)?;
        let last = instructions.len().checked_sub(1).ok_or_else(|| ReadError {
            message: format!("computation `{name}` has no instruction"),
            span: Span::new(at, at + 1),
        })?;
        let root = root.unwrap_or(last as u32);
        if self.by_name.insert(name, self.computations.len()).is_some() {
            let message = format!("a second computation has the name `{name}`");
            return Err(ReadError { message, span: Span::new(at, at + 1) });
        }
        if is_entry {
            if self.entry != usize::MAX {
                let message = "a second computation is `ENTRY`".to_string();
                return Err(ReadError { message, span: Span::new(at, at + 1) });
            }
            self.entry = self.computations.len();
        }
        self.computations.push(Computation { name, instructions, root, users });
        Ok(())
    }

    /// Skips the types of a computation and the brace in front of its instructions.
    fn body_begins(&self, cursor: &mut Cursor<'a>) -> Result<(), ReadError> {
        loop {
            let before = cursor.at();
            cursor.balanced(|b| b == b'{' || b == b'}')?;
            if cursor.peek() != Some(b'{') {
                return Err(cursor.expected("`{`, behind which instructions stand"));
            }
            let mut ahead = cursor.clone();
            ahead.take("{");
            ahead.skip_blanks();
            if ahead.peek() == Some(b'\n') || ahead.at_end() {
                *cursor = ahead;
                return Ok(());
            }
            // This brace is of the layout of a type: `f32[4,256]{1,0}`.
            cursor.take("{");
            cursor.balanced(|b| b == b'}')?;
            cursor.expect("}")?;
            debug_assert!(cursor.at() > before);
        }
    }
}

/// Reads one instruction and the names of its operands.
fn instruction<'a>(cursor: &mut Cursor<'a>) -> Result<(Instruction<'a>, Vec<Use<'a>>), ReadError> {
    let start = cursor.at();
    let name = cursor.name("an instruction, or the `}` behind the last one")?;
    cursor.skip_blanks();
    cursor.expect("=")?;
    cursor.skip_blanks();
    let shape = cursor.balanced(|b| b == b' ')?;
    if shape.is_empty() {
        return Err(cursor.expected("a shape"));
    }
    cursor.skip_blanks();
    let opcode =
        cursor.take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b));
    if opcode.is_empty() {
        return Err(cursor.expected("an operation"));
    }
    if cursor.peek() != Some(b'(') {
        return Err(cursor.expected("`(` and the operands"));
    }
    let from = cursor.at() + 1;
    // `balanced` ends behind the `)` that closes the operands.
    let mut operand_text = cursor.balanced(|b| b == b',' || b == b' ')?;
    operand_text = operand_text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        .ok_or_else(|| cursor.expected("`)`"))?;
    let span = Span::new(start, cursor.at());
    cursor.skip_blanks();
    let attributes_text = cursor.balanced(|_| false)?;
    if !attributes_text.is_empty() && !attributes_text.starts_with(',') {
        return Err(cursor.expected("`,` and attributes"));
    }
    let uses = if matches!(opcode, "constant" | "parameter") {
        Vec::new()
    } else {
        parts(operand_text)
            .map_err(|error| ReadError { span: error.span.shifted(from), ..error })?
            .into_iter()
            .map(|(at, part)| (operand_name(part), from + at))
            .collect()
    };
    let found = Instruction {
        name,
        shape,
        opcode,
        operand_text,
        operands: Vec::new(),
        attributes: attributes_text,
        span,
    };
    Ok((found, uses))
}

/// The name in an operand: `%x`, or a name behind a type, as with JAX 0.4.
fn operand_name(text: &str) -> &str {
    let text = without_comment(text.trim());
    text.rsplit([' ', '\n']).next().unwrap_or(text).trim_start_matches('%')
}

/// Sets the operands of all instructions from their names, and gives for each instruction those
/// that use it.
fn resolve<'a>(
    instructions: &mut [Instruction<'a>],
    operands: &[Vec<Use<'a>>],
    computation: &str,
) -> Result<Vec<Vec<u32>>, ReadError> {
    let mut by_name: FxHashMap<&str, u32> = FxHashMap::default();
    for (at, instruction) in instructions.iter().enumerate() {
        if by_name.insert(instruction.name, at as u32).is_some() {
            let message = format!("a second instruction has the name `%{}`", instruction.name);
            return Err(ReadError { message, span: instruction.span });
        }
    }
    let mut users = vec![Vec::new(); instructions.len()];
    for (at, (instruction, uses)) in instructions.iter_mut().zip(operands).enumerate() {
        for (name, place) in uses {
            let Some(of) = by_name.get(name) else {
                let message = format!("`{computation}` has no instruction `%{name}`");
                return Err(ReadError { message, span: Span::new(*place, place + name.len()) });
            };
            instruction.operands.push(*of);
            let of: &mut Vec<u32> = &mut users[*of as usize];
            if of.last() != Some(&(at as u32)) {
                of.push(at as u32);
            }
        }
    }
    Ok(users)
}

/// The names of the computations that an instruction calls, each with what it is called for.
pub fn called<'a>(instruction: &Instruction<'a>) -> Vec<(Called, &'a str)> {
    let role = |name: &str| match (instruction.opcode, name) {
        ("while", "condition") => Some(Called::Condition),
        ("while", "body") => Some(Called::Body),
        ("conditional", "branch_computations" | "true_computation" | "false_computation") => {
            Some(Called::Branch)
        }
        ("fusion", "calls") | ("call", "to_apply") | ("async-start", "calls" | "to_apply") => {
            Some(Called::Once)
        }
        ("custom-call" | "async-start", "called_computations") => Some(Called::Once),
        _ => None,
    };
    // Most instructions call nothing, and their attributes need no look.
    if !matches!(
        instruction.opcode,
        "while" | "conditional" | "fusion" | "call" | "async-start" | "custom-call"
    ) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, value) in attributes(instruction.attributes) {
        let Some(role) = role(name) else { continue };
        let names = value.trim_matches(['{', '}']).split(',');
        let names = names.map(|name| name.trim().trim_start_matches('%'));
        found.extend(names.filter(|name| !name.is_empty()).map(|name| (role, name)));
    }
    found
}

/// What a computation is called for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    /// It runs where the caller stands.
    Once,
    /// It is one of several branches, of which one runs.
    Branch,
    /// It is the condition of a loop, which runs before each turn and once more.
    Condition,
    /// It is the body of a loop, which runs in each turn.
    Body,
}
