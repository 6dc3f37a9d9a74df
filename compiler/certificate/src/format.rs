//! What a certificate says, and what a check of it has shown.

use serde::{Deserialize, Serialize};
use shard_ir::Picoseconds;

/// The name of the format.
pub const SCHEMA: &str = "shardc.certificate/1";

/// A certificate for layers of one source file: all that its check needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was compiled.
    pub inputs: Inputs,
    /// What is claimed of each layer.
    pub layers: Vec<LayerCertificate>,
}

impl Certificate {
    /// The text of the file.
    pub fn text(&self) -> String {
        // Serialising to memory cannot fail: every key is a string.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// What was compiled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// The name of the source file; for messages alone.
    pub file: String,
    /// The text of the source file.
    pub source: String,
    /// Dims given another right side, in order.
    pub dims: Vec<(String, String)>,
    /// The mesh, where it replaces that of the file.
    pub mesh: Option<Vec<(String, u64)>>,
    /// Every layer is treated as strict.
    pub strict: bool,
    /// Einsums may do a collective in their loops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fuse: bool,
    /// The text of the hardware file.
    pub hardware: String,
}

/// What is claimed of one layer, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerCertificate {
    /// The layer's name.
    pub layer: String,
    /// The claim.
    pub proof: Claim,
    /// The time of the plan, its steps one after another, in picoseconds.
    pub cost_ps: u64,
    /// What the prices show that every plan takes at least, in picoseconds.
    pub lower_bound_ps: u64,
    /// How much of the plan space the bound is about.
    pub limits: SpaceLimits,
    /// The plan, as IR text.
    pub plan: String,
    /// For each form of the program (an order of multiplication, say), sets of prices: each assignment of layouts to labels is bounded by one of them.
    pub orders: Vec<Vec<PriceSet>>,
}

/// What a certificate says that its prices, or the search, have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// The bound equals the cost.
    Certificate,
    /// The bound is lower; that no plan lies between the two, only the search can say.
    Search,
    /// The bound is lower, and the search did not close the gap.
    None,
}

/// Where the plan space is cut, by counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceLimits {
    /// Forms of the program.
    pub orders: usize,
    /// Layouts of labels, over all of them.
    pub label_layouts: usize,
}

/// What a proof rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// A lower bound, from prices on values alone, that equals the plan's cost.
    Certificate,
    /// The search is exhausted: every cheaper plan was ruled out one by one.
    Search,
}

/// What a check has shown of one layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The layer.
    pub layer: String,
    /// The time of its plan.
    pub cost: Picoseconds,
    /// What every plan takes at least.
    pub lower_bound: Picoseconds,
    /// The chip that the time and the bound are of, by the name in its file.
    pub chip: String,
    /// Whether that file says of the chip what the built-in one of this name does.
    pub built_in: bool,
    /// [`Proof::Certificate`] where cost and bound are equal, whatever the file claims; [`Proof::Search`] where the file
    /// says that the search closed the gap between them; `None` where nothing did.
    pub proof: Option<Proof>,
    /// Alternatives that were held against the least of their kind: strategies of ops with the prices of what they read.
    pub inequalities: u64,
}

impl Verified {
    /// Whether the prices alone prove that no plan takes less.
    pub fn is_proven(&self) -> bool {
        self.proof == Some(Proof::Certificate)
    }
}

/// What is wrong with a certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{message}", layer.as_ref().map(|l| format!("layer `{l}`: ")).unwrap_or_default())]
pub struct CertificateError {
    /// The layer it is about, if any.
    pub layer: Option<String>,
    /// The sentence.
    pub message: String,
}

impl CertificateError {
    /// About the file, or about one layer of it ([`CertificateError::of`]).
    pub fn new(message: impl Into<String>) -> CertificateError {
        CertificateError { layer: None, message: message.into() }
    }

    /// The same, said of a layer.
    #[must_use]
    pub fn of(self, layer: &str) -> CertificateError {
        CertificateError { layer: Some(layer.to_string()), ..self }
    }
}

/// A price for each reader of each value, at each layout that the reader can read. Uses that are left out have the prices
/// that follow from the others (the only use of a value), or none (a use among several).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceSet(pub Vec<UsePrices>);

/// The prices of one use of a value, in picoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsePrices {
    /// The value, by its number in the program.
    pub value: u32,
    /// Which of its uses: readers in program order, the places of one reader from the last; then results, from the last.
    #[serde(rename = "use")]
    pub reader: u32,
    /// One for each layout that the reader can read, in the order of layouts; then for the states inside kernels.
    pub paid: Vec<Run>,
}

/// One price, or one that stands several times in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Run {
    /// The price.
    One(i64),
    /// The price, and how many times.
    Many(i64, u32),
}
