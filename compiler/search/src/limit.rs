//! The limits of a search by name.

use std::fmt;

shard_ir::worded! {
    /// A limit that ended a search, or that left something out of it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum SearchLimit {
        /// The e-nodes in the e-graph of one form.
        Nodes = "e-nodes",
        /// The states that a search expands.
        Expansions = "expansions",
        /// The layouts in which one value is wanted.
        WantedLayouts = "wanted layouts of one value",
        /// The plans that are passed over since they do not fit in memory.
        Memory = "memory",
        /// The branches of the plan space.
        Branches = "branches",
        /// The layouts of all values.
        Layouts = "layouts",
        /// The strategies of all ops.
        Strategies = "strategies",
        /// The forms that are searched.
        Forms = "forms of the program",
        /// The forms that are read off the logical e-graph.
        EnumeratedForms = "forms read off the logical e-graph",
        /// The e-nodes of the logical e-graph.
        LogicalNodes = "logical e-nodes",
        /// The operands of an einsum that logical rules look at.
        EinsumOperands = "operands of an einsum",
        /// The stored layouts that are looked at: those that one phase would have by itself.
        Phases = "phases",
        /// The time that somebody gave the search; the one limit that is no count.
        Time = "time-limit",
    }
    /// The name of the limit, in messages and in JSON.
    fn name;
}

impl fmt::Display for SearchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
