//! Facts of mixtures of experts: their parameters, their flops, and their moves.

use serde_json::Value;
use shard_cost::{InstrPrice, price};
use shard_ir::{InstrKind, Op, ParameterKind, Plan};
use shard_snapshots::judge::{judge, lower_all, moves};

use crate::facts::Check;
use crate::facts::priced::{chip, figure, input, priced};
use crate::facts::program::{entries, named, same};

/// The facts of this file, by id.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("book-xfm-moe", experts_beside_one),
    ("book-jax-p2", tokens_go_to_their_experts),
    ("ds-t2-2.4b+moe-128", parameters),
    ("ds-t2-47b+moe-128", parameters),
];

/// The checks of facts whose ids end alike.
pub(crate) fn by_suffix(id: &str) -> Option<Check> {
    (id.starts_with("ds-t2-") && id.ends_with("-mesh")).then_some(devices)
}

/// Experts over z, each of which takes its share of the tokens of every group, and a feed-forward
/// layer of their dims.
fn experts(count: u64, chosen: u64) -> String {
    format!(
        "mesh z=4\ndim G = 8\ndim T = 32\ndim X = {count}\ndim C = {chosen} * T / X\ndim E = \
            16\ndim F = 64\n\
         layer moe(x: f32 G_zTE, gate: weight f32 EX, up: weight f32 X_zEF, down: weight f32 \
         X_zFE) -> f32 G_zTE {{\n\
           let g = softmax(einsum(x, gate -> GTX) over X)\n\
           let sent = route(g over X at T -> C, {chosen})\n\
           let there: X_zGCE = einsum(sent, x -> XGCE)\n\
           let h = relu(einsum(there, up -> XGCF))\n\
           let done: X_zGCE = einsum(h, down -> XGCE)\n\
           return einsum(sent * g, done -> GTE)\n}}\n\
         layer dense(x: f32 G_zTE, up: weight f32 EF, down: weight f32 FE) -> f32 G_zTE {{\n\
           let h = relu(einsum(x, up -> GTF))\n\
           let done = einsum(h, down -> GTE)\n\
           return done\n}}\n"
    )
}

/// The flops of the einsum that makes a value, or, for the result of a map, of the einsum that
/// makes its operand.
fn flops(plan: &Plan, name: &str) -> u128 {
    let price = price(plan, &chip(&[]));
    let made = named(plan, name).map(|id| match plan.instruction(id).kind {
        InstrKind::Op(Op::Map(_)) => plan.instruction(id).operands[0],
        _ => id,
    });
    match made.map(|id| price.of(id)) {
        Some(InstrPrice::Kernel { flops, .. }) => flops.0,
        _ => 0,
    }
}

fn experts_beside_one(fact: &Value) -> Result<(), String> {
    let expected = &fact["expected"];
    for (count, chosen) in [(8, 1), (8, 2), (16, 4)] {
        let [moe, dense] =
            <[Plan; 2]>::try_from(lower_all(&experts(count, chosen))).map_err(|_| "two layers")?;
        let elements = |plan: &Plan, name: &str| {
            named_parameter(plan, name)
                .map(|id| plan.sizes(&plan.instruction(id).dims).iter().product::<u64>())
        };
        let weights = |plan: &Plan| Some(elements(plan, "up")? + elements(plan, "down")?);
        same("parameters", weights(&moe), weights(&dense).map(|n| n * count))?;
        same("the factor of parameters", expected["params_factor"].as_str(), Some("E"))?;
        // The flops of a token, where every expert has its share of the tokens.
        let (active, one) = (expert_flops(&moe), expert_flops(&dense));
        same("flops", active, one * u128::from(chosen))?;
        same("the factor of active parameters", expected["active_factor"].as_str(), Some("k"))?;
        let moved: Vec<String> =
            moves(&moe).into_iter().map(|(_, m)| format!("{} {:?}", m.op, m.dim)).collect();
        same(
            "moves",
            moved,
            vec![r#"all-to-all Some("G to X")"#.into(), r#"all-to-all Some("X to G")"#.into()],
        )?;
        same("collectives", expected["collectives"].as_array().map(Vec::len), Some(2))?;
        judge(&moe, 5)?;
    }
    // On a ring of both directions, an all-to-all takes a quarter of the gather of the same array.
    let source = |to: &str| {
        format!(
            "mesh z=8\ndim G = 65536\ndim X = 8192\nlayer f(a: bf16 G_zX) -> bf16 {to} {{ return \
                a }}\n"
        )
    };
    let ring = shard_cost::Hardware::built_in("tpu-v5p-face").expect("a built-in chip");
    let seconds = |to: &str| price(&lower_all(&source(to))[0], &ring).totals.serial_time.0 as f64;
    let share = seconds("GX_z") / seconds("GX");
    match expected["a2a_cost"].as_str() {
        Some(text) if text.starts_with("1/4 of an AllGather") && (share - 0.25).abs() < 1e-3 => {
            Ok(())
        }
        other => Err(format!("an all-to-all takes {share} of a gather; the fact says {other:?}")),
    }
}

/// The flops of both products of a feed-forward layer. A move of `done` also has this name, and has
/// no flops.
fn expert_flops(plan: &Plan) -> u128 {
    let down = plan.ids().find(|id| {
        let instr = plan.instruction(*id);
        instr.name.as_deref() == Some("done") && matches!(instr.kind, InstrKind::Op(Op::Einsum))
    });
    let price = price(plan, &chip(&[]));
    let of_down = match down.map(|id| price.of(id)) {
        Some(InstrPrice::Kernel { flops, .. }) => flops.0,
        _ => 0,
    };
    flops(plan, "h") + of_down
}

fn named_parameter(plan: &Plan, name: &str) -> Option<shard_ir::InstrId> {
    plan.ids().find(|id| {
        let instr = plan.instruction(*id);
        matches!(instr.kind, InstrKind::Parameter(_)) && instr.name.as_deref() == Some(name)
    })
}

fn tokens_go_to_their_experts(fact: &Value) -> Result<(), String> {
    // The fact's E, D and S are X, E and groups G of tokens T here: the tokens of one group are not
    // split.
    let weight = fact["inputs"]["W"]
        .as_str()
        .map(|w| w.replace('D', "M").replace('E', "X").replace('M', "E"));
    let tokens = fact["inputs"]["A"].as_str().map(|a| a.replace("S_x", "G_xT").replace('D', "E"));
    let (weight, tokens) = weight.zip(tokens).ok_or("no layouts")?;
    let source = format!(
        "mesh x=4, y=2\ndim G = 64\ndim T = 128\ndim X = 16\ndim C = T / X\ndim E = 1024\ndim F = \
            4096\n\
         layer moe(x: f32 {tokens}, gate: weight f32 EX, w: weight f32 {weight}) -> f32 G_xTF_y \
         {{\n\
           let g = softmax(einsum(x, gate -> GTX) over X)\n\
           let sent = route(g over X at T -> C, 1)\n\
           let there = einsum(sent, x -> XGCE)\n\
           return einsum(sent * g, einsum(there, w -> XGCF) -> GTF)\n}}\n"
    );
    let plan = lower_all(&source).remove(0);
    let found = moves(&plan);
    let exchanges = found.iter().filter(|(_, m)| m.op == "all-to-all" && m.axes == "x").count();
    same("all-to-alls of tokens to experts and back", exchanges, 2)?;
    let gathers =
        found.iter().filter(|(_, m)| m.op == "all-gather" && m.axes.contains('x')).count();
    same("gathers over x", gathers, 0)?;
    same(
        "the way to do it",
        fact["expected"]["good"].as_str(),
        Some("all-to-all(x) of tokens to experts and back"),
    )?;
    // No instruction holds every expert's matrix for each token, or each token for every expert.
    for id in plan.ids() {
        let names = plan.dim_names(&plan.instruction(id).dims);
        let has = |dims: &[&str]| dims.iter().all(|d| names.contains(d));
        same(&plan.layout_text(id), has(&["T", "E", "F"]) || has(&["X", "T", "E"]), false)?;
    }
    Ok(())
}

/// A layer of each kind: attention and a feed-forward layer, the second with experts; without
/// biases and norms.
fn parameters(fact: &Value) -> Result<(), String> {
    let (layers, hidden, count) =
        (input(fact, "layers_used"), input(fact, "hidden"), input(fact, "experts"));
    let every = input(fact, "moe_every");
    let of = |experts: f64| {
        let source = format!(
            "dim E = {hidden}\ndim F = 4 * E\ndim H = {hidden}\ndim X = {experts}\ndim T = 1\n\
             layer f(x: bf16 TE, wq: weight bf16 EH, wk: weight bf16 EH, wv: weight bf16 EH, wo: \
             weight bf16 HE,\n\
                     up: weight bf16 XEF, down: weight bf16 XFE) -> bf16 TE repeat {} {{ return x \
                     }}\n",
            layers / every
        );
        priced(&source, &chip(&[]))[0].bytes(ParameterKind::Weight) / 2.0
    };
    figure(fact, "params_billion", (of(1.0) * (every - 1.0) + of(count)) / 1e9)?;
    figure(fact, "dense_billion", of(1.0) * every / 1e9)?;
    figure(fact, "layers", layers)
}

/// Experts over d and p, slices of them over s, tensor slices over p and s: as in `examples/moe`.
fn devices(fact: &Value) -> Result<(), String> {
    let (slices, experts, each) =
        (input(fact, "mp"), input(fact, "ep"), input(fact, "expert_slicing"));
    let gpus = experts * each;
    let mesh = serde_json::json!({"d": gpus / slices, "p": (slices / each).max(1.0), "s": each});
    let axes: Vec<String> = ["d", "p", "s"].iter().map(|a| format!("{a}={}", mesh[a])).collect();
    same("axes", entries(&mesh).len() <= 3, true)?;
    let source = format!(
        "mesh {}\ndim G = {gpus}\ndim X = {experts}\ndim E = 128\ndim F = 512\n\
         layer f(x: bf16 G_dE, up: weight bf16 X_dpEF_s) -> bf16 G_dE {{ return x }}\n",
        axes.join(", ").replace(".0", "")
    );
    let plan = lower_all(&source).remove(0);
    let up = named_parameter(&plan, "up").ok_or("no weight")?;
    figure(fact, "gpus", plan.mesh.devices() as f64)?;
    figure(fact, "experts_per_gpu", plan.local_bytes(up) as f64 / (2.0 * 128.0 * 512.0))?;
    let groups = plan.mesh.axes().iter().find(|axis| axis.name == "d").map_or(1, |axis| axis.size);
    figure(fact, "data_parallel", groups as f64)
}
