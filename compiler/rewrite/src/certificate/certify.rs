//! Finding the prices of a certificate: sweeps of the dual over the whole plan space, nothing pruned.

use shard_check::CheckOptions;
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{Layout, Plan, Program};

use super::bound::MAX_COST;
use super::choices::Choices;
use super::format::{price_set, read};
use super::{Certificate, CertificateError, Claim, Inputs, LayerCertificate, PriceSet, SCHEMA, SpaceLimits};
use crate::kernel::Kernels;
use crate::labels::assignments;
use crate::logical::forms;
use crate::lower::within_limits;
use crate::relax::factors::Factors;
use crate::relax::prices::Prices;
use crate::{Limits, LowerError, Optimality, Status};

/// The certificate for plans of some layers of a source file, as lowering found them.
pub fn certify(
    inputs: Inputs,
    layers: &[(&Plan, &Optimality)],
    limits: &Limits,
) -> Result<Certificate, CertificateError> {
    let (programs, hardware) = derive(&inputs)?;
    let mut certified = Vec::new();
    for (plan, optimality) in layers {
        let program = programs
            .iter()
            .find(|p| p.name == plan.name)
            .ok_or_else(|| CertificateError::new("the source has no such layer").of(&plan.name))?;
        certified.push(
            certify_layer(program, (&hardware, inputs.fuse), plan, optimality, limits).map_err(|e| e.of(&plan.name))?,
        );
    }
    Ok(Certificate { schema: SCHEMA.to_string(), inputs, layers: certified })
}

/// The programs and the chip that the inputs say.
pub(super) fn derive(inputs: &Inputs) -> Result<(Vec<Program>, Hardware), CertificateError> {
    let file = SourceFile::new(inputs.file.as_str(), inputs.source.as_str());
    let options =
        CheckOptions { dim_overrides: inputs.dims.clone(), mesh_override: inputs.mesh.clone(), strict: inputs.strict };
    let checked = shard_check::check_source(&file, &options);
    if let Some(error) = checked.diagnostics.iter().find(|d| d.is_error()) {
        return Err(CertificateError::new(format!("the source does not check: {}", error.message)));
    }
    let hardware = Hardware::parse(&inputs.hardware)
        .map_err(|error| CertificateError::new(format!("the hardware file cannot be read: {error}")))?;
    if checked.programs.iter().any(|program| program.phase.is_some()) {
        return Err(CertificateError::new("the source has phases, whose weights are stored once for all of them"));
    }
    Ok((checked.programs, hardware))
}

fn certify_layer(
    program: &Program,
    (hardware, fuse): (&Hardware, bool),
    plan: &Plan,
    optimality: &Optimality,
    limits: &Limits,
) -> Result<LayerCertificate, CertificateError> {
    let cost = optimality.cost.0;
    if cost >= MAX_COST {
        return Err(CertificateError::new("the plan takes too long for a certificate"));
    }
    let candidates = forms(program, program.strict, limits);
    let cut = candidates.cut.map(|cut| cut.first_bound(program, hardware));
    let mut bound = cut.map_or(cost, |cut| cut.min(cost));
    let mut witnesses = Vec::new();
    for form in candidates.all {
        let kernels = Kernels::of_form(form, program.strict, fuse);
        let (choices, labels) = choices(&kernels, hardware, limits.label_layouts)?;
        // What is bounded less than another form need not be bounded more.
        let mut search = Witnesses { choices: &choices, labels: &labels, sweeps: limits.sweeps, sets: Vec::new() };
        bound = search.run(bound)?;
        witnesses.push(search.sets.into_iter().map(|set| set.prices).collect());
    }
    Ok(LayerCertificate {
        layer: program.name.clone(),
        proof: match optimality.status {
            _ if bound == cost => Claim::Certificate,
            Status::Proven => Claim::Search,
            Status::Bounded => Claim::None,
        },
        cost_ps: cost,
        lower_bound_ps: bound,
        limits: SpaceLimits { orders: limits.forms, label_layouts: limits.label_layouts },
        plan: shard_ir::text::print(&Plan { hardware: Some(hardware.name.clone()), ..plan.clone() }),
        orders: witnesses,
    })
}

/// The plan space of one form, and the assignments of layouts to labels that are bounded one by one.
pub(super) fn choices<'a>(
    kernels: &'a Kernels,
    hardware: &Hardware,
    label_layouts: usize,
) -> Result<(Choices<'a>, Vec<Vec<Layout>>), CertificateError> {
    let both = || {
        within_limits(&kernels.program, &Limits::default())?;
        Ok((Choices::new(kernels, hardware)?, assignments(&kernels.program, label_layouts)?))
    };
    both().map_err(|error: LowerError| CertificateError::new(format!("the plan space cannot be built: {error}")))
}

/// The search for sets of prices that bound every assignment of layouts to labels.
struct Witnesses<'a> {
    choices: &'a Choices<'a>,
    labels: &'a [Vec<Layout>],
    sweeps: usize,
    sets: Vec<Set>,
}

/// A set of prices, and the bound that it gives to each assignment.
struct Set {
    prices: PriceSet,
    bounds: Vec<u64>,
}

/// Sweeps without any gain that end the search for better prices.
const PATIENCE: usize = 3;

impl Witnesses<'_> {
    /// Bounds all assignments, as far as `target` where that is possible. Returns the bound reached, at most `target`.
    fn run(&mut self, mut target: u64) -> Result<u64, CertificateError> {
        let factors = &self.choices.factors;
        let mut prices = Prices::new(factors);
        self.sweep(factors, &mut prices, target, true);
        // Where labels are narrowed one by one, prices for all uses: the rest of the bound then stands.
        let labelled = self.labels.len() > 1;
        self.add(&prices, labelled)?;
        let mut tried = vec![false; self.labels.len()];
        if labelled {
            // Prices from the parameters up tell results apart, those from the results down parameters.
            let mut upward = prices.clone();
            upward.up(factors, false);
            self.add(&upward, true)?;
            self.add(&prices, false)?;
        } else {
            tried.fill(self.labels.iter().all(|l| l.is_empty()));
        }
        loop {
            let open = (0..self.labels.len()).map(|i| (self.bound(i), i)).filter(|(b, _)| *b < target).min();
            let Some((bound, i)) = open else { break };
            if std::mem::replace(&mut tried[i], true) {
                // It cannot be done: no more is claimed of the others.
                target = bound;
                continue;
            }
            let narrowed = factors.with_labels(self.choices.program, &self.labels[i]);
            let mut own = prices.narrowed(&narrowed);
            self.sweep(&narrowed, &mut own, target, false);
            self.add(&own, false)?;
        }
        self.drop_needless(target);
        Ok(target)
    }

    /// The best bound of an assignment.
    fn bound(&self, assignment: usize) -> u64 {
        self.sets.iter().map(|set| set.bounds[assignment]).max().unwrap_or(0)
    }

    /// Sweeps until the bound is as wanted, or stands still.
    fn sweep(&self, factors: &Factors, prices: &mut Prices, target: u64, fresh: bool) {
        let (mut best, mut still) = (i64::MIN, 0);
        for sweep in 0..self.sweeps.max(1) {
            prices.up(factors, fresh && sweep == 0);
            prices.down(factors);
            let bound = prices.bound();
            still = if bound > best { 0 } else { still + 1 };
            best = best.max(bound);
            if still >= PATIENCE || u64::try_from(bound).is_ok_and(|b| b >= target) {
                return;
            }
        }
    }

    /// Adds a set of prices, as its file will say them.
    fn add(&mut self, prices: &Prices, keep_all: bool) -> Result<(), CertificateError> {
        let prices = price_set(self.choices, prices, keep_all);
        let given = read(&prices, self.choices)?;
        let base = self.choices.evaluate(&given);
        let bounds =
            self.labels.iter().map(|labels| as_bound(self.choices.bound_under(&given, &base, labels).0)).collect();
        self.sets.push(Set { prices, bounds });
        Ok(())
    }

    /// Drops sets that no assignment needs for `target`, those found last first.
    fn drop_needless(&mut self, target: u64) {
        for i in (0..self.sets.len()).rev() {
            let needed = |a: usize| {
                let others = self.sets.iter().enumerate().filter(|(other, _)| *other != i);
                !others.map(|(_, set)| set.bounds[a]).any(|bound| bound >= target)
            };
            if self.sets.len() > 1 && !(0..self.labels.len()).any(needed) {
                self.sets.remove(i);
            }
        }
    }
}

/// A bound in picoseconds: what has no plan takes for ever, and no plan takes less than no time.
pub(super) fn as_bound(bound: Option<i128>) -> u64 {
    bound.map_or(u64::MAX, |b| u64::try_from(b.max(0)).unwrap_or(u64::MAX))
}
