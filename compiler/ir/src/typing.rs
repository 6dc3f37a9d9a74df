//! The type rule of each op: the dims and dtype of its result, from those of its operands.

use crate::op::{Binary, Flag, Op, Reduce};
use crate::tensor::{Dim, DimId, Dtype, TensorType};

/// Which dtypes an op takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Any but truth values.
    Number,
    /// Any float.
    Float,
    /// One alone.
    Dtype(Dtype),
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::Number => f.write_str("a number"),
            Wanted::Float => f.write_str("a float"),
            Wanted::Dtype(dtype) => write!(f, "{dtype}"),
        }
    }
}

/// Why an op does not type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeError {
    /// Wrong number of operands.
    #[error("takes {expected} operands, has {found}")]
    Arity {
        /// How many the op takes.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// The result names a dim that no operand has.
    #[error("the result names a dim that no operand has")]
    NoOperandHas(DimId),
    /// The op names a dim that the operand does not have.
    #[error("operand {operand} has no such dim")]
    MissingDim {
        /// Which operand.
        operand: usize,
        /// The dim.
        dim: DimId,
    },
    /// A dim would stand twice in the result (or is named twice by the op).
    #[error("a dim would stand twice in the result")]
    RepeatedDim(DimId),
    /// The result's dims are not those that the op gives.
    #[error("the result's dims are not those of the expression")]
    WrongDims {
        /// What the op gives, in its natural order.
        expected: Vec<DimId>,
    },
    /// Two dtypes that do not meet.
    #[error("{left} and {right} do not meet")]
    Dtypes {
        /// The left operand's.
        left: Dtype,
        /// The right operand's.
        right: Dtype,
    },
    /// Sizes that do not fit the op: a rename to another size, a split whose parts do not multiply
    /// to the whole, ...
    #[error("sizes do not fit: {left} against {right}")]
    Sizes {
        /// What the operand has.
        left: u64,
        /// What the op asks for.
        right: u64,
    },
    /// An operand has a dtype that the op does not take.
    #[error("operand {operand} is {found}")]
    OperandDtype {
        /// Which operand.
        operand: usize,
        /// Its dtype.
        found: Dtype,
        /// What would do.
        wanted: Wanted,
    },
}

/// The type of the op's result. Its dims are in the natural order: that of the first operand, then
/// new ones. For an einsum they are in the order of `named`, the dims of its subscript.
pub fn result_type(
    op: &Op,
    operands: &[TensorType],
    named: &[DimId],
    dims: &[Dim],
) -> Result<TensorType, TypeError> {
    let arity = match op.row().operands.len() {
        0 => operands.len().max(1),
        named => named,
    };
    if operands.len() != arity {
        return Err(TypeError::Arity { expected: arity, found: operands.len() });
    }
    let first = &operands[0];
    let of = Operands { all: operands, dims };
    match op {
        Op::Einsum => of.einsum(named),
        Op::Map(map) => {
            if map.row().is(Flag::Exact) { of.number(0) } else { of.float(0) }?;
            Ok(first.clone())
        }
        Op::Binary(binary) => of.broadcast(*binary),
        Op::Reduce { kind, over } => of.reduce(*kind, over),
        Op::Softmax { over } | Op::Norm { over, .. } => {
            of.float(0)?;
            of.has(0, *over)?;
            Ok(first.clone())
        }
        Op::Cumsum { over } | Op::Shift { over, .. } => {
            of.number(0)?;
            of.has(0, *over)?;
            Ok(first.clone())
        }
        Op::Conv { over, taps } => of.conv(*over, *taps),
        Op::Argmax { over } => {
            of.number(0)?;
            of.has(0, *over)?;
            typed(of.without(*over), Dtype::Int32)
        }
        Op::TopK { over, to, parts } => {
            typed(of.largest(*over, *to, parts.unwrap_or(1))?, first.dtype)
        }
        Op::ArgTopK { over, to, parts } => {
            typed(of.largest(*over, *to, parts.unwrap_or(1))?, Dtype::Int32)
        }
        Op::ScatterAdd { over, to } => of.scatter_add(over, *to),
        Op::Pad { from, to, offset } => of.pad(*from, *to, *offset),
        Op::Scan { over } => of.scan(*over),
        Op::Locate { over } => of.locate(*over),
        Op::Where => of.either(),
        Op::Iota { over } => {
            of.has(0, *over)?;
            typed(first.dims.clone(), Dtype::Int32)
        }
        Op::SinkSoftmax { over } => {
            of.float(0)?;
            of.beside(*over)?;
            Ok(first.clone())
        }
        Op::Rename { from, to } => of.view(&[*from], &[*to]),
        Op::Split { from, to } => of.view(&[*from], to),
        Op::Merge { from, to } if from.is_empty() => {
            Err(TypeError::MissingDim { operand: 0, dim: *to })
        }
        Op::Merge { from, to } => of.view(from, &[*to]),
        Op::Concat { left, right, to } => of.concat(*left, *right, *to),
        Op::SliceDim { from, to, offset } => of.slice(*from, *to, *offset),
        Op::Append { from, to } => of.append(*from, *to),
        Op::Mask { query, key, window } => of.mask(*query, *key, *window),
        Op::Rope { over, at, extent } => of.rope(*over, *at, *extent),
        Op::Take { over } => of.take(*over),
        Op::Route { over, at, to, choices } => of.route(*over, *at, *to, *choices),
        Op::Fetch => Ok(first.clone()),
        Op::Cast(dtype) => Ok(TensorType { dims: first.dims.clone(), dtype: *dtype }),
    }
}

/// The type with these dims; an error where a dim stands twice.
fn typed(dims: Vec<DimId>, dtype: Dtype) -> Result<TensorType, TypeError> {
    match repeated(&dims) {
        Some(d) => Err(TypeError::RepeatedDim(d)),
        None => Ok(TensorType { dims, dtype }),
    }
}

fn equal_sizes(left: u64, right: u64) -> Result<(), TypeError> {
    if left == right { Ok(()) } else { Err(TypeError::Sizes { left, right }) }
}

/// The types of an op's operands, as many as the op takes, and the dims of the program.
struct Operands<'a> {
    all: &'a [TensorType],
    dims: &'a [Dim],
}

impl Operands<'_> {
    fn first(&self) -> &TensorType {
        &self.all[0]
    }

    fn size(&self, dim: DimId) -> u64 {
        self.dims[dim.index()].size
    }

    fn product(&self, list: &[DimId]) -> u64 {
        list.iter().fold(1u64, |n, d| n.saturating_mul(self.size(*d)))
    }

    /// Checks that an operand has a dim.
    fn has(&self, operand: usize, dim: DimId) -> Result<(), TypeError> {
        if self.all[operand].dims.contains(&dim) {
            Ok(())
        } else {
            Err(TypeError::MissingDim { operand, dim })
        }
    }

    /// Checks that the first operand has these dims, and that each is named once.
    fn have(&self, dims: &[DimId]) -> Result<(), TypeError> {
        dims.iter().try_for_each(|d| self.has(0, *d))?;
        repeated(dims).map_or(Ok(()), |d| Err(TypeError::RepeatedDim(d)))
    }

    /// Checks that the first operand has both dims, and that they differ.
    fn has_both(&self, one: DimId, other: DimId) -> Result<(), TypeError> {
        self.has(0, one)?;
        self.has(0, other)?;
        if one == other { Err(TypeError::RepeatedDim(one)) } else { Ok(()) }
    }

    fn float(&self, operand: usize) -> Result<(), TypeError> {
        let found = self.all[operand].dtype;
        if found.is_float() {
            Ok(())
        } else {
            Err(TypeError::OperandDtype { operand, found, wanted: Wanted::Float })
        }
    }

    fn int32(&self, operand: usize) -> Result<(), TypeError> {
        match self.all[operand].dtype {
            Dtype::Int32 => Ok(()),
            found => {
                let wanted = Wanted::Dtype(Dtype::Int32);
                Err(TypeError::OperandDtype { operand, found, wanted })
            }
        }
    }

    fn number(&self, operand: usize) -> Result<(), TypeError> {
        let found = self.all[operand].dtype;
        if found == Dtype::Bool {
            Err(TypeError::OperandDtype { operand, found, wanted: Wanted::Number })
        } else {
            Ok(())
        }
    }

    /// The dims of the first operand with the dims `from` replaced by `to`, at the place of
    /// `from[0]`.
    fn replace(&self, from: &[DimId], to: &[DimId]) -> Vec<DimId> {
        let mut out = Vec::new();
        for d in &self.first().dims {
            if *d == from[0] {
                out.extend_from_slice(to);
            } else if !from.contains(d) {
                out.push(*d);
            }
        }
        out
    }

    /// The dims of the first operand without one.
    fn without(&self, dim: DimId) -> Vec<DimId> {
        self.first().dims.iter().copied().filter(|d| *d != dim).collect()
    }

    /// The first operand with the dims `from` under other names, `to`, of the same size together.
    fn view(&self, from: &[DimId], to: &[DimId]) -> Result<TensorType, TypeError> {
        self.have(from)?;
        equal_sizes(self.product(from), self.product(to))?;
        typed(self.replace(from, to), self.first().dtype)
    }

    /// The type of a convolution: the weights have the taps, and otherwise only dims of the first
    /// operand.
    fn conv(&self, over: DimId, taps: DimId) -> Result<TensorType, TypeError> {
        self.has(0, over)?;
        self.has(1, taps)?;
        let weights = &self.all[1];
        if self.first().dims.contains(&taps) {
            return Err(TypeError::RepeatedDim(taps));
        }
        let channels = self.without(over);
        if weights.dims.iter().any(|d| *d != taps && !channels.contains(d)) {
            let expected = channels.into_iter().chain([taps]).collect();
            return Err(TypeError::WrongDims { expected });
        }
        Ok(TensorType { dtype: self.binary()?.dtype, ..self.first().clone() })
    }

    fn locate(&self, over: DimId) -> Result<TensorType, TypeError> {
        self.number(0)?;
        typed(self.beside(over)?, Dtype::Int32)
    }

    /// The dims of the first operand without one. Checks that the second operand has the dtype of
    /// the first, and only these dims.
    fn beside(&self, over: DimId) -> Result<Vec<DimId>, TypeError> {
        self.has(0, over)?;
        let (left, right) = (self.first().dtype, self.all[1].dtype);
        if left != right {
            return Err(TypeError::Dtypes { left, right });
        }
        let expected = self.without(over);
        if self.all[1].dims.iter().any(|d| !expected.contains(d)) {
            return Err(TypeError::WrongDims { expected });
        }
        Ok(expected)
    }

    fn einsum(&self, named: &[DimId]) -> Result<TensorType, TypeError> {
        if let Some(d) = named.iter().find(|d| !self.all.iter().any(|o| o.dims.contains(d))) {
            return Err(TypeError::NoOperandHas(*d));
        }
        (0..self.all.len()).try_for_each(|i| self.number(i))?;
        let mut dtype = self.first().dtype;
        for operand in &self.all[1..] {
            let (left, right) = (dtype, operand.dtype);
            dtype = left.product(right).ok_or(TypeError::Dtypes { left, right })?;
        }
        typed(named.to_vec(), dtype)
    }

    fn binary(&self) -> Result<TensorType, TypeError> {
        let (first, second) = (self.first(), &self.all[1]);
        let (left, right) = (first.dtype, second.dtype);
        self.number(0)?;
        self.number(1)?;
        let dtype = left.meet(right).ok_or(TypeError::Dtypes { left, right })?;
        let mut out = first.dims.clone();
        out.extend(second.dims.iter().filter(|d| !first.dims.contains(d)));
        typed(out, dtype)
    }

    /// The type of an elementwise combination; a comparison gives truth values.
    fn broadcast(&self, binary: Binary) -> Result<TensorType, TypeError> {
        let ty = self.binary()?;
        let is_truth = binary.row().is(Flag::Truth);
        Ok(TensorType { dtype: if is_truth { Dtype::Bool } else { ty.dtype }, ..ty })
    }

    /// The type of a `where`: the first operand is a truth value, and the dtypes of the others
    /// meet.
    fn either(&self) -> Result<TensorType, TypeError> {
        let [holds, a, b] = self.all else {
            return Err(TypeError::Arity { expected: 3, found: self.all.len() });
        };
        if holds.dtype != Dtype::Bool {
            let found = holds.dtype;
            return Err(TypeError::OperandDtype {
                operand: 0,
                found,
                wanted: Wanted::Dtype(Dtype::Bool),
            });
        }
        let (left, right) = (a.dtype, b.dtype);
        let dtype = left.meet(right).ok_or(TypeError::Dtypes { left, right })?;
        let mut dims = holds.dims.clone();
        for dim in a.dims.iter().chain(&b.dims) {
            if !dims.contains(dim) {
                dims.push(*dim);
            }
        }
        typed(dims, dtype)
    }

    fn reduce(&self, kind: Reduce, over: &[DimId]) -> Result<TensorType, TypeError> {
        self.number(0)?;
        if kind == Reduce::Mean {
            self.float(0)?;
        }
        if let Some(d) = repeated(over) {
            return Err(TypeError::RepeatedDim(d));
        }
        self.have(over)?;
        typed(
            self.first().dims.iter().copied().filter(|d| !over.contains(d)).collect(),
            self.first().dtype,
        )
    }

    fn concat(&self, left: DimId, right: DimId, to: DimId) -> Result<TensorType, TypeError> {
        self.has(0, left)?;
        self.has(1, right)?;
        let (a, b) = (self.first().dtype, self.all[1].dtype);
        let dtype = a.meet(b).ok_or(TypeError::Dtypes { left: a, right: b })?;
        equal_sizes(self.size(left) + self.size(right), self.size(to))?;
        // An operand may not also have the dim along which the other operand is joined.
        for (of, dim) in [(0, right), (1, left)] {
            if left != right && self.all[of].dims.contains(&dim) {
                return Err(TypeError::RepeatedDim(dim));
            }
        }
        // The dims are in the order of the operand that has more of them.
        let named = |of: usize, from: DimId| -> Vec<DimId> {
            self.all[of].dims.iter().map(|dim| if *dim == from { to } else { *dim }).collect()
        };
        let [mut dims, mut others] = [named(0, left), named(1, right)];
        if others.len() > dims.len() {
            std::mem::swap(&mut dims, &mut others);
        }
        others.retain(|dim| !dims.contains(dim));
        dims.extend(others);
        typed(dims, dtype)
    }

    /// Checks that the second operand, with one of its dims renamed, has these dims in some order.
    fn second_has(&self, dims: &[DimId], from: DimId, to: DimId) -> Result<(), TypeError> {
        let other: Vec<DimId> =
            self.all[1].dims.iter().map(|d| if *d == from { to } else { *d }).collect();
        if same_dims(dims, &other) { Ok(()) } else { Err(TypeError::WrongDims { expected: other }) }
    }

    fn slice(&self, from: DimId, to: DimId, offset: u64) -> Result<TensorType, TypeError> {
        self.has(0, from)?;
        match offset.checked_add(self.size(to)) {
            Some(end) if end <= self.size(from) => {
                typed(self.replace(&[from], &[to]), self.first().dtype)
            }
            _ => Err(TypeError::Sizes {
                left: self.size(from),
                right: offset.saturating_add(self.size(to)),
            }),
        }
    }

    fn pad(&self, from: DimId, to: DimId, offset: u64) -> Result<TensorType, TypeError> {
        self.number(0)?;
        self.has(0, from)?;
        let (left, right) = (self.size(to), offset.saturating_add(self.size(from)));
        if right > left {
            return Err(TypeError::Sizes { left, right });
        }
        typed(self.replace(&[from], &[to]), self.first().dtype)
    }

    /// The dims of a choice of the largest. Each part of the dim must have as many entries as are
    /// chosen of it.
    fn largest(&self, over: DimId, to: DimId, parts: u64) -> Result<Vec<DimId>, TypeError> {
        self.number(0)?;
        self.has(0, over)?;
        self.is_within(to, over)?;
        for left in [self.size(over), self.size(to)] {
            if parts == 0 || !left.is_multiple_of(parts) {
                return Err(TypeError::Sizes { left, right: parts });
            }
        }
        Ok(self.replace(&[over], &[to]))
    }

    /// The type of a scatter-add: the ids have the dims that are summed, and only dims of the first
    /// operand.
    fn scatter_add(&self, over: &[DimId], to: DimId) -> Result<TensorType, TypeError> {
        self.number(0)?;
        if over.is_empty() {
            return Err(TypeError::MissingDim { operand: 1, dim: to });
        }
        self.have(over)?;
        over.iter().try_for_each(|dim| self.has(1, *dim))?;
        let (first, ids) = (self.first(), &self.all[1]);
        self.int32(1)?;
        if ids.dims.iter().any(|d| !first.dims.contains(d)) {
            return Err(TypeError::WrongDims { expected: first.dims.clone() });
        }
        if first.dims.contains(&to) {
            return Err(TypeError::RepeatedDim(to));
        }
        typed(self.replace(over, &[to]), first.dtype)
    }

    /// The type of a scan: the factor has only dims of the first operand.
    fn scan(&self, over: DimId) -> Result<TensorType, TypeError> {
        self.has(0, over)?;
        let (first, factor) = (self.first(), &self.all[1]);
        if factor.dims.iter().any(|d| !first.dims.contains(d)) {
            return Err(TypeError::WrongDims { expected: first.dims.clone() });
        }
        Ok(TensorType { dtype: self.binary()?.dtype, ..first.clone() })
    }

    fn append(&self, from: DimId, to: DimId) -> Result<TensorType, TypeError> {
        self.has(0, to)?;
        self.has(1, from)?;
        let (left, right) = (self.first().dtype, self.all[1].dtype);
        if left != right {
            return Err(TypeError::Dtypes { left, right });
        }
        self.is_within(from, to)?;
        self.second_has(&self.first().dims, from, to)?;
        Ok(self.first().clone())
    }

    /// Checks that one dim is no larger than another.
    fn is_within(&self, small: DimId, large: DimId) -> Result<(), TypeError> {
        let (left, right) = (self.size(large), self.size(small));
        if right > left { Err(TypeError::Sizes { left, right }) } else { Ok(()) }
    }

    fn mask(&self, query: DimId, key: DimId, window: Option<u64>) -> Result<TensorType, TypeError> {
        self.float(0)?;
        self.has_both(query, key)?;
        self.is_within(query, key)?;
        if window == Some(0) {
            return Err(TypeError::Sizes { left: 0, right: self.size(key) });
        }
        Ok(self.first().clone())
    }

    fn rope(&self, over: DimId, at: DimId, extent: Option<DimId>) -> Result<TensorType, TypeError> {
        self.float(0)?;
        self.has_both(over, at)?;
        if self.size(over) % 2 == 1 {
            return Err(TypeError::Sizes { left: self.size(over), right: 2 });
        }
        extent.map_or(Ok(()), |extent| self.is_within(at, extent))?;
        Ok(self.first().clone())
    }

    fn take(&self, over: DimId) -> Result<TensorType, TypeError> {
        self.has(0, over)?;
        let (first, ids) = (self.first(), &self.all[1]);
        self.int32(1)?;
        if ids.dims.contains(&over) {
            return Err(TypeError::RepeatedDim(over));
        }
        // A dim that both have gives each of its positions a table of its own.
        let mut out = ids.dims.clone();
        out.extend(first.dims.iter().filter(|d| **d != over && !ids.dims.contains(d)));
        typed(out, first.dtype)
    }

    fn route(
        &self,
        over: DimId,
        at: DimId,
        to: DimId,
        choices: u64,
    ) -> Result<TensorType, TypeError> {
        self.float(0)?;
        self.has_both(over, at)?;
        if !(1..=self.size(over)).contains(&choices) {
            return Err(TypeError::Sizes { left: self.size(over), right: choices });
        }
        let mut out = self.first().dims.clone();
        out.push(to);
        typed(out, self.first().dtype)
    }
}

/// Whether an einsum may be accumulated and given in the dtype `stated`, where the product of its
/// operands has the dtype `product`: floats in any float, whole numbers in int32.
///
/// | product | stated |
/// |---|---|
/// | bf16 | f32, bf16, f16, f8, f4 |
/// | int4, int8, int32 | int32 |
pub fn accumulates_in(product: Dtype, stated: Dtype) -> bool {
    product == stated
        || (product.is_float() && stated.is_float())
        || (!product.is_float() && product != Dtype::Bool && stated == Dtype::Int32)
}

/// The type of an einsum that states its dtype: as [`result_type`], but with the stated dtype where
/// the einsum may be accumulated in it.
pub fn einsum_type(
    operands: &[TensorType],
    named: &[DimId],
    stated: Dtype,
    dims: &[Dim],
) -> Result<TensorType, TypeError> {
    let ty = result_type(&Op::Einsum, operands, named, dims)?;
    Ok(if accumulates_in(ty.dtype, stated) { TensorType { dtype: stated, ..ty } } else { ty })
}

fn repeated(dims: &[DimId]) -> Option<DimId> {
    dims.iter().enumerate().find(|(i, d)| dims[..*i].contains(d)).map(|(_, d)| *d)
}

/// Whether two lists have the same dims, in any order.
pub fn same_dims(a: &[DimId], b: &[DimId]) -> bool {
    a.len() == b.len() && a.iter().all(|d| b.contains(d))
}
