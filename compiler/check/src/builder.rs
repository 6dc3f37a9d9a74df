//! The program of a layer while it is checked: values are added one by one, within the limits.

use std::collections::BTreeMap;

use shard_grammar::Span;
use shard_ir::program::MAX_VALUES;
use shard_ir::tensor::{MAX_ELEMENTS, MAX_RANK};
use shard_ir::{
    Def, DimId, Dtype, Fold, FoldId, LayoutPattern, Op, TensorType, Value, ValueId,
    typing::same_dims,
};

use crate::diagnostics::LimitProblem;
use crate::environment::Environment;
use crate::sink::Sink;
use crate::types::{Labels, elements};

/// What a name in a layer means.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    /// The value. `None` after an error: then nothing is said of what depends on it.
    pub(crate) value: Option<ValueId>,
    /// The place that names it.
    pub(crate) span: Span,
    pub(crate) is_parameter: bool,
    pub(crate) used: bool,
}

/// The program of a layer while it is checked.
pub(crate) struct Builder {
    /// The layer's name.
    pub(crate) layer: String,
    pub(crate) values: Vec<Value>,
    pub(crate) labels: Labels,
    pub(crate) scope: BTreeMap<String, Binding>,
    /// How many values all programs of the file may still have.
    pub(crate) values_left: usize,
    /// Whether a limit was passed, after which no value is added.
    pub(crate) stopped: bool,
    /// The folded blocks so far.
    pub(crate) folds: Vec<Fold>,
    pub(crate) fold: Option<FoldId>,
    /// The call that is being inlined. An error about a limit that its values pass is reported
    /// there.
    pub(crate) inlining: Option<Span>,
}

impl Builder {
    pub(crate) fn new(layer: &str, values_left: usize) -> Builder {
        Builder {
            layer: layer.to_string(),
            values: Vec::new(),
            labels: Labels::default(),
            scope: BTreeMap::new(),
            values_left,
            stopped: false,
            folds: Vec::new(),
            fold: None,
            inlining: None,
        }
    }

    pub(crate) fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The value that a chain of pins is put on.
    pub(crate) fn unpinned(&self, mut id: ValueId) -> ValueId {
        while let Def::Pin { operand, .. } = &self.value(id).def {
            id = *operand;
        }
        id
    }

    /// The type of a value without its layout.
    pub(crate) fn type_of(&self, id: ValueId) -> TensorType {
        let value = self.value(id);
        TensorType { dims: value.dims.clone(), dtype: value.dtype }
    }

    /// Adds a value, to the current folded block if there is one. `None` after an error, where the
    /// value would pass a limit.
    pub(crate) fn push(
        &mut self,
        env: &Environment<'_>,
        mut value: Value,
        sink: &mut Sink,
    ) -> Option<ValueId> {
        if self.stopped {
            return None;
        }
        let limit = MAX_VALUES.min(self.values_left);
        if self.values.len() >= limit {
            self.stopped = true;
            let what = if limit == MAX_VALUES {
                format!("layer `{}`", self.layer)
            } else {
                "the file".to_string()
            };
            let limit = if limit == MAX_VALUES {
                limit
            } else {
                crate::diagnostics::limits::MAX_FILE_VALUES
            };
            sink.report(LimitProblem::Values {
                what,
                limit,
                span: self.inlining.unwrap_or(value.span),
            });
            return None;
        }
        if value.dims.len() > MAX_RANK {
            sink.report(LimitProblem::Rank {
                found: value.dims.len(),
                limit: MAX_RANK,
                span: value.span,
            });
            return None;
        }
        if elements(env, &value.dims).is_none() {
            let dims = env.dims_text(&value.dims);
            sink.report(LimitProblem::Elements { dims, limit: MAX_ELEMENTS, span: value.span });
            return None;
        }
        // A constant is the same in every application, and several blocks may read one.
        value.fold = self.fold.filter(|_| !matches!(value.def, Def::Constant(_)));
        value.times =
            value.fold.and_then(|fold| self.folds.get(fold.index())).map_or(1, |fold| fold.repeat);
        self.values.push(value);
        Some(ValueId(self.values.len() as u32 - 1))
    }

    /// Adds the result of an op.
    pub(crate) fn push_op(
        &mut self,
        env: &Environment<'_>,
        op: Op,
        operands: Vec<ValueId>,
        ty: TensorType,
        span: Span,
        sink: &mut Sink,
    ) -> Option<ValueId> {
        self.push(env, made(ty, Def::Op { op, operands }, span), sink)
    }

    /// Adds a number.
    pub(crate) fn push_constant(
        &mut self,
        env: &Environment<'_>,
        number: f64,
        dtype: Dtype,
        span: Span,
        sink: &mut Sink,
    ) -> Option<ValueId> {
        let ty = TensorType { dims: Vec::new(), dtype };
        self.push(env, made(ty, Def::Constant(number), span), sink)
    }

    /// Pins a value to a pattern, whose dims are those of the value in the order `dims`. A pattern
    /// that any layout meets needs no pin, and the value itself comes back.
    ///
    /// A value that an op has made since `fresh_from` takes the stated order of dims as its memory
    /// order, since the op can write it in any order at no cost. Any other value keeps its order,
    /// and the pattern is permuted. Only under a label, where layouts are compared dim by dim, a
    /// copy in the stated order is made.
    pub(crate) fn pin(
        &mut self,
        env: &Environment<'_>,
        mut pin: PinRequest,
        sink: &mut Sink,
    ) -> Option<ValueId> {
        let order = DimOrder {
            dims: &pin.dims,
            fresh_from: pin.fresh_from,
            labelled: pin.pattern.label.is_some(),
            span: pin.span,
        };
        pin.value = self.in_order(env, pin.value, order, sink)?;
        let value = self.value(pin.value);
        let pattern = pin.pattern.permuted(&pin.dims, &value.dims);
        if is_free(&pattern) && !pin.written && !pin.border {
            return Some(pin.value);
        }
        let name = pin.name.or_else(|| value.name.clone());
        let def = Def::Pin { operand: pin.value, pattern, written: pin.written };
        let value = made(self.type_of(pin.value), def, pin.span);
        self.push(env, Value { name, in_layers: pin.in_layers, ..value }, sink)
    }

    /// The value with its dims in this order, if that costs nothing; a copy in this order, if a
    /// label needs it; else the value as it is.
    pub(crate) fn in_order(
        &mut self,
        env: &Environment<'_>,
        value: ValueId,
        DimOrder { dims, fresh_from, labelled, span }: DimOrder<'_>,
        sink: &mut Sink,
    ) -> Option<ValueId> {
        let found = self.value(value);
        debug_assert!(same_dims(&found.dims, dims), "the caller has matched the dims");
        if found.dims == dims {
            return Some(value);
        }
        let is_last = value.index() + 1 == self.values.len();
        if is_last && value.index() >= fresh_from && matches!(found.def, Def::Op { .. }) {
            self.values[value.index()].dims = dims.to_vec();
            return Some(value);
        }
        if !labelled {
            return Some(value);
        }
        let ty = TensorType { dims: dims.to_vec(), dtype: found.dtype };
        let copy = self.push_op(env, Op::Cast(ty.dtype), vec![value], ty, span, sink)?;
        self.values[copy.index()].name = self.value(value).name.clone();
        Some(copy)
    }
}

/// A value without a name, outside inlined layers and folded blocks.
fn made(ty: TensorType, def: Def, span: Span) -> Value {
    Value {
        name: None,
        dims: ty.dims,
        dtype: ty.dtype,
        def,
        span,
        in_layers: Vec::new(),
        times: 1,
        fold: None,
    }
}

/// An order in which the dims of a value are wanted.
#[derive(Clone, Copy)]
pub(crate) struct DimOrder<'d> {
    pub(crate) dims: &'d [DimId],
    /// Values from here on were made for this use, so that their order may be changed.
    pub(crate) fresh_from: usize,
    /// Whether the value stands under a label, and needs this order.
    pub(crate) labelled: bool,
    /// The place of a copy, if one is made.
    pub(crate) span: Span,
}

/// A pin that is to be put on a value.
pub(crate) struct PinRequest {
    pub(crate) value: ValueId,
    /// The dims in the order in which the pattern has them.
    pub(crate) dims: Vec<DimId>,
    pub(crate) pattern: LayoutPattern,
    pub(crate) written: bool,
    pub(crate) name: Option<String>,
    pub(crate) span: Span,
    /// Values from here on were made by the expression that is pinned.
    pub(crate) fresh_from: usize,
    pub(crate) in_layers: Vec<String>,
    /// Whether the pin stands at the border of a folded block; there the program needs a pin even
    /// if any layout meets it.
    pub(crate) border: bool,
}

impl PinRequest {
    /// A pin that is not written in the source, on a value that keeps its name and the order of its
    /// dims.
    pub(crate) fn of(
        value: ValueId,
        dims: Vec<DimId>,
        pattern: LayoutPattern,
        span: Span,
    ) -> PinRequest {
        PinRequest {
            value,
            dims,
            pattern,
            written: false,
            name: None,
            span,
            fresh_from: usize::MAX,
            in_layers: Vec::new(),
            border: false,
        }
    }
}

/// Whether every layout meets the pattern; at a boundary, every layout that is not partial.
pub(crate) fn is_free(pattern: &LayoutPattern) -> bool {
    pattern.open
        && pattern.label.is_none()
        && pattern.dims.iter().all(|d| d.axes.is_empty())
        && pattern.partial_sum.is_empty()
        && pattern.partial_max.is_empty()
}
