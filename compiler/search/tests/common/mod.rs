//! Builds programs for tests, in the notation.

pub(crate) mod attentions;
pub(crate) mod blocks;
pub(crate) mod dice;
pub(crate) mod kernels;
pub(crate) mod plain;

use shard_grammar::Span;
use shard_ir::{
    AxisSet, Cuts, Def, Dim, DimId, DimPattern, Dtype, LabelId, LayoutPattern, Mesh, Op, Output,
    ParameterKind, Program, Value, ValueId,
};

/// A program under construction.
pub(crate) struct Builder {
    pub(crate) program: Program,
}

impl Builder {
    pub(crate) fn new(mesh: &[(&str, u64)], dims: &[(&str, u64)]) -> Builder {
        let dims =
            dims.iter().map(|(n, s)| Dim { name: n.to_string(), size: *s, useful: *s }).collect();
        Builder {
            program: Program {
                name: "test".into(),
                repeat: 1,
                phase: None,
                strict: false,
                hardware: None,
                mesh: Mesh::new(mesh.iter().map(|(n, s)| (n.to_string(), *s))).unwrap(),
                dims,
                cuts: Cuts::default(),
                values: Vec::new(),
                outputs: Vec::new(),
                folds: Vec::new(),
                labels: Vec::new(),
            },
        }
    }

    fn dim(&self, name: &str) -> DimId {
        DimId(self.program.dims.iter().position(|d| d.name == name).unwrap() as u16)
    }

    /// `BLE_x(partialsum-y)`, single letters only; `?` behind it makes it open.
    pub(crate) fn pattern(&self, text: &str, boundary: bool) -> (Vec<DimId>, LayoutPattern) {
        let (word, partial) = text.split_once('(').unwrap_or((text, ""));
        let (word, label) = word.split_once('?').map_or((word, None), |(w, l)| (w, Some(l)));
        let open = label.is_some();
        let (mut dims, mut on): (Vec<DimId>, Vec<DimPattern>) = (Vec::new(), Vec::new());
        for c in word.chars() {
            if c.is_ascii_uppercase() {
                dims.push(self.dim(&c.to_string()));
                on.push(DimPattern::default());
            } else if c != '_' {
                let last = on.last_mut().unwrap();
                last.axes = last.axes.then(self.program.mesh.axis(&c.to_string()).unwrap());
            }
        }
        let axes: AxisSet = partial
            .trim_start_matches("partialsum-")
            .trim_end_matches(')')
            .chars()
            .map(|c| self.program.mesh.axis(&c.to_string()).unwrap())
            .collect();
        let pattern = LayoutPattern {
            whole: shard_ir::AxisSet::EMPTY,
            dims: on,
            partial_sum: axes,
            partial_max: AxisSet::EMPTY,
            open,
            free_partial: open && !boundary,
            label: label.filter(|l| !l.is_empty()).map(|_| LabelId(0)),
        };
        (dims, pattern)
    }

    fn push(&mut self, name: &str, dims: Vec<DimId>, def: Def) -> ValueId {
        let id = ValueId(self.program.values.len() as u32);
        self.program.values.push(Value {
            name: Some(name.into()),
            dims,
            dtype: Dtype::Bf16,
            def,
            span: Span { start: 0, end: 0 },
            in_layers: Vec::new(),
            times: 1,
            fold: None,
        });
        id
    }

    pub(crate) fn parameter(&mut self, name: &str, kind: ParameterKind, text: &str) -> ValueId {
        let (dims, pattern) = self.pattern(text, true);
        self.push(name, dims, Def::Parameter { kind, pattern })
    }

    pub(crate) fn op(&mut self, name: &str, op: Op, operands: &[ValueId], dims: &str) -> ValueId {
        let (dims, _) = self.pattern(dims, false);
        self.push(name, dims, Def::Op { op, operands: operands.to_vec() })
    }

    pub(crate) fn einsum(&mut self, name: &str, operands: &[ValueId], dims: &str) -> ValueId {
        self.op(name, Op::Einsum, operands, dims)
    }

    pub(crate) fn output(&mut self, value: ValueId, text: &str) {
        let (dims, pattern) = self.pattern(text, true);
        self.program.outputs.push(Output {
            name: "y".into(),
            value,
            dims,
            pattern,
            span: Span { start: 0, end: 0 },
            state: false,
        });
    }
}

/// The lines of a plan: `all-gather x BLE_x`.
pub(crate) fn lines(plan: &shard_ir::Plan) -> Vec<String> {
    plan.ids()
        .map(|id| {
            let instr = plan.instruction(id);
            let op =
                match &instr.kind {
                    shard_ir::InstrKind::Parameter(_) => "parameter",
                    shard_ir::InstrKind::Constant(_) => "constant",
                    shard_ir::InstrKind::Op(op) => op.word(),
                    kind @ (shard_ir::InstrKind::Move(_)
                    | shard_ir::InstrKind::CollectiveEinsum(_)) => kind.name(),
                };
            format!("{op} {} {}", instr.name.as_deref().unwrap_or("-"), plan.layout_text(id))
        })
        .collect()
}
