//! Each op as an expression of a system on what one device holds; of a plan without layouts, on
//! whole tensors.

use shard_ir::attention::partial_softmax;
use shard_ir::{Binary, DimId, Dtype, Fused, InstrId, Norm, Op, Plan, Reduce, Reduction};

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::parts::{are_weights_of_part, dims_of_statistics};
use crate::python::Py;
use crate::specs::axes_of_dim;
use crate::words::{Dtypes, Extremum, Words};

/// What the expressions of one plan are made from.
#[derive(Clone, Copy)]
pub(crate) struct Ops<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) words: &'static dyn Words,
    pub(crate) floats: Floats,
    /// All on one device: there is no host to fetch from.
    pub(crate) alone: bool,
}

/// One operand: how Python calls it, and which instruction it is.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) id: InstrId,
    pub(crate) py: Py,
}

impl Ops<'_> {
    /// Where a dim stands in the value of an instruction.
    fn place(&self, id: InstrId, dim: DimId) -> Result<usize, ExportError> {
        let found = self.plan.instruction(id).dims.iter().position(|d| *d == dim);
        found.ok_or(ExportError::Internal("a dim is missing from an operand"))
    }

    fn size(&self, dim: DimId) -> u64 {
        self.plan.dims[dim.index()].size
    }

    fn dims(&self, id: InstrId) -> &[DimId] {
        &self.plan.instruction(id).dims
    }

    /// The dtype in Python.
    pub(crate) fn dtype(&self, dtype: Dtype) -> &'static str {
        self.words.dtype(dtype, self.floats)
    }

    fn same_dtype(&self, a: Dtype, b: Dtype) -> bool {
        self.dtype(a) == self.dtype(b)
    }

    /// The value in a dtype.
    fn cast(&self, value: &Named, to: Dtype) -> Py {
        if self.same_dtype(self.plan.instruction(value.id).dtype, to) {
            value.py.clone()
        } else {
            self.words.cast(value.py.clone(), self.dtype(to))
        }
    }

    /// Where the block of a device starts along a dim; none where the dim is whole.
    pub(crate) fn origin(&self, id: InstrId, dim: DimId) -> Result<Option<Py>, ExportError> {
        let place = self.place(id, dim)?;
        let axes = self.plan.instruction(id).layout.axes_of(place);
        let Some(axes) = axes_of_dim(&self.plan.mesh, &axes) else { return Ok(None) };
        let size = self.plan.local_sizes(id)[place];
        Ok(Some(Py::binary(self.words.rank(axes), "*", Py::atom(size))))
    }

    /// A value whose dims are those of the result in some order, in the order of the result.
    fn in_order(&self, dims: &[DimId], id: InstrId, value: Py) -> Result<Py, ExportError> {
        self.transposed(dims, self.dims(id), value)
    }

    /// Whether the system computes with the values of an op: those that only move elements, and
    /// einsums, which are computed in another dtype, take any.
    fn computes(&self, op: &Op, id: InstrId, operands: &[Named]) -> Result<(), ExportError> {
        let anyhow = match op {
            Op::Einsum => self.plan.instruction(id).dtype != Dtype::Int4,
            Op::Rename { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::Concat { .. }
            | Op::SliceDim { .. }
            | Op::Append { .. }
            | Op::Fetch
            | Op::Cast(_) => true,
            Op::Map(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Iota { .. }
            | Op::Reduce { .. }
            | Op::Softmax { .. }
            | Op::Norm { .. }
            | Op::Mask { .. }
            | Op::Rope { .. }
            | Op::Cumsum { .. }
            | Op::SinkSoftmax { .. }
            | Op::Conv { .. }
            | Op::Shift { .. }
            | Op::Argmax { .. }
            | Op::Locate { .. }
            | Op::Take { .. }
            | Op::Route { .. } => false,
        };
        let of = |id: InstrId| self.plan.instruction(id).dtype;
        let refused = std::iter::once(id)
            .chain(operands.iter().map(|o| o.id))
            .find_map(|id| self.words.cannot_compute(of(id), self.floats));
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

    /// The result of an op.
    pub(crate) fn op(&self, op: &Op, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let first = operands.first().ok_or(ExportError::Internal("an op without operands"))?;
        let second =
            || operands.get(1).ok_or(ExportError::Internal("an op without its second operand"));
        let dims = self.dims(first.id).to_vec();
        let axis = |dim: DimId| self.place(first.id, dim).map(Py::atom);
        let value = first.py.clone();
        self.computes(op, id, operands)?;
        match op {
            Op::Einsum => match partial_softmax(self.plan, id) {
                Some((softmax, _)) => self.attention_of_part(id, operands, softmax),
                None => self.einsum(id, operands),
            },
            Op::Map(map) => self.in_order(&dims, id, self.words.map(*map, value)),
            Op::Binary(binary) => self.binary(*binary, id, first, second()?),
            Op::Reduce { kind, over } => {
                let kept: Vec<DimId> = dims.iter().copied().filter(|d| !over.contains(d)).collect();
                self.in_order(&kept, id, self.reduce(*kind, over, id, first)?)
            }
            Op::Cast(_) if are_weights_of_part(self.plan, first.id) => {
                let [weights, statistics] = both(&value);
                let of = Named { id: first.id, py: weights };
                let cast = self.cast(&of, self.plan.instruction(id).dtype);
                Ok(Py::Tuple(vec![self.in_order(&dims, id, cast)?, statistics]))
            }
            Op::Softmax { over } if are_weights_of_part(self.plan, id) => {
                let axis = self.place(first.id, *over)?;
                Ok(self.words.softmax_of_part(value, axis))
            }
            Op::Softmax { over } => {
                let axis = self.place(first.id, *over)?;
                self.in_order(&dims, id, self.words.softmax(value, axis))
            }
            Op::SinkSoftmax { over } => {
                let sinks = second()?;
                let sinks = self.aligned(self.dims(sinks.id), &dims, sinks.py.clone())?;
                let made = Py::call("sink_softmax", [value, sinks]).with("axis", axis(*over)?);
                self.in_order(&dims, id, made)
            }
            Op::Norm { kind, over } => {
                let name = match kind {
                    Norm::Rms => "rmsnorm",
                    Norm::Layer => "layernorm",
                };
                self.in_order(&dims, id, Py::call(name, [value]).with("axis", axis(*over)?))
            }
            Op::Rename { from, to } => self.in_order(&renamed(&dims, *from, *to), id, value),
            Op::Split { from, to } => self.reshaped(&[*from], to, id, first),
            Op::Merge { from, to } => self.reshaped(from, &[*to], id, first),
            Op::Concat { left, right, to } => self.concat(*left, *right, *to, id, first, second()?),
            Op::SliceDim { from, to, offset } => {
                let range = [*offset, offset + self.size(*to)];
                let taken = self.words.cut(value, self.place(first.id, *from)?, range);
                self.in_order(&renamed(&dims, *from, *to), id, taken)
            }
            Op::Append { from, to } => self.append(*from, *to, id, first, second()?),
            Op::Mask { query, key, window } => self.mask([*query, *key], *window, id, first),
            Op::Rope { over, at, extent } => self.rope(*over, *at, *extent, id, first),
            Op::Cumsum { over } => {
                self.in_order(&dims, id, Py::call("cumsum", [value]).with("axis", axis(*over)?))
            }
            Op::Shift { over, by } => {
                let by = Py::atom(by.min(&self.size(*over)));
                let shifted = Py::call("shift", [value, by]).with("axis", axis(*over)?);
                self.in_order(&dims, id, shifted)
            }
            Op::Conv { over, taps } => {
                let weights = second()?;
                let dtype = self.plan.instruction(id).dtype;
                let beside: Vec<DimId> = [*taps].into_iter().chain(dims.iter().copied()).collect();
                let cast = self.cast(weights, dtype);
                let weights = self.aligned(self.dims(weights.id), &beside, cast)?;
                let value = self.cast(first, dtype);
                let made = Py::call("conv", [value, weights]).with("axis", axis(*over)?);
                self.in_order(&dims, id, made)
            }
            Op::Argmax { over } => {
                let found = Py::call("argmax", [value]).with("axis", axis(*over)?);
                self.in_order(&without(&dims, *over), id, found)
            }
            Op::Locate { over } => {
                let sought = second()?;
                let sought = self.aligned(self.dims(sought.id), &dims, sought.py.clone())?;
                let mut found = Py::call("locate", [value, sought]).with("axis", axis(*over)?);
                if let Some(origin) = self.origin(first.id, *over)? {
                    found = found.with("origin", origin);
                }
                self.in_order(&without(&dims, *over), id, found)
            }
            Op::Where => self.either(id, operands),
            Op::Iota { over } => {
                let mut places = Py::call("iota", [value]).with("axis", axis(*over)?);
                if let Some(origin) = self.origin(first.id, *over)? {
                    places = places.with("origin", origin);
                }
                self.in_order(&dims, id, places)
            }
            Op::Take { over } => self.take(*over, id, first, second()?),
            Op::Route { over, at, to, choices } => {
                self.route([*over, *at, *to], *choices, id, first)
            }
            Op::Fetch if self.alone => self.in_order(&dims, id, value),
            Op::Fetch => self.in_order(&dims, id, self.words.fetched(value)),
            Op::Cast(to) => {
                let from = self.plan.instruction(first.id).dtype;
                let cast = match to.is_float() {
                    _ if self.same_dtype(from, *to) => value,
                    true => self.cast(first, *to),
                    false => self.words.whole(value, *to, self.floats),
                };
                self.in_order(&dims, id, cast)
            }
        }
    }

    fn concat(
        &self,
        left: DimId,
        right: DimId,
        to: DimId,
        id: InstrId,
        first: &Named,
        other: &Named,
    ) -> Result<Py, ExportError> {
        let dtype = self.plan.instruction(id).dtype;
        let [a, b] = [(first, left), (other, right)].map(|(operand, dim)| {
            let dims = renamed(self.dims(operand.id), dim, to);
            self.in_order(&dims, id, self.cast(operand, dtype))
        });
        Ok(self.words.concatenated([a?, b?], self.place(id, to)?))
    }

    fn append(
        &self,
        from: DimId,
        to: DimId,
        id: InstrId,
        first: &Named,
        new: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(first.id).to_vec();
        let axis = |dim: DimId| self.place(first.id, dim).map(Py::atom);
        let value = first.py.clone();
        let rows = self.transposed(&renamed(self.dims(new.id), from, to), &dims, new.py.clone())?;
        let at = self.size(to) - self.size(from);
        let appended = match self.origin(first.id, to)? {
            None => self.words.updated(value, rows, at, self.place(first.id, to)?),
            Some(origin) => Py::call("append_block", [value, rows, Py::atom(at)])
                .with("axis", axis(to)?)
                .with("origin", origin),
        };
        self.in_order(&dims, id, appended)
    }

    fn mask(
        &self,
        [query, key]: [DimId; 2],
        window: Option<u64>,
        id: InstrId,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(first.id).to_vec();
        let axis = |dim: DimId| self.place(first.id, dim).map(Py::atom);
        let value = first.py.clone();
        let later = Py::atom(self.size(key) - self.size(query));
        let mut masked = Py::call("causal", [value])
            .with("queries", axis(query)?)
            .with("keys", axis(key)?)
            .with("later", later);
        if let Some(window) = window {
            masked = masked.with("window", Py::atom(window.min(self.size(key))));
        }
        for (name, dim) in [("query_origin", query), ("key_origin", key)] {
            if let Some(origin) = self.origin(first.id, dim)? {
                masked = masked.with(name, origin);
            }
        }
        self.in_order(&dims, id, masked)
    }

    fn rope(
        &self,
        over: DimId,
        at: DimId,
        extent: Option<DimId>,
        id: InstrId,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(first.id).to_vec();
        let axis = |dim: DimId| self.place(first.id, dim).map(Py::atom);
        let value = first.py.clone();
        let earlier = extent.map_or(0, |extent| self.size(extent) - self.size(at));
        let origin = match (self.origin(first.id, at)?, earlier) {
            (None, 0) => None,
            (None, earlier) => Some(Py::atom(earlier)),
            (origin, 0) => origin,
            (Some(origin), earlier) => Some(Py::binary(origin, "+", Py::atom(earlier))),
        };
        let turned = Py::call("rope", [value]).with("axis", axis(over)?).with("at", axis(at)?);
        let turned =
            origin.map_or_else(|| turned.clone(), |origin| turned.clone().with("origin", origin));
        self.in_order(&dims, id, turned)
    }

    fn route(
        &self,
        [over, at, to]: [DimId; 3],
        choices: u64,
        id: InstrId,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(first.id).to_vec();
        let value = first.py.clone();
        let mut order: Vec<DimId> =
            dims.iter().copied().filter(|d| *d != over && *d != at).collect();
        order.extend([at, over]);
        let gates = self.transposed(&dims, &order, value)?;
        order.push(to);
        let routed = Py::call("route", [gates])
            .with("choices", Py::atom(choices))
            .with("places", Py::atom(self.size(to)));
        self.in_order(&order, id, routed)
    }

    /// The attention over a device's own keys, and its statistics in the order of its dims: a pair.
    fn attention_of_part(
        &self,
        id: InstrId,
        operands: &[Named],
        softmax: InstrId,
    ) -> Result<Py, ExportError> {
        let weights = operands.iter().position(|o| are_weights_of_part(self.plan, o.id));
        let at = weights.ok_or(ExportError::Internal("an attention without its weights"))?;
        let [weights, statistics] = both(&operands[at].py);
        let mut operands = operands.to_vec();
        operands[at].py = weights;
        let [has, wanted] = dims_of_statistics(self.plan, softmax, id);
        let statistics = self.transposed(&has, &wanted, statistics)?;
        Ok(Py::Tuple(vec![self.einsum(id, &operands)?, statistics]))
    }

    fn einsum(&self, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let (operands, common) = self.einsum_operands(operands)?;
        let equation = Py::string(&self.equation(id)?);
        let result = self.plan.instruction(id).dtype;
        Ok(self.words.einsum(equation, operands, Dtypes { common, result, floats: self.floats }))
    }

    /// The operands in the dtype that they are multiplied in.
    fn einsum_operands(&self, operands: &[Named]) -> Result<(Vec<Py>, Dtype), ExportError> {
        let dtypes: Vec<Dtype> =
            operands.iter().map(|o| self.plan.instruction(o.id).dtype).collect();
        let first = *dtypes.first().ok_or(ExportError::Internal("an einsum without operands"))?;
        let common = if dtypes.iter().all(|d| *d == first) {
            first
        } else {
            dtypes[1..]
                .iter()
                .try_fold(first, |a, b| a.product(*b))
                .ok_or(ExportError::Internal("dtypes of an einsum that do not meet"))?
        };
        Ok((operands.iter().map(|o| self.cast(o, common)).collect(), common))
    }

    /// The subscripts of an einsum, a letter for each dim: its own where it has but one.
    fn equation(&self, id: InstrId) -> Result<String, ExportError> {
        let instr = self.plan.instruction(id);
        let sides: Vec<&[DimId]> =
            instr.operands.iter().map(|o| self.dims(*o)).chain([instr.dims.as_slice()]).collect();
        let mut letters: Vec<(DimId, char)> = Vec::new();
        let own = |dim: DimId| {
            let mut chars = self.plan.dims[dim.index()].name.chars();
            chars.next().filter(|c| c.is_ascii_alphabetic() && chars.next().is_none())
        };
        let mut dims: Vec<DimId> = sides.iter().flat_map(|side| side.iter().copied()).collect();
        dims.sort_by_key(|dim| own(*dim).is_none());
        for dim in dims {
            if letters.iter().any(|(known, _)| *known == dim) {
                continue;
            }
            let initial =
                self.plan.dims[dim.index()].name.chars().next().filter(char::is_ascii_alphabetic);
            let wanted = initial
                .into_iter()
                .flat_map(|c| [c, c.to_ascii_lowercase()])
                .chain('a'..='z')
                .chain('A'..='Z');
            let free = wanted.into_iter().find(|c| !letters.iter().any(|(_, taken)| taken == c));
            letters.push((dim, free.ok_or_else(|| self.too_many_dims(id))?));
        }
        let word = |dims: &[DimId]| -> String {
            dims.iter()
                .filter_map(|d| letters.iter().find(|(known, _)| known == d))
                .map(|(_, c)| *c)
                .collect()
        };
        let (result, operands) =
            sides.split_last().ok_or(ExportError::Internal("an einsum without a result"))?;
        Ok(format!(
            "{}->{}",
            operands.iter().map(|d| word(d)).collect::<Vec<_>>().join(","),
            word(result)
        ))
    }

    fn too_many_dims(&self, id: InstrId) -> ExportError {
        ExportError::Einsum {
            layer: self.plan.name.clone(),
            span: self.plan.instruction(id).origin.span,
        }
    }

    /// An einsum with a collective in its loop.
    pub(crate) fn looped(
        &self,
        fused: &Fused,
        id: InstrId,
        operands: &[Named],
    ) -> Result<Py, ExportError> {
        let instr = self.plan.instruction(id);
        let (multiplied, _) = self.einsum_operands(operands)?;
        let axes = fused.axes().iter().map(|a| Py::string(self.plan.mesh.name(a))).collect();
        let axes = self.words.ring(axes);
        let place = |dims: &[DimId], dim: DimId| match dims.iter().position(|d| *d == dim) {
            Some(place) => Py::atom(place),
            None => Py::atom("None"),
        };
        let along =
            |dim: DimId| Py::Tuple(operands.iter().map(|o| place(self.dims(o.id), dim)).collect());
        let equation = Py::string(&self.equation(id)?);
        let arguments = std::iter::once(equation).chain(multiplied);
        let dtype = Py::atom(self.dtype(instr.dtype));
        let missing = ExportError::Internal("a loop along a dim that is not there");
        match *fused {
            Fused::AllGather { operand, dim, .. } => {
                let gathered = operands
                    .get(operand)
                    .and_then(|o| self.dims(o.id).get(dim))
                    .copied()
                    .ok_or(missing)?;
                Ok(Py::call("einsum_gathering", arguments)
                    .with("place", Py::atom(operand))
                    .with("axes", axes)
                    .with("along", along(gathered))
                    .with("into", place(&instr.dims, gathered))
                    .with("dtype", dtype))
            }
            Fused::ReduceScatter { dim, .. } => {
                let scattered = instr.dims.get(dim).copied().ok_or(missing)?;
                Ok(Py::call("einsum_scattering", arguments)
                    .with("axes", axes)
                    .with("along", along(scattered))
                    .with("dtype", dtype))
            }
        }
    }

    fn binary(
        &self,
        binary: Binary,
        id: InstrId,
        left: &Named,
        right: &Named,
    ) -> Result<Py, ExportError> {
        let of = |named: &Named| self.plan.instruction(named.id).dtype;
        let dtype = of(left).meet(of(right));
        let dtype = dtype.ok_or(ExportError::Internal("operands of dtypes that do not meet"))?;
        let result = self.dims(id);
        let operand = |named: &Named| -> Result<Py, ExportError> {
            // A number takes the dtype of what it meets.
            if is_number(&named.py) {
                return Ok(named.py.clone());
            }
            self.aligned(self.dims(named.id), result, self.cast(named, dtype))
        };
        let (a, b) = (operand(left)?, operand(right)?);
        let scalar = |number: Py| self.words.scalar(number, self.dtype(dtype));
        let (a, b) = if is_number(&a) && is_number(&b) { (scalar(a), b) } else { (a, b) };
        if let Some(extremum) = Extremum::of(binary) {
            return Ok(self.words.extremum(extremum, [a, b]));
        }
        Ok(match binary {
            Binary::Add => Py::binary(a, "+", b),
            Binary::Sub => Py::binary(a, "-", b),
            Binary::Mul => Py::binary(a, "*", b),
            Binary::Less => Py::binary(a, "<", b),
            Binary::LessEqual => Py::binary(a, "<=", b),
            Binary::Equal => Py::binary(a, "==", b),
            Binary::Div if dtype.is_float() => Py::binary(a, "/", b),
            Binary::Div => {
                let [a, b] = [a, b].map(|side| if is_number(&side) { scalar(side) } else { side });
                Py::call("whole_division", [a, b])
            }
            Binary::Maximum | Binary::Minimum => {
                return Err(ExportError::Internal("an extremum that is arithmetic"));
            }
        })
    }

    /// Of two values, in the dtype of the result, the one or the other.
    fn either(&self, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let [holds, a, b] = operands else {
            return Err(ExportError::Internal("a choice of other than two"));
        };
        let (result, dtype) = (self.dims(id), self.plan.instruction(id).dtype);
        let aligned = |named: &Named, py: Py| self.aligned(self.dims(named.id), result, py);
        let which = aligned(holds, holds.py.clone())?;
        let [a, b] = [a, b].map(|named| aligned(named, self.cast(named, dtype)));
        Ok(self.words.either(which, [a?, b?]))
    }

    fn reduce(
        &self,
        kind: Reduce,
        over: &[DimId],
        id: InstrId,
        operand: &Named,
    ) -> Result<Py, ExportError> {
        let instr = self.plan.instruction(operand.id);
        let places =
            over.iter().map(|d| self.place(operand.id, *d)).collect::<Result<Vec<usize>, _>>()?;
        let axis = match places.as_slice() {
            [one] => Py::atom(one),
            several => Py::numbers(several),
        };
        let whole = places.iter().all(|place| instr.layout.axes_of(*place).is_empty());
        let value = operand.py.clone();
        let dtype = self.plan.instruction(id).dtype;
        let whole_number = (!dtype.is_float()).then(|| self.dtype(dtype));
        let reduced = |kind| self.words.reduced(kind, value, axis, whole_number);
        Ok(match kind {
            Reduce::Mean if whole => reduced(Reduce::Mean),
            // Of a split dim each device has a part: the terms are sums over the parts, divided by
            // the whole count.
            Reduce::Mean => {
                let count: u64 = over.iter().map(|d| self.size(*d)).product();
                Py::binary(reduced(Reduce::Sum), "/", Py::atom(count))
            }
            Reduce::Sum | Reduce::Max => reduced(kind),
        })
    }

    /// Dims read as others, of the same elements in the same order.
    fn reshaped(
        &self,
        from: &[DimId],
        to: &[DimId],
        id: InstrId,
        operand: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(operand.id);
        let local = self.plan.local_sizes(id);
        let first = from.first().and_then(|d| dims.iter().position(|o| o == d));
        let first = first.ok_or(ExportError::Internal("a reshape of nothing"))?;
        let together = dims[first..].starts_with(from);
        // Where the dims do not stand together, they go behind all others first.
        let (before, value) = if together {
            (dims.to_vec(), operand.py.clone())
        } else {
            let mut order: Vec<DimId> =
                dims.iter().copied().filter(|d| !from.contains(d)).collect();
            order.extend(from);
            let value = self.transposed(dims, &order, operand.py.clone())?;
            (order, value)
        };
        let mut after = Vec::new();
        for dim in before {
            match from.iter().position(|d| *d == dim) {
                Some(0) => after.extend(to),
                Some(_) => {}
                None => after.push(dim),
            }
        }
        let sizes = after
            .iter()
            .map(|d| Ok(local[self.place(id, *d)?]))
            .collect::<Result<Vec<u64>, ExportError>>()?;
        self.in_order(&after, id, self.words.reshaped(value, sizes))
    }

    fn take(
        &self,
        over: DimId,
        id: InstrId,
        table: &Named,
        ids: &Named,
    ) -> Result<Py, ExportError> {
        let (of_table, of_ids) = (self.dims(table.id), self.dims(ids.id));
        let shared: Vec<DimId> = of_table.iter().copied().filter(|d| of_ids.contains(d)).collect();
        let in_front = |dims: &[DimId]| -> Vec<DimId> {
            shared
                .iter()
                .copied()
                .chain(dims.iter().copied().filter(|d| !shared.contains(d)))
                .collect()
        };
        let (table_order, ids_order) = (in_front(of_table), in_front(of_ids));
        let rows = self.transposed(of_table, &table_order, table.py.clone())?;
        let at = self.transposed(of_ids, &ids_order, ids.py.clone())?;
        let axis = table_order
            .iter()
            .position(|d| *d == over)
            .ok_or(ExportError::Internal("a take of no dim"))?;
        let axis = axis - shared.len();
        let origin = self.origin(table.id, over)?;
        let taken = match shared.len() {
            0 => Py::call("take_rows", [rows, at]),
            // A table for each position of the dims that both have.
            n => Py::call("take_from_each", [Py::atom(n), rows, at]),
        };
        let taken = taken.with("axis", Py::atom(axis));
        let taken =
            origin.map_or_else(|| taken.clone(), |origin| taken.clone().with("origin", origin));
        let mut dims = shared.clone();
        let own_table: Vec<DimId> = table_order[shared.len()..].to_vec();
        for dim in own_table {
            if dim == over { dims.extend(&ids_order[shared.len()..]) } else { dims.push(dim) }
        }
        self.in_order(&dims, id, taken)
    }

    /// A value of these dims in another order of them.
    pub(crate) fn transposed(
        &self,
        dims: &[DimId],
        order: &[DimId],
        value: Py,
    ) -> Result<Py, ExportError> {
        if dims == order {
            return Ok(value);
        }
        let missing = ExportError::Internal("a dim is missing from a result");
        let places: Option<Vec<usize>> =
            order.iter().map(|d| dims.iter().position(|o| o == d)).collect();
        let places = places.filter(|places| places.len() == dims.len()).ok_or(missing)?;
        Ok(self.words.transposed(value, places))
    }

    /// A value as it broadcasts to a result of more dims.
    fn aligned(&self, dims: &[DimId], result: &[DimId], value: Py) -> Result<Py, ExportError> {
        let mut order: Vec<DimId> = result.iter().copied().filter(|d| dims.contains(d)).collect();
        if order.len() != dims.len() {
            return Err(ExportError::Internal("a result lacks a dim of its operand"));
        }
        let value = self.transposed(dims, &order, value)?;
        // What is lacking in front comes by itself.
        let first = result.iter().position(|d| dims.contains(d)).unwrap_or(result.len());
        let lacking: Vec<usize> = (first..result.len())
            .filter(|at| !dims.contains(&result[*at]))
            .map(|at| at - first)
            .collect();
        order.clear();
        Ok(match (lacking.as_slice(), &value) {
            ([], _) => value,
            (_, Py::Atom(name)) if name.len() < 30 => {
                let index = (first..result.len())
                    .map(|at| if lacking.contains(&(at - first)) { "None" } else { ":" });
                Py::atom(format!("{name}[{}]", index.collect::<Vec<_>>().join(", ")))
            }
            (_, _) => self.words.expanded(value, lacking),
        })
    }
}

/// What leaves any term as it is.
pub(crate) fn neutral(words: &dyn Words, kind: Reduction, dtype: Dtype, floats: Floats) -> Py {
    let module = words.module();
    match kind {
        Reduction::Sum => Py::atom(0),
        Reduction::Max if dtype.is_float() => Py::atom(format!("-{module}.inf")),
        Reduction::Max if dtype == Dtype::Bool => Py::atom("False"),
        Reduction::Max => Py::atom(format!("{module}.iinfo({}).min", words.dtype(dtype, floats))),
    }
}

/// Whether an expression is a number as it is written.
pub(crate) fn is_number(py: &Py) -> bool {
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    matches!(py, Py::Atom(text) if begins(text) || text.ends_with(".inf") || text.ends_with(".nan"))
}

fn without(dims: &[DimId], dim: DimId) -> Vec<DimId> {
    dims.iter().copied().filter(|d| *d != dim).collect()
}

fn renamed(dims: &[DimId], from: DimId, to: DimId) -> Vec<DimId> {
    dims.iter().map(|d| if *d == from { to } else { *d }).collect()
}

/// A number as Python writes it.
pub(crate) fn number(words: &dyn Words, value: f64, dtype: Dtype) -> String {
    let module = words.module();
    match value {
        v if v == f64::INFINITY => format!("{module}.inf"),
        v if v == f64::NEG_INFINITY => format!("-{module}.inf"),
        v if v.is_nan() => format!("{module}.nan"),
        v if !dtype.is_float() => format!("{}", v as i64),
        v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.1}"),
        v => format!("{v:?}"),
    }
}

/// The two of a pair that a name holds.
fn both(pair: &Py) -> [Py; 2] {
    [0, 1].map(|at| Py::atom(format!("{}[{at}]", pair.flat())))
}
