//! `--bound-only`: lower bounds on the time and the memory of every plan of a layer. No plan is
//! searched for.
//!
//! ```text
//! layer block, phase decode (repeated 80 times)
//!   mesh       x=4, y=4, z=4 (64 devices)
//!   hardware   tpu-v5p
//!   time       at least 109 us, 8.72 ms for all 80
//!   memory     at least 2.21 GB of 96.0 GB a device, for weights and caches
//! ```

use shard_cost::{Bytes, Hardware, Objective};
use shard_ir::{Picoseconds, Program};
use shard_search::LowerBound;

use crate::notation::{mesh_text, repeated};
use crate::page::Page;
use crate::scale;

/// A layer with the bounds on its plans.
#[derive(Clone, Copy, Debug)]
pub struct Bounded<'a> {
    /// The layer.
    pub program: &'a Program,
    /// Its chip.
    pub hardware: &'a Hardware,
    /// The objective by which plans would be chosen.
    pub objective: Objective,
    /// The bounds.
    pub bound: &'a LowerBound,
}

impl Bounded<'_> {
    /// A lower bound on the time of the whole stack.
    pub fn stack_time(&self) -> Picoseconds {
        Picoseconds(self.bound.time.0.saturating_mul(self.program.repeat))
    }
}

/// The bounds of some layers as text, `width` columns wide.
pub fn text(layers: &[Bounded<'_>], width: usize) -> String {
    let texts: Vec<String> = layers.iter().map(|layer| layer_text(layer, width)).collect();
    texts.join("\n")
}

fn layer_text(layer: &Bounded<'_>, width: usize) -> String {
    let Bounded { program, hardware, objective, bound } = layer;
    let mut page = Page::of_width(width);
    let kind = if program.folds.is_empty() { "layer" } else { "model" };
    let phase =
        program.phase.as_ref().map_or(String::new(), |phase| format!(", phase {}", phase.name));
    page.line(&format!("{kind} {}{phase}{}", program.name, repeated(program.repeat)));
    let mesh = mesh_text(&program.mesh);
    page.labelled("  mesh       ", &format!("{mesh} ({} devices)", program.mesh.devices()));
    page.labelled("  hardware   ", &hardware.name);
    let what = match objective {
        Objective::Serial | Objective::Memory => "",
        Objective::Comm => ", communicating alone",
        Objective::Overlap => ", computing beside communicating",
    };
    let stack = match program.repeat {
        0 | 1 => String::new(),
        repeat => format!(", {} for all {repeat}", scale::time(layer.stack_time())),
    };
    page.labelled("  time       ", &format!("at least {}{stack}{what}", scale::time(bound.time)));
    let (least, most) =
        (scale::bytes(Bytes(bound.least_kept)), scale::bytes(Bytes(hardware.hbm_bytes)));
    page.labelled(
        "  memory     ",
        &format!("at least {least} of {most} a device, for weights and caches"),
    );
    if bound.none_fits {
        page.labelled("  fits       ", "no plan does; the time is of plans of any size");
    }
    if let Some(limit) = &bound.stopped_by {
        page.labelled("  stopped by ", &format!("{limit}: a better bound may be there"));
    }
    page.text
}
