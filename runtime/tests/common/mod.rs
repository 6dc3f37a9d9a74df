//! Building small plans, and running them.
use shard_ir::*;
use shard_runtime::{Report, RunOptions, run_plan};

/// A mesh whose axes are called x, y, z.
pub(crate) fn mesh(sizes: &[u64]) -> Mesh {
    Mesh::new(["x", "y", "z"].into_iter().zip(sizes.iter().copied())).unwrap()
}

/// Dims from `B=4 E=8`; ids are in order.
pub(crate) fn dims(text: &str) -> Vec<Dim> {
    text.split_whitespace()
        .map(|word| word.split_once('=').unwrap())
        .map(|(name, size)| (name.to_string(), size.parse().unwrap()))
        .map(|(name, size)| Dim { name, size, useful: size })
        .collect()
}

/// A tensor's dims from its letters.
pub(crate) fn ids(table: &[Dim], letters: &str) -> Vec<DimId> {
    letters
        .chars()
        .map(|c| DimId(table.iter().position(|d| d.name == c.to_string()).unwrap() as u16))
        .collect()
}

/// Every layout of a tensor, partial sums and maxima over any axis included.
pub(crate) fn all_layouts(mesh: &Mesh, table: &[Dim], tensor: &[DimId]) -> Vec<Layout> {
    let sizes: Vec<u64> = tensor.iter().map(|d| table[d.index()].size).collect();
    MeshShape { mesh, sizes: &sizes }.layouts(mesh.all_axes(), mesh.all_axes())
}

/// A plan in the making.
pub(crate) struct Builder {
    pub(crate) plan: Plan,
}

impl Builder {
    pub(crate) fn new(mesh: &Mesh, table: &[Dim]) -> Builder {
        let (name, hardware) = ("test".to_string(), None);
        let (instructions, outputs) = (Vec::new(), Vec::new());
        Builder {
            plan: Plan {
                name,
                repeat: 1,
                phase: None,
                hardware,
                mesh: mesh.clone(),
                dims: table.to_vec(),
                instructions,
                outputs,
                folds: Vec::new(),
            },
        }
    }

    pub(crate) fn push(
        &mut self,
        kind: InstrKind,
        operands: &[InstrId],
        dims: &[DimId],
        dtype: Dtype,
        layout: Layout,
    ) -> InstrId {
        let (operands, dims) = (operands.to_vec(), dims.to_vec());
        let id = InstrId(self.plan.instructions.len() as u32);
        let name = matches!(kind, InstrKind::Parameter(_)).then(|| format!("p{}", id.0));
        let origin = Origin::default();
        self.plan.instructions.push(Instruction {
            kind,
            operands,
            name,
            dims,
            dtype,
            layout,
            origin,
            fold: None,
        });
        id
    }

    pub(crate) fn parameter(&mut self, dims: &[DimId], dtype: Dtype, layout: Layout) -> InstrId {
        self.push(InstrKind::Parameter(ParameterKind::Activation), &[], dims, dtype, layout)
    }

    pub(crate) fn output(mut self, id: InstrId) -> Plan {
        let dims = self.plan.instruction(id).dims.clone();
        self.plan.outputs.push(PlanOutput { name: "out".to_string(), id, dims, state: false });
        self.plan
    }
}

/// Runs a plan, and panics unless its results are equal to the unsharded program's.
pub(crate) fn check(plan: &Plan, seed: u64) -> Report {
    let options = RunOptions { seed, ..RunOptions::default() };
    equal(plan, &RunOptions { single: true, ..options.clone() });
    equal(plan, &options)
}

fn equal(plan: &Plan, options: &RunOptions) -> Report {
    let report = run_plan(plan, options).unwrap_or_else(|e| panic!("{e}\n{}", text::print(plan)));
    assert!(
        report.equal,
        "off by {} of {}\n{}\nhas {:?}\nnot {:?}",
        report.max_abs_err,
        report.scale(),
        text::print(plan),
        report.outputs,
        report.expected
    );
    report
}
