//! From a [`Program`] to the cheapest [`Plan`], with proof: the e-graph, its rules, and the search.
//!
//! An e-class is a value in a layout; its e-nodes are the ways of having it: an op on operands in
//! certain layouts (a *strategy*), or a collective from another layout of the same value (a
//! *move*). The [`rules`] define the plan space.
//!
//! The modules, in the order of the flow:
//!
//! 1. `logical`: the equal ways of computing a program, each a program of its own, from an e-graph
//!    without layouts.
//! 2. `relax`: prices on values, which bound every plan and tell which part of the plan space can
//!    have a best one. It is built from the rules and knows time alone.
//! 3. `space`: that part of the plan space as a saturated e-graph; `table` reads it off.
//! 4. `search`: the plan of least cost in the e-graph. A shared value is counted once, and ties are
//!    broken by the rule of the cost model.
//! 5. `emit`, `reason`: the plan as instructions, each with its rule and the reason of each move.
//!
//! [`alternatives`] and [`order_savings`] tell what other plans would have cost; [`share_weights`]
//! chooses the layouts of weights that several phases have in common.

mod alternatives;
mod axis_orders;
mod bound;
mod bound_only;
pub mod certificate;
pub mod cost;
pub mod demand;
mod emit;
mod footprint;
mod forced;
mod in_pieces;
mod kernel;
mod labels;
mod limit;
mod logical;
mod lower;
mod many_forms;
mod memory;
mod moves_alone;
mod occupancy;
mod overlapped;
mod passing;
mod phases;
mod pins;
mod reason;
mod relax;
mod rings;
pub mod rules;
mod search;
mod space;
mod steiner;
mod stop;
mod stored;
mod strict;
mod table;
mod timeless;
mod times;
mod told;
#[cfg(test)]
mod walkthrough;

pub use alternatives::{Alternative, Avoided, Detail, alternatives};
pub use axis_orders::{OrderSaving, OrderSavings, Unasked, order_savings};
pub use bound_only::{LowerBound, lower_bound};
pub use forced::{Allowed, Forced};
pub use limit::SearchLimit;
pub use overlapped::{OverlapBound, Overlapped, overlap_bound};
pub use phases::{SharedWeight, SharedWeights, share_weights};
pub use pins::pins_that_cost;
pub use relax::factors::SearchCache;
pub use shard_certificate::Proof;
pub use stop::Stop;
pub use stored::{open_parameters, stored_as_in};

use std::borrow::Cow;

use shard_cost::{Hardware, Objective, Weights};
use shard_ir::{Picoseconds, Plan, Program, ValueId, never};

/// What is asked of lowering.
#[derive(Clone, Debug, Default)]
pub struct LowerOptions {
    /// Treat the layer as `strict`, whether or not it says so.
    pub strict: bool,
    /// What is minimised: [`Objective::Comm`] counts the time of moves alone and breaks ties by
    /// flops; every other one counts the time of all steps.
    pub objective: Objective,
    /// Saturate the e-graph with the whole plan space and search all of it, without bounds. This is
    /// slow and gives the same plan; it is for checking the bounds.
    pub whole_space: bool,
    /// Einsums may do a collective in their loops ([`rules::loops`]). Not in a strict layer, where
    /// every collective is a step of its own.
    pub fuse: bool,
    /// The only ways in which the values of the program, as it is written, may be made, for
    /// questions about a plan; all ways for `None`.
    pub forced: Option<Forced>,
    /// Take plans that do not fit in the memory of a device, too. This is for those who only
    /// execute the plan, or have no chip.
    pub any_size: bool,
    /// Where the search stops.
    pub limits: Limits,
}

/// Where the search stops, as counts and never as seconds, so that every machine stops at the same
/// place.
#[derive(Clone, Debug)]
pub struct Limits {
    /// E-nodes in the e-graph of one form.
    pub nodes: usize,
    /// States that the search of one region may expand before it ends with a bounded plan.
    pub expansions: usize,
    /// States expanded after the best plan is known, to compare the plans that tie with it.
    pub tie_expansions: usize,
    /// Layouts of all values together, and of any one value.
    pub layouts: usize,
    /// Strategies of all ops together.
    pub strategies: usize,
    /// Sweeps of the bound over the program.
    pub sweeps: usize,
    /// Combinations of layouts of the labels of a layer that a certificate may tell apart.
    pub label_layouts: usize,
    /// Branches of the plan space that are looked at: by layouts of labels, and by ways of filling
    /// the memory.
    pub branches: usize,
    /// Branches that are looked at one after another without a better plan or a better bound.
    pub branches_in_vain: usize,
    /// Searches in less and less memory, where no plan was found in the memory that there is.
    pub descents: usize,
    /// Whether shorter searches try to better a plan within memory that a limit ended the search
    /// with.
    pub trials: bool,
    /// Whether only the time of the best plan is asked for. Within memory the bound that prices
    /// alone show is not worked out then.
    pub time_alone: bool,
    /// Forms of the program that are searched: orders of multiplication and other ways of computing
    /// the same.
    pub forms: usize,
    /// Forms that are read off the logical e-graph; those of fewest flops are searched.
    pub enumerated_forms: usize,
    /// E-nodes that rules may add to the logical e-graph.
    pub logical_nodes: usize,
    /// Parts of the plan space that [`overlap_bound`] may divide.
    pub overlap_branches: usize,
    /// Plans that [`overlap_bound`] looks for near its bound, one for each distance from it.
    pub overlap_plans: usize,
    /// Ends the search from outside; the only limit that is no count.
    pub stop: Stop,
    /// No limit, but what all searches with clones of these limits make once and share.
    pub cache: SearchCache,
}

impl Limits {
    /// The error of a search that reached a limit before it had any plan.
    pub(crate) fn reached(&self, limit: SearchLimit) -> LowerError {
        let count = match limit {
            SearchLimit::Nodes => self.nodes,
            SearchLimit::Expansions => self.expansions,
            SearchLimit::WantedLayouts => steiner::MAX_WANTED,
            SearchLimit::Memory => search::MAX_TOO_LARGE,
            SearchLimit::Branches => self.branches,
            SearchLimit::Layouts => self.layouts,
            SearchLimit::Strategies => self.strategies,
            SearchLimit::Forms => self.forms,
            SearchLimit::EnumeratedForms => self.enumerated_forms,
            SearchLimit::LogicalNodes => self.logical_nodes,
            SearchLimit::EinsumOperands => logical::MAX_OPERANDS,
            SearchLimit::Phases => never!("phases are left out where there is no plan", 0),
            SearchLimit::Time => return LowerError::OutOfTime,
        };
        LowerError::Limit { limit, count }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            nodes: 4_000_000,
            layouts: 1_000_000,
            strategies: 4_000_000,
            expansions: 200_000,
            tie_expansions: 2_000,
            sweeps: 64,
            label_layouts: 512,
            branches: 4_000,
            branches_in_vain: usize::MAX,
            descents: 12,
            trials: true,
            time_alone: false,
            forms: 64,
            enumerated_forms: 4_096,
            logical_nodes: 4_096,
            overlap_branches: 16,
            overlap_plans: 5,
            stop: Stop::default(),
            cache: SearchCache::default(),
        }
    }
}

impl Limits {
    /// The limits of a search that may do a part of the work: an eighth for `part(8)`. E-nodes,
    /// expansions and branches are divided, the other limits stay.
    pub fn part(&self, of: usize) -> Limits {
        Limits {
            nodes: self.nodes / of,
            expansions: self.expansions / of,
            branches: self.branches / of,
            ..self.clone()
        }
    }
}

/// A lowered program, with what is known of how good its plan is.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The plan. Each instruction has the rule that made it, the place in the source and, for a
    /// move, the reason.
    pub plan: Plan,
    /// How far the plan is from the best of the plan space.
    pub optimality: Optimality,
    /// The size of the search.
    pub stats: Stats,
    /// For a bounded plan within memory that trials tried to better: parameters with which, held as
    /// the plan stores them, a short search ended with a proof; none where no trial did.
    pub proven_with: Option<Vec<ValueId>>,
    remembered: lower::Remembered,
}

impl Lowered {
    fn is_bounded(&self) -> bool {
        self.optimality.status == Status::Bounded
    }
}

/// How far a plan is from the best of the plan space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Optimality {
    /// Proven best, or within a bound.
    pub status: Status,
    /// What the proof rests on; `None` when bounded.
    pub proof: Option<Proof>,
    /// The cost of the plan.
    pub cost: Picoseconds,
    /// No plan of the plan space costs less; where memory binds, no plan that fits. Equal to the
    /// cost where the plan is proven.
    pub lower_bound: Picoseconds,
    /// The lower bound that prices on values alone show; `None` where the bound is of another kind.
    /// It is below the cost where the proof is by search.
    pub price_bound: Option<Picoseconds>,
    /// The limit that ended the search; `None` when proven.
    pub stopped_by: Option<SearchLimit>,
    /// Not all plans that tie with this one were compared, so that the tie rule may prefer another.
    pub ties_cut: bool,
}

shard_ir::worded! {
    /// Proven or bounded.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Status {
        /// No plan of the space is cheaper.
        Proven = "proven",
        /// A plan may be cheaper, by no more than the cost minus the lower bound.
        Bounded = "bounded",
    }
    /// The word in reports and JSON.
    fn word;
}

/// The size of a search, over all e-graphs that it built.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The number of e-classes, which are values in layouts.
    pub classes: usize,
    /// The number of e-nodes, which are ways of having a value in a layout.
    pub nodes: usize,
    /// The number of states that were expanded.
    pub expansions: usize,
}

/// Why a program has no plan.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LowerError {
    /// No strategies and moves lead to the layouts that the source demands.
    #[error("no plan reaches the layout demanded of value {value:?}")]
    Unreachable {
        /// A value of the program, as it is written, that cannot be had as demanded. `None` where
        /// the demands on several values exclude each other, or the value is one of another form.
        value: Option<ValueId>,
        /// The result whose type cannot be reached, where it is one.
        output: Option<usize>,
    },
    /// No layout fits every type that bears a label.
    #[error("no layout fits every type that bears the label {0}")]
    Label(String),
    /// A strict layer needs collectives that are not written.
    #[error("a strict layer needs collectives that are not written")]
    Strict {
        /// The plan that lowering would choose if it might insert moves.
        plan: Box<Plan>,
        /// The moves of that plan that no `reshard` asks for.
        inserted: Vec<shard_ir::InstrId>,
    },
    /// The program has plans, but none was found that fits in the memory of a device.
    #[error("no plan that fits in memory was found")]
    NoPlanFits {
        /// The fastest plan of those that do not fit.
        plan: Box<Plan>,
        /// The least that the weights and caches of any plan take on each device, over the whole
        /// stack, in bytes. Where the device has that much, it is the activations that have no
        /// room.
        least: u64,
        /// Whether it is proven that no plan fits: weights and caches alone are too large, or the
        /// search left nothing out. Else a plan may have been missed.
        proven: bool,
    },
    /// A limit was reached before any plan was found.
    #[error("the search reached its limit of {count} {limit}")]
    Limit {
        /// What was counted.
        limit: SearchLimit,
        /// How many are allowed.
        count: usize,
    },
    /// Every plan takes longer than a search counts.
    #[error("every plan takes {} s or longer, and times are counted up to that", .0.seconds())]
    TooLong(Picoseconds),
    /// The time of the search was up ([`Stop`]) before any plan was found.
    #[error("the time was up before any plan was found")]
    OutOfTime,
    /// The search was asked to stop ([`Stop`]).
    #[error("the search was stopped")]
    Stopped,
    /// A defect of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

/// The cheapest plan of a program on some hardware, ties broken by the rule of the cost model.
pub fn lower(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Lowered, LowerError> {
    let priced = &*options.priced_by(hardware);
    // A search that wants only faster plans may find none though there are slower ones.
    let asks_for_all = options.forced.as_ref().is_none_or(|forced| forced.below.is_none());
    let lowered = match lower::lower(program, priced, options) {
        Err(LowerError::Unreachable { .. })
            if asks_for_all && is_reachable(program, hardware, options) =>
        {
            Err(LowerError::TooLong(Picoseconds(relax::graph::FAR.unsigned_abs())))
        }
        Ok(found) if options.objective == Objective::Comm && found.is_bounded() => {
            moves_alone::improved(found, program, priced, options)
        }
        lowered => lowered,
    };
    let tell = |mut lowered: Lowered| {
        tell_kernels(&mut lowered.plan);
        lowered
    };
    if options.objective == Objective::Comm { lowered.map(tell) } else { lowered }
}

/// Gives each op that joins a kernel the rule that says so. A search in which ops take no time does
/// not tell a kernel from its ops one by one.
fn tell_kernels(plan: &mut Plan) {
    let joins = shard_cost::elementwise_joins(plan);
    for (instr, _) in plan.instructions.iter_mut().zip(joins).filter(|(_, joins)| joins.is_some()) {
        let told = [rules::FUSED, rules::ATTENTION, rules::JOINED].map(|rule| rule.name);
        if !instr.origin.rules.names().any(|name| told.contains(&name)) {
            instr.origin.rules.push(rules::FUSED.name);
        }
    }
}

/// Whether a program has a plan at all, on a chip on which nothing takes time. Where times are
/// counted, a plan that takes longer than can be counted looks like no plan.
fn is_reachable(program: &Program, hardware: &Hardware, options: &LowerOptions) -> bool {
    let timeless = hardware.weighted(Weights { ops: 0, moves: 0 });
    lower::lower(program, &timeless, &LowerOptions { any_size: true, ..options.clone() }).is_ok()
}

impl LowerOptions {
    /// The hardware whose times are what is minimised.
    pub(crate) fn priced_by<'h>(&self, hardware: &'h Hardware) -> Cow<'h, Hardware> {
        match self.objective {
            Objective::Comm => Cow::Owned(hardware.weighted(Weights::MOVES)),
            Objective::Serial | Objective::Overlap | Objective::Memory => Cow::Borrowed(hardware),
        }
    }
}

/// The result of a search for the plan of least memory.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The plan of least memory that was found, the fastest in its memory; `None` where none is
    /// smaller than the fastest plan of all.
    pub lowered: Option<Lowered>,
    /// What any plan needs at least on each device, over the whole stack, in bytes: as far as
    /// searches prove it, and never less than [`least_kept`].
    pub least: u64,
}

/// Searches for the plan of least memory; `fastest` is the fastest plan of all.
pub fn smallest(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    fastest: &Lowered,
) -> Result<Smallest, LowerError> {
    lower::Fitting { program, hardware, options, fastest }.smallest()
}

/// The least that the weights and caches of a program take on each device, over the whole stack, in
/// bytes.
pub fn least_kept(program: &Program) -> u64 {
    memory::DeviceMemory::new(program, 0).least()
}
