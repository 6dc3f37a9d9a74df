//! The only ways in which the values of a program may be made: what questions about a plan allow.

use std::fmt;
use std::sync::Arc;

use shard_ir::{Layout, ValueId};

/// Which strategies an op may have: its value, the layout of its result, those of its operands.
pub type Allowed = dyn Fn(ValueId, Layout, &[Layout]) -> bool + Send + Sync;

/// The only ways in which ops may be done ([`LowerOptions::forced`](crate::LowerOptions)).
#[derive(Clone)]
pub struct Forced(pub Arc<Allowed>);

impl fmt::Debug for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forced")
    }
}
