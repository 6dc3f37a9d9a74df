//! Loops whose turns are written out, one after another, and the stacks that they slice and fill.
//!
//! A scan takes a slice of each stack in each turn. A slice of an argument is a parameter of its
//! own, so that a stack of weights becomes as many weights. A slice of a stack that another loop
//! has filled is the value that the loop wrote there. An elementwise op on whole stacks becomes an
//! op on each slice.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use shard_ir::{Binary, Dtype, Reduce};

use super::{Class, Expression, Scope, Stacked, Translator, Value, callee, dtype, trips};
use crate::before::read::{Function, Op, Tensor, values};

/// The most statements of a layer whose loops are written out. A search for a plan of a larger one
/// would take many seconds.
const MOST_WRITTEN: usize = 12_000;

/// The depth to which calls may be nested.
const MOST_CALLS: usize = 40;

impl Translator<'_> {
    /// The indices of the arguments of `main` that a loop slices in its turns.
    pub(super) fn sliced_arguments(&self, main: &Function) -> BTreeSet<usize> {
        let of = main.arguments.iter().enumerate().map(|(at, port)| (port.id.as_str(), at));
        let mut found = BTreeSet::new();
        self.sliced_in(&main.ops, &of.collect(), &mut found, 0);
        // What an optimiser keeps of a stack of weights has the key and the sizes of the stack, and
        // is a stack as well.
        let key = |at: &usize| {
            let port = &main.arguments[*at];
            let name = port.name.as_deref()?;
            Some((name.rsplit(['[', '.']).next()?.to_string(), port.tensor.dims.clone()))
        };
        let keys: BTreeSet<_> = found.iter().filter_map(key).collect();
        let is_kept = |at: &usize| key(at).is_some_and(|key| keys.contains(&key));
        found.extend((0..main.arguments.len()).filter(is_kept));
        found
    }

    fn sliced_in(
        &self,
        ops: &[Op],
        of: &FxHashMap<&str, usize>,
        found: &mut BTreeSet<usize>,
        depth: usize,
    ) {
        for op in ops.iter().filter(|_| depth < MOST_CALLS) {
            if let Some(function) = callee(op).and_then(|name| self.stable.functions.get(name)) {
                let ports = function.arguments.iter().zip(&op.operands);
                let inner =
                    ports.filter_map(|(port, word)| Some((port.id.as_str(), *of.get(&**word)?)));
                self.sliced_in(&function.ops, &inner.collect(), found, depth + 1);
            }
            let ("stablehlo.while", [condition, body]) = (&*op.name, &op.regions[..]) else {
                continue;
            };
            let (Some(turns), Some(returned)) = (trips(condition), body.last()) else { continue };
            let named = values(&op.text);
            for (element, pair) in named.chunks_exact(2).enumerate() {
                let is_handed_on = returned.operands.get(element) == Some(&pair[0]);
                let long = op.types.get(element).and_then(|tensor| tensor.dims.first());
                if let (true, Some(at)) = (is_handed_on && long == Some(&turns), of.get(&*pair[1]))
                {
                    found.insert(*at);
                }
            }
        }
    }

    /// Translates a loop turn by turn.
    pub(super) fn written_out(
        &mut self,
        op: &Op,
        scope: &mut Scope,
        depth: usize,
    ) -> Result<(), String> {
        let [condition, body] = &op.regions[..] else { return Err("a loop".to_string()) };
        let named = values(&op.text);
        let mut state: Vec<Value> = named
            .chunks_exact(2)
            .map(|pair| self.value(scope, &pair[1]))
            .collect::<Result<_, String>>()?;
        loop {
            let mut inner = scope.clone();
            for (n, (pair, value)) in named.chunks_exact(2).zip(&state).enumerate() {
                inner.insert(pair[0].clone(), (value.clone(), op.types.get(n).cloned()));
            }
            match self.walk(condition, &mut inner, depth + 1)?.first() {
                Some(Value::Known(_, Some(0))) => break,
                Some(Value::Known(_, Some(_))) => {}
                _ => return Err("the length of its loop is not known".to_string()),
            }
            let given = self.walk(body, &mut inner, depth + 1)?;
            if given.len() != state.len() {
                return Err("its loop gives something else than it takes".to_string());
            }
            state = given;
            if self.layer.statements.len() > MOST_WRITTEN {
                return Err(format!(
                    "its loops, written out, have more than {MOST_WRITTEN} operations"
                ));
            }
        }
        for (n, value) in state.into_iter().enumerate() {
            let one = (value, op.types.get(n).cloned());
            if op.results == 1 {
                scope.insert(op.result.clone(), one.clone());
            }
            scope.insert(format!("{}#{n}", op.result), one);
        }
        Ok(())
    }

    /// The whole number that an op gives, where it is known: counts of turns, and positions in
    /// stacks.
    pub(super) fn folded(op: &Op, operands: &[Value]) -> Option<i64> {
        let tensor = op.types.last()?;
        if !tensor.dims.is_empty()
            || !matches!(dtype(&tensor.dtype), Dtype::Int32 | Dtype::Bool | Dtype::Int8)
        {
            return None;
        }
        let number = |at: usize| match operands.get(at) {
            Some(Value::Known(_, number)) => *number,
            _ => None,
        };
        match op.name.strip_prefix("stablehlo.")? {
            "constant" => {
                let (_, rest) = op.text.split_once("dense<")?;
                match rest.split_once('>')?.0 {
                    "true" => Some(1),
                    "false" => Some(0),
                    text => text.parse().ok(),
                }
            }
            "add" => number(0)?.checked_add(number(1)?),
            "subtract" => number(0)?.checked_sub(number(1)?),
            "multiply" => number(0)?.checked_mul(number(1)?),
            "minimum" => Some(number(0)?.min(number(1)?)),
            "maximum" => Some(number(0)?.max(number(1)?)),
            "clamp" => Some(number(1)?.max(number(0)?).min(number(2)?)),
            "select" => number(if number(0)? == 0 { 2 } else { 1 }),
            "convert" | "reshape" | "broadcast_in_dim" => number(0),
            "compare" => {
                let (one, other) = (number(0)?, number(1)?);
                let holds = match op.text.split(',').next()?.trim() {
                    "LT" => one < other,
                    "LE" => one <= other,
                    "GT" => one > other,
                    "GE" => one >= other,
                    "EQ" => one == other,
                    "NE" => one != other,
                    _ => return None,
                };
                Some(i64::from(holds))
            }
            _ => None,
        }
    }

    /// How many slices a stack has.
    fn turns(&self, stack: usize) -> usize {
        match &self.stacks[stack] {
            Stacked::Argument { tensor, .. } => {
                usize::try_from(tensor.dims.first().copied().unwrap_or(0)).unwrap_or(0)
            }
            Stacked::Made(slices) => slices.len(),
        }
    }

    /// A slice of a stack, its first dim of size 1.
    pub(super) fn slice_of(&mut self, stack: usize, turn: usize) -> Option<Value> {
        match &self.stacks[stack] {
            Stacked::Argument { .. } => Some(self.slice_of_argument(stack, turn)),
            Stacked::Made(slices) => slices.get(turn)?.clone(),
        }
    }

    /// The slices of a stack; `None` for those that are not written yet.
    pub(super) fn slices(&mut self, stack: usize) -> Vec<Option<Value>> {
        let turns = self.turns(stack).min(MOST_WRITTEN);
        (0..turns).map(|turn| self.slice_of(stack, turn)).collect()
    }

    fn stack(&mut self, slices: Vec<Option<Value>>) -> Value {
        self.stacks.push(Stacked::Made(slices));
        Value::Stack(self.stacks.len() - 1)
    }

    /// A slice of one position along the first dim of a stack or tensor.
    pub(super) fn dynamic_slice(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let (source, at) = match operands {
            [source, Value::Known(_, Some(at)), ..] => (source, usize::try_from(*at).ok()?),
            // In a folded loop the turn is no known number.
            [Value::Stack(stack), ..] => return self.slice_of(*stack, 0),
            [Value::Known(rank, _), ..] => return Some(Value::Known(*rank, None)),
            [] | [Value::Tensor(..), ..] => return None,
        };
        let (whole, part) = (self.types.first()?.clone()?, op.types.last()?.clone());
        if part.dims.first() != Some(&1) || part.dims.get(1..) != whole.dims.get(1..) {
            return None;
        }
        match source {
            Value::Stack(stack) => self.slice_of(*stack, at),
            Value::Tensor(name, positions, dtype) => self.first_at(op, name, positions, *dtype, at),
            Value::Known(rank, _) => Some(Value::Known(*rank, None)),
        }
    }

    /// One position along the first dim of a tensor; the dim then has size 1.
    fn first_at(
        &mut self,
        op: &Op,
        name: &str,
        positions: &[Option<Class>],
        dtype: Dtype,
        at: usize,
    ) -> Option<Value> {
        let class = (*positions.first()?)?;
        let one = self.layer.fresh(1);
        let rest = &positions[1..];
        let cut = std::iter::once(Some(one)).chain(rest.iter().copied()).collect();
        let slice = Expression::Slice(name.to_string(), class, one, at as u64);
        let Value::Tensor(name, ..) = self.make(op, slice, cut, dtype) else { return None };
        let left = std::iter::once(None).chain(rest.iter().copied()).collect();
        Some(self.make(op, Expression::Reduce(Reduce::Sum, name, vec![one]), left, dtype))
    }

    /// A stack with one slice written.
    pub(super) fn dynamic_update(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let [base, update, Value::Known(_, Some(at)), ..] = operands else { return None };
        let (at, whole) = (usize::try_from(*at).ok()?, op.types.last()?.clone());
        let part = self.types.get(1)?.clone()?;
        let turns = usize::try_from(*whole.dims.first()?).ok()?;
        if part.dims.first() != Some(&1) || part.dims.get(1..) != whole.dims.get(1..) || turns == 1
        {
            return None;
        }
        let mut slices = match base {
            Value::Known(..) => vec![None; turns.min(MOST_WRITTEN)],
            Value::Stack(stack) => self.slices(*stack),
            Value::Tensor(..) => return None,
        };
        *slices.get_mut(at)? = Some(update.clone());
        Some(self.stack(slices))
    }

    /// An op on whole stacks as an op on each of their slices; a reduction along the slices adds
    /// these up.
    pub(super) fn by_turns(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let stacks: Vec<usize> = operands
            .iter()
            .filter_map(|operand| match operand {
                Value::Stack(stack) => Some(*stack),
                Value::Tensor(..) | Value::Known(..) => None,
            })
            .collect();
        let turns = self.turns(*stacks.first()?);
        let is_sum = op.name == "stablehlo.reduce";
        let one_by_one = is_sum || BY_TURNS.contains(&&*op.name);
        let room = MOST_WRITTEN.saturating_sub(self.layer.statements.len());
        if !one_by_one || turns > room || stacks.iter().any(|stack| self.turns(*stack) != turns) {
            return None;
        }
        let one = one_turn(op);
        let mut made = Vec::new();
        for turn in 0..turns {
            let taken: Option<Vec<Value>> = operands
                .iter()
                .map(|operand| match operand {
                    Value::Stack(stack) => self.slice_of(*stack, turn),
                    Value::Tensor(name, positions, dtype)
                        if positions.first().is_some_and(Option::is_some) =>
                    {
                        self.first_at(op, name, positions, *dtype, turn)
                    }
                    other => Some(other.clone()),
                })
                .collect();
            made.push(match taken {
                Some(taken) => Some(self.op(&one, &taken).ok()?),
                None => None,
            });
        }
        let is_over_turns =
            op.text.split_once("dimensions = [").is_some_and(|(_, rest)| rest.starts_with('0'));
        if !is_sum || !is_over_turns {
            return Some(self.stack(made));
        }
        let sum = if op.text.contains("stablehlo.add") { Binary::Add } else { Binary::Maximum };
        let mut parts = made.into_iter().flatten();
        let first = parts.next()?;
        parts.try_fold(first, |all, part| self.elementwise(op, &[all, part], sum))
    }
}

/// Elementwise ops.
const BY_TURNS: [&str; 23] = [
    "stablehlo.add",
    "stablehlo.subtract",
    "stablehlo.multiply",
    "stablehlo.divide",
    "stablehlo.maximum",
    "stablehlo.minimum",
    "stablehlo.power",
    "stablehlo.select",
    "stablehlo.clamp",
    "stablehlo.compare",
    "stablehlo.and",
    "stablehlo.or",
    "stablehlo.not",
    "stablehlo.exponential",
    "stablehlo.log",
    "stablehlo.sqrt",
    "stablehlo.rsqrt",
    "stablehlo.logistic",
    "stablehlo.tanh",
    "stablehlo.abs",
    "stablehlo.negate",
    "stablehlo.convert",
    "sdy.sharding_constraint",
];

/// The op on slices: the first dim of its types has size 1.
fn one_turn(op: &Op) -> Op {
    let mut one = op.clone();
    for Tensor { dims, .. } in &mut one.types {
        if let Some(first) = dims.first_mut() {
            *first = 1;
        }
    }
    one
}
