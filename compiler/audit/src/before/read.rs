//! Reads StableHLO: as much of MLIR's text as `as_text()` of JAX writes.

use rustc_hash::FxHashMap;
use shard_words::Span;

use super::sharding::{self, Spec};
use crate::hlo::ReadError;
use crate::hlo::tables::Place;

/// The type of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Sizes of its dims.
    pub dims: Vec<u64>,
    /// Its dtype as MLIR spells it: `f32`, `i32`, `i1`.
    pub dtype: String,
}

/// An argument or a result of a function.
#[derive(Clone, Debug)]
pub struct Port {
    /// The name in the text, `%arg0`; empty for results.
    pub id: String,
    /// The name in the user's program, where it is known; of results, `result[1]['w']`.
    pub name: Option<String>,
    /// Its type.
    pub tensor: Tensor,
    /// Its sharding, where it has one.
    pub spec: Option<Spec>,
    /// Where it stands in the text.
    pub span: Span,
}

/// One op.
#[derive(Clone, Debug)]
pub struct Op {
    /// The name of its result, `%3`, without the number of results; or all names, if each result
    /// has one: `%values, %indices`.
    pub result: String,
    /// How many results it has.
    pub results: usize,
    /// What it does: `stablehlo.add`, `call`.
    pub name: String,
    /// What stands between its name and its types.
    pub text: String,
    /// The values that it names, in order.
    pub operands: Vec<String>,
    /// The types of its results, in order; an op with one type for operands and results has that
    /// type.
    pub types: Vec<Tensor>,
    /// The line of the user's program that it comes from.
    pub place: Option<Place>,
    /// Whether differentiation made it, so that no line of the program states it.
    pub of_gradient: bool,
    /// Its regions, each a list of ops: condition and body of a loop.
    pub regions: Vec<Vec<Op>>,
    /// Where it stands in the text, with its regions: from its first word to the end of its last
    /// line.
    pub span: Span,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its arguments.
    pub arguments: Vec<Port>,
    /// Its results.
    pub results: Vec<Port>,
    /// What it does; the last op is `return`.
    pub ops: Vec<Op>,
}

/// A module of StableHLO.
#[derive(Clone, Debug)]
pub struct Stable {
    /// The mesh that it names, axes major to minor.
    pub mesh: Option<Vec<(String, u64)>>,
    /// What it calls that mesh: `@mesh`.
    pub mesh_name: Option<String>,
    /// Its functions by name; `main` is the program.
    pub functions: FxHashMap<String, Function>,
}

/// The depth to which regions and locations may be nested.
const MAX_DEPTH: usize = 64;

/// The lines of a text that are not empty, each with its place, and what was read so far.
struct Reader<'a> {
    all: Vec<(usize, &'a str)>,
    at: usize,
    places: FxHashMap<&'a str, &'a str>,
    mesh: Option<Vec<(String, u64)>>,
    mesh_name: Option<String>,
}

/// Reads a module. `mesh` are the axes for a module that names none, as one of JAX before Shardy.
pub fn read(text: &str, mesh: Option<&[(String, u64)]>) -> Result<Stable, ReadError> {
    let mut offset = 0;
    let mut all = Vec::new();
    let mut places = FxHashMap::default();
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        match trimmed.strip_prefix('#').and_then(|rest| rest.split_once(" = ")) {
            Some((name, place)) if name.starts_with("loc") => drop(places.insert(name, place)),
            _ if trimmed.is_empty() => {}
            _ => all.push((offset + (line.len() - line.trim_start().len()), trimmed)),
        }
        offset += line.len();
    }
    let mesh = mesh.map(<[_]>::to_vec);
    let mut reader = Reader { all, at: 0, places, mesh, mesh_name: None };
    let mut functions = FxHashMap::default();
    let Some((_, first)) = reader.all.first() else {
        return Err(reader.expected("`module`, with which StableHLO begins"));
    };
    if !first.starts_with("module") {
        return Err(reader.expected("`module`, with which StableHLO begins"));
    }
    reader.at += 1;
    loop {
        let Some((_, line)) = reader.all.get(reader.at).copied() else {
            return Err(reader.expected("`}`, with which the module ends"));
        };
        if line.starts_with('}') {
            break;
        } else if line.starts_with("sdy.mesh") {
            reader.mesh = read_mesh(line);
            reader.mesh_name = line.split_whitespace().nth(1).map(ToString::to_string);
            reader.at += 1;
        } else if line.starts_with("func.func") {
            let (name, function) = reader.function(line)?;
            functions.insert(name, function);
        } else {
            return Err(reader.expected("a function, or `}`"));
        }
    }
    if !functions.contains_key("main") {
        return Err(reader.expected("a function `@main`"));
    }
    Ok(Stable { mesh: reader.mesh, mesh_name: reader.mesh_name, functions })
}

/// `sdy.mesh @mesh = <["data"=2, "model"=4]> ..`.
fn read_mesh(line: &str) -> Option<Vec<(String, u64)>> {
    let (axes, _) = line.split_once("<[")?.1.split_once(']')?;
    axes.split(',')
        .map(|axis| {
            let (name, size) = axis.trim().split_once('=')?;
            Some((name.trim_matches('"').to_string(), size.trim().parse().ok()?))
        })
        .collect()
}

impl Reader<'_> {
    fn expected(&self, what: &str) -> ReadError {
        match self.all.get(self.at).or(self.all.last()) {
            Some((start, line)) if self.at < self.all.len() => {
                let shown: String = line.chars().take(40).collect();
                let message = format!("expected {what}, and found `{shown}`");
                ReadError { message, span: Span::new(*start, start + line.len()) }
            }
            last => {
                let end = last.map_or(0, |(start, line)| start + line.len());
                let message = format!("expected {what}, and the text ends: is it cut off?");
                ReadError { message, span: Span::at(end) }
            }
        }
    }

    /// Reads a function: `func.func public @main(%arg0: .., ..) -> (..) {` and its ops.
    fn function(&mut self, line: &str) -> Result<(String, Function), ReadError> {
        let wrong = |reader: &Self| reader.expected("`func.func @name(..) -> .. {`");
        let begin = self.all.get(self.at).map_or(0, |(start, _)| *start);
        let port = |reader: &Self, text: &str| {
            let at = begin + offset_within(line, text);
            reader.port(text, Span::new(at, at + text.len()))
        };
        let (head, behind) = line
            .split_once('@')
            .and_then(|(_, rest)| rest.split_once('('))
            .ok_or_else(|| wrong(self))?;
        let close = closing(behind).ok_or_else(|| wrong(self))?;
        let arguments = split_top(&behind[..close])
            .into_iter()
            .map(|text| port(self, text))
            .collect::<Option<Vec<Port>>>()
            .ok_or_else(|| wrong(self))?;
        let rest = behind[close + 1..].trim().trim_end_matches('{').trim();
        let results = match rest.strip_prefix("->").map(str::trim) {
            None => Vec::new(),
            Some(types) => {
                let types = types
                    .strip_prefix('(')
                    .and_then(|inner| Some(&inner[..closing(inner)?]))
                    .unwrap_or(types);
                let ports = split_top(types).into_iter().map(|text| port(self, text));
                ports.collect::<Option<Vec<Port>>>().ok_or_else(|| wrong(self))?
            }
        };
        if !line.ends_with('{') {
            return Err(wrong(self));
        }
        self.at += 1;
        let ops = self.ops(0)?;
        self.at += 1;
        Ok((head.trim().to_string(), Function { arguments, results, ops }))
    }

    /// Reads an argument, `%arg0: tensor<..> {sdy.sharding = ..} loc("x")`, or a result, which has
    /// no name.
    fn port(&self, text: &str, span: Span) -> Option<Port> {
        let text = text.trim();
        let (id, rest) = match text.strip_prefix('%') {
            Some(_) => text.split_once(':')?,
            None => ("", text),
        };
        let tensor = tensors(rest).into_iter().next()?;
        let spec = if let Some((_, behind)) = rest.split_once("sdy.sharding<") {
            sharding::shardy(behind)
        } else {
            rest.split_once("mhlo.sharding = \"").and_then(|(_, behind)| {
                let (inner, _) = behind.split_once('"')?;
                sharding::hlo(inner, self.mesh.as_ref()?, tensor.dims.len())
            })
        };
        let spec = spec.filter(|spec| spec.len() == tensor.dims.len());
        let name = rest.rsplit_once("loc(\"").and_then(|(_, named)| named.split_once('"'));
        let name = name.or_else(|| rest.split_once("jax.result_info = \"")?.1.split_once('"'));
        let name = name.map(|(name, _)| name.to_string());
        Some(Port { id: id.trim().to_string(), name, tensor, spec, span })
    }

    /// Reads ops up to a line that begins with `}`, which is left.
    fn ops(&mut self, depth: usize) -> Result<Vec<Op>, ReadError> {
        if depth > MAX_DEPTH {
            return Err(self.expected(&format!("no region more than {MAX_DEPTH} deep")));
        }
        let mut ops = Vec::new();
        loop {
            let Some((_, line)) = self.all.get(self.at).copied() else {
                return Err(self.expected("`}` behind the last op"));
            };
            if line.starts_with('}') {
                return Ok(ops);
            }
            let mut op = self.op(line).ok_or_else(|| self.expected("an op"))?;
            let begin = self.all[self.at].0;
            self.at += 1;
            if op.name == "stablehlo.while" {
                for word in ["cond {", "} do {"] {
                    if !self.all.get(self.at).is_some_and(|(_, line)| line.starts_with(word)) {
                        return Err(self.expected(&format!("`{word}`")));
                    }
                    self.at += 1;
                    op.regions.push(self.ops(depth + 1)?);
                }
                self.at += 1;
            } else if line.ends_with("({") || line.ends_with('{') {
                op.types = self.skip_region()?;
                // The location of such an op stands behind the region.
                if let Some((_, place)) = self.all[self.at - 1].1.rsplit_once(" loc(") {
                    self.locate(&mut op, place);
                }
            }
            // A reduction of several tensors has its region behind its types.
            if self.all.get(self.at).is_some_and(|(_, line)| line.starts_with("reducer(")) {
                self.at += 1;
                self.skip_region()?;
            }
            let (last, text) = self.all[self.at - 1];
            op.span = Span::new(begin, last + text.len());
            ops.push(op);
        }
    }

    /// Skips a region up to the line that closes it, and gives the types on that line.
    fn skip_region(&mut self) -> Result<Vec<Tensor>, ReadError> {
        let mut depth = 1_usize;
        loop {
            let Some((_, line)) = self.all.get(self.at).copied() else {
                return Err(self.expected("`}` behind the region"));
            };
            self.at += 1;
            if line.starts_with('}') {
                depth -= 1;
            }
            if depth == 0 && !line.ends_with('{') {
                let line = line.rsplit_once(" loc(").map_or(line, |(line, _)| line);
                return Ok(result_types(line));
            }
            // `}` and `{` may stand on one line, as in `} do {`.
            if line.ends_with('{') || line.ends_with("({") {
                depth += 1;
            }
        }
    }

    /// Reads an op of one line: `%0 = stablehlo.add %a, %b : tensor<..> loc(#loc3)`.
    fn op(&self, line: &str) -> Option<Op> {
        let (line, place) = match line.rsplit_once(" loc(") {
            Some((line, place)) => (line, Some(place)),
            None => (line, None),
        };
        let (result, results, rest) = match line.split_once(" = ") {
            Some((result, rest)) if result.starts_with('%') => match result.split_once(':') {
                Some((name, count)) => (name, count.parse().ok()?, rest),
                None => (result, result.split(", ").count(), rest),
            },
            _ => ("", 0, line),
        };
        let long = rest.find([' ', '(']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(long);
        let name = name.trim_matches('"').trim_start_matches("func.").to_string();
        if name.is_empty() {
            return None;
        }
        let text = match top_colon(rest) {
            Some(at) => &rest[..at],
            None => rest,
        };
        let mut op = Op {
            result: result.to_string(),
            results,
            name,
            text: text.trim().to_string(),
            operands: values(text),
            types: result_types(&rest[text.len()..]),
            place: None,
            of_gradient: false,
            regions: Vec::new(),
            span: Span::at(0),
        };
        if let Some(place) = place {
            self.locate(&mut op, place);
        }
        Some(op)
    }

    /// Gives an op its location. `text` is the location with its closing bracket, without the
    /// opening one.
    fn locate(&self, op: &mut Op, text: &str) {
        let Some(text) = text.strip_suffix(')') else { return };
        op.place = self.place(text, 0);
        let name = text.strip_prefix('#').and_then(|name| self.places.get(name));
        op.of_gradient = name.unwrap_or(&text).contains("transpose(");
    }

    /// The innermost file and line of a location.
    fn place(&self, text: &str, depth: usize) -> Option<Place> {
        if depth > MAX_DEPTH {
            return None;
        }
        let text = text.trim();
        let text = text.strip_prefix("loc(").map_or(text, |t| t.strip_suffix(')').unwrap_or(t));
        if let Some(name) = text.strip_prefix('#') {
            return self.place(self.places.get(name)?, depth + 1);
        }
        if let Some(inner) = text.strip_prefix("callsite(") {
            let (callee, _) = inner.split_once(" at ")?;
            return self.place(callee, depth + 1);
        }
        let (name, rest) = text.strip_prefix('"')?.split_once('"')?;
        if let Some(inner) = rest.strip_prefix('(') {
            return self.place(inner.strip_suffix(')')?, depth + 1);
        }
        let line = rest.strip_prefix(':')?.split(':').next()?.trim().parse().ok()?;
        Some(Place { file: name.to_string(), line })
    }
}

/// The offset at which a part of a text begins.
fn offset_within(whole: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

/// The values that a text names: `%arg0`, `%1#2`.
pub(crate) fn values(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('%') {
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '#';
        let long = behind.find(|c: char| !is_of_name(c)).unwrap_or(behind.len());
        found.push(format!("%{}", &behind[..long]));
        rest = &behind[long..];
    }
    found
}

/// The types behind the arrow, or all types if there is no arrow.
fn result_types(text: &str) -> Vec<Tensor> {
    tensors(text.rsplit_once("->").map_or(text, |(_, results)| results))
}

/// The types of tensors in a text.
fn tensors(text: &str) -> Vec<Tensor> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("tensor<") {
        let Some((inner, after)) = behind.split_once('>') else { break };
        let mut parts: Vec<&str> = inner.split('x').collect();
        let dtype = parts.pop().unwrap_or_default().to_string();
        if let Ok(dims) = parts.into_iter().map(str::parse).collect::<Result<Vec<u64>, _>>() {
            found.push(Tensor { dims, dtype });
        }
        rest = after;
    }
    found
}

/// The place of the bracket that closes one before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return Some(at),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The parts of a text between commas outside brackets and strings.
fn split_top(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start) = (0_usize, false, 0);
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The place of the first colon outside brackets and strings that has a blank in front.
fn top_colon(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut found) = (0_usize, false, None);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && text[..at].ends_with(' ') => found = found.or(Some(at)),
            _ => {}
        }
    }
    found
}
