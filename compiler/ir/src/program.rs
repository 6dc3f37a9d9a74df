//! [`Program`]: a checked layer, before anything is searched.

use shard_words::Span;

use crate::cuts::Cuts;
use crate::mesh::Mesh;
use crate::op::Op;
use crate::pattern::LayoutPattern;
use crate::tensor::{Dim, DimId, Dtype};

/// How many values (parameters, constants and results of ops, calls inlined) a program may have.
pub const MAX_VALUES: usize = 16384;

/// A value, as an index into [`Program::values`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u32);

/// A folded block, as an index into [`Program::folds`] or [`Plan::folds`](crate::Plan::folds).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FoldId(pub u16);

/// A folded block of a model: N applications of a layer one after another, each with weights and
/// caches of its own, written once. The block hands one value on: the first application takes it
/// from outside ([`Program::entry`]), every other takes what the one before gives, and the last one
/// gives it to the outside ([`Program::exit`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fold {
    /// The layer's name.
    pub layer: String,
    /// How many applications there are; more than one.
    pub repeat: u64,
}

/// What a parameter is kept for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ParameterKind {
    /// Given anew at each step.
    Activation,
    /// Stays in memory from step to step.
    Weight,
    /// Stays in the memory of the host from step to step; a [`Fetch`](crate::Op::Fetch) brings it
    /// to the chip.
    HostWeight,
    /// Per-sequence state that stays in memory.
    Cache,
}

impl ParameterKind {
    /// Whether it is a weight, wherever it stays.
    pub fn is_weight(self) -> bool {
        match self {
            ParameterKind::Weight | ParameterKind::HostWeight => true,
            ParameterKind::Activation | ParameterKind::Cache => false,
        }
    }
    /// Whether it stays in the memory of the chip from step to step: a weight or a cache.
    pub fn is_kept(self) -> bool {
        match self {
            ParameterKind::Weight | ParameterKind::Cache => true,
            ParameterKind::Activation | ParameterKind::HostWeight => false,
        }
    }
    /// The word in a type; nothing for an activation.
    pub fn word(self) -> Option<&'static str> {
        match self {
            ParameterKind::Activation => None,
            ParameterKind::Weight => Some("weight"),
            ParameterKind::HostWeight => Some("weight host"),
            ParameterKind::Cache => Some("cache"),
        }
    }
}

/// A checked layer with its calls inlined: what to compute, and the layouts that the source
/// demands. It holds nothing of the search.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The layer's name.
    pub name: String,
    /// How many times the layer is stacked.
    pub repeat: u64,
    /// The phase whose sizes the dims have; `None` in a file without phases.
    pub phase: Option<Phase>,
    /// Whether the layer is strict: every move must be written as a `reshard`.
    pub strict: bool,
    /// The hardware that the file names (a built-in name or a path), if any.
    pub hardware: Option<String>,
    /// The mesh.
    pub mesh: Mesh,
    /// Every dim of the file, and then the dims that are made for [`cuts`](crate::cuts).
    pub dims: Vec<Dim>,
    /// The cuts for which dims are made.
    pub cuts: Cuts,
    /// Values in program order: operands come before their uses.
    pub values: Vec<Value>,
    /// The results.
    pub outputs: Vec<Output>,
    /// The names of the layout labels, for messages.
    pub labels: Vec<String>,
    /// The folded blocks; none in a layer that is no `model`.
    pub folds: Vec<Fold>,
}

/// A phase of a file: the same layers on other sizes, with the same weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How many of its steps a request takes.
    pub repeat: u64,
}

/// One value of a [`Program`].
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The name in the source; `None` for a part of a nested expression.
    pub name: Option<String>,
    /// Its dims, in memory order.
    pub dims: Vec<DimId>,
    /// Its dtype.
    pub dtype: Dtype,
    /// Where it comes from.
    pub def: Def,
    /// The place in the source that made it.
    pub span: Span,
    /// The layers, outermost first, whose inlined body it is in; empty in the layer itself.
    pub in_layers: Vec<String>,
    /// How often the value is computed: 1, except in a folded block and where the steps of several
    /// phases stand in one program. 0 for a value that is stored before any step, and cannot move.
    pub times: u64,
    /// The folded block that it is in, if any: the value exists once for each application.
    pub fold: Option<FoldId>,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Debug)]
pub enum Def {
    /// A parameter of the layer, in some layout of the pattern.
    Parameter {
        /// What it is kept for.
        kind: ParameterKind,
        /// The layouts allowed.
        pattern: LayoutPattern,
    },
    /// A number, the same everywhere; a scalar.
    Constant(f64),
    /// The result of an op.
    Op {
        /// The op.
        op: Op,
        /// Its operands, all earlier values.
        operands: Vec<ValueId>,
    },
    /// The same value, at a point where the source demands a layout: an annotation, a `reshard`, or
    /// a typed parameter or result of an inlined call. Uses behind this point read the value in the
    /// pinned layout, or after moves of it.
    Pin {
        /// The value that is pinned.
        operand: ValueId,
        /// The layouts allowed.
        pattern: LayoutPattern,
        /// Whether it is a `reshard`: in a strict layer only these may move data.
        written: bool,
    },
}

/// One result of a [`Program`].
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// Its name: as declared, or that of the value returned, or `result`.
    pub name: String,
    /// The value.
    pub value: ValueId,
    /// The dims in the declared order, a permutation of the value's.
    pub dims: Vec<DimId>,
    /// The layouts allowed, in the order of the *value's* dims.
    pub pattern: LayoutPattern,
    /// The declared type in the source.
    pub span: Span,
    /// Whether it is the cache of a called layer of a model after the step, which stays in memory
    /// and is not returned.
    pub state: bool,
}

impl Program {
    /// The value of an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }
    /// All value ids, in program order.
    pub fn value_ids(&self) -> impl DoubleEndedIterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }
    /// The parameters, in program order.
    pub fn parameters(&self) -> impl DoubleEndedIterator<Item = ValueId> {
        self.value_ids().filter(|id| self.value(*id).def.parameter().is_some())
    }
    /// For each value whether results need it, or it is a parameter, which is in memory whether it
    /// is read or not.
    pub fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.values.len()];
        self.outputs.iter().for_each(|output| live[output.value.index()] = true);
        for id in self.value_ids().rev() {
            let def = &self.value(id).def;
            live[id.index()] |= def.parameter().is_some();
            if live[id.index()] {
                def.operands().iter().for_each(|operand| live[operand.index()] = true);
            }
        }
        live
    }
    /// The values that are [live](Program::live), in program order.
    pub fn live_values(&self) -> Vec<ValueId> {
        let live = self.live();
        self.value_ids().filter(|id| live[id.index()]).collect()
    }
    /// The value behind all pins.
    pub fn unpinned(&self, mut id: ValueId) -> ValueId {
        while let Def::Pin { operand, .. } = &self.value(id).def {
            id = *operand;
        }
        id
    }
    /// The same program without its values and results.
    pub fn without_values(&self) -> Program {
        Program {
            name: self.name.clone(),
            repeat: self.repeat,
            phase: self.phase.clone(),
            strict: self.strict,
            hardware: self.hardware.clone(),
            mesh: self.mesh.clone(),
            dims: self.dims.clone(),
            cuts: self.cuts.clone(),
            values: Vec::new(),
            outputs: Vec::new(),
            labels: self.labels.clone(),
            folds: self.folds.clone(),
        }
    }
    /// How many tensors a value stands for: as many as its folded block has applications.
    pub fn copies(&self, id: ValueId) -> u64 {
        self.value(id)
            .fold
            .and_then(|fold| self.folds.get(fold.index()))
            .map_or(1, |fold| fold.repeat)
    }
    /// The value that the applications of a folded block take: the pin in the block of a value
    /// outside.
    pub fn entry(&self, fold: FoldId) -> Option<ValueId> {
        self.border(|inside, operand| inside == Some(fold) && operand != Some(fold))
    }
    /// The value that the last application of a folded block gives: the pin outside of the block of
    /// a value in it.
    pub fn exit(&self, fold: FoldId) -> Option<ValueId> {
        self.border(|inside, operand| inside != Some(fold) && operand == Some(fold))
    }

    /// The first pin into or out of a block. A pin of a weight or cache of a block is not one: with
    /// phases side by side, the weights of all phases are in the blocks of the first.
    fn border(&self, is: impl Fn(Option<FoldId>, Option<FoldId>) -> bool) -> Option<ValueId> {
        let is_kept_in_a_block = |id: ValueId| {
            let value = self.value(id);
            value.fold.is_some() && value.def.parameter().is_some()
        };
        self.value_ids().find(|id| match &self.value(*id).def {
            Def::Pin { operand, .. } => {
                !is_kept_in_a_block(*operand) && is(self.value(*id).fold, self.value(*operand).fold)
            }
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => false,
        })
    }

    /// Whether a value lies in host memory, where it can be sliced but not sent: a parameter that
    /// is kept there, pinned or not.
    pub fn in_host_memory(&self, id: ValueId) -> bool {
        self.value(self.unpinned(id)).def.parameter() == Some(ParameterKind::HostWeight)
    }
    /// The global sizes of some dims.
    pub fn sizes(&self, dims: &[DimId]) -> Vec<u64> {
        dims.iter().map(|d| self.dims[d.index()].size).collect()
    }
    /// The names of some dims.
    pub fn dim_names(&self, dims: &[DimId]) -> Vec<&str> {
        dims.iter().map(|d| self.dims[d.index()].name.as_str()).collect()
    }
}

impl Def {
    /// The values that this one is made from.
    pub fn operands(&self) -> &[ValueId] {
        match self {
            Def::Parameter { .. } | Def::Constant(_) => &[],
            Def::Op { operands, .. } => operands,
            Def::Pin { operand, .. } => std::slice::from_ref(operand),
        }
    }

    /// The op whose result it is.
    pub fn op(&self) -> Option<&Op> {
        match self {
            Def::Op { op, .. } => Some(op),
            Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => None,
        }
    }

    /// The number that it is; `None` of anything else.
    pub fn constant(&self) -> Option<f64> {
        match self {
            Def::Constant(number) => Some(*number),
            Def::Parameter { .. } | Def::Op { .. } | Def::Pin { .. } => None,
        }
    }

    /// What it is kept for, if it is a parameter.
    pub fn parameter(&self) -> Option<ParameterKind> {
        match self {
            Def::Parameter { kind, .. } => Some(*kind),
            Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => None,
        }
    }

    /// The layouts that a parameter or a pin allows; `None` for a value without a type in the
    /// source.
    pub fn pattern(&self) -> Option<&LayoutPattern> {
        match self {
            Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => Some(pattern),
            Def::Constant(_) | Def::Op { .. } => None,
        }
    }
}
