//! Questions about a plan: what is asked for (`request`), the programs whose plans have it (`force`), and at which sizes it
//! would win (`crossing`).

pub(crate) mod crossing;
pub(crate) mod force;
pub(crate) mod request;
