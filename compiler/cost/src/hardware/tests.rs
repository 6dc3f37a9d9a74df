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
    assert_eq!(hw.network, Network::Flat { bandwidth: 270_000_000_000, latency: Picoseconds(0) });
}

#[test]
fn rates_are_multiplied_by_the_efficiency_once() {
    let hw =
        Hardware::parse(&GOOD.replace("[network]", "[efficiency]\nmatmul = 0.5\nnetwork = 0.25\n[network]")).unwrap();
    assert_eq!(hw.flops_rate(Dtype::Bf16), 50_000_000_000_000);
    assert_eq!(hw.network, Network::Flat { bandwidth: 25_000_000_000, latency: Picoseconds(1_000_000) });
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
    assert_eq!(e.message, "`network.bandwidth` must be a number greater than 0 and at most 1e18, and is -3.0");
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
    assert_eq!(e.help.as_deref(), Some("the keys here are flops, hbm_bandwidth, hbm_bytes"));
}

#[test]
fn other_networks_are_named_as_not_supported_yet() {
    let e = error(&GOOD.replace("\"flat\"", "\"torus\""));
    assert_eq!(e.message, "network kind `torus` is not supported yet");
    let e = error(&GOOD.replace("\"flat\"", "\"ether\""));
    assert_eq!(e.message, "unknown network kind `ether`");
    let e = error(&format!("{GOOD}\n[network.axes]\ndcn = {{ kind = \"flat\" }}\n"));
    assert_eq!(e.key, "network.axes");
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
