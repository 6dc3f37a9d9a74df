//! Constraints on the ways in which the values of a program may be made, for questions about a
//! plan.

use std::fmt;
use std::sync::Arc;

use shard_ir::{Layout, Picoseconds, ValueId};

/// Whether an op may have a strategy: called with its value, the layout of its result, and those of
/// its operands.
pub type Allowed = dyn Fn(ValueId, Layout, &[Layout]) -> bool + Send + Sync;

/// Whether a parameter may be stored in a layout.
pub(crate) type AllowedStored = dyn Fn(ValueId, Layout) -> bool + Send + Sync;

/// The only ways in which ops may be done, and parameters be stored
/// ([`LowerOptions::forced`](crate::LowerOptions)).
#[derive(Clone)]
pub struct Forced {
    pub(crate) ops: Arc<Allowed>,
    pub(crate) stored: Option<Arc<AllowedStored>>,
    /// Only plans that take less than this are wanted, in picoseconds.
    pub(crate) below: Option<u64>,
}

impl Forced {
    /// Only these strategies are allowed. Parameters may be stored as they are declared.
    pub fn ops(
        allowed: impl Fn(ValueId, Layout, &[Layout]) -> bool + Send + Sync + 'static,
    ) -> Self {
        Forced { ops: Arc::new(allowed), stored: None, below: None }
    }

    /// The same, where parameters may be stored in these layouts alone, among those declared.
    pub fn stored(self, allowed: impl Fn(ValueId, Layout) -> bool + Send + Sync + 'static) -> Self {
        Forced { stored: Some(Arc::new(allowed)), ..self }
    }

    /// The same, where only plans are wanted that take less time than this. A search may then fail
    /// with [`LowerError::Unreachable`](crate::LowerError::Unreachable) since all take longer.
    pub fn faster_than(self, time: Picoseconds) -> Self {
        Forced { below: Some(time.0), ..self }
    }
}

impl fmt::Debug for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forced")
    }
}
