//! Certificates: why no plan of the plan space takes less time than a plan, so that anybody can
//! check it.
//!
//! A certificate holds *prices*: what each reader of a shared value pays for it in each layout.
//! Whoever serves the readers is paid those prices, so over a whole plan they cancel; and with them
//! paid, every op and every value can be looked at on its own. The least that each costs, summed,
//! is a lower bound on every plan, **whatever the prices are** (weak duality of the Lagrangian that
//! makes the copies of a layout on both sides of an edge agree). Good prices make the bound equal
//! to the cost of the plan. `spec/certificate.md` says it at length.
//!
//! [`certify`] finds the prices. What they show, [`shard_certificate`] works out, which shares
//! nothing with this crate.

mod branches;
mod certify;
mod prices;
mod together;
mod witnesses;

pub use certify::{Found, certify};
pub use shard_certificate::{
    AlternativePrices, Branch, Branches, Certificate, CertificateError, Claim, Inputs,
    LayerCertificate, Part, Place, PriceSet, ReaderPrices, Run, SCHEMA, SidePrices, Together,
    TooMany, Unshown, Verified, computes, verify_certificate,
};
