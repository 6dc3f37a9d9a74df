//! Questions about a plan, [`why::why`] it is so and [`why_not::why_not`] otherwise: what is asked
//! for (`request`), the programs whose plans have it (`force`, `strategy`), what could be written
//! to have it (`written`), and at which sizes and on which networks it would win (`crossing`).

mod crossing;
mod force;
mod request;
mod strategy;
pub mod why;
pub mod why_not;
mod written;
