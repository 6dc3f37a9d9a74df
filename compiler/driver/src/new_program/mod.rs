//! What `shardc new` writes: a [`Model`] from a template or a configuration, a mesh that suits it,
//! and the two as text.

pub mod config;
pub mod mesh;
mod text;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_cost::hardware::SliceProblem;
use shard_grammar::SourceFile;
use shard_ir::{Dtype, Mesh, never};

use crate::host::{Host, Outcome, Status};
use mesh::Axes;

/// What stands below the title of a file whose mesh is a face of a slice.
const FACE: &str = "//!\n//! The mesh is taken for a face of a larger slice, whose axes wrap \
    around: these chips alone have no rings.\n";

/// The file of a model on a mesh, formatted; `chip` is the name of the hardware, or its file, and
/// `name` that of the layer.
pub fn file(
    model: &Model,
    axes: &Axes,
    hardware: &Hardware,
    chip: &str,
    name: &str,
    host: &mut dyn Host,
) -> Outcome<String> {
    // Where the mesh is no slice of the chip, but a face of one, the file says so, and is priced
    // so.
    let is_face = Mesh::new(axes.all.clone())
        .is_ok_and(|mesh| matches!(hardware.slice_problem(&mesh), Some(SliceProblem::Face { .. })));
    let face = format!("{}-face", chip);
    let face = Some(face).filter(|face| is_face && Hardware::built_in(face).is_some());
    let line = match (&face, Hardware::built_in(chip)) {
        (Some(face), _) => face.clone(),
        (None, Some(_)) => chip.to_string(),
        (None, None) => format!("\"{}\"", chip),
    };
    let text = text::program(model, axes, &line, name);
    let text = match face {
        Some(_) => text.replacen("//!\n", FACE, 1),
        None => text,
    };
    let written = SourceFile::new("new.shard", text);
    // A mesh or a name of the user's may not suit; then the program says so, as any other.
    let found = check_source(&written, &CheckOptions::default()).diagnostics;
    if found.iter().any(|problem| problem.is_error()) {
        host.report(Some(&written), found);
        return Err(Status::Wrong);
    }
    Ok(shard_grammar::format(&written)
        .unwrap_or_else(|_| never!("a text without an error that is not formatted", written.text)))
}

/// A transformer, as far as its layers need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    /// What it is, for the first line of the file.
    pub title: String,
    /// What the whole is called in the program.
    pub name: &'static str,
    /// What the program leaves out of the real model, for the header.
    pub left_out: Vec<String>,
    /// What numbers are stored and computed in.
    pub dtype: Dtype,
    /// Whether the embedding and its inverse are one table.
    pub tied: bool,
    /// How many layers are stacked.
    pub layers: u64,
    /// d_model.
    pub width: u64,
    /// d_ff.
    pub inner: u64,
    /// Whether the feed-forward layer multiplies by a gate.
    pub gated: bool,
    /// Its map, as the language calls it.
    pub map: &'static str,
    /// The norm, as the language calls it.
    pub norm: &'static str,
    /// Whether attention and feed-forward layer read the same input, side by side.
    pub parallel: bool,
    /// Attention; a model without it is a feed-forward layer alone.
    pub attention: Option<Attention>,
    /// Experts, where the feed-forward layer is a mixture of them.
    pub experts: Option<Experts>,
    /// The size of the vocabulary, where there are an embedding and its inverse.
    pub vocabulary: Option<u64>,
}

/// Heads and their caches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attention {
    /// Heads of queries; a multiple of `kv_heads`.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// d_head.
    pub head: u64,
    /// Positions of the cache.
    pub context: u64,
    /// Whether positions are rotary.
    pub rotary: bool,
}

/// A mixture of experts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// To how many of them a token goes.
    pub chosen: u64,
}

/// What programs of experts leave out of models whose gates are divided by the sum of the chosen
/// ones.
pub const GATES: &str = "gates that are renormalised over the chosen experts";

/// What programs of experts do that models without a capacity do not.
pub const PLACES: &str = "tokens beyond an expert's places (twice its share; a token that finds \
    none goes without the expert)";

/// The templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Template {
    /// A feed-forward layer of two matrices.
    Mlp,
    /// PaLM 540B: multiquery attention beside a gated feed-forward layer.
    PalmBlock,
    /// Llama 3 8B: grouped-query attention, then a gated feed-forward layer.
    LlamaBlock,
    /// Mixtral 8x7B: grouped-query attention, then a mixture of experts.
    MoeBlock,
}

impl Template {
    /// Every template.
    pub const ALL: [Template; 4] =
        [Template::Mlp, Template::PalmBlock, Template::LlamaBlock, Template::MoeBlock];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Template::Mlp => "mlp",
            Template::PalmBlock => "palm-block",
            Template::LlamaBlock => "llama-block",
            Template::MoeBlock => "moe-block",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Template::Mlp => "A feed-forward layer of two matrices",
            Template::PalmBlock => {
                "PaLM 540B: multiquery attention beside a gated feed-forward layer"
            }
            Template::LlamaBlock => {
                "Llama 3 8B: grouped-query attention, then a gated feed-forward layer"
            }
            Template::MoeBlock => {
                "Mixtral 8x7B: grouped-query attention, then a mixture of experts"
            }
        }
    }

    /// The model of a template.
    pub fn model(self) -> Model {
        let heads = |heads, kv_heads, head| Attention {
            heads,
            kv_heads,
            head,
            context: 4096,
            rotary: true,
        };
        let llama = Model {
            title: "A model of the dims of Llama 3 8B".to_string(),
            name: "llama",
            left_out: vec!["the learned scales of the norms".to_string()],
            dtype: Dtype::Bf16,
            tied: false,
            layers: 32,
            width: 4096,
            inner: 14336,
            gated: true,
            map: "silu",
            norm: "rmsnorm",
            parallel: false,
            attention: Some(heads(32, 8, 128)),
            experts: None,
            vocabulary: Some(128_256),
        };
        match self {
            Template::LlamaBlock => llama,
            Template::Mlp => Model {
                title: "A feed-forward layer".to_string(),
                left_out: Vec::new(),
                layers: 1,
                inner: 4 * 4096,
                gated: false,
                map: "gelu",
                attention: None,
                vocabulary: None,
                ..llama
            },
            Template::PalmBlock => Model {
                title: "A model of the dims of PaLM 540B".to_string(),
                name: "palm",
                layers: 118,
                width: 18432,
                inner: 4 * 18432,
                norm: "layernorm",
                parallel: true,
                attention: Some(heads(48, 1, 256)),
                vocabulary: Some(256_000),
                ..llama
            },
            Template::MoeBlock => Model {
                title: "A model of the dims of Mixtral 8x7B".to_string(),
                name: "mixtral",
                left_out: ["the learned scales of the norms", GATES, PLACES]
                    .map(str::to_string)
                    .to_vec(),
                experts: Some(Experts { count: 8, chosen: 2 }),
                vocabulary: Some(32_000),
                ..llama
            },
        }
    }
}

impl Model {
    /// How many parameters it has, norms aside.
    pub fn parameters(&self) -> u64 {
        let matrices = 2 + u64::from(self.gated);
        let experts = self.experts.as_ref().map_or(1, |experts| experts.count);
        let inner = product(&[matrices, self.width, self.inner, experts]);
        let attention = self
            .attention
            .as_ref()
            .map_or(0, |a| product(&[2, self.width, a.head, a.heads.saturating_add(a.kv_heads)]));
        let tables = if self.tied { 1 } else { 2 };
        let vocabulary = product(&[tables, self.width, self.vocabulary.unwrap_or(0)]);
        inner.saturating_add(attention).saturating_mul(self.layers).saturating_add(vocabulary)
    }

    /// How many numbers the caches of some sequences hold.
    pub fn cached(&self, sequences: u64) -> u64 {
        self.attention
            .as_ref()
            .map_or(0, |a| product(&[2, a.kv_heads, a.head, a.context, sequences, self.layers]))
    }
}

/// A product, or the largest number there is.
fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |a, b| a.saturating_mul(*b))
}
