//! Random plans of ops and moves: they verify, print and parse back, shrink, and run with equal
//! results.

use crate::common::*;
use shard_ir::verify::verify;
use shard_ir::*;
use shard_runtime::{Random, shrink};

struct Generator {
    random: Random,
    builder: Builder,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let meshes: [&[u64]; 5] = [&[2], &[2, 2], &[4, 2], &[2, 2, 2], &[2, 3]];
        let mesh = mesh(meshes[random.below(5) as usize]);
        let table = dims("B=12 E=8 F=8 S=24 K=2 G=4 L=4 W=6 T=36");
        Generator { random, builder: Builder::new(&mesh, &table) }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize].clone()
    }

    fn layouts(&self, dims: &[DimId]) -> Vec<Layout> {
        all_layouts(&self.builder.plan.mesh, &self.builder.plan.dims, dims)
    }

    fn any_value(&mut self) -> InstrId {
        InstrId(self.random.below(self.builder.plan.instructions.len() as u64) as u32)
    }

    fn parameter(&mut self) {
        let names = self.pick(&["BE", "EF", "FE", "BS", "BFE", "E", "BKG", "LS", "BL"]);
        let dims = ids(&self.builder.plan.dims, names);
        let layouts = self.layouts(&dims);
        let layout = self.pick(&layouts);
        self.builder.parameter(&dims, Dtype::F32, layout);
    }

    fn collective(&mut self) {
        let operand = self.any_value();
        let instr = self.builder.plan.instruction(operand).clone();
        let sizes = self.builder.plan.sizes(&instr.dims);
        let mesh = self.builder.plan.mesh.clone();
        let shape = MeshShape { mesh: &mesh, sizes: &sizes };
        let moves = Collective::all_from(shape, instr.layout, mesh.all_axes(), mesh.all_axes());
        if !moves.is_empty() {
            let (collective, to) = self.pick(&moves);
            self.builder.push(
                InstrKind::Move(collective),
                &[operand],
                &instr.dims,
                instr.dtype,
                to,
            );
        }
    }

    fn op(&mut self) {
        let d = |name: &str| ids(&self.builder.plan.dims, name)[0];
        let ops = [
            Op::Einsum,
            Op::Einsum,
            Op::Map(Map::Relu),
            Op::Map(Map::Neg),
            Op::Map(Map::Gelu),
            Op::Binary(Binary::Add),
            Op::Binary(Binary::Mul),
            Op::Binary(Binary::Maximum),
            Op::Reduce { kind: Reduce::Sum, over: vec![d("E")] },
            Op::Reduce { kind: Reduce::Max, over: vec![d("B")] },
            Op::Softmax { over: d("E") },
            Op::Norm { kind: Norm::Layer, over: d("S") },
            Op::Rename { from: d("E"), to: d("F") },
            Op::Split { from: d("F"), to: vec![d("K"), d("G")] },
            Op::Merge { from: vec![d("K"), d("G")], to: d("E") },
            Op::Concat { left: d("B"), right: d("S"), to: d("T") },
            Op::SliceDim { from: d("S"), to: d("W"), offset: 5 },
            Op::Append { from: d("L"), to: d("S") },
            Op::Mask { query: d("L"), key: d("S"), window: None },
            Op::Rope { over: d("E"), at: d("B"), extent: None },
        ];
        let op = self.pick(&ops);
        let arity =
            if matches!(op, Op::Einsum | Op::Binary(_) | Op::Concat { .. } | Op::Append { .. }) {
                2
            } else {
                1
            };
        let operands: Vec<InstrId> = (0..arity).map(|_| self.any_value()).collect();
        let plan = &self.builder.plan;
        let types: Vec<TensorType> = operands
            .iter()
            .map(|o| plan.instruction(*o))
            .map(|o| TensorType { dims: o.dims.clone(), dtype: o.dtype })
            .collect();
        let mut named: Vec<DimId> = types.iter().flat_map(|t| t.dims.clone()).collect();
        named.sort_unstable();
        named.dedup();
        named.retain(|_| self.random.below(3) > 0);
        let Ok(result) = result_type(&op, &types, &named, &plan.dims) else { return };
        let elements: u64 = plan.sizes(&result.dims).iter().product();
        let views: Vec<Operand<'_>> = operands.iter().map(|o| plan.operand(*o)).collect();
        let layout = result_layout(&op, &views, &result.dims, &plan.mesh, &plan.dims);
        if let (Ok(layout), true) = (layout, elements <= 512) {
            self.builder.push(InstrKind::Op(op), &operands, &result.dims, result.dtype, layout);
        }
    }

    fn collective_einsum(&mut self) {
        let operands = [self.any_value(), self.any_value()];
        let plan = &self.builder.plan;
        let views = operands.map(|o| plan.operand(o));
        if views.iter().any(|o| o.dtype == Dtype::Bool) {
            return;
        }
        let Some(dtype) = views[0].dtype.product(views[1].dtype) else { return };
        let mut named: Vec<DimId> = views.iter().flat_map(|o| o.dims.to_vec()).collect();
        named.sort_unstable();
        named.dedup();
        named.retain(|_| self.random.below(3) > 0);
        let elements: u64 = plan.sizes(&named).iter().product();
        let loops = Fused::all_on(&views, &named, &plan.mesh, &plan.dims);
        if !loops.is_empty() && elements <= 512 {
            let (fused, inside) = self.pick(&loops);
            self.builder.push(
                InstrKind::CollectiveEinsum(fused),
                &operands,
                &named,
                dtype,
                inside.result,
            );
        }
    }

    fn plan(mut self, length: usize) -> Plan {
        while self.builder.plan.instructions.len() < length {
            match self.random.below(24) {
                _ if self.builder.plan.instructions.len() < 2 => self.parameter(),
                0..2 => self.parameter(),
                2..7 => self.collective(),
                7 => self.collective_einsum(),
                _ => self.op(),
            }
        }
        let last = InstrId(length as u32 - 1);
        let dims = self.builder.plan.instruction(last).dims.iter().rev().copied().collect();
        let mut plan = self.builder.output(last);
        plan.outputs.push(PlanOutput { name: "turned".to_string(), id: last, dims, state: false });
        plan
    }
}

#[test]
fn random_plans_run_right() {
    let (mut exact, mut moves) = (0, 0);
    for seed in 0..3_000 {
        let plan = Generator::new(seed).plan(8);
        assert_eq!(verify(&plan), Ok(()), "{}", text::print(&plan));
        let mut read = text::parse(&text::print(&plan)).unwrap();
        assert_eq!(read.remove(0), plan);
        let report = check(&plan, seed);
        exact += usize::from(report.exact);
        moves += report.collectives.len();
    }
    assert!(exact > 500 && exact < 2_500 && moves > 3_000, "{exact} {moves}");
}

#[test]
fn random_plans_shrink_and_still_run_right() {
    let mut smaller = 0;
    for seed in 10_000..11_000 {
        let plan = Generator::new(seed).plan(10);
        let small = shrink(&plan);
        assert_eq!(verify(&small), Ok(()), "{}", text::print(&small));
        assert!(small.dims.iter().zip(&plan.dims).all(|(a, b)| a.size <= b.size));
        smaller += usize::from(small.dims != plan.dims);
        check(&small, seed);
    }
    assert!(smaller > 900, "{smaller}");
}

/// Plans of texts with random errors: a plan that still verifies runs, or is refused with an error;
/// none panics.
#[test]
fn no_mutation_makes_the_interpreter_panic() {
    let text: String = include_str!("../../compiler/ir/tests/plans.shir").to_string();
    let bits: Vec<&str> = text.split_inclusive([' ', ',', ':', '_', '\n', '(', '{', '=']).collect();
    let odd = [
        "1099511627776",
        "4398046511104",
        "1",
        "2",
        "3",
        "1048576",
        "0",
        "f32 ",
        "int8 ",
        "",
        "E",
        "relu ",
    ];
    let mut random = Random::new(5);
    let (mut ran, mut refused) = (0, 0);
    for seed in 0..4_000 {
        let mut mutant: Vec<&str> = bits.clone();
        for _ in 0..=random.below(2) {
            let at = random.below(mutant.len() as u64) as usize;
            mutant[at] = match random.below(2) {
                0 => odd[random.below(odd.len() as u64) as usize],
                _ => bits[random.below(bits.len() as u64) as usize],
            };
        }
        for plan in
            text::parse(&mutant.concat()).into_iter().flatten().filter(|p| verify(p).is_ok())
        {
            for plan in [shrink(&plan), plan] {
                let options = shard_runtime::RunOptions { seed, ..Default::default() };
                match shard_runtime::run_plan(&plan, &options) {
                    Ok(report) => {
                        assert!(report.equal, "{report:?}\n{}", text::print(&plan));
                        ran += 1;
                    }
                    Err(
                        shard_runtime::RunError::TooLarge { .. }
                        | shard_runtime::RunError::TooLong { .. }
                        | shard_runtime::RunError::TooMany { .. },
                    ) => refused += 1,
                    Err(error) => panic!("{error}\n{}", text::print(&plan)),
                }
            }
        }
    }
    assert!(ran > 500, "{ran} {refused}");
}
