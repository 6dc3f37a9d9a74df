//! The catalogue: one [`Row`] for each op, from which everything follows that an op has in common with the others. By hand
//! stay, in exhaustive matches, its type, its work and its two evaluators, and the certificate's own reading of `spec/types.md`.
//!
//! [`Code`] says which op; [`Code::row`] what is known of it.

mod ops;
mod phrase;
mod row;

pub use ops::{Binary, Code, Form, Map, Norm, Reduce};
pub use phrase::filled;
pub use row::{Field, Flag, Lead, Of, Partial, Row, Slot, Takes};
