//! The commands, a file each; `compile` is what those that take a program share.

pub(crate) mod certificate;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod cost;
pub(crate) mod explain;
pub(crate) mod fmt;
pub(crate) mod hardware;
pub(crate) mod lower;
pub(crate) mod man;
pub(crate) mod run;
pub(crate) mod verify_certificate;
