//! [`Tensor`]: a dense array in row-major order, and the walk over several of them at once.

use crate::collectives::Held;
use crate::spare::Spare;

/// A dense array in row-major order: a whole tensor, or one device's block. Elements are `f64`, but
/// for the floats of blocks in [`Arithmetic::Single`](crate::Arithmetic::Single), which are `f32`.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor<T = f64> {
    /// The size of each dim.
    pub sizes: Vec<usize>,
    /// The elements, the last dim fastest.
    pub data: Vec<T>,
}

/// Part of a tensor: the elements in a range of indices along each dim.
#[derive(Clone)]
pub(crate) struct Section {
    /// Its first index along each dim.
    pub(crate) origin: Vec<usize>,
    /// How many indices it has along each dim.
    pub(crate) sizes: Vec<usize>,
}

/// A type that elements of a block are held as.
pub(crate) trait Element: Copy + PartialEq + Send + Sync + std::fmt::Debug {
    /// A number, rounded to this type.
    fn of(value: f64) -> Self;

    /// The element as a number.
    fn value(self) -> f64;

    /// Numbers as elements of this type.
    fn all_of(numbers: Vec<f32>) -> Vec<Self>;

    /// An empty vector with room for so many elements.
    fn room(spare: &Spare, elements: usize) -> Vec<Self>;

    /// Gives away the memory of blocks that are not needed any more.
    fn give(spare: &Spare, blocks: Held<Self>);
}

impl Element for f64 {
    fn of(value: f64) -> f64 {
        value
    }

    fn value(self) -> f64 {
        self
    }

    fn all_of(numbers: Vec<f32>) -> Vec<f64> {
        numbers.into_iter().map(f64::from).collect()
    }

    fn room(_: &Spare, elements: usize) -> Vec<f64> {
        Vec::with_capacity(elements)
    }

    fn give(_: &Spare, _: Held<f64>) {}
}

impl Element for f32 {
    fn of(value: f64) -> f32 {
        value as f32
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn all_of(numbers: Vec<f32>) -> Vec<f32> {
        numbers
    }

    fn room(spare: &Spare, elements: usize) -> Vec<f32> {
        spare.narrow_room(elements)
    }

    fn give(spare: &Spare, blocks: Held<f32>) {
        spare.take_narrow(blocks);
    }
}

impl Tensor {
    /// The largest absolute value among the finite elements.
    pub fn max_abs(&self) -> f64 {
        self.data.iter().map(|v| v.abs()).filter(|v| v.is_finite()).fold(0.0, f64::max)
    }
}

impl<T: Copy> Tensor<T> {
    /// The same tensor, its elements held as another type.
    pub(crate) fn held_as<U: Element>(&self) -> Tensor<U>
    where
        T: Element,
    {
        let data = self.data.iter().map(|v| U::of(v.value())).collect();
        Tensor { sizes: self.sizes.clone(), data }
    }

    /// The block of these sizes that starts at `origin`, its elements held as another type, in
    /// memory from `spare`.
    pub(crate) fn block_as<U: Element>(
        &self,
        origin: &[usize],
        sizes: &[usize],
        spare: &Spare,
    ) -> Tensor<U>
    where
        T: Element,
    {
        let mut data = U::room(spare, sizes.iter().product());
        self.for_lines_of(origin, sizes, |line| data.extend(line.iter().map(|v| U::of(v.value()))));
        Tensor { sizes: sizes.to_vec(), data }
    }

    /// Writes a block that starts at `origin`, whose elements may be held as another type.
    pub(crate) fn write_block_of<U: Element>(&mut self, origin: &[usize], block: &Tensor<U>)
    where
        T: Element,
    {
        let (into, of) = (self.strides(), block.strides());
        let start: usize = origin.iter().zip(&into).map(|(o, s)| o * s).sum();
        for_lines(&block.sizes, [&into, &of], |[into, of], length, _| {
            let line = &mut self.data[start + into..][..length];
            line.iter_mut().zip(&block.data[of..][..length]).for_each(|(a, b)| {
                *a = T::of(b.value());
            });
        });
    }

    /// A tensor of one value throughout.
    pub fn filled(sizes: Vec<usize>, value: T) -> Tensor<T> {
        let data = vec![value; sizes.iter().product()];
        Tensor { sizes, data }
    }

    /// A tensor of these sizes and data, if there is one element for each place.
    pub fn new(sizes: Vec<usize>, data: Vec<T>) -> Option<Tensor<T>> {
        (sizes.iter().product::<usize>() == data.len()).then_some(Tensor { sizes, data })
    }

    /// How far apart in the data neighbours along each dim are.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.sizes.len()];
        for i in (1..self.sizes.len()).rev() {
            strides[i - 1] = strides[i] * self.sizes[i];
        }
        strides
    }

    /// The element at an index.
    pub fn at(&self, index: &[usize]) -> T {
        self.data[self.strides().iter().zip(index).map(|(s, i)| s * i).sum::<usize>()]
    }

    /// The dims in another order: dim `i` of the result is dim `order[i]` of this one.
    pub fn transposed(&self, order: &[usize]) -> Tensor<T> {
        if order.iter().enumerate().all(|(i, o)| i == *o) {
            return self.clone();
        }
        let strides = self.strides();
        let sizes: Vec<usize> = order.iter().map(|o| self.sizes[*o]).collect();
        let strides: Vec<usize> = order.iter().map(|o| strides[*o]).collect();
        let mut data = Vec::with_capacity(self.data.len());
        gather(&self.data, &sizes, &strides, |v| data.push(v));
        Tensor { sizes, data }
    }

    /// The tensor with its dims in another order, without a copy where the order is its own.
    pub(crate) fn into_transposed(self, order: &[usize]) -> Tensor<T> {
        if order.iter().enumerate().all(|(i, o)| i == *o) { self } else { self.transposed(order) }
    }

    /// The block of these sizes that starts at `origin`.
    pub fn block(&self, origin: &[usize], sizes: &[usize]) -> Tensor<T> {
        let mut data = Vec::with_capacity(sizes.iter().product());
        self.for_lines_of(origin, sizes, |line| data.extend_from_slice(line));
        Tensor { sizes: sizes.to_vec(), data }
    }

    /// Visits the block of these sizes that starts at `origin` line by line, in row-major order; a
    /// line is a run of elements that lie one behind the other.
    pub(crate) fn for_lines_of(
        &self,
        origin: &[usize],
        sizes: &[usize],
        mut visit: impl FnMut(&[T]),
    ) {
        let strides = self.strides();
        let start: usize = origin.iter().zip(&strides).map(|(o, s)| o * s).sum();
        for_lines(sizes, [&strides], |[at], length, _| visit(&self.data[start + at..][..length]));
    }

    /// Writes a block that starts at `origin`.
    pub fn write_block(&mut self, origin: &[usize], block: &Tensor<T>) {
        self.copy_box(origin, block, &vec![0; block.sizes.len()], &block.sizes);
    }

    /// Copies a box of `sizes` that starts at `from` in another tensor to `to` in this one.
    pub(crate) fn copy_box(
        &mut self,
        to: &[usize],
        source: &Tensor<T>,
        from: &[usize],
        sizes: &[usize],
    ) {
        let (into, of) = (self.strides(), source.strides());
        let first = |origin: &[usize], strides: &[usize]| -> usize {
            origin.iter().zip(strides).map(|(o, s)| o * s).sum()
        };
        let (into_start, of_start) = (first(to, &into), first(from, &of));
        for_lines(sizes, [&into, &of], |[into, of], length, _| {
            let (into, of) = (into_start + into, of_start + of);
            self.data[into..into + length].copy_from_slice(&source.data[of..of + length]);
        });
    }

    /// Where one of `parts` equal parts along a dim lies.
    pub(crate) fn place_of_part(&self, dim: usize, parts: usize, part: usize) -> Section {
        let (mut origin, mut sizes) = (vec![0; self.sizes.len()], self.sizes.clone());
        sizes[dim] /= parts.max(1);
        origin[dim] = part * sizes[dim];
        Section { origin, sizes }
    }

    /// One of `parts` equal parts along a dim.
    pub(crate) fn part(&self, dim: usize, parts: usize, part: usize) -> Tensor<T> {
        let Section { origin, sizes } = self.place_of_part(dim, parts, part);
        self.block(&origin, &sizes)
    }

    /// The tensor cut along a dim into `parts` equal blocks.
    pub fn cut(&self, dim: usize, parts: usize) -> Vec<Tensor<T>> {
        (0..parts).map(|part| self.part(dim, parts, part)).collect()
    }

    /// Equal blocks joined along a dim.
    pub fn joined<B: std::borrow::Borrow<Tensor<T>>>(blocks: &[B], dim: usize) -> Tensor<T> {
        Tensor::joined_in(blocks, dim, Vec::with_capacity)
    }

    /// Equal blocks joined along a dim. `room` gives an empty vector for so many elements.
    pub(crate) fn joined_in<B: std::borrow::Borrow<Tensor<T>>>(
        blocks: &[B],
        dim: usize,
        room: impl FnOnce(usize) -> Vec<T>,
    ) -> Tensor<T> {
        let Some(first) = blocks.first().map(B::borrow) else {
            return Tensor { sizes: vec![0], data: Vec::new() };
        };
        let mut sizes = first.sizes.clone();
        sizes[dim] = blocks.iter().map(|b| b.borrow().sizes[dim]).sum();
        let mut data = room(sizes.iter().product());
        let outer: usize = sizes[..dim].iter().product();
        for line in 0..outer {
            for block in blocks.iter().map(B::borrow) {
                let length: usize = block.sizes[dim..].iter().product();
                data.extend_from_slice(&block.data[line * length..][..length]);
            }
        }
        Tensor { sizes, data }
    }
}

/// Gives the elements at every index of `sizes` in row-major order.
pub(crate) fn gather<T: Copy>(
    data: &[T],
    sizes: &[usize],
    strides: &[usize],
    mut give: impl FnMut(T),
) {
    // With a last dim of size 1 every line would be one element.
    let rank = sizes.iter().rposition(|size| *size != 1).map_or(0, |last| last + 1);
    for_lines(&sizes[..rank], [&strides[..rank]], |[at], length, [step]| match step {
        1 => data[at..at + length].iter().for_each(|v| give(*v)),
        step => (0..length).for_each(|i| give(data[at + i * step])),
    });
}

/// Visits every line along the last dim of `sizes` in row-major order. `visit` gets the offset of
/// the line's first element for each list of strides, the length of the line, and for each list how
/// far apart neighbours in the line are. Dims that lie in one piece in all lists are one line.
pub(crate) fn for_lines<const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    mut visit: impl FnMut([usize; N], usize, [usize; N]),
) {
    if sizes.contains(&0) {
        return;
    }
    let Some((last, outer)) = sizes.split_last() else { return visit([0; N], 1, [1; N]) };
    let step = strides.map(|s| s[outer.len()]);
    let (mut length, mut outer) = (*last, outer);
    while let Some((size, rest)) = outer.split_last() {
        let at = rest.len();
        let is_one_piece = |list: usize| strides[list][at] == step[list] * length;
        if *size != 1 && !(0..N).all(is_one_piece) {
            break;
        }
        (length, outer) = (length * size, rest);
    }
    let mut index = vec![0usize; outer.len()];
    let mut offsets = [0usize; N];
    loop {
        visit(offsets, length, step);
        let mut dim = outer.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            if index[dim] < outer[dim] {
                (0..N).for_each(|list| offsets[list] += strides[list][dim]);
                break;
            }
            index[dim] = 0;
            (0..N).for_each(|list| offsets[list] -= strides[list][dim] * (outer[dim] - 1));
        }
    }
}

/// Visits every index of `sizes` in row-major order with, for each list of strides, the offset of
/// that index.
pub(crate) fn walk(sizes: &[usize], strides: &[Vec<usize>], mut visit: impl FnMut(&[usize])) {
    if sizes.contains(&0) {
        return;
    }
    let mut offsets = vec![0usize; strides.len()];
    let mut index = vec![0usize; sizes.len()];
    loop {
        visit(&offsets);
        let mut dim = sizes.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            if index[dim] < sizes[dim] {
                for (offset, stride) in offsets.iter_mut().zip(strides) {
                    *offset += stride[dim];
                }
                break;
            }
            index[dim] = 0;
            for (offset, stride) in offsets.iter_mut().zip(strides) {
                *offset -= stride[dim] * (sizes[dim] - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_transposes() {
        let t = Tensor::new(vec![2, 3], vec![0., 1., 2., 3., 4., 5.]).unwrap();
        assert_eq!(t.transposed(&[1, 0]).data, [0., 3., 1., 4., 2., 5.]);
        assert_eq!(t.block(&[0, 1], &[2, 2]).data, [1., 2., 4., 5.]);
        assert_eq!(Tensor::joined(&t.cut(1, 3), 1), t);
        assert_eq!(t.at(&[1, 2]), 5.0);
        assert_eq!(Tensor::filled(vec![], 7.0).transposed(&[]).data, [7.0]);
        assert!(Tensor::new(vec![2], vec![1.0]).is_none());
    }
}
