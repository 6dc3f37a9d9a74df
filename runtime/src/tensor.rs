//! [`Tensor`]: a dense array in row-major order, and the walk over several of them at once.

/// A dense array, row-major. The data of a whole tensor or of one device's block.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The size of each dim.
    pub sizes: Vec<usize>,
    /// The elements, the last dim fastest.
    pub data: Vec<f64>,
}

impl Tensor {
    /// A tensor of one value throughout.
    pub fn filled(sizes: Vec<usize>, value: f64) -> Tensor {
        let data = vec![value; sizes.iter().product()];
        Tensor { sizes, data }
    }

    /// A tensor of these sizes and data, if there is one element for each place.
    pub fn new(sizes: Vec<usize>, data: Vec<f64>) -> Option<Tensor> {
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
    pub fn at(&self, index: &[usize]) -> f64 {
        self.data[self.strides().iter().zip(index).map(|(s, i)| s * i).sum::<usize>()]
    }

    /// The largest absolute value among the finite elements.
    pub fn max_abs(&self) -> f64 {
        self.data.iter().map(|v| v.abs()).filter(|v| v.is_finite()).fold(0.0, f64::max)
    }

    /// The dims in another order: dim `i` of the result is dim `order[i]` of this one.
    pub fn transposed(&self, order: &[usize]) -> Tensor {
        if order.iter().enumerate().all(|(i, o)| i == *o) {
            return self.clone();
        }
        let strides = self.strides();
        let sizes: Vec<usize> = order.iter().map(|o| self.sizes[*o]).collect();
        let mut data = Vec::with_capacity(self.data.len());
        walk(&sizes, &[order.iter().map(|o| strides[*o]).collect()], |at| {
            data.push(self.data[at[0]])
        });
        Tensor { sizes, data }
    }

    /// The block of these sizes that starts at `origin`.
    pub fn block(&self, origin: &[usize], sizes: &[usize]) -> Tensor {
        let strides = self.strides();
        let start: usize = origin.iter().zip(&strides).map(|(o, s)| o * s).sum();
        let mut data = Vec::with_capacity(sizes.iter().product());
        walk(sizes, &[strides], |at| data.push(self.data[start + at[0]]));
        Tensor { sizes: sizes.to_vec(), data }
    }

    /// Writes a block that starts at `origin`.
    pub fn write_block(&mut self, origin: &[usize], block: &Tensor) {
        let strides = self.strides();
        let start: usize = origin.iter().zip(&strides).map(|(o, s)| o * s).sum();
        let mut values = block.data.iter();
        walk(&block.sizes, &[strides], |at| {
            if let Some(value) = values.next() {
                self.data[start + at[0]] = *value;
            }
        });
    }

    /// The tensor cut along a dim into `parts` equal blocks.
    pub fn cut(&self, dim: usize, parts: usize) -> Vec<Tensor> {
        let mut sizes = self.sizes.clone();
        sizes[dim] /= parts;
        let mut origin = vec![0; sizes.len()];
        (0..parts)
            .map(|part| {
                origin[dim] = part * sizes[dim];
                self.block(&origin, &sizes)
            })
            .collect()
    }

    /// Equal blocks joined along a dim.
    pub fn joined(blocks: &[Tensor], dim: usize) -> Tensor {
        let Some(first) = blocks.first() else { return Tensor::filled(vec![0], 0.0) };
        let mut sizes = first.sizes.clone();
        sizes[dim] = blocks.iter().map(|b| b.sizes[dim]).sum();
        let mut out = Tensor::filled(sizes, 0.0);
        let mut origin = vec![0; out.sizes.len()];
        for block in blocks {
            out.write_block(&origin, block);
            origin[dim] += block.sizes[dim];
        }
        out
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
