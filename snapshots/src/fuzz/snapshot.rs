//! `.lowered.snap` files, for `shardc snapshot` and as a side of `diff`.

use shard_runtime::Random;

use super::{Depth, Mutator, Shardc, Surface, Verdict, text_of, words};
use crate::files::{read, root};

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "snapshot", extension: "snap", corpus, make, judge };

/// The program of the snapshots.
const PROGRAM: &str = "hardware tpu-v4-flat\nmesh x=2, y=2\ndim B = 8\ndim E = 16\ndim F = 32\n\
    layer mlp(x: bf16 BE_x, v: weight bf16 E_xF_y, w: weight bf16 F_yE_x) -> bf16 BE_x {\n  \
    let h = gelu(einsum(x, v -> BF))\n  return einsum(h, w -> BE)\n}\n";

/// The right snapshot, and others: of other programs, with the header that `cargo insta` writes.
fn corpus(shardc: &Shardc) -> Vec<Vec<u8>> {
    let others = [
        "feed_forward-2d_weight_stationary",
        "matmul-case1_no_contracted_split",
        "language-phases",
    ];
    let path = |name: &str| root().join(format!("snapshots/lowered/{name}.snap"));
    let others = others.iter().map(|name| read(&path(name)).into_bytes());
    let right = right(shardc).unwrap_or_else(|why| panic!("{why}"));
    std::iter::repeat_n(right, 4).chain(others).collect()
}

/// What `snapshot --update` writes.
fn right(shardc: &Shardc) -> Result<Vec<u8>, String> {
    shardc.put("case.shard", PROGRAM.as_bytes())?;
    let _ = std::fs::remove_file(shardc.path("case.lowered.snap"));
    shardc.run(&["snapshot", "--update", "case.shard"], b"")?;
    std::fs::read(shardc.path("case.lowered.snap")).map_err(|error| error.to_string())
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let spoiled = Mutator::new(random, corpus, words::SHIR).text();
    match random.below(8) {
        0 => spoiled.replace('\n', "\r\n").into_bytes(),
        _ => spoiled.into_bytes(),
    }
}

fn judge(shardc: &Shardc, case: &[u8]) -> Verdict {
    shardc.put("case.shard", PROGRAM.as_bytes())?;
    shardc.put("case.lowered.snap", case)?;
    let checked = shardc.run(&["snapshot", "case.shard"], b"")?;
    shardc.run(&["snapshot", "case.shard", "--format", "sarif"], b"")?;
    shardc.run(&["diff", "case.lowered.snap", "case.shard"], b"")?;
    if checked.status != 0 {
        return Ok(Depth::Refused);
    }
    // Nothing but the ends of lines may differ.
    let lines = |bytes: &[u8]| text_of(bytes).replace("\r\n", "\n");
    if lines(&right(shardc)?) == lines(case) {
        Ok(Depth::Executed)
    } else {
        Err("a snapshot that differs is taken for the same".to_string())
    }
}
