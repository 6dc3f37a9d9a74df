use shard_ir::{Mesh, Picoseconds};

use super::*;

const GOOD: &str = r#"
name = "chip"
[chip]
flops = { bf16 = 100e12, f32 = 5e13 }
hbm_bytes = 1_000_000
hbm_bandwidth = 1e12
[network]
kind = "flat"
bandwidth = 1e11
latency = 1e-6
"#;

fn flat(bandwidth: u64, latency: u64) -> Network {
    Network {
        fabric: Fabric::Flat(Flat { bandwidth, latency: Picoseconds(latency) }),
        axes: Vec::new(),
    }
}

fn error(text: &str) -> HardwareError {
    Hardware::parse(text).expect_err("the file is wrong")
}

#[test]
fn every_built_in_chip_parses_and_bears_its_name() {
    for chip in BUILT_IN {
        let parsed = Hardware::parse(chip.text).expect("a built-in file is well formed");
        assert_eq!(parsed.name, chip.name);
    }
}

#[test]
fn tpu_v4_flat_has_the_papers_figures() {
    let hw = Hardware::built_in("tpu-v4-flat").expect("built in");
    assert_eq!(hw.flops_rate(Dtype::Bf16), 275_000_000_000_000);
    assert_eq!(hw.hbm_bytes, 34_359_738_368);
    assert_eq!(hw.hbm_rate, 1_200_000_000_000);
    assert_eq!(hw.network, flat(270_000_000_000, 0));
}

#[test]
fn rates_are_multiplied_by_the_efficiency_once() {
    let hw = Hardware::parse(
        &GOOD.replace("[network]", "[efficiency]\nmatmul = 0.5\nnetwork = 0.25\n[network]"),
    )
    .unwrap();
    assert_eq!(hw.flops_rate(Dtype::Bf16), 50_000_000_000_000);
    assert_eq!(hw.network, flat(25_000_000_000, 1_000_000));
}

#[test]
fn a_stack_takes_the_overhead_of_each_of_its_layers() {
    let hw = Hardware::parse(&format!("{GOOD}[overhead]\nlayer = 2e-6\n")).unwrap();
    assert_eq!(hw.layer_overhead, Picoseconds(2_000_000));
    let plan = |text: &str| shard_ir::text::parse(text).unwrap().remove(0);
    let stack = plan("shir 1\nlayer f repeat 10\n");
    assert_eq!(hw.stack_time(Picoseconds(1_000_000), &stack), Picoseconds(30_000_000));
    // In a model each application is a layer, and the time given is that of all of them.
    let model = plan("shir 1\nlayer m\nfold 0 = block repeat 10 from %0 to %1\n");
    assert_eq!(hw.stack_time(Picoseconds(10_000_000), &model), Picoseconds(30_000_000));
    assert_eq!(Hardware::parse(GOOD).unwrap().layer_overhead, Picoseconds(0));
    let endless = error(&format!("{GOOD}[overhead]\nlayer = -1\n"));
    assert_eq!(endless.key, "overhead.layer");
}

#[test]
fn what_is_reserved_of_a_chip_or_the_command_line_leaves_is_what_plans_are_held_to() {
    let reserved = |bytes: &str| {
        GOOD.replace("[network]", &format!("hbm_reserved_bytes = {bytes}\n[network]"))
    };
    let hw = Hardware::parse(&reserved("100_000")).unwrap();
    assert_eq!((hw.hbm_bytes, hw.chip_hbm_bytes, hw.has_memory_limit), (900_000, 1_000_000, false));
    let limited = hw.with_memory_limit(500);
    assert_eq!(
        (limited.hbm_bytes, limited.chip_hbm_bytes, limited.has_memory_limit),
        (500, 1_000_000, true)
    );
    for bad in ["-1", "1_000_000", "2e6", "true"] {
        assert_eq!(error(&reserved(bad)).key, "chip.hbm_reserved_bytes", "{bad}");
    }
}

#[test]
fn a_missing_arithmetic_type_takes_bf16s_and_is_known_to_be_missing() {
    let hw = Hardware::parse(GOOD).unwrap();
    assert_eq!(hw.flops_rate(Dtype::F32), 50_000_000_000_000);
    assert_eq!(hw.flops_rate(Dtype::F16), hw.flops_rate(Dtype::Bf16));
    assert!(hw.knows_arithmetic(Dtype::F16));
    assert_eq!(hw.flops_rate(Dtype::Int8), hw.flops_rate(Dtype::Bf16));
    assert!(!hw.knows_arithmetic(Dtype::Int8));
}

#[test]
fn an_error_has_its_key_and_its_place() {
    let text = GOOD.replace("1e11", "-3.0");
    let e = error(&text);
    assert_eq!(e.key, "network.bandwidth");
    assert_eq!(&text[e.span.clone()], "-3.0");
    assert_eq!(
        e.message,
        "`network.bandwidth` must be a number greater than 0 and at most 1e18, and is -3.0"
    );
}

#[test]
fn numbers_that_are_none_are_refused() {
    for bad in ["inf", "nan", "0", "0.0", "1e400", "\"fast\"", "99999999999999999999", "true"] {
        let e = error(&GOOD.replace("hbm_bandwidth = 1e12", &format!("hbm_bandwidth = {bad}")));
        assert!(bad == "99999999999999999999" || e.key == "chip.hbm_bandwidth", "{bad}: {e:?}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_known_ones() {
    let text = GOOD.replace("hbm_bytes", "hbm_bites");
    assert_eq!(error(&text).key, "chip.hbm_bytes");
    let text = GOOD.replace("[network]", "colour = 3\n[network]");
    let e = error(&text);
    assert_eq!((e.key.as_str(), &text[e.span.clone()]), ("chip.colour", "colour"));
    assert_eq!(
        e.help.as_deref(),
        Some("the keys here are flops, hbm_bandwidth, hbm_bytes, hbm_reserved_bytes, matmul_tile")
    );
}

#[test]
fn an_unknown_kind_is_refused_with_the_known_ones() {
    let e = error(&GOOD.replace("\"flat\"", "\"ether\""));
    assert_eq!(e.message, "unknown network kind `ether`");
    assert_eq!(e.known, ["\"flat\"", "\"torus\"", "\"switched\""]);
    let e = error(&format!("{GOOD}\n[network.axes]\ndcn = {{ kind = \"flat\" }}\n"));
    assert_eq!(e.key, "network.axes.dcn.bandwidth");
    let e = error(&TORUS.replace("always", "sometimes"));
    assert_eq!((e.key.as_str(), e.known.len()), ("network.wraparound", 4));
}

#[test]
fn everything_that_is_wrong_is_said_in_file_order() {
    let text = GOOD
        .replace("hbm_bytes = 1_000_000", "hbm_bites = 3")
        .replace("1e11", "-3.0")
        .replace("1e-6", "\"slow\"");
    let errors = Hardware::read(&text).expect_err("the file is wrong");
    let keys: Vec<&str> = errors.iter().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["chip.hbm_bytes", "chip.hbm_bites", "network.bandwidth", "network.latency"]);
    assert!(errors[1].known.contains(&"hbm_bytes".to_string()));
}

const TORUS: &str = r#"
name = "chip"
[chip]
flops = { bf16 = 100e12 }
hbm_bytes = 1e9
hbm_bandwidth = 1e12
[network]
kind = "torus"
pod = [16, 20, 28]
link_bandwidth = 1e11
hop_latency = 1e-6
wraparound = "always"
[network.axes]
x = { torus = [4, 4] }
dcn = { kind = "flat", bandwidth = 1e9 }
"#;

#[test]
fn a_mesh_axis_may_stand_for_torus_axes_or_have_its_own_network() {
    let hw = Hardware::parse(TORUS).unwrap();
    let own = Fabric::Flat(Flat { bandwidth: 1_000_000_000, latency: Picoseconds(0) });
    let axes = [
        ("dcn".to_string(), AxisNetwork::Own(own)),
        ("x".to_string(), AxisNetwork::TorusAxes(vec![4, 4])),
    ];
    assert_eq!(hw.network.axes, axes);
    for bad in ["[]", "[4.5]", "[0]", "\"4x4\"", "[99999999999]"] {
        assert_eq!(error(&TORUS.replace("[4, 4]", bad)).key, "network.axes.x.torus", "{bad}");
    }
    assert_eq!(error(&TORUS.replace("dcn =", "Dcn =")).key, "network.axes.Dcn");
}

fn problem(chip: &str, mesh: &[(&str, u64)]) -> Option<SliceProblem> {
    let hw = Hardware::built_in(chip).or_else(|| Hardware::parse(chip).ok()).expect("a chip");
    hw.slice_problem(&Mesh::new(mesh.iter().copied()).expect("a mesh"))
}

#[test]
fn the_nearest_slice_keeps_the_axes_where_it_can() {
    let nearest = |chip: &str, mesh: &[(&str, u64)]| {
        let hw = Hardware::built_in(chip).expect("a chip");
        let mesh = Mesh::new(mesh.iter().copied()).expect("a mesh");
        hw.nearest_slice(&mesh).map_or("none".to_string(), |mesh| mesh.to_string())
    };
    assert_eq!(nearest("tpu-v5e", &[("x", 4), ("y", 4), ("z", 4)]), "x=8, y=8, z=1");
    assert_eq!(nearest("tpu-v5e", &[("x", 32), ("y", 4)]), "x=16, y=8");
    assert_eq!(nearest("tpu-v4", &[("x", 2), ("y", 4), ("z", 8)]), "x=4, y=4, z=4");
    assert_eq!(nearest("tpu-v4", &[("data", 2), ("model", 8)]), "data=2, model=4, x=2");
    assert_eq!(nearest("tpu-v4", &[("x", 64)]), "x=4, y=4, z=4");
    assert_eq!(nearest("tpu-v4", &[("dcn", 2), ("x", 64)]), "dcn=2, x=4, y=4, z=4");
    assert_eq!(nearest("tpu-v4", &[("x", 5), ("y", 5)]), "none");
    assert_eq!(nearest("tpu-v5e", &[("x", 32), ("y", 32)]), "none");
    let long: Vec<(String, u64)> = (0..8).map(|at| (format!("a{at}"), 8)).collect();
    let long: Vec<(&str, u64)> = long.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    assert_eq!(nearest("tpu-v4", &long), "none");
    assert_eq!(nearest("tpu-v4", &[("x", 1 << 20)]), "none");
}

#[test]
fn a_mesh_that_no_slice_has_is_told_apart() {
    assert_eq!(problem("tpu-v4-flat", &[("x", 1000), ("y", 3)]), None);
    assert_eq!(problem("tpu-v4", &[("x", 4), ("y", 4), ("z", 8)]), None);
    assert_eq!(problem("tpu-v4", &[("x", 2), ("y", 4), ("z", 4)]), None);
    assert_eq!(problem("tpu-v4", &[("dcn", 100), ("x", 8), ("y", 4), ("z", 4)]), None);
    assert_eq!(problem("tpu-v5p", &[("x", 28), ("y", 16), ("z", 20)]), None);
    let shape = vec![2, 4, 8];
    assert_eq!(
        problem("tpu-v4", &[("x", 2), ("y", 4), ("z", 8)]),
        Some(SliceProblem::Cubes { shape })
    );
    let pod = vec![16, 16, 16];
    let fold = Some(("x".to_string(), vec![4, 4, 4]));
    assert_eq!(
        problem("tpu-v4", &[("x", 64)]),
        Some(SliceProblem::Pod { shape: vec![64], pod: pod.clone(), fold })
    );
    let shape = vec![32, 16, 16];
    assert_eq!(
        problem("tpu-v4", &[("x", 32), ("y", 16), ("z", 16)]),
        Some(SliceProblem::Pod { shape, pod, fold: None })
    );
    assert!(matches!(
        problem("tpu-v5e", &[("x", 2), ("y", 2), ("z", 2)]),
        Some(SliceProblem::Pod { .. })
    ));
    assert_eq!(problem(TORUS, &[("x", 16), ("y", 20)]), None);
    let fold = SliceProblem::Fold { axis: "x".to_string(), size: 8, torus: vec![4, 4] };
    assert_eq!(problem(TORUS, &[("x", 8)]), Some(fold));
    assert_eq!(problem("h100", &[("x", 4), ("y", 8)]), None);
    assert_eq!(problem("h100", &[("x", 2), ("y", 4)]), None);
    assert_eq!(problem("h100", &[("x", 64)]), None);
    let straddles = SliceProblem::Straddles { axis: "x".to_string(), node: 8, fits: 4, inside: 1 };
    assert_eq!(problem("h100", &[("x", 5), ("y", 2)]), Some(straddles));
    for (x, y) in [(1, 6), (1, 3), (2, 6), (3, 2), (3, 7)] {
        assert_eq!(problem("h100", &[("x", x), ("y", y)]), None, "{x} by {y}");
    }
}

#[test]
fn a_group_that_fits_one_node_is_one_node() {
    let inside = |sizes: &[u64]| crate::network::inside_nodes(sizes, 8);
    assert_eq!(inside(&[6]), [6], "six devices of a node of eight");
    assert_eq!(inside(&[3]), [3]);
    assert_eq!(inside(&[2, 3]), [2, 3], "groups of both axes lie in the node");
    assert_eq!(inside(&[2, 6]), [1, 6], "two nodes of six");
    assert_eq!(inside(&[12]), [6], "the fewest parts of one size that fit");
    assert_eq!(inside(&[4, 4]), [2, 4]);
    assert_eq!(inside(&[4, 8]), [1, 8]);
    assert_eq!(inside(&[2, 16]), [1, 8], "an axis before one that is cut is between nodes");
}

#[test]
fn a_plane_of_whole_cubes_edge_wraps_around_as_a_face_of_a_larger_slice_alone() {
    for (chip, face) in [("tpu-v4", "tpu-v4-face"), ("tpu-v5p", "tpu-v5p-face")] {
        for sizes in [&[4, 4][..], &[8, 4], &[16, 16], &[8]] {
            let mesh: Vec<(&str, u64)> =
                ["x", "y"].into_iter().zip(sizes.iter().copied()).collect();
            let rings = |name: &str| {
                let mesh = Mesh::new(mesh.iter().copied()).expect("a mesh");
                let hw = Hardware::built_in(name).expect("built in");
                mesh.axis_ids().map(|axis| hw.network.wraps_around(&mesh, axis)).collect::<Vec<_>>()
            };
            assert_eq!(rings(chip), vec![false; sizes.len()], "{chip} {sizes:?}");
            assert_eq!(rings(face), vec![true; sizes.len()], "{face} {sizes:?}");
            assert_eq!(problem(chip, &mesh), Some(SliceProblem::Face { shape: sizes.to_vec() }));
            assert_eq!(problem(face, &mesh), None);
        }
    }
    assert_eq!(error(&TORUS.replace("[network]\n", "[network]\nface = 4\n")).key, "network.face");
}

#[test]
fn a_chip_and_its_face_have_the_same_figures() {
    for name in ["tpu-v4", "tpu-v5p"] {
        let chip = Hardware::built_in(name).expect("built in");
        let mut face = Hardware::built_in(&format!("{name}-face")).expect("built in");
        face.name = chip.name.clone();
        if let Fabric::Torus(Torus { face, .. }) = &mut face.network.fabric {
            *face = false;
        }
        assert_eq!(face, chip);
    }
}

#[test]
fn figures_that_references_state_otherwise_than_rounded() {
    let bytes = |name: &str| Hardware::built_in(name).expect("built in").hbm_bytes;
    assert_eq!(bytes("a100-80g"), 80 << 30, "ESTI section 5: 80GiB");
    let host = |name: &str| Hardware::built_in(name).expect("built in").host_rate;
    assert_eq!(host("tpu-v6e"), Some(32_000_000_000), "the book, part 2, note 9");
    assert_eq!(host("tpu-v5e"), Some(15_000_000_000));
}

#[test]
fn a_file_without_bf16_is_refused() {
    assert_eq!(error(&GOOD.replace("bf16 = 100e12, ", "")).key, "chip.flops.bf16");
}

#[test]
fn broken_toml_has_a_place_and_no_key() {
    let e = error("name = \n");
    assert!(e.key.is_empty() && e.message.starts_with("not a TOML file: "), "{e:?}");
    assert_eq!(error("").message, "the hardware file has no `name`");
}

#[test]
fn with_tiles_a_matrix_product_takes_as_long_as_if_every_tile_were_full() {
    use crate::{LocalTensor, compute_time, op_work};
    use shard_ir::{DimId, Op};
    let plain = Hardware::parse(GOOD).unwrap();
    let tiled = Hardware::parse(&GOOD.replace("[chip]\n", "[chip]\nmatmul_tile = 128\n")).unwrap();
    assert_eq!(tiled.matmul_tile, Some(128));
    let (b, e, f) = (DimId(0), DimId(1), DimId(2));
    let work = |rows: u64| {
        let (x, w, y) = ([rows, 256], [256, 384], [rows, 384]);
        let dtype = Dtype::Bf16;
        let operands = [
            LocalTensor {
                value: 0,
                dims: &[b, e],
                sizes: &x,
                dtype,
                constant: None,
                statistics: 0,
            },
            LocalTensor {
                value: 1,
                dims: &[e, f],
                sizes: &w,
                dtype,
                constant: None,
                statistics: 0,
            },
        ];
        op_work(
            &Op::Einsum,
            &operands,
            LocalTensor {
                value: 2,
                dims: &[b, f],
                sizes: &y,
                dtype,
                constant: None,
                statistics: 0,
            },
        )
    };
    let time = |hw: &Hardware, rows| compute_time(hw, &work(rows));
    assert_eq!(time(&tiled, 128), time(&plain, 128), "full tiles");
    assert_eq!(time(&tiled, 1), time(&plain, 128), "one row takes a tile");
    assert_eq!(time(&tiled, 129), time(&plain, 256));
    assert_eq!(work(1).flops.0, 2 * 256 * 384, "the flops stay what they are");
    assert_eq!(
        error(&GOOD.replace("[chip]\n", "[chip]\nmatmul_tile = 0\n")).key,
        "chip.matmul_tile"
    );
}

#[test]
fn a_product_with_a_weight_in_blocks_fills_tiles_as_the_same_product_without_scales() {
    use crate::{LocalTensor, compute_time, op_work};
    use shard_ir::{DimId, Op};
    let tiled = Hardware::parse(&GOOD.replace("[chip]\n", "[chip]\nmatmul_tile = 128\n")).unwrap();
    let dims = [0, 1, 2, 3].map(DimId);
    let [rows, block, within, out] = dims;
    let (x, w, s, y) = ([rows, block, within], [block, within, out], [block, out], [rows, out]);
    let sizes =
        |of: &[DimId]| of.iter().map(|d| [5, 12, 32, 200][d.0 as usize]).collect::<Vec<u64>>();
    let (x_sizes, w_sizes, s_sizes, y_sizes) = (sizes(&x), sizes(&w), sizes(&s), sizes(&y));
    let tensor = |value, dims, sizes, dtype| LocalTensor {
        value,
        dims,
        sizes,
        dtype,
        constant: None,
        statistics: 0,
    };
    let x = tensor(0, &x, &x_sizes, Dtype::Bf16);
    let w = tensor(1, &w, &w_sizes, Dtype::F4);
    let s = tensor(2, &s, &s_sizes, Dtype::F32);
    let y = tensor(3, &y, &y_sizes, Dtype::Bf16);
    let plain = op_work(&Op::Einsum, &[x, w], y);
    for order in [[x, w, s], [s, x, w], [w, s, x]] {
        let scaled = op_work(&Op::Einsum, &order, y);
        assert_eq!(compute_time(&tiled, &scaled), compute_time(&tiled, &plain));
        assert_eq!((scaled.flops, scaled.arithmetic), (plain.flops, Dtype::Bf16));
        assert_eq!(scaled.hbm_bytes(), plain.hbm_bytes() + s.bytes());
    }
    assert_ne!(compute_time(&tiled, &plain), compute_time(&Hardware::parse(GOOD).unwrap(), &plain));
}
