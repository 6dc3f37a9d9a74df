//! Facts of flops, rooflines and the cost of layouts: small programs and their prices.

use serde_json::Value;
use shard_cost::hardware::Torus;
use shard_cost::{Bound, Fabric, Hardware, InstrPrice};
use shard_ir::Dtype;

use crate::facts::Check;
use crate::facts::priced::{Priced, chip, figure, input, priced};
use crate::facts::program::{dim_lines, mesh_line};

/// Facts, or figures of facts (`id/figure`), that are not computed, with the reason.
pub(crate) const NOT_COMPUTED: &[(&str, &str)] = &[
    ("esti-f-1dws", "symbols without (K-1)/K; esti-grid-* have figures with it"),
    ("esti-f-2dws", "symbols without (K-1)/K; esti-grid-* have figures with it"),
    ("esti-f-wg-acts", "symbols without (K-1)/K; esti-grid-* have figures with it"),
    ("esti-x-2d-scaling", "ratios without (K-1)/K; esti-grid-* have figures with it"),
    ("book-inf-T-gen", "symbols without (K-1)/K"),
    ("book-inf-q7-T", "symbols without (K-1)/K"),
    ("sum-formulas", "symbols without (K-1)/K; esti-grid-* have figures with it"),
    ("esti-grid-*/time_ms_no_factor", "the cost model keeps (K-1)/K"),
    ("book-roof-dot/at_N8", "counts N-1 additions; the cost model counts N"),
    ("book-hw-vmem", "there is no memory level between HBM and the arithmetic"),
    ("book-xfm-q4", "scores that never reach memory; here every einsum writes its result"),
    ("book-inf-attn-int", "scores that never reach memory; here every einsum writes its result"),
    ("ds-bw-33/fraction", "a measured rate"),
    ("ds-bw-33/latency_bound_ms", "a measured time"),
    ("ds-moe-einsum", "compares a product with a copy, which has no flops here"),
    ("book-xfm-attn-dot/total", "the sum of the two figures before it, for T = S"),
    ("book-xfm-q6", "there is no backward pass"),
    ("book-train-dp-math", "there is no backward pass"),
    ("book-train-table-flops", "there is no backward pass"),
    ("book-app-q1", "there is no backward pass"),
    ("book-app-q2", "there is no backward pass"),
    ("book-inf-naive", "growth rates of a whole generation"),
];

pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("book-xfm-dot", products),
    ("book-xfm-einsum", spec),
    ("book-xfm-elementwise", spec),
    ("book-xfm-q3", spec),
    ("book-xfm-mlp", gated_mlp),
    ("book-xfm-attn-proj", projections),
    ("book-xfm-attn-dot", attention),
    ("ds-zero-layer-flops", gpt_layer),
    ("book-roof-dot", dot_product),
    ("book-roof-2chip", two_chips),
    ("book-roof-q1", int8_product),
    ("book-roof-q2", int8_weights),
    ("book-roof-q4", matrix_for_each_row),
    ("book-roof-q5", bf16_product),
    ("book-inf-bcrit", critical_batches),
    ("book-inf-beta", memory_against_links),
    ("ds-bw-33", reading_of_weights),
    ("book-tpu-q3", weights_of_the_host),
];

/// The checks of facts whose ids begin alike.
pub(crate) fn by_prefix(id: &str) -> Option<Check> {
    match id {
        _ if id.starts_with("esti-grid-") => Some(five_layouts),
        _ if id.starts_with("book-hw-tpu_") => Some(ratios),
        _ => None,
    }
}

/// The program of one einsum, each operand with its dtype.
fn einsum(equation: &str, dtypes: &[&str], result: &str, dims: &str) -> String {
    let (operands, to) = equation.split_once("->").unwrap_or((equation, ""));
    let names: Vec<String> = (0..dtypes.len()).map(|i| format!("a{i}")).collect();
    let params = operands
        .split(',')
        .zip(dtypes)
        .zip(&names)
        .map(|((dims, ty), name)| format!("{name}: {ty} {dims}"));
    let to_type = if to.is_empty() { "[]" } else { to };
    format!(
        "{dims}layer f({}) -> {result} {to_type} {{\n  let y = einsum({} -> {to_type})\n  return \
            y\n}}\n",
        params.collect::<Vec<_>>().join(", "),
        names.join(", ")
    )
}

fn flops(layer: &Priced) -> f64 {
    layer.price.totals.flops.0 as f64
}

/// The first op's flops for each byte of memory traffic, and which of the two bounds it.
fn first_op(layer: &Priced) -> (f64, Bound) {
    let kernel = layer.price.instructions.iter().find_map(|price| match price {
        InstrPrice::Kernel { flops, hbm_bytes, bound, .. } => {
            Some((flops.0 as f64 / hbm_bytes.0 as f64, *bound))
        }
        InstrPrice::Free | InstrPrice::Move(_) => None,
    });
    kernel.unwrap_or_else(|| panic!("no op in {}", layer.plan.name))
}

fn spec(fact: &Value) -> Result<(), String> {
    let equation = fact["inputs"]["spec"].as_str().unwrap_or_default();
    let dims = dim_lines(
        [equation.split("->").next().unwrap_or_default()],
        &fact["inputs"]["sizes"],
        &Value::Null,
    );
    let source = einsum(equation, &["bf16", "bf16"], "bf16", &dims);
    figure(fact, "value", flops(&priced(&source, &chip(&[]))[0]))
}

fn products(fact: &Value) -> Result<(), String> {
    let dims = dim_lines(["NPM"], &fact["inputs"], &Value::Null);
    let matmul = einsum("NP,PM->NM", &["bf16", "bf16"], "bf16", &dims);
    figure(fact, "matmul_value", flops(&priced(&matmul, &chip(&[]))[0]))?;
    for (name, equation) in [("dot", "P,P->"), ("matvec", "NP,P->N"), ("matmul", "NP,PM->NM")] {
        let found =
            flops(&priced(&einsum(equation, &["bf16", "bf16"], "bf16", &dims), &chip(&[]))[0]);
        symbols(fact, name, found, &|dim| fact["inputs"][dim.to_string()].as_f64())?;
    }
    Ok(())
}

/// An error unless a figure of the fact that is a product of letters, such as `2D(N+K)H`, equals
/// the computed figure.
fn symbols(
    fact: &Value,
    name: &str,
    found: f64,
    size: &dyn Fn(char) -> Option<f64>,
) -> Result<(), String> {
    let formula =
        fact["expected"][name].as_str().ok_or(format!("the fact has no formula {name}"))?;
    let mut value = 1.0;
    let mut sum: Option<f64> = None;
    let mut number = String::new();
    for letter in formula.chars().chain([' ']) {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        if let Ok(coefficient) = std::mem::take(&mut number).parse::<f64>() {
            value *= coefficient;
        }
        match letter {
            '(' => sum = Some(0.0),
            ')' => value *= sum.take().unwrap_or(1.0),
            '+' | ' ' => {}
            letter => {
                let size = size(letter).ok_or(format!("{formula}: no size of {letter}"))?;
                match &mut sum {
                    Some(sum) => *sum += size,
                    None => value *= size,
                }
            }
        }
    }
    if (found - value).abs() < 0.5 {
        Ok(())
    } else {
        Err(format!("{name}: found {found}, {formula} is {value}"))
    }
}

/// Sizes for which no two products of a few of them are equal.
fn prime(dim: char) -> Option<f64> {
    let known = [
        ('B', 2.0),
        ('T', 3.0),
        ('S', 5.0),
        ('D', 7.0),
        ('F', 11.0),
        ('N', 13.0),
        ('K', 17.0),
        ('H', 19.0),
    ];
    known.iter().find(|(name, _)| *name == dim).map(|(_, size)| *size)
}

const PRIMES: &str =
    "dim B = 2\ndim T = 3\ndim S = 5\ndim D = 7\ndim F = 11\ndim N = 13\ndim K = 17\ndim H = 19\n";

/// Training is three forward passes (book part 4).
const TRAINING: f64 = 3.0;

fn gated_mlp(fact: &Value) -> Result<(), String> {
    let source = format!(
        "{PRIMES}layer f(x: bf16 BTD, a: weight bf16 DF, b: weight bf16 DF, c: weight bf16 FD) -> \
            bf16 BTD {{\n\
         let h = einsum(x, a -> BTF)\nlet g = einsum(x, b -> BTF)\nlet y = einsum(h * g, c -> \
         BTD)\nreturn y\n}}\n"
    );
    let layer = priced(&source, &chip(&[])).remove(0);
    symbols(fact, "flops", TRAINING * flops(&layer), &prime)?;
    symbols(fact, "params", layer.parameters(), &prime)
}

fn projections(fact: &Value) -> Result<(), String> {
    let source = format!(
        "{PRIMES}layer f(x: bf16 BTD, q: weight bf16 DNH, k: weight bf16 DKH, v: weight bf16 DKH, \
            o: weight bf16 NHD)\n\
         -> (y: bf16 BTD, k1: bf16 BTKH, v1: bf16 BTKH) {{\nlet q1 = einsum(x, q -> BTNH)\nlet k1 \
         = einsum(x, k -> BTKH)\n\
         let v1 = einsum(x, v -> BTKH)\nlet y = einsum(q1, o -> BTD)\nreturn (y, k1, v1)\n}}\n"
    );
    let layer = priced(&source, &chip(&[])).remove(0);
    symbols(fact, "flops", TRAINING * flops(&layer), &prime)?;
    symbols(fact, "params", layer.parameters(), &prime)
}

fn attention(fact: &Value) -> Result<(), String> {
    for (name, equation) in [("qk", "BTNH,BSNH->BNTS"), ("av", "BNTS,BSNH->BTNH")] {
        let layer =
            priced(&einsum(equation, &["bf16", "bf16"], "bf16", PRIMES), &chip(&[])).remove(0);
        symbols(fact, name, TRAINING * flops(&layer), &prime)?;
    }
    Ok(())
}

fn gpt_layer(fact: &Value) -> Result<(), String> {
    let hidden = input(fact, "hidden");
    let source = format!(
        "dim T = {}\ndim S = T\ndim E = {hidden}\ndim F = 4 * E\ndim A = 4 * E\n\
         layer weights(x: bf16 TE, a: weight bf16 EA, b: weight bf16 EF, c: weight bf16 FE)\n\
           -> (y: bf16 TE, z: bf16 TA) {{\nlet z = einsum(x, a -> TA)\nlet h = einsum(x, b -> TF)\n\
           let y = einsum(h, c -> TE)\nreturn (y, z)\n}}\n\
         layer attention(q: bf16 TE, k: bf16 SE) -> bf16 TE {{\nlet s = einsum(q, k -> TS)\n\
           let o = einsum(s, k -> TE)\nreturn o\n}}\n",
        input(fact, "tokens"),
    );
    let layers = priced(&source, &chip(&[]));
    // The heads are parts of E, so their number does not matter. The paper counts both products of
    // all positions together as 4 T^2 E.
    figure(fact, "flops", flops(&layers[0]))?;
    figure(fact, "attention_extra", flops(&layers[1]))
}

fn dot_product(fact: &Value) -> Result<(), String> {
    let longest =
        fact["inputs"]["N"].as_array().and_then(|n| n.last()).and_then(Value::as_u64).unwrap_or(0);
    let source = einsum("N,N->", &["bf16", "bf16"], "bf16", &format!("dim N = {longest}\n"));
    figure(fact, "limit", first_op(&priced(&source, &chip(&[]))[0]).0)
}

/// The smallest size that a test holds for, if it holds for all larger ones.
fn smallest(mut from: u64, mut to: u64, mut holds: impl FnMut(u64) -> bool) -> f64 {
    while from < to {
        let middle = from + (to - from) / 2;
        if holds(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from as f64
}

/// The last batch for which the product with a large square weight is bound by memory: with one
/// more it is bound by arithmetic.
fn critical_batch(hardware: &Hardware, dtypes: [&str; 3]) -> f64 {
    let bound_by_arithmetic = smallest(1, 10_000, |batch| {
        let dims = format!("dim B = {batch}\ndim D = 4194304\ndim F = 4194304\n");
        let source =
            einsum("BD,DF->BF", &[dtypes[0], &format!("weight {}", dtypes[1])], dtypes[2], &dims);
        first_op(&priced(&source, hardware)[0]).1 == Bound::Compute
    });
    bound_by_arithmetic - 1.0
}

fn two_chips(fact: &Value) -> Result<(), String> {
    let hw = chip(&[("flops", input(fact, "flops")), ("network", input(fact, "link_bw"))]);
    // The two halves of D: each chip multiplies one.
    let half = smallest(1, 10_000, |half| {
        let source = format!(
            "{}dim B = 512\ndim D = {}\ndim F = 8192\nlayer f(x: bf16 BD_x, w: weight bf16 D_xF) \
                -> bf16 BF {{\n\
             let y: BF(partialsum-x) = einsum(x, w -> BF)\nreturn y\n}}\n",
            mesh_line(&fact["inputs"]["mesh"]),
            2 * half
        );
        let totals = priced(&source, &hw)[0].price.totals;
        totals.compute_time >= totals.comm_time
    });
    figure(fact, "D_min", 2.0 * half)
}

fn int8_product(fact: &Value) -> Result<(), String> {
    let (ops, hbm) = (input(fact, "ops"), input(fact, "hbm_bw"));
    figure(fact, "hw_intensity", ops / hbm)?;
    let hw = chip(&[("flops", 1.0), ("int8", ops), ("hbm", hbm)]);
    figure(fact, "b_crit", critical_batch(&hw, ["int8", "int8", "int32"]))
}

fn int8_weights(fact: &Value) -> Result<(), String> {
    let hw = chip(&[("flops", input(fact, "flops")), ("hbm", input(fact, "hbm_bw"))]);
    figure(fact, "b_crit", critical_batch(&hw, ["bf16", "int8", "bf16"]))
}

fn bf16_product(fact: &Value) -> Result<(), String> {
    let hw = chip(&[("flops", input(fact, "flops")), ("hbm", input(fact, "hbm_bw"))]);
    figure(fact, "b_crit", critical_batch(&hw, ["bf16", "bf16", "bf16"]))
}

fn critical_batches(fact: &Value) -> Result<(), String> {
    let (hbm, flops) = (input(fact, "hbm_bw"), input(fact, "flops"));
    let hw = chip(&[("flops", flops), ("int8", input(fact, "ops_int8")), ("hbm", hbm)]);
    figure(fact, "bf16", critical_batch(&hw, ["bf16", "bf16", "bf16"]))?;
    figure(fact, "int8_weights", critical_batch(&hw, ["bf16", "int8", "bf16"]))?;
    figure(fact, "int8_both", critical_batch(&hw, ["int8", "int8", "int32"]))
}

fn matrix_for_each_row(fact: &Value) -> Result<(), String> {
    // The limit holds for large matrices.
    let source = einsum(
        "BD,BDF->BF",
        &["int8", "int8"],
        "int32",
        "dim B = 256\ndim D = 65536\ndim F = 65536\n",
    );
    figure(fact, "limit", first_op(&priced(&source, &chip(&[]))[0]).0)
}

/// The rates of a built-in chip: bf16, int8, memory, and both links of a torus axis.
fn rates(name: &str) -> Result<[f64; 4], String> {
    let hw =
        Hardware::built_in(&name.replace('_', "-")).ok_or(format!("{name} is not built in"))?;
    let Fabric::Torus(Torus { link_bandwidth, .. }) = hw.network.fabric else {
        return Err(format!("{name} has no torus"));
    };
    let flops = |dtype| hw.flops_rate(dtype) as f64;
    Ok([flops(Dtype::Bf16), flops(Dtype::Int8), hw.hbm_rate as f64, 2.0 * link_bandwidth as f64])
}

fn ratios(fact: &Value) -> Result<(), String> {
    let [bf16, int8, memory, links] =
        rates(fact["inputs"]["hardware"].as_str().unwrap_or_default())?;
    let figures = [
        ("hbm_intensity_bf16", bf16 / memory),
        ("hbm_intensity_int8", int8 / memory),
        ("alpha_ici_bidi", bf16 / links),
        ("beta", memory / links),
    ];
    figures.into_iter().try_for_each(|(name, found)| figure(fact, name, found))
}

fn memory_against_links(fact: &Value) -> Result<(), String> {
    for (name, chip) in [("v5e", "tpu_v5e"), ("v6e", "tpu_v6e")] {
        let [_, _, memory, links] = rates(chip)?;
        figure(fact, name, memory / links)?;
    }
    Ok(())
}

fn reading_of_weights(fact: &Value) -> Result<(), String> {
    // All GPUs as one chip, with the bandwidth of all together.
    let source = format!(
        "dim P = {}\nlayer f(w: weight bf16 P) -> bf16 [] {{\nlet y = sum(w over P)\nreturn \
            y\n}}\n",
        input(fact, "params")
    );
    let layer = priced(&source, &chip(&[("hbm", input(fact, "achieved"))])).remove(0);
    figure(fact, "read_ms", layer.price.totals.memory_time.seconds() * 1e3)
}

/// The feed-forward layer of ESTI in each of its five layouts, written out: the layouts to which x
/// and the weights are moved before each product, and the layout of the product.
fn five_layouts(fact: &Value) -> Result<(), String> {
    let sizes = &fact["inputs"];
    let mesh = mesh_line(&sizes["mesh"]);
    // x, its layout at the product; w_in and w_out, theirs; h at its first product and at its
    // second; y partial over.
    let layouts = [
        ("WS1D", "BE_xyz", "BE", "EF_xyz", "EF_xyz", "BF_xyz", "BF_xyz", "BE(partialsum-xyz)"),
        (
            "WS2D",
            "BE_xyz",
            "BE_x",
            "E_xF_yz",
            "E_xF_yz",
            "BF_yz(partialsum-x)",
            "BF_yzx",
            "BE_x(partialsum-yz)",
        ),
        (
            "WG_X",
            "B_xE_yz",
            "B_xE",
            "E_xF_yz",
            "EF_yz",
            "B_xF_yz",
            "B_xF_yz",
            "B_xE(partialsum-yz)",
        ),
        (
            "WG_XY",
            "B_xyE_z",
            "B_xyE",
            "E_xF_zy",
            "EF_z",
            "B_xyF_z",
            "B_xyF_z",
            "B_xyE(partialsum-z)",
        ),
        ("WG_XYZ", "B_xyzE", "B_xyzE", "E_xF_yz", "EF", "B_xyzF", "B_xyzF", "B_xyzE"),
    ];
    for (name, x, used, stored, gathered, h, scattered, y) in layouts {
        let transposed = |layout: &str| {
            let (e, f) = layout.split_at(layout.find('F').unwrap_or(0));
            format!("{f}{e}")
        };
        let again = h.split('(').next().unwrap_or_default();
        let source = format!(
            "{mesh}dim B = {}\ndim E = {}\ndim F = {}\n\
             layer mlp(x: bf16 {x}, w_in: weight bf16 {stored}, w_out: weight bf16 {}) -> bf16 \
             {x} {{\n\
             let x1 = reshard(x, {used})\nlet w1 = reshard(w_in, {gathered})\nlet h: bf16 {h} = \
             einsum(x1, w1 -> BF)\n\
             let h1 = reshard(h, {scattered})\nlet h2 = reshard(h1, {again})\nlet w2 = \
             reshard(w_out, {})\n\
             let y: bf16 {y} = einsum(h2, w2 -> BE)\nreturn y\n}}\n",
            sizes["tokens_BL"],
            sizes["E"],
            sizes["F"],
            transposed(stored),
            transposed(gathered),
        );
        let layer = priced(&source, &chip(&[("network", input(fact, "bw"))])).remove(0);
        let found = layer.price.totals.comm_time.seconds() * 1e3;
        let stated =
            fact["expected"]["time_ms_exact"][name].as_f64().ok_or(format!("no time of {name}"))?;
        if (found - stated).abs() > stated * fact["tolerance"].as_f64().unwrap_or(0.0).max(1e-9) {
            return Err(format!("{name}: found {found} ms, expected {stated} ms\n{source}"));
        }
    }
    Ok(())
}

/// A matrix that is fetched from the host for every product: the number of tokens for which the
/// product takes as long as the fetch.
fn weights_of_the_host(fact: &Value) -> Result<(), String> {
    const TOKENS: f64 = 1024.0;
    let tokens = |pcie: f64| -> Result<f64, String> {
        let chip = Hardware::parse(&format!(
            "name = \"fact\"\n[chip]\nflops = {{ bf16 = {:e} }}\nhbm_bytes = \
                1000000000000\nhbm_bandwidth = 1e18\n\
             [network]\nkind = \"flat\"\nbandwidth = 1e9\n[host]\npcie_bandwidth = {pcie:e}\n",
            input(fact, "flops")
        ));
        let source = format!(
            "dim B = {TOKENS}\ndim D = 8192\ndim F = 4 * D\n\
             layer f(x: bf16 BD, w: weight host bf16 DF) -> bf16 BF {{ return einsum(x, w -> BF) \
             }}\n"
        );
        let layer = priced(&source, &chip.map_err(|error| error.to_string())?).remove(0);
        let seconds = |wanted: Bound| {
            layer.plan.ids().find_map(|id| match layer.price.of(id) {
                InstrPrice::Kernel { time, bound, .. } if *bound == wanted => Some(time.seconds()),
                _ => None,
            })
        };
        let (fetch, product) =
            seconds(Bound::Pcie).zip(seconds(Bound::Compute)).ok_or("a fetch and a product")?;
        Ok(TOKENS * fetch / product)
    };
    figure(fact, "b_crit", tokens(input(fact, "pcie"))?)?;
    figure(fact, "b_crit_with_32GBps", tokens(32e9)?)
}
