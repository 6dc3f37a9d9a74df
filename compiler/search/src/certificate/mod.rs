//! Certificates: proofs that no plan of the plan space takes less time than a given plan, which
//! anybody can check.
//!
//! A certificate holds *prices*: what each reader of a shared value pays for the value in each
//! layout. Whoever makes the value and moves it to its readers is paid those prices, so that over a
//! whole plan they cancel. With prices paid, every op and every value can be looked at on its own.
//! The sum of the least that each costs is a lower bound on every plan, **whatever the prices are**
//! (weak duality of the Lagrangian that makes the copies of a layout on both sides of an edge
//! agree). Good prices make the bound equal to the cost of the plan. `spec/certificate.md` says it
//! at length.
//!
//! [`certify`] finds the prices. [`shard_certificate`], which shares nothing with this crate,
//! computes what they show.

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
