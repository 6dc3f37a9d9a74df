//! What a certificate says, and what a check of it has shown.

use serde::{Deserialize, Serialize};
use shard_ir::{Picoseconds, never};

use crate::forms::TooMany;

/// The name of the format.
pub const SCHEMA: &str = "shardc.certificate/2";

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
        // Every key is a string.
        let mut text = serde_json::to_string(self)
            .unwrap_or_else(|_| never!("a certificate that JSON cannot hold", String::new()));
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
    /// What a program has of the memory of a device, in bytes, where that is not what the hardware
    /// file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
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
    /// The time of the plan, its steps one after another, in picoseconds; of a request, in a file
    /// with phases.
    pub cost_ps: u64,
    /// What the prices show that every plan takes at least, in picoseconds.
    pub lower_bound_ps: u64,
    /// The plan, as IR text; in a file with phases one for each, in the order of the file.
    pub plan: String,
    /// For each form of the layer, in the order of [`forms`](crate::forms), sets of prices: each
    /// assignment of layouts to labels is bounded by one of them. Forms beyond the last are bounded
    /// by their flops alone.
    pub forms: Vec<Vec<PriceSet>>,
    /// Where there are too many forms to bound them one by one: prices of one of them, which bound
    /// all. `forms` has the one written alone, then, and that only where none of the others is it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
    /// Forms that are divided in branches, where no set of prices shows of the whole what each
    /// shows of its part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branches>,
    /// Why the prices do not show all that the search does; a remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unshown: Option<Unshown>,
}

/// The branches of a form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branches {
    /// The form, by number.
    pub form: u32,
    /// Sets of prices, each of one branch or several.
    pub prices: Vec<PriceSet>,
    /// A tree in preorder: behind each division the plans for which it holds, then the others.
    pub tree: Vec<Branch>,
}

/// One entry of a tree of branches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Branch {
    /// A division by what is stored of a weight or cache over the whole stack: at most so many
    /// bytes.
    Stored {
        /// The weight or cache, by its number in the form.
        stored: u32,
        /// Bytes.
        up_to: u64,
    },
    /// A division by the layout of a label: one of these.
    Label {
        /// The label, by number.
        label: u16,
        /// Layouts among those that all its places allow, by their place in the order of layouts.
        layouts: Vec<u32>,
    },
    /// No division: this set of prices bounds all of it.
    Leaf {
        /// The set, by number.
        prices: u32,
    },
}

/// Why prices do not show all that the search does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum Unshown {
    /// There is a branch that cannot be divided, and its prices do not reach the plan.
    #[error(
        "of some branch, which has nothing left to divide, prices show less than the plan takes"
    )]
    Searched,
    /// There are too many branches.
    #[error("there are more branches than a certificate holds")]
    Branches,
    /// The time that was given was up before all prices were asked.
    #[error("the time that was given was up before all prices were asked")]
    Time,
}

/// Prices of one form, and of what may stand in place of parts of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// The form: for each cluster of choices the number of its alternative.
    pub picks: Vec<u32>,
    /// Its prices. Readers across the border of a cluster have a price for each layout of the
    /// value.
    pub prices: PriceSet,
    /// Prices within other alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<AlternativePrices>,
}

/// Prices within an alternative of a cluster, for the form that has it in place of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlternativePrices {
    /// The cluster.
    pub cluster: u32,
    /// The alternative.
    pub alternative: u32,
    /// The prices of those who read in the cluster what is computed in it.
    pub readers: Vec<ReaderPrices>,
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
    /// [`Proof::Certificate`] where cost and bound are equal, whatever the file claims;
    /// [`Proof::Search`] where the file says that the search closed the gap between them; `None`
    /// where nothing did.
    pub proof: Option<Proof>,
    /// Alternatives that were held against the least of their kind: strategies of ops with the
    /// prices of what they read.
    pub inequalities: u64,
    /// The limit beyond which forms are not bounded, where the layer passes it: the bound is 0
    /// then.
    pub limit: Option<TooMany>,
    /// Why the bound is less than what the search says, as the file has it; `None` where it is
    /// proven.
    pub unshown: Option<Unshown>,
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

/// A set of prices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceSet {
    /// Prices are in this part of a picosecond: a 1024-th for 1024.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: u32,
    /// A price for each reader of each value, in each layout in which the reader may read it.
    /// Readers that are left out pay what follows from the others (the only reader of a value), or
    /// nothing (one among several).
    pub readers: Vec<ReaderPrices>,
    /// What the places of labels and of memories pay to these; those that are left out pay nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<SidePrices>,
}

impl Default for PriceSet {
    /// No prices.
    fn default() -> PriceSet {
        PriceSet { scale: 1, readers: Vec::new(), sides: Vec::new() }
    }
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_one(scale: &u32) -> bool {
    *scale == 1
}

/// What a place pays to what asks something of several places at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidePrices {
    /// To whom.
    pub to: Part,
    /// Who.
    pub place: Place,
    /// One for each layout that the place's type allows, in the order of layouts.
    pub paid: Vec<Run>,
}

/// What asks something of several places at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A label, by number: all its places have one layout.
    Label(u16),
    /// The memory of a device, in a phase: the weights and caches of the phase fit in it.
    Memory(usize),
}

/// A place that bears a label or lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A parameter or a pin, by its number in the form.
    Value(u32),
    /// A result, by its number.
    Result(usize),
}

/// The prices of one reader of a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReaderPrices {
    /// The value, by its number in the form.
    pub value: u32,
    /// Which of its readers: operands in program order, then results.
    pub reader: u32,
    /// One for each layout in which the reader may read it, in the order of layouts.
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
