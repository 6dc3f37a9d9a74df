//! The programs that are measured, as source text, and what is asked of each.
//!
//! Every program can be had as text: `cargo bench -p shard-search -- --source NAME` prints it, and
//! `shardc explain` takes it. Those of one layer are the files under `programs/`; the others are
//! made from them.

use std::fmt::Write;

use shard_check::{CheckOptions, check_source};
use shard_grammar::SourceFile;
use shard_ir::Program;

const FEED_FORWARD: &str = include_str!("../programs/feed_forward.shard");
const PALM: &str = include_str!("../programs/palm.shard");
const LLAMA: &str = include_str!("../programs/llama.shard");

/// The chip of every program, by its name in `hardware` lines.
pub(crate) const CHIP: &str = "tpu-v4-flat";

/// Meshes of 64 devices with more and more axes. What the files call `y` and `z` becomes these
/// axes.
const MESHES: [(&str, &str, &str); 5] = [
    ("x=64", "", ""),
    ("x=4, y=16", "y", ""),
    ("x=4, y=4, z=4", "y", "z"),
    ("x=4, y=4, z=2, w=2", "y", "zw"),
    ("x=4, y=2, u=2, z=2, w=2", "yu", "zw"),
];

/// The mesh that the files are written for, as an index into [`MESHES`] plus one.
const AXES: usize = 3;

/// A program that is measured.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) text: String,
    /// The number of mesh axes.
    pub(crate) axes: usize,
    /// The time that it should stay under, in milliseconds, where the project has set one.
    pub(crate) mark: Option<f64>,
    /// Whether it takes so long that it is measured only with `--all`.
    pub(crate) slow: bool,
    /// The curves that it is a point of, each with its place along the curve.
    pub(crate) curves: Vec<(Curve, usize)>,
}

/// What grows along a curve.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    Chain,
    PalmStack,
    PalmPrefillStack,
    LlamaStack,
    PalmAxes,
    PalmPrefillAxes,
    FeedForwardDims,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, text: String) -> Case {
        Case { name: name.into(), text, axes: AXES, mark: None, slow: false, curves: Vec::new() }
    }

    pub(crate) fn mark(self, milliseconds: f64) -> Case {
        Case { mark: Some(milliseconds), ..self }
    }

    pub(crate) fn axes(self, axes: usize) -> Case {
        Case { axes, ..self }
    }

    fn slow_if(self, slow: bool) -> Case {
        Case { slow, ..self }
    }

    fn on(mut self, curve: Curve, at: usize) -> Case {
        self.curves.push((curve, at));
        self
    }

    /// The program of the text.
    pub(crate) fn program(&self) -> Program {
        let mut checked =
            check_source(&SourceFile::new(&self.name, &self.text), &CheckOptions::default());
        let errors: Vec<_> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}\n{}", self.name, self.text);
        checked.programs.swap_remove(checked.roots[0])
    }
}

/// Every case, in the order of the table.
pub(crate) fn cases() -> Vec<Case> {
    let prefill = |text: &str| text.replace("dim L = 1\n", "dim L = 2048\n");
    let mut all = vec![
        Case::new("feed_forward", FEED_FORWARD.into()).mark(1.0),
        Case::new("palm_decode", PALM.into()).mark(20.0).on(Curve::PalmAxes, AXES),
        Case::new("palm_prefill", prefill(PALM)).mark(20.0).on(Curve::PalmPrefillAxes, AXES),
        Case::new("llama_decode", LLAMA.into()).mark(20.0),
        Case::new("llama_prefill", prefill(LLAMA)).mark(60.0),
    ];
    for n in [4, 8, 16, 32, 64, 128] {
        let case = Case::new(format!("chain_{n}"), chain(n)).on(Curve::Chain, n);
        all.push(if n == 64 { case.mark(10.0) } else { case });
    }
    for n in [1, 4, 16, 32] {
        let marked = |case: Case| if n == 16 { case.mark(1000.0) } else { case };
        let palm = Case::new(format!("palm_decode_stack_{n}"), stack(PALM, n));
        all.push(marked(palm.on(Curve::PalmStack, n)));
        let palm = Case::new(format!("palm_prefill_stack_{n}"), prefill(&stack(PALM, n)));
        all.push(marked(palm.on(Curve::PalmPrefillStack, n).slow_if(n > 16)));
        let llama = Case::new(format!("llama_decode_stack_{n}"), stack(LLAMA, n));
        all.push(marked(llama.on(Curve::LlamaStack, n)));
    }
    for axes in [1, 2, 4, 5] {
        let case = |name: &str, text: String, marks: [f64; 2]| {
            let case = Case::new(format!("{name}_{axes}_axes"), over_axes(&text, axes))
                .axes(axes)
                .slow_if(axes == 5);
            if axes > AXES { case.mark(marks[axes - AXES - 1]) } else { case }
        };
        all.push(case("palm_decode", PALM.into(), [300.0, 3000.0]).on(Curve::PalmAxes, axes));
        all.push(
            case("palm_prefill", prefill(PALM), [1000.0, 8000.0]).on(Curve::PalmPrefillAxes, axes),
        );
        // K = 8 groups of heads do not split over the 16 devices of a second axis.
        if axes > AXES {
            all.push(case("llama_decode", LLAMA.into(), [300.0, 3000.0]));
            all.push(case("llama_prefill", prefill(LLAMA), [1000.0, 8000.0]));
        }
    }
    for dims in 2..=5 {
        all.push(
            Case::new(format!("feed_forward_{dims}_dims"), of_dims(dims))
                .on(Curve::FeedForwardDims, dims),
        );
    }
    all.extend(super::open::cases());
    all
}

/// A chain of einsums, up and down between two dims.
fn chain(n: usize) -> String {
    let mut text = format!(
        "hardware {CHIP}\nmesh x=4, y=4, z=4\n\ndim B = 512\ndim E = 8192\ndim F = 2 * E\n\n"
    );
    text.push_str("layer chain(\n  h0: bf16 BE_xyz,\n");
    let up = |i: usize| i.is_multiple_of(2);
    for i in 0..n {
        let _ =
            writeln!(text, "  w{i}: weight bf16 {},", if up(i) { "E_xF_yz" } else { "F_yzE_x" });
    }
    let _ = writeln!(text, ") -> bf16 {} {{", if up(n) { "BE_xyz" } else { "BF_xyz" });
    for i in 0..n {
        let _ = writeln!(
            text,
            "  let h{} = einsum(h{i}, w{i} -> {})",
            i + 1,
            if up(i) { "BF" } else { "BE" }
        );
    }
    let _ = writeln!(text, "  return h{n}\n}}");
    text
}

/// The feed-forward layer on activations of so many dims.
fn of_dims(dims: usize) -> String {
    let batch = &"BLMN"[..dims - 1];
    let sizes: String = batch.chars().map(|d| format!("dim {d} = 64\n")).collect();
    FEED_FORWARD.replace("dim B = 64\ndim L = 1\n", &sizes).replace("BL", batch)
}

/// `n` blocks one on another, no two alike: each has its own feed-forward width and its own number
/// of cached positions. What lies between two blocks is free.
fn stack(block: &str, n: usize) -> String {
    let Some((head, layer)) = block.split_once("layer block") else {
        panic!("the file has a layer `block`")
    };
    let is_own = |line: &&str| line.starts_with("dim F") || line.starts_with("dim S");
    let mut text: String = head.lines().filter(|l| !is_own(l)).flat_map(|l| [l, "\n"]).collect();
    for i in 0..n {
        let _ = writeln!(text, "dim F{i} = {}\ndim S{i} = {}", 28672 + 1024 * i, 2048 + 64 * i);
    }
    let (mut parameters, mut results, mut calls, mut returned) =
        (String::new(), String::new(), String::new(), String::new());
    for i in 0..n {
        let own = layer.replace('F', &format!("F{i}")).replace('S', &format!("S{i}"));
        let between = own.replace("bf16 BLE_xyz", "bf16 BLE?");
        let _ = writeln!(text, "\nlayer block{i}{between}");
        let mut arguments = format!("x{i}");
        let lines = own
            .lines()
            .filter(|l| l.starts_with("  ") && l.ends_with(',') && !l.starts_with("  x:"));
        for (name, of_type) in lines.filter_map(|l| l.trim().split_once(':')) {
            let _ = writeln!(parameters, "  {name}{i}:{of_type}");
            let _ = write!(arguments, ", {name}{i}");
        }
        let cache =
            own.lines().find_map(|l| l.trim().strip_prefix("k_cache: cache ")).unwrap_or_default();
        let _ = write!(results, ", keys{i}: {cache} values{i}: {}", cache.trim_end_matches(','));
        let _ = writeln!(calls, "  let (x{}, keys{i}, values{i}) = block{i}({arguments})", i + 1);
        let _ = write!(returned, ", keys{i}, values{i}");
    }
    let _ = write!(
        text,
        "\nlayer stack(\n  x0: bf16 BLE_xyz,\n{parameters}) -> (y: bf16 BLE_xyz{results}) \
            {{\n{calls}"
    );
    let _ = writeln!(text, "  return (x{n}{returned})\n}}");
    text
}

/// The same program over another mesh of as many devices.
fn over_axes(text: &str, axes: usize) -> String {
    let (mesh, y, z) = MESHES[axes - 1];
    let text = text.replace(&format!("mesh {}", MESHES[AXES - 1].0), &format!("mesh {mesh}"));
    let mut out = String::new();
    let mut rest = text.as_str();
    // A subscript is what stands behind `_` after a dim; names have a lower-case letter there.
    while let Some(at) = rest.find('_') {
        let (before, behind) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        let end = behind.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(behind.len());
        if before.ends_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()) {
            let mapped = behind[..end].replace('z', z).replace('y', y);
            if !mapped.is_empty() {
                let _ = write!(out, "_{mapped}");
            }
        } else {
            let _ = write!(out, "_{}", &behind[..end]);
        }
        rest = &behind[end..];
    }
    out + rest
}
