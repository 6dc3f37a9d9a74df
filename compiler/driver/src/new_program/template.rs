//! The templates of `shardc new`.

use shard_ir::Dtype;

use super::model::{
    Attention, Block, Dense, Embedding, Experts, Feed, Flow, Gates, Model, PLACES, SCALES, Scores,
};
use super::order::Piece;

shard_ir::worded! {
    /// The templates.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Template {
        /// A feed-forward layer of two matrices.
        Mlp = "mlp",
        /// PaLM 540B: multiquery attention beside a gated feed-forward layer.
        PalmBlock = "palm-block",
        /// Llama 3 8B: grouped-query attention, then a gated feed-forward layer.
        LlamaBlock = "llama-block",
        /// Mixtral 8x7B: grouped-query attention, then a mixture of experts.
        MoeBlock = "moe-block",
    }
    /// The word on the command line.
    fn name;
}

impl Template {
    /// Its description, in a line.
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
        let attention = |heads, kv_heads, head| Some(Attention::plain(heads, kv_heads, head, 4096));
        let gated = |inner| Dense { inner, gated: true, map: "silu", bias: false };
        let block =
            |flow, attention, feed| Block { name: "block", flow, residual: None, attention, feed };
        let model = |kind, times| Model {
            title: "A model of the dims of Llama 3 8B".to_string(),
            name: "llama",
            left_out: vec![SCALES.to_string()],
            assumed: Vec::new(),
            dtype: Dtype::Bf16,
            stored: Dtype::Bf16,
            block: None,
            stored_attention: Dtype::Bf16,
            tied: false,
            width: 4096,
            norm: "rmsnorm",
            embedding: Embedding::default(),
            scores: Scores::default(),
            kinds: vec![kind],
            pieces: vec![Piece { kinds: vec![0], times }],
            vocabulary: Some(128_256),
        };
        match self {
            Template::LlamaBlock => {
                let feed = Feed::Dense(gated(14336));
                model(block(Flow::Before, attention(32, 8, 128), feed), 32)
            }
            Template::Mlp => {
                let plain = Dense { inner: 4 * 4096, gated: false, map: "gelu", bias: false };
                Model {
                    title: "A feed-forward layer".to_string(),
                    left_out: Vec::new(),
                    vocabulary: None,
                    ..model(block(Flow::Before, None, Feed::Dense(plain)), 1)
                }
            }
            Template::PalmBlock => {
                let feed = Feed::Dense(gated(4 * 18432));
                Model {
                    title: "A model of the dims of PaLM 540B".to_string(),
                    name: "palm",
                    width: 18432,
                    norm: "layernorm",
                    vocabulary: Some(256_000),
                    ..model(block(Flow::Parallel, attention(48, 1, 256), feed), 118)
                }
            }
            Template::MoeBlock => {
                let experts = Experts {
                    count: 8,
                    chosen: 2,
                    each: gated(14336),
                    clamped: None,
                    gates: Gates::softmax(true),
                    shared: None,
                };
                let feed = Feed::Experts(experts);
                Model {
                    title: "A model of the dims of Mixtral 8x7B".to_string(),
                    name: "mixtral",
                    left_out: [SCALES, PLACES].map(str::to_string).to_vec(),
                    vocabulary: Some(32_000),
                    ..model(block(Flow::Before, attention(32, 8, 128), feed), 32)
                }
            }
        }
    }
}
