//! Ops and moves as JAX writes them.

use shard_ir::{Collective, Dtype, Map, Reduce};

use super::moves;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::helpers::Helpers;
use crate::moved::{PythonMove, Written};
use crate::python::{Py, assignment};
use crate::words::{Dtypes, Extremum, Repeated, Words};

/// The words of JAX.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jax;

/// Names that modules of JAX import and define.
const CLAIMED: &str = "argparse os sys jax jnp np lax partial P AxisType NamedSharding MESH LAYERS PARAMS RESULTS \
    SHAPES layer";

impl Words for Jax {
    fn helpers(&self) -> Helpers {
        Helpers(include_str!("../../python/helpers.py"))
    }

    fn claimed(&self) -> &'static str {
        CLAIMED
    }

    fn module(&self) -> &'static str {
        "jnp"
    }

    fn dtype(&self, dtype: Dtype, floats: Floats) -> &'static str {
        match (dtype, floats) {
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4, Floats::F64) => {
                "jnp.float64"
            }
            (Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::F8 | Dtype::F4, Floats::F32) => {
                "jnp.float32"
            }
            (Dtype::F32, Floats::Stated) => "jnp.float32",
            (Dtype::Bf16, Floats::Stated) => "jnp.bfloat16",
            (Dtype::F16, Floats::Stated) => "jnp.float16",
            (Dtype::F8, Floats::Stated) => "jnp.float8_e4m3fn",
            (Dtype::F4, Floats::Stated) => "jnp.float4_e2m1fn",
            (Dtype::Int32, _) => "jnp.int32",
            (Dtype::Int8, _) => "jnp.int8",
            (Dtype::Int4, _) => "jnp.int4",
            (Dtype::Bool, _) => "jnp.bool_",
        }
    }

    fn computes(&self, _: Dtype, _: Floats) -> bool {
        true
    }

    fn ring(&self, axes: Vec<Py>) -> Py {
        Py::Tuple(axes)
    }

    fn terms_in_front(&self) -> bool {
        true
    }

    fn cast(&self, value: Py, dtype: &str) -> Py {
        Py::call(format!("{}.astype", value.flat()), [Py::atom(dtype)])
    }

    fn whole(&self, value: Py, dtype: Dtype, floats: Floats) -> Py {
        Py::call("to_whole", [value, Py::atom(self.dtype(dtype, floats))])
    }

    fn scalar(&self, number: Py, dtype: &str) -> Py {
        Py::call("jnp.asarray", [number, Py::atom(dtype)])
    }

    fn rank(&self, axes: Py) -> Py {
        Py::call("lax.axis_index", [axes])
    }

    fn transposed(&self, value: Py, places: Vec<usize>) -> Py {
        Py::call("jnp.transpose", [value, Py::numbers(places)])
    }

    fn expanded(&self, value: Py, places: Vec<usize>) -> Py {
        Py::call("jnp.expand_dims", [value, Py::numbers(places)])
    }

    fn concatenated(&self, [a, b]: [Py; 2], axis: usize) -> Py {
        Py::call("jnp.concatenate", [Py::Tuple(vec![a, b])]).with("axis", Py::atom(axis))
    }

    fn cut(&self, value: Py, axis: usize, [from, to]: [u64; 2]) -> Py {
        Py::call("lax.slice_in_dim", [value, Py::atom(from), Py::atom(to)])
            .with("axis", Py::atom(axis))
    }

    fn updated(&self, cache: Py, rows: Py, at: u64, axis: usize) -> Py {
        Py::call("lax.dynamic_update_slice_in_dim", [cache, rows, Py::atom(at)])
            .with("axis", Py::atom(axis))
    }

    fn map(&self, map: Map, value: Py) -> Py {
        let function = match map {
            Map::Neg => return Py::call("jnp.negative", [value]),
            Map::Gelu => {
                return Py::call("jax.nn.gelu", [value]).with("approximate", Py::atom("True"));
            }
            Map::Relu => "jax.nn.relu",
            Map::Silu => "jax.nn.silu",
            Map::Sigmoid => "jax.nn.sigmoid",
            Map::Tanh => "jnp.tanh",
            Map::Exp => "jnp.exp",
            Map::Softplus => "jax.nn.softplus",
            Map::Log => "jnp.log",
            Map::Sqrt => "jnp.sqrt",
            Map::Rsqrt => "lax.rsqrt",
            Map::Square => "jnp.square",
            Map::Abs => "jnp.abs",
        };
        Py::call(function, [value])
    }

    fn extremum(&self, kind: Extremum, operands: [Py; 2]) -> Py {
        let function = match kind {
            Extremum::Larger => "jnp.maximum",
            Extremum::Smaller => "jnp.minimum",
        };
        Py::call(function, operands)
    }

    fn softmax(&self, value: Py, axis: usize) -> Py {
        Py::call("jax.nn.softmax", [value]).with("axis", Py::atom(axis))
    }

    fn reduced(&self, kind: Reduce, value: Py, axis: Py, dtype: Option<&str>) -> Py {
        let function = match kind {
            Reduce::Sum => "jnp.sum",
            Reduce::Mean => "jnp.mean",
            Reduce::Max => "jnp.max",
        };
        let reduced = Py::call(function, [value]).with("axis", axis);
        match (kind, dtype) {
            // Without a dtype JAX would widen small whole numbers.
            (Reduce::Sum, Some(dtype)) => reduced.with("dtype", Py::atom(dtype)),
            (Reduce::Sum | Reduce::Mean | Reduce::Max, _) => reduced,
        }
    }

    fn einsum(&self, equation: Py, operands: Vec<Py>, dtypes: Dtypes) -> Py {
        let product = Py::call("jnp.einsum", std::iter::once(equation).chain(operands));
        let [common, result] =
            [dtypes.common, dtypes.result].map(|dtype| self.dtype(dtype, dtypes.floats));
        if common == result {
            return product;
        }
        product.with("preferred_element_type", Py::atom(result))
    }

    fn fetched(&self, value: Py) -> Py {
        Py::call("jax.device_put", [value, Py::atom("jax.memory.Space.Device")])
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

    /// A `lax.scan` over the stacks.
    fn repeated(&self, repeated: Repeated<'_>) -> String {
        let scanned = Py::call("lax.scan", [Py::atom(repeated.function), repeated.carried]);
        let scanned = match (scanned, repeated.stacks.is_empty()) {
            (Py::Call(function, mut arguments), false) => {
                arguments.push((None, Py::Tuple(repeated.stacks)));
                Py::Call(function, arguments)
            }
            (scanned, _) => scanned.with("length", Py::atom(repeated.times)),
        };
        let target = format!("{}, {}", repeated.name, repeated.states.unwrap_or("_"));
        assignment(repeated.indent, &target, &scanned, "")
    }
}
