//! Questions about a plan: what is asked for (`request`), the programs whose plans have it (`force`, `strategy`), what could
//! be written to have it (`written`), and at which sizes and on which networks it would win (`crossing`).

pub(crate) mod crossing;
pub(crate) mod force;
pub(crate) mod request;
mod strategy;
pub(crate) mod written;
