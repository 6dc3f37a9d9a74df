//! The verifier of plans.
