//! [`System`]: a program at some sizes.

use shard_check::{CheckOptions, check_source};
use shard_cost::{DimRoles, Hardware, Summary, price};
use shard_grammar::SourceFile;
use shard_ir::Plan;
use shard_search::{LowerOptions, lower};

use crate::files::{read, root};

/// The plan of a program's only layer at some sizes.
#[derive(Clone, Debug)]
pub struct System {
    plan: Plan,
}

impl System {
    /// Lowers the program of a file, whose path is from the root, with these sizes of its dims; in
    /// a file with phases, the phase of this name. Panics where the program has an error: the files
    /// are the repository's own.
    pub fn lower(
        file: &str,
        sizes: &[(&str, &str)],
        phase: Option<&str>,
        hardware: &Hardware,
    ) -> System {
        let options = CheckOptions {
            dim_overrides: sizes
                .iter()
                .map(|(dim, size)| (dim.to_string(), size.to_string()))
                .collect(),
            ..CheckOptions::default()
        };
        let checked = check_source(&SourceFile::new(file, read(&root().join(file))), &options);
        assert!(!checked.has_errors(), "{file} {sizes:?}: {:#?}", checked.diagnostics);
        let is_wanted = |p: &&shard_ir::Program| {
            phase.is_none() || p.phase.as_ref().map(|p| p.name.as_str()) == phase
        };
        let program = checked
            .programs
            .iter()
            .find(is_wanted)
            .unwrap_or_else(|| panic!("{file}: no phase {phase:?}"));
        let lowered = lower(program, hardware, &LowerOptions::default());
        System { plan: lowered.unwrap_or_else(|error| panic!("{file} {sizes:?}: {error}")).plan }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a step of the whole stack takes, in seconds, with the layers' overhead.
    pub fn step(&self, hardware: &Hardware) -> f64 {
        hardware.stack_time(price(&self.plan, hardware).totals.serial_time, &self.plan).seconds()
    }

    /// Model-flops utilisation of a step, by useful sizes.
    pub fn mfu(&self, hardware: &Hardware) -> f64 {
        let price = price(&self.plan, hardware);
        let time = price.totals.serial_time;
        let summary = Summary::of(&self.plan, &price, hardware, DimRoles::of(&self.plan), time);
        summary.utilisation.and_then(|of| of.model).unwrap_or(0.0)
    }
}
