//! Every fact of kind `hardware-constant`, `collective-time`, `collective-bytes` and `latency` of
//! status exact, verified or derived: it is computed through the public API of the cost model, or
//! [`NOT_COMPUTED`] has the reason why it is not.

use serde_json::Value;
use shard_cost::hardware::BUILT_IN;
use shard_cost::hardware::{Flat, Torus};
use shard_cost::{
    Bytes, CollectiveCost, Fabric, Flops, Hardware, Work, collective_cost, compute_time,
    memory_time,
};
use shard_ir::{AxisList, AxisSet, Collective, Dtype, Layout, Mesh, MeshShape, Reduction};

use crate::facts::Check;
use crate::facts::program::{entries, same};

const KINDS: [&str; 4] = ["hardware-constant", "collective-time", "collective-bytes", "latency"];
const STATES: [&str; 3] = ["exact", "verified", "derived"];

/// Facts, or figures of facts (`id/figure`), that are not computed, with the reason.
const NOT_COMPUTED: &[(&str, &str)] = &[
    ("book-hw-tpu_v4p/hbm", "tpu-v4 has ESTI's 32 GiB; the book counts decimal gigabytes"),
    ("book-hw-mxu", "how a peak comes about inside a chip is no part of a hardware file"),
    ("book-srv-cost-h100", "prices in dollars are no part of a hardware file"),
    ("book-srv-cost-tpu_v5p", "prices in dollars are no part of a hardware file"),
    ("book-srv-cost-tpu_v5e", "prices in dollars are no part of a hardware file"),
    ("book-tpu-q5", "a message between two chips alone, split over two ways, is no collective"),
    ("book-tpu-q6", "a gather to one chip alone is no collective"),
    ("book-coll-ag-hop", "symbols; the figures of book-coll-tpu_* come of them"),
    ("book-coll-ag-latency", "symbols; the figures of book-coll-tpu_* come of them"),
    ("book-coll-ag-multi", "symbols; a worked number of spec/cost.md comes of them"),
    ("book-inf-appC-T", "symbols; the figures of book-coll-tpu_* come of them"),
    ("book-train-dp-comm", "symbols"),
    ("book-shard-q10-formulas", "symbols; book-shard-q10-D4 has figures"),
    ("book-inf-step", "symbols; book-inf-13b-* have figures"),
    (
        "book-shard-q7-time/allreduce_us",
        "two lines used at once; here lines are gathered axis by axis",
    ),
    ("book-shard-q10-D4/alltoall_uni", "a ring of one direction is not a network here"),
    (
        "book-shard-q10-D4/alltoall_bidi",
        "the exact count on 4 devices; the model has the limit (question 10)",
    ),
    (
        "ds-a2a-complexity/combine_p256_L8",
        "an all-gather behind a switch is one step here, whatever its size",
    ),
    ("esti-kv-load-time", "a whole model: examples/palm"),
    ("esti-lat-decode-bounds", "a whole model: examples/palm"),
    ("esti-d2-sum", "a sum of measured times"),
    ("book-srv-qps-bf16", "queries a second are no part of a step's report"),
    ("book-srv-prefill", "an assumed utilisation"),
    ("book-srv-4x8-T", "the gather of a whole layer over bandwidth alone, without a mesh"),
    ("ds-pcie-oddeven", "a schedule of host links"),
    ("pt-tput-42", "a measured throughput restated"),
    ("pt-eos", "when to stop generating is not planned"),
    ("sum-chatbot", "measured times"),
];

const CHECKS: &[(&str, Check)] = &[
    ("esti-hw-tpuv4", paper_chip),
    ("book-roof-h100", chip),
    ("book-hw-tpu_v4p", chip),
    ("book-hw-tpu_v5p", chip),
    ("book-hw-tpu_v5e", chip),
    ("book-hw-tpu_v6e", chip),
    ("book-hw-pcie-v4", host_link),
    ("book-tpu-q2-v5e", pod),
    ("book-tpu-q2-v5p", pod),
    ("esti-a1-allgather", flat_gather),
    ("esti-a1-reducescatter", flat_gather),
    ("esti-a1-factor-K2", wire_bytes),
    ("esti-a1-factor-K16", wire_bytes),
    ("book-coll-45kB", smallest_hop),
    ("book-coll-a2a-count", exchange_on_a_ring),
    ("book-shard-pop2a", gather_on_a_line),
    ("book-shard-pop2b", gather_on_a_line),
    ("book-shard-q6a-num-1024-32768", reduce_on_a_line),
    ("book-shard-q7-time", two_layers),
    ("book-shard-q9", gather_or_scatter),
    ("book-shard-q10-D4", gather_and_exchange),
    ("book-inf-appC-360", smallest_of_eight),
    ("book-inf-appC-131", bound_by_latency),
    ("book-prof-rs", profiled_scatter),
    ("ds-a2a-pcc", partners),
    ("ds-a2a-complexity", partners),
    ("book-hw-torus-dist", longest_ways),
    ("book-roof-1e12", arithmetic),
    ("book-tpu-q1", loads),
    ("book-inf-pop4", loads),
    ("book-inf-pop256", loads),
    ("book-inf-q3", loads),
    ("book-srv-step8", loads),
    ("book-srv-step16", loads),
    ("book-srv-lat-full", loads),
    ("book-prof-ffw", profiled_layer),
    ("ds-zero-linear", parts_fetched_from_the_host),
];

fn check_of(id: &str) -> Option<Check> {
    match CHECKS.iter().find(|(known, _)| *known == id) {
        Some((_, check)) => Some(*check),
        None if id.starts_with("book-coll-tpu_") => Some(evaluated),
        None if id.starts_with("book-inf-13b-") => Some(loads),
        None => None,
    }
}

#[test]
fn every_fact_of_chips_and_collectives_is_what_the_model_gives() {
    let text =
        shard_snapshots::files::read(&shard_snapshots::root().join("snapshots/facts/oracle.json"));
    let all: Vec<Value> = serde_json::from_str(&text).expect("facts are JSON");
    let of_these = |fact: &&Value| {
        let is = |key: &str, known: &[&str]| {
            fact[key].as_str().is_some_and(|word| known.contains(&word))
        };
        is("kind", &KINDS) && is("status", &STATES)
    };
    let mut failures = Vec::new();
    for fact in all.iter().filter(of_these) {
        let id = fact["id"].as_str().expect("an id");
        match (check_of(id), NOT_COMPUTED.iter().any(|(listed, _)| *listed == id)) {
            (Some(check), false) => {
                failures.extend(check(fact).err().map(|problem| format!("{id}: {problem}")))
            }
            (None, true) => {}
            (Some(_), true) => failures.push(format!("{id}: listed as not computed, and computed")),
            (None, false) => {
                failures.push(format!("{id}: neither computed nor listed: {}", fact["question"]))
            }
        }
    }
    let known =
        |id: &str| all.iter().any(|fact| fact["id"] == id.split('/').next().unwrap_or_default());
    let listed = CHECKS.iter().map(|(id, _)| *id).chain(NOT_COMPUTED.iter().map(|(id, _)| *id));
    failures.extend(listed.filter(|id| !known(id)).map(|id| format!("{id} is in no fact")));
    assert!(failures.is_empty(), "{} facts fail:\n{}", failures.len(), failures.join("\n"));
}

/// An error unless a figure of the fact, in its unit, equals the computed figure within the fact's
/// tolerance.
fn figure(fact: &Value, name: &str, found: f64) -> Result<(), String> {
    let stated =
        fact["expected"][name]["value"].as_f64().ok_or(format!("the fact has no figure {name}"))?;
    let tolerance = fact["tolerance"].as_f64().unwrap_or(0.0).max(1e-9);
    if (found - stated).abs() <= tolerance * stated.abs() {
        Ok(())
    } else {
        Err(format!("{name}: found {found}, expected {stated}"))
    }
}

fn input(fact: &Value, name: &str) -> f64 {
    fact["inputs"][name].as_f64().unwrap_or_else(|| panic!("{} has no input {name}", fact["id"]))
}

/// The built-in chip that a fact calls `tpu_v4p`.
fn named(name: &str) -> Hardware {
    let name = if name == "tpu_v4p" { "tpu-v4".to_string() } else { name.replace('_', "-") };
    Hardware::built_in(&name).unwrap_or_else(|| panic!("{name} is built in"))
}

fn chip_of(fact: &Value) -> Hardware {
    named(fact["inputs"]["hardware"].as_str().expect("a chip"))
}

/// A built-in chip with words of its file replaced.
fn changed(name: &str, changes: &[(&str, &str)]) -> Hardware {
    let file = BUILT_IN.iter().find(|chip| chip.name == name).expect("built in");
    let text = changes.iter().fold(file.text.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{name} has {from}");
        text.replace(from, to)
    });
    Hardware::parse(&text).expect("well formed")
}

fn links(hw: &Hardware) -> (u64, &[u64]) {
    match &hw.network.fabric {
        Fabric::Torus(Torus { link_bandwidth, pod, .. }) => (*link_bandwidth, pod),
        Fabric::Flat(_) | Fabric::Switched(_) => panic!("{} is on a torus", hw.name),
    }
}

#[derive(Clone, Copy)]
enum Move {
    Gather,
    Scatter,
    Reduce,
    Exchange,
}

/// A move over all these axes of a mesh, with this many bytes in the larger buffer of a device.
fn moved(
    hw: &Hardware,
    mesh: &[(&str, u64)],
    kind: Move,
    over: &str,
    bytes: u64,
) -> CollectiveCost {
    let mesh = Mesh::new(mesh.iter().copied()).expect("a mesh");
    let axes: AxisList = over.chars().filter_map(|c| mesh.axis(&c.to_string())).collect();
    let group = mesh.group_size(axes.iter());
    // The bytes are given as a number of elements that every group divides.
    let exchanged = [group, bytes.next_multiple_of(group)];
    let sizes =
        if matches!(kind, Move::Exchange) { exchanged } else { [bytes.next_multiple_of(group), 1] };
    let shape = MeshShape { mesh: &mesh, sizes: &sizes };
    let (split, sums) = match kind {
        Move::Gather | Move::Exchange => (axes, AxisSet::EMPTY),
        Move::Scatter | Move::Reduce => (AxisList::EMPTY, axes.set()),
    };
    let from =
        Layout::new(shape, &[split, AxisList::EMPTY], sums, AxisSet::EMPTY).expect("a layout");
    let reduction = Reduction::Sum;
    let collective = match kind {
        Move::Gather => Collective::AllGather { dim: 0, axes },
        Move::Scatter => Collective::ReduceScatter { kind: reduction, dim: 0, axes },
        Move::Reduce => Collective::AllReduce { kind: reduction, axes: axes.set() },
        Move::Exchange => Collective::AllToAll { from_dim: 0, to_dim: 1, axes },
    };
    assert!(collective.apply(shape, from).is_ok(), "the move applies");
    collective_cost(hw, &mesh, &collective, from, &sizes, Dtype::Int8)
}

fn us(cost: CollectiveCost) -> f64 {
    cost.time.seconds() * 1e6
}

fn work(flops: f64, read: f64) -> Work {
    let mut work = shard_cost::kernel_work(&[], &[]);
    (work.flops, work.read) = (Flops(flops as u128), Bytes(read as u64));
    work
}

pub(crate) fn wraparound(fact: &Value) -> Result<(), String> {
    let (cases, wraps) = (&fact["inputs"]["cases"], &fact["expected"]["wrap"]);
    for (case, stated) in
        cases.as_array().into_iter().flatten().zip(wraps.as_array().into_iter().flatten())
    {
        let hw = named(case["hw"].as_str().expect("a chip"));
        let sizes: Vec<u64> =
            case["slice"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        let names = ["x", "y", "z"];
        let mesh = Mesh::new(names.into_iter().zip(sizes.iter().copied())).expect("a mesh");
        let around =
            |name: &&str| mesh.axis(name).is_some_and(|axis| hw.network.wraps_around(&mesh, axis));
        let found: Vec<bool> = names.iter().take(sizes.len()).map(around).collect();
        same("wraparound", serde_json::json!(found), stated.clone())?;
    }
    Ok(())
}

fn paper_chip(fact: &Value) -> Result<(), String> {
    for hw in [named("tpu-v4"), named("tpu-v4-flat")] {
        figure(fact, "flops_bf16", hw.flops_rate(Dtype::Bf16) as f64)?;
        figure(fact, "hbm", hw.hbm_bytes as f64)?;
        figure(fact, "hbm_bw", hw.hbm_rate as f64)?;
        let all_links = match &hw.network.fabric {
            Fabric::Flat(Flat { bandwidth, .. }) => *bandwidth,
            Fabric::Torus(Torus { link_bandwidth, pod, .. }) => {
                link_bandwidth * 2 * pod.len() as u64
            }
            Fabric::Switched(_) => 0,
        };
        figure(fact, "ici_bw", all_links as f64)?;
    }
    Ok(())
}

fn chip(fact: &Value) -> Result<(), String> {
    let hw = chip_of(fact);
    let expected = &fact["expected"];
    let listed = |name: &str| {
        NOT_COMPUTED.iter().any(|(id, _)| Some(*id) == Some(&format!("{}/{name}", text(fact))))
    };
    figure(fact, "flops_bf16", hw.flops_rate(Dtype::Bf16) as f64)?;
    figure(fact, "hbm_bw", hw.hbm_rate as f64)?;
    if expected["hbm"].is_object() && !listed("hbm") {
        figure(fact, "hbm", hw.hbm_bytes as f64)?;
    }
    if expected["ici_oneway"].is_object() {
        let (link, pod) = links(&hw);
        figure(fact, "ops_int8", hw.flops_rate(Dtype::Int8) as f64)?;
        figure(fact, "ici_oneway", link as f64)?;
        figure(fact, "torus_dims", pod.len() as f64)?;
        same("pod_shape", serde_json::json!(pod), expected["pod_shape"].clone())?;
    }
    Ok(())
}

fn text(fact: &Value) -> &str {
    fact["id"].as_str().unwrap_or_default()
}

fn host_link(fact: &Value) -> Result<(), String> {
    let hw = chip_of(fact);
    let pcie = hw.host_rate.ok_or("no host link")? as f64;
    figure(fact, "pcie", pcie)?;
    figure(fact, "hbm_over_pcie", hw.hbm_rate as f64 / pcie)
}

fn pod(fact: &Value) -> Result<(), String> {
    let hw = chip_of(fact);
    let chips = links(&hw).1.iter().product::<u64>() as f64;
    figure(fact, "flops", chips * hw.flops_rate(Dtype::Bf16) as f64)?;
    figure(fact, "hbm", chips * hw.hbm_bytes as f64)
}

fn flat_gather(fact: &Value) -> Result<(), String> {
    let kind = if text(fact).contains("reducescatter") { Move::Scatter } else { Move::Gather };
    let cost = moved(&named("tpu-v4-flat"), &[("x", 4)], kind, "x", 1_000_000_000);
    figure(fact, "at_K4_D1GB_270GBps", cost.time.seconds())
}

fn wire_bytes(fact: &Value) -> Result<(), String> {
    let mesh = [("x", input(fact, "K") as u64)];
    let cost =
        moved(&named("tpu-v4-flat"), &mesh, Move::Gather, "x", input(fact, "D_bytes") as u64);
    figure(fact, "bytes_on_link", cost.wire_bytes.0 as f64)
}

/// A collective of the book's table, evaluated.
fn evaluated(fact: &Value) -> Result<(), String> {
    // A mesh of one axis is a part of a larger slice in the book.
    let (chip, inputs) = (chip_of(fact), &fact["inputs"]);
    let hw = Hardware::built_in(&format!("{}-face", chip.name)).unwrap_or(chip);
    let size = input(fact, "axis_size") as u64;
    let mesh = Mesh::new([("x", size)]).expect("a mesh");
    let x = mesh.axis("x").expect("x");
    same("wraparound", Some(hw.network.wraps_around(&mesh, x)), inputs["wraparound"].as_bool())?;
    let whole = input(fact, "bytes") as u64;
    let (kind, bytes) = match inputs["op"].as_str() {
        Some("all-gather") => (Move::Gather, whole),
        Some("reduce-scatter") => (Move::Scatter, whole),
        Some("all-reduce") => (Move::Reduce, whole),
        // The bytes are those of the whole array.
        Some("all-to-all") => (Move::Exchange, whole / size),
        other => return Err(format!("{other:?} is no collective")),
    };
    figure(fact, "us", us(moved(&hw, &[("x", size)], kind, "x", bytes)))
}

/// The time of the least data: latency alone.
fn least(hw: &Hardware, mesh: &[(&str, u64)], kind: Move, over: &str) -> f64 {
    us(moved(hw, mesh, kind, over, 1))
}

/// Two neighbours that send each other half of the result: below the fact's bytes the latency of
/// the hop is longer.
fn smallest_hop(fact: &Value) -> Result<(), String> {
    smallest(fact, &named("tpu-v5e"), 2, |stated| 2 * stated)
}

fn smallest_of_eight(fact: &Value) -> Result<(), String> {
    smallest(fact, &named("tpu-v5e"), input(fact, "shards") as u64, |stated| stated)
}

fn smallest(
    fact: &Value,
    hw: &Hardware,
    devices: u64,
    gathered: fn(u64) -> u64,
) -> Result<(), String> {
    let stated = fact["expected"]["bytes"]["value"].as_u64().ok_or("no bytes")?;
    let mesh = [("x", devices)];
    let (floor, bytes) = (least(hw, &mesh, Move::Gather, "x"), gathered(stated));
    let time = |bytes: u64| us(moved(hw, &mesh, Move::Gather, "x", bytes));
    same("latency bound up to it", time(bytes), floor)?;
    same("bandwidth bound beyond", time(bytes + bytes / 100) > floor, true)
}

fn bound_by_latency(fact: &Value) -> Result<(), String> {
    let (hw, mesh) = (named("tpu-v5e"), [("x", input(fact, "shards") as u64)]);
    let bytes = (input(fact, "B") * input(fact, "D") * input(fact, "bytes")) as u64;
    figure(fact, "bytes", bytes as f64)?;
    let bound =
        us(moved(&hw, &mesh, Move::Gather, "x", bytes)) <= least(&hw, &mesh, Move::Gather, "x");
    same("latency_bound", Some(bound), fact["expected"]["latency_bound"].as_bool())
}

/// Chunks that a device's two links carry in an all-to-all.
fn exchange_on_a_ring(fact: &Value) -> Result<(), String> {
    let hw = changed("tpu-v5e", &[("full-axis-16", "always")]);
    let n = input(fact, "N") as u64;
    let chunk = 45_000_000;
    let cost = moved(&hw, &[("x", n)], Move::Exchange, "x", n * chunk);
    figure(fact, "total", cost.time.seconds() * (2 * links(&hw).0) as f64 / chunk as f64)
}

fn mesh_of(fact: &Value) -> Vec<(String, u64)> {
    entries(&fact["inputs"]["mesh"])
}

fn borrowed(mesh: &[(String, u64)]) -> Vec<(&str, u64)> {
    mesh.iter().map(|(name, size)| (name.as_str(), *size)).collect()
}

fn gather_on_a_line(fact: &Value) -> Result<(), String> {
    let (hw, mesh, dims) = (chip_of(fact), mesh_of(fact), &fact["inputs"]["dims"]);
    let axis = fact["inputs"]["axis"].as_str().unwrap_or_default();
    let bytes: u64 =
        entries(dims).iter().map(|(_, n)| n).product::<u64>() * input(fact, "bytes") as u64;
    let cost = moved(&hw, &borrowed(&mesh), Move::Gather, axis, bytes);
    if fact["expected"]["total_us"].is_object() {
        return figure(fact, "total_us", us(cost));
    }
    figure(fact, "total_bytes", cost.bytes.0 as f64)?;
    figure(fact, "no_wrap_us", us(cost))?;
    figure(fact, "latency_bound_us", least(&hw, &borrowed(&mesh), Move::Gather, axis))?;
    let ring = changed("tpu-v5e", &[("full-axis-16", "always")]);
    figure(fact, "bidirectional_us", us(moved(&ring, &borrowed(&mesh), Move::Gather, axis, bytes)))
}

fn reduce_on_a_line(fact: &Value) -> Result<(), String> {
    let (hw, mesh, dims) = (chip_of(fact), mesh_of(fact), &fact["inputs"]["dims"]);
    let dim = |name: &str| dims[name].as_f64().unwrap_or_default();
    let (rows, size) = (dim("I") / mesh[0].1 as f64, mesh[1].1 as f64);
    let flops = 2.0 * rows * dim("J") / size * dim("K");
    figure(fact, "math_us", compute_time(&hw, &work(flops, 0.0)).seconds() * 1e6)?;
    let bytes = rows * dim("K") * input(fact, "bytes");
    figure(fact, "comm_us", us(moved(&hw, &borrowed(&mesh), Move::Reduce, "y", bytes as u64)))
}

/// The two layers of `book-shard-q7-memory`, 8192 by 32768 in bf16, on a 2x2.
fn two_layers(fact: &Value) -> Result<(), String> {
    let hw = named("tpu-v5e");
    let weights = 2.0 * 8192.0 * 32768.0 / 4.0;
    let work = work(2.0 * input(fact, "batch") * weights, 2.0 * weights);
    figure(fact, "flops_us", compute_time(&hw, &work).seconds() * 1e6)?;
    figure(fact, "hbm_us", memory_time(&hw, &work).seconds() * 1e6)
}

fn gather_or_scatter(fact: &Value) -> Result<(), String> {
    let hw = named("tpu-v4-flat");
    let bytes = |a: &str, b: &str| (input(fact, a) * input(fact, b)) as u64;
    let gathered = moved(&hw, &[("x", 4)], Move::Gather, "x", bytes("N", "M")).wire_bytes.0 as f64;
    let scattered =
        moved(&hw, &[("x", 4)], Move::Scatter, "x", bytes("N", "K")).wire_bytes.0 as f64;
    figure(fact, "ratio", gathered / scattered)
}

/// Scalars over one link: on a line they go one way, on a ring both.
fn gather_and_exchange(fact: &Value) -> Result<(), String> {
    let (line, ring) = (
        changed("tpu-v5e", &[("full-axis-16", "never")]),
        changed("tpu-v5e", &[("full-axis-16", "always")]),
    );
    let (devices, side) = (input(fact, "D") as u64, input(fact, "N") as u64);
    let mesh = [("x", devices)];
    // A scalar counts as a thousand bytes, so that latency is negligible.
    let over_link = |hw: &Hardware, kind: Move, scalars: u64| {
        moved(hw, &mesh, kind, "x", scalars * 1000).time.seconds() * links(hw).0 as f64 / 1000.0
    };
    let gathered = over_link(&ring, Move::Gather, side * side);
    figure(fact, "allgather_uni", over_link(&line, Move::Gather, side * side))?;
    figure(fact, "allgather_bidi", gathered)?;
    figure(
        fact,
        "asymptotic_ratio_bidi",
        gathered / over_link(&ring, Move::Exchange, side * side / devices),
    )
}

fn profiled_scatter(fact: &Value) -> Result<(), String> {
    let hw = changed("tpu-v5e", &[("full-axis-16", "always"), ("4.5e10", "6e10")]);
    same("two links are", (2 * links(&hw).0) as f64, input(fact, "bw_bidi"))?;
    let local: u64 = fact["inputs"]["local_in"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .product();
    let cost = moved(
        &hw,
        &[("m", input(fact, "K") as u64)],
        Move::Scatter,
        "m",
        local * input(fact, "bytes") as u64,
    );
    figure(fact, "shard_bytes", cost.bytes.0 as f64)?;
    figure(fact, "ms", us(cost) / 1e3)
}

/// The number of messages of an all-to-all behind switches: its latency divided by that of one
/// message.
fn partners(fact: &Value) -> Result<(), String> {
    let hw = changed("h100", &[("2e-6", "1e-3")]);
    let messages = |devices: u64| least(&hw, &[("x", devices)], Move::Exchange, "x") / 1e3;
    if fact["expected"]["p256_L8"].is_object() {
        return figure(fact, "p256_L8", messages(256 / 8));
    }
    let (all, sliced) = (input(fact, "p") as u64, input(fact, "L") as u64);
    figure(fact, "members_baseline", messages(all))?;
    figure(fact, "members_optimized", messages(all / sliced))
}

fn longest_ways(fact: &Value) -> Result<(), String> {
    let mesh = [("x", input(fact, "N") as u64)];
    figure(fact, "torus", least(&named("tpu-v5e"), &mesh, Move::Gather, "x"))?;
    figure(
        fact,
        "line",
        least(&changed("tpu-v5e", &[("full-axis-16", "never")]), &mesh, Move::Gather, "x"),
    )
}

fn arithmetic(fact: &Value) -> Result<(), String> {
    for (name, chip, peak) in [("h100_ms", "h100", "989e12"), ("v6e_ms", "tpu-v6e", "9.20e14")] {
        // Part 1 of the book has 9.1e14 for v6e where its table has 9.2e14.
        let key = name.trim_end_matches("_ms");
        let hw = changed(chip, &[(peak, &format!("{:e}", input(fact, key)))]);
        figure(fact, name, compute_time(&hw, &work(input(fact, "flops"), 0.0)).seconds() * 1e3)?;
    }
    Ok(())
}

/// The time in which a slice reads the bytes of a step.
fn loads(fact: &Value) -> Result<(), String> {
    let inputs = &fact["inputs"];
    let given = |name: &str| inputs[name].as_f64();
    let chips = given("chips").unwrap_or(1.0);
    let hw = changed("tpu-v5e", &[("8.1e11", &format!("{:e}", input(fact, "hbm_bw")))]);
    let each = given("bytes").filter(|bytes| *bytes <= 8.0);
    let weights = given("params_bytes").or(given("params").map(|p| p * each.unwrap_or(1.0)));
    let weights = weights.or(given("bytes")).or(given("hbm")).ok_or("nothing to read")?;
    let batch = given("batch").unwrap_or(0.0);
    let sequence = given("kv_per_sequence")
        .or(given("kv_per_token").map(|k| k * input(fact, "context")))
        .unwrap_or(0.0);
    let ms = |flops: f64, read: f64| {
        let work = work(flops / chips, read / chips);
        (compute_time(&hw, &work).seconds() * 1e3, memory_time(&hw, &work).seconds() * 1e3)
    };
    let (flops, memory) = ms(2.0 * batch * weights, weights + batch * sequence);
    let expected = &fact["expected"];
    if expected["flops_ms"].is_object() {
        // The matrices are bound by arithmetic, attention by memory.
        let (_, caches) = ms(0.0, batch * sequence);
        figure(fact, "kv_ms", caches)?;
        figure(fact, "flops_ms", flops)?;
        return figure(fact, "ms", caches + flops);
    }
    if expected["fits"].is_boolean() {
        let fits = weights + batch * sequence <= input(fact, "hbm_total");
        same("fits", Some(fits), expected["fits"].as_bool())?;
    }
    let name = if expected["step_ms"].is_object() { "step_ms" } else { "ms" };
    figure(fact, name, memory)
}

fn profiled_layer(fact: &Value) -> Result<(), String> {
    let hw = changed("tpu-v5e", &[("1.97e14", &format!("{:e}", input(fact, "flops")))]);
    let shape: f64 = fact["inputs"]["shape"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .product();
    figure(
        fact,
        "ms",
        compute_time(&hw, &work(2.0 * shape / input(fact, "cores"), 0.0)).seconds() * 1e3,
    )
}

/// The weights of a layer in host memory, on so many GPUs: each fetches its part, and the parts are
/// gathered.
fn parts_fetched_from_the_host(fact: &Value) -> Result<(), String> {
    let (gpus, layer) = (input(fact, "G"), input(fact, "layer_bytes"));
    let width = (layer / 24.0).sqrt();
    let fetched = |gpus: f64| -> Result<(f64, f64), String> {
        let source = format!(
            "mesh x={gpus}\ndim B = 16384\ndim E = {width}\ndim F = 12 * E\n\
             layer f(x: bf16 B_xE, w: weight host bf16 EF) -> bf16 B_xF {{ return einsum(x, w -> \
             BF) }}\n"
        );
        let gpu = crate::facts::priced::priced(&source, &named("a100-80g")).remove(0);
        let is_fetch = |id: &shard_ir::InstrId| {
            matches!(gpu.plan.instruction(*id).kind, shard_ir::InstrKind::Op(shard_ir::Op::Fetch))
        };
        let fetch = gpu.plan.ids().find(is_fetch).ok_or("nothing is fetched")?;
        let shard_cost::InstrPrice::Kernel { time, .. } = gpu.price.of(fetch) else {
            return Err("a free fetch".into());
        };
        Ok((gpu.plan.local_bytes(fetch) as f64, time.seconds()))
    };
    let ((bytes, seconds), (all, alone)) = (fetched(gpus)?, fetched(1.0)?);
    figure(fact, "bytes_per_gpu", bytes)?;
    same("all of it", all, layer)?;
    let scaling =
        if (alone / seconds / gpus - 1.0).abs() < 0.01 { "near linear" } else { "not linear" };
    same("scaling", Some(scaling), fact["expected"]["scaling"].as_str())
}
