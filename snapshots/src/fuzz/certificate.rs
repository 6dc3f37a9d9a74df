//! Certificates: read and checked. The claim of an accepted certificate is tested: no plan that a
//! search finds takes less than its bound.

use shard_check::CheckOptions;
use shard_cost::Hardware;
use shard_driver::pipeline;
use shard_grammar::SourceFile;
use shard_runtime::Random;
use shard_search::certificate::{Certificate, Found, Inputs, certify, verify_certificate};
use shard_search::{LowerOptions, Proof, lower};

use super::program::limits;
use super::{Depth, Mutator, Shardc, Surface, Verdict, text_of, words};

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "certificate", extension: "json", corpus, make, judge };

/// A slow network and a fast one, without a latency and with one.
const CHIPS: &[&str] = &[
    "name = \"slow\"\n[chip]\nflops = { bf16 = 2e14 }\nhbm_bytes = 1e12\nhbm_bandwidth = \
        1e12\n[network]\n\
     kind = \"flat\"\nbandwidth = 1e9\nlatency = 0.0\n",
    "name = \"fast\"\n[chip]\nflops = { bf16 = 1e12 }\nhbm_bytes = 1e9\nhbm_bandwidth = \
        1e11\n[network]\n\
     kind = \"torus\"\nlink_bandwidth = 1e11\nhop_latency = 1e-6\nwraparound = \"never\"\n",
];

/// Small programs: with all layouts given, with some left open, with a label, of two layers, and a
/// mixture.
const PROGRAMS: &[&str] = &[
    "mesh x=2\ndim B = 8\ndim E = 4\ndim F = 4\nlayer f(a: bf16 B_xE, w: weight bf16 E_xF) -> \
        bf16 BF_x {\n  \
     return einsum(a, w -> BF)\n}\n",
    "mesh x=2, y=2\ndim B = 8\ndim E = 4\ndim F = 8\nlayer f(a: bf16 BE_x, v: weight bf16 EF?, w: \
        weight bf16 FE?) \
     -> bf16 BE_x {\n  return einsum(gelu(einsum(a, v -> BF)), w -> BE)\n}\n",
    "mesh x=2\ndim B = 4\ndim E = 4\nlayer f(a: bf16 BE?l, w: weight bf16 E_x) -> bf16 BE?l { \
        return a * w + a }\n",
    "mesh x=2\ndim B = 4\ndim E = 4\nlayer f(a: bf16 B_xE) -> bf16 B_x { return sum(a over E) }\n\
     layer g(a: bf16 B_xE) -> bf16 BE_x { return softmax(a over E) }\n",
    "mesh x=2\ndim B = 4\ndim E = 4\ndim F = 2\ndim G = 8\nlayer f(a: bf16 BE, v: bf16 EF_x, w: \
        bf16 F_xG) -> bf16 BG_x \
     {\n  let h = einsum(a, v -> BF)\n  return einsum(h, w -> BG)\n}\n",
];

fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    let made = PROGRAMS.iter().flat_map(|source| CHIPS.iter().map(move |chip| made(source, chip)));
    made.map(|certificate| certificate.text().into_bytes()).collect()
}

fn made(source: &str, chip: &str) -> Certificate {
    let hardware = Hardware::parse(chip).expect("the chips above are right");
    let (programs, options) = (crate::judge::compile(source), LowerOptions::default());
    let plans: Vec<_> = programs
        .iter()
        .map(|program| lower(program, &hardware, &options).expect("lowered"))
        .collect();
    let inputs = Inputs {
        file: "case.shard".to_string(),
        source: source.to_string(),
        dims: Vec::new(),
        mesh: None,
        strict: false,
        fuse: false,
        memory_limit: None,
        hardware: chip.to_string(),
    };
    let plans: Vec<_> =
        plans.iter().map(|l| Found { plans: vec![&l.plan], status: l.optimality.status }).collect();
    certify(inputs, &plans, &options.limits).expect("what was lowered is certified")
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    Mutator::new(random, corpus, words::CERTIFICATE).text().into_bytes()
}

fn judge(_: &Shardc, case: &[u8]) -> Verdict {
    let text = text_of(case);
    let verified = match verify_certificate(&text) {
        Ok(verified) => verified,
        Err(error) if error.to_string().is_empty() => {
            return Err("refused without a reason".to_string());
        }
        Err(_) => return Ok(Depth::Refused),
    };
    let certificate: Certificate =
        serde_json::from_str(&text).map_err(|error| format!("accepted: {error}"))?;
    let Inputs { file, source, dims, mesh, strict, fuse, memory_limit, hardware } =
        certificate.inputs;
    let options = CheckOptions { dim_overrides: dims, mesh_override: mesh, strict };
    let checked = pipeline::check(&SourceFile::new(file, source), &options);
    let hardware = Hardware::parse(&hardware).map_err(|error| format!("accepted: {error}"))?;
    let hardware = memory_limit.map_or(hardware.clone(), |bytes| hardware.with_memory_limit(bytes));
    for layer in verified {
        if layer.lower_bound > layer.cost
            || (layer.proof == Some(Proof::Certificate) && layer.lower_bound != layer.cost)
        {
            return Err(format!(
                "accepted with a cost of {:?} and a bound of {:?}",
                layer.cost, layer.lower_bound
            ));
        }
        let named = checked.programs.iter().filter(|program| program.name == layer.layer);
        for program in named {
            let options =
                LowerOptions { limits: limits(), fuse, any_size: true, ..LowerOptions::default() };
            // A program without a plan under these limits tests nothing.
            let Ok(found) = lower(program, &hardware, &options) else { continue };
            let (least, found, bound) =
                (found.optimality.lower_bound, found.optimality.cost, layer.lower_bound);
            if layer.cost < least {
                let cost = layer.cost;
                return Err(format!(
                    "accepted with a plan of {cost:?}, and no plan takes less than {least:?}"
                ));
            }
            if found < bound {
                return Err(format!(
                    "accepted with a bound of {bound:?}, and there is a plan of {found:?}"
                ));
            }
        }
    }
    Ok(Depth::Executed)
}
