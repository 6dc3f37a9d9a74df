//! Certificates: why no plan of the plan space takes less time than a plan, so that anybody can check it.

mod format;

pub use format::{
    Certificate, CertificateError, Claim, Inputs, LayerCertificate, PriceSet, Proof, Run, SCHEMA, SpaceLimits,
    UsePrices, Verified,
};
