//! Facts of parameters, memory and caches: models as `.shard` files, and the memory that the report
//! gives for them.

use serde_json::Value;
use shard_cost::{DimRoles, Inventory};
use shard_ir::DimId;
use shard_ir::ParameterKind::{Cache, Weight};

use crate::facts::Check;
use crate::facts::priced::{Priced, chip, figure, input, priced};

/// Facts, or figures of facts (`id/figure`), that are not computed, with the reason.
pub(crate) const NOT_COMPUTED: &[(&str, &str)] = &[
    ("esti-model-tableD1-palm", "the inputs of other facts"),
    ("esti-model-tableD1-mtnlg", "the inputs of other facts"),
    ("pt-llama2-facts", "the inputs of other facts"),
    ("sum-table1", "restates esti-t1-*, which are computed"),
    ("book-srv-evict", "when sequences end is no part of a step"),
    ("book-xfm-remat-block", "there is no backward pass, so there are no checkpoints for it"),
    ("book-xfm-remat-matmuls", "there is no backward pass, so there are no checkpoints for it"),
    ("book-train-q2-act", "there is no backward pass, so there are no checkpoints for it"),
    ("book-train-q3b-mem", "there is no backward pass, so there are no checkpoints for it"),
    (
        "book-app-q4-mem/checkpoints",
        "there is no backward pass, so there are no checkpoints for it",
    ),
    ("ds-zero-25x", "how much memory a host has is no part of a hardware file"),
];

pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("esti-params-palm540", palm),
    ("esti-pad-heads", padded_heads),
    ("book-xfm-q1-frac", attention_share),
    ("book-train-q1", parts_of_a_model),
    ("book-inf-13b-params", parts_of_a_model),
    ("book-app-params", parts_of_a_model),
    ("book-inf-q1", shared_embedding),
    ("esti-kv-3tb", multihead_cache),
    ("esti-kv-mqa-512-2048", multiquery_cache),
    ("book-xfm-q1-kv", cache_of_a_token),
    ("book-srv-kv", cache_of_a_token),
    ("book-srv-kv32k", cache_of_long_sequences),
    ("pt-kv-70b", replicated_heads),
    ("book-shard-q1", copies),
    ("book-shard-q7-memory", two_weights_on_four_chips),
    ("book-train-adam", adam),
    ("book-train-q2-state", adam_of_13b),
    ("book-train-q3a", adam_on_one_chip),
    ("book-train-q3-hbm", memory_of_a_pod),
    ("book-app-q4-mem", adam_of_70b),
    ("book-inf-13b-bf16", bytes_of_13b),
    ("book-inf-act80", activation),
    ("book-inf-q2", cached_tokens),
    ("book-srv-min-bf16", smallest_slice),
    ("book-srv-wp2", serving_8b),
    ("ds-mem-530b", gpus_for_530b),
    ("ds-zero-gpuonly-20b", largest_on_one_gpu),
];

/// The checks of facts whose ids begin alike.
pub(crate) fn by_prefix(id: &str) -> Option<Check> {
    match id {
        _ if id.starts_with("ds-t1-") => Some(gpt),
        _ if id.starts_with("esti-t1-") => Some(longest_context),
        _ => None,
    }
}

/// The sizes of a transformer.
struct Model {
    layers: f64,
    d_model: f64,
    d_ff: f64,
    heads: f64,
    kv_heads: f64,
    d_head: f64,
    ff_matrices: usize,
    vocab: f64,
    vocab_tables: usize,
}

/// Attention, feed-forward and vocabulary of a model, one layer for each.
fn parts(m: &Model) -> [Priced; 3] {
    let weights = |count: usize, ty: &str| -> String {
        (0..count).map(|i| format!("w{i}: weight bf16 {ty}, ")).collect()
    };
    let source = format!(
        "dim T = 1\ndim D = {}\ndim F = {}\ndim N = {}\ndim K = {}\ndim H = {}\ndim V = {}\n\
         layer attention(x: bf16 TD, q: weight bf16 DNH, k: weight bf16 DKH, v: weight bf16 DKH, \
         o: weight bf16 NHD)\
           -> bf16 TD repeat {layers} {{ return x }}\n\
         layer ffw(x: bf16 TD, {}) -> bf16 TD repeat {layers} {{ return x }}\n\
         layer vocab(x: bf16 TD, {}) -> bf16 TD {{ return x }}\n",
        m.d_model,
        m.d_ff,
        m.heads,
        m.kv_heads,
        m.d_head,
        m.vocab,
        weights(m.ff_matrices, "DF"),
        weights(m.vocab_tables, "VD"),
        layers = m.layers,
    );
    let found = priced(&source, &chip(&[]));
    found.try_into().unwrap_or_else(|_| panic!("three layers"))
}

fn parameters(model: &Model) -> f64 {
    parts(model).iter().map(Priced::parameters).sum()
}

/// PaLM 540B as in ESTI, with a given number of heads.
fn palm_model(fact: &Value, heads: f64) -> Model {
    Model {
        layers: input(fact, "layers"),
        d_model: input(fact, "E"),
        d_ff: input(fact, "F"),
        heads,
        kv_heads: input(fact, "kv_heads"),
        d_head: input(fact, "d_head"),
        ff_matrices: 3,
        vocab: 256_000.0,
        vocab_tables: 1,
    }
}

/// A LLaMA of the book, with a given number of tables of the vocabulary.
fn llama(fact: &Value, vocab_tables: usize) -> Model {
    let d_model = input(fact, "D");
    let inputs = &fact["inputs"];
    let d_ff =
        inputs["F"].as_f64().unwrap_or_else(|| d_model * inputs["mult"].as_f64().unwrap_or(0.0));
    Model {
        layers: input(fact, "L"),
        d_model,
        d_ff,
        heads: input(fact, "N"),
        kv_heads: input(fact, "K"),
        d_head: input(fact, "H"),
        ff_matrices: 3,
        vocab: input(fact, "V"),
        vocab_tables,
    }
}

fn palm(fact: &Value) -> Result<(), String> {
    figure(fact, "params", parameters(&palm_model(fact, input(fact, "heads"))))
}

fn padded_heads(fact: &Value) -> Result<(), String> {
    let [from, to] =
        ["heads_from", "heads_to"].map(|heads| parameters(&palm_model(fact, input(fact, heads))));
    figure(fact, "extra_params", to - from)?;
    figure(fact, "extra_fraction", (to - from) / from)
}

fn attention_share(fact: &Value) -> Result<(), String> {
    let (d_model, d_ff) = (input(fact, "D"), input(fact, "F"));
    let sizes = (1.0, d_model / 128.0, 128.0);
    let (layers, heads, d_head) = sizes;
    let model = Model {
        layers,
        d_model,
        d_ff,
        heads,
        kv_heads: heads,
        d_head,
        ff_matrices: 3,
        vocab: 1.0,
        vocab_tables: 0,
    };
    let [attention, ffw, _] = parts(&model).map(|part| part.parameters());
    figure(fact, "fraction", attention / (attention + ffw))
}

fn parts_of_a_model(fact: &Value) -> Result<(), String> {
    let [attention, ffw, vocab] = parts(&llama(fact, 2)).map(|part| part.parameters());
    for (name, found) in [
        ("attention", attention),
        ("ffw", ffw),
        ("vocab", vocab),
        ("total", attention + ffw + vocab),
    ] {
        figure(fact, name, found)?;
    }
    Ok(())
}

fn shared_embedding(fact: &Value) -> Result<(), String> {
    figure(fact, "params", parameters(&llama(fact, 1)))
}

fn gpt(fact: &Value) -> Result<(), String> {
    let (hidden, heads) = (input(fact, "hidden"), input(fact, "heads"));
    let source = format!(
        "dim N = {heads}\ndim E = {hidden}\ndim H = E / N\nlayer f(x: bf16 H) -> bf16 H {{ return \
            x }}\n"
    );
    let plan = &priced(&source, &chip(&[]))[0].plan;
    let d_head = plan.dims.iter().find(|d| d.name == "H").map_or(0, |d| d.size) as f64;
    figure(fact, "d_head", d_head)?;
    let model = Model {
        layers: input(fact, "layers"),
        d_model: hidden,
        d_ff: 4.0 * hidden,
        heads,
        kv_heads: heads,
        d_head,
        ff_matrices: 2,
        vocab: input(fact, "vocab"),
        vocab_tables: 1,
    };
    figure(fact, "params", parameters(&model))
}

/// A layer that keeps keys and values in a layout of `BSKH`, and weights with a given number of
/// bytes on a chip.
struct Caching<'a> {
    mesh: &'a str,
    layout: &'a str,
    dtype: &'a str,
    /// B, S, K, H.
    sizes: [f64; 4],
    layers: f64,
    /// The number of int8 weights in all layers, split over the mesh by `W_{..}`.
    weights: (f64, &'a str),
}

impl Caching<'_> {
    fn priced(&self) -> Priced {
        let Caching { mesh, layout, dtype, sizes: [b, s, k, h], layers, weights: (weights, split) } =
            self;
        let source = format!(
            "{mesh}\ndim B = {b}\ndim S = {s}\ndim K = {k}\ndim H = {h}\ndim W = {}\n\
             layer f(x: bf16 B, keys: cache {dtype} {layout}, values: cache {dtype} {layout}, w: \
             weight int8 {split})\
               -> bf16 B repeat {layers} {{ return x }}\n",
            (weights / layers).round()
        );
        priced(&source, &chip(&[])).remove(0)
    }
}

fn bytes_dtype(fact: &Value) -> &'static str {
    if input(fact, "bytes") == 1.0 { "int8" } else { "bf16" }
}

/// The cache of a fact, whole on one chip.
fn whole_cache(fact: &Value, kv_heads: f64, d_head: f64, batch: f64, context: f64) -> Priced {
    let layers = fact["inputs"]["layers"].as_f64().unwrap_or_else(|| input(fact, "L"));
    let sizes = [batch, context, kv_heads, d_head];
    Caching {
        mesh: "",
        layout: "BSKH",
        dtype: bytes_dtype(fact),
        sizes,
        layers,
        weights: (layers, "W"),
    }
    .priced()
}

fn per_token(layer: &Priced) -> f64 {
    // Nothing is appended here, so the batch and context dims are named, as by
    // `cost --batch B --context S`.
    let named =
        |name: &str| layer.plan.dims.iter().position(|d| d.name == name).map(|at| DimId(at as u16));
    let roles = DimRoles {
        batch: named("B").into_iter().collect(),
        context: named("S").into_iter().collect(),
        ..DimRoles::default()
    };
    Inventory::of(&layer.plan, roles).cache_bytes_per_token.times(layer.plan.repeat).0 as f64
}

fn multihead_cache(fact: &Value) -> Result<(), String> {
    let (heads, d_head) = (input(fact, "heads"), input(fact, "d_head"));
    let found =
        whole_cache(fact, heads, d_head, input(fact, "batch"), input(fact, "context")).bytes(Cache);
    figure(fact, "kv_bytes", found)?;
    // In bf16, as the cache is.
    figure(fact, "ratio_to_params", found / (2.0 * 540e9))
}

fn multiquery_cache(fact: &Value) -> Result<(), String> {
    let (d_head, batch, context) =
        (input(fact, "d_head"), input(fact, "batch"), input(fact, "context"));
    let one = whole_cache(fact, input(fact, "kv_heads"), d_head, batch, context);
    let all = whole_cache(fact, 48.0, d_head, batch, context);
    figure(fact, "kv_bytes", one.bytes(Cache))?;
    figure(fact, "per_token", per_token(&one))?;
    figure(fact, "reduction", all.bytes(Cache) / one.bytes(Cache))
}

fn cache_of_a_token(fact: &Value) -> Result<(), String> {
    let inputs = &fact["inputs"];
    let (heads, d_head) = match inputs["NH"].as_f64() {
        Some(width) => (1.0, width),
        None => (input(fact, "K"), input(fact, "H")),
    };
    figure(fact, "bytes", per_token(&whole_cache(fact, heads, d_head, 1.0, 1024.0)))
}

fn cache_of_long_sequences(fact: &Value) -> Result<(), String> {
    // The bytes of a token as one number: one layer with keys and values of half of them.
    let width = input(fact, "kv") / 2.0;
    let of = |batch: f64| {
        let sizes = [batch, input(fact, "seq"), 1.0, width];
        let weights = (input(fact, "params"), "W");
        Caching { mesh: "", layout: "BSKH", dtype: "int8", sizes, layers: 1.0, weights }.priced()
    };
    let (one, all) = (of(1.0), of(input(fact, "batch")));
    figure(fact, "per_seq", one.bytes(Cache))?;
    figure(fact, "total", all.bytes(Cache))?;
    figure(fact, "chips", (all.inventory().memory.peak().0 as f64 / input(fact, "hbm")).ceil())
}

fn replicated_heads(fact: &Value) -> Result<(), String> {
    let of = |layout: &str| {
        let sizes = [
            input(fact, "batch"),
            input(fact, "context"),
            input(fact, "kv_heads"),
            input(fact, "d_head"),
        ];
        let layers = input(fact, "layers");
        Caching {
            mesh: "mesh x=8, y=2",
            layout,
            dtype: "bf16",
            sizes,
            layers,
            weights: (layers, "W"),
        }
        .priced()
    };
    let (heads, ideal) = (of("BSK_xH"), of("B_ySK_xH"));
    figure(fact, "per_token", per_token(&heads))?;
    figure(fact, "per_chip", heads.inventory().memory.all_caches().0 as f64)?;
    figure(fact, "ideal_per_chip", ideal.inventory().memory.all_caches().0 as f64)
}

fn longest_context(fact: &Value) -> Result<(), String> {
    let layout = match fact["inputs"]["kv_sharding"].as_str() {
        Some("heads over 64 chips") => "BSK_xyzH",
        Some("replicated on every chip") => "BSKH",
        Some("batch over 64 chips") => "B_xyzSKH",
        other => return Err(format!("an unknown layout {other:?}")),
    };
    let sizes = [input(fact, "batch"), 128.0, input(fact, "kv_heads"), input(fact, "d_head")];
    let (mesh, weights) = ("mesh x=4, y=4, z=4", (1080e9, "W_xyz"));
    let layers = input(fact, "layers");
    let weights = ((weights.0 / layers / 64.0_f64).round() * layers * 64.0, weights.1);
    let layer = Caching { mesh, layout, dtype: "bf16", sizes, layers, weights }.priced();
    let chip = chip(&[("memory", input(fact, "hbm_per_chip"))]);
    figure(fact, "max_context", layer.largest("S", &chip, input(fact, "kv_fraction")))
}

fn copies(fact: &Value) -> Result<(), String> {
    let source = "mesh x=4, y=8, z=2\ndim I = 8\ndim J = 2\ndim K = 2\n\
                  layer f(x: bf16 J, a: weight bf16 I_xJK) -> bf16 J { return x }\n";
    let layer = priced(source, &chip(&[])).remove(0);
    let kept = &layer.inventory().kept[0];
    figure(fact, "ratio", (kept.chip_bytes.0 * layer.plan.mesh.devices() / kept.bytes.0) as f64)
}

fn two_weights_on_four_chips(fact: &Value) -> Result<(), String> {
    let (d, f) = (input(fact, "D"), input(fact, "F"));
    let split = |layout: &str, transposed: &str| {
        let source = format!(
            "mesh x=2, y=2\ndim T = 1\ndim D = {d}\ndim F = {f}\n\
             layer f(x: bf16 T, a: weight bf16 {layout}, b: weight bf16 {transposed}) -> bf16 T \
             {{ return x }}\n"
        );
        priced(&source, &chip(&[])).remove(0)
    };
    let (four, two) = (split("DF_xy", "F_xyD"), split("DF_x", "F_xD"));
    figure(fact, "total_weight_bytes", four.bytes(Weight))?;
    figure(fact, "bytes_per_chip_4way", four.inventory().memory.weights.0 as f64)?;
    let chip = chip(&[("memory", input(fact, "free_bytes"))]);
    crate::facts::program::same(
        "fits 4-way",
        Some(four.fits(&chip)),
        fact["expected"]["fits_4way"].as_bool(),
    )?;
    crate::facts::program::same(
        "fits 2-way",
        Some(two.fits(&chip)),
        fact["expected"]["fits_2way"].as_bool(),
    )
}

/// A given number of weights, each in bf16, with two moments in f32 where it is trained.
fn numbers(count: f64, trained: bool) -> Priced {
    let moments = if trained { ", m: weight f32 P, v: weight f32 P" } else { "" };
    let source = format!(
        "dim P = {count}\nlayer f(x: bf16 [], w: weight bf16 P{moments}) -> bf16 [] {{ return x \
            }}\n"
    );
    priced(&source, &chip(&[])).remove(0)
}

fn adam(fact: &Value) -> Result<(), String> {
    let state = numbers(1e9, true);
    figure(fact, "bytes_per_param", state.bytes(Weight) / 1e9)?;
    figure(fact, "max_params", state.largest("P", &chip(&[("memory", input(fact, "hbm"))]), 1.0))
}

fn adam_of_13b(fact: &Value) -> Result<(), String> {
    figure(fact, "bytes", numbers(input(fact, "params"), true).bytes(Weight))
}

fn adam_on_one_chip(fact: &Value) -> Result<(), String> {
    // 10 bytes a number.
    let state = numbers(input(fact, "state") / 10.0, true);
    let fits = state.fits(&chip(&[("memory", input(fact, "hbm"))]));
    crate::facts::program::same("fits", Some(fits), fact["expected"]["fits"].as_bool())
}

fn memory_of_a_pod(fact: &Value) -> Result<(), String> {
    let (tokens, sequence) = (input(fact, "tokens"), input(fact, "seq"));
    let source = format!(
        "mesh x=16, y=16, z=16\ndim T = {tokens}\ndim N = T / {sequence}\nlayer f(x: bf16 N) -> \
            bf16 N {{ return x }}\n"
    );
    let chip = chip(&[("memory", input(fact, "hbm"))]);
    let plan = &priced(&source, &chip)[0].plan;
    figure(fact, "bytes", plan.mesh.devices() as f64 * chip.hbm_bytes as f64)?;
    figure(fact, "sequences", plan.dims[1].size as f64)
}

fn adam_of_70b(fact: &Value) -> Result<(), String> {
    let weights = numbers(input(fact, "params"), false).bytes(Weight);
    figure(fact, "params", weights)?;
    figure(fact, "optimizer", numbers(input(fact, "params"), true).bytes(Weight) - weights)
}

fn bytes_of_13b(fact: &Value) -> Result<(), String> {
    figure(fact, "inference", numbers(input(fact, "params"), false).bytes(Weight))?;
    figure(fact, "training", numbers(input(fact, "params"), true).bytes(Weight))
}

fn activation(fact: &Value) -> Result<(), String> {
    let source = format!(
        "dim T = {}\ndim D = {}\nlayer f(x: bf16 TD) -> bf16 TD {{ return x }}\n",
        input(fact, "tokens"),
        input(fact, "D")
    );
    figure(fact, "bytes", priced(&source, &chip(&[]))[0].inventory().memory.activations.0 as f64)
}

fn cached_tokens(fact: &Value) -> Result<(), String> {
    let layers = input(fact, "L");
    let chip = chip(&[("memory", input(fact, "hbm"))]);
    let of = |batch: f64, context: f64, kv_heads: f64| {
        let weights = parameters(&llama(fact, 1));
        let weights = ((weights / layers / 16.0).round() * layers * 16.0, "W_xy");
        let sizes = [batch, context, kv_heads, input(fact, "H")];
        Caching { mesh: "mesh x=4, y=4", layout: "BS_xyKH", dtype: "int8", sizes, layers, weights }
            .priced()
    };
    let kv_heads = input(fact, "K");
    figure(fact, "cached_tokens", of(1.0, 8192.0, kv_heads).largest("S", &chip, 1.0))?;
    figure(fact, "batch_8k", of(1.0, 8192.0, kv_heads).largest("B", &chip, 1.0))?;
    figure(fact, "batch_128k", of(1.0, 131_072.0, kv_heads).largest("B", &chip, 1.0))?;
    figure(fact, "batch_8k_K1", of(1.0, 8192.0, 1.0).largest("B", &chip, 1.0))
}

fn smallest_slice(fact: &Value) -> Result<(), String> {
    let hbm = input(fact, "hbm");
    let weights = numbers(input(fact, "params"), false).bytes(Weight);
    figure(fact, "param_bytes", weights)?;
    figure(fact, "min_chips", weights / hbm)?;
    let slice = fact["expected"]["slice_chips"]["value"].as_f64().unwrap_or(0.0);
    figure(fact, "remaining", slice * hbm - weights)?;
    let sizes = [1.0, input(fact, "context"), 1.0, input(fact, "kv_per_token") / 2.0];
    let weights = (weights, "W_xy");
    let layer = Caching {
        mesh: "mesh x=4, y=4",
        layout: "BS_xyKH",
        dtype: "int8",
        sizes,
        layers: 1.0,
        weights,
    }
    .priced();
    figure(fact, "kv_caches", layer.largest("B", &chip(&[("memory", hbm)]), 1.0))
}

fn serving_8b(fact: &Value) -> Result<(), String> {
    let layers = input(fact, "L");
    let sizes = [input(fact, "batch"), input(fact, "context"), input(fact, "K"), input(fact, "H")];
    let weights = (input(fact, "params"), "W");
    let layer =
        Caching { mesh: "", layout: "BSKH", dtype: "int8", sizes, layers, weights }.priced();
    figure(fact, "params", layer.bytes(Weight))?;
    figure(fact, "kv", layer.bytes(Cache))?;
    figure(fact, "chips", layer.inventory().memory.peak().0 as f64 / input(fact, "hbm"))?;
    let source = format!(
        "dim B = {}\ndim F = {}\nlayer f(x: bf16 BF) -> bf16 BF {{ return x }}\n",
        input(fact, "batch"),
        input(fact, "F")
    );
    figure(
        fact,
        "activations",
        priced(&source, &chip(&[]))[0].inventory().memory.activations.0 as f64,
    )
}

fn gpus_for_530b(fact: &Value) -> Result<(), String> {
    let bytes = numbers(input(fact, "params"), false).bytes(Weight);
    let gpus = (bytes / input(fact, "gpu")).ceil();
    figure(fact, "bytes", bytes)?;
    figure(fact, "gpus", gpus)?;
    figure(fact, "nodes_of_8", (gpus / 8.0).ceil())
}

fn largest_on_one_gpu(fact: &Value) -> Result<(), String> {
    let gpu = chip(&[("memory", input(fact, "hbm"))]);
    for (count, name) in [(20e9, "fits_20b"), (50e9, "fits_50b")] {
        crate::facts::program::same(
            name,
            Some(numbers(count, false).fits(&gpu)),
            fact["expected"][name].as_bool(),
        )?;
    }
    figure(fact, "max_params", numbers(20e9, false).largest("P", &gpu, 1.0))
}
