//! The bodies of random programs: some ops, those of a law, ops along a line, rows by their ids.

use shard_ir::{Binary, Def, DimId, Dtype, Map, Op, ParameterKind, Reduce, TensorType, ValueId};

use super::Maker;

impl Maker {
    pub(super) fn body(&mut self) {
        let dtype = self.pick(&[Dtype::Bf16, Dtype::Bf16, Dtype::Bf16, Dtype::F32]);
        let dims = self.some_dims(self.max_rank.min(2));
        self.parameter(dims, dtype);
        let ops = 1 + self.random.below(5);
        let mut made = 0;
        while made < ops {
            let before = self.program.values.len();
            if self.op().is_some() {
                made += 1;
                if self.chance(7) {
                    self.pin();
                }
            } else {
                self.program.values.truncate(before);
            }
        }
    }

    /// A product with a weight in blocks and its scales, or one that differs a little: the scales
    /// have a dim that is not summed, or are no weight, or the weight has as many bits as the other
    /// factor.
    pub(super) fn body_with_scales(&mut self) {
        let [a, block, within, out, next] = [0, 1, 2, 3, 4].map(DimId);
        let mut x = self.parameter(vec![a, block, within], Dtype::Bf16);
        if self.chance(2) {
            x = self.typed(Op::Map(Map::Gelu), &[x], &[]).unwrap_or(x);
        }
        let stored = self.pick(&[Dtype::F4, Dtype::F8, Dtype::Int8, Dtype::Bf16]);
        let stays = |maker: &mut Maker, dims: &[DimId], dtype: Dtype| {
            let kind = if maker.chance(6) { ParameterKind::Cache } else { ParameterKind::Weight };
            let pattern = maker.pattern(dims, true);
            let ty = TensorType { dims: dims.to_vec(), dtype };
            let id = maker.push(ty, Def::Parameter { kind, pattern });
            if maker.chance(8) {
                maker.pin();
            }
            id
        };
        let w = stays(self, &[block, within, out], stored);
        let of = self.pick(&[vec![block, out], vec![block, out], vec![block], vec![out]]);
        let scale = self.pick(&[Dtype::F8, Dtype::Bf16]);
        let s = stays(self, &of, scale);
        let operands = if self.chance(2) { [x, w, s] } else { [s, w, x] };
        let mut y = self.typed(Op::Einsum, &operands, &[a, out]);
        if let (Some(made), true) = (y, self.chance(2)) {
            y = self.typed(Op::Map(Map::Gelu), &[made], &[]);
        }
        if let (Some(made), true) = (y, self.chance(2)) {
            let last = self.parameter(vec![out, next], Dtype::Bf16);
            self.typed(Op::Einsum, &[made, last], &[a, next]);
        }
    }

    pub(super) fn body_with_forms(&mut self) {
        let [a, b, c, d] = [0, 1, 2, 3].map(DimId);
        let dtype = self.pick(&[Dtype::Bf16, Dtype::Bf16, Dtype::F32]);
        match self.random.below(5) {
            // A chain, now and then pinned within, or read twice.
            0 | 1 => {
                let [x, y, z] =
                    [[a, b], [b, c], [c, d]].map(|dims| self.parameter(dims.to_vec(), dtype));
                let (first, dims, last) =
                    if self.chance(2) { ([x, y], [a, c], z) } else { ([y, z], [b, d], x) };
                let mut inner = self.typed(Op::Einsum, &first, &dims);
                if self.chance(6) {
                    self.pin();
                    inner = Some(ValueId(self.program.values.len() as u32 - 1));
                }
                let result =
                    inner.and_then(|inner| self.typed(Op::Einsum, &[inner, last], &[a, d]));
                if let (Some(result), true) = (result, self.chance(3)) {
                    self.typed(Op::Map(Map::Gelu), &[result], &[]);
                }
                if let (Some(inner), true) = (inner, self.chance(5)) {
                    self.typed(Op::Map(Map::Gelu), &[inner], &[]);
                }
            }
            // A long einsum.
            2 => {
                let operands =
                    [[a, b], [b, c], [c, d]].map(|dims| self.parameter(dims.to_vec(), dtype));
                let named = if self.chance(2) { vec![a, d] } else { vec![d] };
                self.typed(Op::Einsum, &operands, &named);
            }
            // A sum with a shared operand.
            3 => {
                let x = self.parameter(vec![a, b], dtype);
                let [v, w] = [(); 2].map(|()| self.parameter(vec![b, c], dtype));
                let left = self.typed(Op::Einsum, &[x, v], &[a, c]);
                let right = self.typed(Op::Einsum, &[w, x], &[a, c]);
                let op = Op::Binary(self.pick(&[Binary::Add, Binary::Sub]));
                if let (Some(mut left), Some(right)) = (left, right) {
                    if self.chance(3) {
                        let other = self.parameter(vec![a, c], dtype);
                        left = self
                            .typed(Op::Binary(Binary::Add), &[other, left], &[])
                            .unwrap_or(left);
                    }
                    self.typed(op, &[left, right], &[]);
                }
            }
            // Equal ops, and a sum of an einsum.
            _ => {
                let (x, w) = (self.parameter(vec![a, b], dtype), self.parameter(vec![b, c], dtype));
                let [left, right] = [(); 2].map(|()| self.typed(Op::Map(Map::Gelu), &[x], &[]));
                let product = left.and_then(|left| self.typed(Op::Einsum, &[left, w], &[a, c]));
                if let Some(product) = product {
                    self.typed(Op::Reduce { kind: Reduce::Sum, over: vec![c] }, &[product], &[]);
                }
                if let (Some(right), true) = (right, self.chance(2)) {
                    self.typed(Op::Reduce { kind: Reduce::Sum, over: vec![b] }, &[right], &[]);
                }
            }
        }
    }

    /// A sum up to a position, a recurrence or a choice of the largest, with something before or
    /// behind it.
    pub(super) fn body_along_lines(&mut self) {
        let [a, b] = [0, 1].map(DimId);
        let dtype = self.pick(&[Dtype::Bf16, Dtype::F32, Dtype::F32]);
        for dim in [a, b] {
            let size = self.pick(&[6, 8, 16, 24, 48, 96]);
            let dim = &mut self.program.dims[dim.index()];
            (dim.size, dim.useful) = (size, size);
        }
        let dims = if self.chance(3) { vec![b] } else { vec![a, b] };
        let mut x = self.parameter(dims.clone(), dtype);
        if self.chance(3) {
            x = self.typed(Op::Map(Map::Relu), &[x], &[]).unwrap_or(x);
        }
        let over = self.pick(&dims);
        let (taps, tapped) = (DimId(4), 2 + self.random.below(2));
        let made = match self.random.below(8) {
            0 => self.typed(Op::Cumsum { over }, &[x], &[]),
            2 => self.typed(Op::Shift { over, by: tapped - 1 }, &[x], &[]),
            3 => {
                self.program.dims[4].size = tapped;
                self.program.dims[4].useful = tapped;
                let mut channels = dims.clone();
                channels.retain(|dim| *dim != over);
                let w = self.parameter([vec![taps], channels].concat(), dtype);
                self.typed(Op::Conv { over, taps }, &[x, w], &[])
            }
            1 => {
                let gates = if self.chance(2) { dims } else { vec![over] };
                let gates = self.parameter(gates, dtype);
                self.typed(Op::Scan { over }, &[x, gates], &[])
            }
            _ => {
                let (to, parts) = (DimId(4), None);
                self.program.dims[4].size = 1 + self.random.below(2);
                self.program.dims[4].useful = self.program.dims[4].size;
                let op = [Op::TopK { over, to, parts }, Op::ArgTopK { over, to, parts }];
                let op = self.pick(&op);
                self.typed(op, &[x], &[])
            }
        };
        if let (Some(made), true) = (made, self.chance(3)) {
            self.typed(Op::Map(Map::Relu), &[made], &[]);
        }
    }

    /// Rows added up by their ids, with something before or behind it; now and then ids that a
    /// table is looked up with, too, as by a loss and its gradient.
    pub(super) fn body_by_ids(&mut self) {
        let [a, b, rows, places] = [0, 1, 2, 3].map(DimId);
        let size = self.pick(&[4, 6, 8, 16, 24, 48]);
        let dim = &mut self.program.dims[places.index()];
        (dim.size, dim.useful) = (size, size);
        let dtype = self.pick(&[Dtype::Bf16, Dtype::F32, Dtype::F32]);
        let (of_ids, over) = match self.random.below(4) {
            0 => (vec![a, rows], vec![a, rows]),
            1 => (vec![a, rows], vec![rows]),
            _ => (vec![rows], vec![rows]),
        };
        let ids = self.parameter(of_ids.clone(), Dtype::Int32);
        let mut of_rows = of_ids;
        if of_rows.len() < self.max_rank {
            of_rows.push(b);
        }
        if self.chance(3) {
            of_rows.reverse();
        }
        let mut x = self.parameter(of_rows.clone(), dtype);
        if self.chance(3) {
            let map = self.pick(&[Map::Neg, Map::Relu]);
            x = self.typed(Op::Map(map), &[x], &[]).unwrap_or(x);
        }
        if self.chance(4) {
            let table = self.parameter(vec![places, b], dtype);
            let taken = self.typed(Op::Take { over: places }, &[table, ids], &[]);
            let both = taken.and_then(|taken| {
                let op = Op::Binary(Binary::Sub);
                self.typed(op, &[x, taken], &[])
            });
            x = both.filter(|both| self.type_of(*both).dims.len() <= self.max_rank).unwrap_or(x);
        }
        let Some(sums) = self.typed(Op::ScatterAdd { over, to: places }, &[x, ids], &[]) else {
            return;
        };
        match self.random.below(5) {
            0 => {
                let map = self.pick(&[Map::Neg, Map::Relu]);
                self.typed(Op::Map(map), &[sums], &[]);
            }
            1 => {
                let table = self.parameter(self.type_of(sums).dims, dtype);
                self.typed(Op::Binary(Binary::Sub), &[table, sums], &[]);
            }
            2 => {
                let w = self.parameter(vec![places], dtype);
                let kept: Vec<DimId> = self.type_of(sums).dims;
                let kept: Vec<DimId> = kept.into_iter().filter(|d| *d != places).collect();
                self.typed(Op::Einsum, &[sums, w], &kept);
            }
            3 => self.pin(),
            _ => {}
        }
    }
}
