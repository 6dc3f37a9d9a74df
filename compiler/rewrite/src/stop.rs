//! Ending a search before its end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::LowerError;

/// A wish that a search end, which another thread may utter: an editor, whose user has typed on.
///
/// A search that is stopped fails with [`LowerError::Stopped`] and says nothing of the program. One that is not stopped is
/// what it is without the flag: what is found never depends on when it is looked at.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends every search that has a clone of this.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), LowerError> {
        if self.is_asked() { Err(LowerError::Stopped) } else { Ok(()) }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}
