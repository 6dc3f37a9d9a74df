//! Translates a function of StableHLO to a layer, whose dims have names.
//!
//! Two dims get one name if an op needs them to be one, as a contraction or an elementwise op does.
//! If a tensor would then have one name twice, one side is renamed. Dims of size 1, and dims along
//! which a value is only broadcast, have no name. Ops that send nothing and compute little (masks,
//! positions, indices) are left out. An op that is not understood counts in [`Layer::barriers`],
//! and its result is a value from outside.

use rustc_hash::FxHashMap;
use shard_ir::{Dtype, never};

use super::read::{Function, Op, Port, Stable, Tensor, values};
use super::sharding::Spec;

mod dims;
mod elements;
mod layer;
mod loops;
mod manual;
mod ops;

pub use layer::{
    Class, Constraint, Expression, Layer, Origin, Output, Parameter, Site, SlicedStack, Statement,
    Taken,
};

/// What a name of the program stands for while its ops are translated.
#[derive(Clone, Debug)]
enum Value {
    /// A tensor: its name in the layer, for each of its dims the class, `None` for a dim of size 1,
    /// and its dtype.
    Tensor(String, Vec<Option<Class>>, Dtype),
    /// A number, mask or index that every device has, of this rank; and the number, where it is
    /// known.
    Known(usize, Option<i64>),
    /// A stack that a loop slices or fills, as an index of `Translator::stacks`.
    Stack(usize),
}

/// A stack that a loop slices or fills.
#[derive(Clone, Debug)]
enum Stacked {
    /// An argument of `main`.
    Argument {
        /// The index of the argument.
        at: usize,
        name: String,
        tensor: Tensor,
        spec: Option<Spec>,
    },
    /// The slices that turns of a loop have written so far.
    Made(Vec<Option<Value>>),
}

/// The most ops of a program that is translated, calls written out.
const MOST_OPS: usize = 20_000;

/// The depth to which calls may be nested.
const MOST_CALLS: usize = 40;

struct Translator<'s> {
    stable: &'s Stable,
    layer: Layer,
    /// The stacks of all loops.
    stacks: Vec<Stacked>,
    /// The parameters that are slices of stacks, by stack and turn. A folded loop has one for all
    /// turns.
    sliced: FxHashMap<(usize, usize), Value>,
    /// The types of the operands of the op that is being translated.
    types: Vec<Option<Tensor>>,
    ops: usize,
}

/// For each name of a function what it stands for, and its type.
type Scope = FxHashMap<String, (Value, Option<Tensor>)>;

/// Translates `main` to a layer; the error is a clause that says why that is not possible.
pub fn translate(stable: &Stable) -> Result<Layer, String> {
    let main = stable.functions.get("main").ok_or("there is no `main`")?;
    let translator = || Translator {
        stable,
        layer: Layer { repeat: 1, ..Layer::default() },
        stacks: Vec::new(),
        sliced: FxHashMap::default(),
        types: Vec::new(),
        ops: 0,
    };
    // A program of one scan and nothing else is a repeated layer. All other loops are written out.
    if main.ops.iter().filter(|op| op.name == "stablehlo.while").count() == 1 {
        let mut folded = translator();
        if folded.stacked(main).is_ok() {
            return Ok(folded.layer());
        }
    }
    let mut straight = translator();
    straight.straight(main)?;
    Ok(straight.layer())
}

impl Translator<'_> {
    fn layer(mut self) -> Layer {
        self.layer.ops = self.ops;
        self.layer
    }

    /// Translates a program, with the turns of its loops written out.
    fn straight(&mut self, main: &Function) -> Result<(), String> {
        let sliced = self.sliced_arguments(main);
        let mut scope = Scope::default();
        for (at, port) in main.arguments.iter().enumerate() {
            let value = if sliced.contains(&at) {
                self.stacked_argument(at, port)
            } else {
                self.argument(at, port)
            };
            scope.insert(port.id.clone(), (value, Some(port.tensor.clone())));
        }
        let results = self.walk(&main.ops, &mut scope, 0)?;
        for (result, (value, port)) in results.into_iter().zip(&main.results).enumerate() {
            let (parts, spec) = match value {
                Value::Stack(stack) => (self.slices(stack), port.spec.clone().map(rest_of_stack)),
                other => (vec![Some(other)], port.spec.clone()),
            };
            for part in parts.into_iter().flatten() {
                let Value::Tensor(value, positions, dtype) = part else { continue };
                self.layer.outputs.push(Output {
                    value,
                    positions,
                    dtype,
                    spec: spec.clone(),
                    result: Some(result),
                    name: port.name.clone(),
                });
            }
        }
        if self.layer.outputs.is_empty() { Err("it returns no tensor".to_string()) } else { Ok(()) }
    }

    /// Translates a program that is one scan over stacks of weights to a repeated layer.
    fn stacked(&mut self, main: &Function) -> Result<(), String> {
        let (at, the_loop) = main
            .ops
            .iter()
            .enumerate()
            .find(|(_, op)| op.name == "stablehlo.while")
            .ok_or("there is no loop")?;
        let plain = |op: &Op| op.name == "stablehlo.constant" || op.name.ends_with("return");
        if main.ops.iter().enumerate().any(|(n, op)| n != at && !plain(op)) {
            return Err("it computes something around its loop".to_string());
        }
        let [condition, body] = &the_loop.regions[..] else { return Err("a loop".to_string()) };
        let returned = body.last().ok_or("a loop without a body")?;
        // `%iterArg = %arg1, %iterArg_0 = %c`: each name with its first value.
        let named = values(&the_loop.text);
        let names: Vec<&String> = named.iter().step_by(2).collect();
        let starts: Vec<&String> = named.iter().skip(1).step_by(2).collect();
        let trips = trips(condition).ok_or("the length of its loop is not known")?;
        let mut scope = Scope::default();
        let mut state = None;
        for (element, (name, start)) in names.iter().zip(&starts).enumerate() {
            let port = main.arguments.iter().enumerate().find(|(_, port)| port.id == **start);
            let is_handed_on = returned.operands.get(element) == Some(name);
            let value = match port {
                Some((at, port)) if is_handed_on && port.tensor.dims.first() == Some(&trips) => {
                    self.stacked_argument(at, port)
                }
                Some((at, port)) => {
                    let value = self.argument(at, port);
                    if !is_handed_on && state.replace((element, value.clone())).is_some() {
                        return Err("its loop carries several values".to_string());
                    }
                    value
                }
                None => Value::Known(the_loop.types.get(element).map_or(0, |t| t.dims.len()), None),
            };
            scope.insert((*name).clone(), (value, the_loop.types.get(element).cloned()));
        }
        let (element, Value::Tensor(first, positions, dtype)) =
            state.ok_or("its loop carries no argument")?
        else {
            return Err("its loop carries no tensor".to_string());
        };
        let results = self.walk(body, &mut scope, 0)?;
        let Some(Value::Tensor(value, given, _)) = results.get(element).cloned() else {
            return Err("its loop gives no tensor".to_string());
        };
        for (one, other) in positions.iter().zip(&given) {
            if let (Some(one), Some(other)) = (one, other)
                && !self.layer.unify(*one, *other)
            {
                return Err("what its loop gives has other dims than what it takes".to_string());
            }
        }
        // The value that is handed on is the first parameter, and the result has its layout.
        let at = first.strip_prefix('p').and_then(|number| number.parse().ok());
        let at: usize = at.unwrap_or_else(|| never!("an argument that is no parameter", 0));
        let spec = self.layer.parameters[at].spec.clone();
        self.layer.repeat = trips;
        // The result of `main` that is the element of the loop's tuple.
        let returned = main.ops.last().map(|op| op.operands.clone()).unwrap_or_default();
        let element = format!("{}#{element}", the_loop.result);
        let result = returned.iter().position(|name| *name == element);
        let result = Some(result.ok_or("it does not return what its loop carries")?);
        self.layer.outputs.push(Output { value, positions, dtype, spec, result, name: None });
        Ok(())
    }

    /// The parameter for an argument of `main`.
    fn argument(&mut self, at: usize, port: &Port) -> Value {
        // A scalar of whole numbers is a count or a position, which every device has.
        if port.tensor.dims.is_empty() && dtype(&port.tensor.dtype) == Dtype::Int32 {
            return Value::Known(0, None);
        }
        let name = port.name.as_deref().unwrap_or(port.id.trim_start_matches('%')).to_string();
        let value = self.parameter(name, &port.tensor, port.spec.clone(), None);
        self.is_argument(at);
        value
    }

    /// Notes that the parameter made last is an argument of `main`, or a slice of one.
    fn is_argument(&mut self, at: usize) {
        if let Some(parameter) = self.layer.parameters.last_mut() {
            parameter.argument = Some(at);
        }
    }

    fn parameter(
        &mut self,
        name: String,
        tensor: &Tensor,
        spec: Option<Spec>,
        stack: Option<SlicedStack>,
    ) -> Value {
        let positions: Vec<Option<Class>> =
            tensor.dims.iter().map(|n| (*n != 1).then(|| self.layer.fresh(*n))).collect();
        let dtype = dtype(&tensor.dtype);
        let value = self.entering(name, positions.clone(), dtype, spec, stack);
        Value::Tensor(value, positions, dtype)
    }

    /// A parameter with these dims and a free layout, for a value that no op of the layer makes.
    fn outside(&mut self, name: String, dims: Vec<Class>, dtype: Dtype) -> String {
        self.entering(name, dims.into_iter().map(Some).collect(), dtype, None, None)
    }

    fn entering(
        &mut self,
        name: String,
        positions: Vec<Option<Class>>,
        dtype: Dtype,
        spec: Option<Spec>,
        stack: Option<SlicedStack>,
    ) -> String {
        let dims: Vec<Class> = positions.iter().flatten().copied().collect();
        self.layer.tensors.push(dims.clone());
        let value = format!("p{}", self.layer.parameters.len());
        self.layer.parameters.push(Parameter {
            name,
            dims,
            positions,
            dtype,
            spec,
            stack,
            used_at: None,
            argument: None,
        });
        value
    }

    /// The stack for an argument that loops slice.
    fn stacked_argument(&mut self, at: usize, port: &Port) -> Value {
        let name = port.name.as_deref().unwrap_or(port.id.trim_start_matches('%')).to_string();
        let (tensor, spec) = (port.tensor.clone(), port.spec.clone());
        self.stacks.push(Stacked::Argument { at, name, tensor, spec });
        Value::Stack(self.stacks.len() - 1)
    }

    /// The parameter for a slice of an argument: one for a turn, however many ops take the slice.
    fn slice_of_argument(&mut self, stack: usize, turn: usize) -> Value {
        if let Some(known) = self.sliced.get(&(stack, turn)) {
            return known.clone();
        }
        let Stacked::Argument { at, name, tensor, spec } = self.stacks[stack].clone() else {
            return Value::Known(0, None);
        };
        let one = Tensor {
            dims: std::iter::once(1).chain(tensor.dims[1..].iter().copied()).collect(),
            dtype: tensor.dtype,
        };
        let axes = spec.as_ref().and_then(|spec| spec.first().cloned()).unwrap_or_default();
        let sliced = SlicedStack { slices: tensor.dims[0], axes };
        let value = self.parameter(name, &one, spec.map(rest_of_stack), Some(sliced));
        self.is_argument(at);
        self.sliced.insert((stack, turn), value.clone());
        value
    }

    /// Translates ops up to their `return`, and gives what that returns.
    fn walk(&mut self, ops: &[Op], scope: &mut Scope, depth: usize) -> Result<Vec<Value>, String> {
        if depth > MOST_CALLS {
            return Err(format!("calls stand more than {MOST_CALLS} deep"));
        }
        for op in ops {
            self.ops += 1;
            if self.ops > MOST_OPS {
                return Err(format!("it has more than {MOST_OPS} ops"));
            }
            if op.name.ends_with("return") {
                let value = |name: &String| self.value(scope, name);
                return op.operands.iter().map(value).collect();
            }
            if op.name == "sdy.manual_computation" {
                self.manual(op, scope)?;
                continue;
            }
            if op.name == "stablehlo.while" {
                self.written_out(op, scope, depth)?;
                continue;
            }
            let operands: Vec<Value> = op
                .operands
                .iter()
                .map(|name| self.value(scope, name))
                .collect::<Result<_, String>>()?;
            self.note_use(op, &operands);
            if op.name == "call" {
                let function = callee(op).and_then(|name| self.stable.functions.get(name));
                let function = function.ok_or_else(|| format!("no function {}", op.text))?;
                let mut inner = Scope::default();
                for (port, value) in function.arguments.iter().zip(operands) {
                    inner.insert(port.id.clone(), (value, Some(port.tensor.clone())));
                }
                let results = self.walk(&function.ops, &mut inner, depth + 1)?;
                for (n, value) in results.into_iter().enumerate() {
                    let one = (value, op.types.get(n).cloned());
                    scope.insert(format!("{}#{n}", op.result), one.clone());
                    if n == 0 {
                        scope.insert(op.result.clone(), one);
                    }
                }
                continue;
            }
            self.site(op, &operands, scope);
            let value = self.op(op, &operands)?;
            self.gave(&value);
            if op.result.contains(", ") {
                for (n, name) in op.result.split(", ").enumerate() {
                    let other = match n {
                        0 => value.clone(),
                        n => self.other_result(op, &operands, n),
                    };
                    scope.insert(name.to_string(), (other, op.types.get(n).cloned()));
                }
                continue;
            }
            if op.results > 1 {
                for n in 0..op.results {
                    let other = match n {
                        0 => value.clone(),
                        n => self.other_result(op, &operands, n),
                    };
                    let one = (other, op.types.get(n).cloned());
                    scope.insert(format!("{}#{n}", op.result), one);
                }
            }
            scope.insert(op.result.clone(), (value, op.types.last().cloned()));
        }
        Ok(Vec::new())
    }

    /// Adds an op to the sites of the layer before it is translated.
    fn site(&mut self, op: &Op, operands: &[Value], scope: &Scope) {
        let type_of = |word: &String| scope.get(word).and_then(|(_, tensor)| tensor.clone());
        self.types = op.operands.iter().map(type_of).collect();
        let takes = op.operands.iter().zip(operands).filter_map(|(word, of)| {
            let Value::Tensor(name, positions, _) = of else { return None };
            let tensor = scope.get(word)?.1.clone()?;
            Some(Taken {
                word: word.clone(),
                tensor,
                name: name.clone(),
                positions: positions.clone(),
            })
        });
        let is_one = op.results == 1 && op.types.len() == 1;
        let site = Site {
            span: op.span,
            place: op.place.clone(),
            of_gradient: op.of_gradient,
            result: if is_one { op.result.clone() } else { String::new() },
            tensor: op.types.last().cloned(),
            gives: None,
            alias: None,
            takes: takes.collect(),
        };
        self.layer.sites.push(site);
    }

    /// Notes at the site of an op which value of the layer is its result, or that its result is
    /// another form of a value.
    fn gave(&mut self, value: &Value) {
        let Value::Tensor(name, positions, _) = value else { return };
        let last = self.layer.statements.last();
        let is_new = last.is_some_and(|statement| {
            statement.value == *name
                && statement.positions == *positions
                && statement.site + 1 == self.layer.sites.len()
        });
        let Some(site) = self.layer.sites.last_mut() else { return };
        if is_new {
            site.gives = Some(name.clone());
        } else {
            site.alias = Some((name.clone(), positions.clone()));
        }
    }

    fn value(&self, scope: &Scope, name: &str) -> Result<Value, String> {
        let found = scope.get(name).map(|(value, _)| value.clone());
        found.ok_or_else(|| format!("there is no value {name}"))
    }

    /// Notes the line that uses a parameter first.
    fn note_use(&mut self, op: &Op, operands: &[Value]) {
        let Some(place) = &op.place else { return };
        for operand in operands {
            if let Value::Tensor(name, ..) = operand
                && let Some(at) = name.strip_prefix('p').and_then(|n| n.parse::<usize>().ok())
                && let Some(parameter) = self.layer.parameters.get_mut(at)
            {
                parameter.used_at.get_or_insert_with(|| place.clone());
            }
        }
    }

    /// Adds a statement, and gives its value.
    fn make(
        &mut self,
        op: &Op,
        expression: Expression,
        positions: Vec<Option<Class>>,
        dtype: Dtype,
    ) -> Value {
        let value = format!("v{}", self.layer.statements.len());
        self.layer.tensors.push(positions.iter().flatten().copied().collect());
        self.layer.statements.push(Statement {
            value: value.clone(),
            expression,
            positions: positions.clone(),
            place: op.place.clone(),
            site: self.layer.sites.len().saturating_sub(1),
        });
        Value::Tensor(value, positions, dtype)
    }
}

/// The spec of a slice of a stack, whose first dim has size 1.
fn rest_of_stack(spec: Spec) -> Spec {
    std::iter::once(Vec::new()).chain(spec.into_iter().skip(1)).collect()
}

/// The function that a call names.
fn callee(op: &Op) -> Option<&str> {
    let (_, rest) = op.text.split_once('@').filter(|_| op.name == "call")?;
    rest.split_once('(').map(|(name, _)| name.trim())
}

/// The dtype of ours for one of MLIR. Whole numbers of other widths are 32 bits wide here, and
/// whatever else there is counts as `f32`.
fn dtype(text: &str) -> Dtype {
    match text {
        "bf16" => Dtype::Bf16,
        "f16" => Dtype::F16,
        "i1" => Dtype::Bool,
        "i8" | "ui8" => Dtype::Int8,
        "i4" | "ui4" => Dtype::Int4,
        t if t.starts_with("f8") => Dtype::F8,
        t if t.starts_with("f4") => Dtype::F4,
        t if t.starts_with('i') || t.starts_with("ui") => Dtype::Int32,
        _ => Dtype::F32,
    }
}

/// The length of a loop of a scan, which counts from 0 in steps of 1: the constant of its
/// condition.
fn trips(condition: &[Op]) -> Option<u64> {
    let constant = condition.iter().find(|op| op.name == "stablehlo.constant")?;
    condition.iter().find(|op| op.name == "stablehlo.compare" && op.text.starts_with("LT"))?;
    let (_, rest) = constant.text.split_once("dense<")?;
    rest.split_once('>')?.0.parse().ok().filter(|n| *n > 1)
}
