//! `.npy` files of `shardc run --input`.

use shard_runtime::Random;

use super::{Depth, Mutator, Shardc, Surface, Verdict, text_of};

/// The surface.
pub(super) const SURFACE: Surface = Surface { name: "npy", extension: "npy", corpus, make, judge };

/// The program that reads the file: its parameter `x` has 2 times 4 elements.
const PROGRAM: &str = "hardware tpu-v4-flat\nmesh x=2\ndim B = 2\ndim E = 4\ndim F = 2\n\
    layer f(x: f32 B_xE, w: weight f32 E_xF) -> f32 BF { return einsum(x, w -> BF) }\n";

/// Words of a header.
const WORDS: &[&[&str]] = &[
    &[
        "<f8", "<f4", "<f2", ">f8", "|b1", "|u1", "<i8", "<u8", "<c16", "|S8", "<U4", "|O", "<M8",
        "<f9", "f", "",
    ],
    &["True", "False", "None", "1", "'C'"],
    &["descr", "fortran_order", "shape", "other"],
    &[
        "(2, 4)",
        "(4, 2)",
        "(8,)",
        "()",
        "(2, 4, 1)",
        "(0,)",
        "(2,)",
        "[2, 4]",
        "(-2, 4)",
        "(1000000000000, 8)",
    ],
    &["[('a', '<f8')]", "('<f8', (2,))", "{'a': 1}", "18446744073709551615", "9223372036854775807"],
];

/// Types with the bytes of an element.
const TYPES: &[(&str, usize)] = &[
    ("<f8", 8),
    ("<f4", 4),
    (">f8", 8),
    ("<f2", 2),
    ("<i8", 8),
    ("<i4", 4),
    ("<u2", 2),
    ("|i1", 1),
    ("|u1", 1),
    ("|b1", 1),
    ("<c16", 16),
];

/// The same numbers in every type, in both orders, and in a later version of the format.
fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for (descr, bytes) in TYPES {
        for (order, version) in [("False", 1), ("True", 1), ("False", 2)] {
            let header =
                format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (2, 4), }}");
            let data: Vec<u8> = (0..8 * bytes)
                .map(|at| u8::from((at as u64).is_multiple_of(*bytes as u64)))
                .collect();
            files.push(file(version, &header, &data));
        }
    }
    files
}

/// A file: the mark, the version, the length of the header, the header, the data.
fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{header:<117}\n");
    let length = match version {
        1 => (header.len() as u16).to_le_bytes().to_vec(),
        _ => (header.len() as u32).to_le_bytes().to_vec(),
    };
    [b"\x93NUMPY", &[version, 0][..], &length, header.as_bytes(), data].concat()
}

/// Another header, other data, or other bytes anywhere.
fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len() as u64) as usize].clone();
    let start = if bytes[6] == 1 { 10 } else { 12 };
    let behind = bytes.iter().position(|b| *b == b'\n').map_or(start, |at| at + 1);
    match random.below(4) {
        0 | 1 => {
            let (header, data) = (text_of(&bytes[start..behind]), bytes[behind..].to_vec());
            let headers = [header.trim_end().as_bytes().to_vec()];
            let spoiled = Mutator::new(random, &headers, WORDS).text();
            // As long as the format allows: the length is right, and the content is not.
            let spoiled: String = spoiled.chars().take(4000).collect();
            bytes = file(1 + random.below(2) as u8, &spoiled, &data);
        }
        2 => {
            let end = random.below(bytes.len() as u64 + 1) as usize;
            bytes.truncate(end);
        }
        _ => {
            for _ in 0..1 + random.below(6) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] =
                    [0, 1, 0x7f, 0x80, 0xff, random.below(256) as u8][random.below(6) as usize];
            }
        }
    }
    bytes
}

fn judge(shardc: &Shardc, case: &[u8]) -> Verdict {
    shardc.put("case.npy", case)?;
    shardc.put("case.shard", PROGRAM.as_bytes())?;
    let ended = shardc
        .run(&["run", "case.shard", "--full", "--input", "x=case.npy", "--output", "out"], b"")?;
    match ended.status {
        0 => Ok(Depth::Executed),
        _ if ended.err.is_empty() && ended.out.is_empty() => {
            Err("refused without a reason".to_string())
        }
        _ => Ok(Depth::Refused),
    }
}
