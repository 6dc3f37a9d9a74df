//! A transformer as data, as far as its layers need it.

use shard_ir::Dtype;

use super::order::Piece;
use super::sizes;

/// A whole model: what is around the layers, and the layers by their kinds.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Its title, for the first line of the file.
    pub title: String,
    /// The name of the whole model in the program.
    pub name: &'static str,
    /// What the program leaves out of the real model, for the header.
    pub left_out: Vec<String>,
    /// What the configuration leaves out and the library that runs the model takes for granted, for
    /// the header: keys with their values.
    pub assumed: Vec<String>,
    /// The dtype that numbers are stored and computed in.
    pub dtype: Dtype,
    /// The dtype that the large matrices of feed-forward layers are stored in.
    pub stored: Dtype,
    /// How many numbers of the matrices of experts share a scale, along the dim that a product sums
    /// over; `None` where there are no scales, or they are left out.
    pub block: Option<u64>,
    /// The dtype that the matrices of attention are stored in.
    pub stored_attention: Dtype,
    /// Whether the embedding and its inverse are one table.
    pub tied: bool,
    /// d_model.
    pub width: u64,
    /// The norm, as the language calls it.
    pub norm: &'static str,
    /// What is done to the rows of the embedding.
    pub embedding: Embedding,
    /// What is done to the scores of tokens.
    pub scores: Scores,
    /// The kinds of layers.
    pub kinds: Vec<Block>,
    /// The layers, from the first to the last.
    pub pieces: Vec<Piece>,
    /// The size of the vocabulary, where there are an embedding and its inverse.
    pub vocabulary: Option<u64>,
}

/// What is done to the rows of the embedding.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Embedding {
    /// A factor.
    pub factor: Option<f64>,
    /// A norm.
    pub norm: bool,
    /// Learned positions, so many of them.
    pub positions: Option<u64>,
}

/// What is done to the scores of tokens.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scores {
    /// A factor.
    pub factor: Option<f64>,
    /// The bound between whose negative and itself they are squeezed.
    pub softcap: Option<f64>,
    /// A bias for each token.
    pub bias: bool,
}

/// A kind of layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Its name, where there are several kinds.
    pub name: &'static str,
    /// Where norms and sums stand.
    pub flow: Flow,
    /// A factor of what attention and feed-forward layer add.
    pub residual: Option<f64>,
    /// Attention; a model without it is a feed-forward layer alone.
    pub attention: Option<Attention>,
    /// The feed-forward layer.
    pub feed: Feed,
}

/// Where norms and sums stand in a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// `x + f(norm(x))`.
    Before,
    /// `x + norm(f(x))`.
    Behind,
    /// `x + norm(f(norm(x)))`.
    Around,
    /// Attention and feed-forward layer read the same norm of `x`, side by side.
    Parallel,
}

/// Heads and their caches.
#[derive(Clone, PartialEq, Debug)]
pub struct Attention {
    /// Heads of queries; a multiple of `kv_heads`.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// d_head; of latent attention, the part of a key that bears no position.
    pub head: u64,
    /// Positions of a sequence that the caches may hold.
    pub context: u64,
    /// Which of these positions a token sees.
    pub sees: Sees,
    /// The part of a head that the rotary embedding turns.
    pub rotary: Rotary,
    /// How queries are scaled by their position.
    pub tuned: Option<Tuned>,
    /// Latent queries, keys and values.
    pub latent: Option<Latent>,
    /// Scores are divided by this.
    pub divisor: f64,
    /// Which products have a bias.
    pub bias: Biases,
    /// Which values of queries and keys are normalised.
    pub norms: HeadNorms,
    /// The bound between whose negative and itself scores are squeezed.
    pub softcap: Option<f64>,
    /// Whether each head has a learned score that takes weight and gives no value.
    pub sinks: bool,
    /// Whether scores have a bias by position, a parameter of the model.
    pub alibi: bool,
}

/// Which products of attention have a bias.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Biases {
    /// Queries, keys and values.
    pub inputs: bool,
    /// What is added to the layer's input.
    pub output: bool,
}

/// Which positions a token sees of those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// All.
    All,
    /// The last so many, its own among them.
    Window(u64),
    /// Those of its own chunk of so many.
    Chunk(u64),
}

/// The part of queries and keys that the rotary embedding turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotary {
    /// Nothing.
    No,
    /// All of a head.
    Whole,
    /// The first so many elements of a head.
    Part(u64),
}

/// Queries grow with their position: the one at `p`, counted from 0, is multiplied by
/// `ln(floor((p + 1) / step) + 1) * factor + 1`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuned {
    /// The number of positions after which the factor grows.
    pub step: u64,
    /// How much of the logarithm is added.
    pub factor: f64,
}

/// Queries, keys and values that are made from a smaller vector, which the cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latent {
    /// The size of the vector of queries; `None` where they are made from the input itself.
    pub queries: Option<u64>,
    /// The size of the vector of keys and values.
    pub keys: u64,
    /// The size of the part of a key that is turned by its position, one for all heads.
    pub turned: u64,
    /// The size of a head's values.
    pub values: u64,
}

/// Which values of queries and keys are normalised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadNorms {
    /// None.
    No,
    /// Each head, before it is turned.
    Each,
    /// Each head, after it is turned.
    Turned,
    /// All heads as one.
    All,
}

/// What a layer does beside attention, or in place of it.
#[derive(Clone, PartialEq, Debug)]
pub enum Feed {
    /// The same matrices for each token.
    Dense(Dense),
    /// A mixture of experts.
    Experts(Experts),
    /// A recurrence over positions; a layer with it has nothing else.
    StateSpace(StateSpace),
}

/// The state-space layer of Mamba-2: a state for each head, and a short convolution in front.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateSpace {
    /// Groups of heads, each with inputs and outputs of the state of its own.
    pub groups: u64,
    /// Heads of a group.
    pub heads: u64,
    /// d_head.
    pub head: u64,
    /// d_state.
    pub state: u64,
    /// Taps of the convolution.
    pub taps: u64,
    /// Tokens of a chunk of a prompt.
    pub chunk: u64,
    /// Whether the convolution has biases.
    pub bias: bool,
    /// Its map, as the language calls it.
    pub map: &'static str,
}

/// Matrices to d_ff and back.
#[derive(Clone, PartialEq, Debug)]
pub struct Dense {
    /// d_ff.
    pub inner: u64,
    /// Whether it multiplies by a gate.
    pub gated: bool,
    /// Its map, as the language calls it.
    pub map: &'static str,
    /// Whether its products have biases.
    pub bias: bool,
}

/// A mixture of experts.
#[derive(Clone, PartialEq, Debug)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// The number of experts that a token is sent to.
    pub chosen: u64,
    /// What each of them is.
    pub each: Dense,
    /// The limit of the clamped gate of gpt-oss; `None` for a plain gate.
    pub clamped: Option<f64>,
    /// How the gates are made.
    pub gates: Gates,
    /// An expert that every token goes to.
    pub shared: Option<Shared>,
}

/// How the gates of experts are made.
#[derive(Clone, PartialEq, Debug)]
pub struct Gates {
    /// `softmax` over the experts, or `sigmoid` of each.
    pub map: GateMap,
    /// Whether the product that the gates are made of has a bias.
    pub bias: bool,
    /// Whether a bias is added for the choice alone.
    pub selection_bias: bool,
    /// Groups of experts, of which some are chosen first.
    pub groups: Option<Groups>,
    /// Whether the gates of the chosen experts are divided by their sum.
    pub renormalised: bool,
    /// A factor.
    pub factor: Option<f64>,
    /// Whether the gates scale what experts read, and not what they give.
    pub on_inputs: bool,
}

/// The function that makes the gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateMap {
    /// A softmax over all experts.
    Softmax,
    /// A sigmoid of each.
    Sigmoid,
}

/// Groups of experts, of which some are chosen first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// How many there are.
    pub count: u64,
    /// How many of them are chosen.
    pub chosen: u64,
    /// The number of its best experts by whose sum a group is judged.
    pub judged_by: u64,
}

/// An expert that every token goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Its d_ff.
    pub inner: u64,
    /// Whether it has a gate of its own.
    pub gate: bool,
}

/// What is left out of programs with experts, and models without a capacity do.
pub const PLACES: &str = "tokens beyond an expert's places (twice its share; a token that finds \
    none goes without the expert)";

/// What is left out of every program with norms.
pub const SCALES: &str = "the learned scales of the norms";

impl Attention {
    /// Plain attention of so many heads to all positions, scaled by the root of a head.
    pub fn plain(heads: u64, kv_heads: u64, head: u64, context: u64) -> Attention {
        Attention {
            heads,
            kv_heads,
            head,
            context,
            sees: Sees::All,
            rotary: Rotary::Whole,
            tuned: None,
            latent: None,
            divisor: (head as f64).sqrt(),
            bias: Biases::default(),
            norms: HeadNorms::No,
            softcap: None,
            sinks: false,
            alibi: false,
        }
    }

    /// The number of heads that a cache has: latents are shared by all heads.
    pub fn cached_heads(&self) -> u64 {
        if self.latent.is_some() { 1 } else { self.kv_heads }
    }
}

impl Gates {
    /// A softmax over all experts.
    pub fn softmax(renormalised: bool) -> Gates {
        Gates {
            map: GateMap::Softmax,
            bias: false,
            selection_bias: false,
            groups: None,
            renormalised,
            factor: None,
            on_inputs: false,
        }
    }
}

impl Feed {
    /// Its d_ff, or that of an expert; the groups of a recurrence.
    pub fn inner(&self) -> u64 {
        match self {
            Feed::Dense(dense) => dense.inner,
            Feed::Experts(experts) => experts.each.inner,
            // The last axis of a mesh is to divide the groups, as it divides d_ff.
            Feed::StateSpace(space) => space.groups,
        }
    }
}

impl Block {
    /// Its experts, if any.
    pub fn experts(&self) -> Option<&Experts> {
        match &self.feed {
            Feed::Experts(experts) => Some(experts),
            Feed::Dense(_) | Feed::StateSpace(_) => None,
        }
    }

    /// Its recurrence, if it is one.
    pub fn state_space(&self) -> Option<&StateSpace> {
        match &self.feed {
            Feed::StateSpace(space) => Some(space),
            Feed::Dense(_) | Feed::Experts(_) => None,
        }
    }
}

impl Model {
    /// The recurrence of the first kind that is one.
    pub fn state_space(&self) -> Option<&StateSpace> {
        self.kinds.iter().find_map(Block::state_space)
    }

    /// The experts of the first kind that has any.
    pub fn experts(&self) -> Option<&Experts> {
        self.kinds.iter().find_map(Block::experts)
    }

    /// The attention of the first kind that has it.
    pub fn attention(&self) -> Option<&Attention> {
        self.kinds.iter().find_map(|kind| kind.attention.as_ref())
    }

    /// How many parameters it has, norms aside.
    pub fn parameters(&self) -> u64 {
        sizes::parameters(self)
    }

    /// How many numbers the caches of some sequences hold.
    pub fn cached(&self, sequences: u64) -> u64 {
        sizes::cached(self).saturating_mul(sequences)
    }
}
