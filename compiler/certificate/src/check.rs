//! Checking a certificate. Nothing is searched, and nothing in the file is believed.

use shard_cost::{Hardware, Memory};
use shard_ir::{InstrKind, Picoseconds, Plan, Program};

use crate::computes::computes;
use crate::derive::{derive, phases_of};
use crate::format::{
    Certificate, CertificateError, Claim, LayerCertificate, PriceSet, Proof, SCHEMA, Verified,
};
use crate::forms::{Choices, TooMany, forms, least_time};
use crate::labels::assignments;
use crate::phases::{side_by_side, steps, stored_apart};
use crate::space::Space;
use crate::together::{Ground, bound_together};

/// A plan that costs this much or more is refused, in picoseconds: 40 hours.
pub const MOST_COST: u64 = 1 << 57;

/// The most assignments of layouts to labels that are bounded one by one. Where there are more, the
/// types of a label are bounded as if they could differ.
pub const MOST_LABEL_LAYOUTS: usize = 20_000;

/// Checks the text of a certificate. For every layer its plans must be legal, compute the layer,
/// fit in memory and take the time claimed, and its prices must bound every plan of the plan space
/// by the bound claimed.
pub fn verify_certificate(text: &str) -> Result<Vec<Verified>, CertificateError> {
    let certificate: Certificate = serde_json::from_str(text)
        .map_err(|error| CertificateError::new(format!("this is no `{SCHEMA}`: {error}")))?;
    if certificate.schema != SCHEMA {
        let found = certificate.schema;
        return Err(CertificateError::new(format!(
            "the schema is `{found}`; this checker reads `{SCHEMA}`"
        )));
    }
    let (programs, hardware) = derive(&certificate.inputs)?;
    if certificate.layers.is_empty() {
        return Err(CertificateError::new("it is about no layer"));
    }
    for (i, claim) in certificate.layers.iter().enumerate() {
        if certificate.layers[..i].iter().any(|other| other.layer == claim.layer) {
            return Err(CertificateError::new("it is about the layer twice").of(&claim.layer));
        }
    }
    let check = |claim: &LayerCertificate| {
        let phases = phases_of(&programs, &claim.layer)?;
        let loops = certificate.inputs.fuse && !phases.iter().any(|program| program.strict);
        check_layer(claim, &phases, &hardware, loops)
    };
    certificate
        .layers
        .iter()
        .map(|claim| check(claim).map_err(|error| error.of(&claim.layer)))
        .collect()
}

fn check_layer(
    claim: &LayerCertificate,
    phases: &[&Program],
    hardware: &Hardware,
    loops: bool,
) -> Result<Verified, CertificateError> {
    let plans = read_plans(&claim.plan)?;
    if plans.len() != phases.len() {
        let (has, wants) = (plans.len(), phases.len());
        return Err(CertificateError::new(format!(
            "there must be one plan for each phase: {wants}, and there are {has}"
        )));
    }
    let mut cost = 0u64;
    for (plan, program) in plans.iter().zip(phases) {
        let time = check_plan(plan, program, hardware, loops)?;
        cost = cost.saturating_add(time.saturating_mul(steps(program)));
    }
    if let Some(weight) = stored_apart(phases, &plans) {
        return Err(CertificateError::new(format!(
            "the phases store the weight `{weight}` in different layouts"
        )));
    }
    if cost != claim.cost_ps {
        return Err(CertificateError::new(format!(
            "the plan takes {cost} ps, not {} ps",
            claim.cost_ps
        )));
    }
    if cost >= MOST_COST {
        return Err(CertificateError::new("the plan takes too long to be bounded"));
    }
    let joint = side_by_side(phases)
        .ok_or_else(|| CertificateError::new("the source has no such layer"))?;
    let Shown { bound, alternatives, limit } =
        bound(claim, Ground { joint: &joint, hardware, loops })?;
    if bound > cost {
        // This is an error of the plan or of the checker: no plan of the plan space is below a
        // bound on all of them.
        return Err(CertificateError::new(format!(
            "the plan takes {cost} ps, below the bound of {bound} ps on all plans"
        )));
    }
    if bound != claim.lower_bound_ps {
        let claimed = claim.lower_bound_ps;
        return Err(CertificateError::new(format!(
            "the prices show a bound of {bound} ps, not {claimed} ps"
        )));
    }
    let proof = match claim.proof {
        // Where the prices prove the plan best, the claim of the file does not matter.
        _ if bound == cost => Some(Proof::Certificate),
        Claim::Certificate => {
            let message = format!(
                "the prices show a bound of {bound} ps, which does not prove a plan of {cost} ps \
                    best"
            );
            return Err(CertificateError::new(message));
        }
        Claim::Search => Some(Proof::Search),
        Claim::None => None,
    };
    Ok(Verified {
        layer: claim.layer.clone(),
        cost: Picoseconds(cost),
        lower_bound: Picoseconds(bound),
        proof,
        chip: hardware.name.clone(),
        built_in: Hardware::built_in(&hardware.name).is_some_and(|known| {
            known.with_memory_limit(hardware.hbm_bytes)
                == hardware.with_memory_limit(hardware.hbm_bytes)
        }),
        inequalities: alternatives,
        limit,
        unshown: claim.unshown.filter(|_| bound < cost),
    })
}

fn read_plans(text: &str) -> Result<Vec<Plan>, CertificateError> {
    let plans = shard_ir::text::parse(text)
        .map_err(|error| CertificateError::new(format!("the plan cannot be read: {error}")))?;
    for plan in &plans {
        if let Some(error) = shard_ir::verify::verify(plan).err().into_iter().flatten().next() {
            return Err(CertificateError::new(format!("the plan is not legal: {error}")));
        }
    }
    Ok(plans)
}

/// Checks that a legal plan computes a program, is for the chip and fits in its memory. Returns its
/// time in picoseconds.
fn check_plan(
    plan: &Plan,
    program: &Program,
    hardware: &Hardware,
    loops: bool,
) -> Result<u64, CertificateError> {
    if plan.hardware.as_deref() != Some(hardware.name.as_str()) {
        let (named, chip) = (plan.hardware.as_deref().unwrap_or("no chip"), &hardware.name);
        return Err(CertificateError::new(format!(
            "the plan is for {named}, and the inputs are for {chip}"
        )));
    }
    if !loops && plan.instructions.iter().any(|i| matches!(i.kind, InstrKind::CollectiveEinsum(_)))
    {
        return Err(CertificateError::new(
            "the plan has loops, and the plan space that is bounded has none",
        ));
    }
    computes(plan, program).map_err(CertificateError::new)?;
    let (needs, has) = (Memory::of(plan).peak().0, hardware.hbm_bytes);
    if needs > has {
        // A plan that does not fit is not in the plan space.
        return Err(CertificateError::new(format!(
            "the plan does not fit: it needs {needs} bytes on each device, and `{}` has {has}",
            hardware.name
        )));
    }
    Ok(shard_cost::price(plan, hardware).totals.serial_time.0)
}

/// What a certificate shows of all forms of a program.
struct Shown {
    /// The lower bound, in picoseconds.
    bound: u64,
    alternatives: u64,
    limit: Option<TooMany>,
}

/// The least bound over all forms of a program and all layouts of labels, and the number of
/// alternatives that it rests on. A form without prices is bounded by its flops alone; where the
/// forms are too many to enumerate, the bound is 0.
fn bound(claim: &LayerCertificate, ground: Ground<'_>) -> Result<Shown, CertificateError> {
    let enough = claim.lower_bound_ps;
    let Some(together) = &claim.together else {
        let forms = forms(&ground.joint.program);
        let (bound, alternatives) = bound_one_by_one(claim, &forms.all, ground, enough)?;
        let bound = if forms.cut.is_some() { 0 } else { bound };
        return Ok(Shown { bound, alternatives, limit: forms.cut });
    };
    let choices = match Choices::of(&ground.joint.program) {
        Ok(choices) => choices,
        Err(limit) => return Ok(Shown { bound: 0, alternatives: 0, limit: Some(limit) }),
    };
    let written: Vec<Program> =
        choices.written_is_apart().then(|| choices.written()).into_iter().collect();
    let (least, count) = bound_one_by_one(claim, &written, ground, enough)?;
    let (bound, alternatives) = bound_together(together, &choices, ground)?;
    Ok(Shown { bound: bound.min(least), alternatives: alternatives + count, limit: None })
}

/// The least bound over some forms in picoseconds, and the number of alternatives that it rests on.
/// A form whose bound reaches `enough` is not bounded further.
fn bound_one_by_one(
    LayerCertificate { forms: priced, branches, .. }: &LayerCertificate,
    forms: &[Program],
    Ground { joint, hardware, loops }: Ground<'_>,
    enough: u64,
) -> Result<(u64, u64), CertificateError> {
    if priced.len() > forms.len() {
        let (has, priced) = (forms.len(), priced.len());
        return Err(CertificateError::new(format!(
            "there are {has} forms of the program, and prices for {priced}"
        )));
    }
    let numbers = || branches.iter().map(|branches| branches.form as usize);
    if numbers()
        .any(|form| form >= forms.len() || numbers().filter(|other| *other == form).count() > 1)
    {
        return Err(CertificateError::new(
            "there are branches of a form that the program does not have, or twice of one",
        ));
    }
    let (mut least, mut alternatives) = (u64::MAX, 0);
    for (i, form) in forms.iter().enumerate() {
        let sets = priced.get(i).map_or(&[][..], Vec::as_slice);
        let branches = branches.iter().find(|branches| branches.form as usize == i);
        if sets.is_empty() && branches.is_none() {
            least = least.min(least_time(form, hardware));
            continue;
        }
        let mut space = Space::new(form, hardware, loops, &joint.present)?;
        let mut bound = 0;
        if !sets.is_empty() {
            let (shown, count) = bound_of_form(&space, sets, enough)?;
            (bound, alternatives) = (shown, alternatives + count);
        }
        if let Some(branches) = branches {
            let (shown, count) = space.bound_of_branches(branches)?;
            (bound, alternatives) = (bound.max(shown), alternatives + count);
        }
        least = least.min(bound);
    }
    Ok((least, alternatives))
}

/// The bound of one form in picoseconds, and the number of alternatives that it rests on: for each
/// assignment of layouts to labels the best bound of any set of prices, and of these the least. A
/// set that shows `enough` ends the work.
fn bound_of_form(
    space: &Space<'_>,
    sets: &[PriceSet],
    enough: u64,
) -> Result<(u64, u64), CertificateError> {
    // A set with side prices may bound all layouts of labels at once; then they are not bounded one
    // by one.
    let mut alternatives = 0;
    for set in sets.iter().filter(|set| !set.sides.is_empty()) {
        let bound = space.bound(set)?;
        alternatives += bound.alternatives;
        let shown = space.bound_under(&bound, &[]).unwrap_or(u64::MAX);
        if shown >= enough {
            return Ok((shown, alternatives));
        }
    }
    let cases = assignments(space.program(), MOST_LABEL_LAYOUTS);
    let mut bounds = vec![0; cases.len()];
    for set in sets {
        let bound = space.bound(set)?;
        alternatives += bound.alternatives;
        for (best, labels) in bounds.iter_mut().zip(&cases).filter(|(best, _)| **best < enough) {
            // An assignment that no plan meets is bounded by infinity.
            *best = (*best).max(space.bound_under(&bound, labels).unwrap_or(u64::MAX));
        }
    }
    Ok((bounds.into_iter().min().unwrap_or(u64::MAX), alternatives))
}
