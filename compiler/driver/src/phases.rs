//! The phases of a layer, which store their weights alike.

use shard_ir::never;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use shard_cost::Hardware;
use shard_ir::Program;
use shard_search::{LowerError, LowerOptions, SharedWeights};

use crate::pipeline::{self, CompileError};

/// What the phases of a layer have in common, and the place of one of them among them.
pub type SharedBy = (Arc<SharedWeights>, usize);

/// The programs with the stored layouts of weights chosen that phases have in common, and for each
/// what was chosen. A layer whose phases cannot be stored alike is reported and left out; where
/// none fits, those of `any_size` will do if that is said.
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

/// The weights of the phases of one layer.
fn of_layer_phases(
    phases: &[&Program],
    hardware: &Hardware,
    options: &LowerOptions,
    any_size: bool,
) -> Result<Option<SharedWeights>, CompileError> {
    match pipeline::share_weights(phases, hardware, options) {
        Err(CompileError::Lower(LowerError::NoPlanFits { .. })) if any_size => {
            let options = &LowerOptions { any_size, ..options.clone() };
            pipeline::share_weights(phases, hardware, options)
        }
        shared => shared,
    }
}
