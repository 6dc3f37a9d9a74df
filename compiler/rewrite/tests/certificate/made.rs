//! Certificates as they are made.

use shard_rewrite::Proof;
use shard_rewrite::certificate::{PriceSet, verify_certificate};

use crate::programs::{
    CHIP, RESIDUAL, Random, certificate, certificate_of, inputs_on, palm_block, random_program, verified,
};

#[test]
fn every_example_without_phases_has_a_certificate_and_on_the_flat_network_it_proves_the_plan_best() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let chips = concat!(env!("CARGO_MANIFEST_DIR"), "/../cost/hardware");
    for folder in ["feed_forward", "language", "matmul", "training"] {
        let files = std::fs::read_dir(format!("{examples}/{folder}")).expect("a folder");
        for path in files.map(|f| f.expect("a file").path()).filter(|p| p.extension().is_some_and(|e| e == "shard")) {
            let source = std::fs::read_to_string(&path).expect("text");
            // A certificate is of a file without phases, and the command refuses others.
            if source.lines().any(|line| line.starts_with("phase ")) {
                continue;
            }
            // On its own chip: weights that stay with the host need one that has a host.
            let chip = source.lines().find_map(|line| line.strip_prefix("hardware ")).unwrap_or("tpu-v4-flat");
            let flat = chip == "tpu-v4-flat";
            let chip = std::fs::read_to_string(format!("{chips}/{chip}.toml")).expect("a built-in chip");
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
    let looped =
        |source: &str| certificate_of(shard_rewrite::certificate::Inputs { fuse: true, ..inputs_on(CHIP, source) });
    for source in [RESIDUAL.to_string(), palm_block(1), palm_block(2048)] {
        let with = looped(&source);
        assert!(with.layers[0].plan.contains("collective-einsum"), "{}", with.layers[0].plan);
        let layers = verify_certificate(&with.text()).expect("a certificate");
        assert_eq!(layers[0].proof, Some(Proof::Certificate));
        assert!(layers[0].cost < verified(&source)[0].cost, "loops hide what is sent");
        // Of a space without loops it says nothing.
        let mut without = with.clone();
        without.inputs.fuse = false;
        let error = verify_certificate(&without.text()).expect_err("no such plan").message;
        assert!(error.contains("loops"), "{error}");
    }
}

#[test]
fn where_no_value_is_shared_no_price_is_needed() {
    let chain = "mesh x=4\ndim B = 64\ndim E = 256\nlayer f(x: bf16 BE?, w: weight bf16 EF_x) -> bf16 BF? {
  return gelu(einsum(x, w -> BF))\n}\ndim F = 256";
    assert_eq!(certificate(chain).layers[0].orders, [[PriceSet::default()]]);
}

#[test]
fn a_value_with_many_readers_is_bounded_one_by_one() {
    let source = "mesh x=2, y=2\ndim B = 64\ndim E = 64\nlayer f(x: bf16 BE_x, w: weight bf16 E_yE2) -> bf16 BE_x {
  let a = gelu(x)\n  return a * x + (x + x * a) * (x + a) + x\n}\ndim E2 = 64";
    let layer = &verified(&source.replace(", w: weight bf16 E_yE2", "").replace("\ndim E2 = 64", ""))[0];
    assert!(layer.lower_bound <= layer.cost);
}

#[test]
fn every_random_program_has_a_certificate_that_checks() {
    let mut random = Random(1);
    let mut proven = 0;
    for _ in 0..150 {
        let layer = &verified(&random_program(&mut random))[0];
        assert!(layer.lower_bound <= layer.cost);
        proven += usize::from(layer.proof == Some(Proof::Certificate));
    }
    assert!(proven >= 140, "{proven}");
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
    // 15 orders of the long einsum; and `a` taken out of the sum, with 3 orders of what is left of it.
    assert_eq!(certificate.layers[0].orders.len(), 18);
    assert_eq!(verified(source)[0].proof, Some(Proof::Certificate));
}
