//! Every move, executed on real data: the devices hold the same global tensor in other blocks, and
//! the busiest device sends what the cost model says.

use crate::common::*;
use shard_ir::*;
use shard_runtime::{RunOptions, run_plan};

/// The bytes that the busiest device sends, by the table of `spec/cost.md`, rounded up.
fn model_bytes(
    mesh: &Mesh,
    shape: MeshShape<'_>,
    c: &Collective,
    from: Layout,
    to: Layout,
    dtype: Dtype,
) -> u64 {
    let k = u128::from(mesh.group_size(c.axes(mesh, from).iter()));
    let elements = u128::from(shape.local_elements(from).max(shape.local_elements(to)));
    let bits = elements * u128::from(dtype.bits());
    let share = |times: u128| (times * bits * (k - 1)).div_ceil(8 * k) as u64;
    match c {
        Collective::AllGather { .. }
        | Collective::AllGatherDims { .. }
        | Collective::ReduceScatter { .. }
        | Collective::ReduceScatterDims { .. }
        | Collective::AllToAll { .. } => share(1),
        Collective::Exchange { .. } => {
            // Counted over the blocks of all devices, element by element.
            let lacks = |device: u64| {
                let block = |layout: Layout| {
                    let (at, local) = (mesh.coordinates(device), shape.local_sizes(layout));
                    (0..shape.rank())
                        .map(|d| {
                            let rank = layout
                                .axes_of(d)
                                .iter()
                                .fold(0, |r, a| r * mesh.size(a) + at[a.index()]);
                            (rank * local[d], (rank + 1) * local[d])
                        })
                        .collect::<Vec<_>>()
                };
                let kept: u64 = block(from)
                    .iter()
                    .zip(&block(to))
                    .map(|(a, b)| a.1.min(b.1).saturating_sub(a.0.max(b.0)))
                    .product();
                u64::try_from(elements).unwrap() - kept
            };
            let lacked = (0..mesh.devices()).map(lacks).max().unwrap();
            (u128::from(lacked) * u128::from(dtype.bits())).div_ceil(8) as u64
        }
        Collective::AllReduce { .. } => share(2),
        Collective::Permute { .. } => bits.div_ceil(8) as u64,
        Collective::Slice { .. } | Collective::ToPartial { .. } => 0,
        // Needs statistics, which the values of these tests do not have.
        Collective::SoftmaxMerge { .. } => unreachable!("no layout here is partial by a softmax"),
    }
}

/// Executes every move from every layout, and gives how many these are.
fn check_all(mesh: &Mesh, dims_text: &str, tensor: &str, dtype: Dtype) -> usize {
    let table = dims(dims_text);
    let tensor = ids(&table, tensor);
    let sizes: Vec<u64> = tensor.iter().map(|d| table[d.index()].size).collect();
    let shape = MeshShape { mesh, sizes: &sizes };
    let all = mesh.all_axes();
    let mut moves = 0;
    for from in shape.layouts(all, all) {
        for (collective, to) in Collective::all_from(shape, from, all, all) {
            let mut builder = Builder::new(mesh, &table);
            let operand = builder.parameter(&tensor, dtype, from);
            let id = builder.push(InstrKind::Move(collective), &[operand], &tensor, dtype, to);
            let report = check(&builder.output(id), moves as u64);
            assert!(report.exact);
            let counted = report.collectives[0].wire_bytes;
            assert_eq!(
                counted,
                model_bytes(mesh, shape, &collective, from, to, dtype),
                "{collective:?} from {from:?}"
            );
            moves += 1;
        }
    }
    moves
}

macro_rules! denotes_the_same {
    ($($name:ident: [$($mesh:literal),+], $dims:literal, $tensor:literal, $dtype:ident = $count:literal;)+) => {$(
        #[test]
        fn $name() {
            assert_eq!(check_all(&mesh(&[$($mesh),+]), $dims, $tensor, Dtype::$dtype), $count);
        }
    )+};
}

denotes_the_same! {
    scalar_on_three_axes: [2, 3, 2], "B=1", "", F32 = 130;
    vector_on_one_axis: [4], "B=8", "B", Bf16 = 10;
    vector_on_two_axes: [2, 3], "B=12", "B", F32 = 94;
    vector_on_three_axes: [2, 2, 3], "B=12", "B", F32 = 753;
    vector_of_odd_length: [4], "B=5", "B", F32 = 4;
    vector_of_odd_length_on_two_axes: [2, 3], "B=7", "B", Int4 = 26;
    matrix_on_two_axes: [4, 2], "B=8 E=16", "BE", Bf16 = 230;
    matrix_on_uneven_axes: [2, 3], "B=6 E=12", "BE", F32 = 230;
    matrix_of_int4: [2, 2], "B=4 E=4", "BE", Int4 = 234;
    matrix_on_three_axes: [2, 2, 2], "B=8 E=8", "BE", F32 = 2800;
    matrix_on_three_uneven_axes: [4, 2, 2], "B=4 E=16", "BE", F32 = 1890;
    rank_three_on_two_axes: [2, 2], "B=4 L=4 E=4", "BLE", F32 = 488;
    rank_three_on_three_axes: [2, 2, 2], "B=4 L=2 E=8", "BLE", F32 = 5359;
}

#[test]
fn an_all_reduce_of_a_scalar_counts_parts_of_an_element() {
    let table = dims("B=1");
    let mesh = mesh(&[4]);
    let from = Layout::REPLICATED.with_partial(AxisId(0), Reduction::Sum);
    let mut builder = Builder::new(&mesh, &table);
    let operand = builder.parameter(&[], Dtype::F32, from);
    let collective = Collective::AllReduce { kind: Reduction::Sum, axes: mesh.all_axes() };
    let id =
        builder.push(InstrKind::Move(collective), &[operand], &[], Dtype::F32, Layout::REPLICATED);
    assert_eq!(check(&builder.output(id), 1).collectives[0].wire_bytes, 6);
}

/// Chains of random moves leave the value as it is.
#[test]
fn chains_of_moves_keep_the_value() {
    let table = dims("B=8 E=16");
    let tensor = ids(&table, "BE");
    let mesh = mesh(&[2, 2, 2]);
    let shape = MeshShape { mesh: &mesh, sizes: &[8, 16] };
    let all = mesh.all_axes();
    let mut random = shard_runtime::Random::new(11);
    for seed in 0..400 {
        let mut layout = Layout::REPLICATED;
        let mut builder = Builder::new(&mesh, &table);
        let mut id = builder.parameter(&tensor, Dtype::F32, layout);
        for _ in 0..10 {
            let moves = Collective::all_from(shape, layout, all, all);
            let (collective, to) = moves[random.below(moves.len() as u64) as usize];
            id = builder.push(InstrKind::Move(collective), &[id], &tensor, Dtype::F32, to);
            layout = to;
        }
        check(&builder.output(id), seed);
    }
}

/// A plan whose collective is left out does not verify, and the data that a wrong rule would leave
/// behind do not compare equal.
#[test]
fn a_forgotten_reduction_is_refused() {
    let table = dims("B=8");
    let mesh = mesh(&[2]);
    let tensor = ids(&table, "B");
    let partial = Layout::REPLICATED.with_partial(AxisId(0), Reduction::Sum);
    let mut builder = Builder::new(&mesh, &table);
    let operand = builder.parameter(&tensor, Dtype::F32, partial);
    let id =
        builder.push(InstrKind::Op(Op::Map(Map::Relu)), &[operand], &tensor, Dtype::F32, partial);
    let error = run_plan(&builder.output(id), &RunOptions::default()).unwrap_err();
    assert!(error.to_string().contains("not linear"), "{error}");
}
