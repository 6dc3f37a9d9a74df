//! Certificates that the search makes, which the checker accepts.

use shard_runtime::Random;
use shard_search::certificate::{Certificate, Inputs, PriceSet, verify_certificate};
use shard_search::{Proof, Status};

use super::programs::{
    CHIP, RESIDUAL, certificate, certificate_of, inputs_on, lowered, palm_block, random_program,
    shown, verified,
};

#[test]
fn every_example_without_phases_has_a_certificate_and_on_the_flat_network_it_proves_the_plan_best()
{
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let chips = concat!(env!("CARGO_MANIFEST_DIR"), "/../cost/hardware");
    for folder in ["feed_forward", "language", "matmul", "training"] {
        let files = std::fs::read_dir(format!("{examples}/{folder}")).expect("a folder");
        for path in files
            .map(|f| f.expect("a file").path())
            .filter(|p| p.extension().is_some_and(|e| e == "shard"))
        {
            let source = std::fs::read_to_string(&path).expect("text");
            // A certificate is of a file without phases, and the command refuses others.
            if source.lines().any(|line| line.starts_with("phase ")) {
                continue;
            }
            // On its own chip: weights that stay with the host need one that has a host.
            let chip = source
                .lines()
                .find_map(|line| line.strip_prefix("hardware "))
                .unwrap_or("tpu-v4-flat");
            let flat = chip == "tpu-v4-flat";
            let chip =
                std::fs::read_to_string(format!("{chips}/{chip}.toml")).expect("a built-in chip");
            let layers = verify_certificate(&certificate_of(inputs_on(&chip, &source)).text());
            let layers = layers.unwrap_or_else(|error| panic!("{error}\n{source}"));
            assert!(!layers.is_empty(), "{path:?}");
            for layer in layers {
                // With latency and a host, prices bound less closely than the search.
                assert!(
                    layer.proof == Some(Proof::Certificate) || !flat && layer.proof.is_some(),
                    "{path:?} {layer:?}"
                );
                assert!(
                    layer.cost == layer.lower_bound || !flat && layer.lower_bound < layer.cost,
                    "{path:?} {layer:?}"
                );
            }
        }
    }
}

#[test]
fn a_transformer_block_has_a_certificate_of_a_few_kilobytes() {
    for length in [1, 2048] {
        let certificate = certificate(&palm_block(length));
        let text = certificate.text();
        assert!(text.len() < 40_000, "{}", text.len());
        let layers = verify_certificate(&text).expect("a certificate");
        assert_eq!(layers[0].proof, Some(Proof::Certificate));
        assert!(layers[0].inequalities > 1000);
    }
}

#[test]
fn plans_with_loops_have_certificates_of_a_plan_space_with_loops() {
    let looped = |source: &str| certificate_of(Inputs { fuse: true, ..inputs_on(CHIP, source) });
    for source in [RESIDUAL.to_string(), palm_block(1), palm_block(2048)] {
        let with = looped(&source);
        assert!(with.layers[0].plan.contains("collective-einsum"), "{}", with.layers[0].plan);
        let layers = verify_certificate(&with.text()).expect("a certificate");
        assert_eq!(layers[0].proof, Some(Proof::Certificate));
        assert!(layers[0].cost < verified(&source)[0].cost, "loops hide what is sent");
        // It proves nothing about a plan space without loops.
        let mut without = with.clone();
        without.inputs.fuse = false;
        let error = verify_certificate(&without.text()).expect_err("no such plan").message;
        assert!(error.contains("loops"), "{error}");
    }
}

/// A latent attention on eight v5e chips, whose keys x splits; the product behind it has fewer
/// values than it, and is scaled.
const PART: &str = "
mesh x=4, y=2
dim B = 256
dim L = 1
dim S = 8192
dim H = 2
dim C = 512
dim V = 32
layer f(q: bf16 B_yLHC, k: bf16 B_yS_xC, w: bf16 HCV, g: bf16 HV) -> bf16 B_yLHV {
  let o = einsum(softmax(einsum(q, k -> BLHS) over S), k -> BLHC)
  return einsum(o, w -> BLHV) * g
}";

#[test]
fn linear_ops_on_a_part_of_an_attention_have_a_certificate() {
    let chip = include_str!("../../../cost/hardware/tpu-v5e.toml");
    let text = certificate_of(inputs_on(chip, PART)).text();
    let layers = verify_certificate(&text).expect("a certificate");
    // It is merged behind the product: 344 us, and 346 in front of it.
    assert_eq!(layers[0].proof, Some(Proof::Certificate));
    assert!(layers[0].cost.0 < 345_000_000, "{}", layers[0].cost.0);
}

const PREFIX: &str = "mesh x=2, y=4
dim B = 32
dim P = 4096
dim T = 512
dim S = P + T
dim H = 16
dim C = 512
dim E = 2048
layer f(a: bf16 BE?, w: bf16 EHC?, p: bf16 PC?, c: bf16 BTC?, o: bf16 HCE?) -> bf16 BE? {
  let keys = concat(p, c, P, T -> S)
  let q = einsum(a, w -> BHC)
  return einsum(einsum(softmax(einsum(q, keys -> BHS) * 0.07 over S), keys -> BHC), o -> BE)
}";

#[test]
fn an_attention_over_joined_keys_has_a_certificate() {
    let chip = include_str!("../../../cost/hardware/tpu-v5e.toml");
    let text = certificate_of(inputs_on(chip, PREFIX)).text();
    let layers = verify_certificate(&text).expect("a certificate");
    assert_eq!(layers[0].proof, Some(Proof::Certificate));
    assert!(text.contains("as attention"), "{text}");
}

/// The gradient of a table whose rows x splits, of tokens that y splits.
const ROWS: &str = "
mesh x=4, y=2
dim B = 8
dim L = 512
dim E = 1024
dim V = 32768
layer f(dx: bf16 B_yLE, ids: int32 B_yL, table: weight bf16 V_xE) -> bf16 V_xE {
  return table - scatter_add(dx, ids over BL -> V)
}";

#[test]
fn a_gradient_of_split_places_has_a_certificate() {
    let made = certificate(ROWS);
    let places = "scatter-add %3, %4 over BL -> V : bf16 V_xE_y";
    assert!(made.layers[0].plan.contains(places), "{}", made.layers[0].plan);
    let layers = verify_certificate(&made.text()).expect("a certificate");
    assert_eq!(layers[0].proof, Some(Proof::Certificate));
}

#[test]
fn what_runs_along_the_values_of_a_part_has_a_certificate() {
    // A convolution over the values in front of the product.
    let conv = "dim R = 4\ndim H = 2";
    let source = PART.replace("dim H = 2", conv).replace("g: bf16 HV", "g: bf16 HV, t: bf16 RH");
    let source = source.replace("einsum(o, w -> BLHV)", "einsum(conv(o, t over C, R), w -> BLHV)");
    let chip = include_str!("../../../cost/hardware/tpu-v5e.toml");
    let made = certificate_of(inputs_on(chip, &source));
    let plan = &made.layers[0].plan;
    let on_part = |line: &str| line.contains("= conv ") && line.contains("(partialsoftmax-x)");
    assert!(plan.lines().any(on_part), "{plan}");
    let layers = verify_certificate(&made.text()).expect("a certificate");
    assert_eq!(layers[0].proof, Some(Proof::Certificate));
}

#[test]
fn where_no_value_is_shared_no_price_is_needed() {
    let chain =
        "mesh x=4\ndim B = 64\ndim E = 256\nlayer f(x: bf16 BE?, w: weight bf16 EF_x) -> bf16 BF? {
  return gelu(einsum(x, w -> BF))\n}\ndim F = 256";
    assert_eq!(certificate(chain).layers[0].forms, [[PriceSet::default()]]);
}

#[test]
fn a_value_with_many_readers_is_bounded_one_by_one() {
    let source = "mesh x=2, y=2\ndim B = 64\ndim E = 64\nlayer f(x: bf16 BE_x, w: weight bf16 E_yE2) -> bf16 BE_x {
  let a = gelu(x)\n  return a * x + (x + x * a) * (x + a) + x\n}\ndim E2 = 64";
    let layer =
        &verified(&source.replace(", w: weight bf16 E_yE2", "").replace("\ndim E2 = 64", ""))[0];
    assert!(layer.lower_bound <= layer.cost);
}

#[test]
fn every_random_program_has_a_certificate_that_checks() {
    let mut random = Random::new(1);
    let mut proven = 0;
    for _ in 0..150 {
        let layer = &verified(&random_program(&mut random))[0];
        assert!(layer.lower_bound <= layer.cost);
        proven += usize::from(layer.proof == Some(Proof::Certificate));
    }
    assert!(proven >= 140, "{proven}");
}

#[test]
fn every_random_attention_has_a_certificate_that_checks() {
    let chip = format!("{CHIP}\n[kernels]\nattention = 1.0\n");
    let chip = chip.replace("275e12", "1e10").replace("1.2e12", "2e7").replace("270e9", "3e8");
    let mut proven = 0;
    for seed in 0..200 {
        let source = crate::common::attentions::attention(seed);
        let inputs = Inputs { fuse: seed % 3 == 0, ..inputs_on(&chip, &source) };
        let text = certificate_of(inputs).text();
        let layers = verify_certificate(&text).unwrap_or_else(|e| panic!("{seed}: {e}\n{source}"));
        assert!(layers[0].lower_bound <= layers[0].cost, "{source}");
        proven += usize::from(layers[0].proof == Some(Proof::Certificate));
    }
    assert!(proven >= 190, "{proven}");
}

#[test]
fn an_op_that_joins_an_attention_reads_nothing_that_the_attention_has_read() {
    let source = "dim B = 8\ndim E = 16\ndim F = 32
layer f(x: f32 BE, w1: weight f32 EF, w2: weight f32 FE) -> f32 BE {
  let h = x + einsum(softmax(einsum(x, w1 -> BF) over F), w2 -> BE)\n  return relu(h) * x\n}";
    let chip = include_str!("../../../cost/hardware/tpu-v5p.toml");
    for source in [source.to_string(), source.replace("relu(h) * x", "h")] {
        let layers = verify_certificate(&certificate_of(inputs_on(chip, &source)).text());
        let layers = layers.unwrap_or_else(|error| panic!("{error}\n{source}"));
        assert_eq!(layers[0].proof, Some(Proof::Certificate));
    }
}

#[test]
fn labels_of_many_calls_are_found_in_the_plan_one_by_one() {
    let calls: String =
        (1..14).map(|i| format!("  let x{i} = block(x{}, w, v)\n", i - 1)).collect();
    let source = format!(
        "mesh x=2\ndim B = 64\ndim E = 256\ndim F = 1024
layer block(x: bf16 BE?l, w: weight bf16 EF_x, v: weight bf16 F_xE) -> bf16 BE?l {{
  return x + einsum(relu(einsum(rmsnorm(x over E), w -> BF)), v -> BE)\n}}
layer f(x0: bf16 B_xE, w: weight bf16 EF_x, v: weight bf16 F_xE) -> bf16 B_xE {{
{calls}  return x13\n}}"
    );
    // Of each label the plan has values of its dims in two layouts.
    assert_eq!(verified(&source)[0].proof, Some(Proof::Certificate));
}

#[test]
fn a_label_at_a_pin_alone_is_found_in_the_plan() {
    let source = "mesh x=2, y=2\ndim B = 64\ndim C = 128\ndim D = 64
layer f(b: bf16 B_xC, w: weight bf16 CD_y) -> (y: bf16 BD, z: bf16 BD_x) {
  let v: BD?l = einsum(b, w -> BD)\n  let u: BD?l = gelu(b2(b))\n  return (v, u)\n}
layer b2(b: bf16 BC?) -> bf16 BD? {\n  return rename(b, C -> D)\n}";
    let source = source.replace("dim D = 64", "dim D = 128");
    assert_eq!(verified(&source)[0].proof, Some(Proof::Certificate));
}

#[test]
fn a_network_with_latency_is_bounded_by_whole_collectives() {
    // Gathers over three axes, one after the other, would pay the latency three times.
    let slow = inputs_on(&CHIP.replace("latency = 0.0", "latency = 1e-4"), &palm_block(1));
    let verified = verify_certificate(&certificate_of(slow).text()).expect("a certificate");
    assert_eq!(verified[0].proof, Some(Proof::Certificate), "{verified:?}");
}

#[test]
fn every_form_of_a_program_is_bounded() {
    let source = "mesh x=2, y=2\ndim B = 64\ndim C = 128\ndim D = 256
layer f(a: bf16 B_xC, w: weight bf16 CD_y, u: weight bf16 D_yC, v: weight bf16 CD_y) -> bf16 B_xD {
  return einsum(a, w, u, v -> BD) + einsum(a, v -> BD)\n}";
    let certificate = certificate(source);
    // 15 orders of the long einsum; and `a` taken out of the sum, with 3 orders of what is left of
    // it.
    assert_eq!(certificate.layers[0].forms.len(), 18);
    assert_eq!(verified(source)[0].proof, Some(Proof::Certificate));
}

/// A prompt and a step, whose weights are stored in one layout that suits both.
pub(crate) const PHASES: &str = "mesh x=4, y=2
dim B = 64
dim L = 1
dim E = 4096
dim F = 4 * E
phase prompt { L = 256 }
phase step repeat 16 { L = 1 }
layer mlp(x: bf16 B_xLE, w_in: weight bf16 EF?, w_out: weight bf16 FE?) -> bf16 B_xLE {
  let h = gelu(einsum(x, w_in -> BLF))
  return einsum(h, w_out -> BLE) + x
}";

#[test]
fn phases_have_one_certificate_of_the_whole_request() {
    let best = certificate(PHASES);
    let layer = &best.layers[0];
    assert_eq!(
        (best.layers.len(), layer.plan.matches("\nlayer ").count()),
        (1, 2),
        "{}",
        layer.plan
    );
    let layers = verify_certificate(&best.text()).expect("a certificate");
    assert_eq!(layers[0].proof, Some(Proof::Certificate), "{layers:?}");
}

/// A chip where bytes cost little beside flops.
pub(crate) const SMALL: &str = "name = \"small\"\nsource = \"a test\"\n[chip]\nflops = { bf16 = 1e12 }
hbm_bytes = 1e12\nhbm_bandwidth = 1e12\n[network]\nkind = \"flat\"\nbandwidth = 1e11\nlatency = 0\n";

/// A layer whose weights are free to be stored anywhere: whole they need no move, and the most
/// memory.
pub(crate) const TIGHT: &str = "mesh x=4, y=2
dim B = 512
dim E = 256
dim F = 1024
layer mlp(x: bf16 B_xyE, w_in: weight bf16 EF?, w_out: weight bf16 FE?) -> bf16 B_xyE repeat 4 {
  let h = einsum(x, w_in -> BF)
  let y = einsum(gelu(h), w_out -> BE)
  return y
}";

/// The certificate of the best plan that fits in so many tenths of the memory of the fastest.
pub(crate) fn within_tenths(tenths: u64) -> Certificate {
    let fastest = certificate_of(inputs_on(SMALL, TIGHT));
    let plan = &shard_ir::text::parse(&fastest.layers[0].plan).expect("a plan")[0];
    let memory_limit = Some(shard_cost::Memory::of(plan).peak().0 * tenths / 10);
    certificate_of(Inputs { memory_limit, ..inputs_on(SMALL, TIGHT) })
}

#[test]
fn what_fits_in_memory_is_bounded_among_what_fits() {
    let check = |tenths: u64| {
        verify_certificate(&within_tenths(tenths).text()).expect("a certificate").remove(0)
    };
    let (all, most, half) = (check(10), check(8), check(5));
    assert_eq!(all.proof, Some(Proof::Certificate));
    assert!(all.cost < most.cost && most.cost < half.cost, "{all:?} {most:?} {half:?}");
    for less in [most, half] {
        // Prices of memory show more than prices of time alone.
        assert!(less.lower_bound > all.lower_bound, "{less:?} {all:?}");
        assert!(less.lower_bound.0 >= less.cost.0 / 10 * 9, "{less:?}");
    }
}

/// Faster ways do not fit because of what an op holds, which prices do not know.
const NO_ROOM: &str = "mesh x=8, y=4
dim B = 16
dim E = 4096
dim F = 8
dim G = 4096
layer f(x: bf16 BE?, w0: weight bf16 EF?, w1: weight bf16 FG?, w2: weight bf16 GF?) -> bf16 BF? {
  let h = rmsnorm(relu(einsum(x, w0 -> BF)) over F)
  return gelu(einsum(einsum(h, w1 -> BG), w2 -> BF))
}";

/// Grouped queries with a label. The bound by prices of its best form depends on the order of the
/// operands of its einsums, if plans are divided only by what does not fit.
const GROUPED: &str = "mesh x=3, y=2
dim I = 1536
dim Z = 24
dim G = 24
dim T = 6
dim Q = 16
dim K = 4
layer f(a: bf16 IZ?l, q: weight bf16 ITKQ?, k: weight bf16 ITQ?, v: weight bf16 ITQ?, o: weight bf16 TKQI?) -> bf16 IZ?l {
  let t = tanh(a)
  let p = softmax(einsum(einsum(t, q -> ZTKQ), einsum(rename(t, Z->G), k -> GTQ) -> TKZG) over G)
  let r = einsum(p, einsum(rename(t, Z->G), v -> GTQ) -> ZTKQ)
  return t + einsum(r, o -> ZI)
}";

/// A cache with a label that does not fit whole, so that its memory alone rules out the whole
/// layout of the label.
const LABELLED_CACHE: &str = "mesh x=4
dim B = 32
dim L = 1
dim S = 4096
dim E = 4096
dim K = 8
dim D = 64
layer f(x: bf16 BLE?, w: weight bf16 EKD?, wo: weight bf16 KDE?, keys: cache bf16 BSKD?c) -> (y: bf16 BLE?, k2: cache bf16 BSKD?c) {
  let k = einsum(x, w -> BLKD)
  let k1 = append(keys, k, L -> S)
  let o = einsum(einsum(k, k1 -> BKLS), k1 -> BLKD)
  return (einsum(o, wo -> BLE), k1)
}";

#[test]
fn a_search_within_memory_calls_no_plan_proven_by_prices_that_the_check_does_not() {
    let v5p = include_str!("../../../cost/hardware/tpu-v5p.toml");
    let (mut by_prices, mut by_search) = (0, 0);
    let no_room = [25_833, 26_000, 30_000, 40_000, 60_000, 90_000].map(|m| (v5p, NO_ROOM, m));
    let tight = (1..10).map(|tenths| (SMALL, TIGHT, tenths * 500_000));
    let v5e = include_str!("../../../cost/hardware/tpu-v5e.toml");
    let grouped = [791_040, 800_000, 830_000, 900_000].map(|memory| (v5e, GROUPED, memory));
    let cached = [37_000_000, 39_000_000, 41_626_009].map(|memory| (v5p, LABELLED_CACHE, memory));
    let limits = no_room.into_iter().chain(tight).chain(grouped).chain(cached);
    for (chip, source, memory) in limits {
        let inputs = Inputs { memory_limit: Some(memory), ..inputs_on(chip, source) };
        let found = lowered(&inputs);
        let Some(found) = found.filter(|found| found.optimality.status == Status::Proven) else {
            continue;
        };
        let checked = verify_certificate(&certificate_of(inputs).text()).expect("a certificate");
        let (o, shown) = (found.optimality, &checked[0]);
        match o.proof {
            Some(Proof::Certificate) => {
                by_prices += 1;
                assert_eq!(shown.proof, Some(Proof::Certificate), "{memory} {source}");
            }
            _ => {
                by_search += 1;
                assert!(o.price_bound < Some(o.cost), "{memory} {o:?}");
            }
        }
    }
    assert!(by_prices >= 3 && by_search >= 2, "{by_prices} {by_search}");
}

/// Phases with caches that bear labels. Layouts that do not fit in one memory, or with a label, are
/// those of parameters that both phases read and store.
const SERVED: &str = "mesh x=16, y=16
dim B = 16
dim L = 1
dim S = 1024
dim E = 256
dim K = 8
dim D = 64
dim F = 4 * E
phase prefill { L = 512, B = 2, S = 512 }
phase decode repeat 16 { L = 1, B = 64 }
layer block(
  x: bf16 BLE?l,
  wq: weight bf16 EKD?,
  wk: weight bf16 EKD?,
  wv: weight bf16 EKD?,
  wo: weight bf16 KDE?,
  w1: weight bf16 EF?,
  w2: weight bf16 FE?,
  keys: cache bf16 BSKD?c,
  vals: cache bf16 BSKD?c,
) -> (y: bf16 BLE?l, k2: bf16 BSKD?c, v2: bf16 BSKD?c) repeat 4 {
  let h = rmsnorm(x over E)
  let q = einsum(h, wq -> BLKD)
  let k1 = einsum(h, wk -> BLKD)
  let v1 = einsum(h, wv -> BLKD)
  let k2 = append(keys, k1, L -> S)
  let v2 = append(vals, v1, L -> S)
  let s = einsum(q, k2 -> BKLS) / 8
  let p = softmax(causal(s over L, S) over S)
  let o = einsum(p, v2 -> BLKD)
  let a = x + einsum(o, wo -> BLE)
  let n = rmsnorm(a over E)
  let f = relu(einsum(n, w1 -> BLF))
  let y = a + einsum(f, w2 -> BLE)
  return (y, k2, v2)
}";

#[test]
fn the_request_of_phases_within_memory_is_shown_by_prices_as_the_search_says() {
    let chip = include_str!("../../../cost/hardware/tpu-v4-face.toml");
    let memory_limit = Some(4_000_000);
    let inputs = Inputs { memory_limit, ..inputs_on(chip, SERVED) };
    let shown = shown(&certificate_of(inputs));
    assert_eq!(shown.proof, Some(Proof::Certificate), "{shown:?}");
    assert_eq!(shown.lower_bound, shown.cost);
}

#[test]
fn one_set_of_prices_bounds_all_layouts_of_many_labels() {
    let calls: String = (0..12).map(|i| format!("  let v{} = block(v{i}, w)\n", i + 1)).collect();
    let source = format!(
        "mesh x=2, y=2\ndim B = 64\ndim E = 1024\ndim F = 1024
layer stack(v0: bf16 BE_x, w: weight bf16 E_xF_y) -> bf16 BE_x {{\n{calls}  return v12\n}}
layer block(x: bf16 BE?l, w: weight bf16 E_xF_y) -> bf16 BE?l {{
  return gelu(rename(einsum(x, w -> BF), F -> E)) + x\n}}"
    );
    let best = certificate(&source);
    assert_eq!(best.layers[0].forms[0].len(), 1);
    assert!(!best.layers[0].forms[0][0].sides.is_empty());
    let layers = verify_certificate(&best.text()).expect("a certificate");
    assert!(layers[0].lower_bound.0 >= layers[0].cost.0 / 100 * 99, "{layers:?}");
}

/// One value, and products with weights of two layouts, six of each.
#[test]
fn readers_that_pay_the_same_are_one_reader_to_the_checker() {
    let mut source = String::from(
        "mesh x=4, y=4, z=4\ndim B = 512\ndim E = 8192\ndim F = 8192\nlayer f(x: bf16 B_xE_y",
    );
    for i in 0..12 {
        source += &format!(", w{i}: weight bf16 {}", ["E_xF_yz", "E_yF_xz"][i % 2]);
    }
    source += ") -> bf16 B_xF_y {\n";
    for i in 0..12 {
        source += &format!("  let h{i} = gelu(einsum(x, w{i} -> BF))\n");
    }
    let sum: Vec<String> = (0..12).map(|i| format!("h{i}")).collect();
    source += &format!("  return {}\n}}", sum.join(" + "));
    let layers = verify_certificate(&certificate(&source).text()).expect("a certificate");
    assert_eq!(layers[0].proof, Some(Proof::Certificate), "{layers:?}");
}
