//! Makes certificates of source text, and has the programs of these tests.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_runtime::Random;
use shard_search::certificate::{
    Certificate, Found, Inputs, Verified, certify, verify_certificate,
};
use shard_search::{Limits, LowerOptions, Lowered, Status, lower, share_weights};

pub(crate) const CHIP: &str = include_str!("../../../cost/hardware/tpu-v4-flat.toml");

/// A feed-forward layer whose input has two readers.
pub(crate) const RESIDUAL: &str = "
mesh x=4, y=2
dim B = 64
dim E = 256
dim F = 1024
layer mlp(x: bf16 BE_x, w_in: weight bf16 E_xF_y, w_out: weight bf16 F_yE_x) -> bf16 BE_x {
  let h = gelu(einsum(x, w_in -> BF))
  let y = einsum(h, w_out -> BE)
  return y + x
}";

/// A source on a chip.
pub(crate) fn inputs_on(chip: &str, source: &str) -> Inputs {
    Inputs {
        file: "test.shard".into(),
        source: source.into(),
        dims: Vec::new(),
        mesh: None,
        strict: false,
        fuse: false,
        memory_limit: None,
        hardware: chip.into(),
    }
}

/// The certificate of every layer of a text that no other layer calls.
pub(crate) fn certificate(source: &str) -> Certificate {
    certificate_of(inputs_on(CHIP, source))
}

/// The same for any inputs.
pub(crate) fn certificate_of(inputs: Inputs) -> Certificate {
    certificate_within(inputs, &Limits::default())
}

/// The same within limits.
pub(crate) fn certificate_within(inputs: Inputs, limits: &Limits) -> Certificate {
    let source = &inputs.source;
    let file = SourceFile::new(inputs.file.as_str(), inputs.source.as_str());
    let checked = check_source(&file, &CheckOptions::default());
    let errors: Vec<&str> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| d.message.as_str()).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{source}");
    let chip = Hardware::parse(&inputs.hardware).expect("a hardware file");
    let chip = inputs.memory_limit.map_or(chip.clone(), |bytes| chip.with_memory_limit(bytes));
    let options = LowerOptions { fuse: inputs.fuse, ..LowerOptions::default() };
    let mut names: Vec<&str> =
        checked.roots.iter().map(|root| checked.programs[*root].name.as_str()).collect();
    names.dedup();
    let lowered: Vec<Vec<Lowered>> = names
        .into_iter()
        .map(|name| {
            let phases: Vec<&Program> =
                checked.programs.iter().filter(|p| p.name == name).collect();
            let shared =
                share_weights(&phases, &chip, &options).unwrap_or_else(|e| panic!("{e}\n{source}"));
            let stored = shared.map(|shared| shared.programs);
            let phases = stored.as_ref().map_or(phases, |stored| stored.iter().collect());
            let lowered = phases.into_iter().map(|p| lower(p, &chip, &options));
            lowered.map(|found| found.unwrap_or_else(|e| panic!("{e}\n{source}"))).collect()
        })
        .collect();
    let layers: Vec<_> = lowered
        .iter()
        .map(|phases| {
            let proven = phases.iter().all(|l| l.optimality.status == Status::Proven);
            let status = if proven { Status::Proven } else { Status::Bounded };
            Found { plans: phases.iter().map(|l| &l.plan).collect(), status }
        })
        .collect();
    certify(inputs.clone(), &layers, limits).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// The plan of the first layer of inputs, where one fits.
pub(crate) fn lowered(inputs: &Inputs) -> Option<Lowered> {
    let file = SourceFile::new(inputs.file.as_str(), inputs.source.as_str());
    let checked = check_source(&file, &CheckOptions::default());
    let chip = Hardware::parse(&inputs.hardware).expect("a hardware file");
    let chip = inputs.memory_limit.map_or(chip.clone(), |bytes| chip.with_memory_limit(bytes));
    lower(&checked.programs[0], &chip, &LowerOptions::default()).ok()
}

/// What the checker says of the first layer of a certificate.
pub(crate) fn shown(certificate: &Certificate) -> Verified {
    verify_certificate(&certificate.text()).unwrap_or_else(|error| panic!("{error}")).remove(0)
}

/// Why a certificate is refused.
pub(crate) fn refused(certificate: &Certificate) -> String {
    match verify_certificate(&certificate.text()) {
        Ok(verified) => panic!("{verified:?}"),
        Err(error) => error.message,
    }
}

/// What the check of the certificate of a text says.
pub(crate) fn verified(source: &str) -> Vec<Verified> {
    verify_certificate(&certificate(source).text())
        .unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// One PaLM block on 64 chips: attention with one key head beside a feed-forward layer, `length`
/// tokens a step.
pub(crate) fn palm_block(length: u64) -> String {
    format!(
        "mesh x=4, y=4, z=4
dim B = 64
dim L = {length}
dim S = 2048
dim E = 18432
dim F = 4 * E
dim H = 64
dim Q = 256
layer block(
  x: bf16 BLE_xyz, kc: cache bf16 B_xyzSQ, vc: cache bf16 B_xyzSQ,
  wq: weight bf16 E_xH_yzQ, wk: weight bf16 E_xyzQ, wv: weight bf16 E_xyzQ, wo: weight bf16 H_yzQE_x,
  w_in: weight bf16 E_xF_yz, w_out: weight bf16 F_yzE_x,
) -> (y: bf16 BLE_xyz, k2: bf16 B_xyzSQ, v2: bf16 B_xyzSQ) {{
  let h = rmsnorm(x over E)
  let k2 = append(kc, einsum(h, wk -> BLQ), L -> S)
  let v2 = append(vc, einsum(h, wv -> BLQ), L -> S)
  let s = einsum(einsum(h, wq -> BLHQ), k2 -> BLHS)
  let o = einsum(softmax(s over S), v2 -> BLHQ)
  let y = einsum(o, wo -> BLE) + einsum(gelu(einsum(h, w_in -> BLF)), w_out -> BLE) + x
  return (y, k2, v2)
}}"
    )
}

/// A program of a few ops on square-ish matrices: shared values, residuals, labels, pins, products
/// of three, calls of elementwise ops.
pub(crate) fn random_program(random: &mut Random) -> String {
    let mesh = random.pick(&["x=2, y=2", "x=4", "x=2, y=4", "x=2, y=2, z=2"]);
    let split =
        |random: &mut Random| random.pick(&["B_xC", "BC_x", "BC", "BC?", "BC?l", "B_(x)C?"]);
    let mut names = vec!["a".to_string(), "b".to_string()];
    let mut lines = String::new();
    for i in 0..2 + random.index(4) {
        let (one, other) =
            (names[random.index(names.len())].clone(), names[random.index(names.len())].clone());
        let right = match random.index(6) {
            0 => format!("gelu({one})"),
            1 => format!("{one} + {other}"),
            2 => format!("{one} * {other}"),
            3 => format!("einsum({one}, w, u -> BC)"),
            4 => format!("softmax({one} over C)"),
            _ => format!("einsum(einsum({one}, w -> BD), u -> BC)"),
        };
        let pin = if random.index(5) == 0 {
            random.pick(&[": B_xC", ": BC_x", ": BC?", ": BC?l"])
        } else {
            ""
        };
        lines.push_str(&format!("  let v{i}{pin} = {right}\n"));
        names.push(format!("v{i}"));
    }
    let (a, b, y) = (split(random), split(random), split(random));
    let last = &names[names.len() - 1];
    let result = if random.index(3) == 0 { format!("{last} + a") } else { last.clone() };
    let sizes = random
        .pick(&["dim B = 8\ndim C = 16\ndim D = 32", "dim B = 4096\ndim C = 1024\ndim D = 4096"]);
    format!(
        "mesh {mesh}\n{sizes}\nlayer f(a: bf16 {a}, b: bf16 {b}, w: weight bf16 CD_x, u: weight bf16 D_xC) -> bf16 {y} {{
{lines}  return {result}\n}}"
    )
}
