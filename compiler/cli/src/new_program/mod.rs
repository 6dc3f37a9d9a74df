//! What `shardc new` writes: a [`Model`] from a template or a configuration, a mesh that suits it, and the two as text.

use shard_ir::Dtype;

pub(crate) mod config;
pub(crate) mod mesh;
pub(crate) mod text;

/// A transformer, as far as its layers need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Model {
    /// What it is, for the first line of the file.
    pub(crate) title: String,
    /// What the whole is called in the program.
    pub(crate) name: &'static str,
    /// What the program leaves out of the real model, for the header.
    pub(crate) left_out: Vec<String>,
    /// What numbers are stored and computed in.
    pub(crate) dtype: Dtype,
    /// Whether the embedding and its inverse are one table.
    pub(crate) tied: bool,
    /// How many layers are stacked.
    pub(crate) layers: u64,
    /// d_model.
    pub(crate) width: u64,
    /// d_ff.
    pub(crate) inner: u64,
    /// Whether the feed-forward layer multiplies by a gate.
    pub(crate) gated: bool,
    /// Its map, as the language calls it.
    pub(crate) map: &'static str,
    /// The norm, as the language calls it.
    pub(crate) norm: &'static str,
    /// Whether attention and feed-forward layer read the same input, side by side.
    pub(crate) parallel: bool,
    /// Attention; a model without it is a feed-forward layer alone.
    pub(crate) attention: Option<Attention>,
    /// Experts, where the feed-forward layer is a mixture of them.
    pub(crate) experts: Option<Experts>,
    /// The size of the vocabulary, where there are an embedding and its inverse.
    pub(crate) vocabulary: Option<u64>,
}

/// Heads and their caches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attention {
    /// Heads of queries; a multiple of `kv_heads`.
    pub(crate) heads: u64,
    /// Heads of keys and values.
    pub(crate) kv_heads: u64,
    /// d_head.
    pub(crate) head: u64,
    /// Positions of the cache.
    pub(crate) context: u64,
    /// Whether positions are rotary.
    pub(crate) rotary: bool,
}

/// A mixture of experts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Experts {
    /// How many there are.
    pub(crate) count: u64,
    /// To how many of them a token goes.
    pub(crate) chosen: u64,
}

/// What programs of experts leave out of models whose gates are divided by the sum of the chosen ones.
pub(crate) const GATES: &str = "gates that are renormalised over the chosen experts";

/// What programs of experts do that models without a capacity do not.
pub(crate) const PLACES: &str =
    "tokens beyond an expert's places (twice its share; a token that finds none goes without the expert)";

/// The templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Template {
    /// A feed-forward layer of two matrices
    Mlp,
    /// PaLM 540B: multiquery attention beside a gated feed-forward layer
    PalmBlock,
    /// Llama 3 8B: grouped-query attention, then a gated feed-forward layer
    LlamaBlock,
    /// Mixtral 8x7B: grouped-query attention, then a mixture of experts
    MoeBlock,
}

impl Template {
    /// The model of a template.
    pub(crate) fn model(self) -> Model {
        let heads = |heads, kv_heads, head| Attention { heads, kv_heads, head, context: 4096, rotary: true };
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
                left_out: ["the learned scales of the norms", GATES, PLACES].map(str::to_string).to_vec(),
                experts: Some(Experts { count: 8, chosen: 2 }),
                vocabulary: Some(32_000),
                ..llama
            },
        }
    }
}

impl Model {
    /// How many parameters it has, norms aside.
    pub(crate) fn parameters(&self) -> u64 {
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
    pub(crate) fn cached(&self, sequences: u64) -> u64 {
        self.attention.as_ref().map_or(0, |a| product(&[2, a.kv_heads, a.head, a.context, sequences, self.layers]))
    }
}

/// A product, or the largest number there is.
fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |a, b| a.saturating_mul(*b))
}
