//! Facts that have forms of their own.

use serde_json::Value;
use shard_cost::Hardware;
use shard_ir::{InstrId, Plan};
use shard_search::{LowerError, LowerOptions, lower};
use shard_snapshots::judge::{compile, hardware, judge, lower_all, moves};

use crate::facts::Check;
use crate::facts::program::{
    dim_lines, entries, error_codes, mesh_line, named, number, one_parameter, same,
};

/// The facts of this file, by id.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("esti-order-xy-wg", weights_gathered_out_of_order),
    ("book-val-ag-major", gather_of_the_major_axis),
    ("book-shard-order", order_of_subscripts),
    ("esti-shared-weight-layout", one_stored_layout_for_all_forms),
    ("esti-val-partial-times-partial", partial_times_partial),
    ("pt-t1-rule", hidden_dim_on_one_axis),
    ("book-train-context-par", tokens_split_over_batch_and_sequence),
    ("book-app-q6", ways_to_split_the_batch),
    ("book-inf-step10", merge_of_split_dims),
    ("book-prof-einsum-transposed", einsum_with_its_result_transposed),
    ("book-prof-q1", shard_of_a_profiled_weight),
    ("book-train-bwd-appB", shapes_of_gradients),
    ("book-jax-p1", mean_of_each_shard),
    ("ds-tp-allreduce", all_reduces_of_a_tensor_parallel_layer),
    ("pt-gqa-equal", heads_held_twice),
    ("book-hw-mxu-tile", narrow_products),
    ("book-inf-gen-rules", strategies_of_generation),
    ("book-jax-cm-equal", loop_of_chunks),
];

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A tensor that enters in one layout and leaves in another, on a mesh.
fn moved(from: &str, to: &str, mesh: &Value) -> Plan {
    let header = format!("{}{}", mesh_line(mesh), dim_lines([from], &Value::Null, mesh));
    let source = format!("{header}layer f(t: f32 {from}) -> f32 {to} {{ return t }}\n");
    let plan = lower_all(&source).remove(0);
    judge(&plan, 3).expect("a reshard is right");
    plan
}

/// Whether a tensor goes from one layout to another by these gathers only: otherwise the data of a
/// device would not be contiguous.
fn by_gathers_alone(from: &str, to: &str, axes: &str, mesh: &Value) -> bool {
    let plan = moved(from, to, mesh);
    let mut gathered: Vec<char> = moves(&plan).iter().flat_map(|(_, m)| m.axes.chars()).collect();
    gathered.sort_unstable();
    moves(&plan).iter().all(|(_, m)| m.op == "all-gather")
        && gathered.iter().collect::<String>() == axes
}

fn weights_gathered_out_of_order(fact: &Value) -> Result<(), String> {
    let mesh = serde_json::json!({"x": 4, "y": 4, "z": 4});
    let (stored, target) = (text(&fact["inputs"], "layout"), text(&fact["inputs"], "target"));
    let expected = &fact["expected"];
    same(
        "contiguous",
        Some(by_gathers_alone(stored, target, "xy", &mesh)),
        expected["contiguous"].as_bool(),
    )?;
    same(
        "contiguous if",
        by_gathers_alone(text(expected, "contiguous_if_layout"), target, "xy", &mesh),
        true,
    )
}

fn gather_of_the_major_axis(fact: &Value) -> Result<(), String> {
    let mesh = serde_json::json!({"x": 2, "y": 2});
    let (stored, target) = (text(&fact["inputs"], "layout"), text(&fact["inputs"], "target"));
    let found = by_gathers_alone(stored, target, "x", &mesh);
    same("contiguous", Some(found), fact["expected"]["contiguous"].as_bool())?;
    let other = "I_yxJ";
    if !text(&fact["expected"], "needs").contains(other) {
        return Err("the fact names another way out".to_string());
    }
    same("by the other order", by_gathers_alone(other, target, "x", &mesh), true)
}

/// Two orders are the same layout only if nothing has to move between them.
fn order_of_subscripts(fact: &Value) -> Result<(), String> {
    let layouts: Vec<&str> = fact["inputs"]["layouts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let plan = moved(layouts[0], layouts[1], &fact["inputs"]["mesh"]);
    let ops: Vec<String> = moves(&plan).into_iter().map(|(_, m)| m.op).collect();
    same("equal", Some(ops.is_empty()), fact["expected"]["equal"].as_bool())?;
    // The blocks that change places are those whose numbers differ between the two orders.
    let blocks = |order: &str| -> Vec<(String, u64)> { entries(&fact["expected"][order]) };
    let differ = blocks("I_xy").iter().zip(&blocks("I_yx")).filter(|(a, b)| a != b).count();
    let devices = plan.mesh.devices();
    let report = judge(&plan, 3)?;
    let bytes: u64 = report.collectives.iter().map(|c| c.total_bytes).sum();
    same("devices that send their block", bytes / plan.local_bytes(InstrId(0)), differ as u64)?;
    same("devices in all", devices, 4)
}

fn feed_forward(tokens: (u64, u64), boundary: &str, stored: &str) -> String {
    let (b, l) = tokens;
    let out: String = {
        let (e, f) = stored.split_once('F').unwrap_or_default();
        format!("F{f}{e}")
    };
    format!(
        "mesh x=4, y=4, z=4\ndim B = {b}\ndim L = {l}\ndim E = 18432\ndim F = 4 * E\n\
         layer mlp(x: bf16 {boundary}, w_in: weight bf16 {stored}, w_out: weight bf16 {out}) -> \
         bf16 {boundary} {{\n\
           return einsum(gelu(einsum(x, w_in -> BLF)), w_out -> BLE)\n}}\n"
    )
}

/// Decoding and prefill of every size start from one stored layout; only the axes that are gathered
/// differ.
fn one_stored_layout_for_all_forms(fact: &Value) -> Result<(), String> {
    let stored = text(&fact["inputs"], "stored");
    let mut gathered = Vec::new();
    for tokens in [(512, 1), (16, 2048), (1024, 2048)] {
        let plan = lower_all(&feed_forward(tokens, "BLE?l", stored)).remove(0);
        let w_in = plan
            .ids()
            .find(|id| plan.instruction(*id).name.as_deref() == Some("w_in"))
            .ok_or("no w_in")?;
        same("the stored layout", plan.layout_text(w_in), stored.to_string())?;
        let mut axes: Vec<char> = moves(&plan)
            .iter()
            .filter(|(id, m)| {
                m.op == "all-gather" && plan.instruction(*id).name.as_deref() == Some("w_in")
            })
            .flat_map(|(_, m)| m.axes.chars())
            .collect();
        axes.sort_unstable();
        gathered.push(axes.iter().collect::<String>());
    }
    let allowed = text(&fact["expected"], "constraint");
    for axes in gathered.iter().filter(|axes| !axes.is_empty()) {
        if !allowed.split(['{', '}']).nth(1).unwrap_or_default().split(", ").any(|a| a == axes) {
            return Err(format!("weights gathered over {axes}, which is not in: {allowed}"));
        }
    }
    same("shared", Some(gathered.len() == 3), fact["expected"]["shared"].as_bool())
}

fn partial_times_partial(fact: &Value) -> Result<(), String> {
    let (a, b) = (text(&fact["inputs"], "a"), text(&fact["inputs"], "b"));
    let mesh = serde_json::json!({"x": 4});
    let header = format!("{}{}", mesh_line(&mesh), dim_lines([a, b], &Value::Null, &mesh));
    for (expr, to) in [("einsum(a, b -> BF)", "BF(partialsum-x)"), ("a * b", "BEF(partialsum-x)")] {
        let source = format!(
            "{header}layer f(a: f32 {a}, b: f32 {b}) -> f32 {to} {{\n  let c: {to} = {expr}\n  \
                return c\n}}\n"
        );
        let codes = error_codes(&source);
        same("legal", Some(codes.is_empty()), fact["expected"]["legal"].as_bool())?;
        same("the code", codes.contains(&"E0502"), true)?;
    }
    Ok(())
}

/// Over which axis each weight of the table splits its hidden dim.
fn hidden_dim_on_one_axis(fact: &Value) -> Result<(), String> {
    let sizes = serde_json::json!({"V": 32000, "E": 8192, "H": 8192, "K": 1024, "F": 28672});
    let mesh = serde_json::json!({"d": 32, "m": 4});
    let expected = &fact["expected"];
    for (name, row) in fact["inputs"]["rows"].as_object().into_iter().flatten() {
        let layout = row[0].as_str().unwrap_or_default();
        let plan = lower_all(&one_parameter(layout, &sizes, &mesh, "bf16")).remove(0);
        let t = plan.instruction(InstrId(0));
        let at = plan.dim_names(&t.dims).iter().position(|d| *d == "E").ok_or("no hidden dim")?;
        let axes = plan.mesh.axes_text(t.layout.axes_of(at).iter());
        let key = if row[1] == true { "hidden_axis_qkvo" } else { "hidden_axis_default" };
        same(name, axes.as_str(), text(expected, key))?;
    }
    Ok(())
}

fn tokens_split_over_batch_and_sequence(fact: &Value) -> Result<(), String> {
    let inputs = &fact["inputs"];
    let layout = text(inputs, "layout");
    let mut sizes = inputs["dims"].clone();
    sizes["F"] = Value::from(4096);
    let header = format!(
        "{}{}",
        mesh_line(&inputs["mesh"]),
        dim_lines([layout, "F"], &sizes, &inputs["mesh"])
    );
    let source = format!(
        "{header}layer mlp(x: bf16 {layout}, v: weight bf16 DF, w: weight bf16 FD) -> bf16 \
            {layout} {{\n  \
         return einsum(gelu(einsum(x, v -> BTF)), w -> BTD)\n}}\n"
    );
    same("legal", Some(error_codes(&source).is_empty()), fact["expected"]["legal"].as_bool())?;
    let stated = fact["expected"]["mlp_collectives"].as_array().map(Vec::len);
    same("collectives", Some(moves(&lower_all(&source)[0]).len()), stated)
}

/// A batch of whole sequences splits as many ways as there are sequences.
fn ways_to_split_the_batch(fact: &Value) -> Result<(), String> {
    let (inputs, expected) = (&fact["inputs"], &fact["expected"]);
    let tokens = inputs["tokens"].as_u64().unwrap_or(0);
    let legal = |sequences: u64, ways: u64| {
        error_codes(&one_parameter(
            "B_xL",
            &serde_json::json!({"B": sequences, "L": 8}),
            &serde_json::json!({"x": ways}),
            "bf16",
        ))
        .is_empty()
    };
    for (length, most) in [("seq_answer", "max_dp_at_4096"), ("seq_problem", "max_dp_at_8192")] {
        let sequences = tokens / inputs[length].as_u64().unwrap_or(1);
        let ways = number(&expected[most]).unwrap_or(0);
        same(
            "the largest split",
            (legal(sequences, ways), legal(sequences, 2 * ways)),
            (true, false),
        )?;
        same("8960 ways", Some(legal(sequences, 8960)), expected["legal_8960_way"].as_bool())?;
    }
    Ok(())
}

/// Two split dims merge without a transfer where the merged dim has the same blocks.
fn merge_of_split_dims(fact: &Value) -> Result<(), String> {
    let inputs = &fact["inputs"];
    let (from, to) = (text(inputs, "layout_in"), text(inputs, "layout_out"));
    let free = |k: u64, m: u64, mesh: &Value| {
        let sizes = serde_json::json!({"B": 2, "H": 2, "K": k, "M": m, "N": k * m});
        let header = format!("{}{}", mesh_line(mesh), dim_lines([from, to], &sizes, mesh));
        let source = format!(
            "{header}strict layer f(o: f32 {from}) -> f32 {to} {{ return merge(o, KM -> N) }}\n"
        );
        match lower(&compile(&source)[0], &hardware(), &LowerOptions::default()) {
            Ok(_) => Ok(true),
            Err(LowerError::Strict { .. }) => Ok(false),
            Err(other) => Err(format!("{other}\n{source}")),
        }
    };
    let (k, m) = (inputs["K"].as_u64().unwrap_or(0), inputs["M"].as_u64().unwrap_or(0));
    same("legal", Some(free(k, m, &inputs["mesh"])?), fact["expected"]["legal"].as_bool())?;
    // legal_iff: |Y| == K (or |Z| == 1)
    let z = inputs["mesh"]["z"].as_u64().unwrap_or(1);
    same("with |Y| = K", free(k, m, &serde_json::json!({"y": k, "z": z}))?, true)?;
    same("with |Z| = 1", free(k, m, &serde_json::json!({"y": inputs["mesh"]["y"], "z": 1}))?, true)
}

fn einsum_with_its_result_transposed(fact: &Value) -> Result<(), String> {
    let inputs = &fact["inputs"];
    let (operands, result) = text(inputs, "spec").split_once("->").ok_or("no spec")?;
    let (left, right) = operands.split_once(',').ok_or("no operands")?;
    let dtypes: Vec<&str> =
        inputs["dtypes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let stated = text(&fact["expected"], "dtype");
    let source = format!(
        "{}layer f(a: {} {left}, b: {} {right}) -> {stated} {result} {{ return einsum(a, b -> \
            {result}) }}\n",
        dim_lines([left, right], &inputs["dims"], &Value::Null),
        dtypes[0],
        dtypes[1],
    );
    let plan = lower_all(&source).remove(0);
    let (output, shape) = (&plan.outputs[0], fact["expected"]["shape"].as_array());
    let sizes: Vec<u64> = shape.into_iter().flatten().filter_map(Value::as_u64).collect();
    same("the shape", plan.sizes(&output.dims), sizes)?;
    same("the dtype", plan.instruction(output.id).dtype.name(), stated)?;
    judge(&plan, 4).map(|_| ())
}

fn shard_of_a_profiled_weight(fact: &Value) -> Result<(), String> {
    let (inputs, expected) = (&fact["inputs"], &fact["expected"]);
    let ways = number(&expected["ways"]).unwrap_or(0);
    let (devices, stride) =
        (number(&expected["devices"]).unwrap_or(0), number(&expected["stride"]).unwrap_or(0));
    let group: Vec<u64> =
        inputs["group"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    same("members of the group", group.len() as u64, ways)?;
    let list = |v: &Value| -> Vec<u64> {
        v.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let full = list(&expected["full"]);
    let sizes = serde_json::json!({"F": full[0], "D": full[1]});
    let mesh = serde_json::json!({"m": ways, "r": devices / ways});
    // serde sorts names: m before r, so the model axis is the major one, as its stride says.
    let plan = lower_all(&one_parameter("F_mD", &sizes, &mesh, "bf16")).remove(0);
    same("the local shape", plan.local_sizes(InstrId(0)), list(&inputs["local"]))?;
    let minor: u64 = plan.mesh.axes().iter().skip(1).map(|a| a.size).product();
    same("the stride of the major axis", (minor, group[1] - group[0]), (stride, stride))
}

/// Each gradient has its weight's dims; the source prints other dims for one of them.
fn shapes_of_gradients(fact: &Value) -> Result<(), String> {
    let dims_of = |text: &str| -> Vec<String> {
        text.split('[')
            .skip(1)
            .filter_map(|t| t.split(']').next())
            .map(|t| t.replace(',', ""))
            .collect()
    };
    let weights =
        [("dWout", "FD"), ("dTmp", "BF"), ("dWin", "DF"), ("dIn", "BD"), ("doc_dWin", "DF")];
    for (name, result) in weights {
        let formula = text(&fact["expected"], name);
        let dims = dims_of(formula);
        let [a, b] = dims.as_slice() else {
            return Err(format!("{name}: not two factors: {formula}"));
        };
        let source = format!(
            "dim B = 4\ndim D = 8\ndim F = 16\nlayer f(a: f32 {a}, b: f32 {b}) -> f32 {result} {{ \
                return einsum(a, b -> {result}) }}\n"
        );
        same(name, error_codes(&source).is_empty(), !name.starts_with("doc_"))?;
    }
    Ok(())
}

fn mean_of_each_shard(fact: &Value) -> Result<(), String> {
    let (from, out) = (text(&fact["inputs"], "A"), text(&fact["inputs"], "out"));
    // The result's first dim numbers the shards: as many as x has devices. Dims are upper case
    // here: X is free for it.
    let source = format!(
        "mesh x=4, y=2\ndim S = 32\ndim D = 8\ndim X = 4\ndim T = 8\n\
         layer f(a: f32 {from}) -> f32 {out} {{ return mean(split(a, S -> XT) over T) }}\n"
    );
    let plan = lower_all(&source).remove(0);
    judge(&plan, 5)?;
    let stated = fact["expected"]["collectives"].as_array().map(Vec::len);
    same("collectives", Some(moves(&plan).len()), stated)
}

/// A transformer layer whose weights are split over heads and over the feed-forward dim, its
/// activations replicated.
fn all_reduces_of_a_tensor_parallel_layer(fact: &Value) -> Result<(), String> {
    let source = "mesh x=4\ndim B = 4\ndim L = 8\ndim S = 8\ndim E = 16\ndim H = 8\ndim Q = \
        4\ndim F = 64\n\
        layer block(x: f32 BLE, w_q: weight f32 EH_xQ, w_k: weight f32 EH_xQ, w_v: weight f32 \
        EH_xQ,\n\
                    w_o: weight f32 H_xQE, w_in: weight f32 EF_x, w_out: weight f32 F_xE) -> f32 \
                    BLE {\n\
          let q: BLH_xQ = einsum(x, w_q -> BLHQ)\n\
          let k: BSH_xQ = rename(einsum(x, w_k -> BLHQ), L -> S)\n\
          let v: BSH_xQ = rename(einsum(x, w_v -> BLHQ), L -> S)\n\
          let p: BLH_xS = softmax(einsum(q, k -> BLHS) over S)\n\
          let o: BLE = einsum(einsum(p, v -> BLHQ), w_o -> BLE)\n\
          let r = x + o\n\
          let h: BLF_x = gelu(einsum(r, w_in -> BLF))\n\
          let y: BLE = einsum(h, w_out -> BLE)\n\
          return r + y\n}\n";
    let plan = lower_all(source).remove(0);
    judge(&plan, 6)?;
    let found = moves(&plan);
    same("all moves are all-reduces", found.iter().all(|(_, m)| m.op == "all-reduce"), true)?;
    same("all-reduces", Some(found.len() as u64), number(&fact["expected"]["all_reduces"]))?;
    let last = |name: &str| named(&plan, name).map(|id| plan.layout_text(id));
    let places = fact["expected"]["where"].as_array().map(Vec::len);
    same("places", places, Some(2))?;
    same("after the projections", (last("o"), last("y")), (Some("BLE".into()), Some("BLE".into())))
}

/// Grouped-query attention with more devices than heads of keys and values: each head is on several
/// devices.
fn heads_held_twice(fact: &Value) -> Result<(), String> {
    let (heads, shards) = (number(&fact["inputs"]["kv_heads"]), number(&fact["inputs"]["shards"]));
    let (heads, shards) = heads.zip(shards).ok_or("no numbers")?;
    let source = format!(
        "mesh x={heads}, r={}\ndim B = 2\ndim S = 4\ndim K = {heads}\ndim G = 4\ndim D = 2\n\
         strict layer f(q: f32 BK_xG_rD, k: f32 BSK_xD, v: f32 BSK_xD) -> f32 BK_xG_rD {{\n\
           let p = softmax(einsum(q, k -> BKGS) over S)\n  return einsum(p, v -> BKGD)\n}}\n",
        shards / heads
    );
    let plan = lower_all(&source).remove(0);
    same("shards", plan.mesh.devices(), shards)?;
    same("moves", moves(&plan).len(), 0)?;
    same("heads on a device", plan.local_sizes(InstrId(1))[2], 1)?;
    same("equal", Some(judge(&plan, 7)?.equal), fact["expected"]["equal"].as_bool())
}

/// On a chip that states the side of its multiplier, a product of narrower matrices takes as long
/// as a product that fills the multiplier.
fn narrow_products(fact: &Value) -> Result<(), String> {
    let narrow = number(&fact["inputs"]["local_dim"]).ok_or("no size")?;
    for (name, tile) in entries(&fact["expected"]["min_side"]) {
        // Memory takes no time: the fact is about the multiplier.
        let chip = Hardware::parse(&format!(
            "name = \"{name}\"\n[chip]\nflops = {{ bf16 = 1e14 }}\nmatmul_tile = \
                {tile}\nhbm_bytes = 1000000000000\n\
             hbm_bandwidth = 1e18\n[network]\nkind = \"flat\"\nbandwidth = 1e9\n"
        ));
        let chip = chip.map_err(|error| error.to_string())?;
        let seconds = |side: u64| {
            let source = format!(
                "dim B = 8192\ndim D = 8192\ndim F = {side}\n\
                 layer f(a: bf16 BD, w: weight bf16 DF) -> bf16 BF {{ return einsum(a, w -> BF) \
                 }}\n"
            );
            shard_cost::price(&lower_all(&source)[0], &chip).totals.serial_time.0 as f64
        };
        let waste = tile as f64 / narrow as f64 * seconds(narrow) / seconds(tile);
        let stated = fact["expected"][name.replace("tpu_", "padding_waste_")]["value"].as_f64();
        same(&name, Some((waste * 1000.0).round() / 1000.0), stated)?;
        same("efficient", Some(waste < 1.001), fact["expected"]["efficient"].as_bool())?;
    }
    Ok(())
}

/// A layer that makes one token in a step for each of many sequences, with everything but the sizes
/// left to the compiler.
fn strategies_of_generation(fact: &Value) -> Result<(), String> {
    let source = "mesh y=8, z=4\ndim B = 128\ndim L = 1\ndim S = 8192\ndim E = 8192\ndim K = \
        8\ndim G = 8\n\
        dim D = 128\ndim F = 28672\n\
        layer block(x: bf16 BLE?l, wq: weight bf16 EKGD?, wk: weight bf16 EKD?, wv: weight bf16 \
        EKD?,\n\
                    wo: weight bf16 KGDE?, w_gate: weight bf16 EF?, w_up: weight bf16 EF?, \
                    w_down: weight bf16 FE?,\n\
                    keys: cache bf16 BSKD?c, values: cache bf16 BSKD?c) -> bf16 BLE?l repeat 80 {\n\
          let h = rmsnorm(x over E)\n\
          let q = einsum(h, wq -> BLKGD)\n\
          let k1 = append(keys, einsum(h, wk -> BLKD), L -> S)\n\
          let v1 = append(values, einsum(h, wv -> BLKD), L -> S)\n\
          let p = softmax(einsum(q, k1 -> BKGLS) over S)\n\
          let a = x + einsum(einsum(p, v1 -> BLKGD), wo -> BLE)\n\
          let n = rmsnorm(a over E)\n\
          let f = silu(einsum(n, w_gate -> BLF)) * einsum(n, w_up -> BLF)\n\
          return a + einsum(f, w_down -> BLE)\n}\n";
    let chip = Hardware::built_in("tpu-v5p-face").ok_or("no such chip")?;
    let lowered = lower(&compile(source)[0], &chip, &LowerOptions::default())
        .map_err(|error| error.to_string())?;
    let found: Vec<&str> =
        shard_report::strategy::strategy(&lowered.plan).iter().map(|s| s.name()).collect();
    let expected = &fact["expected"];
    let has = |names: &[&str]| Some(found.iter().any(|name| names.contains(name)));
    same(
        "fsdp",
        has(&["fsdp", "x-weight-gathered", "xy-weight-gathered"]),
        expected["fsdp"].as_bool(),
    )?;
    same(
        "over the sequence",
        has(&["sequence-sharded-attention"]),
        expected["sequence_parallel"].as_bool(),
    )?;
    let tensor_parallel = ["1d-weight-stationary", "2d-weight-stationary"];
    same("tensor parallel", has(&tensor_parallel), expected["tensor_parallel"].as_bool())?;
    same(
        "caches over the batch",
        has(&["batch-sharded-attention"]),
        expected["kv_batch_sharding"].as_bool(),
    )?;
    same("data parallel alone", has(&["data-parallel"]), Some(false))
}

/// A gather and a product, and the loop that passes the chunks round while they are multiplied.
fn loop_of_chunks(fact: &Value) -> Result<(), String> {
    let source = format!(
        "{}dim B = 64\ndim D = 16\ndim F = 64\n\
         layer f(a: f32 B_yD, w: weight f32 DF_y) -> f32 BF_y {{ return einsum(a, w -> BF) }}\n",
        mesh_line(&fact["inputs"]["mesh"])
    );
    let of = |fuse: bool| {
        let options = LowerOptions { fuse, ..LowerOptions::default() };
        lower(&compile(&source)[0], &hardware(), &options)
            .map(|lowered| lowered.plan)
            .map_err(|e| e.to_string())
    };
    let (naive, looped) = (of(false)?, of(true)?);
    let ops = |plan: &Plan| -> Vec<String> {
        let all = plan.ids().map(|id| plan.instruction(id));
        let made = all.filter(|instr| !matches!(instr.kind, shard_ir::InstrKind::Parameter(_)));
        made.map(|instr| instr.kind.name().to_string()).collect()
    };
    same("naive", ops(&naive), vec!["all-gather".to_string(), "einsum".to_string()])?;
    same("looped", ops(&looped), vec!["collective-einsum".to_string()])?;
    // Whole numbers: equal to the unsharded program means equal to each other.
    let (naive, looped) = (judge(&naive, 8)?, judge(&looped, 8)?);
    same("exact", (naive.exact, looped.exact), (true, true))?;
    same("equal", Some(naive.equal && looped.equal), fact["expected"]["equal"].as_bool())
}
