//! The wording of every diagnostic, by topic: each topic has an enum of typed payloads that becomes a
//! [`Diagnostic`](crate::Diagnostic).

pub mod hardware;
pub mod internal;
pub mod lowering;
pub mod words;

pub use hardware::HardwareProblem;
pub use internal::InternalProblem;
pub use lowering::LoweringProblem;
