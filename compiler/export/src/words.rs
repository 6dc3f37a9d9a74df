//! What a system is called upon for: how JAX and PyTorch write what ops and moves come down to. All
//! else (which dims stand where, what is cast, what a line is called) is one for both.

use shard_ir::{Binary, Collective, Dtype, Map, Reduce};

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::helpers::Helpers;
use crate::moved::{PythonMove, Written};
use crate::python::Py;

/// The words of one system. The helpers that both have by one name are called where they are
/// needed.
pub(crate) trait Words {
    /// The functions that modules bring along.
    fn helpers(&self) -> Helpers;

    /// Names that the modules' own code and its imports claim, beside those of Python, with blanks
    /// between.
    fn claimed(&self) -> &'static str;

    /// The module that has `inf`, `nan` and `iinfo`.
    fn module(&self) -> &'static str;

    /// The dtype that stands for one of the plan.
    fn dtype(&self, dtype: Dtype, floats: Floats) -> &'static str;

    /// Whether the system has arithmetic for a dtype; else it stores, moves and casts its values.
    fn computes(&self, dtype: Dtype, floats: Floats) -> bool;

    /// A partial value at the boundary has its terms along a dim in front: it is one tensor over
    /// all devices, and not what one of them has.
    fn terms_in_front(&self) -> bool;

    /// The axes of a loop around them.
    fn ring(&self, axes: Vec<Py>) -> Py;

    /// The value in another dtype, of floats or from whole numbers.
    fn cast(&self, value: Py, dtype: &str) -> Py;

    /// The value rounded to a dtype of floats.
    fn rounded(&self, value: Py, dtype: Dtype, floats: Floats) -> Py {
        self.cast(value, self.dtype(dtype, floats))
    }

    /// The value truncated to a dtype of whole numbers.
    fn whole(&self, value: Py, dtype: Dtype, floats: Floats) -> Py;

    /// A tensor of one number.
    fn scalar(&self, number: Py, dtype: &str) -> Py;

    /// The rank of this device among those of axes.
    fn rank(&self, axes: Py) -> Py;

    /// The dims in another order.
    fn transposed(&self, value: Py, places: Vec<usize>) -> Py;

    /// Dims of size 1 at these places of the result.
    fn expanded(&self, value: Py, places: Vec<usize>) -> Py;

    /// The elements in another shape.
    fn reshaped(&self, value: Py, sizes: Vec<u64>) -> Py {
        Py::call(format!("{}.reshape", self.module()), [value, Py::numbers(sizes)])
    }

    /// A tensor broadcast to these sizes, from those of its dims that have size 1.
    fn spread(&self, value: Py, sizes: Vec<u64>) -> Py {
        Py::call(format!("{}.broadcast_to", self.module()), [value, Py::numbers(sizes)])
    }

    /// Two tensors one behind the other.
    fn concatenated(&self, values: [Py; 2], axis: usize) -> Py;

    /// The part of a dim from one place up to another.
    fn cut(&self, value: Py, axis: usize, range: [u64; 2]) -> Py;

    /// A whole cache with rows in place of those from one place on.
    fn updated(&self, cache: Py, rows: Py, at: u64, axis: usize) -> Py;

    /// An elementwise map.
    fn map(&self, map: Map, value: Py) -> Py;

    /// The larger or the smaller of two operands, one of which may be a number.
    fn extremum(&self, kind: Extremum, operands: [Py; 2]) -> Py;

    /// Of two values the first where a truth value holds, the second elsewhere.
    fn either(&self, holds: Py, [a, b]: [Py; 2]) -> Py {
        Py::call(format!("{}.where", self.module()), [holds, a, b])
    }

    /// A softmax.
    fn softmax(&self, value: Py, axis: usize) -> Py;

    /// The softmax over a device's own keys, and its statistics: a pair.
    fn softmax_of_part(&self, value: Py, axis: usize) -> Py {
        Py::call("softmax_of_part", [value]).with("axis", Py::atom(axis))
    }

    /// A reduction over some dims; `dtype` is the result's where it is of whole numbers.
    fn reduced(&self, kind: Reduce, value: Py, axis: Py, dtype: Option<&str>) -> Py;

    /// An einsum of operands of one dtype, `common`, whose result has another perhaps.
    fn einsum(&self, equation: Py, operands: Vec<Py>, dtypes: Dtypes) -> Py;

    /// What lies in the memory of the host, on the device.
    fn fetched(&self, value: Py) -> Py;

    /// A move.
    fn moved(
        &self,
        moved: &PythonMove<'_>,
        collective: &Collective,
        value: &Py,
        between: &Py,
    ) -> Result<Written, ExportError>;

    /// The applications of a block, one behind another.
    fn repeated(&self, repeated: Repeated<'_>) -> String;
}

/// Which of two numbers is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extremum {
    Larger,
    Smaller,
}

impl Extremum {
    /// The extremum that an op takes; none of arithmetic.
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
    /// Of its operands.
    pub(crate) common: Dtype,
    /// Of its result.
    pub(crate) result: Dtype,
    pub(crate) floats: Floats,
}

/// The applications of a block: `function(carried, stack)` gives what is handed on and its states.
pub(crate) struct Repeated<'a> {
    pub(crate) indent: usize,
    pub(crate) function: &'a str,
    /// What the first application takes.
    pub(crate) carried: Py,
    /// What each takes of its own, one tensor for all.
    pub(crate) stacks: Vec<Py>,
    pub(crate) times: u64,
    /// What the last hands on.
    pub(crate) name: &'a str,
    /// The states of all, where there are any.
    pub(crate) states: Option<&'a str>,
    /// Names that are free: for what one application takes of its own, and for its states.
    pub(crate) free: [&'a str; 2],
}
