//! Collective bytes and times against the paper's figures.

use shard_cost::{Bytes, CollectiveCost, Hardware, collective_cost};
use shard_ir::{
    AxisId, AxisList, AxisSet, Collective, Dtype, Layout, Mesh, MeshShape, Picoseconds, Reduction,
};

fn hardware() -> Hardware {
    Hardware::built_in("tpu-v4-flat").expect("built in")
}

fn mesh(sizes: &[u64]) -> Mesh {
    Mesh::new(["x", "y", "z"].into_iter().zip(sizes.iter().copied())).expect("a legal mesh")
}

fn axes(ids: &[u8]) -> AxisList {
    ids.iter().map(|i| AxisId(*i)).collect()
}

fn layout(mesh: &Mesh, sizes: &[u64], splits: &[&[u8]], sums: &[u8]) -> Layout {
    let splits: Vec<AxisList> = splits.iter().map(|s| axes(s)).collect();
    let sums: AxisSet = sums.iter().map(|i| AxisId(*i)).collect();
    Layout::new(MeshShape { mesh, sizes }, &splits, sums, AxisSet::EMPTY).expect("a legal layout")
}

fn cost(mesh: &Mesh, c: Collective, from: Layout, sizes: &[u64], dtype: Dtype) -> CollectiveCost {
    assert!(c.apply(MeshShape { mesh, sizes }, from).is_ok(), "the test's move applies");
    collective_cost(&hardware(), mesh, &c, from, sizes, dtype)
}

/// The PaLM 540B all-gather of the command line's own example.
#[test]
fn palm_all_gather_of_activations_over_y_and_z() {
    let (mesh, sizes) = (mesh(&[4, 4, 4]), [512, 1, 18432]);
    let from = layout(&mesh, &sizes, &[&[], &[], &[0, 1, 2]], &[]);
    let got = cost(
        &mesh,
        Collective::AllGather { dim: 2, axes: axes(&[1, 2]) },
        from,
        &sizes,
        Dtype::Bf16,
    );
    assert_eq!(got.bytes, Bytes(4_718_592));
    assert_eq!(got.wire_bytes, Bytes(4_423_680));
    assert_eq!(got.time, Picoseconds(16_384_000));
}

/// esti-a1-allgather, esti-a1-reducescatter: 1 GB over K = 4 at 270 GB/s takes 0.00277777777778 s.
#[test]
fn a_gigabyte_over_four_chips() {
    let (mesh, sizes) = (mesh(&[4]), [500_000_000]);
    let gather = cost(
        &mesh,
        Collective::AllGather { dim: 0, axes: axes(&[0]) },
        layout(&mesh, &sizes, &[&[0]], &[]),
        &sizes,
        Dtype::Bf16,
    );
    assert_eq!((gather.bytes, gather.time), (Bytes(1_000_000_000), Picoseconds(2_777_777_778)));
    let scatter = Collective::ReduceScatter { kind: Reduction::Sum, dim: 0, axes: axes(&[0]) };
    assert_eq!(
        cost(&mesh, scatter, layout(&mesh, &sizes, &[&[]], &[0]), &sizes, Dtype::Bf16),
        gather
    );
    let reduce = Collective::AllReduce { kind: Reduction::Sum, axes: axes(&[0]).set() };
    let reduced = cost(&mesh, reduce, layout(&mesh, &sizes, &[&[]], &[0]), &sizes, Dtype::Bf16);
    assert_eq!(reduced.bytes, gather.bytes);
    assert_eq!(reduced.wire_bytes, Bytes(2 * gather.wire_bytes.0));
    assert_eq!(reduced.time, Picoseconds(2 * gather.time.0));
}

/// esti-a1-factor-K2, esti-a1-factor-K16.
#[test]
fn all_but_its_own_share_crosses_the_links() {
    for (k, expected) in [(2, 524_288), (16, 983_040)] {
        let (mesh, sizes) = (mesh(&[k]), [1_048_576]);
        let from = layout(&mesh, &sizes, &[&[0]], &[]);
        let got = cost(
            &mesh,
            Collective::AllGather { dim: 0, axes: axes(&[0]) },
            from,
            &sizes,
            Dtype::Int8,
        );
        assert_eq!((got.bytes, got.wire_bytes), (Bytes(1_048_576), Bytes(expected)));
    }
}

/// esti-grid-palm540-32c-512t, the exact column: 1D weight-stationary 0.135441066667 ms, 2D
/// 0.0830122666667 ms.
#[test]
fn palm_feed_forward_communication_on_32_chips() {
    let mesh = mesh(&[2, 4, 4]);
    let (e, f) = ([512, 1, 18432], [512, 1, 73728]);
    let ms = |parts: &[Picoseconds]| parts.iter().map(|t| t.seconds() * 1e3).sum::<f64>();
    let gather = |sizes: &[u64], from: &[u8], over: &[u8]| {
        let from = layout(&mesh, sizes, &[&[], &[], from], &[]);
        cost(&mesh, Collective::AllGather { dim: 2, axes: axes(over) }, from, sizes, Dtype::Bf16)
            .time
    };
    let scatter = |sizes: &[u64], on: &[u8], over: &[u8]| {
        let from = layout(&mesh, sizes, &[&[], &[], on], over);
        let c = Collective::ReduceScatter { kind: Reduction::Sum, dim: 2, axes: axes(over) };
        cost(&mesh, c, from, sizes, Dtype::Bf16).time
    };
    let one_d = ms(&[gather(&e, &[0, 1, 2], &[0, 1, 2]), scatter(&e, &[], &[0, 1, 2])]);
    // Each of four times is rounded up by at most a picosecond.
    assert!((one_d / 0.135441066667 - 1.0).abs() < 1e-7, "{one_d}");
    let two_d = ms(&[
        gather(&e, &[0, 1, 2], &[1, 2]),
        scatter(&f, &[1, 2], &[0]),
        gather(&f, &[1, 2, 0], &[0]),
        scatter(&e, &[0], &[1, 2]),
    ]);
    assert!((two_d / 0.0830122666667 - 1.0).abs() < 1e-7, "{two_d}");
}

#[test]
fn a_permute_sends_all_it_holds_and_an_all_to_all_all_but_its_share() {
    let (mesh, sizes) = (mesh(&[4, 2]), [64, 64]);
    let from = layout(&mesh, &sizes, &[&[], &[0, 1]], &[]);
    let to = layout(&mesh, &sizes, &[&[], &[1, 0]], &[]);
    let permute = cost(&mesh, Collective::Permute { to }, from, &sizes, Dtype::F32);
    assert_eq!((permute.bytes, permute.wire_bytes), (Bytes(64 * 8 * 4), Bytes(64 * 8 * 4)));
    assert_eq!(permute.time, Picoseconds(7586)); // 2048 / 270e9 s = 7585.2 ps, rounded up
    let across = Collective::AllToAll { from_dim: 1, to_dim: 0, axes: axes(&[1]) };
    let got = cost(&mesh, across, from, &sizes, Dtype::F32);
    assert_eq!((got.bytes, got.wire_bytes), (Bytes(2048), Bytes(1024)));
}

#[test]
fn slice_and_to_partial_send_nothing() {
    let (mesh, sizes) = (mesh(&[4]), [64]);
    let (whole, split) = (layout(&mesh, &sizes, &[&[]], &[]), layout(&mesh, &sizes, &[&[0]], &[]));
    for (c, from) in [
        (Collective::Slice { dim: 0, axes: axes(&[0]) }, whole),
        (Collective::ToPartial { kind: Reduction::Sum, dim: None, axes: axes(&[0]) }, whole),
        (Collective::ToPartial { kind: Reduction::Sum, dim: Some(0), axes: axes(&[0]) }, split),
    ] {
        let got = cost(&mesh, c, from, &sizes, Dtype::Bf16);
        assert_eq!(
            got,
            CollectiveCost { bytes: Bytes(128), wire_bytes: Bytes(0), time: Picoseconds(0) }
        );
    }
}

#[test]
fn half_bytes_are_counted_in_bits() {
    let (mesh, sizes) = (mesh(&[2]), [6]);
    let from = layout(&mesh, &sizes, &[&[0]], &[]);
    let got =
        cost(&mesh, Collective::AllGather { dim: 0, axes: axes(&[0]) }, from, &sizes, Dtype::Int4);
    assert_eq!((got.bytes, got.wire_bytes), (Bytes(3), Bytes(2)));
    assert_eq!(got.time, Picoseconds(6)); // 12 bits at 270e9 B/s: 5.56 ps
}

/// Over every split of a 4x2x8 mesh and many sizes: gathering over z and then y is never cheaper
/// than over yz at once.
#[test]
fn merging_adjacent_collectives_never_costs_more() {
    let mesh = mesh(&[4, 2, 8]);
    for size in (1..200).map(|n| n * 64) {
        let sizes = [size];
        let from = layout(&mesh, &sizes, &[&[0, 1, 2]], &[]);
        let half = layout(&mesh, &sizes, &[&[0, 1]], &[]);
        let gather = |from, over: &[u8]| {
            cost(
                &mesh,
                Collective::AllGather { dim: 0, axes: axes(over) },
                from,
                &sizes,
                Dtype::Bf16,
            )
        };
        let (merged, first, second) =
            (gather(from, &[1, 2]), gather(from, &[2]), gather(half, &[1]));
        assert!(merged.time <= first.time + second.time);
        assert_eq!(merged.wire_bytes.0, first.wire_bytes.0 + second.wire_bytes.0);
        let partial = layout(&mesh, &sizes, &[&[]], &[1, 2]);
        let reduce = |from, over: &[u8]| {
            let c = Collective::AllReduce { kind: Reduction::Sum, axes: axes(over).set() };
            cost(&mesh, c, from, &sizes, Dtype::Bf16).time
        };
        let once = layout(&mesh, &sizes, &[&[]], &[2]);
        assert!(reduce(partial, &[1, 2]) <= reduce(partial, &[1]) + reduce(once, &[2]));
    }
}

#[test]
fn latency_is_a_floor_and_twice_for_an_all_reduce() {
    let text = shard_cost::hardware::BUILT_IN[0].text.replace("latency = 0.0", "latency = 1e-6");
    let hw = Hardware::parse(&text).expect("well formed");
    let (mesh, sizes) = (mesh(&[4]), [64]);
    let from = layout(&mesh, &sizes, &[&[0]], &[]);
    let gather = collective_cost(
        &hw,
        &mesh,
        &Collective::AllGather { dim: 0, axes: axes(&[0]) },
        from,
        &sizes,
        Dtype::Bf16,
    );
    assert_eq!(gather.time, Picoseconds(1_000_000));
    let partial = layout(&mesh, &sizes, &[&[]], &[0]);
    let reduce = Collective::AllReduce { kind: Reduction::Sum, axes: axes(&[0]).set() };
    assert_eq!(
        collective_cost(&hw, &mesh, &reduce, partial, &sizes, Dtype::Bf16).time,
        Picoseconds(2_000_000)
    );
}
