//! The format of a certificate file, and the result of its check.

use serde::{Deserialize, Serialize};
use shard_ir::{Picoseconds, never};

use crate::forms::TooMany;

/// The name of the format.
pub const SCHEMA: &str = "shardc.certificate/2";

/// A certificate for layers of one source file. It holds everything that its check needs.
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
        // JSON can hold every certificate, since all keys are strings.
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
    /// The name of the source file, for messages only.
    pub file: String,
    /// The text of the source file.
    pub source: String,
    /// Dims that are redefined, each with its new right side, in order.
    pub dims: Vec<(String, String)>,
    /// The mesh, where it replaces that of the file.
    pub mesh: Option<Vec<(String, u64)>>,
    /// Every layer is treated as strict.
    pub strict: bool,
    /// The memory of a device that a program may use, in bytes, where it is not the one of the
    /// hardware file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Whether einsums may do a collective in their loops.
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
    /// The time of the plan with its steps one after another, in picoseconds; in a file with phases
    /// the time of a request.
    pub cost_ps: u64,
    /// The lower bound on the time of every plan that the prices show, in picoseconds.
    pub lower_bound_ps: u64,
    /// The plan as IR text; in a file with phases one plan for each phase, in the order of the
    /// file.
    pub plan: String,
    /// For each form of the layer, in the order of [`forms`](crate::forms), sets of prices. Each
    /// assignment of layouts to labels is bounded by the best of the form's sets. Forms beyond the
    /// last entry are bounded by their flops alone.
    pub forms: Vec<Vec<PriceSet>>,
    /// Where there are too many forms to bound them one by one: prices of one form, from which a
    /// bound on all forms follows. `forms` then has at most the form that is written, and only
    /// where none of the other forms is the written one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
    /// Forms whose plans are divided into branches, where no single set of prices bounds all plans
    /// as high as a set for each branch does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branches>,
    /// Why the prices show a lower bound than the search; a remark that nothing depends on.
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
    /// A tree in preorder: behind each division first the plans for which it holds, then the other
    /// plans.
    pub tree: Vec<Branch>,
}

/// One entry of a tree of branches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Branch {
    /// A division by the bytes that a weight or cache takes over the whole stack: at most so many.
    Stored {
        /// The weight or cache, by its number in the form.
        stored: u32,
        /// Bytes.
        up_to: u64,
    },
    /// A division by the layout of a label: it is one of these.
    Label {
        /// The label, by number.
        label: u16,
        /// Layouts among those that all its places allow, by their place in the order of layouts.
        layouts: Vec<u32>,
    },
    /// No division: this set of prices bounds the branch.
    Leaf {
        /// The set, by number.
        prices: u32,
    },
}

/// Why prices show a lower bound than the search.
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

/// Prices of one form, and of the alternatives that may replace clusters of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// The form: for each cluster of choices the number of its alternative.
    pub picks: Vec<u32>,
    /// The prices of the form. A reader across the border of a cluster has a price for each layout
    /// of the value.
    pub prices: PriceSet,
    /// Prices within other alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<AlternativePrices>,
}

/// Prices within an alternative of a cluster, in the form that has it instead of its own one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlternativePrices {
    /// The cluster.
    pub cluster: u32,
    /// The alternative.
    pub alternative: u32,
    /// The prices of readers in the cluster of values that are computed in the cluster.
    pub readers: Vec<ReaderPrices>,
}

/// What a certificate claims that its prices, or the search, have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// The bound equals the cost.
    Certificate,
    /// The bound is lower than the cost; only the search shows that no plan lies between the two.
    Search,
    /// The bound is lower than the cost, and the search did not close the gap.
    None,
}

shard_ir::worded! {
    /// What a proof rests on.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Proof {
        /// A lower bound, from prices on values alone, that equals the plan's cost.
        Certificate = "certificate",
        /// The search is exhausted: every cheaper plan was ruled out one by one.
        Search = "search",
    }
    /// The word in JSON.
    fn word;
}

/// What a check has shown of one layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The layer.
    pub layer: String,
    /// The time of its plan.
    pub cost: Picoseconds,
    /// The bound: no plan takes less time.
    pub lower_bound: Picoseconds,
    /// The chip that the time and the bound are for, by the name in the hardware file.
    pub chip: String,
    /// Whether the hardware file agrees with the built-in chip of this name, memory limits aside.
    pub built_in: bool,
    /// [`Proof::Certificate`] where cost and bound are equal, whatever the file claims;
    /// [`Proof::Search`] where the file says that the search closed the gap between them; `None`
    /// where nothing did.
    pub proof: Option<Proof>,
    /// How many alternatives were compared with the least of their kind: strategies of ops with the
    /// prices of what they read.
    pub inequalities: u64,
    /// The limit of the enumeration of forms that the layer passes, if it passes one: the bound is
    /// then 0.
    pub limit: Option<TooMany>,
    /// The remark of the file on why the bound is less than that of the search; `None` where the
    /// claim is proven.
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
    /// An error about the whole file; [`CertificateError::of`] makes it one about a layer.
    pub fn new(message: impl Into<String>) -> CertificateError {
        CertificateError { layer: None, message: message.into() }
    }

    /// The same error about a layer.
    #[must_use]
    pub fn of(self, layer: &str) -> CertificateError {
        CertificateError { layer: Some(layer.to_string()), ..self }
    }
}

/// A set of prices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceSet {
    /// Prices count fractions of a picosecond: 1024-ths for 1024.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: u32,
    /// A price for each reader of each value, in each layout in which it may read the value. A
    /// reader without an entry pays what follows from the other prices if it is the value's only
    /// reader, and nothing otherwise.
    pub readers: Vec<ReaderPrices>,
    /// The side prices that places pay to labels and memories; places without an entry pay nothing.
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

/// The side prices of a place: what it pays to a label or a memory for its layout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidePrices {
    /// The label or memory that is paid.
    pub to: Part,
    /// Who.
    pub place: Place,
    /// One price for each layout that the type of the place allows, in the order of layouts.
    pub paid: Vec<Run>,
}

/// What reaches across a program: it constrains the layouts of several places at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A label, by number: all its places have one layout.
    Label(u16),
    /// The memory of a device, in a phase: the weights and caches of the phase fit in it.
    Memory(usize),
}

/// A place whose type has a label, or whose value lies in memory.
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
    /// One price for each layout in which the reader may read the value, in the order of layouts.
    pub paid: Vec<Run>,
}

/// A price, or a price that is repeated in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Run {
    /// The price.
    One(i64),
    /// The price, and how many times it is repeated.
    Many(i64, u32),
}
