//! Einsums of two operands as matrix products.
//!
//! The dims are of four kinds: batch (of both operands and of the result), rows (of the first
//! operand and the result), columns (of the second operand and the result) and contracted (of both
//! operands, not of the result). Each operand is packed in the order batch, rows, contracted or
//! batch, contracted, columns, and multiplied by a kernel for matrices. The dims of the result are
//! then put into the order that is asked for.
//!
//! * A small product goes through plain loops: the result is the same to the bit on every machine,
//!   and packing would take longer.
//! * In [`Precision::Double`] products and sums are `f64`.
//! * In [`Precision::Single`] the operands are packed as `f32`, unless they are held as `f32` and
//!   lie in that order; sums of [`BLOCK`] products are taken in `f32`, and added to each other in
//!   `f64`. Where the operands are whole numbers and no such sum can pass 2^24, the result is
//!   exact.

use std::borrow::Cow;

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, Slice};
use shard_ir::DimId;

use crate::arithmetic::Arithmetic;
use crate::error::RunError;
use crate::parallel;
use crate::spare::Spare;
use crate::tensor::{Element, gather};

/// Terms that are summed in `f32` before the sum is added in `f64`.
const BLOCK: usize = 512;

/// Multiplications up to which a product goes through plain loops.
const SMALL: usize = 1 << 18;

/// Rows that a core takes at least where one product is spread over all cores.
const ROWS_AT_ONCE: usize = 128;

/// Whole numbers up to this one are exact in an `f32`.
const SINGLE_LIMIT: f64 = 16_777_216.0;

/// The arithmetic of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precision {
    /// In `f64`.
    Double,
    /// In `f32`, with sums in `f64` over blocks.
    Single,
}

impl Precision {
    /// The precision of sums of so many terms. Whole numbers are multiplied in `f32` where no sum
    /// can leave the range in which `f32` is exact.
    pub(crate) fn of(arithmetic: Arithmetic, factors: [&[f64]; 2], terms: usize) -> Precision {
        let largest = |data: &[f64]| data.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        match arithmetic {
            Arithmetic::Single => Precision::Single,
            Arithmetic::F32 | Arithmetic::Emulated => Precision::Double,
            Arithmetic::Exact => {
                let [a, b] = factors.map(largest);
                let most = [a, b, a * b * terms as f64].into_iter().fold(0.0, f64::max);
                if most <= SINGLE_LIMIT { Precision::Single } else { Precision::Double }
            }
        }
    }
}

/// A dense array with named dims.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a> {
    pub(crate) dims: &'a [DimId],
    pub(crate) sizes: &'a [usize],
    pub(crate) data: Numbers<'a>,
}

/// The elements of an operand.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'a> {
    /// Held as `f64`.
    Wide(&'a [f64]),
    /// Held as `f32`.
    Narrow(&'a [f32]),
}

/// The type of the elements of a packed operand.
trait Packed: Element {
    /// The elements of an operand, if they are held as this type.
    fn held(numbers: Numbers<'_>) -> Option<&[Self]>;
}

impl Packed for f64 {
    fn held(numbers: Numbers<'_>) -> Option<&[f64]> {
        match numbers {
            Numbers::Wide(data) => Some(data),
            Numbers::Narrow(_) => None,
        }
    }
}

impl Packed for f32 {
    fn held(numbers: Numbers<'_>) -> Option<&[f32]> {
        match numbers {
            Numbers::Wide(_) => None,
            Numbers::Narrow(data) => Some(data),
        }
    }
}

/// How the work is done.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) precision: Precision,
    /// Where the memory of the result may come from.
    pub(crate) spare: &'a Spare,
    /// Whether all cores work on this one product; else the caller's thread alone does.
    pub(crate) on_all_cores: bool,
}

/// The sizes of a product.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    rows: usize,
    columns: usize,
    contracted: usize,
}

impl Sizes {
    fn work(&self) -> usize {
        [self.rows, self.columns, self.contracted]
            .into_iter()
            .fold(self.batch, usize::saturating_mul)
    }
}

/// The einsum of two operands, its dims in the order of `dims`.
pub(crate) fn product<T: Element>(
    [a, b]: [Factor<'_>; 2],
    dims: &[DimId],
    how: How<'_>,
) -> Result<Vec<T>, RunError> {
    let (a_alone, b_alone) = (summed_alone(a, b, dims), summed_alone(b, a, dims));
    let a = a_alone.as_ref().map_or(a, Summed::factor);
    let b = b_alone.as_ref().map_or(b, Summed::factor);
    let has = |factor: &Factor<'_>, dim: &DimId| factor.dims.contains(dim);
    let of_result = |kind: &dyn Fn(&DimId) -> bool| -> Vec<DimId> {
        dims.iter().copied().filter(|d| kind(d)).collect()
    };
    let batch = of_result(&|d| has(&a, d) && has(&b, d));
    let rows = of_result(&|d| has(&a, d) && !has(&b, d));
    let columns = of_result(&|d| !has(&a, d) && has(&b, d));
    let contracted: Vec<DimId> =
        a.dims.iter().copied().filter(|d| has(&b, d) && !dims.contains(d)).collect();
    let sizes = Sizes {
        batch: count(&a, &batch)?,
        rows: count(&a, &rows)?,
        columns: count(&b, &columns)?,
        contracted: count(&a, &contracted)?,
    };
    if count(&b, &contracted)? != sizes.contracted || count(&b, &batch)? != sizes.batch {
        return Err(RunError::Internal("operands split a dim differently"));
    }
    let a = Packing { factor: a, order: [&batch[..], &rows, &contracted].concat() };
    let b = Packing { factor: b, order: [&batch[..], &contracted, &columns].concat() };
    let out = match (sizes.work() <= SMALL, how.precision) {
        (true, _) => held_as(in_loops(&a.packed::<f64>()?, &b.packed::<f64>()?, sizes)),
        (false, Precision::Double) => held_as(in_double(&a, &b, sizes, how)?),
        (false, Precision::Single) => in_single(&a, &b, sizes, how)?,
    };
    let made = [&batch[..], &rows, &columns].concat();
    if made == dims {
        return Ok(out);
    }
    let sized = |d: &DimId| size_of(&a.factor, *d).or_else(|_| size_of(&b.factor, *d));
    let made_sizes = made.iter().map(sized).collect::<Result<Vec<_>, _>>()?;
    let (sizes, strides) = in_order(&made, &made_sizes, dims)?;
    let mut data = Vec::with_capacity(out.len());
    gather(&out, &sizes, &strides, |v| data.push(v));
    Ok(data)
}

/// The same numbers, held as another type.
fn held_as<T: Element, U: Element>(data: Vec<T>) -> Vec<U> {
    data.into_iter().map(|v| U::of(v.value())).collect()
}

/// An operand, summed over the dims that neither the other operand nor the result has.
struct Summed {
    dims: Vec<DimId>,
    sizes: Vec<usize>,
    data: Vec<f64>,
}

impl Summed {
    fn factor(&self) -> Factor<'_> {
        Factor { dims: &self.dims, sizes: &self.sizes, data: Numbers::Wide(&self.data) }
    }
}

fn summed_alone(of: Factor<'_>, other: Factor<'_>, dims: &[DimId]) -> Option<Summed> {
    let is_summed = |d: &DimId| !dims.contains(d) && !other.dims.contains(d);
    if !of.dims.iter().any(is_summed) {
        return None;
    }
    let (mut left, mut sizes, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for (at, dim) in of.dims.iter().enumerate().filter(|(_, d)| !is_summed(d)) {
        left.push(*dim);
        sizes.push(of.sizes[at]);
        order.push(*dim);
    }
    let terms: usize =
        of.dims.iter().zip(of.sizes).filter(|(d, _)| is_summed(d)).map(|(_, s)| *s).product();
    order.extend(of.dims.iter().copied().filter(is_summed));
    let data = Packing { factor: of, order }.packed::<f64>().ok()?.into_owned();
    let data = match terms {
        0 => vec![0.0; sizes.iter().product()],
        terms => data.chunks(terms).map(|terms| terms.iter().sum()).collect(),
    };
    Some(Summed { dims: left, sizes, data })
}

fn size_of(factor: &Factor<'_>, dim: DimId) -> Result<usize, RunError> {
    let at = factor.dims.iter().position(|d| *d == dim);
    at.map(|at| factor.sizes[at]).ok_or(RunError::Internal("a dim is missing from an operand"))
}

fn count(factor: &Factor<'_>, dims: &[DimId]) -> Result<usize, RunError> {
    dims.iter().map(|d| size_of(factor, *d)).product()
}

/// An operand, and the order in which its dims are wanted.
struct Packing<'a> {
    factor: Factor<'a>,
    order: Vec<DimId>,
}

impl Packing<'_> {
    /// Whether the dims lie in the order that is wanted; dims of size 1 may lie anywhere.
    fn lies_so(&self) -> bool {
        let large = |d: &&DimId| size_of(&self.factor, **d).is_ok_and(|size| size != 1);
        self.factor.dims.iter().filter(large).eq(self.order.iter().filter(large))
    }

    /// The elements in the order that is wanted: borrowed if they are held as this type and lie so.
    fn packed<T: Packed>(&self) -> Result<Cow<'_, [T]>, RunError> {
        match (T::held(self.factor.data), self.factor.data) {
            (Some(held), _) if self.lies_so() => Ok(Cow::Borrowed(held)),
            (_, Numbers::Wide(data)) => self.gathered(data),
            (_, Numbers::Narrow(data)) => self.gathered(data),
        }
    }

    fn gathered<T: Element, U: Element>(&self, data: &[T]) -> Result<Cow<'_, [U]>, RunError> {
        if self.lies_so() {
            return Ok(data.iter().map(|v| U::of(v.value())).collect());
        }
        let (sizes, strides) = in_order(self.factor.dims, self.factor.sizes, &self.order)?;
        let mut out = Vec::with_capacity(data.len());
        gather(data, &sizes, &strides, |v| out.push(U::of(v.value())));
        Ok(Cow::Owned(out))
    }
}

/// For the dims of a dense array in another order: their sizes, and how far apart neighbours along
/// each dim are in the data.
fn in_order(
    dims: &[DimId],
    sizes: &[usize],
    order: &[DimId],
) -> Result<(Vec<usize>, Vec<usize>), RunError> {
    let mut strides = vec![1usize; sizes.len()];
    for at in (1..strides.len()).rev() {
        strides[at - 1] = strides[at] * sizes[at];
    }
    let place = |dim: &DimId| {
        let at = dims.iter().position(|d| d == dim);
        at.map(|at| (sizes[at], strides[at]))
            .ok_or(RunError::Internal("a dim is missing from an operand"))
    };
    order.iter().map(place).collect()
}

/// The product by plain loops, row by row; the terms of a sum are added in their order.
fn in_loops(a: &[f64], b: &[f64], sizes: Sizes) -> Vec<f64> {
    let Sizes { batch, rows, columns, contracted } = sizes;
    let mut out = vec![0.0; batch * rows * columns];
    for (row, out) in out.chunks_mut(columns.max(1)).enumerate() {
        let b = &b[row / rows.max(1) * contracted * columns..][..contracted * columns];
        let a = &a[row * contracted..][..contracted];
        if columns == 1 {
            out[0] = a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b);
            continue;
        }
        for (a, b) in a.iter().zip(b.chunks(columns.max(1))) {
            out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
        }
    }
    out
}

/// Rows of one product of the batch, which a core makes at a time.
#[derive(Clone, Copy)]
struct RowBlock {
    /// Which product of the batch.
    batch: usize,
    from: usize,
    /// The row behind the last one.
    to: usize,
}

impl RowBlock {
    fn rows(&self) -> usize {
        self.to - self.from
    }
}

/// The row blocks of all products, in the order in which they lie in the result.
fn row_blocks(sizes: Sizes, how: How<'_>) -> Vec<RowBlock> {
    // Two row blocks for each core. They consist of whole tiles of the kernel, so that no sum
    // depends on how many there are.
    let of_a_core = sizes.rows.div_ceil(2 * parallel::cores()).next_multiple_of(ROWS_AT_ONCE);
    let rows = if how.on_all_cores { of_a_core.max(ROWS_AT_ONCE) } else { sizes.rows.max(1) };
    let of = |batch: usize| {
        let to = move |from: usize| (from + rows).min(sizes.rows);
        (0..sizes.rows).step_by(rows).map(move |from| RowBlock { batch, from, to: to(from) })
    };
    (0..sizes.batch).flat_map(of).collect()
}

/// Makes all row blocks and puts them one behind the other.
fn by_row_blocks<T: Element>(
    sizes: Sizes,
    how: How<'_>,
    make: impl Fn(RowBlock) -> Result<Vec<T>, RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let blocks = row_blocks(sizes, how);
    let work = if how.on_all_cores { sizes.work() } else { 0 };
    let made = parallel::map(blocks.len(), work, |at| make(blocks[at]))?;
    Ok(match <[Vec<T>; 1]>::try_from(made) {
        Ok([only]) => only,
        Err(made) => made.concat(),
    })
}

/// A matrix that lies in a slice, row by row, from the element `from` on.
fn matrix<T>(
    data: &[T],
    from: usize,
    rows: usize,
    columns: usize,
) -> Result<ArrayView2<'_, T>, RunError> {
    let view = data.get(from..).and_then(|data| data.get(..rows * columns));
    view.and_then(|data| ArrayView2::from_shape((rows, columns), data).ok())
        .ok_or(RunError::Internal("an operand of the wrong length"))
}

fn in_double(
    a: &Packing<'_>,
    b: &Packing<'_>,
    sizes: Sizes,
    how: How<'_>,
) -> Result<Vec<f64>, RunError> {
    let (a, b) = (a.packed::<f64>()?, b.packed::<f64>()?);
    let Sizes { rows, columns, contracted, .. } = sizes;
    by_row_blocks(sizes, how, |part| {
        let first = part.batch * rows + part.from;
        let a = matrix(&a, first * contracted, part.rows(), contracted)?;
        let b = matrix(&b, part.batch * contracted * columns, contracted, columns)?;
        let mut out = vec![0.0; part.rows() * columns];
        let into = ArrayViewMut2::from_shape((part.rows(), columns), &mut out);
        let mut into = into.map_err(|_| RunError::Internal("a product of the wrong length"))?;
        general_mat_mul(1.0, &a, &b, 0.0, &mut into);
        Ok(out)
    })
}

fn in_single<T: Element>(
    a: &Packing<'_>,
    b: &Packing<'_>,
    sizes: Sizes,
    how: How<'_>,
) -> Result<Vec<T>, RunError> {
    let (a, b) = (a.packed::<f32>()?, b.packed::<f32>()?);
    let Sizes { rows, columns, contracted, .. } = sizes;
    by_row_blocks(sizes, how, |part| {
        let first = part.batch * rows + part.from;
        let a = matrix(&a, first * contracted, part.rows(), contracted)?;
        let b = matrix(&b, part.batch * contracted * columns, contracted, columns)?;
        let mut block = how.spare.narrow(part.rows() * columns);
        let mut sums: Vec<f64> = Vec::new();
        for begin in (0..contracted).step_by(BLOCK) {
            let end = (begin + BLOCK).min(contracted);
            let into = ArrayViewMut2::from_shape((part.rows(), columns), &mut block);
            let mut into = into.map_err(|_| RunError::Internal("a product of the wrong length"))?;
            let a = a.slice_axis(Axis(1), Slice::from(begin..end));
            let b = b.slice_axis(Axis(0), Slice::from(begin..end));
            general_mat_mul(1.0f32, &a, &b, 0.0, &mut into);
            match begin {
                _ if contracted <= BLOCK => return Ok(T::all_of(block)),
                0 => sums = block.iter().map(|term| f64::from(*term)).collect(),
                _ => sums.iter_mut().zip(&block).for_each(|(sum, term)| *sum += f64::from(*term)),
            }
        }
        Ok(held_as(sums))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard_ir::Random;

    /// By dims `a` and `b`, each a letter with its size; by the definition and by `product`.
    fn both(
        [a, b, out]: [&str; 3],
        size: impl Fn(u8) -> usize,
        how: How<'_>,
    ) -> (Vec<f64>, Vec<f64>) {
        let dims = |text: &str| text.bytes().map(|b| DimId(b.into())).collect::<Vec<_>>();
        let sizes = |text: &str| text.bytes().map(&size).collect::<Vec<_>>();
        let mut random = Random::new(7);
        let mut data = |text: &str| -> Vec<f64> {
            (0..sizes(text).iter().product()).map(|_| random.between(-3, 3) as f64).collect()
        };
        let (of_a, of_b) = (data(a), data(b));
        let mut all: Vec<u8> = out.bytes().collect();
        all.extend(a.bytes().chain(b.bytes()).filter(|d| !out.as_bytes().contains(d)));
        let mut seen = Vec::new();
        all.retain(|d| {
            !seen.contains(d) && {
                seen.push(*d);
                true
            }
        });
        let place = |text: &str, index: &[usize]| {
            text.bytes().fold(0, |at, d| {
                let position = all.iter().position(|o| *o == d).unwrap();
                at * size(d) + index[position]
            })
        };
        let mut defined = vec![0.0; sizes(out).iter().product()];
        for number in 0..all.iter().map(|d| size(*d)).product::<usize>() {
            let (mut rest, mut index) = (number, vec![0; all.len()]);
            for at in (0..all.len()).rev() {
                (index[at], rest) = (rest % size(all[at]), rest / size(all[at]));
            }
            defined[place(out, &index)] += of_a[place(a, &index)] * of_b[place(b, &index)];
        }
        let factor = |text: &str, data: &[f64]| (dims(text), sizes(text), data.to_vec());
        let [x, y] = [factor(a, &of_a), factor(b, &of_b)];
        let factors =
            [&x, &y].map(|f| Factor { dims: &f.0, sizes: &f.1, data: Numbers::Wide(&f.2) });
        (defined, product(factors, &dims(out), how).unwrap())
    }

    #[test]
    fn products_are_what_their_definition_says_in_every_order_and_size() {
        let cases = [
            ["ij", "jk", "ik"],
            ["ji", "jk", "ki"],
            ["bij", "bkj", "bik"],
            ["ibj", "jkb", "kbi"],
            ["ij", "ij", ""],
            ["i", "k", "ki"],
            ["bi", "bi", "ib"],
            ["abij", "jkl", "lakbi"],
            ["isj", "jkt", "ik"],
            ["ij", "j", "i"],
        ];
        for precision in [Precision::Double, Precision::Single] {
            for on_all_cores in [false, true] {
                let how = How { precision, on_all_cores, spare: &Spare::default() };
                for case in cases {
                    let (defined, made) = both(case, |d| usize::from(d % 3) + 2, how);
                    assert_eq!(defined, made, "{case:?}");
                }
                // Past what plain loops do, past the rows of a core, past a block of sums.
                for case in [["ij", "jk", "ki"], ["jbi", "kjb", "bik"]] {
                    let size = |d| match d {
                        b'i' => 150,
                        b'j' => 2 * BLOCK + 3,
                        b'k' => 5,
                        _ => 2,
                    };
                    let (defined, made) = both(case, size, how);
                    assert_eq!(defined, made, "{case:?}");
                }
            }
        }
    }
}
