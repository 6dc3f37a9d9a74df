//! Numbers as Python writes them.

use shard_ir::{Dtype, Reduction};

use crate::dtypes::Floats;
use crate::python::Py;
use crate::words::Words;

/// The number that changes no other term of a reduction: 0, or the least value of the dtype.
pub(crate) fn neutral(words: &dyn Words, kind: Reduction, dtype: Dtype, floats: Floats) -> Py {
    let module = words.module();
    match kind {
        Reduction::Sum => Py::atom(0),
        Reduction::Max if dtype.is_float() => Py::atom(format!("-{module}.inf")),
        Reduction::Max if dtype == Dtype::Bool => Py::atom("False"),
        Reduction::Max => Py::atom(format!("{module}.iinfo({}).min", words.dtype(dtype, floats))),
    }
}

/// Whether an expression is the literal of a number.
pub(crate) fn is_number(py: &Py) -> bool {
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    matches!(py, Py::Atom(text) if begins(text) || text.ends_with(".inf") || text.ends_with(".nan"))
}

/// A number as Python writes it.
pub(crate) fn number(words: &dyn Words, value: f64, dtype: Dtype) -> String {
    let module = words.module();
    match value {
        v if v == f64::INFINITY => format!("{module}.inf"),
        v if v == f64::NEG_INFINITY => format!("-{module}.inf"),
        v if v.is_nan() => format!("{module}.nan"),
        v if !dtype.is_float() => format!("{}", v as i64),
        v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.1}"),
        v => format!("{v:?}"),
    }
}
