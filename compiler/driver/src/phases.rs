//! The phases of a layer, which store their weights in the same layouts.

use shard_ir::never;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use shard_cost::{Hardware, Objective};
use shard_ir::Program;
use shard_search::{LowerError, LowerOptions, Optimality, SharedWeights, Status, least_kept};

use crate::pipeline::{self, CompileError};

/// The stored layouts that the phases of a layer share, and the index of one of the phases.
pub type SharedBy = (Arc<SharedWeights>, usize);

/// The programs with the stored layouts of the weights that phases share, and for each program what
/// was chosen. A layer whose phases cannot store their weights alike is reported and left out.
/// Where no plan fits, plans of `any_size` are taken, if that is set.
pub fn share_weights<'p>(
    programs: &[&'p Program],
    hardware: &Hardware,
    options: &LowerOptions,
    any_size: bool,
    report: &mut dyn FnMut(&Program, CompileError),
) -> (Vec<Cow<'p, Program>>, Vec<Option<SharedBy>>) {
    let mut chosen: BTreeMap<&str, Option<Option<Arc<SharedWeights>>>> = BTreeMap::new();
    let (mut out, mut shared) = (Vec::new(), Vec::new());
    for program in programs {
        let phases: Vec<&Program> =
            programs.iter().filter(|p| p.name == program.name).copied().collect();
        let of_layer = chosen.entry(&program.name).or_insert_with(|| {
            match of_layer_phases(&phases, hardware, options, any_size) {
                Ok(found) => Some(found.map(Arc::new)),
                Err(error) => {
                    report(program, error);
                    None
                }
            }
        });
        let at = phases.iter().position(|p| std::ptr::eq(*p, *program));
        let at = at.unwrap_or_else(|| never!("a phase that is none of its layer", 0));
        match of_layer {
            None => {}
            Some(None) => {
                out.push(Cow::Borrowed(*program));
                shared.push(None);
            }
            Some(Some(found)) => {
                out.push(Cow::Owned(found.programs[at].clone()));
                shared.push(Some((Arc::clone(found), at)));
            }
        }
    }
    (out, shared)
}

/// The stored layouts of the weights of one layer's phases.
fn of_layer_phases(
    phases: &[&Program],
    hardware: &Hardware,
    options: &LowerOptions,
    any_size: bool,
) -> Result<Option<SharedWeights>, CompileError> {
    let fastest = match pipeline::share_weights(phases, hardware, options) {
        Err(CompileError::Lower(LowerError::NoPlanFits { .. })) if any_size => {
            let options = &LowerOptions { any_size, ..options.clone() };
            return pipeline::share_weights(phases, hardware, options);
        }
        shared => shared?,
    };
    match fastest {
        Some(fastest) if options.objective == Objective::Memory => {
            in_little_memory(phases, hardware, options, fastest).map(Some)
        }
        fastest => Ok(fastest),
    }
}

/// The memory limits that are tried for small stored layouts, in multiples of the least that
/// weights and caches take. Nearer to the least, searches of whole models may take minutes.
const MULTIPLES: [u64; 2] = [4, 2];

/// The multiples that are tried where no plan fits in the first of [`MULTIPLES`], since activations
/// need more.
const LARGER: [u64; 5] = [8, 16, 32, 64, 128];

/// How often the gap is halved between the limit of [`LARGER`] with a plan and the one before.
const HALVINGS: usize = 3;

/// The stored layouts with which all phases fit in the smallest of some memory limits; the
/// `fastest` ones, where the phases fit in none.
fn in_little_memory(
    phases: &[&Program],
    hardware: &Hardware,
    options: &LowerOptions,
    fastest: SharedWeights,
) -> Result<SharedWeights, CompileError> {
    let least = phases.iter().map(|phase| least_kept(phase)).max().unwrap_or(0);
    let within = |memory: u64| {
        match pipeline::share_weights(phases, &hardware.with_memory_limit(memory), options) {
            // A search that fails leaves what is known so far.
            Err(CompileError::Lower(
                LowerError::NoPlanFits { .. } | LowerError::Limit { .. } | LowerError::OutOfTime,
            )) => Ok(None),
            found => found,
        }
    };
    let times = |times: &u64| least.saturating_mul(*times);
    let is_less = |memory: &u64| *memory < hardware.hbm_bytes;
    let mut smallest = None;
    for memory in MULTIPLES.iter().map(times).filter(is_less) {
        let Some(found) = within(memory)? else { break };
        smallest = Some(found);
    }
    if smallest.is_none() {
        let (mut low, mut high) = (times(&MULTIPLES[0]), None);
        for memory in LARGER.iter().map(times).filter(is_less) {
            smallest = within(memory)?;
            if smallest.is_some() {
                high = Some(memory);
                break;
            }
            low = memory;
        }
        for _ in 0..HALVINGS {
            let Some(middle) = high.map(|high| low.midpoint(high)) else { break };
            match within(middle)? {
                Some(found) => (smallest, high) = (Some(found), Some(middle)),
                None => low = middle,
            }
        }
    }
    let Some(smallest) = smallest else { return Ok(fastest) };
    let (cost, bound) = (smallest.request.cost, fastest.request.lower_bound);
    let is_fastest = cost <= bound;
    let request = Optimality {
        status: if is_fastest { fastest.request.status } else { Status::Bounded },
        proof: fastest.request.proof.filter(|_| is_fastest),
        price_bound: fastest.request.price_bound.filter(|_| is_fastest),
        cost,
        ..fastest.request
    };
    Ok(SharedWeights { request, alone: fastest.alone, ..smallest })
}
