//! Hardware files are read; with a correct file, plans are priced, lowered and shown on that chip.

use shard_check::CheckOptions;
use shard_cost::hardware::BUILT_IN;
use shard_cost::{Hardware, Objective};
use shard_driver::pipeline::{self, CompileError};
use shard_grammar::{SourceFile, Span};
use shard_ir::{Mesh, text};
use shard_report::json;
use shard_runtime::Random;
use shard_search::{LowerError, LowerOptions};

use super::plan::whole_pipeline;
use super::program::limits;
use super::{Depth, Mutator, Shardc, Surface, Verdict, hash, text_of, well_formed, words};
use crate::files::{read, root};

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "hardware", extension: "toml", corpus, make, judge };

/// What is lowered for every chip that can be read.
const PROGRAM: &str = "mesh x=4, y=2\ndim B = 64\ndim E = 128\ndim F = 256\n\
    layer f(a: bf16 BE_x, v: weight bf16 EF?, w: weight host bf16 FE?) -> bf16 BE_xy? {\n  \
    return einsum(gelu(einsum(a, v -> BF)), w -> BE)\n}\n";

/// Every built-in chip, and files that use the other keys.
fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    let mut texts: Vec<String> = BUILT_IN.iter().map(|chip| chip.text.to_string()).collect();
    texts.push(read(&root().join("examples/calibration/tpu_v4_measured.toml")));
    let chip = "name = \"c\"\n[chip]\nflops = { bf16 = 2e14, f32 = 1e12 }\nhbm_bytes = \
        1e11\nhbm_bandwidth = 1e12\n";
    for network in [
        "kind = \"flat\"\nbandwidth = 1e9\nlatency = 1e-6",
        "kind = \"torus\"\nlink_bandwidth = 4e10\nhop_latency = 1e-6\nwraparound \
            = \"multiple-of-4\"",
        "kind = \"torus\"\nlink_bandwidth = 4e10\nhop_latency = 0\nwraparound = \"full-axis-4\"\n\
         [network.axes]\nx = { torus = [2, 2] }",
        "kind = \"switched\"\nnode = 2\nnode_bandwidth = 3e11\nnic_bandwidth = 2e10\nalpha = \
            2e-6\n[network.axes]\n\
         y = { kind = \"flat\", bandwidth = 1e9, latency = 0 }",
    ] {
        texts.push(format!("{chip}[network]\n{network}\n[host]\npcie_bandwidth = 3e10\n"));
    }
    texts.into_iter().map(String::into_bytes).collect()
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    Mutator::new(random, corpus, words::HARDWARE).text().into_bytes()
}

fn judge(_: &Shardc, case: &[u8]) -> Verdict {
    let file = SourceFile::new("case.toml", text_of(case));
    let hardware = match Hardware::read(&file.text) {
        Ok(hardware) => hardware,
        Err(errors) => {
            for error in &errors {
                let span = Span::new(error.span.start, error.span.end);
                well_formed::within(&file, span)
                    .map_err(|why| format!("`{}`: {why}", error.message))?;
            }
            return if errors.is_empty() {
                Err("refused without a reason".to_string())
            } else {
                Ok(Depth::Refused)
            };
        }
    };
    json::hardware::hardware([(&hardware, file.text.as_str())]);
    for sizes in [&[4, 2][..], &[1, 1], &[16, 16, 16], &[3, 5], &[1 << 12, 1 << 10]] {
        let axes = ["x", "y", "z"].into_iter().zip(sizes.iter().copied());
        hardware.slice_problem(&Mesh::new(axes).map_err(|error| error.to_string())?);
    }
    let plans = text::parse(&read(&root().join("compiler/cli/tests/files/every_move.shir")));
    for plan in plans.map_err(|error| error.to_string())? {
        let compiled =
            pipeline::compile_plan(plan, &hardware, None, Objective::Serial).map_err(said)?;
        whole_pipeline(None, &compiled, &hardware, Objective::Serial, hash(case))?;
    }
    // A chip without a link to its host's memory gets no weights there: the command line reports
    // this before it lowers.
    let program = if hardware.host_rate.is_some() {
        PROGRAM.to_string()
    } else {
        PROGRAM.replace("host ", "")
    };
    let program = SourceFile::new("case.shard", program);
    let checked = pipeline::check(&program, &CheckOptions::default());
    let options = LowerOptions {
        limits: limits(),
        any_size: hash(case).is_multiple_of(2),
        ..LowerOptions::default()
    };
    let asked = checked.programs.first().ok_or("the program of every case is wrong")?;
    match pipeline::compile(asked, &hardware, &options) {
        Ok(compiled) => whole_pipeline(
            Some((&program, asked)),
            &compiled,
            &hardware,
            Objective::Serial,
            hash(case),
        ),
        Err(CompileError::Lower(LowerError::NoPlanFits { .. } | LowerError::TooLong(_))) => {
            Ok(Depth::Accepted)
        }
        Err(error) => Err(said(error)),
    }
}

fn said(error: CompileError) -> String {
    match error {
        CompileError::Internal(problem) => {
            format!("internal: {} broke: {}", problem.pass, problem.message)
        }
        CompileError::Lower(error) => format!("not lowered: {error}"),
    }
}
