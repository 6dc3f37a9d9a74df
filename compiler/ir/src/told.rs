//! What people are told of a value: enough to word it, and which value it is.
//!
//! What is said of plans and of the plans that lost is kept as values of these types and not as
//! sentences: two einsums without a name are worded alike and are two.

use crate::op::Op;
use crate::program::ValueId;
use crate::tensor::DimId;

/// A value of a program, with what is needed to word it.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// Which value it is, in the form of the program that the plan computes.
    pub value: ValueId,
    /// Its name in the source; one that a `let` pins has the pin's.
    pub name: Option<String>,
    /// Its dims, in memory order.
    pub dims: Vec<DimId>,
    /// What makes it.
    pub made: Made,
}

/// What makes a value, as far as it is told.
#[derive(Clone, PartialEq, Debug)]
pub enum Made {
    /// A parameter of the layer.
    Parameter,
    /// A number.
    Constant(f64),
    /// A place where the source demands a layout.
    Pin {
        /// It is a `reshard`.
        written: bool,
        /// The value; left out where the pin has a name to be told by.
        operand: Option<Box<Told>>,
    },
    /// An op.
    Op {
        /// The op.
        op: Op,
        /// What it reads; left out where the value has a name to be told by, and below the second
        /// op without one.
        operands: Vec<Told>,
    },
}
