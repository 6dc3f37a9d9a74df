//! The type rule of each op: the dims and dtype of its result, from those of its operands.

use crate::op::{Flag, Op, Reduce};
use crate::tensor::{Dim, DimId, Dtype, TensorType};

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
    /// Sizes that do not fit the op: a rename to another size, a split whose parts do not multiply to the whole, ...
    #[error("sizes do not fit: {left} against {right}")]
    Sizes {
        /// What the operand has.
        left: u64,
        /// What the op asks for.
        right: u64,
    },
    /// An operand of a dtype that the op does not take.
    #[error("operand {operand} is {found}")]
    OperandDtype {
        /// Which operand.
        operand: usize,
        /// Its dtype.
        found: Dtype,
        /// What would do.
        wanted: &'static str,
    },
}

/// The type of the op's result with dims in the natural order (the first operand's order, then new ones), or, for an
/// einsum, in the order of `named`, the dims that its subscript names.
pub fn result_type(op: &Op, operands: &[TensorType], named: &[DimId], dims: &[Dim]) -> Result<TensorType, TypeError> {
    use TypeError as E;
    let arity = match op.row().operands.len() {
        0 => operands.len().max(1),
        named => named,
    };
    if operands.len() != arity {
        return Err(E::Arity { expected: arity, found: operands.len() });
    }
    let size = |d: DimId| dims[d.index()].size;
    let product = |list: &[DimId]| list.iter().fold(1u64, |n, d| n.saturating_mul(size(*d)));
    let first = &operands[0];
    let needs = |operand: usize, dim: DimId| {
        if operands[operand].dims.contains(&dim) { Ok(()) } else { Err(E::MissingDim { operand, dim }) }
    };
    let float = |operand: usize| {
        if operands[operand].dtype.is_float() {
            Ok(())
        } else {
            Err(E::OperandDtype { operand, found: operands[operand].dtype, wanted: "a float" })
        }
    };
    let number = |operand: usize| {
        if operands[operand].dtype != Dtype::Bool {
            Ok(())
        } else {
            Err(E::OperandDtype { operand, found: Dtype::Bool, wanted: "a number" })
        }
    };
    let replace = |from: &[DimId], to: &[DimId]| {
        let mut out = Vec::new();
        for d in &first.dims {
            if *d == from[0] {
                out.extend_from_slice(to);
            } else if !from.contains(d) {
                out.push(*d);
            }
        }
        out
    };
    let typed = |out: Vec<DimId>, dtype: Dtype| match repeated(&out) {
        Some(d) => Err(E::RepeatedDim(d)),
        None => Ok(TensorType { dims: out, dtype }),
    };
    let equal_sizes = |left: u64, right: u64| if left == right { Ok(()) } else { Err(E::Sizes { left, right }) };
    match op {
        Op::Einsum => {
            if let Some(d) = named.iter().find(|d| !operands.iter().any(|o| o.dims.contains(d))) {
                return Err(E::NoOperandHas(*d));
            }
            let mut dtype = first.dtype;
            for i in 0..operands.len() {
                number(i)?;
            }
            for operand in &operands[1..] {
                dtype = dtype.product(operand.dtype).ok_or(E::Dtypes { left: dtype, right: operand.dtype })?;
            }
            typed(named.to_vec(), dtype)
        }
        Op::Map(map) => {
            if map.row().is(Flag::Exact) { number(0) } else { float(0) }?;
            Ok(first.clone())
        }
        Op::Binary(_) => {
            let (left, right) = (first.dtype, operands[1].dtype);
            number(0)?;
            number(1)?;
            let dtype = left.meet(right).ok_or(E::Dtypes { left, right })?;
            let mut out = first.dims.clone();
            out.extend(operands[1].dims.iter().filter(|d| !first.dims.contains(d)));
            typed(out, dtype)
        }
        Op::Reduce { kind, over } => {
            number(0)?;
            if *kind == Reduce::Mean {
                float(0)?;
            }
            if let Some(d) = repeated(over) {
                return Err(E::RepeatedDim(d));
            }
            over.iter().try_for_each(|d| needs(0, *d))?;
            typed(first.dims.iter().copied().filter(|d| !over.contains(d)).collect(), first.dtype)
        }
        Op::Softmax { over } | Op::Norm { over, .. } => {
            float(0)?;
            needs(0, *over)?;
            Ok(first.clone())
        }
        Op::Rename { from, to } => {
            needs(0, *from)?;
            equal_sizes(size(*from), size(*to))?;
            typed(replace(&[*from], &[*to]), first.dtype)
        }
        Op::Split { from, to } => {
            needs(0, *from)?;
            equal_sizes(size(*from), product(to))?;
            typed(replace(&[*from], to), first.dtype)
        }
        Op::Merge { from, to } => {
            if from.is_empty() {
                return Err(E::MissingDim { operand: 0, dim: *to });
            }
            from.iter().try_for_each(|d| needs(0, *d))?;
            if let Some(d) = repeated(from) {
                return Err(E::RepeatedDim(d));
            }
            equal_sizes(product(from), size(*to))?;
            typed(replace(from, &[*to]), first.dtype)
        }
        Op::Concat { left, right, to } => {
            needs(0, *left)?;
            needs(1, *right)?;
            let (a, b) = (first.dtype, operands[1].dtype);
            let dtype = a.meet(b).ok_or(E::Dtypes { left: a, right: b })?;
            equal_sizes(size(*left) + size(*right), size(*to))?;
            let expected = replace(&[*left], &[*to]);
            let other: Vec<DimId> = operands[1].dims.iter().map(|d| if d == right { *to } else { *d }).collect();
            if !same_dims(&expected, &other) {
                return Err(E::WrongDims { expected: other });
            }
            typed(expected, dtype)
        }
        Op::SliceDim { from, to, offset } => {
            needs(0, *from)?;
            match offset.checked_add(size(*to)) {
                Some(end) if end <= size(*from) => {}
                _ => return Err(E::Sizes { left: size(*from), right: offset.saturating_add(size(*to)) }),
            }
            typed(replace(&[*from], &[*to]), first.dtype)
        }
        Op::Append { from, to } => {
            needs(0, *to)?;
            needs(1, *from)?;
            if first.dtype != operands[1].dtype {
                return Err(E::Dtypes { left: first.dtype, right: operands[1].dtype });
            }
            if size(*from) > size(*to) {
                return Err(E::Sizes { left: size(*to), right: size(*from) });
            }
            let other: Vec<DimId> = operands[1].dims.iter().map(|d| if d == from { *to } else { *d }).collect();
            if !same_dims(&first.dims, &other) {
                return Err(E::WrongDims { expected: other });
            }
            Ok(first.clone())
        }
        Op::Mask { query, key } => {
            float(0)?;
            needs(0, *query)?;
            needs(0, *key)?;
            if query == key {
                return Err(E::RepeatedDim(*query));
            }
            if size(*query) > size(*key) {
                return Err(E::Sizes { left: size(*key), right: size(*query) });
            }
            Ok(first.clone())
        }
        Op::Rope { over, at, extent } => {
            float(0)?;
            needs(0, *over)?;
            needs(0, *at)?;
            if over == at {
                return Err(E::RepeatedDim(*over));
            }
            if size(*over) % 2 != 0 {
                return Err(E::Sizes { left: size(*over), right: 2 });
            }
            if let Some(extent) = extent
                && size(*at) > size(*extent)
            {
                return Err(E::Sizes { left: size(*extent), right: size(*at) });
            }
            Ok(first.clone())
        }
        Op::Take { over } => {
            needs(0, *over)?;
            let ids = &operands[1];
            if ids.dtype != Dtype::Int32 {
                return Err(E::OperandDtype { operand: 1, found: ids.dtype, wanted: "int32" });
            }
            if ids.dims.contains(over) {
                return Err(E::RepeatedDim(*over));
            }
            // A dim of both names a table of its own for each position.
            let mut out = ids.dims.clone();
            out.extend(first.dims.iter().filter(|d| *d != over && !ids.dims.contains(d)));
            typed(out, first.dtype)
        }
        Op::Route { over, at, to, choices } => {
            float(0)?;
            needs(0, *over)?;
            needs(0, *at)?;
            if over == at {
                return Err(E::RepeatedDim(*over));
            }
            if !(1..=size(*over)).contains(choices) {
                return Err(E::Sizes { left: size(*over), right: *choices });
            }
            let mut out = first.dims.clone();
            out.push(*to);
            typed(out, first.dtype)
        }
        Op::Fetch => Ok(first.clone()),
        Op::Cast(dtype) => Ok(TensorType { dims: first.dims.clone(), dtype: *dtype }),
    }
}

/// Whether an einsum whose operands' product is of dtype `product` may be accumulated, and given, in `stated`: floats in any
/// float, whole numbers in int32; what the product is anyway needs no statement.
///
/// | product | stated |
/// |---|---|
/// | bf16 | f32, bf16, f16, f8 |
/// | int4, int8, int32 | int32 |
pub fn accumulates_in(product: Dtype, stated: Dtype) -> bool {
    product == stated
        || (product.is_float() && stated.is_float())
        || (!product.is_float() && product != Dtype::Bool && stated == Dtype::Int32)
}

/// The type of an einsum that states the dtype it is accumulated in: as [`result_type`] has it, of that dtype where the
/// operands' product may be accumulated in it.
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

/// Whether two lists of dims are the same but for their order.
pub fn same_dims(a: &[DimId], b: &[DimId]) -> bool {
    a.len() == b.len() && a.iter().all(|d| b.contains(d))
}
