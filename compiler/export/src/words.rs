//! What JAX and PyTorch write differently. Everything else of a Python module is written once for
//! both: which dims stand where, what is cast, what a line is called.

use shard_ir::{Binary, Collective, Dtype, Map, Reduce};

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::helpers::Helpers;
use crate::moved::{PythonMove, Written};
use crate::python::Py;

/// How one system writes Python. A helper that both systems have under one name is called without
/// asking it.
pub(crate) trait Words {
    /// The file of helpers that modules take from.
    fn helpers(&self) -> Helpers;

    /// Names that the code of modules and its imports claim beside those of Python, with blanks
    /// between.
    fn claimed(&self) -> &'static str;

    /// The Python module of the system's functions, which has `inf`, `nan` and `iinfo` too.
    fn module(&self) -> &'static str;

    /// The name of the dtype that stands for a dtype of the plan.
    fn dtype(&self, dtype: Dtype, floats: Floats) -> &'static str;

    /// Whether the system has arithmetic for a dtype; else it stores, moves and casts its values.
    fn computes(&self, dtype: Dtype, floats: Floats) -> bool;

    /// Whether a partial value at the boundary is one tensor over all devices, with the terms along
    /// a dim in front; else it is the term of one device.
    fn terms_in_front(&self) -> bool;

    /// The axes of a collective einsum, as its helper takes them.
    fn ring(&self, axes: Vec<Py>) -> Py;

    /// The value cast to another dtype, without regard to ranges.
    fn cast(&self, value: Py, dtype: &str) -> Py;

    /// The value rounded to a dtype of floats.
    fn rounded(&self, value: Py, dtype: Dtype, floats: Floats) -> Py {
        self.cast(value, self.dtype(dtype, floats))
    }

    /// The value truncated to whole numbers in the range of a dtype.
    fn whole(&self, value: Py, dtype: Dtype, floats: Floats) -> Py;

    /// A tensor of one number.
    fn scalar(&self, number: Py, dtype: &str) -> Py;

    /// The rank of this device among those of axes.
    fn rank(&self, axes: Py) -> Py;

    /// The value with its dims in another order: `places` are the old places of the new dims.
    fn transposed(&self, value: Py, places: Vec<usize>) -> Py;

    /// The value with dims of size 1 added at these places of the result.
    fn expanded(&self, value: Py, places: Vec<usize>) -> Py;

    /// The elements in the same order in another shape.
    fn reshaped(&self, value: Py, sizes: Vec<u64>) -> Py {
        Py::call(format!("{}.reshape", self.module()), [value, Py::numbers(sizes)])
    }

    /// A tensor of as many dims broadcast to these sizes.
    fn spread(&self, value: Py, sizes: Vec<u64>) -> Py {
        Py::call(format!("{}.broadcast_to", self.module()), [value, Py::numbers(sizes)])
    }

    /// Two tensors one behind the other.
    fn concatenated(&self, values: [Py; 2], axis: usize) -> Py;

    /// The positions of a dim from `range[0]` up to, not including, `range[1]`.
    fn cut(&self, value: Py, axis: usize, range: [u64; 2]) -> Py;

    /// A whole cache in which `rows` replace the positions from `at` on.
    fn updated(&self, cache: Py, rows: Py, at: u64, axis: usize) -> Py;

    /// An elementwise map.
    fn map(&self, map: Map, value: Py) -> Py;

    /// The larger or the smaller of two operands, one of which may be a number.
    fn extremum(&self, kind: Extremum, operands: [Py; 2]) -> Py;

    /// The first of two values where a truth value holds, the second elsewhere.
    fn either(&self, holds: Py, [a, b]: [Py; 2]) -> Py {
        Py::call(format!("{}.where", self.module()), [holds, a, b])
    }

    /// A softmax.
    fn softmax(&self, value: Py, axis: usize) -> Py;

    /// The pair of the softmax over a device's own keys and its statistics.
    fn softmax_of_part(&self, value: Py, axis: usize) -> Py {
        Py::call("softmax_of_part", [value]).with("axis", Py::atom(axis))
    }

    /// A reduction over the dims of `axis`. `dtype` is the dtype of a result of whole numbers.
    fn reduced(&self, kind: Reduce, value: Py, axis: Py, dtype: Option<&str>) -> Py;

    /// An einsum of operands of the dtype `common`; the result may have another dtype.
    fn einsum(&self, equation: Py, operands: Vec<Py>, dtypes: Dtypes) -> Py;

    /// A value in host memory, moved to the device.
    fn fetched(&self, value: Py) -> Py;

    /// The expressions of a move of `value`, all but the last of which are assigned to `between`.
    fn moved(
        &self,
        moved: &PythonMove<'_>,
        collective: &Collective,
        value: &Py,
        between: &Py,
    ) -> Result<Written, ExportError>;

    /// The lines that apply a folded block.
    fn repeated(&self, repeated: Repeated<'_>) -> String;
}

/// Which of two numbers an op takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extremum {
    Larger,
    Smaller,
}

impl Extremum {
    /// The extremum that a binary op takes; `None` of arithmetic and comparisons.
    pub(crate) fn of(binary: Binary) -> Option<Extremum> {
        match binary {
            Binary::Maximum => Some(Extremum::Larger),
            Binary::Minimum => Some(Extremum::Smaller),
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Less
            | Binary::LessEqual
            | Binary::Equal => None,
        }
    }
}

/// The dtypes of an einsum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dtypes {
    /// The dtype in which the operands are.
    pub(crate) common: Dtype,
    /// The dtype of the result.
    pub(crate) result: Dtype,
    pub(crate) floats: Floats,
}

/// A folded block that is to be applied. `function(carried, stack)` gives the value that is handed
/// on, and the states.
pub(crate) struct Repeated<'a> {
    pub(crate) indent: usize,
    pub(crate) function: &'a str,
    /// The value that the first application takes.
    pub(crate) carried: Py,
    /// The stacks of the weights and caches of all applications.
    pub(crate) stacks: Vec<Py>,
    pub(crate) times: u64,
    /// The name for the value that the last application hands on.
    pub(crate) name: &'a str,
    /// The name for the stacks of states, where there are any.
    pub(crate) states: Option<&'a str>,
    /// Two free names: for the slices that one application takes, and for its states.
    pub(crate) free: [&'a str; 2],
}
