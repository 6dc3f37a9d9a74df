//! From a [`Program`] to the cheapest [`Plan`], with proof: the e-graph, its rules, and the search.
//!
//! One e-class is one value in one layout; its e-nodes are the ways of having it: an op on operands
//! in certain layouts (a *strategy*), or a collective from another layout of the same value (a
//! *move*). The [`rules`] define the plan space.
//!
//! The flow, a module a step:
//!
//! 1. `logical`: the equal ways of computing a program, each a program of its own, from an e-graph
//!    without layouts.
//! 2. `relax`: prices on values bound every plan and tell which part of the space can hold a best
//!    one. Built from the rules; knows time alone.
//! 3. `space`: that part as a saturated e-graph; `table` reads it off.
//! 4. `search`: the plan of least cost in it, a shared value counted once, ties broken by the rule
//!    of the cost model.
//! 5. `emit`, `reason`: the plan as instructions, each with its rule and the reason of each move.
//!
//! [`alternatives`] and [`order_savings`] ask what other plans would have cost; [`share_weights`]
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
pub use overlapped::{OverlapBound, Overlapped, overlap_bound};
pub use phases::{SharedWeight, SharedWeights, share_weights};
pub use pins::pins_that_cost;
pub use relax::factors::SearchCache;
pub use search::MEMORY_LIMIT;
pub use shard_certificate::Proof;
pub use stop::{Stop, TIME_LIMIT};
pub use stored::{open_parameters, stored_as_in};

use std::borrow::Cow;

use shard_cost::{Hardware, Objective, Weights};
use shard_ir::{Picoseconds, Plan, Program, ValueId};

/// What lowering is asked for.
#[derive(Clone, Debug, Default)]
pub struct LowerOptions {
    /// Treat the layer as `strict`, whether or not it says so.
    pub strict: bool,
    /// What is minimised: [`Objective::Comm`] counts the time of moves alone and breaks ties by
    /// flops; every other one counts the time of all steps.
    pub objective: Objective,
    /// Saturate the e-graph with the whole plan space and search all of it, without bounds: slow,
    /// and the same plan. For those who want to check the bounds.
    pub whole_space: bool,
    /// Einsums may do a collective in their loops ([`rules::loops`]). Not in a strict layer, where
    /// every collective is a step of its own.
    pub fuse: bool,
    /// The only ways in which the values of the program may be made, as it is written; for
    /// questions about a plan. All ways for `None`.
    pub forced: Option<Forced>,
    /// Take plans that do not fit in the memory of a device, too: for those who only execute the
    /// plan, or have no chip.
    pub any_size: bool,
    /// Where the search stops.
    pub limits: Limits,
}

/// Where the search stops, as counts and never as seconds, so that every machine stops at the same
/// place.
#[derive(Clone, Debug)]
pub struct Limits {
    /// E-nodes in the e-graph of one program.
    pub nodes: usize,
    /// States that the extraction may expand before it settles for a bounded plan.
    pub expansions: usize,
    /// States expanded after the optimum is known, to compare the plans that tie with it.
    pub tie_expansions: usize,
    /// Layouts of all values together, and of any one value.
    pub layouts: usize,
    /// Strategies of all ops together.
    pub strategies: usize,
    /// Sweeps of the bound over the program.
    pub sweeps: usize,
    /// Layouts of the labels of a layer, over all of them, that a certificate may tell apart.
    pub label_layouts: usize,
    /// Branches of the plan space: layouts of labels, and ways of filling the memory, that are
    /// looked at apart.
    pub branches: usize,
    /// Branches that are looked at one after another without a better plan or a better bound.
    pub branches_in_vain: usize,
    /// Searches in less and less memory, where none found a plan in the memory that there is.
    pub descents: usize,
    /// Whether a plan that memory ended the search with is bettered by shorter searches.
    pub trials: bool,
    /// Whether only the time of the best plan is asked for: within memory, what prices alone show
    /// of it is not worked out then, nor what is told of plans that tie.
    pub time_alone: bool,
    /// Forms of the program that are searched: orders of multiplication and other ways of computing
    /// the same.
    pub forms: usize,
    /// Forms read off the logical e-graph, of which those of fewest flops are searched.
    pub enumerated_forms: usize,
    /// E-nodes that rules may add to the logical e-graph.
    pub logical_nodes: usize,
    /// Parts of the plan space that are divided where the bound of [`overlap_bound`] is sought.
    pub overlap_branches: usize,
    /// Plans near that bound that are looked for, one for each distance from it.
    pub overlap_plans: usize,
    /// Ends the search from outside: the only limit that is no count.
    pub stop: Stop,
    /// No limit: what searches with clones of these limits make once for all of them.
    pub cache: SearchCache,
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
    /// The limits of a search of this part of the work: `part(8)` is an eighth.
    pub fn part(&self, of: usize) -> Limits {
        Limits {
            nodes: self.nodes / of,
            expansions: self.expansions / of,
            branches: self.branches / of,
            ..self.clone()
        }
    }
}

/// A lowered program, with what is known of how good it is.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The plan; each instruction bears the rule that made it, the place in the source and, for a
    /// move, the reason.
    pub plan: Plan,
    /// How far from the best plan of the plan space.
    pub optimality: Optimality,
    /// Sizes, for those who watch the search.
    pub stats: Stats,
    /// Parameters with which, stored as the plan has them, a short search of the rest ended with a
    /// proof, where some were tried: of a bounded plan within memory.
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
    /// The plan's cost.
    pub cost: Picoseconds,
    /// No plan of the space costs less (of those that fit, where memory binds); the cost, where the
    /// plan is proven.
    pub lower_bound: Picoseconds,
    /// What prices on values alone say that no plan costs less than; `None` where the bound is of
    /// another kind. Where a proof is by search, it is lower than the cost.
    pub price_bound: Option<Picoseconds>,
    /// The limit that stopped the search, by name; `None` when proven.
    pub stopped_by: Option<String>,
    /// Not all plans that tie with this one were compared, so the tie rule may have been cut short.
    pub ties_cut: bool,
}

shard_ir::worded! {
    /// Proven or bounded.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Status {
        /// No plan of the space is cheaper.
        Proven = "proven",
        /// A plan may be cheaper, by no more than cost less lower bound.
        Bounded = "bounded",
    }
    /// The word in reports and JSON.
    fn word;
}

/// Sizes of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// E-classes: values in layouts.
    pub classes: usize,
    /// E-nodes: ways of having them.
    pub nodes: usize,
    /// States that the extraction expanded.
    pub expansions: usize,
}

/// Why a program has no plan.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LowerError {
    /// No strategies and moves lead to the layouts that the source demands.
    #[error("no plan reaches the layout demanded of value {value:?}")]
    Unreachable {
        /// A value of the program as it is written that cannot be had as demanded; `None` where
        /// none of it is to blame, but the layouts of several together, or a value of another form.
        value: Option<ValueId>,
        /// The output at fault, where it is a result's type that cannot be reached.
        output: Option<usize>,
    },
    /// No layout fits every type that bears a label.
    #[error("no layout fits every type that bears the label {0}")]
    Label(String),
    /// A strict layer needs collectives that are not written.
    #[error("a strict layer needs collectives that are not written")]
    Strict {
        /// The plan that lowering would choose if it might insert.
        plan: Box<Plan>,
        /// The moves of that plan that no `reshard` asks for.
        inserted: Vec<shard_ir::InstrId>,
    },
    /// Plans there are, but none that fits in the memory of a device was found.
    #[error("no plan that fits in memory was found")]
    NoPlanFits {
        /// The fastest plan of those that do not fit.
        plan: Box<Plan>,
        /// What the weights and caches of any plan take on each device, over the whole stack, in
        /// bytes. More than the device has where they alone are too large; else it is what has to
        /// be held beside them.
        least: u64,
        /// Whether there is none: weights and caches alone are too large, or the search left
        /// nothing out. Else one may have been missed.
        proven: bool,
    },
    /// A limit was reached before any plan was found.
    #[error("the search reached its limit of {count} {limit}")]
    Limit {
        /// What was counted.
        limit: &'static str,
        /// How many are allowed.
        count: usize,
    },
    /// Every plan takes longer than a search counts.
    #[error("every plan takes {} s or longer, and times are counted up to that", .0.seconds())]
    TooLong(Picoseconds),
    /// Its time was up ([`Stop`]) before any plan was found.
    #[error("the time was up before any plan was found")]
    OutOfTime,
    /// It was asked to end ([`Stop`]).
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
    // Of plans that take longer than is wanted nothing is asked.
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

/// Gives each op that joins a kernel the rule that says so. A search in which ops take no time
/// takes a kernel for the ops that it is.
fn tell_kernels(plan: &mut Plan) {
    let joins = shard_cost::elementwise_joins(plan);
    for (instr, _) in plan.instructions.iter_mut().zip(joins).filter(|(_, joins)| joins.is_some()) {
        let told = [rules::FUSED, rules::ATTENTION, rules::JOINED].map(|rule| rule.name);
        if !instr.origin.rules.names().any(|name| told.contains(&name)) {
            instr.origin.rules.push(rules::FUSED.name);
        }
    }
}

/// Whether a program has a plan on a chip on which nothing takes time. Where times are counted,
/// what takes longer than can be counted looks like what there is no way to.
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

/// The plan of least memory that was found.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The fastest in the least memory that a plan was found for; `None` where nothing smaller than
    /// the fastest of all was found.
    pub lowered: Option<Lowered>,
    /// What any plan needs at least on each device, over the whole stack, in bytes. Where searches
    /// prove nothing, that is [`least_kept`].
    pub least: u64,
}

/// The plan of least memory, searched for from `fastest` down, which is the fastest of all.
pub fn smallest(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    fastest: &Lowered,
) -> Result<Smallest, LowerError> {
    lower::Fitting { program, hardware, options, fastest }.smallest()
}

/// What the weights and caches of a program take at least on each device, over the whole stack, in
/// bytes.
pub fn least_kept(program: &Program) -> u64 {
    memory::DeviceMemory::new(program, 0).least()
}
