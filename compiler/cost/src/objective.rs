//! [`Objective`]: what a plan is chosen for.

use std::fmt;

use shard_ir::Picoseconds;

use crate::plan::Totals;

shard_ir::worded! {
    /// What a plan is chosen for.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
    pub enum Objective {
        /// The sum of the times of all ops and all collectives. Proofs are about this objective.
        #[default]
        Serial = "serial",
        /// The makespan if computing and communicating overlap.
        Overlap = "overlap",
        /// Communication time alone, ties broken by flops.
        Comm = "comm",
        /// The bytes of a chip at the peak.
        Memory = "memory",
    }
    /// The word on the command line and in JSON.
    fn name;
}

impl Objective {
    /// The time by which a plan with these totals is compared.
    pub fn time(self, totals: &Totals) -> Picoseconds {
        match self {
            Objective::Comm => totals.comm_time,
            Objective::Serial | Objective::Overlap | Objective::Memory => totals.serial_time,
        }
    }

    /// The objective of this name.
    pub fn from_name(name: &str) -> Option<Objective> {
        Objective::ALL.into_iter().find(|o| o.name() == name)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
