//! Audits programs that XLA compiled: what a program sends between devices, which line of its
//! source sends it, how long that takes on a chip, and what it need not send.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`hlo`] | the text of a dump | a [`hlo::Module`], its loops and who calls whom |
//! | [`collectives`] | a module | every collective, counted once, with its devices and bytes |
//! | [`axes`] | groups of devices and a mesh | the axes of the mesh that they run along |
//! | [`flow`] | a collective | what it gathers, and what becomes of it |
//! | [`report`] | all of them | sums by source line, in bytes and in seconds |
//! | [`text`], [`json`], [`github`], [`html`] | a report | what a user sees |

pub mod axes;
pub mod before;
pub mod collectives;
pub mod compare;
pub mod flow;
pub mod github;
pub mod hlo;
pub mod html;
pub mod json;
pub mod price;
pub mod report;
pub mod text;
