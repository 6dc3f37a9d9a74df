//! What people and scripts are shown: the explanation of a lowered layer as text ([`explain`]) and
//! as JSON ([`json`]), its cost ([`cost`]), its graph ([`dot`]), its page ([`html`]), the name of
//! its strategy ([`strategy`]), diagnostics as text ([`draw`]) and JSON ([`json::diagnostics`]).
//!
//! Everything here is a function from values to a `String`: nothing is read, printed or computed
//! anew.

pub mod bound;
mod comparison;
pub mod cost;
pub mod diff;
pub mod dot;
pub mod draw;
pub mod expectations;
pub mod explain;
mod explain_totals;
pub mod explicit;
pub mod formula;
pub mod github;
pub mod html;
pub mod json;
pub mod layout_notation;
pub mod memory;
pub mod notation;
mod optimality;
pub mod origins;
pub mod overlap_choice;
pub mod padding;
pub mod page;
pub mod pages;
pub mod paint;
pub mod printable;
pub mod recorded;
mod recorded_steps;
mod repeats;
mod same;
pub mod scale;
mod status;
pub mod strategy;
mod striped;
pub mod sweep;
mod sweep_plot;
pub mod table;
pub mod timeline;
mod timeline_svg;
pub mod why;
pub mod why_not;
pub mod words;

use layout_notation::Notation;
use overlap_choice::OverlapChoice;
use padding::Padding;
use shard_check::Diagnostic;
use shard_cost::{Bytes, Hardware, Objective, PlanPrice};
use shard_grammar::SourceFile;
use shard_ir::{InstrId, Picoseconds, Plan, PlanOutput, Schedule};
use shard_schedule::Timeline;
use shard_search::{Alternative, Optimality, SharedWeights};

/// Diagnostics and the file that they are about; `None` for what is wrong on the command line or
/// outside any file.
pub type InFile<'a> = (Option<&'a SourceFile>, &'a [Diagnostic]);

/// A lowered, priced and scheduled layer: all that a report says is in here.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// The plan in time.
    pub schedule: &'a Schedule,
    /// What each instruction costs.
    pub price: &'a PlanPrice,
    /// When everything is done if computing and communicating overlap.
    pub timeline: &'a Timeline,
    /// The hardware of the prices.
    pub hardware: &'a Hardware,
    /// What the plan was chosen for.
    pub objective: Objective,
    /// How good the plan is known to be; `None` for a plan that was given as `.shir` and not
    /// searched for.
    pub optimality: Option<&'a Optimality>,
    /// A lower bound on the bytes that any plan needs on a device over the whole stack; `None`
    /// where the plan was not chosen for its memory.
    pub least_bytes: Option<Bytes>,
    /// The source that the plan's spans point into; `None` for a plan given as `.shir`.
    pub source: Option<&'a SourceFile>,
    /// How its weights are stored for all phases; `None` where there was nothing to choose.
    pub sharing: Option<Sharing<'a>>,
    /// For collectives of the plan, the best plan that does without each. Empty where nobody asked.
    pub alternatives: &'a [Alternative],
    /// What `--objective overlap` would choose, where that was asked for.
    pub overlap_choice: Option<&'a OverlapChoice>,
    /// Paddings of dims that the mesh does not divide, which make the plan faster. Empty where
    /// nobody asked.
    pub paddings: &'a [Padding],
    /// How layouts are written, where people read them.
    pub notation: Notation,
}

/// The choice of stored layouts that the phases of a layer have in common, as one of them sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    /// The choice, with all phases.
    pub shared: &'a SharedWeights,
    /// The index of the phase among all.
    pub phase: usize,
}

impl<'a> Layer<'a> {
    /// The time that the plan was chosen by.
    pub fn chosen_by(&self) -> Picoseconds {
        self.objective.time(&self.price.totals)
    }

    /// The bytes that a device holds at the peak, over the whole stack: along the overlapped
    /// schedule where the plan was chosen for it, else with the steps one after another in program
    /// order.
    pub fn peak(&self) -> Bytes {
        match self.objective {
            Objective::Overlap => Bytes(self.timeline.whole().peak_bytes),
            Objective::Serial | Objective::Comm | Objective::Memory => self.price.memory.peak(),
        }
    }

    /// The time of an instruction in a step of the layer: that of one run, times the number of
    /// runs.
    pub fn time_in_step(&self, id: InstrId) -> Picoseconds {
        self.price.of(id).time().times(self.plan().repeat_of(id))
    }

    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        &self.schedule.plan
    }

    /// The layout of an instruction's value, in the notation that was asked for.
    pub fn layout_text(&self, id: InstrId) -> String {
        self.text_of(id, self.plan().instruction(id).layout)
    }

    /// Some layout of an instruction's value, in the notation that was asked for.
    pub fn text_of(&self, id: InstrId, layout: shard_ir::Layout) -> String {
        let (plan, instr) = (self.plan(), self.plan().instruction(id));
        self.notation.layout(&plan.mesh, layout, &plan.dim_names(&instr.dims))
    }

    /// The layout of a result, dims in the declared order, in the notation that was asked for.
    pub fn output_layout_text(&self, output: &PlanOutput) -> String {
        let plan = self.plan();
        self.notation.layout(&plan.mesh, plan.output_layout(output), &plan.dim_names(&output.dims))
    }
}
