//! Certificates: why no plan of the plan space takes less time than a plan, so that anybody can check it.
//!
//! A certificate holds *prices*: what each reader of a shared value pays for it in each layout. Whoever serves the readers
//! is paid those prices, so over a whole plan they cancel; and with them paid, every op and every value can be looked at
//! on its own. The least that each costs, summed, is a lower bound on every plan, **whatever the prices are** (weak duality
//! of the Lagrangian that makes the copies of a layout on both sides of an edge agree). Good prices make the bound equal to
//! the cost of the plan. `spec/certificate.md` says it at length.
//!
//! [`certify`] finds the prices; [`verify_certificate`] checks them: it derives the program from the source, its strategies
//! and moves from the rules, the bound from the prices and the cost from the plan's text. It searches nothing.

mod bound;
mod certify;
mod choices;
mod computes;
mod format;
mod verify;

use serde::{Deserialize, Serialize};
use shard_ir::Picoseconds;

pub use certify::certify;
pub use computes::computes;
pub use format::{PriceSet, Run, UsePrices};
pub use verify::verify_certificate;

use crate::Proof;

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
    fn new(message: impl Into<String>) -> CertificateError {
        CertificateError { layer: None, message: message.into() }
    }

    fn of(self, layer: &str) -> CertificateError {
        CertificateError { layer: Some(layer.to_string()), ..self }
    }
}
