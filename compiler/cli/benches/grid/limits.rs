//! The memory that plans of the grid's programs need, as recorded in `limits.txt`. The memory
//! limits of the cases come from this file, so that the cases stay the same when the search
//! changes.

use std::collections::BTreeMap;
use std::time::Duration;

use shard_cost::{Memory, Objective};
use shard_driver::pipeline;
use shard_search::{Limits, LowerOptions};

use crate::measure::{Most, search, with_patience};
use crate::programs::GridProgram;

/// The memory that plans of a program need on each device, in bytes, over the whole stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    /// The smallest need of any plan that was found.
    pub(crate) least: u64,
    /// The need of the fastest plan.
    pub(crate) fastest: u64,
}

fn path() -> String {
    format!("{}/benches/grid/limits.txt", env!("CARGO_MANIFEST_DIR"))
}

/// The recorded needs by the names of programs. Each line of `limits.txt` has the name of a
/// program, the least need and the need of the fastest plan.
pub(crate) fn known() -> BTreeMap<String, Needs> {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, least, fastest) = (words.next()?, words.next()?, words.next()?);
        Some((
            name.to_string(),
            Needs { least: least.parse().ok()?, fastest: fastest.parse().ok()? },
        ))
    };
    text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect()
}

pub(crate) fn write(known: &BTreeMap<String, Needs>) -> std::io::Result<()> {
    let mut text = String::from(
        "# What plans need, bytes on a device: the least that `--objective memory` finds, and the \
            fastest.\n# Written by `cargo bench -p shardc --bench grid -- --measure-limits`.\n",
    );
    for (name, needs) in known {
        text += &format!("{name} {} {}\n", needs.least, needs.fastest);
    }
    std::fs::write(path(), text)
}

/// The needs of a program, found by two searches: one for the fastest plan and one for the plan of
/// least memory. `None` where one of them finds no plan.
pub(crate) fn measured(of: &GridProgram, patience: Duration) -> Option<Needs> {
    let fastest = search(&of.program, &of.hardware, Most::Any, patience).found.ok()?.needed();
    let smallest = with_patience(patience, |stop| {
        let limits = Limits { stop, ..Limits::default() };
        let options = LowerOptions {
            objective: Objective::Memory,
            any_size: true,
            limits,
            ..LowerOptions::default()
        };
        pipeline::compile(&of.program, &of.hardware, &options).ok()
    })?;
    let least = Memory::of(&smallest.schedule.plan).peak().0;
    Some(Needs { least: least.min(fastest), fastest })
}
