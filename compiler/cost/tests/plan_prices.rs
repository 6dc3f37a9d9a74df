//! Rooflines, fusion and totals of whole plans.

use shard_cost::{Bound, Bytes, Flops, Hardware, InstrPrice, PlanPrice, price};
use shard_ir::{
    AxisId, AxisList, AxisSet, Binary, Collective, Dim, DimId, Dtype, InstrId, InstrKind,
    Instruction, Layout, Map, Mesh, MeshShape, Number, Op, Origin, ParameterKind, Picoseconds,
    Plan, PlanOutput, Reduction,
};

const B: DimId = DimId(0);
const L: DimId = DimId(1);
const E: DimId = DimId(2);
const F: DimId = DimId(3);

/// A plan on the PaLM 540B sizes and a 4x4x4 mesh, built an instruction at a time.
struct Builder(Plan);

impl Builder {
    fn palm() -> Builder {
        let dim = |name: &str, size| Dim { name: name.to_string(), size, useful: size };
        Builder(Plan {
            name: "mlp".to_string(),
            repeat: 1,
            phase: None,
            hardware: None,
            mesh: Mesh::new([("x", 4), ("y", 4), ("z", 4)]).unwrap(),
            dims: vec![dim("B", 512), dim("L", 1), dim("E", 18432), dim("F", 73728)],
            instructions: Vec::new(),
            outputs: Vec::new(),
            folds: Vec::new(),
        })
    }

    fn push(
        &mut self,
        kind: InstrKind,
        operands: &[InstrId],
        dims: &[DimId],
        splits: &[&[u8]],
        sums: &[u8],
    ) -> InstrId {
        let splits: Vec<AxisList> =
            splits.iter().map(|s| s.iter().map(|i| AxisId(*i)).collect()).collect();
        let sums: AxisSet = sums.iter().map(|i| AxisId(*i)).collect();
        let sizes = self.0.sizes(dims);
        let shape = MeshShape { mesh: &self.0.mesh, sizes: &sizes };
        let layout = Layout::new(shape, &splits, sums, AxisSet::EMPTY).unwrap();
        self.0.instructions.push(Instruction {
            kind,
            operands: operands.to_vec(),
            name: None,
            dims: dims.to_vec(),
            dtype: Dtype::Bf16,
            layout,
            origin: Origin::default(),
            fold: None,
        });
        InstrId(self.0.instructions.len() as u32 - 1)
    }

    fn finish(mut self, id: InstrId) -> (Plan, PlanPrice) {
        let dims = self.0.instruction(id).dims.clone();
        self.0.outputs.push(PlanOutput { name: "y".to_string(), id, dims, state: false });
        let hw = Hardware::built_in("tpu-v4-flat").unwrap();
        let price = price(&self.0, &hw);
        (self.0, price)
    }
}

fn parameter(kind: ParameterKind) -> InstrKind {
    InstrKind::Parameter(kind)
}

/// `x: BLE_xyz` gathered to `BLE_x`, and the first einsum of the feed-forward block.
fn first_half(b: &mut Builder) -> InstrId {
    let x =
        b.push(parameter(ParameterKind::Activation), &[], &[B, L, E], &[&[], &[], &[0, 1, 2]], &[]);
    let w = b.push(parameter(ParameterKind::Weight), &[], &[E, F], &[&[0], &[1, 2]], &[]);
    let yz: AxisList = [AxisId(1), AxisId(2)].into_iter().collect();
    let gather = InstrKind::Move(Collective::AllGather { dim: 2, axes: yz });
    let gathered = b.push(gather, &[x], &[B, L, E], &[&[], &[], &[0]], &[]);
    b.push(InstrKind::Op(Op::Einsum), &[gathered, w], &[B, L, F], &[&[], &[], &[1, 2]], &[0])
}

#[test]
fn the_first_einsum_of_palms_feed_forward_block() {
    let mut b = Builder::palm();
    let h = first_half(&mut b);
    let (_, price) = b.finish(h);
    let InstrPrice::Kernel { flops, hbm_bytes, time, bound, fused_into, .. } = *price.of(h) else {
        panic!("a kernel")
    };
    assert_eq!((flops, hbm_bytes), (Flops(21_743_271_936), Bytes(51_904_512)));
    assert_eq!((time, bound, fused_into), (Picoseconds(79_066_444), Bound::Compute, None));
    assert_eq!(price.totals.comm_time, Picoseconds(16_384_000));
    assert_eq!(price.totals.serial_time, Picoseconds(16_384_000 + 79_066_444));
    assert_eq!(price.totals.comm_bytes, Bytes(4_423_680));
    assert_eq!(price.totals.memory_time, Picoseconds(43_253_760));
    assert!(price.arithmetic_as_bf16.is_empty());
}

#[test]
fn a_gelu_behind_a_move_is_a_kernel_of_its_own() {
    let mut b = Builder::palm();
    let h = first_half(&mut b);
    let x: AxisList = [AxisId(0)].into_iter().collect();
    let scatter =
        InstrKind::Move(Collective::ReduceScatter { kind: Reduction::Sum, dim: 2, axes: x });
    let h2 = b.push(scatter, &[h], &[B, L, F], &[&[], &[], &[1, 2, 0]], &[]);
    let a =
        b.push(InstrKind::Op(Op::Map(Map::Gelu)), &[h2], &[B, L, F], &[&[], &[], &[1, 2, 0]], &[]);
    let (_, price) = b.finish(a);
    let local = 512 * 73728 / 64 * 2;
    assert_eq!(
        *price.of(a),
        InstrPrice::Kernel {
            flops: Flops(0),
            arithmetic: Dtype::Bf16,
            hbm_bytes: Bytes(2 * local),
            time: Picoseconds((2 * local * 1_000_000).div_ceil(1_200_000)),
            bound: Bound::Memory,
            fused_into: None,
            looped: None,
        }
    );
}

/// An einsum of complete operands, followed by `gelu` and by a product with a parameter.
fn fused(extra_use: bool) -> (Plan, PlanPrice, [InstrId; 3]) {
    let mut b = Builder::palm();
    let x = b.push(parameter(ParameterKind::Activation), &[], &[B, L, E], &[&[0], &[], &[]], &[]);
    let w = b.push(parameter(ParameterKind::Weight), &[], &[E, F], &[&[], &[1]], &[]);
    let scale = b.push(parameter(ParameterKind::Weight), &[], &[F], &[&[1]], &[]);
    let two = b.push(InstrKind::Constant(Number::Given(2.0)), &[], &[], &[], &[]);
    let on = [&[0u8][..], &[], &[1]];
    let h = b.push(InstrKind::Op(Op::Einsum), &[x, w], &[B, L, F], &on, &[]);
    let a = b.push(InstrKind::Op(Op::Map(Map::Gelu)), &[h], &[B, L, F], &on, &[]);
    let s = b.push(InstrKind::Op(Op::Binary(Binary::Mul)), &[a, scale], &[B, L, F], &on, &[]);
    let t = b.push(InstrKind::Op(Op::Binary(Binary::Mul)), &[s, two], &[B, L, F], &on, &[]);
    let last = if extra_use {
        b.push(InstrKind::Op(Op::Binary(Binary::Add)), &[t, h], &[B, L, F], &on, &[])
    } else {
        t
    };
    let (plan, price) = b.finish(last);
    (plan, price, [h, a, t])
}

#[test]
fn a_chain_of_elementwise_ops_is_one_kernel_with_its_einsum() {
    let (plan, price, [h, a, t]) = fused(false);
    let InstrPrice::Kernel { hbm_bytes, fused_into: None, .. } = *price.of(h) else {
        panic!("a kernel")
    };
    // x, w, the scale, and the last result: neither h nor a nor the constant.
    let (x, w, scale, out) = (128 * 18432 * 2, 18432 * 18432 * 2, 18432 * 2, 128 * 18432 * 2);
    assert_eq!(hbm_bytes, Bytes(x + w + scale + out));
    for member in [a, t] {
        let InstrPrice::Kernel { hbm_bytes, time, fused_into, .. } = *price.of(member) else {
            panic!("a kernel")
        };
        assert_eq!((hbm_bytes, time, fused_into), (Bytes(0), Picoseconds(0), Some(h)));
    }
    assert_eq!(price.totals.serial_time, price.of(h).time());
    assert_eq!(shard_cost::kernels(&plan).len(), 1);
}

#[test]
fn a_kernel_holds_what_it_reads_beside_what_it_makes() {
    let (plan, _, _) = fused(false);
    let (x, w, scale, out) = (128 * 18432 * 2, 18432 * 18432 * 2, 18432 * 2, 128 * 18432 * 2);
    let number = 2;
    assert_eq!(shard_cost::Memory::of(&plan).layer_peak(), Bytes(x + w + scale + number + out));
}

#[test]
fn a_value_read_twice_is_written() {
    let (plan, price, [h, a, _]) = fused(true);
    let InstrPrice::Kernel { fused_into, .. } = *price.of(a) else { panic!("a kernel") };
    assert_eq!(fused_into, None, "h has two readers");
    assert_eq!(shard_cost::kernels(&plan)[0], vec![h]);
    // The sum reads two values that ops make, so it joins neither.
    assert_eq!(shard_cost::kernels(&plan).len(), 3);
}

#[test]
fn relabelling_moves_no_byte_and_append_and_take_their_rows_alone() {
    let mut b = Builder::palm();
    let cache = b.push(parameter(ParameterKind::Cache), &[], &[F, E], &[&[], &[]], &[]);
    let new = b.push(parameter(ParameterKind::Activation), &[], &[B, E], &[&[], &[]], &[]);
    let put = b.push(
        InstrKind::Op(Op::Append { from: B, to: F }),
        &[cache, new],
        &[F, E],
        &[&[], &[]],
        &[],
    );
    let ids = b.push(parameter(ParameterKind::Activation), &[], &[B], &[&[]], &[]);
    let rows = b.push(InstrKind::Op(Op::Take { over: F }), &[put, ids], &[B, E], &[&[], &[]], &[]);
    let last =
        b.push(InstrKind::Op(Op::Rename { from: B, to: L }), &[rows], &[L, E], &[&[], &[]], &[]);
    let (_, price) = b.finish(last);
    let bytes = |id| match *price.of(id) {
        InstrPrice::Kernel { hbm_bytes, .. } => hbm_bytes.0,
        _ => panic!("a kernel"),
    };
    let row = 18432 * 2;
    assert_eq!(bytes(put), 2 * 512 * row);
    assert_eq!(bytes(rows), 2 * 512 * row + 512 * 2);
    assert_eq!(bytes(last), 0);
}

/// The sum of an einsum's result and a parameter is one kernel with the einsum, whether or not the
/// parameter is moved.
#[test]
fn a_moved_parameter_does_not_keep_an_op_from_fusing() {
    let mut b = Builder::palm();
    let x = b.push(parameter(ParameterKind::Activation), &[], &[B, L, E], &[&[0], &[], &[]], &[]);
    let w = b.push(parameter(ParameterKind::Weight), &[], &[E, F], &[&[], &[1]], &[]);
    let bias = b.push(parameter(ParameterKind::Weight), &[], &[F], &[&[1, 2]], &[]);
    let h = b.push(InstrKind::Op(Op::Einsum), &[x, w], &[B, L, F], &[&[0], &[], &[1]], &[]);
    let z: AxisList = [AxisId(2)].into_iter().collect();
    let gather = InstrKind::Move(Collective::AllGather { dim: 0, axes: z });
    let gathered = b.push(gather, &[bias], &[F], &[&[1]], &[]);
    let sum = b.push(
        InstrKind::Op(Op::Binary(Binary::Add)),
        &[h, gathered],
        &[B, L, F],
        &[&[0], &[], &[1]],
        &[],
    );
    let (plan, _) = b.finish(sum);
    assert_eq!(shard_cost::kernels(&plan), vec![vec![h, sum]]);
}
