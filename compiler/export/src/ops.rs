//! Each op as a Python expression on the blocks of one device; on whole tensors where the plan has
//! no layouts.

mod along;
pub(crate) mod dims;
mod einsum;
mod elementwise;
pub(crate) mod numbers;
mod positions;

use shard_ir::attention::{carried_operand, carried_statistics, partial_softmax};
use shard_ir::op::Flag;
use shard_ir::{DimId, Dtype, InstrId, Norm, Op, Plan};

use self::dims::renamed;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::parts::are_weights_of_part;
use crate::python::Py;
use crate::words::Words;

/// Writes the ops of one plan.
#[derive(Clone, Copy)]
pub(crate) struct PythonOps<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) words: &'static dyn Words,
    pub(crate) floats: Floats,
    /// Whether everything runs on one device, so that there is nothing to fetch from the host.
    pub(crate) alone: bool,
}

/// An operand: its instruction, and the Python expression for its value.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) id: InstrId,
    pub(crate) py: Py,
}

impl PythonOps<'_> {
    /// The name of a dtype in Python.
    pub(crate) fn dtype(&self, dtype: Dtype) -> &'static str {
        self.words.dtype(dtype, self.floats)
    }

    /// Whether two dtypes have the same values in the module. A dtype that the system only stores
    /// may share the name of a wider one, which has more values.
    fn same_dtype(&self, a: Dtype, b: Dtype) -> bool {
        let computes = |dtype| self.words.computes(dtype, self.floats);
        a == b || self.dtype(a) == self.dtype(b) && computes(a) && computes(b)
    }

    /// The value cast to a dtype, rounded where that has fewer bits.
    fn cast(&self, value: &Named, to: Dtype) -> Py {
        if self.same_dtype(self.plan.instruction(value.id).dtype, to) {
            value.py.clone()
        } else {
            self.words.rounded(value.py.clone(), to, self.floats)
        }
    }

    /// Refuses an op on dtypes that the system has no arithmetic for. Ops that only move elements
    /// take any dtype, and so do einsums, which the system computes in another dtype.
    fn computes(&self, op: &Op, id: InstrId, operands: &[Named]) -> Result<(), ExportError> {
        let anyhow = match op {
            Op::Einsum => {
                let given = self.plan.instruction(id).dtype;
                !matches!(given, Dtype::Int4 | Dtype::F4)
            }
            op => op.row().is(Flag::KeepsValues),
        };
        let of = |id: InstrId| self.plan.instruction(id).dtype;
        let refused = std::iter::once(id)
            .chain(operands.iter().map(|o| o.id))
            .map(of)
            .find(|dtype| !self.words.computes(*dtype, self.floats));
        match refused {
            Some(dtype) if !anyhow => Err(ExportError::Dtype {
                layer: self.plan.name.clone(),
                op: op.word(),
                dtype,
                span: self.plan.instruction(id).origin.span,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The result of an op. Of the attention over a device's own keys it is a pair: the result and
    /// its statistics.
    pub(crate) fn op(&self, op: &Op, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let carried = carried_operand(self.plan, id).zip(carried_statistics(self.plan, id));
        let Some((place, [lie, wanted])) = carried else { return self.of_whole(op, id, operands) };
        let mut operands = operands.to_vec();
        let operand = operands.get_mut(place);
        let operand = operand.ok_or(ExportError::Internal("an op without what it acts on"))?;
        let [part, statistics] = both(&operand.py);
        operand.py = part;
        let statistics = self.transposed(&lie, &wanted, statistics)?;
        Ok(Py::Tuple(vec![self.of_whole(op, id, &operands)?, statistics]))
    }

    /// The result of an op on values without statistics.
    fn of_whole(&self, op: &Op, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        self.computes(op, id, operands)?;
        let first = operands.first().ok_or(ExportError::Internal("an op without operands"))?;
        if let Some(pair) = self.weights_of_part(op, id, first)? {
            return Ok(pair);
        }
        let made = self.made(op, id, operands)?;
        match dims_made(op, self.dims(first.id)) {
            Some(dims) => self.in_order(&dims, id, made),
            None => Ok(made),
        }
    }

    /// The pair of weights and statistics, where the op is the softmax of an attention over a part
    /// of the keys, or a cast of its weights.
    fn weights_of_part(
        &self,
        op: &Op,
        id: InstrId,
        operand: &Named,
    ) -> Result<Option<Py>, ExportError> {
        if let Op::Softmax { over } = op
            && are_weights_of_part(self.plan, id)
        {
            let at = self.place(operand.id, *over)?;
            return Ok(Some(self.words.softmax_of_part(operand.py.clone(), at)));
        }
        if let Op::Cast(to) = op
            && are_weights_of_part(self.plan, operand.id)
        {
            let [py, statistics] = both(&operand.py);
            let weights = self.cast(&Named { id: operand.id, py }, *to);
            let weights = self.in_order(self.dims(operand.id), id, weights)?;
            return Ok(Some(Py::Tuple(vec![weights, statistics])));
        }
        Ok(None)
    }

    /// What an op makes, in the order of dims in which it makes it.
    fn made(&self, op: &Op, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let first = operands.first().ok_or(ExportError::Internal("an op without operands"))?;
        let second =
            || operands.get(1).ok_or(ExportError::Internal("an op without its second operand"));
        let value = || first.py.clone();
        let along = |name: &str, over: &DimId| self.along(name, first, *over, None);
        Ok(match op {
            Op::Einsum => {
                let ends = carried_operand(self.plan, id).is_none();
                match partial_softmax(self.plan, id).filter(|_| ends) {
                    Some((softmax, _)) => self.attention_of_part(id, operands, softmax)?,
                    None => self.einsum(id, operands)?,
                }
            }
            Op::Map(map) => self.words.map(*map, value()),
            Op::Binary(binary) => self.binary(*binary, id, first, second()?)?,
            Op::Where => self.either(id, operands)?,
            Op::Reduce { kind, over } => self.reduce(*kind, over, id, first)?,
            Op::Cast(to) => self.converted(first, *to),
            Op::Softmax { over } => self.words.softmax(value(), self.place(first.id, *over)?),
            Op::SinkSoftmax { over } => {
                let sinks = self.beside(self.dims(first.id), second()?)?;
                self.along("sink_softmax", first, *over, Some(sinks))?
            }
            Op::Norm { kind: Norm::Rms, over } => along("rmsnorm", over)?,
            Op::Norm { kind: Norm::Layer, over } => along("layernorm", over)?,
            Op::Rename { .. } => value(),
            Op::Split { from, to } => self.reshaped(&[*from], to, id, first)?,
            Op::Merge { from, to } => self.reshaped(from, &[*to], id, first)?,
            Op::Concat { left, right, to } => {
                self.concat(*left, *right, *to, id, first, second()?)?
            }
            Op::SliceDim { from, to, offset } => {
                let range = [*offset, offset + self.size(*to)];
                self.words.cut(value(), self.place(first.id, *from)?, range)
            }
            Op::Append { from, to } => self.append(*from, *to, first, second()?)?,
            Op::Mask { query, key, window } => self.mask([*query, *key], *window, first)?,
            Op::Rope { over, at, extent } => self.rope(*over, *at, *extent, first)?,
            Op::Cumsum { over } => along("cumsum", over)?,
            Op::Shift { over, by } => {
                let by = Py::atom(by.min(&self.size(*over)));
                self.along("shift", first, *over, Some(by))?
            }
            Op::Conv { over, taps } => self.conv(*over, *taps, id, first, second()?)?,
            Op::Argmax { over } => along("argmax", over)?,
            Op::TopK { over, to, parts } => self.largest("topk", [*over, *to], *parts, first)?,
            Op::ArgTopK { over, to, parts } => {
                let found = self.largest("argtopk", [*over, *to], *parts, first)?;
                self.told_origin(found, first, *over)?
            }
            Op::ScatterAdd { over, to } => self.scatter_add(over, *to, id, first, second()?)?,
            Op::Pad { from, to, offset } => {
                let behind = self.size(*to) - self.size(*from) - offset;
                let axis = Py::atom(self.place(first.id, *from)?);
                Py::call("pad", [value(), Py::atom(offset), Py::atom(behind)]).with("axis", axis)
            }
            Op::Scan { over } => self.scanned(*over, id, first, second()?)?,
            Op::Locate { over } => {
                let sought = self.beside(self.dims(first.id), second()?)?;
                let located = self.along("locate", first, *over, Some(sought))?;
                self.told_origin(located, first, *over)?
            }
            Op::Iota { over } => self.told_origin(along("iota", over)?, first, *over)?,
            Op::Take { over } => self.take(*over, id, first, second()?)?,
            Op::Route { over, at, to, choices } => {
                self.route([*over, *at, *to], *choices, id, first)?
            }
            Op::Fetch if self.alone => value(),
            Op::Fetch => self.words.fetched(value()),
        })
    }

    /// A scan along a dim, in the dtype of what it makes.
    fn scanned(
        &self,
        over: DimId,
        id: InstrId,
        terms: &Named,
        factor: &Named,
    ) -> Result<Py, ExportError> {
        let dtype = self.plan.instruction(id).dtype;
        let cast = |of: &Named| Named { id: of.id, py: self.cast(of, dtype) };
        let factor = self.beside(self.dims(terms.id), &cast(factor))?;
        self.along("scan", &cast(terms), over, Some(factor))
    }
}

/// The dims of what an op makes of a first operand of these dims, in the order in which the op
/// makes them; `None` if that is the order of the result.
pub(crate) fn dims_made(op: &Op, dims: &[DimId]) -> Option<Vec<DimId>> {
    let without = |over: &[DimId]| dims.iter().copied().filter(|d| !over.contains(d)).collect();
    match op {
        Op::Reduce { over, .. } => Some(without(over)),
        Op::Argmax { over } | Op::Locate { over } => Some(without(&[*over])),
        Op::Rename { from, to }
        | Op::SliceDim { from, to, .. }
        | Op::Pad { from, to, .. }
        | Op::TopK { over: from, to, .. }
        | Op::ArgTopK { over: from, to, .. } => Some(renamed(dims, *from, *to)),
        Op::Map(_)
        | Op::Cast(_)
        | Op::Softmax { .. }
        | Op::SinkSoftmax { .. }
        | Op::Norm { .. }
        | Op::Append { .. }
        | Op::Mask { .. }
        | Op::Rope { .. }
        | Op::Cumsum { .. }
        | Op::Shift { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Iota { .. }
        | Op::Fetch => Some(dims.to_vec()),
        Op::Einsum
        | Op::Binary(_)
        | Op::Where
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Concat { .. }
        | Op::ScatterAdd { .. }
        | Op::Take { .. }
        | Op::Route { .. } => None,
    }
}

/// The two expressions of a pair.
fn both(pair: &Py) -> [Py; 2] {
    [0, 1].map(|at| Py::atom(format!("{}[{at}]", pair.flat())))
}
