//! The only ways in which the values of a program may be made: what questions about a plan allow.

use std::fmt;
use std::sync::Arc;

use shard_ir::{Layout, Picoseconds, ValueId};

/// Which strategies an op may have: its value, the layout of its result, those of its operands.
pub type Allowed = dyn Fn(ValueId, Layout, &[Layout]) -> bool + Send + Sync;

/// Which layouts a parameter may have: its value, and the layout.
pub(crate) type AllowedStored = dyn Fn(ValueId, Layout) -> bool + Send + Sync;

/// The only ways in which ops may be done, and parameters be stored
/// ([`LowerOptions::forced`](crate::LowerOptions)).
#[derive(Clone)]
pub struct Forced {
    pub(crate) ops: Arc<Allowed>,
    pub(crate) stored: Option<Arc<AllowedStored>>,
    /// Plans are wanted that take less than this, in picoseconds.
    pub(crate) below: Option<u64>,
}

impl Forced {
    /// Ops may be done in these ways alone, and parameters be stored as they are declared.
    pub fn ops(
        allowed: impl Fn(ValueId, Layout, &[Layout]) -> bool + Send + Sync + 'static,
    ) -> Self {
        Forced { ops: Arc::new(allowed), stored: None, below: None }
    }

    /// The same with parameters stored in these layouts alone, of those that are declared.
    pub fn stored(self, allowed: impl Fn(ValueId, Layout) -> bool + Send + Sync + 'static) -> Self {
        Forced { stored: Some(Arc::new(allowed)), ..self }
    }

    /// The same, where only plans that take less time than this are wanted. A search may find that
    /// there is none where all take longer.
    pub fn faster_than(self, time: Picoseconds) -> Self {
        Forced { below: Some(time.0), ..self }
    }
}

impl fmt::Debug for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forced")
    }
}
