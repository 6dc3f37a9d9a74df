//! Ops and moves as PyTorch writes them.

use shard_ir::{Collective, Dtype, Map, Reduce};

use super::moves;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::helpers::Helpers;
use crate::moved::{PythonMove, Written};
use crate::python::{Py, assignment};
use crate::words::{Dtypes, Extremum, Repeated, Words};

/// The words of PyTorch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Torch;

/// Names that modules of PyTorch import and define.
const CLAIMED: &str = "argparse math os sys tempfile torch dist mp init_device_mesh distribute_tensor Partial \
    Replicate Shard MESH AXES GROUPS DEVICE LAYERS PARAMS PLACEMENTS RESULTS SHAPES TP_PLAN \
    layer";

impl Words for Torch {
    fn helpers(&self) -> Helpers {
        Helpers(include_str!("../../python/helpers_torch.py"))
    }

    fn claimed(&self) -> &'static str {
        CLAIMED
    }

    fn module(&self) -> &'static str {
        "torch"
    }

    /// PyTorch has dtypes of 4 bits and no op for them, so that a byte holds each element: `f4` is
    /// stored as `f8`, which has all numbers of `f4`.
    fn dtype(&self, dtype: Dtype, floats: Floats) -> &'static str {
        match (dtype, floats) {
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4, Floats::F64) => {
                "torch.float64"
            }
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4, Floats::F32) => {
                "torch.float32"
            }
            (Dtype::F32, Floats::Stated) => "torch.float32",
            (Dtype::Bf16, Floats::Stated) => "torch.bfloat16",
            (Dtype::F16, Floats::Stated) => "torch.float16",
            (Dtype::F8 | Dtype::F4, Floats::Stated) => "torch.float8_e4m3fn",
            (Dtype::Int32, _) => "torch.int32",
            (Dtype::Int8 | Dtype::Int4, _) => "torch.int8",
            (Dtype::Bool, _) => "torch.bool",
        }
    }

    fn computes(&self, dtype: Dtype, floats: Floats) -> bool {
        match dtype {
            Dtype::F8 | Dtype::F4 => floats != Floats::Stated,
            Dtype::Int4 => false,
            Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::Int32 | Dtype::Int8 | Dtype::Bool => {
                true
            }
        }
    }

    fn terms_in_front(&self) -> bool {
        false
    }

    fn ring(&self, axes: Vec<Py>) -> Py {
        match axes.as_slice() {
            [one] => one.clone(),
            _ => Py::Tuple(axes),
        }
    }

    fn cast(&self, value: Py, dtype: &str) -> Py {
        Py::call(format!("{}.to", value.flat()), [Py::atom(dtype)])
    }

    fn rounded(&self, value: Py, dtype: Dtype, floats: Floats) -> Py {
        if dtype == Dtype::F4 && floats == Floats::Stated {
            return Py::call("to_f4", [value]);
        }
        self.cast(value, self.dtype(dtype, floats))
    }

    fn whole(&self, value: Py, dtype: Dtype, floats: Floats) -> Py {
        let whole = Py::call("to_whole", [value, Py::atom(self.dtype(dtype, floats))]);
        if dtype == Dtype::Int4 { whole.with("bits", Py::atom(4)) } else { whole }
    }

    fn scalar(&self, number: Py, dtype: &str) -> Py {
        Py::call("torch.tensor", [number])
            .with("dtype", Py::atom(dtype))
            .with("device", Py::atom("DEVICE"))
    }

    fn rank(&self, axes: Py) -> Py {
        Py::call("rank", [axes])
    }

    fn transposed(&self, value: Py, places: Vec<usize>) -> Py {
        Py::call("torch.permute", [value, Py::numbers(places)])
    }

    fn expanded(&self, value: Py, places: Vec<usize>) -> Py {
        places
            .into_iter()
            .fold(value, |value, place| Py::call("torch.unsqueeze", [value, Py::atom(place)]))
    }

    fn concatenated(&self, [a, b]: [Py; 2], axis: usize) -> Py {
        Py::call("torch.cat", [Py::Tuple(vec![a, b])]).with("dim", Py::atom(axis))
    }

    fn cut(&self, value: Py, axis: usize, [from, to]: [u64; 2]) -> Py {
        Py::call("torch.narrow", [value, Py::atom(axis), Py::atom(from), Py::atom(to - from)])
    }

    fn updated(&self, cache: Py, rows: Py, at: u64, axis: usize) -> Py {
        Py::call("torch.slice_scatter", [cache, rows])
            .with("dim", Py::atom(axis))
            .with("start", Py::atom(at))
    }

    fn map(&self, map: Map, value: Py) -> Py {
        let function = match map {
            Map::Gelu => {
                let gelu = Py::call("torch.nn.functional.gelu", [value]);
                return gelu.with("approximate", Py::string("tanh"));
            }
            Map::Silu => "torch.nn.functional.silu",
            Map::Neg => "torch.neg",
            Map::Relu => "torch.relu",
            Map::Sigmoid => "torch.sigmoid",
            Map::Tanh => "torch.tanh",
            Map::Exp => "torch.exp",
            Map::Softplus => "torch.nn.functional.softplus",
            Map::Log => "torch.log",
            Map::Sqrt => "torch.sqrt",
            Map::Rsqrt => "torch.rsqrt",
            Map::Square => "torch.square",
            Map::Abs => "torch.abs",
        };
        Py::call(function, [value])
    }

    fn extremum(&self, kind: Extremum, [a, b]: [Py; 2]) -> Py {
        let (function, bound) = match kind {
            Extremum::Larger => ("torch.maximum", "min"),
            Extremum::Smaller => ("torch.minimum", "max"),
        };
        // `maximum` takes no number as operand, and `clamp` does.
        match (crate::ops::numbers::is_number(&a), crate::ops::numbers::is_number(&b)) {
            (false, false) => Py::call(function, [a, b]),
            (false, true) => Py::call("torch.clamp", [a]).with(bound, b),
            (true, _) => Py::call("torch.clamp", [b]).with(bound, a),
        }
    }

    fn softmax(&self, value: Py, axis: usize) -> Py {
        Py::call("torch.softmax", [value]).with("dim", Py::atom(axis))
    }

    fn reduced(&self, kind: Reduce, value: Py, axis: Py, dtype: Option<&str>) -> Py {
        let function = match kind {
            Reduce::Sum => "torch.sum",
            Reduce::Mean => "torch.mean",
            Reduce::Max => "torch.amax",
        };
        let reduced = Py::call(function, [value]).with("dim", axis);
        match (kind, dtype) {
            // Without a dtype PyTorch would widen whole numbers.
            (Reduce::Sum, Some(dtype)) => reduced.with("dtype", Py::atom(dtype)),
            (Reduce::Sum | Reduce::Mean | Reduce::Max, _) => reduced,
        }
    }

    /// An einsum of PyTorch gives the dtype of its operands, so that these are cast to the dtype of
    /// the result first. Where that is `f8`, they are multiplied in `f32`.
    fn einsum(&self, equation: Py, operands: Vec<Py>, dtypes: Dtypes) -> Py {
        let [common, result] =
            [dtypes.common, dtypes.result].map(|dtype| self.dtype(dtype, dtypes.floats));
        let is_f8 = dtypes.result == Dtype::F8 && dtypes.floats == Floats::Stated;
        let within = if is_f8 { "torch.float32" } else { result };
        let operands = operands
            .into_iter()
            .map(|operand| if common == within { operand } else { self.cast(operand, within) });
        let product = Py::call("torch.einsum", std::iter::once(equation).chain(operands));
        if within == result { product } else { self.cast(product, result) }
    }

    fn fetched(&self, value: Py) -> Py {
        Py::call(format!("{}.to", value.flat()), [Py::atom("DEVICE")])
            .with("non_blocking", Py::atom("True"))
    }

    fn moved(
        &self,
        moved: &PythonMove<'_>,
        collective: &Collective,
        value: &Py,
        between: &Py,
    ) -> Result<Written, ExportError> {
        moves::write(moved, collective, value, between)
    }

    /// A loop over the stacks.
    fn repeated(&self, repeated: Repeated<'_>) -> String {
        let Repeated { indent, function, carried, stacks, times, name, states, free } = repeated;
        let [stack, one] = free;
        let pad = " ".repeat(indent);
        let mut out = String::new();
        if !matches!(&carried, Py::Atom(held) if held == name) {
            out.push_str(&assignment(indent, name, &carried, ""));
        }
        if let Some(states) = states {
            out.push_str(&format!("{pad}{states} = []\n"));
        }
        let none = stacks.is_empty();
        let each = if none { "_" } else { stack };
        let over =
            if none { Py::call("range", [Py::atom(times)]) } else { Py::call("zip", stacks) };
        let given = if none { "None" } else { stack };
        out.push_str(&crate::python::for_loop(indent, each, &over));
        let called = Py::call(function, [Py::atom(name), Py::atom(given)]);
        match states {
            None => out.push_str(&assignment(indent + 4, &format!("{name}, _"), &called, "")),
            Some(states) => {
                out.push_str(&assignment(indent + 4, &format!("{name}, {one}"), &called, ""));
                out.push_str(&format!("{pad}    {states}.append({one})\n"));
                let stacked = format!("[torch.stack(each) for each in zip(*{states})]");
                out.push_str(&assignment(indent, states, &Py::atom(stacked), ""));
            }
        }
        out
    }
}
