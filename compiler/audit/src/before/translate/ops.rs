//! Translates each op of StableHLO to statements of a layer.

use shard_ir::{Binary, Dtype, Map, Reduce};

use super::{Class, Constraint, Expression, Translator, Value, dtype, rest_of_stack};
use crate::before::read::{Op, Tensor};
use crate::before::sharding::{self, Spec};

/// Numbers between brackets behind a word: `dims = [0, 2]`.
pub(super) fn list(text: &str, word: &str) -> Option<Vec<usize>> {
    let (_, rest) = text.split_once(word)?;
    let (inner, _) = rest.split_once('[')?.1.split_once(']')?;
    inner.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
}

impl Translator<'_> {
    /// The result of an op. An op that is not understood gives a value from outside, or one made of
    /// its one operand.
    pub(super) fn op(&mut self, op: &Op, operands: &[Value]) -> Result<Value, String> {
        if op.text.contains("@SPMDFullToShardShape(") {
            return Err("it has a `shard_map` of JAX before Shardy".to_string());
        }
        if let Some(number) = Self::folded(op, operands) {
            return Ok(Value::Known(0, Some(number)));
        }
        if operands.iter().any(|operand| matches!(operand, Value::Stack(_)))
            && let Some(value) = self.by_turns(op, operands)
        {
            return Ok(value);
        }
        let found = match op.name.strip_prefix("stablehlo.").unwrap_or(&op.name) {
            "compare" => self.compare(op, operands),
            "constant" | "iota" | "and" | "or" | "not" | "xor" | "partition_id" => {
                Some(self.known(op))
            }
            "broadcast_in_dim" => self.broadcast(op, operands),
            "add" => self.elementwise(op, operands, Binary::Add),
            "subtract" => self.elementwise(op, operands, Binary::Sub),
            "multiply" => self.elementwise(op, operands, Binary::Mul),
            "divide" => self.elementwise(op, operands, Binary::Div),
            "maximum" => self.elementwise(op, operands, Binary::Maximum),
            "minimum" | "remainder" | "power" => self.elementwise(op, operands, Binary::Minimum),
            "select" | "clamp" => self.select(op, operands),
            "exponential" => self.map(op, operands, Map::Exp),
            "log" => self.map(op, operands, Map::Log),
            "sqrt" => self.map(op, operands, Map::Sqrt),
            "rsqrt" => self.map(op, operands, Map::Rsqrt),
            "logistic" => self.map(op, operands, Map::Sigmoid),
            "abs" => self.map(op, operands, Map::Abs),
            // All these are elementwise and not linear, so that a plan sends the same around them.
            "tanh" | "sine" | "cosine" | "cbrt" | "exponential_minus_one" | "log_plus_one" => {
                self.map(op, operands, Map::Tanh)
            }
            "negate" => self.negate(op, operands),
            "convert" => self.convert(op, operands),
            "optimization_barrier" => operands.first().cloned(),
            "transpose" => self.transpose(op, operands),
            "reshape" => self.reshape(op, operands),
            "slice" => self.slice(op, operands),
            "dynamic_slice" => self.dynamic_slice(op, operands),
            "reduce" => self.reduce(op, operands),
            "dot_general" => self.dot(op, operands),
            "gather" => self.gather(op, operands),
            "scatter" => self.scatter(op, operands),
            "pad" => self.pad(op, operands),
            "concatenate" => self.concatenate(op, operands),
            // An update that is not understood is left out: what it writes is small beside the
            // whole.
            "dynamic_update_slice" => self.dynamic_update(op, operands).or_else(|| {
                *self.layer.barriers.entry(op.name.clone()).or_default() += 1;
                operands.first().cloned()
            }),
            // A constraint that terms stay terms is left out, since a plan keeps terms if that is
            // best.
            "sdy.sharding_constraint" if op.text.contains("unreduced={\"") => {
                operands.first().cloned()
            }
            "sdy.sharding_constraint" => {
                spec_of_shardy(op).and_then(|spec| self.constrain(op, operands, spec))
            }
            "custom_call" if op.text.contains("@Sharding(") => {
                self.spec_of_hlo(op).and_then(|spec| self.constrain(op, operands, spec))
            }
            _ => None,
        };
        match found {
            Some(value) => Ok(value),
            None if operands.iter().all(|o| matches!(o, Value::Known(..))) => Ok(self.known(op)),
            None => self.barrier(op, operands),
        }
    }

    pub(super) fn known(&self, op: &Op) -> Value {
        Value::Known(op.types.last().map_or(0, |tensor| tensor.dims.len()), None)
    }

    /// A parameter for numbers that every device has.
    pub(super) fn table(&mut self, tensor: Tensor) -> Value {
        self.parameter("a table".to_string(), &tensor, None, None)
    }

    /// The result of an op that is not understood. An op of one tensor is taken to work along the
    /// dims that keep their place and size; any other gives a value from outside.
    fn barrier(&mut self, op: &Op, operands: &[Value]) -> Result<Value, String> {
        *self.layer.barriers.entry(op.name.clone()).or_default() += 1;
        let tensor = op.types.first().ok_or_else(|| format!("`{}` has no type", op.name))?.clone();
        if let Some(made) = self.made_of_one(op, operands, &tensor) {
            return Ok(made);
        }
        let name = format!("the result of {}", op.name);
        Ok(self.parameter(name, &tensor, None, None))
    }

    fn made_of_one(&mut self, op: &Op, operands: &[Value], tensor: &Tensor) -> Option<Value> {
        let mut tensors = operands.iter().filter_map(|operand| match operand {
            Value::Tensor(name, dims, dtype) if !matches!(dtype, Dtype::Int32 | Dtype::Bool) => {
                Some((name.clone(), dims.clone(), *dtype))
            }
            Value::Tensor(..) | Value::Known(..) | Value::Stack(_) => None,
        });
        match (tensors.next(), tensors.next()) {
            (Some((name, dims, dtype)), None) => self.made_of(op, name, dims, dtype, &tensor.dims),
            _ => None,
        }
    }

    /// A further result of an op that is not understood.
    pub(super) fn other_result(&mut self, op: &Op, operands: &[Value], n: usize) -> Value {
        let Some(tensor) = op.types.get(n).cloned() else { return Value::Known(0, None) };
        if let Some(made) = self.made_of_one(op, operands, &tensor) {
            return made;
        }
        match dtype(&tensor.dtype) {
            Dtype::Int32 => Value::Known(tensor.dims.len(), None),
            _ => self.parameter(format!("result {n} of {}", op.name), &tensor, None, None),
        }
    }

    fn map(&mut self, op: &Op, operands: &[Value], map: Map) -> Option<Value> {
        match operands {
            [Value::Tensor(a, dims, dtype)] => {
                Some(self.make(op, Expression::Map(map, a.clone()), dims.clone(), *dtype))
            }
            [Value::Known(rank, _)] => Some(Value::Known(*rank, None)),
            _ => None,
        }
    }

    /// A negation, as a product with a number: a plan sends the same around both.
    fn negate(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        match operands {
            [Value::Tensor(a, dims, dtype)] => {
                let by = Expression::Binary(Binary::Mul, a.clone(), "0.5".to_string());
                Some(self.make(op, by, dims.clone(), *dtype))
            }
            [other] => Some(other.clone()),
            _ => None,
        }
    }

    pub(super) fn elementwise(
        &mut self,
        op: &Op,
        operands: &[Value],
        binary: Binary,
    ) -> Option<Value> {
        match operands {
            [Value::Known(rank, _), Value::Known(..)] => Some(Value::Known(*rank, None)),
            // Whole numbers are indices, and arithmetic with them is left out.
            [Value::Tensor(name, dims, Dtype::Int32), _]
            | [_, Value::Tensor(name, dims, Dtype::Int32)] => {
                Some(Value::Tensor(name.clone(), dims.clone(), Dtype::Int32))
            }
            [Value::Tensor(a, dims, dtype), Value::Known(..)]
            | [Value::Known(..), Value::Tensor(a, dims, dtype)] => {
                let by = Expression::Binary(binary, a.clone(), "0.5".to_string());
                Some(self.make(op, by, dims.clone(), *dtype))
            }
            [Value::Tensor(a, ours, dtype), Value::Tensor(b, theirs, other)] => {
                let (b, theirs) = self.meet(op, ours, b.clone(), theirs.clone(), *other);
                let positions = ours.iter().zip(&theirs).map(|(one, other)| one.or(*other));
                let positions = positions.collect();
                let dtype = if *other == Dtype::F32 { *other } else { *dtype };
                Some(self.make(op, Expression::Binary(binary, a.clone(), b), positions, dtype))
            }
            _ => None,
        }
    }

    /// Makes the dims of a second operand, `name` with the dims `theirs`, the dims `ours` of a
    /// first one: two dims become one, or else the second operand is renamed.
    pub(super) fn meet(
        &mut self,
        op: &Op,
        ours: &[Option<Class>],
        mut name: String,
        mut theirs: Vec<Option<Class>>,
        dtype: Dtype,
    ) -> (String, Vec<Option<Class>>) {
        for (at, one) in ours.iter().enumerate() {
            let (Some(one), Some(Some(other))) = (*one, theirs.get(at).copied()) else { continue };
            if !self.layer.unify(one, other) {
                theirs[at] = Some(one);
                let rename = Expression::Rename(name.clone(), other, one);
                if let Value::Tensor(renamed, ..) = self.make(op, rename, theirs.clone(), dtype) {
                    name = renamed;
                }
            }
        }
        (name, theirs)
    }

    fn select(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let tensors: Vec<&Value> = operands
            .iter()
            .filter(|value| matches!(value, Value::Tensor(_, _, dtype) if *dtype != Dtype::Bool))
            .collect();
        match tensors[..] {
            [] => Some(self.known(op)),
            [one] => self.elementwise(op, &[one.clone(), Value::Known(0, None)], Binary::Maximum),
            [one, ref others @ ..] => {
                let mut chosen = one.clone();
                for other in others {
                    chosen = self.elementwise(op, &[chosen, (*other).clone()], Binary::Maximum)?;
                }
                Some(chosen)
            }
        }
    }

    /// A comparison. A mask of computed tensors is laid out as they are, and so is an op on them; a
    /// mask of indices and constants is a value that every device has. Along a dim that only the
    /// constant side has, as the rows of `one_hot`, the mask has a dim of its own.
    fn compare(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let is_index =
            |operand: &&Value| !matches!(operand, Value::Tensor(_, _, Dtype::Int32 | Dtype::Bool));
        let computed: Vec<&Value> = operands.iter().filter(is_index).collect();
        match computed[..] {
            [one @ Value::Tensor(..), other @ Value::Tensor(..)] => {
                self.elementwise(op, &[one.clone(), other.clone()], Binary::Minimum)
            }
            [Value::Tensor(a, dims, dtype), Value::Known(..)]
            | [Value::Known(..), Value::Tensor(a, dims, dtype)] => {
                let to = &op.types.last()?.dims;
                self.made_of(op, a.clone(), dims.clone(), *dtype, to)
            }
            _ => Some(self.known(op)),
        }
    }

    /// The result of an op that works along the dims that keep their place and size, needs all
    /// other dims whole, and is not linear.
    fn made_of(
        &mut self,
        op: &Op,
        name: String,
        dims: Vec<Option<Class>>,
        dtype: Dtype,
        to: &[u64],
    ) -> Option<Value> {
        let size = |class: Option<Class>| class.map_or(1, |class| self.layer.size(class));
        let stays = |at: usize| match (dims.get(at), to.get(at)) {
            (Some(class), Some(long)) => class.is_some() && size(*class) == *long,
            _ => false,
        };
        let gone: Vec<Class> =
            (0..dims.len()).filter(|at| !stays(*at)).filter_map(|at| dims[at]).collect();
        let left: Vec<Option<Class>> =
            (0..to.len()).map(|at| if stays(at) { dims[at] } else { None }).collect();
        let expression = match &gone[..] {
            [] => Expression::Map(Map::Tanh, name),
            _ => Expression::Reduce(Reduce::Max, name, gone),
        };
        let mut positions = left.clone();
        let made = self.make(op, expression, left, dtype);
        let new: Vec<usize> =
            (0..to.len()).filter(|at| positions[*at].is_none() && to[*at] > 1).collect();
        if new.is_empty() {
            return Some(made);
        }
        let Value::Tensor(name, ..) = made else { return None };
        let classes: Vec<Class> = new.iter().map(|at| self.layer.fresh(to[*at])).collect();
        for (at, class) in new.iter().zip(&classes) {
            positions[*at] = Some(*class);
        }
        let table = self.outside("a table".to_string(), classes, dtype);
        let product = Expression::Einsum(
            vec![name, table],
            positions.iter().flatten().copied().collect(),
            None,
        );
        Some(self.make(op, product, positions, dtype))
    }

    fn convert(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let to = dtype(&op.types.last()?.dtype);
        match operands {
            [Value::Tensor(a, dims, from)]
                if *from == to || *from == Dtype::Int32 || to == Dtype::Int32 =>
            {
                Some(Value::Tensor(a.clone(), dims.clone(), *from))
            }
            [Value::Tensor(a, dims, _)] => {
                Some(self.make(op, Expression::Cast(a.clone(), to), dims.clone(), to))
            }
            [other] => Some(other.clone()),
            _ => None,
        }
    }

    /// The layout of a constraint of JAX before Shardy.
    fn spec_of_hlo(&self, op: &Op) -> Option<Spec> {
        let (_, behind) = op.text.split_once("mhlo.sharding = \"")?;
        let (text, _) = behind.split_once('"')?;
        sharding::hlo(text, self.stable.mesh.as_ref()?, op.types.last()?.dims.len())
    }

    fn constrain(&mut self, op: &Op, operands: &[Value], spec: Spec) -> Option<Value> {
        let Some(Value::Tensor(name, dims, dtype)) = operands.first() else {
            return operands.first().cloned();
        };
        if spec.len() != dims.len() {
            return None;
        }
        let of = name.strip_prefix('p').and_then(|n| n.parse::<usize>().ok());
        let of = of.and_then(|at| self.layer.parameters.get(at)).map(|p| p.name.clone());
        self.layer.constraints.push(Constraint {
            positions: dims.clone(),
            spec,
            place: op.place.clone(),
            span: op.span,
            of,
        });
        let number = self.layer.constraints.len() - 1;
        Some(self.make(op, Expression::Constrain(name.clone(), number), dims.clone(), *dtype))
    }
}

/// The layout of a constraint of Shardy. On a slice of a stack the first dim has size 1, and the
/// axes that split the stack there are left out.
fn spec_of_shardy(op: &Op) -> Option<Spec> {
    let spec = sharding::shardy(op.text.split_once('<')?.1)?;
    let is_slice = op.types.last().is_some_and(|tensor| tensor.dims.first() == Some(&1));
    Some(if is_slice { rest_of_stack(spec) } else { spec })
}
