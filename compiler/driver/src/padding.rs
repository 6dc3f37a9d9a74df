//! Dims that the mesh does not divide and that would pay to pad, found by lowering again.

use std::path::Path;

use shard_check::Diagnostic;
use shard_cost::Objective;
use shard_grammar::SourceFile;
use shard_ir::{AxisSet, DimId, InstrId, InstrKind, Plan};
use shard_report::Layer;
use shard_report::padding::Padding;

use crate::compile::{Compilation, CompileOptions, Purpose, check_source};
use crate::host::{Host, Named, Pass, Share};

/// So many paddings are tried, those first that may save most.
const TRIES: usize = 3;

/// A dim is padded by no more than one part in so many of it.
const MOST_PADDING: u64 = 2;

/// A padding is reported where it saves more than one part in so many, and tried where it may.
const WORTH: u64 = 100;

/// A padding that may pay.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Candidate {
    dim: String,
    size: u64,
    padded: u64,
    devices: u64,
}

/// For each layer of a compilation the paddings that make its plan faster, those first that save
/// most.
pub(crate) fn paddings(
    compilation: &Compilation,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Vec<Vec<Padding>> {
    let layers = compilation.layers();
    let mut found: Vec<Vec<Padding>> = vec![Vec::new(); layers.len()];
    let Some(file) = &compilation.source else { return found };
    // A padding is told by what it saves of the serial time, and a plan of another objective was
    // not chosen for that.
    if compilation.objective != Objective::Serial {
        return found;
    }
    for candidate in candidates(&layers) {
        let mut padded = asked.clone();
        padded.check.dim_overrides.retain(|(name, _)| *name != candidate.dim);
        let right = format!("{} pad {}", candidate.size, candidate.padded);
        padded.check.dim_overrides.push((candidate.dim.clone(), right));
        let Some(other) = compiled(file, &padded, host) else { continue };
        let others = other.layers();
        let same_as = |layer: &Layer<'_>| {
            let name = |layer: &Layer<'_>| (layer.plan().name.clone(), layer.plan().phase.clone());
            others.iter().find(|other| name(other) == name(layer))
        };
        // A dim has one size in the file: a padding that makes another phase slower is left out.
        let is_slower = |layer: &Layer<'_>| {
            let own = layer.chosen_by().0;
            same_as(layer).is_none_or(|other| other.chosen_by().0 > own + own / WORTH)
        };
        if layers.iter().any(is_slower) {
            continue;
        }
        for (layer, found) in layers.iter().zip(&mut found) {
            found.extend(same_as(layer).and_then(|other| padding(&candidate, layer, other)));
        }
    }
    for found in &mut found {
        found.sort_by_key(|padding| (padding.time, padding.padded, padding.dim.clone()));
        // Of the paddings of one dim the one that saves most is kept.
        let mut named: Vec<String> = Vec::new();
        found.retain(|padding| {
            let is_new = !named.contains(&padding.dim);
            named.push(padding.dim.clone());
            is_new
        });
    }
    found
}

/// A padding of a layer, where it saves enough to be reported.
fn padding(candidate: &Candidate, own: &Layer<'_>, other: &Layer<'_>) -> Option<Padding> {
    let (own_time, time) = (own.chosen_by(), other.chosen_by());
    let saves = own_time.0.saturating_sub(time.0);
    (saves > own_time.0 / WORTH).then(|| Padding {
        dim: candidate.dim.clone(),
        size: candidate.size,
        padded: candidate.padded,
        devices: candidate.devices,
        own_time,
        time,
        own_peak: own.peak(),
        peak: other.peak(),
    })
}

/// Compiles a file with other sizes; `None` where anything is wrong then.
fn compiled(file: &SourceFile, asked: &CompileOptions, host: &mut dyn Host) -> Option<Compilation> {
    let mut host = Quiet(host);
    let sound = check_source(file, asked, Purpose::Trial, &mut host).ok()?;
    let (compilation, outcome) = sound.lower(asked, Purpose::Trial, &mut host).ok()?;
    outcome.ok().map(|()| compilation)
}

/// The paddings to try, those first that may save most.
fn candidates(layers: &[Layer<'_>]) -> Vec<Candidate> {
    let mut all: Vec<(u64, Candidate)> = Vec::new();
    for layer in layers {
        let plan = layer.plan();
        let least = layer.chosen_by().0 / WORTH;
        for at in 0..plan.dims.len() {
            for (candidate, part) in of_dim(plan, at) {
                let may_save = (layer_time(layer, DimId(at as u16)) as f64 * part) as u64;
                if may_save <= least {
                    continue;
                }
                match all.iter_mut().find(|(_, other)| *other == candidate) {
                    Some((most, _)) => *most = may_save.max(*most),
                    None => all.push((may_save, candidate)),
                }
            }
        }
    }
    all.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.cmp(other)));
    all.into_iter().take(TRIES).map(|(_, candidate)| candidate).collect()
}

/// The paddings of a dim with which more devices can share it. With each comes the share of a
/// step's time that it may save if nothing but the dim kept more devices from sharing the step.
fn of_dim(plan: &Plan, at: usize) -> Vec<(Candidate, f64)> {
    let (dim, mesh) = (&plan.dims[at], &plan.mesh);
    let group = |axes: AxisSet| mesh.group_size(axes.iter());
    let groups: Vec<u64> = mesh.all_axes().nonempty_subsets().map(group).collect();
    let divides = |group: &u64| dim.size.is_multiple_of(*group);
    let shared_by = groups.iter().copied().filter(divides).max().unwrap_or(1);
    // A dim that is padded already is padded as its author wants it.
    if dim.useful != dim.size {
        return Vec::new();
    }
    let mut wanted: Vec<u64> =
        groups.into_iter().filter(|group| !divides(group) && *group > shared_by).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let candidate = |devices: u64| {
        let padded = dim.size.checked_next_multiple_of(devices)?;
        let grows = padded as f64 / dim.size as f64;
        let part = 1.0 - grows * shared_by as f64 / devices as f64;
        let (dim, size) = (dim.name.clone(), dim.size);
        let is_little = padded - size <= size / MOST_PADDING;
        (is_little && part > 0.0).then_some((Candidate { dim, size, padded, devices }, part))
    };
    wanted.into_iter().filter_map(candidate).collect()
}

/// The time of the steps of a layer, in picoseconds, that a padded dim may shorten: moves of values
/// with the dim, and ops with a value of the dim that some axis of the mesh does not split.
fn layer_time(layer: &Layer<'_>, dim: DimId) -> u64 {
    let plan = layer.plan();
    let may_gain = |id: &InstrId| {
        let instr = plan.instruction(*id);
        let all = || instr.operands.iter().chain([id]).map(|of| plan.instruction(*of));
        let mut with_it = all().filter(|of| of.dims.contains(&dim));
        match &instr.kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => false,
            InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => with_it.next().is_some(),
            InstrKind::Op(_) => with_it.any(|of| of.layout.split_axes() != plan.mesh.all_axes()),
        }
    };
    let times = plan.ids().filter(may_gain).map(|id| layer.time_in_step(id).0);
    times.fold(0, u64::saturating_add)
}

/// A host that drops reports, for a program that nobody wrote; passes and files are those of
/// another host.
struct Quiet<'h>(&'h mut dyn Host);

impl Host for Quiet<'_> {
    fn report(&mut self, _: Option<&SourceFile>, _: Vec<Diagnostic>) {}

    fn begin(&mut self, pass: &'static str, what: String, share: Share) -> Box<dyn Pass> {
        self.0.begin(pass, what, share)
    }

    fn read(&mut self, path: &Path, by: Named) -> Result<SourceFile, String> {
        self.0.read(path, by)
    }

    fn is_there(&mut self, path: &Path) -> bool {
        self.0.is_there(path)
    }
}
