//! The work of an op by the local sizes of its operands and its result.

use rustc_hash::FxHashMap;
use shard_cost::{LocalTensor, Work, op_work};
use shard_ir::{Dtype, Layout, Op, Program, ValueId, never};

use crate::kernel::Kernels;

/// The work of one op in all its strategies. It depends on the local sizes alone, so it is kept by
/// these.
pub(super) struct Works<'a> {
    kernels: &'a Kernels,
    program: &'a Program,
    op: &'a Op,
    operands: Vec<(u32, ValueId, Option<f64>)>,
    result: ValueId,
    known: FxHashMap<Vec<u64>, Work>,
    key: Vec<u64>,
}

impl<'a> Works<'a> {
    pub(super) fn new(kernels: &'a Kernels, id: ValueId, op: &'a Op) -> Works<'a> {
        let program = kernels.program.as_ref();
        let operands = program.value(id).def.operands();
        Works {
            kernels,
            program,
            op,
            operands: operands
                .iter()
                .map(|o| {
                    let origin = kernels.origin_of(*o);
                    (origin.0, *o, program.value(origin).def.constant())
                })
                .collect(),
            result: id,
            known: FxHashMap::default(),
            key: Vec::new(),
        }
    }

    /// Appends the local sizes of a value in a layout, and behind them the number of its local
    /// statistics, which is 0 unless the value is the attention over a part of the keys.
    fn local(&self, value: ValueId, layout: Layout, into: &mut Vec<u64>) {
        let mesh = &self.program.mesh;
        let start = into.len();
        into.extend(
            self.program.value(value).dims.iter().map(|d| self.program.dims[d.index()].size),
        );
        for axis in mesh.axis_ids() {
            if let shard_ir::Place::Split { dim, .. } = layout.place(axis) {
                into[start + dim] /= mesh.size(axis);
            }
        }
        let by = self.kernels.statistics(value).filter(|_| !layout.softmax_axes().is_empty());
        into.push(by.map_or(0, |by| by.iter().map(|dim| into[start + dim]).product()));
    }

    pub(super) fn of(&mut self, layouts: &[Layout], result: Layout) -> Work {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for ((_, value, _), layout) in self.operands.iter().zip(layouts) {
            self.local(*value, *layout, &mut key);
        }
        self.local(self.result, result, &mut key);
        let work = match self.known.get(&key) {
            Some(work) => *work,
            None => {
                let mut at = 0;
                let mut tensor = |value: ValueId, name: u32, constant: Option<f64>| {
                    let v = self.program.value(value);
                    let (sizes, statistics) = (&key[at..at + v.dims.len()], key[at + v.dims.len()]);
                    at += v.dims.len() + 1;
                    let (dims, dtype) = (&v.dims, v.dtype);
                    LocalTensor { value: name, dims, sizes, dtype, constant, statistics }
                };
                let operands: Vec<LocalTensor<'_>> = self
                    .operands
                    .iter()
                    .map(|(name, value, constant)| tensor(*value, *name, *constant))
                    .collect();
                let result = tensor(self.result, self.result.0, None);
                let work = op_work(self.op, &operands, result);
                self.known.insert(key.clone(), work);
                work
            }
        };
        self.key = key;
        work
    }

    /// The bytes that an elementwise op adds to the kernel that makes its operand at `fed`: what it
    /// reads beside that operand, and by how much its result is larger.
    pub(super) fn added(
        &self,
        layouts: &[Layout],
        result: Layout,
        skipped: &[bool],
        fed: usize,
    ) -> i64 {
        let bytes = |value: ValueId, layout: Layout| {
            let mut sizes = Vec::new();
            self.local(value, layout, &mut sizes);
            let statistics = sizes.pop();
            let statistics = statistics.unwrap_or_else(|| never!("a value without statistics", 0));
            let elements = sizes.iter().product();
            let beside = Dtype::F32.bytes(statistics);
            (self.program.value(value).dtype.bytes(elements) + beside) as i64
        };
        let read: i64 = self
            .operands
            .iter()
            .enumerate()
            .filter(|(i, (_, _, constant))| constant.is_none() && !skipped[*i])
            .map(|(i, (_, value, _))| bytes(*value, layouts[i]))
            .sum();
        read + bytes(self.result, result) - bytes(self.operands[fed].1, layouts[fed])
    }
}
