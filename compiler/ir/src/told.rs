//! What people are told of a value: which value it is, and enough to describe it.
//!
//! What is said of plans is kept as data of these types and not as sentences: two einsums without a
//! name read alike, but are two values.

use crate::op::Op;
use crate::program::ValueId;
use crate::tensor::DimId;

/// A value of a program, with what is needed to word it.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// Which value it is, in the form of the program that the plan computes.
    pub value: ValueId,
    /// Its name in the source: its own, or that of a `let` that pins it.
    pub name: Option<String>,
    /// Its dims, in memory order.
    pub dims: Vec<DimId>,
    /// How it is made.
    pub made: Made,
}

/// How a value is made, as far as people are told.
#[derive(Clone, PartialEq, Debug)]
pub enum Made {
    /// A parameter of the layer.
    Parameter,
    /// A number.
    Constant(f64),
    /// A place where the source demands a layout.
    Pin {
        /// Whether it is a `reshard`.
        written: bool,
        /// The pinned value; left out where the pin has a name.
        operand: Option<Box<Told>>,
    },
    /// An op.
    Op {
        /// The op.
        op: Op,
        /// What it reads; left out where the value has a name, and below the second op without a
        /// name.
        operands: Vec<Told>,
    },
}
